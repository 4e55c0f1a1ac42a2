"""Exact numbers: the parameters of guarantees as fractions, read from what a user gives, and written.

A parameter is an int, a Fraction, a Decimal, a text ("0.5", "1e-3", "1/3") or a float. It is stored as the exact
fraction, and nothing is rounded (security S4). A float stands for its shortest decimal, as Python prints it: 0.1 means
1/10. Anything other than a positive, finite number of ordinary size is refused (security L5).
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from hdmm.base.exceptions import PrivacyError
from hdmm.base.hints import decimal_point

Exact: TypeAlias = int | Fraction | Decimal | str | float | np.integer | np.floating

# From 2⁻⁵⁰⁰ to 2⁵⁰⁰, 2/ε² and 1/(2ρ) are normal floats; subnormal numbers are far below.
MOST_EXPONENT: Final = 500
_MOST_BITS = 2048  # of numerator and denominator: more than any number of 64 characters in that range needs
_MOST_CHARACTERS = 64
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_RATIO = re.compile(r"[+-]?[0-9]+/[0-9]+")


def exact_number(given: object, name: str, example: str, power: int = 1) -> Fraction:
    """The exact value of a parameter; PrivacyError if it, or the half of its `power`, is not allowed."""
    advice = f"Give a positive number, such as {example}."
    fraction = _fraction(given)
    if fraction is None:
        comma = decimal_point(given)
        raise PrivacyError(
            f"{name} is {as_given(given)}.{comma}"
            if comma
            else f"{name} is {as_given(given)}, not a finite number of ordinary length. {advice}"
        )
    if fraction <= 0:
        raise PrivacyError(f"{name} is {as_given(given)}; it must be above 0. {advice}")
    exponent, bits = (each // power + 1 - power for each in (MOST_EXPONENT, _MOST_BITS))
    if not Fraction(1, 2**exponent) <= fraction <= 2**exponent:
        raise PrivacyError(f"{name} is {as_given(given)}; it must be from 2**-{exponent} to 2**{exponent}. {advice}")
    if max(fraction.numerator.bit_length(), fraction.denominator.bit_length()) > bits:
        raise PrivacyError(f"{name} is a fraction of more than {bits} bits. {advice}")
    return fraction


def exact_delta(given: object) -> Fraction:
    """The exact value of a δ; PrivacyError if it is not allowed."""
    delta = exact_number(given, "delta", "'1e-9'")
    if delta >= 1:
        raise PrivacyError(f"delta is {as_given(given)}; it must be below 1. Give a small number, such as '1e-9'.")
    return delta


def format_amount(fraction: Fraction) -> str:
    """The fraction as a decimal, with an exponent if the plain decimal is long; else as numerator/denominator."""
    twos, rest = _power(fraction.denominator, 2)
    fives, rest = _power(rest, 5)
    if rest != 1:
        return str(fraction)
    digits = max(twos, fives)
    scaled = fraction.numerator * 2 ** (digits - twos) * 5 ** (digits - fives)
    zeros, coefficient = _power(scaled, 10)
    number = Decimal((0, tuple(map(int, str(coefficient))), zeros - digits))
    plain = f"{number:f}"
    return plain if len(plain) <= 20 else str(number)


def expression(fraction: Fraction) -> str:
    """An expression for the same fraction: its text in quotes, or the Fraction if the text is too long."""
    text = format_amount(fraction)
    return repr(text) if len(text) <= _MOST_CHARACTERS else repr(fraction)


def as_given(given: object) -> str:
    """A parameter as a message shows it: shortened, and only its type if the type is not expected."""
    if not isinstance(given, bool | int | float | str | Fraction | Decimal | np.bool | np.integer | np.floating):
        return f"of type {type(given).__name__}"
    if isinstance(given, int | Fraction) and max(map(int.bit_length, given.as_integer_ratio())) > 128:
        return "a number of more than 128 bits"  # Python refuses to write very long integers
    shown = repr(given[:_MOST_CHARACTERS] if isinstance(given, str) else given)
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]}…"


def _fraction(given: object) -> Fraction | None:
    if isinstance(given, bool | np.bool | np.timedelta64):
        return None  # True is 1 in Python and a duration is an integer in NumPy, but neither is ever meant
    if isinstance(given, Fraction):
        return given
    if isinstance(given, int | np.integer):
        return Fraction(int(given))
    if isinstance(given, float):
        return _from_text(float.__repr__(given))
    if isinstance(given, np.floating):
        return _from_text(str(given))  # the shortest decimal of its precision: np.float32(0.1) is 1/10
    if isinstance(given, Decimal):
        return _from_decimal(given)
    if isinstance(given, str):
        return _from_text(given)
    return None


def _from_text(text: str) -> Fraction | None:
    if len(text) > _MOST_CHARACTERS:
        return None
    if _DECIMAL.fullmatch(text):
        return _from_decimal(Decimal(text))
    if _RATIO.fullmatch(text):
        numerator, denominator = map(int, text.split("/"))
        return Fraction(numerator, denominator) if denominator else None
    return None


def _from_decimal(number: Decimal) -> Fraction | None:
    if not number.is_finite():
        return None
    if number == 0:
        return Fraction(0)
    if abs(number.adjusted()) > 999 or len(number.as_tuple().digits) > 999:
        return None  # before Fraction writes out 10**999999999
    return Fraction(number)


def _power(number: int, base: int) -> tuple[int, int]:
    """(k, m) such that number = baseᵏ · m, with the largest k."""
    k = 0
    while number % base == 0:
        number //= base
        k += 1
    return k, number
