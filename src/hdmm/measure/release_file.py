"""What release.json holds: what was measured, with which noise, and what paid for it. What it spends is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any, Literal

from msgspec import UNSET, UnsetType, structs

from hdmm.base.exceptions import BudgetError, FileError, MatrixError, NoiseError, PrivacyError, StrategyError
from hdmm.io import Stored, StrictRecord
from hdmm.measure.measurement import ROUNDED, Measurement, PrivacyRecord, charged
from hdmm.measure.provenance import Mark, MeasuredPart, PartRecord, ReceiptRecord, RowsRecord, part_keys, receipt_record
from hdmm.noise import check_scale
from hdmm.privacy.guarantee import ZCDP, GaussianDP, Noise, Privacy, PureDP, guarantee
from hdmm.privacy.ledger import Receipt
from hdmm.privacy.spending import Spending
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.privacy.units import UNITS, charge
from hdmm.reconstruct.known import Known, KnownRecord, known_records
from hdmm.strategy.lattice import Lattice
from hdmm.strategy.strategy import Strategy


class MeasuredFile(StrictRecord, frozen=True, kw_only=True):
    """What was measured, with which noise, and what paid for it. What it spends is computed, never read.

    Gaussian noise without a `noise` is that of early versions, which was discrete: ρ-zCDP, and no more is known of it.
    """

    strategy: Stored[Strategy]
    scales: list[Fraction]
    privacy: PrivacyRecord
    unit: Stored[Unit]
    receipt: ReceiptRecord | None
    noise: Literal["rounded-gaussian"] | UnsetType = UNSET


class ReleaseFile(MeasuredFile, frozen=True, kw_only=True):
    """All that release.json holds; measurements.npy lies next to it."""

    known: list[KnownRecord] | UnsetType = UNSET
    mark: Mark | UnsetType = UNSET
    rows: RowsRecord | UnsetType = UNSET
    parts: list[PartRecord] | UnsetType = UNSET


def release_file(measured: Measurement, parts: Sequence[MeasuredPart], known: Sequence[Known]) -> ReleaseFile:
    """What release.json holds of a release, whatever its measurements are."""
    facts = measured_record(measured, parts[0].receipt if len(parts) == 1 else None)
    return ReleaseFile(**facts, known=known_records(known), **part_keys(parts))


def measured_record(measured: Measurement, receipt: Receipt | None) -> dict[str, Any]:
    """The keys that the files of all releases have."""
    return {
        "strategy": measured.strategy,
        "scales": list(measured.scales),
        "privacy": PrivacyRecord(**asdict(measured.privacy)),
        "unit": measured.unit,
        "receipt": receipt_record(receipt),
        "noise": ROUNDED if measured.exact_gaussian else UNSET,
    }


def read_paid(file: MeasuredFile, at: str, *, parts: int = 1) -> tuple[Privacy, Receipt | None]:
    """The guarantee of a file and its receipt; FileError unless its factors and scales spend what it says.

    Nothing is computed from the weights of blocks; but each part has one ratio of them to its noise (Lattice.scales).
    """
    try:
        privacy = guarantee(**{k: v for k, v in structs.asdict(file.privacy).items() if v is not UNSET})
        for scale in set(file.scales):
            check_scale(privacy.noise, scale)
    except (PrivacyError, NoiseError) as wrong:
        raise FileError(f"{at}: {wrong}") from None
    bought, lattice = _bought(privacy, file, at), Lattice(file.strategy)
    if len(file.scales) != len(lattice.blocks):
        raise FileError(f"{at}: {len(file.scales)} scales for {len(lattice.blocks)} blocks. Save the release again.")
    try:
        spent = lattice.loss(file.scales, privacy.noise, file.unit)
    except (MatrixError, StrategyError) as wrong:
        raise FileError(f"{at}: the factors of the strategy are not integers. {wrong}") from None
    if spent > (bought.epsilon if isinstance(bought, PureDP) else bought.rho):
        raise FileError(
            f"{at} says {privacy}, but its measurements spend {float(spent):.6g}. It is damaged or was tampered with."
        )
    if len(lattice.ratios(file.scales, privacy.noise)) > parts:
        raise FileError(f"{at}: the weights of the blocks do not agree with their noise. It is damaged.")
    return privacy, None if file.receipt is None else _receipt(
        file.receipt, privacy, bought, at, rounded=file.noise is not UNSET
    )


def _bought(privacy: Privacy, file: MeasuredFile, at: str) -> PureDP | ZCDP:
    """What the noise of a file must be bought for."""
    rounded = file.noise is not UNSET
    if rounded > (privacy.noise is Noise.GAUSSIAN) or rounded < isinstance(privacy, GaussianDP):
        noise = "Gaussian" if rounded else "not said to be Gaussian"
        raise FileError(f"{at} says {privacy}, but its noise is {noise}. It is damaged or was tampered with.")
    return charged(Spending.of(privacy, gaussian=rounded))


def _receipt(record: ReceiptRecord, privacy: Privacy, bought: PureDP | ZCDP, at: str, *, rounded: bool) -> Receipt:
    try:
        charge_of = Fraction(charge(bought, record.parameter, gaussian=rounded), UNITS)
    except BudgetError as wrong:
        raise FileError(f"{at}: {wrong}") from None
    if record.amount < charge_of:
        raise FileError(f"{at} says {privacy}, but its receipt is for a smaller debit. It was tampered with.")
    return Receipt(**structs.asdict(record))
