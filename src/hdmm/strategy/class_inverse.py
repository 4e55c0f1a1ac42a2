"""Inverse: X_b⁻¹ for every class b of the attributes that split, on the cells of those that do not.

For every combination b of classes (axis.py), what the blocks measure of the *free* attributes is one matrix,
X_b = Σ_j θ_j² (Π_i δ_ji) G_j, and with what is asked of it, V_b, the error is

    ‖W A⁺‖²_F = Σ_b tr(X_b⁻¹V_b)

If no attribute is free, X_b is the number λ_b. If one is, X_b is any n × n matrix, as where blocks have bases of their
own on it, or where all attributes are written out as one; the others then have two classes each. If both of two are,
blocks are squares of their cells, as HB and quadtrees have them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias, final

import numpy as np
import scipy.linalg

from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import SUPPORT
from hdmm.describe.product import Attributes
from hdmm.matrix import (
    Array,
    Dense,
    Eye,
    Forest,
    Gram,
    Kron,
    Matrix,
    Nested,
    Scaled,
    Sum,
    gram,
    quadratic,
    to_dense,
    trace,
    trace_product,
)
from hdmm.matrix.nested import eliminate
from hdmm.strategy.blocks import Block
from hdmm.strategy.mixture import SLAB_CELLS, Mixture, box_keys, quotient_sum
from hdmm.strategy.subsets import Subsets

_MAX_BOX = 1 << 28  # cells one product's variances may need at once (2 GiB)
_MOST_NUMBERS = 1 << 26  # of the inverses of all classes together (512 MiB)
_MOST_STEPS = 1 << 36  # Σ n³ over all classes: half a minute
_MOST_REACH = 1 << 20  # classes that the blocks reach, repeats counted
_SAFE = 1e-10  # least squared pivot, of a matrix with diagonal 1, at which a Cholesky factor is trusted
_WHOLE = 1 << 62  # the width of a square that covers all cells
_OTHER = 0  # of a block that counts no squares

Boxes: TypeAlias = Mapping[int, Array]
"""The classes of some attributes, ascending; the others are in their first class, which is Total's."""

Pairs: TypeAlias = tuple[Array, Array, Array]
"""Columns r and s on the cells of a free attribute, and which of them each pair of queries has."""


class Inverse(ABC):
    """X_b⁻¹ of every class b; 0 where nothing is measured."""

    @abstractmethod
    def total(self, t: Mixture, V: Sequence[Matrix], *, supported: bool = False) -> float:
        """Σ_b t_b·tr(X_b⁻¹(⊗V)); infinite where it is asked for but not measured, unless `supported` is known."""

    @abstractmethod
    def queries(self, boxes: Boxes, W: Sequence[Matrix]) -> Array:
        """wX_b⁻¹wᵀ for the rows w of ⊗W, flat: by classes, the first attribute's slowest, then by rows."""

    @abstractmethod
    def pairs(self, boxes: Boxes, columns: Sequence[Pairs]) -> Array:
        """rᵀX_b⁻¹s of each pair: pairs × classes, or one row if it is the same for all."""

    @abstractmethod
    def solved(self, T: Array, boxes: Boxes, sizes: Sequence[Array]) -> Array:
        """X_b⁻¹T times the largest squared weight, to which T is relative; it may overwrite T.

        T has one axis for each attribute of the boxes or free, ascending; `sizes` are the coordinates of the classes.
        """


