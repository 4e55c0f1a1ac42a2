"""Draws of either noise, given the scale that lattice.py computes: s for Laplace noise, σ² for Gaussian noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hdmm.noise.gaussian import discrete_gaussian
from hdmm.noise.laplace import discrete_laplace
from hdmm.noise.parameters import exact_scale, exact_variance
from hdmm.privacy import Noise


def draw(noise: Noise, scale: Fraction, size: int) -> npt.NDArray[np.int64]:
    """Independent exact draws.

    >>> draw(Noise.LAPLACE, Fraction(10), 3).shape
    (3,)
    """
    match noise:
        case Noise.LAPLACE:
            return discrete_laplace(scale, size)
        case Noise.GAUSSIAN:
            return discrete_gaussian(scale, size)


def check_scale(noise: Noise, scale: Fraction) -> None:
    """Raise NoiseError if `draw` would refuse the scale."""
    match noise:
        case Noise.LAPLACE:
            exact_scale(scale)
        case Noise.GAUSSIAN:
            exact_variance(scale)
