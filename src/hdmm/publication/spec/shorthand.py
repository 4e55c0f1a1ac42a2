"""Marginals and ranges without SQL: tables of counts over combinations of columns, or over all their ranges."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast, final

import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import WorkloadError
from hdmm.base.hints import did_you_mean
from hdmm.describe.domain import Domain
from hdmm.describe.entries import Label
from hdmm.describe.numeric import Bins
from hdmm.describe.predicates import AllRange, Identity, PredicateSet, Sets
from hdmm.describe.product import Product
from hdmm.describe.values import Values
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.sql import Statement
from hdmm.sql.cells import MOST_LISTED, Cells, predicates
from hdmm.sql.comparisons import Column, columns
from hdmm.sql.products import Row


@final
@dataclass(frozen=True, slots=True)
class Shorthand:
    """Counts by one set of columns. A column that is counted over ranges has two columns: from and to, both inside.

    `columns` are in the order in which they are listed, and queries in the order of the domain. Ranges of bins begin at
    the first edge of a bin and end below the last edge of another.

    >>> (table,) = Shorthand.each(Domain({"sex": ["M", "F"], "age": 3}), [("sex",)], ranges=())
    >>> table.columns, table.rows, list(table.labels())
    (('sex',), 2, [('M',), ('F',)])
    >>> (table,) = Shorthand.each(Domain({"age": 2}), [("age",)], ranges=("age",))
    >>> table.columns, list(table.labels())
    (('age_from', 'age_to'), [(0, 0), (0, 1), (1, 1)])
    >>> (table,) = Shorthand.each(Domain({"income": Bins([0, 10, 50])}), [("income",)], ranges=("income",))
    >>> list(table.labels())
    [(0, 10), (0, 50), (10, 50)]
    """

    columns: tuple[str, ...]
    workload: Workload
    labelled: tuple[_Labelled, ...]
    picks: tuple[tuple[int, int], ...]
    """For each column, the attribute among `labelled` that has it, and its place among the columns of that."""
    combine: sp.csr_array | None = field(default=None, compare=False)
    """Which queries are summed into each row where some cells are impossible; None if each query is a row."""

    @classmethod
    def each(cls, domain: Domain, subsets: Sequence[Sequence[str]], *, ranges: Sequence[str]) -> tuple[Shorthand, ...]:
        """One table per set of columns; those in `ranges` are counted over all ranges of their values."""
        known = columns(domain)
        places = {name: k for k, name in enumerate(known)}
        found: list[Shorthand] = []
        shared: dict[tuple[Column, ...], _Labelled] = {}  # shared by the marginals that have these columns
        for subset in subsets:
            by_axis: dict[int, tuple[Column, ...]] = {}
            for column in (known[name] for name in sorted(subset, key=places.__getitem__)):
                by_axis[column.axis] = (*by_axis.get(column.axis, ()), column)
            for wanted in by_axis.values():
                if wanted not in shared:
                    shared[wanted] = _labelled(domain, wanted, ranges)
            axes = sorted(by_axis)
            parts = tuple(shared[by_axis[axis]] for axis in axes)
            product = Product(domain, tuple((axis, part.predicates) for axis, part in zip(axes, parts, strict=True)))
            picks = tuple(pick for name in subset for pick in _picks(parts, name))
            named = tuple(parts[i].names[k] for i, k in picks)
            found.append(cls(named, Workload(domain, (product,)), parts, picks))
        return tuple(found)

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        return math.prod(part.count for part in self.labelled)

    @property
    def linear(self) -> bool:
        """Every row is a count."""
        return True

    @property
    def order(self) -> Array | None:
        """The rows such that the first column varies slowest; None if they are so in the order of queries."""
        axes = list(dict.fromkeys(i for i, _ in self.picks))
        if axes == sorted(axes):
            return None
        return np.arange(self.rows).reshape([part.count for part in self.labelled]).transpose(axes).ravel()

    def labels(self) -> Iterator[Row]:
        """The labels of each row, in the order of `columns`; rows are in the order of queries."""
        for groups in itertools.product(*(part.labels() for part in self.labelled)):
            yield tuple(groups[i][k] for i, k in self.picks)


@final
@dataclass(frozen=True, slots=True)
class _Labelled:
    """Predicates on one attribute that distinguish the values of its columns."""

    columns: tuple[Column, ...]
    predicates: PredicateSet
    combinations: tuple[tuple[int, ...], ...] | None = None
    """What the columns read in each group, where a level leaves some combinations without a cell."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the label columns."""
        if self.ranged:
            (column,) = self.columns
            return f"{column.name}_from", f"{column.name}_to"
        return tuple(column.name for column in self.columns)

    @property
    def count(self) -> int:
        """How many groups or ranges there are."""
        return self.predicates.count(self.columns[0].n)

    @property
    def ranged(self) -> bool:
        """Whether the predicates are ranges."""
        return isinstance(self.predicates, AllRange)

    def labels(self) -> Iterator[Row]:
        """What the columns read in each group, in the order of the predicates."""
        if self.ranged:
            (column,) = self.columns
            cells = range(column.values.size)
            ends = [_ends(column.values, code) for code in cells]
            return ((ends[a][0], ends[b][1]) for a, b in itertools.combinations_with_replacement(cells, 2))
        if self.combinations is not None:
            return (
                tuple(c.values.label(i) for c, i in zip(self.columns, row, strict=True)) for row in self.combinations
            )
        return itertools.product(*(map(c.values.label, range(c.values.size)) for c in self.columns))


