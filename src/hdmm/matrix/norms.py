"""column_norms: the norm of every column, as a vector."""

from __future__ import annotations

from functools import reduce, singledispatch
from typing import Literal

import numpy as np

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.compose import Kron, Stack
from hdmm.matrix.dense import columns, refuse_above, refuse_long
from hdmm.matrix.elementary import Cumulative, Dense, Eye, Ones, Residual, Sparse
from hdmm.matrix.extended import ExtendedDiagonal
from hdmm.matrix.halved import HalvedTriangle
from hdmm.matrix.intervals import AllIntervals, Intervals
from hdmm.matrix.matrix import Array, Matrix, Transpose
from hdmm.matrix.nested import Forest, Haar, Nested
from hdmm.matrix.wrapped import Permuted, Repeated, RowScaled, Scaled

Order = Literal[1, 2]

# Their entries are 0 and 1, so that |a| = a = a².
ZERO_ONE = (Eye, Ones, Cumulative, Intervals, AllIntervals)


def column_norms(A: Matrix, order: Order) -> Array:
    """Σ_r |a_rc| (order 1) or Σ_r a_rc² (order 2) of every column c; integers if A's entries are integers.

    O(n) if structured, else n products.

    >>> column_norms(Cumulative(3), 1)
    array([3, 2, 1])
    """
    if order not in (1, 2):
        raise MatrixError(f"order must be 1 (Σ|a|) or 2 (Σa²), not {order!r}.")
    refuse_long(A, A.shape[1], "The norms of its columns")
    return _column_norms(A, order)


@singledispatch
def _column_norms(A: Matrix, order: Order) -> Array:
    return _by_columns(A, order)


@_column_norms.register
def _(A: Ones, order: Order) -> Array:
    return np.full(A.n, A.m)


@_column_norms.register(Eye)
@_column_norms.register(Cumulative)
@_column_norms.register(Intervals)
def _(A: Matrix, order: Order) -> Array:
    return A.T.matmat(np.ones((A.shape[0], 1), dtype=np.int64))[:, 0]


@_column_norms.register
def _(A: AllIntervals, order: Order) -> Array:
    return np.arange(1, A.n + 1) * np.arange(A.n, 0, -1)


@_column_norms.register
def _(A: Haar, order: Order) -> Array:
    return np.full(A.n, 1 + len(A.widths))


@_column_norms.register
def _(A: Residual, order: Order) -> Array:
    return np.full(A.n, (2 if order == 1 else A.n) * (A.n - 1))


@_column_norms.register
def _(A: Dense, order: Order) -> Array:
    return _powers(A.array, order, A.shape[0]).sum(axis=0)


@_column_norms.register
def _(A: Sparse, order: Order) -> Array:
    values = _powers(A.entries, order, A.shape[0])
    sums = np.zeros(A.shape[1], dtype=values.dtype)
    np.add.at(sums, A.columns, values)
    return sums


@_column_norms.register(Nested)
@_column_norms.register(Forest)
def _(A: Nested | Forest, order: Order) -> Array:
    return _powers(A.values, order, len(A.values)).sum(axis=0)


@_column_norms.register
def _(A: HalvedTriangle, order: Order) -> Array:
    if order == 2 or A.left.dtype.kind == "f":
        return A.squared_columns if order == 2 else _by_columns(A, order)
    refuse_above(A, 2**30, "for its norms of order 1")
    kind = np.int64 if max(map(abs, A.extent)) < 2**63 else object  # entries are products of numbers of 64 bits
    return _exact_sum(np.abs(A.matmat(np.eye(A.n, dtype=kind))), axis=0)


@_column_norms.register
def _(A: ExtendedDiagonal, order: Order) -> Array:
    if order == A.order:
        return np.ones(A.shape[1])  # by construction
    return _plus(_powers(A.diagonal, order, 1), _column_norms(A.rows, order))


@_column_norms.register(Permuted)
@_column_norms.register(Repeated)
def _(A: Permuted | Repeated, order: Order) -> Array:
    return _column_norms(A.inner, order)[A.index]


@_column_norms.register
def _(A: RowScaled, order: Order) -> Array:
    weights = _powers(A.weights, order, A.shape[0])
    if isinstance(A.inner, ZERO_ONE) and weights.dtype != np.dtype(object):
        return A.inner.T.matmat(weights[:, None])[:, 0]
    if isinstance(A.inner, Dense):
        return _exact_sum(_times(weights[:, None], _powers(A.inner.array, order, 1)), axis=0)
    return _by_columns(A, order)


@_column_norms.register
def _(A: Scaled, order: Order) -> Array:
    norms, c = _column_norms(A.inner, order), abs(A.c) ** order
    if isinstance(c, int) and _is_integer(norms):
        return norms * c if c * max(1, _largest(norms)) < 2**63 else norms.astype(object) * c
    return norms.astype(np.float64) * float(c)


@_column_norms.register
def _(A: Stack, order: Order) -> Array:
    return reduce(_plus, (_column_norms(B, order) for B in A.blocks))


@_column_norms.register
def _(A: Kron, order: Order) -> Array:
    return reduce(_outer, (_column_norms(B, order) for B in A.factors))


@_column_norms.register
def _(A: Transpose, order: Order) -> Array:
    match A.inner:
        case Dense(array):
            return _column_norms(Dense(array.T), order)
        case Sparse(csr):
            return _column_norms(Sparse(csr.T), order)
        case HalvedTriangle() as inner if order == 2:
            return inner.squared_rows()
        case inner if isinstance(inner, ZERO_ONE):
            return inner.matmat(np.ones((A.shape[0], 1), dtype=np.int64))[:, 0]
        case _:
            return _by_columns(A, order)


def _by_columns(A: Matrix, order: Order) -> Array:
    out = np.empty(A.shape[1])
    for at, block in columns(A):
        out[at] = (np.abs(block) if order == 1 else block**2).sum(axis=0)
    return out


def _is_integer(*arrays: Array) -> bool:
    return all(a.dtype.kind in "iuO" for a in arrays)


def _largest(a: Array) -> int:
    """max |a| of integers, as a Python int (int64's least value has no positive twin)."""
    return max(int(a.max()), -int(a.min())) if a.size else 0


def _powers(a: Array, order: Order, terms: int) -> Array:
    """|a| or a², integers exact: as Python ints if `terms` of them could pass 2^63. O(size)."""
    if a.dtype.kind == "f":
        return np.abs(a) if order == 1 else a**2
    wide = a.astype(object if _largest(a) ** order * max(1, terms) >= 2**63 else np.int64)
    return np.abs(wide) if order == 1 else wide**2


def _times(a: Array, b: Array) -> Array:
    """a·b elementwise, integers exact."""
    if _is_integer(a, b) and _largest(a) * _largest(b) >= 2**63:
        return a.astype(object) * b.astype(object)
    return a * b


def _plus(a: Array, b: Array) -> Array:
    """a + b elementwise, integers exact."""
    if _is_integer(a, b) and _largest(a) + _largest(b) >= 2**63:
        return a.astype(object) + b.astype(object)
    return a + b


def _outer(a: Array, b: Array) -> Array:
    return _times(a[:, None], b[None, :]).ravel()


def _exact_sum(a: Array, axis: int) -> Array:
    if _is_integer(a) and _largest(a) * max(1, a.shape[axis]) >= 2**63:
        return a.astype(object).sum(axis=axis)
    return a.sum(axis=axis)
