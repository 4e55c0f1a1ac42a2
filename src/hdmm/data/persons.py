"""At most k rows of each person, inside an engine: the k with the least keyed hash of (person, cells).

This is the choice of bounded.py, by a window over SHA-256. A person is named as in identity.py; ids of types for which
an engine has no exact name are not chosen among there.

The window holds all rows among which it chooses. An engine that must not write them to disk is asked for the people in
parts, each of which fits in its memory: what is kept of a person depends on no one else.

The key must not be in a log (docs/attack-model.md), and the text of a query usually is. So PostgreSQL draws the key
itself, into a setting of the session; other engines get it as a table of one row, which their plans do not show.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, final

from hdmm.data.dialects import KNOWN, Expression, bytes_of, setting, sha256, shortest_decimal, valid_text
from hdmm.data.numerals import person_of_text, with_numerals
from hdmm.data.packing import Packing
from hdmm.lazy import Lazy

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

_KEY_DIGITS = 32  # 128 bits; a longer text is hashed in two blocks

# What a row takes in a window of DuckDB, half as much again as was measured (41 bytes; 84 with text of 13).
_BYTES_PER_ROW, _BYTES_PER_WORD, _BYTES_PER_TEXT = 56, 12, 64


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


def parts_of_people(memory: float, rows: int, letters: int, cells: Sequence[int]) -> list[PeoplePart]:
    """Parts whose rows take half of an engine's memory at most, if ids of text have so many letters in all.

    One person is in one part, however many rows they have.
    """
    held = rows * (_BYTES_PER_ROW + _BYTES_PER_WORD * len(Packing(tuple(cells)).words))
    held += letters + rows * _BYTES_PER_TEXT if letters else 0
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
        return rows, person_of_text(valid_text(engine, rows[column]), spelled, engine)
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
    """At most k rows of each person, as codes; `cells` has the size of each.

    Rows of one person that tie are equal, so any of them may be kept.
    """
    if engine == "postgres":
        rows = rows.mutate(hdmm_key=setting(key_setting(key)))
    else:
        rows = rows.cross_join(ibis.memtable({"hdmm_key": [key.hex()[:_KEY_DIGITS]]}))
    packing = Packing(tuple(cells.values()))
    words = {f"w{place}": word for place, word in enumerate(packing.packed([rows[name] for name in cells]))}
    rows = rows.select("hdmm_key", person, **words)
    said: Expression = rows["hdmm_key"]
    for word in words:
        said = said + "," + rows[word].cast("string")
    who = rows[person]
    hashed = rows.select(
        *words,
        hdmm_hash=sha256(engine, said + "," + who.cast("string")),
        hdmm_person=bytes_of(engine, who) if who.type().is_string() else who,
    )
    order = [hashed[name] for name in ("hdmm_hash", *words)]
    ranked = hashed.mutate(
        hdmm_rank=ibis.row_number().over(ibis.window(group_by=hashed["hdmm_person"], order_by=order))
    )
    rank: Expression = ranked["hdmm_rank"]
    kept = ranked.filter(rank < k)
    return kept.select(**dict(zip(cells, packing.unpacked([kept[word] for word in words]), strict=True)))


def key_setting(key: bytes) -> str:
    """The name of the setting that holds the key of a Data object in PostgreSQL; the key cannot be told from it."""
    return f"hdmm.key_{hashlib.blake2b(key, digest_size=8).hexdigest()}"
