"""The diagonal form on one attribute: what simultaneously diagonalises the factors a strategy uses there.

For the factors A_j of one attribute we look for Q with Qᵀ(A_jᵀA_j)Q = diag(δ_j) for every j (design, section
3). Columns of Q with equal δ's form a *class* c; error and variance need only Z_c = Q_c Q_cᵀ of each class:

    diag(QᵀVQ) summed over the class = tr(V Z_c)          Σ (wQ_c)² = w Z_c wᵀ
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import scipy.linalg

from hdmm.exceptions import StrategyError
from hdmm.matrix import (
    Array,
    Dense,
    ExtendedDiagonal,
    Eye,
    Gram,
    Haar,
    Matrix,
    Ones,
    Permuted,
    Scaled,
    Sum,
    gram,
    gram_inverse,
    quadratic,
    to_dense,
    trace,
    trace_product,
)

_SUPPORT_TOLERANCE = 1e-11  # of tr(V)·‖Z_c‖: rounding in tr(V Z_c) stays near 1e-15 of it
_COMMUTE = 1e-8  # off-diagonals above this, of whitened grams of norm 1, mean that they do not commute
_SAME = 1e-10  # δ's closer than this are one class; eigenvalues of whitened grams are good to 1e-13


class Spectrum(ABC):
    """The classes of one attribute: δ of every factor, and the forms Z_c they weigh.

    `delta` is classes × factors: what each factor measures of each class; 0 is nothing.
    """

    __slots__ = ()

    delta: Array

    @abstractmethod
    def traces(self, V: Matrix) -> Array:
        """tr(V Z_c) for every class, rounding noise set to 0."""

    @abstractmethod
    def variances(self, W: Matrix) -> Array:
        """w Z_c wᵀ for every row w of W and class: m × classes."""

    @abstractmethod
    def products(self, R: Array, S: Array) -> Array:
        """r Z_c sᵀ for each pair of columns r of R and s of S, and class: pairs × classes."""

    @abstractmethod
    def mixed(self, weights: Array) -> Matrix:
        """Σ_c weights[c]·Z_c as one form."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class FormSpectrum(Spectrum):
    """Few classes, each with its implicit form Z_c: products, marginals, marginals over bases."""

    delta: Array
    forms: tuple[Matrix, ...]

    def traces(self, V: Matrix) -> Array:
        values = np.array([trace_product(Z, V) for Z in self.forms])
        sizes = np.array([trace(Z) for Z in self.forms])
        return np.where(values > _SUPPORT_TOLERANCE * trace(V) * sizes / V.shape[0], values, 0.0)

    def variances(self, W: Matrix) -> Array:
        return np.stack([np.maximum(quadratic(W, Z), 0.0) for Z in self.forms], axis=1)

    def products(self, R: Array, S: Array) -> Array:
        return np.stack([np.einsum("ij,ij->j", R, Z.matmat(S)) for Z in self.forms], axis=1)

    def mixed(self, weights: Array) -> Matrix:
        return Sum(tuple(Scaled(float(w), Z) for w, Z in zip(weights, self.forms, strict=True)))


@final
@dataclass(frozen=True, slots=True, eq=False)
class EigenSpectrum(Spectrum):
    """The columns of Q in order of class; class c is columns starts[c] to starts[c+1]."""

    delta: Array
    Q: Array
    starts: Array

    def traces(self, V: Matrix) -> Array:
        values = np.add.reduceat(np.einsum("ij,ij->j", self.Q, V.matmat(self.Q)), self.starts)
        sizes = np.maximum.reduceat(np.einsum("ij,ij->j", self.Q, self.Q), self.starts)
        return np.where(values > _SUPPORT_TOLERANCE * trace(V) * sizes, values, 0.0)

    def variances(self, W: Matrix) -> Array:
        return np.add.reduceat(W.matmat(self.Q) ** 2, self.starts, axis=1)

    def products(self, R: Array, S: Array) -> Array:
        return np.add.reduceat((R.T @ self.Q) * (S.T @ self.Q), self.starts, axis=1)

    def mixed(self, weights: Array) -> Matrix:
        columns = np.repeat(weights, np.diff([*self.starts, self.Q.shape[1]]))
        return Dense((self.Q * columns) @ self.Q.T)


