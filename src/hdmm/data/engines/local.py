"""Engines that run inside this process, DuckDB and SQLite: they read one database, and leave nothing on disk.

DuckDB is opened in one way only: for reading, without temporary files, extensions, network or other files, and with a
locked configuration (security O4). A connection that a user has opened is not changed: its settings are examined, and
it is refused if they differ. SQLite removes a temporary file as soon as it has opened it, so none outlives a process;
where possible it is set to make none at all.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.describe.entries import LONGEST_TEXT

if TYPE_CHECKING:
    import duckdb
    import ibis
    import pyarrow as pa
else:
    duckdb, ibis = Lazy("duckdb"), Lazy("ibis")

Backend: TypeAlias = Any  # of Ibis, which does not say what it is

READS_OTHER_FILES = (
    "{} reads from outside its database, such as another file or the network, which is not allowed. Copy what it "
    "reads into a table of the database."
)

# The last one is set after the others: without access to files DuckDB accepts no temp_directory, not even an empty one.
_PRIVATE = {
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "enable_external_access": "false",
}
_AT_START: dict[str, str | bool | int | float | list[str]] = {
    **{name: value for name, value in _PRIVATE.items() if name != "enable_external_access"},
    "arrow_large_buffer_size": True,  # without it 2 GiB of text among 2²⁰ rows are an error
}
_ELSEWHERE = ("datafusion", "polars")  # engines of Ibis that run in this process without these limits
_TEMP_STORE_MEMORY = 2
_LENGTHS = {"varchar": "strlen", "blob": "octet_length", "bit": "octet_length"}  # in bytes; JSON is varchar too
_FETCHED_AT_ONCE = 2**16  # rows; with the longest texts, a quarter of a gigabyte per column
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_opening = Lock()  # connections to one file share a configuration, which the first of them locks


def open_duckdb(file: Path) -> duckdb.DuckDBPyConnection:
    """A connection to a database in a file, which it can read and nothing else."""
    with _opening:
        connection = duckdb.connect(str(file), read_only=True, config=_AT_START)
        _lock(connection)
    return connection


def memory_backend() -> Backend:
    """Ibis on a DuckDB database of our own, in memory: for tables that Ibis holds and no connection does."""
    connection = duckdb.connect(":memory:", config=_AT_START)
    backend = ibis.duckdb.from_connection(connection)  # Ibis changes some settings here
    _lock(connection)
    return backend


def check_backend(backend: Backend) -> None:
    """Refuse a connection of Ibis whose engine runs in this process and may write or read other files."""
    if backend.name in _ELSEWHERE:
        raise DataError(
            f"The Ibis table is computed by {backend.name} inside this process, where it may write temporary files. "
            "Give the frame, or the path of the file, that the table comes from."
        )
    if backend.name == "duckdb":
        _check_duckdb(backend.con)


def engine_memory(backend: Backend) -> float:
    """The bytes of memory in which an engine must choose rows; infinite if it has a disk, and if it does not choose."""
    match backend.name:
        case "duckdb":
            size, unit = _settings(backend.con, "memory_limit")["memory_limit"].split()
            return float(size) * _UNITS.get(unit, math.inf)
        case _:
            return math.inf


@contextmanager
def reading_sqlite(connection: sqlite3.Connection) -> Generator[None]:
    """Inside the block, the connection writes nothing, and text that is not UTF-8 is missing (security I1)."""
    before, query_only = connection.text_factory, _pragma(connection, "query_only")
    _keep_in_memory(connection)
    connection.execute("PRAGMA query_only = ON")
    connection.text_factory = _text_or_missing  # Python's own reader would fail
    try:
        yield
    finally:
        connection.text_factory = before
        connection.execute(f"PRAGMA query_only = {int(query_only)}")


@contextmanager
def sqlite_snapshot(connection: sqlite3.Connection) -> Generator[None]:
    """One transaction for all queries in the block, unless a user has begun one."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.rollback()  # nothing was written


