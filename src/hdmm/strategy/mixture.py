"""Mixture: Σ_j coef_j ⊗_i columns, a vector over the cells of classes, kept factored.

Both λ = Σ_j θ_j² ⊗ δ_ji of a strategy and t = Σ_k w_k² ⊗ tr(V_ki Z_c) of a workload are such sums, and the
error is Σ_cells t/λ. A cell is one class per attribute.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Product
from hdmm.matrix import Array, Dense, Kron
from hdmm.strategy.subsets import Subsets

T = TypeVar("T")

SLAB_CELLS = 1 << 22  # cells written out at once (32 MiB); more are processed in slabs of that size
_MAX_DENSE = 1 << 24  # two-class forms with more cells are summed over subsets instead
_MAX_WALK = 1 << 34  # cells walked in slabs: minutes
PER_SUBSET = 64  # steps over all cells that take as long as one subset of the sparse form
_MAX_SUBSETS = 1 << 26  # subsets written out by the sparse form (1 GiB with their keys)


@final
@dataclass(frozen=True, eq=False)
class Mixture:
    """Σ_j coefficients[j] · ⊗_i tables[i][:, choices[j, i]].

    `tables[i]` is classes × distinct factors of attribute i. O(k·d + Σ table entries) memory.
    """

    coefficients: Array
    choices: Array
    tables: tuple[Array, ...]

    @cached_property
    def cells(self) -> int:
        """Π classes."""
        return math.prod(len(table) for table in self.tables)

    @cached_property
    def is_binary(self) -> bool:
        """Whether every attribute has at most two classes."""
        return all(len(table) <= 2 for table in self.tables)

    @cached_property
    def reach(self) -> float:
        """How many cells the terms have that are not 0, repeats counted, if no attribute has over two classes."""
        logs = np.zeros(len(self.choices), dtype=np.int32)
        for i, table in enumerate(self.tables):
            if len(table) == 2 and (both := np.all(table > 0, axis=0)).any():
                logs += both[self.choices[:, i]]
        return float(np.exp2(logs).sum())

    def restricted(self, boxes: Sequence[Array]) -> Mixture:
        """The same sum on the cells with class i among boxes[i], without the terms that are 0 on all of them."""
        tables = tuple(table[box] for table, box in zip(self.tables, boxes, strict=True))
        kept = np.ones(len(self.choices), dtype=bool)
        for i, table in enumerate(tables):
            seen: Array = np.any(table, axis=0)
            if not seen.all():
                kept &= seen[self.choices[:, i]]
        return Mixture(self.coefficients[kept], self.choices[kept], tables)

    def slabs(self) -> Iterator[list[Array]]:
        """Boxes that together cover all cells, each of at most SLAB_CELLS if the axes allow it."""
        if self.cells > _MAX_WALK:
            raise StrategyError(
                f"The strategy's diagonal form has {float(self.cells):.1e} cells, which are too many. Use a product "
                "or marginals for domains of this size."
            )
        axes = [np.arange(len(table)) for table in self.tables]
        if self.cells <= SLAB_CELLS:
            yield axes
            return
        # The leading axes are cut into single classes, the next one into steps, and the rest stay whole.
        split, tail = 0, self.cells
        while tail > SLAB_CELLS:
            tail //= len(axes[split])
            split += 1
        step = SLAB_CELLS // tail
        for heads in itertools.product(*axes[: split - 1]):
            fixed = [np.array([head]) for head in heads]
            for start in range(0, len(axes[split - 1]), step):
                yield [*fixed, axes[split - 1][start : start + step], *axes[split:]]

    @property
    def _by_axis(self) -> bool:
        """Whether the values over all cells are computed one axis at a time."""
        factors = math.prod(table.shape[1] for table in self.tables)
        return factors <= min(max(len(self.coefficients) * self.cells, 1 << 12), _MAX_SUBSETS)

    @property
    def steps(self) -> int:
        """How many steps, about, the values over all cells take."""
        if not self._by_axis:
            return len(self.coefficients) * self.cells
        return max(math.prod(table.shape[1] for table in self.tables), self.cells)

    def values(self) -> Array:
        """The vector over all cells; the first attribute varies slowest.

        It is computed from the tensor of coefficients, one axis at a time, in O(d·(Π factors + cells)), which is a
        superset sum if there are two of each; or product by product in O(k·cells), whichever costs less.
        """
        widths = [table.shape[1] for table in self.tables]
        if self._by_axis:
            code = np.zeros(len(self.choices), dtype=np.int64)
            for i, width in enumerate(widths):
                code = code * width + self.choices[:, i] if width > 1 else code
            tensor = np.bincount(code, weights=self.coefficients, minlength=math.prod(widths))
            return Kron(tuple(Dense(table) for table in self.tables)).matmat(tensor[:, None])[:, 0]
        total = np.zeros(self.cells)
        step = max(1, SLAB_CELLS // max(self.cells, 1))
        for start in range(0, len(self.coefficients), step):
            part = self.coefficients[None, start : start + step]
            for i, table in enumerate(self.tables):
                columns = table[:, self.choices[start : start + step, i]]
                part = (part[:, None, :] * columns[None]).reshape(-1, part.shape[1])
            total += part.sum(axis=1)
        return total

    @cached_property
    def sparse(self) -> SparseCells:
        """The nonzero cells if every attribute has at most two classes, however many attributes."""
        found = self.listed
        return SparseCells(found.keys, found.sums(self.coefficients))

    @cached_property
    def by_subset(self) -> Array:
        """The values on all 2^d subsets of attributes in their second class; bit 0 varies fastest."""
        d = len(self.tables)
        if not d:
            return np.array([float(self.coefficients.sum())])
        if self.reach * PER_SUBSET < self.steps:
            found, out = self.sparse, np.zeros(1 << d)
            out[found.keys.numbers()] = found.values
            return out
        tables = tuple(table if len(table) == 2 else np.pad(table, ((0, 1), (0, 0))) for table in self.tables)
        return Mixture(self.coefficients, self.choices[:, ::-1], tables[::-1]).values()

    def at(self, keys: Subsets) -> Array:
        """The values on some subsets: all are worked out where that takes less, as for a product of 20 attributes."""
        if self.reach * PER_SUBSET < self.steps or self.cells > _MAX_DENSE:
            return self.sparse.at(keys)
        return self.by_subset[keys.numbers()]

    @cached_property
    def listed(self) -> ListedTerms:
        """What each term, its coefficient left out, has on each of its cells, if no attribute has over two classes.

        A term reaches the cells whose second-class attributes include all on which it is 0 in the first class, and any
        of the others on which it is not 0 in the second: 2^s cells for s such others. O(Σ_j 2^s_j) time and memory,
        whatever the size of the domain.
        """
        k, d = self.choices.shape
        single, scale = Subsets.single(d).columns, np.ones(k)
        free, always = list[Array](), np.zeros((len(single), k), dtype=np.uint64)
        for i, table in enumerate(self.tables):
            first, second = table[0], table[1] if len(table) == 2 else np.zeros(table.shape[1])
            either, alone = (second > 0) & (first > 0), (second > 0) & (first == 0)
            column = self.choices[:, i]
            outright = np.where(either, 1.0, np.where(alone, second, first))
            free.append(np.flatnonzero(either[column]) if either.any() else np.empty(0, dtype=np.intp))
            if alone.any():
                always[:, alone[column]] |= single[:, [i]]
            if (outright != 1).any():
                scale *= outright[column]
        free_axes, sizes = _by_term(free, k)
        if float(np.exp2(sizes).sum()) > _MAX_SUBSETS:
            raise StrategyError(
                f"Marginals of up to {int(sizes.max())} out of {d} attributes reach more than {_MAX_SUBSETS:,} "
                "subsets. Use fewer or smaller marginals."
            )
        rows, cells, values = list[Array](), list[Array](), list[Array]()
        starts = np.cumsum(sizes) - sizes
        for size in np.flatnonzero(np.bincount(sizes)).tolist():
            each = np.flatnonzero(sizes == size)
            axes = free_axes[starts[each][:, None] + np.arange(size)]
            v0, v1 = self._along(each, axes)
            reached, found = [always[:, each]], [scale[each]]
            for i in range(size):  # each attribute doubles them: without it, then with it
                reached += [columns | single[:, axes[:, i]] for columns in reached]
                found = [x * v0[:, i] for x in found] + [x * v1[:, i] for x in found]
            rows += [each] * len(found)
            cells += reached
            values += found
        unique, inverse = Subsets(d, np.concatenate(cells, axis=1)).distinct()
        return ListedTerms(unique, np.concatenate(rows), inverse, np.concatenate(values))

    def quotients(self, t: Mixture) -> Array:
        """Σ_cells t_k/λ for each term k of t alone, where this is λ > 0; of two classes at most. O(reach)."""
        lam = self.at(t.listed.keys)
        return t.listed.against(np.divide(1.0, lam, out=np.zeros(len(lam)), where=lam > 0), len(t.choices))

    def missing(self, t: Mixture) -> Array:
        """Whether a cell of each term of t is not measured at all (λ = 0 < t)."""
        return t.listed.against(np.where(self.at(t.listed.keys) > 0, 0.0, 1.0), len(t.choices)) > 0

    def _along(self, rows: Array, axes: Array) -> tuple[Array, Array]:
        """What terms have of the first and of the second class of some attributes each: arrays shaped as `axes`."""
        starts = np.cumsum([0, *(table.shape[1] for table in self.tables)])
        places = starts[axes] + self.choices[rows[:, None], axes]
        widened = [table if len(table) == 2 else np.pad(table, ((0, 1), (0, 0))) for table in self.tables]
        both = np.concatenate([np.empty((2, 0)), *widened], 1)  # no attributes at all have one cell
        return both[0][places], both[1][places]


def _by_term(terms: Sequence[Array], count: int) -> tuple[Array, Array]:
    """(the attributes of each term, ascending, one term after the other; their numbers) from the terms by attribute.

    >>> axes, numbers = _by_term([np.array([1]), np.array([0, 1])], 2)
    >>> axes.tolist(), numbers.tolist()
    ([1, 0, 1], [1, 2])
    """
    of = np.concatenate([np.empty(0, dtype=np.intp), *terms])
    axes = np.repeat(np.arange(len(terms)), [len(each) for each in terms])
    return axes[np.argsort(of, kind="stable")], np.bincount(of, minlength=count)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ListedTerms:
    """Numbers on pairs of a term and a cell, cells named as in SparseCells; keys ascend."""

    keys: Subsets
    terms: Array
    cells: Array
    values: Array

    def sums(self, coefficients: Array) -> Array:
        """Σ over the terms, by cell."""
        return np.bincount(self.cells, weights=self.values * coefficients[self.terms], minlength=len(self.keys))

    def against(self, cells: Array, terms: int) -> Array:
        """Σ over the numbered cells, by term."""
        return np.bincount(self.terms, weights=self.values * cells[self.cells], minlength=terms)


@final
@dataclass(frozen=True, slots=True, eq=False)
class SparseCells:
    """Values on cells, which are named by the subset of attributes in their second class; 0 on all other cells."""

    keys: Subsets
    values: Array

    def at(self, keys: Subsets) -> Array:
        """The values at the keys, 0 if there is none. O(log) per key."""
        places = self.keys.places(keys)
        return np.where(places >= 0, self.values[places], 0.0)


def tabulate(rows: Sequence[tuple[tuple[int, T], ...]], defaults: Sequence[T]) -> tuple[Array, list[tuple[T, ...]]]:
    """(choices, distinct factors per attribute) of rows of (axis, factor) pairs; what is left out is the default.

    Factors of an attribute are in the order in which they are first met. Half a million pairs take 0.1 s.

    >>> choices, factors = tabulate([((0, "I"),), ((1, "I"),)], ["T", "T"])
    >>> choices.tolist(), factors
    ([[0, 1], [1, 0]], [('I', 'T'), ('I', 'T')])
    """
    distinct: dict[tuple[int, T], int] = {}
    numbers = np.array([distinct.setdefault(pair, len(distinct)) for row in rows for pair in row], dtype=np.int64)
    return tabulate_numbers(np.cumsum([0, *map(len, rows)]), numbers, distinct, defaults)


def tabulate_numbers(
    starts: Array, numbers: Array, distinct: Iterable[tuple[int, T]], defaults: Sequence[T]
) -> tuple[Array, list[tuple[T, ...]]]:
    """`tabulate` of rows of numbers of distinct pairs; those of row j are numbers[starts[j]:starts[j + 1]].

    Pairs are in the order in which they are first met.
    """
    seen: list[dict[T, int]] = [{} for _ in defaults]
    pairs = [(axis, seen[axis].setdefault(factor, len(seen[axis]))) for axis, factor in distinct]
    axes, places = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    rows = len(starts) - 1
    left_out = np.bincount(axes[numbers], minlength=len(defaults)) < rows
    last = [seen[i].setdefault(default, len(seen[i])) if left_out[i] else 0 for i, default in enumerate(defaults)]
    few = max(map(len, seen)) <= np.iinfo(np.int8).max
    choices = np.empty((rows, len(defaults)), dtype=np.int8 if few else np.int32, order="F")
    choices[:] = last
    choices[np.repeat(np.arange(rows), np.diff(starts)), axes[numbers]] = places[numbers]
    return choices, [tuple(factors) for factors in seen]


def tabulated(products: Sequence[Product], d: int) -> tuple[Array, list[tuple[PredicateSet, ...]]]:
    """`tabulate` of products over d attributes, Total being the default; kept for the last two that it was asked of.

    One selection asks for the same half million pairs several times, which take 0.1 s each time.
    """
    for held, size, found in _TABULATED:
        if held is products and size == d:
            return found
    totals: list[PredicateSet] = [Total()] * d
    _TABULATED.append((products, d, tabulate(single_factors(products), totals)))
    return _TABULATED[-1][-1]


_TABULATED = deque[tuple[Sequence[Product], int, tuple[Array, list[tuple[PredicateSet, ...]]]]](maxlen=2)


def single_factors(products: Iterable[Product]) -> list[tuple[tuple[int, PredicateSet], ...]]:
    """The factors of each product; WorkloadError if one has predicates on several attributes at once."""
    products = list(products)
    for product in products:
        if product.joint:
            product.check_single("This calculation")
    return [product.factors for product in products]


def box_keys(boxes: Mapping[int, Array], d: int) -> Subsets:
    """The keys of the cells of a box, in row-major order. Boxes hold classes 0 and 1; attributes left out have class 0.

    >>> box_keys({0: np.array([1]), 2: np.array([0, 1])}, 3).numbers()
    [1, 5]
    """
    single = Subsets.single(d).columns
    columns = np.zeros((len(single), 1), dtype=np.uint64)
    for i, box in boxes.items():
        bits = box.astype(np.uint64) * single[:, [i]]
        columns = (columns[:, :, None] | bits[:, None, :]).reshape(len(single), -1)
    return Subsets(d, columns)


def quotient_sum(t: Mixture, lam: Mixture, *, supported: bool = False) -> float:
    """Σ_cells t/λ; infinite where a cell of t is not measured at all (λ = 0 < t), unless t is known to be supported."""
    fewer = lam.is_binary and max(t.reach, lam.reach) * PER_SUBSET < max(t.steps, lam.steps)
    if not fewer and (lam.cells <= _MAX_DENSE or not lam.is_binary):
        boxes = ((t.restricted(box).values(), lam.restricted(box).values()) for box in lam.slabs())
        return math.fsum(_quotients(*each, supported=supported) for each in boxes)
    return _quotients(t.sparse.values, lam.sparse.at(t.sparse.keys), supported=supported)


def _quotients(t: Array, lam: Array, *, supported: bool) -> float:
    needed = (t > 0) & (lam > 0) if supported else t > 0
    if (lam[needed] == 0).any():
        return math.inf
    return float(np.sum(t[needed] / lam[needed]))
