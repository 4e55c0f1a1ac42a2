"""DuckDB, which runs inside this process: it reads one database, and leaves nothing on disk.

It is opened in one way only: for reading, without temporary files, extensions, network or other files, and with a
locked configuration (security O4). A connection that a user has opened is not changed: its settings are examined, and
it is refused if they differ.

No number of rows of one person may be too many for its memory (security I1). So it is asked for the k least rows of
each person as an aggregate, which takes memory for k rows of a person at most, and for the people in parts, each of
which fits in its memory: what is kept of a person depends on no one else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, cast, final

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.counting import GroupCounts
from hdmm.data.counts import Axes, withholding
from hdmm.data.engines.dialect import Dialect, Expression, sql_function
from hdmm.data.engines.engine import FETCHED_AT_ONCE, Backend, CannotCountError, CountedSource, CountRequest, kinds_of
from hdmm.data.engines.expressions import Packing
from hdmm.data.engines.persons import EVERYONE, PeoplePart, name_of, said, with_key_row
from hdmm.data.engines.sql_engine import SqlEngine
from hdmm.data.sources.source import Batch, ColumnKind, Unreadable, of_record_batch, of_schema
from hdmm.describe.entries import LONGEST_TEXT

if TYPE_CHECKING:
    import duckdb
    import ibis
    import ibis.backends.duckdb as ibis_duckdb
    import pyarrow as pa
else:
    duckdb, ibis, ibis_duckdb = Lazy("duckdb"), Lazy("ibis"), Lazy("ibis.backends.duckdb")
    pa = Lazy("pyarrow")

MOST_ROWS_PER_PERSON = 10**6 - 1  # per person: its aggregates keep no more

_READS_OTHER_FILES = (
    "{} reads from outside its database, such as another file or the network, which is not allowed. Copy what it "
    "reads into a table of the database."
)
_TOO_MANY_ROWS = (
    "At most {:,} rows per person were asked for, and DuckDB chooses at most {:,}. Declare a smaller max_rows_per_id; "
    "or set fetch = true, and rows are fetched and chosen here."
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
_LENGTHS = {"varchar": "strlen", "blob": "octet_length", "bit": "octet_length"}  # in bytes; JSON is varchar too
_HEX_OF_INT64 = 15  # digits
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# What a row takes if it is the only one of its person, half as much again as was measured: 98 bytes with one word, 117
# with an id of text, 357 with four words. A group takes 47.
_BYTES_PER_ROW, _BYTES_PER_WORD, _BYTES_PER_GROUP = 60, 120, 70
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


def parts_of_people(memory: float, rows: int, cells: Sequence[int], groupings: int) -> list[PeoplePart]:
    """Parts whose rows take half of the memory at most, even if each is of another person, and their groups the rest,
    even if each row is a group of its own in every grouping.
    """
    of_people = _BYTES_PER_ROW + _BYTES_PER_WORD * len(Packing(tuple(cells)).words)
    parts = max(math.ceil(2 * rows * max(of_people, _BYTES_PER_GROUP * groupings) / memory), 1)
    return [PeoplePart(number, parts) for number in range(parts)]


def memory_of(connection: duckdb.DuckDBPyConnection) -> float:
    """The bytes of memory that a connection may take."""
    size, unit = _settings(connection, "memory_limit")["memory_limit"].split()
    return float(size) * _UNITS.get(unit, math.inf)


def least_rows(rows: ibis.Table, words: Sequence[str], k: int, key: bytes, dialect: Dialect) -> ibis.Table:
    """Text that names a person may be long, so a digest of it stands for it: each row takes the same memory."""
    if k > MOST_ROWS_PER_PERSON:
        raise CannotCountError(_TOO_MANY_ROWS.format(k, MOST_ROWS_PER_PERSON))
    keyed = dialect.with_key(rows, key)
    who: Expression = keyed["hdmm_person"]
    secret: Expression = keyed["hdmm_key"]
    number = sql_function("md5_number", "string", "decimal(38, 0)")  # UHUGEINT, for which Ibis has no name
    named = number(secret + "," + who) if who.type().is_string() else who
    hashed = keyed.select(*words, hdmm_person=named, hdmm_hash=dialect.digest(said(keyed, words, who)))
    least = [_least(hashed[word], hashed["hdmm_hash"], k).name(word) for word in words]
    lists: Expression = hashed.aggregate(least, by=[hashed["hdmm_person"]])
    return lists.select(**{word: lists[word].unnest() for word in words})


def _least(column: Expression, by: Expression, k: int) -> Expression:
    """The column's values in the k rows of a group with the least `by`. A group takes memory for k rows at most."""
    signature = (("int64", "int64", "int64"), "array<int64>")
    found = cast("Any", ibis.udf.agg.builtin)(lambda a, b, n: None, name="arg_min", signature=signature)  # pyright: ignore[reportUnknownLambdaType]
    return found(column, by, k)


