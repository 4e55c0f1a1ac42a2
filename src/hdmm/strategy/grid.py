"""Grid: X⁻¹ for trees over the cells of two attributes, whose nodes are squares split along both at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import final

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.matrix import Array, Eye, Gram, Kron, Matrix, Nested, Scaled, Sparse, Sum, quadratic, to_dense
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_inverse import Boxes, Inverse, Pairs
from hdmm.strategy.mixture import Mixture


@final
@dataclass(frozen=True, eq=False)
class Grid(Inverse):
    """Level l counts squares of widths[l] cells per side with weight weights[l]; X is inverted by walking the tree.

    If H is the inverse gram of a node's children and θ the node's weight, its own inverse gram is
    H − θ²hhᵀ/(1 + θ²c) with h = H1 and c = 1ᵀh: one vector per node, on the node's cells. It takes O(N·levels) to find
    them all, and to estimate the cells from measurements; a workload's error then takes O(N·width) per level and
    product.
    """

    shape: tuple[int, ...]
    widths: tuple[int, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], blocks: Sequence[Block]) -> Grid | None:
        """The inverse for blocks that count squares of widths 1 < … which divide each other; None if they do not.

        >>> halves = Nested(np.ones((1, 3), dtype=np.int64), [2])
        >>> cells, squares = Block(0.5, [(0, Eye(3)), (1, Eye(3))]), Block(0.5, [(0, halves), (1, halves)])
        >>> Grid.of((3, 3), (squares, cells)).widths
        (1, 2)
        """
        if len(shape) != 2:
            return None
        levels = sorted(((_width(block, shape), block.weight) for block in blocks), key=lambda level: level[0])
        widths = [width for width, _ in levels]
        if widths[0] != 1:
            return None
        if widths[-1] == _WHOLE:  # one square for all cells: any width that covers them will do
            widths[-1] = _covering(widths[-2], max(shape))
        if any(upper % lower or upper == lower for lower, upper in pairwise(widths)):
            return None
        return cls(shape, tuple(widths), tuple(weight for _, weight in levels))

    def total(self, t: Mixture, V: Sequence[Matrix], *, supported: bool = False) -> float:
        """O(N·width) per level; every query is supported."""
        V1, V2 = (to_dense(each).astype(np.float64) for each in V)
        value = self.weights[0] ** -2 * float(np.trace(V1)) * float(np.trace(V2))
        for u, width in zip(self._vectors, self.widths[1:], strict=True):
            value -= _quadratic_by_node(u, V1, V2, width)
        return float(t.coefficients.sum()) * value

    def queries(self, boxes: Boxes, W: Sequence[Matrix]) -> Array:
        return np.maximum(quadratic(Kron(tuple(W)), self.gram_inverse), 0.0)

    def pairs(self, boxes: Boxes, columns: Sequence[Pairs]) -> Array:
        (R1, S1, first), (R2, S2, second) = columns
        R, S = (scipy.linalg.khatri_rao(A[:, first], B[:, second]) for A, B in ((R1, R2), (S1, S2)))
        return np.einsum("ij,ij->j", R, self.gram_inverse.matmat(S))[:, None]

    def solved(self, T: Array, boxes: Boxes, sizes: Sequence[Array]) -> Array:
        return max(self.weights) ** 2 * self.gram_inverse.matmat(T.reshape(-1, 1)).reshape(T.shape)

    @property
    def gram_inverse(self) -> Matrix:
        """(AᵀA)⁻¹ = I/θ₀² − Σ uuᵀ. O(N·levels) per product."""
        return Sum((Scaled(self.weights[0] ** -2, Eye(math.prod(self.shape))), Scaled(-1.0, Gram(self._rows))))

    @cached_property
    def _vectors(self) -> list[Array]:
        """For each level above the cells, every node's vector on the node's cells: an array over the domain."""
        h = np.full(self.shape, self.weights[0] ** -2)
        found: list[Array] = []
        for weight, width in zip(self.weights[1:], self.widths[1:], strict=True):
            c = _spread(_node_sums(h, width), width, h.shape)
            found.append(weight * h / np.sqrt(1 + weight**2 * c))
            h = h / (1 + weight**2 * c)
        return found

    @property
    def _rows(self) -> Sparse:
        """The vectors as rows, one per node."""
        rows: list[sp.csr_array] = []
        for u, width in zip(self._vectors, self.widths[1:], strict=True):
            i, j = (np.arange(n) // width for n in u.shape)
            node = (i[:, None] * (j[-1] + 1) + j).ravel()
            shape = (int(node[-1]) + 1, u.size)
            rows.append(sp.csr_array((u.ravel(), (node, np.arange(u.size))), shape=shape))
        return Sparse(sp.vstack(rows, format="csr"))


def grid_blocks(domain: Domain, widths: Sequence[int], weights: Sequence[float]) -> tuple[Block, ...]:
    """The blocks of a tree of squares: level l has squares of widths[l] cells per side, and weight weights[l].

    >>> [block.rows for block in grid_blocks(Domain({"x": 3, "y": 3}), [1, 2, 4], [0.5, 0.25, 0.25])]
    [9, 4, 1]
    """
    if len(domain) != 2 or len(weights) != len(widths):
        raise StrategyError(
            f"A tree of squares needs 2 attributes and one weight per level; this one is over {len(domain)} and "
            f"has {len(weights)} weights for {len(widths)} levels."
        )
    grows = (0 < lower < upper and upper % lower == 0 for lower, upper in pairwise(widths))
    if tuple(widths[:1]) != (1,) or not all(grows):
        raise StrategyError(f"The widths are {tuple(widths)}. Start at 1, and make each a multiple of the one before.")
    shape = domain.shape
    sums = {(n, w): Nested(np.ones((1, n), dtype=np.int64), [w]) for n in shape for w in widths if 1 < w < n}
    return tuple(
        Block(weight, [(i, Eye(n) if w == 1 else sums[n, w]) for i, n in enumerate(shape) if w < max(n, 2)])
        for w, weight in zip(widths, weights, strict=True)
    )


_WHOLE = 1 << 62  # the width of a square that covers all cells
_OTHER = 0  # a block that counts no squares


def _width(block: Block, shape: tuple[int, ...]) -> int:
    """The width of the squares that a block counts; _WHOLE for the total, _OTHER for anything else."""
    found = {i: _side(A) for i, A in block.by_axis.items()}
    if not found:
        return _WHOLE
    width = min(found.values())
    fits = all(side == width for side in found.values()) and all(i in found or n <= width for i, n in enumerate(shape))
    return width if fits else _OTHER


def _side(A: Matrix) -> int:
    match A:
        case Eye():
            return 1
        case Nested(values, (width,)) if (values == 1).all():
            return width
        case _:
            return _OTHER


def _covering(width: int, n: int) -> int:
    """The least multiple of a width, at least twice the width, that is at least n."""
    return width * max(2, -(-n // width))


def _node_sums(x: Array, width: int) -> Array:
    down = np.add.reduceat(x, np.arange(0, x.shape[0], width), axis=0)
    return np.add.reduceat(down, np.arange(0, x.shape[1], width), axis=1)


def _spread(sums: Array, width: int, shape: tuple[int, ...]) -> Array:
    return np.repeat(np.repeat(sums, width, axis=0)[: shape[0]], width, axis=1)[:, : shape[1]]


def _quadratic_by_node(u: Array, V1: Array, V2: Array, width: int) -> float:
    """Σ over the nodes of uᵀ(V1 ⊗ V2)u restricted to the node. O(N·width)."""
    first, second = (min(width, n) for n in u.shape)
    blocks1, blocks2 = _diagonal_blocks(V1, first), _diagonal_blocks(V2, second)
    padded = np.zeros((len(blocks1) * first, len(blocks2) * second))
    padded[: u.shape[0], : u.shape[1]] = u
    X = padded.reshape(len(blocks1), first, len(blocks2), second).transpose(0, 2, 1, 3)
    return float(np.sum(X * (blocks1[:, None] @ X @ blocks2[None])))


def _diagonal_blocks(V: Array, width: int) -> Array:
    """V's diagonal blocks of `width` cells, the last one padded with zeros."""
    nodes = -(-len(V) // width)
    padded = np.zeros((nodes * width, width))
    for node in range(nodes):
        at = slice(node * width, min((node + 1) * width, len(V)))
        padded[at, : at.stop - at.start] = V[at, at]
    return padded.reshape(nodes, width, width)
