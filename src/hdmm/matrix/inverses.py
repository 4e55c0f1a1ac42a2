"""gram_inverse: (AᵀA)⁻¹ with as much structure as A has."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from scipy.linalg import solve_triangular

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.checks import frozen
from hdmm.matrix.compose import Kron, Sum
from hdmm.matrix.dense import to_dense
from hdmm.matrix.elementary import Dense, Diag, Eye
from hdmm.matrix.extended import ExtendedDiagonal
from hdmm.matrix.grams import conjugated, gram
from hdmm.matrix.haar import Haar, haar_inverse
from hdmm.matrix.matrix import Matrix
from hdmm.matrix.nested import Forest, Nested, eliminate, padded
from hdmm.matrix.wrapped import Gram, Permuted, Scaled, scaled

_STEEP = 100.0  # entries of Θ above which nothing is subtracted
_ROTATED = 1024  # cells up to which that is worth O(n³)


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
