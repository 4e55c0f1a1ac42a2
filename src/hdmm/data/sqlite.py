"""SQLite counts with our own functions: its columns hold values of any type, and it runs in this process.

Cells and people are named by the same code as for rows that are read, so they are exact for every value, and rows stay
in the engine. The functions take text as bytes, because Python fails on text that is not UTF-8 (security I1).
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, final

from hdmm.data.bounded import name_words
from hdmm.data.engines import reading_sqlite, sqlite_snapshot
from hdmm.data.identity import identity
from hdmm.data.persons import PeoplePart
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

    def grouped(self, places: Sequence[int], part: PeoplePart) -> str:
        """A query that counts the rows of a part of the people by the cells at these places, as columns c0, c1, …"""
        names = [f"c{place}" for place in places]
        by = f" GROUP BY {', '.join(names)}" if names else ""
        return f"{self._kept(part)} {_query([*names, 'count(*) AS n'], 'kept')}{by}"

    def _kept(self, part: PeoplePart) -> str:
        """A common table expression `kept`: the rows that are counted, as codes c0, c1, …"""
        given = "(typeof({0}), CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END)".format
        names = [f"c{place}" for place in range(len(self.cells))]
        coded = [f"hdmm_cell_{i}{given(column)} AS c{i}" for i, (column, _) in enumerate(self.cells)]
        theirs = ""
        if self.who is not None:
            person = f"hdmm_person{given(self.who)}"
            coded.append(f"{person} AS person")
            theirs = f"hdmm_part({person}, {part.of}) = {part.number}" if part.of > 1 else ""
        inside = " AND ".join(f"{name} IS NOT NULL" for name in [*names, *([] if self.who is None else ["person"])])
        listed = ", ".join(names)
        rows = f"WITH coded AS MATERIALIZED ({_query(coded, f'({self.table})', theirs)}), kept AS"
        if self.who is None:
            return f"{rows} ({_query(names, 'coded', inside)})"
        rank = f"row_number() OVER (PARTITION BY person ORDER BY hdmm_hash(person, {listed})) AS place"
        ranked = _query([*names, rank], "coded", inside)
        return f"{rows} ({_query(names, f'({ranked})', f'place <= {self.k}')})"


@contextmanager
def counting_in_sqlite(connection: sqlite3.Connection, rows: RowsOfSqlite) -> Generator[None]:
    """Inside the block, queries for these rows find their functions, and one state of the table."""
    text = _reader_of_text(connection.execute("PRAGMA encoding").fetchone()[0])
    functions: list[tuple[str, int, Callable[..., int | bytes | None]]] = [
        ("hdmm_person", 2, _person(rows.key, text)),
        ("hdmm_part", 2, _part),
        ("hdmm_hash", -1, _hash(rows.key)),
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


def _part(person: bytes | None, parts: int) -> int | None:
    """The number of the part of the people that a person is in; a row without a person is in none."""
    return None if person is None else zlib.crc32(person) % parts


def _hash(key: bytes) -> Callable[..., bytes]:
    def hashed(person: bytes, *codes: int) -> bytes:
        row = person + b"".join(code.to_bytes(8, "little") for code in codes)
        return hashlib.blake2b(row, digest_size=_HASH_BYTES, key=key).digest()

    return hashed
