"""Numbers spelled in text, inside an engine: by the rules of entries.py for values and of identity.py for ids.

A text that spells a number is taken apart by patterns into a sign, digits without zeros at either end, and a power of
ten, all of which exist for every text. Casts are made of these parts alone and only where they cannot fail, because an
engine may fail on text such as 1e400, and one row must not decide whether a release succeeds (security I1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from hdmm.base.lazy import Lazy
from hdmm.data.engines.dialect import Dialect, Expression

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

# A number 0.d₁d₂… · 10ᵐ with m = 309 is infinite as a float from half a step beyond the largest float on, and one with
# m = −323 is zero up to half of the least float. Digits without zeros at the end are ordered as text.
_MOST_MAGNITUDE, _LEAST_MAGNITUDE = 309, -323
_INFINITE_FROM = str(2**1024 - 2**970).rstrip("0")
_ZERO_UP_TO = str(5**1075)


@final
@dataclass(frozen=True, slots=True)
class Numeral:
    """Columns that describe a text: whether it spells a number (`found`), as an integer (`whole`), and its parts.

    `power` is the exponent of ten; `long` means that it was written with more than 18 digits.
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

    def real(self, *, whole: bool = False) -> Expression:
        """The float nearest to the number, if it is finite; of a text with neither point nor exponent, if `whole`."""
        large, small = _MOST_MAGNITUDE, _LEAST_MAGNITUDE
        zero = ibis.literal(0.0, "float64")
        return ibis.cases(
            (~self.found if whole else ~self.found | self.whole, ibis.null("float64")),
            (self.zero, zero),
            (self.magnitude > large, ibis.null("float64")),
            ((self.magnitude == large) & (self.digits >= _INFINITE_FROM), ibis.null("float64")),
            (self.magnitude < small, zero),
            ((self.magnitude == small) & (self.digits <= _ZERO_UP_TO), zero),
            else_=(self.sign + self.digits + "e" + self.power.cast("string")).try_cast("float64"),
        )


def with_numerals(rows: ibis.Table, column: str, dialect: Dialect) -> tuple[ibis.Table, Numeral]:
    """The table with columns that describe the numbers spelled in a column of text, if it has none yet."""
    if f"{column}_found" not in rows.columns:
        rows = _with_parts(rows, column, dialect)
    return rows, Numeral(*(rows[f"{column}_{part}"] for part in ("found", "whole", "sign", "digits", "power", "long")))


def _with_parts(rows: ibis.Table, column: str, dialect: Dialect) -> ibis.Table:
    pattern = dialect.full_match(_SPELLED)
    text: Expression = rows[column]

    def with_columns(**columns: Expression) -> ibis.Table:
        return dialect.computed(rows, **{f"{column}_{name}": expression for name, expression in columns.items()})

    def part(name: str) -> Expression:
        return rows[f"{column}_{name}"]

    rows = with_columns(
        found=extracted(text, pattern, 0) != "",
        whole=extracted(text, dialect.full_match(_SPELLED_WHOLE), 0) != "",
        sign=ibis.cases((extracted(text, pattern, 1) == "-", "-"), else_=""),
        left=extracted(text, pattern, 2),
        right=extracted(text, pattern, 3) + extracted(text, pattern, 4),
        exponent=extracted(text, pattern, 5),
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


def extracted(text: Expression, pattern: str, group: int) -> Expression:
    """A group of a match, empty if there is none: engines differ in that."""
    return ibis.coalesce(text.re_extract(pattern, group), "")