@final
@dataclass(frozen=True, eq=False)
class Scalars(Inverse):
    """1/λ, where no attribute is free."""

    lam: Mixture

    def total(self, t: Mixture, V: Sequence[Matrix], *, supported: bool = False) -> float:
        return quotient_sum(t, self.lam, supported=supported)

    def queries(self, boxes: Boxes, W: Sequence[Matrix]) -> Array:
        lam = self.at(boxes)
        return np.divide(1.0, lam, out=np.zeros(lam.shape), where=lam > 0)

    def pairs(self, boxes: Boxes, columns: Sequence[Pairs]) -> Array:
        return self.queries(boxes, ()).reshape(1, -1)

    def solved(self, T: Array, boxes: Boxes, sizes: Sequence[Array]) -> Array:
        lam = self.at(boxes)
        inverse = np.divide(self.lam.coefficients.max(), lam, out=np.zeros(lam.shape), where=lam > 0)
        if (inverse == 1).all():
            return T
        inverse = inverse.reshape([len(box) for box in boxes.values()])
        for k, each in enumerate(sizes):
            if len(each) > 1:
                inverse = np.repeat(inverse, each, axis=k)
        T *= inverse
        return T

    def at(self, boxes: Boxes) -> Array:
        """λ on the cells of a box, flat."""
        size = math.prod(len(box) for box in boxes.values())
        if size > _MAX_BOX:
            raise StrategyError(
                f"The variances of these queries need {size:.1e} cells of the strategy's form in memory. Ask for "
                "the total error instead, or for queries on fewer attributes."
            )
        if self.lam.cells > SLAB_CELLS and self.lam.is_binary:
            return self.lam.sparse.at(box_keys(boxes, len(self.lam.tables)))
        first = np.zeros(1, dtype=np.intp)
        every = [boxes.get(i, first) for i in range(len(self.lam.tables))]
        if self.lam.cells > SLAB_CELLS:
            return self.lam.restricted(every).values()
        places = first
        for table, box in zip(self.lam.tables, every, strict=True):
            places = (places[:, None] * len(table) + box).ravel()
        return self._all_cells[places]

    @cached_property
    def _all_cells(self) -> Array:
        return self.lam.values()


@final
@dataclass(frozen=True, eq=False)
class Coupled(Inverse):
    """X_b⁻¹ of the classes that blocks reach, named by the attributes not in Total's class; one attribute is free."""

    attributes: int
    free: int
    largest: float  # squared weight
    keys: Subsets
    seen: Array  # X⁻¹, classes × n × n
    unseen: Array | None  # of every class a form that is 0 for supported queries only; None if it is 0 for all

    @classmethod
    def of(cls, lam: Mixture, factors: Sequence[tuple[Matrix, ...]], free: Attributes) -> Coupled | None:
        """The inverse for blocks whose λ on the other attributes is given; None if it is too large, or more are free.

        O(classes · n³) for n values of the free attribute.
        """
        if len(free) != 1 or lam.reach > _MOST_REACH:
            return None
        keys, (i,) = lam.sparse.keys, free
        n = factors[i][0].shape[1]
        if len(keys) * n**2 > _MOST_NUMBERS or len(keys) * n**3 > _MOST_STEPS:
            return None
        X = np.zeros((len(keys), n, n))
        for k in np.unique(lam.choices[:, i]).tolist():
            rows, G = np.flatnonzero(lam.choices[:, i] == k), to_dense(gram(factors[i][k])).astype(np.float64)
            weights = Mixture(lam.coefficients[rows], lam.choices[rows], lam.tables).sparse.at(keys)
            for place in np.flatnonzero(weights).tolist():
                X[place] += weights[place] * G
        H, U = (np.stack(each) for each in zip(*map(_inverted, X), strict=True))
        return cls(len(factors), i, float(lam.coefficients.max()), keys, H, U if U.any() else None)

    def total(self, t: Mixture, V: Sequence[Matrix], *, supported: bool = False) -> float:
        """O(classes · n²) products with V."""
        asked, (v,) = t.sparse, V
        places = self.keys.places(asked.keys)
        needed = places[asked.values > 0]
        if not supported and ((needed < 0).any() or self._unsupported(v, needed)):
            return math.inf
        here = (asked.values > 0) & (places >= 0)
        return float(asked.values[here] @ _trace_products(self.seen[places[here]], v))

    def queries(self, boxes: Boxes, W: Sequence[Matrix]) -> Array:
        places, (w,) = self._places(boxes), W
        found = np.zeros((len(places), w.shape[0]))
        for k in np.flatnonzero(places >= 0).tolist():
            found[k] = quadratic(w, Dense(_symmetric(self.seen[places[k]])))
        return np.maximum(found, 0.0).ravel()

    def pairs(self, boxes: Boxes, columns: Sequence[Pairs]) -> Array:
        places, ((R, S, pair),) = self._places(boxes), columns
        found = np.zeros((len(pair), len(places)))
        for k in np.flatnonzero(places >= 0).tolist():
            found[:, k] = np.einsum("ij,ij->j", R, self.seen[places[k]] @ S)[pair]
        return found

    def solved(self, T: Array, boxes: Boxes, sizes: Sequence[Array]) -> Array:
        """Of one class: that of attributes of the boxes that some block totals is the second."""
        (place,) = self._places(boxes).tolist()
        axis = sorted((*boxes, self.free)).index(self.free)
        return np.moveaxis(self.largest * (np.moveaxis(T, axis, -1) @ self.seen[place]), -1, axis)

    def _places(self, boxes: Boxes) -> Array:
        """Where the classes of a box stand; −1 for those that no block reaches."""
        return self.keys.places(box_keys(boxes, self.attributes))

    def _unsupported(self, V: Matrix, places: Array) -> bool:
        if self.unseen is None:
            return False
        U = self.unseen[places]
        return bool((_trace_products(U, V) > SUPPORT * trace(V) * np.trace(U, axis1=1, axis2=2)).any())


