"""Exact discrete Gaussian noise, many draws at a time: P(Z = z) ∝ e^(−z²/(2σ²)) on the integers.

Canonne, Kamath and Steinke (2020), Algorithm 3: with t = ⌊σ⌋ + 1, draw Y from discrete Laplace noise of scale t and
keep it with probability e^(−a), a = (|Y| − σ²/t)²/(2σ²), because

    e^(−|y|/t)·e^(−a) = e^(−y²/(2σ²))·e^(−σ²/(2t²)),   where the last factor is the same for every y.

U < e^(−a) is decided by floats if they are far enough apart, and exactly if they are not.

The filter's error, with η = 2⁻⁵³, m = σ²/t < σ, d = |Y| − m, x = |d|/σ, so that a = x²/2. The floats of |Y|, m and
1/(2σ²) are the nearest ones, so d̂ = d + θ with |θ| ≤ 2.01·η·(|d| + σ), and â = a + ω with |ω| ≤ 4·η·(x² + x).
 - x ≤ 2¹⁰: |ω| < 2⁻²⁹, so |e^(−â) − e^(−a)| ≤ 1.01·|ω|·e^(−a) ≤ 4.04·η·(x² + x)·e^(−x²/2) ≤ 5.2·η < 2⁻⁵⁰.
 - x > 2¹⁰: both are below e^(−2¹⁸).
Nothing underflows before the exponential: d̂ is 0, or at least min(σ², 2⁻⁵³) in size, and σ² ≥ 2⁻⁵¹⁰. NumPy's exp is
accurate to a few units of 2⁻⁵³ (a test compares it with 200 bits); the bound allows 2⁻⁴⁴. u, the first 32 bits of U, is
at most 2⁻³² below U, and the subtraction rounds by at most 2⁻⁵³. The total error is below 2⁻³¹, so a margin of 2⁻²⁸
is eight times what is needed; one draw in 2²⁷ falls within it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hdmm.noise.bits import Bits, IntegerArray, drawn
from hdmm.noise.laplace import BATCH, Draws, LaplaceCoins, coins_of, draws_of
from hdmm.noise.parameters import exact_size, exact_variance
from hdmm.noise.probability import Exponential, below

_MARGIN = 2.0**-28
_PLACES = 32  # of U that are drawn for every acceptance


@dataclass(frozen=True, slots=True, eq=False)
class Bell:
    """σ², the coins of the Laplace noise from which draws are accepted, and σ²/t."""

    sigma_squared: Fraction
    laplace: LaplaceCoins
    centre: Fraction


def discrete_gaussian(sigma_squared: Fraction | int, size: int) -> IntegerArray:
    """`size` independent draws with P(Z = z) ∝ e^(−z²/(2σ²)), exactly, from OS entropy.

    The variance is at most σ², and less than 1e-6 below it for σ ≥ 1. O(size): one in 1.3 Laplace draws is kept
    if σ is large, and one in 2.3 in the worst case (σ = 0.3).

    >>> noise = discrete_gaussian(Fraction(37, 10), 1000)
    >>> noise.dtype, noise.shape
    (dtype('int64'), (1000,))
    """
    bell, size = bell_of(exact_variance(sigma_squared)), exact_size(size)
    return drawn(lambda bits: gaussian(bits, bell, size))


def gaussian(bits: Bits, bell: Bell, size: int) -> IntegerArray:
    """`size` draws, from the given bits."""
    noise = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        missing = size - filled
        draws = draws_of(bits, bell.laplace, min(BATCH, missing + missing // 2 + 8))
        kept = accepted(bits, bell, draws)
        chosen = draws.saturated()[kept][:missing]
        noise[filled : filled + len(chosen)] = chosen
        filled += len(chosen)
    return noise


@lru_cache(maxsize=1024)
def bell_of(sigma_squared: Fraction) -> Bell:
    """The numbers that the sampler needs, all exact: ⌊σ⌋ = ⌊√⌊σ²⌋⌋."""
    t = isqrt(sigma_squared.numerator // sigma_squared.denominator) + 1
    return Bell(sigma_squared, coins_of(Fraction(t)), sigma_squared / t)


def accepted(bits: Bits, bell: Bell, draws: Draws) -> NDArray[np.bool]:
    """A mask of the draws to keep: each one independently with probability e^(−a)."""
    uniform = bits.numbers(_PLACES, len(draws.low))
    gap = _probability(bell, draws.low)
    gap -= uniform * 2.0**-_PLACES
    kept = gap > _MARGIN
    unsure = np.flatnonzero(np.abs(gap) <= _MARGIN)
    for i in {*map(int, unsure), *draws.tails}:  # a tail is not in draws.low
        kept[i] = _decided(bits, bell, draws.exact(i), int(uniform[i]))
    return kept


def _probability(bell: Bell, draws: IntegerArray) -> NDArray[np.float64]:
    """e^(−a), within 2⁻⁴³."""
    d = draws.astype(np.float64)
    np.abs(d, out=d)
    d -= float(bell.centre)
    d *= d
    d *= -float(1 / (2 * bell.sigma_squared))
    with np.errstate(under="ignore"):  # e^(−a) becomes 0 if it is below every float
        return np.exp(d, out=d)


def _decided(bits: Bits, bell: Bell, draw: int, uniform: int) -> bool:
    a = (abs(draw) - bell.centre) ** 2 / (2 * bell.sigma_squared)
    return a == 0 or below(bits, Exponential(a), uniform=uniform, places=_PLACES)
