"""Blocks with bases of their own on one attribute: all that their form says is what dense algebra says."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hdmm import Domain, Identity, Strategy, Workload
from hdmm.matrix import Dense, Eye, Matrix, PIdentity, to_dense
from hdmm.reconstruct.least_squares import reconstruct
from hdmm.reconstruct.nonnegative import nonnegative
from hdmm.strategy.axis_groups import AxisGroups, Tabulated
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_form import ClassForm
from tests.support import brute, families
from tests.support.effort import examples
from tests.support.strategies import domains, workloads


def factor(rng: np.random.Generator, n: int) -> Matrix:
    kind = rng.integers(4)
    if kind == 0:
        return Eye(n)
    if kind == 1:  # tells fewer directions apart than there are cells
        return Dense(rng.integers(0, 3, size=(max(1, n - 1), n)) + np.eye(max(1, n - 1), n))
    return PIdentity(rng.uniform(size=(2, n)) * 2)


@st.composite
def coupled(draw: st.DrawFn) -> Strategy:
    """Blocks of which one attribute has a factor of each block's own, and the others one base and Total."""
    domain = draw(domains(attributes=4, size=4))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    free = draw(st.sampled_from(range(len(domain))))
    bases = {
        i: PIdentity(rng.uniform(size=(1, n))) if rng.random() < 0.5 else Eye(n) for i, n in enumerate(domain.shape)
    }
    blocks: list[Block] = []
    for _ in range(draw(st.integers(2, 5))):
        axes = [i for i in range(len(domain)) if draw(st.booleans())]
        each = bases | {free: factor(rng, domain.shape[free])}
        blocks.append(Block(float(rng.uniform(0.2, 2)), [(i, each[i]) for i in axes]))
    return Strategy(domain, tuple(blocks))


@examples(100)
@given(strategy=coupled(), data=st.data())
def test_errors_variances_covariances_and_estimates_are_the_dense_ones(strategy: Strategy, data: st.DataObject) -> None:
    form = ClassForm.coupled(Tabulated.of(strategy.groups, strategy.blocks))
    assume(form is not None)
    A = families.dense(strategy)
    singular = np.linalg.svd(A, compute_uv=False)
    assume((singular[singular > 1e-12 * singular[0]] > 1e-3 * singular[0]).all())
    inverse = np.linalg.pinv(A.T @ A, rcond=1e-10, hermitian=True)
    workload = data.draw(workloads(strategy.domain))
    W = to_dense(workload.matrix)
    if not brute.supported(W, A):
        assert form.total_variance(workload.products) == math.inf
    else:
        assert form.total_variance(workload.products) == pytest.approx(np.trace(W @ inverse @ W.T), rel=1e-7)
    plain = [replace(p, weight=1.0) for p in workload.products]
    plain = [p for p in plain if brute.supported(to_dense(p.matrix), A)]
    y = [np.random.default_rng(k).normal(size=block.rows) for k, block in enumerate(strategy.blocks)]
    units = [1.0 + k for k in range(len(y))]
    scaled = [block.weight * u * each for block, u, each in zip(strategy.blocks, units, y, strict=True)]
    x = inverse @ A.T @ np.concatenate(scaled)
    estimate = reconstruct(form, y, units)
    size = np.abs(x).max() + np.abs(np.concatenate(scaled)).max()
    for p in plain:
        W = to_dense(p.matrix)
        scale = 1e-7 * np.abs(W).sum(axis=1).max(initial=1.0)
        np.testing.assert_allclose(
            np.concatenate(list(form.variances(p))),
            np.einsum("ij,jk,ik->i", W, inverse, W),
            atol=scale**2 * 1e7,
            rtol=1e-7,
        )
        np.testing.assert_allclose(estimate.values(p), W @ x, atol=scale * size * 10)
    for first, second in itertools.pairwise(plain):
        rows, others = (np.arange(min(first.queries, second.queries)) for _ in range(2))
        C = to_dense(first.matrix) @ inverse @ to_dense(second.matrix).T
        found = form.covariances(first, rows, second, others[::-1])
        np.testing.assert_allclose(found, C[rows, others[::-1]], atol=1e-7 * max(1.0, np.abs(C).max()))


def test_counts_can_be_kept_nonnegative() -> None:
    domain = Domain({"state": 3, "age": 4, "sex": 2})
    ages = [PIdentity([[1.0, 0.5, 2.0, x]]) for x in (0.3, 1.0)]
    blocks = (
        Block(0.5, [(0, Eye(3)), (1, ages[0])]),
        Block(0.5, [(1, ages[1]), (2, Eye(2))]),
        Block(0.2, [(0, Eye(3))]),
    )
    form = Strategy(domain, blocks).form
    assert isinstance(form, ClassForm)
    assert form.free == (1,)
    y = [np.random.default_rng(k).normal(size=block.rows) for k, block in enumerate(blocks)]
    raw = reconstruct(form, y, [1.0] * 3)
    (product,) = Workload.marginals(domain, [("state", "age")]).products
    assert raw.values(product).min() < 0 <= nonnegative(form, y, [1.0] * 3, raw).values(product).min()


def test_a_total_that_is_written_out_is_no_base() -> None:
    """Rounding made it invertible beside Total, and the error wrong in the third digit."""
    domain = Domain({"x": 2, "y": 1})
    blocks = (
        Block(0.2, [(0, PIdentity([[1.2, 1.5], [0.6, 1.9]]))]),
        Block(1.6, [(1, PIdentity([[1.0], [1.9]]))]),
        Block(1.8, [(0, Dense([[1.0, 1.0]])), (1, PIdentity([[0.4], [0.4]]))]),
    )
    form = ClassForm.coupled(Tabulated.of(AxisGroups.apart(domain), blocks))
    assert form is not None
    assert form.free == (0,)  # an attribute of one value never is
    A = to_dense(Strategy(domain, blocks).matrix)
    for w in (Workload.product(domain, x=Identity()), Workload.marginals(domain, k=0)):
        W = to_dense(w.matrix)
        assert form.total_variance(w.products) == pytest.approx(np.trace(W @ np.linalg.pinv(A.T @ A) @ W.T), rel=1e-9)


def test_what_no_joint_block_measures_is_known_beside_a_single_value() -> None:
    """Rounding in what sees nothing must not be taken for a scale."""
    domain = Domain({"a": 2, "b": 2, "one": 1})
    blocks = (
        Block(0.74, [(0, Eye(2))]),
        Block(0.42, []),
        Block(1.41, [(1, PIdentity([[1.459, 1.087], [1.87, 1.632]])), (2, PIdentity([[0.005], [1.715]]))]),
        Block(1.44, [(1, PIdentity([[1.231, 0.767], [1.994, 1.962]]))]),
        Block(1.8, [(2, Dense([[2.0]]))]),
    )
    strategy = Strategy(domain, blocks)
    assert isinstance(strategy.form, ClassForm)
    assert strategy.form.free == (1,)
    w = Workload.product(domain, a=Identity())
    A, W = to_dense(strategy.matrix), to_dense(w.matrix)
    assert strategy.total_variance(w) == pytest.approx(np.trace(W @ np.linalg.pinv(A.T @ A) @ W.T), rel=1e-9)
