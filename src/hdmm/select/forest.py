"""OPT_0 for nested groups of cells, such as tracts, counties and states: p-Identities whose extra rows are the groups.

If every two sets that a workload asks for are disjoint, or one contains the other, they are the nodes of a forest over
the cells. The optimum then has a row for every node and no others, up to what is symmetric, and errors and gradients
take O(nL²) for L levels, however uneven the groups are and in whatever order the cells are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast, final

import numpy as np
import scipy.sparse as sp

from hdmm.matrix import Array, Diag, ExtendedDiagonal, Eye, Forest, Gram, Matrix, Ones, Scaled, Sum
from hdmm.matrix.checks import frozen
from hdmm.matrix.listed import listed_rows
from hdmm.matrix.nested import each_cell, node_sums
from hdmm.matrix.wrapped import Conjugated
from hdmm.select.family import LARGEST, Implicit
from hdmm.select.minimize import minimize
from hdmm.select.search import Search
from hdmm.select.tree import Tied, loss_by_nodes

_MOST_NODES = 2**17
_MOST_LEVELS = 12
_STARTS = (0.3, 1.0, 0.1, 3.0)  # times the weight of every level
_FEW = 2**15  # levels times cells up to which one restart tries all starts; beyond, restarts take turns


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
    groups: NestedGroups, search: Search, *, order: Literal[1, 2] = 1, spread: float = 1e-3
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
    for scale in _STARTS if place.size <= _FEW else _STARTS[turn : turn + 1]:
        start = np.zeros(int(counts.sum()))
        start[place[groups.asked]] = min(1.0, 4.0 / L) * scale
        start *= np.exp(spread * search.rng.standard_normal(start.shape))
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
