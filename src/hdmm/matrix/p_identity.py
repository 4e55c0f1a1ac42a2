"""PIdentity: the identity with p more rows, its columns scaled to sum to one (the paper's Definition 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.exceptions import MatrixError
from hdmm.matrix.base import Array, Matrix
from hdmm.matrix.blocks import multiply_along
from hdmm.matrix.checks import frozen, numbers


@final
@dataclass(frozen=True, slots=True, eq=False)
class PIdentity(Matrix):
    """A = [I; Θ]·D, D = diag(1/s), with Θ ≥ 0 of p × n and s = 1 + Θᵀ1. O(pn) per column.

    Every column sums to 1.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(PIdentity(np.array([[1.0, 3.0]])))
    array([[0.5 , 0.  ],
           [0.  , 0.25],
           [0.5 , 0.75]])
    """

    theta: Array

    def __init__(self, theta: ArrayLike) -> None:
        array = numbers(theta, "theta of PIdentity", 2)
        if array.size and array.min() < 0:
            raise MatrixError(f"theta of PIdentity must be at least 0; its least entry is {array.min():.3g}.")
        if array.shape[1] < 1:
            raise MatrixError(f"theta of PIdentity needs at least one column; its shape is {array.shape}.")
        floats = array if array.dtype == np.float64 else frozen(array.astype(np.float64))
        object.__setattr__(self, "theta", floats)

    @property
    def shape(self) -> tuple[int, int]:
        p, n = self.theta.shape
        return n + p, n

    @property
    def scale(self) -> Array:
        """s = 1 + Θᵀ1, by which each column is divided. O(pn)."""
        return 1.0 + self.theta.sum(axis=0)

    def along(self, X: Array) -> Array:
        """[X/s; Θ(X/s)]; the identity part is never multiplied."""
        p, n = self.theta.shape
        out = np.empty((X.shape[0], n + p, X.shape[2]))
        np.divide(X, self.scale[:, None], out=out[:, :n])
        out[:, n:] = multiply_along(self.theta, out[:, :n])
        return out

    def along_t(self, X: Array) -> Array:
        """(X_I + ΘᵀX_Θ)/s."""
        n = self.theta.shape[1]
        out = multiply_along(self.theta.T, X[:, n:])
        out += X[:, :n]
        out /= self.scale[:, None]
        return out
