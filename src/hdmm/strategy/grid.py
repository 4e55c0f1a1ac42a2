"""Trees over the cells of two attributes, whose nodes are rectangles that are split along both at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.domain import Domain
from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Eye, Gram, Matrix, Nested, Scaled, Sparse, Sum, quadratic, to_dense
from hdmm.privacy import Noise
from hdmm.strategy.base import BlockStrategy, Strategy
from hdmm.strategy.diagonal import Block
from hdmm.workload import Product, Workload


def grid_tree(domain: Domain, widths: Sequence[int], weights: Sequence[float]) -> Strategy:
    """Level l counts squares of widths[l] cells a side with weight weights[l], scaled to sensitivity 1.

    `widths` start at 1 and each divides the next. Where squares are never cut short, or there are two levels, the
    levels' grams are diagonal together on each attribute: O(n³) for n values an attribute, the domain's size does not
    appear. Otherwise a GridTree.

    >>> grid_tree(Domain({"x": 4, "y": 4}), [1, 2], [1, 1]).sensitivity("laplace")
    1.0
    """
    whole = math.fsum(weights)
    tree = GridTree(domain, tuple(widths), tuple(weight / whole for weight in weights))
    if len(widths) <= 2 or all(n % width == 0 for n in domain.shape for width in widths if width < n):
        return tree.blocks
    return tree


@final
@dataclass(frozen=True, eq=False)
class GridTree(Strategy):
    """Level l counts squares of widths[l] cells a side with weight weights[l], answered by walking the tree they form.

    With H the inverse gram of a node's children and θ its weight, its own is H − θ²hhᵀ/(1 + θ²c), h = H1, c = 1ᵀh:
    one vector a node, on the node's cells. O(N·levels) to find them all, and to estimate the cells from measurements;
    a workload's error then takes O(N·width) a level and product.

    >>> GridTree(Domain({"x": 3, "y": 3}), (1, 2, 4), (0.5, 0.25, 0.25)).matrix.shape
    (14, 9)
    """

    domain: Domain
    widths: tuple[int, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.domain) != 2 or len(self.weights) != len(self.widths):
            raise StrategyError(
                f"A tree of squares is over 2 attributes and has a weight a level; this one is over {len(self.domain)} "
                f"and has {len(self.weights)} for {len(self.widths)} levels."
            )
        grows = (0 < lower < upper and upper % lower == 0 for lower, upper in pairwise(self.widths))
        if self.widths[:1] != (1,) or not all(grows):
            raise StrategyError(f"Widths of squares are {self.widths}. Start at 1, each a multiple of the one before.")
        _ = self.blocks  # checks the weights

    @cached_property
    def blocks(self) -> BlockStrategy:
        """The same measurements, as products."""
        shape = self.domain.shape
        levels = {(n, w): Nested(np.ones((1, n), dtype=np.int64), [w]) for n in shape for w in self.widths if 1 < w < n}
        return BlockStrategy(
            self.domain,
            tuple(
                Block(
                    weight, tuple((i, Eye(n) if w == 1 else levels[n, w]) for i, n in enumerate(shape) if w < max(n, 2))
                )
                for w, weight in zip(self.widths, self.weights, strict=True)
            ),
        )

    @property
    def matrix(self) -> Matrix:
        return self.blocks.matrix

    def sensitivity(self, noise: Noise | str) -> float:
        return self.blocks.sensitivity(noise)

    def total_variance(self, workload: Workload) -> float:
        first = self.weights[0] ** -2
        total = 0.0
        for product in workload.products:
            V1, V2 = (
                to_dense(p.gram(n)).astype(np.float64)
                for p, n in zip(product.predicates, self.domain.shape, strict=True)
            )
            value = first * float(np.trace(V1)) * float(np.trace(V2))
            for u, width in zip(self._vectors, self.widths[1:], strict=True):
                value -= _quadratic_by_node(u, V1, V2, width)
            total += product.weight**2 * value
        return total

    def variances(self, product: Product) -> Iterator[Array]:
        yield np.maximum(quadratic(Product(product.domain, product.factors).matrix, self.gram_inverse), 0.0)

    @property
    def gram_inverse(self) -> Matrix:
        """(AᵀA)⁻¹ = I/θ₀² − Σ uuᵀ. O(N·levels) a product."""
        return Sum((Scaled(self.weights[0] ** -2, Eye(self.domain.size)), Scaled(-1.0, Gram(self._rows))))

    @cached_property
    def _vectors(self) -> list[Array]:
        """For each level above the cells, every node's vector on the node's cells: an array over the domain."""
        h = np.full(self.domain.shape, self.weights[0] ** -2)
        found: list[Array] = []
        for weight, width in zip(self.weights[1:], self.widths[1:], strict=True):
            c = _spread(_node_sums(h, width), width, h.shape)
            found.append(weight * h / np.sqrt(1 + weight**2 * c))
            h = h / (1 + weight**2 * c)
        return found

    @property
    def _rows(self) -> Sparse:
        """The vectors as rows, one a node."""
        rows: list[sp.csr_array] = []
        for u, width in zip(self._vectors, self.widths[1:], strict=True):
            i, j = (np.arange(n) // width for n in u.shape)
            node = (i[:, None] * (j[-1] + 1) + j).ravel()
            shape = (int(node[-1]) + 1, u.size)
            rows.append(sp.csr_array((u.ravel(), (node, np.arange(u.size))), shape=shape))
        return Sparse(sp.vstack(rows, format="csr"))


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
    """V's diagonal blocks of `width` cells, the last filled with zeros."""
    nodes = -(-len(V) // width)
    padded = np.zeros((nodes * width, width))
    for node in range(nodes):
        at = slice(node * width, min((node + 1) * width, len(V)))
        padded[at, : at.stop - at.start] = V[at, at]
    return padded.reshape(nodes, width, width)
