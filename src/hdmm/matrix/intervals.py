"""Matrices whose rows are intervals of cells: Intervals, AllIntervals and the gram matrix of the latter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.elementary import axis_sum, running_sum, sparse_along
from hdmm.matrix.matrix import Array, Matrix, count, integers, widened

_FEW = 8  # rows up to which one after the other is quicker than a sparse product: products of one range are many


@final
@dataclass(frozen=True, slots=True, eq=False)
class Intervals(Matrix):
    """Row q sums the cells lo[q] … hi[q], both included. O(n + m) per column.

    >>> Intervals(3, lo=[0, 1], hi=[2, 1]).matmat(np.array([[1], [2], [3]])).ravel()
    array([6, 2])
    """

    n: int
    lo: Array
    hi: Array

    def __init__(self, n: SupportsIndex, lo: ArrayLike, hi: ArrayLike) -> None:
        size = count(n, "n of Intervals")
        low, high = integers(lo, "lo of Intervals"), integers(hi, "hi of Intervals")
        if low.size != high.size:
            raise MatrixError(f"Intervals has {low.size} values of lo but {high.size} of hi.")
        wrong = np.flatnonzero((low < 0) | (low > high) | (high >= size))
        if wrong.size:
            q = int(wrong[0])
            raise MatrixError(
                f"Interval {q} is ({low[q]}, {high[q]}); every interval on {size} cells needs "
                f"0 <= lo <= hi < {size} (hi is included)."
            )
        for name, value in (("n", size), ("lo", low), ("hi", high)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int]:
        return self.lo.size, self.n

    def along(self, X: Array) -> Array:
        """Differences of running sums."""
        P = _running_sum_from_zero(X)
        out = np.take(P, self.hi + 1, axis=1)
        out -= np.take(P, self.lo, axis=1)
        return out

    def along_t(self, X: Array) -> Array:
        """Running sums of +1 where an interval starts and −1 past its end: one sparse product."""
        m, n = self.shape
        if m <= _FEW:
            steps = np.zeros((X.shape[0], n + 1, X.shape[2]), dtype=widened(X).dtype)
            for q, (lo, hi) in enumerate(zip(self.lo.tolist(), self.hi.tolist(), strict=True)):
                steps[:, lo] += X[:, q]
                steps[:, hi + 1] -= X[:, q]
            return running_sum(steps[:, :n])
        ends = np.stack([self.lo, self.hi + 1], axis=1).ravel()
        signs = np.tile(np.array([1, -1], dtype=np.int8), m)
        scatter = sp.csr_array((signs, ends, np.arange(0, 2 * m + 1, 2)), shape=(m, n + 1))
        return running_sum(sparse_along(scatter.T, X)[:, :n])


@final
@dataclass(frozen=True, slots=True)
class AllIntervals(Matrix):
    """All n(n+1)/2 intervals, ordered by (lo, hi), none of them stored. O(n²) per column.

    >>> AllIntervals(3).matmat(np.array([[1], [2], [3]])).ravel()
    array([1, 3, 6, 2, 5, 3])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of AllIntervals"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n * (self.n + 1) // 2, self.n

    def along(self, X: Array) -> Array:
        """Differences of running sums; all intervals with one start at a time."""
        P = _running_sum_from_zero(X)
        out = np.empty((X.shape[0], self.shape[0], X.shape[2]), dtype=P.dtype)
        row = 0
        for lo in range(self.n):
            end = row + self.n - lo
            np.subtract(P[:, lo + 1 :], P[:, lo : lo + 1], out=out[:, row:end])
            row = end
        return out

    def along_t(self, X: Array) -> Array:
        """Cell j collects the intervals with lo ≤ j ≤ hi: summed over lo for each hi, then over hi ≥ j."""
        values = widened(X)
        by_end = np.zeros((X.shape[0], self.n, X.shape[2]), dtype=values.dtype)
        out = np.empty_like(by_end)
        row = 0
        for lo in range(self.n):
            end = row + self.n - lo
            by_end[:, lo:] += values[:, row:end]
            out[:, lo : lo + 1] = axis_sum(by_end[:, lo:])
            row = end
        return out


@final
@dataclass(frozen=True, slots=True)
class AllIntervalsGram(Matrix):
    """V = AᵀA of A = AllIntervals(n): V_ij = (min(i,j)+1)·(n−max(i,j)). O(n) per column.

    V = Lᵀ((n+1)I − J)L with L = Cumulative(n) and J all ones.

    >>> AllIntervalsGram(3).matmat(np.eye(3, dtype=int))
    array([[3, 2, 1],
           [2, 4, 2],
           [1, 2, 3]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of AllIntervalsGram"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def along(self, X: Array) -> Array:
        """Lᵀ((n+1)P − ΣP) of the running sums P = LX."""
        P = running_sum(X, out=np.empty_like(X, dtype=widened(X).dtype, order="C"))
        totals = axis_sum(P)
        P *= self.n + 1
        P -= totals
        # In place: to allocate a second array takes longer than to fill it.
        return running_sum(P, backwards=True, out=P)

    def along_t(self, X: Array) -> Array:
        """The same: V is symmetric."""
        return self.along(X)


def _running_sum_from_zero(X: Array) -> Array:
    """(l, n+1, r): the sums of the first 0, 1, …, n cells."""
    values = widened(X)
    P = np.zeros((X.shape[0], X.shape[1] + 1, X.shape[2]), dtype=values.dtype)
    running_sum(values, out=P[:, 1:])
    return P
