"""The rows of one grouping set: groups on each attribute, and the products that count them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.domain import Domain
from hdmm.describe.entries import ALL
from hdmm.describe.predicates import PredicateSet, Sets
from hdmm.describe.table_query import GroupLabels, Row, RowBlock
from hdmm.describe.values import Real
from hdmm.matrix import Array
from hdmm.sql.cells import MOST_LISTED, Cells, Run, predicates
from hdmm.sql.conditions import SqlDomain, condition
from hdmm.sql.formula import MOST_BOXES, AxisOrPair, Box, Formula, On, Steps, axes, boxes, conjunction, settled
from hdmm.sql.groups import GroupFormulas, groups
from hdmm.sql.measures import Counted, Ordering
from hdmm.sql.selection import SelectParts

_Grouped: TypeAlias = dict[int, list[tuple[Row, Cells]]]
"""The labels and cells of the groups of each grouped attribute."""


@final
@dataclass(frozen=True, slots=True)
class Part:
    """One product: a predicate set per attribute, and the groups that its queries count on each grouped attribute."""

    factors: dict[str | tuple[str, ...], PredicateSet]
    counted: tuple[tuple[int, ...], ...]

    @property
    def queries(self) -> int:
        """The number of queries of the product."""
        return math.prod(map(len, self.counted))


@final
@dataclass(frozen=True, slots=True)
class Summand:
    """A product whose queries are added to rows, times an amount; or the `prefixes` of each row, ranked on an axis.

    `before` says how many grouped attributes come before that axis, itself included.
    """

    part: Part
    amount: Real = 1
    prefixes: int = 1
    before: int = 0

    @property
    def queries(self) -> int:
        """The number of queries of the product."""
        return self.part.queries * self.prefixes

    def order(self) -> Array:
        """The queries by row and prefix; the first attribute varies slowest, so prefixes may stand in the middle."""
        sizes = [len(groups) for groups in self.part.counted]
        shape = (*sizes[: self.before], self.prefixes, *sizes[self.before :])
        queries = np.arange(math.prod(shape)).reshape(shape)
        return np.moveaxis(queries, self.before, -1).reshape(-1, self.prefixes)


@final
@dataclass(frozen=True, slots=True)
class GroupedProduct:
    """Rows that are combinations of groups: the queries of a single part, or those listed, sums over the parts.

    A listed row that no part counts is 0: all its cells are impossible.
    """

    labels: RowBlock
    parts: tuple[Part, ...]
    listed: tuple[tuple[int, ...], ...]
    summands: tuple[tuple[Summand, ...], ...]  # of each thing that is counted, summed or ranked
    select: int  # which of the SELECTs of a UNION ALL has these rows

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.labels.rows

    @property
    def plain(self) -> bool:
        """Whether each query is a row, in order."""
        return not self.listed and self.summands == (tuple(map(Summand, self.parts)),)

    def queries(self, things: slice = slice(None)) -> int:
        """The number of queries of some of the things that are counted."""
        return sum(summand.queries for each in self.summands[things] for summand in each)

    def entries(self, k: int) -> tuple[Array, Array, Array]:
        """(row, query, amount) of the k-th thing that is counted; queries are numbered thing after thing.

        Where it is ranked, m prefix counts per row are the rows m·row, m·row + 1, …
        """
        rows, queries, amounts, start = list[Array](), list[Array](), list[Array](), self.queries(slice(k))
        for summand in self.summands[k]:
            of = self._rows_of(summand.part)
            m = summand.prefixes
            rows.append((of[:, None] * m + np.arange(m)).ravel())
            queries.append(start + summand.order().ravel())
            amounts.append(np.full(len(rows[-1]), summand.amount))
            start += len(rows[-1])
        none = np.empty(0, np.int64)  # so that there is something to join
        return np.concatenate([none, *rows]), np.concatenate([none, *queries]), np.concatenate([none, *amounts])

    def _rows_of(self, part: Part) -> Array:
        """The row of each combination of groups in a part."""
        if not self.listed and part.counted == self.parts[0].counted:
            return np.arange(self.rows)
        places = {row: i for i, row in enumerate(self.listed or itertools.product(*self.parts[0].counted))}
        return np.array([places[row] for row in itertools.product(*part.counted)], np.int64)


def products_of(
    over: SqlDomain, select: SelectParts, number: int, counted: Sequence[Counted]
) -> Iterator[GroupedProduct]:
    """The rows of a SELECT, one grouping set after the other; `counted` is what is added up or ranked in each.

    Only cells that are possible are counted.
    """
    scope, node = select.scope, select.where
    with scope.pointing(select.node if node is None else node):
        where = True if node is None else condition(scope, node)
    with scope.pointing(select.node):
        keys = [groups(scope, key) for key in select.keys]
    steps = Steps()
    with scope.pointing(select.node if node is None else node):
        for chosen in select.sets:
            yield from _grouping_set(over, select, number, where, {k: keys[k] for k in chosen}, counted, steps)


def parts_of(found: Sequence[GroupedProduct]) -> list[Part]:
    """The products of all that is counted, in the order of the queries."""
    return [summand.part for block in found for each in block.summands for summand in each]


def _grouping_set(
    over: SqlDomain,
    select: SelectParts,
    number: int,
    where: Formula,
    keys: dict[int, GroupFormulas],
    counted: Sequence[Counted],
    steps: Steps,
) -> Iterator[GroupedProduct]:
    """The rows of one grouping set.

    A key on one attribute becomes predicates on it. A key on several attributes, such as a CASE that looks at two, is
    split into its groups instead, and each group becomes a further condition.
    """
    domain = over.domain
    used = {k: set[int]().union(*map(axes, formulas.values())) for k, formulas in keys.items()}
    single = {k: next(iter(found)) for k, found in used.items() if len(found) == 1}
    grouped = {
        axis: _crossed([keys[k] for k in single if single[k] == axis], domain.shape[axis])
        for axis in sorted(set(single.values()))
    }
    places = {axis: i for i, axis in enumerate(grouped)}
    among = {k: [other for other in single if single[other] == single[k]].index(k) for k in single}
    picks = {k: (places[axis], among[k]) for k, axis in single.items()}
    others = [k for k in keys if k not in single]
    if math.prod(len(keys[k]) for k in others) > MOST_BOXES:
        raise WorkloadError(
            f"There are more than {MOST_BOXES:,} groups on several attributes at once. Use fewer groups."
        )
    single_axes = {*grouped, *(each.axis for each in counted if each.axis is not None)}

    def split(f: Formula) -> list[Box]:
        return list(boxes(settled(f, single_axes, domain.shape), first=grouped, steps=steps))

    for taken in itertools.product(*(keys[k].items() for k in others)):
        holds = conjunction([where, *(f for _, f in taken)])
        inside = split(holds)
        parts = [_part(domain, box, grouped) for box in inside] or ([] if keys else [_never(domain)])
        listed = _listed(parts)
        if parts and over.possible is not True:
            rows = listed or _listed(parts, always=True)
            holds = conjunction([holds, over.possible])
            inside = split(holds)
            parts = [_part(domain, box, grouped) for box in inside]
            listed = () if len(parts) == 1 and parts[0].queries == len(rows) else rows
        if parts or listed:
            zero = () if inside else tuple(map(Summand, parts))
            labels = {k: label for k, (label, _) in zip(others, taken, strict=True)}
            kept = [range(len(held)) for held in grouped.values()] if listed else parts[0].counted
            block = RowBlock(
                tuple(o.label if o.key is None else labels.get(o.key, ALL) for o in select.outputs),
                tuple(None if o.key is None else picks.get(o.key) for o in select.outputs),
                tuple(_labels(held, own) for held, own in zip(grouped.values(), kept, strict=True)),
                listed,
            )
            summands = ((*_summands(domain, each, holds, inside, split, grouped), *zero) for each in counted)
            yield GroupedProduct(block, tuple(parts), listed, tuple(summands), number)


def _labels(held: Sequence[tuple[Row, Cells]], kept: Sequence[int]) -> GroupLabels:
    """The labels of the groups of an attribute that are kept."""
    return GroupLabels(len(kept), lambda: [held[i][0] for i in kept])


def _crossed(keys: Sequence[GroupFormulas], n: int) -> list[tuple[Row, Cells]]:
    """The groups by several keys on one attribute: every combination that holds at least one cell. O(runs log runs).

    Every key puts every cell in one group, so between two neighbouring starts of runs all keys stay the same. Levels
    of an attribute thus cost as many steps as they have runs, not the product of their sizes.
    """
    held = [[(label, f.cells) for label, f in key.items() if isinstance(f, On)] for key in keys]
    if len(held) == 1:
        return [((label,), cells) for label, cells in held[0]]
    firsts = [np.array([lo for _, c in groups for lo, _ in c.runs]) for groups in held]
    owners = [np.repeat(np.arange(len(groups)), [len(c.runs) for _, c in groups]) for groups in held]
    starts = np.unique(np.concatenate(firsts))
    if len(starts) > MOST_LISTED:
        raise WorkloadError(f"One attribute has more than {MOST_LISTED:,} groups. Use fewer or coarser groups.")
    codes = np.empty((len(starts), len(held)), np.int64)
    for k, (first, owner) in enumerate(zip(firsts, owners, strict=True)):
        order = np.argsort(first)
        codes[:, k] = owner[order][np.searchsorted(first[order], starts, side="right") - 1]
    found, members = np.unique(codes, axis=0, return_inverse=True)
    runs: list[list[Run]] = [[] for _ in found]
    for run, group in zip(zip(starts.tolist(), [*(starts[1:] - 1).tolist(), n - 1], strict=True), members, strict=True):
        runs[group].append(run)
    return [
        (tuple(held[k][code][0] for k, code in enumerate(row)), Cells.of(n, own))
        for row, own in zip(found.tolist(), runs, strict=True)
    ]


def _summands(
    domain: Domain,
    counted: Counted,
    holds: Formula,
    inside: Sequence[Box],
    split: Callable[[Formula], Sequence[Box]],
    grouped: _Grouped,
) -> Iterator[Summand]:
    """The products that add up to rows: one per box if one attribute decides the amounts, else one per amount too."""
    if isinstance(counted, Ordering):
        before = sum(axis <= counted.axis for axis in grouped)
        for box in inside:
            yield Summand(_part(domain, box, grouped, counted), 1, len(counted.cells), before)
    elif counted.axis is not None:
        yield from (Summand(_part(domain, box, grouped, counted)) for box in inside)
    else:
        for amount, f in counted.terms:
            added = inside if f is True else split(conjunction([holds, f]))
            yield from (Summand(_part(domain, box, grouped), amount) for box in added)


def _never(domain: Domain) -> Part:
    """A total that is always 0 is counted all the same."""
    n = domain.shape[0]
    return Part({domain.names[0]: predicates([Cells(n, ())], n)}, ())


def _part(domain: Domain, box: Box, grouped: _Grouped, counted: Counted | None = None) -> Part:
    """The product of a box, group by group; on the attribute that decides what is summed or ranked, with its amounts.

    A row with an amount of 0 is kept, so that sums have the rows that counts have.
    """
    used: dict[AxisOrPair, list[Cells]] = {}
    groups: list[tuple[int, ...]] = []
    for axis, held in grouped.items():
        kept = [(i, cells & box[axis] if axis in box else cells) for i, (_, cells) in enumerate(held)]
        kept = [(i, cells) for i, cells in kept if cells]
        used[axis] = [cells for _, cells in kept]
        groups.append(tuple(i for i, _ in kept))
    for place in box.keys() - grouped.keys():
        used[place] = [box[place]]
    on = None if counted is None else counted.axis
    if on is not None:
        n = domain.shape[on]
        used.setdefault(on, [Cells.span(n, 0, n)])
    factors: dict[str | tuple[str, ...], PredicateSet] = {}
    for place, cells in used.items():
        if isinstance(place, tuple):
            factors[tuple(domain.names[i] for i in place)] = Sets(cells)
            continue
        n = domain.shape[place]
        deciding = counted if place == on else None
        factors[domain.names[place]] = predicates(cells, n) if deciding is None else deciding.on_cells(cells, n)
    return Part(factors, tuple(groups))


def _listed(parts: Sequence[Part], *, always: bool = False) -> tuple[tuple[int, ...], ...]:
    """The combinations of groups that some part counts, in order; not listed if there is only one part."""
    if len(parts) == 1 and not always:
        return ()
    if sum(part.queries for part in parts) > MOST_LISTED:
        raise WorkloadError(
            f"The rows are sums of more than {MOST_LISTED:,} queries. Merge the attributes that OR joins with "
            "Domain.merge."
        )
    return tuple(sorted({row for part in parts for row in itertools.product(*part.counted)}))
