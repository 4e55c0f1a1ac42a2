"""The discrete Gaussian sampler that hdmm had before: a rate to compare with (benchmarks/noise.py).

Canonne, Kamath and Steinke (2020), Algorithm 3: Y from discrete Laplace noise of scale t = ⌊σ⌋ + 1 is kept with
probability e^(−a), a = (|Y| − σ²/t)²/(2σ²). A float filter with a margin decides, and exact digits within it.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np

from hdmm.noise.bits import Bits, IntegerArray, drawn
from hdmm.noise.laplace import coins_of, draws_of
from hdmm.noise.probability import Exponential, Uniform

_BATCH = 16384
_MARGIN = 2.0**-28
_PLACES = 32


def discrete_gaussian(sigma_squared: Fraction | int, size: int) -> IntegerArray:
    """`size` draws with P(Z = z) ∝ e^(−z²/(2σ²))."""
    return drawn(lambda bits: _draws(bits, Fraction(sigma_squared), size))


def _draws(bits: Bits, sigma_squared: Fraction, size: int) -> IntegerArray:
    t = isqrt(sigma_squared.numerator // sigma_squared.denominator) + 1
    coins, centre = coins_of(Fraction(t)), sigma_squared / t
    noise, filled = np.empty(size, dtype=np.int64), 0
    while filled < size:
        missing = size - filled
        Y = draws_of(bits, coins, min(_BATCH, missing + missing // 2 + 8))
        chosen = Y[_accepted(bits, sigma_squared, centre, Y)][:missing]
        noise[filled : filled + len(chosen)] = chosen
        filled += len(chosen)
    return noise


def _accepted(bits: Bits, sigma_squared: Fraction, centre: Fraction, Y: IntegerArray) -> np.ndarray:
    uniform = bits.numbers(_PLACES, len(Y))
    d = np.abs(Y).astype(np.float64)
    d -= float(centre)
    d *= d
    d *= -float(1 / (2 * sigma_squared))
    gap = np.exp(d, out=d)
    gap -= uniform * 2.0**-_PLACES
    kept = gap > _MARGIN
    for i in np.flatnonzero(np.abs(gap) <= _MARGIN).tolist():
        a = (abs(int(Y[i])) - centre) ** 2 / (2 * sigma_squared)
        kept[i] = Uniform(bits, int(uniform[i]), _PLACES).below(Exponential(a))
    return kept
