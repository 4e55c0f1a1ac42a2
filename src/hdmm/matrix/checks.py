"""What an argument of a matrix must be: sizes, vectors and tables, held read-only."""

from __future__ import annotations

from operator import index as as_index
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.matrix import Array


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
