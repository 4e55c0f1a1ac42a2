"""Nested: rows supported on the nodes of a tree over the cells, and how the identity with such rows is inverted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import SupportsIndex, final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.exceptions import MatrixError
from hdmm.matrix.base import Array, Matrix
from hdmm.matrix.checks import count, frozen, numbers, widened


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


def eliminate(weights: Array, widths: Sequence[int]) -> tuple[Array, list[Array], list[list[Array]]]:
    """Ũ with (I + ΘᵀΘ)⁻¹ = I − ŨᵀŨ, supported on the same nodes; and what its derivative needs. O(nL²).

    Level by level, when all lower nodes are known: u = b − Σ_{k below} ũ_k(ũ_k·b), ũ = u/√(1 + b·u). `weights`
    is L × N with N a multiple of every width (cells of weight 0 are added if there are fewer). Returned:
    Ũ as L × N, 1 + b·u of each level's nodes, and ũ_k·b of each pair of levels.

    >>> eliminate(np.array([[1.0, 1.0]]), [2])[0].round(3)
    array([[0.577, 0.577]])
    """
    U = np.empty_like(weights)
    pivots: list[Array] = []
    overlaps: list[list[Array]] = []
    for level, (b, width) in enumerate(zip(weights, widths, strict=True)):
        u = U[level]
        u[:] = b
        overlaps.append([])
        for lower, lower_width in zip(U[:level], widths, strict=False):
            c = by_node(lower * b, lower_width).sum(axis=1)
            by_node(u, lower_width)[:] -= by_node(lower, lower_width) * c[:, None]
            overlaps[-1].append(c)
        pivot = 1.0 + by_node(b * u, width).sum(axis=1)
        by_node(u, width)[:] /= np.sqrt(pivot)[:, None]
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
