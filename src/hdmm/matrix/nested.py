"""Nested, Forest, Haar: rows supported on the nodes of a tree over the cells; the identity with such rows inverted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, SupportsIndex, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from hdmm.base.exceptions import MatrixError
from hdmm.matrix.elementary import sparse_along
from hdmm.matrix.matrix import Array, Matrix, count, frozen, numbers, widened


@final
@dataclass(frozen=True, slots=True, eq=False)
class Nested(Matrix):
    """One row per node: level l cuts the cells into nodes of widths[l] cells, whose entries are values[l].

    Levels go from the leaves up; each width divides the next, and the last node of a level may be cut short.
    O(nL) per column for L levels; integers stay integers.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Nested([[1, 2, 3], [4, 5, 6]], widths=[2, 4]))
    array([[1., 2., 0.],
           [0., 0., 3.],
           [4., 5., 6.]])
    """

    values: Array
    widths: tuple[int, ...]

    def __init__(self, values: ArrayLike, widths: Sequence[SupportsIndex]) -> None:
        held = numbers(values, "values of Nested", 2)
        sizes = tuple(count(w, "a width of Nested") for w in widths)
        if len(held) != len(sizes):
            raise MatrixError(f"Nested has {len(held)} rows of values but {len(sizes)} widths; give one per level.")
        if held.shape[1] < 1:
            raise MatrixError(f"Nested needs at least one cell; its values have shape {held.shape}.")
        for lower, upper in pairwise(sizes):
            if upper % lower:
                raise MatrixError(
                    f"Each width of Nested must divide the next from the leaves up; {lower} does not divide {upper}."
                )
        object.__setattr__(self, "values", frozen(widened(held)))
        object.__setattr__(self, "widths", sizes)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The number of nodes of every level."""
        return tuple(-(-self.values.shape[1] // width) for width in self.widths)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(self.nodes), self.values.shape[1]

    def along(self, X: Array) -> Array:
        """Sums over the nodes of each level."""
        n = self.values.shape[1]
        X = widened(X)
        out = np.empty((X.shape[0], self.shape[0], X.shape[2]), dtype=np.result_type(X, self.values))
        row = 0
        for b, width, nodes in zip(self.values, self.widths, self.nodes, strict=True):
            np.add.reduceat(X * b[:, None], np.arange(0, n, width), axis=1, out=out[:, row : row + nodes])
            row += nodes
        return out

    def along_t(self, X: Array) -> Array:
        """Every cell collects the nodes it is in."""
        n = self.values.shape[1]
        X = widened(X)
        out = np.zeros((X.shape[0], n, X.shape[2]), dtype=np.result_type(X, self.values))
        row = 0
        for b, width, nodes in zip(self.values, self.widths, self.nodes, strict=True):
            out += np.repeat(X[:, row : row + nodes], width, axis=1)[:, :n] * b[:, None]
            row += nodes
        return out


@final
@dataclass(frozen=True, slots=True, eq=False)
class Forest(Matrix):
    """One row per node, as Nested, but nodes are any sets of cells: nodes[l] has the node of every cell at level l.

    Levels go from the leaves up, and every node lies in one node of the next level. O(nL) per column for L levels;
    integers stay integers.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Forest([[1, 2, 3], [4, 5, 6]], nodes=[[0, 1, 0], [0, 0, 0]]))
    array([[1., 0., 3.],
           [0., 2., 0.],
           [4., 5., 6.]])
    """

    values: Array
    nodes: Array
    csr: Any = field(repr=False)  # scipy.sparse.csr_array, which has no type stubs

    def __init__(self, values: ArrayLike, nodes: ArrayLike) -> None:
        held, given = numbers(values, "values of Forest", 2), numbers(nodes, "nodes of Forest", 2)
        if given.dtype.kind == "f" or given.shape != held.shape or not given.size or given.min() < 0:
            raise MatrixError("Forest takes a node for every level and cell: whole numbers from 0.")
        levels = given.astype(np.int64)
        counts = levels.max(axis=1) + 1
        for level, count_ in zip(levels, counts, strict=True):
            if count_ > level.size or (np.bincount(level) == 0).any():
                raise MatrixError("Nodes of Forest are numbered from 0 on every level, and none is without cells.")
        for lower, upper in pairwise(levels):
            if len(np.unique(lower * int(upper.max() + 1) + upper)) > lower.max() + 1:
                raise MatrixError("Each node of Forest must lie in one node of the next level.")
        rows = (levels + (np.cumsum(counts) - counts)[:, None]).ravel()
        cells = np.broadcast_to(np.arange(levels.shape[1]), levels.shape).ravel()
        shape = (int(counts.sum()), levels.shape[1])
        object.__setattr__(self, "values", frozen(widened(held)))
        object.__setattr__(self, "nodes", frozen(levels))
        object.__setattr__(self, "csr", sp.csr_array((widened(held).ravel(), (rows, cells)), shape=shape))

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.csr.shape
        return int(m), int(n)

    def along(self, X: Array) -> Array:
        """Sums over the nodes of each level."""
        return sparse_along(self.csr, X)

    def along_t(self, X: Array) -> Array:
        """Every cell collects the nodes it is in."""
        return sparse_along(self.csr.T, X)


def node_sums(x: Array, nodes: int | Array) -> Array:
    """The sum of x over each node: runs of so many cells, or the cells with the same number. O(n).

    >>> node_sums(np.array([1.0, 2.0, 3.0, 4.0]), 2), node_sums(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 0]))
    (array([3., 7.]), array([4., 2.]))
    """
    return by_node(x, nodes).sum(axis=1) if isinstance(nodes, int) else np.bincount(nodes, weights=x)


def node_dots(x: Array, y: Array, nodes: int | Array) -> Array:
    """x·y over each node, without an array of the products where nodes are runs. O(n).

    >>> node_dots(np.array([1.0, 2.0]), np.array([3.0, 4.0]), 2)
    array([11.])
    """
    if isinstance(nodes, int):
        return np.einsum("vi,vi->v", by_node(x, nodes), by_node(y, nodes))
    return np.bincount(nodes, weights=x * y)


def each_cell(c: Array, nodes: int | Array) -> Array:
    """The number of every cell's node. O(n).

    >>> each_cell(np.array([3.0, 7.0]), 2)
    array([3., 3., 7., 7.])
    """
    return np.repeat(c, nodes) if isinstance(nodes, int) else c[nodes]


def eliminate(weights: Array, levels: Sequence[int | Array]) -> tuple[Array, list[Array], list[list[Array]]]:
    """Ũ with (I + ΘᵀΘ)⁻¹ = I − ŨᵀŨ, supported on the same nodes; and what its derivative needs. O(nL²).

    Level by level, when all lower nodes are known: u = b − Σ_{k below} ũ_k(ũ_k·b), ũ = u/√(1 + b·u). `weights`
    is L × N; levels are widths, each of which divides N (cells of weight 0 are added if there are fewer), or the node
    of every cell. Returned: Ũ as L × N, 1 + b·u of each level's nodes, and ũ_k·b of each pair of levels.

    >>> eliminate(np.array([[1.0, 1.0]]), [2])[0].round(3)
    array([[0.577, 0.577]])
    """
    U = np.empty_like(weights)
    pivots: list[Array] = []
    overlaps: list[list[Array]] = []
    for level, (b, nodes) in enumerate(zip(weights, levels, strict=True)):
        u = U[level]
        u[:] = b
        overlaps.append([])
        for lower, below in zip(U[:level], levels, strict=False):
            c = node_sums(lower * b, below)
            u -= lower * each_cell(c, below)
            overlaps[-1].append(c)
        pivot = 1.0 + node_sums(b * u, nodes)
        u /= each_cell(np.sqrt(pivot), nodes)
        pivots.append(pivot)
    return U, pivots, overlaps


def by_node(x: Array, width: int) -> Array:
    """x as nodes × width, not copied. O(1).

    >>> by_node(np.arange(4), 2)
    array([[0, 1],
           [2, 3]])
    """
    return x.reshape(-1, width)


def padded(x: Array, widths: Sequence[int]) -> Array:
    """x with zeros appended along its last axis, so that every width divides its length. O(size) or free.

    >>> padded(np.ones((1, 3)), [2, 4])
    array([[1., 1., 1., 0.]])
    """
    n = x.shape[-1]
    missing = -n % widths[-1] if widths else 0
    return np.concatenate([x, np.zeros((*x.shape[:-1], missing))], axis=-1) if missing else x


@final
@dataclass(frozen=True, slots=True)
class Haar(Matrix):
    """The total, then for every node of a binary tree its left half less its right half, wide nodes first.

    The tree has N leaves, where N is the least power of two that is at least n. Columns past n are left out, and so
    are rows that are all zero without them. O(n) per column.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Haar(3))
    array([[ 1.,  1.,  1.],
           [ 1.,  1., -1.],
           [ 1., -1.,  0.],
           [ 0.,  0.,  1.]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", count(self.n, "n of Haar"))

    @property
    def widths(self) -> tuple[int, ...]:
        """The cells of a node, by level from the leaves up: 2, 4, …, N."""
        return tuple(2**level for level in range(1, (self.n - 1).bit_length() + 1))

    @property
    def shape(self) -> tuple[int, int]:
        return 1 + sum(-(-self.n // width) for width in self.widths), self.n

    def along(self, X: Array) -> Array:
        """Sums and differences of neighbours, then the same of the sums."""
        sums, parts = widened(X), list[Array]()
        for _ in self.widths:
            if sums.shape[1] % 2:
                sums = np.concatenate([sums, np.zeros_like(sums[:, :1])], axis=1)
            left, right = sums[:, 0::2], sums[:, 1::2]
            parts.append(left - right)
            sums = left + right
        return np.concatenate([sums, *reversed(parts)], axis=1)

    def along_t(self, X: Array) -> Array:
        """A node's value, plus or minus its own row, goes to its halves."""
        values = widened(X)
        cells, row = values[:, :1], 1
        for width in reversed(self.widths):
            nodes = -(-self.n // width)
            step = values[:, row : row + nodes]
            halves = np.stack([cells + step, cells - step], axis=2)
            cells = halves.reshape(len(values), 2 * nodes, values.shape[2])[:, : -(-2 * self.n // width)]
            row += nodes
        return cells


def haar_inverse(n: int) -> tuple[Array, tuple[int, ...], Array]:
    """(F, widths, C) with (AᵀA)⁻¹ = Σ_nodes ffᵀ − CᵀC for A = Haar(n); F is by level, as in `Nested`.

    If n = N, the rows of A are orthogonal: F is A with each row divided by its squared norm, and C is empty. If n < N,
    the padding falls into k ≤ log₂ N whole nodes; if H is the inverse on the cells and these nodes together, the
    inverse for the cells alone is H_nn − H_nk H_kk⁻¹ H_kn. O(n log² N).

    >>> haar_inverse(2)
    (array([[ 0.5, -0.5], [ 0.5,  0.5]]), (2, 2), array([], shape=(0, 2), dtype=float64))
    """
    widths = Haar(n).widths
    whole = widths[-1] if widths else 1
    starts, sizes = [n], list[int]()
    while starts[-1] < whole:
        sizes.append(starts[-1] & -starts[-1])
        starts.append(starts[-1] + sizes[-1])
    cells, size = np.append(np.arange(n), starts[:-1]), np.append(np.ones(n), sizes)
    F, G = np.empty((len(widths) + 1, n)), np.zeros((len(sizes), cells.size))
    for level, width in enumerate((*widths, whole)):
        sign = np.where(cells % width < width // 2, 1.0, -1.0) if level < len(widths) else np.ones(cells.size)
        f = np.where(size < width, sign * size / width, 1.0 if whole == 1 else 0.0)
        F[level] = f[:n]
        G += np.where(cells[n:, None] // width == cells // width, np.outer(f[n:], f), 0.0)
    C = np.linalg.solve(np.linalg.cholesky(G[:, n:]), G[:, :n]) if sizes else np.empty((0, n))
    return F, (*widths, whole), C
