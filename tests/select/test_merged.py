"""Merged attributes: the same numbers as dense algebra, in the order of the original domain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import AllRange, Domain, Identity, Prefix, PureDP, Strategy, StrategyError, Workload, supports, unit_error
from hdmm.baselines import identity
from hdmm.matrix import Eye, PIdentity, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_x import mergeable, opt_merged, opt_x
from hdmm.select.problem import Problem
from hdmm.select.search import first_search
from hdmm.strategy.axis_groups import AxisGroups, Crossed
from hdmm.strategy.blocks import Block
from tests.support import brute
from tests.support.effort import examples
from tests.support.strategies import workloads

SOLID = Domain({"x": 3, "sex": 2, "y": 4})
AXES = [(0, 1), (1, 2), (0, 2), (0, 1, 2)]


def strategy_on(axes: tuple[int, ...]) -> Strategy:
    groups = AxisGroups.merging(SOLID, axes)
    generator = np.random.default_rng(0)
    sizes = zip(groups.groups, groups.domain.shape, strict=True)
    return Strategy(SOLID, (Block(1.0, [(group, PIdentity(generator.random((2, n)))) for group, n in sizes]),))


@pytest.mark.parametrize("axes", AXES)
@examples(15)
@given(data=st.data())
def test_error_and_variances_are_the_dense_ones(axes: tuple[int, ...], data: st.DataObject) -> None:
    workload = data.draw(workloads(SOLID))
    strategy = strategy_on(axes)
    W, A = brute.workload_matrix(workload), to_dense(strategy.matrix)
    each = brute.variances(W, A)
    assert strategy.sensitivity(Noise.LAPLACE) == pytest.approx(brute.sensitivity(A, Noise.LAPLACE))
    assert strategy.sensitivity(Noise.GAUSSIAN) == pytest.approx(brute.sensitivity(A, Noise.GAUSSIAN))
    assert strategy.total_variance(workload) == pytest.approx(each.sum(), rel=1e-8, abs=1e-12)
    scale = 2 * brute.sensitivity(A, Noise.LAPLACE) ** 2
    np.testing.assert_allclose(hdmm.query_variance(workload, strategy, PureDP(1)), scale * each, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("axes", AXES)
def test_the_matrix_measures_the_original_cells(axes: tuple[int, ...]) -> None:
    strategy = strategy_on(axes)
    x = np.arange(24.0)
    names = [SOLID.names[i] for i in axes]
    groups = strategy.groups
    table = x.reshape(SOLID.shape).transpose(groups.order).ravel()
    assert groups.domain == SOLID.merge(names, name="×".join(names))
    inner = Strategy(groups.domain, tuple(map(groups.block, strategy.blocks)))
    np.testing.assert_allclose(strategy.matrix.matmat(x[:, None]), inner.matrix.matmat(table[:, None]))


def test_the_optimum_is_supported_and_no_worse_than_identity() -> None:
    w = Workload.product(SOLID, x=Prefix(), y=AllRange()) + Workload.marginals(SOLID, k=2)
    for noise in (Noise.LAPLACE, Noise.GAUSSIAN):
        strategy = opt_merged(Problem(w, noise), first_search())
        assert supports(w, strategy)
        assert unit_error(w, strategy, noise=noise) <= unit_error(w, identity(w), noise=noise) * (1 + 1e-9)


@pytest.mark.slow
def test_merged_ranges_beat_the_product() -> None:
    domain = Domain({"x": 24, "y": 24})
    w = Workload.product(domain, x=AllRange(), y=AllRange())
    merged = opt_merged(Problem(w), first_search())
    assert unit_error(w, merged) < 0.97 * unit_error(w, opt_x(Problem(w), first_search()))


def test_only_used_attributes_are_merged() -> None:
    domain = Domain({"a": 64, "b": 1000, "c": 9, "d": 5})
    w = Workload.product(domain, a=Identity(), b=Identity()) + Workload.product(domain, c=Identity())
    assert mergeable(Problem(w)) == (1, 2)
    assert opt_merged(Problem(Workload.marginals(SOLID, k=2)), first_search(), axes=[2, 0]).blocks[0].factors[0][0] == (
        0,
        2,
    )


def test_what_cannot_be_merged_says_so() -> None:
    w = Workload.product(SOLID, x=Prefix())
    with pytest.raises(StrategyError, match="No two attributes"):
        opt_merged(Problem(w), first_search())
    with pytest.raises(StrategyError, match=r"Axes \(0, 7\)"):
        opt_merged(Problem(w), first_search(), axes=(0, 7))
    with pytest.raises(StrategyError, match="6 cells but a block's matrix has 7 columns"):
        Strategy(SOLID, (Block(1.0, [((0, 1), Eye(7))]),))
    with pytest.raises(StrategyError, match="twice"):
        Strategy(SOLID, (Block(1.0, [((0, 1), Eye(6)), ((1, 2), Eye(8))]),))
    with pytest.raises(StrategyError, match="out of order"):
        Strategy(SOLID, (Block(1.0, [((1, 0), Eye(6))]),))
    with pytest.raises(StrategyError, match="one Domain"):
        strategy_on((0, 1)).total_variance(Workload.marginals(Domain({"z": 2}), k=1))


def test_labels_of_crossed_predicates() -> None:
    groups = AxisGroups.merging(SOLID, (0, 1))
    w = Workload.product(SOLID, x=Identity(), sex=Identity())
    product = groups.product(w.products[0])
    (_, crossed), *_ = product.factors
    assert isinstance(crossed, Crossed)
    assert crossed.labels(groups.domain.attributes[0])[:2] == ["0 × 0", "0 × 1"]
    assert product.queries == w.queries
