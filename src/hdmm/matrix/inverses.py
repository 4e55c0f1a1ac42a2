"""pinv: the Moore-Penrose inverse; gram_inverse: (AᵀA)⁻¹."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from hdmm.exceptions import MatrixError
from hdmm.matrix.augmented import Augmented
from hdmm.matrix.base import Array, Matrix, Transpose
from hdmm.matrix.blocks import Cumulative, Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.checks import frozen
from hdmm.matrix.compose import Chain, Kron, Sum
from hdmm.matrix.dense import to_dense
from hdmm.matrix.grams import conjugated, gram
from hdmm.matrix.haar import Haar, haar_inverse
from hdmm.matrix.intervals import AllIntervals, AllIntervalsGram
from hdmm.matrix.p_identity import PIdentity
from hdmm.matrix.tree import Nested, TreeIdentity, eliminate, padded
from hdmm.matrix.wrapped import Conjugated, Gram, Permuted, Scaled, scaled


@singledispatch
def pinv(A: Matrix) -> Matrix:
    """A⁺, the Moore-Penrose inverse, n × m. O(n) to O(np²) where structured, else a dense SVD.

    >>> pinv(Ones(1, 4))
    Scaled(c=0.25, inner=Ones(m=4, n=1))
    """
    array = to_dense(A).astype(np.float64)
    if array.size == 0:
        return Ones(*array.shape[::-1])
    return Dense(frozen(np.linalg.pinv(array, rcond=max(array.shape) * np.finfo(float).eps)))


@pinv.register
def _(A: Eye) -> Matrix:
    return A


@pinv.register
def _(A: Ones) -> Matrix:
    return scaled(1 / (A.m * A.n), Ones(A.n, A.m)) if A.m * A.n else Ones(A.n, A.m)


@pinv.register
def _(A: Diag) -> Matrix:
    return Diag(frozen(np.divide(1.0, A.d, out=np.zeros(A.d.size), where=A.d != 0)))


@pinv.register
def _(A: Cumulative) -> Matrix:
    return differences(A.n)


@pinv.register
def _(A: AllIntervals) -> Matrix:
    return Chain(gram_inverse(A), A.T)  # of full column rank


@pinv.register
def _(A: AllIntervalsGram) -> Matrix:
    return gram_inverse(AllIntervals(A.n))


@pinv.register(Haar)
@pinv.register(PIdentity)
@pinv.register(TreeIdentity)
@pinv.register(Augmented)
def _(A: Haar | PIdentity | TreeIdentity | Augmented) -> Matrix:
    return Chain(gram_inverse(A), A.T)  # of full column rank


@pinv.register
def _(A: Permuted) -> Matrix:
    return Permuted(pinv(A.inner).T, A.index).T  # (AP)⁺ = PᵀA⁺


@pinv.register
def _(A: Conjugated) -> Matrix:
    return conjugated(pinv(A.inner), A.index)


@pinv.register
def _(A: Scaled) -> Matrix:
    if A.c == 0:
        return Scaled(0, Ones(A.shape[1], A.shape[0]))
    return scaled(1 / A.c, pinv(A.inner))


@pinv.register
def _(A: Kron) -> Matrix:
    return Kron(tuple(pinv(B) for B in A.factors))


@pinv.register
def _(A: Transpose) -> Matrix:
    return pinv(A.inner).T


@singledispatch
def gram_inverse(A: Matrix) -> Matrix:
    """(AᵀA)⁻¹ of a matrix of full column rank. O(n) to O(np²) where structured, else O(n³).

    >>> gram_inverse(Kron((Eye(3), Eye(2))))
    Kron(factors=(Eye(n=3), Eye(n=2)))
    """
    values, Q = np.linalg.eigh(to_dense(gram(A)).astype(np.float64))
    if values[0] <= values[-1] * values.size * np.finfo(float).eps:
        raise MatrixError(
            f"AᵀA of a {type(A).__name__} of shape {A.shape} is singular: A has not full column rank. "
            f"Use pinv, or add rows that tell all cells apart."
        )
    return Dense(frozen((Q / values) @ Q.T))


@gram_inverse.register
def _(A: Eye) -> Matrix:
    return A


@gram_inverse.register
def _(A: Diag) -> Matrix:
    if not (A.d != 0).all():
        raise MatrixError(f"A Diag of {A.d.size} entries has zeros among them, so AᵀA is singular. Use pinv.")
    return Diag(frozen(1.0 / np.asarray(A.d, dtype=np.float64) ** 2))


@gram_inverse.register
def _(A: Cumulative) -> Matrix:
    return Gram(differences(A.n).T)  # (LᵀL)⁻¹ = L⁻¹L⁻ᵀ


@gram_inverse.register
def _(A: AllIntervals) -> Matrix:
    """V = Lᵀ((n+1)I − J)L and ((n+1)I − J)⁻¹ = (I + J)/(n+1), so V⁻¹ = L⁻¹(I + J)L⁻ᵀ/(n+1)."""
    D = differences(A.n)
    middle = Sum((Eye(A.n), Ones(A.n, A.n)))
    return Scaled(1 / (A.n + 1), Chain(D, Chain(middle, D.T)))


@gram_inverse.register
def _(A: PIdentity) -> Matrix:
    return _woodbury(A.theta, A.scale) if len(A.theta) else Eye(A.shape[1])


@gram_inverse.register
def _(A: TreeIdentity) -> Matrix:
    return _eliminated(A.theta, A.scale)


@gram_inverse.register
def _(A: Augmented) -> Matrix:
    """[diag(d); B] = [I; Θ]·diag(1/s) with Θ = B/d and s = 1/d."""
    s = 1.0 / A.d
    match A.below:
        case Dense(array):
            return _woodbury(array * s, s)
        case Nested(values, widths):
            return _eliminated(Nested(frozen(values * s), widths), s)
        case _:
            return gram_inverse.dispatch(Matrix)(A)


def _woodbury(theta: Array, s: Array) -> Matrix:
    """diag(s)(I − Θᵀ(I + ΘΘᵀ)⁻¹Θ)diag(s): only I + ΘΘᵀ, p × p, is factorised. O(np²)."""
    D = Diag(frozen(s**2))
    if theta.shape[0] == 0:
        return D
    L = np.linalg.cholesky(np.eye(theta.shape[0]) + theta @ theta.T)
    F = solve_triangular(L, theta * s, lower=True)
    return Sum((D, Scaled(-1, Gram(Dense(frozen(F))))))


def _eliminated(theta: Nested, s: Array) -> Matrix:
    """diag(s)(I − ŨᵀŨ)diag(s), ũ supported on the same nodes: O(nL²), and O(nL) per column to multiply."""
    U = eliminate(padded(theta.values, theta.widths), theta.widths)[0][:, : s.size]
    return Sum((Diag(frozen(s**2)), Scaled(-1, Gram(Nested(frozen(U * s), theta.widths)))))


@gram_inverse.register
def _(A: Haar) -> Matrix:
    F, widths, C = haar_inverse(A.n)
    wavelets = Gram(Nested(frozen(F), widths))
    return Sum((wavelets, Scaled(-1, Gram(Dense(frozen(C)))))) if len(C) else wavelets


@gram_inverse.register
def _(A: Permuted) -> Matrix:
    return conjugated(gram_inverse(A.inner), A.index)


@gram_inverse.register
def _(A: Scaled) -> Matrix:
    if A.c == 0:
        raise MatrixError(f"A matrix of shape {A.shape} scaled by 0 has a singular AᵀA. Use pinv.")
    return scaled(1 / A.c**2, gram_inverse(A.inner))


@gram_inverse.register
def _(A: Kron) -> Matrix:
    return Kron(tuple(gram_inverse(B) for B in A.factors))


def differences(n: int) -> Sparse:
    """L⁻¹ of L = Cumulative(n): each cell less the one before. O(n).

    >>> differences(3).matmat(np.array([[1], [3], [6]])).ravel()
    array([1, 2, 3])
    """
    i = np.arange(n)
    values = np.concatenate([np.ones(n, dtype=np.int64), -np.ones(n - 1, dtype=np.int64)])
    return Sparse(sp.csr_array((values, (np.append(i, i[1:]), np.append(i, i[:-1]))), shape=(n, n)))
