"""Norms of every row and of every column, as vectors."""

from __future__ import annotations

from functools import reduce, singledispatch
from typing import Literal

import numpy as np

from hdmm.exceptions import MatrixError
from hdmm.matrix.augmented import Augmented
from hdmm.matrix.base import Array, Matrix, Transpose
from hdmm.matrix.blocks import Cumulative, Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.compose import Kron, Stack
from hdmm.matrix.dense import columns, human, rows
from hdmm.matrix.haar import Haar
from hdmm.matrix.intervals import AllIntervals, Intervals
from hdmm.matrix.p_identity import PIdentity
from hdmm.matrix.tree import Nested, TreeIdentity
from hdmm.matrix.wrapped import Conjugated, Permuted, RowScaled, Scaled

Order = Literal[1, 2]

_LONGEST = 2**27  # entries of a vector of norms: 1 GiB

# Their entries are 0 and 1, so that |a| = a = a².
ZERO_ONE = (Eye, Ones, Cumulative, Intervals, AllIntervals)


def row_norms_squared(A: Matrix) -> Array:
    """‖a_r‖₂² of every row r, integers where A's entries are. O(m) where structured, else m products.

    >>> row_norms_squared(Cumulative(3))
    array([1, 2, 3])
    """
    _refuse_long(A, A.shape[0], "rows")
    return _row_norms(A)


def column_norms(A: Matrix, order: Order) -> Array:
    """Σ_r |a_rc| (order 1) or Σ_r a_rc² (order 2) of every column c, integers where A's entries are.

    O(n) where structured, else n products.

    >>> column_norms(Cumulative(3), 1)
    array([3, 2, 1])
    """
    if order not in (1, 2):
        raise MatrixError(f"order must be 1 (Σ|a|) or 2 (Σa²), not {order!r}.")
    _refuse_long(A, A.shape[1], "columns")
    return _column_norms(A, order)


@singledispatch
def _row_norms(A: Matrix) -> Array:
    out = np.empty(A.shape[0])
    for at, block in rows(A):
        out[at] = np.einsum("ij,ij->j", block, block)
    return out


@_row_norms.register
def _(A: Eye) -> Array:
    return np.ones(A.n, dtype=np.int64)


@_row_norms.register
def _(A: Ones) -> Array:
    return np.full(A.m, A.n)


@_row_norms.register
def _(A: Cumulative) -> Array:
    return np.arange(1, A.n + 1)


@_row_norms.register
def _(A: Intervals) -> Array:
    return A.hi - A.lo + 1


@_row_norms.register
def _(A: AllIntervals) -> Array:
    return np.concatenate([np.arange(1, A.n - lo + 1) for lo in range(A.n)])


@_row_norms.register
def _(A: Diag) -> Array:
    return _powers(A.d, 2, 1)


@_row_norms.register
def _(A: Dense) -> Array:
    return _powers(A.array, 2, A.shape[1]).sum(axis=1)


@_row_norms.register
def _(A: Sparse) -> Array:
    return _sparse_sums(A, 2, axis=1)


@_row_norms.register
def _(A: PIdentity) -> Array:
    s = A.scale
    return np.concatenate([1 / s**2, ((A.theta / s) ** 2).sum(axis=1)])


@_row_norms.register
def _(A: Nested) -> Array:
    n = A.shape[1]
    levels = zip(A.values, A.widths, strict=True)
    sums = [np.add.reduceat(_powers(b, 2, n), np.arange(0, n, width)) for b, width in levels]
    return np.concatenate([*sums, np.zeros(0, dtype=np.int64)])


@_row_norms.register
def _(A: TreeIdentity) -> Array:
    s, theta = A.scale, A.theta
    return np.concatenate([1 / s**2, _row_norms(Nested(theta.values / s, theta.widths))])


@_row_norms.register
def _(A: Augmented) -> Array:
    return np.concatenate([_powers(A.d, 2, 1), _row_norms(A.below)])


@_row_norms.register(Permuted)
@_row_norms.register(Conjugated)
def _(A: Permuted | Conjugated) -> Array:
    norms = _row_norms(A.inner)
    return norms[A.index] if isinstance(A, Conjugated) else norms


@_row_norms.register
def _(A: RowScaled) -> Array:
    return _times(_powers(A.weights, 2, 1), _row_norms(A.inner))


@_row_norms.register
def _(A: Scaled) -> Array:
    return _scaled_norms(A, _row_norms(A.inner), 2)


@_row_norms.register
def _(A: Stack) -> Array:
    return np.concatenate([_row_norms(B) for B in A.blocks])


@_row_norms.register
def _(A: Kron) -> Array:
    return reduce(_outer, (_row_norms(B) for B in A.factors))


@_row_norms.register
def _(A: Transpose) -> Array:
    return _column_norms(A.inner, 2)


