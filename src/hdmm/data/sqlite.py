"""SQLite counts with our own functions: its columns hold values of any type, and it runs in this process.

Cells and people are named by the same code as for rows that are read, so they are exact for every value, and rows stay
in the engine. The functions take text as bytes, because Python fails on text that is not UTF-8 (security I1).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, final

import numpy as np

from hdmm.data.bounded import name_words
from hdmm.data.engines import reading_sqlite, sqlite_snapshot
from hdmm.data.identity import identity
from hdmm.data.source import ROWS_AT_ONCE, Batch
from hdmm.values import DROPPED, Values

Stored: TypeAlias = "int | float | bytes | None"

_CACHED = 2**16
_HASH_BYTES = 16


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

    @property
    def kept(self) -> str:
        """A common table expression `kept`: the rows that are counted, as codes c0, c1, …"""
        given = "(typeof({0}), CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END)".format
        names = [f"c{place}" for place in range(len(self.cells))]
        coded = [f"hdmm_cell_{i}{given(column)} AS c{i}" for i, (column, _) in enumerate(self.cells)]
        coded += [] if self.who is None else [f"hdmm_person{given(self.who)} AS person"]
        inside = " AND ".join(f"{name} IS NOT NULL" for name in [*names, *([] if self.who is None else ["person"])])
        listed = ", ".join(names)
        rows = f"WITH coded AS MATERIALIZED ({_query(coded, f'({self.table})')}), kept AS"
        if self.who is None:
            return f"{rows} ({_query(names, 'coded', inside)})"
        rank = f"row_number() OVER (PARTITION BY person ORDER BY hdmm_hash(person, {listed})) AS place"
        ranked = _query([*names, rank], "coded", inside)
        return f"{rows} ({_query(names, f'({ranked})', f'place <= {self.k}')})"


def grouped_by_sqlite(
    connection: sqlite3.Connection,
    rows: RowsOfSqlite,
    groupings: Callable[[Callable[[], int]], Sequence[Sequence[int]]],
) -> Iterator[tuple[int, Batch]]:
    """The number of a grouping and groups of rows, as columns c0, c1, … and n, all from one state of the table.

    `groupings` is asked once for places of cells, and may ask for the number of rows.
    """
    text = _reader_of_text(connection.execute("PRAGMA encoding").fetchone()[0])
    functions: list[tuple[str, int, Callable[..., int | bytes | None]]] = [
        ("hdmm_person", 2, _person(rows.key, text)),
        ("hdmm_hash", -1, _hash(rows.key)),
        *((f"hdmm_cell_{place}", 2, _cell(values, text)) for place, (_, values) in enumerate(rows.cells)),
    ]
    with reading_sqlite(connection), sqlite_snapshot(connection), ExitStack() as stack:
        for name, arguments, function in functions:
            connection.create_function(name, arguments, function, deterministic=True)
            stack.callback(connection.create_function, name, arguments, None)
        total = f"{rows.kept} {_query(['count(*)'], 'kept')}"
        for number, places in enumerate(groupings(lambda: int(connection.execute(total).fetchone()[0]))):
            names = [f"c{place}" for place in places]
            by = f" GROUP BY {', '.join(names)}" if names else ""
            query = f"{rows.kept} {_query([*names, 'count(*)'], 'kept')}{by}"
            with closing(connection.execute(query)) as cursor:
                while fetched := cursor.fetchmany(ROWS_AT_ONCE):
                    columns = map(np.array, zip(*fetched, strict=True))
                    yield number, dict(zip([*names, "n"], columns, strict=True))


def _query(columns: Sequence[str], table: str, where: str = "") -> str:
    """A query of expressions and tables whose names are all ours."""
    return " ".join(["SELECT", ", ".join(columns), "FROM", table, *(["WHERE", where] if where else [])])


def _reader_of_text(encoding: str) -> Callable[[bytes], str | None]:
    def text(raw: bytes) -> str | None:
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            return None

    return text


def _cell(values: Values, text: Callable[[bytes], str | None]) -> Callable[[str, Stored], int | None]:
    @lru_cache(_CACHED)
    def code(kind: str, value: Stored) -> int | None:
        plain = text(value) if kind == "text" and isinstance(value, bytes) else value
        found = int(values.encode([plain])[0])
        return None if found == DROPPED else found

    return code


def _person(key: bytes, text: Callable[[bytes], str | None]) -> Callable[[str, Stored], bytes | None]:
    def person(kind: str, value: Stored) -> bytes | None:
        who = identity(text(value) if kind == "text" and isinstance(value, bytes) else value)
        return None if who is None else name_words(key, who)

    return person


def _hash(key: bytes) -> Callable[..., bytes]:
    def hashed(person: bytes, *codes: int) -> bytes:
        row = person + b"".join(code.to_bytes(8, "little") for code in codes)
        return hashlib.blake2b(row, digest_size=_HASH_BYTES, key=key).digest()

    return hashed
