"""Tables without SQL: counts by columns, or over all ranges of their values."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast, final

import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import WorkloadError
from hdmm.base.hints import did_you_mean
from hdmm.describe.amount import SUM_IT
from hdmm.describe.attribute import Column, columns
from hdmm.describe.domain import Domain
from hdmm.describe.entries import Label
from hdmm.describe.numeric import Bins
from hdmm.describe.predicates import AllRange, Identity, PredicateSet, Sets
from hdmm.describe.product import Product
from hdmm.describe.table_column import RangeEnd, TableColumn, number_ends
from hdmm.describe.table_query import GroupLabels, Linear, Row, RowBlock, TableQuery
from hdmm.describe.values import Values
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.sql.cells import MOST_LISTED, Cells, predicates
from hdmm.sql.statement import BoundStatement


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
    found = Workload.marginals(domain, cast(int | Sequence[int], marginals))
    return [tuple(domain.names[i] for i, _ in product.factors) for product in found.products]


def _listed(domain: Domain, names: Sequence[str]) -> tuple[str, ...]:
    """A set of attributes and levels, each of which exists and is named once."""
    known = columns(domain.attributes)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise WorkloadError(f"{name!r} is not an attribute or a level; there are {', '.join(known)}.{hint}")
        if known[name].values.divided:
            raise WorkloadError(f"{name!r} is an amount, by which rows are not counted. {SUM_IT}")
    if len(set(names)) < len(names):
        raise WorkloadError(f"Marginal ({', '.join(names)}) names a column twice. Name each column once.")
    return tuple(names)


def marginal_tables(
    domain: Domain,
    sets: Sequence[Sequence[str]],
    *,
    ranges: Collection[str] = (),
    possible: Sequence[BoundStatement] = (),
) -> list[TableQuery]:
    """A table of counts per set of columns. Those in `ranges` are counted over all ranges of their values.

    A column that is counted over ranges has two columns: from and to, both inside. Ranges of bins begin at the first
    edge of a bin and end below the last edge of another. Columns are in the order in which they are listed, and
    queries in the order of the domain. Where some cells are impossible, `possible` has the tables that count the others
    by the same columns, with cells in the place of ranges.

    >>> (table,) = marginal_tables(Domain({"sex": ["M", "F"], "age": 3}), [("sex",)])
    >>> table.columns, table.rows, list(table.labels())
    (('sex',), 2, [('M',), ('F',)])
    >>> (table,) = marginal_tables(Domain({"age": 2}), [("age",)], ranges=["age"])
    >>> table.columns, list(table.labels())
    (('age_from', 'age_to'), [(0, 0), (0, 1), (1, 1)])
    >>> (table,) = marginal_tables(Domain({"income": Bins([0, 10, 50])}), [("income",)], ranges=["income"])
    >>> list(table.labels())
    [(0, 10), (0, 50), (10, 50)]
    """
    known = columns(domain.attributes)
    places = {name: k for k, name in enumerate(known)}
    found: list[TableQuery] = []
    shared: dict[tuple[Column, ...], _Groups] = {}  # by the tables that have these columns
    for subset, bound in itertools.zip_longest(sets, possible):
        by_axis: dict[int, tuple[Column, ...]] = {}
        for column in (known[name] for name in sorted(subset, key=places.__getitem__)):
            by_axis[column.axis] = (*by_axis.get(column.axis, ()), column)
        for wanted in by_axis.values():
            if wanted not in shared:
                shared[wanted] = _groups(domain, wanted, ranges)
        groups = {axis: shared[by_axis[axis]] for axis in sorted(by_axis)}
        found.append(_table(domain, subset, groups, bound))
    return found


@final
@dataclass(frozen=True, slots=True)
class _Groups:
    """Predicates on one attribute that distinguish the values of its columns, or count ranges of them."""

    columns: tuple[Column, ...]
    predicates: PredicateSet
    label_columns: tuple[TableColumn, ...]
    """One per column, or two for a column that is counted over ranges."""
    labels: GroupLabels

    @property
    def ranged(self) -> bool:
        """Whether the predicates are ranges."""
        return isinstance(self.predicates, AllRange)

    def picks(self, name: str) -> range:
        """The places of the labels of a column, if it is one of these."""
        held = [column.name for column in self.columns]
        if name not in held:
            return range(0)
        return range(2) if self.ranged else range(held.index(name), held.index(name) + 1)


def _groups(domain: Domain, wanted: tuple[Column, ...], ranges: Collection[str]) -> _Groups:
    """The ranges of one column, or one group per combination of values of columns that belong to one attribute."""
    attribute = domain.attributes[wanted[0].axis]
    ranged = [column.name for column in wanted if column.name in ranges]
    if ranged:
        if any(column.grouped is not None for column in wanted):
            raise WorkloadError(f"{ranged[0]} is counted by ranges, so it has no levels here. Leave out its levels.")
        if not attribute.ordered:
            raise WorkloadError(f"{ranged[0]} has no order, so it has no ranges. Leave it out of ranges.")
        values, count = wanted[0].values, AllRange().count(attribute.size)
        ends = (_range_end(ranged[0], values, "from"), _range_end(ranged[0], values, "to"))
        return _Groups(wanted, AllRange(), ends, GroupLabels(count, lambda: _range_labels(values)))
    heads = tuple(TableColumn.of_values(column.name, column.values) for column in wanted)
    leveled = any(column.grouped is not None for column in wanted)
    sizes = [column.values.size for column in wanted]
    if not leveled and math.prod(sizes) == attribute.size:
        every = GroupLabels(attribute.size, lambda: _labels(wanted, itertools.product(*map(range, sizes))))
        return _Groups(wanted, Identity(), heads, every)
    combinations, group = np.unique(np.stack([c.codes for c in wanted], axis=1), axis=0, return_inverse=True)
    order = np.argsort(group, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    alone = len(members) == attribute.size and (np.diff(order) > 0).all()
    there = GroupLabels(len(members), lambda: _labels(wanted, combinations.tolist()))
    return _Groups(wanted, Identity() if alone else Sets([each.tolist() for each in members]), heads, there)


def _labels(wanted: Sequence[Column], codes: Iterable[Sequence[int]]) -> Iterator[Row]:
    return (tuple(column.values.label(code) for column, code in zip(wanted, row, strict=True)) for row in codes)


def _range_labels(values: Values) -> Iterator[Row]:
    """The ends of every range."""
    cells = range(values.size)
    ends = [_ends(values, code) for code in cells]
    return ((ends[a][0], ends[b][1]) for a, b in itertools.combinations_with_replacement(cells, 2))


def _range_end(name: str, values: Values, end: RangeEnd) -> TableColumn:
    """The column of the first or the last values of ranges."""
    k = 0 if end == "from" else 1
    return TableColumn(
        f"{name}_{end}",
        kind=end,
        ends=lambda: number_ends(_ends(values, code)[k] for code in range(values.size)),
        ranged=name,
    )


def _ends(values: Values, code: int) -> tuple[Label, Label]:
    """What a range reads that begins, or ends, with this cell."""
    if isinstance(values, Bins) and code < len(values.edges) - 1:
        return values.edges[code], values.edges[code + 1]
    return values.label(code), values.label(code)


def _table(
    domain: Domain, subset: Sequence[str], groups: Mapping[int, _Groups], possible: BoundStatement | None
) -> TableQuery:
    """The table of one set of columns, given its groups by attribute."""
    held = tuple(groups.values())
    picks = tuple((i, k) for name in subset for i, each in enumerate(held) for k in each.picks(name))
    products: Sequence[Product] = [Product(domain, tuple((axis, each.predicates) for axis, each in groups.items()))]
    combine = None
    if possible is not None:
        products, combine = _over_possible(domain, groups, possible)
    return TableQuery(
        name="_".join(subset) or "total",
        label_columns=tuple(held[i].label_columns[k] for i, k in picks),
        workload=Workload(domain, tuple(products)),
        blocks=(RowBlock((None,) * len(picks), picks, tuple(each.labels for each in held)),),
        aggregates=() if combine is None else (Linear(combine),),
        overlapping=any(each.ranged for each in held),
    )


def _over_possible(
    domain: Domain, groups: Mapping[int, _Groups], possible: BoundStatement
) -> tuple[list[Product], sp.csr_array]:
    """The products that count possible cells only, and which of their queries are summed into each row.

    Each product of `possible` is over some cells of the attributes that have ranges. It becomes one over the ranges
    of these cells, and a row of the table has from each product the range that is left of its own, if any is.
    """
    (block,) = possible.blocks
    products: list[Product] = []
    sums: list[sp.csr_array] = []
    for part in block.parts:
        factors, chosen = dict(part.factors), sp.csr_array(np.ones((1, 1)))
        for (axis, each), kept in zip(groups.items(), part.counted, strict=True):
            if each.ranged:
                factors[domain.names[axis]] = _ranges_of(kept, domain.shape[axis])
            chosen = sp.csr_array(sp.kron(chosen, _chosen(each, np.array(kept)), format="csr"))
        products += Workload.product(domain, factors).products
        sums.append(chosen)
    return products, sp.csr_array(sp.hstack(sums))


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


def _chosen(groups: _Groups, kept: Array) -> sp.csr_array:
    """Which query of a product each row of a table has, on one attribute: the group itself, or what is left of it."""
    if not groups.ranged:
        entries = np.ones(len(kept)), (kept, np.arange(len(kept)))
        return sp.csr_array(entries, shape=(groups.labels.count, len(kept)))
    n, m = groups.columns[0].n, len(kept)
    low, high = np.triu_indices(n)
    first, last = np.searchsorted(kept, low), np.searchsorted(kept, high, side="right") - 1
    rows = np.flatnonzero(first <= last)
    first, last = first[rows], last[rows]
    queries = first * m - first * (first - 1) // 2 + last - first
    return sp.csr_array((np.ones(len(rows)), (rows, queries)), shape=(len(low), m * (m + 1) // 2))
