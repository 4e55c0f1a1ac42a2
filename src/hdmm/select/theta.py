"""Θ, the rows of a p-Identity matrix below the identity, as a family: all of Θ is free, or what lies in windows.

A = [I; Θ]·diag(1/s) with s = 1 + Θᵀ1. By Woodbury's identity, with B = Θ·diag(s) and R = (I + ΘΘᵀ)⁻¹,

    H = (AᵀA)⁻¹ = diag(s²) − BᵀRB

and for any f with M = ∂f/∂H, U = BM and K = UBᵀ (M = V for f = tr(HV)):

    tr(HM)  = Σ s²∘diag M − tr(RK)
    ∂f/∂s   = 2 s∘diag M − 2 Σ_k (RU∘Θ)_k
    ∂f/∂Θ   = 2 RKRΘ − 2 RU∘s + 1 ⊗ ∂f/∂s

Windows are where Θ may differ from 0 if each of its rows is supported on a node of a tree and on its neighbours. The
optima of ordered workloads have about four nonzero entries per cell, near the nodes of a 16-ary tree but reaching
beyond them. Leaving out the rest of Θ changes the error by less than 1e-3, and makes a step at n = 8192 ten times
cheaper.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue]

from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Array, Dense, ExtendedDiagonal, Eye, Matrix, PIdentity
from hdmm.select.family import Columns, Divided, Implicit


@final
@dataclass(frozen=True, slots=True, eq=False)
class DenseTheta(Implicit, Divided):
    """Θ as p × n: all of it is free, or the entries at the places `free` are and the others are 0.

    `xp` is the array namespace of x and its gradient: NumPy, or CuPy for a GPU.

    >>> DenseTheta(None).loss(np.zeros((1, 3)), Eye(3), np.ones(3))[0]
    3.0
    """

    start: Array | None
    free: Array | None = None
    shape: tuple[int, int] = (0, 0)
    xp: Any = np

    @classmethod
    def within(cls, theta: Array, free: Array, xp: Any = np) -> DenseTheta:
        """The family of some entries of Θ, given by their places in Θ.flat, that starts at Θ."""
        return cls(xp.asarray(theta.flat[free]), xp.asarray(free), theta.shape, xp)

    def matrix(self, x: Array) -> Matrix:
        theta = _on_host(self.laid(x))
        kept = theta[theta.max(axis=1) > 0]
        return PIdentity(kept) if len(kept) else Eye(theta.shape[1])

    def loss(self, x: Array, V: Matrix, diagonal_of_V: Array) -> tuple[float, Array]:
        """C = tr((AᵀA)⁻¹V) and ∂C/∂x. One product of p rows with V, and O(np²)."""
        inverse = self.inverse_gram(x, [V], [self.xp.asarray(diagonal_of_V)])
        return float(inverse.taus[0]), inverse.gradient([1.0])

    def columns(self, x: Array) -> Columns:
        T = self.laid(x)
        s = 1 + T.sum(axis=0)
        return Columns(T / s, s, np.ones((1, 1)), identity=True)

    def inverse_gram(self, x: Array, grams: Sequence[Matrix], diagonals: Sequence[Array]) -> InverseGram:
        """(AᵀA)⁻¹ applied to several grams. One product of p rows with each, and O(np²)."""
        T = self.laid(x)
        s = 1.0 + T.sum(axis=0)
        B = T * s
        M = T @ T.T
        M.reshape(-1)[:: len(M) + 1] += 1.0
        R = _inverse(M) if self.xp is np else _inverse_on_device(self.xp, M)
        U = [V.along(B[:, :, None])[:, :, 0] for V in grams]
        return InverseGram(self, T, s, B, R, diagonals, U, [each @ B.T for each in U])

    def laid(self, x: Array) -> Array:
        """Θ."""
        if self.free is None:
            return x
        T = self.xp.zeros(self.shape)
        T.reshape(-1)[self.free] = self.xp.asarray(x)
        return T

    def free_entries(self, B: Array) -> Array:
        """The entries of a p × n array that are free."""
        return B if self.free is None else B.reshape(-1)[self.free]


@final
@dataclass(frozen=True, slots=True, eq=False)
class InverseGram:
    """H = (AᵀA)⁻¹ at one x, with U = BV and K = BVBᵀ for some grams V, and the gradient in x from ∂f/∂H."""

    of: DenseTheta
    T: Array
    s: Array
    B: Array
    R: Array
    diagonals: Sequence[Array]
    U: Sequence[Array]
    K: Sequence[Array]

    @property
    def taus(self) -> Array:
        """tr(HV) of every gram."""
        pairs = zip(self.diagonals, self.K, strict=True)
        squares = self.s * self.s
        return np.array([float(squares @ d - np.vdot(self.R, K)) for d, K in pairs])

    @property
    def row_sums(self) -> Array:
        """h = H1."""
        return self.s * self.s - self.B.T @ (self.R @ self.B.sum(axis=1))

    def gradient(self, weights: Sequence[float], row: Array | None = None) -> Array:
        """∂f/∂x of any f with ∂f/∂H = Σ weights·V + row·1ᵀ + 1·rowᵀ. O(np²)."""
        U, K, d = (_weighted(weights, parts) for parts in (self.U, self.K, self.diagonals))
        if row is not None:
            ones, along = self.B.sum(axis=1), self.B @ row
            cross = np.multiply.outer(ones, along)
            U, K, d = U + np.multiply.outer(ones, row) + along[:, None], K + cross + cross.T, d + 2 * row
        RU = self.R @ U
        return self.of.free_entries(_gradient(self.T, self.s, d, RU, (2 * self.R @ K @ self.R) @ self.T))


@final
@dataclass(frozen=True, slots=True, eq=False)
class WindowedTheta(Implicit):
    """Θ within windows: x holds those entries of blocks × slots × width that a row fills."""

    windows: Windows
    free: Array
    canvas: Array  # Θ is written into it repeatedly; what lies outside the windows stays 0

    @classmethod
    def of(cls, windows: Windows) -> WindowedTheta:
        return cls(windows, windows.free, windows.canvas)

    def matrix(self, x: Array) -> Matrix:
        return PIdentity(self.windows.unpacked(self.laid(x)))

    def loss(self, x: Array, V: Matrix, diagonal_of_V: Array) -> tuple[float, Array]:
        """C = tr((AᵀA)⁻¹V) and ∂C/∂x. One product of p rows with V, and O(p³ + pn·slots): RU and RKRΘ are needed
        only where Θ may differ from 0."""
        T = self.laid(x)
        (blocks, slots, width), n, p, rows = T.shape, self.windows.n, self.windows.p, self.windows.rows
        s = 1.0 + T.sum(axis=1, keepdims=True)
        B = T * s
        pairs = np.matmul(T, T.transpose(0, 2, 1))
        places = rows[:, :, None] * (p + 1) + rows[:, None, :]
        M = np.bincount(places.ravel(), weights=pairs.ravel(), minlength=(p + 1) ** 2).reshape(p + 1, p + 1)[:p, :p]
        R = np.zeros((p + 1, p + 1))  # slots that no row fills are row p
        R[:p, :p] = _inverse(M + np.eye(p))
        U, d = V.along(self.windows.unpacked(B, self.canvas)[:, :, None])[:, :, 0], diagonal_of_V
        if n < blocks * width:
            U, d = (np.pad(each, [(0, 0)] * (each.ndim - 1) + [(0, blocks * width - n)]) for each in (U, d))
        d, by_block = d.reshape(s.shape), U.reshape(p, blocks, width).transpose(1, 0, 2)
        RU = np.matmul(R[rows, :p], by_block)
        K = self.windows.gather @ np.matmul(B, by_block.transpose(0, 2, 1)).reshape(blocks * slots, p)
        value = float(np.vdot(s * s, d)) - float(np.vdot(RU, B))
        N = np.zeros_like(R)
        N[:p, :p] = 2 * R[:p, :p] @ K @ R[:p, :p]
        return value, _gradient(T, s, d, RU, np.matmul(N[rows[:, :, None], rows[:, None, :]], T))[self.free]

    def laid(self, x: Array) -> Array:
        """Θ in windows."""
        T = np.zeros(self.free.shape)
        T[self.free] = x
        return T


def theta_of(A: Matrix) -> Array | None:
    """Θ of a p-Identity matrix, None for other kinds.

    >>> theta_of(PIdentity([[1.0, 3.0]]))
    array([[1., 3.]])
    """
    match A:
        case ExtendedDiagonal(Dense(theta), None, 1):
            return theta
        case _:
            return None


def _on_host(array: Any) -> Array:
    """The array as NumPy's, copied from the memory of a GPU if it is there."""
    return array if isinstance(array, np.ndarray) else array.get()


