"""Numbers in words, as a reader wants them; hdmm.base.digits decides which digits have a meaning despite the noise."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from typing import Final

from hdmm.base.digits import decimal

LEVEL: Final = 0.95
"""The confidence level of intervals and margins, unless another is asked for."""

_MOST_PLACES: Final = 9
_PLAIN = 1e15  # from here on a number is written with an exponent
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)


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