def _picks(parts: Sequence[_Labelled], name: str) -> Iterator[tuple[int, int]]:
    """Where the labels of a column are: two places if it is counted over ranges."""
    for i, part in enumerate(parts):
        held = [column.name for column in part.columns]
        if name in held:
            yield from ((i, 0), (i, 1)) if part.ranged else ((i, held.index(name)),)


def _ends(values: Values, code: int) -> tuple[Label, Label]:
    """What a range reads that begins, or ends, with this cell."""
    if isinstance(values, Bins) and code < len(values.edges) - 1:
        return values.edges[code], values.edges[code + 1]
    return values.label(code), values.label(code)


def _labelled(domain: Domain, wanted: tuple[Column, ...], ranges: Collection[str]) -> _Labelled:
    """The ranges of one column, or one group per combination of values of columns that belong to one attribute."""
    attribute = domain.attributes[wanted[0].axis]
    ranged = [column.name for column in wanted if column.name in ranges]
    if ranged:
        if any(column.grouped is not None for column in wanted):
            raise WorkloadError(f"{ranged[0]} is counted by ranges, so it has no levels here. Leave out its levels.")
        if not attribute.ordered:
            raise WorkloadError(f"{ranged[0]} has no order, so it has no ranges. Leave it out of ranges.")
        return _Labelled(wanted, AllRange())
    if all(c.grouped is None for c in wanted) and math.prod(c.values.size for c in wanted) == attribute.size:
        return _Labelled(wanted, Identity())
    combinations, group = np.unique(np.stack([c.codes for c in wanted], axis=1), axis=0, return_inverse=True)
    order = np.argsort(group, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    listed = tuple(map(tuple, combinations.tolist())) if any(c.grouped is not None for c in wanted) else None
    alone = len(members) == attribute.size and (np.diff(order) > 0).all()
    return _Labelled(wanted, Identity() if alone else Sets([each.tolist() for each in members]), listed)


def ranged(plain: Shorthand, possible: Statement) -> Shorthand:
    """A table over ranges that counts possible cells only; `possible` has its cells in the place of its ranges.

    Each product of `possible` is over some cells of the attributes that have ranges. It becomes one over the ranges
    of these cells, and a row of the table has from each product the range that is left of its own, if any is.
    """
    (block,) = possible.blocks
    domain = plain.workload.domain
    names = [domain.names[part.columns[0].axis] for part in plain.labelled]
    products: list[Product] = []
    sums: list[sp.csr_array] = []
    for part in block.parts:
        factors, chosen = dict(part.factors), sp.csr_array(np.ones((1, 1)))
        for name, labelled, kept in zip(names, plain.labelled, part.counted, strict=True):
            if labelled.ranged:
                factors[name] = _ranges_of(kept, domain[name].size)
            chosen = sp.csr_array(sp.kron(chosen, _chosen(labelled, np.array(kept)), format="csr"))
        products += Workload.product(domain, factors).products
        sums.append(chosen)
    return replace(plain, workload=Workload(domain, tuple(products)), combine=sp.csr_array(sp.hstack(sums)))


def _ranges_of(cells: Sequence[int], n: int) -> PredicateSet:
    """Every range of some cells of an attribute."""
    if len(cells) == n:
        return AllRange()
    if len(cells) * (len(cells) + 1) // 2 > MOST_LISTED:
        raise WorkloadError(
            f"Where some cells are impossible, there are more than {MOST_LISTED:,} ranges to list. Use fewer or "
            "coarser values."
        )
    held = [Cells.of(n, [(i, i)]) for i in cells]
    found: list[Cells] = []
    for first in range(len(held)):
        found += itertools.accumulate(held[first:], operator.or_)
    return predicates(found, n)


def _chosen(labelled: _Labelled, kept: Array) -> sp.csr_array:
    """Which query of a product each row of a table has, on one attribute: the group itself, or what is left of it."""
    if not labelled.ranged:
        return sp.csr_array((np.ones(len(kept)), (kept, np.arange(len(kept)))), shape=(labelled.count, len(kept)))
    n, m = labelled.columns[0].n, len(kept)
    low, high = np.triu_indices(n)
    first, last = np.searchsorted(kept, low), np.searchsorted(kept, high, side="right") - 1
    rows = np.flatnonzero(first <= last)
    first, last = first[rows], last[rows]
    queries = first * m - first * (first - 1) // 2 + last - first
    return sp.csr_array((np.ones(len(rows)), (rows, queries)), shape=(len(low), m * (m + 1) // 2))


def subsets(domain: Domain, marginals: int | Sequence[int] | Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The sets of columns that marginals are over: all sets of the given numbers of attributes, or those listed.

    Those listed are in the order of the list, which decides what is a row and what a column.

    >>> subsets(Domain({"sex": ["M", "F"], "age": 3}), [0, 1])
    [(), ('sex',), ('age',)]
    >>> subsets(Domain({"sex": ["M", "F"], "age": 3}), [["age", "sex"]])
    [('age', 'sex')]
    """
    if not isinstance(marginals, int) and marginals and not any(isinstance(each, int) for each in marginals):
        return [_listed(domain, cast(Sequence[str], names)) for names in marginals]
    # This refuses too many marginals, or too many attributes of one.
    asked = Workload.marginals(domain, cast(int | Sequence[int], marginals))
    return [tuple(domain.names[i] for i, _ in product.factors) for product in asked.products]


def _listed(domain: Domain, names: Sequence[str]) -> tuple[str, ...]:
    """A set of attributes and levels, each of which exists and is named once."""
    known = columns(domain)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise WorkloadError(f"{name!r} is not an attribute or a level; there are {', '.join(known)}.{hint}")
    if len(set(names)) < len(names):
        raise WorkloadError(f"Marginal ({', '.join(names)}) names a column twice. Name each column once.")
    return tuple(names)
