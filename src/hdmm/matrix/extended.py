"""ExtendedDiagonal: a diagonal with rows below it, as p-Identity matrices are, on trees too and rounded to integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, SupportsIndex, final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.elementary import Dense
from hdmm.matrix.matrix import Array, Matrix, frozen, numbers, widened
from hdmm.matrix.nested import Forest, Nested


@final
@dataclass(frozen=True, slots=True, eq=False)
class ExtendedDiagonal(Matrix):
    """[diag(d); B] with d > 0; or, for an order 1 or 2, [I; B] with B ≥ 0 and every column divided by its norm.

    B is Dense, Nested or Forest, and the columns of A are independent. O(n) and cost(B) per column; integers stay so.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(ExtendedDiagonal(Dense([[1, 0]]), [2, 3]))
    array([[2., 0.],
           [0., 3.],
           [1., 0.]])
    """

    below: Dense | Nested | Forest
    d: Array | None
    order: Literal[1, 2] | None
    diagonal: Array = field(repr=False)

    def __init__(self, below: Matrix, d: ArrayLike | None = None, *, order: Literal[1, 2] | None = None) -> None:
        if not isinstance(below, Dense | Nested | Forest):
            raise MatrixError(f"The rows below a diagonal are Dense, Nested or Forest, not {type(below).__name__}.")
        if (d is None) == (order is None) or order not in (None, 1, 2):
            raise MatrixError(
                f"The order is {order!r}. Give a diagonal, or an order of 1 (the L1 norm) or 2 (the L2 norm)."
            )
        if d is None:
            below = refilled(below, entries_of(below).astype(np.float64, copy=False))
            least = entries_of(below).min(initial=0.0)
            if least < 0:
                raise MatrixError(f"Rows below an identity must be at least 0; their least entry is {least:.3g}.")
            diagonal = frozen(1.0 / column_scale(entries_of(below), order or 1))
        else:
            d = diagonal = numbers(d, "The diagonal above rows", 1)
        if diagonal.size != below.shape[1]:
            raise MatrixError(
                f"There are {diagonal.size} entries on a diagonal with {below.shape[1]} columns below it."
            )
        if diagonal.size < 1 or not diagonal.min() > 0:
            raise MatrixError("A diagonal with rows below must have at least one column, and entries above 0.")
        for name, value in (("below", below), ("d", d), ("order", order), ("diagonal", diagonal)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.below.shape
        return m + n, n

    @property
    def rows(self) -> Dense | Nested | Forest:
        """What A has below its diagonal."""
        return self.below if self.order is None else refilled(self.below, entries_of(self.below) * self.diagonal)

    @property
    def theta(self) -> Dense | Nested | Forest:
        """Θ, where A is [I; Θ] times its diagonal."""
        return refilled(self.below, entries_of(self.below) / self.diagonal) if self.order is None else self.below

    def along(self, X: Array) -> Array:
        """[dX; BX], or [X; BX] of X times the diagonal."""
        X, n = widened(X), self.diagonal.size
        kind = np.result_type(X, self.diagonal, entries_of(self.below))
        out = np.empty((X.shape[0], self.shape[0], X.shape[2]), dtype=kind)
        np.multiply(X, self.diagonal[:, None], out=out[:, :n])
        out[:, n:] = self.below.along(X if self.order is None else out[:, :n])
        return out

    def along_t(self, X: Array) -> Array:
        """dX_I + BᵀX_B, or X_I + BᵀX_B times the diagonal."""
        n = self.diagonal.size
        out = self.below.along_t(X[:, n:])
        if self.order is None:
            return out + widened(X[:, :n]) * self.diagonal[:, None]
        out += X[:, :n]
        out *= self.diagonal[:, None]
        return out


def PIdentity(theta: ArrayLike) -> ExtendedDiagonal:
    """[I; Θ]·D, D = diag(1/s), with Θ ≥ 0 of p × n and s = 1 + Θᵀ1 (the paper's Definition 9). O(pn) per column.

    Every column sums to 1.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(PIdentity(np.array([[1.0, 3.0]])))
    array([[0.5 , 0.  ],
           [0.  , 0.25],
           [0.5 , 0.75]])
    """
    return ExtendedDiagonal(Dense(numbers(theta, "theta of PIdentity", 2)), order=1)


def TreeIdentity(weights: ArrayLike, widths: Sequence[SupportsIndex], *, order: Literal[1, 2] = 1) -> ExtendedDiagonal:
    """[I; Θ]·D, D = diag(1/s), with Θ ≥ 0 supported on the nodes of a tree. O(nL) per column.

    A p-Identity matrix that holds L·n numbers instead of Θ's p·n. Every column has norm 1: the L1 norm with
    order 1 (s = 1 + Θᵀ1), the L2 norm with order 2 (s² = 1 + the column's squares).

    >>> from hdmm.matrix import to_dense
    >>> to_dense(TreeIdentity([[1.0, 3.0]], widths=[2]))
    array([[0.5 , 0.  ],
           [0.  , 0.25],
           [0.5 , 0.75]])
    """
    return ExtendedDiagonal(Nested(numbers(weights, "weights of TreeIdentity", 2), widths), order=order)


def entries_of(B: Dense | Nested | Forest) -> Array:
    """The numbers that the rows hold, each in its own column."""
    return B.array if isinstance(B, Dense) else B.values


def refilled(B: Dense | Nested | Forest, entries: Array) -> Dense | Nested | Forest:
    """Rows of the same shape and support with other numbers."""
    if isinstance(B, Dense):
        return Dense(frozen(entries))
    return Nested(frozen(entries), B.widths) if isinstance(B, Nested) else Forest(frozen(entries), B.nodes)


def column_scale(entries: Array, order: Literal[1, 2]) -> Array:
    """The norms of the columns of [I; Θ]: 1 + Σθ or √(1 + Σθ²). O(size).

    >>> column_scale(np.array([[3.0], [4.0]]), 1)
    array([8.])
    """
    return 1.0 + entries.sum(axis=0) if order == 1 else np.sqrt(1.0 + (entries**2).sum(axis=0))