def _weighted(weights: Sequence[float], parts: Sequence[Array]) -> Array:
    """Σ weights·parts."""
    total = weights[0] * parts[0]
    for w, each in zip(weights[1:], parts[1:], strict=True):
        total += w * each
    return total


def _gradient(T: Array, s: Array, d: Array, RU: Array, RKRT: Array) -> Array:
    """∂f/∂Θ from d = diag M, RU and 2RKRΘ at the places of Θ; the last axis is the cells, the one before the rows."""
    by_scale = 2 * s * d - 2 * np.einsum("...kn,...kn->...n", RU, T).reshape(s.shape)
    RU *= 2 * s
    RKRT -= RU
    RKRT += by_scale
    return RKRT


def _inverse_on_device(cp: Any, M: Any) -> Any:
    """M⁻¹ of a positive definite M on a GPU: errors of CuPy's own inv were 1e-6 in size, which ends descents early."""
    return importlib.import_module("cupyx.lapack").posv(M, cp.eye(len(M)))


def positive_inverse(M: Array) -> Array | None:
    """M⁻¹ of a positive definite matrix; None if it is not. O(n³)."""
    L, failed = dpotrf(M.T, lower=1, clean=1)
    half, singular = (L, 1) if failed else dpotri(L, lower=1, overwrite_c=1)
    if singular:
        return None
    half.flat[:: len(M) + 1] /= 2
    return half + half.T


