"""Whose row an id says it is: equal ids name one person, however they are typed or written (security I5).

- A number names its value: 7, 7.0, Decimal("7.00") and NumPy's 7 are one person, and True is 1.
- A float names the shortest decimal number that reads back as the same float of its width, which is what people write
  and see: the float 1.1 is the person 1.1, with 32 bits as with 64. Beyond 15 digits (6 with 32 bits) a float is not
  the number that was meant, so types.py refuses ids that are floats in one place and anything else in another.
- Text that spells a decimal number names that number ("7", "07", "7.0", "+7", " 7 "), because the same id may be a
  number in one file and text in another, and is written 7.0 if another id of its column is missing. So one person
  cannot pass for two on any source. Text that spells a UUID names it, in capitals or not. All other text names itself,
  exactly.
- A timestamp with a time zone names its instant, and one without a zone names what it shows; a date is not a timestamp.
- Missing values, text of more than 4,096 bytes (security I9), NaN and infinities name nobody. Neither does any other
  kind of value. Nor does text that readers of files take for a missing value, such as the empty text or "NA": in a
  column that a reader took for numbers it is missing already, and one more row decides whether the reader does
  (security I6).

A number is written as its digits and an exponent, never as a ratio: 1e1000000 has a name of nine characters.

At most k rows of each person are kept (security I3). Rows are compared by their codes, after those outside the domain
are dropped. If a person has more than k rows, the k with the least keyed hash of (person, codes) are kept. Rows that
tie are equal, so what is kept does not depend on the order of the table; and what is kept of a person depends on no one
else, so a person changes k rows at most. The key is drawn from the operating system for each Data object, so nobody can
choose which of their rows count.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from hdmm.base.lazy import Lazy
from hdmm.base.mixing import Words, mixed
from hdmm.data.columns import AnyColumn, distinct, floats, integers
from hdmm.describe.entries import INT64_END, SPELLED, too_long

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

PersonName: TypeAlias = "int | bytes | None"  # an int64 that names itself, other names, or nobody

# What pandas, polars and Arrow take for a missing value unless other options are given.
MISSING_TEXTS = frozenset(
    [
        *("", "NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    ]
)

_NAME_BYTES = 16  # among 10⁹ people, two share a name with probability 10⁻²¹
_INT64_DIGITS = 19
_EXPONENT_DIGITS = 18
_UUID_LENGTH = 36
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_EPOCH = datetime(1970, 1, 1)
_MILLISECONDS_OF_A_DAY = 86_400_000


def identity(value: object) -> PersonName:
    """The name of the person that an id stands for; None if the id is missing or of a kind that names nobody.

    >>> identity(7), identity("07.0"), identity(Decimal("1.10")), identity("1.1"), identity("Ann"), identity("")
    (7, 7, b'number 11e-1', b'number 11e-1', b'text Ann', None)
    """
    try:
        return _identity(value)
    except Exception:  # a value that fails when it is examined is missing, whatever the failure (security I1)
        return None


def identities(column: AnyColumn) -> tuple[list[PersonName], npt.NDArray[np.integer[Any]]]:
    """The identities of a column, each value's once if that is cheap, and the place of each row's among them."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        column = cast("pa.Array", pa.array(column))
    if isinstance(column, pa.Array) and (name := _name_of_time(column.type)):
        # Times are named by the numbers that stand for them, because not every one has a Python value.
        coded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
        numbers = _as_integers(coded.dictionary)
        places = coded.indices.cast(pa.int64()).fill_null(len(numbers))
        return [*(None if number is None else name(number) for number in numbers), None], places.to_numpy()
    if (numbers := floats(column)) is not None:
        each, places = np.unique(numbers, return_inverse=True)
        return list(map(identity, each)), places  # NumPy's values, which know how wide they are
    objects, places = distinct(column)
    return list(map(identity, objects)), places


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """What is needed to choose among rows: two words that name the person, and the codes."""

    people: Words
    codes: list[npt.NDArray[np.unsignedinteger[Any]]]

    def __len__(self) -> int:
        return len(self.people)

    def take(self, chosen: npt.NDArray[np.int64]) -> Rows:
        """The rows at these places."""
        return Rows(self.people[chosen], [codes[chosen] for codes in self.codes])


def people(key: bytes, ids: AnyColumn) -> tuple[Words, npt.NDArray[np.bool]]:
    """Two words that name the person of each row, and which rows have one (an id that is not missing).

    An integer names itself, so a column of integers needs no hashing; every other id is named by its keyed digest.
    """
    numbers = integers(ids)
    if numbers is not None:
        return np.stack([np.zeros_like(numbers[0]), numbers[0]], axis=1).view(np.uint64), numbers[1]
    named, places = identities(ids)
    there = np.fromiter((who is not None for who in named), np.bool, len(named))
    words = np.frombuffer(b"".join([name_words(key, who) for who in named]), np.uint64).reshape(-1, 2)
    return words[places], there[places]


def bounded(key: bytes, k: int, batches: Iterable[Rows]) -> Rows | None:
    """The rows kept of all batches; None if there is no batch. O(rows · log rows); 2·k rows per person in memory."""
    kept: Rows | None = None
    waiting: list[Rows] = []
    for rows in batches:
        waiting.append(rows)
        # The k least of all rows are among the k least of each part: choose as soon as it is worthwhile.
        if kept is None or sum(map(len, waiting)) >= len(kept):
            kept, waiting = _least(key, k, _joined(kept, waiting)), []
    return _least(key, k, _joined(kept, waiting)) if waiting else kept


