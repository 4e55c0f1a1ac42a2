"""The least largest variance under Gaussian noise: proven optima, bounds, and what is too large to write out."""

from __future__ import annotations

import numpy as np
import pytest

import hdmm
from hdmm import ZCDP, AllRange, Domain, Identity, Prefix, Strategy, Workload, from_array
from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Dense, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.gaussian_optimum import GramBlock, best_dual
from hdmm.select.goal import Goal
from hdmm.select.operators import operators_for
from hdmm.select.opt_g import opt_g
from hdmm.select.problem import Problem
from hdmm.select.search import first_search
from hdmm.select.worst import for_worst_case
from hdmm.select.worst_optimum import WorstOptimum, worst_optimum
from hdmm.strategy.blocks import Block

PEOPLE = Domain({"sex": 2, "age": 116})
PYRAMID = {
    "both": Workload.product(PEOPLE, age=Prefix()),
    "by sex": Workload.product(PEOPLE, sex=Identity(), age=Prefix()),
}
ADULTS = Domain({"adult": 2, "hispanic": 2, "race": 63})
PL94 = {"one": Workload.marginals(ADULTS, k=1), "cells": Workload.marginals(ADULTS, k=3)}
MIXED = Domain({"sex": 2, "race": 5, "age": 12})
SURVEY = {
    "ages": Workload.product(MIXED, age=AllRange()),
    "by race": Workload.product(MIXED, race=Identity(), age=Prefix()),
    "cells": Workload.marginals(MIXED, [("sex", "race")]),
}


def line(n: int) -> dict[str, Workload]:
    return {"all": Workload.product(Domain({"x": n}), x=Prefix())}


def cube(t: int) -> dict[str, Workload]:
    return {"all": Workload.marginals(Domain({"a": t, "b": t, "c": t}), k=range(1, 3))}


def check(found: WorstOptimum, goal: Goal) -> None:
    assert found.value == pytest.approx(goal.value(found.strategy, Noise.GAUSSIAN))
    assert found.bound <= found.value <= found.bound * 1.001


@pytest.mark.parametrize(
    ("tables", "optimum"),
    [
        (PL94, 3.0134),
        (PYRAMID, 6.9975),
        (cube(2), 2.1825),
        (cube(4), 3.4719),
        (cube(8), 4.5044),
        (cube(16), 5.1789),
        (line(64), 4.4579),
        (line(256), 6.4147),
    ],
    ids=["PL-94", "pyramid", "2³", "4³", "8³", "16³", "64", "256"],
)
def test_proven_optima(tables: dict[str, Workload], optimum: float) -> None:
    goal = Goal.of(tables, "worst")
    found = worst_optimum(goal)
    check(found, goal)
    assert found.value == pytest.approx(optimum, rel=1e-3)
    assert found.bound <= optimum + 5e-5


def test_no_strategy_is_below_the_bound() -> None:
    goal = Goal.of(SURVEY, targets={"ages": 3.0, "by race": 1.0})
    found = worst_optimum(goal)
    check(found, goal)
    rng = np.random.default_rng(0)
    for _ in range(20):
        A = rng.normal(size=(120, 120)) + 20 * rng.random() * np.eye(120)
        other = Strategy(MIXED, (Block(1.0, [((0, 1, 2), Dense(A))]),))
        assert goal.value(other, Noise.GAUSSIAN) >= found.bound
    for objective in ("total", "tables", "worst"):
        plan = hdmm.optimize(SURVEY, objective=objective, noise="gaussian", restarts=1)
        assert goal.value(plan.strategy, Noise.GAUSSIAN) >= found.bound


def test_targets_are_met_alike() -> None:
    """Tables that are held to their targets have the same ratio of variance to what is allowed."""
    plan = hdmm.optimize(SURVEY, targets={"ages": 8.0, "by race": 6.0, "cells": 3.0}, noise="gaussian")
    ratios = [plan.worst["ages"] / 8, plan.worst["by race"] / 6, plan.worst["cells"] / 3]
    assert max(ratios) == pytest.approx(min(ratios), rel=2e-3)


