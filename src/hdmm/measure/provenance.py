"""MeasuredPart: a measurement within a release: its mark, the rows it is of, and what paid for it (security O7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from hashlib import sha256
from typing import Annotated, TypeAlias, final

from msgspec import UNSET, Meta, UnsetType, structs

from hdmm.io import StrictRecord
from hdmm.matrix import Array
from hdmm.privacy.ledger import Receipt
from hdmm.privacy.rows_of import RowsOf
from hdmm.privacy.units import Parameter

_Digest: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z", extra={"expected": "a SHA-256"})]
Mark: TypeAlias = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{32}|[0-9a-f]{64})\Z", extra={"expected": "a mark"})]


@final
@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """A measurement: copies of it share the mark. The rows are None if an early version did not record them."""

    mark: str
    rows: RowsOf | None
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
    """Of which rows a measurement is; what is not known is left out."""

    source: _Digest | UnsetType = UNSET
    columns: _Digest | UnsetType = UNSET
    kept: _Digest | UnsetType = UNSET
    period: _Digest | UnsetType = UNSET


class PartRecord(StrictRecord, frozen=True):
    """One measurement of a combination."""

    mark: Mark
    rows: RowsRecord | UnsetType = UNSET
    receipt: ReceiptRecord | UnsetType = UNSET


def numbers_mark(measurements: Sequence[Array]) -> str:
    """The mark of a measurement of an early version, which has none: its noisy numbers."""
    return sha256(b"".join(y.tobytes() for y in measurements)).hexdigest()


def receipt_record(receipt: Receipt | None) -> ReceiptRecord | None:
    """A receipt as a file holds it."""
    return None if receipt is None else ReceiptRecord(**asdict(receipt))


def rows_record(rows: RowsOf | None) -> RowsRecord | UnsetType:
    """The rows as a file holds them."""
    if rows is None:
        return UNSET
    return RowsRecord(**{name: digest for name, digest in asdict(rows).items() if digest is not None})


def read_rows(record: RowsRecord | UnsetType) -> RowsOf | None:
    """The rows that a file holds."""
    if isinstance(record, UnsetType):
        return None
    return RowsOf(**{name: None if digest is UNSET else digest for name, digest in structs.asdict(record).items()})


def part_records(parts: Sequence[MeasuredPart]) -> list[PartRecord] | UnsetType:
    """The parts of a combination as a file holds them; nothing of what is not combined, so that files are as before."""
    if not parts:
        return UNSET
    return [PartRecord(part.mark, rows_record(part.rows), receipt_record(part.receipt) or UNSET) for part in parts]


def read_parts(records: list[PartRecord] | UnsetType) -> tuple[MeasuredPart, ...]:
    """The parts that a file holds."""
    if isinstance(records, UnsetType):
        return ()
    return tuple(
        MeasuredPart(
            record.mark,
            read_rows(record.rows),
            None if isinstance(record.receipt, UnsetType) else Receipt(**structs.asdict(record.receipt)),
        )
        for record in records
    )
