"""Requirement S4: ρ ↔ ε is never on the wrong side and is within 2⁻⁸⁰, as mpmath confirms at 1200 bits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm.base.exceptions import PrivacyError
from hdmm.base.rounding import fraction, number, rounding
from hdmm.privacy import conversion
from hdmm.privacy.conversion import epsilon_up, rho_down
from hdmm.privacy.gdp import mu_down
from hdmm.privacy.guarantee import ZCDP, ApproxDP
from tests.support.effort import examples

CASES = [
    (Fraction(1), Fraction(1, 10**6)),
    (Fraction(1, 10), Fraction(1, 10**9)),
    (Fraction(1, 1000), Fraction(1, 10**15)),
    (Fraction(20), Fraction(1, 10**30)),
    (Fraction(8), Fraction(1, 2)),
    (Fraction(1, 100), Fraction(99, 100)),
    (Fraction(1, 10**12), Fraction(1, 10**12)),
    (Fraction(1, 10**100), Fraction(1, 10**60)),
    (Fraction(10**6), Fraction(1, 10**5)),
]
LITTLE = Fraction(1, 2**80)


def delta_of(epsilon: Fraction, rho: Fraction) -> mpmath.mpf:
    """The least δ over all α: where the derivative of ln δ, ρ(2α − 1) − ε − ln(1 + 1/(α − 1)), is 0, by bisection."""
    e, r = mpmath.mpf(epsilon.numerator) / epsilon.denominator, mpmath.mpf(rho.numerator) / rho.denominator
    low, high = mpmath.mpf(-2000), mpmath.mpf(2000)
    for _ in range(700):
        g = mpmath.exp((low + high) / 2)
        if r * (2 * g + 1) - e - mpmath.log1p(1 / g) < 0:
            low = (low + high) / 2
        else:
            high = (low + high) / 2
    a = 1 + g
    return mpmath.exp(g * (a * r - e)) / g * (g / a) ** a


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_rho_is_the_largest_but_for_a_little(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_down(epsilon, delta)
    with mpmath.workprec(1200):
        d = mpmath.mpf(delta.numerator) / delta.denominator
        assert delta_of(epsilon, rho) <= d < delta_of(epsilon, rho * (1 + LITTLE))


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_epsilon_is_the_least_but_for_a_little(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_down(epsilon, delta) * Fraction(3, 2)
    least = epsilon_up(rho, delta)
    with mpmath.workprec(1200):
        d = mpmath.mpf(delta.numerator) / delta.denominator
        assert delta_of(least, rho) <= d < delta_of(least * (1 - LITTLE), rho)


ORDINARY = [
    (Fraction(e, 7), Fraction(1, 10**d)) for e, d in ((1, 5), (5, 6), (9, 12), (22, 9))
]  # 1 + g is exact in 100 bits


@pytest.mark.parametrize("kept", [20, 128])
def test_rounding_is_to_the_safe_side_where_it_shows(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With so few bits that each step rounds by more than the search for g loses: still never on the wrong side."""
    monkeypatch.setattr(conversion, "_PRECISION", 100)
    monkeypatch.setattr(conversion, "_KEPT", kept)
    for epsilon, delta in ORDINARY:
        rho = rho_down.__wrapped__(epsilon, delta)
        least = epsilon_up.__wrapped__(rho, delta)
        with mpmath.workprec(1200):
            d = mpmath.mpf(delta.numerator) / delta.denominator
            assert delta_of(epsilon, rho) <= d
            assert delta_of(least, rho) <= d


def test_results_keep_128_bits() -> None:
    """So that sums of many debits stay short; rounding loses 2⁻¹²⁷ at most."""
    for results in (
        [rho_down(epsilon, delta) for epsilon, delta in ORDINARY],
        [epsilon_up(epsilon, delta) for epsilon, delta in ORDINARY],
    ):
        assert max(result.numerator.bit_length() for result in results) == 128
        assert all(result.denominator & (result.denominator - 1) == 0 for result in results)


@pytest.mark.parametrize("g", [2.0**-1000, 1.5 * 2.0**-1000, 2.0**1000])
def test_one_more_than_any_g_is_exact(g: float) -> None:
    """What is not rounded needs no direction: g has 64 bits and lies between e⁻⁷⁶⁰ and e⁷⁶⁰."""
    assert math.log(2) * (1000 + 96) < conversion._RANGE < math.log(2) * (conversion._PRECISION - 64 - 1)
    down = rounding("down", conversion._PRECISION)
    for exact in (Fraction(g) * (1 + Fraction(1, 2**63)), Fraction(g) / 2**95 * (1 + Fraction(1, 2**63))):
        assert fraction(down.add(number(exact, down), 1)) == exact + 1


