"""Matrix: the one abstract class of implicit linear algebra."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hdmm.base.exceptions import MatrixError

Array = NDArray[Any]


class Matrix(ABC):
    """An m × n real matrix known by what it does to vectors.

    A subclass says its shape and how it and its transpose act along the middle axis of a three-way
    array. That one verb is what a Kronecker product needs (it multiplies one axis at a time), and
    ordinary products are its special case. Everything else (gram, norms, traces) is a free function of
    `hdmm.matrix`. Integer arrays stay integers wherever the entries are integers.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    @abstractmethod
    def along(self, X: Array) -> Array:
        """A applied along the middle axis: (l, n, r) → (l, m, r)."""

    @abstractmethod
    def along_t(self, X: Array) -> Array:
        """Aᵀ applied along the middle axis: (l, m, r) → (l, n, r)."""

    @final
    def matmat(self, X: Array) -> Array:
        """A X for a 2-D array X."""
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[0] != self.shape[1]:
            raise MatrixError(
                f"A matrix of shape {self.shape} multiplies 2-D arrays with {self.shape[1]} rows, "
                f"not an array of shape {X.shape}. For one vector use A @ x."
            )
        return self.along(X[None])[0]

    @final
    def __matmul__(self, x: ArrayLike) -> Array:
        """A x for a vector, or A X for a 2-D array.

        >>> from hdmm.matrix import Ones
        >>> Ones(1, 3) @ [1, 2, 3]
        array([6])
        """
        array = np.asarray(x)
        return self.matmat(array[:, None])[:, 0] if array.ndim == 1 else self.matmat(array)

    @final
    @property
    def T(self) -> Matrix:
        """Aᵀ, not copied."""
        return self.inner if isinstance(self, Transpose) else Transpose(self)


@final
@dataclass(frozen=True, slots=True)
class Transpose(Matrix):
    """Aᵀ of a matrix A.

    >>> from hdmm.matrix import Ones
    >>> Ones(1, 3).T.shape
    (3, 1)
    """

    inner: Matrix

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.inner.shape
        return n, m

    def along(self, X: Array) -> Array:
        return self.inner.along_t(X)

    def along_t(self, X: Array) -> Array:
        return self.inner.along(X)
