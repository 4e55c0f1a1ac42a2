"""OPT_0 for many cells: p-Identity matrices whose extra rows are the nodes of a tree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np

from hdmm.matrix import Array, ExtendedDiagonal, Matrix, TreeIdentity, diagonal
from hdmm.matrix.blocked import block_product, coarsened
from hdmm.matrix.extended import column_scale
from hdmm.matrix.nested import by_node, each_cell, eliminate, node_dots, node_sums, padded
from hdmm.select.family import LARGEST, Implicit
from hdmm.select.minimize import Minimum, minimize
from hdmm.select.search import Search

_FEW = 4096  # nodes up to which the descent starts from equal weights
_STEPS = 72_000  # on the way, over the root of the nodes: 562 on 2^14 of them, 198 on 2^17, of 0.07 s each
_LARGE = 2**18  # cells from which the nodes are solved first, to a coarser tolerance and with less memory


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

        >>> from hdmm.matrix import Eye
        >>> Tree((4,)).loss(np.zeros((1, 3)), Eye(3), np.ones(3))[0]
        3.0
        """
        widths = self.widths

        def within(y: Array, level: int) -> Array:
            return block_product(V, by_node(y, widths[level])).reshape(-1)

        d, B = padded(diagonal_of_V, widths), padded(x, widths)
        value, gradient = loss_by_nodes(B, widths, self.order, d, within)
        return value, gradient[:, : x.shape[1]]


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
    cells on, it is what was found for the lowest nodes in the place of cells: 2^20 prefix sums are at 18.2 after 50 s
    on one core, and at 21.4 after 60 s from equal weights.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> from hdmm.select.search import first_search
    >>> loss, A = optimize_tree(AllIntervalsGram(32), [4, 32], first_search())
    >>> A.shape, loss < 5984
    ((41, 32), True)
    """
    n, L = V.shape[0], len(widths)
    tree = Tree(tuple(widths), order)
    found = _from_nodes(V, tree, search, spread) if n >= _LARGE and order == 1 else None
    if found is None:
        found = _descended(V, tree, _even(L, n, spread, search), search, steps=10_000)
    return found.value, tree.matrix(found.x)


def _from_nodes(
    V: Matrix, tree: Tree, search: Search, spread: float, *, steps: int = 10_000, tolerance: float = 1e-5
) -> Minimum | None:
    """The minimum from what is found, in the same way, for the lowest nodes as cells; None if V has no such form.

    The weights of the levels above stay constant on the lowest nodes. Those of the lowest level have a weight per cell,
    and start at 1, as the identity on the nodes had. With all weights free, descents are slow: noise of 1e-3 in single
    cells makes the error of 2^20 prefix sums 2 % larger.
    """
    (width, *above), n = tree.widths, V.shape[0]
    coarse = coarsened(V, width)
    if coarse is None:
        return None
    m, lower = coarse.shape[0], Tree(tuple(w // width for w in above), tree.order)
    most, silent = _STEPS // math.isqrt(m), search.silent()
    nodes = _from_nodes(coarse, lower, silent, spread, steps=most, tolerance=1e-7) if m > _FEW else None
    if nodes is None:
        nodes = _descended(coarse, lower, _even(len(above), m, spread, search), silent, steps=most, tolerance=1e-7)
    place = np.repeat(n + np.arange(nodes.x.size).reshape(nodes.x.shape), width, axis=1)[:, :n]
    family = Tied(tree, np.vstack([np.arange(n), place]))
    start = np.concatenate([np.ones(n), nodes.x.ravel()])
    found = _descended(V, family, start, search, steps=steps, tolerance=tolerance)
    return replace(found, x=found.x[family.place])


def _even(levels: int, n: int, spread: float, search: Search) -> Array:
    return np.full((levels, n), min(1.0, 4.0 / levels)) * np.exp(spread * search.rng.standard_normal((levels, n)))


def _descended(
    V: Matrix, family: Implicit, start: Array, search: Search, *, steps: int, tolerance: float = 1e-6
) -> Minimum:
    n = V.shape[0]
    d = diagonal(V).astype(np.float64)
    return minimize(
        lambda x: family.loss(x, V, d),
        start,
        search,
        upper=LARGEST,
        tolerance=tolerance,
        iterations=steps,
        memory=10 if n < _LARGE else 5,
    )


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


def loss_by_nodes(
    B: Array, levels: Sequence[int | Array], order: Literal[1, 2], d: Array, within: Callable[[Array, int], Array]
) -> tuple[float, Array]:
    """C = tr((AᵀA)⁻¹V) and ∂C/∂B for d = diag V, where within(y, l) is V_vv y_v for every node v of level l.

    With ũ from `eliminate` and x = s∘ũ: C = Σ s²∘diag V − Σ_v x_vᵀVx_v over the nodes v; the gradient is pulled back
    through the levels from the top.
    """
    s = column_scale(B, order)
    U, pivots, overlaps = eliminate(B, levels)
    value = float(s * s @ d)
    by_scale = 2 * s * d
    gU = np.empty_like(U)
    for level, (u, g) in enumerate(zip(U, gU, strict=True)):
        y = s * u
        Vy = within(y, level)
        value -= float(y @ Vy)
        np.multiply(Vy, -2.0, out=g)
        by_scale += g * u
        g *= s
    gB = _back(B, U, gU, levels, pivots, overlaps)
    gB += by_scale if order == 1 else B * (by_scale / s)
    return value, gB


def _back(
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
