"""Augmented: a diagonal with more rows below it, which is what p-Identity matrices are after rounding to integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.exceptions import MatrixError
from hdmm.matrix.base import Array, Matrix
from hdmm.matrix.checks import numbers, widened


@final
@dataclass(frozen=True, slots=True, eq=False)
class Augmented(Matrix):
    """A = [diag(d); B] with d > 0, so of full column rank. O(n) and cost(B) per column; integers stay integers.

    >>> from hdmm.matrix import Dense, to_dense
    >>> to_dense(Augmented([2, 3], Dense([[1, 0]])))
    array([[2., 0.],
           [0., 3.],
           [1., 0.]])
    """

    d: Array
    below: Matrix

    def __init__(self, d: ArrayLike, below: Matrix) -> None:
        held = numbers(d, "d of Augmented", 1)
        if held.size != below.shape[1]:
            raise MatrixError(f"Augmented has {held.size} on its diagonal but {below.shape[1]} columns below it.")
        if held.size < 1 or not held.min() > 0:
            raise MatrixError("The diagonal of Augmented must be above 0, and of at least one entry.")
        object.__setattr__(self, "d", held)
        object.__setattr__(self, "below", below)

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.below.shape
        return m + n, n

    def along(self, X: Array) -> Array:
        """[dX; BX]."""
        X, n = widened(X), self.d.size
        below = self.below.along(X)
        out = np.empty((X.shape[0], n + below.shape[1], X.shape[2]), dtype=np.result_type(X, self.d, below))
        np.multiply(X, self.d[:, None], out=out[:, :n])
        out[:, n:] = below
        return out

    def along_t(self, X: Array) -> Array:
        """dX_I + BᵀX_B."""
        n = self.d.size
        rest = self.below.along_t(X[:, n:])
        out = widened(X[:, :n]) * self.d[:, None]
        return np.add(out, rest, out=out) if out.dtype == np.result_type(out, rest) else out + rest
