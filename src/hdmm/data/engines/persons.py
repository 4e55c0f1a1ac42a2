"""At most k rows of each person, inside an engine: the k with the least keyed hash of (person, cells).

This is the choice of identity.py, by SHA-256. A person is named as there; ids of types for which an engine has no exact
name are not chosen among in it.

No number of rows of one person may be too many (security I1). Servers have disks: they group the rows of each person by
their cells, and sort groups instead of rows. Rows of one person that tie are equal, so the k least rows are the least
groups, and the last is cut. DuckDB, which must not write to disk, has its own way (duckdb.py).

The key must not be in a log (docs/trust/attack-model.md), and the text of a query usually is. So engines get it as a
table of one row, which their plans do not show, or draw it themselves, as PostgreSQL does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from hdmm.base.lazy import Lazy
from hdmm.data.engines.dialect import ALL_ROWS, Dialect, Expression
from hdmm.data.engines.expressions import Packing
from hdmm.data.engines.numerals import extracted, with_numerals
from hdmm.data.identity import MISSING_TEXTS

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

_KEY_DIGITS = 32  # 128 bits; a longer text is hashed in two blocks
_ROWS, _GROUP_ROWS = "hdmm_rows", "hdmm_group"
_HEX = "[0123456789abcdefABCDEF]"
_UUID = "-".join(f"{_HEX}{{{length}}}" for length in (8, 4, 4, 4, 12))


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


EVERYONE = [PeoplePart()]


def with_person(rows: ibis.Table, column: str, dialect: Dialect | None) -> tuple[ibis.Table, Expression | None]:
    """The name of each row's person, NULL if it has none; None if the engine cannot name them exactly."""
    if dialect is None:
        return rows, None
    if not rows[column].type().is_string():
        return rows, dialect.name_of(rows[column])
    rows, spelled = with_numerals(rows, column, dialect)
    text: Expression = rows[column]
    number = spelled.sign + spelled.digits + "e" + spelled.power.cast("string")
    person = ibis.cases(  # as identity.py has it
        (text.isnull() | text.isin(sorted(MISSING_TEXTS)), ibis.null("string")),
        (spelled.found & spelled.zero, "number 0"),
        (spelled.found & spelled.long, ibis.null("string")),
        (spelled.found, ibis.literal("number ") + number),
        (extracted(text, dialect.full_match(_UUID), 0) != "", ibis.literal("text ") + text.lower()),
        else_=ibis.literal("text ") + text,
    )
    return rows, person


def name_of(who: Expression) -> Expression | None:
    """The name of a person whose id is not text; None if it cannot be exact."""
    kind = who.type()
    if kind.is_integer():
        return who
    if kind.is_boolean():
        return ibis.cases((who, 1), (~who, 0))
    return who.cast("string") if kind.is_decimal() or kind.is_date() or kind.is_uuid() else None


def chosen(
    rows: ibis.Table, person: str, cells: Mapping[str, int], *, k: int, key: bytes, dialect: Dialect
) -> ibis.Table:
    """At most k rows of each person, as codes; `cells` has the size of each. See counted_rows for their number."""
    packing = Packing(tuple(cells.values()))
    words = {f"w{place}": word for place, word in enumerate(packing.packed([rows[name] for name in cells]))}
    kept = dialect.least(rows.select(hdmm_person=rows[person], **words), list(words), k, key, dialect)
    codes = dict(zip(cells, packing.unpacked([kept[word] for word in words]), strict=True))
    return kept.select(**codes, **{name: kept[name] for name in kept.columns if name == _ROWS})


def counted_rows(rows: ibis.Table) -> Expression:
    """The number of rows, if they are what `chosen` returns or rows of the table."""
    if _ROWS not in rows.columns:
        return rows.count()
    number: Expression = rows[_ROWS]
    return number.sum().cast("int64")


def least_groups(rows: ibis.Table, words: Sequence[str], k: int, key: bytes, dialect: Dialect) -> ibis.Table:
    """Groups of rows of one person with one cell each; _ROWS of each are kept, which is its number of rows or fewer."""
    who: Expression = rows["hdmm_person"]
    text = who.type().is_string()
    rows = rows.mutate(hdmm_person=dialect.bytes_of(who)) if text else rows
    by = [rows[name] for name in ("hdmm_person", *words)]
    grouped = dialect.with_key(rows.aggregate([rows.count().name(_GROUP_ROWS)], by=by), key)
    who = dialect.text_of(grouped["hdmm_person"]) if text else grouped["hdmm_person"]
    hashed = grouped.mutate(hdmm_hash=dialect.digest(said(grouped, words, who)))
    order = [hashed[name] for name in ("hdmm_hash", *words)]
    number: Expression = hashed[_GROUP_ROWS]
    upto = number.sum().over(ibis.cumulative_window(group_by=hashed["hdmm_person"], order_by=order))
    left: Expression = min(k, ALL_ROWS) - (upto.cast("int64") - number)  # of k rows, what the groups before it leave
    ranked: Expression = hashed.mutate(hdmm_left=left)
    kept = ranked.filter(ranked["hdmm_left"] > 0)
    return kept.select(*words, **{_ROWS: ibis.least(kept[_GROUP_ROWS], kept["hdmm_left"])})


def with_key_row(rows: ibis.Table, key: bytes) -> ibis.Table:
    """The rows with the key as a column, from a table of one row."""
    return rows.cross_join(ibis.memtable({"hdmm_key": [key.hex()[:_KEY_DIGITS]]}))


def said(rows: ibis.Table, words: Sequence[str], who: Expression) -> Expression:
    """What is hashed of a row: the key, its codes and its person."""
    text: Expression = rows["hdmm_key"]
    for word in words:
        text = text + "," + rows[word].cast("string")
    return text + "," + who.cast("string")
