"""to_dense: a matrix written out, under a cap; and its rows and columns a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce, singledispatch

import numpy as np

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.checks import widened
from hdmm.matrix.compose import Kron, Stack
from hdmm.matrix.elementary import Dense, Sparse
from hdmm.matrix.intervals import Intervals
from hdmm.matrix.matrix import Array, Matrix, Transpose
from hdmm.matrix.wrapped import Conjugated, Permuted, RowScaled, Scaled

_LONGEST = 2**27  # entries of a vector: 1 GiB
_CHUNK = 2**22  # entries a chunk may have: 32 MiB, past which larger products are not faster


def to_dense(A: Matrix, *, max_bytes: int = 2**30) -> Array:
    """A as an m × n array of its own; above `max_bytes` it is refused before it is allocated.

    O(mn) if the structure allows, else min(m, n) products.

    >>> from hdmm.matrix import Eye, Ones
    >>> to_dense(Kron((Eye(2), Ones(1, 2))))
    array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]])
    """
    refuse_above(A, max_bytes, "written out")
    return widened(_written(A))


def refuse_above(A: Matrix, max_bytes: int, doing: str) -> None:
    """Raise if A's m·n entries of 8 bytes are more than `max_bytes`. O(1).

    >>> refuse_above(Dense([[1]]), 100, "written out")
    """
    m, n = A.shape
    if 8 * m * n > max_bytes:
        raise MatrixError(
            f"A {type(A).__name__} of shape ({m:,}, {n:,}) would take {_human(8 * m * n)} {doing}; "
            f"the limit is {_human(max_bytes)}. Use matmat or gram, which never form it, or raise max_bytes."
        )


def refuse_long(A: Matrix, length: int, what: str) -> None:
    """Raise if a vector of that length would take more than 1 GiB. O(1).

    >>> refuse_long(Dense([[1]]), 1, "Its diagonal")
    """
    if length > _LONGEST:
        raise MatrixError(
            f"This is a {type(A).__name__} of shape {A.shape}. {what} would take {_human(8 * length)}. "
            f"Use its factors one by one."
        )


def _human(size: int) -> str:
    """A number of bytes in a unit that reads well. O(1)."""
    if size < 1000:
        return f"{size} B"
    for power, unit in enumerate(("kB", "MB", "GB", "TB", "PB"), start=1):
        if size < 1000 ** (power + 1):
            return f"{size / 1000**power:.1f} {unit}"
    return f"10^{len(str(size)) - 1} bytes"


def columns(A: Matrix) -> Iterator[tuple[slice, Array]]:
    """A's columns, some at a time: (which, an array of m rows). n products in all.

    >>> [(at.start, block.shape) for at, block in columns(Dense([[1, 2, 3], [4, 5, 6]]))]
    [(0, (2, 3))]
    """
    m, n = A.shape
    step = max(1, _CHUNK // max(1, m, n))
    for start in range(0, n, step):
        stop = min(n, start + step)
        units = np.zeros((n, stop - start))
        units[np.arange(start, stop), np.arange(stop - start)] = 1
        yield slice(start, stop), A.matmat(units)


def rows(A: Matrix) -> Iterator[tuple[slice, Array]]:
    """A's rows, some at a time: (which, an array of n rows, its transpose). m products in all.

    >>> [block.shape for _, block in rows(Dense([[1, 2, 3], [4, 5, 6]]))]
    [(3, 2)]
    """
    return columns(A.T)


@singledispatch
def _written(A: Matrix) -> Array:
    m, n = A.shape
    return A.matmat(np.eye(n)) if n <= m else A.T.matmat(np.eye(m)).T  # the smaller identity


@_written.register
def _(A: Dense) -> Array:
    return np.array(widened(A.array))


@_written.register
def _(A: Sparse) -> Array:
    return widened(A.csr.toarray())


@_written.register
def _(A: Intervals) -> Array:
    cells = np.arange(A.n)
    return ((A.lo[:, None] <= cells) & (cells <= A.hi[:, None])).astype(np.float64)


@_written.register
def _(A: Transpose) -> Array:
    return _written(A.inner).T


@_written.register
def _(A: Kron) -> Array:
    return reduce(np.kron, (_written(B) for B in A.factors))


@_written.register
def _(A: Stack) -> Array:
    return np.concatenate([_written(B) for B in A.blocks])


@_written.register
def _(A: Scaled) -> Array:
    return A.c * _written(A.inner)


@_written.register
def _(A: RowScaled) -> Array:
    return A.weights[:, None] * _written(A.inner)


@_written.register
def _(A: Permuted) -> Array:
    return _written(A.inner)[:, A.index]


@_written.register
def _(A: Conjugated) -> Array:
    return _written(A.inner)[np.ix_(A.index, A.index)]
