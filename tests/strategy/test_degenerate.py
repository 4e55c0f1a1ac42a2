"""Degenerate problems: attributes of one value, the total alone, duplicates and zeros, each goal and noise.

All that can be planned is measured and answered, and agrees with dense algebra; the rest is refused before any debit.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import null_space

import hdmm
from hdmm import ZCDP, AllRange, Domain, Identity, Known, Labels, Prefix, PureDP, SumAtMost, Total, Workload, from_array
from hdmm.base.exceptions import HdmmError, StrategyError, WorkloadError
from hdmm.matrix import to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.reconstruct.known import known_products
from hdmm.select.goal import Goal
from hdmm.select.operators import operators_beside
from hdmm.select.problem import Problem
from hdmm.strategy.informed import unknown
from hdmm.strategy.lattice import resolution
from tests.support.problems import dense_block, drawn_domain, drawn_known, drawn_workload

ONE = Domain({"a": 1})
ONES = Domain({"a": 1, "b": 1})
LINE = Domain({"a": 4})
BOTH = Domain({"a": 4, "b": 1})
WIDE = Domain({"a": 3, "b": 1, "c": 2})
WORKLOADS = {
    "one cell": Workload.marginals(ONE, k=1),
    "one cell of two attributes": Workload.marginals(ONES, k=range(3)),
    "the total": Workload.marginals(LINE, k=0),
    "the total of several": Workload.marginals(WIDE, k=0),
    "the total twice": Workload.marginals(LINE, k=0) + 3.0 * Workload.marginals(LINE, k=0),
    "one value": Workload.marginals(WIDE, [("b",)]),
    "one value of many": Workload.product(BOTH, a=Prefix(), b=Identity()),
    "two predicates on one value": Workload.product(BOTH, a=Identity(), b=Identity() | Total()),
    "numbers on one value": Workload.product(BOTH, a=Prefix(), b=np.array([[2.0], [-1.0], [0.0]])),
    "one value at once with others": Workload.product(BOTH, {("a", "b"): SumAtMost((4, 1))}),
    "one value in all marginals": Workload.marginals(WIDE, k=range(4)),
    "duplicates": Workload.marginals(LINE, k=1) + Workload.marginals(LINE, k=1) + Workload.product(LINE, a=Identity()),
    "ranges beside one value": Workload.product(WIDE, a=AllRange(), b=Prefix(), c=Identity()),
    "a weight of 0": Workload.marginals(LINE, k=1) + 0.0 * Workload.product(LINE, a=AllRange()),
}
GOALS = ("total", "tables", "worst", "targets")


def planned(tables: dict[str, Workload], goal: str, noise: str, known: list[Known] | None = None) -> hdmm.Plan:
    kind = {"targets": dict.fromkeys(tables, 20.0)} if goal == "targets" else {"objective": goal}
    return hdmm.optimize(tables, noise=noise, restarts=1, time_limit=2, progress=False, known=known, **kind)  # pyright: ignore[reportArgumentType]


def privacy(noise: str) -> PureDP | ZCDP:
    return PureDP(1) if noise == "laplace" else ZCDP("0.5")


def dense_covariance(release: hdmm.Release) -> np.ndarray:
    """The covariance of least squares over all cells, of what was measured with its noise, and under what is known."""
    rows: list[np.ndarray] = []
    for block, scale in zip(release.strategy.blocks, release.scales, strict=True):
        unit = 1 / resolution(scale, release.privacy.noise)
        q = math.exp(-unit / float(scale))
        deviation = math.sqrt(2 * q) / (1 - q) * unit if release.privacy.noise is Noise.LAPLACE else math.sqrt(scale)
        rows.append(dense_block(release.domain.shape, block) / deviation)
    A = np.vstack(rows)
    if not release.known:
        return np.linalg.pinv(A.T @ A, rcond=1e-10, hermitian=True)
    N = null_space(np.vstack([to_dense(each.product.matrix) for each in release.known]))
    return N @ np.linalg.pinv(N.T @ A.T @ A @ N, rcond=1e-10, hermitian=True) @ N.T


def check(tables: dict[str, Workload], goal: str, noise: str, x: np.ndarray, known: list[Known] | None = None) -> None:
    """Plan, measure and answer, and compare with dense algebra; HdmmErrors come before anything is measured."""
    domain = next(iter(tables.values())).domain
    plan = planned(tables, goal, noise, known)
    assert plan.gap is None or plan.gap >= 0
    assert "queries over" in plan.explain()
    amount = plan.privacy_for() if goal == "targets" else privacy(noise)
    release = plan.measure(from_array(domain, x), amount, ledger=None)
    answered = {name: w for name, w in tables.items() if hdmm.supports(w, plan.strategy)}
    assert all(any(p.weight == 0 for p in w.products) for name, w in tables.items() if name not in answered)
    answers = release.answer(answered)
    W = np.vstack([to_dense(p.weighted(1.0).matrix) for w in answered.values() for p in w.products])
    variances = np.einsum("ij,jk,ik->i", W, dense_covariance(release), W)
    np.testing.assert_allclose(
        np.concatenate([table.stddev for table in answers.tables()]) ** 2,
        variances,
        rtol=1e-6,
        atol=1e-8 * max(1.0, variances.max()),
    )
    deviations = np.sqrt(np.maximum(variances, 0.0))
    assert (np.abs(answers.counts - W @ x.ravel()) <= 40 * deviations + 1e-6).all()
    if goal == "targets":
        assert all(table.margin.max() <= 20 * (1 + 1e-9) for table in answers.tables())
    for kind in ({"nonnegative": True}, {"integers": True}):
        try:
            found = release.answer(answered, **kind)
        except StrategyError as refused:
            if "fault of hdmm" in str(refused):
                raise
        else:
            assert np.isfinite(found.counts).all()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_degenerate_problems_are_planned_measured_and_answered(name: str, goal: str, noise: str) -> None:
    w = WORKLOADS[name]
    if goal == "targets":
        w = Workload(w.domain, tuple(p for p in w.products if p.weight > 0))
    x = np.random.default_rng(0).integers(0, 50, size=w.domain.shape)
    check({"table": w}, goal, noise, x)


@pytest.mark.parametrize("goal", ["total", "tables", "worst"])
@pytest.mark.parametrize("name", ["one cell", "the total", "one value", "one value of many", "ranges beside one value"])
def test_an_attribute_of_one_value_changes_no_error(name: str, goal: str) -> None:
    """Without it the plan is as good; under Gaussian noise, and so by its certificate, too."""
    w = WORKLOADS[name]
    kept = [i for i, n in enumerate(w.domain.shape) if n > 1] or [0]
    smaller = Workload(w.products[0].over(kept).domain, tuple(p.over(kept) for p in w.products))
    found, plain = (planned({"table": each}, goal, "gaussian") for each in (w, smaller))
    assert found.value == pytest.approx(plain.value, rel=2e-3)
    assert found.gap is not None
    assert found.gap < 2e-3


def test_nothing_to_plan_is_refused_in_words() -> None:
    with pytest.raises(WorkloadError, match="empty"):
        Workload(LINE, ())
    everything = Known(BOTH, ["a"], [1, 2, 3, 4])
    asked = {"table": Workload.product(BOTH, a=Prefix(), b=Identity())}
    for goal in GOALS:
        for noise in ("laplace", "gaussian"):
            with pytest.raises(StrategyError, match="answer every query already"):
                planned(asked, goal, noise, [everything])
    for goal in GOALS:
        with pytest.raises(StrategyError, match="nothing is asked for"):
            planned({"table": 0.0 * Workload.marginals(LINE, k=1)}, goal, "laplace")


def test_known_counts_by_an_attribute_of_one_value_are_the_total() -> None:
    x = np.array([[5], [6], [7], [8]])
    for known in (Known(BOTH, ["b"], [26]), Known(BOTH, [], 26)):
        assert known.product.queries == 1
        check({"table": Workload.marginals(BOTH, k=range(3))}, "tables", "laplace", x, [known])
    release = planned({"table": Workload.marginals(BOTH, k=1)}, "total", "laplace").measure(
        from_array(BOTH, x), PureDP(1), ledger=None
    )
    told = release.answer(Workload.marginals(BOTH, [("a", "b"), ("b",)]), known=Known(BOTH, ["a"], [5, 6, 7, 8]))
    assert told.values.tolist() == [5, 6, 7, 8, 26]
    assert not told.stddev.any()


def drawn(seed: int) -> tuple[dict[str, Workload], np.ndarray, list[Known], np.random.Generator]:
    rng = np.random.default_rng(seed)
    domain = drawn_domain(rng)
    tables = {f"t{k}": drawn_workload(rng, domain) for k in range(rng.integers(1, 4))}
    x = rng.integers(0, 50, size=domain.shape)
    return tables, x, [drawn_known(rng, domain, x) for _ in range(rng.choice([0, 0, 1]))], rng


def test_known_groups_are_answered_whatever_rounding_leaves() -> None:
    """What is known by groups has no variance, also where the coordinates of an attribute are found numerically."""
    tables, x, known, _ = drawn(1)
    assert known[0].attributes == ("a0", "a1", "state")
    problem = replace(Problem.of(Goal.of(tables, "total"), Noise.GAUSSIAN), known=known_products(known))
    asked = replace(problem, given=unknown(problem.given, problem.known))
    products = [operator for operator in operators_beside(asked) if operator.name == "OPT_x"]
    plan = hdmm.optimize(tables, objective="total", known=known, noise="gaussian", restarts=1, operators=products)
    assert plan.operator == "OPT_x"
    release = plan.measure(from_array(plan.workload.domain, x), ZCDP(1), ledger=None)
    assert np.isfinite(release.answer(tables).values).all()


@pytest.mark.parametrize("goal", GOALS)
def test_a_product_that_known_groups_tell_is_left_out(goal: str) -> None:
    places = Labels(["T1", "T2", "T3"], levels={"state": ["N", "S", "N"]})
    domain = Domain({"a": 1, "place": places})
    states = Workload.product(domain, a=Identity(), place=[[1, 0, 1], [0, 1, 0]])
    tables = {"states": states, "ranges": Workload.product(domain, place=AllRange())}
    check(tables, goal, "laplace", np.array([[5, 6, 7]]), [Known(domain, ["a", "state"], [[12, 6]])])


@pytest.mark.slow
def test_random_problems_agree_with_dense_algebra() -> None:
    refused = 0
    for seed in range(150):
        tables, x, known, rng = drawn(seed)
        try:
            check(tables, str(rng.choice(GOALS)), str(rng.choice(["laplace", "gaussian"])), x, known)
        except HdmmError as wrong:  # what is known answers everything, or all that has a target
            known_words = ("answer every query already", "any budget reaches it")
            if not any(words in str(wrong) for words in known_words):
                raise
            refused += 1
    assert refused < 50
