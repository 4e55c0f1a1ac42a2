"""PostgreSQL through Ibis: the types of a table's columns, and rows as Python values.

Ibis would convert fetched values to Arrow types, which fails on some (a numeric that is NaN, or has more digits than
the type it guesses), and its driver fails on others (a date of infinity, or before Christ). No value may cause a
failure (security I1).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.engines.dialects import plain_text, readable
from hdmm.data.engines.local import Backend
from hdmm.data.sources.source import Batch, ColumnKind, Unreadable

if TYPE_CHECKING:
    import ibis
    import psycopg.adapt
    import pyarrow as pa
else:
    pa, psycopg = Lazy("pyarrow"), Lazy("psycopg")


# The numbers of PostgreSQL's own types: they are part of its protocol and never change.
_NUMBERS = {16: "bool", 20: "int64", 21: "int16", 23: "int32", 700: "float", 701: "double"}
_NAMES = {16: "boolean", 20: "int64", 21: "int16", 23: "int32", 700: "float32", 701: "float64"}  # the same in Ibis
_PADDED = 1042  # char(n)
_TEXT_TYPES = (25, 1043, _PADDED)
_TIMES = {1082: "date32", 1083: "time64[us]", 1114: "timestamp[us]"}  # date, time, timestamp
_ZONED = 1184  # timestamptz
_BYTES = 17  # bytea
_NUMERIC, _UUID = 1700, 2950  # for which Arrow has no type
_NOT_TEXT = {*_NUMBERS, *_TIMES, _ZONED, _NUMERIC, _UUID, _PADDED}
_FETCHED_AT_ONCE = 2**16  # rows of Python objects
_FETCHED = (_BYTES, *_TIMES, _ZONED, _NUMERIC, _UUID)
_COUNTED = {*_NUMBERS, *_TEXT_TYPES, *_TIMES, _ZONED, _NUMERIC, _UUID}  # not enumerations, and no extension's types


def postgres_kinds(backend: Backend, table: ibis.Table) -> dict[str, ColumnKind]:
    """The types of the columns, as the server gives them. Reads no rows."""
    encodings = {backend.con.info.parameter_status(f"{side}_encoding") for side in ("server", "client")}
    # Ibis would not ask for these columns themselves.
    found: dict[str, ColumnKind] = {
        name: Unreadable(type(kind).__name__.lower())
        for name, kind in table.schema().items()
        if kind.is_json() or kind.is_geospatial()
    }
    others = [name for name in table.columns if name not in found]
    for name, oid in zip(others, _type_numbers(backend, table, others), strict=True):
        kind = table.schema()[name]
        if kind.is_string() or oid in _TEXT_TYPES:  # enumerations have numbers of their own
            found[name] = pa.string() if encodings == {"UTF8"} else Unreadable("text in another encoding than UTF8")
        elif oid in _NUMBERS or oid in _TIMES:
            found[name] = pa.type_for_alias({**_NUMBERS, **_TIMES}[oid])
        elif oid in (_ZONED, _BYTES):
            found[name] = pa.timestamp("us", "UTC") if oid == _ZONED else pa.binary()
        else:
            known = backend.con.adapters.types.get(oid)
            found[name] = None if oid in _FETCHED else Unreadable(known.name if known else "unknown")
    return found


def counted_columns(backend: Backend, table: ibis.Table, columns: Sequence[str]) -> dict[str, Any]:
    """The columns as the server compares them exactly; those that only Python compares are left out."""
    found: dict[str, Any] = {}
    for name, oid in zip(columns, _type_numbers(backend, table, columns), strict=True):
        column: Any = table[name]
        if column.type().is_unknown() and (oid in _NUMBERS or oid in _TEXT_TYPES):
            column = column.cast(_NAMES.get(oid, "string"))  # a domain of the database, whose name Ibis does not know
        if oid in _COUNTED and not column.type().is_unknown():
            found[name] = plain_text(column) if oid in _TEXT_TYPES else column
    return found


def fetched_columns(backend: Backend, table: ibis.Table, columns: Sequence[str]) -> ibis.Table:
    """The columns as they are fetched: without long text, of which the server cannot send a gigabyte."""
    found: dict[str, Any] = {}
    for name, oid in zip(columns, _type_numbers(backend, table, columns), strict=True):
        column: Any = table[name]
        if oid not in _NOT_TEXT and not column.type().is_binary():
            column = column.cast("string")
        found[name] = readable("postgres", column)
    return table.select(**found)


@contextmanager
def postgres_snapshot(backend: Backend, key_setting: str) -> Generator[None]:
    """One transaction that sees the table as it is at its beginning; the setting holds a key that the server draws.

    The key is in no statement, so no log has it. It stays as long as the session.
    """
    idle = backend.con.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    with backend.con.transaction():
        if idle:
            backend.con.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        backend.con.execute(
            "SELECT set_config(name, coalesce(nullif(current_setting(name, true), ''), gen_random_uuid()::text || "
            "gen_random_uuid()::text), false) FROM (VALUES (%s::text)) AS asked (name)",
            [key_setting],
        )
        yield


def postgres_rows(backend: Backend, table: ibis.Table) -> Iterator[Batch]:
    """The rows in batches; what has no Python value is missing."""
    names = table.columns
    with backend.con.transaction(), backend.con.cursor(name="hdmm") as cursor:
        for oid in (*_FETCHED, _PADDED):
            cursor.adapters.register_loader(oid, _careful(cursor.adapters.get_loader(oid, psycopg.pq.Format.TEXT)))
        cursor.execute(backend.compile(table))
        while fetched := cursor.fetchmany(_FETCHED_AT_ONCE):
            yield dict(zip(names, map(list, zip(*fetched, strict=True)), strict=True))


def _type_numbers(backend: Backend, table: ibis.Table, columns: Collection[str]) -> list[int]:
    if not columns:
        return []
    try:
        with backend.con.transaction(), backend.con.cursor() as cursor:
            cursor.execute(backend.compile(table.select(list(columns)).limit(0)))
            return [column.type_code for column in cursor.description]
    except psycopg.Error as wrong:
        raise DataError(
            f"The server refuses to let you read the table ({type(wrong).__name__}). Ask for permission to read it."
        ) from None


def _careful(inner: type[psycopg.adapt.Loader]) -> type[psycopg.adapt.Loader]:
    """A reader of text from the server: what `inner` fails on is missing, and char(n) loses its padding."""

    class Careful(psycopg.adapt.Loader):
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._inner = inner(oid, context)

        def load(self, data: Any) -> Any:
            try:
                value = self._inner.load(data)
            except Exception:
                return None
            return value.rstrip(" ") if self.oid == _PADDED else value

    return Careful
