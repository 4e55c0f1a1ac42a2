"""quadratic: wZwᵀ for every row w of a matrix, which is a query's variance when Z is a covariance."""

from __future__ import annotations

from functools import reduce, singledispatch

import numpy as np

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.checks import inverse
from hdmm.matrix.compose import Kron, Stack, Sum
from hdmm.matrix.dense import refuse_above, rows
from hdmm.matrix.elementary import Cumulative, Dense, Diag, Eye, Ones, Sparse
from hdmm.matrix.grams import conjugated
from hdmm.matrix.intervals import AllIntervals, Intervals
from hdmm.matrix.listed import listed_rows
from hdmm.matrix.matrix import Array, Matrix
from hdmm.matrix.nested import Forest
from hdmm.matrix.norms import ZERO_ONE
from hdmm.matrix.residual_matrix import Residual
from hdmm.matrix.traces import diagonal, total
from hdmm.matrix.wrapped import Gram, Permuted, RowScaled, Scaled

_TABLE = 4096  # cells per interval, of as many as these, up to which Z is gone through for intervals
_CHUNK = 2**24  # entries of a block of products: 128 MiB


def quadratic(W: Matrix, Z: Matrix) -> Array:
    """diag(W Z Wᵀ): w Z wᵀ for each of the m rows w of W, Z symmetric.

    O(n² + m) and the rows of Z, some at a time, for m intervals of which there are n²/4096 or more; linear in sums;
    else p products with W if Z = FᵀF has p rows, or m products with Z.

    >>> from hdmm.matrix import Cumulative, Diag
    >>> quadratic(Cumulative(3), Diag([1.0, 10.0, 100.0]))
    array([  1.,  11., 111.])
    """
    n = W.shape[1]
    if Z.shape != (n, n):
        raise MatrixError(f"quadratic of W of shape {W.shape} needs a Z of shape ({n}, {n}), not {Z.shape}.")
    return _by_workload(W, Z)


@singledispatch
def _by_workload(W: Matrix, Z: Matrix) -> Array:
    """Dispatch on W; if no rule knows it, the rules for Z follow."""
    return _by_middle(Z, W)


@_by_workload.register
def _(W: Stack, Z: Matrix) -> Array:
    return np.concatenate([_by_workload(B, Z) for B in W.blocks])


@_by_workload.register
def _(W: Scaled, Z: Matrix) -> Array:
    return float(W.c) ** 2 * _by_workload(W.inner, Z)


@_by_workload.register
def _(W: RowScaled, Z: Matrix) -> Array:
    return W.weights.astype(np.float64) ** 2 * _by_workload(W.inner, Z)


@_by_workload.register
def _(W: Permuted, Z: Matrix) -> Array:
    return _by_workload(W.inner, conjugated(Z, inverse(W.index)))  # (AP)Z(AP)ᵀ = A(PZPᵀ)Aᵀ


@_by_workload.register
def _(W: Eye, Z: Matrix) -> Array:
    return diagonal(Z).astype(np.float64)


@_by_workload.register
def _(W: Ones, Z: Matrix) -> Array:
    return np.full(W.m, total(Z))


@_by_workload.register(Cumulative)
@_by_workload.register(Intervals)
@_by_workload.register(AllIntervals)
def _(W: Cumulative | Intervals | AllIntervals, Z: Matrix) -> Array:
    if _is_simple(Z) or W.shape[0] * _TABLE <= W.n**2:
        return _by_middle(Z, W)
    ends, squares, out = np.arange(1, W.n + 1), np.zeros(W.n + 1), np.zeros(W.shape[0])
    starts = np.cumsum(W.n + 1 - ends)  # in all intervals, of those from each cell but the first
    carry = np.zeros(W.n)
    for at, R in rows(Z):  # with S[a, b] = Σ of Z over the first a rows and b columns, band holds its next rows
        band = R.T.cumsum(axis=1).cumsum(axis=0) + carry
        carry, numbers = band[-1], ends[at]
        squares[numbers] = band[np.arange(len(band)), numbers - 1]
        match W:
            case Cumulative():
                pass
            case Intervals(_, lo, hi):
                here = np.flatnonzero((lo >= numbers[0]) & (lo <= numbers[-1]))
                out[here] = -2 * band[lo[here] - numbers[0], hi[here]]
            case AllIntervals():
                for lo, row in zip(numbers[numbers < W.n].tolist(), band, strict=False):
                    out[starts[lo - 1] : starts[lo - 1] + W.n - lo] = -2 * row[lo:]
    match W:
        case Cumulative():
            return squares[1:]
        case Intervals(_, lo, hi):
            return out + squares[hi + 1] + squares[lo]
        case AllIntervals():
            for lo, start in zip(range(W.n), [0, *starts.tolist()], strict=False):
                out[start : start + W.n - lo] += squares[lo + 1 :] + squares[lo]
            return out


