"""Merged cells: a plan over cells that queries tell apart is as good on the values of the domain, by dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hdmm
from hdmm import DifferenceAtMost, Domain, Identity, Known, Prefix, Ranges, SumAtMost, Workload, unit_error
from hdmm.matrix import to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.goal import Goal
from hdmm.select.operators import operators_for
from hdmm.select.opt_hdmm import select
from hdmm.select.problem import MOST_RESTORED, MergedCells, Problem
from hdmm.strategy.strategy import Strategy

DOMAIN = Domain({"age": 7, "sex": 2, "state": 4})


def queries(seed: int, n: int, cells: int, rows: int) -> list[list[int]]:
    """Sets of at most so many cells of the values, in any order, and perhaps one that no query asks for."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, (rows, cells))[:, rng.integers(0, cells, n)].tolist()


def workload_of(seed: int) -> Workload:
    ages, states = queries(seed, 7, 4, 3), queries(seed + 1, 4, 2, 2)
    w = Workload.product(DOMAIN, age=ages) + 2.0 * Workload.product(DOMAIN, age=queries(seed, 7, 4, 2), sex=Identity())
    if seed % 2:
        return w + Workload.product(DOMAIN, age=ages, state=states)
    return w + Workload.product(DOMAIN, sex=Identity(), state=Prefix())


def dense_variances(workload: Workload, strategy: Strategy, noise: Noise) -> np.ndarray:
    A, W = to_dense(strategy.matrix), to_dense(workload.matrix)
    answers = W @ np.linalg.pinv(A)
    np.testing.assert_allclose(answers @ A, W, atol=1e-6)
    norms = np.abs(A).sum(axis=0).max() if noise is Noise.LAPLACE else np.linalg.norm(A, axis=0).max()
    return norms**2 * (answers**2).sum(axis=1)


