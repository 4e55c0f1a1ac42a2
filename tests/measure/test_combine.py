"""Releases of one dataset add up: combined answers are those of generalised least squares on all measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hdmm
from hdmm import ZCDP, ApproxDP, Domain, Ledger, PureDP, Strategy, StrategyError, Unit, Workload, combine, from_array
from hdmm.matrix import Eye, to_dense
from hdmm.measure.measure import measure
from hdmm.measure.measurement import noise_weight
from hdmm.measure.release import Release, load_release
from hdmm.privacy.guarantee import Privacy
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import resolution
from tests.support.chance import fewest
from tests.support.families import FAMILIES, PLANE, SOLID, asks, dense_blocks, p_identity

rng = np.random.default_rng(5)
COUNTS = {domain: rng.integers(0, 90, size=domain.shape) for domain in (PLANE, SOLID)}


DATA = {domain: from_array(domain, counts) for domain, counts in COUNTS.items()}


def released(strategy: Strategy, privacy: Privacy, **more: object) -> Release:
    return measure(strategy, DATA[strategy.domain], privacy, ledger=None, **more)  # type: ignore[arg-type]


def least_squares(releases: list[Release], W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(estimates, standard deviations) by dense algebra, from what each release measured by itself."""
    rows, answers = [], []
    for release in releases:
        noise = release.privacy.noise
        for (_, B), y, scale in zip(dense_blocks(release.strategy), release.measurements, release.scales, strict=True):
            r = resolution(scale, noise)
            weight = noise_weight(scale, r, noise)
            rows.append(weight * B)
            answers.append(weight * y / r)
    A, y = np.vstack(rows), np.concatenate(answers)
    inverse = np.linalg.pinv(A.T @ A)
    return W @ inverse @ A.T @ y, np.sqrt(np.einsum("ij,jk,ik->i", W, inverse, W))


def check(releases: list[Release], workload: Workload) -> None:
    found = combine(releases).answer(workload)
    values, stddev = least_squares(releases, to_dense(workload.matrix))
    np.testing.assert_allclose(found.values, values, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(found.stddev, stddev, rtol=1e-7)


@pytest.mark.parametrize("privacy", [PureDP("0.5"), ZCDP("0.125")], ids=str)
@pytest.mark.parametrize("name", [name for name, s in FAMILIES.items() if s.domain in COUNTS and name != "direct"])
def test_releases_of_one_plan_add_their_precisions(name: str, privacy: Privacy) -> None:
    check([released(FAMILIES[name], privacy) for _ in range(3)], asks(FAMILIES[name]))


@pytest.mark.parametrize(
    "names",
    [
        ("marginals", "marginals with one over all"),
        ("marginals", "marginals over bases"),
        ("product", "two products"),
        ("identity", "no closed form"),
        ("identity", "direct"),
        ("marginals", "merged, not neighbours"),
        ("overlapping pairs", "a pair beside singles", "marginals"),
    ],
)
def test_releases_of_different_plans_are_stacked(names: tuple[str, ...]) -> None:
    """The last ones have factors on pairs of attributes, so the answers of other blocks change their order."""
    given = [released(FAMILIES[name], PureDP(f"{k + 1}/3")) for k, name in enumerate(names)]
    check(given, asks(replace(FAMILIES[names[0]], inference="least-squares")))


def test_what_no_release_can_answer_alone() -> None:
    """One release has the sexes, the other the first attribute; neither has both with the total of the other."""
    by_sex = released(Strategy(SOLID, (Block(1.0, [(1, Eye(2))]),)), PureDP(1))
    by_x = released(Strategy(SOLID, (Block(1.0, [(0, Eye(3))]),)), PureDP(2))
    asked = Workload.marginals(SOLID, [["x"], ["sex"], []])
    with pytest.raises(StrategyError, match="does not measure everything"):
        by_sex.answer(asked)
    check([by_sex, by_x], asked)


def test_budgets_add_and_one_release_is_itself() -> None:
    one, two = (released(FAMILIES["identity"], privacy) for privacy in (PureDP("1/3"), PureDP("0.5")))
    assert combine([one, two]).privacy == PureDP("5/6")
    assert combine([one]) is one
    rounded = ApproxDP(1, "1e-6")
    both = combine([released(FAMILIES["identity"], privacy) for privacy in (rounded, ZCDP("0.1"))])
    assert both.privacy == ZCDP(rounded.rho + ZCDP("0.1").rho)


def test_a_combination_is_saved_and_read_back(tmp_path: Path) -> None:
    both = combine([released(FAMILIES[name], PureDP("0.5")) for name in ("marginals", "overlapping pairs")])
    back = load_release(both.save(tmp_path / "both"))
    asked = asks(FAMILIES["marginals"])
    np.testing.assert_allclose(back.answer(asked).values, both.answer(asked).values, rtol=1e-9)
    assert (back.privacy, back.receipt) == (PureDP(1), None)
    with pytest.raises(hdmm.LedgerError, match="no receipt"):
        both.verify(Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1)))


def test_releases_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    identity = FAMILIES["identity"]
    one = released(identity, PureDP(1))
    with pytest.raises(StrategyError, match="no releases"):
        combine([])
    with pytest.raises(StrategyError, match="given twice"):
        combine([one, load_release(one.save(tmp_path / "one"))])
    with pytest.raises(StrategyError, match="given twice"):
        combine([combine([one, released(identity, PureDP(1))]), one])
    with pytest.raises(StrategyError, match="same kind of noise"):
        combine([one, released(identity, ZCDP(1))])
    with pytest.raises(StrategyError, match="same unit"):
        combine([one, released(identity, PureDP(1), unit=Unit(2))])
    with pytest.raises(StrategyError, match="one Domain"):
        combine([one, released(FAMILIES["marginals"], PureDP(1))])
    data = from_array(PLANE, COUNTS[PLANE])
    paid = [
        measure(identity, data, PureDP(1), ledger=Ledger(tmp_path / "b.db", dataset=name, cap=PureDP(1)))
        for name in ("winter", "summer")
    ]
    with pytest.raises(StrategyError, match="different datasets: 'summer', 'winter'"):
        combine(paid)


def test_bases_without_a_common_form_on_many_cells_are_refused() -> None:
    domain = Domain({"x": 70, "y": 70})
    data = from_array(domain, np.zeros(domain.shape, dtype=np.int64))
    strategies = [Strategy(domain, (Block(1.0, [(0, p_identity(70)), (1, p_identity(70))]),)) for _ in range(3)]
    given = [measure(strategy, data, PureDP(1), ledger=None) for strategy in strategies]
    assert combine(given[:2]).answer(Workload.marginals(domain, k=1)).stddev.min() > 0
    with pytest.raises(StrategyError, match="no common form"):
        combine(given)


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PureDP("0.5"), ZCDP("0.125")], ids=str)
def test_combined_intervals_cover(privacy: Privacy) -> None:
    """90 % intervals of two different releases combined, 800 times: no query is covered less than its level."""
    names, asked = ("marginals", "marginals with one over all"), asks(FAMILIES["marginals"])
    truth = to_dense(asked.matrix) @ COUNTS[SOLID].ravel()
    times, covered = 800, np.zeros(asked.queries)
    for _ in range(times):
        lower, upper = combine([released(FAMILIES[name], privacy) for name in names]).answer(asked).interval(0.9)
        covered += (lower <= truth) & (truth <= upper)
    assert covered.min() >= fewest(times, 0.9, among=asked.queries)
    assert covered.mean() / times < 0.97
