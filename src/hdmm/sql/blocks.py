"""The rows of one grouping set: groups on each attribute, and the products that count them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np

from hdmm.domain import Domain
from hdmm.entries import Label
from hdmm.exceptions import WorkloadError
from hdmm.matrix import Array
from hdmm.predicates import PredicateSet
from hdmm.sql.amounts import Counted, Ordering
from hdmm.sql.cells import MOST_LISTED, Cells, predicates
from hdmm.sql.conditions import condition
from hdmm.sql.formula import MOST_BOXES, Box, Formula, On, Steps, axes, boxes, conjunction
from hdmm.sql.groups import GroupFormulas, groups
from hdmm.sql.selection import SelectParts
from hdmm.values import Amount

ALL = "(all)"
"""The label of a column over which a row of GROUPING SETS, CUBE or ROLLUP is a total."""

Row: TypeAlias = tuple[Label | None, ...]
_KeyPlaces: TypeAlias = tuple[int, ...]
_Grouped: TypeAlias = dict[int, list[tuple[Row, Cells]]]
"""The labels and cells of the groups of each grouped attribute."""


@final
@dataclass(frozen=True, slots=True)
class Part:
    """One product: a predicate set per attribute, and the groups that its queries count on each grouped attribute."""

    factors: dict[str, PredicateSet]
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
    amount: Amount = 1
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
    """Rows that are combinations of groups: the queries of a single part, or sums over several parts.

    The label of a column is the one in `fixed`; or `picks` holds (attribute, label), the position of the label among
    those of the row's group on that attribute.
    """

    fixed: Row
    picks: tuple[tuple[int, int] | None, ...]
    groups: tuple[tuple[Row, ...], ...]
    parts: tuple[Part, ...]
    listed: tuple[tuple[int, ...], ...]
    summands: tuple[tuple[Summand, ...], ...]  # of each thing that is counted, summed or ranked
    select: int  # which of the SELECTs of a UNION ALL has these rows

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.parts[0].queries if len(self.parts) == 1 else len(self.listed)

    @property
    def places(self) -> Iterable[tuple[int, ...]]:
        """The group on each attribute, by row."""
        return itertools.product(*self.parts[0].counted) if len(self.parts) == 1 else self.listed

    def labels(self) -> Iterator[Row]:
        """The labels of each row."""
        for row in self.places:
            held = [labels[i] for labels, i in zip(self.groups, row, strict=True)]
            yield tuple(
                label if pick is None else held[pick[0]][pick[1]]
                for label, pick in zip(self.fixed, self.picks, strict=True)
            )

    def entries(self, k: int) -> tuple[Array, Array, Array]:
        """(row, query, amount) of the k-th thing that is counted, with its queries numbered from 0.

        Where it is ranked, m prefix counts per row are the rows m·row, m·row + 1, …
        """
        rows, queries, amounts, start = list[Array](), list[Array](), list[Array](), 0
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
        if len(self.parts) == 1 and part.counted == self.parts[0].counted:
            return np.arange(self.rows)
        places = {row: i for i, row in enumerate(self.places)}
        return np.array([places[row] for row in itertools.product(*part.counted)], np.int64)


def blocks(domain: Domain, selection: SelectParts, number: int, counted: Sequence[Counted]) -> Iterator[GroupedProduct]:
    """The rows of a SELECT, one grouping set after the other; `counted` is what is added up or ranked in each."""
    scope, node = selection.scope, selection.where
    with scope.pointing(selection.node if node is None else node):
        where = True if node is None else condition(scope, node)
    with scope.pointing(selection.node):
        keys = [groups(scope, key) for key in selection.keys]
    steps = Steps()
    with scope.pointing(selection.node if node is None else node):
        for chosen in selection.sets:
            for found in _blocks(domain, selection, where, {k: keys[k] for k in chosen}, counted, steps):
                yield replace(found, select=number)


def parts_of(found: Sequence[GroupedProduct]) -> list[Part]:
    """The products of all that is counted, in the order of the queries."""
    return [summand.part for block in found for each in block.summands for summand in each]


def _blocks(
    domain: Domain,
    selection: SelectParts,
    where: Formula,
    keys: dict[int, GroupFormulas],
    counted: Sequence[Counted],
    steps: Steps,
) -> Iterator[GroupedProduct]:
    """The rows of one grouping set.

    A key on one attribute becomes predicates on it. A key on several attributes, such as a CASE that looks at two, is
    split into its groups instead, and each group becomes a further condition.
    """
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
    for taken in itertools.product(*(keys[k].items() for k in others)):
        holds = conjunction([where, *(f for _, f in taken)])
        split = list(boxes(holds, first=grouped, steps=steps))
        parts = [_part(domain, box, grouped) for box in split] or ([] if keys else [_never(domain)])
        if parts:
            labels = {k: label for k, (label, _) in zip(others, taken, strict=True)}
            yield GroupedProduct(
                tuple(o.label if o.key is None else labels.get(o.key, ALL) for o in selection.outputs),
                tuple(None if o.key is None else picks.get(o.key) for o in selection.outputs),
                tuple(tuple(labels for labels, _ in held) for held in grouped.values()),
                tuple(parts),
                _listed(parts),
                tuple(tuple(_summands(domain, each, holds, split, grouped, steps)) for each in counted),
                0,
            )


def _crossed(keys: Sequence[GroupFormulas], n: int) -> list[tuple[Row, Cells]]:
    """The groups by several keys on one attribute: every combination that holds at least one cell."""
    found: list[tuple[Row, Cells]] = [((), Cells.span(n, 0, n))]
    for formulas in keys:
        sets = [((label,), f.cells) for label, f in formulas.items() if isinstance(f, On)]
        if len(found) * len(sets) > MOST_LISTED:
            raise WorkloadError(f"One attribute has more than {MOST_LISTED:,} groups. Use fewer or coarser groups.")
        found = [(row + label, both) for row, a in found for label, b in sets if (both := a & b)]
    return found


def _summands(
    domain: Domain, counted: Counted, holds: Formula, split: Sequence[Box], grouped: _Grouped, steps: Steps
) -> Iterator[Summand]:
    """The products that add up to rows: one per box if one attribute decides the amounts, else one per amount too."""
    if isinstance(counted, Ordering):
        before = sum(axis <= counted.axis for axis in grouped)
        for box in split:
            yield Summand(_part(domain, box, grouped, counted), 1, len(counted.cells), before)
    elif counted.axis is not None:
        yield from (Summand(_part(domain, box, grouped, counted)) for box in split)
    else:
        for amount, f in counted.terms:
            inside = split if f is True else boxes(conjunction([holds, f]), first=grouped, steps=steps)
            yield from (Summand(_part(domain, box, grouped), amount) for box in inside)
    if not split and not grouped:
        yield Summand(_never(domain))


def _never(domain: Domain) -> Part:
    """A total that is always 0 is counted all the same."""
    n = domain.shape[0]
    return Part({domain.names[0]: predicates([Cells(n, ())], n)}, ())


def _part(domain: Domain, box: Box, grouped: _Grouped, counted: Counted | None = None) -> Part:
    """The product of a box, group by group; on the attribute that decides what is summed or ranked, with its amounts.

    A row with an amount of 0 is kept, so that sums have the rows that counts have.
    """
    used: dict[int, list[Cells]] = {}
    groups: list[tuple[int, ...]] = []
    for axis, held in grouped.items():
        kept = [(i, cells & box[axis] if axis in box else cells) for i, (_, cells) in enumerate(held)]
        kept = [(i, cells) for i, cells in kept if cells]
        used[axis] = [cells for _, cells in kept]
        groups.append(tuple(i for i, _ in kept))
    for axis in box.keys() - grouped.keys():
        used[axis] = [box[axis]]
    on = None if counted is None else counted.axis
    if on is not None:
        n = domain.shape[on]
        used.setdefault(on, [Cells.span(n, 0, n)])
    factors: dict[str, PredicateSet] = {}
    for axis, cells in used.items():
        n = domain.shape[axis]
        deciding = counted if axis == on else None
        factors[domain.names[axis]] = predicates(cells, n) if deciding is None else deciding.on_cells(cells, n)
    return Part(factors, tuple(groups))


def _listed(parts: Sequence[Part]) -> tuple[tuple[int, ...], ...]:
    """The combinations of groups that some part counts, in order; not listed if there is only one part."""
    if len(parts) == 1:
        return ()
    if sum(part.queries for part in parts) > MOST_LISTED:
        raise WorkloadError(
            f"The rows are sums of more than {MOST_LISTED:,} queries. Merge the attributes that OR joins with "
            "Domain.merge."
        )
    return tuple(sorted({row for part in parts for row in itertools.product(*part.counted)}))
