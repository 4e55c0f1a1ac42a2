"""Release: what a measurement leaves behind, and all that anyone needs to answer from it."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast, final

import numpy as np

from hdmm.answer import Answers
from hdmm.domain import Domain
from hdmm.exceptions import BudgetError, FileError, LedgerError, MatrixError, NoiseError, PrivacyError, StrategyError
from hdmm.io import Json, decode_strategy, encode_strategy, load_folder, save_folder
from hdmm.lattice import Lattice, resolution
from hdmm.ledger import Ledger, Receipt
from hdmm.ledger.units import UNITS, Parameter, charge
from hdmm.matrix import Array
from hdmm.noise import check_scale
from hdmm.nonnegative import nonnegative
from hdmm.privacy import ZCDP, ApproxDP, Noise, Privacy, PureDP, Unit
from hdmm.reconstruct import Estimate, reconstruct
from hdmm.strategy.base import Strategy, form_of
from hdmm.strategy.form import Form
from hdmm.workload import Workload

_FRACTION = re.compile(r"[0-9]+(/[0-9]+)?", re.ASCII)
_LONGEST = 4096  # characters of a fraction: Python turns as many digits into an integer at once


@final
@dataclass(frozen=True, eq=False)
class Release:
    """Noisy integers and all that is needed to answer from them. It holds nothing else about the data.

    `strategy` has integer factors; the noise of each block is in `scales`.
    """

    strategy: Strategy
    measurements: tuple[Array, ...]  # one array per block: r·Âx + noise
    scales: tuple[Fraction, ...]  # of the noise on Âx: Laplace's scale, or Gauss's variance
    privacy: Privacy
    unit: Unit
    receipt: Receipt | None

    @property
    def domain(self) -> Domain:
        """What the release is about."""
        return self.strategy.domain

    @cached_property
    def form(self) -> Form:
        """What the measurements, with their noise, say about any workload."""
        return form_in_noise(self.strategy, self.scales, self.privacy.noise)

    @cached_property
    def estimate(self) -> Estimate:
        """The least-squares estimate of the counts, computed when first asked for."""
        return reconstruct(self.form, self.measurements, self._units)

    @cached_property
    def nonnegative(self) -> Estimate:
        """The estimate under the condition that no count is below 0, which makes it biased (hdmm.nonnegative)."""
        return nonnegative(self.form, self.measurements, self._units, self.estimate)

    def answer(self, workload: Workload, *, nonnegative: bool = False) -> Answers:
        """Answers to any workload that the strategy supports; costs no privacy.

        `nonnegative=True` answers from an estimate that has no negative counts. It is biased upward where counts are
        small, its errors are not those of `stddev`, and the answers say so; margins stay those of the unbiased one.
        """
        self.strategy.check_domain(workload.domain)
        estimate = self.nonnegative if nonnegative else self.estimate
        return Answers.of(workload, estimate, self.form, self.privacy.noise, unbiased=self.estimate)

    def error(self, workload: Workload) -> float:
        """The expected total squared error of the answers: of the strategy as measured, rounding included."""
        self.strategy.check_domain(workload.domain)
        total = self.form.total_variance(workload.products)
        if math.isinf(total):
            raise StrategyError("The release does not support this workload, so its error is not finite.")
        return total

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the release as a folder (JSON and arrays), whole or not at all; `load_release` reads it."""
        strategy, arrays = encode_strategy(self.strategy)
        content: dict[str, Json] = {
            "strategy": strategy,
            "scales": [str(scale) for scale in self.scales],
            "privacy": _encoded_privacy(self.privacy),
            "unit": _encoded_unit(self.unit),
            "receipt": None if self.receipt is None else _encoded_receipt(self.receipt),
        }
        return save_folder(path, "release", content, {**arrays, "measurements": np.concatenate(self.measurements)})

    @property
    def digest(self) -> str | None:
        """SHA-256 of what was measured and at which noise, by which a debit names it; the numbers are not in it.

        None where the strategy cannot be written to a file, so that no publication can be made from it either.
        """
        return digest(self.strategy, self.scales, self.privacy, self.unit)

    def verify(self, ledger: Ledger) -> None:
        """LedgerError unless this ledger holds the debit that paid for this very release (security L7).

        Debits before releases were named bind the receipt alone: dataset, amount and place in the chain.
        """
        if self.receipt is None:
            raise LedgerError(
                "The release has no receipt: it was measured without a ledger, so no budget paid for it. Measure with "
                "a ledger to publish."
            )
        ledger.verify(self.receipt)
        debit = next(entry for entry in ledger.entries() if entry.sequence == self.receipt.sequence)
        if debit.pays_for is not None and debit.pays_for != self.digest:
            raise LedgerError(
                f"Receipt {self.receipt.sequence} of the ledger {ledger.path} paid for another release: one of another "
                "strategy, scale of noise, guarantee or unit, or none at all. Publish the release that it belongs to."
            )

    def charged_again(self, ledger: Ledger, purpose: str) -> Release:
        """The same release with a new debit's receipt: for a ledger that was put back to before it was paid for."""
        return replace(self, receipt=ledger.debit(charged(self.privacy), purpose, pays_for=self.digest))

    @property
    def _units(self) -> list[float]:
        return [1 / resolution(scale, self.privacy.noise) for scale in self.scales]

    def __repr__(self) -> str:
        count = sum(map(len, self.measurements))
        return f"Release({count:,} measurements over {self.domain.size:,} cells, {self.privacy})"


