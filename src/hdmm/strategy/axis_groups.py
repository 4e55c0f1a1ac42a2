"""AxisGroups: the attributes that factors or predicates touch together, as one; Tabulated: blocks over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from hdmm.base.connected import connected
from hdmm.base.exceptions import StrategyError
from hdmm.describe.attribute import Attribute, Merged
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Attributes, Product, cell_places
from hdmm.matrix import Array, Kron, Matrix, Ones, Permuted
from hdmm.strategy.axis import Axis, cells_of
from hdmm.strategy.blocks import Block, BlockTable, stacked_blocks
from hdmm.strategy.mixture import Mixture, tabulate_numbers


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
        alone = ((i,) for i in range(len(domain)))
        return cls(domain, tuple(connected([*alone, *{axes for axes in factors if len(axes) > 1}])))

    @classmethod
    def apart(cls, domain: Domain) -> AxisGroups:
        """Every attribute in a group of its own."""
        return cls(domain, tuple((i,) for i in range(len(domain))))

    @classmethod
    def whole(cls, domain: Domain) -> AxisGroups:
        """All attributes in one group."""
        return cls(domain, (tuple(range(len(domain))),))

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
                merged = merged.merged_cells(names, name="×".join(names))
        return merged

    @property
    def order(self) -> Attributes:
        """The attributes in the order in which they vary over the cells of the groups, slowest first."""
        return tuple(i for group in self.groups for i in group)

    @property
    def keeps_order(self) -> bool:
        """Whether every group's attributes are neighbours, so that cells and queries keep their order."""
        return self.trivial or self.order == tuple(range(len(self.original)))

    def stacked(self, blocks: Sequence[Block]) -> Matrix:
        """The blocks, one below the other, over the cells of the domain in their own order."""
        matrix = stacked_blocks(self.domain.shape, self.blocks(blocks))
        return matrix if self.keeps_order else Permuted(matrix, cell_places(self.original.shape, self.order))

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

    def blocks(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """The blocks with one factor per group."""
        return blocks if self.trivial else tuple(map(self.block, blocks))

    def product(self, product: Product) -> Product:
        """The product in which all combinations of its predicates on a group are one set of predicates."""
        if self.trivial:
            return product
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
        if product.joint or self.keeps_order:
            return values
        counts = self._counts(product)
        return values.reshape([counts[i] for i in self.order]).transpose(np.argsort(self.order)).ravel()

    def query(self, product: Product, rows: Array) -> Array:
        """The numbers of these queries of the product among those of the grouped product."""
        if product.joint or self.keeps_order:
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


@final
@dataclass(frozen=True, eq=False)
class Tabulated:
    """Blocks over groups of attributes by the distinct factors of each: what the kinds of form are made from."""

    domain: Domain
    blocks: BlockTable  # as they were measured
    groups: AxisGroups
    squares: Array
    choices: Array
    factors: list[tuple[Matrix, ...]]

    @classmethod
    def of(cls, groups: AxisGroups, blocks: Sequence[Block]) -> Tabulated:
        """The table of some blocks. O(factors)."""
        held = BlockTable.of(blocks)
        table = BlockTable.of(groups.blocks(held))
        totals: list[Matrix] = [Ones(1, n) for n in groups.domain.shape]
        pairs = [(axes[0], A) for axes, A in table.distinct]
        found = tabulate_numbers(table.starts, table.numbers, pairs, totals)
        return cls(groups.original, held, groups, table.weights**2, *found)

    def split(self, axes: Sequence[Axis | None]) -> tuple[tuple[Axis, ...], Mixture, Attributes]:
        """The axes; free attributes have none and get their cells; λ by their classes; the free attributes."""
        held = tuple(cells_of(each) if axis is None else axis for axis, each in zip(axes, self.factors, strict=True))
        lam = Mixture(self.squares, self.choices, tuple(axis.delta for axis in held))
        return held, lam, tuple(i for i, axis in enumerate(axes) if axis is None)


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
