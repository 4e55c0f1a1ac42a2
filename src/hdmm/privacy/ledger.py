"""Ledger: the account of one dataset in a file of accounts."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import final

from hdmm.base.exceptions import BudgetError, LedgerError
from hdmm.base.notebook import MOST_SHOWN, Card, NotebookValue
from hdmm.privacy.audit import Audit, Entry
from hdmm.privacy.chain import Draft, Record, Verified, follow
from hdmm.privacy.exact_number import Exact, exact_delta
from hdmm.privacy.guarantee import ZCDP, GaussianDP, Privacy, PureDP
from hdmm.privacy.hidden import steps_between
from hdmm.privacy.names import near_names, shown_name
from hdmm.privacy.purpose import debit_text
from hdmm.privacy.spending import Parameter
from hdmm.privacy.store import Store
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.privacy.units import UNITS, Account, account, charge, guarantee, parted, shown

_LINE_CHARACTERS = 500


@final
@dataclass(frozen=True, slots=True)
class Receipt:
    """A debit that is on disk: its number and hash in the chain, its amount, and the balance after it.

    The amount is in the account's parameter: a pure ε charged to a zCDP account is ε²/2.
    """

    sequence: int
    dataset: str
    parameter: Parameter
    amount: Fraction
    balance: Fraction
    hash: str
    timestamp: str


@final
class Ledger(NotebookValue):
    """The privacy budget of one dataset, on disk.

    The budget belongs to the name `dataset`, wherever the data or the two files of the ledger are. The first opening
    declares the cap, whose type determines the account: PureDP counts ε; ZCDP counts ρ and charges a pure ε as ε²/2;
    GaussianDP counts μ², and so does ApproxDP, by the largest μ that implies it. Later openings give the same cap, or
    no cap. Opening verifies the whole chain of records. A new name that could be confused with an existing account is
    refused, unless `new_dataset=True` states that it is about other people.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "budget.db"
    >>> ledger = Ledger(path, dataset="people-2026", cap=PureDP(4))
    >>> receipt = ledger.debit(PureDP("0.5"), "ages by sex")
    >>> receipt.sequence, receipt.amount, receipt.balance
    (3, Fraction(1, 2), Fraction(7, 2))
    >>> Ledger(path, dataset="people-2026").remaining
    Fraction(7, 2)
    >>> ledger.debit(PureDP(4), "everything")
    Traceback (most recent call last):
    hdmm.base.exceptions.BudgetError: Dataset 'people-2026' has ε = 3.5 left of its cap ε = 4, but the debit...
    """

    __slots__ = ("_audit", "_dataset", "_expected")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dataset: str | None = None,
        cap: Privacy | None = None,
        new_dataset: bool = False,
        timeout: float = 30.0,
    ) -> None:
        if dataset is None:
            raise LedgerError(
                "A ledger keeps the budget of a dataset, which has no name here. Give its name and, at first, the "
                f"most that may ever be spent on it: Ledger({os.fspath(path)!r}, dataset='people-2026', cap=PureDP(4))."
            )
        named = _line(dataset, "The name of a dataset")
        declared = None if cap is None else account(cap)
        store = Store.at(path, timeout)
        if declared is not None:
            store.create(_now())
        self._open(Audit(store, *store.audit()), named, declared, new=new_dataset)
        self._expected: Account | None = None  # whose cap is checked again when it is debited

    def _open(self, audit: Audit, dataset: str, cap: Account | None, *, new: bool) -> None:
        """Take the dataset's account in a ledger that was verified so far, or declare one."""
        self._audit, self._dataset = audit, dataset
        if audit.account(dataset) is None:
            try:
                self._append(lambda now: _declared(now, dataset, cap, new=new))
            except _DeclaredMeanwhile:
                self._account()
        if cap is not None:
            _check_declared(self._audit.verified.accounts[dataset], cap, dataset)

    @classmethod
    def adopt(cls, path: str | os.PathLike[str], *, dataset: str, reason: str, timeout: float = 30.0) -> Ledger:
        """A ledger whose head file was lost, with a new head and a record that gives the reason.

        Without its head, nobody can know whether the database is an older copy. Read docs/reference/ledger.md first.
        """
        draft = Draft("adopt", _line(reason, "A reason"), _now())
        Store.at(path, timeout).adopt(draft)
        return cls(path, dataset=dataset, timeout=timeout)

    @property
    def path(self) -> Path:
        """The path of the database; the head file is next to it, with .head added to the name."""
        return self._audit.store.path

    @property
    def dataset(self) -> str:
        """The declared identity to which the budget belongs."""
        return self._dataset

    @property
    def cap(self) -> PureDP | ZCDP | GaussianDP:
        """The most that may ever be spent, as last declared or raised, rounded down to units."""
        now = self._account()
        return guarantee(now.parameter, now.cap)

    @property
    def spent(self) -> Fraction:
        """The total of all debits so far, by any process: ε, ρ or μ², as the account counts."""
        return Fraction(self._account().spent, UNITS)

    @property
    def remaining(self) -> Fraction:
        """The amount that may still be debited: ε, ρ or μ², as the account counts."""
        return Fraction(self._account().remaining, UNITS)

    @property
    def unit(self) -> Unit | None:
        """The unit of privacy whose losses the account adds, as the first debit that names one has it; None before."""
        return self._account().unit

    def epsilon_at(self, delta: Exact) -> Fraction:
        """The least ε, rounded up, with which all debits together are known to be (ε, δ)-differentially private.

        Gaussian noise counts by the (ε, δ) that it has exactly, if the debit states such noise, as those of
        releases do; a pure ε is added, or counts by its ρ or μ; what early versions debited counts as ρ-zCDP
        (spending.py). If budgets were chosen by what earlier releases showed, what is guaranteed is the cap.
        """
        return self._account().spending.epsilon_at(exact_delta(delta))

    def debit(
        self,
        privacy: Privacy,
        purpose: str,
        *,
        unit: Unit | None = None,
        pays_for: str | None = None,
        gaussian: bool = False,
    ) -> Receipt:
        """The receipt of a spend that is on disk; BudgetError if it exceeds the budget. Call it before data is read.

        A debit cannot be undone: a run that fails afterwards stays charged. `unit` is the unit of privacy for which the
        spend holds; without it, you say that this is the unit of the account. The first unit binds the account: another
        one is refused, or charged several times if that is sound (docs/reference/ledger.md). `pays_for` is the
        `Release.digest` of the one release that the debit pays for, which is known before it is measured; without it,
        nothing can be published on the debit. `gaussian` says that a ρ is that of exact Gaussian
        noise, whose (ε, δ) are smaller, as that of GaussianDP is; only with it, (ε, δ) can be debited.
        """
        gaussian |= isinstance(privacy, GaussianDP)
        spends = privacy.epsilon if isinstance(privacy, PureDP) else "gaussian" if gaussian else "rho"
        text = debit_text(_line(purpose, "A purpose"), pays_for, unit, spends)
        charge(privacy, "rho", gaussian=gaussian)  # refuse what is not a guarantee before the disk is touched
        price = partial(charge, privacy, gaussian=gaussian)
        found = self._append(lambda now: _debited(now, self._dataset, price, text, unit, self._expected))
        return _receipt(found.records[-1], found.verified)

    def raise_cap(self, cap: Privacy, *, reason: str) -> Entry:
        """The record of a larger cap, which is a decision about people's privacy and is kept with its reason."""
        text = _line(reason, "A reason")
        larger = account(cap)
        found = self._append(lambda verified: _raised(verified, self._dataset, larger, text))
        return Entry.of(found.records[-1])

    def entries(self) -> tuple[Entry, ...]:
        """The records of this dataset and of the file as a whole, oldest first, all verified. O(records)."""
        return self._audit.again().entries(self._dataset)

    def verify(self, *receipts: Receipt) -> int:
        """The number of records, all verified; LedgerError if one is wrong or the debit of a receipt is missing.

        Receipts that are kept elsewhere, with the releases, reveal what the files cannot: that both files were
        replaced by older copies. A receipt must be of this dataset and agree with its record in every field.
        """
        found = self._audit.again()
        for receipt in receipts:
            debit_of(receipt, found, self._dataset)
        return len(found.records)

    def __repr__(self) -> str:
        return f"Ledger({os.fspath(self.path)!r}, dataset={self._dataset!r})"

    def _card(self) -> Card:
        """What the budget has left, and the latest records, all verified. O(records)."""
        entries, now = self.entries(), self._account()
        amounts = {"Cap": now.cap, "Spent": now.spent, "Left": now.remaining}
        facts = {"Dataset": self._dataset} | {name: shown(now.parameter, units) for name, units in amounts.items()}
        rows = (
            [e.timestamp, e.kind, e.text, shown(now.parameter, int(e.amount * UNITS)) if e.amount else ""]
            for e in entries[-MOST_SHOWN:][::-1]
        )
        header = ["time", "record", "reason or purpose", "amount"]
        return Card("Ledger", facts, header, rows, texts=3, total=len(entries))

    def _account(self) -> Account:
        since = self._audit
        self._audit = since.after(*since.store.verify(since.verified))
        return self._audit.verified.accounts[self._dataset]

    def _append(self, draft: Callable[[Verified], Draft]) -> Audit:
        since = self._audit
        self._audit = found = since.after(*since.store.append(since.verified, draft))
        return found


