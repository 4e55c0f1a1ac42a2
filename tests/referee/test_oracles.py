"""Other libraries as oracles: OpenDP's noise, and dp-accounting's ρ → (ε, δ) and privacy losses.

`make test-all` installs both (the extra `referee`); if one is missing, its tests are skipped and say so.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from hdmm import ZCDP, ApproxDP, PureDP, from_array
from hdmm.noise import discrete_laplace, rounded_gaussian
from hdmm.privacy.gdp import gaussian_epsilon_up
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.privacy.spending import Spending
from hdmm.strategy.lattice import resolution
from tests.referee.claims import Gaussian
from tests.referee.subjects import Subject, counts, direct, marginals, together

pytestmark = pytest.mark.slow

RARE = 1e-9  # of a right sampler to fail one comparison
THEIRS, OURS = 100_000, 1_000_000
OFF = Fraction(105, 100)
STEP = 1e-4  # dp-accounting rounds each privacy loss up to a multiple of this


def oracle(name: str) -> ModuleType:
    """A module of OpenDP or dp-accounting. One that is installed and cannot be imported is an error, not a skip."""
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(
            f"{package} is not installed; `make test-all` installs it, and so does pip install 'hdmm[referee]'."
        )
    return importlib.import_module(name)


def opendp_noise(noise: Noise, scale: float, size: int) -> np.ndarray:
    dp = oracle("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64"))
    if noise == "laplace":
        return np.array(dp.m.make_laplace(space, dp.l1_distance(T="i64"), scale=scale)([0] * size))
    return np.array(dp.m.make_gaussian(space, dp.l2_distance(T="f64"), scale=scale)([0] * size))


def p_value(one: np.ndarray, other: np.ndarray) -> float:
    """Of the χ² test that two samples of integers have one distribution, in up to 40 bins of at least 200."""
    edges = np.unique(np.quantile(one, np.linspace(0, 1, 41)[1:-1], method="higher"))
    table = np.array([np.bincount(np.searchsorted(edges, x, "right"), minlength=len(edges) + 1) for x in (one, other)])
    while (thin := table[0] < 200).any():  # joined with a neighbour
        i = int(thin.argmax())
        j = i - 1 if i else 1
        table[:, j] += table[:, i]
        table = np.delete(table, i, axis=1)
    return float(chi2_contingency(table, correction=False).pvalue)


SCALES = [("laplace", Fraction(s)) for s in ("1/2", "1", "37/10", "64")] + [("gaussian", Fraction(s)) for s in (32, 64)]


@pytest.mark.parametrize(("noise", "scale"), SCALES, ids=str)
def test_our_noise_is_distributed_as_opendps(noise: Noise, scale: Fraction) -> None:
    """Two samples, 100,000 of theirs and a million of ours; and a scale 5 % off is noticed.

    OpenDP's Gaussian noise is discrete, ours is rounded: from a deviation of 32 on, no such sample tells them apart.
    """

    def ours(s: Fraction) -> np.ndarray:
        return discrete_laplace(s, OURS) if noise == "laplace" else rounded_gaussian(s**2, OURS)

    theirs = opendp_noise(noise, float(scale), THEIRS)
    assert p_value(theirs, ours(scale)) > RARE
    assert p_value(theirs, ours(scale * OFF)) < RARE
    assert p_value(theirs, ours(scale / OFF)) < RARE


@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.5")], ids=str)
def test_the_noise_of_a_release_is_opendps_for_the_same_privacy(privacy: Privacy) -> None:
    """A count that no row is in holds the noise alone. A row moves a count by 64 steps, and OpenDP's own map agrees."""
    dp = oracle("opendp.prelude")
    outputs, _ = together(counts(privacy.noise), privacy, 1 << 18)
    moved = 64
    theirs = opendp_noise(privacy.noise, float(moved), THEIRS)
    assert p_value(theirs, outputs[:, 2].astype(np.int64)) > RARE
    space = dp.vector_domain(dp.atom_domain(T="i64"))
    if isinstance(privacy, PureDP):
        spent = dp.m.make_laplace(space, dp.l1_distance(T="i64"), scale=64.0).map(moved)
        assert spent == pytest.approx(float(privacy.epsilon))
    else:
        spent = dp.m.make_gaussian(space, dp.l2_distance(T="f64"), scale=64.0).map(float(moved))
        assert spent == pytest.approx(float(privacy.rho))


RHOS, DELTAS = ["0.001", "0.05", "0.5", "3"], ["1e-12", "1e-6", "0.01"]


def their_epsilon(rho: float, delta: float) -> float:
    """By Rényi divergences of orders 1 + e^t, t in steps of 1/200: what is ρ-zCDP has αρ at order α."""
    accounting, rdp = oracle("dp_accounting"), oracle("dp_accounting.rdp")
    accountant = rdp.RdpAccountant(orders=1 + np.exp(np.linspace(-4, 12, 3201)))
    accountant.compose(accounting.ZCDpEvent(rho=rho))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", RHOS)
def test_epsilon_of_rho_is_dp_accountings(rho: str, delta: str) -> None:
    """They search fewer orders than we do, so they are above by a little."""
    ours = float(ZCDP(rho).epsilon_at(delta))
    assert ours * (1 - 1e-9) <= their_epsilon(float(rho), float(delta)) <= ours * (1 + 1e-4)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", ["0.05", "0.5", "1", "8"])
