"""A table in any database that Ibis reaches: the database counts it, and only counts leave it.

Each attribute becomes an expression that depends on the row alone and is NULL outside the declaration (cells.py); with
ids, at most k rows of each person are kept (persons.py); the database groups what is left. If it cannot do that exactly
as hdmm does with rows of its own, the table is refused by its schema, or its rows are fetched if the user says so.
Columns of a type that cannot be fetched are refused before any row is read. No value and no number of rows of one
person decides whether that succeeds (security I1): no long text is examined (dialects.readable), no cast can fail, and
rows are fetched in batches of Arrow, or by readers for which a value that Python lacks is missing.
"""

from __future__ import annotations

import itertools
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, final

import numpy as np

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.base.steps import in_notebook, shown_steps
from hdmm.data.coding import codes, drops
from hdmm.data.columns import AnyColumn
from hdmm.data.counting import GroupCounts, finest, smallest_type
from hdmm.data.counts import Axes, cells, withholding
from hdmm.data.engines.declared import untyped_columns
from hdmm.data.engines.dialects import KNOWN, readable, written_plainly
from hdmm.data.engines.expressions import cell
from hdmm.data.engines.local import (
    READS_OTHER_FILES,
    Backend,
    check_backend,
    duckdb_batches,
    duckdb_snapshot,
    engine_memory,
    memory_backend,
    reading_sqlite,
    spark_batches,
)
from hdmm.data.engines.packing import Packing
from hdmm.data.engines.persons import (
    MOST_ROWS_IN_DUCKDB,
    PeoplePart,
    chosen,
    counted_rows,
    key_setting,
    parts_of_people,
    with_person,
)
from hdmm.data.engines.postgres import (
    counted_columns,
    fetched_columns,
    postgres_kinds,
    postgres_rows,
    postgres_snapshot,
)
from hdmm.data.engines.sqlite import RowsOfSqlite, counting_in_sqlite
from hdmm.data.sources.source import ROWS_AT_ONCE, Batch, ColumnKind, Source, Unreadable, Untyped, of_record_batch
from hdmm.describe.attribute import Attribute
from hdmm.describe.domain import Domain
from hdmm.describe.entries import Codes

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
_TOO_MANY_ROWS = (
    "At most {:,} rows per person were asked for, and DuckDB chooses at most {:,}. Declare a smaller max_rows_per_id; "
    "or set fetch = true, and rows are fetched and chosen here."
)


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

    @property
    def has_frames(self) -> bool:
        """Whether some rows come from a frame in the memory of this process, which may have been read from a file."""
        return bool(self.table.op().find(ops.InMemoryTable))

    @property
    def gives_batches(self) -> bool:
        """Whether rows come in batches. Spark gives all it is asked for at once, up to a limit of its own, so that one
        person's number of rows could decide whether they come (security I1)."""
        return self._backend.name != "pyspark"

    def columns(self) -> dict[str, ColumnKind]:
        check_backend(self._backend)
        if self._backend.name == "postgres":
            return postgres_kinds(self._backend, self.table)
        any_type = self._backend.name == "sqlite"
        kinds = {name: _kind(kind, any_type=any_type) for name, kind in self.table.schema().items()}
        kinds |= untyped_columns(self._backend, self.table)
        if self._backend.name == "duckdb":
            readable = [name for name, kind in kinds.items() if not isinstance(kind, Unreadable)]
            _refuse_other_files(self._backend, self.table.select(readable).limit(0) if readable else None)
        return kinds

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        if self._backend.name == "postgres":
            return postgres_rows(self._backend, fetched_columns(self._backend, self.table, columns))
        read = {name: readable(self._backend.name, self.table[name]) for name in columns}
        return _rows(self._backend, self.table.select(**read))

    def check_counting(self, asked: CountRequest) -> None:
        """Raise CannotCountError if the database cannot count exactly. Reads no rows."""
        if self._backend.name == "sqlite":
            return
        rows = self._kept(asked, PeoplePart())
        if self._backend.name not in KNOWN:
            try:
                self._backend.compile(rows.aggregate(rows.count().name("n")))
            except Exception:  # Ibis cannot write the query for this engine
                raise CannotCountError(_cannot(self._backend.name, "The domain")) from None

    def groups(self, asked: CountRequest, groupings: Sequence[Axes]) -> list[GroupCounts]:
        """The rows that no attribute drops, counted by the cells of each grouping, all from one state of the table."""
        with written_plainly(), self._snapshot(asked):
            rows = cache(self._number_of_rows)
            parts = self._parts(asked, rows)
            if self._backend.name == "sqlite" and asked.id is not None:  # whose rows are chosen here, once
                groupings = [finest(groupings)]
            found = [GroupCounts(asked.domain, axes) for axes in asked.chosen_groupings(groupings, rows)]
            queries = len(parts) * len(found)  # a single one may take long, but leaves an empty line in a notebook
            with shown_steps("Counting in the database", queries, long=queries > 1 or not in_notebook()) as step:
                for part, groups in itertools.product(parts, found):
                    for of_parts, rows in self._counted(asked, groups.axes, part):
                        _add(groups, of_parts, rows)
                    step()
        return found

    def _counted(
        self, asked: CountRequest, axes: Axes, part: PeoplePart
    ) -> Iterator[tuple[dict[Attribute, Codes], AnyColumn]]:
        """Groups of the rows of a part of the people: their codes, and how many rows each has."""
        by = asked.parts_of(axes)
        if self._backend.name == "sqlite":
            yield from self._counted_in_sqlite(asked, by)
            return
        rows = self._kept(asked, part)
        packing = Packing(tuple(each.size for each in by))
        words = [word.name(f"w{i}") for i, word in enumerate(packing.packed([rows[asked.parts[each]] for each in by]))]
        for batch in _rows(self._backend, rows.aggregate([counted_rows(rows).name("n")], by=words)):
            codes = packing.codes([_integers(batch[f"w{i}"]) for i in range(len(words))])
            yield dict(zip(by, codes, strict=True)), batch["n"]

    def _counted_in_sqlite(
        self, asked: CountRequest, by: Sequence[Attribute]
    ) -> Iterator[tuple[dict[Attribute, Codes], AnyColumn]]:
        places = {each: list(asked.parts).index(each) for each in by}
        if asked.id is None:
            query = self._sqlite_rows(asked).grouped(list(places.values()))
            for batch in _of_sqlite(self._backend.con, query):
                yield {each: _integers(batch[asked.parts[each]]) for each in by}, batch["n"]
        elif (kept := self._sqlite_rows(asked).chosen(self._backend.con)) is not None:
            yield {each: _integers(kept.codes[place]) for each, place in places.items()}, np.ones(len(kept), np.int64)

    def _sqlite_rows(self, asked: CountRequest) -> RowsOfSqlite:
        named = asked.named_columns
        table = self._backend.compile(self.table.select(**{name: self.table[column] for column, name in named.items()}))
        return RowsOfSqlite(
            table,
            cells=[(named[asked.columns[part.name]], part.values) for part in asked.parts],
            who=None if asked.id is None else named[asked.id],
            k=asked.k,
            key=asked.key,
        )

    def _kept(self, asked: CountRequest, people: PeoplePart) -> ibis.Table:
        """The rows that are counted, as codes; with ids, those of a part of the people."""
        engine = self._backend.name
        rows = self._plain(asked)
        named = asked.named_columns
        found: dict[str, Any] = {}  # the codes by name, and the person
        if asked.id is not None:
            if engine == "duckdb" and asked.k > MOST_ROWS_IN_DUCKDB:
                raise CannotCountError(_TOO_MANY_ROWS.format(asked.k, MOST_ROWS_IN_DUCKDB))
            rows, person = with_person(rows, named[asked.id], engine)
            if person is None:
                kind = self.table[asked.id].type()
                raise CannotCountError(_cannot(engine, f"Column {asked.id!r} of type {kind}, which holds the ids,"))
            rows = rows.mutate(**{_PERSON: person})
            rows = people.rows(rows, _PERSON)
            found[_PERSON] = rows[_PERSON]
        for part, name in asked.parts.items():
            column = asked.columns[part.name]
            rows, place = cell(rows, named[column], part.values, engine)
            if place is None:
                what = f"Column {column!r} of type {self.table[column].type()}, from which {part.name!r} is read,"
                raise CannotCountError(_cannot(engine, what))
            found[name] = place if drops(part) else ibis.coalesce(place, ibis.literal(part.size - 1, "int64"))
        rows = rows.select(**found)
        rows = rows.filter([rows[name].notnull() for name in found])
        if asked.id is not None:
            cells = {name: part.size for part, name in asked.parts.items()}
            rows = chosen(rows, _PERSON, cells, k=asked.k, key=asked.key, engine=engine)
        return rows

    def _plain(self, asked: CountRequest) -> ibis.Table:
        """The columns that are needed, under names of ours."""
        columns: dict[str, Any] = {column: self.table[column] for column in asked.named_columns}
        if self._backend.name == "postgres":
            columns = counted_columns(self._backend, self.table, list(columns))
        for column in asked.named_columns:
            if column not in columns:
                raise CannotCountError(_cannot("postgres", f"Column {column!r}, whose type only Python compares,"))
        read = {name: readable(self._backend.name, columns[column]) for column, name in asked.named_columns.items()}
        return self.table.select(**read)

    def _snapshot(self, asked: CountRequest) -> AbstractContextManager[None]:
        """One state of the table for all queries. Spark has no transactions: see docs/guide/people-and-data.md."""
        if self._backend.name == "postgres":
            return postgres_snapshot(self._backend, key_setting(asked.key))
        if self._backend.name == "sqlite":
            return counting_in_sqlite(self._backend.con, self._sqlite_rows(asked))
        return duckdb_snapshot(self._backend.con) if self._backend.name == "duckdb" else nullcontext()

    def _parts(self, asked: CountRequest, rows: Callable[[], int]) -> list[PeoplePart]:
        memory = engine_memory(self._backend)
        if asked.id is None or memory == math.inf:
            return [PeoplePart()]
        return parts_of_people(memory, rows(), [part.size for part in asked.parts])

    def _number_of_rows(self) -> int:
        """Before any are dropped."""
        (batch,) = _rows(self._backend, self.table.aggregate(rows=self.table.count()))
        return int(_integers(batch["rows"])[0])


