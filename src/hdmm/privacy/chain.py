"""Records chained by SHA-256, and the accounts that they add up to; this module touches no files (security L3)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import sha256
from typing import Final, Literal, TypeAlias, final

from hdmm.privacy.gdp import pure_is_gaussian, root
from hdmm.privacy.hidden import steps
from hdmm.privacy.purpose import read_debit
from hdmm.privacy.spending import Parameter, Spending
from hdmm.privacy.units import UNITS, Account

# create and adopt concern the whole file; declare opens an account, raise gives it a larger cap.
RecordKind: TypeAlias = Literal["create", "adopt", "declare", "raise", "debit"]

CHAIN_FORMAT: Final = f"hdmm-ledger-1 {UNITS}"
GENESIS: Final = "0" * 64


class Broken(Exception):  # noqa: N818 - it never leaves the package: the store turns it into LedgerError
    """The records or their head are wrong; the message is the end of a sentence."""


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """The content of a record that is not yet in the chain."""

    kind: RecordKind
    text: str
    time: str
    dataset: str = ""
    parameter: Parameter | Literal[""] = ""
    units: int = 0


@final
@dataclass(frozen=True, slots=True)
class Record:
    """A draft in the chain: hash = SHA-256 of all its other fields, including the hash of the previous record."""

    sequence: int
    draft: Draft
    previous: str
    hash: str


@final
@dataclass(frozen=True, slots=True)
class Verified:
    """The state of a verified chain: its last record, and the accounts."""

    sequence: int = 0
    hash: str = GENESIS
    accounts: Mapping[str, Account] = field(default_factory=dict[str, Account])


def chained(verified: Verified, draft: Draft) -> Record:
    """The record that appends a draft to the chain.

    >>> first = chained(Verified(), Draft("create", "id", "2026-01-01T00:00:00+00:00"))
    >>> first.sequence, first.previous == GENESIS, len(first.hash)
    (1, True, 64)
    """
    sequence = verified.sequence + 1
    return Record(sequence, draft, verified.hash, _digest(sequence, draft, verified.hash))


def follow(verified: Verified, records: Iterable[Record]) -> Verified:
    """The chain after these records; Broken if one was altered, removed, inserted or moved. O(records).

    >>> first = chained(Verified(), Draft("create", "id", "2026-01-01T00:00:00+00:00"))
    >>> follow(Verified(), [first]).sequence
    1
    >>> follow(Verified(), [replace(first, sequence=2)])
    Traceback (most recent call last):
    hdmm.privacy.chain.Broken: record 2 is in the place of record 1
    """
    accounts = dict(verified.accounts)
    for record in records:
        sequence = verified.sequence + 1
        if record.sequence != sequence:
            raise Broken(f"record {record.sequence} is in the place of record {sequence}")
        if record.previous != verified.hash:
            raise Broken(f"record {sequence} does not continue record {verified.sequence}")
        if record.hash != _digest(sequence, record.draft, record.previous):
            raise Broken(f"record {sequence} was altered, because its hash does not match its content")
        _book(accounts, record)
        verified = Verified(sequence, record.hash, accounts)
    return verified


def _digest(sequence: int, draft: Draft, previous: str) -> str:
    """SHA-256 of a JSON list of texts in ASCII: every record has one encoding, which any language can check."""
    fields = [CHAIN_FORMAT, previous, str(sequence), draft.kind, draft.dataset, draft.parameter, str(draft.units)]
    return sha256(json.dumps([*fields, draft.text, draft.time], separators=(",", ":")).encode("ascii")).hexdigest()


def _book(accounts: dict[str, Account], record: Record) -> None:
    """Enter a record into the accounts; Broken if the rules forbid it, since a correct hash is not enough."""
    draft = record.draft
    if (draft.kind == "create") != (record.sequence == 1):
        raise Broken(f"record {record.sequence} is of kind {draft.kind}, but the first record, and only it, is create")
    if draft.kind in ("create", "adopt"):
        return
    account = accounts.get(draft.dataset)
    if draft.kind == "declare":
        if account is not None or draft.parameter == "" or draft.units <= 0:
            raise Broken(f"record {record.sequence} declares an account for the second time, or without a cap")
        accounts[draft.dataset] = Account(draft.parameter, cap=draft.units, spent=0)
        return
    if account is None or account.parameter != draft.parameter:
        raise Broken(f"record {record.sequence} belongs to no account")
    if draft.kind == "raise":
        if draft.units <= account.cap:
            raise Broken(f"record {record.sequence} lowers a cap")
        accounts[draft.dataset] = replace(account, cap=draft.units)
        return
    if not 0 < draft.units <= account.remaining:
        raise Broken(f"record {record.sequence} spends nothing, or more than was left")
    found = read_debit(draft.text)
    times = 1 if found.unit is None or account.unit is None else steps(account.unit, found.unit)
    if times is None:
        raise Broken(f"record {record.sequence} is of another unit of privacy than its account")
    part = spent_by(record, times)
    spent, unit = account.spent + draft.units, account.unit or found.unit
    accounts[draft.dataset] = replace(account, spent=spent, unit=unit, spending=account.spending + part)


def spent_by(record: Record, times: int = 1) -> Spending:
    """What a debit spends, by its kind; `times` are the steps by which an ε counts in its account."""
    spends = read_debit(record.draft.text).spends
    parameter, amount = record.draft.parameter, Fraction(record.draft.units, UNITS)
    if parameter == "epsilon":
        # Every audit reads this: the least μ would take a millisecond for each ε, and an account in ε gains nothing.
        return Spending(pure=amount, pure_rho=amount**2 / 2, pure_mu_squared=8 * amount)
    if isinstance(spends, Fraction):
        part = Spending.of_pure(spends * times)
        if parameter == "rho":
            enough = part.pure_rho <= amount
        else:  # the square of another bound on μ than that of this version may be there, and be true
            part = replace(part, pure_mu_squared=amount)
            enough = pure_is_gaussian(part.pure, root(amount, "down", 512))
        if not enough:
            raise Broken(f"record {record.sequence} spends more than its amount")
        return part
    if spends == "gaussian":
        return Spending(gaussian=amount if parameter == "rho" else amount / 2)
    if parameter == "mu_squared":
        raise Broken(f"record {record.sequence} spends a ρ, which no μ bounds")
    return Spending(zcdp=amount)
