"""OPT_B: its loss is the error, its gradient that of finite differences, and it finds what OPT_G cannot."""

from __future__ import annotations

import numpy as np
import pytest

from hdmm import AllRange, Domain, Identity, Prefix, Sets, Strategy, Workload
from hdmm.matrix import Eye, Matrix, PIdentity, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import Constant, Roots
from hdmm.select.goal import Goal
from hdmm.select.loss import BasesLoss
from hdmm.select.operators import operators_for
from hdmm.select.opt_b import distinct_candidates, opt_b, own_base_candidates, with_own_bases
from hdmm.select.opt_g import opt_g
from hdmm.select.problem import Problem
from hdmm.select.search import Search, first_search
from hdmm.select.terms import Parts
from hdmm.select.theta import DenseTheta
from hdmm.select.worst import for_worst_case
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_form import ClassForm

DOMAIN = Domain({"state": 3, "age": 8, "sex": 2, "race": 4})
TABLES = [
    Workload.product(DOMAIN, age=AllRange()),
    Workload.product(DOMAIN, state=Identity(), age=Prefix()),
    Workload.product(DOMAIN, sex=Identity(), age=Identity()),
    Workload.product(DOMAIN, state=Identity(), sex=Identity()),
    Workload.product(DOMAIN, race=Prefix()),
]
WORKLOAD = TABLES[0] + 3.0 * TABLES[1] + 2.0 * TABLES[2] + TABLES[3] + TABLES[4]
SUBSETS = (0b0011, 0b0110, 0b0101, 0b1000)  # state × age, sex × age, state × sex, race


