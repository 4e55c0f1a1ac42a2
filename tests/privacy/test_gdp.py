"""Requirement S4: what Gaussian noise guarantees is never stated too low, and within 2⁻⁶⁰ of what mpmath finds."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from hdmm import ZCDP, ApproxDP
from hdmm.base.rounding import fraction, rounding
from hdmm.privacy import gdp
from hdmm.privacy.conversion import epsilon_up, rho_down
from hdmm.privacy.gdp import delta_of, gaussian_epsilon_up, is_private, mu_down, root
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
LITTLE = Fraction(1, 2**60)


def exact(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


def delta(epsilon: Fraction, mu: Fraction) -> mpmath.mpf:
    """Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ), with many more digits than cancel."""
    m, t = exact(mu), exact(epsilon) / exact(mu)
    return mpmath.ncdf(m / 2 - t) - mpmath.exp(exact(epsilon)) * mpmath.ncdf(-m / 2 - t)


@pytest.mark.parametrize(("epsilon", "least"), CASES)
def test_mu_is_the_largest_but_for_a_little(epsilon: Fraction, least: Fraction) -> None:
    mu = mu_down(epsilon, least)
    with mpmath.workprec(1500):
        assert delta(epsilon, mu) <= exact(least) < delta(epsilon, mu * (1 + LITTLE))


@pytest.mark.parametrize(("epsilon", "least"), [case for case in CASES if case[0] < 10**5])
def test_epsilon_is_the_least_but_for_a_little(epsilon: Fraction, least: Fraction) -> None:
    rho = rho_down(epsilon, least) * Fraction(7, 5)
    found = gaussian_epsilon_up(rho, least)
    with mpmath.workprec(1500):
        m = fraction(rounding("up", 2000).sqrt(gdp.number(2 * rho, rounding("up", 2000))))
        assert found == 0 or delta(found - epsilon_up(rho, least) * LITTLE, m) > exact(least)
        assert delta(found, m) <= exact(least)


@pytest.mark.parametrize(("sigma", "moved"), [("1/2", 1), ("3/2", 1), ("4", 3), ("40", 7), (64, 64), (64, 200)])
def test_rounded_noise_has_no_larger_delta_than_is_stated(sigma: str | int, moved: int) -> None:
    """Added up over all numbers: Σ max(0, P(N = k) − e^ε·P(N = k − moved))."""
    s = mpmath.mpf(Fraction(sigma).numerator) / Fraction(sigma).denominator
    with mpmath.workprec(120):
        reach = int(12 * s) + moved + 1
        p = {k: mpmath.ncdf((k + 0.5) / s) - mpmath.ncdf((k - 0.5) / s) for k in range(-reach - moved, reach + 1)}
        mu = Fraction(moved) / Fraction(sigma)
        stated = [delta(Fraction(e), mu) for e in ("0", "1/10", "1", "3")]
        found = [
            mpmath.fsum(max(0, p[k] - mpmath.exp(mpmath.mpf(e)) * p[k - moved]) for k in range(-reach, reach + 1))
            for e in (0, mpmath.mpf(1) / 10, 1, 3)
        ]
        assert all(low <= high + mpmath.mpf(10) ** -30 for low, high in zip(found, stated, strict=True))
        assert s < 40 or found[0] > stated[0] * (1 - mpmath.mpf(10) ** -3)


def test_two_answers_at_once_have_the_delta_of_their_squares_added() -> None:
    """The losses of two Gaussian answers, moved by 1 and 2, integrated over one and the other: μ² = 1/σ² + 4/τ²."""
    sigma, tau, epsilon = 3.0, 5.0, 0.4

    def delta_given(x: float) -> float:  # of the second answer, once the first has spent its loss
        spent = x / sigma**2 - 1 / (2 * sigma**2)
        m, e = 2 / tau, epsilon - spent
        return ndtr(m / 2 - e / m) - math.exp(e) * ndtr(-m / 2 - e / m)

    density = norm(1, sigma).pdf
    found, _ = quad(lambda x: density(x) * delta_given(x), -60, 60, epsabs=1e-13, limit=500)
    mu = root(Fraction(1, 9) + Fraction(4, 25), "up", 256)
    assert found == pytest.approx(float(delta(Fraction(2, 5), mu)), abs=1e-11)


def test_figures_of_the_analytic_gaussian() -> None:
    """Balle and Wang's σ at (1, 10⁻⁹) and (1, 10⁻⁶); twelve releases of (0.3, 10⁻⁹) together at δ = 10⁻⁸."""
    assert [1 / float(mu_down(Fraction(1), Fraction(1, 10**d))) for d in (9, 6)] == pytest.approx([5.495266, 4.224679])
    monthly = ApproxDP("0.3", "1e-9").rho
    assert float(gaussian_epsilon_up(12 * monthly, Fraction(1, 10**8))) == pytest.approx(1.0138, abs=1e-4)
    before = rho_down(Fraction(3, 10), Fraction(1, 10**9))
    assert float(gaussian_epsilon_up(12 * before, Fraction(1, 10**8))) == pytest.approx(0.958, abs=1e-3)
    assert float(monthly / before) == pytest.approx(1.11, abs=0.02)