def test_rho_of_epsilon_and_delta_is_dp_accountings(epsilon: str, delta: str) -> None:
    """For noise of our ρ they find the ε that was asked for, never more, and for less noise a larger ε."""
    accounting, rho = oracle("dp_accounting"), float(ApproxDP(epsilon, delta).rho)
    sigma = accounting.get_sigma_gaussian(float(epsilon), float(delta))
    assert sigma * (1 - 1e-6) <= 1 / math.sqrt(2 * rho) <= sigma * (1 + 1e-6)
    found = accounting.get_epsilon_gaussian(1 / math.sqrt(2 * rho), float(delta))
    assert float(epsilon) * (1 - 1e-6) <= found <= float(epsilon) * (1 + 1e-6)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", RHOS)
def test_gaussian_noise_has_dp_accountings_epsilon(rho: str, delta: str) -> None:
    """Never below what they find, and within 1e-6; and within what their privacy loss distribution allows."""
    ours, sigma = float(gaussian_epsilon_up(Fraction(rho), Fraction(delta))), 1 / math.sqrt(2 * float(rho))
    theirs = oracle("dp_accounting").get_epsilon_gaussian(sigma, float(delta))
    assert theirs - 1e-9 <= ours <= theirs + 1e-6
    pld = oracle("dp_accounting.pld.privacy_loss_distribution")
    found = pld.from_gaussian_mechanism(sigma, value_discretization_interval=STEP)
    assert ours <= found.get_epsilon_for_delta(float(delta)) <= ours + 2 * STEP


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("pure", [["0.1"], ["0.05"] * 4, ["1", "0.2"]], ids=len)
@pytest.mark.parametrize("rho", ["0.05", "0.5"])
def test_pure_and_gaussian_releases_together_are_never_counted_too_low(rho: str, pure: list[str], delta: str) -> None:
    """Their privacy loss distribution of the composition, with all of a pure ε spent, is rounded up by a step each."""
    pld = oracle("dp_accounting.pld.privacy_loss_distribution")
    common = oracle("dp_accounting.pld.common")
    found = pld.from_gaussian_mechanism(1 / math.sqrt(2 * float(rho)), value_discretization_interval=STEP)
    spent = Spending(gaussian=Fraction(rho))
    for each in pure:
        parameters = common.DifferentialPrivacyParameters(float(each), 0.0)
        found = found.compose(pld.from_privacy_parameters(parameters, value_discretization_interval=STEP))
        spent += Spending.of_pure(Fraction(each))
    theirs = found.get_epsilon_for_delta(float(delta))
    assert theirs - STEP * (1 + len(pure)) <= float(spent.epsilon_at(Fraction(delta))) <= theirs + sum(map(float, pure))


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", RHOS)
def test_the_gaussian_mechanism_is_within_what_is_said_of_its_rho(rho: str, delta: str) -> None:
    """dp-accounting's privacy loss distribution of the mechanism itself, not of all that is ρ-zCDP."""
    pld = oracle("dp_accounting.pld.privacy_loss_distribution")
    found = pld.from_gaussian_mechanism(1 / math.sqrt(2 * float(rho)), value_discretization_interval=STEP)
    assert found.get_epsilon_for_delta(float(delta)) <= float(ZCDP(rho).epsilon_at(delta)) + STEP


# How many numbers of each block a row moves, each by one step of the lattice: as the subjects say.
MOVED: list[tuple[Callable[[Noise], Subject], tuple[int, ...]]] = [
    (counts, (1,)),
    (marginals, (1, 1, 1)),
    (direct, (3, 1)),
]


def composed(subject: Subject, privacy: Privacy, moved: tuple[int, ...]) -> object:
    """The privacy loss of all numbers that one row moves, from the scales that a release publishes."""
    pld = oracle("dp_accounting.pld.privacy_loss_distribution")
    total = pld.identity(value_discretization_interval=STEP)
    nobody = from_array(subject.domain, np.zeros(subject.domain.shape, dtype=np.int64))
    scales = subject.plan.measure(nobody, privacy, ledger=None).scales
    for scale, times in zip(scales, moved, strict=True):
        step = resolution(scale, privacy.noise)
        if privacy.noise == "laplace":
            one = pld.from_discrete_laplace_mechanism(
                float(1 / (scale * step)), sensitivity=step, value_discretization_interval=STEP
            )
        else:
            sigma = math.sqrt(scale) * step
            one = pld.from_gaussian_mechanism(sigma, sensitivity=step, value_discretization_interval=STEP)
        for _ in range(times):  # one by one, which cuts off no tail
            total = total.compose(one)
    return total


@pytest.mark.parametrize(("subject", "moved"), MOVED, ids=lambda x: getattr(x, "__name__", ""))
def test_a_release_spends_the_epsilon_it_says(subject: Callable[[Noise], Subject], moved: tuple[int, ...]) -> None:
    """By dp-accounting's discrete Laplace mechanism, composed."""
    spent = composed(subject("laplace"), PureDP(2), moved).get_epsilon_for_delta(0.0)
    assert spent == pytest.approx(2, abs=STEP * (1 + sum(moved)))


@pytest.mark.parametrize(("subject", "moved"), MOVED, ids=lambda x: getattr(x, "__name__", ""))
def test_a_release_follows_the_gaussian_curve_of_its_rho(
    subject: Callable[[Noise], Subject], moved: tuple[int, ...]
) -> None:
    """By dp-accounting's Gaussian mechanism, composed: the curve that the referee holds it to is right."""
    spent = composed(subject("gaussian"), ZCDP(2), moved)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0, 6.0):
        promised = Gaussian(2).delta(epsilon)
        nearly = Gaussian(2).delta(epsilon - STEP * (1 + sum(moved)))
        assert promised * (1 - 1e-3) <= spent.get_delta_for_epsilon(epsilon) <= nearly * (1 + 1e-3)
