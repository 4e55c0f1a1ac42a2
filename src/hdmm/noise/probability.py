"""Probabilities e⁻ᵃ and 1/(1 + eᵃ) for a rational a > 0, to any number of certified binary digits.

A coin with such a probability p is tossed by comparing the binary digits of a uniform number U, as they are drawn, with
those of p: U < p is decided at the first digit that differs. No digit is approximate: MPFR rounds each operation down
for one bound and up for the other, and if the two bounds disagree on the digits, the precision doubles. That ends, and
the comparison ends with probability 1, because p is never a dyadic fraction: eᵃ is irrational (even transcendental) for
every rational a ≠ 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from hdmm.base.rounding import BigFloat, Context, floor, number, rounding
from hdmm.noise.bits import Bits

WORD = 64  # bits drawn at a time
_GUARD = 64  # bits of precision beyond the required digits: they fall short about once in 2⁶⁰ times


@dataclass(frozen=True, slots=True)
class Probability(ABC):
    """A probability strictly between 0 and 1 that depends on e to a rational power."""

    exponent: Fraction

    @abstractmethod
    def bound(self, up: Context, down: Context) -> BigFloat:
        """The probability, rounded in the direction of `up`; with the arguments exchanged, in that of `down`."""

    def digits(self, places: int) -> int:
        """⌊2ᵖˡᵃᶜᵉˢ·p⌋: the first binary digits after the point, all of them correct."""
        precision = places + _GUARD
        while True:
            low, high = self._floors(places, precision)
            if low == high:
                return low
            precision *= 2

    def around(self, places: int) -> tuple[int, int]:
        """(low, high), at most 2 apart, with low ≤ 2ᵖˡᵃᶜᵉˢ·p < high, in a number of steps that does not depend on p."""
        low, high = self._floors(places, places + _GUARD)
        return low, high + 1

    def _floors(self, places: int, precision: int) -> tuple[int, int]:
        """⌊2ᵖˡᵃᶜᵉˢ·b⌋ for a bound b below p and for one above it, each as close as the precision allows."""
        up, down = rounding("up", precision), rounding("down", precision)
        low = floor(down.mul_2exp(self.bound(down, up), places), down)  # a power of 2 multiplies exactly
        return low, floor(up.mul_2exp(self.bound(up, down), places), up)


@final
class Exponential(Probability):
    """e⁻ᵃ.

    >>> Exponential(Fraction(1)).digits(10)  # 2¹⁰/e = 376.7…
    376
    """

    __slots__ = ()

    def bound(self, up: Context, down: Context) -> BigFloat:
        return up.exp(number(-self.exponent, up))


@final
class Logistic(Probability):
    """1/(1 + eᵃ).

    >>> Logistic(Fraction(1)).digits(10)  # 2¹⁰/(1 + e) = 275.3…
    275
    """

    __slots__ = ()

    def bound(self, up: Context, down: Context) -> BigFloat:
        denominator = down.add(down.exp(number(self.exponent, down)), 1)
        return up.div(1, denominator)


def below(bits: Bits, probability: Probability, *, uniform: int = 0, places: int = 0) -> bool:
    """Whether a uniform number is below the probability: True with exactly that probability.

    The first binary places of the number may be known already; further places are drawn as needed.
    """
    while True:
        digits = probability.digits(places)
        if uniform != digits:
            return uniform < digits
        uniform = uniform << WORD | bits.word()
        places += WORD
