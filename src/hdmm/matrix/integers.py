"""Matrices of integers: how large their entries are, and a factor A rounded to integers Â ≈ q·A."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import singledispatch

import numpy as np

from hdmm.base.exceptions import MatrixError, StrategyError
from hdmm.matrix.compose import Kron, Stack
from hdmm.matrix.dense import to_dense
from hdmm.matrix.elementary import Cumulative, Dense, Eye, Ones, Residual, Sparse
from hdmm.matrix.extended import ExtendedDiagonal, column_scale, entries_of, refilled
from hdmm.matrix.halved import HalvedTriangle
from hdmm.matrix.intervals import AllIntervals, Intervals
from hdmm.matrix.matrix import Array, Matrix, frozen
from hdmm.matrix.nested import Forest, Haar, Nested
from hdmm.matrix.wrapped import Permuted, Repeated, RowScaled, Scaled

_SMALL = 16  # the largest q tried that may make all entries whole
_PASSES = 3  # over all entries of a column, in which a later one may take back what an earlier one did
_EQUAL = 1e-6  # of squared norms that are meant to be one
_LARGEST_DENSE = 2**27  # entries of a factor that has to be written out


def entries(A: Matrix) -> tuple[int, int]:
    """(least, largest) entry of a matrix of integers, zeros included; MatrixError if an entry is not an integer.

    >>> entries(ExtendedDiagonal(Dense([[-1, 0]]), [2, 3]))
    (-1, 3)
    """
    match A:
        case Eye() | Ones() | Cumulative() | Intervals() | AllIntervals():
            return 0, 1
        case Haar():
            return -1, 1
        case Residual(n):
            return -min(n - 1, 1), n - 1
        case Dense(array) | Nested(array) | Forest(array):
            return _extent(array)
        case Sparse(csr):
            return _extent(csr.data)
        case HalvedTriangle(_, triangles) if triangles.dtype.kind == "i":
            return A.extent
        case ExtendedDiagonal(below, d) if d is not None:
            return _hull(_extent(d), entries(below))
        case Permuted(inner, _) | Repeated(inner, _):
            return entries(inner)
        case Stack(blocks):
            return _hull(*map(entries, blocks))
        case Scaled(c, inner) if isinstance(c, int):
            return _hull(*(c * e for e in entries(inner)))
        case RowScaled(weights, inner):
            return _hull(*(w * e for w in _extent(weights) for e in entries(inner)))
        case Kron(factors):
            least, largest = 0, 1
            for pair in map(entries, factors):
                least, largest = _hull(*(a * b for a in (least, largest) for b in pair))
            return least, largest
        case _:
            raise MatrixError(f"The entries of a {type(A).__name__} are not integers. Round it first.")


def _extent(array: Array) -> tuple[int, int]:
    if array.dtype.kind == "f":
        raise MatrixError("The entries are floats. Round them to integers first.")
    return (min(int(array.min()), 0), max(int(array.max()), 0)) if array.size else (0, 0)


def _hull(*values: int | tuple[int, int]) -> tuple[int, int]:
    flat = [0, *(v for value in values for v in (value if isinstance(value, tuple) else (value,)))]
    return min(flat), max(flat)


@singledispatch
def rounded(A: Matrix, bits: int) -> tuple[Matrix, float]:
    """(Â, q): integers with Â ≈ q·A. Matrices of integers stay as they are, with q = 1.

    >>> rounded(Dense([[0.25, 0.5]]), 8)[0].array
    array([[1, 2]])
    """
    with suppress(MatrixError):
        entries(A)
        return A, 1.0
    if math.prod(A.shape) > _LARGEST_DENSE:
        raise StrategyError(
            f"A factor of shape {A.shape} ({type(A).__name__}) cannot be rounded to integers in place, and is too "
            "large to write out. Use identities with rows below (PIdentity, TreeIdentity) or 0/1 factors."
        )
    array = to_dense(A)
    largest = float(np.abs(array).max()) or 1.0
    for q in range(1, _SMALL + 1):  # hierarchies and wavelets need few levels
        exact = np.rint(q * array / largest)
        if np.allclose(exact, q * array / largest, rtol=0, atol=1e-9):
            return Dense(frozen(exact.astype(np.int64))), q / largest
    q = 2**bits / largest
    return Dense(frozen(_of_equal_norms(q * array).astype(np.int64))), q


def _of_equal_norms(exact: Array) -> Array:
    """The nearest integers; where columns have one L2 norm, a few are rounded the other way, so that they keep one.

    The sensitivity is the largest norm, so that nearest integers alone cost 0.3 to 0.6 % of the error per factor of 8
    bits; this way, 0.02 to 0.06 %. Entries whose remainders are nearest to ½ are taken first; what is 0 stays 0.
    """
    found, squares = np.rint(exact), (exact**2).sum(axis=0)
    if np.ptp(squares) > _EQUAL * squares.max():
        return found
    off, columns = (found**2).sum(axis=0) - squares, np.arange(exact.shape[1])
    both = np.floor(exact) + np.ceil(exact)
    for rows in np.tile(np.argsort(-np.abs(exact - found), axis=0, kind="stable"), (_PASSES, 1)):
        here = found[rows, columns]
        other = both[rows, columns] - here
        change = other**2 - here**2
        taken = np.abs(off + change) < np.abs(off)
        found[rows, columns] = np.where(taken, other, here)
        off += np.where(taken, change, 0.0)
    return found


@rounded.register
def _(A: Scaled, bits: int) -> tuple[Matrix, float]:
    if A.c == 0:
        raise StrategyError("A factor is 0 times a matrix, so it measures nothing. Drop the block.")
    inner, q = rounded(A.inner, bits)
    return inner, q / abs(float(A.c))  # a sign changes nothing, because answers are computed from Â itself


@rounded.register(Permuted)
@rounded.register(Repeated)
def _(A: Permuted | Repeated, bits: int) -> tuple[Matrix, float]:
    inner, q = rounded(A.inner, bits)
    return type(A)(inner, A.index), q


@rounded.register
def _(A: ExtendedDiagonal, bits: int) -> tuple[Matrix, float]:
    if A.order is None:
        return rounded.dispatch(Matrix)(A, bits)
    theta = entries_of(A.below)
    scale = column_scale(theta, A.order)
    if A.order == 1:
        diagonal, below, q = _columns(theta, scale, bits)
    else:
        q = 2.0**bits
        below = np.rint(q * theta / scale).astype(np.int64)
        diagonal = np.maximum(np.rint(q / scale), 1).astype(np.int64)
    return ExtendedDiagonal(refilled(A.below, below), diagonal), q


def _columns(theta: Array, scale: Array, bits: int) -> tuple[Array, Array, float]:
    """The diagonal and the rows below of q·[I; Θ]/s as integers; every column sums to exactly q.

    Entries with the largest remainders are rounded up and the others down, so that the sums hold; the diagonal is at
    least 1. O(np log p). If a small q makes all entries whole, as for Θ = 1, that q is used.
    """
    small = float(scale.max())
    if small <= _SMALL and (scale == small).all() and (theta == np.rint(theta)).all():
        return frozen(np.ones(scale.size, dtype=np.int64)), frozen(theta.astype(np.int64)), small
    q = 2**bits
    diagonal = np.maximum(np.rint(q / scale), 1).astype(np.int64)
    largest = theta.max(axis=0, initial=0.0)
    parts = theta / np.where(largest > 0, largest, 1.0)
    # What the diagonal leaves is divided in proportion to Θ. Each share is off by some 2⁻⁵⁰ of q, so the floors never
    # sum to more than is available, and what is missing is at most the number of remainders: what was 0 stays 0.
    shares = (q - diagonal) * (parts / np.maximum(parts.sum(axis=0), 1.0))
    below = np.floor(shares).astype(np.int64)
    missing = q - diagonal - below.sum(axis=0)
    order = np.argsort(np.argsort(below - shares, axis=0, kind="stable"), axis=0)
    below += order < missing
    return frozen(diagonal), frozen(below), float(q)
