"""The samplers take exact, positive, bounded numbers and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hdmm import HdmmError
from hdmm.base.exceptions import NoiseError
from hdmm.noise import LARGEST_NOISE, LARGEST_SCALE, discrete_laplace, rounded_gaussian
from hdmm.noise.bits import IntegerArray

SAMPLERS = [discrete_laplace, rounded_gaussian]
INEXACT = [
    1.0,
    0.5,
    float("nan"),
    float("inf"),
    True,
    False,
    np.float64(2),
    np.int64(2),
    np.True_,
    "1",
    Decimal(1),
    None,
]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("parameter", INEXACT, ids=repr)
def test_inexact_numbers_are_refused(sampler: Callable[..., IntegerArray], parameter: object) -> None:
    with pytest.raises(NoiseError, match=r"of the noise is of type .*Fraction\(37, 10\)\.$"):
        sampler(parameter, 1)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("parameter", [0, -1, Fraction(0), Fraction(-1, 10**30), -(2**60)], ids=repr)
def test_numbers_not_above_0_are_refused(sampler: Callable[..., IntegerArray], parameter: Fraction) -> None:
    with pytest.raises(NoiseError, match="not above 0"):
        sampler(parameter, 1)


@pytest.mark.parametrize(
    ("sampler", "most"), [(discrete_laplace, Fraction(2**52)), (rounded_gaussian, Fraction(2**102))]
)
def test_limits(sampler: Callable[..., IntegerArray], most: Fraction) -> None:
    least = Fraction(1, 2**510)
    assert sampler(most, 3).any()
    assert sampler(most - Fraction(1, 3), 3).any()
    assert sampler(least, 3).tolist() == [0, 0, 0]
    for beyond in (most + Fraction(1, 10**30), most * 2, least / 2, Fraction(1, 10**400), Fraction(10**400)):
        with pytest.raises(NoiseError, match=r"must be from 2\*\*-510 to 2\*\*\d+\. .* fewer bits\.$"):
            sampler(beyond, 1)


def test_noise_beyond_the_largest_has_probability_below_one_in_2_to_the_1000() -> None:
    tail = mpmath.mpf(LARGEST_NOISE) / LARGEST_SCALE
    assert 2 * mpmath.exp(-tail) < mpmath.mpf(2) ** -1000
    sigmas = mpmath.mpf(LARGEST_NOISE) / (LARGEST_SCALE // 2)
    assert 3 * mpmath.exp(-(sigmas**2) / 2) < mpmath.mpf(2) ** -1000


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [-1, 1.0, True, "1", None, (2, 3), np.int64(3)], ids=repr)
def test_sizes_are_whole_numbers(sampler: Callable[..., IntegerArray], size: object) -> None:
    with pytest.raises(NoiseError, match="number of draws") as error:
        sampler(1, size)
    assert isinstance(error.value, HdmmError)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_noise_does_not_depend_on_numpys_error_state(sampler: Callable[..., IntegerArray]) -> None:
    with np.errstate(all="raise"):
        assert len(sampler(Fraction(1, 2**500), 100)) == len(sampler(3, 100)) == len(sampler(2**40, 100)) == 100
