"""The diagonal, the trace and the sum of all entries."""

from __future__ import annotations

from functools import reduce, singledispatch
from math import prod

import numpy as np

from hdmm.exceptions import MatrixError
from hdmm.matrix.base import Array, Matrix, Transpose
from hdmm.matrix.blocks import Cumulative, Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.checks import widened
from hdmm.matrix.compose import Kron, Stack, Sum
from hdmm.matrix.dense import columns, human
from hdmm.matrix.intervals import AllIntervalsGram
from hdmm.matrix.norms import column_norms
from hdmm.matrix.wrapped import Conjugated, Gram, Permuted, RowScaled, Scaled

_LONGEST = 2**27  # entries of a diagonal: 1 GiB


def diagonal(A: Matrix) -> Array:
    """The n entries a_ii of a square matrix. O(n) where structured, else n products.

    >>> from hdmm.matrix import AllIntervals, gram
    >>> diagonal(gram(AllIntervals(3)))
    array([3, 4, 3])
    """
    _require_square(A, "diagonal")
    if A.shape[0] > _LONGEST:
        raise MatrixError(
            f"The diagonal of a {type(A).__name__} of shape {A.shape} would take {human(8 * A.shape[0])}. "
            f"Use trace, which never lists it?"
        )
    return _diagonal(A)


def trace(A: Matrix) -> float:
    """tr A = Σ_i a_ii of a square matrix. O(1) to O(n) where structured; for a Kron the product of traces.

    >>> trace(Kron((Eye(10**9), Ones(5, 5))))
    5000000000.0
    """
    _require_square(A, "trace")
    return float(_trace(A))


def total(A: Matrix) -> float:
    """1ᵀA1, the sum of all entries. At most one product; for a Kron the product of totals.

    >>> total(Kron((Eye(10**9), Ones(5, 5))))
    25000000000.0
    """
    return float(_total(A))


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
def _(A: Diag) -> Array:
    return widened(A.d)


@_diagonal.register
def _(A: Dense) -> Array:
    return widened(A.array.diagonal())


@_diagonal.register
def _(A: Sparse) -> Array:
    return widened(A.csr.diagonal())


@_diagonal.register
def _(A: AllIntervalsGram) -> Array:
    return np.arange(1, A.n + 1) * np.arange(A.n, 0, -1)


@_diagonal.register
def _(A: Gram) -> Array:
    return column_norms(A.inner, 2)  # (AᵀA)_cc = ‖a_c‖²


@_diagonal.register
def _(A: Transpose) -> Array:
    return _diagonal(A.inner)


@_diagonal.register
def _(A: Scaled) -> Array:
    return _diagonal(A.inner) * A.c


@_diagonal.register
def _(A: RowScaled) -> Array:
    return _diagonal(A.inner) * A.weights


@_diagonal.register
def _(A: Conjugated) -> Array:
    return _diagonal(A.inner)[A.index]


@_diagonal.register
def _(A: Sum) -> Array:
    return reduce(np.add, (_diagonal(B) for B in A.terms))


@_diagonal.register
def _(A: Kron) -> Array:
    if not _square_factors(A):
        return _diagonal.dispatch(Matrix)(A)
    return reduce(np.kron, (_diagonal(B) for B in A.factors))


@singledispatch
def _trace(A: Matrix) -> float:
    return diagonal(A).sum()


@_trace.register(Eye)
@_trace.register(Ones)
@_trace.register(Cumulative)
def _(A: Matrix) -> float:
    return A.shape[0]


@_trace.register
def _(A: AllIntervalsGram) -> float:
    return A.n * (A.n + 1) * (A.n + 2) // 6


@_trace.register(Transpose)
@_trace.register(Conjugated)
def _(A: Transpose | Conjugated) -> float:
    return _trace(A.inner)


@_trace.register
def _(A: Gram) -> float:
    if isinstance(A.inner, Cumulative):
        return A.inner.n * (A.inner.n + 1) // 2
    return column_norms(A.inner, 2).sum()


@_trace.register
def _(A: Scaled) -> float:
    return A.c * _trace(A.inner)


@_trace.register
def _(A: Sum) -> float:
    return sum(_trace(B) for B in A.terms)


@_trace.register
def _(A: Kron) -> float:
    return prod(_trace(B) for B in A.factors) if _square_factors(A) else diagonal(A).sum()


@singledispatch
def _total(A: Matrix) -> float:
    return A.matmat(np.ones((A.shape[1], 1))).sum()


@_total.register
def _(A: Eye) -> float:
    return A.n


@_total.register
def _(A: Ones) -> float:
    return A.m * A.n


@_total.register
def _(A: AllIntervalsGram) -> float:
    return A.n * (A.n + 1) ** 2 * (A.n + 2) // 12  # the intervals' squared lengths


@_total.register(Transpose)
@_total.register(Conjugated)
@_total.register(Permuted)
def _(A: Transpose | Conjugated | Permuted) -> float:
    return _total(A.inner)


@_total.register
def _(A: Gram) -> float:
    sums = A.inner.matmat(np.ones((A.inner.shape[1], 1)))
    return (sums**2).sum()  # 1ᵀAᵀA1 = ‖A1‖²


@_total.register
def _(A: Scaled) -> float:
    return A.c * _total(A.inner)


@_total.register
def _(A: Sum) -> float:
    return sum(_total(B) for B in A.terms)


@_total.register
def _(A: Stack) -> float:
    return sum(_total(B) for B in A.blocks)


@_total.register
def _(A: Kron) -> float:
    return prod(_total(B) for B in A.factors)


def _square_factors(A: Kron) -> bool:
    return all(m == n for m, n in (B.shape for B in A.factors))


def _require_square(A: Matrix, what: str) -> None:
    if A.shape[0] != A.shape[1]:
        raise MatrixError(f"Only a square matrix has a {what}; this {type(A).__name__} has shape {A.shape}.")
