"""TableQuery: a table to be counted. Its queries, how its rows follow from them, and the labels of each row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, final

import numpy as np
import scipy.sparse as sp

from hdmm.base.frozen import assign
from hdmm.describe.aggregates import Aggregate, Linear, combined
from hdmm.describe.entries import ALL, Label
from hdmm.describe.numeric import Bins
from hdmm.describe.table_column import LabelEnds, RangeEnd, TableColumn, cell_ends, number_ends
from hdmm.describe.workload import Workload
from hdmm.matrix import Array

Row: TypeAlias = tuple[Label | None, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class GroupLabels:
    """The labels of the groups of one attribute, a tuple of one or more per group; they are listed when needed."""

    count: int
    read: Callable[[], Iterable[Row]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Rows that are combinations of groups of several attributes: all of them in order, or those that are listed.

    The label of a column is the one in `fixed`; or `picks` holds (attribute, label), the position of the label among
    those of the row's group of that attribute.
    """

    fixed: Row
    picks: tuple[tuple[int, int] | None, ...]
    groups: tuple[GroupLabels, ...]
    listed: tuple[tuple[int, ...], ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.listed) or math.prod(each.count for each in self.groups)

    @property
    def order(self) -> Array:
        """The rows such that the first label column varies slowest."""
        axes = list(dict.fromkeys(pick[0] for pick in self.picks if pick is not None))
        axes += [k for k in range(len(self.groups)) if k not in axes]
        if axes == sorted(axes):
            return np.arange(self.rows)
        if self.listed:
            return np.lexsort(np.array(self.listed).T[axes[::-1]])
        return np.arange(self.rows).reshape([each.count for each in self.groups]).transpose(axes).ravel()

    def labels(self) -> Iterator[Row]:
        """The labels of each row."""
        names = [list(each.read()) for each in self.groups]
        chosen = ([each[i] for each, i in zip(names, row, strict=True)] for row in self.listed)
        for held in chosen if self.listed else itertools.product(*names):
            yield tuple(
                label if pick is None else held[pick[0]][pick[1]]
                for label, pick in zip(self.fixed, self.picks, strict=True)
            )


