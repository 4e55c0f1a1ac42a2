from __future__ import annotations

import math

import numpy as np
import pytest

from hdmm import AllRange, Domain, Identity, Prefix, Strategy, StrategyError, Total, Workload, unit_error
from hdmm.bounds import svd_bound
from hdmm.matrix import Eye, Ones, PIdentity
from hdmm.privacy import Noise
from hdmm.strategy.bases import opt_g
from hdmm.strategy.demand import demand
from hdmm.strategy.joint import JointLoss
from hdmm.strategy.marginal import marginal_strategy, opt_m
from hdmm.strategy.problem import Problem
from hdmm.strategy.search import Search
from tests.strategy.test_marginal import brute_error


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mixed_workload() -> Workload:
    """Ranges, prefixes and cells; a set that sees only the total, a zero-sum query, an attribute of size 1."""
    domain = Domain({"a": 5, "b": 4, "c": 3, "d": 1})
    return (
        Workload.product(domain, a=AllRange(), b=Prefix())
        + 2.0 * Workload.product(domain, a=Prefix(), c=Identity())
        + 0.5 * Workload.product(domain, b=Identity() | Total(), c=[[1, -1, 0]], d=Identity())
        + Workload.product(domain, a=[[1] * 5, [1] * 5], b=AllRange())
        + Workload.marginals(domain, k=0)
    )


def start() -> tuple[dict[int, np.ndarray], dict[int, float]]:
    bases = {0: rng(1).random((2, 5)), 1: rng(2).random((1, 4))}
    return bases, dict(zip([1, 3, 5, 7, 6, 0], rng(3).uniform(0.1, 1, 6).tolist(), strict=True))


def test_joint_loss_is_the_error_of_the_strategy() -> None:
    workload, (thetas, weights) = mixed_workload(), start()
    bases = {i: PIdentity(theta) for i, theta in thetas.items()}
    asked = demand(workload, bases)
    loss = JointLoss.of(workload, asked, list(weights), {})(np.array(list(weights.values())), thetas)[0]
    strategy = marginal_strategy(workload.domain, asked, weights, noise=Noise.LAPLACE, bases=bases)
    assert loss == pytest.approx(unit_error(workload, strategy), rel=1e-9)
    assert loss == pytest.approx(brute_error(workload, strategy), rel=1e-7)


def test_joint_gradient_is_that_of_finite_differences() -> None:
    workload, (thetas, weights) = mixed_workload(), start()
    joint = JointLoss.of(workload, demand(workload), list(weights), {})
    theta = np.array(list(weights.values()))
    value, by_theta, by_base = joint(theta, thetas)
    step = 1e-6
    for j, e in enumerate(np.eye(len(theta))):
        numeric = (joint(theta + step * e, thetas)[0] - joint(theta - step * e, thetas)[0]) / (2 * step)
        assert by_theta[j] == pytest.approx(numeric, rel=1e-5, abs=1e-6 * value)
    for i, each in thetas.items():
        for entry in np.ndindex(each.shape):
            moved = np.zeros_like(each)
            moved[entry] = step
            up, down = ({**thetas, i: each + sign * moved} for sign in (1, -1))
            numeric = (joint(theta, up)[0] - joint(theta, down)[0]) / (2 * step)
            assert by_base[i][entry] == pytest.approx(numeric, rel=1e-5, abs=1e-6 * value)


@pytest.mark.parametrize("restart", [0, 1])
@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_the_strategy_supports_the_workload(noise: str, restart: int) -> None:
    workload = mixed_workload()
    found = opt_g(Problem(workload, noise), Search(rng(), restart))
    assert float(found.sensitivity(noise)) == pytest.approx(1)
    error = unit_error(workload, found, noise=noise)
    assert error == pytest.approx(brute_error(workload, found, noise), rel=1e-4)
    assert error < 1.01 * unit_error(workload, opt_m(Problem(workload, noise), Search(rng())), noise=noise)


def test_range_marginals_gain_much_over_marginals() -> None:
    workload = Workload.range_marginals(Domain({"x": 100, "y": 50, "s": ["a", "b"]}), k=2, ranges=["x", "y"])
    found = unit_error(workload, opt_g(Problem(workload), Search(rng())))
    assert found < 0.6 * unit_error(workload, opt_m(Problem(workload), Search(rng())))


