"""Audit: what one look at a whole ledger found, every record verified from the first."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from hdmm.privacy.chain import Record, RecordKind, Verified
from hdmm.privacy.names import near_names
from hdmm.privacy.purpose import DebitText, read_debit
from hdmm.privacy.store import Store
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.privacy.units import UNITS, Account


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a ledger. The amount is the cap for declare and raise, the spend for debit, and 0 for the others.

    `pays_for` belongs to a debit: the digest of the release that it pays for, "" if it pays for no release, or None if
    the record does not say so, as in debits of early versions. So does `unit`, the unit of privacy of the debit, which
    is None in those of early versions, and where the amount is in the unit of the account.
    """

    sequence: int
    kind: RecordKind
    dataset: str
    amount: Fraction
    text: str
    hash: str
    timestamp: str
    pays_for: str | None = None
    unit: Unit | None = None

    @classmethod
    def of(cls, record: Record) -> Entry:
        """The record for people to read."""
        draft = record.draft
        amount = Fraction(draft.units, UNITS)
        found = read_debit(draft.text) if draft.kind == "debit" else DebitText(draft.text, None, None)
        at, kind, dataset = record.sequence, draft.kind, draft.dataset
        return cls(at, kind, dataset, amount, found.purpose, record.hash, draft.time, found.pays_for, found.unit)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """A ledger's file, its chain and its records, all verified. Whoever appends verifies what came after them."""

    store: Store
    verified: Verified
    records: tuple[Record, ...]

    def again(self) -> Audit:
        """The same ledger as it is now, verified from the first record. O(records)."""
        return Audit(self.store, *self.store.audit())

    def after(self, verified: Verified, records: tuple[Record, ...]) -> Audit:
        """With the records that came after these, and the chain that they lead to."""
        return Audit(self.store, verified, (*self.records, *records))

    def account(self, dataset: str) -> Account | None:
        """The account of a dataset, if it has one."""
        return self.verified.accounts.get(dataset)

    def near(self, dataset: str) -> tuple[str, ...]:
        """The accounts whose names could be meant by this one; none if it has an account itself."""
        accounts = self.verified.accounts
        return () if dataset in accounts else near_names(dataset, accounts)

    def entries(self, dataset: str) -> tuple[Entry, ...]:
        """The records of a dataset and of the file as a whole, oldest first."""
        return tuple(Entry.of(record) for record in self.records if record.draft.dataset in ("", dataset))


def audit_of(path: str | os.PathLike[str], *, timeout: float = 30.0) -> Audit | None:
    """The audit of the ledger at this path; None if there is none. Creates and writes nothing. O(records).

    LedgerError if only its head file is left, or if it cannot be trusted.
    """
    store = Store.at(path, timeout)
    found = store.audit_if_there()
    return None if found is None else Audit(store, *found)


def check_writable(path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
    """Raise LedgerError if a ledger at this path, there or not, could not record a debit. Leaves no trace."""
    Store.at(path, timeout).check_writable()