def load_release(path: str | os.PathLike[str]) -> Release:
    """The release that `Release.save` wrote. What it spends is computed from its factors and noise, never read."""
    content, arrays = load_folder(path, "release")
    at = f"{path}: release.json"
    keys = {"strategy", "scales", "privacy", "unit", "receipt"}
    if set(content) != keys or "measurements" not in arrays:
        raise FileError(f"{at} must have the keys {', '.join(sorted(keys))}, and measurements. Save the release again.")
    strategy = decode_strategy(content["strategy"], arrays, at=f"{at} strategy")
    privacy, unit = _decoded_privacy(content["privacy"], at), _decoded_unit(content["unit"], at)
    scales = _decoded_scales(content["scales"], privacy.noise, at)
    lattice = Lattice(strategy)
    try:
        sizes = [block.rows for block in lattice.blocks]
        if len(scales) != len(sizes):
            raise FileError(f"{at}: {len(scales)} scales for {len(sizes)} blocks. Save the release again.")
        spent = lattice.loss(scales, privacy.noise, unit)
    except (MatrixError, StrategyError) as wrong:
        raise FileError(f"{at}: the strategy is not one of integers. {wrong}") from None
    if spent > (privacy.epsilon if isinstance(privacy, PureDP) else privacy.rho):
        raise FileError(
            f"{at} says {privacy}, but its measurements spend {float(spent):.6g}. It is damaged or was tampered with."
        )
    y = arrays["measurements"]
    if y.dtype != np.int64 or y.shape != (sum(sizes),):
        raise FileError(f"{at}: the measurements are not {sum(sizes):,} integers. Save the release again.")
    measurements = tuple(np.split(y, np.cumsum(sizes)[:-1]))
    receipt = None if content["receipt"] is None else _decoded_receipt(content["receipt"], privacy, at)
    return Release(strategy, measurements, scales, privacy, unit, receipt)


def charged(privacy: Privacy) -> PureDP | ZCDP:
    """What a ledger is debited.

    >>> charged(ApproxDP(1, "1e-6")) == ZCDP(ApproxDP(1, "1e-6").rho)
    True
    """
    return ZCDP(privacy.rho) if isinstance(privacy, ApproxDP) else privacy


def digest(strategy: Strategy, scales: Sequence[Fraction], privacy: Privacy, unit: Unit) -> str | None:
    """SHA-256 of a measurement before it is made: see `Release.digest`.

    Weights are left out: the scales say the same, exactly, where weights are floats that follow from them. If ever a
    strategy is written otherwise, the first line must keep the digests of ledgers that exist apart from new ones.
    """
    try:
        written, arrays = encode_strategy(strategy.weighted([1.0] * len(strategy.blocks)))
    except FileError:
        return None
    content: dict[str, Json] = {
        "format": "hdmm-measurement-1",
        "strategy": written,
        "arrays": {name: _array_digest(arrays[name]) for name in sorted(arrays)},
        "scales": [str(scale) for scale in scales],
        "privacy": _encoded_privacy(privacy),
        "unit": _encoded_unit(unit),
    }
    return sha256(json.dumps(content, allow_nan=False, sort_keys=True).encode("ascii")).hexdigest()


def _array_digest(array: Array) -> str:
    layout = f"{array.dtype.str} {array.shape} ".encode()
    return sha256(layout + np.ascontiguousarray(array).tobytes()).hexdigest()


def form_in_noise(strategy: Strategy, scales: Sequence[Fraction], noise: Noise) -> Form:
    """The form of a strategy of integers whose blocks are measured with noise of these scales."""
    return form_of(strategy, [noise_weight(scale, resolution(scale, noise), noise) ** 2 for scale in scales])


