"""SQLite counts with our own functions: its columns hold values of any type, and it runs in this process.

Cells and people are named by the same code as for rows that are read, so they are exact for every value, and rows stay
in the engine. The functions take text as bytes, because Python fails on text that is not UTF-8 (security I1).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from hdmm.attribute import Attribute
from hdmm.data.bounded import name_words
from hdmm.data.engines import reading_sqlite, sqlite_snapshot
from hdmm.data.identity import identity
from hdmm.data.source import ROWS_AT_ONCE, Batch
from hdmm.values import DROPPED, Values

Stored: TypeAlias = "int | float | bytes | None"

_CACHED = 2**16
_HASH_BYTES = 16


def grouped_by_sqlite(
    connection: sqlite3.Connection,
    table: str,
    parts: Sequence[Attribute],
    *,
    bound: tuple[int, bytes] | None,
    groupings: Callable[[Callable[[], int]], Sequence[Sequence[int]]],
) -> Iterator[tuple[int, Batch]]:
    """The number of a grouping and groups of rows, as columns c0, c1, … and n. Groupings are places of `parts`.

    `table` is a query whose columns x0, x1, … are those of the parts, and whose column `who` is the id. `bound` is the
    most rows of one person and the key. `groupings` is asked once, and may ask for the number of rows.
    """
    text = _reader_of_text(connection.execute("PRAGMA encoding").fetchone()[0])
    with ExitStack() as stack:
        stack.enter_context(reading_sqlite(connection))
        stack.enter_context(sqlite_snapshot(connection))

        def offer(name: str, arguments: int, function: Callable[..., object]) -> None:
            connection.create_function(name, arguments, function, deterministic=True)
            stack.callback(connection.create_function, name, arguments, None)

        for place, part in enumerate(parts):
            offer(f"hdmm_cell_{place}", 2, _cell(part.values, text))
        if bound is not None:
            offer("hdmm_person", 2, _person(bound[1], text))
            offer("hdmm_hash", -1, _hash(bound[1]))
        kept = _kept(table, len(parts), None if bound is None else bound[0])

        def total() -> int:
            return int(connection.execute(f"{kept} SELECT count(*) FROM kept").fetchone()[0])  # nosec B608

        for number, places in enumerate(groupings(total)):
            names = [f"c{place}" for place in places]
            by = f" GROUP BY {', '.join(names)}" if names else ""
            query = f"{kept} SELECT {', '.join([*names, 'count(*)'])} FROM kept{by}"  # nosec B608
            with closing(connection.execute(query)) as cursor:
                while rows := cursor.fetchmany(ROWS_AT_ONCE):
                    columns = map(np.array, zip(*rows, strict=True))
                    yield number, dict(zip([*names, "n"], columns, strict=True))


def _kept(table: str, parts: int, k: int | None) -> str:
    """A common table expression `kept`: the rows that are counted, as codes. All names in it are ours."""
    given = "(typeof({0}), CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END)".format
    cells = [f"c{place}" for place in range(parts)]
    coded = [f"hdmm_cell_{place}{given(f'x{place}')} AS c{place}" for place in range(parts)]
    if k is not None:
        coded.append(f"hdmm_person{given('who')} AS person")
    inside = " AND ".join(f"{name} IS NOT NULL" for name in [*cells, *(["person"] if k is not None else [])])
    rows = f"WITH coded AS MATERIALIZED (SELECT {', '.join(coded)} FROM ({table})), kept AS "  # nosec B608
    if k is None:
        return f"{rows}(SELECT {', '.join(cells)} FROM coded WHERE {inside})"  # nosec B608
    rank = f"row_number() OVER (PARTITION BY person ORDER BY hdmm_hash(person, {', '.join(cells)})) AS place"
    ranked = f"SELECT {', '.join(cells)}, {rank} FROM coded WHERE {inside}"  # nosec B608
    return f"{rows}(SELECT {', '.join(cells)} FROM ({ranked}) WHERE place <= {k})"  # nosec B608


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
