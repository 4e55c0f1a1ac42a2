"""Block: one weighted product of matrices; AxisGroups: the attributes that blocks touch together, as one attribute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar, final, overload

import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import StrategyError
from hdmm.describe.attribute import Attribute, Merged
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Attributes, Product, cell_places
from hdmm.matrix import Array, Kron, Matrix, Ones, Permuted, Scaled, Stack

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True, init=False)
class Block:
    """θ · ⊗ A over attributes; a factor may sit on several, whose cells it takes in row-major order.

    `factors` holds pairs (axes, matrix), with each attribute at most once; attributes left out are totalled. A single
    axis may be given as its number.

    >>> Block(0.5, [(0, Ones(1, 2))]).factors, Block(1.0, [((1, 2), Ones(1, 6))]).axes
    ((((0,), Ones(m=1, n=2)),), (1, 2))
    """

    weight: float
    factors: tuple[tuple[Attributes, Matrix], ...]

    def __init__(self, weight: float, factors: Iterable[tuple[int | Attributes, Matrix]]) -> None:
        object.__setattr__(self, "weight", weight)
        held = tuple([f if type(f[0]) is tuple else ((f[0],), f[1]) for f in factors])  # shared with the giver's
        object.__setattr__(self, "factors", held)

    @property
    def axes(self) -> Attributes:
        """All attributes that are not totalled, in the order of the factors."""
        return tuple([i for axes, _ in self.factors for i in axes])

    @property
    def by_axis(self) -> dict[int, Matrix]:
        """The factor of each attribute, if each sits on one."""
        return {i: A for (i,), A in self.factors}

    @property
    def rows(self) -> int:
        """How many queries it has."""
        return math.prod([A.shape[0] for _, A in self.factors])


@final
@dataclass(frozen=True, eq=False)
class BlockTable(Sequence[Block]):
    """Blocks as arrays, so that what holds for a factor is worked out once: 100 attributes have 166,751 blocks of few.

    The factors of block j are those numbered numbers[starts[j]:starts[j + 1]]. The blocks themselves are made when one
    of them is asked for.
    """

    weights: Array
    starts: Array
    numbers: Array
    distinct: tuple[tuple[Attributes, Matrix], ...]

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> BlockTable:
        """The table of some blocks. O(factors)."""
        if isinstance(blocks, BlockTable):
            return blocks
        held = [factor for block in blocks for factor in block.factors]
        found: dict[tuple[Attributes, Matrix], int] = {}
        known = {id(f): found.setdefault(f, len(found)) for f in {id(f): f for f in held}.values()}
        starts = np.cumsum([0, *(len(block.factors) for block in blocks)])
        numbers = np.array([known[id(f)] for f in held], dtype=np.int64)
        table = cls(np.array([block.weight for block in blocks]), starts, numbers, tuple(found))
        table.__dict__["blocks"] = tuple(blocks)
        return table

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks, one object each."""
        weights, each = self.weights.tolist(), self.per_block(self.distinct)
        return tuple([Block(weight, factors) for weight, factors in zip(weights, each, strict=True)])

    def per_block(self, values: Sequence[T]) -> Iterator[list[T]]:
        """For each block, what its factors have, of which each distinct one has a value."""
        held, starts = [values[k] for k in self.numbers.tolist()], self.starts.tolist()
        return (held[a:b] for a, b in itertools.pairwise(starts))

    def __len__(self) -> int:
        return len(self.weights)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Block, ...]: ...
    def __getitem__(self, index: int | slice) -> Block | tuple[Block, ...]:
        return self.blocks[index]

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    @property
    def axes(self) -> list[Attributes]:
        """All attributes of each block that are not totalled, in the order of its factors."""
        each = self.per_block([axes for axes, _ in self.distinct])
        return [tuple([i for axes in block for i in axes]) for block in each]

    @property
    def of_block(self) -> Array:
        """The block of each of the numbers."""
        return np.repeat(np.arange(len(self.weights)), np.diff(self.starts))

    def products(self, values: Sequence[int | float]) -> Array:
        """Π over the factors of each block, of which each distinct one has a value; exact for integers."""
        exact = all(isinstance(value, int) for value in values)
        dtype = np.float64 if not exact else np.int64 if self._fits(values) else object
        out = np.ones(len(self.weights), dtype=dtype)
        each = np.array(values, dtype=dtype)
        lengths = np.diff(self.starts)
        for k in range(int(lengths.max(initial=0))):
            out[lengths > k] *= each[self.numbers[self.starts[:-1][lengths > k] + k]]
        return out

    def factors(self, j: int, values: Sequence[T]) -> dict[int, T]:
        """What the factors of a block have, by attribute, where each sits on one."""
        return {self.distinct[k][0][0]: values[k] for k in self.numbers[self.starts[j] : self.starts[j + 1]].tolist()}

    def _fits(self, values: Sequence[int | float]) -> bool:
        most = max((abs(int(value)) for value in values), default=1)
        return max(most, 1) ** int(np.diff(self.starts).max(initial=0)) < 2**63

    def check(self, domain: Domain) -> bool:
        """StrategyError if a block is not one over this domain; else whether all list their attributes in order."""
        for weight in self.weights[~(np.isfinite(self.weights) & (self.weights > 0))].tolist():
            raise StrategyError(f"A block has weight {weight}. Weights are finite and above 0; drop the block?")
        for axes, A in self.distinct:
            _check_factor(axes, A, domain)
        first = np.array([axes[0] for axes, _ in self.distinct], dtype=np.int64)[self.numbers]
        last = np.array([axes[-1] for axes, _ in self.distinct], dtype=np.int64)[self.numbers]
        of = self.of_block
        behind = np.flatnonzero((of[1:] == of[:-1]) & (first[1:] <= last[:-1]))
        for j in np.unique(of[behind]).tolist():
            listed = [i for k in self.numbers[self.starts[j] : self.starts[j + 1]] for i in self.distinct[k][0]]
            if len(set(listed)) < len(listed):
                raise StrategyError(f"A block lists an attribute twice: axes {tuple(listed)}. Give each one factor.")
        return len(behind) == 0