def open_account(audit: Audit, *, dataset: str, cap: Privacy, new_dataset: bool = False) -> Ledger:
    """As `Ledger(path, …)`, in a file that was just audited: the debit verifies what came since, under the lock."""
    ledger, declared = object.__new__(Ledger), account(cap)
    ledger._expected = declared  # pyright: ignore[reportPrivateUsage]
    ledger._open(audit, _line(dataset, "The name of a dataset"), declared, new=new_dataset)  # pyright: ignore[reportPrivateUsage]
    return ledger


def seen_by(ledger: Ledger) -> Audit:
    """What a ledger has verified so far, its own debits included. Reads nothing."""
    return ledger._audit  # pyright: ignore[reportPrivateUsage]


def debit_of(receipt: Receipt, audit: Audit, dataset: str) -> Entry:
    """The debit for which a receipt was given, in an audit; LedgerError if it is not there, or of another dataset."""
    if receipt.dataset != dataset:
        raise LedgerError(
            f"Receipt {receipt.sequence} is for dataset {receipt.dataset!r}, not for {dataset!r}. Verify it "
            "with the account of that dataset."
        )
    records, path = audit.records, audit.store.path
    record = records[receipt.sequence - 1] if 0 < receipt.sequence <= len(records) else None
    if record is None or record.hash != receipt.hash or record.draft.kind != "debit":
        raise LedgerError(
            f"The ledger {path} does not hold the debit of receipt {receipt.sequence}. It was rolled back, or "
            "the receipt is from another ledger or was edited. After a restore, see docs/reference/ledger.md."
        )
    issued = _receipt(record, follow(Verified(), records[: receipt.sequence]))
    differing = [each.name for each in fields(Receipt) if getattr(issued, each.name) != getattr(receipt, each.name)]
    if differing:
        raise LedgerError(
            f"Receipt {receipt.sequence} was edited: in the ledger {path} its debit has a different "
            f"{', '.join(differing)}. Take the receipt from an untouched copy."
        )
    return Entry.of(record)


