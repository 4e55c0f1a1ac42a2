"""The certified gap: no strategy contradicts it, it is tight where the optimum is known, and large for poor plans."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import hdmm
from hdmm import AllRange, Domain, Prefix, Strategy, Workload
from hdmm.bounds.gap import KNOWN_LOOSENESS, certified_gap, loose_bound, summed
from hdmm.bounds.svd import svd_bound
from hdmm.matrix import to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.goal import Goal
from hdmm.select.opt_r import worst_marginals
from hdmm.select.opt_s import descend
from hdmm.select.worst_optimum import worst_optimum

DOMAIN = Domain({"age": 8, "sex": 2, "place": 3})
TABLES = {
    "ages": Workload.product(DOMAIN, age=Prefix()),
    "pairs": Workload.marginals(DOMAIN, k=2),
    "ranges": Workload.product(DOMAIN, age=AllRange(), sex=hdmm.Identity()),
}
GOALS = {
    "total": Goal.of(TABLES, "total"),
    "tables": Goal.of(TABLES, "tables"),
    "worst": Goal.of(TABLES, "worst"),
    "targets": Goal.of(TABLES, targets={"ages": 10, "pairs": 40}),
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("worst", "targets")]


@pytest.mark.parametrize("name", ["total", "tables", *SLOW])
def test_no_plan_is_below_the_bound_that_another_plan_certifies(name: str) -> None:
    goal = GOALS[name]
    plans = [hdmm.optimize(goal, noise="gaussian", restarts=1, seed=seed) for seed in (0, 1)]
    for plan in plans:
        if plan.gap is not None:
            assert min(other.value for other in plans) >= plan.value / (1 + plan.gap) * (1 - 1e-9)
    if goal.linear:
        assert plans[0].gap is not None
        assert plans[0].gap < 0.02


@pytest.mark.parametrize("targets", [None, {"ones": 10, "pairs": 25}])
def test_the_bound_of_marginals_is_that_of_the_optimum(targets: dict[str, float] | None) -> None:
    """The search over all cells, which knows nothing of residual spaces, ends between the bound and 0.1 % above it."""
    tables = {"ones": Workload.marginals(DOMAIN, k=1), "pairs": 2 * Workload.marginals(DOMAIN, k=range(3))}
    goal = Goal.of(tables, None if targets else "worst", targets)
    bound = worst_marginals(goal)
    assert bound * (1 - 1e-9) <= worst_optimum(goal).value <= bound * 1.001
    for strategy in (Strategy.identity(DOMAIN), hdmm.optimize(goal, noise="gaussian", restarts=1).strategy):
        assert goal.value(strategy, Noise.GAUSSIAN) >= bound * (1 - 1e-9)


def test_the_worst_of_marginals_of_many_attributes_is_certified() -> None:
    domain = Domain({f"a{i}": 10 for i in range(12)})
    plan = hdmm.optimize(Goal.of(Workload.marginals(domain, k=range(4)), "worst"), noise="gaussian", restarts=1)
    assert plan.gap is not None
    assert plan.gap < 1e-6


def test_the_gap_is_about_the_strategy_at_hand() -> None:
    plan = hdmm.optimize(GOALS["total"], noise="gaussian", restarts=1)
    worse = replace(plan, strategy=Strategy.identity(DOMAIN))
    bound = plan.value / (1 + (plan.gap or 0))
    assert certified_gap(plan.goal, worse.strategy) in (None, pytest.approx(worse.value / bound - 1))


def test_marginals_are_known_to_be_optimal() -> None:
    plan = hdmm.optimize(Workload.marginals(DOMAIN, k=range(3)), noise="gaussian", restarts=1)
    assert plan.gap is not None
    assert plan.gap < 1e-4
    assert "more than 0.0" in plan.explain()


def test_the_worst_marginal_has_the_known_optimum_for_a_bound() -> None:
    """1- and 2-way marginals on three attributes of four values need 3.4719 (docs/research/lower-bounds.md)."""
    goal = Goal.of(Workload.marginals(Domain({"a": 4, "b": 4, "c": 4}), k=range(1, 3)), "worst")
    plan = hdmm.optimize(goal, noise="gaussian", restarts=1)
    if plan.gap is not None:
        assert 3.45 < plan.value / (1 + plan.gap) < 3.4720


def test_laplace_noise_has_only_a_loose_bound() -> None:
    for goal in GOALS.values():
        plan = hdmm.optimize(goal, restarts=1, time_limit=0.5)
        assert plan.gap is None
        assert "a loose bound" in plan.explain()
        assert svd_bound(summed(goal)) <= loose_bound(goal) <= plan.value


DOMAIN_2 = Domain(dict.fromkeys("abc", 2))
SMALL = [
    *[
        Workload.product(Domain({"x": n}), x=sets)
        for n in (2, 3, 4)
        for sets in (Prefix(), AllRange())
        if n > 2 or sets == Prefix()
    ],
    *[Workload.marginals(DOMAIN_2, k=k) for k in (1, 2)],
    Workload.product(Domain({"x": 8}), x=hdmm.Width(4)),
]


@pytest.mark.parametrize("w", SMALL, ids=str)
def test_the_loose_bound_is_as_loose_as_is_said_where_the_best_strategies_are_known(w: Workload) -> None:
    """The best of descents from random starts, most of which end there."""
    V, rng = to_dense(w.gram).astype(float), np.random.default_rng(0)
    n, whole = len(V), float(np.trace(V))
    best = min(descend(rng.normal(size=(2 * n, n)), V / whole)[0] for _ in range(12)) * whole
    least, most = KNOWN_LOOSENESS
    assert least - 0.005 <= math.sqrt(best / loose_bound(Goal.of(w))) <= most + 0.005


def test_a_poor_plan_has_a_large_gap() -> None:
    gap = certified_gap(GOALS["worst"], Strategy.identity(DOMAIN))
    assert gap is not None
    assert gap > 1
    assert GOALS["worst"].value(Strategy.identity(DOMAIN), Noise.GAUSSIAN) > 1


def test_the_worst_query_is_certified_where_queries_can_be_written_out() -> None:
    pyramid = Domain({"sex": 2, "age": 30})
    by_sex = Workload.product(pyramid, age=Prefix(), sex=hdmm.Identity())
    tables = {"both": Workload.product(pyramid, age=Prefix()), "each": by_sex}
    plan = hdmm.optimize(tables, objective="worst", noise="gaussian", restarts=1)
    assert plan.gap is not None
    assert plan.gap < 1e-3
