"""gram: AᵀA with as much structure as A has."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from hdmm.matrix.checks import frozen
from hdmm.matrix.compose import Kron, Stack, Sum, summed
from hdmm.matrix.elementary import Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.extended import ExtendedDiagonal
from hdmm.matrix.intervals import AllIntervals, AllIntervalsGram, Intervals
from hdmm.matrix.matrix import Array, Matrix
from hdmm.matrix.residual_matrix import Residual
from hdmm.matrix.wrapped import Conjugated, Gram, Permuted, RowScaled, Scaled, scaled

_TABLE = 4096  # cells up to which AᵀA of intervals is written out: 128 MiB


@singledispatch
def gram(A: Matrix) -> Matrix:
    """V = AᵀA, implicit wherever A's structure or its size makes that cheaper than n × n numbers.

    >>> from hdmm.matrix import to_dense
    >>> gram(Kron((Ones(1, 2), Eye(3))))
    Kron(factors=(Ones(m=2, n=2), Eye(n=3)))
    """
    return Gram(A)


@gram.register
def _(A: Eye) -> Matrix:
    return A


@gram.register
def _(A: Ones) -> Matrix:
    return scaled(A.m, Ones(A.n, A.n))


@gram.register
def _(A: Residual) -> Matrix:
    return scaled(A.n, A)


@gram.register
def _(A: AllIntervals) -> Matrix:
    return AllIntervalsGram(A.n)


@gram.register
def _(A: Intervals) -> Matrix:
    if not _table_pays(A):
        return Gram(A)
    return _interval_gram(A.n, A.lo, A.hi, np.ones(A.lo.size))


@gram.register
def _(A: Dense) -> Matrix:
    m, n = A.shape
    if m <= n:
        return Gram(A)
    F = A.array.astype(np.float64)
    return Dense(frozen(F.T @ F))


@gram.register
def _(A: Sparse) -> Matrix:
    m, n = A.shape
    nnz, work = A.csr.nnz, int((np.diff(A.csr.indptr).astype(np.int64) ** 2).sum())
    F = A.csr.astype(np.float64)
    if work <= 4 * nnz:  # rows of few entries: AᵀA is about as sparse as A
        return Sparse(F.T @ F)
    return Dense(frozen((F.T @ F).toarray())) if m > n and n <= _TABLE else Gram(A)


@gram.register
def _(A: ExtendedDiagonal) -> Matrix:
    return Sum((Diag(frozen(A.diagonal.astype(np.float64) ** 2)), Gram(A.rows)))


@gram.register
def _(A: Permuted) -> Matrix:
    return conjugated(gram(A.inner), A.index)


@gram.register
def _(A: RowScaled) -> Matrix:
    squares = A.weights.astype(np.float64) ** 2
    match A.inner:
        case Eye():
            return Diag(frozen(squares))
        case Ones(_, n):
            return scaled(float(squares.sum()), Ones(n, n))
        case Intervals(n, lo, hi) if _table_pays(A):
            return _interval_gram(n, lo, hi, squares)
        case AllIntervals(n) if _table_pays(A):
            lo, hi = np.triu_indices(n)
            return _interval_gram(n, lo, hi, squares)
        case Dense(array):
            return gram(Dense(frozen(array * A.weights[:, None].astype(np.float64))))
        case Sparse(csr):
            return gram(Sparse(csr.multiply(A.weights[:, None].astype(np.float64))))
        case Permuted(inner, index):
            return conjugated(gram(RowScaled(A.weights, inner)), index)
        case _:
            return Gram(A)


@gram.register
def _(A: Scaled) -> Matrix:
    return scaled(A.c**2, gram(A.inner))


@gram.register
def _(A: Kron) -> Matrix:
    return Kron(tuple(gram(B) for B in A.factors))  # (⊗Aᵢ)ᵀ(⊗Aᵢ) = ⊗ AᵢᵀAᵢ


@gram.register
def _(A: Stack) -> Matrix:
    return summed(gram(B) for B in A.blocks)


def conjugated(A: Matrix, index: Array) -> Matrix:
    """PᵀAP, whose entry (i, j) is A's (index[i], index[j]); without a wrapper if A does not change. O(n).

    >>> conjugated(Eye(3), np.array([2, 0, 1]))
    Eye(n=3)
    """
    match A:
        case Eye() | Ones() | Residual():
            return A
        case _ if (index == np.arange(index.size)).all():
            return A
        case AllIntervalsGram() if (index == np.arange(index.size)[::-1]).all():
            return A
        case Diag(d):
            return Diag(frozen(d[index]))
        case Scaled(c, inner):
            return scaled(c, conjugated(inner, index))
        case Sum(terms):
            return Sum(tuple(conjugated(B, index) for B in terms))
        case Conjugated(inner, first):
            return conjugated(inner, frozen(first[index]))
        case Gram(Dense(array)):
            return Gram(Dense(frozen(array[:, index])))
        case _:
            return Conjugated(A, index)


def _table_pays(A: Matrix) -> bool:
    m, n = A.shape
    return m > n and n <= _TABLE


def _interval_gram(n: int, lo: Array, hi: Array, squares: Array) -> Matrix:
    """V_ij = Σ of the squared weights of the intervals with lo ≤ i and hi ≥ j, for i ≤ j. O(n² + m)."""
    table = np.bincount(lo * n + hi, weights=squares, minlength=n * n).reshape(n, n)
    upper = np.triu(table.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1])
    return Dense(frozen(upper + np.triu(upper, 1).T))
