"""A table in any database that Ibis reaches: the database counts it, and only counts leave it.

Each attribute becomes an expression that depends on the row alone and is NULL outside the declaration (cells.py); with
ids, at most k rows of each person are kept by a window (persons.py); the database groups what is left. If it cannot do
that exactly as hdmm does with rows of its own, the table is refused by its schema, or its rows are fetched if the user
says so. Columns of a type that cannot be fetched are refused before any row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np

from hdmm.attribute import Attribute
from hdmm.data.base import Axes, cells, withholding
from hdmm.data.cells import cell
from hdmm.data.coding import codes, drops
from hdmm.data.columns import encode
from hdmm.data.counting import GroupCounts, finest, smallest_type
from hdmm.data.dialects import KNOWN, written_plainly
from hdmm.data.engines import (
    READS_OTHER_FILES,
    Backend,
    check_backend,
    duckdb_snapshot,
    memory_backend,
    reading_sqlite,
)
from hdmm.data.persons import chosen, key_setting, with_person
from hdmm.data.postgres import counted_columns, postgres_kinds, postgres_rows, postgres_snapshot
from hdmm.data.source import ROWS_AT_ONCE, Batch, ColumnKind, Source, Unreadable, Untyped, of_record_batch
from hdmm.data.sqlite import RowsOfSqlite, grouped_by_sqlite
from hdmm.domain import Domain
from hdmm.entries import Codes
from hdmm.exceptions import DataError
from hdmm.lazy import Lazy
from hdmm.values import Values

if TYPE_CHECKING:
    import duckdb
    import ibis
    import ibis.expr.datatypes as dt
    import ibis.expr.operations as ops
else:
    duckdb, ibis = Lazy("duckdb"), Lazy("ibis")
    dt, ops = Lazy("ibis.expr.datatypes"), Lazy("ibis.expr.operations")

_DECIMAL_DIGITS = 38  # the most that a decimal may have if Ibis gives it to Arrow
_PERSON = "person"


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
        parts = [part for axis in self.axes for part in self.domain.attributes[axis].parts]
        return {part: f"c{place}" for place, part in enumerate(parts)}

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
        if len(groupings) > 1 and rows() <= sum(cells(self.domain, axes) for axes in groupings):
            return [finest(groupings)]
        return groupings


@final
@dataclass(frozen=True, slots=True, eq=False)
class IbisTable(Source):
    """A table expression of Ibis. A table that no connection holds is computed by a DuckDB of our own."""

    table: ibis.Table
    here: bool = field(init=False, repr=False)  # whether the rows are in the memory of this process already
    _backend: Backend = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bound = self.table.op().find((ops.DatabaseTable, ops.SQLQueryResult, ops.UnboundTable))
        object.__setattr__(self, "here", not bound)
        object.__setattr__(self, "_backend", self.table.get_backend() if bound else memory_backend())

    def columns(self) -> dict[str, ColumnKind]:
        check_backend(self._backend)
        if self._backend.name == "postgres":
            return postgres_kinds(self._backend, self.table)
        any_type = self._backend.name == "sqlite"
        kinds = {name: _kind(kind, any_type=any_type) for name, kind in self.table.schema().items()}
        if self._backend.name == "duckdb":
            readable = [name for name, kind in kinds.items() if not isinstance(kind, Unreadable)]
            _refuse_other_files(self._backend, self.table.select(readable).limit(0) if readable else None)
        return kinds

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        return _rows(self._backend, self.table.select(list(columns)))

    def check_counting(self, asked: CountRequest) -> None:
        """Raise CannotCountError if the database cannot count exactly. Reads no rows."""
        if self._backend.name == "sqlite":
            return
        rows, _ = self._kept(asked)
        if self._backend.name not in KNOWN:
            try:
                self._backend.compile(rows.aggregate(rows.count().name("n")))
            except Exception:  # Ibis cannot write the query for this engine
                raise CannotCountError(_cannot(self._backend.name, "The domain")) from None

    def groups(self, asked: CountRequest, groupings: Sequence[Axes]) -> list[GroupCounts]:
        """The rows that no attribute drops, counted by the cells of each grouping, all from one state of the table."""
        if self._backend.name == "sqlite":
            return self._groups_of_sqlite(asked, groupings)
        rows, readers = self._kept(asked)
        found: list[GroupCounts] = []
        with written_plainly(), self._snapshot(asked):
            for axes in asked.chosen_groupings(groupings, lambda: self._number(rows)):
                by = {part: asked.parts[part] for part in asked.parts_of(axes)}
                counted = rows.aggregate([rows.count().name("n")], by=[rows[name] for name in by.values()])
                groups = GroupCounts(asked.domain, axes)
                for batch in _rows(self._backend, counted):
                    _add(groups, {part: encode(readers[part], batch[name]) for part, name in by.items()}, batch["n"])
                found.append(groups)
        return found

    def _groups_of_sqlite(self, asked: CountRequest, groupings: Sequence[Axes]) -> list[GroupCounts]:
        parts = list(asked.parts)
        found: list[GroupCounts] = []

        def places(rows: Callable[[], int]) -> list[list[int]]:
            found.extend(GroupCounts(asked.domain, axes) for axes in asked.chosen_groupings(groupings, rows))
            return [[parts.index(part) for part in asked.parts_of(groups.axes)] for groups in found]

        named = asked.named_columns
        table = self._backend.compile(self.table.select(**{name: self.table[column] for column, name in named.items()}))
        query = RowsOfSqlite(
            table,
            cells=[(named[asked.columns[part.name]], part.values) for part in parts],
            who=None if asked.id is None else named[asked.id],
            k=asked.k,
            key=asked.key,
        )
        for number, batch in grouped_by_sqlite(self._backend.con, query, places):
            by = asked.parts_of(found[number].axes)
            _add(found[number], {part: _integers(batch[asked.parts[part]]) for part in by}, batch["n"])
        return found

    def _kept(self, asked: CountRequest) -> tuple[ibis.Table, dict[Attribute, Values]]:
        """The rows that are counted, as cells, and what reads them."""
        engine = self._backend.name
        rows = self._plain(asked)
        named = asked.named_columns
        found: dict[str, Any] = {}  # the cells by name, and the person
        readers: dict[Attribute, Values] = {}
        for part, name in asked.parts.items():
            column = asked.columns[part.name]
            rows, there = cell(rows, named[column], part.values, engine)
            if there is None:
                what = f"Column {column!r} of type {self.table[column].type()}, from which {part.name!r} is read,"
                raise CannotCountError(_cannot(engine, what))
            found[name], readers[part] = there
        inside = [name for part, name in asked.parts.items() if drops(part)]
        if asked.id is not None:
            rows, found[_PERSON] = with_person(rows, named[asked.id], engine)
            if found[_PERSON] is None:
                kind = self.table[asked.id].type()
                raise CannotCountError(_cannot(engine, f"Column {asked.id!r} of type {kind}, which holds the ids,"))
            inside.append(_PERSON)
        rows = rows.select(**found)
        rows = rows.filter([rows[name].notnull() for name in inside]) if inside else rows
        if asked.id is not None:
            rows = chosen(rows, _PERSON, list(asked.parts.values()), k=asked.k, key=asked.key, engine=engine)
        return rows, readers

    def _plain(self, asked: CountRequest) -> ibis.Table:
        """The columns that are needed, under names of ours."""
        columns: dict[str, Any] = {column: self.table[column] for column in asked.named_columns}
        if self._backend.name == "postgres":
            columns = counted_columns(self._backend, self.table, list(columns))
        for column in asked.named_columns:
            if column not in columns:
                raise CannotCountError(_cannot("postgres", f"Column {column!r}, whose type only Python compares,"))
        return self.table.select(**{name: columns[column] for column, name in asked.named_columns.items()})

    def _snapshot(self, asked: CountRequest) -> AbstractContextManager[None]:
        """One state of the table for all queries. Spark has no transactions: see docs/how-to/databases.md."""
        if self._backend.name == "postgres":
            return postgres_snapshot(self._backend, key_setting(asked.key))
        return duckdb_snapshot(self._backend.con) if self._backend.name == "duckdb" else nullcontext()

    def _number(self, rows: ibis.Table) -> int:
        counted = _rows(self._backend, rows.aggregate(rows.count().name("n")))
        return sum(int(_integers(batch["n"]).sum()) for batch in counted)


def _cannot(engine: str, what: str) -> str:
    return (
        f"{what} cannot be counted in {engine} exactly as hdmm counts. Let the database turn it into integers, text or "
        "dates, in a view or with Ibis; or set fetch = true, and rows are fetched and counted here."
    )


def _add(groups: GroupCounts, of_parts: Mapping[Attribute, Codes], rows: Any) -> None:
    attributes = groups.domain.attributes
    slab = {
        axis: codes(attributes[axis], of_parts.__getitem__).astype(smallest_type(groups.domain.shape[axis]))
        for axis in groups.axes
    }
    groups.add(slab, _integers(rows))


def _integers(column: Any) -> Codes:
    return np.asarray(column, np.int64)


def _refuse_other_files(backend: Backend, nothing: ibis.Table | None) -> None:
    """Refuse a view that reads more than its database: DuckDB says so when it is asked for no rows."""
    with withholding():
        try:
            if nothing is not None:
                backend.to_pyarrow(nothing)
        except duckdb.PermissionException:
            raise DataError(READS_OTHER_FILES.format("The Ibis table")) from None


def _rows(backend: Backend, table: ibis.Table) -> Iterator[Batch]:
    if backend.name == "sqlite":
        # Ibis would convert each column to its declared type, which fails on values of other types.
        names = table.columns
        with reading_sqlite(backend.con), closing(backend.raw_sql(backend.compile(table))) as cursor:
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    elif backend.name == "postgres":
        yield from postgres_rows(backend, table)
    elif backend.name == "duckdb":  # Ibis 12 reads batches with a method that DuckDB 2 no longer has
        yield from map(of_record_batch, backend.to_pyarrow(table).to_batches(max_chunksize=ROWS_AT_ONCE))
    else:
        yield from map(of_record_batch, backend.to_pyarrow_batches(table, chunk_size=ROWS_AT_ONCE))


def _kind(kind: dt.DataType, *, any_type: bool) -> ColumnKind:
    """The type in Arrow. With `any_type`, a column holds values of any type and all of them can be read."""
    plain = kind.is_boolean() or kind.is_integer() or kind.is_float32() or kind.is_float64() or kind.is_null()
    text = kind.is_string() or kind.is_binary() or kind.is_uuid()
    time = kind.is_date() or kind.is_time() or kind.is_timestamp()
    if any_type and (time or kind.is_uuid()):
        return Untyped(type(kind).__name__.lower())  # SQLite has no such values: they are written as text or numbers
    if plain or text or time or (isinstance(kind, dt.Decimal) and 0 < (kind.precision or 0) <= _DECIMAL_DIGITS):
        return kind.to_pyarrow()
    return None if any_type else Unreadable(type(kind).__name__.lower())
