"""The rows of one grouping set: groups on each attribute, and the products that count them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from hdmm.domain import Domain
from hdmm.entries import Label
from hdmm.exceptions import WorkloadError
from hdmm.predicates import PredicateSet, Sets
from hdmm.sql.cells import MOST_LISTED, Cells, Run, predicates
from hdmm.sql.conditions import condition
from hdmm.sql.formula import MOST_BOXES, Box, Formula, On, Steps, axes, boxes, conjunction, settled
from hdmm.sql.groups import GroupFormulas, groups
from hdmm.sql.selection import SelectParts

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

    factors: dict[str | tuple[str, ...], PredicateSet]
    counted: tuple[tuple[int, ...], ...]

    @property
    def queries(self) -> int:
        """The number of queries of the product."""
        return math.prod(map(len, self.counted))


@final
@dataclass(frozen=True, slots=True)
class GroupedProduct:
    """Rows that are combinations of groups: the queries of a single part, or those listed, sums over the parts.

    A listed row that no part counts is 0: all its cells are impossible.

    The label of a column is the one in `fixed`; or `picks` holds (attribute, label), the position of the label among
    those of the row's group on that attribute.
    """

    fixed: Row
    picks: tuple[tuple[int, int] | None, ...]
    groups: tuple[tuple[Row, ...], ...]
    parts: tuple[Part, ...]
    listed: tuple[tuple[int, ...], ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.listed) if self.listed else self.parts[0].queries

    def labels(self) -> Iterator[Row]:
        """The labels of each row."""
        for row in self.listed or itertools.product(*self.parts[0].counted):
            held = [labels[i] for labels, i in zip(self.groups, row, strict=True)]
            yield tuple(
                label if pick is None else held[pick[0]][pick[1]]
                for label, pick in zip(self.fixed, self.picks, strict=True)
            )

    def sums(self) -> Iterator[int]:
        """The row to which each query belongs, in the order of the queries."""
        if not self.listed:
            yield from range(self.rows)
            return
        places = {row: i for i, row in enumerate(self.listed)}
        for part in self.parts:
            yield from map(places.__getitem__, itertools.product(*part.counted))


def blocks(domain: Domain, selection: SelectParts, possible: Formula = True) -> Iterator[GroupedProduct]:
    """The rows of a SELECT, one grouping set after the other; only cells that are possible are counted."""
    scope, node = selection.scope, selection.where
    with scope.pointing(selection.node if node is None else node):
        where = True if node is None else condition(scope, node)
    with scope.pointing(selection.node):
        keys = [groups(scope, key) for key in selection.keys]
    steps = Steps()
    with scope.pointing(selection.node if node is None else node):
        for chosen in selection.sets:
            yield from _blocks(domain, selection, where, {k: keys[k] for k in chosen}, steps, possible)


def _blocks(
    domain: Domain,
    selection: SelectParts,
    where: Formula,
    keys: dict[int, GroupFormulas],
    steps: Steps,
    possible: Formula,
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
        counted = conjunction([where, *(f for _, f in taken)])
        parts = _parts(domain, counted, grouped, steps, always=not keys)
        listed = _listed(parts)
        if parts and possible is not True:
            rows = listed or _listed(parts, always=True)
            parts = _parts(domain, conjunction([counted, possible]), grouped, steps, always=False)
            listed = () if len(parts) == 1 and parts[0].queries == len(rows) else rows
        if parts or listed:
            labels = {k: label for k, (label, _) in zip(others, taken, strict=True)}
            yield GroupedProduct(
                tuple(o.label if o.key is None else labels.get(o.key, ALL) for o in selection.outputs),
                tuple(None if o.key is None else picks.get(o.key) for o in selection.outputs),
                tuple(tuple(labels for labels, _ in held) for held in grouped.values()),
                tuple(parts),
                listed,
            )


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


def _parts(domain: Domain, f: Formula, grouped: _Grouped, steps: Steps, *, always: bool) -> list[Part]:
    """The products that count the cells of a formula, group by group; a total is counted even if it is always 0."""
    found = [
        _part(domain, box, grouped) for box in boxes(settled(f, grouped, domain.shape), first=grouped, steps=steps)
    ]
    if not found and always:
        n = domain.shape[0]
        return [Part({domain.names[0]: predicates([Cells(n, ())], n)}, ())]
    return found


def _part(domain: Domain, box: Box, grouped: _Grouped) -> Part:
    factors: dict[str | tuple[str, ...], PredicateSet] = {}
    counted: list[tuple[int, ...]] = []
    for axis, held in grouped.items():
        kept = [(i, cells & box[axis] if axis in box else cells) for i, (_, cells) in enumerate(held)]
        kept = [(i, cells) for i, cells in kept if cells]
        factors[domain.names[axis]] = predicates([cells for _, cells in kept], domain.shape[axis])
        counted.append(tuple(i for i, _ in kept))
    for place in box.keys() - grouped.keys():
        if isinstance(place, tuple):
            factors[tuple(domain.names[i] for i in place)] = Sets([box[place]])
        else:
            factors[domain.names[place]] = predicates([box[place]], domain.shape[place])
    return Part(factors, tuple(counted))


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
