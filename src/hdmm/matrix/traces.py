"""The diagonal, the trace, the sum of all entries, and the two eigenvalues of aI + bJ."""

from __future__ import annotations

from functools import reduce, singledispatch
from math import prod

import numpy as np

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.compose import Kron, linear
from hdmm.matrix.dense import columns, refuse_long
from hdmm.matrix.elementary import Cumulative, Dense, Diag, Eye, Ones, Residual
from hdmm.matrix.intervals import AllIntervalsGram
from hdmm.matrix.matrix import Array, Matrix, widened
from hdmm.matrix.norms import ZERO_ONE, column_norms
from hdmm.matrix.wrapped import Conjugated, Gram

_SAME = 1e-10  # of the largest products: what differs by less is equal up to rounding
_NOTHING = 1e-14  # of them: an eigenvalue below it is rounding


def diagonal(A: Matrix) -> Array:
    """The n entries a_ii of a square matrix. O(n) if structured, else n products.

    >>> from hdmm.matrix import AllIntervals, gram
    >>> diagonal(gram(AllIntervals(3)))
    array([3, 4, 3])
    """
    _require_square(A, "diagonal")
    refuse_long(A, A.shape[0], "Its diagonal")
    return _diagonal(A)


def trace(A: Matrix) -> float:
    """tr A = Σ_i a_ii of a square matrix. O(n) if structured; the product of traces for a Kron.

    >>> trace(Kron((Eye(10**4),) * 3))
    1000000000000.0
    """
    _require_square(A, "trace")
    return float(_trace(A))


def total(A: Matrix) -> float:
    """1ᵀA1, the sum of all entries. At most one product; the product of totals for a Kron.

    >>> total(Kron((Eye(10**4), Ones(5, 5), Eye(10**4))))
    2500000000.0
    """
    return float(_total(A))


def exchangeable(V: Matrix) -> tuple[float, float] | None:
    """The eigenvalues a + nb and a of V = aI + bJ, on 1 and on its complement; None if V is no such matrix.

    V is seen on 1 and on one irregular vector: O(cost of two columns), whatever V is written as.

    >>> from hdmm.matrix import Sum
    >>> exchangeable(Sum((Eye(3), Ones(3, 3)))), exchangeable(Ones(4, 4)), exchangeable(Diag([1, 2]))
    ((4.0, 1.0), (4.0, 0.0), None)
    """
    n = V.shape[0]
    x = np.cos(np.arange(1.0, n + 1) ** 2)
    x -= x.mean()
    on_one, on_x = V.matmat(np.stack([np.ones(n), x], axis=1)).astype(np.float64).T
    size = np.abs(on_one).max() + np.abs(on_x).max()
    a = float(on_x @ x) / float(x @ x) if n > 1 else 0.0
    if np.ptp(on_one) > _SAME * size or np.abs(on_x - a * x).max() > _SAME * size:
        return None
    first = float(on_one.mean())
    return (first if abs(first) > _NOTHING * size else 0.0), (a if abs(a) > _NOTHING * size else 0.0)


@linear
@singledispatch
def _diagonal(A: Matrix) -> Array:
    out = np.empty(A.shape[1])
    for at, block in columns(A):
        out[at] = block[at].diagonal()
    return out


@_diagonal.register(Eye)
@_diagonal.register(Ones)
@_diagonal.register(Cumulative)
def _(A: Matrix) -> Array:
    return np.ones(A.shape[0], dtype=np.int64)


@_diagonal.register
def _(A: Residual) -> Array:
    return np.full(A.n, A.n - 1)


@_diagonal.register
def _(A: Diag) -> Array:
    return widened(A.d)


@_diagonal.register
def _(A: Dense) -> Array:
    return widened(A.array.diagonal())


@_diagonal.register
def _(A: AllIntervalsGram) -> Array:
    return np.arange(1, A.n + 1) * np.arange(A.n, 0, -1)


@_diagonal.register
def _(A: Gram) -> Array:
    return column_norms(A.inner, 2)  # (AᵀA)_cc = ‖a_c‖²


@_diagonal.register
def _(A: Conjugated) -> Array:
    return _diagonal(A.inner)[A.index]


@_diagonal.register
def _(A: Kron) -> Array:
    if not _square_factors(A):
        return _diagonal.dispatch(Matrix)(A)
    return reduce(np.kron, (_diagonal(B) for B in A.factors))


@linear
@singledispatch
def _trace(A: Matrix) -> float:
    return diagonal(A).sum(dtype=np.float64)


@_trace.register
def _(A: Gram) -> float:
    """The entries of a matrix of zeros and ones are their own squares: one product with it."""
    return _row_sums(A.inner).sum() if isinstance(A.inner, ZERO_ONE) else _diagonal(A).sum(dtype=np.float64)


@_trace.register
def _(A: Kron) -> float:
    return prod(_trace(B) for B in A.factors) if _square_factors(A) else _trace.dispatch(Matrix)(A)


@linear
@singledispatch
def _total(A: Matrix) -> float:
    return A.matmat(np.ones((A.shape[1], 1))).sum()


@_total.register
def _(A: Residual) -> float:
    return 0.0


@_total.register
def _(A: Gram) -> float:
    return (_row_sums(A.inner) ** 2).sum()  # 1ᵀAᵀA1 = ‖A1‖²


@_total.register
def _(A: Kron) -> float:
    return prod(_total(B) for B in A.factors)


def _row_sums(A: Matrix) -> Array:
    return A.matmat(np.ones((A.shape[1], 1)))


def _square_factors(A: Kron) -> bool:
    return all(m == n for m, n in (B.shape for B in A.factors))


def _require_square(A: Matrix, what: str) -> None:
    if A.shape[0] != A.shape[1]:
        raise MatrixError(f"Only a square matrix has a {what}; this {type(A).__name__} has shape {A.shape}.")
