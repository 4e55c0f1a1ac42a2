"""Standing: what a dataset's account says, without opening one that is not there."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from hdmm.exceptions import BudgetError
from hdmm.ledger import Entry, Ledger
from hdmm.ledger.units import UNITS, Parameter, charge, shown
from hdmm.privacy import ZCDP, ApproxDP, Privacy, PureDP
from hdmm.spec import Spec


@final
@dataclass(frozen=True, slots=True)
class Standing:
    """The budget of a dataset: in ε or ρ, as the account counts. Without an account, all of the spec's cap is left."""

    dataset: str
    parameter: Parameter
    cap: Fraction
    spent: Fraction
    entries: tuple[Entry, ...]

    @property
    def remaining(self) -> Fraction:
        """What may still be spent."""
        return self.cap - self.spent

    def shown(self, amount: Fraction) -> str:
        """An amount of the account for people: exact where that is short."""
        return shown(self.parameter, int(amount * UNITS))


def standing(spec: Spec) -> Standing:
    """The standing of the account that a specification spends from. Creates and writes nothing."""
    cap, spent, entries = spec.ledger.cap, Fraction(0), ()
    if os.path.lexists(spec.ledger.path):
        with suppress(BudgetError):  # no account of this name yet
            ledger = Ledger(spec.ledger.path, dataset=spec.data.dataset)
            cap, spent, entries = ledger.cap, ledger.spent, ledger.entries()
    if isinstance(cap, PureDP):
        return Standing(spec.data.dataset, "epsilon", cap.epsilon, spent, entries)
    return Standing(spec.data.dataset, "rho", cap.rho, spent, entries)


def affordable(spec: Spec) -> Standing:
    """The standing of the account, where a release can be paid; else BudgetError, before time is spent on a plan."""
    found = standing(spec)
    asked = cost(spec.privacy, found.parameter)
    if asked > found.remaining:
        raise BudgetError(
            f"Dataset {found.dataset!r} has {found.shown(found.remaining)} left of its cap {found.shown(found.cap)}; "
            f"{found.shown(asked)} is asked. Nothing was debited. Ask for no more than is left."
        )
    return found


def cost(privacy: Privacy, parameter: Parameter) -> Fraction:
    """What a release spends of an account in ε or in ρ.

    >>> cost(PureDP(1), "rho"), cost(ZCDP("0.1"), "rho")
    (Fraction(1, 2), Fraction(1, 10))
    """
    charged = ZCDP(privacy.rho) if isinstance(privacy, ApproxDP) else privacy
    return Fraction(charge(charged, parameter), UNITS)
