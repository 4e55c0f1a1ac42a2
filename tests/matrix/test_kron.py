"""Kronecker products of any shapes, nested, and along an axis of something larger."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm.base.exceptions import MatrixError
from hdmm.matrix import (
    AllIntervals,
    Cumulative,
    Dense,
    Eye,
    Intervals,
    Kron,
    Ones,
    PIdentity,
    column_norms,
    gram,
    to_dense,
    total,
    trace,
    trace_product,
)


def ramp(m: int, n: int) -> np.ndarray:
    return np.sin(np.arange(1.0, m * n + 1)).reshape(m, n)


sizes = st.integers(1, 4)
factors = st.one_of(
    st.builds(Eye, sizes),
    st.builds(Ones, sizes, sizes),
    st.builds(Cumulative, sizes),
    st.builds(AllIntervals, sizes),
    st.builds(lambda m, n: Dense(ramp(m, n)), sizes, sizes),
    st.builds(lambda m, n: Dense(np.arange(m * n).reshape(m, n)), sizes, sizes),
    st.builds(lambda p, n: PIdentity(np.abs(ramp(p, n))), st.integers(0, 3), sizes),
    st.builds(lambda n: Intervals(n, [0, 0, n - 1], [n - 1, 0, n - 1]), sizes),
)
pairs = st.lists(factors, min_size=1, max_size=2).map(Kron)
krons = st.lists(factors, min_size=1, max_size=3).map(Kron)


@given(krons)
def test_is_the_kronecker_product_of_its_factors(A):
    D = reduce(np.kron, [B.matmat(np.eye(B.shape[1])) for B in A.factors])
    np.testing.assert_allclose(to_dense(A), D)
    np.testing.assert_allclose(A.matmat(np.eye(A.shape[1])), D, atol=1e-12)
    np.testing.assert_allclose(A.T.matmat(np.eye(A.shape[0])), D.T, atol=1e-12)


@given(pairs, pairs, st.integers(1, 3), st.integers(1, 3))
def test_nests_and_applies_along_an_axis(A, B, left, right):
    nested, flat = Kron((A, B)), Kron(A.factors + B.factors)
    X = np.cos(np.arange(left * flat.shape[1] * right)).reshape(left, -1, right)
    np.testing.assert_allclose(nested.along(X), flat.along(X), atol=1e-10)
    np.testing.assert_allclose(flat.along(X), np.einsum("mn,lnr->lmr", to_dense(flat), X), atol=1e-10)


@given(krons)
def test_grams_and_norms_go_factor_by_factor(A):
    D = to_dense(A).astype(float)
    np.testing.assert_allclose(to_dense(gram(A)), D.T @ D, atol=1e-8)
    np.testing.assert_allclose(column_norms(A, 2), (D**2).sum(axis=0), atol=1e-8)


@pytest.mark.parametrize(
    "shape",
    [(2,) * 12, (8, 8, 8, 8), (3, 5, 7, 4), (64, 2, 32), (600, 3, 2), (2, 600, 3), (2, 100, 40)],
)
@pytest.mark.parametrize("grow", [-1, 0, 1])
def test_every_way_to_multiply_agrees_with_einsum(shape, grow):
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=(max(1, n + grow), n)) for n in shape]
    X = rng.normal(size=shape)
    expected = X
    for i, array in enumerate(arrays):
        expected = np.moveaxis(np.tensordot(array, expected, axes=(1, i)), 0, i)
    A = Kron(tuple(Dense(array) for array in arrays))
    np.testing.assert_allclose(A.matmat(X.reshape(-1, 1)).ravel(), expected.ravel(), atol=1e-8)
    np.testing.assert_allclose(A.T.T.matmat(X.reshape(-1, 1)).ravel(), expected.ravel(), atol=1e-8)
    back = Kron(tuple(Dense(array.T.copy()) for array in arrays)).T
    np.testing.assert_allclose(back.matmat(X.reshape(-1, 1)).ravel(), expected.ravel(), atol=1e-8)


@pytest.mark.parametrize("A", [Cumulative(6), Cumulative(40), Ones(2, 70), AllIntervals(6), Ones(1, 3)])
@pytest.mark.parametrize(("left", "right"), [(1, 1), (70, 2), (3, 8), (3, 40), (100, 1)])
def test_sums_along_an_axis_whatever_is_around_it(A, left, right):
    D = to_dense(A)
    X = np.random.default_rng(5).normal(size=(left, A.shape[1], right))
    Y = np.random.default_rng(6).normal(size=(left, A.shape[0], right))
    np.testing.assert_allclose(A.along(X), np.einsum("mn,lnr->lmr", D, X), atol=1e-9)
    np.testing.assert_allclose(A.along_t(Y), np.einsum("mn,lmr->lnr", D, Y), atol=1e-9)
    whole = (100 * X).astype(np.int64)
    assert (A.along(whole) == np.einsum("mn,lnr->lmr", D.astype(np.int64), whole)).all()


def test_identities_cost_nothing():
    X = np.ones((6, 1))
    assert Kron((Eye(2), Eye(3))).matmat(X).base is not None
    assert np.shares_memory(Kron((Eye(2), Eye(3))).matmat(X), X)


def test_numbers_of_huge_products_need_no_vector():
    A = Kron((Eye(10**6), Ones(10**3, 10**3), Cumulative(10)))
    assert A.shape == (10**10, 10**10)
    assert trace(A) == 10**6 * 10**3 * 10
    assert total(A) == 10**6 * 10**6 * 55
    assert trace_product(gram(A), Kron((Eye(10**6), Eye(10**3), Eye(10)))) == 10**6 * 10**6 * 55


def test_a_product_too_large_to_write_out_is_refused_before_it_is_built():
    with pytest.raises(
        MatrixError, match=r"Kron of shape \(1,000,000,000,000, 1,000,000,000,000\) would take"
    ) as error:
        to_dense(Kron((Eye(10**6), Eye(10**6))))
    assert "matmat or gram" in str(error.value)
    assert "max_bytes" in str(error.value)


@pytest.mark.parametrize("columns", [1, 2])
def test_many_dense_factors_take_turns(columns):
    rng = np.random.default_rng(4)
    shapes = [(7, 6), (5, 9), (10, 8), (40, 33)]
    A = Kron(tuple(Dense(rng.normal(size=shape)) for shape in shapes))
    X = rng.normal(size=(A.shape[1], columns))
    expected = X.reshape(6, 9, 8, 33, columns)
    for i, B in enumerate(A.factors):
        expected = np.moveaxis(np.tensordot(B.array, expected, axes=(1, i)), 0, i)
    np.testing.assert_allclose(A.matmat(X), expected.reshape(-1, columns), atol=1e-9)


@pytest.mark.parametrize("shape", [(600, 520), (520, 600), (3, 4), (40, 30)])
@pytest.mark.parametrize(("left", "right"), [(2, 3), (70, 2), (3, 70)])
def test_a_dense_matrix_along_an_axis_of_any_surroundings(shape, left, right):
    rng = np.random.default_rng(8)
    A, X = Dense(rng.normal(size=shape)), rng.normal(size=(left, shape[1], right))
    np.testing.assert_allclose(A.along(X), np.einsum("mn,lnr->lmr", A.array, X), atol=1e-9)
