"""The distributions the noise should have, and how far a sample is from one."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Below = Callable[[int], float]  # z ↦ P(Z < z)


def laplace_below(scale: Fraction) -> Below:
    """P(Z < z) = q^(1−z)/(1 + q) for z ≤ 0, and 1 − q^z/(1 + q) beyond."""
    q = math.exp(-1 / scale)

    def below(z: int) -> float:
        return math.exp((z - 1) / scale) / (1 + q) if z <= 0 else 1 - math.exp(-z / scale) / (1 + q)

    return below


def gaussian_below(sigma_squared: Fraction) -> Below:
    """P(Z < z): the sum where σ is below 2000, and above it Φ((z − ½)/σ), which is as near as 1/σ²/24."""
    sigma = math.sqrt(sigma_squared)
    if sigma > 2000:
        return lambda z: float(special.ndtr((z - 0.5) / sigma))
    most = math.ceil(12 * sigma) + 2
    p = np.exp(-(np.arange(-most, most + 1.0) ** 2) / (2 * float(sigma_squared)))
    cumulative = np.concatenate([[0.0], np.cumsum(p / p.sum())])
    return lambda z: float(cumulative[min(max(z + most, 0), len(cumulative) - 1)])


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