def sharing(table: BlockTable) -> BlockTable:
    """The blocks with equal factors as one object, as files bring them back: then forms find what is the same.

    O(factors), and the entries of those that are alike.
    """
    alike: dict[tuple[Attributes, type[Matrix], tuple[int, int]], list[Matrix]] = {}
    for axes, A in table.distinct:
        each = alike.setdefault((axes, type(A), A.shape), [])
        if not any(A is other for other in each):
            each.append(A)
    first: dict[int, Matrix] = {}
    for each in alike.values():
        if len(each) > 1:
            held: dict[Hashable, Matrix] = {}
            first |= {id(A): held.setdefault(content(A), A) for A in each}
    if all(id(A) == k for k, A in first.items()):
        return table
    return replace(table, distinct=tuple([(axes, first.get(id(A), A)) for axes, A in table.distinct]))


def content(value: object) -> Any:
    """What a matrix holds, as a value that can be looked up; whole numbers are as exact as floats."""
    if isinstance(value, sp.csr_array):
        return value.shape, content(value.indptr), content(value.indices), content(value.data)
    if isinstance(value, Matrix):
        return (type(value).__name__, *(content(getattr(value, f.name)) for f in fields(value)))  # pyright: ignore[reportArgumentType]
    if isinstance(value, np.ndarray):
        return value.shape, value.astype(np.float64).tobytes()
    return tuple(map(content, value)) if isinstance(value, tuple) else value


def _check_factor(axes: Attributes, A: Matrix, domain: Domain) -> None:
    if not axes or axes[0] < 0 or not all(a < b for a, b in itertools.pairwise(axes)):
        raise StrategyError(f"A block lists axes {axes} out of order. List every factor's axes ascending.")
    if axes[-1] >= len(domain):
        raise StrategyError(f"A block lists axis {axes[-1]}; the domain has the axes 0 to {len(domain) - 1}.")
    if A.shape[1] != math.prod(domain.shape[i] for i in axes):
        names = ", ".join(repr(domain.names[i]) for i in axes)
        one = f"Attribute {names} has {domain.shape[axes[0]]} values"
        several = f"Attributes {names} have {math.prod(domain.shape[i] for i in axes)} cells"
        raise StrategyError(f"{one if len(axes) == 1 else several} but a block's matrix has {A.shape[1]} columns.")