def name_words(key: bytes, who: PersonName) -> bytes:
    """The two words that name a person."""
    if isinstance(who, int):
        return bytes(8) + np.int64(who).tobytes()
    return bytes(_NAME_BYTES) if who is None else hashlib.blake2b(who, digest_size=_NAME_BYTES, key=key).digest()


def _identity(value: object) -> PersonName:
    if isinstance(value, str):
        return None if too_long(value) else _of_text(value)
    if isinstance(value, np.datetime64):
        return identities(np.array([value]))[0][0]
    if isinstance(value, float | np.floating):
        return _of_text(str(value)) if np.isfinite(value) else None
    if isinstance(value, np.bool | np.integer) and not isinstance(value, np.timedelta64):
        value = value.item()
    if isinstance(value, int):
        return int(value) if -INT64_END <= value < INT64_END else _of_text(str(Decimal(value)))
    if isinstance(value, Decimal):
        return _of_text(str(value)) if value.is_finite() else None
    if isinstance(value, datetime):
        return _of_datetime(value)
    if isinstance(value, date):
        return _date(value.toordinal() - _EPOCH.toordinal())
    if isinstance(value, uuid.UUID):
        return _text(str(value))
    return None


def _of_text(text: str) -> PersonName:
    if text in MISSING_TEXTS:
        return None
    if len(text) < _INT64_DIGITS and text.isascii() and text.isdigit():  # twice as fast as what follows
        return int(text)
    spelled = SPELLED.fullmatch(text)
    if spelled is None:
        return _text(_uuid_or_text(text))
    sign, whole, behind, behind_alone, exponent = (part or "" for part in spelled.groups())
    behind = behind or behind_alone
    digits = (whole + behind).lstrip("0")
    shift = exponent.lstrip("+-").lstrip("0")
    if digits and len(shift) > _EXPONENT_DIGITS:
        return None  # such a number is not an id
    plain = digits.rstrip("0")
    power = int(exponent or 0) - len(behind) + len(digits) - len(plain) if digits else 0
    if power >= 0 and len(plain) + power <= _INT64_DIGITS:
        number = int(sign + (plain or "0")) * 10**power
        if -INT64_END <= number < INT64_END:
            return number
    return f"number {sign.strip('+')}{plain}e{power}".encode()


def _uuid_or_text(text: str) -> str:
    if len(text) != _UUID_LENGTH:
        return text
    try:
        spelled = str(uuid.UUID(text))
    except ValueError:
        return text
    return spelled if spelled == text.lower() else text


def _text(text: str) -> bytes:
    return b"text " + text.encode("utf-8", "surrogatepass")


def _of_datetime(value: datetime) -> bytes:
    offset = value.utcoffset()
    shown = value.replace(tzinfo=None, fold=0) - _EPOCH
    # Not by astimezone, which fails on the first and the last day that Python has.
    microseconds = (shown - (offset or timedelta(0))) // timedelta(microseconds=1)
    finer = int(getattr(value, "nanosecond", 0))  # of pandas
    return _time(microseconds * 1000 + finer, zoned=offset is not None)


def _name_of_time(kind: pa.DataType) -> Callable[[int], bytes] | None:
    """The name of a date or a timestamp, given the number that stands for it; None if the type is neither."""
    plain = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    if isinstance(plain, pa.TimestampType):
        unit, zoned = _NANOSECONDS[plain.unit], plain.tz is not None
        return lambda number: _time(number * unit, zoned=zoned)
    if pa.types.is_date64(plain):
        return lambda number: _date(number // _MILLISECONDS_OF_A_DAY)
    return _date if pa.types.is_date(plain) else None


def _as_integers(times: pa.Array) -> list[int | None]:
    whole = times.view(pa.int32() if pa.types.is_date32(times.type) else pa.int64())
    return cast("list[int | None]", whole.to_pylist())


def _time(nanoseconds: int, *, zoned: bool) -> bytes:
    return f"{'instant' if zoned else 'timestamp'} {nanoseconds}".encode()


def _date(days: int) -> bytes:
    return f"date {days}".encode()


def _joined(kept: Rows | None, waiting: Sequence[Rows]) -> Rows:
    parts = [*([kept] if kept else []), *waiting]
    columns = zip(*(rows.codes for rows in parts), strict=True)
    return Rows(np.concatenate([rows.people for rows in parts]), [np.concatenate(column) for column in columns])


def _least(key: bytes, k: int, rows: Rows) -> Rows:
    order = np.lexsort(rows.people.T)
    person, size = _runs(rows.people[order])
    crowded = order[size[person] > k]
    candidates = rows.take(crowded)
    ranked = np.lexsort((*_hashes(key, candidates), *candidates.people.T))
    person_of, size_of = _runs(candidates.people[ranked])
    rank = np.arange(len(ranked)) - (np.cumsum(size_of) - size_of)[person_of]
    return rows.take(np.concatenate([order[size[person] <= k], crowded[ranked[rank < k]]]))


def _hashes(key: bytes, rows: Rows) -> tuple[Words, Words]:
    """Two words of keyed hash of each row: 128 bits, so that rows of one person that tie are equal."""
    first, second = (np.full(len(rows), word, np.uint64) for word in np.frombuffer(key[:16], np.uint64))
    for column in (*rows.people.T, *rows.codes):
        first, second = mixed(first ^ column), mixed(second + column)
    return first, second


def _runs(people: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of each row's person among sorted rows, and how many rows each person has."""
    new = np.any(people[1:] != people[:-1], axis=1)
    person = np.concatenate([np.zeros(min(len(people), 1), np.int64), np.cumsum(new)])
    return person, np.bincount(person)
