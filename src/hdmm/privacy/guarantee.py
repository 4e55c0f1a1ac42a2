"""How much privacy a release spends: PureDP (ε), ZCDP (ρ), GaussianDP (μ) and ApproxDP (ε, δ), as exact fractions.

A parameter is an int, a Fraction, a Decimal, a text ("0.5", "1e-3", "1/3") or a float. It is stored as the exact
fraction, and nothing is rounded (security S4). A float stands for its shortest decimal, as Python prints it: 0.1 means
1/10. Anything other than a positive, finite number of ordinary size is refused (security L5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Literal, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import PrivacyError, StrategyError
from hdmm.base.hints import brief, decimal_point
from hdmm.privacy.conversion import epsilon_up
from hdmm.privacy.gdp import gaussian_epsilon_up, mu_down

Exact: TypeAlias = int | Fraction | Decimal | str | float | np.integer | np.floating
Privacy: TypeAlias = "PureDP | ZCDP | GaussianDP | ApproxDP"

# From 2⁻⁵⁰⁰ to 2⁵⁰⁰, 2/ε² and 1/(2ρ) are normal floats; subnormal numbers are far below.
_MOST_EXPONENT = 500
_MOST_BITS = 2048  # of numerator and denominator: more than any number of 64 characters in that range needs
_MOST_CHARACTERS = 64
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_RATIO = re.compile(r"[+-]?[0-9]+/[0-9]+")


class Noise(StrEnum):
    """The two noise distributions; each compares equal to its name.

    Sensitivity is the largest column norm of this `order`, and the losses of several measurements add up as |θ|ᵒʳᵈᵉʳ.

    >>> Noise.of("gaussian").order, Noise.LAPLACE == "laplace"
    (2, True)
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"

    @classmethod
    def of(cls, given: str) -> Noise:
        """The noise of this name; StrategyError if the name is unknown."""
        if given not in tuple(cls):
            raise StrategyError(f"The noise {_shown(given)} is unknown. Use noise='laplace' or noise='gaussian'.")
        return cls(given)

    @property
    def order(self) -> Literal[1, 2]:
        """The order of the norm in which sensitivity is measured: 1 for L1, 2 for L2."""
        return 1 if self is Noise.LAPLACE else 2

    @property
    def convex(self) -> bool:
        """Whether selection is convex in the squared weights and grams, so that one descent finds the optimum."""
        return self is Noise.GAUSSIAN

    def norm(self, weights: Iterable[float]) -> float:
        """The norm of the weights of blocks: the sensitivity of their stack if every block has sensitivity 1.

        >>> Noise.LAPLACE.norm([3.0, 4.0]), Noise.GAUSSIAN.norm([3.0, 4.0])
        (7.0, 5.0)
        """
        total = math.fsum(abs(w) ** self.order for w in weights)
        return total if self.order == 1 else math.sqrt(total)

    def __repr__(self) -> str:
        return repr(self.value)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class PureDP:
    """ε-differential privacy.

    >>> PureDP("0.5").epsilon, PureDP(0.1).epsilon
    (Fraction(1, 2), Fraction(1, 10))
    >>> PureDP("1/3"), str(PureDP(2))
    (PureDP('1/3'), 'ε = 2 (pure differential privacy)')
    """

    epsilon: Fraction

    def __init__(self, epsilon: Exact) -> None:
        object.__setattr__(self, "epsilon", _exact(epsilon, "epsilon", "'0.5'"))

    @property
    def noise(self) -> Noise:
        """The noise that a release under this guarantee adds.

        >>> PureDP(1).noise
        'laplace'
        """
        return Noise.LAPLACE

    @property
    def variance_factor(self) -> Fraction:
        """2/ε²: the variance of Laplace noise at sensitivity 1, what plan.error is multiplied by.

        >>> PureDP("0.5").variance_factor
        Fraction(8, 1)
        """
        return 2 / self.epsilon**2

    def __repr__(self) -> str:
        return f"PureDP({_written(self.epsilon)})"

    def __str__(self) -> str:
        return f"ε = {format_amount(self.epsilon)} (pure differential privacy)"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class ZCDP:
    """ρ-zero-concentrated differential privacy.

    >>> ZCDP("0.125").rho, ZCDP(1e-3)
    (Fraction(1, 8), ZCDP('0.001'))
    >>> str(ZCDP("0.5"))
    'ρ = 0.5 (zero-concentrated differential privacy)'
    """

    rho: Fraction

    def __init__(self, rho: Exact) -> None:
        object.__setattr__(self, "rho", _exact(rho, "rho", "'0.5'"))

    @property
    def noise(self) -> Noise:
        """The noise that a release under this guarantee adds.

        >>> ZCDP(1).noise
        'gaussian'
        """
        return Noise.GAUSSIAN

    @property
    def variance_factor(self) -> Fraction:
        """1/(2ρ): the variance of Gaussian noise at sensitivity 1, what plan.error is multiplied by.

        >>> ZCDP("0.125").variance_factor
        Fraction(4, 1)
        """
        return 1 / (2 * self.rho)

    def epsilon_at(self, delta: Exact) -> Fraction:
        """An ε, rounded up, such that ρ-zCDP implies (ε, δ)-differential privacy (conversion.py).

        >>> float(ZCDP("0.5").epsilon_at("1e-6"))
        5.22153444...
        """
        return epsilon_up(self.rho, exact_delta(delta))

    def __repr__(self) -> str:
        return f"ZCDP({_written(self.rho)})"

    def __str__(self) -> str:
        return f"ρ = {format_amount(self.rho)} (zero-concentrated differential privacy)"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class GaussianDP:
    """μ-Gaussian differential privacy: no more is revealed than by one draw from N(0, 1) or N(μ, 1).

    Gaussian noise has it exactly: each release with that noise is stated by its μ without loss.

    >>> GaussianDP("0.5").mu, GaussianDP("0.5").rho
    (Fraction(1, 2), Fraction(1, 8))
    >>> str(GaussianDP("0.5"))
    'μ = 0.5 (Gaussian differential privacy)'
    """

    mu: Fraction

    def __init__(self, mu: Exact) -> None:
        object.__setattr__(self, "mu", _exact(mu, "mu", "'0.5'", power=2))

    @property
    def rho(self) -> Fraction:
        """μ²/2, the ρ of its zero-concentrated differential privacy.

        >>> GaussianDP(1).rho
        Fraction(1, 2)
        """
        return self.mu**2 / 2

    @property
    def noise(self) -> Noise:
        """The noise that a release under this guarantee adds.

        >>> GaussianDP(1).noise
        'gaussian'
        """
        return Noise.GAUSSIAN

    @property
    def variance_factor(self) -> Fraction:
        """1/μ²: the variance of Gaussian noise at sensitivity 1, what plan.error is multiplied by.

        >>> GaussianDP("0.5").variance_factor
        Fraction(4, 1)
        """
        return 1 / self.mu**2

    def epsilon_at(self, delta: Exact) -> Fraction:
        """The least ε, rounded up, such that μ-GDP implies (ε, δ)-differential privacy (gdp.py). It may be 0.

        >>> float(GaussianDP(1).epsilon_at("1e-6"))
        4.88655411...
        """
        return gaussian_epsilon_up(self.rho, exact_delta(delta))

    def __repr__(self) -> str:
        return f"GaussianDP({_written(self.mu)})"

    def __str__(self) -> str:
        return f"μ = {format_amount(self.mu)} (Gaussian differential privacy)"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class ApproxDP:
    """(ε, δ)-differential privacy, reached by the least Gaussian noise that has it.

    >>> ApproxDP("0.5", "1e-9")
    ApproxDP('0.5', delta='0.000000001')
    >>> str(ApproxDP(1, delta="1e-6"))
    'ε = 1, δ = 0.000001 (approximate differential privacy)'
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Exact, delta: Exact) -> None:
        object.__setattr__(self, "epsilon", _exact(epsilon, "epsilon", "'0.5'"))
        object.__setattr__(self, "delta", exact_delta(delta))
        if self.rho < Fraction(1, 2**_MOST_EXPONENT):
            raise PrivacyError(
                f"epsilon is {_shown(epsilon)} and delta is {_shown(delta)}, which only a rho below 2**-500 implies. "
                "Give a larger epsilon, such as ApproxDP('0.5', '1e-9')."
            )

    @property
    def rho(self) -> Fraction:
        """μ²/2 for the largest μ, rounded down, with which Gaussian noise is (ε, δ)-differentially private (gdp.py).

        >>> float(ApproxDP(1, delta="1e-6").rho)
        0.0280144819...
        """
        return mu_down(self.epsilon, self.delta) ** 2 / 2

    @property
    def noise(self) -> Noise:
        """The noise that a release under this guarantee adds.

        >>> ApproxDP(1, delta="1e-6").noise
        'gaussian'
        """
        return Noise.GAUSSIAN

    @property
    def variance_factor(self) -> Fraction:
        """1/(2ρ): the variance of Gaussian noise at sensitivity 1, what plan.error is multiplied by.

        >>> float(ApproxDP(1, delta="1e-6").variance_factor)
        17.8479117...
        """
        return 1 / (2 * self.rho)

    def __repr__(self) -> str:
        return f"ApproxDP({_written(self.epsilon)}, delta={_written(self.delta)})"

    def __str__(self) -> str:
        return f"ε = {format_amount(self.epsilon)}, δ = {format_amount(self.delta)} (approximate differential privacy)"


def guarantee(
    epsilon: Exact | None = None, delta: Exact | None = None, rho: Exact | None = None, mu: Exact | None = None
) -> Privacy:
    """What these parameters declare: pure, approximate, zero-concentrated or Gaussian differential privacy.

    >>> guarantee("0.5"), guarantee(rho="0.1"), guarantee(mu="0.5")
    (PureDP('0.5'), ZCDP('0.1'), GaussianDP('0.5'))
    """
    if (epsilon, rho, mu).count(None) == 2 and (delta is None or epsilon is not None):
        if epsilon is not None:
            return PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta)
        if rho is not None:
            return ZCDP(rho)
        if mu is not None:
            return GaussianDP(mu)
    raise PrivacyError("Give epsilon, or epsilon and delta, or rho, or mu.")


def scaled(privacy: Privacy, times: Fraction) -> Privacy:
    """The privacy with `times` its ε, ρ or μ; δ stays.

    >>> scaled(PureDP("0.5"), Fraction(4))
    PureDP('2')
    """
    match privacy:
        case PureDP():
            return PureDP(privacy.epsilon * times)
        case ZCDP():
            return ZCDP(privacy.rho * times)
        case GaussianDP():
            return GaussianDP(privacy.mu * times)
        case ApproxDP():
            return ApproxDP(privacy.epsilon * times, privacy.delta)


def error_factor(privacy: Privacy, other: Privacy) -> float:
    """The factor by which the error at one privacy changes at another.

    >>> error_factor(PureDP(1), PureDP(2))
    0.5
    """
    return math.sqrt(other.variance_factor / privacy.variance_factor)


def parameter(privacy: Privacy) -> tuple[str, float]:
    """The symbol of what may be scaled, as an axis names it, and its value.

    >>> parameter(ApproxDP(1, "1e-6"))
    ('ε (at δ = 0.000001)', 1.0)
    """
    match privacy:
        case PureDP():
            return "ε", float(privacy.epsilon)
        case ZCDP():
            return "ρ", float(privacy.rho)
        case GaussianDP():
            return "μ", float(privacy.mu)
        case ApproxDP():
            return f"ε (at δ = {format_amount(privacy.delta)})", float(privacy.epsilon)


def short_name(privacy: Privacy) -> str:
    """The parameters alone.

    >>> short_name(PureDP("0.5"))
    'ε = 0.5'
    """
    return str(privacy).partition(" (")[0]


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of privacy: at most `rows` rows of one person, which are added or removed, or replaced by others.

    `id` is the column that says whose row it is; without one, the unit is any `rows` rows.

    >>> Unit(rows=3).factor(Noise.LAPLACE, signed=False), Unit(rows=3).factor(Noise.GAUSSIAN, signed=False)
    (3, 9)
    >>> str(Unit(neighbours="replace"))
    'one row replaced by another'
    """

    rows: int = 1
    neighbours: Literal["add-remove", "replace"] = "add-remove"
    id: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or not 1 <= self.rows < 2**31:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PrivacyError(
                f"A unit of privacy cannot have {brief(self.rows)} rows. Give an integer from 1 to 2**31 - 1."
            )
        if self.neighbours not in ("add-remove", "replace"):
            raise PrivacyError(f"The neighbours {brief(self.neighbours)} are unknown. Use 'add-remove' or 'replace'.")
        if self.id is not None and (not isinstance(self.id, str) or not self.id):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PrivacyError(f"The column of ids is {_shown(self.id)}. Give the name of a column, or None.")

    def factor(self, noise: Noise, *, signed: bool) -> int:
        """The factor by which the sensitivity of one row (squared for Gaussian noise) is multiplied.

        Replacing a row changes the answers by a − b: ‖a − b‖₁ ≤ 2Δ₁, and ‖a − b‖₂² ≤ 2Δ₂² for a, b ≥ 0, else 4Δ₂².
        """
        replaced = self.neighbours == "replace"
        return self.rows**noise.order * ((2 if noise.order == 1 or not signed else 4) if replaced else 1)

    def __str__(self) -> str:
        person = " of one person" if self.rows > 1 or self.id is not None else ""
        rows = f"{'one row' if self.rows == 1 else f'up to {self.rows:,} rows'}{person}"
        return (
            f"{rows} replaced by {'another' if self.rows == 1 else 'others'}"
            if self.neighbours == "replace"
            else (f"{rows} added or removed")
        )


