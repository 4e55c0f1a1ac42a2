"""Conversion between ρ-zCDP and (ε, δ)-DP in both directions, rounded to the safe side (security S4).

Canonne, Kamath and Steinke (2020), Proposition 12 with τ = αρ: ρ-zCDP implies (ε, δ)-DP for every α > 1 with

    ln δ = (α − 1)(αρ − ε) + (α − 1)·ln(1 − 1/α) − ln α.

Solved for ε and for ρ, with g = α − 1 and B(g) = ln(1 + 1/g) + (ln δ + ln(1 + g))/g:

    ε = (1 + g)·ρ − B(g),    ρ = (ε + B(g))/(1 + g).

Every g > 0 gives a true statement, so an inexact search for the best g costs only tightness. What must be right is the
one evaluation at the chosen g, which is an exact number; every operation of that evaluation rounds to the safe side.
For fixed (ε, ρ), ln δ is convex in α (its second derivative is 2ρ + 1/(α − 1) − 1/α > 0), so ε is quasi-convex in g, ρ
is quasi-concave, and bisection on ln g finds the best g. B is positive at g = 1/δ, and therefore so is ρ.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from hdmm.base.rounding import BigFloat, Context, fraction, number, rounding

_PRECISION = 1300  # bits: 1 + g is exact for a g of 64 bits, and terms from 2⁵⁰⁰ to 2⁻⁵⁰⁰ may cancel
_KEPT = 128  # bits of the result: rounding loses at most 2⁻¹²⁷ of it
_RANGE = 760  # |ln g|: g from 2⁻¹⁰⁹⁷ to 2¹⁰⁹⁷
_GRID = 60  # ln g is a multiple of 2⁻⁶⁰, which near the best g costs about 2⁻¹²⁰


@lru_cache(maxsize=1024)
def rho_down(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ρ, rounded down, such that ρ-zCDP implies (ε, δ)-DP, for 0 < δ < 1.

    >>> float(rho_down(Fraction(1), Fraction(1, 10**6)))
    0.0243559703...
    """

    def rho(g: BigFloat, down: Context) -> BigFloat:  # rounded down: ρ increases in every rounded term
        return down.div(down.add(number(epsilon, down), _slack(g, delta, down)), down.add(g, 1))

    return fraction(number(_largest(rho), rounding("down", _KEPT)))


@lru_cache(maxsize=1024)
def epsilon_up(rho: Fraction, delta: Fraction) -> Fraction:
    """The least ε, rounded up, such that ρ-zCDP implies (ε, δ)-DP, for 0 < δ < 1. It may be 0.

    >>> float(epsilon_up(Fraction(1, 2), Fraction(1, 10**6)))
    5.22153444...
    """
    negated = -rho

    def minus_epsilon(g: BigFloat, down: Context) -> BigFloat:  # rounded down, so that ε is rounded up
        return down.add(_slack(g, delta, down), down.mul(down.add(g, 1), number(negated, down)))

    return max(Fraction(0), -fraction(number(_largest(minus_epsilon), rounding("down", _KEPT))))


def _slack(g: BigFloat, delta: Fraction, down: Context) -> BigFloat:
    """B(g), rounded down: every step is increasing in the terms rounded before it, and g and 1 + g are exact."""
    near = down.log1p(down.div(1, g))
    far = down.add(down.log(number(delta, down)), down.log1p(g))
    return down.add(near, down.div(far, g))


def _largest(value: Callable[[BigFloat, Context], BigFloat]) -> BigFloat:
    """The largest value over a grid of ln g, rounded down; the value must rise to one peak and then fall."""
    down, short = rounding("down", _PRECISION), rounding("down", 64)

    def at(step: int) -> BigFloat:
        g = number(down.exp(number(Fraction(step, 2**_GRID), down)), short)
        return value(g, down)

    low, high = -_RANGE << _GRID, _RANGE << _GRID
    while low < high:
        middle = (low + high) // 2
        if at(middle) < at(middle + 1):
            low = middle + 1
        else:
            high = middle
    return at(low)
