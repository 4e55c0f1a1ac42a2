"""Intervals of any kind: products, gram matrices and quadratic forms compared with the dense matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm.matrix import (
    AllIntervals,
    Cumulative,
    Dense,
    Diag,
    Gram,
    Intervals,
    Permuted,
    PIdentity,
    RowScaled,
    Scaled,
    Stack,
    Sum,
    gram,
    gram_inverse,
    quadratic,
    to_dense,
    trace_product,
)


@st.composite
def intervals(draw):
    n = draw(st.integers(1, 7))
    ends = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    return Intervals(n, [min(pair) for pair in ends], [max(pair) for pair in ends])


@given(intervals(), st.integers(0, 3))
def test_weighted_and_shuffled_intervals(W, p):
    m, n = W.shape
    rows = np.zeros((m, n))
    for row, lo, hi in zip(rows, W.lo, W.hi, strict=True):
        row[lo : hi + 1] = 1
    assert (to_dense(W) == rows).all()
    rng = np.random.default_rng(m + n)
    A = Stack((RowScaled(rng.normal(size=m), Permuted(W, rng.permutation(n))), Scaled(-2, W)))
    D = to_dense(A)
    F = rng.normal(size=(p, n))
    Z = Sum((Diag(rng.uniform(size=n)), Scaled(-0.1, Gram(Dense(F)))))
    np.testing.assert_allclose(to_dense(gram(A)), D.T @ D, atol=1e-9)
    np.testing.assert_allclose(quadratic(A, Z), (D @ to_dense(Z) * D).sum(axis=1), atol=1e-9)
    assert trace_product(gram(A), Z) == pytest.approx(quadratic(A, Z).sum(), abs=1e-8)


@pytest.mark.parametrize("n", [1, 2, 17, 80])
def test_all_intervals_are_the_listed_ones(n):
    lo, hi = np.triu_indices(n)
    A, B = AllIntervals(n), Intervals(n, lo, hi)
    X = np.arange(3 * n).reshape(n, 3)
    assert (A.matmat(X) == B.matmat(X)).all()
    Y = np.arange(A.shape[0])[:, None]
    assert (A.T.matmat(Y) == B.T.matmat(Y)).all()
    assert (to_dense(gram(A)) == to_dense(gram(B))).all()


def test_variances_sum_to_the_total_error():
    A = PIdentity(np.random.default_rng(2).uniform(size=(5, 60)))
    Z = gram_inverse(A)
    W = Stack((AllIntervals(60), Scaled(0.5, Permuted(AllIntervals(60), np.random.default_rng(3).permutation(60)))))
    assert quadratic(W, Z).sum() == pytest.approx(trace_product(gram(W), Z), rel=1e-10)


def test_more_cells_than_a_table_holds_take_another_way(monkeypatch):
    W, Z = AllIntervals(9), gram_inverse(PIdentity(np.random.default_rng(4).uniform(size=(3, 9))))
    B = RowScaled(np.arange(45), W)
    expected, V = quadratic(W, Z), to_dense(gram(B))
    monkeypatch.setattr("hdmm.matrix.quadratics._TABLE", 4)
    monkeypatch.setattr("hdmm.matrix.grams._TABLE", 4)
    np.testing.assert_allclose(quadratic(W, Z), expected)
    np.testing.assert_allclose(to_dense(gram(B)), V)


def test_variances_from_some_rows_at_a_time(monkeypatch):
    rng = np.random.default_rng(5)
    lo = rng.integers(0, 11, 40)
    Z = gram_inverse(PIdentity(rng.uniform(size=(3, 11))))
    monkeypatch.setattr("hdmm.matrix.dense._CHUNK", 44)  # four rows of Z
    for W in (Cumulative(11), AllIntervals(11), Intervals(11, lo, np.maximum(lo, rng.integers(0, 11, 40)))):
        D = to_dense(W)
        np.testing.assert_allclose(quadratic(W, Z), (D @ to_dense(Z) * D).sum(axis=1), rtol=1e-12)


def test_two_orders_of_the_same_cells():
    rng = np.random.default_rng(9)
    A, B = (gram(Permuted(W, rng.permutation(7))) for W in (AllIntervals(7), Cumulative(7)))
    assert trace_product(A, B) == pytest.approx(np.trace(to_dense(A) @ to_dense(B)))
    assert trace_product(A, A) == pytest.approx(np.sum(to_dense(A) ** 2))