def theta(p: int, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((p, n))


def loss_of(noise: Noise, parts: Parts | None) -> tuple[BasesLoss, Problem]:
    problem = Problem(WORKLOAD, noise, parts)
    laplace = noise is Noise.LAPLACE
    own = [DenseTheta(theta(2, 8, k)) if laplace else Roots(np.eye(8) + theta(8, 8, k)) for k in range(2)]
    race = DenseTheta(theta(1, 4, 9)) if laplace else Constant(PIdentity(theta(1, 4, 9)))
    shared = {0: Constant(Eye(3)), 2: Constant(Eye(2)), 3: race}
    return BasesLoss.of(problem.terms.per_total(), SUBSETS, shared, free=1, own=own, base=[0, 1, 0, 0]), problem


def strategy_at(loss: BasesLoss, weights: np.ndarray, xs: list[np.ndarray]) -> Strategy:
    own, shared = loss.matrices(xs)
    bases: list[dict[int, Matrix]] = [{**shared, 1: B} for B in (own[0], own[1], own[0], own[0])]
    return Strategy(
        DOMAIN,
        tuple(
            Block(w, [(i, bases[g][i]) for i in range(4) if a >> i & 1])
            for g, (w, a) in enumerate(zip(weights.tolist(), SUBSETS, strict=True))
        ),
    )


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("parted", [False, True])
def test_the_loss_is_the_error_and_has_its_gradient(noise: Noise, parted: bool) -> None:
    workload = WORKLOAD
    parts = Parts(np.arange(len(workload.products)), len(workload.products), 8.0) if parted else None
    loss, problem = loss_of(noise, parts)
    weights = np.array([0.3, 0.4, 0.2, 0.1])
    xs = loss.starts
    value, g, by_x = loss.at(xs).gradient(weights)
    by_theta = -2 * weights * g
    strategy = strategy_at(loss, weights, xs)
    assert isinstance(strategy.form, ClassForm)
    scale = np.exp(problem.terms.per_total().log_scale)
    if parts is None:
        A, W = to_dense(strategy.matrix), to_dense(workload.matrix)
        assert scale * value == pytest.approx(np.sum((W @ np.linalg.pinv(A)) ** 2), rel=1e-9)
    else:
        each = [strategy.form.total_variance([p]) for p in workload.products]
        assert scale * value == pytest.approx(np.linalg.norm(each, 8), rel=1e-9)
    rng = np.random.default_rng(0)
    for k, (x, slope) in enumerate(zip([weights, *xs], [by_theta, *by_x], strict=True)):
        step = 1e-6 * rng.normal(size=x.shape)
        ends = [[each + sign * step if j == k else each for j, each in enumerate([weights, *xs])] for sign in (1, -1)]
        up, down = (loss.at(end[1:]).error(end[0]) for end in ends)
        assert (up - down) / 2 == pytest.approx(np.vdot(slope, step), rel=1e-5, abs=1e-12 * value)


def test_a_class_that_nothing_measures_makes_the_loss_infinite() -> None:
    loss, _ = loss_of(Noise.LAPLACE, None)
    assert loss.at(loss.starts).gradient(np.array([0.3, 0.4, 0.0, 0.1]))[0] == np.inf


@pytest.mark.parametrize("noise", list(Noise))
def test_bases_of_their_own_have_less_error_than_one(noise: Noise) -> None:
    domain = Domain({"state": 10, "age": 24, "sex": 2})
    fives = Sets([range(k, k + 5) for k in range(0, 20, 5)])
    w = Workload.product(domain, age=AllRange()) + 5.0 * Workload.product(domain, state=Identity(), age=fives)
    problem = Problem(w + 5.0 * Workload.product(domain, sex=Identity(), age=Prefix()), noise)
    one = opt_g(problem, first_search())
    found = opt_b(problem, Search(np.random.default_rng(1), restart=1, found={"OPT_G": one}))
    assert problem.error(found) < problem.error(one) * (1 - 1e-3)


def prefixes_on_pairs(n: int) -> Workload:
    domain = Domain({"x": n, "y": n, "z": n, "sex": 2})
    return sum(
        (Workload.product(domain, {x: Prefix(), y: Prefix()}) for x, y in (("x", "y"), ("y", "z"), ("x", "z"))),
        Workload.product(domain, x=Prefix(), sex=Identity()) + Workload.product(domain, y=Prefix(), sex=Identity()),
    )


def test_of_attributes_that_can_be_exchanged_one_is_freed_under_gaussian_noise() -> None:
    problem = Problem(prefixes_on_pairs(6), Noise.GAUSSIAN)
    assert distinct_candidates(problem) == [0, 2]
    assert distinct_candidates(Problem(problem.given)) == [0, 1, 2]
    one = opt_g(problem, first_search())
    first, second = (problem.error(with_own_bases(problem, one, axis, first_search())) for axis in (0, 1))
    assert first == pytest.approx(second, rel=1e-6)
    assert first < problem.error(one)
    # On few cells the optimum is known, and no other operator is tried.
    operators = {o.name: o.restarts for o in operators_for(Problem(prefixes_on_pairs(40), Noise.GAUSSIAN))}
    assert (operators["OPT_B"], operators["OPT_G"]) == (1, 3)


def test_rows_are_weighed_where_bases_are_their_own() -> None:
    domain = Domain({"state": 4, "age": 16, "sex": 2})
    tables = {
        "all": Workload.product(domain, age=AllRange()),
        "by state": Workload.product(domain, state=Identity(), age=Prefix()),
        "by sex": Workload.product(domain, sex=Identity(), age=Prefix()),
    }
    problem = Problem.of(Goal.of(tables, "worst"), Noise.LAPLACE)
    by_state, by_sex = (PIdentity(theta(3, 16, seed)) for seed in (3, 4))
    start = Strategy(domain, (Block(1.0, [(0, Eye(4)), (1, by_state)]), Block(1.0, [(1, by_sex), (2, Eye(2))])))
    one = with_own_bases(problem, start, 1, first_search())
    found = for_worst_case(lambda *_: one, "weigh")(problem, first_search())
    assert problem.value(found) < problem.value(one) * (1 - 1e-2)
    assert len({A for block in found.blocks for axis, A in block.by_axis.items() if axis == 1}) == 2


def test_a_start_that_cannot_be_freed_is_returned() -> None:
    identity = Strategy.identity(DOMAIN)
    assert with_own_bases(Problem(WORKLOAD), identity, 1, first_search()) is identity


def test_it_runs_only_where_several_products_hold_an_attribute_that_is_not_even() -> None:
    plane = Domain({"x": 8, "y": 8})
    apart = Problem(Workload.product(plane, x=AllRange()) + Workload.product(plane, y=AllRange()))
    even = Problem(Workload.marginals(plane, k=[("x",), ("x", "y")]))
    both = Problem(Workload.product(plane, x=AllRange()) + Workload.product(plane, x=Prefix(), y=Identity()))
    assert [own_base_candidates(p) for p in (apart, even, both)] == [[], [], [0]]
    assert [any(o.name == "OPT_B" for o in operators_for(p)) for p in (apart, even, both)] == [False, False, True]
