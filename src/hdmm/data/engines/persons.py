"""At most k rows of each person, inside an engine: the k with the least keyed hash of (person, cells).

This is the choice of bounded.py, by SHA-256. A person is named as in identity.py; ids of types for which an engine has
no exact name are not chosen among there.

No number of rows of one person may be too many (security I1). DuckDB must not write to disk, so it is asked for the k
least rows of each person as an aggregate, which takes memory for k rows of a person at most, and for the people in
parts, each of which fits in its memory: what is kept of a person depends on no one else. Servers have disks: they group
the rows of each person by their cells, and sort groups instead of rows. Rows of one person that tie are equal, so the k
least rows are the least groups, of which the last is cut.

The key must not be in a log (docs/trust/attack-model.md), and the text of a query usually is. So PostgreSQL draws the
key itself, into a setting of the session; other engines get it as a table of one row, which their plans do not show.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, final

from hdmm.base.lazy import Lazy
from hdmm.data.engines.dialects import (
    KNOWN,
    Expression,
    bytes_of,
    digest_in_duckdb,
    least_in_duckdb,
    setting,
    sha256,
    shortest_decimal,
    text_of,
)
from hdmm.data.engines.numerals import person_of_text, with_numerals
from hdmm.data.engines.packing import Packing

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

_KEY_DIGITS = 32  # 128 bits; a longer text is hashed in two blocks
_ROWS, _GROUP_ROWS = "hdmm_rows", "hdmm_group"
_ALL_ROWS = 2**62  # more than any engine counts
MOST_ROWS_IN_DUCKDB = 10**6 - 1  # per person: its aggregates keep no more

# What a row takes in DuckDB if it is the only one of its person, half as much again as was measured: 98 bytes with one
# word, 117 with an id of text, 357 with four words.
_BYTES_PER_ROW, _BYTES_PER_WORD = 60, 120


@final
@dataclass(frozen=True, slots=True)
class PeoplePart:
    """One of several parts of the people. Everyone is in exactly one of them."""

    number: int = 0
    of: int = 1

    def rows(self, rows: ibis.Table, person: str) -> ibis.Table:
        """The rows of its people, by a hash of the engine: it need not be secret, because it decides no count."""
        hashed: Expression = rows[person].hash()
        return rows.filter((hashed % self.of + self.of) % self.of == self.number) if self.of > 1 else rows


def parts_of_people(memory: float, rows: int, cells: Sequence[int]) -> list[PeoplePart]:
    """Parts whose rows take half of an engine's memory at most, even if each is of another person."""
    held = rows * (_BYTES_PER_ROW + _BYTES_PER_WORD * len(Packing(tuple(cells)).words))
    parts = max(math.ceil(2 * held / memory), 1)
    return [PeoplePart(number, parts) for number in range(parts)]


def with_person(rows: ibis.Table, column: str, engine: str) -> tuple[ibis.Table, Expression | None]:
    """The name of each row's person, NULL if it has none; None if the engine cannot name them exactly."""
    who = rows[column]
    kind = who.type()
    if engine not in KNOWN:
        return rows, None
    if kind.is_string():
        rows, spelled = with_numerals(rows, column, engine)
        return rows, person_of_text(rows[column], spelled, engine)
    return rows, _name(who, engine)


def _name(who: Expression, engine: str) -> Expression | None:
    kind = who.type()
    if kind.is_integer():
        return who
    if kind.is_boolean():
        return ibis.cases((who, 1), (~who, 0))
    if kind.is_decimal() and engine == "postgres":  # which keeps zeros at the end, and has numbers that are none
        text = shortest_decimal(who).cast("string")
        return text.isin(["NaN", "Infinity", "-Infinity"]).ifelse(ibis.null(), text)
    if kind.is_date() and engine == "postgres":  # others have no value in Python, and are missing
        return who.between(ibis.literal(date.min), ibis.literal(date.max)).ifelse(who, ibis.null()).cast("string")
    if kind.is_decimal() or kind.is_date() or kind.is_uuid():
        return who.cast("string")
    return None


