"""OPT_0 where extra rows are groups of cells: the nodes of a tree on many cells, or the groups that are asked for.

If every two sets that a workload asks for are disjoint, or one contains the other, such as tracts, counties and states,
they are the nodes of a forest over the cells. The optimum then has a row for every node and no others, up to what is
symmetric. Errors and gradients take O(nL²) for L levels, however uneven the groups are and in whatever order the cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, final

import numpy as np
import scipy.sparse as sp

from hdmm.matrix import (
    Array,
    Diag,
    ExtendedDiagonal,
    Eye,
    Forest,
    Gram,
    Matrix,
    Ones,
    Scaled,
    Sum,
    TreeIdentity,
    diagonal,
)
from hdmm.matrix.blocked import block_product, coarsened
from hdmm.matrix.dense import listed_rows
from hdmm.matrix.extended import column_scale
from hdmm.matrix.matrix import frozen
from hdmm.matrix.nested import by_node, each_cell, eliminate, node_dots, node_sums, padded
from hdmm.matrix.wrapped import Conjugated
from hdmm.select.family import LARGEST, Implicit
from hdmm.select.minimize import Minimum, minimize
from hdmm.select.search import Search

_FEW = 4096  # nodes up to which the descent starts from equal weights
_STEPS = 72_000  # on the way, over the root of the nodes: 562 on 2^14 of them, 198 on 2^17, of 0.07 s each
_LARGE = 2**18  # cells from which the nodes are solved first, to a coarser tolerance and with less memory
_MOST_NODES = 2**17
_MOST_LEVELS = 12
_STARTS = (0.3, 1.0, 0.1, 3.0)  # times the weight of every level
_CHEAP = 2**15  # levels times cells up to which one restart tries all starts; beyond, restarts take turns


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
    jitter: float = 1e-3,
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
    found = _from_nodes(V, tree, search, jitter) if n >= _LARGE and order == 1 else None
    if found is None:
        found = _descended(V, tree, _even(L, n, jitter, search), search, steps=10_000)
    return found.value, tree.matrix(found.x)


def _from_nodes(
    V: Matrix, tree: Tree, search: Search, jitter: float, *, steps: int = 10_000, tolerance: float = 1e-5
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
    nodes = _from_nodes(coarse, lower, silent, jitter, steps=most, tolerance=1e-7) if m > _FEW else None
    if nodes is None:
        nodes = _descended(coarse, lower, _even(len(above), m, jitter, search), silent, steps=most, tolerance=1e-7)
    place = np.repeat(n + np.arange(nodes.x.size).reshape(nodes.x.shape), width, axis=1)[:, :n]
    family = Tied(tree, np.vstack([np.arange(n), place]))
    start = np.concatenate([np.ones(n), nodes.x.ravel()])
    found = _descended(V, family, start, search, steps=steps, tolerance=tolerance)
    return replace(found, x=found.x[family.place])


def _even(levels: int, n: int, jitter: float, search: Search) -> Array:
    return np.full((levels, n), min(1.0, 4.0 / levels)) * np.exp(jitter * search.rng.standard_normal((levels, n)))


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


@final
@dataclass(frozen=True, slots=True, eq=False)
class NestedGroups:
    """V = diag(single) + Σ_v squares_v·1_v1_vᵀ over the nodes v of a forest.

    `nodes` has the node of every level and cell, `squares` the square of each node's weight by level and cell. A node
    is asked for on one level; above, it is repeated with weight 0 until its parent begins.
    """

    single: Array
    nodes: Array
    squares: Array

    @property
    def asked(self) -> Array:
        """Whether the node of each level and cell is asked for there."""
        return self.squares > 0


@final
@dataclass(frozen=True, slots=True, eq=False)
class ForestIdentity(Implicit):
    """p-Identity matrices whose rows are the nodes of a forest; x has one weight per level and cell."""

    groups: NestedGroups
    order: Literal[1, 2] = 1

    def matrix(self, x: Array) -> ExtendedDiagonal:
        return ExtendedDiagonal(Forest(x, self.groups.nodes), order=self.order)

    def loss(self, x: Array, V: Matrix, diagonal_of_V: Array) -> tuple[float, Array]:
        """C = tr((AᵀA)⁻¹V) and ∂C/∂x, as Tree has them; V is that of the groups. O(nL²)."""
        return loss_by_nodes(x, list(self.groups.nodes), self.order, diagonal_of_V, self._within)

    def _within(self, y: Array, level: int) -> Array:
        """V_vv y_v for every node v of a level: nodes below it see what they hold, nodes above all that v holds."""
        out = self.groups.single * y
        for k, squares in enumerate(self.groups.squares):
            nodes = self.groups.nodes[min(k, level)]
            out += squares * each_cell(node_sums(y, nodes), nodes)
        return out


def optimize_forest(
    groups: NestedGroups, search: Search, *, order: Literal[1, 2] = 1, jitter: float = 1e-3
) -> Iterator[tuple[float, Matrix]]:
    """(loss, matrix) of the best p-Identity over the nodes near each start; the loss is tr((AᵀA)⁻¹V).

    Each row has one weight per node of the level below it: cells of the lowest nodes are alike. Rows that are not asked
    for start at 0 and stay there, because the loss grows with them.

    >>> from hdmm.select.search import first_search
    >>> loss, A = next(optimize_forest(nested_groups(Sum((Eye(64), Scaled(9, Ones(64, 64))))), first_search()))
    >>> A.shape, loss < 400
    ((65, 64), True)
    """
    L = len(groups.nodes)
    single = groups.single + groups.squares.sum(axis=0)
    place = np.concatenate([groups.nodes[:1], groups.nodes[:-1]])
    counts = place.max(axis=1) + 1
    place = place + (np.cumsum(counts) - counts)[:, None]
    family = Tied(ForestIdentity(groups, order), place)
    turn = search.restart % len(_STARTS)
    for scale in _STARTS if place.size <= _CHEAP else _STARTS[turn : turn + 1]:
        start = np.zeros(int(counts.sum()))
        start[place[groups.asked]] = min(1.0, 4.0 / L) * scale
        start *= np.exp(jitter * search.rng.standard_normal(start.shape))
        found = minimize(lambda x: family.loss(x, Eye(1), single), start, search, upper=LARGEST, tolerance=1e-7)
        yield found.value, family.matrix(found.x)


def nested_groups(V: Matrix) -> NestedGroups | None:
    """The groups that V is made of, or None if it is not made of nested ones only. O(entries of its rows).

    >>> nested_groups(Sum((Eye(3), Ones(3, 3)))).squares
    array([[1., 1., 1.]])
    """
    n = V.shape[0]
    parts = _rows(V)
    if parts is None or not parts:
        return None
    rows = cast(Any, sp.vstack(parts, format="csr"))  # scipy.sparse has no type stubs
    rows.eliminate_zeros()
    sizes = np.diff(rows.indptr)
    alone = np.flatnonzero(sizes == 1)
    single = np.bincount(rows.indices[rows.indptr[alone]], weights=rows.data[rows.indptr[alone]] ** 2, minlength=n)
    several = np.flatnonzero(sizes > 1)
    if not several.size or several.size > _MOST_NODES:
        return None
    return _laid_out(rows, several[np.argsort(sizes[several], kind="stable")], single)


def _rows(V: Matrix) -> list[Any] | None:
    """Rows R with V = RᵀR, each constant where it is not 0; None if there are none such."""
    match V:
        case Scaled(c, inner) if c > 0:
            rows = _rows(inner)
            return None if rows is None else [np.sqrt(c) * each for each in rows]
        case Sum(terms):
            parts = [_rows(term) for term in terms]
            return None if any(p is None for p in parts) else [each for p in parts if p is not None for each in p]
        case Conjugated(inner, index):
            rows = _rows(inner)
            return None if rows is None else [each[:, index] for each in rows]
        case Eye():
            return [sp.eye_array(V.n, format="csr")]
        case Diag(d) if (d >= 0).all():
            return [sp.diags_array(np.sqrt(d.astype(np.float64)), format="csr")]
        case Ones(n):
            return [sp.csr_array(np.ones((1, n)))]
        case Gram(inner):
            rows = listed_rows(inner)
            if rows is None or not rows.nnz:
                return None
            level = np.repeat(rows.data[np.minimum(rows.indptr[:-1], rows.nnz - 1)], np.diff(rows.indptr))
            return [rows] if np.array_equal(level, rows.data) else None
        case _:
            return None


def _laid_out(rows: Any, order: Array, single: Array) -> NestedGroups | None:
    """The forest of these rows, which come by size; None if two of them cross."""
    n = rows.shape[1]
    top = np.full(n, -1)
    sizes, heights, squares = list[int](), list[int](), list[float]()
    members: list[Array] = []
    for row in order:
        cells = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
        square = float(rows.data[rows.indptr[row]]) ** 2
        inside, counts = np.unique(top[cells], return_counts=True)
        inside, counts = inside[inside >= 0], counts[inside >= 0]
        if any(sizes[v] != count for v, count in zip(inside, counts, strict=True)):
            return None
        if len(inside) == 1 and counts[0] == len(cells):
            squares[inside[0]] += square
            continue
        top[cells] = len(sizes)
        sizes.append(len(cells))
        heights.append(1 + max((heights[v] for v in inside), default=-1))
        squares.append(square)
        members.append(cells)
    L = max(heights) + 1
    if L > _MOST_LEVELS:
        return None
    nodes, weights = np.empty((L, n), np.int64), np.zeros((L, n))
    lowest = np.full(n, -1)  # the smallest node of every cell
    for v in reversed(range(len(sizes))):
        lowest[members[v]] = v
    for level in range(L):
        held = -2 - lowest  # cells of a larger node that no node of this level holds stay together
        for v in (v for v in range(len(sizes)) if heights[v] <= level):
            held[members[v]] = v
        for v in (v for v in range(len(sizes)) if heights[v] == level):
            weights[level, members[v]] = squares[v]
        nodes[level] = np.unique(held, return_inverse=True)[1]
    return NestedGroups(single, frozen(nodes), frozen(weights))
