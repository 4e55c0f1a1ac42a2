"""Matrix: the one abstract class of implicit linear algebra, and what the arguments of its kinds must be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import index as as_index
from typing import Any, SupportsIndex, final

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


def count(value: SupportsIndex, name: str, least: int = 1) -> int:
    """`value` as an int of at least `least`.

    >>> count(np.int64(3), "n")
    3
    """
    try:
        number = as_index(value)
    except TypeError:
        raise MatrixError(f"{name} must be an integer of at least {least}, not {value!r}.") from None
    if number < least:
        raise MatrixError(f"{name} must be at least {least}, not {number}.")
    return number


def numbers(values: ArrayLike, name: str, ndim: int) -> Array:
    """`values` as a read-only array of finite integers or floats. O(size); copies what is writable.

    >>> numbers([1, 2], "d", 1).flags.writeable
    False
    """
    array = np.asarray(values)
    if array.ndim != ndim:
        raise MatrixError(f"{name} must be a {ndim}-D array, not one of shape {array.shape}.")
    if array.dtype.kind not in "biuf":
        raise MatrixError(f"{name} must hold real numbers, not {array.dtype} values. Convert it first.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise MatrixError(f"{name} of shape {array.shape} holds NaN or infinity; every entry must be finite.")
    if array.dtype == np.uint64:  # NumPy would turn uint64 and int64 together into floats
        if array.size and int(array.max()) >= 2**63:
            raise MatrixError(f"{name} holds integers of 2^63 or more; use floats or smaller integers.")
        return frozen(array.astype(np.int64))
    if array.dtype == np.bool_:
        return frozen(array.astype(np.int8))
    return frozen(array.copy()) if array.flags.writeable else array


def frozen(array: Array) -> Array:
    """The same array, from now on read-only. O(1).

    >>> frozen(np.ones(2)).flags.writeable
    False
    """
    array.flags.writeable = False
    return array


def integers(values: ArrayLike, name: str) -> Array:
    """`values` as a read-only vector of int64. O(size).

    >>> integers([2, 0], "lo")
    array([2, 0])
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise MatrixError(f"{name} must be a 1-D array, not one of shape {array.shape}.")
    if array.size == 0:
        return frozen(np.zeros(0, dtype=np.int64))
    if array.dtype.kind not in "iu":
        raise MatrixError(f"{name} must hold integers, not {array.dtype} values.")
    if array.dtype == np.int64 and not array.flags.writeable:
        return array
    return frozen(array.astype(np.int64))


def permutation(values: ArrayLike, n: int) -> Array:
    """`values` as a permutation of 0 … n−1. O(n).

    >>> permutation([1, 0], 2)
    array([1, 0])
    """
    index = integers(values, "index")
    if index.size != n:
        raise MatrixError(f"index has {index.size} entries but the matrix has {n} columns.")
    if n and (index.min() < 0 or index.max() >= n or np.bincount(index, minlength=n).max() > 1):
        raise MatrixError(f"index must hold each of 0 … {n - 1} exactly once.")
    return index


def inverse(index: Array) -> Array:
    """The permutation that undoes `index`. O(n).

    >>> inverse(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    undo = np.empty_like(index)
    undo[index] = np.arange(index.size)
    return frozen(undo)


def widened(X: Array) -> Array:
    """X with integers narrower than 64 bits widened, so that sums do not overflow. O(size) or free.

    >>> widened(np.ones(2, dtype=np.int8)).dtype
    dtype('int64')
    """
    if X.dtype.kind in "biu" and X.dtype != np.int64:
        return X.astype(np.int64)
    return X