@pytest.mark.parametrize("noise", list(Noise))
@given(seed=st.integers(0, 10_000), which=st.integers(0, 10))
@settings(max_examples=12, deadline=None)
def test_a_strategy_has_the_same_error_on_the_values(noise: Noise, seed: int, which: int) -> None:
    problem = Problem(workload_of(seed), noise)
    merged = problem.merged
    operators = operators_for(merged)
    found = select(merged, [operators[which % len(operators)]], restarts=1)
    restored = merged.restored(found.strategy)
    assert restored.domain == DOMAIN
    expected = dense_variances(problem.given, restored, noise).sum()
    assert found.best.error == pytest.approx(expected, rel=1e-6)
    assert problem.error(restored) == pytest.approx(expected, rel=1e-6)
    for product in problem.given.products:
        variances = np.concatenate(list(restored.variances(product)))
        each = dense_variances(Workload(DOMAIN, (product.weighted(1.0),)), restored, noise)
        np.testing.assert_allclose(float(restored.sensitivity(noise)) ** 2 * variances, each, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("seed", [2, 4])
def test_plans_over_cells_are_no_worse(noise: Noise, seed: int) -> None:
    problem = Problem(workload_of(seed), noise)
    over_values, over_cells = (select(each, operators_for(each), restarts=1).best for each in (problem, problem.merged))
    assert over_cells.error <= over_values.error * (1 + 1e-5)


@pytest.mark.parametrize("noise", list(Noise))
def test_the_worst_query_is_the_same_on_the_values(noise: Noise) -> None:
    tables = {
        "ages": Workload.product(DOMAIN, age=queries(3, 7, 4, 3)),
        "states": Workload.marginals(DOMAIN, [("state",)]),
    }
    problem = Problem.of(Goal.of(tables, "worst"), noise)
    merged = problem.merged
    assert merged is not problem
    found = select(merged, operators_for(merged), restarts=1)
    restored = merged.restored(found.strategy)
    worst = max(dense_variances(table, restored, noise).max() for table in tables.values())
    assert found.best.error == pytest.approx(worst, rel=1e-6)
    assert problem.value(restored) == pytest.approx(worst, rel=1e-6)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_values_that_nothing_tells_apart_cost_nothing(noise: str) -> None:
    """Fifteen ages in three groups are planned as three values are."""
    domain, small = Domain({"age": 15, "sex": 2}), Domain({"age": 3, "sex": 2})
    groups = Ranges([(0, 3), (4, 9), (10, 14)])
    plan = hdmm.optimize(Workload.product(domain, age=groups, sex=Identity()), noise=noise, restarts=1, progress=False)
    least = hdmm.optimize(Workload.marginals(small, k=2), noise=noise, restarts=1, progress=False)
    assert plan.error == pytest.approx(least.error, rel=1e-9)
    on_every_value = unit_error(plan.workload, Strategy.identity(domain), noise=noise)
    assert next(c.error for c in plan.candidates if c.operator == "Identity") == pytest.approx(on_every_value)
    data = np.arange(30).reshape(15, 2)
    privacy = hdmm.PureDP(10**6) if noise == "laplace" else hdmm.ZCDP(10**9)
    release = plan.measure(hdmm.from_array(domain, data), privacy, ledger=None)
    answers = release.answer(plan.workload).values.reshape(3, 2)
    expected = [data[:4].sum(axis=0), data[4:10].sum(axis=0), data[10:].sum(axis=0)]
    np.testing.assert_allclose(answers, expected, atol=1)


@pytest.mark.parametrize("noise", list(Noise))
def test_pairs_of_values_that_sums_and_differences_do_not_tell_apart_are_one_cell(noise: Noise) -> None:
    domain = Domain({"x": 4, "sex": 2, "y": 4})
    both = {("x", "y"): SumAtMost()}, {("x", "y"): DifferenceAtMost()}
    w = Workload.product(domain, both[0]) + Workload.product(domain, both[1])
    problem = Problem(w, noise)
    merged = problem.merged
    assert merged.workload.domain.shape == (10, 2)
    found = select(merged, operators_for(merged), restarts=2)
    restored = merged.restored(found.strategy)
    assert {axes for axes, _ in restored.table.distinct} <= {(0, 2), (1,)}
    assert found.best.error == pytest.approx(dense_variances(w, restored, noise).sum(), rel=1e-6)
    assert problem.error(restored) == pytest.approx(found.best.error, rel=1e-6)
    one, other = (select(each, operators_for(each), restarts=2) for each in (merged, problem))
    assert one.best.error <= other.best.error * (1 + 1e-5)
    for name in {c.operator for c in one.candidates} & {c.operator for c in other.candidates}:
        least, most = (min(c.error for c in found.candidates if c.operator == name) for found in (one, other))
        assert least <= most * (1 + 1e-5), name
    assert Problem(w + Workload.product(domain, sex=Identity())).merged.given is not merged.given


def test_values_that_no_query_asks_for_are_one_cell() -> None:
    cells = MergedCells.of(Workload.product(Domain({"age": 6}), age=[[1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0]]).products)
    assert cells is not None
    assert cells.cells[0].tolist() == [0, 1, 2, 1, 1, 1]


def test_what_every_query_tells_apart_stays() -> None:
    plain = Workload.marginals(DOMAIN, k=2)
    assert MergedCells.of(plain.products) is None
    assert Problem(plain).merged.given is plain
    joint = Workload.product(DOMAIN, {("age", "sex"): SumAtMost()}) + Workload.product(DOMAIN, state=Identity())
    assert MergedCells.of(joint.products) is None
    large = Domain({"zip": MOST_RESTORED + 1})
    assert MergedCells.of(Workload.product(large, zip=Ranges([(0, 99), (100, MOST_RESTORED)])).products) is None


def test_values_of_known_counts_stay() -> None:
    ages, states = [[1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0]], [[1, 1, 0, 0], [0, 0, 1, 1]]
    w = Workload.product(DOMAIN, age=ages) + Workload.product(DOMAIN, state=states, sex=Identity())
    known = Known(DOMAIN, ["state"], [10, 20, 30, 40])
    problem = Problem(w, known=(known.product,))
    merged = problem.merged
    assert merged.workload.domain.shape == (3, 2, 4)
    plan = hdmm.optimize(w, known=known, restarts=1, progress=False)
    assert plan.strategy.domain == DOMAIN
    assert plan.strategy.known == (known.product,)
    assert plan.error == pytest.approx(unit_error(w, plan.strategy), rel=1e-9)
