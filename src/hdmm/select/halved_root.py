"""The optimum of a long attribute for Gaussian noise as integers in halves (matrix/halved.py), in O(n log n).

V⁻¹ is tridiagonal for prefixes and for all ranges, and so is K = M⁻¹ (gaussian_optimum.py). At the best Λ,

    X = Λ^-½ K^-½ Λ^-½,     K^-½ ≈ Σ_s c_s (K + p_s)⁻¹,

and below the diagonal each (K + p)⁻¹ is g_j·φ_{j+1} ⋯ φ_i, a running sum that leaks by φ. Twelve of them are good to
1e-6. Any A with AᵀA = X serves; a triangular one is Σ_s φ_{j+1,s} ⋯ φ_{i,s} ℓ_{j,s} in every column, up to a factor of
its rows, and is found by elimination on the twelve sums. So its blocks below the diagonal have rank twelve, and what
five of these and integers of 26 bits lose is less than 1e-4 of the error.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ellipj, ellipkm1

from hdmm.matrix import Array, HalvedTriangle
from hdmm.matrix.halved import halves
from hdmm.matrix.matrix import frozen
from hdmm.select.gaussian_optimum import TridiagonalInverse

_SUMS = 12  # even
_LEAF = 32  # cells of a triangle
_RANK = 5
_LARGEST = 1 << 26  # length of a column, so that answers are below 2^60 at 2^32 rows


def halved_root(V: TridiagonalInverse) -> HalvedTriangle:
    """Integers A with AᵀA near a multiple of the best X, and columns of one length but for rounding.

    >>> from hdmm.matrix import AllIntervalsGram, column_norms, gram_inverse, trace_product
    >>> V = AllIntervalsGram(100)
    >>> A, best = halved_root(TridiagonalInverse.of(V)), TridiagonalInverse.of(V).dual()[0] ** 2
    >>> bool(best < trace_product(gram_inverse(A), V) * column_norms(A, 2).max() < 1.0001 * best)
    True
    """
    lam = V.dual()[1][::-1]  # from the last cell on, so that A is a lower triangle, and not an upper one
    n, r = len(lam), 1 / np.sqrt(lam)
    levels = max(0, math.ceil(math.log2(n / _LEAF)))
    first = (_LEAF << levels) - n  # cells before these stand for nothing
    rows, leaks, columns, pivots = (
        np.concatenate([np.full((first, *each.shape[1:]), pad), each])
        for pad, each in zip(
            (0.0, 0.0, 0.0, 1.0), _columns(V.diagonal[::-1] * r**2, V.beside[::-1] * r[1:] * r[:-1]), strict=True
        )
    )
    left, right = np.zeros((2, levels, (first + n) // 2, _RANK))
    for level in range(levels):
        left[level], right[level] = _blocks(rows, leaks, columns, level)
    triangles = _triangles(rows, leaks, columns, pivots)
    # Transposed and from the last cell on, the first cells are the first again.
    return _whole(n, triangles[::-1, ::-1, ::-1].transpose(0, 2, 1), right[:, ::-1], left[:, ::-1])


def _columns(a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """(factors of rows, φ, ℓ, diagonal) of L with LLᵀ = K^-½, its diagonal scaled to 1. O(n) small steps."""
    shifts, weights = _sums(a, b)
    ahead, back = a[:, None] + shifts, a[:, None] + shifts  # pivots of elimination from both ends
    for i in range(1, len(a)):
        ahead[i] -= b[i - 1] ** 2 / ahead[i - 1]
        back[-1 - i] -= b[-i] ** 2 / back[-i]
    asked = weights / (ahead + back - a[:, None] - shifts)
    leaks = np.concatenate([np.zeros((1, len(shifts))), -b[:, None] / back[1:]])
    rows = 1 / np.sqrt(asked.sum(axis=1))
    columns, pivots = rows[:, None] * asked, np.empty(len(a))
    P = np.zeros((len(shifts), len(shifts)))  # Σ of what the columns so far leave in the sums, times itself
    for j, (row, leak) in enumerate(zip(rows.tolist(), leaks, strict=True)):
        P *= leak[:, None] * leak
        columns[j] -= row * P.sum(axis=1)
        pivots[j] = math.sqrt(row * columns[j].sum())
        columns[j] /= pivots[j]
        P += columns[j][:, None] * columns[j]
    return rows, leaks, columns, pivots


def _sums(a: Array, b: Array) -> tuple[Array, Array]:
    """(p, c) with x^-½ ≈ Σ c/(x + p) on the eigenvalues x: 2/π ∫ dt/(x + t²) at the nodes t of Zolotarev, p = t²."""
    least = 1 / TridiagonalInverse.inverse_diagonals(a, b**2, np.zeros(1)).sum()
    most = a.max() + 2 * np.abs(b).max(initial=0.0)
    K = float(ellipkm1(least / most))
    sn, cn, dn, _ = ellipj((np.arange(_SUMS // 2) + 0.5) * K / _SUMS, 1 - least / most)
    t, slope = math.sqrt(least) * sn / cn, math.sqrt(least) * dn / cn**2
    middle = math.sqrt(least * most)  # nodes beyond are these, mirrored
    t, slope = np.concatenate([t, middle / t]), np.concatenate([slope, middle / t**2 * slope])
    return t**2, 2 / math.pi * K / _SUMS * slope


def _blocks(rows: Array, leaks: Array, columns: Array, level: int) -> tuple[Array, Array]:
    """U and V of the blocks of a level, of the largest singular values."""
    (_, row), (upper, lower), (column, _) = (halves(each, level) for each in (rows[:, None], leaks, columns))
    left = row * lower.cumprod(axis=1)
    later = np.concatenate([upper[:, 1:], np.ones_like(upper[:, :1])], axis=1)  # what leaks after a column
    right = column * later[:, ::-1].cumprod(axis=1)[:, ::-1]
    (Q, F), (R, G) = np.linalg.qr(left), np.linalg.qr(right)
    U, values, Vt = np.linalg.svd(np.matmul(F, G.transpose(0, 2, 1)))
    roots = np.sqrt(values)[:, None, :_RANK]
    found = np.matmul(Q, U[:, :, :_RANK]) * roots, np.matmul(R, Vt.transpose(0, 2, 1)[:, :, :_RANK]) * roots
    return found[0].reshape(-1, _RANK), found[1].reshape(-1, _RANK)


def _triangles(rows: Array, leaks: Array, columns: Array, pivots: Array) -> Array:
    leaks, columns, left = (each.reshape(-1, _LEAF, each.shape[1]) for each in (leaks, columns, rows[:, None]))
    found, sums = np.zeros((len(leaks), _LEAF, _LEAF)), np.zeros_like(columns)
    for i in range(_LEAF):
        sums[:, :i] *= leaks[:, i : i + 1]
        found[:, i, :i] = left[:, i] * sums[:, :i].sum(axis=2)
        sums[:, i] = columns[:, i]
    found[:, np.arange(_LEAF), np.arange(_LEAF)] = pivots.reshape(-1, _LEAF)
    return found


def _whole(n: int, triangles: Array, left: Array, right: Array) -> HalvedTriangle:
    """Integers near _LARGEST times this; the diagonal makes up for what rounding changes of the columns' lengths."""
    U, V = np.zeros(left.shape, dtype=np.int64), np.zeros(right.shape, dtype=np.int64)
    for level in range(len(left)):
        shape = 2**level, -1, _RANK
        u, v = left[level].reshape(shape), right[level].reshape(shape)
        tiny = np.finfo(float).tiny
        most = [np.maximum(np.abs(each).max(axis=1, keepdims=True), tiny) for each in (u, v)]
        share = np.sqrt(_LARGEST * most[1] / most[0])
        U[level], V[level] = (np.rint(each).reshape(-1, _RANK) for each in (u * share, v * (_LARGEST / share)))
    T = np.rint(_LARGEST * triangles).astype(np.int64)
    A = HalvedTriangle(n, T, U, V)
    found, on = A.squared_columns, np.arange(_LEAF)
    squares = T[:, on, on].reshape(-1)[:n] ** 2
    diagonal = np.full(T.shape[0] * _LEAF, _LARGEST)
    diagonal[:n] = np.sqrt(int(found.mean()) - (found - squares))
    T[:, on, on] = diagonal.reshape(-1, _LEAF)
    return HalvedTriangle(n, frozen(T), U, V)