@pytest.mark.parametrize("precision", [24, 40, 64])
def test_delta_is_rounded_to_its_side(precision: int) -> None:
    """With few bits, where every step that rounds the other way shows."""
    up, down = rounding("up", precision), rounding("down", precision)
    for epsilon in (Fraction(0), Fraction(1, 7), Fraction(3), Fraction(40, 3)):
        for mu in (Fraction(1, 3), Fraction(9, 7), Fraction(6)):
            most, least = fraction(delta_of(epsilon, mu, up, down)), fraction(delta_of(epsilon, mu, down, up))
            with mpmath.workprec(400):
                assert exact(least) < delta(epsilon, mu) < exact(most)
                assert most - least < Fraction(2**8, 2**precision) * (1 + epsilon)


@pytest.mark.parametrize("x", [Fraction(-9, 7), Fraction(0), Fraction(1, 3), Fraction(-30), Fraction(30)])
@pytest.mark.parametrize("precision", [20, 60])
def test_normal_probabilities_are_rounded_to_their_side(x: Fraction, precision: int) -> None:
    up, down = rounding("up", precision), rounding("down", precision)
    most = fraction(gdp._normal(gdp.number(x, up), up, down))
    least = fraction(gdp._normal(gdp.number(x, down), down, up))
    with mpmath.workprec(600):
        assert exact(least) <= mpmath.ncdf(exact(x)) <= exact(most)
        assert x == 0 or least < most


@examples(30)
@given(
    st.fractions(min_value=Fraction(1, 10**4), max_value=30, max_denominator=10**6),
    st.integers(1, 40).map(lambda k: Fraction(1, 10**k)),
)
def test_there_and_back_spends_no_more(epsilon: Fraction, least: Fraction) -> None:
    mu = mu_down(epsilon, least)
    again = gaussian_epsilon_up(mu**2 / 2, least)
    assert again <= epsilon + epsilon_up(mu**2 / 2, least) * LITTLE
    assert mu**2 / 2 >= rho_down(epsilon, least)  # never dearer than by ρ
    assert again <= epsilon_up(mu**2 / 2, least)


def test_what_the_formula_cannot_reach_is_bought_by_rho() -> None:
    epsilon, least = Fraction(2**500), Fraction(1, 2**500)
    assert not is_private(epsilon, least, Fraction(1))
    rho = rho_down(epsilon, least)
    assert rho * (1 - LITTLE) < mu_down(epsilon, least) ** 2 / 2 <= rho
    assert gaussian_epsilon_up(rho, least) == epsilon_up(rho, least)


def test_the_formula_is_used_up_to_its_largest_epsilon() -> None:
    least = Fraction(1, 10**9)
    for epsilon in (Fraction(2**20), Fraction(2**20) + 1):
        dearer = rho_down(epsilon, least) * (1 + LITTLE)
        assert (mu_down(epsilon, least) ** 2 / 2 > dearer) == (epsilon == 2**20)


def test_much_delta_needs_no_epsilon() -> None:
    assert gaussian_epsilon_up(Fraction(1, 10**6), Fraction(9, 10)) == 0
    assert is_private(Fraction(0), Fraction(9, 10), Fraction(1, 500))


def test_a_precision_that_does_not_decide_is_not_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gdp, "_PRECISIONS", (24,))
    mu = mu_down.__wrapped__(Fraction(1), Fraction(1, 10**6))
    assert mu < mu_down(Fraction(1), Fraction(1, 10**6))
    assert mu > mu_down(Fraction(1), Fraction(1, 10**6)) * Fraction(999, 1000)


def test_approximate_privacy_is_bought_by_its_mu() -> None:
    assert ApproxDP(1, "1e-6").rho == mu_down(Fraction(1), Fraction(1, 10**6)) ** 2 / 2
    assert ApproxDP(1, "1e-6").variance_factor < ZCDP(rho_down(Fraction(1), Fraction(1, 10**6))).variance_factor
