"""Factors of a residual space as integers, of exactly the rows that the space has, and as few bits as cost little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.linalg

from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Array, Dense
from hdmm.matrix.matrix import frozen

_MOST_MOVES = 1 << 17  # rows times entries of a basis: a step of 1 ms
_BITS = (8, 10, 12, 14, 16, 20)  # of the integers of a factor, tried in turn
_LEAST_BITS, _TRIALS = 6.0, 54  # of integers near to a factor
_COST = 1e-4  # of a space's error that rounding may add


@final
@dataclass(frozen=True, slots=True, eq=False)
class SpaceFactor:
    """A factor of integers in a residual space, its largest squared column norm, and tr(X⁺V)·that norm."""

    A: Dense
    norm: float
    loss: float


def whole_basis(rows: Array, cells: int, F: Array) -> Array | None:
    """Integers with the span of F, of rows that are whole but for a common divisor of the cells; else None."""
    span = np.linalg.qr(F.T)[0]
    whole = rows * cells
    for _ in range(2):  # averages over the cells of other attributes have other divisors
        if np.abs(whole).max(initial=0.0) < 2**40 and np.allclose(whole, np.rint(whole), rtol=0, atol=1e-6):
            break
        whole = np.array([row / np.abs(row[row != 0]).min(initial=np.inf) if row.any() else row for row in rows])
        whole = whole * cells
    else:
        return None
    listed = np.rint(whole).astype(np.int64)
    listed = np.vstack([listed, np.diff(listed, axis=0)])  # neighbours often differ in little: far better conditioned
    listed = listed[listed.any(axis=1)]
    listed //= np.gcd.reduce(listed, axis=1)[:, None]
    # Pivots of the rows in coordinates of their span are those of the rows, at rank² in place of cells · rank each.
    inside = (listed / np.linalg.norm(listed, axis=1)[:, None]) @ span
    pivoted: Any = scipy.linalg.qr(inside.T, mode="r", pivoting=True)
    chosen = np.sort(pivoted[-1][: span.shape[1]])
    return listed[chosen] if np.linalg.matrix_rank(inside[chosen]) == span.shape[1] else None


def on_basis(F: Array, B: Array, A: Array) -> SpaceFactor:
    """A as integers with exactly the span of B: R·B with a triangular R of few bits, as exact as _COST asks for.

    Inverses are in coordinates of that span, on which B, A and F are square.
    """
    span = np.linalg.qr(B.T.astype(np.float64))[0]
    f, b, a = F @ span, B @ span, A @ span

    def loss(whole: Array) -> float:
        norm = float((whole.astype(np.float64) ** 2).sum(axis=0).max())
        return norm * float(np.linalg.norm(np.linalg.solve((whole @ span).T, f.T)) ** 2)

    least = float(np.linalg.norm(np.linalg.solve(a.T, f.T)) ** 2)
    R = triangle(np.linalg.solve(b.T, a.T).T)
    whole = fewest_bits(R, B, lambda whole: loss(whole) <= (1 + _COST) * least, _BITS)
    return SpaceFactor(Dense(frozen(whole)), float((whole.astype(np.float64) ** 2).sum(axis=0).max()), loss(whole))


def fewest_bits(T: Array, B: Array, exact: Callable[[Array], bool], tried: Sequence[int]) -> Array:
    """Integers T̂·B that span what B does, T̂ near a multiple of T by as few bits as make it `exact`, or by the most."""
    found: Array | None = None
    for bits in tried:
        rounded = np.rint(T * (2**bits / np.abs(T).max())).astype(np.int64)
        if np.linalg.matrix_rank(rounded) < len(B):
            continue
        whole = _whole_product(rounded[rounded.any(axis=1)], B)
        whole //= np.gcd.reduce(whole, axis=None)
        found = whole
        if exact(whole):
            break
    if found is None:
        raise StrategyError("A factor cannot be rounded to integers: its entries are too unlike.")
    return found


def near_integers(F: Array, B: Array, A: Array, *, most: float) -> SpaceFactor:
    """The same where A spans the whole space and B is a basis of it in short rows: integers of few bits near to A."""
    C, span = A @ np.linalg.pinv(B), np.linalg.qr(B.T.astype(np.float64))[0]
    f = F @ span
    least, found = float(np.linalg.norm(np.linalg.solve((A @ span).T, f.T)) ** 2), list[SpaceFactor]()
    for bits in np.linspace(_LEAST_BITS, most, _TRIALS):
        q = 2**bits / np.abs(A).max()
        whole = _of_equal_norms(_whole_product(np.rint(q * C).astype(np.int64), B), B, q * A)
        if np.linalg.matrix_rank(whole @ span) < len(B):
            continue
        norm = float((whole.astype(np.float64) ** 2).sum(axis=0).max())
        loss = norm * float(np.linalg.norm(np.linalg.solve((whole @ span).T, f.T)) ** 2)
        found.append(SpaceFactor(Dense(frozen(whole)), norm, loss))
        if loss <= (1 + _COST) * least:
            break
    if not found:
        raise StrategyError("A factor cannot be rounded to integers: its entries are too unlike.")
    return min(found, key=lambda each: each.loss)


def _of_equal_norms(whole: Array, B: Array, A: Array) -> Array:
    """Integers near to A moved by rows of B, each at most once, while that brings squared column norms nearer to A's.

    The largest of them counts: to round without it costs 0.3 % of the error at 8 bits, with it 0.01 %.
    """
    if len(whole) * B.size > _MOST_MOVES:
        return whole
    off = (whole**2).sum(axis=0) - (A**2).sum(axis=0)
    squares = B**2
    free = np.ones((2, len(whole), len(B)), dtype=bool)
    for _ in range(len(whole) * len(B)):
        # A move by ±B_v of row k adds ±2 whole_k B_v + B_v² to the squares of the columns.
        change = np.stack([sign * 2 * whole[:, None] * B + squares for sign in (1, -1)])
        gains = np.where(free, ((off + change) ** 2).sum(axis=3) - float((off**2).sum()), 0.0)
        best = np.unravel_index(int(gains.argmin()), gains.shape)
        if gains[best] >= 0:
            break
        sign, k, v = map(int, best)
        whole[k] += B[v] if sign == 0 else -B[v]
        off, free[:, k, v] = off + change[sign, k, v], False
    return whole


def _whole_product(R: Array, B: Array) -> Array:
    """R·B of integers; by floats, which are ten times as fast, if no partial sum can be rounded."""
    if float(np.abs(R).max()) * float(np.abs(B).sum(axis=0).max()) < 2**53:
        return (R.astype(np.float64) @ B.astype(np.float64)).astype(np.int64)
    return R @ B


def triangle(A: Array) -> Array:
    """R with RᵀR = AᵀA."""
    return np.linalg.qr(A)[1]