@pytest.mark.parametrize("tables", [PL94, PYRAMID, SURVEY], ids=["PL-94", "pyramid", "survey"])
def test_what_was_found_can_be_released(tables: dict[str, Workload]) -> None:
    plan = hdmm.optimize(tables, objective="worst", noise="gaussian")
    domain = plan.workload.domain
    counts = np.random.default_rng(1).integers(0, 100, domain.shape)
    release = plan.measure(from_array(domain, counts), ZCDP("0.5"), ledger=None)
    for name, table in tables.items():
        answer = release.answer(table)
        assert answer.stddev.max() == pytest.approx(plan.worst[name], rel=2e-3)
        truth = np.concatenate([p.matrix.matmat(counts.reshape(-1, 1)).ravel() for p in table.products])
        assert np.abs(answer.values - truth).max() < 8 * plan.worst[name]


def test_the_seed_does_not_matter() -> None:
    one, two = (hdmm.optimize(SURVEY, objective="worst", noise="gaussian", seed=seed) for seed in (0, 1))
    assert one.worst == two.worst


def test_shares_and_bases_in_turn_come_near_the_optimum() -> None:
    problem = Problem.of(Goal.of(PYRAMID, "worst"), Noise.GAUSSIAN)
    strategy = for_worst_case(opt_g, "descend")(problem, first_search())
    assert problem.value(strategy) < 6.9975 * 1.01


def test_what_is_too_large_to_write_out_is_left_to_the_other_operators() -> None:
    domain = Domain({f"a{i}": 50 for i in range(3)})
    table = Workload.product(domain, {name: Prefix() for name in domain.names})
    goal = Goal.of(table, "worst")
    with pytest.raises(StrategyError, match="too many to be written out"):
        worst_optimum(goal)
    assert [o.name for o in operators_for(Problem.of(goal, Noise.GAUSSIAN))][:3] == ["OPT_R", "OPT_M", "OPT_x"]


DISJOINT = {
    "groups": Workload.product(
        Domain({"a": 12}), a=[[1] * 3 + [0] * 9, [0] * 3 + [1] * 7 + [0] * 2, [0] * 10 + [1] * 2]
    ),
    "groups and a value": Workload.product(Domain({"a": 6, "one": 1}), a=[[1, 1, 1, 0, 0, 0]], one=Identity())
    + 3.0 * Workload.product(Domain({"a": 6, "one": 1}), a=[[0, 0, 0, 1, 1, 0]]),
    "prefixes beside one value": Workload.product(Domain({"a": 12, "one": 1, "b": 3}), a=Prefix(), one=Identity())
    + Workload.marginals(Domain({"a": 12, "one": 1, "b": 3}), [("one",), ("a", "one"), ("b",)]),
    "several attributes by classes": Workload.product(Domain({"a": 5, "b": 3, "c": 4}), a=Prefix(), b=Identity())
    + Workload.product(Domain({"a": 5, "b": 3, "c": 4}), a=AllRange(), c=Identity())
    + Workload.marginals(Domain({"a": 5, "b": 3, "c": 4}), 2),
}


@pytest.mark.parametrize("name", DISJOINT)
def test_the_worst_query_is_optimal_and_certified(name: str) -> None:
    """The bound is valid by the least weighted total for the weights of any plan, and the plan by dense algebra."""
    w = DISJOINT[name]
    plan = hdmm.optimize(w, objective="worst", noise="gaussian", progress=False)
    A = to_dense(plan.strategy.matrix).astype(float)
    W = to_dense(w.matrix).astype(float)
    answers = W @ np.linalg.pinv(A)
    np.testing.assert_allclose(answers @ A, W, atol=1e-6)
    worst = (A**2).sum(axis=0).max() * (answers**2).sum(axis=1).max()
    assert plan.value == pytest.approx(worst, rel=1e-6)
    assert plan.gap < 1e-3
    total = hdmm.optimize(w, noise="gaussian", progress=False)
    goal = Goal.of(w, "worst")
    assert plan.value <= goal.value(total.strategy, Noise.GAUSSIAN) * (1 + 1e-9)
    rng, V = np.random.default_rng(0), []
    for _ in range(5):
        omega = rng.dirichlet(np.ones(len(W)))
        V.append(best_dual([GramBlock(1.0, (W.T * omega) @ W)])[0] ** 2)
    assert max(V) <= plan.value * (1 + 1e-6)
