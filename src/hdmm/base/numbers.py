"""Numbers as readers see them: which digits are shown, by one rule on page, in workbook, CSV and terminal, and how.

A row is rounded by its own noise: to the decimal place of the second significant digit of its standard deviation; to
whole numbers where that has two or three digits before the point, and coarser from 1,000 on. Ends of intervals are
rounded outward. A margin is shown where the interval reaches equally far to both sides, to the last digit shown: then
the ends are the estimate minus and plus the margin, as they are shown. Elsewhere the ends are shown alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Final, final

LEVEL: Final = 0.95
"""The confidence level of intervals and margins, unless another is asked for."""

WHOLE: Final = 1000.0
"""The standard deviation from which on numbers are rounded to tens of it, such as hundreds."""

_LEAST = 1e-8  # below this a standard deviation is none
_SLACK = 1e-12  # of a number: what rounding may have changed
_EXACT = Context(prec=800)  # holds every float written out, and sums of two
_NOWHERE = Decimal("NaN"), None, Decimal("-Infinity"), Decimal("Infinity")
_MOST_PLACES: Final = 9
_PLAIN = 1e15  # from here on a number is written with an exponent
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)


@final
@dataclass(frozen=True, slots=True)
class RoundedRow:
    """The numbers of a row as they are shown. `margin` is None where the interval is not symmetric.

    Of a number that may not exist, `estimate` is NaN, and the interval goes from −∞ to ∞. `places` is how many places
    the ends of its interval have at least.
    """

    estimate: Decimal
    margin: Decimal | None
    lower: Decimal
    upper: Decimal
    stddev: Decimal
    places: int


def places(stddev: float) -> int | None:
    """Decimal places for a number with noise of this standard deviation, below 0 for tens; None without noise.

    >>> [places(stddev) for stddev in (0.068, 1.4, 14.3, 143.0, 1430.0, 0.0)]
    [3, 1, 0, 0, -2, None]
    """
    if not _LEAST <= stddev < math.inf:
        return None
    digits = 1 - math.floor(math.log10(stddev))
    return digits if digits > 0 or stddev >= WHOLE else 0


def decimal(value: float | Decimal, digits: int, rounding: str = ROUND_HALF_EVEN) -> Decimal:
    """A number to this many decimal places, exactly as its shortest spelling rounds; never −0.

    >>> decimal(2.675, 2), decimal(-0.04, 1), decimal(1250.5, -2)
    (Decimal('2.68'), Decimal('0.0'), Decimal('1300'))
    """
    rounded = _spelled(value).quantize(Decimal(1).scaleb(-digits), rounding, _EXACT)
    return abs(rounded) if rounded == 0 else rounded.quantize(Decimal(1), context=_EXACT) if digits < 0 else rounded


def rounded_row(
    estimate: float, stddev: float, lower: float, upper: float, *, whole: bool = False, exact: int | None = None
) -> RoundedRow:
    """A row of numbers as it is shown. Where estimates are `whole`, they have no places.

    `exact` is how many places numbers without noise have at most; None leaves them all.

    >>> row = rounded_row(33.683, 14.8, 2.2, 65.2)
    >>> f"{row.estimate} ± {row.margin}, {row.lower} to {row.upper}"
    '34 ± 32, 2 to 66'
    >>> row = rounded_row(4.4, 3.1, 0.0, 11.2)  # cut at 0
    >>> f"{row.estimate}, {row.margin}, {row.lower} to {row.upper}"
    '4.4, None, 0.0 to 11.2'
    """
    if not all(map(math.isfinite, (estimate, stddev, lower, upper))):
        return RoundedRow(*_NOWHERE, _spelled(stddev), 0)
    half = (upper - lower) / 2  # less than the noise where an interval is cut
    digits = places(min(stddev, half) if half >= _LEAST else stddev)
    if digits is None and upper - lower <= (slack := _SLACK * max(1.0, abs(estimate))):  # rounding, and no noise
        estimate = lower = upper = round(estimate) if abs(estimate - round(estimate)) <= slack else estimate
    if all(each == round(each) for each in (estimate, lower, upper)) and (digits is None or digits > 0):
        digits = 0
    if digits is None:
        digits = _all_places(estimate, lower, upper) if exact is None else exact
    at = decimal(estimate, 0 if whole else digits)
    above, below = (_EXACT.subtract(one, other) for one, other in ((_spelled(upper), at), (at, _spelled(lower))))
    margin = decimal(max(above, below, Decimal(0)), digits, ROUND_CEILING)
    uneven = abs((upper - estimate) - (estimate - lower)) > 10.0**-digits
    first, last = _EXACT.subtract(at, margin), _EXACT.add(at, margin)
    spread = _spelled(stddev) if places(stddev) is None else decimal(stddev, digits + 1, ROUND_CEILING)
    if uneven or first < 0 <= lower:
        first, last = decimal(lower, digits, ROUND_FLOOR), decimal(upper, digits, ROUND_CEILING)
        return RoundedRow(at, None, first, last, spread, digits)
    return RoundedRow(at, margin, first, last, spread, digits)


def outward(value: float, digits: int, rounding: str) -> Decimal:
    """The end of an interval to this many places, if it has one.

    >>> outward(0.04, 1, ROUND_CEILING), outward(math.inf, 1, ROUND_CEILING)
    (Decimal('0.1'), Decimal('Infinity'))
    """
    return Decimal(value) if math.isinf(value) else decimal(value, digits, rounding)


def _spelled(value: float | Decimal) -> Decimal:
    """A number by its shortest spelling."""
    return value if isinstance(value, Decimal) else Decimal(repr(float(value)))


def _all_places(*values: float) -> int:
    """As many places as the shortest spellings of numbers have."""
    exponents = (_spelled(value).normalize(_EXACT).as_tuple().exponent for value in values)
    return max(0, *(-each for each in exponents if isinstance(each, int)))


def spelled(value: Decimal) -> str:
    """A number as it was rounded, with thousands separators and a true minus; a dash for one that may not exist.

    >>> spelled(Decimal("-1234.50")), spelled(Decimal(10) ** 20), spelled(Decimal("-Infinity")), spelled(Decimal("NaN"))
    ('−1,234.50', '1.000e+20', '−∞', '–')
    """
    if not value.is_finite():
        return "–" if value.is_nan() else "∞" if value > 0 else "−∞"
    return (f"{value:,f}" if abs(value) < _PLAIN else f"{value:.3e}").replace("-", "−")


def number(value: float, digits: int, rounding: str = ROUND_HALF_EVEN) -> str:
    """A number to this many decimal places, with thousands separators and a true minus.

    >>> number(-1234.5678, 2), number(-0.04, 1), number(1e20, 0)
    ('−1,234.57', '0.0', '1.000e+20')
    """
    return spelled(Decimal(value) if abs(value) >= _PLAIN else decimal(value, digits, rounding))


def up(value: float, digits: int) -> str:
    """The number rounded up, as margins are: the interval shown is never narrower than the true one.

    >>> up(2.01, 1), up(1.1, 1), up(-0.05, 1)
    ('2.1', '1.1', '0.0')
    """
    return number(value, digits, ROUND_CEILING)


def figure(value: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """Three significant digits, or all digits before the point.

    >>> figure(0.01234), figure(12.34), figure(12345.6), figure(0)
    ('0.0123', '12.3', '12,346', '0')
    """
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return number(value, min(max(digits, 0), _MOST_PLACES), rounding)


def percent(fraction: float) -> str:
    """A share or a level in percent.

    >>> percent(0.95), percent(0.999), percent(1 / 3), percent(0.0004)
    ('95\xa0%', '99.9\xa0%', '33.3\xa0%', '0.04\xa0%')
    """
    return f"{100 * fraction:.3g}\xa0%" if fraction < 0.99 else f"{100 * fraction:.6g}\xa0%"


def date(text: str) -> str:
    """A date or time in ISO 8601 as people write it; any other text as it is.

    >>> date("2026-07-01T09:05:59+02:00"), date("2026-07-01"), date("spring 2026")
    ('1 July 2026, 07:05 UTC', '1 July 2026', 'spring 2026')
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    day = found if found.tzinfo is None else found.astimezone(UTC)
    written = f"{day.day} {_MONTHS[day.month - 1]} {day.year}"
    if len(text) <= len("2026-07-01"):
        return written
    return f"{written}, {day:%H:%M}{'' if found.tzinfo is None else ' UTC'}"


def whole(count: int) -> str:
    """A whole number with thousands separators.

    >>> whole(12345)
    '12,345'
    """
    return f"{count:,}"


def many(count: int, noun: str) -> str:
    """A number of things.

    >>> many(1, "table"), many(1200, "table")
    ('1 table', '1,200 tables')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
