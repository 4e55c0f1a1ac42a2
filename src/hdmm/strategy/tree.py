"""OPT_0 for many cells: p-Identity matrices whose extra rows are the nodes of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from hdmm.matrix import Array, Matrix, TreeIdentity, diagonal
from hdmm.matrix.blocked import block_product
from hdmm.matrix.tree import by_node, column_scale, eliminate, padded
from hdmm.strategy.minimize import Objective, minimize
from hdmm.strategy.search import Search

_LARGEST = 1e3  # weights: past it the identity rows are noise, and the loss loses its digits
_PARTS = 16  # of a node, each with one weight while all nodes of a level are alike
_TIED = 40  # steps so
_LARGE = 2**18  # cells from which a coarser tolerance and less memory are used


def optimize_tree(
    V: Matrix,
    widths: Sequence[int],
    search: Search,
    *,
    order: Literal[1, 2] = 1,
    spread: float = 1e-3,
    warm: Array | None = None,
) -> tuple[TreeIdentity, float]:
    """The best TreeIdentity near equal weights (or near `warm`), and its loss tr((AᵀA)⁻¹V). O(nL²) a step.

    Columns have norm 1 of the given order. The start is 4/L on every level, at most 1: with all levels in use the
    descent reaches 9.72 on 8192 prefix sums, from the best constants, which drop a level, 9.93. From 2^18 cells on,
    first all nodes of a level are alike, a weight a sixteenth of a node, and then each node has a weight for each
    of its children: 2^20 prefix sums are at 18.9 after 40 such steps, at 21.4 by all weights alone.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> from hdmm.strategy.search import first_search
    >>> A, loss = optimize_tree(AllIntervalsGram(32), [4, 32], first_search())
    >>> A.shape, loss < 5984
    ((41, 32), True)
    """
    n = V.shape[0]
    L = len(widths)
    d = diagonal(V).astype(np.float64)

    def objective(weights: Array) -> tuple[float, Array]:
        return tree_loss_and_gradient(weights, V, widths, d, order=order)

    def descended(start: Array, place: Array | None, iterations: int = 10_000) -> tuple[Array, float]:
        """(weights, loss), cells with equal places having equal weights."""
        found = minimize(
            objective if place is None else _tied(objective, place),
            start,
            search,
            upper=_LARGEST,
            tolerance=1e-6 if n < _LARGE else 1e-5,
            iterations=iterations,
            memory=10 if n < _LARGE else 5,
        )
        return (found.x if place is None else found.x[place]), found.value

    even = min(1.0, 4.0 / L)
    if warm is not None or n < _LARGE:
        start = np.full((L, n), even) if warm is None else np.asarray(warm, dtype=np.float64)
        weights, loss = descended(start * np.exp(spread * search.rng.standard_normal((L, n))), None)
        return TreeIdentity(weights, widths, order=order), loss
    alike, pieces = _alike(n, widths), _pieces(n, widths)
    weights, loss = descended(np.full(int(alike.max()) + 1, even), alike, _TIED)
    start = np.zeros(int(pieces.max()) + 1)
    start[pieces] = weights
    weights, loss = descended(start * np.exp(spread * search.rng.standard_normal(len(start))), pieces)
    return TreeIdentity(weights, widths, order=order), loss


def _alike(n: int, widths: Sequence[int]) -> Array:
    """Places of weights that are alike in all nodes of a level and constant on each sixteenth of a node. O(nL)."""
    cells = np.arange(n)
    parts = [min(_PARTS, width) for width in widths]
    first = np.cumsum([0, *parts[:-1]])
    return np.stack([f + cells % w * p // w for f, w, p in zip(first, widths, parts, strict=True)])


def _pieces(n: int, widths: Sequence[int]) -> Array:
    """Places of weights that are constant on the nodes of the level below, the levels one after the other. O(nL).

    What is finer matters little, and slows the descent: noise of 1e-3 in the weights of single cells makes the error
    of 2^20 prefix sums 2 % larger.
    """
    cells = np.arange(n)
    steps = [1, *widths[:-1]]
    first = np.cumsum([0] + [-(-n // step) for step in steps[:-1]])
    return np.stack([f + cells // step for f, step in zip(first, steps, strict=True)])


def _tied(objective: Objective, place: Array) -> Objective:
    """The objective of the weights x[place]."""

    def tied(x: Array) -> tuple[float, Array]:
        value, gradient = objective(x[place])
        return value, np.bincount(place.ravel(), weights=gradient.ravel(), minlength=len(x))

    return tied


def tree_widths(n: int, branching: int, above: int | None = None) -> tuple[int, ...]:
    """The widths of a tree's levels from the leaves up, the last one node for all n cells. O(log n).

    Nodes above the lowest have `above` children, as many as those unless told. A level is left out where the top
    would have at most twice as many without it.

    >>> tree_widths(1024, 16), tree_widths(1000, 8), tree_widths(1024, 16, 8)
    ((16, 256, 1024), (8, 64, 1024), (16, 128, 1024))
    """
    upper = branching if above is None else above
    widths: list[int] = []
    width = branching
    while width < n:
        widths.append(width)
        if n <= 2 * upper * width:
            break
        width *= upper
    step = widths[-1] if widths else 1
    return (*widths, -(-n // step) * step)


def tree_loss_and_gradient(
    weights: Array,
    V: Matrix,
    widths: Sequence[int],
    diagonal_of_V: Array | None = None,
    *,
    order: Literal[1, 2] = 1,
) -> tuple[float, Array]:
    """C = tr((AᵀA)⁻¹V) of A = TreeIdentity(weights, widths), and its gradient. O(nL²) and L block products.

    With ũ from `eliminate` and x = s∘ũ: C = Σ s²∘diag V − Σ_v x_vᵀVx_v over the nodes v; the gradient goes
    back through the levels, the topmost first.

    >>> from hdmm.matrix import Eye
    >>> tree_loss_and_gradient(np.zeros((1, 3)), Eye(3), [4])[0]
    3.0
    """
    n = weights.shape[1]
    d = padded(diagonal(V).astype(np.float64) if diagonal_of_V is None else diagonal_of_V, widths)
    B = padded(weights, widths)
    s = column_scale(B, order)
    U, pivots, overlaps = eliminate(B, widths)
    value = float(s * s @ d)
    by_scale = 2 * s * d
    gU = np.empty_like(U)
    for u, g, width in zip(U, gU, widths, strict=True):
        x = s * u
        y = block_product(V, by_node(x, width)).reshape(-1)
        value -= float(x @ y)
        np.multiply(y, -2.0, out=g)
        by_scale += g * u
        g *= s
    gB = _back(B, U, gU, widths, pivots, overlaps)
    gB += by_scale if order == 1 else B * (by_scale / s)
    return value, gB[:, :n]


def _back(
    B: Array, U: Array, gU: Array, widths: Sequence[int], pivots: Sequence[Array], overlaps: Sequence[Sequence[Array]]
) -> Array:
    """∂/∂B from ∂/∂Ũ, which is used up: `eliminate` read backwards."""
    gB = np.empty_like(B)
    for level in reversed(range(len(widths))):
        b, g, width, pivot = B[level], gU[level], widths[level], pivots[level]
        u = U[level]  # still divided by the root of the pivot
        root = np.sqrt(pivot)
        q = -0.5 * by_node(g * u, width).sum(axis=1) / pivot  # ∂ by the pivot
        by_node(g, width)[:] /= root[:, None]
        by_node(g, width)[:] += q[:, None] * by_node(b, width)
        gb = gB[level]
        by_node(gb, width)[:] = by_node(u, width) * (q * root)[:, None]
        gb += g
        for k in range(level):
            w, lower, gl, c = widths[k], by_node(U[k], widths[k]), by_node(gU[k], widths[k]), overlaps[level][k]
            gn = by_node(g, w)
            gc = -np.einsum("vi,vi->v", gn, lower)
            gl -= gn * c[:, None]
            gl += gc[:, None] * by_node(b, w)
            by_node(gb, w)[:] += gc[:, None] * lower
    return gB
