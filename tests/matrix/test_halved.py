"""HalvedTriangle beside dense algebra: its inverse, the lengths of rows and columns, and what integers keep exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import ZCDP, Domain, PureDP, Strategy, StrategyError, from_array
from hdmm.base.exceptions import MatrixError
from hdmm.matrix import (
    AllIntervals,
    AllIntervalsGram,
    Array,
    Cumulative,
    Eye,
    Gram,
    HalvedTriangle,
    column_norms,
    gram_inverse,
    quadratic,
    to_dense,
    trace,
    trace_product,
)
from hdmm.matrix.integers import entries
from hdmm.measure.measure import measure
from hdmm.strategy.blocks import Block


def triangle(seed: int, n: int, leaf: int, levels: int, rank: int, *, largest: int = 3) -> HalvedTriangle:
    rng = np.random.default_rng(seed)
    triangles = np.tril(rng.integers(-largest, largest + 1, (2**levels, leaf, leaf)), -1) + 3 * np.eye(leaf, dtype=int)
    left, right = rng.integers(-largest, largest + 1, (2, levels, leaf * 2**levels // 2, rank))
    return HalvedTriangle(n, triangles, left, right)


def written(A: HalvedTriangle) -> Array:
    """Block by block, as Python's integers."""
    leaf, levels = A.triangles.shape[1], len(A.left)
    D = np.zeros((leaf << levels,) * 2, dtype=object)
    for b, T in enumerate(A.triangles):
        D[b * leaf : (b + 1) * leaf, b * leaf : (b + 1) * leaf] = T
    for level in range(levels):
        U, V, h = *A.factors(level), (leaf << levels) >> (level + 1)
        for g in range(2**level):
            D[(2 * g + 1) * h : (2 * g + 2) * h, 2 * g * h : (2 * g + 1) * h] = U[g].astype(object) @ V[g].T.astype(
                object
            )
    return D[: A.n, : A.n]


SHAPES = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(1, 3)).flatmap(
    lambda s: st.tuples(st.integers(1, s[0] << s[1]), *map(st.just, s))
)


@given(seed=st.integers(0, 1000), shape=SHAPES)
def test_it_is_what_its_blocks_are_and_so_is_its_inverse(seed: int, shape: tuple[int, int, int, int]) -> None:
    A = triangle(seed, *shape)
    n, D = A.n, written(A).astype(np.int64)
    X = np.random.default_rng(seed).integers(-9, 10, (2, n, 3))
    for along, M in ((A.along(X), D), (A.along_t(X), D.T)):
        assert along.dtype == np.int64
        np.testing.assert_array_equal(along, np.einsum("ij,ljr->lir", M, X))
    B = np.linalg.inv(D)
    np.testing.assert_allclose(to_dense(A.inverse), B, rtol=1e-8, atol=1e-8 * np.abs(B).max())
    least, most = entries(A)
    assert least <= D.min() <= D.max() <= most


@given(seed=st.integers(0, 1000), shape=SHAPES)
def test_lengths_and_traces_are_those_of_dense_algebra(seed: int, shape: tuple[int, int, int, int]) -> None:
    A = triangle(seed, *shape, largest=1)
    n, D, P = A.n, written(A).astype(np.int64), np.tril(np.ones((A.n, A.n)))
    assert column_norms(A, 2).tolist() == (D**2).sum(axis=0).tolist()
    np.testing.assert_allclose(A.squared_rows(), (D**2).sum(axis=1))
    np.testing.assert_allclose(A.squared_rows(sums=True), ((P @ D) ** 2).sum(axis=1), atol=1e-9)
    Z, H = gram_inverse(A), np.linalg.inv(D.T @ D)
    least = 1e-9 * float(np.abs(H).max()) * n**2
    np.testing.assert_allclose(trace(Z), np.trace(H), rtol=1e-6, atol=least)
    for V in (Gram(Cumulative(n)), AllIntervalsGram(n), Eye(n)):
        np.testing.assert_allclose(trace_product(Z, V), np.trace(H @ to_dense(V)), rtol=1e-6, atol=least)
    for W in (Cumulative(n), AllIntervals(n), Eye(n)):
        w = to_dense(W)
        np.testing.assert_allclose(quadratic(W, Z), np.einsum("ij,jk,ik->i", w, H, w), rtol=1e-6, atol=least)


def test_norms_of_large_integers_are_exact() -> None:
    """A product of rounded floats, or of 64 bits, is not."""
    A = triangle(5, 29, 4, 3, 2, largest=2**30)
    expected = (written(A) ** 2).sum(axis=0)
    assert max(expected) > 2**64
    assert [int(norm) for norm in column_norms(A, 2)] == expected.tolist()
    small = triangle(5, 29, 4, 3, 2)
    assert column_norms(small, 2).dtype == np.int64


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (2**32, 2**32),
        (-(2**63), 1),
        (1, -(2**63)),
        (-(2**63), -(2**63)),
        (2**62, 2),
        (2**62, 1),
        (-3, 2**61),
        (2**31, -7),
    ],
)
def test_no_entry_is_taken_modulo_64_bits(left: int, right: int) -> None:
    """S1: a file may hold any integers, and a norm that is too small would be too little noise."""
    triangles = np.stack([np.eye(2, dtype=np.int64), np.array([[1, 0], [-(2**63), 1]])])
    A = HalvedTriangle(3, triangles, np.full((1, 2, 1), left), np.full((1, 2, 1), right))
    D = written(A)
    assert [int(norm) for norm in column_norms(A, 1)] == np.abs(D).sum(axis=0).tolist()
    assert [int(norm) for norm in column_norms(A, 2)] == (D**2).sum(axis=0).tolist()
    least, most = entries(A)
    assert least <= min(D.min(), -(2**63))
    assert most >= D.max()
    for privacy in (PureDP(1), ZCDP(1)):
        data = from_array(Domain({"x": 3}), [1, 2, 3])
        with pytest.raises(StrategyError):
            measure(Strategy(data.domain, (Block(1.0, ((0, A),)),)), data, privacy, ledger=None)


def test_parts_that_do_not_fit_are_refused() -> None:
    T, half = np.tril(np.ones((2, 2, 2))), np.ones((1, 2, 1))
    for wrong in ((5, T, half, half), (4, T[:, :, :1], half, half), (4, T, half, half[:, :1]), (4, T + 1, half, half)):
        with pytest.raises(MatrixError):
            HalvedTriangle(*wrong)
    with pytest.raises(MatrixError, match="not integers"):
        entries(HalvedTriangle(4, T, half / 2, half))
