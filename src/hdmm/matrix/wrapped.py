"""Matrices made from one other: Permuted, Repeated, RowScaled, Scaled, Gram and Conjugated."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from numbers import Integral, Real
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.elementary import Cumulative, running_sum
from hdmm.matrix.matrix import Array, Matrix, integers, inverse, numbers, permutation, widened


@final
@dataclass(frozen=True, slots=True, eq=False)
class Permuted(Matrix):
    """A with its columns in another order: column j is A's column index[j]. cost(A) + O(n) per column.

    >>> from hdmm.matrix import Cumulative, to_dense
    >>> to_dense(Permuted(Cumulative(2), [1, 0]))
    array([[0., 1.],
           [1., 1.]])
    """

    inner: Matrix
    index: Array

    def __init__(self, inner: Matrix, index: ArrayLike) -> None:
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "index", permutation(index, inner.shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape

    def along(self, X: Array) -> Array:
        """A applied to the cells put back into A's order."""
        return self.inner.along(np.take(X, inverse(self.index), axis=1))

    def along_t(self, X: Array) -> Array:
        """AᵀX, its cells in the new order."""
        return np.take(self.inner.along_t(X), self.index, axis=1)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Repeated(Matrix):
    """A with its columns repeated, or left out: column j is A's column index[j]. cost(A) + O(n) per column.

    >>> from hdmm.matrix import Eye, to_dense
    >>> to_dense(Repeated(Eye(2), [0, 1, 1]))
    array([[1., 0., 0.],
           [0., 1., 1.]])
    """

    inner: Matrix
    index: Array

    def __init__(self, inner: Matrix, index: ArrayLike) -> None:
        held, n = integers(index, "index of Repeated"), inner.shape[1]
        if held.size and not 0 <= held.min() <= held.max() < n:
            raise MatrixError(f"index of Repeated must hold numbers from 0 to {n - 1}.")
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "index", held)

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape[0], self.index.size

    def along(self, X: Array) -> Array:
        """A applied to the sums over the copies of each of its columns."""
        order = np.argsort(self.index, kind="stable")
        used, starts = np.unique(self.index[order], return_index=True)
        values = widened(X)
        sums = np.zeros((X.shape[0], self.inner.shape[1], X.shape[2]), dtype=values.dtype)
        if used.size:
            sums[:, used] = np.add.reduceat(np.take(values, order, axis=1), starts, axis=1)
        return self.inner.along(sums)

    def along_t(self, X: Array) -> Array:
        """AᵀX, with a copy for each copy of a column."""
        return np.take(self.inner.along_t(X), self.index, axis=1)


@final
@dataclass(frozen=True, slots=True, eq=False)
class RowScaled(Matrix):
    """diag(weights)·A: every row times its own weight. cost(A) + O(m) per column.

    >>> from hdmm.matrix import Eye, to_dense
    >>> to_dense(RowScaled([2, 3], Eye(2)))
    array([[2., 0.],
           [0., 3.]])
    """

    weights: Array
    inner: Matrix

    def __init__(self, weights: ArrayLike, inner: Matrix) -> None:
        held = numbers(weights, "weights of RowScaled", 1)
        if held.size != inner.shape[0]:
            raise MatrixError(f"RowScaled has {held.size} weights but the matrix has {inner.shape[0]} rows.")
        object.__setattr__(self, "weights", held)
        object.__setattr__(self, "inner", inner)

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape

    def along(self, X: Array) -> Array:
        """AX, its rows weighted."""
        return widened(self.inner.along(X)) * self.weights[:, None]

    def along_t(self, X: Array) -> Array:
        """Aᵀ of the weighted X."""
        return self.inner.along_t(widened(X) * self.weights[:, None])


@final
@dataclass(frozen=True, slots=True)
class Scaled(Matrix):
    """c·A for one number c. cost(A) + O(m) per column.

    >>> from hdmm.matrix import Ones
    >>> Scaled(3, Ones(1, 2)).matmat(np.array([[1], [2]]))
    array([[9]])
    """

    c: int | float
    inner: Matrix

    def __post_init__(self) -> None:
        object.__setattr__(self, "c", _number(self.c))

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape

    def along(self, X: Array) -> Array:
        """c times AX."""
        return widened(self.inner.along(X)) * self.c

    def along_t(self, X: Array) -> Array:
        """c times AᵀX."""
        return widened(self.inner.along_t(X)) * self.c


@final
@dataclass(frozen=True, slots=True)
class Gram(Matrix):
    """AᵀA, never formed. Twice cost(A) per column.

    >>> from hdmm.matrix import Cumulative
    >>> Gram(Cumulative(2)).matmat(np.eye(2, dtype=int))
    array([[2, 1],
           [1, 1]])
    """

    inner: Matrix

    @property
    def shape(self) -> tuple[int, int]:
        n = self.inner.shape[1]
        return n, n

    def along(self, X: Array) -> Array:
        """Aᵀ(AX); running sums use one array, because to allocate a second one takes longer than to fill it."""
        if isinstance(self.inner, Cumulative):
            P = running_sum(X, out=np.empty_like(X, dtype=widened(X).dtype, order="C"))
            return running_sum(P, backwards=True, out=P)
        return self.inner.along_t(self.inner.along(X))

    def along_t(self, X: Array) -> Array:
        """The same: AᵀA is symmetric."""
        return self.along(X)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Conjugated(Matrix):
    """PᵀAP: entry (i, j) is A's entry (index[i], index[j]). cost(A) + O(n) per column.

    >>> from hdmm.matrix import AllIntervalsGram, to_dense
    >>> to_dense(Conjugated(AllIntervalsGram(3), [1, 0, 2])).diagonal()
    array([4., 3., 3.])
    """

    inner: Matrix
    index: Array

    def __init__(self, inner: Matrix, index: ArrayLike) -> None:
        if inner.shape[0] != inner.shape[1]:
            raise MatrixError(f"Conjugated takes a square matrix, not one of shape {inner.shape}.")
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "index", permutation(index, inner.shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape

    def along(self, X: Array) -> Array:
        """A applied in its own order of cells."""
        return np.take(self.inner.along(np.take(X, inverse(self.index), axis=1)), self.index, axis=1)

    def along_t(self, X: Array) -> Array:
        """Aᵀ applied in its own order of cells."""
        return np.take(self.inner.along_t(np.take(X, inverse(self.index), axis=1)), self.index, axis=1)


def scaled(c: int | float, A: Matrix) -> Matrix:
    """c·A, without a wrapper if c is 1 and with only one if A is scaled already. O(1).

    >>> from hdmm.matrix import Eye
    >>> scaled(2, Scaled(3, Eye(2)))
    Scaled(c=6, inner=Eye(n=2))
    """
    if isinstance(A, Scaled):
        return scaled(c * A.c, A.inner)
    return A if c == 1 else Scaled(c, A)


def _number(c: object) -> int | float:
    if isinstance(c, Integral):
        return int(c)
    if isinstance(c, Real) and not isinstance(c, Fraction) and isfinite(c):
        return float(c)
    raise MatrixError(f"A matrix is scaled by a finite int or float, not by {c!r}.")
