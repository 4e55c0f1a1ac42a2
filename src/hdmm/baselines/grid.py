"""Trees over the cells of two attributes, whose nodes are rectangles that are split along both at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.domain import Domain
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
    levels = {(n, w): Nested(np.ones((1, n)), [w]) for n in domain.shape for w in widths if 1 < w < n}
    whole = math.fsum(weights)
    blocks = tuple(
        Block(weight / whole, tuple((i, _level(n, w, levels)) for i, n in enumerate(domain.shape) if w < max(n, 2)))
        for w, weight in zip(widths, weights, strict=True)
    )
    flat = BlockStrategy(domain, blocks)
    if len(widths) <= 2 or all(n % w == 0 for n, w in levels):
        return flat
    return GridTree(flat, tuple(widths))


def _level(n: int, width: int, levels: dict[tuple[int, int], Nested]) -> Matrix:
    return Eye(n) if width == 1 else levels[n, width]


@final
@dataclass(frozen=True, eq=False)
class GridTree(Strategy):
    """The same measurements as `blocks`, whose error is found by walking the tree of rectangles instead.

    With H the inverse gram of a node's children and θ its weight, its own is H − θ²hhᵀ/(1 + θ²c), h = H1, c = 1ᵀh:
    one vector a node, on the node's cells. O(N·levels) to find them all; a workload's error then takes O(N·width) a
    level and product.
    """

    blocks: BlockStrategy
    widths: tuple[int, ...]

    @property
    def domain(self) -> Domain:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.blocks.domain

    @property
    def matrix(self) -> Matrix:
        return self.blocks.matrix

    def sensitivity(self, noise: Noise) -> float:
        return self.blocks.sensitivity(noise)

    def total_variance(self, workload: Workload) -> float:
        first = self._weights[0] ** -2
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
        n = self.domain.size
        inverse = Sum((Scaled(self._weights[0] ** -2, Eye(n)), Scaled(-1.0, Gram(self._rows))))
        yield np.maximum(quadratic(Product(product.domain, product.factors).matrix, inverse), 0.0)

    @property
    def _weights(self) -> list[float]:
        return [block.weight for block in self.blocks.blocks]

    @cached_property
    def _vectors(self) -> list[Array]:
        """For each level above the cells, every node's vector on the node's cells: an array over the domain."""
        h = np.full(self.domain.shape, self._weights[0] ** -2)
        found: list[Array] = []
        for weight, width in zip(self._weights[1:], self.widths[1:], strict=True):
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
