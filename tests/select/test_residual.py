"""OPT_R: residual spaces measured one by one, for total error and for the worst variance."""

import math

import numpy as np
import pytest

import hdmm
from hdmm import Domain, Identity, Noise, Prefix, Total, Workload, unit_error
from hdmm.select.goal import Goal
from hdmm.select.opt_r import opt_r
from hdmm.select.problem import Problem
from hdmm.select.search import first_search
from hdmm.strategy.strategy import Strategy

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CPS = (50, 100, 7, 4, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
PUBLISHED = [  # domain, k, RMSE, worst variance: the optima that ResidualPlanner has too
    (ADULT, 1, 3.047, 12.047),
    (ADULT, 2, 6.359, 67.802),
    (ADULT, 3, 10.515, 236.843),
    (ADULT, range(4), 10.665, 253.605),
    (CPS, 1, 1.744, 4.346),
    (CPS, 2, 2.035, 7.897),
    (CPS, 3, 2.048, 7.706),
    (CPS, range(4), 2.276, 13.216),
    (LOANS, 1, 2.875, 10.640),
    (LOANS, 2, 5.634, 52.217),
    (LOANS, 3, 8.702, 156.638),
    (LOANS, range(4), 8.876, 180.817),
    ((10,) * 20, range(4), 26.9168, 768.94),
]


def domain_of(shape) -> Domain:
    return Domain({f"a{i}": n for i, n in enumerate(shape)})


@pytest.mark.parametrize(("shape", "k", "rmse", "worst"), PUBLISHED)
def test_the_published_optima_of_marginals(shape, k, rmse, worst) -> None:
    w = Workload.marginals(domain_of(shape), k)
    plan = hdmm.optimize(w, noise="gaussian", progress=False)
    assert plan.operator == "OPT_R"
    assert math.sqrt(plan.error / w.queries) == pytest.approx(rmse, abs=6e-4)
    fair = hdmm.optimize(w, objective="worst", noise="gaussian", progress=False)
    assert fair.worst[""] ** 2 == pytest.approx(worst, rel=2e-4)


@pytest.mark.parametrize(
    ("w", "cost"),
    [
        (Workload.marginals(domain_of((2, 2, 63)), [("a0",), ("a1",), ("a2",), ("a0", "a1", "a2")]), 3.0134),
        (Workload.marginals(domain_of((2,) * 3), [1, 2]), 2.1825),
        (Workload.marginals(domain_of((4,) * 3), [1, 2]), 3.4719),
        (Workload.marginals(domain_of((8,) * 3), [1, 2]), 4.5044),
        (Workload.marginals(domain_of((16,) * 3), [1, 2]), 5.1789),
    ],
)
def test_the_least_cost_of_variances_of_at_most_one(w: Workload, cost: float) -> None:
    assert hdmm.optimize(w, objective="worst", noise="gaussian").worst[""] ** 2 == pytest.approx(cost, rel=1e-4)


def test_rows_of_a_union_have_variances_of_their_own() -> None:
    """One product of unions is the same as the marginals that it holds, in which each row counts."""
    domain = domain_of((3, 4))
    either = Identity() | Total()
    union = hdmm.optimize(Workload.product(domain, a0=either, a1=either), objective="worst", noise="gaussian")
    apart = hdmm.optimize(Workload.marginals(domain, range(3)), objective="worst", noise="gaussian")
    assert union.worst[""] == pytest.approx(apart.worst[""], rel=1e-5)


def test_targets_weigh_the_tables() -> None:
    domain = domain_of((5, 6, 7))
    tables = {"one": Workload.marginals(domain, 1), "two": Workload.marginals(domain, 2)}
    plan = hdmm.optimize(tables, targets={"one": 1.0, "two": 30.0}, noise="gaussian")
    assert plan.worst["two"] > 5 * plan.worst["one"]
    even = hdmm.optimize(tables, objective="worst", noise="gaussian")
    assert plan.worst["one"] < even.worst["one"]


def test_one_product_is_measured_as_it_is() -> None:
    """Marginals do exactly what its residual spaces do, in one block; 12 binary attributes have 4,096 spaces."""
    w = Workload.marginals(domain_of((2,) * 12), 12)
    strategy = opt_r(Problem(w, Noise.GAUSSIAN), first_search())
    assert len(strategy.blocks) == 1
    assert unit_error(w, strategy, noise=Noise.GAUSSIAN) == pytest.approx(2.0**12)


def test_an_attribute_of_many_values() -> None:
    domain = domain_of((131_072, 3))
    plan = hdmm.optimize(Workload.marginals(domain, range(3)), noise="gaussian", restarts=1)
    assert plan.operator == "OPT_R"
    assert math.isfinite(plan.error)


@pytest.mark.parametrize("objective", ["total", "tables", "worst"])
def test_no_plan_is_worse_than_residual_spaces(objective) -> None:
    domain = domain_of((8, 5, 4))
    tables = {
        "prefixes": Workload.product(domain, a0=Prefix(), a1=Identity()),
        "pairs": Workload.marginals(domain, 2),
    }
    goal = Goal.of(tables, objective)
    problem = Problem.of(goal, Noise.GAUSSIAN)
    plan = hdmm.optimize(tables, objective=objective, noise="gaussian", restarts=1)
    assert "OPT_R" in {candidate.operator for candidate in plan.candidates}
    least = problem.value(opt_r(problem, first_search()))
    assert problem.value(plan.strategy) <= least * (1 + 1e-9)


def test_the_worst_is_certified_by_weights() -> None:
    """The least weighted total, for any weights of the products, is below the largest variance that is found."""
    domain = domain_of((3, 6, 10, 2))
    w = Workload.marginals(domain, range(4))
    found = hdmm.optimize(w, objective="worst", noise="gaussian").worst[""] ** 2
    rng = np.random.default_rng(0)
    for _ in range(20):
        omega = rng.dirichlet(np.ones(len(w.products)))
        weighed = [math.sqrt(o / p.queries) for o, p in zip(omega, w.products, strict=True)]
        parts = [c * Workload(domain, (p,)) for c, p in zip(weighed, w.products, strict=True)]
        asked = sum(parts[1:], start=parts[0])
        least = unit_error(asked, opt_r(Problem(asked, Noise.GAUSSIAN), first_search()), noise=Noise.GAUSSIAN)
        assert least <= found * (1 + 1e-9)


def test_blocks_held_as_arrays_are_those_that_they_stand_for() -> None:
    """What is made from arrays has the factors, weights and errors of the same blocks written out."""
    w = Workload.marginals(Domain({"a": 3, "b": 2, "c": 4, "unused": 5}), k=[("a",), ("a", "b"), ("b", "c")])
    found = opt_r(Problem(w, Noise.GAUSSIAN), first_search())
    written = Strategy(w.domain, tuple(found.blocks))
    assert [block.axes for block in found.blocks] == found.table.axes == written.table.axes
    assert found.table.distinct == written.table.distinct
    assert found.weighted([2.0] * len(found.blocks)).blocks[-1].weight == 2.0
    assert found.total_variance(w) == written.total_variance(w)
