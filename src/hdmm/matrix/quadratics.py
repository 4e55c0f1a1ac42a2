"""quadratic: wZwᵀ for every row w of a matrix, a query's variance when Z is a covariance; trace_product: tr(AB)."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, singledispatch
from math import prod
from typing import Any

import numpy as np

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.blocked import block_product
from hdmm.matrix.compose import Kron, Stack, Sum, linear
from hdmm.matrix.dense import columns, listed_rows, refuse_above, rows
from hdmm.matrix.elementary import Cumulative, Dense, Diag, Eye, Ones, Residual, Sparse
from hdmm.matrix.grams import conjugated
from hdmm.matrix.halved import HalvedTriangle
from hdmm.matrix.intervals import AllIntervals, AllIntervalsGram, Intervals
from hdmm.matrix.matrix import Array, Matrix, Transpose, frozen, inverse
from hdmm.matrix.nested import Forest, Nested, by_node, padded
from hdmm.matrix.norms import ZERO_ONE
from hdmm.matrix.traces import diagonal, total, trace
from hdmm.matrix.wrapped import Conjugated, Gram, Permuted, RowScaled, Scaled

_TABLE = 4096  # cells per interval, of as many as these, up to which Z is gone through for intervals
_CHUNK = 2**24  # entries of a block of products: 128 MiB
_LARGEST = 2**17  # cells up to which the n products of the general rule are worth waiting for


def quadratic(W: Matrix, Z: Matrix) -> Array:
    """diag(W Z Wᵀ): w Z wᵀ for each of the m rows w of W, Z symmetric.

    O(n² + m) and the rows of Z, some at a time, for m intervals, m at least n²/4096; linear in sums;
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
    if isinstance(W, Cumulative) and isinstance(Z, Gram) and (B := _triangle(Z)) is not None:
        return B.squared_rows(sums=True)
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


@linear
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


def _triangle(Z: Gram) -> HalvedTriangle | None:
    """B, where Z is BBᵀ."""
    return Z.inner.inner if isinstance(Z.inner, Transpose) and isinstance(Z.inner.inner, HalvedTriangle) else None


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


def trace_product(A: Matrix, B: Matrix) -> float:
    """tr(AB) = Σ_ij a_ij b_ji of two n × n matrices; symmetric in its arguments.

    Linear in sums, factor by factor for two Krons; p products for AᵀA of p rows; at worst n products.

    >>> from hdmm.matrix import AllIntervals, gram
    >>> trace_product(Kron((Eye(3), Ones(2, 2))), Kron((gram(AllIntervals(3)), Eye(2))))
    20.0
    """
    if A.shape != B.shape or A.shape[0] != A.shape[1]:
        raise MatrixError(f"trace_product takes two square matrices of one size, not {A.shape} and {B.shape}.")
    for kind, rule in _RULES:  # the first rule that knows one of the matrices; tr(AB) = tr(BA)
        for first, second in ((A, B), (B, A)):
            value = rule(first, second) if isinstance(first, kind) else None
            if value is not None:
                return float(value)
    return _by_columns(A, B)


def _scaled(A: Scaled, B: Matrix) -> float:
    return A.c * trace_product(A.inner, B)


def _sum(A: Sum, B: Matrix) -> float:
    return sum(trace_product(term, B) for term in A.terms)


def _eye(A: Eye, B: Matrix) -> float:
    return trace(B)


def _ones(A: Ones, B: Matrix) -> float:
    return total(B)


def _diag(A: Diag, B: Matrix) -> float:
    return float(A.d.astype(np.float64) @ diagonal(B))


def _conjugated(A: Conjugated, B: Matrix) -> float | None:
    """tr(PᵀGP·QᵀHQ) = tr(G·(QPᵀ)ᵀH(QPᵀ))."""
    if not isinstance(B, Conjugated):
        return None
    if np.array_equal(A.index, B.index):
        return trace_product(A.inner, B.inner)
    return trace_product(A.inner, conjugated(B.inner, frozen(B.index[inverse(A.index)])))


