"""Draws of either noise, given the scale that lattice.py computes: s for Laplace noise, σ² for Gaussian noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hdmm.noise.bits import Bits
from hdmm.noise.gaussian import gaussian, rounded_gaussian
from hdmm.noise.laplace import coins_of, discrete_laplace, laplace
from hdmm.noise.parameters import exact_scale, exact_size, exact_variance
from hdmm.privacy.guarantee import Noise


def draw(noise: Noise, scale: Fraction, size: int) -> npt.NDArray[np.int64]:
    """Independent exact draws.

    >>> draw(Noise.LAPLACE, Fraction(10), 3).shape
    (3,)
    """
    match noise:
        case Noise.LAPLACE:
            return discrete_laplace(scale, size)
        case Noise.GAUSSIAN:
            return rounded_gaussian(scale, size)


def from_bits(bits: Bits, noise: Noise, scale: Fraction, size: int) -> npt.NDArray[np.int64]:
    """Independent exact draws, from the given bits."""
    match noise:
        case Noise.LAPLACE:
            return laplace(bits, coins_of(exact_scale(scale)), exact_size(size))
        case Noise.GAUSSIAN:
            return gaussian(bits, exact_variance(scale), exact_size(size))


def check_scale(noise: Noise, scale: Fraction) -> None:
    """Raise NoiseError if `draw` would refuse the scale."""
    match noise:
        case Noise.LAPLACE:
            exact_scale(scale)
        case Noise.GAUSSIAN:
            exact_variance(scale)
