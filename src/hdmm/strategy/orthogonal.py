"""Orthogonal: blocks whose rows are orthogonal, so that what they say is apart, and AᵀA is block diagonal.

On every attribute the factors see *parts*: orthogonal subspaces, such as the total and all that sums to 0. If two
blocks see different parts of some attribute, their rows are orthogonal, however their factors overlap, and W A⁺ =
[W A_b⁺]_b without attributes being merged. So it is for residual spaces, each of which is what the table of a set of
attributes says beyond totals (docs/research/operators.md), and for exchangeable values (select/orbits.py).

Values that no factor distinguishes may be one cell each: then A and W have a column per cell, and rows need to be
orthogonal on cells only.

If what factors see of an attribute is not orthogonal to its total but does not contain it, parts are *oblique*: the
total, and all of what factors see. In coordinates in which each part's rows see only their own, A is block diagonal
again, and nothing else changes (select/means.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any, ClassVar, TypeAlias, final

import numpy as np

from hdmm.base.connected import connected
from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import SUPPORT
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, Dense, Kron, Matrix, Ones, Repeated, diagonal, to_dense, trace
from hdmm.strategy.axis import is_structured
from hdmm.strategy.blocks import Block
from hdmm.strategy.form import Form

_NOTHING = 1e-9  # of unit vectors: parts as near to orthogonal as this are
_SEEN = 1e-7  # of the longest direction: what a factor sees of an attribute
_ROUNDING = 1e-15  # of what predicates ask for
_MOST_ENTRIES = 1 << 27  # of the queries on the attributes of one block, written out: 1 GiB
_MOST_VALUES = 4096  # of an attribute that a factor sees whole
_PIECE = 1 << 24  # numbers that are worked on at once
_TOTAL = Total()

SetOn: TypeAlias = tuple[Attributes, PredicateSet]
PartNumbers: TypeAlias = tuple[int, ...]
Places: TypeAlias = tuple[tuple[int, int], ...]
"""(attribute, number of its part) where the part is not the first, ascending."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class AskedBlock:
    """A block, by number, and the predicate sets of a product that ask something of it, with the parts they ask of.

    After the product's own sets come totals of other attributes, where these matter.
    """

    number: int
    sets: tuple[SetOn, ...]
    parts: tuple[PartNumbers, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Predicate sets of a space, by number, that factors of its block connect: A in their coordinates, and A⁺."""

    sets: tuple[int, ...]
    A: Array
    inverse: Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class PartGrams:
    """BᵀVB of a predicate set, by the parts of its attributes whose columns are B; those of rounding are
    left out. `least` is what counts as asked for, and `outside` whether something is asked for outside all parts."""

    grams: Mapping[PartNumbers, Array]
    least: float
    outside: bool


@final
@dataclass(frozen=True, eq=False)
class Orthogonal(Form):
    """Blocks that each see parts of their own; a product is asked of the blocks whose parts it sees.

    `parts` are columns, by attribute, on which rows of the other parts are 0; the first sees the total. Attributes with
    the same number in `kinds` have the same parts. `places` has the block of each combination. `first` has the value of
    each attribute that stands for another one, its cell; on others the columns are 0.
    """

    parts: tuple[tuple[Array, ...], ...]
    kinds: tuple[int, ...]
    places: Mapping[Places, int]
    first: tuple[Array, ...]
    has_cells: ClassVar[bool] = False

    @classmethod
    def of(cls, domain: Domain, blocks: Sequence[Block]) -> Orthogonal | None:
        """The form of blocks that see different parts; None for others. O(rows · cells²) per attribute.

        One block has it only if columns are repeated, because for others there are inverses that are quicker.
        """
        shape, factors = domain.shape, dict.fromkeys(f for block in blocks for f in block.factors)
        one = len(blocks) < 2 and not any(isinstance(A, Repeated) for _, A in factors)
        if one or any(A.shape[0] * A.shape[1] > _MOST_ENTRIES and not is_structured(A) for _, A in factors):
            return None
        seen = {(axes, A): _spans(A, tuple([shape[i] for i in axes])) for axes, A in factors}
        spans = [{span: span.columns} for span in map(_total_span, shape)]
        for (axes, _), each in seen.items():
            for i, span in zip(axes, each, strict=True):
                spans[i][span] = span.columns
        if any(n > _MOST_VALUES and None in each.values() for n, each in zip(shape, spans, strict=True)):
            return None
        for parts_of in (_parts_on_values, _parts_on_cells, _parts_beside_total):
            keys = [(n, *each) for n, each in zip(shape, spans, strict=True)]
            made = {key: parts_of(key[0], each) for key, each in zip(keys, spans, strict=True)}
            kinds, found = list(map(list(made).index, keys)), [made[key] for key in keys]
            places: dict[Places, int] = {}
            for j, block in enumerate(blocks):
                on = ((i, span) for f in block.factors for i, span in zip(f[0], seen[f], strict=True))
                places[_places({i: found[i].numbers[span] for i, span in on})] = j
            if len(places) == len(blocks):
                bases, first = [p.bases for p in found], [p.first for p in found]
                return cls(domain, blocks, tuple(bases), tuple(kinds), places, tuple(first))
        return None

    def total_variance(self, products: Sequence[Product]) -> float:
        """Σ_k w_k² Σ_b tr(A_b⁺ᵀV_kA_b⁺); infinite if a product is not supported."""
        total = 0.0
        for product in (product for product in products if product.weight > 0):
            for space in self.spaces(product):
                if space is None:
                    return math.inf
                found = (product.weight / self.blocks[space.number].weight) ** 2
                for piece in self._pieces(space):
                    V = Kron(tuple([Dense(self._asked(*space.sets[k]).grams[space.parts[k]]) for k in piece.sets]))
                    asked, on_rows = trace(V), V.matmat(piece.inverse)
                    if asked - float(np.vdot(on_rows, piece.A.T)) > SUPPORT * asked:
                        return math.inf
                    found *= float(np.vdot(on_rows, piece.inverse))
                total += found
        return total

    def variances(self, product: Product) -> Iterator[Array]:
        counts = [p.count(product.cells(axes)) for axes, p in product.sets]
        found = np.zeros(counts)
        for space in filter(None, self.spaces(product)):
            here = np.full([1] * len(space.sets), self.blocks[space.number].weight ** -2)
            for piece in self._pieces(space):
                shape = [self._count(space, k) if k in piece.sets else 1 for k in range(len(space.sets))]
                here = here * self._squares(space, piece).reshape(shape)
            found += here.reshape(here.shape[: len(counts)])
        yield found.ravel()

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        found = np.zeros(len(rows))
        there = {each.number: each for each in self.spaces(second, also=first.axes) if each is not None}
        for space in filter(None, self.spaces(first, also=second.axes)):
            if space.number in there:
                other = there[space.number]
                R = self._chosen(space, first, rows, like=second)
                S = self._chosen(other, second, others, like=first)
                each = [np.einsum("ij,ij->i", R[i], S[i]) for i in R]
                found += reduce(np.multiply, each, np.full(len(rows), self.blocks[space.number].weight ** -2))
        return found

    def spaces(self, product: Product, *, also: Attributes = ()) -> Iterator[AskedBlock | None]:
        """The blocks that the product asks, with what it asks of them; None for what no block measures.

        Of attributes that the product totals, those of `also` count, and those whose total is not a part by itself.
        """
        totals = sorted({*self._unlike, *also} - {*product.axes})
        sets = (*product.sets, *(((i,), _TOTAL) for i in totals))
        asked = [self._asked(*each) for each in sets]
        if any(not each.grams and not each.outside for each in asked):  # queries of all zeros
            return
        if any(each.outside for each in asked):
            yield None
        for parts in itertools.product(*(each.grams for each in asked)):
            on = zip(sets, parts, strict=True)
            pairs = {i: part for (axes, _), numbers in on for i, part in zip(axes, numbers, strict=True)}
            number = self.places.get(_places(pairs))
            if number is not None:
                more = [i for i in self.blocks[number].axes if i not in pairs]
                yield AskedBlock(number, (*sets, *(((i,), _TOTAL) for i in more)), (*parts, *((0,) for _ in more)))
            elif all(np.trace(each.grams[part]) > each.least for each, part in zip(asked, parts, strict=True)):
                yield None

    def rows(self, axes: Attributes, p: PredicateSet, parts: PartNumbers) -> Array:
        """A predicate set in coordinates of some parts: a row for each predicate. Kept for the next block."""
        key = ("rows", p, self._kinds(axes), parts)
        if key not in self._known:
            B, W = self._columns(axes, parts), p.matrix(math.prod(self.domain.shape[i] for i in axes))
            if W.shape[0] * B.shape[1] > _MOST_ENTRIES:
                raise StrategyError(f"The {W.shape[0]:,} queries of a product are too many to write out. Use fewer.")
            self._known[key] = W.matmat(B)
        return self._known[key]

    def factor(self, axes: Attributes, A: Matrix, parts: PartNumbers) -> tuple[Array, Array]:
        """(A, A⁺) in coordinates of some parts."""
        key = ("factor", A, self._kinds(axes), parts)
        if key not in self._known:
            found = A.matmat(self._columns(axes, parts)).astype(np.float64)
            self._known[key] = found, inverted(found)
        return self._known[key]

    def total_in(self, i: int) -> Array:
        """The total of an attribute in coordinates of its first part."""
        return self.parts[i][0].sum(axis=0)

    def parts_of(self, number: int) -> dict[int, int]:
        """The number of the part of each attribute that a block does not total."""
        return self._parts_of[number]

    @cached_property
    def _parts_of(self) -> list[dict[int, int]]:
        found = [dict.fromkeys(block.axes, 0) for block in self.blocks]
        for places, j in self.places.items():
            found[j].update(places)
        return found

    @cached_property
    def _unlike(self) -> tuple[int, ...]:
        """The attributes whose first part holds more than the total."""
        return tuple(i for i, parts in enumerate(self.parts) if parts[0].shape[1] > 1)

    @cached_property
    def _known(self) -> dict[Any, Any]:
        return {}

    def _kinds(self, axes: Attributes) -> tuple[int, ...]:
        return tuple([self.kinds[i] for i in axes])

    def _columns(self, axes: Attributes, parts: PartNumbers) -> Array:
        return reduce(np.kron, [self.parts[i][part] for i, part in zip(axes, parts, strict=True)])

    def _count(self, space: AskedBlock, k: int) -> int:
        axes, p = space.sets[k]
        return p.count(math.prod(self.domain.shape[i] for i in axes))

    def _asked(self, axes: Attributes, p: PredicateSet) -> PartGrams:
        key = ("asked", p, self._kinds(axes))
        if key not in self._known:
            V = p.gram(math.prod(self.domain.shape[i] for i in axes))
            whole, found = trace(V), dict[PartNumbers, Array]()
            least = SUPPORT * whole
            for parts in itertools.product(*(range(len(self.parts[i])) for i in axes)):
                B = self._columns(axes, parts)
                G = B.T @ V.matmat(B)
                if np.trace(G) > _ROUNDING * len(B) * whole:
                    found[parts] = G
            Q = reduce(np.kron, [_basis(np.hstack(self.parts[i])) for i in axes])
            self._known[key] = PartGrams(found, least, self._on_cells(axes, V) - float(np.vdot(Q, V.matmat(Q))) > least)
        return self._known[key]

    def _on_cells(self, axes: Attributes, V: Matrix) -> float:
        """The trace of V on cells; infinite if V distinguishes values of one cell."""
        shape = [self.domain.shape[i] for i in axes]
        first = np.ravel_multi_index(np.ix_(*(self.first[i] for i in axes)), shape).ravel()
        cells = np.unique(first)
        if len(cells) == len(first):
            return trace(V)
        E = np.zeros((len(first), len(cells)))
        E[cells, np.arange(len(cells))] = 1.0
        on_cells = V.matmat(E)
        squares = diagonal(V) + diagonal(V)[first] - 2 * on_cells[np.arange(len(first)), np.searchsorted(cells, first)]
        return math.inf if squares.sum() > SUPPORT * trace(V) else float(diagonal(V)[cells].sum())

    def _pieces(self, space: AskedBlock, links: Sequence[Attributes] = ()) -> list[Piece]:
        """The pieces of what is asked of a block, which no factor, predicate set or link crosses."""
        block, sets = self.blocks[space.number], space.sets
        parts = {
            i: n for (axes, _), each in zip(sets, space.parts, strict=True) for i, n in zip(axes, each, strict=True)
        }
        found: list[Piece] = []
        for part in connected([*(axes for axes, _ in sets), *(axes for axes, _ in block.factors), *links]):
            numbers = tuple(k for k, (axes, _) in enumerate(sets) if axes[0] in part)
            order = [i for k in numbers for i in sets[k][0]]
            each = [
                (axes, self.factor(axes, A, tuple(parts[i] for i in axes)))
                for axes, A in block.factors
                if axes[0] in part
            ]
            missing = [((i,), self._total_factor(i)) for i in order if i not in block.axes]
            on = [i for axes, _ in (*each, *missing) for i in axes]
            sizes = [self.parts[i][parts[i]].shape[1] for i in on]
            A, inverse = (reduce(np.kron, [both[side] for _, both in (*each, *missing)]) for side in (0, 1))
            if on != order:
                places = [on.index(i) for i in order]
                A = A.reshape(-1, *sizes).transpose(0, *(1 + k for k in places)).reshape(A.shape)
                inverse = inverse.reshape(*sizes, -1).transpose(*places, len(sizes)).reshape(inverse.shape)
            found.append(Piece(numbers, A, inverse))
        return found

    def _total_factor(self, i: int) -> tuple[Array, Array]:
        row = self.total_in(i)[None, :]
        return row, row.T / (row**2).sum()

    def _squares(self, space: AskedBlock, piece: Piece) -> Array:
        """The squared length of W A⁺ for all combinations of the predicates of a piece, some at a time."""
        head, *tail = [self.rows(*space.sets[k], space.parts[k]) for k in piece.sets]
        rest = tuple(map(Dense, tail))
        step = max(1, _PIECE // max(1, math.prod(map(len, tail)) * piece.inverse.shape[1]))
        return np.concatenate(
            [
                (Kron((Dense(head[a : a + step]), *rest)).matmat(piece.inverse) ** 2).sum(axis=1)
                for a in range(0, len(head), step)
            ]
        )

    def _chosen(self, space: AskedBlock, product: Product, rows: Array, *, like: Product) -> dict[int, Array]:
        """Some queries on the answers of a space's block, piece by piece, named by its first attribute."""
        counts = [self._count(space, k) for k in range(len(space.sets))]
        at = np.unravel_index(rows, counts) if counts else ()
        found: dict[int, Array] = {}
        for piece in self._pieces(space, [axes for axes, _ in like.sets]):
            each = [self.rows(*space.sets[k], space.parts[k])[at[k]] for k in piece.sets]
            joined = reduce(lambda R, S: (R[:, :, None] * S[:, None, :]).reshape(len(R), -1), each)
            found[min(i for k in piece.sets for i in space.sets[k][0])] = joined @ piece.inverse
        return found


def inverted(A: Array) -> Array:
    """A⁺; of few rows on many cells by coordinates of what they span."""
    if len(A) >= A.shape[1]:
        return np.linalg.pinv(A)
    Q, R = np.linalg.qr(A.T)
    return Q @ np.linalg.pinv(R.T)


def _places(parts: Mapping[int, int]) -> Places:
    return tuple(sorted([(i, part) for i, part in parts.items() if part]))


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """What a factor sees of an attribute, as orthonormal columns (None for all of it), and which values are alike."""

    columns: Array | None
    of: Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """The parts of an attribute, the number of the part of each span, and the value that stands for each value."""

    bases: tuple[Array, ...]
    numbers: Mapping[_Span, int]
    first: Array


@lru_cache(maxsize=1024)
def _total_span(n: int) -> _Span:
    return _Span(np.full((n, 1), n**-0.5), np.zeros(n, dtype=np.intp))


@lru_cache(maxsize=4096)
def _spans(A: Matrix, sizes: tuple[int, ...]) -> tuple[_Span, ...]:
    """What a factor sees of each of its attributes."""
    if isinstance(A, Ones):
        return tuple(map(_total_span, sizes))
    if is_structured(A):
        return tuple([_Span(None, np.arange(n)) for n in sizes])
    T = to_dense(A).astype(np.float64).reshape(-1, *sizes) + 0.0
    alike = [_alike(np.moveaxis(T, 1 + k, 0)) for k in range(len(sizes))]
    few = T[:, *np.ix_(*(first for first, _ in alike))]
    found: list[_Span] = []
    for k, (first, of) in enumerate(alike):
        M = np.moveaxis(few, 1 + k, 0).reshape(len(first), -1)
        R: Any = np.linalg.qr(M.T, mode="r") if M.shape[1] > len(M) else M.T
        U = _basis(R.T)
        found.append(_Span(U if len(first) == len(of) else _basis(U[of]), of))
    return tuple(found)


def _alike(each: Array) -> tuple[Array, Array]:
    """(the first of the arrays that are equal, for every array the number of those equal to it)."""
    labels: dict[bytes, int] = {}
    of = np.array([labels.setdefault(one.tobytes(), len(labels)) for one in each])
    return np.unique(of, return_index=True)[1], of


def _parts_on_values(n: int, spans: Mapping[_Span, Array | None]) -> _Parts:
    """Spans, of these columns, that are not orthogonal are in one part. The first span's is 0."""
    each = list(spans.values())
    members = connected([*((a,) for a in range(len(each))), *_overlapping(each)])
    bases: list[Array] = []
    for part in members:
        held = [U for a in part if (U := each[a]) is not None]
        bases.append(np.eye(n) if len(held) < len(part) else held[0] if len(held) == 1 else _basis(np.hstack(held)))
    of = {a: number for number, part in enumerate(members) for a in part}
    return _Parts(tuple(bases), {span: of[a] for a, span in enumerate(spans)}, np.arange(n))


def _parts_on_cells(n: int, spans: Mapping[_Span, Array | None]) -> _Parts:
    """The same where values that no factor distinguishes are one cell each."""
    _, cells, of = np.unique([span.of for span in spans], axis=1, return_index=True, return_inverse=True)
    over = {span: U if U is None else _basis(U[cells]) for span, U in spans.items()}
    found = _parts_on_values(len(cells), over)
    wide = [np.zeros((n, B.shape[1])) for B in found.bases]
    for whole, B in zip(wide, found.bases, strict=True):
        whole[cells] = B
    return _Parts(tuple(wide), found.numbers, cells[of.ravel()])


def _parts_beside_total(n: int, spans: Mapping[_Span, Array | None]) -> _Parts:
    """The total, and what all other factors see, if it does not contain the total; their columns are dual to both."""
    held = [U for U in spans.values() if U is not None]
    rest = _basis(np.hstack(held[1:])) if len(held) == len(spans) > 1 else np.eye(n)
    rows = np.hstack([held[0], rest])
    if rows.shape[1] > n or np.linalg.svd(rows, compute_uv=False)[-1] < _SEEN:
        return _parts_on_values(n, spans)
    dual = np.linalg.pinv(rows).T
    bases = dual[:, :1] / np.linalg.norm(dual[:, 0]), _basis(dual[:, 1:])
    return _Parts(bases, {span: min(k, 1) for k, span in enumerate(spans)}, np.arange(n))


def _overlapping(each: Sequence[Array | None]) -> Iterator[tuple[int, int]]:
    for a, b in itertools.combinations(range(len(each)), 2):
        U, V = each[a], each[b]
        if U is None or V is None or np.abs(U.T @ V).max(initial=0.0) > _NOTHING:
            yield a, b


def _basis(U: Array) -> Array:
    """Orthonormal columns of the same span."""
    Q, sizes, _ = np.linalg.svd(U, full_matrices=False)
    return Q[:, sizes > _SEEN * sizes[0]]
