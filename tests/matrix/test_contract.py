"""Every matrix of the zoo does what its dense twin does."""

import numpy as np
import pytest

from hdmm.base.exceptions import MatrixError
from hdmm.matrix import (
    Cumulative,
    Dense,
    Diag,
    Eye,
    Gram,
    Matrix,
    Ones,
    Residual,
    Scaled,
    Sum,
    column_norms,
    diagonal,
    gram,
    gram_inverse,
    nbytes,
    quadratic,
    to_dense,
    total,
    trace,
    trace_product,
)

from .zoo import ZOO

rng = np.random.default_rng(11)
every = pytest.mark.parametrize("A", ZOO.values(), ids=ZOO.keys())
SQUARES = {name: A for name, A in ZOO.items() if A.shape[0] == A.shape[1]}
WHOLE = {name: A for name, A in ZOO.items() if np.array_equal(to_dense(A), np.round(to_dense(A)))}
whole = pytest.mark.parametrize("A", WHOLE.values(), ids=WHOLE.keys())
square = pytest.mark.parametrize("A", SQUARES.values(), ids=SQUARES.keys())


def explicit(A: Matrix) -> np.ndarray:
    """A by its products with unit vectors alone, so that to_dense can be wrong."""
    return A.matmat(np.eye(A.shape[1]))


def close(actual, expected) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def middles(n: int) -> list[Matrix]:
    """Symmetric matrices of every kind that trace_product and quadratic have a rule for."""
    F = rng.normal(size=(2, n))
    found = [A for A in (ZOO["conjugated"], ZOO["gram of all intervals"], ZOO["kron of squares"]) if A.shape == (n, n)]
    found += [Gram(A) for A in ZOO.values() if A.shape[1] == n][:3]
    return [
        Eye(n),
        Ones(n, n),
        Residual(n),
        Diag(rng.normal(size=n)),
        Gram(Dense(F)),
        Gram(Cumulative(n)),
        Dense(F.T @ F + np.eye(n)),
        Sum((Diag(np.arange(1.0, n + 1)), Scaled(-0.5, Gram(Dense(F))))),
        Scaled(3, Sum((Eye(n), Scaled(-2.0, Ones(n, n))))),
        *found,
    ]


@every
def test_to_dense_is_what_the_products_say(A):
    assert A.shape == explicit(A).shape
    close(to_dense(A), explicit(A))


@every
def test_products_are_those_of_the_dense_matrix(A):
    D = to_dense(A)
    m, n = A.shape
    X, Y = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
    close(A.matmat(X), D @ X)
    close(A.T.matmat(Y), D.T @ Y)
    assert A.T.shape == (n, m)
    assert A.T.T.shape == (m, n)
    close(np.vdot(A.matmat(X), Y), np.vdot(X, A.T.matmat(Y)))


@every
def test_products_along_the_middle_axis(A):
    D = to_dense(A)
    m, n = A.shape
    for left, right in ((1, 1), (2, 1), (1, 3), (2, 3), (5, 2), (3, 40), (0, 2)):
        X, Y = rng.normal(size=(left, n, right)), rng.normal(size=(left, m, right))
        close(A.along(X), np.einsum("mn,lnr->lmr", D, X))
        close(A.along_t(Y), np.einsum("mn,lmr->lnr", D, Y))
        turned = np.asfortranarray(X)
        close(A.along(turned), A.along(X))


@every
def test_products_leave_their_input_alone(A):
    for X, product in ((np.ones((2, A.shape[1], 2)), A.along), (np.ones((2, A.shape[0], 2)), A.along_t)):
        product(X)
        assert (X == 1).all()


@whole
def test_integers_stay_exact(A):
    m, n = A.shape
    exact = to_dense(A).astype(np.int64).astype(object)
    for kind, size in ((np.int64, 10**14), (np.int8, 100)):
        X, Y = (
            rng.integers(-size, size, size=(n, 2)).astype(kind),
            rng.integers(-size, size, size=(m, 2)).astype(kind),
        )
        for product, expected in (
            (A.matmat(X), exact @ X.astype(object)),
            (A.T.matmat(Y), exact.T @ Y.astype(object)),
        ):
            if product.dtype.kind == "i":
                assert (product == expected).all()
            else:
                assert not holds_integers(A)
                close(product, expected.astype(float))


def holds_integers(A: Matrix) -> bool:
    return column_norms(A, 1).dtype.kind in "iO"


@every
def test_gram(A):
    D = to_dense(A)
    V = gram(A)
    assert V.shape == (A.shape[1],) * 2
    close(to_dense(V), D.T @ D)
    close(explicit(V), D.T @ D)


@every
def test_gram_inverse_or_an_error_that_says_singular(A):
    D = to_dense(A)
    if np.linalg.matrix_rank(D) == D.shape[1]:
        close(to_dense(gram_inverse(A)) @ (D.T @ D), np.eye(D.shape[1]))
    else:
        with pytest.raises(MatrixError, match="singular"):
            gram_inverse(A)


@every
@pytest.mark.parametrize("order", [1, 2])
def test_column_norms(A, order):
    norms = (np.abs(to_dense(A).astype(float)) ** order).sum(axis=0)
    close(column_norms(A, order), norms)


@square
def test_diagonal_and_trace(A):
    close(diagonal(A), to_dense(A).diagonal())
    close(trace(A), np.trace(to_dense(A)))


@every
def test_diagonal_of_the_gram_matrix(A):
    V, D = gram(A), to_dense(A).astype(float)
    close(diagonal(V), (D.T @ D).diagonal())
    close(trace(V), np.trace(D.T @ D))
    close(total(V), (D.T @ D).sum())


@every
def test_total(A):
    close(total(A), to_dense(A).sum())


@square
def test_trace_product(A):
    D = to_dense(A)
    for B in [A, A.T, *middles(A.shape[0])]:
        expected = np.trace(D @ to_dense(B))
        close(trace_product(A, B), expected)
        close(trace_product(B, A), expected)


@every
def test_trace_product_of_the_gram_matrix(A):
    V = gram(A)
    for B in middles(A.shape[1]):
        expected = np.trace(to_dense(V) @ to_dense(B))
        close(trace_product(V, B), expected)
        close(trace_product(B, V), expected)


@every
def test_quadratic(A):
    D = to_dense(A).astype(float)
    for Z in [gram(A), *middles(A.shape[1])]:
        close(quadratic(A, Z), (D @ to_dense(Z) * D).sum(axis=1))


@every
def test_nbytes_counts_no_more_than_the_dense_matrix_needs_twice(A):
    assert 0 <= nbytes(A) <= 40 * (sum(A.shape) + A.shape[0] * A.shape[1] + 8)
    assert nbytes(A.T) == nbytes(A)


@every
def test_matrices_can_be_keys(A):
    assert {A: 1}[A] == 1
    assert A == A
