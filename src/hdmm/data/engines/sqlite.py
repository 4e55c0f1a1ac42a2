"""SQLite counts with our own functions: its columns hold values of any type, and it runs in this process.

Cells and people are named by the same code as for rows that are read, so they are exact for every value. The functions
take text as bytes, because Python fails on text that is not UTF-8 (security I1), and get no text that is longer than
any text inside a domain (security I9). With ids, SQLite gives the cells and the person of each row, among which
identity.py chooses: a window of SQLite would hold all rows of a person in memory.

It removes a temporary file as soon as it has opened it, so none outlives a process; where possible it is set to make
none at all (security O4).

The affinity of a declared type converts what is written: in a column of integers, of text or of floats, one number is
stored in one way, however it was spelled. A column without an affinity (no declared type, BLOB, ANY) stores 0.1 and
'0.1' beside each other, and Ibis takes its type from the first row. The same holds for what a view or an expression
computes, unless it is converted there. Such a type says nothing about the values (security I5, I6).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

import numpy as np

from hdmm.base.lazy import Lazy
from hdmm.data.columns import AnyColumn
from hdmm.data.counting import smallest_type
from hdmm.data.engines.engine import FETCHED_AT_ONCE, Backend, CountRequest, Engine, as_integers, kind_of
from hdmm.data.engines.persons import EVERYONE, PeoplePart
from hdmm.data.identity import Rows, bounded, identity, name_words
from hdmm.data.sources.source import Batch, ColumnKind, Unreadable, Untyped
from hdmm.describe.attribute import Attribute
from hdmm.describe.entries import LONGEST_TEXT, Codes
from hdmm.describe.values import DROPPED, Values

if TYPE_CHECKING:
    import ibis
    import ibis.expr.datatypes as dt
    import ibis.expr.operations as ops
else:
    ibis, ops = Lazy("ibis"), Lazy("ibis.expr.operations")

Stored: TypeAlias = "int | float | bytes | None"

_CACHED = 2**16  # values of a column
_CACHED_BYTES = 64  # of a value: 2¹⁶ of the longest texts would take a quarter of a gigabyte
_MOST_BYTES = 2 * LONGEST_TEXT  # of text in UTF-16 that has LONGEST_TEXT bytes in UTF-8
_TEMP_STORE_MEMORY = 2


def open_sqlite(file: Path) -> Backend:
    """Ibis on a database of SQLite, opened for reading only."""
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    return ibis.sqlite.from_connection(connection)


@final
@dataclass(frozen=True, slots=True)
class SQLite(Engine):
    """A connection to SQLite. In its queries, all names are ours."""

    backend: Backend
    name: ClassVar[str] = "sqlite"
    chooses_here: ClassVar[bool] = True

    def columns(self, table: ibis.Table) -> dict[str, ColumnKind]:
        untyped = Untyped("any")
        return {
            name: _kind(kind) if _converted(self.backend, table.op(), name) else untyped
            for name, kind in table.schema().items()
        }

    def fetched(self, table: ibis.Table, columns: Sequence[str]) -> ibis.Table:
        return table.select(list(columns))

    def rows(self, table: ibis.Table) -> Iterator[Batch]:
        """As SQLite stores them: Ibis would convert each column to its declared type, which fails on other values."""
        with _reading(self.backend.con):
            yield from self._batches(self.backend.compile(table))

    def check_counting(self, table: ibis.Table, asked: CountRequest) -> None:
        pass  # everything is counted

    @contextmanager
    def snapshot(self, table: ibis.Table, asked: CountRequest) -> Generator[None]:
        """One transaction for all queries in the block, unless a user has begun one; and our functions are there."""
        connection = self.backend.con
        text = _reader_of_text(connection.execute("PRAGMA encoding").fetchone()[0])
        functions: list[tuple[str, Callable[..., int | bytes | None]]] = [
            ("hdmm_person", _person(asked.key, text)),
            *((f"hdmm_cell_{place}", _cell(part.values, text)) for place, part in enumerate(asked.parts)),
        ]
        with _reading(connection), ExitStack() as stack:
            if not connection.in_transaction:
                connection.execute("BEGIN")
                stack.callback(connection.rollback)  # nothing was written
            for name, function in functions:
                connection.create_function(name, 2, function, deterministic=True)
                stack.callback(connection.create_function, name, 2, None)
            yield

    def parts(self, asked: CountRequest, rows: object, groupings: int) -> list[PeoplePart]:
        return EVERYONE

    def counted(
        self, table: ibis.Table, asked: CountRequest, groupings: Sequence[Sequence[Attribute]], people: PeoplePart
    ) -> Iterator[tuple[int, Sequence[Codes], AnyColumn]]:
        (by,) = groupings  # one without ids; with ids, the finest
        coded, names = self._coded(table, asked), [asked.parts[each] for each in by]
        if asked.id is None:
            inside = " AND ".join(f"{name} IS NOT NULL" for name in asked.parts.values())
            counted = _query([*names, "count(*) AS n"], "coded", inside)
            grouped = f" GROUP BY {', '.join(names)}" if names else ""
            for batch in self._batches(f"WITH coded AS MATERIALIZED ({coded}) {counted}{grouped}"):
                yield 0, [as_integers(batch[name]) for name in names], batch["n"]
        elif (kept := bounded(asked.key, asked.k, self._owned(coded, asked))) is not None:
            of_part = dict(zip(asked.parts, kept.codes, strict=True))
            yield 0, [as_integers(of_part[each]) for each in by], np.ones(len(kept), np.int64)

    def _owned(self, coded: str, asked: CountRequest) -> Iterator[Rows]:
        types = [smallest_type(part.codes) for part in asked.parts]
        with closing(self.backend.con.execute(coded)) as cursor:
            while rows := cursor.fetchmany(FETCHED_AT_ONCE):
                inside = [row for row in rows if None not in row]
                *cells, people = zip(*inside, strict=True) if inside else [()] * (len(types) + 1)
                named = np.frombuffer(b"".join(people), np.uint64).reshape(-1, 2)
                yield Rows(named, [np.array(codes, kind) for codes, kind in zip(cells, types, strict=True)])

    def _coded(self, table: ibis.Table, asked: CountRequest) -> str:
        """A query for the codes of all rows as columns c0, c1, …, and their people; NULL outside of the domain."""
        named = asked.named_columns
        rows = self.backend.compile(table.select(**{name: table[column] for column, name in named.items()}))
        coded = [
            f"hdmm_cell_{place}{_given(named[asked.columns[part.name]])} AS {name}"
            for place, (part, name) in enumerate(asked.parts.items())
        ]
        person = [] if asked.id is None else [f"hdmm_person{_given(named[asked.id])} AS person"]
        return _query([*coded, *person], f"({rows})")

    def _batches(self, query: str) -> Iterator[Batch]:
        with closing(self.backend.con.execute(query)) as cursor:
            names = [column[0] for column in cursor.description]
            while rows := cursor.fetchmany(FETCHED_AT_ONCE):
                yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _kind(kind: dt.DataType) -> ColumnKind:
    """The type of a column, whose values may be of any type; all of them can be read."""
    if kind.is_date() or kind.is_time() or kind.is_timestamp() or kind.is_uuid():
        return Untyped(type(kind).__name__.lower())  # there are no such values: they are written as text or numbers
    found = kind_of(kind)
    return None if isinstance(found, Unreadable) else found


def _converted(backend: Backend, relation: Any, column: str) -> bool:
    """Whether what a column holds was converted to its type."""
    if isinstance(relation, ops.DatabaseTable):
        return _affinity(_declared(backend.con, relation.namespace.database or "main", relation.name, column))
    value = None if isinstance(relation, ops.Set | ops.SQLQueryResult) else relation.values.get(column)
    if isinstance(value, ops.Cast):
        return value.to.is_string() or value.to.is_integer() or value.to.is_floating()
    return isinstance(value, ops.Field) and _converted(backend, value.rel, value.name)


def _declared(connection: sqlite3.Connection, schema: str, table: str, column: str) -> str:
    """The declared type of a column; none if the table is a view, or virtual and stored elsewhere."""
    named = "WHERE type = 'table' AND rootpage > 0 AND name = ? COLLATE NOCASE"
    catalogue = '"' + schema.replace('"', '""') + '".sqlite_master'
    if connection.execute(" ".join(["SELECT 1 FROM", catalogue, named]), [table]).fetchone() is None:
        return ""
    types = "SELECT type FROM pragma_table_xinfo(?, ?) WHERE name = ? COLLATE NOCASE"
    found = connection.execute(types, [table, schema, column]).fetchone()
    return "" if found is None else str(found[0]).upper()


def _affinity(declared: str) -> bool:
    return "INT" in declared or not ("BLOB" in declared or declared in ("", "ANY"))


@contextmanager
def _reading(connection: sqlite3.Connection) -> Generator[None]:
    """Inside the block, the connection writes nothing, and text that is not UTF-8 is missing (security I1)."""
    before, query_only = connection.text_factory, _pragma(connection, "query_only")
    _keep_in_memory(connection)
    connection.execute("PRAGMA query_only = ON")
    connection.text_factory = _reader_of_text("utf-8")  # Python's own reader would fail
    try:
        yield
    finally:
        connection.text_factory = before
        connection.execute(f"PRAGMA query_only = {int(query_only)}")


def _keep_in_memory(connection: sqlite3.Connection) -> None:
    """Make SQLite sort and group in memory, unless a user would lose temporary tables by it."""
    if _pragma(connection, "temp_store") == _TEMP_STORE_MEMORY or connection.in_transaction:
        return
    if not connection.execute("SELECT count(*) FROM sqlite_temp_master").fetchone()[0]:
        connection.execute("PRAGMA temp_store = MEMORY")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _query(columns: Sequence[str], table: str, where: str = "") -> str:
    """A query of expressions and tables whose names are all ours."""
    return " ".join(["SELECT", ", ".join(columns), "FROM", table, *(["WHERE", where] if where else [])])


def _given(column: str) -> str:
    """The arguments of a function: the type of a value, and the value, with text as bytes; NULL if it is too long."""
    bytes_of = {"text": f"CAST({column} AS BLOB)", "blob": column}
    short = [
        f"WHEN '{kind}' THEN CASE WHEN length({raw}) <= {_MOST_BYTES} THEN {raw} END" for kind, raw in bytes_of.items()
    ]
    return f"(typeof({column}), CASE typeof({column}) {' '.join(short)} ELSE {column} END)"


def _reader_of_text(encoding: str) -> Callable[[bytes], str | None]:
    def text(raw: bytes) -> str | None:
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            return None

    return text


def _cell(values: Values, text: Callable[[bytes], str | None]) -> Callable[[str, Stored], int | None]:
    def code(kind: str, value: Stored) -> int | None:
        plain = text(value) if kind == "text" and isinstance(value, bytes) else value
        found = int(values.encode([plain])[0])
        return None if found == DROPPED else found

    cached = lru_cache(_CACHED)(code)

    def cached_if_short(kind: str, value: Stored) -> int | None:
        return (code if isinstance(value, bytes) and len(value) > _CACHED_BYTES else cached)(kind, value)

    return cached_if_short


def _person(key: bytes, text: Callable[[bytes], str | None]) -> Callable[[str, Stored], bytes | None]:
    def person(kind: str, value: Stored) -> bytes | None:
        who = identity(text(value) if kind == "text" and isinstance(value, bytes) else value)
        return None if who is None else name_words(key, who)

    return person