def _digest(text: Expression) -> Expression:
    """As an integer, which takes a quarter of what the text takes: DuckDB must sort in memory."""
    digest = sql_function("sha256", "string", "string")(text)
    return (ibis.literal("0x") + digest.substr(0, _HEX_OF_INT64)).cast("int64")


DUCKDB = Dialect(
    bytes_of=sql_function("encode", "string", "binary"),
    text_of=sql_function("decode", "binary", "string"),
    digest=_digest,
    name_of=name_of,
    with_key=with_key_row,
    least=least_rows,
    length_of="strlen",
    wide_integers=True,  # HUGEINT
)


@final
@dataclass(frozen=True, slots=True)
class DuckDB(SqlEngine):
    """A connection to DuckDB."""

    backend: Backend
    name: ClassVar[str] = "duckdb"
    dialect: ClassVar[Dialect | None] = DUCKDB

    def columns(self, table: ibis.Table) -> dict[str, ColumnKind]:
        _check(self.backend.con)
        kinds = {name: _convertible(kind) for name, kind in kinds_of(table).items()}
        readable = [name for name, kind in kinds.items() if not isinstance(kind, Unreadable)]
        with withholding():
            try:  # a view that reads more than its database says so when it is asked for no rows
                list(self.rows(table.select(readable).limit(0)) if readable else [])
            except duckdb.PermissionException:
                raise DataError(_READS_OTHER_FILES.format("The Ibis table")) from None
        return kinds

    def fetched(self, table: ibis.Table, columns: Sequence[str]) -> ibis.Table:
        return table.select(**{name: self.readable(table[name]) for name in columns})

    def rows(self, table: ibis.Table) -> Iterator[Batch]:
        """As DuckDB gives them to Arrow. Ibis 12 would hold all of them at once, and convert their types."""
        self.backend._run_pre_execute_hooks(table)  # pyright: ignore[reportPrivateUsage]  # which registers tables in memory
        yield from map(
            of_record_batch, self.backend.con.sql(self.backend.compile(table)).to_arrow_reader(FETCHED_AT_ONCE)
        )

    @contextmanager
    def snapshot(self, table: ibis.Table, asked: CountRequest) -> Generator[None]:
        """One transaction for all queries in the block, unless a user has begun one."""
        try:
            self.backend.con.begin()
        except duckdb.TransactionException:
            yield
            return
        try:
            yield
        finally:
            self.backend.con.rollback()  # nothing was written

    def parts(self, asked: CountRequest, rows: Callable[[], int], groupings: int) -> list[PeoplePart]:
        if asked.id is None:
            return EVERYONE
        return parts_of_people(memory_of(self.backend.con), rows(), [part.codes for part in asked.parts], groupings)

    def compared(self, table: ibis.Table, columns: Sequence[str]) -> Mapping[str, Expression]:
        return {name: table[name] for name in columns}


