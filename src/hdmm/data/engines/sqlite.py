"""SQLite counts with our own functions: its columns hold values of any type, and it runs in this process.

Cells and people are named by the same code as for rows that are read, so they are exact for every value. The functions
take text as bytes, because Python fails on text that is not UTF-8 (security I1), and get no text that is longer than
any text inside a domain (security I9). With ids, SQLite gives the cells and the person of each row, among which
bounded.py chooses: a window of SQLite would hold all rows of a person in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, final

import numpy as np

from hdmm.data.bounded import Rows, bounded, name_words
from hdmm.data.counting import smallest_type
from hdmm.data.engines.local import reading_sqlite, sqlite_snapshot
from hdmm.data.identity import identity
from hdmm.describe.entries import LONGEST_TEXT
from hdmm.describe.values import DROPPED, Values

Stored: TypeAlias = "int | float | bytes | None"

_CACHED = 2**16  # values of a column
_CACHED_BYTES = 64  # of a value: 2¹⁶ of the longest texts would take a quarter of a gigabyte
_ROWS_AT_ONCE = 2**16  # of Python objects
_MOST_BYTES = 2 * LONGEST_TEXT  # of text in UTF-16 that has LONGEST_TEXT bytes in UTF-8


@final
@dataclass(frozen=True, slots=True)
class RowsOfSqlite:
    """Rows to be counted: a query, its columns from which the cells are read, and the column of ids with its bound.

    All names in the query are ours.
    """

    table: str
    cells: Sequence[tuple[str, Values]]
    who: str | None
    k: int
    key: bytes = field(repr=False)

    def grouped(self, places: Sequence[int]) -> str:
        """A query that counts the rows by the cells at these places, as columns c0, c1, …"""
        names = [f"c{place}" for place in range(len(self.cells))]
        inside = " AND ".join(f"{name} IS NOT NULL" for name in names)
        by = [f"c{place}" for place in places]
        counted = _query([*by, "count(*) AS n"], "coded", inside)
        return f"WITH coded AS MATERIALIZED ({self._coded()}) {counted}" + (f" GROUP BY {', '.join(by)}" if by else "")

    def chosen(self, connection: sqlite3.Connection) -> Rows | None:
        """At most k rows of each person; None if there are none. 2·k rows per person in memory."""
        return bounded(self.key, self.k, self._owned(connection))

    def _owned(self, connection: sqlite3.Connection) -> Iterator[Rows]:
        types = [smallest_type(values.size) for _, values in self.cells]
        with closing(connection.execute(self._coded())) as cursor:
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                inside = [row for row in rows if None not in row]
                *cells, people = zip(*inside, strict=True) if inside else [()] * (len(types) + 1)
                named = np.frombuffer(b"".join(people), np.uint64).reshape(-1, 2)
                yield Rows(named, [np.array(codes, kind) for codes, kind in zip(cells, types, strict=True)])

    def _coded(self) -> str:
        """A query for the codes of all rows as columns c0, c1, …, and their people; NULL outside of the domain."""
        coded = [f"hdmm_cell_{i}{_given(column)} AS c{i}" for i, (column, _) in enumerate(self.cells)]
        person = [] if self.who is None else [f"hdmm_person{_given(self.who)} AS person"]
        return _query([*coded, *person], f"({self.table})")


@contextmanager
def counting_in_sqlite(connection: sqlite3.Connection, rows: RowsOfSqlite) -> Generator[None]:
    """Inside the block, queries for these rows find their functions, and one state of the table."""
    text = _reader_of_text(connection.execute("PRAGMA encoding").fetchone()[0])
    functions: list[tuple[str, int, Callable[..., int | bytes | None]]] = [
        ("hdmm_person", 2, _person(rows.key, text)),
        *((f"hdmm_cell_{place}", 2, _cell(values, text)) for place, (_, values) in enumerate(rows.cells)),
    ]
    with reading_sqlite(connection), sqlite_snapshot(connection), ExitStack() as stack:
        for name, arguments, function in functions:
            connection.create_function(name, arguments, function, deterministic=True)
            stack.callback(connection.create_function, name, arguments, None)
        yield


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
