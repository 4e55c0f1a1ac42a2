"""Orthogonal: blocks whose factors see nothing of any total, so that what they say of each set of attributes is apart.

The residual space of a set b of attributes is what of their table no total over one of them holds: its vectors sum to
0 along every attribute of b. These spaces are orthogonal and fill the whole. A block on the attributes b whose rows
lie in the space of b measures that space and no other; with one block per space AᵀA is block diagonal, however b
overlaps with others, and no attributes are merged: docs/research/operators.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import ClassVar, final

import numpy as np

from hdmm.base.connected import connected
from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, Matrix, to_dense
from hdmm.strategy.blocks import Block
from hdmm.strategy.form import Form
from hdmm.strategy.subsets import subset_of, subsets

_NOTHING = 1e-9  # of the norm of a row: less of a total, or of what is not measured, is rounding
_PLAIN = 1e-6  # of what irregular numbers give: far above rounding
_MOST_ENTRIES = 1 << 27  # of the queries on the attributes of one block, written out: 1 GiB


@final
@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some of the predicate sets of a product, by number, as coordinates of one block: a row for each combination."""

    sets: tuple[int, ...]
    axes: Attributes  # none where the sets are averaged over all of theirs
    rows: Array
    missing: bool  # whether the block does not measure all that the predicates ask for


@final
@dataclass(frozen=True, eq=False)
class Orthogonal(Form):
    """One block per residual space; a product is asked of the spaces of all subsets of its attributes."""

    has_cells: ClassVar[bool] = False

    @classmethod
    def of(cls, domain: Domain, blocks: Sequence[Block]) -> Orthogonal | None:
        """The form of blocks on different sets of attributes, each in its residual space; None for others."""
        if len({subset_of(block.axes) for block in blocks}) < len(blocks):
            return None
        factors = {(tuple(domain.shape[i] for i in axes), A) for block in blocks for axes, A in block.factors}
        return cls(domain, blocks) if all(_sees_no_total(A, sizes) for sizes, A in factors) else None

    def total_variance(self, products: Sequence[Product]) -> float:
        """Σ_k w_k² Σ_b ‖W_b A_b⁺‖²_F: W_b is the product with what is not in b averaged."""
        total = 0.0
        for product in (product for product in products if product.weight > 0):
            for block, pieces in self._spaces(product):
                if block is None or any(piece.missing for piece in pieces):
                    return math.inf
                squares = math.prod(float(np.vdot(piece.rows, piece.rows)) for piece in pieces)
                total += (product.weight / block.weight) ** 2 * squares
        return total

    def variances(self, product: Product) -> Iterator[Array]:
        counts = [p.count(product.cells(axes)) for axes, p in product.sets]
        found = np.zeros(counts)
        for block, pieces in self._spaces(product):
            if block is not None:
                each = [(piece, np.einsum("ij,ij->i", piece.rows, piece.rows)) for piece in pieces]
                found += _combined(each, counts) / block.weight**2
        yield found.ravel()

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        at, to = (_places(product, chosen) for product, chosen in ((first, rows), (second, others)))
        spaces = {block.axes: pieces for block, pieces in self._spaces(second, like=first) if block is not None}
        found = np.zeros(len(rows))
        for block, pieces in self._spaces(first, like=second):
            if block is None or block.axes not in spaces:
                continue
            here = np.full(len(rows), block.weight**-2)
            ours = {piece.axes: _chosen(first, piece, at) for piece in pieces if piece.axes}
            theirs = {piece.axes: _chosen(second, piece, to) for piece in spaces[block.axes] if piece.axes}
            for axes, R in ours.items():
                here *= np.einsum("ij,ij->i", R, theirs[axes])
            for product, every, places in ((first, pieces, at), (second, spaces[block.axes], to)):
                for piece in (piece for piece in every if not piece.axes):
                    here *= _chosen(product, piece, places)[:, 0]
            found += here
        return found

    def _spaces(self, product: Product, like: Product | None = None) -> Iterator[tuple[Block | None, list[Piece]]]:
        """The block and the pieces of the product in each residual space that it sees; no block where none measures.

        Pieces are joined where predicates or factors of the block overlap; with `like`, where those of the other
        product do, so that the pieces of both are of the same attributes.
        """
        for b in subsets(sorted(i for axes, _ in product.sets for i in axes)):
            block = self._by_axes.get(subset_of(b))
            if block is None:
                if not self._unseen(product, b):
                    yield None, []
                continue
            joined = [*block.factors, *(() if like is None else like.sets)]
            links = [tuple(i for i in axes if i in b) for axes, _ in joined]
            pieces = [self._piece(product, part, block) for part in _linked(product.sets, b, links)]
            if all(piece.rows.any() or piece.missing for piece in pieces):
                yield block, pieces

    def _piece(self, product: Product, part: tuple[tuple[int, ...], Attributes], block: Block) -> Piece:
        """W A⁺ of the predicate sets of a part, on its attributes, which factors of the block fill."""
        numbers, kept = part
        shape, sets = self.domain.shape, [product.sets[k] for k in numbers]
        factors = [(axes, A) for axes, A in block.factors if axes[0] in kept]
        key = (
            tuple((p, tuple((shape[i], kept.index(i) if i in kept else -1) for i in axes)) for axes, p in sets),
            tuple((A, tuple(map(kept.index, axes))) for axes, A in factors),
        )
        found = self._known.get(key)
        if found is None:
            A = joined_rows(shape, factors, kept)
            W = _seen(averaged_rows(shape, sets, kept), [shape[i] for i in kept])
            rows = W @ inverted(A)
            missing = np.abs(W - rows @ A).max(initial=0.0) > _NOTHING * np.abs(W).max(initial=0.0)
            found = self._known[key] = rows, bool(missing)
        return Piece(numbers, kept, *found)

    def _unseen(self, product: Product, b: Attributes) -> bool:
        """Whether the product asks nothing of a residual space."""
        return any(
            _is_null(p, tuple(self.domain.shape[i] for i in axes), tuple(i in b for i in axes))
            for axes, p in product.sets
        )

    @cached_property
    def _by_axes(self) -> Mapping[int, Block]:
        return {subset_of(block.axes): block for block in self.blocks}

    @cached_property
    def _known(self) -> dict[object, tuple[Array, bool]]:
        return {}