class _DeclaredMeanwhile(Exception):  # noqa: N818 - not an error: another process declared the same dataset first
    pass


def _declared(verified: Verified, dataset: str, cap: Account | None, *, new: bool) -> Draft:
    """The record that opens an account; the name is unlike all others, or `new` says that the dataset is new."""
    if dataset in verified.accounts:
        raise _DeclaredMeanwhile
    if cap is None:
        known = ", ".join(map(repr, verified.accounts)) or "none"
        raise BudgetError(
            f"Dataset {dataset!r} has no account in this ledger; accounts: {known}. To open an account, give its cap, "
            "such as cap=PureDP(4)."
        )
    near = near_names(dataset, verified.accounts)
    if near and not new:
        raise BudgetError(
            f"Dataset {shown_name(dataset)} has no account, but its name is close to "
            f"{' and '.join(map(shown_name, near))}, which has one here. If it is about the same people, use the same "
            "name. If it is about other people, say so with Ledger(..., new_dataset=True), or with hdmm release "
            "--new-dataset and the name."
        )
    return Draft("declare", "", _now(), dataset, cap.parameter, cap.cap)


def _check_declared(existing: Account, given: Account, dataset: str) -> None:
    if (existing.parameter, existing.cap) != (given.parameter, given.cap):
        raise BudgetError(
            f"Dataset {dataset!r} was declared with the cap {shown(existing.parameter, existing.cap)}, not "
            f"{shown(given.parameter, given.cap)}. Give that cap or no cap; to raise it, call "
            "ledger.raise_cap(cap, reason=...)."
        )


