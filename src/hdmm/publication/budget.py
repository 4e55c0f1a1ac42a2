"""Budget: the state of a dataset's account, read without opening a new one."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import final

from hdmm.base.exceptions import BudgetError, LedgerError
from hdmm.base.numbers import up
from hdmm.privacy.audit import Audit, Entry, audit_of
from hdmm.privacy.hidden import shown_unit, steps, steps_between
from hdmm.privacy.ledger import Ledger, open_account
from hdmm.privacy.names import shown_name
from hdmm.privacy.spending import Parameter, Spending
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.privacy.units import SYMBOLS, UNITS, account, charge, parted, shown
from hdmm.publication.protection import DELTA
from hdmm.publication.spec import Spec


@final
@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a dataset, in ε, ρ or μ² as its account counts. Without an account, all of the spec's cap is left.

    `near` are the accounts of the same ledger whose names could be meant, if none has this name.
    """

    dataset: str
    parameter: Parameter
    cap: Fraction
    spent: Fraction
    entries: tuple[Entry, ...]
    near: tuple[str, ...] = ()
    audit: Audit | None = field(default=None, repr=False, compare=False)  # None if there is no ledger yet
    unit: Unit | None = None  # of privacy, whose losses the account adds; None if no debit has named one yet
    spending: Spending = field(default_factory=Spending)  # what was spent, by kinds

    @property
    def remaining(self) -> Fraction:
        """What may still be spent."""
        return self.cap - self.spent

    def times(self, unit: Unit) -> int:
        """How many times a spend on this unit of privacy counts; 1 if it cannot be paid (see `unpayable`)."""
        return 1 if self.unit is None else steps(self.unit, unit) or 1

    def shown(self, amount: Fraction) -> str:
        """An amount of the account as text, exact if that is short."""
        return shown(self.parameter, int(amount * UNITS))

    @property
    def summary(self) -> str:
        """What was spent and what is left, in words."""
        cap, spent, left = map(self.shown, (self.cap, self.spent, self.remaining))
        hidden = "" if self.unit is None else f" The amounts hide {shown_unit(self.unit)}."
        return f"Dataset {self.dataset!r}: {left} left of {cap}; {spent} spent.{self._in_epsilon}{hidden}"

    @property
    def cap_in_epsilon(self) -> str | None:
        """The ε at δ = 10⁻⁹ that all releases have that the cap allows; None of a cap in ε."""
        match self.parameter:
            case "epsilon":
                return None
            case "rho":
                everything = Spending(zcdp=self.cap)  # of whatever kinds
            case "mu_squared":
                everything = Spending(gaussian=self.cap / 2)
        return up(float(everything.epsilon_at(DELTA)), 3)

    @property
    def _in_epsilon(self) -> str:
        """What the cap of an account in ρ or μ² guarantees, and what all debits do, as ε with δ."""
        if self.cap_in_epsilon is None:
            return ""
        cap = f" The cap has ε = {self.cap_in_epsilon} at δ = 10⁻⁹."
        if self.spent == 0:
            return cap
        epsilon = up(float(self.spending.epsilon_at(DELTA)), 3)
        return (
            f"{cap} All debits together have ε = {epsilon} at δ = 10⁻⁹. (If results decided how much was spent later, "
            "only the cap is guaranteed.)"
        )

    @property
    def name_warning(self) -> str | None:
        """A warning before a name that is close to others opens an account; None if no name is close."""
        if not self.near:
            return None
        return (
            f"Dataset {shown_name(self.dataset)} has no account yet, but its name is like "
            f"{' and '.join(map(shown_name, self.near))}, which has one in the same ledger. If it is about the same "
            "people, write that name in [data], so that one budget counts."
        )


def budget_of(spec: Spec) -> Budget:
    """The budget that a specification spends from. Creates and writes nothing."""
    dataset, found = spec.data.dataset, audit_of(spec.ledger.path)
    if found is not None and found.account(dataset) is not None:
        return budget_in(found, dataset)
    near = () if found is None else found.near(dataset)
    opened = account(spec.ledger.cap)
    return Budget(dataset, opened.parameter, Fraction(opened.cap, UNITS), Fraction(0), (), near, found)


def budgets_in(path: Path) -> tuple[Budget, ...]:
    """The budgets of all datasets that have an account in a ledger. Creates and writes nothing."""
    found = audit_of(path)
    if found is None:
        raise LedgerError(f"There is no ledger {path}. Give the path of its database, such as budget.db.")
    return tuple(budget_in(found, dataset) for dataset in found.verified.accounts)


