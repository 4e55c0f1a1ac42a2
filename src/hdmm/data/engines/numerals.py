"""Numbers spelled in text, inside an engine: by the rules of entries.py for values and of identity.py for ids.

A text that spells a number is taken apart by patterns into a sign, digits without zeros at either end, and a power of
ten, all of which exist for every text. Casts are made of these parts alone and only where they cannot fail, because an
engine may fail on text such as 1e400, and one row must not decide whether a release succeeds (security I1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from hdmm.base.lazy import Lazy
from hdmm.data.engines.dialects import Expression, computed, full_match
from hdmm.data.identity import MISSING_TEXTS

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

WHOLE_DIGITS = 18  # an integer of so many digits fits in 64 bits
_EXPONENT_DIGITS = 18
_LONG_EXPONENT = 10**_EXPONENT_DIGITS

# The same language as entries.SPELLED, without escapes, which engines read differently.
_BLANKS = "[ \t\n\v\f\r]*"
_DIGIT = "[0123456789]"
_SPELLED = f"{_BLANKS}([+-]?)(?:({_DIGIT}+)(?:[.]({_DIGIT}*))?|[.]({_DIGIT}+))(?:[eE]([+-]?{_DIGIT}+))?{_BLANKS}"
_SPELLED_WHOLE = f"{_BLANKS}[+-]?{_DIGIT}+{_BLANKS}"
_HEX = "[0123456789abcdefABCDEF]"
_UUID = "-".join(f"{_HEX}{{{length}}}" for length in (8, 4, 4, 4, 12))

# A number 0.d₁d₂… · 10ᵐ with m = 309 is infinite as a float from half a step beyond the largest float on, and one with
# m = −323 is zero up to half of the least float. Digits without zeros at the end are ordered as text.
_MOST_MAGNITUDE, _LEAST_MAGNITUDE = 309, -323
_INFINITE_FROM = str(2**1024 - 2**970).rstrip("0")
_ZERO_UP_TO = str(5**1075)


@final
@dataclass(frozen=True, slots=True)
class Numeral:
    """Columns that describe a text: whether it spells a number (`found`), as an integer (`whole`), and its parts.

    `power` is the exponent of ten; `long` says that it was written with more than 18 digits.
    """

    found: Expression
    whole: Expression
    sign: Expression
    digits: Expression
    power: Expression
    long: Expression

    @property
    def magnitude(self) -> Expression:
        """The power of ten before whose first digit the point stands."""
        return self.digits.length().cast("int64") + self.power

    @property
    def zero(self) -> Expression:
        return self.digits == ""

    def integer(self) -> Expression:
        """The integer, if the text has neither point nor exponent and the integer at most 18 digits."""
        zero: Expression = ibis.literal("0")
        small = self.magnitude <= WHOLE_DIGITS
        padded = self.digits + zero.repeat(ibis.cases((small & (self.power > 0), self.power), else_=0).cast("int32"))
        return ibis.cases(
            (~self.found | ~self.whole, ibis.null("int64")),
            (self.zero, ibis.literal(0, "int64")),
            (small, (self.sign + padded).try_cast("int64")),
            else_=ibis.null("int64"),
        )

    def real(self) -> Expression:
        """The float nearest to the number, if the text has a point or an exponent and the float is finite."""
        large, small = _MOST_MAGNITUDE, _LEAST_MAGNITUDE
        zero = ibis.literal(0.0, "float64")
        return ibis.cases(
            (~self.found | self.whole, ibis.null("float64")),
            (self.zero, zero),
            (self.magnitude > large, ibis.null("float64")),
            ((self.magnitude == large) & (self.digits >= _INFINITE_FROM), ibis.null("float64")),
            (self.magnitude < small, zero),
            ((self.magnitude == small) & (self.digits <= _ZERO_UP_TO), zero),
            else_=(self.sign + self.digits + "e" + self.power.cast("string")).try_cast("float64"),
        )


def with_numerals(rows: ibis.Table, column: str, engine: str) -> tuple[ibis.Table, Numeral]:
    """The table with columns that describe the numbers spelled in a column of text, if it has none yet."""
    if f"{column}_found" not in rows.columns:
        rows = _with_parts(rows, column, engine)
    return rows, Numeral(*(rows[f"{column}_{part}"] for part in ("found", "whole", "sign", "digits", "power", "long")))


def _with_parts(rows: ibis.Table, column: str, engine: str) -> ibis.Table:
    pattern = full_match(engine, _SPELLED)
    text: Expression = rows[column]

    def with_columns(**columns: Expression) -> ibis.Table:
        return computed(engine, rows, **{f"{column}_{name}": expression for name, expression in columns.items()})

    def part(name: str) -> Expression:
        return rows[f"{column}_{name}"]

    rows = with_columns(
        found=_extracted(text, pattern, 0) != "",
        whole=_extracted(text, full_match(engine, _SPELLED_WHOLE), 0) != "",
        sign=ibis.cases((_extracted(text, pattern, 1) == "-", "-"), else_=""),
        left=_extracted(text, pattern, 2),
        right=_extracted(text, pattern, 3) + _extracted(text, pattern, 4),
        exponent=_extracted(text, pattern, 5),
    )
    rows = with_columns(
        all=(part("left") + part("right")).re_replace("^0+", ""), shift=part("exponent").re_replace("^[+-]?0*", "")
    )
    ten = ibis.cases(
        (part("shift") == "", ibis.literal(0, "int64")),
        (part("shift").length() > _EXPONENT_DIGITS, ibis.literal(_LONG_EXPONENT, "int64")),
        else_=part("shift").try_cast("int64"),
    )
    rows = with_columns(
        digits=part("all").re_replace("0+$", ""), long=part("shift").length() > _EXPONENT_DIGITS, ten=ten
    )
    zeros = part("all").length() - part("digits").length() - part("right").length()
    up = ibis.cases((part("exponent").startswith("-"), -part("ten")), else_=part("ten"))
    return with_columns(power=up + zeros.cast("int64"))


def person_of_text(text: Expression, spelled: Numeral, engine: str) -> Expression:
    """The name of the person that a text stands for, as identity.py has it; NULL if it is nobody."""
    number = spelled.sign + spelled.digits + "e" + spelled.power.cast("string")
    return ibis.cases(
        (text.isnull() | text.isin(sorted(MISSING_TEXTS)), ibis.null("string")),
        (spelled.found & spelled.zero, "number 0"),
        (spelled.found & spelled.long, ibis.null("string")),
        (spelled.found, ibis.literal("number ") + number),
        (_extracted(text, full_match(engine, _UUID), 0) != "", ibis.literal("text ") + text.lower()),
        else_=ibis.literal("text ") + text,
    )


def _extracted(text: Expression, pattern: str, group: int) -> Expression:
    """A group of a match, empty if there is none: engines differ in that."""
    return ibis.coalesce(text.re_extract(pattern, group), "")