def _residual(A: Residual, B: Matrix) -> float:
    return A.n * trace(B) - total(B)


def _kron(A: Kron, B: Matrix) -> float | None:
    """tr((⊗Aᵢ)(⊗Bᵢ)) = Π tr(AᵢBᵢ)."""
    if not isinstance(B, Kron) or [C.shape for C in A.factors] != [C.shape for C in B.factors]:
        return None
    if any(m != n for m, n in (C.shape for C in A.factors)):
        return None
    return prod(trace_product(C, D) for C, D in zip(A.factors, B.factors, strict=True))


def _nested(A: Gram, B: Matrix) -> float | None:
    """Σ over the nodes v of x_vᵀBx_v, one block product per level: O(nL) if B is of running sums or ranges."""
    F = A.inner
    if not isinstance(F, Nested):
        return None
    values = padded(F.values, F.widths)
    levels = zip(values, F.widths, strict=True)
    return sum(float(np.vdot(by_node(x, w), block_product(B, by_node(x, w)))) for x, w in levels)


def _forest(A: Gram, B: Matrix) -> float | None:
    """‖WFᵀ‖²_F for B = WᵀW, by the entries of both: O(nL) if W has disjoint rows."""
    if not isinstance(A.inner, Forest) or not isinstance(B, Gram) or (rows := listed_rows(B.inner)) is None:
        return None
    return float((rows @ A.inner.csr.T).power(2).sum())


def _halved(A: Gram, B: Matrix) -> float | None:
    """‖PF‖²_F for prefixes P; with S for the sums of columns of PF, all ranges have n + 1 times that less ‖S‖²."""
    F = _triangle(A)
    match B:
        case Gram(Cumulative()) if F is not None:
            return float(F.squared_rows(sums=True).sum())
        case AllIntervalsGram(n) if F is not None:
            S = F.T @ np.arange(n, 0, -1.0)
            return (n + 1) * float(F.squared_rows(sums=True).sum()) - float(S @ S)
        case _:
            return None


def _gram(A: Gram, B: Matrix) -> float | None:
    """tr(FᵀF·B) = Σ_r f_r B f_rᵀ over the rows of F; with B = GᵀG it is ‖G Fᵀ‖²_F."""
    F = A.inner
    if F.shape[0] > F.shape[1]:
        return None
    if isinstance(B, Gram):
        if B.inner.shape[0] < F.shape[0]:
            return None  # the other way round has fewer rows to go through
        return sum(float(np.sum(B.inner.matmat(R) ** 2)) for _, R in rows(F))
    return sum(float(np.sum(R * B.matmat(R))) for _, R in rows(F))


def _dense(A: Dense, B: Matrix) -> float:
    if isinstance(B, Dense):
        return float(np.vdot(A.array.astype(np.float64, copy=False), B.array.T))
    return float(np.trace(B.matmat(A.array)))


def _by_columns(A: Matrix, B: Matrix) -> float:
    n = A.shape[0]
    if n > _LARGEST:
        raise MatrixError(
            f"tr(AB) of a {type(A).__name__} and a {type(B).__name__} with {n:,} cells has no structured "
            f"rule and would take {n:,} products. Write both as (sums of) Krons over the same attributes."
        )
    return sum(float(np.trace(A.matmat(block)[at])) for at, block in columns(B))


_RULES: tuple[tuple[type[Matrix], Callable[[Any, Matrix], float | None]], ...] = (
    (Scaled, _scaled),
    (Sum, _sum),
    (Eye, _eye),
    (Ones, _ones),
    (Residual, _residual),
    (Diag, _diag),
    (Conjugated, _conjugated),
    (Kron, _kron),
    (Gram, _nested),
    (Gram, _forest),
    (Gram, _halved),
    (Gram, _gram),
    (Dense, _dense),
)
