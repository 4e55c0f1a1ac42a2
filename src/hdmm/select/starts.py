"""The starts of OPT_0: trees, grids over merged attributes, and random rows, by restart, and the order of cells."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Literal, NamedTuple

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from hdmm.matrix import Array, Kron, Matrix, Scaled, Sum, diagonal
from hdmm.matrix.blocked import coarsened
from hdmm.matrix.checks import inverse
from hdmm.privacy.guarantee import Noise

FEW = 512  # cells up to which the rows of a tree start may grow anywhere, and random rows take no longer
_BRANCHINGS = (16, 8, 32, 4)
_MOST_ROWS = 1024  # of a tree: steps take O(p³), and on 4096 prefix sums 1365 rows lose in four times the winner's time
_MOST_RANDOM = 256  # rows on many cells, all of which are free
_DIVISORS = (8, 4, 16, 6)
_NOISE = 1e-3  # outside the nodes, so that rows can grow beyond them: 6.73 on 1024 prefix sums, 7.2 without
_NEAR = 4.0  # mean steps between neighbours: 1 if sorted, about n/3 if shuffled
_MANY = 8192  # cells whose own order is kept if it can be: in another one, products with blocks of V take long


class Start(NamedTuple):
    """A kind of start and its size: a tree's branching, a grid's divisor of each attribute, or p random rows.

    `spread` is how far a tree's or a grid's weights are from equal: the later rounds of a portfolio differ.
    """

    kind: Literal["tree", "grid", "random"]
    size: int
    spread: float


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


def varied(theta: Array, spread: float, rng: np.random.Generator) -> Array:
    """Θ times e^(spread·normal), plus a little everywhere. O(pn)."""
    return theta * np.exp(spread * rng.standard_normal(theta.shape)) + _NOISE * rng.random(theta.shape)


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
