"""Estimates: what answers queries once measurements are in, by the coordinates of each attribute.

Coordinates are those of strategy/axis.py, whose first is the total: a marginal needs only the coordinates of its
own attributes, and x̂ over the domain is never built for marginal strategies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TypeAlias, TypeVar, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, Eye, Kron, Ones
from hdmm.strategy.axis import Axis, after, axis_of, cells_of
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.slabs import kron_slabs
from hdmm.strategy.subsets import subsets

T = TypeVar("T")

LARGEST_TABLE = 1 << 31  # coordinates of an estimated table: 16 GiB
TOGETHER = 32_768  # numbers of tables of one shape that are worked out together: half a slab, so in one thread


class Estimate(ABC):
    """Estimated counts; `values` answers a product that the strategy supports."""

    @abstractmethod
    def values(self, product: Product) -> Array:
        """The estimated answer to each query of the product, without its weight, in query order."""


@singledispatch
def all_values(estimate: Estimate, products: Sequence[Product]) -> Array:
    """The values of all products, one after the other; of marginals, those of one shape are worked out together."""
    return np.concatenate([estimate.values(product) for product in products])


@final
@dataclass(frozen=True, slots=True, eq=False)
class CoordinateEstimate(Estimate):
    """Coordinates in parts: the part of b holds what is beyond the total on every attribute of b.

    If some block totals an attribute, its coordinate 0 is the total. A part has an axis for every attribute of b,
    without the coordinate 0, and one for every attribute that is held, with all coordinates: the attributes that no
    block totals, or all attributes if one block measures them all. Marginals need only the parts of their subsets.
    """

    groups: AxisGroups  # of the attributes, as which axes are numbered
    axes: tuple[Axis, ...]
    held: Attributes
    parts: Mapping[Attributes, Array]

    def values(self, product: Product) -> Array:
        return self.groups.restored(product, self._values(self.groups.product(product)))

    def _values(self, product: Product) -> Array:
        asked, axes = sorted(i for each, _ in product.sets for i in each), self.axes
        shape = [axes[i].coordinates for i in asked]
        if math.prod(shape) > LARGEST_TABLE:
            raise StrategyError(
                f"These queries need an estimated table of {math.prod(shape):.1e} cells. Ask for fewer attributes."
            )
        split = self._split(asked)
        if split or () not in self.parts:
            T = np.zeros(shape)
            for b in subsets(split):
                if b in self.parts:  # otherwise it was not measured: it is 0, or the queries are not supported
                    index = tuple(slice(None) if i in self.held else slice(1, None) if i in b else 0 for i in asked)
                    T[index] = self._part(b, asked)
        else:
            T = self._part((), asked)
        order = [i for each, _ in product.sets for i in each]
        if product.joint:
            T = T.reshape(shape).transpose([asked.index(i) for i in order])
        each = [(p.matrix(product.cells(on)), [axes[i].synthesis for i in on]) for on, p in product.sets]
        synthesis = [after(W, S[0] if len(S) == 1 else Kron(tuple(S))) for W, S in each]
        return kron_slabs(synthesis, T, np.float64)

    def together(self, products: Sequence[Product]) -> Array:
        """The values of products that have the same predicate sets and axes, and hold no attribute: one row each."""
        columns = list(zip(*([i for i, _ in product.factors] for product in products), strict=True))
        asked = dict(products[0].factors)
        T = np.zeros([len(products), *(self.axes[i].coordinates for i in asked)])
        split = [k for k, i in enumerate(asked) if self.axes[i].coordinates > 1]
        for b in subsets(split):
            index = tuple(slice(1, None) if k in b else 0 for k in range(len(asked)))
            sets = list(zip(*(columns[k] for k in b), strict=True)) if b else [()] * len(products)
            there = [j for j, each in enumerate(sets) if each in self.parts]
            if there:
                rows = slice(None) if len(there) == len(sets) else there
                T[rows, *index] = stacked(self.parts, [sets[j] for j in there])
        shape = products[0].domain.shape
        synthesis = [after(p.matrix(shape[i]), self.axes[i].synthesis) for i, p in asked.items()]
        return kron_slabs([Eye(len(products)), *synthesis], T, np.float64).reshape(len(products), -1)

    def _split(self, asked: Iterable[int]) -> list[int]:
        return [i for i in asked if i not in self.held and self.axes[i].coordinates > 1]

    def _part(self, b: Attributes, asked: Container[int]) -> Array:
        """A part in which held attributes that are not asked for are totalled."""
        if not self.held:
            return self.parts[b]
        over = sorted((*b, *self.held))
        totals = [i not in asked and self.axes[i].total is not None for i in over]
        part = self.parts[b][tuple(0 if total else slice(None) for total in totals)]
        left = [i for i, total in zip(over, totals, strict=True) if not total]
        summed = tuple(k for k, i in enumerate(left) if i not in asked)
        return part.sum(axis=summed) if summed else part


@all_values.register
def _(estimate: CoordinateEstimate, products: Sequence[Product]) -> Array:
    counts = [product.queries for product in products]
    if estimate.held or not estimate.groups.trivial or len(products) < 2:
        return np.concatenate([estimate.values(product) for product in products])
    out, starts = np.empty(sum(counts)), np.cumsum([0, *counts]).tolist()
    distinct = dict.fromkeys(pair for product in products for pair in product.factors)
    numbered: dict[tuple[Axis, PredicateSet], int] = {}
    kinds = {(i, p): numbered.setdefault((estimate.axes[i], p), len(numbered)) for i, p in distinct}

    def sized(j: int) -> tuple[Hashable, int, int]:
        if products[j].joint:
            return j, TOGETHER, j  # alone
        cells = math.prod([estimate.axes[i].coordinates for i, _ in products[j].factors])
        return tuple([kinds[pair] for pair in products[j].factors]), max(cells, counts[j]), j

    for batch in alike(map(sized, range(len(products))), TOGETHER):
        single = len(batch) == 1
        found = [estimate.values(products[batch[0]])] if single else estimate.together([products[j] for j in batch])
        for j, values in zip(batch, found, strict=True):
            out[starts[j] : starts[j + 1]] = values
    return out


def alike(items: Iterable[tuple[Hashable, int, T]], enough: int) -> Iterator[list[T]]:
    """Items of one key together, given as (key, size, item): a batch whenever its sizes reach `enough`, then the rest.

    >>> list(alike([("a", 1, "x"), ("b", 9, "y"), ("a", 1, "z")], 5))
    [['y'], ['x', 'z']]
    """
    waiting: dict[Hashable, list[T]] = {}
    for key, size, item in items:
        batch = waiting.setdefault(key, [])
        batch.append(item)
        if len(batch) * size >= enough:
            yield waiting.pop(key)
    yield from waiting.values()


@singledispatch
def stacked(parts: Mapping[Attributes, Array], sets: Sequence[Attributes]) -> Array:
    """The parts of some sets of attributes, whose axes are the same one after the other: one row each."""
    return np.stack([parts[b] for b in sets])


@final
@dataclass(frozen=True, slots=True, eq=False)
class ProductEstimate(Estimate):
    """The answers of a function of the product; StrategyError if it has none."""

    answer: Callable[[Product], Array]

    def values(self, product: Product) -> Array:
        return self.answer(product)


TableOf: TypeAlias = Callable[[Product], tuple[Attributes, Array]]
"""From a product to some attributes, its own among them, and a table over these; StrategyError if there is none."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class TableEstimate(Estimate):
    """Tables over some attributes each, from which all that is on fewer attributes follows by sums."""

    domain: Domain
    table: TableOf

    def values(self, product: Product) -> Array:
        return in_cells(self.domain, *self.table(product)).values(product)


def in_cells(domain: Domain, axes: Sequence[int], x: Array, groups: AxisGroups | None = None) -> CoordinateEstimate:
    """The estimate that is x on the cells of these attributes; only totals of the others are known.

    The domain may be that of groups of attributes, if these are given.
    """
    kinds = [cells_of((Eye(n),)) if i in axes else _total_axis(n) for i, n in enumerate(domain.shape)]
    parts = {(): x.reshape([domain.shape[i] for i in axes])}
    return CoordinateEstimate(groups or AxisGroups.apart(domain), tuple(kinds), tuple(axes), parts)


def _total_axis(n: int) -> Axis:
    axis = axis_of((Ones(1, n),))
    if axis is None:
        raise StrategyError("A total has no axis. This is a fault in hdmm; please report it.")
    return axis