def _debited(
    verified: Verified,
    dataset: str,
    price: Callable[[Parameter, int], int],
    purpose: str,
    unit: Unit | None,
    expected: Account | None,
) -> Draft:
    """The record of a spend; BudgetError if less is left, the unit cannot be added, or the cap is not the expected."""
    now = verified.accounts[dataset]
    if expected is not None:
        _check_declared(now, expected, dataset)
    units = price(now.parameter, steps_between(dataset, now.unit, unit))
    if units > now.remaining:
        raise BudgetError(
            f"Dataset {dataset!r} has {shown(now.parameter, now.remaining)} left of its cap "
            f"{shown(now.parameter, now.cap)}, but the debit is {shown(now.parameter, units)}."
            f"{parted(now.remaining, units)} Nothing was debited. "
            "Spend no more than is left, or decide to spend more of people's privacy with "
            "ledger.raise_cap(cap, reason=...)."
        )
    return Draft("debit", purpose, _now(), dataset, now.parameter, units)


def _raised(verified: Verified, dataset: str, larger: Account, reason: str) -> Draft:
    """The record of a cap above the present one."""
    now = verified.accounts[dataset]
    if larger.parameter != now.parameter or larger.cap <= now.cap:
        raise BudgetError(
            f"The cap of dataset {dataset!r} is {shown(now.parameter, now.cap)}. It can only be raised, but "
            f"{shown(larger.parameter, larger.cap)} is not above it. Give a larger cap of the same type."
        )
    return Draft("raise", reason, _now(), dataset, now.parameter, larger.cap)


def _receipt(record: Record, after: Verified) -> Receipt:
    """The receipt of a debit, given the chain just after it was recorded."""
    draft = record.draft
    account = after.accounts[draft.dataset]
    return Receipt(
        sequence=record.sequence,
        dataset=draft.dataset,
        parameter=account.parameter,
        amount=Fraction(draft.units, UNITS),
        balance=Fraction(account.remaining, UNITS),
        hash=record.hash,
        timestamp=draft.time,
    )


def _line(text: str, what: str) -> str:
    """The text, if a record may hold it: one printable line in Unicode NFC; LedgerError if not."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LedgerError(f"{what} must be a text, but it is of type {type(text).__name__}.")
    if not 0 < len(text) <= _LINE_CHARACTERS:
        raise LedgerError(f"{what} has {len(text)} characters; it must have 1 to {_LINE_CHARACTERS}.")
    if not text.isprintable() or text != text.strip() or text != unicodedata.normalize("NFC", text):
        raise LedgerError(
            f"{what} is {text!a}; it must be one printable line in Unicode NFC, without spaces at either end."
        )
    return text


def _now() -> str:
    """The time in UTC, for people to read. No order or decision depends on it, so that a wrong clock is harmless."""
    return datetime.now(UTC).isoformat(timespec="seconds")
