"""to_dense: a matrix written out, under a cap; its rows and columns a few at a time; its few entries as a list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import reduce, singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.compose import Kron, Stack
from hdmm.matrix.elementary import Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.intervals import Intervals
from hdmm.matrix.matrix import Array, Matrix, Transpose, inverse, widened
from hdmm.matrix.nested import Forest
from hdmm.matrix.wrapped import Conjugated, Permuted, Repeated, RowScaled, Scaled

_LONGEST = 2**27  # entries of a vector: 1 GiB
_CHUNK = 2**22  # entries a chunk may have: 32 MiB, past which larger products are not faster
MOST_ENTRIES = 2**24
"""The most entries that are listed: 256 MiB."""


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


@_written.register(Permuted)
@_written.register(Repeated)
def _(A: Permuted | Repeated) -> Array:
    return _written(A.inner)[:, A.index]


@_written.register
def _(A: Conjugated) -> Array:
    return _written(A.inner)[np.ix_(A.index, A.index)]


def listed_rows(A: Matrix) -> Any | None:
    """A as a scipy.sparse.csr_array of floats; None if it has no short list of entries. O(entries).

    >>> listed_rows(Intervals(4, [0, 2], [1, 2])).toarray()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 0.]])
    """
    m, n = A.shape
    match A:
        case Eye() | Diag():
            return sp.diags_array(np.ones(n) if isinstance(A, Eye) else A.d.astype(np.float64), format="csr")
        case Dense(array) if m * n <= MOST_ENTRIES:
            return sp.csr_array(array.astype(np.float64))
        case Ones() if m * n <= MOST_ENTRIES:
            return sp.csr_array(np.ones((m, n)))
        case Sparse(csr) | Forest(_, _, csr):
            return csr.astype(np.float64)
        case Intervals(_, lo, hi):
            widths = (hi - lo + 1).astype(np.int64)
            starts = np.concatenate([[0], np.cumsum(widths)])
            if starts[-1] > MOST_ENTRIES:
                return None
            columns = np.arange(starts[-1]) + np.repeat(lo - starts[:-1], widths)
            return sp.csr_array((np.ones(len(columns)), columns, starts), shape=(m, n))
        case Scaled(c, inner) | RowScaled(c, inner):
            rows = listed_rows(inner)
            weights = np.broadcast_to(np.asarray(c, dtype=np.float64), m)
            return None if rows is None else sp.diags_array(weights) @ rows
        case Permuted(inner, index):
            rows = listed_rows(inner)
            return (
                None if rows is None else sp.csr_array((rows.data, inverse(index)[rows.indices], rows.indptr), (m, n))
            )
        case _:
            return None


def nbytes(A: Matrix) -> int:
    """Bytes of the arrays that A and its parts hold; an array held twice is counted once. O(parts).

    >>> from hdmm.matrix import Dense, Eye, Kron
    >>> D = Dense(np.ones((2, 3)))
    >>> nbytes(Kron((D, Eye(10**6), D)))
    48
    """
    sizes: dict[int, int] = {}  # by address
    todo: list[Any] = [A]
    while todo:
        part = todo.pop()
        if isinstance(part, np.ndarray):
            sizes[part.ctypes.data] = part.nbytes
        elif isinstance(part, tuple):
            todo.extend(part)
        elif sp.issparse(part):
            todo.extend((part.data, part.indices, part.indptr))
        elif isinstance(part, Matrix) and is_dataclass(part):
            todo.extend(getattr(part, f.name) for f in fields(part))
    return sum(sizes.values())
