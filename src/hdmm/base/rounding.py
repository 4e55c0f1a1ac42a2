"""Directed rounding: MPFR arithmetic in which every operation rounds up, or every operation rounds down (security S4).

Only the methods of a context may be applied to such numbers, because gmpy2's operators (even unary minus) round to
the nearest number of 53 bits.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, TypeAlias

import gmpy2

Context: TypeAlias = gmpy2.context
BigFloat: TypeAlias = gmpy2.mpfr
Direction: TypeAlias = Literal["up", "down"]


def rounding(direction: Direction, precision: int) -> Context:
    """A context of this precision in bits that rounds towards +∞ or −∞.

    >>> up, down = rounding("up", 24), rounding("down", 24)
    >>> fraction(up.div(1, 3)) > Fraction(1, 3) > fraction(down.div(1, 3))
    True
    """
    return gmpy2.context(precision=precision, round=gmpy2.RoundUp if direction == "up" else gmpy2.RoundDown)


def number(exact: Fraction | int | BigFloat, context: Context) -> BigFloat:
    """The number in the precision of the context, rounded in its direction.

    >>> fraction(number(Fraction(1, 3), rounding("down", 2)))
    Fraction(1, 4)
    """
    given = gmpy2.mpq(exact.numerator, exact.denominator) if isinstance(exact, Fraction) else exact
    return gmpy2.mpfr(given, 0, context)


def fraction(number: BigFloat) -> Fraction:
    """The number as an exact fraction.

    >>> fraction(number(Fraction(3, 4), rounding("up", 2)))
    Fraction(3, 4)
    """
    numerator, denominator = number.as_integer_ratio()
    return Fraction(int(numerator), int(denominator))


def floor(number: BigFloat, context: Context) -> int:
    """⌊number⌋, exactly, if the context has enough bits for it. (int would round to the nearest integer.)

    >>> down = rounding("down", 24)
    >>> floor(number(Fraction(15, 4), down), down)
    3
    """
    return int(context.floor(number))
