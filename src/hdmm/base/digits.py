"""Digits: the one rule by which numbers are rounded, on the page, in the workbook, in CSV and in a terminal.

A row is rounded by its own noise: to the decimal place of the second significant digit of its standard deviation; to
whole numbers where that has two or three digits before the point, and coarser from 1,000 on. Ends of intervals are
rounded outward. A margin is shown where the interval reaches equally far to both sides, to the last digit shown: then
the ends are the estimate minus and plus the margin, as they are shown. Elsewhere the ends are shown alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Final, final

WHOLE: Final = 1000.0
"""The standard deviation from which on numbers are rounded to tens of it, such as hundreds."""

_LEAST = 1e-8  # below this a standard deviation is none
_SLACK = 1e-12  # of a number: what rounding may have changed
_EXACT = Context(prec=800)  # holds every float written out, and sums of two
_NOWHERE = Decimal("NaN"), None, Decimal("-Infinity"), Decimal("Infinity")


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