def averaged_rows(shape: Sequence[int], sets: Sequence[tuple[Attributes, PredicateSet]], kept: Attributes) -> Array:
    """The combinations of the predicates as rows over the cells of the kept attributes, averaged over the others."""
    each: list[tuple[Attributes, Array]] = []
    for axes, p in sets:
        n = math.prod(shape[i] for i in axes)
        if p.count(n) * n > _MOST_ENTRIES:
            raise StrategyError(f"The {p.count(n):,} queries on {n:,} cells are too many to write out. Use fewer.")
        W = to_dense(p.matrix(n)).astype(np.float64).reshape(-1, *(shape[i] for i in axes))
        W = W.mean(axis=tuple(1 + k for k, i in enumerate(axes) if i not in kept))
        here = tuple(i for i in axes if i in kept)
        each.append((here, W.reshape(W.shape[0], -1)))
    return _joined(shape, each, kept)


def joined_rows(shape: Sequence[int], factors: Sequence[tuple[Attributes, Matrix]], kept: Attributes) -> Array:
    """The factors of a block as one matrix over the cells of the kept attributes, which they fill."""
    return _joined(shape, [(axes, to_dense(A).astype(np.float64)) for axes, A in factors], kept)


def inverted(A: Array) -> Array:
    """A⁺; of few rows on many cells by coordinates of what they span."""
    if len(A) >= A.shape[1]:
        return np.linalg.pinv(A)
    Q, R = np.linalg.qr(A.T)
    return Q @ np.linalg.pinv(R.T)


def centred(W: Array, sizes: Sequence[int]) -> Array:
    """The rows without what totals over any of the attributes see."""
    T = W.reshape(-1, *sizes)
    for k in range(len(sizes)):
        T = T - T.mean(axis=k + 1, keepdims=True)
    return T.reshape(W.shape)


