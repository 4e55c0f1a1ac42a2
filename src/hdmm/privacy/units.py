"""Amounts of privacy as whole units: a spend is rounded up, a cap is rounded down (security L3, S4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import ceil, floor, lcm
from typing import Final, Literal, TypeAlias, final

from hdmm.base.exceptions import BudgetError, PrivacyError
from hdmm.privacy.guarantee import ZCDP, PureDP, Unit
from hdmm.privacy.spending import Spending

Parameter: TypeAlias = Literal["epsilon", "rho"]

# A decimal of up to 20 places, divided into up to 100 equal parts, is a whole number of these units (and so is 1/365).
# A budget of 1 therefore holds ten spends of 0.1 or three of 1/3; with binary units, rounding would refuse the last.
UNITS: Final = lcm(*range(1, 101)) * 10**20
_SYMBOL: Final[dict[Parameter, str]] = {"epsilon": "ε", "rho": "ρ"}


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
    parameter, amount = _exact(cap)
    units = floor(amount * UNITS)
    if units == 0:
        raise PrivacyError(f"The cap {cap} is below 1/{UNITS}, the unit of a ledger. Declare a larger cap.")
    return Account(parameter, cap=units, spent=0)


def charge(privacy: object, parameter: Parameter, times: int = 1) -> int:
    """The units that a spend costs an account of this parameter, rounded up.

    ε-differential privacy is ε²/2-zCDP (Bun and Steinke 2016, Proposition 1.4). `times` are the steps to a neighbour by
    the account's unit of privacy (hidden.py), which multiply ε, and ρ by their square.

    >>> Fraction(charge(PureDP("0.5"), "epsilon"), UNITS), Fraction(charge(PureDP("0.5"), "rho"), UNITS)
    (Fraction(1, 2), Fraction(1, 8))
    """
    spends, amount = _exact(privacy)
    if spends == "rho" and parameter == "epsilon":
        raise BudgetError(
            f"{privacy} cannot be charged to an account of pure differential privacy, because no ε bounds it. "
            "Measure with PureDP (Laplace noise), or declare the budget of a dataset as ZCDP from the start."
        )
    if spends == "epsilon" and parameter == "rho":
        amount, spends = amount**2 / 2, "rho"
    return ceil(amount * times ** (1 if spends == "epsilon" else 2) * UNITS)


def shown(parameter: Parameter, units: int) -> str:
    """An amount as messages show it: exact if that is short, else its first twelve digits.

    >>> shown("epsilon", UNITS // 2), shown("rho", UNITS // 3), shown("rho", UNITS // 2 + 1)
    ('ε = 0.5', 'ρ = 1/3', 'ρ ≈ 0.500000000000')
    """
    amount = Fraction(units, UNITS)
    context = Context(prec=12, rounding=ROUND_FLOOR)
    decimal = context.divide(Decimal(amount.numerator), Decimal(amount.denominator))
    if Fraction(decimal) == amount:
        return f"{_SYMBOL[parameter]} = {decimal:f}"
    if len(str(amount)) <= 20:
        return f"{_SYMBOL[parameter]} = {amount}"
    return f"{_SYMBOL[parameter]} ≈ {decimal}"


def guarantee(parameter: Parameter, units: int) -> PureDP | ZCDP:
    """A positive amount as a privacy guarantee.

    >>> guarantee("rho", UNITS)
    ZCDP('1')
    """
    amount = Fraction(units, UNITS)
    return PureDP(amount) if parameter == "epsilon" else ZCDP(amount)


def _exact(privacy: object) -> tuple[Parameter, Fraction]:
    """The parameter and its fraction, checked again, because an object can be made without its constructor."""
    if isinstance(privacy, PureDP):
        return "epsilon", PureDP(privacy.epsilon).epsilon
    if isinstance(privacy, ZCDP):
        return "rho", ZCDP(privacy.rho).rho
    raise PrivacyError(f"A ledger counts PureDP or ZCDP, not {type(privacy).__name__}. Give for example PureDP('0.5').")
