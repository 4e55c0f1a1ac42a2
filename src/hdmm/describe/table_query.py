"""TableQuery: a table to be counted. Its queries, how its rows follow from them, and the labels of each row.

A row is a linear combination of queries (a count, a sum), a quotient of two (a mean, a percentage), or a quantile,
which is read from prefix counts. Such an aggregate is a logical value: `hdmm.answers.evaluate` computes its numbers
from answers.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from hdmm.base.exceptions import WorkloadError
from hdmm.base.frozen import assign
from hdmm.base.hints import brief
from hdmm.describe.entries import Label
from hdmm.describe.table_column import TableColumn
from hdmm.describe.workload import Workload
from hdmm.matrix import Array

Row: TypeAlias = tuple[Label | None, ...]

NO_MARGIN = (
    "The margins of means, percentages and quantiles depend on the data. Give the table one of them alone, "
    "`expected`, the number of rows of a typical group, and a margin in their own unit, such as margin = 250. "
    "Or leave out the margin, and give the table a weight."
)
"""What is wrong with a margin of a mean, percentage or quantile."""

_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Row i is Σ combine[i, j]·query j."""

    combine: sp.csr_array


@final
@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """Row i is factor · Σ numerator[i, j]·query j / Σ denominator[i, j]·query j."""

    numerator: sp.csr_array
    denominator: sp.csr_array
    factor: float = 1.0


@final
@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """The quantiles q of n ordered cells in each of several groups: those of the first q, then of the next.

    Row g·n + k of `prefixes` counts the rows of group g up to cell k. Cell k holds values from low[k] to high[k].
    """

    prefixes: sp.csr_array
    q: tuple[float, ...]
    low: Array
    high: Array


Aggregate: TypeAlias = Linear | Quotient | Quantiles


def size(matrix: sp.csr_array) -> tuple[int, int]:
    """Rows and queries."""
    return cast(tuple[int, int], matrix.shape)


def combined(aggregates: Sequence[Aggregate]) -> sp.csr_array | None:
    """The coefficients of all rows if every row is linear; None if not, or if each query is a row, in order."""
    linear = [each.combine for each in aggregates if isinstance(each, Linear)]
    if not linear or len(linear) < len(aggregates):
        return None
    found = linear[0] if len(linear) == 1 else sp.csr_array(sp.vstack(linear, format="csr"))
    rows, queries = size(found)
    if not rows == queries == found.nnz:
        return found
    places = np.arange(rows + 1)
    same = np.array_equal(found.indices, places[:-1]) and np.array_equal(found.indptr, places)
    return None if same and (found.data == 1).all() else found


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
    """Sums and means of values that are known by their bins only, with every value at an end of its bin.

    `measures` are their places among the measures of the table. The rows that `aggregates` make of the queries are
    all of them at the lower ends of bins, then all at the upper ends.
    """

    measures: tuple[int, ...]
    workload: Workload | None = None  # None where an end is too large to be added up, and for percentages
    aggregates: tuple[Aggregate, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class TableQuery:
    """A table: its columns of labels, the workload that counts it, and how its rows follow from queries.

    `workload` has weight 1; `weight` says how much the table matters. Row i is the sum over queries j of combine[i, j];
    each query is a row, in order, if `combine` and `aggregates` are empty. `aggregates` says how rows follow if some
    are means, percentages or quantiles. The rows of several `measures` follow one another, and the last column,
    "measure", names them. `text` is the SQL, if there is any.

    `margin` is the margin of error that every row may have, and `expected` a typical count of the table. If each row
    has a count of its own in `expected_rows`, `relative` is the part of it that the margin may be. `group` is the name
    of the [[table]] that asks for it, alone or among others; a plan takes these together. `note` is what readers see
    under the table.

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
    label_columns: tuple[TableColumn, ...]
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
    expected_rows: Array | None = field(default=None, repr=False, compare=False)
    relative: float | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        assign(self, combine=combined(self.aggregates), group=self.group or self.name, title=self.title or self.name)

    @classmethod
    def of_rows(cls, name: str, workload: Workload) -> TableQuery:
        """A table whose rows are the queries of a workload, without labels."""
        unlabelled = GroupLabels(workload.queries, lambda: itertools.repeat((), workload.queries))
        return cls(name, (), workload, (RowBlock((), (), (unlabelled,)),))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of labels."""
        return tuple(column.name for column in self.label_columns)

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
        """Whether some row is a sum or mean of values that are known by their bins only."""
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
    def aimable(self) -> bool:
        """Whether the table may have a margin: of counts and sums, or of one measure in groups of an expected size."""
        return self.linear or (self.expected is not None and len(self.aggregates) == 1)

    def expecting(self, counts: ArrayLike) -> TableQuery:
        """The same table with what is expected of it: one typical count, or a count of each row."""
        try:
            found = np.asarray(counts, dtype=np.float64)
        except (TypeError, ValueError):
            found = np.array(math.nan)
        if found.shape not in ((), (self.rows,)) or not ((found > 0) & (found < math.inf)).all():
            raise WorkloadError(
                f"What is expected, {brief(counts)}, is neither a count above 0 nor a list of {self.rows:,} of them, "
                "one per row. Give a typical count, such as 20_000."
            )
        return replace(self, expected=float(np.median(found)), expected_rows=found if found.ndim else None)

    def aimed(self, margin: float | str | None) -> TableQuery:
        """The same table with this margin of error for every row: in its unit, or as a part of what is expected."""
        if margin is None:
            return replace(self, margin=None, relative=None)
        if not self.aimable or (isinstance(margin, str) and not self.linear):
            raise WorkloadError(NO_MARGIN)
        least = self.expected if self.expected_rows is None else float(self.expected_rows.min())
        stated = stated_margin(margin, least)
        by_row = isinstance(margin, str) and self.expected_rows is not None and least is not None
        return replace(self, margin=stated, relative=stated / least if by_row and least else None)

    @property
    def order(self) -> Array | None:
        """The rows such that the first column varies slowest, by grouping set; None if they are in this order."""
        starts = itertools.accumulate((block.rows for block in self.blocks), initial=0)
        once = np.concatenate([start + block.order for start, block in zip(starts, self.blocks, strict=False)])
        if (np.diff(once) > 0).all():
            return None
        return (np.arange(len(self.measures))[:, None] * len(once) + once).ravel()

    def labels(self) -> Iterator[Row]:
        """The labels of each row, in the order of `columns`; rows are in the order of the domain.

        The label is "(all)" for a column over which the row is a total, "other" for the group of values that are not
        declared, and None for a CASE without ELSE if no branch holds.
        """
        if len(self.measures) == 1:
            return itertools.chain.from_iterable(block.labels() for block in self.blocks)
        pairs = itertools.product(self.measures, self.blocks)
        return ((*row, measure) for measure, block in pairs for row in block.labels())


def stated_margin(given: float | str, expected: float | None) -> float:
    """A margin of error in rows: as it stands, or, if it is text such as "2 %", as a part of a typical count.

    >>> stated_margin("2 %", 20_000), stated_margin(50, None)
    (400.0, 50.0)
    """
    if not isinstance(given, str):
        return float(given)
    percent = _PERCENT.fullmatch(given)
    if percent is None or not 0 < float(percent[1]) < math.inf:
        raise WorkloadError(
            f'The margin {brief(given)} is neither a number nor a percentage above 0. Give 50, or "2 %".'
        )
    if expected is None:
        raise WorkloadError(
            f"A margin of {given.strip()} is a part of a count, and none is expected. Give the table a typical one, "
            "such as expected = 20_000."
        )
    return float(percent[1]) / 100 * expected
