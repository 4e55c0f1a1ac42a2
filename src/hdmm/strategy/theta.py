"""Θ, the rows that a p-Identity matrix has beside the identity, as a family: all of Θ free, or what lies in windows.

A = [I; Θ]·diag(1/s) with s = 1 + Θᵀ1. By Woodbury's identity, with B = Θ·diag(s) and R = (I + ΘΘᵀ)⁻¹,

    H = (AᵀA)⁻¹ = diag(s²) − BᵀRB

and for any f with M = ∂f/∂H, U = BM and K = BUᵀ (M = V for f = tr(HV)):

    tr(HM)  = Σ s²∘diag M − tr(RK)
    ∂f/∂s   = 2 s∘diag M − 2 Σ_k (RU∘Θ)_k
    ∂f/∂Θ   = 2 RKRΘ − 2 RU∘s + 1 ⊗ ∂f/∂s

which is written once, over any layout of Θ: only RU and RKRΘ where Θ may differ from 0 are needed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue]

from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Eye, Matrix, PIdentity
from hdmm.strategy.family import Explicit, Implicit
from hdmm.strategy.windows import Windows


class Theta(Implicit):
    """A layout of Θ: arrays whose last axis is cells and whose last but one is the rows that meet in them."""

    __slots__ = ()

    def loss(self, x: Array, V: Matrix, diagonal_of_V: Array) -> tuple[float, Array]:
        """C = tr((AᵀA)⁻¹V) and ∂C/∂x. One product of p rows with V."""
        H = self.inverse(x)
        U = H.product(V)
        K = H.crossed(U)
        return H.trace(K, diagonal_of_V), H.gradient(U, K, diagonal_of_V)

    def inverse(self, x: Array) -> Inverse:
        """(AᵀA)⁻¹ at x. O(p³ + np²), or what windows leave of np²."""
        T = self.laid(x)
        s = 1.0 + T.sum(axis=-2, keepdims=True)
        M = self.overlap(T)
        M.flat[:: len(M) + 1] += 1.0
        return Inverse(self, T, s, T * s, _inverse(M))

    @abstractmethod
    def laid(self, x: Array) -> Array:
        """Θ in its layout."""

    @abstractmethod
    def freed(self, T: Array) -> Array:
        """The entries of an array in this layout that are free, as x has them."""

    @abstractmethod
    def written(self, T: Array) -> Array:
        """The array in this layout as p × n; may be a buffer that the next call uses again."""

    @abstractmethod
    def cells(self, d: Array) -> Array:
        """A vector over the n cells in this layout."""

    @abstractmethod
    def overlap(self, T: Array) -> Array:
        """ΘΘᵀ, p × p."""

    @abstractmethod
    def crossed(self, U: Array, B: Array) -> Array:
        """BUᵀ, p × p, of U as p × n."""

    @abstractmethod
    def times(self, R: Array, U: Array) -> Array:
        """RU in this layout, of U as p × n."""

    @abstractmethod
    def mixed(self, N: Array, T: Array) -> Array:
        """NΘ in this layout."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Inverse:
    """H = (AᵀA)⁻¹ = diag(s²) − BᵀRB of a p-Identity A, and the way back from ∂f/∂H to x."""

    of: Theta
    T: Array
    s: Array
    B: Array
    R: Array

    @property
    def row_sums(self) -> Array:
        """H1, of a Θ that is laid out as p × n."""
        return (self.s * self.s)[0] - self.B.T @ (self.R @ self.B.sum(axis=1))

    def product(self, V: Matrix) -> Array:
        """U = BV, p × n."""
        return V.along(self.of.written(self.B)[:, :, None])[:, :, 0]

    def crossed(self, U: Array) -> Array:
        """K = BUᵀ = BMBᵀ."""
        return self.of.crossed(U, self.B)

    def trace(self, K: Array, diagonal_of_M: Array) -> float:
        """tr(HM) of a symmetric M, from K = BMBᵀ."""
        return float(np.vdot(self.s * self.s, self.of.cells(diagonal_of_M))) - float(np.vdot(self.R, K))

    def gradient(self, U: Array, K: Array, diagonal_of_M: Array) -> Array:
        """∂f/∂x of any f with M = ∂f/∂H, from U = BM and K = BMBᵀ."""
        RU = self.of.times(self.R, U)
        by_scale = self.s * self.of.cells(diagonal_of_M)
        by_scale -= np.einsum("...kn,...kn->...n", RU, self.T)[..., None, :]
        out = self.of.mixed(2 * (self.R @ K @ self.R), self.T)
        RU *= 2 * self.s
        out -= RU
        out += 2 * by_scale
        return self.of.freed(out)


