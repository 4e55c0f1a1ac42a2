"""MeasuredPart: a measurement within a release: its mark, the rows it is of, and what paid for it (security O7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, TypeAlias, final

from msgspec import UNSET, Meta, UnsetType, structs

from hdmm.io import StrictRecord
from hdmm.privacy.ledger import Receipt
from hdmm.privacy.rows_of import UNKNOWN, RowsOf
from hdmm.privacy.spending import Parameter

_Digest: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z", extra={"expected": "a SHA-256"})]
Mark: TypeAlias = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{32}|[0-9a-f]{64})\Z", extra={"expected": "a mark"})]


@final
@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """A measurement: copies of it share the mark, which is random."""

    mark: str
    rows: RowsOf
    receipt: Receipt | None


class ReceiptRecord(StrictRecord, frozen=True):
    """The receipt of a release: the debit that paid for it."""

    sequence: Annotated[int, Meta(ge=1)]
    dataset: str
    parameter: Parameter
    amount: Fraction
    balance: Fraction
    hash: str
    timestamp: str


class RowsRecord(StrictRecord, frozen=True):
    """The rows that a measurement is of; what is not known is left out."""

    source: _Digest | UnsetType = UNSET
    columns: _Digest | UnsetType = UNSET
    kept: _Digest | UnsetType = UNSET
    period: _Digest | UnsetType = UNSET


class PartRecord(StrictRecord, frozen=True):
    """One measurement of a combination."""

    mark: Mark
    rows: RowsRecord
    receipt: ReceiptRecord | UnsetType = UNSET


def receipt_record(receipt: Receipt | None) -> ReceiptRecord | None:
    """A receipt as a file holds it."""
    return None if receipt is None else ReceiptRecord(**asdict(receipt))


def part_keys(parts: Sequence[MeasuredPart]) -> dict[str, Any]:
    """The keys of a file that say what it is made of: a mark and rows, or the parts of a combination."""
    if len(parts) == 1:
        return {"mark": parts[0].mark, "rows": rows_record(parts[0].rows)}
    records = [PartRecord(part.mark, rows_record(part.rows), receipt_record(part.receipt) or UNSET) for part in parts]
    return {"parts": records}


def read_parts(
    mark: str | UnsetType,
    rows: RowsRecord | UnsetType,
    receipt: Receipt | None,
    records: list[PartRecord] | UnsetType,
) -> tuple[MeasuredPart, ...]:
    """The parts that a file holds; none if it says neither of what it is made."""
    if not isinstance(records, UnsetType):
        return tuple(
            MeasuredPart(
                record.mark,
                read_rows(record.rows),
                None if isinstance(record.receipt, UnsetType) else Receipt(**structs.asdict(record.receipt)),
            )
            for record in records
        )
    if isinstance(mark, UnsetType) or isinstance(rows, UnsetType):
        return ()
    return (MeasuredPart(mark, read_rows(rows), receipt),)


def rows_record(rows: RowsOf) -> RowsRecord:
    """The rows of a measurement as a file holds them."""
    return RowsRecord(**{name: digest for name, digest in asdict(rows).items() if digest is not None})


def read_rows(record: RowsRecord | UnsetType) -> RowsOf:
    """The rows that a file holds; it is not known which if it does not say."""
    found = {} if isinstance(record, UnsetType) else structs.asdict(record)
    return replace(UNKNOWN, **{name: digest for name, digest in found.items() if digest is not UNSET})
