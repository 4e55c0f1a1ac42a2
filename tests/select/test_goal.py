"""Goals: the norm of parts against its definition, gradients against finite differences, plans against each other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hdmm import ZCDP, AllRange, Domain, Identity, Prefix, Strategy, Total, Workload
from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import Weighted
from hdmm.matrix import Ones, PIdentity, diagonal
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import Parted, demand
from hdmm.select.family import Constant
from hdmm.select.goal import Goal, Objective
from hdmm.select.loss import BasesLoss
from hdmm.select.marginal_weights import descend, laplace_loss, slopes
from hdmm.select.operators import operators_for
from hdmm.select.opt_hdmm import select
from hdmm.select.opt_x import product_loss
from hdmm.select.pairs import PairsLoss
from hdmm.select.problem import Problem
from hdmm.select.terms import Parts, Terms
from hdmm.select.theta import DenseTheta, theta_of
from hdmm.select.worst import RowWeights
from hdmm.strategy.blocks import Block
from hdmm.strategy.error import query_variance
from hdmm.strategy.subsets import Whole

from .grams import numeric_gradient

CUBE = Domain({"x": 4, "y": 3, "z": 2})
TABLES = {
    "ranges": Workload.product(CUBE, x=AllRange()),
    "pairs": Workload.product(CUBE, y=AllRange(), z=Identity())
    + 2.0 * Workload.product(CUBE, x=Prefix(), z=Identity()),
    "total": Workload.product(CUBE),
}
WORST = Goal(TABLES, Objective.WORST)


def parted(power: float = 8.0) -> tuple[Workload, Parts]:
    asked, parts = WORST.asked
    assert parts is not None
    return asked, replace(parts, power=power)


def norm(values: list[float], power: float) -> float:
    return float(np.linalg.norm(values, ord=power))


def bases(seed: int) -> list[PIdentity]:
    rng = np.random.default_rng(seed)
    return [PIdentity(rng.random((2, n))) for n in CUBE.shape]


def over(strategy: Strategy, workload: Workload, parts: Parts) -> list[float]:
    return [
        strategy.total_variance(
            Workload(CUBE, tuple(p for p, k in zip(workload.products, parts.of, strict=True) if k == j))
        )
        for j in range(parts.count)
    ]


@pytest.mark.parametrize("power", [8.0, 64.0])
def test_the_error_of_a_product_is_the_norm_of_its_parts(power: float) -> None:
    asked, parts = parted(power)
    factors = bases(1)
    strategy = Strategy(CUBE, (Block(1.0, list(enumerate(factors))),))
    terms = Terms.of(asked, parts)
    taus = [terms.traces(i, A) for i, A in enumerate(factors)]
    assert np.exp(terms.log_scale) * terms.error(taus) == pytest.approx(norm(over(strategy, asked, parts), power))


def test_the_gradient_of_a_product_by_its_parts() -> None:
    asked, parts = parted()
    terms = Terms.of(asked, parts)
    diagonals = [[diagonal(V).astype(float) for V in each] for each in terms.grams]
    xs = [np.random.default_rng(n).random((2, n)) for n in terms.sizes]
    _, gradients = product_loss(terms, xs, diagonals)
    for i, x in enumerate(xs):
        numeric = numeric_gradient(lambda y, i=i: product_loss(terms, [*xs[:i], y, *xs[i + 1 :]], diagonals)[0], x)
        np.testing.assert_allclose(gradients[i], numeric, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("listed", [False, True])
def test_the_error_and_gradient_of_blocks_by_their_parts(listed: bool) -> None:
    asked, parts = parted()
    terms = Terms.of(asked, parts).per_total()
    blocks = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0]])  # 1 is Total
    families = [DenseTheta(theta_of(B)) for B in bases(2)]
    subsets = [sum(1 << i for i, f in enumerate(row) if f == 0) for row in blocks.tolist()]
    pairs = [(family, Constant(Ones(1, n))) for family, n in zip(families, CUBE.shape, strict=True)]
    loss = BasesLoss.of(terms, subsets, dict(enumerate(families))) if listed else PairsLoss.of(terms, pairs, blocks)
    theta = np.array([0.5, 0.3, 0.7])
    strategy = Strategy(
        CUBE,
        tuple(
            Block(w, [(i, bases(2)[i]) for i, f in enumerate(row) if f == 0])
            for w, row in zip(theta, blocks.tolist(), strict=True)
        ),
    )
    F, g, by_base = loss.at(loss.starts).gradient(theta)
    assert np.exp(terms.log_scale) * F == pytest.approx(norm(over(strategy, asked, parts), parts.power))
    by_theta = numeric_gradient(lambda x: loss.at(loss.starts).error(x.tolist()), theta)
    np.testing.assert_allclose(-2 * theta * g, by_theta, rtol=1e-5)
    for j, (x, gradient) in enumerate(zip(loss.starts, by_base, strict=True)):
        numeric = numeric_gradient(
            lambda y, j=j: loss.at([*loss.starts[:j], y, *loss.starts[j + 1 :]]).error(theta.tolist()), x
        )
        np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-9)


def test_the_error_of_marginals_by_their_parts() -> None:
    asked, parts = parted()
    found = Problem(asked, Noise.LAPLACE, parts).demand
    sums, t = found.everywhere()
    theta = np.random.default_rng(3).random(8)
    value, gradient = laplace_loss(sums, t, theta)
    np.testing.assert_allclose(gradient, numeric_gradient(lambda x: laplace_loss(sums, t, x)[0], theta), rtol=1e-5)
    blocks = [
        Block(w, [(i, PIdentity(np.empty((0, n)))) for i, n in enumerate(CUBE.shape) if a >> i & 1])
        for a, w in enumerate(theta)
    ]
    expected = norm(over(Strategy(CUBE, tuple(blocks)), asked, parts), parts.power)
    assert found.scale * value == pytest.approx(theta.sum() ** 2 * expected)
    listed, same = found.over(range(8))
    assert laplace_loss(listed, same, theta)[0] == pytest.approx(value)


def test_the_shares_of_parts_are_the_same_whether_or_not_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, parts = parted()
    assert parts.count > 1
    listed = demand(asked, None, parts).parts
    monkeypatch.setattr("hdmm.select.demand._MAX_REACH", 0)
    np.testing.assert_allclose(demand(asked, None, parts).parts, listed, atol=1e-12)


@pytest.mark.parametrize("power", [8.0, 64.0])
def test_steps_never_raise_the_norm(power: float) -> None:
    rng = np.random.default_rng(0)
    sums, t = Whole(np.array([0.5, 0.1, 0.3])), Parted(rng.random((3, 8)), power)
    theta = rng.random((8, 5))
    before = slopes(sums, t, (theta / theta.sum(axis=0)) ** 2)[0]
    for _ in range(20):
        theta, after = descend(sums, t, theta, steps=1)
        assert (after <= before * (1 + 1e-12)).all()
        before = after


def test_what_no_block_measures_is_infinite_for_its_part_and_so_for_all() -> None:
    sums, t = Whole(np.array([0.5])), Parted(np.array([[1.0, 0.0], [0.0, 1.0]]), 64.0)
    assert np.isinf(slopes(sums, t, np.array([1.0, 0.0]))[0])


def test_worst_and_errors_are_of_the_queries() -> None:
    strategy = Strategy(CUBE, (Block(0.6, list(enumerate(bases(4)))), Block(0.4, [(0, bases(5)[0])])))
    privacy = ZCDP("0.5")
    errors, worst = WORST.errors(strategy, Noise.GAUSSIAN), WORST.worst(strategy, Noise.GAUSSIAN)
    for name, table in TABLES.items():
        variances = query_variance(table, strategy, privacy)
        assert errors[name] ** 2 == pytest.approx(variances.mean())
        assert worst[name] ** 2 == pytest.approx(variances.max())
    assert WORST.value(strategy, Noise.GAUSSIAN) == pytest.approx(max(worst.values()) ** 2)
    strict = Goal.of(TABLES, targets={"ranges": 0.1})
    others = max(worst["pairs"], worst["total"])  # held to ten times that
    expected = max(worst["ranges"] / 0.1, others / 1.0) ** 2
    assert strict.value(strategy, Noise.GAUSSIAN) == pytest.approx(expected)


def test_tables_count_alike() -> None:
    goal = Goal(TABLES, Objective.TABLES)
    strategy = Strategy.identity(CUBE)
    expected = sum(error**2 for error in goal.errors(strategy, Noise.LAPLACE).values())
    assert goal.value(strategy, Noise.LAPLACE) == pytest.approx(expected)
    assert Problem.of(goal, Noise.LAPLACE).error(strategy) == pytest.approx(expected)


def test_rows_of_large_variance_gain_weight() -> None:
    domain = Domain({"x": 8})
    problem = Problem.of(Goal({"x": Workload.product(domain, x=Prefix())}, Objective.WORST), Noise.LAPLACE)
    weights = RowWeights.even(problem).moved(Strategy.identity(domain), 1)
    ((_, predicates),) = weights.weighed.given.products[0].factors
    assert isinstance(predicates, Weighted)
    assert predicates.weights.tolist() == sorted(predicates.weights)
    assert (predicates.weights**2).sum() == pytest.approx(8)
    assert weights.moved(Strategy.identity(domain), 1) is not weights
    even = Problem.of(Goal({"x": Workload.product(domain, x=Identity())}, Objective.WORST), Noise.LAPLACE)
    alike = RowWeights.even(even)
    assert alike.moved(Strategy.identity(domain), 1) is alike


def best(goal: Goal) -> Strategy:
    problem = Problem.of(goal, Noise.LAPLACE)
    return select(problem, operators_for(problem), restarts=1).strategy


def test_each_objective_is_least_for_what_was_made_for_it() -> None:
    domain = Domain({"age": 9, "sex": 2})
    tables = {
        "ages": Workload.product(domain, age=AllRange()),
        "sex": Workload.marginals(domain, [("sex",)]),
        "all": Workload.product(domain, age=Total()),
    }
    goals = [Goal(tables, objective) for objective in Objective]
    found = [best(goal) for goal in goals]
    values = np.array([[goal.value(strategy, Noise.LAPLACE) for strategy in found] for goal in goals])
    assert (np.diag(values) <= values.min(axis=1) * (1 + 1e-9)).all()
    assert values[2, 2] < 0.8 * values[2, 0]


SMALL = Domain({"age": 5, "sex": 2, "work": 3})
SURVEY = {
    "ages": Workload.product(SMALL, age=AllRange()),
    "work": Workload.product(SMALL, age=Prefix(), work=Identity()),
    "sex": Workload.marginals(SMALL, [("sex",), ("sex", "work")]),
}


SLOW = [("OPT_M", 2), ("OPT_x", 2), ("OPT_G", 2), ("OPT_+", 1)]
RUNS = [("OPT_M", 1), ("OPT_x", 1), ("OPT_G", 1), *(pytest.param(*run, marks=pytest.mark.slow) for run in SLOW)]


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize(("name", "restarts"), RUNS)
@pytest.mark.parametrize("asked", ["worst", "tables", "targets"])
def test_every_operator_descends_on_the_objective(name: str, noise: Noise, asked: str, restarts: int) -> None:
    """What a restart finds for the objective is no worse by it than what it finds for the total; nor are two restarts.

    Under Laplace noise the second may end in another local minimum: within 1 % on tables as small as these.
    """
    targets = {"ages": 4.0, "sex": 1.0}
    goal = Goal.of(SURVEY, targets=targets) if asked == "targets" else Goal.of(SURVEY, asked)
    found = found_by(name, Problem.of(goal, noise), restarts=restarts)
    within = 0.01 if noise is Noise.LAPLACE and restarts > 1 else 1e-6
    assert goal.value(found, noise) <= goal.value(found_for_the_total(name, noise, restarts), noise) * (1 + within)


@cache
def found_for_the_total(name: str, noise: Noise, restarts: int) -> Strategy:
    return found_by(name, Problem.of(Goal.of(SURVEY), noise), restarts=restarts)


@pytest.mark.parametrize("noise", list(Noise))
def test_the_same_seed_pursues_the_same_worst_query(noise: Noise) -> None:
    problem = Problem.of(Goal.of(SURVEY, "worst"), noise)
    first, second = (problem.value(found_by("OPT_G", problem, restarts=1)) for _ in range(2))
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["worst", "tables"])
def test_merged_attributes_descend_on_the_objective(asked: str) -> None:
    goal = Goal.of(SURVEY, asked)
    found, total = (found_by("OPT_0", Problem.of(each, Noise.LAPLACE)) for each in (goal, Goal.of(SURVEY)))
    assert goal.value(found, Noise.LAPLACE) <= goal.value(total, Noise.LAPLACE) * (1 + 1e-6)


def found_by(name: str, problem: Problem, *, restarts: int = 2) -> Strategy:
    """What an operator for several tables finds, also where the optimum is known."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hdmm.select.operators.writable", lambda _: False)
        operators = [each for each in operators_for(problem) if each.name == name]
    return select(problem, operators, restarts=restarts).strategy


def test_the_mean_of_a_table_in_place_of_its_worst_query() -> None:
    goal = Goal(SURVEY, Objective.WORST, means=True)
    problem = Problem.of(goal, Noise.LAPLACE)
    strategy = Strategy.identity(SMALL)
    largest = max(goal.errors(strategy, Noise.LAPLACE).values()) ** 2
    assert goal.value(strategy, Noise.LAPLACE) == pytest.approx(largest)
    assert problem.error(strategy) == pytest.approx(largest)


def test_an_objective_of_another_name() -> None:
    with pytest.raises(StrategyError, match=r"There is no objective 'table'.*'tables'"):
        Objective.named("table")