@_by_workload.register
def _(W: Kron, Z: Matrix) -> Array:
    """(⊗wᵢ)(⊗Zᵢ)(⊗wᵢ)ᵀ = Π wᵢZᵢwᵢᵀ."""
    match Z:
        case Sum(terms):
            return reduce(np.add, (_by_workload(W, B) for B in terms))
        case Scaled(c, inner):
            return c * _by_workload(W, inner)
        case Eye():
            return reduce(np.kron, (_by_workload(B, Eye(B.shape[1])) for B in W.factors))
        case Kron(factors) if [B.shape[1] for B in W.factors] == [B.shape[0] for B in factors]:
            return reduce(np.kron, map(_by_workload, W.factors, factors))
        case _:
            return _by_middle(Z, W)


@singledispatch
def _by_middle(Z: Matrix, W: Matrix) -> Array:
    """Dispatch on Z; at worst all rows of W are written out, some at a time."""
    refuse_above(W, 2**37, "in all (its rows a few at a time)")
    out = np.empty(W.shape[0])
    for at, R in rows(W):
        out[at] = np.einsum("ij,ij->j", R, Z.matmat(R))
    return out


@_by_middle.register
def _(Z: Ones, W: Matrix) -> Array:
    return W.matmat(np.ones((W.shape[1], 1)))[:, 0] ** 2


@_by_middle.register
def _(Z: Residual, W: Matrix) -> Array:
    return Z.n * _by_middle(Eye(Z.n), W) - _by_middle(Ones(Z.n, Z.n), W)


@_by_middle.register(Eye)
@_by_middle.register(Diag)
def _(Z: Eye | Diag, W: Matrix) -> Array:
    d = diagonal(Z).astype(np.float64)
    match W:
        case Dense(array):
            return array.astype(np.float64) ** 2 @ d
        case Sparse(csr):
            return csr.astype(np.float64).power(2) @ d
        case _ if isinstance(W, ZERO_ONE):
            return W.matmat(d[:, None])[:, 0]
        case _:
            return np.concatenate([np.zeros(0), *(d @ R**2 for _, R in rows(W))])


@_by_middle.register
def _(Z: Scaled, W: Matrix) -> Array:
    return Z.c * _by_middle(Z.inner, W)


@_by_middle.register
def _(Z: Sum, W: Matrix) -> Array:
    return reduce(np.add, (_by_middle(B, W) for B in Z.terms))


@_by_middle.register
def _(Z: Gram, W: Matrix) -> Array:
    """‖w Fᵀ‖² for Z = FᵀF, over some rows of F at a time so that m·(rows) stays bounded."""
    if isinstance(Z.inner, Forest) and (listed := listed_rows(W)) is not None:
        return np.asarray((listed @ Z.inner.csr.T).power(2).sum(axis=1), dtype=np.float64).ravel()
    if Z.inner.shape[0] > max(W.shape):
        return _by_middle.dispatch(Matrix)(Z, W)
    step = max(1, _CHUNK // max(1, W.shape[0]))
    out = np.zeros(W.shape[0])
    for _, R in rows(Z.inner):
        for start in range(0, R.shape[1], step):
            Y = W.matmat(R[:, start : start + step])
            out += np.einsum("ij,ij->i", Y, Y)
    return out


def _is_simple(Z: Matrix) -> bool:
    match Z:
        case Eye() | Ones() | Residual() | Diag():
            return True
        case Scaled(_, inner):
            return _is_simple(inner)
        case Sum(terms):
            return all(_is_simple(B) for B in terms)
        case _:
            return False