@contextmanager
def duckdb_snapshot(connection: duckdb.DuckDBPyConnection) -> Generator[None]:
    """One transaction for all queries in the block, unless a user has begun one."""
    try:
        connection.begin()
    except duckdb.TransactionException:
        yield
        return
    try:
        yield
    finally:
        connection.rollback()  # nothing was written


def duckdb_batches(backend: Backend, table: ibis.Table) -> Iterator[pa.RecordBatch]:
    """The rows as DuckDB gives them to Arrow. Ibis 12 would hold all of them at once, and convert their types."""
    backend._run_pre_execute_hooks(table)  # pyright: ignore[reportPrivateUsage]  # which registers tables in memory
    yield from backend.con.sql(backend.compile(table)).to_arrow_reader(_FETCHED_AT_ONCE)


def short_columns(rows: duckdb.DuckDBPyRelation, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns of all rows. Text and bytes that are longer than LONGEST_TEXT are missing (security I9)."""
    kinds = {name: kind.id for name, kind in zip(rows.columns, rows.types, strict=True)}
    listed = ", ".join(f"{_short(quoted(name), kinds[name])} AS {quoted(name)}" for name in columns)
    yield from rows.project(listed).to_arrow_reader(_FETCHED_AT_ONCE)


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def spark_batches(backend: Backend, table: ibis.Table) -> Iterator[pa.RecordBatch]:
    """The rows as Spark gives them to Arrow. Ibis 12 would make a frame of pandas, which fails on times far away."""
    backend._run_pre_execute_hooks(table)  # pyright: ignore[reportPrivateUsage]
    yield from backend.raw_sql(backend.compile(table)).toArrow().to_batches(max_chunksize=_FETCHED_AT_ONCE)


def open_sqlite(file: Path) -> Backend:
    """Ibis on a database of SQLite, opened for reading only."""
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    return ibis.sqlite.from_connection(connection)


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Lock the settings, and check that they are ours."""
    if (
        _settings(connection, "lock_configuration")["lock_configuration"] != "true"
    ):  # by another connection to the same file
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    _check_duckdb(connection)


def _check_duckdb(connection: duckdb.DuckDBPyConnection) -> None:
    found = _settings(connection, *_PRIVATE)
    if wrong := {name: value for name, value in _PRIVATE.items() if found.get(name) != value}:
        statements = "; ".join(f"SET {name} = {value or repr(value)}" for name, value in wrong.items())
        raise DataError(
            "The DuckDB connection of the Ibis table may write temporary files, read other files or load "
            "extensions. Give the path of the database and the name of the table instead, "
            f'or run connection.raw_sql("{statements}") first.'
        )
    others = "SELECT type = 'duckdb', readonly OR path IS NULL FROM duckdb_databases() WHERE NOT internal"
    for ours, quiet in connection.execute(others).fetchall():
        if not (ours and quiet):
            raise DataError(
                "The DuckDB connection of the Ibis table is open for writing, or has a database of another kind "
                "attached. Open the one database with read_only=True, or give its path and the name of the table."
            )


def _settings(connection: duckdb.DuckDBPyConnection, *wanted: str) -> dict[str, str]:
    query = "SELECT name, value FROM duckdb_settings() WHERE list_contains(?, name)"
    return dict(connection.execute(query, [list(wanted)]).fetchall())


def _short(column: str, kind: str) -> str:
    return f"CASE WHEN {_LENGTHS[kind]}({column}) <= {LONGEST_TEXT} THEN {column} END" if kind in _LENGTHS else column


def _keep_in_memory(connection: sqlite3.Connection) -> None:
    """Make SQLite sort and group in memory, unless a user would lose temporary tables by it."""
    if _pragma(connection, "temp_store") == _TEMP_STORE_MEMORY or connection.in_transaction:
        return
    if not connection.execute("SELECT count(*) FROM sqlite_temp_master").fetchone()[0]:
        connection.execute("PRAGMA temp_store = MEMORY")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _text_or_missing(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