def _exact(given: object, name: str, example: str, power: int = 1) -> Fraction:
    """The exact value of a parameter; PrivacyError if it, or the half of its `power`, is not allowed."""
    advice = f"Give a positive number, such as {example}."
    fraction = _fraction(given)
    if fraction is None:
        comma = decimal_point(given)
        raise PrivacyError(
            f"{name} is {_shown(given)}.{comma}"
            if comma
            else f"{name} is {_shown(given)}, not a finite number of ordinary length. {advice}"
        )
    if fraction <= 0:
        raise PrivacyError(f"{name} is {_shown(given)}; it must be above 0. {advice}")
    exponent, bits = (each // power + 1 - power for each in (_MOST_EXPONENT, _MOST_BITS))
    if not Fraction(1, 2**exponent) <= fraction <= 2**exponent:
        raise PrivacyError(f"{name} is {_shown(given)}; it must be from 2**-{exponent} to 2**{exponent}. {advice}")
    if max(fraction.numerator.bit_length(), fraction.denominator.bit_length()) > bits:
        raise PrivacyError(f"{name} is a fraction of more than {bits} bits. {advice}")
    return fraction


def exact_delta(given: object) -> Fraction:
    """The exact value of a δ; PrivacyError if it is not allowed."""
    delta = _exact(given, "delta", "'1e-9'")
    if delta >= 1:
        raise PrivacyError(f"delta is {_shown(given)}; it must be below 1. Give a small number, such as '1e-9'.")
    return delta


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


def _power(number: int, base: int) -> tuple[int, int]:
    """(k, m) such that number = baseᵏ · m, with the largest k."""
    k = 0
    while number % base == 0:
        number //= base
        k += 1
    return k, number


def _written(fraction: Fraction) -> str:
    """An expression for the same fraction: its text in quotes, or the Fraction if the text is too long."""
    text = format_amount(fraction)
    return repr(text) if len(text) <= _MOST_CHARACTERS else repr(fraction)


def _shown(given: object) -> str:
    """A parameter as a message shows it: shortened, and only its type if the type is not expected."""
    if not isinstance(given, bool | int | float | str | Fraction | Decimal | np.bool | np.integer | np.floating):
        return f"of type {type(given).__name__}"
    if isinstance(given, int | Fraction) and max(map(int.bit_length, given.as_integer_ratio())) > 128:
        return "a number of more than 128 bits"  # Python refuses to write very long integers
    shown = repr(given[:_MOST_CHARACTERS] if isinstance(given, str) else given)
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]}…"