def noise_weight(scale: Fraction, r: int, noise: Noise) -> float:
    """ω: one over the standard deviation of the noise on Âx, the steps of the lattice counted in.

    >>> noise_weight(Fraction(4), 16, Noise.GAUSSIAN), round(noise_weight(Fraction(4), 16, Noise.LAPLACE), 6)
    (0.5, 0.176778)
    """
    if noise is Noise.GAUSSIAN:
        return 1 / math.sqrt(scale)
    return math.sqrt(2) * math.sinh(1 / (2 * float(scale * r))) * r


def _encoded_privacy(privacy: Privacy) -> dict[str, Json]:
    match privacy:
        case PureDP():
            return {"epsilon": str(privacy.epsilon)}
        case ZCDP():
            return {"rho": str(privacy.rho)}
        case ApproxDP():
            return {"epsilon": str(privacy.epsilon), "delta": str(privacy.delta)}


def _decoded_privacy(value: Json, at: str) -> Privacy:
    try:
        match value:
            case {"epsilon": str(epsilon), "delta": str(delta)} if len(value) == 2:
                return ApproxDP(_fraction(epsilon, at), _fraction(delta, at))
            case {"epsilon": str(epsilon)} if len(value) == 1:
                return PureDP(_fraction(epsilon, at))
            case {"rho": str(rho)} if len(value) == 1:
                return ZCDP(_fraction(rho, at))
            case _:
                raise FileError(f"{at}: privacy is not an epsilon, a rho, or an epsilon and a delta.")
    except PrivacyError as wrong:
        raise FileError(f"{at}: {wrong}") from None


def _encoded_unit(unit: Unit) -> dict[str, Json]:
    return {"rows": unit.rows, "neighbours": unit.neighbours}


def _decoded_unit(value: Json, at: str) -> Unit:
    match value:
        case {"rows": int(rows), "neighbours": str(neighbours)} if len(value) == 2:
            try:
                return Unit(rows, cast(Any, neighbours))  # which refuses what it does not know
            except PrivacyError as wrong:
                raise FileError(f"{at}: {wrong}") from None
        case _:
            raise FileError(f"{at}: unit is not rows and neighbours. Save the release again.")


def _decoded_scales(value: Json, noise: Noise, at: str) -> tuple[Fraction, ...]:
    if not isinstance(value, list):
        raise FileError(f"{at}: scales is not a list. Save the release again.")
    known: dict[str, Fraction] = {}
    for text in value:
        if not isinstance(text, str):
            raise FileError(f"{at}: a scale is not a fraction. Save the release again.")
        if text not in known:
            known[text] = _fraction(text, at)
            try:
                check_scale(noise, known[text])
            except NoiseError as wrong:
                raise FileError(f"{at}: {wrong}") from None
    return tuple(known[str(text)] for text in value)


def _fraction(text: str, at: str) -> Fraction:
    if len(text) > _LONGEST or not _FRACTION.fullmatch(text):
        raise FileError(f"{at}: {text[:64]!r} is not a fraction. Save the release again.")
    numerator, denominator = (*map(int, text.split("/")), 1)[:2]
    if denominator == 0 or numerator == 0:
        raise FileError(f"{at}: {text[:64]!r} is not above 0. Save the release again.")
    return Fraction(numerator, denominator)


def _encoded_receipt(receipt: Receipt) -> dict[str, Json]:
    return {
        "sequence": receipt.sequence,
        "dataset": receipt.dataset,
        "parameter": receipt.parameter,
        "amount": str(receipt.amount),
        "balance": str(receipt.balance),
        "hash": receipt.hash,
        "timestamp": receipt.timestamp,
    }


def _decoded_receipt(value: Json, privacy: Privacy, at: str) -> Receipt:
    match value:
        case {
            "sequence": int(sequence),
            "dataset": str(dataset),
            "parameter": str(parameter),
            "amount": str(amount),
            "balance": str(balance),
            "hash": str(digest),
            "timestamp": str(timestamp),
        } if len(value) == 7 and parameter in ("epsilon", "rho") and sequence is not True and sequence > 0:
            left = Fraction(0) if balance == "0" else _fraction(balance, at)
            receipt = Receipt(sequence, dataset, parameter, _fraction(amount, at), left, digest, timestamp)
            if receipt.amount < _charge(privacy, parameter, at):
                raise FileError(f"{at} says {privacy}, but its receipt is of a smaller debit. It was tampered with.")
            return receipt
        case _:
            raise FileError(f"{at}: the receipt is not a debit of a ledger. Save the release again.")


def _charge(privacy: Privacy, parameter: Parameter, at: str) -> Fraction:
    try:
        return Fraction(charge(charged(privacy), parameter), UNITS)
    except BudgetError as wrong:
        raise FileError(f"{at}: {wrong}") from None