def _inverse(M: Array) -> Array:
    found = positive_inverse(M) if len(M) else M
    if found is None:
        raise StrategyError("I + ΘΘᵀ is not positive definite: Θ has entries that are not finite, or too large.")
    return found


@final
@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Where Θ may differ from 0: slot t of block j, a run of `width` cells, is a piece of row rows[j, t].

    Θ is packed as blocks × slots × width; slots that no row fills are row p, and hold 0.
    """

    n: int
    p: int
    rows: Array
    width: int
    own: Array  # which slots are in the row's own node
    gather: Any  # p × blocks·slots of 0/1: adds up the slots of each row

    @classmethod
    def of(cls, n: int, widths: Sequence[int], *, reach: int = 1) -> Windows:
        """The pattern of a tree: level l has nodes of widths[l] cells, and rows reach `reach` nodes further. O(n)."""
        width = widths[0]
        blocks = np.arange(-(-n // width))
        rows: list[Array] = []
        own: list[Array] = []
        p = 0
        total = sum(-(-n // w) for w in widths)
        for w in widths:
            nodes = -(-n // w)
            for shift in range(-min(reach, nodes - 1), min(reach, nodes - 1) + 1):
                node = blocks * width // w + shift
                rows.append(np.where((node >= 0) & (node < nodes), p + node, total))
                own.append(np.full(len(blocks), shift == 0))
            p += nodes
        table = np.stack(rows, axis=1)
        used = np.flatnonzero(table.ravel() < p)
        gather = sp.csr_array((np.ones(len(used)), (table.ravel()[used], used)), shape=(p, table.size))
        return cls(n, p, table, width, np.stack(own, axis=1), gather)

    @property
    def free(self) -> Array:
        """Which packed entries are parameters: blocks × slots × width of bool. O(size)."""
        cells = np.arange(self.rows.shape[0] * self.width).reshape(-1, 1, self.width)
        return (self.rows[:, :, None] < self.p) & (cells < self.n)

    @property
    def canvas(self) -> Array:
        """Zeros to unpack into repeatedly: what lies outside the windows stays 0. O(pn)."""
        return np.zeros((self.p + 1, self.rows.shape[0], self.width))

    def unpacked(self, packed: Array, canvas: Array | None = None) -> Array:
        """Θ as p × n, written into the given canvas or a new one. O(n·slots)."""
        blocks = packed.shape[0]
        theta = self.canvas if canvas is None else canvas
        for t in range(packed.shape[1]):
            theta[self.rows[:, t], np.arange(blocks)] = packed[:, t]
        return theta[: self.p].reshape(self.p, -1)[:, : self.n]