@singledispatch
def _column_norms(A: Matrix, order: Order) -> Array:
    return _by_columns(A, order)


@_column_norms.register
def _(A: Eye, order: Order) -> Array:
    return np.ones(A.n, dtype=np.int64)


@_column_norms.register
def _(A: Ones, order: Order) -> Array:
    return np.full(A.n, A.m)


@_column_norms.register
def _(A: Cumulative, order: Order) -> Array:
    return np.arange(A.n, 0, -1)


@_column_norms.register
def _(A: Intervals, order: Order) -> Array:
    return A.T.matmat(np.ones((A.shape[0], 1), dtype=np.int64))[:, 0]


@_column_norms.register
def _(A: AllIntervals, order: Order) -> Array:
    return np.arange(1, A.n + 1) * np.arange(A.n, 0, -1)


@_column_norms.register
def _(A: Haar, order: Order) -> Array:
    return np.full(A.n, 1 + len(A.widths))


@_column_norms.register
def _(A: Diag, order: Order) -> Array:
    return _powers(A.d, order, 1)


@_column_norms.register
def _(A: Dense, order: Order) -> Array:
    return _powers(A.array, order, A.shape[0]).sum(axis=0)


@_column_norms.register
def _(A: Sparse, order: Order) -> Array:
    return _sparse_sums(A, order, axis=0)


@_column_norms.register
def _(A: PIdentity, order: Order) -> Array:
    if order == 1:
        return np.ones(A.shape[1])  # by construction
    return (1 + (A.theta**2).sum(axis=0)) / A.scale**2


@_column_norms.register
def _(A: Nested, order: Order) -> Array:
    return _powers(A.values, order, len(A.values)).sum(axis=0)


@_column_norms.register
def _(A: TreeIdentity, order: Order) -> Array:
    if order == A.order:
        return np.ones(A.shape[1])  # by construction
    return (1 + _column_norms(A.theta, order)) / A.scale**order


@_column_norms.register
def _(A: Augmented, order: Order) -> Array:
    return _plus(_powers(A.d, order, 1), _column_norms(A.below, order))


@_column_norms.register(Permuted)
@_column_norms.register(Conjugated)
def _(A: Permuted | Conjugated, order: Order) -> Array:
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
    return _scaled_norms(A, _column_norms(A.inner, order), order)


@_column_norms.register
def _(A: Stack, order: Order) -> Array:
    return reduce(_plus, (_column_norms(B, order) for B in A.blocks))


@_column_norms.register
def _(A: Kron, order: Order) -> Array:
    return reduce(_outer, (_column_norms(B, order) for B in A.factors))


@_column_norms.register
def _(A: Transpose, order: Order) -> Array:
    match order, A.inner:
        case 2, inner:
            return _row_norms(inner)
        case 1, Dense():
            return _powers(A.inner.array.T, 1, A.shape[0]).sum(axis=0)
        case 1, Sparse():
            return _sparse_sums(A.inner, 1, axis=1)
        case 1, inner if isinstance(inner, ZERO_ONE):
            return _row_norms(inner)
        case _:
            return _by_columns(A, order)


def _by_columns(A: Matrix, order: Order) -> Array:
    out = np.empty(A.shape[1])
    for at, block in columns(A):
        out[at] = (np.abs(block) if order == 1 else block**2).sum(axis=0)
    return out


def _refuse_long(A: Matrix, length: int, what: str) -> None:
    if length > _LONGEST:
        raise MatrixError(
            f"A {type(A).__name__} has {length:,} {what}; their norms would take {human(8 * length)}. "
            f"For the largest column norm use column_norm, which never lists them."
        )


def _is_integer(*arrays: Array) -> bool:
    return all(a.dtype.kind in "iuO" for a in arrays)


def _largest(a: Array) -> int:
    """max |a| of integers, as a Python int (int64's least value has no positive twin)."""
    return max(int(a.max()), -int(a.min())) if a.size else 0


def _powers(a: Array, order: Order, terms: int) -> Array:
    """|a| or a², integers exact: as Python ints where `terms` of them could pass 2^63. O(size)."""
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


def _scaled_norms(A: Scaled, norms: Array, order: Order) -> Array:
    c = abs(A.c) ** order
    if isinstance(c, int) and _is_integer(norms):
        return norms * c if c * max(1, _largest(norms)) < 2**63 else norms.astype(object) * c
    return norms.astype(np.float64) * float(c)


def _sparse_sums(A: Sparse, order: Order, axis: int) -> Array:
    m, n = A.shape
    values = _powers(A.csr.data, order, max(m, n))
    where = A.csr.indices if axis == 0 else np.repeat(np.arange(m), np.diff(A.csr.indptr))
    sums = np.zeros(n if axis == 0 else m, dtype=values.dtype)
    np.add.at(sums, where, values)
    return sums