@lru_cache(maxsize=512)
def spectrum(factors: tuple[Matrix, ...]) -> Spectrum | None:
    """The diagonal form of the distinct factors of one attribute, or None where there is none.

    One factor always has one, and so have two (generalised eigenvectors) and any number that commute once
    whitened. Total alone or beside one invertible factor is closed form: O(cost of its inverse); the rest
    costs O(n³).

    >>> spectrum((Eye(3), Ones(1, 3))).delta
    array([[0.33333333, 1. ],
           [1. , 0. ]])
    """
    n = factors[0].shape[1]
    total = Ones(1, n)
    others = [A for A in factors if total != A]
    if not others:
        return _form_spectrum(np.array([[1.0], [0.0]]), _total_forms(Eye(n), np.ones(n)))
    if len(others) == 1 and invertible(others[0]):
        H = gram_inverse(others[0])
        if len(factors) == 1:
            return _form_spectrum(np.ones((1, 1)), (H,))
        h = H.matmat(np.ones((n, 1)))[:, 0]
        columns = {True: [1.0, 0.0], False: [1 / float(h.sum()), 1.0]}
        delta = np.array([columns[total == A] for A in factors]).T
        return _form_spectrum(delta, _total_forms(H, h))
    return _joint_eigenvectors([to_dense(gram(A)) for A in factors])


def _form_spectrum(delta: Array, forms: tuple[Matrix, ...]) -> Spectrum:
    classes = min(len(forms), forms[0].shape[0])  # one value has no complement of the total
    return FormSpectrum(delta[:classes], forms[:classes])


def _total_forms(H: Matrix, h: Array) -> tuple[Matrix, ...]:
    """Z of the one direction Total sees, and of the rest, under the inverse gram H, h = H1, c = 1ᵀh.

    hhᵀ/c² and H − hhᵀ/c: scaled so that Total measures the first with δ = 1 whatever n is, and products
    over many attributes that are only totalled neither overflow nor underflow.
    """
    c = float(h.sum())
    row = Dense(h[None, :])
    return Scaled(1 / c**2, Gram(row)), Sum((H, Scaled(-1 / c, Gram(row))))


def invertible(A: Matrix) -> bool:
    """Whether the factor has a cheap inverse gram: identities, alone or with rows below, and wavelets, in any order."""
    return isinstance(A.inner if isinstance(A, Permuted) else A, (ExtendedDiagonal, Eye, Haar))


def _joint_eigenvectors(grams: Sequence[Array]) -> Spectrum | None:
    """Q with every QᵀG_jQ diagonal, through the whitened sum S = ΣG_j. O(n³) per gram."""
    scales = np.array([np.trace(G) for G in grams])
    if not (scales > 0).all():
        raise StrategyError("A factor of the strategy is all zeros. Drop its block or give it queries.")
    scaled = [G / s for G, s in zip(grams, scales, strict=True)]
    white, unseen = _whitening(np.sum(scaled, axis=0))
    inner = [white.T @ G @ white for G in scaled]
    # A generic combination separates the joint eigenspaces; square roots of odd numbers keep it deterministic.
    # Of one or two whitened grams (M, or M and I − M) any combination does.
    mix = np.tensordot(np.sqrt(2 * np.arange(len(inner)) + 3), inner, axes=1)
    rotation = scipy.linalg.eigh(mix, driver="evd")[1]
    rotated = [rotation.T @ M @ rotation for M in inner]
    if len(grams) > 2 and any(np.abs(M - np.diag(np.diag(M))).max() > _COMMUTE for M in rotated):
        return None
    delta = np.stack([np.diag(M) for M in rotated], axis=1)
    delta = np.where(delta > _SAME, delta, 0.0)
    order, starts = _classes(delta)
    Q = (white @ rotation)[:, order]
    delta = np.add.reduceat(delta[order], starts, axis=0) / np.diff([*starts, len(order)])[:, None]
    if unseen.shape[1]:
        Q = np.hstack([Q, unseen])
        starts = np.append(starts, len(order))
        delta = np.vstack([delta, np.zeros((1, len(grams)))])
    return EigenSpectrum(delta * scales, Q, starts)


def _whitening(S: Array) -> tuple[Array, Array]:
    """(P, U) with PᵀSP = I on the range of S and U an orthonormal basis of its null space."""
    n = len(S)
    try:
        L = scipy.linalg.cholesky(S, lower=True)
    except scipy.linalg.LinAlgError:
        L = np.zeros((n, n))
    pivots = np.diag(L)
    if pivots.min() ** 2 > 1e-6 * pivots.max() ** 2:  # far from singular: several times cheaper
        return scipy.linalg.solve_triangular(L, np.eye(n), lower=True).T, np.empty((n, 0))
    # The divide-and-conquer driver: the default loses two digits of orthogonality at n = 1024.
    values, vectors = scipy.linalg.eigh(S, driver="evd")
    seen = values > 10 * n * np.finfo(float).eps * values[-1]
    return vectors[:, seen] / np.sqrt(values[seen]), vectors[:, ~seen]


def _classes(delta: Array) -> tuple[Array, Array]:
    """An order of the rows that puts equal ones together, and where each class starts."""
    order = np.lexsort(np.round(delta.T, 8))
    steps = np.abs(np.diff(delta[order], axis=0)).max(axis=1) > _SAME
    return order, np.concatenate([[0], np.flatnonzero(steps) + 1])