@final
@dataclass(frozen=True, slots=True)
class DuckDBTable(CountedSource):
    """A table or view of a database file, opened for reading only.

    If there are ids and Ibis is installed, it is counted as over a connection, in memory that does not grow with the
    people. Without ids, rows are read and counted here, in a fifth of the time if they are text.
    """

    file: Path
    table: str
    declares_names: ClassVar[bool] = True
    may_fetch: bool = field(default=True, init=False, repr=False)
    gives_batches: bool = field(default=True, init=False, repr=False)

    def columns(self) -> dict[str, pa.DataType | None]:
        try:
            with closing(open_duckdb(self.file)) as connection:
                return of_schema(self._rows(connection).limit(0).to_arrow_reader().schema)
        except duckdb.PermissionException:
            raise DataError(_READS_OTHER_FILES.format(f"Table {self.table!r} of {self.file}")) from None
        except duckdb.ConnectionException:
            raise DataError(
                f"{self.file} is already open in this process with other settings, and DuckDB does not open a file "
                "twice with different ones. Close that connection first."
            ) from None
        except duckdb.Error:
            raise DataError(
                f"{self.file} has no table {self.table!r} that can be read. Name a table or view of the database, and "
                f"close the programs that write to it."
            ) from None

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """Text and bytes that are longer than LONGEST_TEXT are missing (security I9)."""
        with closing(open_duckdb(self.file)) as connection:
            rows = self._rows(connection)
            kinds = {name: kind.id for name, kind in zip(rows.columns, rows.types, strict=True)}
            listed = ", ".join(f"{_short(_quoted(name), kinds[name])} AS {_quoted(name)}" for name in columns)
            for batch in rows.project(listed).to_arrow_reader(FETCHED_AT_ONCE):
                yield of_record_batch(batch.rename_columns(list(columns)))

    def check_counting(self, asked: CountRequest) -> None:
        if asked.id is None:
            raise CannotCountError("Rows without ids are counted here.")
        with self._opened() as (engine, table):
            engine.check_counting(table, asked)

    def groups(self, asked: CountRequest, groupings: Sequence[Axes]) -> list[GroupCounts]:
        with self._opened() as (engine, table):
            return engine.groups(table, asked, groupings)

    @contextmanager
    def _opened(self) -> Generator[tuple[DuckDB, ibis.Table]]:
        with closing(open_duckdb(self.file)) as connection:
            try:
                backend: Any = ibis_duckdb.Backend()  # its constructors would change settings, which are locked
                backend.con, backend._record_batch_readers_consumed = connection, {}
                table = backend.table(self.table)
            except Exception:  # Ibis is not installed, or does not know a type
                raise CannotCountError(f"Table {self.table!r} of {self.file} cannot be counted there.") from None
            yield DuckDB(backend), table

    def _rows(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        return connection.sql(f"SELECT * FROM {_quoted(self.table)}")  # a name in quotes  # nosec B608


def _convertible(kind: ColumnKind) -> ColumnKind:
    """A type, unless it is one of a table in memory that DuckDB converts and that holds what it cannot convert."""
    if isinstance(kind, pa.TimestampType) and kind.tz is not None and kind.unit in ("s", "ms"):
        return Unreadable(
            f"is of type {kind}, and whether DuckDB can convert it depends on its values. Give it as microseconds, or "
            "without Ibis."
        )
    return kind


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Lock the settings, and check that they are ours."""
    locked = _settings(connection, "lock_configuration")["lock_configuration"]
    if locked != "true":  # by another connection to the same file
        connection.execute("SET enable_progress_bar = false")  # which DuckDB draws at a prompt, beside ours
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    _check(connection)


def _check(connection: duckdb.DuckDBPyConnection) -> None:
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


def _quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _short(column: str, kind: str) -> str:
    return f"CASE WHEN {_LENGTHS[kind]}({column}) <= {LONGEST_TEXT} THEN {column} END" if kind in _LENGTHS else column