@final
@dataclass(frozen=True, slots=True, eq=False)
class AtEnds:
    """Sums and means of values of which only the bin is known, with every value at an end of its bin.

    `measures` are their places among the measures of the table. The rows that `aggregates` make of the queries are
    all of them at the lower ends of bins, then all at the upper ends.
    """

    measures: tuple[int, ...]
    workload: Workload | None = None  # None where an end is too large to be added up, and for percentages
    aggregates: tuple[Aggregate, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class TableQuery:
    """A table: its columns, the workload that counts it, how rows follow from queries, and the labels of its rows.

    `workload` has weight 1; `weight` says how much the table matters. Row i is the sum over queries j of combine[i, j];
    each query is a row, in order, if `combine` and `aggregates` are empty. `aggregates` says how rows follow if some
    are means, percentages or quantiles. The rows of several `measures` follow one another, and the last column,
    "measure", names them. `text` is the SQL, if there is any.

    `margin` is the margin of error that every count may have, and `expected` a typical count of the table. `group` is
    the name of the [[table]] that asks for it, alone or among others; a plan takes these together. `headings` has what
    readers see above columns, by their names, and `note` what they see under the table. `ranges` has the columns of
    labels that are ends of ranges: which end, and of which column.

    >>> from hdmm.sql import parse
    >>> from hdmm import Domain
    >>> domain = Domain({"sex": ["M", "F"], "age": 115})
    >>> (table,) = parse(domain, "SELECT sex, COUNT(*) AS n FROM t WHERE age >= 18 GROUP BY ROLLUP(sex)")
    >>> table.name, table.columns, table.count, list(table.labels())
    ('table_1', ('sex',), 'n', [('M',), ('F',), ('(all)',)])
    >>> (table,) = parse(domain, "SELECT COUNT(*) FROM t WHERE sex = 'F' OR age < 5")
    >>> table.rows, table.workload.queries, table.combine.toarray().tolist()
    (1, 2, [[1, 1]])
    """

    name: str
    columns: tuple[str, ...]
    workload: Workload
    blocks: tuple[RowBlock, ...] = field(repr=False, compare=False)
    aggregates: tuple[Aggregate, ...] = field(default=(), repr=False, compare=False)
    combine: sp.csr_array | None = field(init=False, repr=False, compare=False)
    measures: tuple[str, ...] = ("count",)
    counted: bool = True  # whether every row is a number of records, or a percentage of them
    overlapping: bool = False  # whether a record may be in two rows, totals aside
    percent: bool = False
    at_ends: AtEnds | None = field(default=None, repr=False, compare=False)
    text: str | None = None
    weight: float = 1.0
    group: str = ""
    title: str = ""
    margin: float | None = None
    expected: float | None = None
    headings: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    note: str | None = None
    ranges: Mapping[str, tuple[RangeEnd, str]] = field(default_factory=dict[str, "tuple[RangeEnd, str]"], repr=False)

    def __post_init__(self) -> None:
        assign(self, combine=combined(self.aggregates), group=self.group or self.name, title=self.title or self.name)

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        return len(self.measures) * sum(block.rows for block in self.blocks)

    @property
    def count(self) -> str:
        """The header of the first column of numbers."""
        return self.measures[0]

    @property
    def linear(self) -> bool:
        """Whether every row is a count or a sum, so that its margin of error is known before any data is read."""
        return all(isinstance(each, Linear) for each in self.aggregates)

    @property
    def comparable(self) -> bool:
        """Whether every row is a count, or a sum of the same numbers, so that errors of rows may be averaged."""
        return self.linear and len(self.measures) == 1

    @property
    def binned(self) -> bool:
        """Whether some row is a sum or mean of values of which only the bin is known."""
        return self.at_ends is not None

    @property
    def impossible(self) -> Array:
        """Whether a count or sum has impossible cells only, so that it is published as 0, without noise. O(rows)."""
        return np.zeros(self.rows, dtype=bool) if self.combine is None else np.diff(self.combine.indptr) == 0

    @property
    def target(self) -> float | None:
        """The margin that each query may have: of rows that are sums of k independent ones, the margin over √k."""
        if self.margin is None or self.combine is None:
            return self.margin
        squares = np.asarray((self.combine * self.combine).sum(axis=1))
        return self.margin / math.sqrt(max(squares.max(initial=1), 1))

    @property
    def order(self) -> Array | None:
        """The rows such that the first column varies slowest, by grouping set; None if they are in this order."""
        starts = itertools.accumulate((block.rows for block in self.blocks), initial=0)
        once = np.concatenate([start + block.order for start, block in zip(starts, self.blocks, strict=False)])
        if (np.diff(once) > 0).all():
            return None
        return (np.arange(len(self.measures))[:, None] * len(once) + once).ravel()

    @property
    def label_columns(self) -> tuple[TableColumn, ...]:
        """The columns of labels: which hold bins or ends of ranges, and the numbers that labels stand for. O(rows)."""
        every = [part.values for attribute in self.workload.domain.attributes for part in attribute.parts]
        bins = {name: ends for values in every if isinstance(values, Bins) for name, ends in cell_ends(values).items()}
        labels: list[set[Label | None]] = [set() for _ in self.columns]
        for row in self.labels():
            for found, label in zip(labels, row, strict=True):
                found.add(label)
        return tuple(map(self._label_column, self.columns, labels, itertools.repeat(bins)))

    def _label_column(self, name: str, labels: Set[Label | None], bins: LabelEnds) -> TableColumn:
        inside = {label: bins[label] for label in labels if isinstance(label, str) and label in bins}
        others = labels - inside.keys() - {None, ALL, "other"}
        kind, of = self.ranges.get(name, ("bins" if inside and not others else "labels", ""))
        ends = partial(dict, {**number_ends(labels), **inside})
        return TableColumn(name, self.heading(name), kind, ends, self.heading(of))

    def heading(self, column: str) -> str:
        """What readers see above a column, or for what it has the ends of ranges: its heading, or its name."""
        if column in self.ranges and column not in self.headings:
            end, of = self.ranges[column]
            return f"{self.headings[of]} {end}" if of in self.headings else column
        return self.headings.get(column, column)

    def labels(self) -> Iterator[Row]:
        """The labels of each row, in the order of `columns`; rows are in the order of the domain.

        The label is "(all)" for a column over which the row is a total, "other" for the group of values that are not
        declared, and None for a CASE without ELSE if no branch holds.
        """
        if len(self.measures) == 1:
            return itertools.chain.from_iterable(block.labels() for block in self.blocks)
        pairs = itertools.product(self.measures, self.blocks)
        return ((*row, measure) for measure, block in pairs for row in block.labels())
