"""PostgreSQL: types of columns as the server gives them, rows as Python values, and a key that the server draws.

Ibis would convert fetched values to Arrow types, which fails on some (a numeric that is NaN, or has more digits than
the type it guesses), and its driver fails on others (a date of infinity, or before Christ). No value may cause a
failure (security I1).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar, final

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.engines.dialect import Dialect, Expression, sql_function
from hdmm.data.engines.engine import FETCHED_AT_ONCE, Backend, CountRequest
from hdmm.data.engines.persons import EVERYONE, PeoplePart, least_groups, name_of
from hdmm.data.engines.sql_engine import SqlEngine
from hdmm.data.sources.source import Batch, ColumnKind, Unreadable

if TYPE_CHECKING:
    import ibis
    import psycopg.adapt
    import pyarrow as pa
else:
    ibis, pa, psycopg = Lazy("ibis"), Lazy("pyarrow"), Lazy("psycopg")


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
_FETCHED = (_BYTES, *_TIMES, _ZONED, _NUMERIC, _UUID)
_COUNTED = {*_NUMBERS, *_TEXT_TYPES, *_TIMES, _ZONED, _NUMERIC, _UUID}  # not enumerations, and no extension's types


def key_setting(key: bytes) -> str:
    """The name of the setting of a session that holds the key of a Data object, which does not reveal it."""
    return f"hdmm.key_{hashlib.blake2b(key, digest_size=8).hexdigest()}"


def _with_key(rows: ibis.Table, key: bytes) -> ibis.Table:
    return rows.mutate(hdmm_key=sql_function("current_setting", "string", "string")(key_setting(key)))


def _bytes_of(text: Expression) -> Expression:
    return sql_function("convert_to", "string", "string", "binary")(text, "UTF8")


def _text_of(raw: Expression) -> Expression:
    return sql_function("convert_from", "binary", "string", "string")(raw, "UTF8")


def _digest(text: Expression) -> Expression:
    return sql_function("sha256", "binary", "binary")(_bytes_of(text))


def _name_of(who: Expression) -> Expression | None:
    kind = who.type()
    if kind.is_decimal():  # which keeps zeros at the end, and has numbers that are none
        text = sql_function("trim_scale", "decimal", "decimal")(who).cast("string")
        return text.isin(["NaN", "Infinity", "-Infinity"]).ifelse(ibis.null(), text)
    if kind.is_date():  # others have no value in Python, and are missing
        return who.between(ibis.literal(date.min), ibis.literal(date.max)).ifelse(who, ibis.null()).cast("string")
    return name_of(who)


POSTGRES = Dialect(
    bytes_of=_bytes_of,
    text_of=_text_of,
    digest=_digest,
    name_of=_name_of,
    with_key=_with_key,
    least=least_groups,
    text=sql_function("text", "string", "string"),  # without padding, which is not part of it; and no enumeration
    writes_out=True,
)


@final
@dataclass(frozen=True, slots=True)
class Postgres(SqlEngine):
    """A connection to PostgreSQL, by psycopg."""

    backend: Backend
    name: ClassVar[str] = "postgres"
    dialect: ClassVar[Dialect | None] = POSTGRES

    def columns(self, table: ibis.Table) -> dict[str, ColumnKind]:
        parameter = self.backend.con.info.parameter_status
        encodings = {parameter("server_encoding"), parameter("client_encoding")}
        # Ibis would not ask for these columns themselves.
        found: dict[str, ColumnKind] = {
            name: Unreadable.of_type(type(kind).__name__.lower())
            for name, kind in table.schema().items()
            if kind.is_json() or kind.is_geospatial()
        }
        for name, oid in self._type_numbers(table, [name for name in table.columns if name not in found]):
            kind = table.schema()[name]
            if kind.is_string() or oid in _TEXT_TYPES:  # enumerations have numbers of their own
                other = Unreadable.of_type("text in another encoding than UTF8")
                found[name] = pa.string() if encodings == {"UTF8"} else other
            elif oid in _NUMBERS or oid in _TIMES:
                found[name] = pa.type_for_alias({**_NUMBERS, **_TIMES}[oid])
            elif oid in (_ZONED, _BYTES):
                found[name] = pa.timestamp("us", "UTC") if oid == _ZONED else pa.binary()
            else:
                known = self.backend.con.adapters.types.get(oid)
                found[name] = None if oid in _FETCHED else Unreadable.of_type(known.name if known else "unknown")
        return found

    def fetched(self, table: ibis.Table, columns: Sequence[str]) -> ibis.Table:
        """Without long text: the server cannot send a gigabyte of it, and does not fetch what it keeps elsewhere."""
        found: dict[str, Any] = {}
        for name, oid in self._type_numbers(table, columns):
            column: Expression = table[name]
            if oid not in _NOT_TEXT and not column.type().is_binary():
                column = column.cast("string")
            found[name] = self.readable(column)
        return table.select(**found)

    def rows(self, table: ibis.Table) -> Iterator[Batch]:
        """What has no Python value is missing."""
        names, connection = table.columns, self.backend.con
        with connection.transaction(), connection.cursor(name="hdmm") as cursor:
            for oid in (*_FETCHED, _PADDED):
                cursor.adapters.register_loader(oid, _careful(cursor.adapters.get_loader(oid, psycopg.pq.Format.TEXT)))
            cursor.execute(self.backend.compile(table))
            while fetched := cursor.fetchmany(FETCHED_AT_ONCE):
                yield dict(zip(names, map(list, zip(*fetched, strict=True)), strict=True))

    @contextmanager
    def snapshot(self, table: ibis.Table, asked: CountRequest) -> Generator[None]:
        """One transaction that sees the table as it is at its beginning; a setting holds a key that the server draws.

        The key is in no statement, so no log has it. It stays as long as the session.
        """
        connection = self.backend.con
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with connection.transaction():
            if idle:
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.execute(
                "SELECT set_config(name, coalesce(nullif(current_setting(name, true), ''), gen_random_uuid()::text || "
                "gen_random_uuid()::text), false) FROM (VALUES (%s::text)) AS asked (name)",
                [key_setting(asked.key)],
            )
            yield

    def parts(self, asked: CountRequest, rows: object, groupings: int) -> list[PeoplePart]:
        return EVERYONE

    def compared(self, table: ibis.Table, columns: Sequence[str]) -> Mapping[str, Expression]:
        found: dict[str, Expression] = {}
        for name, oid in self._type_numbers(table, columns):
            column: Expression = table[name]
            if column.type().is_unknown() and (oid in _NUMBERS or oid in _TEXT_TYPES):
                column = column.cast(
                    _NAMES.get(oid, "string")
                )  # a domain of the database, whose name Ibis does not know
            if oid in _COUNTED and not column.type().is_unknown():
                # Text without the collation of its column, which patterns may not accept, and without padding.
                found[name] = _text_of(_bytes_of(column)) if oid in _TEXT_TYPES else column
        return found

    def _type_numbers(self, table: ibis.Table, columns: Sequence[str]) -> list[tuple[str, int]]:
        if not columns:
            return []
        connection = self.backend.con
        try:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(self.backend.compile(table.select(list(columns)).limit(0)))
                return [(name, each.type_code) for name, each in zip(columns, cursor.description, strict=True)]
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
