"""Records chained by SHA-256, and the accounts they add up to: no files here (security L3)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Literal, TypeAlias, final

from hdmm.ledger.units import UNITS, Account, Parameter

# create and adopt concern the whole file; declare opens an account, raise gives it a larger cap.
RecordKind: TypeAlias = Literal["create", "adopt", "declare", "raise", "debit"]

CHAIN_FORMAT: Final = f"hdmm-ledger-1 {UNITS}"
GENESIS: Final = "0" * 64


class Broken(Exception):  # noqa: N818 - it never leaves the package: the store turns it into LedgerError
    """What is wrong with the records or with their head, as the end of a sentence."""


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """What a record says, before it has its place in the chain."""

    kind: RecordKind
    text: str
    time: str
    dataset: str = ""
    parameter: Parameter | Literal[""] = ""
    units: int = 0


@final
@dataclass(frozen=True, slots=True)
class Record:
    """A draft in its place: hash = SHA-256 of everything else in it, the hash before it included."""

    sequence: int
    draft: Draft
    previous: str
    hash: str


@final
@dataclass(frozen=True, slots=True)
class Verified:
    """Where a verified chain stands: its last record, and the accounts."""

    sequence: int = 0
    hash: str = GENESIS
    accounts: Mapping[str, Account] = field(default_factory=dict[str, Account])


def chained(verified: Verified, draft: Draft) -> Record:
    """The record that puts a draft next in the chain.

    >>> first = chained(Verified(), Draft("create", "id", "2026-01-01T00:00:00+00:00"))
    >>> first.sequence, first.previous == GENESIS, len(first.hash)
    (1, True, 64)
    """
    sequence = verified.sequence + 1
    return Record(sequence, draft, verified.hash, _digest(sequence, draft, verified.hash))


def follow(verified: Verified, records: Iterable[Record]) -> Verified:
    """The chain after these records; Broken where one was altered, left out, put in or moved. O(records).

    >>> first = chained(Verified(), Draft("create", "id", "2026-01-01T00:00:00+00:00"))
    >>> follow(Verified(), [first]).sequence
    1
    >>> follow(Verified(), [replace(first, sequence=2)])
    Traceback (most recent call last):
    hdmm.ledger.chain.Broken: record 2 stands where record 1 should
    """
    accounts = dict(verified.accounts)
    for record in records:
        sequence = verified.sequence + 1
        if record.sequence != sequence:
            raise Broken(f"record {record.sequence} stands where record {sequence} should")
        if record.previous != verified.hash:
            raise Broken(f"record {sequence} does not continue record {verified.sequence}")
        if record.hash != _digest(sequence, record.draft, record.previous):
            raise Broken(f"record {sequence} was altered: its hash is another")
        _book(accounts, record)
        verified = Verified(sequence, record.hash, accounts)
    return verified


def _digest(sequence: int, draft: Draft, previous: str) -> str:
    """SHA-256 of a JSON list of texts in ASCII: one encoding for one record, and any language can check it."""
    fields = [CHAIN_FORMAT, previous, str(sequence), draft.kind, draft.dataset, draft.parameter, str(draft.units)]
    return sha256(json.dumps([*fields, draft.text, draft.time], separators=(",", ":")).encode("ascii")).hexdigest()


def _book(accounts: dict[str, Account], record: Record) -> None:
    """Enter a record into the accounts, or say Broken: a true hash does not make a record lawful."""
    draft = record.draft
    if (draft.kind == "create") != (record.sequence == 1):
        raise Broken(f"record {record.sequence} is of kind {draft.kind}; only the first is create")
    if draft.kind in ("create", "adopt"):
        return
    account = accounts.get(draft.dataset)
    if draft.kind == "declare":
        if account is not None or draft.parameter == "" or draft.units <= 0:
            raise Broken(f"record {record.sequence} declares an account again, or one without a cap")
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
    accounts[draft.dataset] = replace(account, spent=account.spent + draft.units)
