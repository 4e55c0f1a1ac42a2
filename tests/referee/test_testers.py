"""The referee itself: it accepts mechanisms that keep their claim, rejects violations, and has the power it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from tests.referee.claims import Claim, Floats, Gaussian, Hockey
from tests.referee.power import gaussian_event, laplace_event, power
from tests.referee.testers import TESTERS, Tester, at_least, at_most, echo, hockey_stick_tester, siege

N = 30_000
HELD = N - N // 3


def laplace(rng: np.random.Generator, epsilon: float, n: int = N) -> tuple[Floats, Floats]:
    """Two numbers, of which a person moves the first by 1."""
    noise = rng.laplace(scale=1 / epsilon, size=(2, n, 2))
    return noise[0] + [1.0, 0.0], noise[1]


def gaussian(rng: np.random.Generator, rho: float, n: int = N) -> tuple[Floats, Floats]:
    noise = rng.normal(scale=1 / math.sqrt(2 * rho), size=(2, n, 2))
    return noise[0] + [math.sqrt(0.5), -math.sqrt(0.5)], noise[1]


def leaky(rng: np.random.Generator, epsilon: float, delta: float, n: int = N) -> tuple[Floats, Floats]:
    """Randomised response, which lets the truth out with probability δ: (ε, δ) exactly."""
    outputs: list[Floats] = []
    for truth in (1, 0):
        lies = rng.random(n) < 1 / (1 + math.exp(epsilon))
        said = np.where(lies, 1 - truth, truth).astype(np.float64)
        outputs.append(np.where(rng.random(n) < delta, 2.0 + truth, said)[:, None])
    return outputs[0], outputs[1]


@pytest.mark.parametrize("tester", TESTERS)
def test_true_mechanisms_are_accepted(tester: Tester) -> None:
    rng = np.random.default_rng(0)
    assert not tester(*laplace(rng, 1.5), Hockey(1.5)).violated
    assert not tester(*gaussian(rng, 1.0), Gaussian(1.0)).violated
    assert not tester(*leaky(rng, 1.0, 0.05), Hockey(1.0, 0.05)).violated


@pytest.mark.parametrize("tester", TESTERS)
def test_known_violations_are_rejected(tester: Tester) -> None:
    rng = np.random.default_rng(1)
    assert tester(*laplace(rng, 1.8), Hockey(1.5)).violated
    assert tester(*laplace(rng, 1.8)[::-1], Hockey(1.5)).violated
    assert tester(*gaussian(rng, 2.4), Gaussian(1.0)).violated
    assert tester(*leaky(rng, 1.0, 0.05), Hockey(1.0, 0.02)).violated
    assert tester(*leaky(rng, 1.3, 0.05), Hockey(1.0, 0.05)).violated


@pytest.mark.parametrize("tester", TESTERS)
def test_noise_used_twice_is_seen(tester: Tester) -> None:
    rng = np.random.default_rng(2)
    noise = np.repeat(rng.normal(size=(2, 300, 1)), 2, axis=2)
    assert tester(noise[0] + [1.0, 0.0], noise[1], Gaussian(0.5)).violated


@pytest.mark.parametrize("tester", TESTERS)
def test_a_right_mechanism_is_seldom_accused(tester: Tester) -> None:
    """At α = 0.2, of 100 audits of a mechanism whose events lie on the edge of its claim, 20 at most are expected."""
    rng = np.random.default_rng(3)
    accused = sum(tester(*leaky(rng, 0.5, 0.0, 600), Hockey(0.5), 0.2).violated for _ in range(100))
    assert accused <= binom.isf(1e-6, 100, 0.2)


@pytest.mark.parametrize("epsilon", [1.64, 1.68, 1.72])
def test_the_power_computed_is_the_power_seen(epsilon: float) -> None:
    """Of the event {first number ≥ 1}, whose probabilities are known; and the testers' own events do as well."""
    rng = np.random.default_rng(4)
    p, q = laplace_event(epsilon, 1)
    claim, runs = Hockey(1.5), 4000
    low = at_least(rng.binomial(HELD, p, size=runs), HELD, 0.005)
    high = at_most(rng.binomial(HELD, q, size=runs), HELD, 0.005)
    computed = power(claim, p, q, HELD, 0.01)
    assert abs((low > claim.permitted(high)).mean() - computed) < 5 * math.sqrt(0.25 / runs)
    if epsilon == 1.72:
        found = sum(siege(*laplace(rng, epsilon), claim, 0.01).violated for _ in range(10))
        assert found >= binom.ppf(1e-6, 10, 0.9 * computed)


@pytest.mark.parametrize("rho", [0.1, 1.0, 3.0])
def test_the_curve_is_searched_whole(rho: float) -> None:
    """What the Gaussian claim permits is the least of e^ε·q + δ(ε) over ε; and it is reached."""
    claim = Gaussian(rho)
    for q in (1e-4, 0.03, 0.4, 0.9):
        along = min(math.exp(e) * q + claim.delta(e) for e in np.linspace(-15, 15, 6001))
        assert claim.permitted(np.array(q)) == pytest.approx(along, rel=1e-4)
    p, q = gaussian_event(rho)
    assert claim.level(np.array(p), np.array(q)) == pytest.approx(rho)


@pytest.mark.parametrize("claim", [Hockey(1.0), Hockey(0.5, 0.1), Gaussian(0.7)])
def test_levels_and_what_is_permitted_agree(claim: Claim) -> None:
    q = np.array([0.01, 0.05, 0.1])
    assert claim.level(claim.permitted(q), q) == pytest.approx(claim.promised)


def test_what_was_learned_from_is_not_looked_at_again() -> None:
    """An event that only the first third shows is no violation."""
    rng = np.random.default_rng(5)
    first, second = (rng.normal(size=(900, 1)) for _ in range(2))
    first[:300] += 100.0
    assert not hockey_stick_tester(first, second, Hockey(0.1)).violated


def test_an_echo_is_heard() -> None:
    rng = np.random.default_rng(6)
    outputs = rng.normal(size=(5000, 3))
    assert echo(outputs) < 6.5
    outputs[1000:4000, 1] = outputs[500:3500, 0]
    assert echo(outputs) > 0.8 * 3000 / math.sqrt(5000 * 3)
    outputs[2500:] = outputs[:2500]
    assert echo(outputs) > 30
