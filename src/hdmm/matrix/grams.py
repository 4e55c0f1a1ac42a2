"""gram and gram_inverse: AᵀA and (AᵀA)⁻¹ with as much structure as A has."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from scipy.linalg import solve_triangular

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.compose import Kron, Stack, Sum, summed
from hdmm.matrix.dense import to_dense
from hdmm.matrix.elementary import Dense, Diag, Eye, Ones, Residual, Sparse
from hdmm.matrix.extended import ExtendedDiagonal
from hdmm.matrix.halved import HalvedTriangle
from hdmm.matrix.intervals import AllIntervals, AllIntervalsGram, Intervals
from hdmm.matrix.matrix import Array, Matrix, frozen
from hdmm.matrix.nested import Forest, Haar, Nested, eliminate, haar_inverse, padded
from hdmm.matrix.wrapped import Conjugated, Gram, Permuted, RowScaled, Scaled, scaled

_TABLE = 4096  # cells up to which AᵀA of intervals is written out: 128 MiB
_STEEP = 100.0  # entries of Θ above which nothing is subtracted
_ROTATED = 1024  # cells up to which that is worth O(n³)


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


@singledispatch
def gram_inverse(A: Matrix) -> Matrix:
    """(AᵀA)⁻¹ of a matrix of full column rank. O(n) to O(np²) if structured, else O(n³).

    >>> gram_inverse(Kron((Eye(3), Eye(2))))
    Kron(factors=(Eye(n=3), Eye(n=2)))
    """
    values, Q = np.linalg.eigh(to_dense(gram(A)).astype(np.float64))
    if values[0] <= values[-1] * values.size * np.finfo(float).eps:
        raise MatrixError(
            f"AᵀA of a {type(A).__name__} of shape {A.shape} is singular: its columns are not independent. "
            f"Add rows that distinguish all cells."
        )
    return Dense(frozen((Q / values) @ Q.T))


@gram_inverse.register
def _(A: Eye) -> Matrix:
    return A


@gram_inverse.register
def _(A: ExtendedDiagonal) -> Matrix:
    """diag(s)(I − FᵀF)diag(s), where A = [I; Θ]·diag(1/s) and (I + ΘᵀΘ)⁻¹ = I − FᵀF."""
    s = 1.0 / A.diagonal
    squares = Diag(frozen(s**2))
    match A.theta:
        case Dense(theta) if not len(theta):
            return squares
        case Dense(theta) if s.size <= _ROTATED and np.abs(theta).max() > _STEEP:
            # The identity rows drown: what is left of diag(s²) − FᵀF would be rounding, ε·s² of it.
            # With Θ = UΣVᵀ it is a gram, V/√(1 + Σ²) below the complement of V, and nothing is subtracted: O(n³).
            _, values, V = np.linalg.svd(theta)
            shrunk = np.ones(s.size)
            shrunk[: len(values)] = 1 / np.sqrt(1 + values**2)
            return Gram(Dense(frozen(shrunk[:, None] * V * s)))
        case Dense(theta):  # F = L⁻¹Θ with LLᵀ = I + ΘΘᵀ, p × p (Woodbury): O(np²)
            L = np.linalg.cholesky(np.eye(len(theta)) + theta @ theta.T)
            rows = Dense(frozen(solve_triangular(L, theta * s, lower=True)))
        case Nested(theta, widths):  # supported on the same nodes: O(nL²), and O(nL) per column to multiply
            F = eliminate(padded(theta, widths), widths)[0][:, : s.size]
            rows = Nested(frozen(F * s), widths)
        case Forest(theta, nodes):
            rows = Forest(frozen(eliminate(theta, list(nodes))[0] * s), nodes)
    return Sum((squares, Scaled(-1, Gram(rows))))


@gram_inverse.register
def _(A: Haar) -> Matrix:
    F, widths, C = haar_inverse(A.n)
    wavelets = Gram(Nested(frozen(F), widths))
    return Sum((wavelets, Scaled(-1, Gram(Dense(frozen(C)))))) if len(C) else wavelets


@gram_inverse.register
def _(A: HalvedTriangle) -> Matrix:
    return Gram(A.inverse.T)  # (AᵀA)⁻¹ = BBᵀ


@gram_inverse.register
def _(A: Permuted) -> Matrix:
    return conjugated(gram_inverse(A.inner), A.index)


@gram_inverse.register
def _(A: Scaled) -> Matrix:
    if A.c == 0:
        raise MatrixError(f"A matrix of shape {A.shape} scaled by 0 has a singular AᵀA. Leave it out.")
    return scaled(1 / A.c**2, gram_inverse(A.inner))


@gram_inverse.register
def _(A: Kron) -> Matrix:
    return Kron(tuple(gram_inverse(B) for B in A.factors))
