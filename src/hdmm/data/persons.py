"""At most k rows of each person, inside an engine: the k with the least keyed hash of (person, cells).

This is the choice of bounded.py, by a window over SHA-256. A person is named as in identity.py; ids of types for which
an engine has no exact name are not chosen among there.

The key must not be in a log (docs/attack-model.md), and the text of a query usually is. So PostgreSQL draws the key
itself, into a setting of the session; other engines get it as a table of one row, which their plans do not show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from hdmm.data.dialects import KNOWN, Expression, bytes_of, setting, sha256, shortest_decimal, valid_text
from hdmm.data.numerals import person_of_text, with_numerals
from hdmm.lazy import Lazy

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")


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


def chosen(rows: ibis.Table, person: str, cells: Sequence[str], *, k: int, key: bytes, engine: str) -> ibis.Table:
    """At most k rows of each person. Rows of one person that tie are equal, so any of them may be kept."""
    if engine == "postgres":
        rows = rows.mutate(hdmm_key=setting(key_setting(key)))
    else:
        rows = rows.cross_join(ibis.memtable({"hdmm_key": [key.hex()]}))
    said: Expression = rows["hdmm_key"]
    for name in cells:
        said = said + "," + ibis.coalesce(rows[name].cast("string"), "")
    who = rows[person]
    hashed = rows.mutate(
        hdmm_hash=sha256(engine, said + "," + who.cast("string")),
        hdmm_person=bytes_of(engine, who) if who.type().is_string() else who,
    )
    ranked = hashed.mutate(
        hdmm_rank=ibis.row_number().over(ibis.window(group_by=hashed["hdmm_person"], order_by=hashed["hdmm_hash"]))
    )
    rank: Expression = ranked["hdmm_rank"]
    return ranked.filter(rank < k).select(*cells)


def key_setting(key: bytes) -> str:
    """The name of the setting that holds the key of a Data object in PostgreSQL; the key cannot be told from it."""
    return f"hdmm.key_{hashlib.blake2b(key, digest_size=8).hexdigest()}"