def chosen(rows: ibis.Table, person: str, cells: Mapping[str, int], *, k: int, key: bytes, engine: str) -> ibis.Table:
    """At most k rows of each person, as codes; `cells` has the size of each. See counted_rows for their number."""
    packing = Packing(tuple(cells.values()))
    words = {f"w{place}": word for place, word in enumerate(packing.packed([rows[name] for name in cells]))}
    rows = rows.select(hdmm_person=rows[person], **words)
    if engine == "duckdb":
        kept = _least_in_duckdb(rows, list(words), k, key)
    else:
        kept = _least_groups(rows, list(words), k, key, engine)
    codes = dict(zip(cells, packing.unpacked([kept[word] for word in words]), strict=True))
    return kept.select(**codes, **{name: kept[name] for name in kept.columns if name == _ROWS})


def counted_rows(rows: ibis.Table) -> Expression:
    """The number of rows, if they are what `chosen` returns or rows of the table."""
    if _ROWS not in rows.columns:
        return rows.count()
    number: Expression = rows[_ROWS]
    return number.sum().cast("int64")


def _least_in_duckdb(rows: ibis.Table, words: Sequence[str], k: int, key: bytes) -> ibis.Table:
    """Text that names a person may be long, so a digest of it stands for it: each row takes the same memory."""
    keyed = _with_key(rows, key, "duckdb")
    who: Expression = keyed["hdmm_person"]
    secret: Expression = keyed["hdmm_key"]
    named = digest_in_duckdb(secret + "," + who) if who.type().is_string() else who
    hashed = keyed.select(*words, hdmm_person=named, hdmm_hash=sha256("duckdb", _said(keyed, words, who)))
    least = [least_in_duckdb(hashed[word], hashed["hdmm_hash"], k).name(word) for word in words]
    lists: Expression = hashed.aggregate(least, by=[hashed["hdmm_person"]])
    return lists.select(**{word: lists[word].unnest() for word in words})


def _least_groups(rows: ibis.Table, words: Sequence[str], k: int, key: bytes, engine: str) -> ibis.Table:
    """Groups of rows of one person with one cell each; _ROWS of each are kept, which is its number of rows or fewer."""
    who: Expression = rows["hdmm_person"]
    text = who.type().is_string()
    rows = rows.mutate(hdmm_person=bytes_of(engine, who)) if text else rows
    by = [rows[name] for name in ("hdmm_person", *words)]
    grouped = _with_key(rows.aggregate([rows.count().name(_GROUP_ROWS)], by=by), key, engine)
    who = text_of(engine, grouped["hdmm_person"]) if text else grouped["hdmm_person"]
    hashed = grouped.mutate(hdmm_hash=sha256(engine, _said(grouped, words, who)))
    order = [hashed[name] for name in ("hdmm_hash", *words)]
    number: Expression = hashed[_GROUP_ROWS]
    upto = number.sum().over(ibis.cumulative_window(group_by=hashed["hdmm_person"], order_by=order))
    left: Expression = min(k, _ALL_ROWS) - (upto.cast("int64") - number)  # of k rows, what the groups before it leave
    ranked: Expression = hashed.mutate(hdmm_left=left)
    kept = ranked.filter(ranked["hdmm_left"] > 0)
    return kept.select(*words, **{_ROWS: ibis.least(kept[_GROUP_ROWS], kept["hdmm_left"])})


def _with_key(rows: ibis.Table, key: bytes, engine: str) -> ibis.Table:
    if engine == "postgres":
        return rows.mutate(hdmm_key=setting(key_setting(key)))
    return rows.cross_join(ibis.memtable({"hdmm_key": [key.hex()[:_KEY_DIGITS]]}))


def _said(rows: ibis.Table, words: Sequence[str], who: Expression) -> Expression:
    """What is hashed of a row: the key, its codes and its person."""
    said: Expression = rows["hdmm_key"]
    for word in words:
        said = said + "," + rows[word].cast("string")
    return said + "," + who.cast("string")


def key_setting(key: bytes) -> str:
    """The name of the setting that holds the key of a Data object in PostgreSQL; the key cannot be told from it."""
    return f"hdmm.key_{hashlib.blake2b(key, digest_size=8).hexdigest()}"
