"""Engine: what hdmm asks of a database that Ibis reaches. Each database is one final class, in a file of its own.

An engine counts a table where it is, and only counts leave it: each attribute becomes a code that depends on the row
alone and is NULL outside the declaration; with ids, at most k rows of each person are kept, which is decided once for
all groupings; the database groups what is left. If it cannot do that exactly as hdmm does with rows of its own, the
table is refused by its schema, or its rows are fetched if the user says so. No value and no number of rows of one
person decides whether that succeeds (security I1): no long text is examined, no cast can fail, and rows are fetched in
batches of Arrow, or by readers for which a value that Python lacks is missing.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy, loaded
from hdmm.base.steps import in_notebook, shown_steps
from hdmm.data.columns import AnyColumn, codes
from hdmm.data.counting import GroupCounts, finest, most_groups, smallest_type
from hdmm.data.counts import Axes
from hdmm.data.engines.persons import PeoplePart
from hdmm.data.sources.source import Batch, ColumnKind, Source, Unreadable, Untyped
from hdmm.describe.attribute import Attribute
from hdmm.describe.domain import Domain
from hdmm.describe.entries import Codes

if TYPE_CHECKING:
    import ibis
    import ibis.expr.datatypes as dt
    import ibis.expr.operations as ops
    import pandas as pd
    import pyarrow.dataset as ds
else:
    ibis, pd, ds = Lazy("ibis"), Lazy("pandas"), Lazy("pyarrow.dataset")
    dt, ops = Lazy("ibis.expr.datatypes"), Lazy("ibis.expr.operations")

_OTHER_TIMES = (
    "A pandas frame within the Ibis table has a column of type {}. Whether Ibis can convert it to microseconds depends "
    "on its values. Give the frame itself, or convert the column (astype('datetime64[us]')) before Ibis gets it."
)

Backend: TypeAlias = Any  # of Ibis, which does not say what it is

FETCHED_AT_ONCE = 2**16  # rows; with the longest texts, a quarter of a gigabyte per column
_SHARED_GROUPS = 2**24  # of one query: 16 groupings of 2²⁰ groups each
_DECIMAL_DIGITS = 38  # the most that a decimal may have if Ibis gives it to Arrow


@final
class CannotCountError(DataError):
    """The database cannot count a table exactly as hdmm does."""


@final
@dataclass(frozen=True, slots=True)
class CountRequest:
    """What a database is asked to count: rows over a domain, at most `k` of each person if there is a column of ids.

    `columns` names the column of each part of an attribute, and `axes` the attributes that matter: those that are asked
    for and those that may drop a row; all of them if there are ids, because rows are then compared by all of them.
    """

    domain: Domain
    axes: Axes
    columns: Mapping[str, str]
    id: str | None
    k: int
    key: bytes = field(repr=False)

    @property
    def parts(self) -> dict[Attribute, str]:
        """The parts of the attributes, and the names that their cells have in queries."""
        return {part: f"c{place}" for place, part in enumerate(self.parts_of(self.axes))}

    @property
    def named_columns(self) -> dict[str, str]:
        """The columns that are needed, and the names that they have in queries."""
        columns = [self.columns[part.name] for part in self.parts] + ([] if self.id is None else [self.id])
        return {column: f"x{place}" for place, column in enumerate(dict.fromkeys(columns))}

    def parts_of(self, axes: Axes) -> list[Attribute]:
        """The parts of some attributes."""
        return [part for axis in axes for part in self.domain.attributes[axis].parts]

    def chosen_groupings(self, groupings: Sequence[Axes], rows: Callable[[], int]) -> Sequence[Axes]:
        """The groupings, or the finest one if its groups are fewer: never more groups than rows are transferred."""
        if len(groupings) > 1 and rows() <= sum(most_groups(self.domain, axes) for axes in groupings):
            return [finest(groupings)]
        return groupings


class CountedSource(Source):
    """A table that its database may count."""

    __slots__ = ()

    may_fetch: bool  # whether its rows are read here if the database cannot count them, though nobody has said so
    gives_batches: bool

    @abstractmethod
    def check_counting(self, asked: CountRequest) -> None:
        """Raise CannotCountError if the database cannot count exactly. Reads no rows."""

    @abstractmethod
    def groups(self, asked: CountRequest, groupings: Sequence[Axes]) -> list[GroupCounts]:
        """The rows that no attribute drops, counted by the cells of each grouping, all from one state of the table."""


class Engine(ABC):
    """A connection of Ibis to a database, and how that database is asked for rows and counts."""

    __slots__ = ()

    name: ClassVar[str]  # of such a backend in Ibis
    # Whether rows come in batches. If they come at once, up to a limit of the engine, one person's number of rows could
    # decide whether they come (security I1), so none are fetched.
    gives_batches: ClassVar[bool] = True
    chooses_here: ClassVar[bool] = False  # whether the rows of a person are chosen in this process, which is done once
    backend: Backend

    @abstractmethod
    def columns(self, table: ibis.Table) -> dict[str, ColumnKind]:
        """The types of the columns; DataError if the connection may write or read elsewhere. Reads no rows."""

    @abstractmethod
    def fetched(self, table: ibis.Table, columns: Sequence[str]) -> ibis.Table:
        """These columns as they may be fetched: without text that is longer than LONGEST_TEXT (security I9)."""

    @abstractmethod
    def rows(self, table: ibis.Table) -> Iterator[Batch]:
        """The rows of a query, in batches."""

    @abstractmethod
    def check_counting(self, table: ibis.Table, asked: CountRequest) -> None:
        """Raise CannotCountError if the database cannot count exactly. Reads no rows."""

    @abstractmethod
    def snapshot(self, table: ibis.Table, asked: CountRequest) -> AbstractContextManager[None]:
        """Inside the block, all queries see one state of the table, as far as the database can show one."""

    @abstractmethod
    def parts(self, asked: CountRequest, rows: Callable[[], int], groupings: int) -> list[PeoplePart]:
        """The parts of the people that it counts one after the other, by the number of rows of the table."""

    @abstractmethod
    def counted(
        self, table: ibis.Table, asked: CountRequest, groupings: Sequence[Sequence[Attribute]], people: PeoplePart
    ) -> Iterator[tuple[int, Sequence[Codes], AnyColumn]]:
        """Groups of the rows of a part of the people, by the attributes of each grouping: the place of the grouping,
        the codes of its attributes, and how many rows each group has. One query, which chooses among rows once.
        """

    def groups(self, table: ibis.Table, asked: CountRequest, groupings: Sequence[Axes]) -> list[GroupCounts]:
        """The rows that no attribute drops, counted by the cells of each grouping, all from one state of the table."""
        with _written_plainly(), self.snapshot(table, asked):
            rows = cache(lambda: self.number_of_rows(table))
            if self.chooses_here and asked.id is not None:
                groupings = [finest(groupings)]
            found = [GroupCounts(asked.domain, axes) for axes in asked.chosen_groupings(groupings, rows)]
            queries = [[groups] for groups in found] if asked.id is None else _shared(found)
            parts = self.parts(asked, rows, max(map(len, queries)))
            # A line in a notebook is left empty, and the number of rows, which decides how many queries there are, may
            # not decide whether one is there (security O3). A single query may take long, but is not worth a line.
            shown = len(groupings) > 1 or asked.id is not None or not in_notebook()
            with shown_steps("Counting in the database", len(parts) * len(queries), long=shown) as step:
                for people, query in itertools.product(parts, queries):
                    by = [asked.parts_of(groups.axes) for groups in query]
                    for place, each, counts in self.counted(table, asked, by, people):
                        _add(query[place], dict(zip(by[place], each, strict=True)), counts)
                    step()
        return found

    def number_of_rows(self, table: ibis.Table) -> int:
        """The number of rows before any are dropped."""
        (batch,) = self.rows(table.aggregate(rows=table.count()))
        return int(as_integers(batch["rows"])[0])

    def cannot(self, what: str) -> CannotCountError:
        """The error about something that cannot be counted there, with what to do."""
        otherwise = (
            "or set fetch = true, and rows are fetched and counted here"
            if self.gives_batches
            else "or write the rows to Parquet files, and count these"
        )
        return CannotCountError(
            f"{what} cannot be counted in {self.backend.name} exactly as hdmm counts. Let the database turn it into "
            f"integers, text or dates, in a view or with Ibis; {otherwise}."
        )


def as_integers(column: Any) -> Codes:
    """A column of integers that a database gave."""
    return np.asarray(column, np.int64)


def kinds_of(table: ibis.Table) -> dict[str, ColumnKind]:
    """The types of the columns as Ibis has them.

    Of a pandas frame in memory, Ibis takes the type of a column of objects from its values: it says nothing. All
    times are converted to microseconds there, which fails on some: a frame that has others is refused.
    So is a dataset of files, which Arrow converts to one schema.
    """
    found = {name: kind_of(kind) for name, kind in table.schema().items()}
    held: list[Any] = [getattr(each, "data", None) for each in table.op().find(ops.InMemoryTable)]
    frames = [data.obj for data in held if hasattr(data, "obj")]
    if loaded("pyarrow.dataset") and any(isinstance(frame, ds.Dataset) for frame in frames):
        raise DataError(
            "A dataset of pyarrow within an Ibis table is read with the types of its first rows or files, and fails on "
            "a row that does not fit. Give the path of the folder, or the dataset itself."
        )
    types = [kind for frame in frames if loaded("pandas") and isinstance(frame, pd.DataFrame) for kind in frame.dtypes]
    for kind in types:
        if str(kind).startswith(("datetime64[", "timedelta64[")) and "[us" not in str(kind):
            raise DataError(_OTHER_TIMES.format(kind))
    untyped = np.dtype(object)
    if not any(kind == untyped for kind in types):
        return found
    alone = frames[0].dtypes if isinstance(table.op(), ops.InMemoryTable) else {}
    # Of what is computed from several columns, it cannot be said from which.
    return found | {name: Untyped("object") for name in found if alone.get(name, untyped) == untyped}


def kind_of(kind: dt.DataType) -> ColumnKind:
    """A type of Ibis in Arrow."""
    plain = kind.is_boolean() or kind.is_integer() or kind.is_float32() or kind.is_float64() or kind.is_null()
    text = kind.is_string() or kind.is_binary() or kind.is_uuid()
    time = kind.is_date() or kind.is_time() or kind.is_timestamp()
    if plain or text or time or (isinstance(kind, dt.Decimal) and 0 < (kind.precision or 0) <= _DECIMAL_DIGITS):
        return kind.to_pyarrow()
    return Unreadable.of_type(type(kind).__name__.lower())


@contextmanager
def _written_plainly() -> Generator[None]:
    """Inside the block, Ibis leaves nested queries as they are: merging them takes it seconds, and engines do it."""
    before = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        yield
    finally:
        ibis.options.sql.fuse_selects = before


def _shared(found: Sequence[GroupCounts]) -> list[list[GroupCounts]]:
    """The groupings of each query: with ids, those that share the choice among the rows of persons.

    Each query gives few groups, or those of one grouping: Spark gives all groups of a query at once, up to a limit.
    """
    queries, held = list[list[GroupCounts]](), 0
    for groups in found:
        most = most_groups(groups.domain, groups.axes)
        if not queries or held + most > _SHARED_GROUPS:
            queries, held = [*queries, []], 0
        queries[-1].append(groups)
        held += most
    return queries


def _add(groups: GroupCounts, of_parts: Mapping[Attribute, Codes], rows: Any) -> None:
    attributes = groups.domain.attributes
    slab = {
        axis: codes(attributes[axis], of_parts.__getitem__).astype(smallest_type(attributes[axis].codes))
        for axis in groups.axes
    }
    groups.add(slab, as_integers(rows))