def test_never_worse_than_the_marginals_it_starts_from() -> None:
    workload = Workload.marginals(Domain({"a": 5, "b": 4, "c": 3, "d": 6}), k=2)
    marginals = opt_m(Problem(workload), Search(rng()))
    theta = {block.axes: block.weight for block in marginals.blocks}
    found = opt_g(Problem(workload), Search(rng(1)), bases=[Eye(n) for n in workload.domain.shape], theta=theta)
    assert unit_error(workload, found) <= unit_error(workload, marginals) * (1 + 1e-9)


def test_never_worse_than_the_product_it_starts_from() -> None:
    workload = mixed_workload()
    bases = [PIdentity(rng(n).random((1, n))) for n in workload.domain.shape]
    asked = demand(workload)
    product = marginal_strategy(
        workload.domain, asked, {7: 1.0}, noise=Noise.LAPLACE, bases={i: bases[i] for i in asked.axes}
    )
    found = opt_g(Problem(workload), Search(rng()), bases=bases, theta={(0, 1, 2): 1.0})
    assert unit_error(workload, found) < unit_error(workload, product)


def test_an_attribute_that_is_always_totalled_has_no_base() -> None:
    domain = Domain({"a": 16, "b": 1000, "c": 4})
    workload = Workload.product(domain, a=AllRange(), c=Identity()) + Workload.product(domain, a=Prefix())
    found = opt_g(Problem(workload), Search(rng()))
    assert {i for block in found.blocks for i in block.axes} == {0, 2}


def test_a_mostly_totalled_attribute_keeps_its_digits() -> None:
    domain = Domain({"a": 16, "b": 16})
    workload = 1e5 * Workload.product(domain, a=AllRange()) + Workload.product(domain, b=AllRange())
    for restart in range(2):
        found = opt_g(Problem(workload), Search(rng(), restart))
        assert unit_error(workload, found) == pytest.approx(brute_error(workload, found), rel=1e-5)


def test_gaussian_marginals_meet_the_singular_value_bound() -> None:
    for size, k in ((10, 2), (2, 2), (3, range(3))):
        workload = Workload.marginals(Domain({f"a{i}": size for i in range(5)}), k=k)
        found = opt_g(Problem(workload, Noise.GAUSSIAN), Search(rng()))
        assert unit_error(workload, found, noise=Noise.GAUSSIAN) == pytest.approx(svd_bound(workload), rel=1e-4)


def test_awkward_workloads() -> None:
    domain = Domain({"a": 3, "b": 1})
    for workload in (
        Workload.marginals(domain, k=0),
        Workload.marginals(domain, [("b",)]),
        0.0 * Workload.marginals(domain, k=2),
        Workload.product(domain, a=[[0, 1, 0]]),
        Workload.product(Domain({"a": 1}), a=Identity()),
    ):
        for noise in (Noise.LAPLACE, Noise.GAUSSIAN):
            found = opt_g(Problem(workload, noise), Search(rng()))
            assert isinstance(found, Strategy)
            assert math.isfinite(unit_error(workload, found, noise=noise))


def test_scaling_the_workload_scales_the_error() -> None:
    workload = mixed_workload()
    one, seven = (unit_error(c * workload, opt_g(Problem(c * workload), Search(rng()))) for c in (1.0, 7.0))
    assert seven == pytest.approx(49 * one, rel=1e-6)


def test_a_seed_gives_one_strategy() -> None:
    workload = mixed_workload()
    one, two = (opt_g(Problem(workload), Search(rng(4), 1)) for _ in range(2))
    assert unit_error(workload, one) == unit_error(workload, two)


def test_bases_that_do_not_fit_are_refused() -> None:
    workload = mixed_workload()
    with pytest.raises(StrategyError, match="one base per attribute"):
        opt_g(Problem(workload), Search(rng()), bases=[Eye(5)])
    with pytest.raises(StrategyError, match="'b' has 4 values but its base has 5"):
        opt_g(Problem(workload), Search(rng()), bases=[Eye(5), Eye(5), Eye(3), Eye(1)])
    with pytest.raises(StrategyError, match="cannot tell"):
        opt_g(Problem(workload), Search(rng()), bases=[Eye(5), Ones(1, 4), Eye(3), Eye(1)])