@final
@dataclass(frozen=True)
class AxisGroups:
    """A partition of the attributes, and the domain, blocks and products with each group as one attribute.

    >>> groups = AxisGroups(Domain({"x": 4, "sex": 2, "y": 3}), ((0, 2), (1,)))
    >>> groups.domain.shape, groups.order, groups.keeps_order
    ((12, 2), (0, 2, 1), False)
    """

    original: Domain
    groups: tuple[Attributes, ...]  # each ascending, in the order of their first attributes

    @classmethod
    def of(cls, domain: Domain, factors: Iterable[Attributes]) -> AxisGroups:
        """The finest partition in which the attributes of every factor keep to one group. O(factors).

        >>> AxisGroups.of(Domain({"x": 2, "y": 2, "z": 2}), [(0, 2)]).groups
        ((0, 2), (1,))
        """
        first = list(range(len(domain)))  # the first attribute of each one's group

        def root(i: int) -> int:
            while first[i] != i:
                i = first[i]
            return i

        for axes in {axes for axes in factors if len(axes) > 1}:
            roots = {root(i) for i in axes}
            for other in roots:
                first[other] = min(roots)
        members: dict[int, list[int]] = {}
        for i in range(len(domain)):
            members.setdefault(root(i), []).append(i)
        return cls(domain, tuple(map(tuple, members.values())))

    @classmethod
    def merging(cls, domain: Domain, axes: Sequence[int]) -> AxisGroups:
        """The partition in which these attributes are one group, and every other is its own.

        >>> AxisGroups.merging(Domain({"x": 2, "y": 2, "z": 2}), [2, 0]).groups
        ((0, 2), (1,))
        """
        group = tuple(sorted(set(axes)))
        if len(group) < 2 or not 0 <= group[0] <= group[-1] < len(domain):
            raise StrategyError(f"Axes {tuple(axes)} cannot be merged. Name two or more of 0 to {len(domain) - 1}.")
        rest = [(i,) for i in range(len(domain)) if i not in group]
        return cls(domain, tuple(sorted([group, *rest])))

    @property
    def trivial(self) -> bool:
        """Whether every attribute is a group of its own."""
        return len(self.groups) == len(self.original)

    def overlap(self, blocks: Sequence[Block]) -> bool:
        """Whether factors on several attributes share some without being on the same ones."""
        whole = {axes for block in blocks for axes, _ in block.factors}
        return any(len(group) > 1 and group not in whole for group in self.groups)

    @cached_property
    def domain(self) -> Domain:
        """The domain with each group as one attribute, at the place of its first."""
        merged = self.original
        for group in self.groups:
            if len(group) > 1:
                names = [self.original.names[i] for i in group]
                merged = merged.merge(names, name="×".join(names))
        return merged

    @property
    def order(self) -> Attributes:
        """The attributes in the order in which they vary over the cells of the groups, slowest first."""
        return tuple(i for group in self.groups for i in group)

    @property
    def keeps_order(self) -> bool:
        """Whether every group's attributes are neighbours, so that cells and queries keep their order."""
        return self.order == tuple(range(len(self.original)))

    def ordered(self, block: Block) -> Block:
        """The same block with factors group by group, so that its rows are in the order of those of `block()`."""
        factors: list[tuple[Attributes, Matrix]] = sorted(block.factors, key=lambda f: (self._group[f[0][0]], f[0]))
        return block if tuple(factors) == block.factors else Block(block.weight, factors)

    def block(self, block: Block) -> Block:
        """The same block with one factor per group."""
        parts: dict[int, list[tuple[Attributes, Matrix]]] = {}
        for axes, A in block.factors:
            parts.setdefault(self._group[axes[0]], []).append((axes, A))
        return Block(block.weight, [(g, self._joined(self.groups[g], parts[g])) for g in sorted(parts)])

    def product(self, product: Product) -> Product:
        """The product in which all combinations of its predicates on a group are one set of predicates."""
        if product.joint:
            return self._over_groups(product)
        active = dict(product.factors)
        shape = self.original.shape
        sets: list[tuple[int, PredicateSet]] = []
        for g, group in enumerate(self.groups):
            if len(group) == 1:
                if group[0] in active:
                    sets.append((g, active[group[0]]))
            elif any(i in active for i in group):
                parts = tuple(active.get(i, Total()) for i in group)
                sets.append((g, Crossed(parts, tuple(shape[i] for i in group))))
        return Product(self.domain, tuple(sets), product.weight)

    def _over_groups(self, product: Product) -> Product:
        """The product as one set on all groups that it touches, its queries in their order."""
        axes = tuple(sorted({self._group[i] for each, _ in product.sets for i in each}))
        order = [i for g in axes for i in self.groups[g]]
        whole = Reordered(replace(product, weight=1.0).over(sorted(order)), tuple(map(sorted(order).index, order)))
        return Product.of(self.domain, [(axes, whole)], product.weight)

    def restored(self, product: Product, values: Array) -> Array:
        """One value per query of the grouped product, in the order of the queries of the product itself."""
        if product.joint:
            return values
        counts = self._counts(product)
        return values.reshape([counts[i] for i in self.order]).transpose(np.argsort(self.order)).ravel()

    def query(self, product: Product, rows: Array) -> Array:
        """The numbers of these queries of the product among those of the grouped product."""
        if product.joint:
            return rows
        counts = self._counts(product)
        places = np.unravel_index(rows, counts)
        return np.ravel_multi_index([places[i] for i in self.order], [counts[i] for i in self.order])

    @cached_property
    def _group(self) -> dict[int, int]:
        """The number of each attribute's group."""
        return {i: g for g, group in enumerate(self.groups) for i in group}

    def _counts(self, product: Product) -> list[int]:
        return [p.count(n) for p, n in zip(product.predicates, self.original.shape, strict=True)]

    def _joined(self, group: Attributes, parts: Sequence[tuple[Attributes, Matrix]]) -> Matrix:
        """One matrix on all cells of a group: what no part touches is totalled."""
        if len(parts) == 1 and parts[0][0] == group:
            return parts[0][1]
        shape = self.original.shape
        missing = [(i,) for i in group if all(i not in axes for axes, _ in parts)]
        order = [i for axes in [*(axes for axes, _ in parts), *missing] for i in axes]
        kron = Kron((*(A for _, A in parts), *(Ones(1, shape[i]) for (i,) in missing)))
        return kron if order == list(group) else Permuted(kron, cell_places(shape, order))