@final
@dataclass(frozen=True, eq=False)
class Grid(Inverse):
    """Both attributes are free, and their cells those of a tree: level l counts squares of widths[l] cells per side.

    X⁻¹ is found by elimination along the tree (`eliminate`), one vector per node, on the node's cells: O(N·levels²). A
    workload's error then takes O(N·width) per level and product.
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
            value -= _quadratic_by_node(u.reshape(self.shape), V1, V2, width)
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
        nodes = Gram(Forest(self._vectors, np.stack(self._nodes)))
        return Sum((Scaled(self.weights[0] ** -2, Eye(math.prod(self.shape))), Scaled(-1.0, nodes)))

    @cached_property
    def _vectors(self) -> Array:
        """For each level above the cells, every node's vector u on the node's cells."""
        weights = np.array(self.weights[1:]) / self.weights[0]
        return eliminate(np.repeat(weights[:, None], math.prod(self.shape), axis=1), self._nodes)[0] / self.weights[0]

    @property
    def _nodes(self) -> list[Array]:
        """The node of every cell, by level."""
        i, j = np.indices(self.shape).reshape(2, -1)
        return [i // width * -(-self.shape[1] // width) + j // width for width in self.widths[1:]]


def _inverted(X: Array) -> tuple[Array, Array]:
    """(a generalised inverse of X, a form on what X does not see). O(n³).

    Both by X with its diagonal scaled to 1: a p-Identity with large Θ has identity rows of all magnitudes.
    """
    d = np.sqrt(np.maximum(X.diagonal(), 0.0))
    d = np.where(d > 0, d, 1.0)
    scaled = X / np.outer(d, d)
    try:
        L = scipy.linalg.cholesky(scaled, lower=True)
        if len(X) == 0 or L.diagonal().min() ** 2 > _SAFE:
            half = scipy.linalg.solve_triangular(L, np.diag(1 / d), lower=True)
            return half.T @ half, np.zeros_like(X)
    except scipy.linalg.LinAlgError:
        pass
    values, Q = scipy.linalg.eigh(scaled, driver="evd")
    seen = values > 10 * len(X) * np.finfo(float).eps * values[-1]
    Q /= d[:, None]
    return (Q[:, seen] / values[seen]) @ Q[:, seen].T, Q[:, ~seen] @ Q[:, ~seen].T


def _trace_products(K: Array, V: Matrix) -> Array:
    """tr(K_b V) for a stack of matrices."""
    return np.array([trace_product(Dense(_symmetric(each)), V) for each in K])


def _symmetric(K: Array) -> Array:
    """The symmetric part, which alone counts in traces and variances."""
    return (K + K.T) / 2


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