def test_what_is_searched_is_rounded_down() -> None:
    """Nothing a search finds is above the value at the g that it found: a third, rounded, shows the way."""
    assert fraction(conversion._largest(lambda g, down: down.div(1, 3))) < Fraction(1, 3)
    assert fraction(conversion._largest(lambda g, down: down.div(-1, 3))) < -Fraction(1, 3)


@pytest.mark.parametrize("precision", [12, 20, 40])
def test_the_slack_is_rounded_down(precision: int) -> None:
    """B(g) with few bits, for g such that 1 + g is exact in them."""
    down = rounding("down", precision)
    for g in (Fraction(1, 64), Fraction(1, 2), Fraction(3, 4), Fraction(7), Fraction(100)):
        for delta in (Fraction(1, 3), Fraction(1, 1000), Fraction(1, 10**9)):
            found = fraction(conversion._slack(number(g, down), delta, down))
            with mpmath.workprec(400):
                G, d = mpmath.mpf(g.numerator) / g.denominator, mpmath.mpf(delta.numerator) / delta.denominator
                exact = mpmath.log1p(1 / G) + (mpmath.log(d) + mpmath.log1p(G)) / G
                gap = exact - mpmath.mpf(found.numerator) / found.denominator
                assert 0 < gap < (1 + abs(exact)) * (1 + 1 / G) * mpmath.mpf(2) ** (8 - precision)


@examples(30)
@given(
    st.fractions(min_value=Fraction(1, 10**4), max_value=30, max_denominator=10**6),
    st.integers(1, 40).map(lambda k: Fraction(1, 10**k)),
)
def test_there_and_back_spends_no_more(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_down(epsilon, delta)
    again = epsilon_up(rho, delta)
    assert again <= epsilon * (1 + LITTLE)
    assert rho_down(again, delta) <= rho * (1 + LITTLE)
    L = math.log(1 / delta)
    standard = (math.sqrt(L + epsilon) - math.sqrt(L)) ** 2  # of ε = ρ + 2√(ρ·ln(1/δ))
    assert float(rho) > standard * (1 - 1e-6)  # its cancellation costs digits


@pytest.mark.parametrize(("epsilon", "delta"), CASES[:6])
def test_gaussian_noise_at_that_rho_is_private(epsilon: Fraction, delta: Fraction) -> None:
    """Its exact δ is Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) with μ² = 2ρ (Balle and Wang 2018), and must be below."""
    with mpmath.workdps(80):
        mu = mpmath.sqrt(2 * mpmath.mpf(float(rho_down(epsilon, delta))))
        e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        exact = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        assert float(delta) / 1000 < exact < float(delta)


def test_much_delta_needs_no_epsilon() -> None:
    assert epsilon_up(Fraction(1, 10**6), Fraction(9, 10)) == 0
    assert ZCDP(Fraction(1, 10**6)).epsilon_at("0.9") == 0


def test_approximate_privacy_measures_as_its_rho() -> None:
    privacy = ApproxDP("0.5", "1e-9")
    assert (privacy.epsilon, privacy.delta) == (Fraction(1, 2), Fraction(1, 10**9))
    assert privacy.rho == mu_down(Fraction(1, 2), Fraction(1, 10**9)) ** 2 / 2
    assert privacy.noise == "gaussian"
    assert privacy.variance_factor == 1 / (2 * privacy.rho) == ZCDP(privacy.rho).variance_factor
    assert eval(repr(privacy)) == privacy
    assert ApproxDP(0.5, delta=1e-9) == privacy
    assert hash(ApproxDP(0.5, delta=1e-9)) == hash(privacy)


@pytest.mark.parametrize("delta", [0, -1, 1, 2, "1.0", True, None, float("nan"), float("inf"), 5e-324, "abc"], ids=repr)
def test_what_is_no_delta_is_refused(delta: object) -> None:
    for refused in (lambda: ApproxDP(1, delta), lambda: ZCDP(1).epsilon_at(delta)):
        with pytest.raises(PrivacyError, match=r"^delta is .*such as '1e-9'\.$"):
            refused()


def test_extreme_parameters() -> None:
    least, most = Fraction(1, 2**500), Fraction(2**500)
    likely = 1 - least
    for epsilon, delta in ((least, Fraction(1, 2)), (least, likely), (most, least), (most, likely)):
        assert 0 < float(ApproxDP(epsilon, delta).variance_factor) < math.inf
        assert epsilon_up(epsilon, delta) >= 0
    with pytest.raises(PrivacyError, match=r"^epsilon is .*such as ApproxDP\('0.5', '1e-9'\)\.$"):
        ApproxDP(least, least)


@given(st.fractions(), st.integers(2, 300))
def test_numbers_round_their_way(exact: Fraction, precision: int) -> None:
    low, high = (fraction(number(exact, rounding(way, precision))) for way in ("down", "up"))
    assert low <= exact <= high
    assert high - low <= abs(exact) * Fraction(1, 2 ** (precision - 1))
