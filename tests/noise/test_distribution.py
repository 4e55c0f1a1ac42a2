"""Requirement N3: the noise has the stated distribution, and a scale that is 2 % off is noticed.

A correct sampler fails one of these tests once in 10⁸ runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri

from hdmm.noise import discrete_laplace, rounded_gaussian
from hdmm.noise.bits import IntegerArray
from tests.noise.exact import Below, edges, gaussian_below, laplace_below, p_value

RARE = 1e-9
OFF = Fraction(2, 100)
NORMAL = 10**6
LONG = pytest.param(10**7, marks=pytest.mark.slow)

SCALES = [Fraction(1, 5), Fraction(1), Fraction(37, 10), Fraction(1000), Fraction(2**21), Fraction(2**40), 2**52]


@pytest.mark.parametrize("size", [NORMAL, LONG])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_laplace(scale: Fraction, size: int) -> None:
    check(discrete_laplace, laplace_below, Fraction(scale), float(scale), size)


@pytest.mark.parametrize("size", [NORMAL, LONG])
@pytest.mark.parametrize("sigma", [Fraction(1, 3), *SCALES[1:-1], 2**51], ids=str)
def test_gaussian(sigma: Fraction, size: int) -> None:
    check(rounded_gaussian, gaussian_below, Fraction(sigma) ** 2, float(sigma), size)


@pytest.mark.parametrize("size", [NORMAL, LONG])
@pytest.mark.parametrize("sigma", [Fraction(7, 10), Fraction(2), Fraction(10), Fraction(127)], ids=str)
def test_small_gaussian(sigma: Fraction, size: int) -> None:
    """By the table of σ."""
    check(rounded_gaussian, gaussian_below, sigma**2, float(sigma), size)


@pytest.mark.parametrize("size", [NORMAL, LONG])
@pytest.mark.parametrize("sigma", [2**21, 2**40], ids=str)
def test_gaussian_in_a_thousand_bins(sigma: int, size: int) -> None:
    """Bins of equal probability, many within each cell of |Z|."""
    noise = rounded_gaussian(sigma**2, size)
    ends = np.rint(sigma * ndtri(np.arange(1, 1000) / 1000)).astype(np.int64).tolist()
    assert p_value(noise, gaussian_below(Fraction(sigma**2)), ends) > RARE
    for wrong in (1 - OFF, 1 + OFF):
        assert p_value(noise, gaussian_below(sigma**2 * wrong**2), ends) < RARE


def check(
    sampler: Callable[[Fraction, int], IntegerArray],
    below: Callable[[Fraction], Below],
    parameter: Fraction,
    spread: float,
    size: int,
) -> None:
    noise = sampler(parameter, size)
    assert noise.dtype == np.int64
    assert noise.shape == (size,)
    parts = edges(below(parameter), spread)
    assert p_value(noise, below(parameter), parts) > RARE
    power = 1 if sampler is discrete_laplace else 2  # σ² moves by twice as much as σ
    for wrong in (parameter * (1 - OFF) ** power, parameter * (1 + OFF) ** power):
        assert p_value(noise, below(wrong), parts) < RARE


def test_tiny_scale_gives_no_noise() -> None:
    """At scale 1/50, P(Z ≠ 0) < 2e⁻⁵⁰: a draw that is not 0 is not seen in 10⁶, and should not be."""
    assert not discrete_laplace(Fraction(1, 50), NORMAL).any()
    assert not rounded_gaussian(Fraction(1, 2500), NORMAL).any()


@pytest.mark.parametrize("sampler", [discrete_laplace, rounded_gaussian])
def test_low_digits_of_wide_noise_are_uniform(sampler: Callable[[Fraction, int], IntegerArray]) -> None:
    noise = sampler(Fraction(2**42), NORMAL)
    counts = np.bincount(noise & 255, minlength=256)
    chi2 = ((counts - NORMAL / 256) ** 2).sum() / (NORMAL / 256)
    assert 100 < chi2 < 460  # 255 ± 23: nine deviations


def test_zero_is_counted_once_and_signs_are_even() -> None:
    """A sign put on a geometric number would give 0 twice the weight: P(0) = 0.63 instead of 0.46 at scale 1."""
    n, q = NORMAL, math.exp(-1)
    noise = discrete_laplace(1, n)
    for value, p in ((0, (1 - q) / (1 + q)), (1, q * (1 - q) / (1 + q)), (-1, q * (1 - q) / (1 + q))):
        assert abs((noise == value).sum() - n * p) < 6.5 * math.sqrt(n * p * (1 - p))
    positive, negative = (noise > 0).sum(), (noise < 0).sum()
    assert abs(positive - negative) < 6.5 * math.sqrt(positive + negative)


@pytest.mark.parametrize("sampler", [discrete_laplace, rounded_gaussian])
def test_every_cell_has_noise_of_its_own(sampler: Callable[[Fraction, int], IntegerArray]) -> None:
    """One draw for many cells was OpenDP's #2344."""
    noise = sampler(Fraction(2**80 if sampler is rounded_gaussian else 2**40), 100_000)
    assert len(np.unique(noise)) > 99_000
    assert noise.strides == (8,)
    assert noise.flags.owndata
    assert noise.flags.writeable
    x = noise / noise.std()
    for lag in (1, 2, 8, 4096, 8191, 8192, 8193, 16384):  # within a batch, and from one to the next
        assert abs(np.mean(x[lag:] * x[:-lag])) < 7 / math.sqrt(len(x) - lag)
    assert not np.array_equal(sampler(1000, 50), sampler(1000, 50))


@pytest.mark.parametrize("size", [0, 1, 2, 8191, 8192, 8193, 20_000])
def test_sizes(size: int) -> None:
    for noise in (discrete_laplace(2**30, size), rounded_gaussian(2**60, size)):
        assert noise.shape == (size,)
        assert len(np.unique(noise)) >= 0.99 * size
