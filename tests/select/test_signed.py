"""OPT_S: what it finds against dense algebra, its sensitivity by enumeration, and that it is measured as others are."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest

import hdmm
from hdmm import (
    DifferenceAtMost,
    Domain,
    Prefix,
    PureDP,
    Ranges,
    Strategy,
    StrategyError,
    SumAtMost,
    Unit,
    Width,
    Workload,
)
from hdmm.baselines import matrix_mechanism
from hdmm.matrix import to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.operators import operators_for
from hdmm.select.opt_s import opt_s, soft_loss, split_loss
from hdmm.select.problem import Problem
from hdmm.select.search import Search, first_search
from hdmm.strategy.lattice import Lattice
from tests.support import brute

DAYS = Workload.product(Domain({"day": 14}), day=Width(7))
PAIRS = Domain({"x": 4, "y": 4})
SUMS, DIFFERENCES = (Workload.product(PAIRS, {("x", "y"): kind}) for kind in (SumAtMost(), DifferenceAtMost()))
AGES = Workload.product(Domain({"age": 60}), age=[[int(8 * k <= i < 8 * k + 30) for i in range(60)] for k in range(5)])
RANGES = [(lo, hi) for lo, hi in np.sort(np.random.default_rng(0).integers(0, 18, (18, 2)), axis=1).tolist()]
UNION = 2.0 * Workload.product(Domain({"x": 4, "y": 3}), x=Width(2)) + Workload.product(
    Domain({"x": 4, "y": 3}), x=Width(3), y=Width(2)
)


@cache
def found(w: Workload, restart: int = 0) -> Strategy:
    problem = Problem(w).merged
    plans = {"Identity": Strategy.identity(problem.given.domain)}
    return problem.restored(opt_s(problem, Search(np.random.default_rng(restart), restart, found=plans)))


@pytest.mark.parametrize("w", [DAYS, SUMS + DIFFERENCES, AGES, UNION], ids=["days", "sums", "ages", "union"])
@pytest.mark.parametrize("restart", [0, 1])
def test_the_error_is_that_of_dense_algebra(w: Workload, restart: int) -> None:
    strategy = found(w, restart)
    W, A = to_dense(w.matrix), to_dense(strategy.matrix)
    assert brute.supported(W, A)
    error = np.abs(A).sum(axis=0).max() ** 2 * brute.variances(W, A).sum()
    assert hdmm.unit_error(w, strategy) == pytest.approx(error, rel=1e-9)
    variances = hdmm.query_variance(w, strategy, PureDP(1))
    np.testing.assert_allclose(variances, 2 * np.abs(A).sum(axis=0).max() ** 2 * brute.variances(W, A), rtol=1e-8)


def test_the_sensitivity_is_exact_by_enumeration_of_neighbours() -> None:
    strategy = Lattice.of(found(DAYS), Noise.LAPLACE, workload=DAYS).strategy
    A = to_dense(strategy.matrix) / strategy.blocks[0].weight
    whole = np.rint(A).astype(np.int64)
    np.testing.assert_allclose(A, whole, rtol=1e-12)
    assert (whole < 0).any()
    added = np.abs(whole @ np.eye(14, dtype=np.int64)).sum(axis=0)  # every row that can be added or removed
    changed = max(np.abs(whole[:, i] - whole[:, j]).sum() for i in range(14) for j in range(14))
    lattice = Lattice(strategy)
    (scale,) = lattice.scales(PureDP(1))
    assert scale == int(added.max())
    assert lattice.signed
    (scale,) = lattice.scales(PureDP(1), Unit(neighbours="replace"))
    assert scale >= int(changed)


def test_it_is_offered_where_there_are_few_directions_and_errors_are_summed() -> None:
    def offered(w: Workload, **more: object) -> bool:
        return any(o.name == "OPT_S" for o in operators_for(Problem(w, **more).merged))  # type: ignore[arg-type]

    assert offered(DAYS)
    assert offered(SUMS + DIFFERENCES)
    assert not offered(DAYS, noise=Noise.GAUSSIAN)
    assert offered(Workload.product(Domain({"x": 40}), x=Prefix()))
    assert not offered(Workload.product(Domain({"x": 80}), x=Prefix()))
    assert not offered(Workload.marginals(Domain({"x": 40}), k=1))
    assert not offered(Workload.product(Domain({"x": 4096}), x=Width(2048)))


@pytest.mark.parametrize(
    ("w", "most"),
    [
        (Workload.product(Domain({"x": 18}), x=Ranges(RANGES)), 0.985),
        (Workload.product(Domain({"x": 12}), x=Width(7)), 0.9),
    ],
    ids=["ranges", "windows"],
)
def test_signs_over_all_cells_are_no_worse_than_the_matrix_mechanism(w: Workload, most: float) -> None:
    """Nor than plans without signs, by some per cent."""
    plan = hdmm.optimize(w, progress=False)
    assert plan.operator == "OPT_S"
    assert plan.error <= hdmm.unit_error(w, matrix_mechanism(w)) * (1 + 5e-4)  # integers
    assert plan.error <= most * min(c.error for c in plan.candidates if c.operator != "OPT_S")


def test_the_losses_have_the_gradients_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    V = np.cov(rng.normal(size=(5, 20)))
    B, split = rng.normal(size=(7, 5)), rng.random((2, 7, 5)) + 0.1
    for loss, x in ((partial(soft_loss, V=V, softness=0.1), B), (partial(split_loss, V=V), split)):
        found = loss(x)[1]
        for place in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[place] = 1e-6
            slope = (loss(x + step)[0] - loss(x - step)[0]) / 2e-6
            assert found[place] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_a_plan_is_saved_measured_and_answered(tmp_path: object) -> None:
    plan = hdmm.optimize(DAYS, progress=False)
    assert plan.operator == "OPT_S"
    assert plan.error < 48.6  # 56.0 without signs
    again = hdmm.load_plan(plan.save(f"{tmp_path}/plan"))
    assert again.error == pytest.approx(plan.error, rel=1e-12)
    counts = np.arange(100, 1500, 100)
    release = again.measure(hdmm.from_array(DAYS.domain, counts), PureDP(1000), ledger=None)
    answers = release.answer(DAYS)
    np.testing.assert_allclose(answers.values, brute.workload_matrix(DAYS) @ counts, atol=1)
    assert float((answers.stddev**2).sum()) == pytest.approx(plan.rmse(PureDP(1000)) ** 2 * DAYS.queries, rel=0.02)


def test_queries_that_are_no_integers_are_refused_on_many_cells() -> None:
    w = Workload.product(Domain({"x": 80}), x=np.random.default_rng(0).random((5, 80)).tolist())
    with pytest.raises(StrategyError, match="multiples of integers"):
        opt_s(Problem(w), first_search())
