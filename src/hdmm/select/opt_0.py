"""OPT_0: the best p-Identity matrix for one attribute (Section 5.2 of the paper), by its workload's gram matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.matrix import (
    Array,
    Dense,
    ExtendedDiagonal,
    Eye,
    Matrix,
    Ones,
    Permuted,
    PIdentity,
    Scaled,
    diagonal,
    exchangeable,
    total,
    trace,
)
from hdmm.matrix.checks import inverse
from hdmm.matrix.grams import conjugated
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import LARGEST, Implicit
from hdmm.select.forest import nested_groups, optimize_forest
from hdmm.select.gaussian_optimum import eigen_seconds, gaussian_optimum
from hdmm.select.minimize import minimize, minimize_projected
from hdmm.select.search import Search
from hdmm.select.starts import (
    FEW,
    Start,
    cell_order,
    grid_rows,
    merged_sizes,
    portfolio,
    random_rows,
    tree_portfolio,
    tree_rows,
    varied,
)
from hdmm.select.theta import DenseTheta, WindowedTheta, Windows, theta_of
from hdmm.select.tree import optimize_tree, tree_widths

_DENSE = 8192  # cells beyond which Θ is supported on the nodes of its tree
_SMALL = 64  # cells up to which one restart tries several starts: they take milliseconds
MAX_EIGEN = 4096  # cells past which the Gaussian optimum, O(n³) per step, gives way to a tree
_ON_DEVICE = 4096  # cells from which a GPU, if there is one, is faster than the processor
_TOLERANCE = 1e-6  # at 1024 cells; steps get dearer with n faster than their gains get smaller
_SAME = 1e-12  # of the trace of V: what may be rounding


def opt_0(V: Matrix, search: Search, noise: Noise = Noise.LAPLACE) -> Matrix:
    """A matrix A with columns of norm 1 that makes tr((AᵀA)⁻¹V) small: one start of a portfolio (Problem 2).

    Restarts number the starts, and the one that wins most often comes first. Progress gets the loss relative to the
    identity's. The result is never worse than the identity, which is returned if nothing beats it, and always supports
    V. If V is made of nested groups of cells, the extra rows are these groups. Else, up to 8192 cells Θ is dense, or
    local to a tree's nodes and their neighbours; beyond, it is supported on the nodes of a tree. With Gaussian noise
    the optimum is unique up to 4096 cells, and restarts change nothing.

    >>> from hdmm.matrix import AllIntervalsGram, trace_product, gram_inverse
    >>> from hdmm.select.search import first_search
    >>> A = opt_0(AllIntervalsGram(32), first_search())
    >>> trace_product(gram_inverse(A), AllIntervalsGram(32)) < 0.95 * trace(AllIntervalsGram(32))
    True
    """
    n = _checked_size(V, search.restart)
    if isinstance(V, Scaled) and V.c > 0:
        V = V.inner  # scaling a workload must not change the strategy, not even by rounding
    whole = trace(V)
    if n == 1 or not whole > 0:
        return Eye(n)
    if whole - total(V) / n <= _SAME * whole:  # V = c·11ᵀ
        return Ones(1, n)
    if noise is Noise.GAUSSIAN and exchangeable(V) and total(V) >= whole:
        return _even_optimum(V)
    if noise is Noise.GAUSSIAN and n <= MAX_EIGEN and search.affords(eigen_seconds(n)):
        return gaussian_optimum(V, search).A
    search = search.rescaled(1 / whole)
    on_tree = noise is Noise.GAUSSIAN or n > _DENSE
    best: tuple[float, Matrix] = (whole * (1 - 1e-9), Eye(n))
    start = tree_portfolio(n, search.restart, noise) if on_tree else portfolio(V, search.restart)
    groups = None if exchangeable(V) else nested_groups(V)
    found: Iterable[tuple[float, Matrix]] = ()
    if groups is not None:  # on few cells other rows are tried, too, because descents end in different minima
        found = optimize_forest(groups, search, order=noise.order, spread=max(start.spread, 1e-3))
    if groups is None or n <= FEW:
        found = chain(found, _candidates(V, start, noise, search))
    for loss, A in found:
        if loss < best[0]:
            best = loss, A
        if search.late:
            break
    return best[1]


def _even_optimum(V: Matrix) -> Matrix:
    """[I; t·1ᵀ] with columns of L2 norm 1, whose gram has the roots of the eigenvalues of V = aI + b11ᵀ: the optimum.

    These are 1 + nt² on 1 and 1 on its complement, so that 1 + nt² = √(1 + bn/a).
    """
    n = V.shape[0]
    rest = (trace(V) - total(V) / n) / (n - 1)
    t = math.sqrt(max(math.sqrt(total(V) / n / rest) - 1, 0.0) / n)
    return ExtendedDiagonal(Dense(np.full((1, n), t)), order=2) if t > 0 else Eye(n)


def _candidates(V: Matrix, start: Start, noise: Noise, search: Search) -> Iterator[tuple[float, Matrix]]:
    """(loss, matrix) of one restart: one candidate, or several if they are cheap."""
    n = V.shape[0]
    if noise is Noise.GAUSSIAN or n > _DENSE:
        yield _in_order(V, lambda U: _tree(U, start, noise, search))
    elif exchangeable(V):
        yield _uniform(V)
    elif n <= _SMALL:
        for branching, weight in [(b, w) for b, w in ((16, 1.0), (8, 0.7), (4, 0.5), (2, 0.3)) if b < n] or [(n, 0.3)]:
            theta = varied(weight * tree_rows(n, tree_widths(n, branching)), start.spread, search.rng)
            yield _in_order(V, lambda U, theta=theta: _dense(U, theta, search))
        yield _dense(V, random_rows(max(1, n // (2, 4, 8)[start.size % 3]), n, search.rng), search)
    elif start.kind == "random":
        yield _dense(V, random_rows(start.size, n, search.rng), search)
    elif start.kind == "grid":
        # Starting at ones, the first fifty steps over 64² ranges would only make them smaller.
        rows = 0.5 * grid_rows(merged_sizes(V) or (n,), start.size)
        yield _dense(V, varied(rows, start.spread, search.rng), search)
    elif n <= FEW:
        theta = varied(tree_rows(n, tree_widths(n, start.size)), start.spread, search.rng)
        yield _in_order(V, lambda U: _dense(U, theta, search))
    else:
        yield _in_order(V, lambda U: _windowed(U, start, search))


def _in_order(V: Matrix, optimize: Callable[[Matrix], tuple[float, Matrix]]) -> tuple[float, Matrix]:
    """The result of `optimize`, with cells in spectral order if their own order scatters what queries ask together."""
    if merged_sizes(V) is not None:
        return optimize(V)
    order = cell_order(V)
    if (np.diff(order) == 1).all():
        return optimize(V)
    loss, A = optimize(conjugated(V, order))
    back = inverse(order)
    theta = theta_of(A)
    return loss, Permuted(A, back) if theta is None else PIdentity(theta[:, back])


def _uniform(V: Matrix) -> tuple[float, Matrix]:
    """The best single row, which is constant: C(t) = (1+t)²(tr V − t²·1ᵀV1/(1 + nt²)), searched on a line."""
    n = V.shape[0]
    t = np.geomspace(1e-3, LARGEST, 6001)  # steps of 0.2 %: within 1e-6 of the least C
    losses = (1 + t) ** 2 * (trace(V) - t**2 * total(V) / (1 + n * t**2))
    best = int(np.argmin(losses))
    return float(losses[best]), PIdentity(np.full((1, n), t[best]))


def _dense(V: Matrix, start: Array, search: Search) -> tuple[float, Matrix]:
    tolerance = max(1e-7, _TOLERANCE * V.shape[0] / 4096)
    return _descended(DenseTheta(start), V, start, search, tolerance=tolerance)


def _windowed(V: Matrix, start: Start, search: Search) -> tuple[float, Matrix]:
    n = V.shape[0]
    windows = Windows.of(n, tree_widths(n, start.size))
    family = WindowedTheta.of(windows)
    own = np.broadcast_to(windows.own[:, :, None], family.free.shape).astype(np.float64)
    theta = varied(own, start.spread, search.rng)
    tolerance = _TOLERANCE * (n / 1024) ** 1.5
    if search.xp is None or n < _ON_DEVICE:
        return _descended(family, V, theta[family.free], search, tolerance=tolerance)
    # A GPU multiplies all of Θ in less time than it takes to start the many small products of its windows.
    free = np.flatnonzero(windows.unpacked(family.free.astype(np.float64)))
    on_device = DenseTheta.within(windows.unpacked(np.where(family.free, theta, 0.0)), free, search.xp)
    d = search.xp.asarray(diagonal(V).astype(np.float64))
    found = minimize_projected(
        search.xp, lambda x: on_device.loss(x, V, d), on_device.start, search, upper=LARGEST, tolerance=tolerance / 2
    )
    return found.value, on_device.matrix(found.x)


def _descended(family: Implicit, V: Matrix, start: Array, search: Search, *, tolerance: float) -> tuple[float, Matrix]:
    """(loss, matrix) at the local minimum below the start."""
    d = diagonal(V).astype(np.float64)
    found = minimize(lambda x: family.loss(x, V, d), start, search, upper=LARGEST, tolerance=tolerance)
    return found.value, family.matrix(found.x)


def _tree(V: Matrix, start: Start, noise: Noise, search: Search) -> tuple[float, Matrix]:
    widths = tree_widths(V.shape[0], start.size)
    return optimize_tree(V, widths, search, order=noise.order, spread=max(start.spread, 1e-3))


def _checked_size(V: Matrix, restart: int) -> int:
    m, n = V.shape
    if m != n:
        raise StrategyError(f"OPT_0 takes the gram matrix V = WᵀW, n × n; this one has shape {V.shape}. Use gram(W)?")
    if restart < 0:
        raise StrategyError(f"The restart is {restart}. Restarts are numbered from 0.")
    return n