def stacked_blocks(shape: Sequence[int], blocks: Sequence[Block]) -> Matrix:
    """The matrix of blocks whose factors sit on one attribute each; `shape` has the sizes of the attributes."""
    totals = [Ones(1, n) for n in shape]
    stacked: list[Matrix] = []
    for block in blocks:
        active = block.by_axis
        kron = Kron(tuple(active.get(i, total) for i, total in enumerate(totals)))
        stacked.append(kron if block.weight == 1 else Scaled(block.weight, kron))
    return stacked[0] if len(stacked) == 1 else Stack(tuple(stacked))


def unordered(domain: Domain, order: Sequence[int]) -> Array:
    """The place of every cell of a domain among its cells with the attributes in another order. O(N)."""
    return cell_places(domain.shape, order)


@final
@dataclass(frozen=True, slots=True)
class Crossed(PredicateSet):
    """All combinations of one predicate per attribute of a group: W₁ ⊗ … ⊗ W_m, the first slowest.

    >>> from hdmm import Prefix
    >>> Crossed((Prefix(), Total()), (4, 3)).matrix(12).shape
    (4, 12)
    """

    parts: tuple[PredicateSet, ...]
    sizes: tuple[int, ...]

    def count(self, n: int) -> int:
        return math.prod(part.count(size) for part, size in zip(self.parts, self.sizes, strict=True))

    def build(self, n: int) -> Matrix:
        if math.prod(self.sizes) != n:
            raise StrategyError(f"Crossed predicates on {self.sizes} cells do not fit an attribute of {n} values.")
        return Kron(tuple(part.matrix(size) for part, size in zip(self.parts, self.sizes, strict=True)))

    def labels(self, attribute: Attribute) -> list[str]:
        if not isinstance(attribute.values, Merged):
            raise StrategyError(f"Attribute {attribute.name!r} is not merged. Use Domain.merge.")
        each = [p.labels(a) for p, a in zip(self.parts, attribute.values.parts, strict=True)]
        return [" × ".join(words) for words in itertools.product(*each)]


@final
@dataclass(frozen=True, slots=True)
class Reordered(PredicateSet):
    """The queries of a product over a small domain, on its cells with the attributes in another order."""

    product: Product
    order: Attributes

    def count(self, n: int) -> int:
        return self.product.queries

    def build(self, n: int) -> Matrix:
        cells = np.arange(self.product.domain.size).reshape(self.product.domain.shape)
        places = np.argsort(cells.transpose(self.order).ravel())
        return Permuted(self.product.matrix, np.argsort(places))

    def labels(self, attribute: Attribute) -> list[str]:
        return [" × ".join(words) for words in self.product.labels()]