def budget_in(found: Audit, dataset: str) -> Budget:
    """The budget of a dataset that has an account in an audited ledger."""
    known = found.verified.accounts[dataset]
    cap, spent = Fraction(known.cap, UNITS), Fraction(known.spent, UNITS)
    return Budget(dataset, known.parameter, cap, spent, found.entries(dataset), (), found, known.unit, known.spending)


def paying_ledger(spec: Spec, found: Budget, *, new_dataset: bool) -> Ledger:
    """The account that pays, opened if there is none. A ledger that was audited is not audited again."""
    dataset, cap = spec.data.dataset, spec.ledger.cap
    if found.audit is None:
        return Ledger(spec.ledger.path, dataset=dataset, cap=cap, new_dataset=new_dataset)
    return open_account(found.audit, dataset=dataset, cap=cap, new_dataset=new_dataset)


def check_payable(spec: Spec, found: Budget) -> None:
    """Raise BudgetError, which says why and what to do, if a release cannot be paid."""
    if why := unpayable(spec, found):
        raise BudgetError(why)


def unpayable(spec: Spec, found: Budget) -> str | None:
    """Why a release would be refused, and what to do; None if it can be paid."""
    if differing := _other_cap(spec, found):
        return differing
    try:
        steps_between(found.dataset, found.unit, spec.unit)
    except BudgetError as wrong:
        return str(wrong)
    asked = cost(spec, found)
    if asked <= found.remaining:
        return None
    alike = parted(int(found.remaining * UNITS), int(asked * UNITS))
    return (
        f"Dataset {found.dataset!r} has {found.shown(found.remaining)} left of its cap {found.shown(found.cap)}; "
        f"the release would spend {found.shown(asked)}.{converted(spec, found)}{alike} Nothing was debited. Spend "
        f"no more than is left, or decide to spend more of people's privacy: write a larger cap in [ledger] of "
        f"{spec.path}. {_how_to_raise(spec)}"
    )


def _other_cap(spec: Spec, found: Budget) -> str | None:
    """What to do if the cap in the specification is not the account's; None if it is, or there is no account."""
    written = _written(spec, found)
    if not found.entries or written == found.cap:
        return None
    return (
        f"The ledger's cap for dataset {found.dataset!r} is {found.shown(found.cap)}; {spec.path} says "
        f"{found.shown(written)}. The ledger's cap is the one that counts, and it is never lowered. "
        + (_how_to_raise(spec) if written > found.cap else f"Write it in [ledger] of {spec.path}.")
    )


def raisable(spec: Spec) -> tuple[Budget, Fraction]:
    """The budget, and the larger cap that the specification has for it; BudgetError if that is not larger."""
    found = budget_of(spec)
    if not found.entries:
        raise BudgetError(
            f"Dataset {found.dataset!r} has no account in {spec.ledger.path}, so there is no cap to raise. The first "
            f"release opens one with the cap in {spec.path}."
        )
    larger = _written(spec, found)
    if larger <= found.cap:
        raise BudgetError(
            f"The cap of dataset {found.dataset!r} is {found.shown(found.cap)}, but {spec.path} says "
            f"{found.shown(larger)}, which is not larger. Write the larger cap in [ledger] of {spec.path} first."
        )
    return found, larger


def raise_cap(spec: Spec, *, reason: str) -> Budget:
    """The budget after the ledger has recorded the specification's cap, which must be larger than its own."""
    Ledger(spec.ledger.path, dataset=spec.data.dataset).raise_cap(spec.ledger.cap, reason=reason)
    return budget_of(spec)


def _written(spec: Spec, found: Budget) -> Fraction:
    """The cap in the specification, rounded to the units of a ledger."""
    cap = account(spec.ledger.cap)
    if cap.parameter != found.parameter:
        counted, written = SYMBOLS[found.parameter], SYMBOLS[cap.parameter]
        raise BudgetError(
            f"The account of dataset {found.dataset!r} counts {counted}; {spec.path} has a cap in {written}. Write the "
            "cap in the parameter with which the account was declared."
        )
    return Fraction(cap.cap, UNITS)


def _how_to_raise(spec: Spec) -> str:
    command = f'hdmm budget {spec.command} --raise-cap --reason "who decided, and why"'
    return f"To raise the ledger's cap to that, run {command}."


def cost(spec: Spec, found: Budget) -> Fraction:
    """What a release spends of its account."""
    return Fraction(charge(spec.privacy, found.parameter, found.times(spec.unit), gaussian=True), UNITS)


def converted(spec: Spec, found: Budget) -> str:
    """A sentence about a spend that counts several times because the account has another unit; otherwise empty."""
    times = found.times(spec.unit)
    if times == 1 or found.unit is None:
        return ""
    return (
        f" The account adds up what is spent on {shown_unit(found.unit)}, and the release hides {spec.unit}, so that "
        f"ε counts {times} times (ρ and μ² {times**2} times)."
    )
