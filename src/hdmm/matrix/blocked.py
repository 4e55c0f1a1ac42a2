"""block_product, coarsened: the diagonal blocks of a matrix times a vector, and all blocks as one number each."""

from __future__ import annotations

from functools import lru_cache, singledispatch

import numpy as np

from hdmm.matrix.compose import Sum, linear
from hdmm.matrix.elementary import Cumulative, Dense, Diag, Eye, Ones
from hdmm.matrix.intervals import AllIntervalsGram, Intervals
from hdmm.matrix.matrix import Array, Matrix
from hdmm.matrix.wrapped import Gram, Scaled, scaled

_CHUNK = 2**22  # entries of rows multiplied at a time: 32 MiB


@linear
@singledispatch
def block_product(V: Matrix, X: Array) -> Array:
    """Row v is V_vv x_v: V's v-th diagonal block, of X's width, times row v of X. V is symmetric.

    Cells past V's n hold 0 in X; what the product holds there is undefined. O(n) for running sums, ranges and simpler
    matrices, O(n + m) for m intervals, O(width·n) for Dense, else one product with V per row.

    >>> block_product(Gram(Cumulative(4)), np.ones((2, 2)))
    array([[7., 6.],
           [3., 2.]])
    """
    n = V.shape[0]
    nodes, width = X.shape
    out = np.zeros_like(X)
    step = max(1, _CHUNK // n)
    for first in range(0, nodes, step):
        some = np.arange(first, min(nodes, first + step))
        cells = some[:, None] * width + np.arange(width)
        inside = cells < n
        rows = np.zeros((len(some), n))
        rows[np.nonzero(inside)[0], cells[inside]] = X[some][inside]
        product = V.along(rows[:, :, None])[:, :, 0]
        out[some] = np.where(inside, np.take_along_axis(product, np.minimum(cells, n - 1), axis=1), 0.0)
    return out


@block_product.register
def _(V: Eye, X: Array) -> Array:
    return X


@block_product.register
def _(V: Ones, X: Array) -> Array:
    return np.broadcast_to(X.sum(axis=1, keepdims=True), X.shape)


@block_product.register
def _(V: Diag, X: Array) -> Array:
    d = np.zeros(X.size)
    d[: V.d.size] = V.d
    return d.reshape(X.shape) * X


@block_product.register
def _(V: Dense, X: Array) -> Array:
    n = V.shape[0]
    width = X.shape[1]
    out = np.zeros(X.size)
    flat = X.reshape(-1)
    for start in range(0, n, width):
        at = slice(start, min(n, start + width))
        out[at] = V.array[at, at] @ flat[at]
    return out.reshape(X.shape)


@block_product.register
def _(V: Gram, X: Array) -> Array:
    match V.inner:
        case Cumulative():  # past its block, the running sums keep their last value
            P = np.cumsum(X, axis=1)
            return _sums_from_here(P, _cells_after(V, X) * P[:, -1])
        case Intervals():
            clipped, covers = _clipped(V.inner, X.shape[1])
            out = np.zeros(X.size)
            out[: V.shape[0]] = clipped.matmat(X.reshape(-1)[: V.shape[0], None])[:, 0]
            product = out.reshape(X.shape)
            product[: len(covers)] += (covers * X[: len(covers)].sum(axis=1))[:, None]
            return product
        case _:
            return block_product.dispatch(Matrix)(V, X)


@block_product.register
def _(V: AllIntervalsGram, X: Array) -> Array:
    """Lᵀ((n+1)P − ΣP) from the running sums P of x."""
    P = np.cumsum(X, axis=1)
    after, last = _cells_after(V, X), P[:, -1].copy()
    total = P.sum(axis=1) + after * last
    P *= V.n + 1
    P -= total[:, None]
    return _sums_from_here(P, after * ((V.n + 1) * last - total))


def coarsened(V: Matrix, width: int) -> Matrix | None:
    """V between runs of `width` cells in the place of cells, near the mean of each block; None if that is not implicit.

    Runs that queries cut in two count as if they had them whole.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(coarsened(Gram(Cumulative(6)), 2))
    array([[6., 4., 2.],
           [4., 4., 2.],
           [2., 2., 2.]])
    """
    n = -(-V.shape[0] // width)
    match V:
        case Eye():
            return scaled(1 / width, Eye(n))
        case Ones():
            return Ones(n, n)
        case Gram(Cumulative()):
            return scaled(width, Gram(Cumulative(n)))
        case Gram(Intervals() as A):
            return Gram(Intervals(n, A.lo // width, A.hi // width))
        case AllIntervalsGram():
            return scaled(width**2, AllIntervalsGram(n))
        case Scaled(c, inner):
            found = coarsened(inner, width)
            return None if found is None else scaled(c, found)
        case Sum(terms):
            each = [found for term in terms if (found := coarsened(term, width)) is not None]
            return Sum(tuple(each)) if len(each) == len(terms) else None
        case _:
            return None


@lru_cache(maxsize=64)
def _clipped(A: Intervals, width: int) -> tuple[Gram, Array]:
    """AᵀA's diagonal blocks: AᵀA of the intervals cut at the blocks, and how many intervals cover each block whole."""
    first, last = A.lo // width, A.hi // width
    split = last > first
    lo = np.concatenate([A.lo, last[split] * width])
    hi = np.concatenate([np.minimum(A.hi, (first + 1) * width - 1), A.hi[split]])
    nodes = -(-A.n // width)
    steps = np.bincount(first + 1, minlength=nodes + 1) - np.bincount(np.maximum(last, first + 1), minlength=nodes + 1)
    return Gram(Intervals(A.n, lo, hi)), np.cumsum(steps)[:nodes].astype(np.float64)


def _cells_after(V: Matrix, X: Array) -> Array:
    """How many cells follow each block; negative past V's n, which cancels the cells beyond it."""
    nodes, width = X.shape
    return V.shape[0] - width * np.arange(1.0, nodes + 1)


def _sums_from_here(P: Array, rest: Array) -> Array:
    """Σ_{i ≥ j} P_i in the block, plus the rest after it."""
    P[:, -1] += rest
    return np.cumsum(P[:, ::-1], axis=1)[:, ::-1]
