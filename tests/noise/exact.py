"""The distributions the noise should have, and how far a sample is from one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from hdmm.noise.probability import Probability

Below = Callable[[int], float]  # z ↦ P(Z < z)


def laplace_below(scale: Fraction) -> Below:
    """P(Z < z) = q^(1−z)/(1 + q) for z ≤ 0, and 1 − q^z/(1 + q) beyond."""
    q = math.exp(-1 / scale)

    def below(z: int) -> float:
        return math.exp((z - 1) / scale) / (1 + q) if z <= 0 else 1 - math.exp(-z / scale) / (1 + q)

    return below


def gaussian_below(sigma_squared: Fraction) -> Below:
    """P(round(σZ) < z) = Φ((z − ½)/σ)."""
    sigma = math.sqrt(sigma_squared)
    return lambda z: float(special.ndtr((z - 0.5) / sigma))


def edges(below: Below, spread: float, bins: int = 60) -> list[int]:
    """Whole numbers that part the line into bins of probability 1e-4 at least, about equal where they can be."""
    grid = np.unique(np.rint(spread * np.linspace(-6, 6, bins)).astype(np.int64)) if spread > 4 else np.arange(-30, 31)
    kept, last = [], 0.0
    for edge in map(int, grid):
        if below(edge) - last > 1e-4 and 1 - below(edge) > 1e-4:
            kept.append(edge)
            last = below(edge)
    return kept


def p_value(noise: NDArray[np.int64], below: Below, parts: list[int]) -> float:
    """Of the chi-square test of a sample against a distribution."""
    cumulative = np.array([0.0, *(below(z) for z in parts), 1.0])
    expected = np.diff(cumulative) * len(noise)
    observed = np.bincount(np.searchsorted(parts, noise, side="right"), minlength=len(expected))
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(parts)))


def check_laplace(noise: Sequence[int], heads: NDArray[np.bool], coins: Sequence[Probability], scale: Fraction) -> None:
    """The noise of every result of the coins, once: P(Z = z) is (1 − q)/(1 + q)·q^|z| to 400 bits."""
    with mpmath.workprec(600):
        weights = np.full(len(heads), mpmath.mpf(1))
        for column, p in zip(heads.T, _chances(coins), strict=True):
            weights = weights * np.where(column, p, 1 - p)
        total = dict.fromkeys(range(-len(heads) // 4, len(heads) // 4), mpmath.mpf(0))
        for z, weight in zip(noise, weights, strict=True):
            total[z] += weight
        q = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
        for z, chance in total.items():
            assert abs(chance / ((1 - q) / (1 + q) * q ** abs(z)) - 1) < mpmath.mpf(2) ** -400


def check_low_digits(
    D: Sequence[int], results: Iterable[tuple[int, int, int]], low: Sequence[Probability], last: Probability, scale: int
) -> None:
    """The digits D of every U and result (D′, D″, whether the last coin shows heads): P(D = d) ∝ q^d to 400 bits."""
    ends = 1 << len(low)
    with mpmath.workprec(600):
        p, (p_beyond,) = _chances(low), _chances([last])
        chance = [mpmath.fprod(p[k] if d >> k & 1 else 1 - p[k] for k in range(len(low))) for d in range(ends)]
        total = [mpmath.mpf(0)] * ends
        for d, (one, two, sure) in zip(D, results, strict=True):
            total[d] += chance[one] * chance[two] * (p_beyond if sure else 1 - p_beyond) / ends
        q = mpmath.exp(-mpmath.mpf(1) / scale)
        for d in range(ends):
            assert abs(total[d] / (q**d * (1 - q) / (1 - q**ends)) - 1) < mpmath.mpf(2) ** -400


def _chances(probabilities: Iterable[Probability]) -> list[mpmath.mpf]:
    return [mpmath.ldexp(p.digits(600), -600) for p in probabilities]
