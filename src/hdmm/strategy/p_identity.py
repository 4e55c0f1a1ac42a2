"""OPT_0: the best p-Identity matrix for one attribute (Section 5.2 of the paper), by its workload's gram matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Eye, Matrix, Ones, Permuted, PIdentity, Scaled, TreeIdentity, diagonal, total, trace
from hdmm.matrix.checks import inverse
from hdmm.matrix.grams import conjugated
from hdmm.privacy import Noise
from hdmm.strategy.gaussian import gaussian_optimum
from hdmm.strategy.minimize import minimize
from hdmm.strategy.order import cell_order
from hdmm.strategy.search import Search
from hdmm.strategy.starts import (
    FEW,
    Start,
    grid_rows,
    merged_sizes,
    portfolio,
    random_rows,
    tree_portfolio,
    tree_rows,
    varied,
)
from hdmm.strategy.tree import optimize_tree, tree_widths
from hdmm.strategy.windows import Windows, windowed_loss_and_gradient

_LARGEST = 1e3  # entries of Θ: past it the identity rows are noise, and the loss loses its digits
_DENSE = 8192  # cells past which Θ keeps to the nodes of its tree
_SMALL = 64  # cells up to which one restart tries several starts: they take milliseconds
_EIGEN = 4096  # cells past which the Gaussian optimum, O(n³) a step, gives way to a tree
_TOLERANCE = 1e-6  # at 1024 cells; steps get dearer with n faster than their gains get smaller
_SAME = 1e-12  # of the trace of V: what may be rounding


def loss_and_gradient(theta: Array, V: Matrix, diagonal_of_V: Array | None = None) -> tuple[float, Array]:
    """C = tr((AᵀA)⁻¹V) of A = PIdentity(Θ), and ∂C/∂Θ. One product with V, O(np²) besides; no n × n array.

    With s = 1 + Θᵀ1, B = Θ·diag(s), R = (I + ΘΘᵀ)⁻¹, U = BV and K = UBᵀ:

        C = Σ s²∘diag V − tr(RK)
        ∂C/∂s = 2 s∘diag V − 2 Σ_k (RU∘Θ)_k
        ∂C/∂Θ = 2 RKRΘ − 2 RU∘s + 1 ⊗ ∂C/∂s

    >>> loss_and_gradient(np.zeros((1, 3)), Eye(3))[0]
    3.0
    """
    d = diagonal(V).astype(np.float64) if diagonal_of_V is None else diagonal_of_V
    B = theta * (1.0 + theta.sum(axis=0))
    return loss_through(theta, V.along(B[:, :, None])[:, :, 0], d)


def loss_through(theta: Array, U: Array, diagonal_of_V: Array) -> tuple[float, Array]:
    """The same with U = BV known. O(np²).

    >>> loss_through(np.zeros((1, 3)), np.zeros((1, 3)), np.ones(3))[0]
    3.0
    """
    p, n = theta.shape
    d = diagonal_of_V
    s = 1.0 + theta.sum(axis=0)
    if p == 0:
        return float(s * s @ d), np.zeros((0, n))
    B = theta * s
    M = theta @ theta.T
    M.flat[:: p + 1] += 1.0
    R = cho_solve(cho_factor(M, lower=True, overwrite_a=True, check_finite=False), np.eye(p), check_finite=False)
    RU = R @ U
    RK = RU @ B.T
    value = float(s * s @ d) - float(np.trace(RK))
    by_scale = 2 * s * d - 2 * np.einsum("kn,kn->n", RU, theta)
    gradient = (2 * RK @ R) @ theta
    RU *= 2 * s
    gradient -= RU
    gradient += by_scale
    return value, gradient


def opt_0(
    V: Matrix,
    search: Search,
    noise: Noise = Noise.LAPLACE,
    *,
    p: int | None = None,
    warm: Array | None = None,
) -> Matrix:
    """A matrix A with columns of norm 1 that makes tr((AᵀA)⁻¹V) small: one start of a portfolio (Problem 2).

    The restart numbers the starts, the one that wins most often first; `p` asks for that many rows beside the
    identity; `warm` is a Θ to go on from; progress hears of the loss relative to the identity's. Never worse
    than the identity, which is returned if nothing beats it; always supports V. Θ is dense, or local to a
    tree's nodes and their neighbours, up to 8192 cells, and on the nodes of a tree beyond. With Gaussian noise
    the optimum is unique up to 4096 cells and restarts change nothing.

    >>> from hdmm.matrix import AllIntervalsGram, trace_product, gram_inverse
    >>> from hdmm.strategy.search import first_search
    >>> A = opt_0(AllIntervalsGram(32), first_search())
    >>> trace_product(gram_inverse(A), AllIntervalsGram(32)) < 0.95 * trace(AllIntervalsGram(32))
    True
    """
    n = _checked_size(V, search.restart, p, warm)
    if isinstance(V, Scaled) and V.c > 0:
        V = V.inner  # scaling a workload changes no strategy, not even by rounding
    whole = trace(V)
    if n == 1 or p == 0 or not whole > 0:
        return Eye(n)
    if whole - total(V) / n <= _SAME * whole:  # V = c·11ᵀ
        return Ones(1, n)
    if noise is Noise.GAUSSIAN and n <= _EIGEN:
        return gaussian_optimum(V, search).A
    search = search.rescaled(1 / whole)
    on_tree = noise is Noise.GAUSSIAN or n > _DENSE
    best: tuple[float, Matrix] = (whole * (1 - 1e-9), Eye(n))
    if warm is not None:
        found = [_dense(V, np.asarray(warm, dtype=np.float64), search)]
    else:
        start = tree_portfolio(n, search.restart, noise) if on_tree else portfolio(V, search.restart)
        found = _candidates(V, start, p, noise, search)
    for loss, A in found:
        if loss < best[0]:
            best = loss, A
    return best[1]


def is_uniform(V: Matrix) -> bool:
    """Whether V = aI + b11ᵀ: no cell is special, and one extra row is enough. Two products.

    >>> from hdmm.matrix import Cumulative, Gram, Sum
    >>> is_uniform(Sum((Eye(3), Ones(3, 3)))), is_uniform(Gram(Cumulative(3)))
    (True, False)
    """
    n = V.shape[0]
    x = np.cos(np.arange(1.0, n + 1) ** 2)  # any vector without a pattern
    x -= x.mean()
    on_one, on_x = V.matmat(np.stack([np.ones(n), x], axis=1)).astype(np.float64).T
    size = np.abs(on_one).max() + np.abs(on_x).max()
    a = float(on_x @ x) / float(x @ x)
    return bool(np.ptp(on_one) <= 1e-10 * size and np.abs(on_x - a * x).max() <= 1e-10 * size)


def _candidates(
    V: Matrix,
    start: Start,
    p: int | None,
    noise: Noise,
    search: Search,
) -> Iterator[tuple[float, Matrix]]:
    """(loss, matrix) of one restart: one of them, or several where they are cheap."""
    n = V.shape[0]
    if noise is Noise.GAUSSIAN or n > _DENSE:
        yield _in_order(V, lambda U: _tree(U, start, noise, search))
    elif p is not None:
        theta = _exactly(p, n, start, search.rng)
        yield _in_order(V, lambda U: _dense(U, theta, search))
    elif is_uniform(V):
        yield _uniform(V)
    elif n <= _SMALL:
        for branching, weight in [(b, w) for b, w in ((16, 1.0), (8, 0.7), (4, 0.5), (2, 0.3)) if b < n] or [(n, 0.3)]:
            theta = varied(weight * tree_rows(n, tree_widths(n, branching)), start.spread, search.rng)
            yield _in_order(V, lambda U, theta=theta: _dense(U, theta, search))
        yield _dense(V, random_rows(max(1, n // (2, 4, 8)[start.size % 3]), n, search.rng), search)
    elif start.kind == "random":
        yield _dense(V, random_rows(start.size, n, search.rng), search)
    elif start.kind == "grid":
        # From ones, the first fifty steps over 64² ranges only make them smaller.
        rows = 0.5 * grid_rows(merged_sizes(V) or (n,), start.size)
        yield _dense(V, varied(rows, start.spread, search.rng), search)
    elif n <= FEW:
        theta = varied(tree_rows(n, tree_widths(n, start.size)), start.spread, search.rng)
        yield _in_order(V, lambda U: _dense(U, theta, search))
    else:
        yield _in_order(V, lambda U: _windowed(U, start, search))


def _in_order(V: Matrix, optimize: Callable[[Matrix], tuple[float, Matrix]]) -> tuple[float, Matrix]:
    """The optimisation with cells in spectral order, where their own order scatters those asked about together."""
    if merged_sizes(V) is not None:
        return optimize(V)
    order = cell_order(V)
    if (np.diff(order) == 1).all():
        return optimize(V)
    loss, A = optimize(conjugated(V, order))
    back = inverse(order)
    return loss, PIdentity(A.theta[:, back]) if isinstance(A, PIdentity) else Permuted(A, back)


def _uniform(V: Matrix) -> tuple[float, Matrix]:
    """The best single row, which is constant: C(t) = (1+t)²(tr V − t²·1ᵀV1/(1 + nt²)), searched on a line."""
    n = V.shape[0]
    t = np.geomspace(1e-3, _LARGEST, 6001)  # steps of 0.2 %: within 1e-6 of the least C
    losses = (1 + t) ** 2 * (trace(V) - t**2 * total(V) / (1 + n * t**2))
    best = int(np.argmin(losses))
    return float(losses[best]), PIdentity(np.full((1, n), t[best]))


def _dense(V: Matrix, start: Array, search: Search) -> tuple[float, Matrix]:
    d = diagonal(V).astype(np.float64)
    if len(start) == 0:
        return float(d.sum()), Eye(d.size)
    found = minimize(
        lambda theta: loss_and_gradient(theta, V, d),
        start,
        search,
        upper=_LARGEST,
        tolerance=max(1e-7, _TOLERANCE * d.size / 4096),
    )
    return found.value, PIdentity(found.x)


def _windowed(V: Matrix, start: Start, search: Search) -> tuple[float, Matrix]:
    n = V.shape[0]
    d = diagonal(V).astype(np.float64)
    windows = Windows.of(n, tree_widths(n, start.size))
    free = windows.free
    packed, canvas = np.zeros(free.shape), windows.canvas

    def objective(x: Array) -> tuple[float, Array]:
        packed[free] = x
        value, gradient = windowed_loss_and_gradient(packed, windows, V, d, canvas)
        return value, gradient[free]

    own = np.broadcast_to(windows.own[:, :, None], free.shape).astype(np.float64)
    found = minimize(
        objective,
        varied(own, start.spread, search.rng)[free],
        search,
        upper=_LARGEST,
        tolerance=_TOLERANCE * (n / 1024) ** 1.5,
    )
    packed[free] = found.x
    return found.value, PIdentity(windows.unpacked(packed))


def _tree(V: Matrix, start: Start, noise: Noise, search: Search) -> tuple[float, TreeIdentity]:
    A, loss = optimize_tree(
        V,
        tree_widths(V.shape[0], start.size),
        search,
        order=noise.order,
        spread=max(start.spread, 1e-3),
    )
    return loss, A


def _exactly(p: int, n: int, start: Start, rng: np.random.Generator) -> Array:
    """A start with p rows: the top of a tree that has about as many, filled up with random rows."""
    if start.kind == "random":
        return random_rows(p, n, rng)
    rows = tree_rows(n, tree_widths(n, max(2, -(-n // p))))[::-1][:p]
    return np.concatenate([varied(rows, start.spread, rng), random_rows(p - len(rows), n, rng)])


def _checked_size(V: Matrix, restart: int, p: int | None, warm: Array | None) -> int:
    m, n = V.shape
    if m != n:
        raise StrategyError(f"OPT_0 takes the gram matrix V = WᵀW, n × n; this one has shape {V.shape}. Use gram(W)?")
    if restart < 0 or (p is not None and p < 0):
        raise StrategyError(f"restart is {restart} and p is {p}; both count from 0.")
    if warm is not None and (warm.ndim != 2 or warm.shape[1] != n):
        raise StrategyError(f"warm has shape {warm.shape}; a Θ to go on from has {n} columns, one a cell.")
    return n