def _joined(shape: Sequence[int], each: Sequence[tuple[Attributes, Array]], kept: Attributes) -> Array:
    """The Kronecker product of rows on several sets of attributes, its columns in the order of the kept ones."""
    rows = math.prod(W.shape[0] for _, W in each)
    if rows * math.prod(shape[i] for i in kept) > _MOST_ENTRIES:
        raise StrategyError(f"{rows:,} rows on {len(kept)} attributes are too many to write out. Ask for fewer.")
    kron = reduce(np.kron, (W for _, W in each), np.ones((1, 1)))
    order = [i for axes, _ in each for i in axes]
    T = kron.reshape(rows, *(shape[i] for i in order))
    return T.transpose(0, *(1 + order.index(i) for i in kept)).reshape(rows, -1)


def _linked(
    sets: Sequence[tuple[Attributes, PredicateSet]], b: Attributes, links: Sequence[Attributes]
) -> Iterator[tuple[tuple[int, ...], Attributes]]:
    """(numbers of predicate sets, their attributes of b): parts that no set and no link crosses; others by themselves.

    A set that has no attribute in b is a part of its own. Parts with attributes come in the order of these.
    """
    own = [(*(i for i in axes if i in b), -1 - k) for k, (axes, _) in enumerate(sets)]  # −1 − k stands for set k
    parts = [
        (tuple([-1 - x for x in reversed(part) if x < 0]), tuple([x for x in part if x >= 0]))
        for part in connected([*own, *links])
    ]
    return iter(sorted(parts, key=lambda part: (not part[1], part[1], part[0])))


def _combined(each: Sequence[tuple[Piece, Array]], counts: Sequence[int]) -> Array:
    """The product of a number per combination of each piece, over all combinations of predicates."""
    found = np.ones([1] * len(counts))
    for piece, values in each:
        shape = [counts[k] if k in piece.sets else 1 for k in range(len(counts))]
        found = found * values.reshape(shape)
    return found


def _places(product: Product, rows: Array) -> tuple[Array, ...]:
    counts = [p.count(product.cells(axes)) for axes, p in product.sets]
    return np.unravel_index(rows, counts) if counts else ()


def _chosen(product: Product, piece: Piece, at: Sequence[Array]) -> Array:
    """The row of a piece for each query."""
    counts = [p.count(product.cells(axes)) for axes, p in product.sets]
    return piece.rows[np.ravel_multi_index([at[k] for k in piece.sets], [counts[k] for k in piece.sets])]


def _sees_no_total(A: Matrix, sizes: tuple[int, ...]) -> bool:
    n = A.shape[1]
    irregular = np.cos(np.arange(1.0, n + 1) ** 2)
    on_one, on_irregular = np.abs(A.matmat(np.stack([np.ones(n), irregular], axis=1))).max(axis=0, initial=0.0)
    if on_one > _PLAIN * on_irregular:  # it sees the total of everything, and need not be written out
        return False
    T = to_dense(A).astype(np.float64).reshape(-1, *sizes)
    largest = float(np.abs(T).max(initial=0.0))
    return all(np.abs(T.sum(axis=k + 1)).max(initial=0.0) <= _NOTHING * largest for k in range(len(sizes)))


@lru_cache(maxsize=4096)
def _is_null(p: PredicateSet, sizes: tuple[int, ...], kept: tuple[bool, ...]) -> bool:
    """Whether predicates see nothing of the residual space of the kept attributes."""
    every = tuple(range(len(sizes)))
    b = tuple(i for i in every if kept[i])
    return not _seen(averaged_rows(sizes, [(every, p)], b), [sizes[i] for i in b]).any()


def _seen(W: Array, sizes: Sequence[int]) -> Array:
    """What the rows see of the residual space; exactly 0 where it is but rounding."""
    left = centred(W, sizes)
    return left if np.abs(left).max(initial=0.0) > _NOTHING * np.abs(W).max(initial=0.0) else np.zeros_like(left)