@final
@dataclass(frozen=True, slots=True, eq=False)
class DenseTheta(Theta, Explicit):
    """Θ as p × n: all of it, or the entries at the places `free` of that shape, the others being 0.

    >>> DenseTheta(None).loss(np.zeros((1, 3)), Eye(3), np.ones(3))[0]
    3.0
    """

    start: Array | None
    free: Array | None = None
    shape: tuple[int, int] = (0, 0)

    @classmethod
    def within(cls, theta: Array, free: Array) -> DenseTheta:
        """The family of some entries of Θ, by their places in Θ.flat, from where Θ is."""
        return cls(theta.flat[free], free, theta.shape)

    def matrix(self, x: Array) -> Matrix:
        theta = self.laid(x)
        kept = theta[theta.max(axis=1) > 0]
        return PIdentity(kept) if len(kept) else Eye(theta.shape[1])

    def gram(self, x: Array) -> Array:
        T = self.laid(x)
        s = 1 + T.sum(axis=0)
        G = (T / s).T @ (T / s)
        G.flat[:: len(s) + 1] += 1 / s**2
        return G

    def pull(self, x: Array, F: Array) -> Array:
        """With A = Θ·diag(1/s) below the identity: ∂f/∂A = 2AF, ∂f/∂s = −2 diag(GF)/s. O(pn²)."""
        T = self.laid(x)
        s = 1 + T.sum(axis=0)
        A = T / s
        AF = A @ F
        return self.freed(2 * (AF - np.einsum("pn,pn->n", AF, A) - F.diagonal() / s**2) / s)

    def laid(self, x: Array) -> Array:
        if self.free is None:
            return x
        T = np.zeros(self.shape)
        T.flat[self.free] = x
        return T

    def freed(self, T: Array) -> Array:
        return T if self.free is None else T.flat[self.free]

    def written(self, T: Array) -> Array:
        return T

    def cells(self, d: Array) -> Array:
        return d

    def overlap(self, T: Array) -> Array:
        return T @ T.T

    def crossed(self, U: Array, B: Array) -> Array:
        return B @ U.T

    def times(self, R: Array, U: Array) -> Array:
        return R @ U

    def mixed(self, N: Array, T: Array) -> Array:
        return N @ T


@final
@dataclass(frozen=True, slots=True, eq=False)
class WindowedTheta(Theta):
    """Θ within windows: blocks × slots × width, of which x has the entries that a row fills.

    RU and RKRΘ are only needed where Θ is: O(p³ + pn·slots) a step beside the product with V.
    """

    windows: Windows
    free: Array
    canvas: Array  # to write Θ into, again and again: what lies outside the windows stays 0

    @classmethod
    def of(cls, windows: Windows) -> WindowedTheta:
        return cls(windows, windows.free, windows.canvas)

    def matrix(self, x: Array) -> Matrix:
        return PIdentity(self.windows.unpacked(self.laid(x)))

    def laid(self, x: Array) -> Array:
        T = np.zeros(self.free.shape)
        T[self.free] = x
        return T

    def freed(self, T: Array) -> Array:
        return T[self.free]

    def written(self, T: Array) -> Array:
        return self.windows.unpacked(T, self.canvas)

    def cells(self, d: Array) -> Array:
        blocks, _, width = self.free.shape
        out = np.zeros(blocks * width)
        out[: len(d)] = d
        return out.reshape(blocks, 1, width)

    def overlap(self, T: Array) -> Array:
        p, rows = self.windows.p, self.windows.rows
        pairs = np.matmul(T, T.transpose(0, 2, 1))
        places = rows[:, :, None] * (p + 1) + rows[:, None, :]
        sums = np.bincount(places.ravel(), weights=pairs.ravel(), minlength=(p + 1) ** 2)
        return sums.reshape(p + 1, p + 1)[:p, :p].copy()

    def crossed(self, U: Array, B: Array) -> Array:
        blocks, slots, _ = B.shape
        return self.windows.gather @ np.matmul(B, self._by_block(U).transpose(0, 2, 1)).reshape(blocks * slots, -1)

    def times(self, R: Array, U: Array) -> Array:
        return np.matmul(_with_zeros(R)[self.windows.rows, : self.windows.p], self._by_block(U))

    def mixed(self, N: Array, T: Array) -> Array:
        rows = self.windows.rows
        return np.matmul(_with_zeros(N)[rows[:, :, None], rows[:, None, :]], T)

    def _by_block(self, U: Array) -> Array:
        """U as blocks × p × width, 0 past the last cell."""
        p, n = U.shape
        blocks, _, width = self.free.shape
        if n < blocks * width:
            U = np.concatenate([U, np.zeros((p, blocks * width - n))], axis=1)
        return U.reshape(p, blocks, width).transpose(1, 0, 2)


def theta_of(A: Matrix) -> Array | None:
    """Θ of a p-Identity matrix, one row of zeros for the identity, None for other kinds.

    >>> theta_of(Eye(2))
    array([[0., 0.]])
    """
    match A:
        case PIdentity(theta):
            return theta
        case Eye(n):
            return np.zeros((1, n))
        case _:
            return None


def _with_zeros(M: Array) -> Array:
    """M with a row and a column of zeros for the slots that no row fills."""
    p = len(M)
    out = np.zeros((p + 1, p + 1))
    out[:p, :p] = M
    return out


def _inverse(M: Array) -> Array:
    """M⁻¹ of a positive definite M, which is used up. O(p³)."""
    if not len(M):
        return M
    L, failed = dpotrf(M, lower=1, clean=0, overwrite_a=1)
    inverse, singular = dpotri(L, lower=1, overwrite_c=1)
    if failed or singular:
        raise StrategyError("I + ΘΘᵀ is not positive definite: Θ has entries that are not finite, or too large.")
    lower = np.tril(inverse, -1)
    return np.tril(inverse) + lower.T