def _cannot(engine: str, what: str) -> str:
    otherwise = (
        "or write the rows to Parquet files, and count these"
        if engine == "pyspark"
        else "or set fetch = true, and rows are fetched and counted here"
    )
    return (
        f"{what} cannot be counted in {engine} exactly as hdmm counts. Let the database turn it into integers, text or "
        f"dates, in a view or with Ibis; {otherwise}."
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
                list(duckdb_batches(backend, nothing))
        except duckdb.PermissionException:
            raise DataError(READS_OTHER_FILES.format("The Ibis table")) from None


def _rows(backend: Backend, table: ibis.Table) -> Iterator[Batch]:
    match backend.name:
        case "sqlite":  # Ibis would convert each column to its declared type, which fails on values of other types
            with reading_sqlite(backend.con):
                yield from _of_sqlite(backend.con, backend.compile(table))
        case "postgres":
            yield from postgres_rows(backend, table)
        case "duckdb":
            yield from map(of_record_batch, duckdb_batches(backend, table))
        case "pyspark":
            yield from map(of_record_batch, spark_batches(backend, table))
        case _:
            yield from map(of_record_batch, backend.to_pyarrow_batches(table, chunk_size=ROWS_AT_ONCE))


def _of_sqlite(connection: sqlite3.Connection, query: str) -> Iterator[Batch]:
    with closing(connection.execute(query)) as cursor:
        names = [column[0] for column in cursor.description]
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


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
