"""Probabilities e⁻ᵃ, 1/(1 + eᵃ) and erf(√a) for a rational a > 0, to any number of certified binary digits.

A coin with such a probability p is tossed by comparing a uniform number U with bounds on p. No digit is approximate:
MPFR rounds each operation down for one bound and up for the other. If B digits of U are known, the bounds are at most
2·2⁻ᴮ apart, so that U lies between them with probability 3·2⁻ᴮ at most. Then more digits of U are drawn, which ends
with probability 1, whatever number p is.

Tables hold the first digits of p itself. The two bounds agree on them once the precision suffices, because e⁻ᵃ and
1/(1 + eᵃ) are never dyadic fractions: eᵃ is irrational (even transcendental) for every rational a ≠ 0. Of erf(√a) this
is not known, so that of it only `around` is used.
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
    """A probability between 0 and 1 that depends on a rational number."""

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


@final
class HalfNormal(Probability):
    """erf(√a) = P(Z² < 2a) for a standard normal Z.

    >>> HalfNormal(Fraction(1, 2)).around(10)  # 2¹⁰·P(|Z| < 1) = 699.06…
    (699, 700)
    """

    __slots__ = ()

    def bound(self, up: Context, down: Context) -> BigFloat:
        return up.erf(up.sqrt(number(self.exponent, up)))


@final
class Uniform:
    """A uniform number U from 0 to 1. Its first binary places may be known already; more are drawn when they decide."""

    __slots__ = ("_bits", "known", "places")

    def __init__(self, bits: Bits, known: int = 0, places: int = 0) -> None:
        self._bits, self.known, self.places = bits, known, places

    def extend(self) -> None:
        """Draw the next 64 places."""
        self.known = self.known << WORD | self._bits.word()
        self.places += WORD

    def below(self, probability: Probability) -> bool:
        """Whether U is below the probability: True with exactly that probability."""
        while True:
            low, high = probability.around(self.places)
            if self.known < low:
                return True  # U < (known + 1)/2ᵖˡᵃᶜᵉˢ ≤ low/2ᵖˡᵃᶜᵉˢ ≤ p
            if self.known >= high:
                return False
            self.extend()
