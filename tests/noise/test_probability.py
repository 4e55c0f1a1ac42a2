"""Requirement N2: every digit that the coins compare with is right, as mpmath confirms at 600 bits and more."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hdmm.base.rounding import fraction, rounding
from hdmm.noise import probability
from hdmm.noise.laplace import coins_of
from hdmm.noise.probability import Exponential, HalfNormal, Logistic, Probability
from tests.support.effort import examples

SCALES = [Fraction(1, 2**500), Fraction(1, 50), 1, Fraction(37, 10), 1000, 2**21, Fraction(2**40, 3), 2**52]


def oracle(probability: Probability, places: int, precision: int = 600) -> int:
    """⌊2ᵖˡᵃᶜᵉˢ·p⌋ by mpmath, which works with `precision` bits beyond the places."""
    with mpmath.workprec(precision + places):
        a = mpmath.mpf(probability.exponent.numerator) / probability.exponent.denominator
        match probability:
            case Exponential():
                p = mpmath.exp(-a)
            case HalfNormal():
                p = mpmath.erf(mpmath.sqrt(a))
            case _:
                p = 1 / (1 + mpmath.exp(a))
        return int(mpmath.floor(mpmath.ldexp(p, places)))


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_coins_of_a_scale(scale: Fraction) -> None:
    parts = coins_of(Fraction(scale))
    m, K = len(parts.low.probabilities), parts.digits
    beyond, tail, sign = parts.high.probabilities[-3:]
    digits = (*parts.low.probabilities, *parts.high.probabilities[:-3])
    assert [p.exponent * scale for p in digits] == [2**k for k in range(K)]
    assert [p.exponent * scale for p in (beyond, tail, sign)] == [2**m, 2**K, 1]
    assert all(isinstance(p, Logistic) for p in (*digits, sign))
    assert all(isinstance(p, Exponential) for p in (beyond, tail))
    assert tail.digits(64) == 0  # P(H ≥ 1) < 2⁻⁶⁴
    assert m == 0 or beyond.exponent < Fraction(1, 91)  # and H′ > 0 but for 1 in 92
    for coins in (parts.low, parts.high):
        assert not coins.first.flags.writeable
        assert not coins.second.flags.writeable
        for p, first, second in zip(coins.probabilities, coins.first, coins.second, strict=True):
            if p.exponent < 10**6:  # mpmath writes out e^(−2⁵⁰⁰)
                assert int(first) << 64 | int(second) == oracle(p, 72)
                assert p.digits(600) == oracle(p, 600)
            else:
                assert first == second == 0


@examples(300)
@given(
    st.sampled_from([Exponential, Logistic]),
    st.fractions(min_value=Fraction(1, 10**12), max_value=50, max_denominator=10**12),
    st.integers(0, 400),
)
@example(Exponential, Fraction(1, 2**90), 72)  # e⁻ᵃ begins with 90 ones
@example(Logistic, Fraction(1, 2**400), 300)  # and this, with a half less 2⁻⁴⁰²
@example(Exponential, Fraction(1, 2**400), 300)  # more ones than the first precision has bits
def test_digits(kind: type[Probability], exponent: Fraction, places: int) -> None:
    assert kind(exponent).digits(places) == oracle(kind(exponent), places)


EXPONENTS = [Fraction(k, 7) for k in range(1, 200, 3)] + [Fraction(1, k) for k in (3, 11, 101, 1009)]


@pytest.mark.parametrize("kind", [Exponential, Logistic, HalfNormal])
@pytest.mark.parametrize("precision", [4, 8, 20])
def test_bounds_are_on_their_sides(kind: type[Probability], precision: int) -> None:
    """With few bits, where nothing hides a step that rounds the other way: each bound, and both ways round."""
    up, down = rounding("up", precision), rounding("down", precision)
    apart = 0
    for exponent in EXPONENTS:
        p = kind(exponent)
        least, most = fraction(p.bound(down, up)), fraction(p.bound(up, down))
        exact = Fraction(oracle(p, 1000), 2**1000)
        assert least <= exact < exact + Fraction(1, 2**1000) <= most
        apart += most - least > exact / 2 ** (precision + 4)
    assert apart == len(EXPONENTS)


@pytest.mark.parametrize("kind", [Exponential, Logistic])
@pytest.mark.parametrize("guard", [0, 1, 2, 3])
def test_digits_are_right_with_hardly_a_guard(
    kind: type[Probability], guard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few bits beyond the digits cost another round, never a digit."""
    monkeypatch.setattr(probability, "_GUARD", guard)
    for exponent in EXPONENTS:
        for places in (1, 2, 5, 12, 40):
            p = kind(exponent)
            assert p.digits(places) == oracle(p, places)
            low, high = p.around(places)
            assert low <= oracle(p, places) < high


def test_digits_of_what_is_below_every_float() -> None:
    assert Exponential(Fraction(2**500)).digits(1000) == 0
    assert Exponential(Fraction(10**6)).digits(64) == 0
    assert Exponential(Fraction(3000)).digits(5000) == oracle(Exponential(Fraction(3000)), 5000)
