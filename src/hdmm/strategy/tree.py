"""OPT_0 for many cells: p-Identity matrices whose extra rows are the nodes of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from hdmm.matrix import Array, ExtendedDiagonal, Matrix, TreeIdentity, diagonal
from hdmm.matrix.blocked import block_product
from hdmm.matrix.extended import column_scale
from hdmm.matrix.tree import by_node, each_cell, eliminate, node_dots, node_sums, padded
from hdmm.strategy.family import LARGEST, Implicit
from hdmm.strategy.minimize import Minimum, minimize
from hdmm.strategy.search import Search

_PARTS = 16  # of a node, each with one weight as long as all nodes of a level are alike
_TIED = 40  # steps with such nodes
_LARGE = 2**18  # cells from which a coarser tolerance and less memory are used


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tree(Implicit):
    """TreeIdentity matrices of given widths and order of norm; x has one weight per level and cell."""

    widths: tuple[int, ...]
    order: Literal[1, 2] = 1

    def matrix(self, x: Array) -> ExtendedDiagonal:
        return TreeIdentity(x, self.widths, order=self.order)

    def loss(self, x: Array, V: Matrix, diagonal_of_V: Array) -> tuple[float, Array]:
        """C and ∂C/∂x. O(nL²) and L block products.

        With ũ from `eliminate` and x = s∘ũ: C = Σ s²∘diag V − Σ_v x_vᵀVx_v over the nodes v; the gradient is
        pulled back through the levels from the top.

        >>> from hdmm.matrix import Eye
        >>> Tree((4,)).loss(np.zeros((1, 3)), Eye(3), np.ones(3))[0]
        3.0
        """
        widths = self.widths
        d, B = padded(diagonal_of_V, widths), padded(x, widths)
        s = column_scale(B, self.order)
        U, pivots, overlaps = eliminate(B, widths)
        value = float(s * s @ d)
        by_scale = 2 * s * d
        gU = np.empty_like(U)
        for u, g, width in zip(U, gU, widths, strict=True):
            y = s * u
            Vy = block_product(V, by_node(y, width)).reshape(-1)
            value -= float(y @ Vy)
            np.multiply(Vy, -2.0, out=g)
            by_scale += g * u
            g *= s
        gB = back(B, U, gU, widths, pivots, overlaps)
        gB += by_scale if self.order == 1 else B * (by_scale / s)
        return value, gB[:, : x.shape[1]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tied(Implicit):
    """A family in which numbers with equal places are equal: it takes x[place] instead of x."""

    inner: Implicit
    place: Array

    def matrix(self, x: Array) -> Matrix:
        return self.inner.matrix(x[self.place])

    def loss(self, x: Array, V: Matrix, diagonal_of_V: Array) -> tuple[float, Array]:
        value, gradient = self.inner.loss(x[self.place], V, diagonal_of_V)
        return value, np.bincount(self.place.ravel(), weights=gradient.ravel(), minlength=len(x))


def optimize_tree(
    V: Matrix,
    widths: Sequence[int],
    search: Search,
    *,
    order: Literal[1, 2] = 1,
    spread: float = 1e-3,
) -> tuple[float, Matrix]:
    """(loss, matrix): the best TreeIdentity near equal weights and its loss tr((AᵀA)⁻¹V). O(nL²) per step.

    Columns have norm 1 of the given order. The start is 4/L on every level, at most 1: with all levels in use the
    descent reaches 9.72 on 8192 prefix sums; from the best constants, which drop a level, it reaches 9.93. From 2^18
    cells on, all nodes of a level are alike at first, with one weight per sixteenth of a node, and then each node has
    one weight per child: 2^20 prefix sums are at 18.9 after 40 such steps, and at 21.4 if all weights are always free.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> from hdmm.strategy.search import first_search
    >>> loss, A = optimize_tree(AllIntervalsGram(32), [4, 32], first_search())
    >>> A.shape, loss < 5984
    ((41, 32), True)
    """
    n, L = V.shape[0], len(widths)
    d = diagonal(V).astype(np.float64)
    tree = Tree(tuple(widths), order)
    even = min(1.0, 4.0 / L)

    def descended(family: Implicit, start: Array, iterations: int = 10_000) -> Minimum:
        return minimize(
            lambda x: family.loss(x, V, d),
            start,
            search,
            upper=LARGEST,
            tolerance=1e-6 if n < _LARGE else 1e-5,
            iterations=iterations,
            memory=10 if n < _LARGE else 5,
        )

    family, start = tree, np.full((L, n), even)
    if n >= _LARGE:
        alike, family = Tied(tree, _alike(n, widths)), Tied(tree, _pieces(n, widths))
        first = descended(alike, np.full(int(alike.place.max()) + 1, even), _TIED)
        if not first.converged and first.iterations < _TIED:  # out of time
            return first.value, alike.matrix(first.x)
        start = np.zeros(int(family.place.max()) + 1)
        start[family.place] = first.x[alike.place]
    found = descended(family, start * np.exp(spread * search.rng.standard_normal(start.shape)))
    return found.value, family.matrix(found.x)


def _alike(n: int, widths: Sequence[int]) -> Array:
    """Places of weights that are alike in all nodes of a level and constant on each sixteenth of a node. O(nL)."""
    cells = np.arange(n)
    parts = [min(_PARTS, width) for width in widths]
    first = np.cumsum([0, *parts[:-1]])
    return np.stack([f + cells % w * p // w for f, w, p in zip(first, widths, parts, strict=True)])


def _pieces(n: int, widths: Sequence[int]) -> Array:
    """Places of weights that are constant on the nodes of the level below, level by level. O(nL).

    Finer weights matter little and slow the descent: noise of 1e-3 in the weights of single cells makes the error of
    2^20 prefix sums 2 % larger.
    """
    cells = np.arange(n)
    steps = [1, *widths[:-1]]
    first = np.cumsum([0] + [-(-n // step) for step in steps[:-1]])
    return np.stack([f + cells // step for f, step in zip(first, steps, strict=True)])


def tree_widths(n: int, branching: int, above: int | None = None) -> tuple[int, ...]:
    """The widths of a tree's levels from the leaves up; the last level is one node for all n cells. O(log n).

    Nodes above the lowest have `above` children, by default as many as the lowest. A level is left out if without it
    the top would have at most twice as many.

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


def back(
    B: Array,
    U: Array,
    gU: Array,
    levels: Sequence[int | Array],
    pivots: Sequence[Array],
    overlaps: Sequence[Sequence[Array]],
) -> Array:
    """∂/∂B from ∂/∂Ũ, which is overwritten: `eliminate` in reverse."""
    gB = np.empty_like(B)
    for level in reversed(range(len(levels))):
        b, g, nodes, pivot = B[level], gU[level], levels[level], pivots[level]
        u = U[level]  # still divided by the root of the pivot
        root = np.sqrt(pivot)
        q = -0.5 * node_sums(g * u, nodes) / pivot  # ∂ by the pivot
        g /= each_cell(root, nodes)
        g += each_cell(q, nodes) * b
        gb = gB[level]
        gb[:] = u * each_cell(q * root, nodes)
        gb += g
        for k in range(level):
            below, lower, gl, c = levels[k], U[k], gU[k], overlaps[level][k]
            gc = -node_dots(g, lower, below)
            gl -= g * each_cell(c, below)
            gl += each_cell(gc, below) * b
            gb += each_cell(gc, below) * lower
    return gB
