"""Known counts of groups of values: reproduced exactly, and other answers are least squares under that condition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import (
    ZCDP,
    Domain,
    DomainError,
    Groups,
    Identity,
    Integers,
    Known,
    Labels,
    Ledger,
    Noise,
    Prefix,
    PureDP,
    Strategy,
    StrategyError,
    Workload,
    from_array,
    load_plan,
    load_release,
    optimize,
    unit_error,
)
from hdmm.bounds.gap import _beside_known
from hdmm.describe.attribute import Attribute
from hdmm.matrix import Dense, Eye, PIdentity, to_dense
from hdmm.measure.measure import measure
from hdmm.measure.release import Release
from hdmm.privacy.guarantee import Privacy
from hdmm.reconstruct.known import known_counts, known_products
from hdmm.strategy.blocks import Block
from hdmm.strategy.informed import WithExactBlocks
from tests.reconstruct import test_known
from tests.reconstruct.test_known import HALF, INFERRED
from tests.support.chance import fewest
from tests.support.effort import examples
from tests.support.families import FAMILIES, asks

rng = np.random.default_rng(11)


def with_levels(domain: Domain) -> Domain:
    """The domain with two levels of every attribute of three values or more, which overlap each other."""
    found: list[Attribute] = []
    for attribute in domain.attributes:
        codes = np.arange(attribute.size)
        levels = {f"{attribute.name} coarse": (codes * 2 // attribute.size).tolist()}
        levels[f"{attribute.name} across"] = (codes % 2).tolist()
        values = attribute.values.with_levels(levels) if attribute.size > 2 else attribute.values
        found.append(Attribute(attribute.name, values))
    return Domain(found)


def table(domain: Domain, counts: np.ndarray, *names: str) -> Known:
    """The known table by attributes or levels, counted cell by cell."""
    columns = domain.columns(names, "counted")
    out = np.zeros([column.values.size for column in columns], np.int64)
    for cell in np.ndindex(*domain.shape):
        out[tuple(column.codes[cell[column.axis]] for column in columns)] += counts[cell]
    return Known(domain, names, out)


def check(release: Release, public: list[Known], workload: Workload) -> None:
    """As for known attributes; what is known has no variance at all."""
    test_known.check(release, public, workload)
    for each in public:
        told = release.answer(Workload(release.domain, (each.product,)), known=public)
        assert (told.values == each.counts.ravel()).all()
        assert (told.stddev == 0).all()


@pytest.mark.parametrize("name", INFERRED)
def test_known_groups_inform_every_strategy(name: str) -> None:
    """One level; a level by another attribute; nested and overlapping ones; groups beside the values themselves."""
    strategy = FAMILIES[name]
    domain = with_levels(strategy.domain)
    strategy = replace(strategy, domain=domain)
    counts = rng.integers(0, 90, size=domain.shape)
    release = measure(strategy, from_array(domain, counts), HALF, ledger=None)
    leveled = [a.name for a in domain.attributes if a.values.levels]
    first, last = leveled[0], leveled[-1]
    others = [n for n in domain.names if n != first]
    cases = [[(f"{first} coarse",)], [(f"{first} coarse",), (f"{first} across",)]]
    if others:
        cases += [[(f"{first} across", others[-1])], [(f"{first} coarse",), (others[0],)]]
    if first != last:
        cases += [[(f"{first} coarse", f"{last} across")], [(f"{first} coarse",), (f"{last} coarse",)]]
    for names in cases:
        check(release, [table(domain, counts, *each) for each in names], asks(strategy))


@examples(25)
@given(st.data(), st.sampled_from([PureDP("0.5"), ZCDP("0.125")]), st.integers(0, 2**32 - 1))
def test_known_groups_of_any_sizes(data: st.DataObject, privacy: Privacy, seed: int) -> None:
    """Nested levels of an attribute that is measured by a base, beside its totals or not; their groups are uneven."""
    draw = np.random.default_rng(seed)
    n = data.draw(st.integers(2, 9))
    fine = draw.integers(0, n, size=n)
    coarse = draw.integers(0, 3, size=n)[fine]
    values = Integers(0, n - 1, levels={"fine": fine.tolist(), "coarse": coarse.tolist()})
    domain = Domain({"place": values, "sex": 2, "other": 3})
    base = PIdentity(draw.uniform(size=(2, n)) * 3)
    blocks = [Block(0.5, [(0, base), (1, Eye(2))]), Block(0.3, [(0, base)]), Block(0.3, [(1, Eye(2)), (2, Eye(3))])]
    kept = data.draw(st.sampled_from([blocks, blocks[:1], blocks[:2], [blocks[1], blocks[2]]]))
    counts = draw.integers(0, 90, size=domain.shape)
    strategy = Strategy(domain, tuple(kept))
    release = measure(strategy, from_array(domain, counts), privacy, ledger=None)
    cases = [[("coarse",)], [("fine", "sex")], [("coarse",), ("fine", "other")], [("coarse", "sex"), ("place",)]]
    public = [table(domain, counts, *names) for names in data.draw(st.sampled_from(cases))]
    form = release.informed(public).form
    assert isinstance(form, WithExactBlocks)
    assert not form.conditions
    check(release, public, asks(strategy))


def test_forms_are_chosen_by_what_diagonalises() -> None:
    for name, conditioned in (("marginals", False), ("marginals over bases", False), ("no closed form", True)):
        domain = with_levels(FAMILIES[name].domain)
        public = known_products([Known(domain, ["x coarse"], [40, 50])])
        form = replace(FAMILIES[name], domain=domain, known=public).form
        assert isinstance(form, WithExactBlocks)
        assert bool(form.conditions) == conditioned, name


PLACES = Labels(
    ["T1", "T2", "T3", "T4", "T5"],
    levels={"county": ["K", "K", "E", "S", "S"], "state": ["N", "N", "P", "P", "P"], "school": list("ABABA")},
)
DOMAIN = Domain({"sex": ["M", "F"], "tract": PLACES})
COUNTS = np.array([[7, 2, 5, 1, 8], [4, 4, 9, 0, 3]])


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_plan_buys_what_known_groups_leave_open(noise: str, tmp_path: Path) -> None:
    w = Workload.product(DOMAIN, tract=Prefix()) + Workload.product(DOMAIN, sex=Identity(), tract=Groups("state"))
    public = table(DOMAIN, COUNTS, "state")
    unaware, aware = (optimize(w, noise=noise, restarts=1, known=known) for known in (None, public))
    assert aware.error < 0.8 * unaware.error
    plan = load_plan(aware.save(tmp_path / "plan"))
    assert plan.error == pytest.approx(aware.error, rel=1e-9)
    assert plan.known[0].attributes == ("state",)
    release = plan.measure(from_array(DOMAIN, COUNTS), PureDP(1) if noise == "laplace" else ZCDP(1), ledger=None)
    back = load_release(release.save(tmp_path / "release"))
    told = back.answer(Workload.product(DOMAIN, tract=Groups("state")))
    assert (told.values == [17, 26]).all()
    assert (told.stddev == 0).all()
    np.testing.assert_allclose(back.answer(w).values, release.answer(w).values, rtol=1e-12)
    assert release.error(w) == pytest.approx(plan.rmse(release.privacy) ** 2 * w.queries, rel=0.02)


def test_what_groups_tell_is_by_any_queries() -> None:
    """Halves that are unions of counties, and sums over both sexes, follow from the counts by county and sex."""
    public = table(DOMAIN, COUNTS, "county", "sex")
    assert public.attributes == ("sex", "county")
    release = measure(Strategy.identity(DOMAIN), from_array(DOMAIN, COUNTS), HALF, ledger=None)
    w = Workload.sql(DOMAIN, "SELECT state, COUNT(*) FROM t GROUP BY state; SELECT COUNT(*) FROM t WHERE county <> 'K'")
    told = release.answer(w, known=public)
    assert told.values.tolist() == [17, 26, 26]
    assert (told.stddev == 0).all()
    assert (release.answer(Workload.product(DOMAIN, tract=Groups("school")), known=public).stddev > 0).all()


def test_counts_without_negatives_and_in_whole_numbers_keep_known_groups() -> None:
    public = table(DOMAIN, COUNTS, "state", "sex")
    w = Workload.marginals(DOMAIN, [("sex", "tract")])
    release = optimize(w, known=public, restarts=1).measure(from_array(DOMAIN, COUNTS), PureDP("0.2"), ledger=None)
    for chosen in ({"nonnegative": True}, {"integers": True}):
        found = release.answer(w, **chosen).values.reshape(2, 5)
        assert (found >= 0).all()
        np.testing.assert_allclose(found[:, :2].sum(axis=1), public.counts[:, 0], atol=1e-8)
        np.testing.assert_allclose(found[:, 2:].sum(axis=1), public.counts[:, 1], atol=1e-8)
    assert (found == np.rint(found)).all()


def test_levels_of_one_attribute_are_one_table() -> None:
    """By state and county: combinations that no tract has are 0; groups of one value, and of all, are no groups."""
    assert table(DOMAIN, COUNTS, "state", "county").counts.tolist() == [17, 14, 12]
    with pytest.raises(DomainError, match="combinations that no value has"):
        Known(DOMAIN, ["state", "county"], [[17, 0, 0], [1, 14, 12]])
    domain = Domain({"x": Labels(["a", "b"], levels={"each": ["q", "p"], "whole": ["w", "w"]})})
    assert Known(domain, ["each"], [3, 4]).product == Known(domain, ["x"], [3, 4]).product
    assert Known(domain, ["whole"], [7]).product == Known(domain, [], 7).product


def test_of_equal_groups_one_is_kept() -> None:
    """Two levels of the same groups, and a file whose equal factors are read as several."""
    twice = Labels(["a", "b", "c"], levels={"one": ["x", "x", "y"], "other": ["p", "p", "q"]})
    domain = Domain({"at": twice, "sex": 2})
    public = [Known(domain, [name], [3, 4]) for name in ("one", "other")]
    assert len(known_counts(domain, public)) == 1
    bases = [PIdentity([[1.0, 2.0, 3.0]]) for _ in range(2)]
    blocks = (Block(0.5, [(0, bases[0]), (1, Eye(2))]), Block(0.5, [(0, bases[1])]))
    form = Strategy(domain, blocks, known=known_products(public[:1])).form
    assert isinstance(form, WithExactBlocks)
    assert not form.conditions


def test_contradictions_are_refused_before_the_debit(tmp_path: Path) -> None:
    by_state, by_tract = table(DOMAIN, COUNTS, "state"), Known(DOMAIN, ["tract"], [11, 6, 14, 1, 10])
    with pytest.raises(StrategyError, match="different counts by tract"):
        known_counts(DOMAIN, [by_state, by_tract])
    with pytest.raises(StrategyError, match="totals differ"):
        known_counts(DOMAIN, [by_state, Known(DOMAIN, ["sex"], [1, 2])])
    schools = Known(DOMAIN, ["school"], [1, 42])  # of which 17 are in the other state, but only one tract of it is in B
    assert known_counts(DOMAIN, [by_state, schools])
    halves = Labels(list("abc"), levels={"left": list("xxy"), "right": list("xyy")})
    line = Domain({"at": halves})
    with pytest.raises(StrategyError, match="no rows can have all these counts"):
        known_counts(line, [Known(line, ["left"], [3, 4]), Known(line, ["right"], [5, 2])])
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1))
    plan = optimize(Workload.marginals(DOMAIN, k=1), known=by_state, restarts=1)
    data = from_array(DOMAIN, COUNTS)
    for wrong, words in (([by_state, by_tract], "contradict"), ([], "relies on known counts by state")):
        with pytest.raises(StrategyError, match=words):
            measure(plan.strategy, data, PureDP(1), ledger=ledger, known=wrong)
    with pytest.raises(StrategyError, match="nothing to measure"):
        optimize(Workload.product(DOMAIN, tract=Groups("state")), known=table(DOMAIN, COUNTS, "county"))
    assert ledger.remaining == 1


def test_known_attributes_that_no_table_has() -> None:
    """What is never measured is told by its counts alone, and their sums inform the rest."""
    domain = Domain({"x": 40, "y": 40, "zip": 5, "sex": 2})
    strategy = Strategy(
        domain,
        tuple(Block(w, [(0, PIdentity(p)), (1, PIdentity(q))]) for w, p, q in zip((0.5, 0.3), P, Q, strict=True)),
    )
    counts = rng.integers(0, 3, size=domain.shape)
    release = measure(strategy, from_array(domain, counts), HALF, ledger=None)
    asked = Workload.product(domain, x=Prefix())
    public = table(domain, counts, "zip", "x")
    found = release.answer(asked + Workload.marginals(domain, [("zip",), ("zip", "x")]), known=public)
    assert (found.stddev == 0).all()
    total = release.answer(asked, known=Known(domain, ["zip"], counts.sum(axis=(0, 1, 3))))
    same = release.answer(asked, known=Known(domain, [], counts.sum()))
    np.testing.assert_allclose(total.stddev, same.stddev, rtol=1e-9)
    np.testing.assert_allclose(total.values, same.values, rtol=1e-9)
    with pytest.raises(StrategyError, match="does not measure everything"):
        release.answer(Workload.marginals(domain, [("zip", "y")]), known=public)


@examples(30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([["state"], ["county", "sex"], ["school"], ["sex"], []]))
def test_no_strategy_beats_the_bound_beside_known_counts(seed: int, names: list[str]) -> None:
    """Against any strategy of queries at random; where only identities are asked of a level, the bound is reached."""
    draw = np.random.default_rng(seed)
    w = Workload.product(DOMAIN, tract=Prefix(), sex=Identity()) + Workload.product(DOMAIN, tract=Groups("county"))
    known = known_products([table(DOMAIN, COUNTS, *names)])
    bound = _beside_known(w, known)
    assert bound is not None
    A = draw.normal(size=(12, 10)) * draw.integers(0, 2, size=(12, 10)) + np.eye(12, 10) * draw.uniform(0, 2)
    one = Strategy(DOMAIN, (Block(1.0, [((0, 1), Dense(A))]),), known=known)
    assert unit_error(w, one, noise=Noise.GAUSSIAN) >= bound * (1 - 1e-9)


def test_plans_beside_known_groups_are_certified() -> None:
    w = Workload.marginals(DOMAIN, [("tract",)])
    plan = optimize(w, known=table(DOMAIN, COUNTS, "state"), noise="gaussian", restarts=1)
    assert plan.gap is not None
    assert plan.gap < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PureDP("0.5"), ZCDP("0.125")], ids=str)
def test_intervals_cover_with_known_groups(privacy: Privacy) -> None:
    """90 % intervals, 800 times, with a known level: no query is covered less than its level."""
    w = Workload.marginals(DOMAIN, [("sex", "tract")]) + Workload.product(DOMAIN, tract=Groups("school"))
    truth = to_dense(w.matrix) @ COUNTS.ravel()
    public, data = table(DOMAIN, COUNTS, "state"), from_array(DOMAIN, COUNTS)
    plan = optimize(w, known=public, noise=privacy.noise, restarts=1)
    times, covered = 800, np.zeros(w.queries)
    for _ in range(times):
        lower, upper = plan.measure(data, privacy, ledger=None).answer(w).interval(0.9)
        covered += (lower - 1e-6 <= truth) & (truth <= upper + 1e-6)
    assert covered.min() >= fewest(times, 0.9, among=w.queries)


P, Q = (rng.uniform(size=(2, 2, 40)) for _ in range(2))
