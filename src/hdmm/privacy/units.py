"""Amounts of privacy as whole units: a spend is rounded up, a cap is rounded down (security L3, S4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import ceil, floor, isqrt, lcm
from typing import Final, final

from hdmm.base.exceptions import BudgetError, PrivacyError
from hdmm.privacy.gdp import is_private, root
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, Privacy, PureDP
from hdmm.privacy.spending import Parameter, Spending
from hdmm.privacy.unit_of_privacy import Unit

# A decimal of up to 20 places, divided into up to 100 equal parts, is a whole number of these units (and so is 1/365).
# A budget of 1 therefore holds ten spends of 0.1 or three of 1/3; with binary units, rounding would refuse the last.
UNITS: Final = lcm(*range(1, 101)) * 10**20
SYMBOLS: Final[dict[Parameter, str]] = {"epsilon": "ε", "rho": "ρ", "mu_squared": "μ²"}
_ALIKE: Final = 10  # first digits; messages show twelve
_COUNTS: Final[dict[Parameter, str]] = {"epsilon": "pure", "rho": "zero-concentrated", "mu_squared": "Gaussian"}
_INSTEAD: Final[dict[Parameter, str]] = {
    "epsilon": "Measure with PureDP (Laplace noise), or declare the budget of a dataset as ZCDP or GaussianDP from the "
    "start.",
    "rho": "Give a guarantee that has one.",
    "mu_squared": "Give GaussianDP, or PureDP.",
}


@final
@dataclass(frozen=True, slots=True)
class Account:
    """One dataset's budget, in units.

    >>> Account("epsilon", cap=4 * UNITS, spent=UNITS).remaining == 3 * UNITS
    True
    """

    parameter: Parameter
    cap: int
    spent: int
    unit: Unit | None = None  # of privacy, which the first debit that names one decides; None before it
    spending: Spending = field(default_factory=Spending)  # what was spent, by kinds

    @property
    def remaining(self) -> int:
        return self.cap - self.spent


def account(cap: object) -> Account:
    """The untouched account that a cap declares, rounded down to units.

    >>> account(PureDP(4)) == Account("epsilon", cap=4 * UNITS, spent=0)
    True
    """
    known = _checked(cap)
    match known:
        case PureDP(amount):
            parameter, units = "epsilon", floor(amount * UNITS)
        case ZCDP(amount):
            parameter, units = "rho", floor(amount * UNITS)
        case GaussianDP(mu):
            parameter, units = "mu_squared", floor(mu**2 * UNITS)
        case ApproxDP():
            parameter, units = "mu_squared", _approximate(known)
    if units == 0:
        raise PrivacyError(f"The cap {cap} is below 1/{UNITS}, the unit of a ledger. Declare a larger cap.")
    return Account(parameter, cap=units, spent=0)


def _approximate(cap: ApproxDP) -> int:
    """The units of μ² that imply (ε, δ): those that one release with it is charged, if these imply it, too."""
    units = charge(cap, "mu_squared", gaussian=True)
    return units if is_private(cap.epsilon, cap.delta, root(Fraction(units, UNITS), "up", 256)) else units - 1


def charge(privacy: object, parameter: Parameter, times: int = 1, *, gaussian: bool = False) -> int:
    """The units that a spend costs an account of this parameter, rounded up.

    ε-differential privacy is ε²/2-zCDP (Bun and Steinke 2016, Proposition 1.4), and μ-Gaussian (gdp.py). `times` are
    the steps to a neighbour by the account's unit of privacy (hidden.py), which multiply ε and μ, and ρ by their
    square. `gaussian` says that a ρ, or an (ε, δ), is that of exact Gaussian noise.

    >>> Fraction(charge(PureDP("0.5"), "epsilon"), UNITS), Fraction(charge(PureDP("0.5"), "rho"), UNITS)
    (Fraction(1, 2), Fraction(1, 8))
    """
    known = _checked(privacy)
    if isinstance(known, ApproxDP) and not gaussian:
        raise PrivacyError(f"{privacy} is not charged by itself, because such amounts do not add up. Give ZCDP(rho).")
    gaussian |= isinstance(known, GaussianDP)
    amount = Spending.of(known, gaussian=gaussian, times=times).amount(parameter)
    if amount is None:
        raise BudgetError(
            f"{privacy} cannot be charged to an account of {_COUNTS[parameter]} differential privacy, because no "
            f"{SYMBOLS[parameter]} bounds it. {_INSTEAD[parameter]}"
        )
    return ceil(amount * UNITS)


def shown(parameter: Parameter, units: int) -> str:
    """An amount as messages show it: exact if that is short, else its first twelve digits.

    >>> shown("epsilon", UNITS // 2), shown("rho", UNITS // 3), shown("rho", UNITS // 2 + 1)
    ('ε = 0.5', 'ρ = 1/3', 'ρ ≈ 0.500000000000')
    """
    amount = Fraction(units, UNITS)
    context = Context(prec=12, rounding=ROUND_FLOOR)
    decimal = context.divide(Decimal(amount.numerator), Decimal(amount.denominator))
    if Fraction(decimal) == amount:
        return f"{SYMBOLS[parameter]} = {decimal:f}"
    if len(str(amount)) <= 20:
        return f"{SYMBOLS[parameter]} = {amount}"
    return f"{SYMBOLS[parameter]} ≈ {decimal}"


def parted(left: int, asked: int) -> str:
    """What to say where a debit exceeds what is left by so little that both look the same; else nothing.

    >>> parted(UNITS, UNITS + 1).startswith(" They differ"), parted(UNITS, 2 * UNITS), parted(0, 1)
    (True, '', '')
    """
    if not 0 < (asked - left) * 10**_ALIKE < asked:
        return ""
    return (
        f" They differ by less than a part in 10**{_ALIKE}, because a debit is rounded up to whole units and a cap is "
        "rounded down. Write a μ with at most 11 decimal places, and other amounts with at most 20."
    )


def guarantee(parameter: Parameter, units: int) -> PureDP | ZCDP | GaussianDP:
    """A positive amount as a privacy guarantee; the root of a μ² is exact, or rounded down.

    >>> guarantee("rho", UNITS), guarantee("mu_squared", UNITS // 4)
    (ZCDP('1'), GaussianDP('0.5'))
    """
    amount = Fraction(units, UNITS)
    match parameter:
        case "epsilon":
            return PureDP(amount)
        case "rho":
            return ZCDP(amount)
        case "mu_squared":
            found = root(amount, "down")
            return GaussianDP(found if found**2 == amount else Fraction(isqrt(amount * 10**80 // 1), 10**40))


def _checked(privacy: object) -> Privacy:
    """The guarantee, checked again, because an object can be made without its constructor."""
    match privacy:
        case PureDP(amount) | ZCDP(amount) | GaussianDP(amount):
            return type(privacy)(amount)
        case ApproxDP(epsilon, delta):
            return ApproxDP(epsilon, delta)
        case _:
            raise PrivacyError(
                f"A ledger counts PureDP, ZCDP or GaussianDP, not {type(privacy).__name__}. Give for example "
                "PureDP('0.5')."
            )
