"""OPT_0: the best p-Identity matrix for one attribute (Section 5.2 of the paper), by its workload's gram matrix.

A restart is one start of a portfolio: trees, grids over merged attributes, and random rows, over cells in an order in
which those that are asked about together are neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from math import prod
from typing import Literal, NamedTuple

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import SAME_GRAM
from hdmm.matrix import (
    Array,
    Dense,
    ExtendedDiagonal,
    Eye,
    Kron,
    Matrix,
    Ones,
    Permuted,
    PIdentity,
    Scaled,
    Sum,
    diagonal,
    exchangeable,
    total,
    trace,
)
from hdmm.matrix.blocked import coarsened
from hdmm.matrix.grams import conjugated
from hdmm.matrix.matrix import inverse
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import LARGEST, Implicit
from hdmm.select.gaussian_optimum import TridiagonalInverse, eigen_seconds, gaussian_optimum
from hdmm.select.halved_root import halved_root
from hdmm.select.minimize import minimize, minimize_projected
from hdmm.select.search import Search
from hdmm.select.theta import DenseTheta, WindowedTheta, Windows, theta_of
from hdmm.select.tree import nested_groups, optimize_forest, optimize_tree, tree_widths

_DENSE = 8192  # cells beyond which Θ is supported on the nodes of its tree
_SMALL = 64  # cells up to which one restart tries several starts: they take milliseconds
_HALVED = 1e-4  # seconds per cell of the optimum for prefixes and ranges: 6 s at 65,536
MAX_EIGEN = 4096  # cells past which the Gaussian optimum, O(n³) per step, gives way to a tree
_QUICK = 256  # cells up to which a step of the Gaussian optimum takes a millisecond
_PRECISE, _CLOSE = 1e-5, 1e-3  # how far the Gaussian optimum may be from its bound, there and on more cells
_ON_DEVICE = 4096  # cells from which a GPU, if there is one, is faster than the processor
_TOLERANCE = 1e-6  # at 1024 cells; steps get dearer with n faster than their gains get smaller
FEW = 512  # cells up to which the rows of a tree start may grow anywhere, and random rows take no longer
_BRANCHINGS = (16, 8, 32, 4)
_MOST_ROWS = 1024  # of a tree: steps take O(p³), and on 4096 prefix sums 1365 rows lose in four times the winner's time
_MOST_RANDOM = 256  # rows on many cells, all of which are free
_DIVISORS = (8, 4, 16, 6)
_NOISE = 1e-3  # outside the nodes, so that rows can grow beyond them: 6.73 on 1024 prefix sums, 7.2 without
_NEAR = 4.0  # mean steps between neighbours: 1 if sorted, about n/3 if shuffled
_MANY = 8192  # cells whose own order is kept if it can be: in another one, products with blocks of V take long


def opt_0(V: Matrix, search: Search, noise: Noise = Noise.LAPLACE) -> Matrix:
    """A matrix A with columns of norm 1 that makes tr((AᵀA)⁻¹V) small: one start of a portfolio (Problem 2).

    Restarts number the starts, and the one that wins most often comes first. Progress gets the loss relative to the
    identity's. The result is never worse than the identity, which is returned if nothing beats it, and always supports
    V. If V is made of nested groups of cells, the extra rows are these groups. Else, up to 8192 cells Θ is dense, or
    local to a tree's nodes and their neighbours; beyond, it is supported on the nodes of a tree. With Gaussian noise
    the optimum is unique up to 4096 cells, and for prefixes and ranges on any number, and restarts change nothing.

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
    if whole - total(V) / n <= SAME_GRAM * whole:  # V = c·11ᵀ
        return Ones(1, n)
    if noise is Noise.GAUSSIAN and exchangeable(V) and total(V) >= whole:
        return _even_optimum(V)
    ends = TridiagonalInverse.of(V) if noise is Noise.GAUSSIAN and n > FEW else None
    if ends is not None and search.affords(_HALVED * n):
        A = halved_root(ends)
        return Scaled(1 / math.sqrt(int(A.squared_columns.max())), A)
    if noise is Noise.GAUSSIAN and n <= MAX_EIGEN and search.affords(eigen_seconds(n)):
        return gaussian_optimum(V, search, tolerance=_PRECISE if n <= _QUICK else _CLOSE).A
    search = search.rescaled(1 / whole)
    on_tree = noise is Noise.GAUSSIAN or n > _DENSE
    best: tuple[float, Matrix] = (whole * (1 - 1e-9), Eye(n))
    start = tree_portfolio(n, search.restart, noise) if on_tree else portfolio(V, search.restart)
    groups = None if exchangeable(V) else nested_groups(V)
    found: Iterable[tuple[float, Matrix]] = ()
    if groups is not None:  # on few cells other rows are tried, too, because descents end in different minima
        found = optimize_forest(groups, search, order=noise.order, jitter=max(start.jitter, 1e-3))
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
    n, sizes = V.shape[0], merged_sizes(V)
    if noise is Noise.GAUSSIAN or n > _DENSE:
        yield _in_order(V, lambda U: _tree(U, start, noise, search))
    elif exchangeable(V):
        yield _uniform(V)
    elif n <= _SMALL:
        for branching, weight in [(b, w) for b, w in ((16, 1.0), (8, 0.7), (4, 0.5), (2, 0.3)) if b < n] or [(n, 0.3)]:
            theta = varied(weight * tree_rows(n, tree_widths(n, branching)), start.jitter, search.rng)
            yield _in_order(V, lambda U, theta=theta: _dense(U, theta, search))
        yield _dense(V, random_rows(max(1, n // (2, 4, 8)[start.size % 3]), n, search.rng), search)
        if sizes is not None:
            for divisor in _DIVISORS[:2]:
                yield _dense(V, varied(0.5 * grid_rows(sizes, divisor), 0.5, search.rng), search)
    elif start.kind == "random":
        yield _dense(V, random_rows(start.size, n, search.rng), search)
    elif start.kind == "grid":
        # Starting at ones, the first fifty steps over 64² ranges would only make them smaller.
        rows = 0.5 * grid_rows(sizes or (n,), start.size)
        yield _dense(V, varied(rows, start.jitter, search.rng), search)
    elif n <= FEW:
        theta = varied(tree_rows(n, tree_widths(n, start.size)), start.jitter, search.rng)
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
    theta = varied(own, start.jitter, search.rng)
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
    return optimize_tree(V, widths, search, order=noise.order, jitter=max(start.jitter, 1e-3))


def _checked_size(V: Matrix, restart: int) -> int:
    m, n = V.shape
    if m != n:
        raise StrategyError(f"OPT_0 takes the gram matrix V = WᵀW, n × n; this one has shape {V.shape}. Use gram(W)?")
    if restart < 0:
        raise StrategyError(f"The restart is {restart}. Restarts are numbered from 0.")
    return n


class Start(NamedTuple):
    """A kind of start and its size: a tree's branching, a grid's divisor of each attribute, or p random rows.

    `jitter` is how far a tree's or a grid's weights are from equal: the later rounds of a portfolio differ.
    """

    kind: Literal["tree", "grid", "random"]
    size: int
    jitter: float


def portfolio(V: Matrix, restart: int) -> Start:
    """The start with that number for Θ of up to p·n numbers; the likeliest to win come first. O(1).

    On few cells, trees and random rows take turns. On many, trees come first: over 1024 cells the first tree has won in
    every trial on ranges, and random rows, whose steps cost several times as much, are for predicates without an order.
    Trees of more than 1024 rows are left out.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> [portfolio(AllIntervalsGram(1024), r)[:2] for r in range(6)]
    [('tree', 16), ('tree', 8), ('tree', 32), ('tree', 4), ('random', 64), ('tree', 16)]
    >>> [portfolio(AllIntervalsGram(256), r)[:2] for r in range(4)]
    [('tree', 16), ('random', 16), ('tree', 8), ('random', 32)]
    """
    n = V.shape[0]
    merged = merged_sizes(V) is not None
    if merged or n <= FEW:
        turn, odd = divmod(restart, 2)
        drawn = turn if odd else None
    else:  # the last start of every round is random
        rounds, place = divmod(restart, kinds(n))
        branchings = _branchings(n)
        if place < len(branchings):
            return Start("tree", branchings[place], 0.5 * (rounds > 0))
        return Start("random", min(_MOST_RANDOM, n // _BRANCHINGS[rounds % 4]), 0.5 * (rounds >= 4))
    if drawn is not None:
        size = _BRANCHINGS[drawn % 4] * (4 if merged else 1)
        return Start("random", max(1, n // size), 0.5 * (drawn >= 4))
    # 64² ranges: the grid of 8² blocks reaches 14.22, random rows stay above 14.3.
    size = (_DIVISORS if merged else _BRANCHINGS)[turn % 4]
    return Start("grid" if merged else "tree", size, 0.5 * (turn >= 4))


def kinds(n: int) -> int:
    """The number of starts in a round of the portfolio on many cells, which are all of different kinds. O(1).

    >>> kinds(1024), kinds(8192)
    (5, 3)
    """
    return len(_branchings(n)) + 1


def _branchings(n: int) -> list[int]:
    return [b for b in _BRANCHINGS if n <= _MOST_ROWS * (b - 1)]


def tree_portfolio(n: int, restart: int, noise: Noise) -> Start:
    """The start with that number if Θ is supported on its tree. Gaussian noise favours smaller branching. O(1).

    65,536 prefix sums reach 13.08, 13.05 and 13.29 with branching 8, 4 and 16; with Gaussian noise 4096 reach
    3.49, 3.82 and 4.75 with 2, 4 and 16.

    >>> tree_portfolio(65_536, 0, Noise.LAPLACE).size, tree_portfolio(65_536, 0, Noise.GAUSSIAN).size
    (8, 2)
    """
    branchings = (8, 4, 16, 6) if noise is Noise.LAPLACE else (2, 3, 4)
    turn, which = divmod(restart, len(branchings))
    return Start("tree", branchings[which], 0.5 if turn else 0.0)


def merged_sizes(V: Matrix) -> tuple[int, ...] | None:
    """The sizes of the attributes over which V is a (sum of) Kronecker products, if there are several. O(terms).

    >>> from hdmm.matrix import Eye
    >>> merged_sizes(Kron((Eye(3), Eye(4)))), merged_sizes(Eye(12))
    ((3, 4), None)
    """
    match V:
        case Kron(factors):
            sizes = tuple(A.shape[1] for A in factors)
            return sizes if sum(n > 1 for n in sizes) > 1 else None
        case Scaled(_, inner):
            return merged_sizes(inner)
        case Sum(terms):
            found = {merged_sizes(term) for term in terms}
            return found.pop() if len(found) == 1 else None
        case _:
            return None


def tree_rows(n: int, widths: Sequence[int]) -> Array:
    """Θ with a row of ones for every node; the parents of the leaves come first. O(pn).

    >>> tree_rows(3, [2, 4])
    array([[1., 1., 0.],
           [0., 0., 1.],
           [1., 1., 1.]])
    """
    return np.concatenate([_level(n, width) for width in widths])


def grid_rows(sizes: Sequence[int], divisor: int) -> Array:
    """Θ with a row for every block of a grid over merged attributes, one for every strip, and the total. O(pN).

    The smallest attributes stay whole if there would otherwise be more than one block per 4 cells, or more than 512.

    >>> grid_rows((4, 2), 2).shape, grid_rows((3,) * 8, 8).shape
    ((9, 8), (262, 6561))
    """
    cuts = [_level(n, max(1, -(-n // divisor))) for n in sizes]
    most = min(512, max(16, prod(sizes) // 4))
    for i in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        if prod(map(len, cuts)) > most:
            cuts[i] = np.ones((1, sizes[i]))
    wholes = [np.ones((1, n)) for n in sizes]
    rows = [reduce(np.kron, cuts)]
    for i in range(len(sizes)):
        rows.append(
            reduce(np.kron, [cut if j == i else whole for j, (cut, whole) in enumerate(zip(cuts, wholes, strict=True))])
        )
    return np.concatenate([*rows, reduce(np.kron, wholes)])


def varied(theta: Array, jitter: float, rng: np.random.Generator) -> Array:
    """Θ times e^(jitter·normal), plus a little everywhere. O(pn)."""
    return theta * np.exp(jitter * rng.standard_normal(theta.shape)) + _NOISE * rng.random(theta.shape)


def random_rows(p: int, n: int, rng: np.random.Generator) -> Array:
    """p random rows that leave the identity about a third of the budget. O(pn)."""
    return rng.random((p, n)) * (4.0 / max(4, p))


def _level(n: int, width: int) -> Array:
    return (np.arange(n) // width == np.arange(-(-n // width))[:, None]).astype(np.float64)


def cell_order(V: Matrix) -> Array:
    """The cells in their own order, or in spectral order if their own scatters cells that are asked about together.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> cell_order(AllIntervalsGram(4))
    array([0, 1, 2, 3])
    """
    n = V.shape[0]
    if n > _MANY and coarsened(V, 1) is not None:  # all queries are intervals of cells
        return np.arange(n)
    order = spectral_order(V)
    return np.arange(n) if np.abs(np.diff(inverse(order))).sum() <= _NEAR * n else order


def spectral_order(V: Matrix) -> Array:
    """The cells sorted by the Fiedler vector of V as a similarity; V_ij counts the queries on both i and j.

    The second eigenvector of D^-½VD^-½, D = diag(V1), sorts prefix sums, ranges and similar queries, whatever the
    original order of their cells. The end with the larger diagonal comes first. A few dozen products with V.

    >>> from hdmm.matrix import AllIntervalsGram, Conjugated
    >>> order = spectral_order(Conjugated(AllIntervalsGram(5), [3, 0, 4, 1, 2]))
    >>> order.tolist() in ([1, 3, 4, 0, 2], [2, 0, 4, 3, 1])
    True
    """
    n = V.shape[0]
    degrees = V.matmat(np.ones((n, 1)))[:, 0].astype(np.float64)
    if n < 3 or not (degrees > 0).all():
        return np.arange(n)
    roots = 1 / np.sqrt(degrees)
    top = np.sqrt(degrees / degrees.sum())

    def product(x: Array) -> Array:  # without the top eigenvector, whose eigenvalue is 1
        y = roots * V.matmat((roots * np.ravel(x))[:, None])[:, 0]
        return y - top * (top @ np.ravel(x))

    start = np.cos(np.arange(n))  # any vector, the same every time
    try:
        _, vectors = eigsh(
            LinearOperator((n, n), matvec=product, dtype=np.float64),  # pyright: ignore[reportCallIssue]
            k=1,
            which="LA",
            v0=start,
            tol=1e-10,  # pyright: ignore[reportArgumentType]
            maxiter=300,
        )
    except ArpackError:  # it did not converge, or V has rank one and nothing is left to sort by
        return np.arange(n)
    order = np.argsort(roots * vectors[:, 0], kind="stable")
    d = diagonal(V).astype(np.float64)[order]
    half = n // 2
    return order if d[:half].sum() >= d[n - half :].sum() else order[::-1].copy()
