"""Measurement: what is measured and with which noise, before and after it is; its digest, by which a debit names it."""

from __future__ import annotations

import json
import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import Final

import numpy as np
from msgspec import UNSET, UnsetType

from hdmm.base.exceptions import FileError, LedgerError, StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.workload import Workload
from hdmm.io import Json, StrictRecord, encode
from hdmm.matrix import Array
from hdmm.privacy.audit import Audit, Entry
from hdmm.privacy.chain import spent_by
from hdmm.privacy.exact_number import Exact, exact_delta
from hdmm.privacy.guarantee import ZCDP, Noise, Privacy, PureDP
from hdmm.privacy.ledger import Receipt, debit_of
from hdmm.privacy.spending import Spending, least_epsilon
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.strategy.form import Form
from hdmm.strategy.lattice import once_each, resolution
from hdmm.strategy.strategy import Strategy, form_of

ROUNDED: Final = "rounded-gaussian"


class PrivacyRecord(StrictRecord, frozen=True):
    """The privacy of a release: epsilon, or rho, or mu, or epsilon and delta, as exact fractions."""

    epsilon: Fraction | UnsetType = UNSET
    delta: Fraction | UnsetType = UNSET
    rho: Fraction | UnsetType = UNSET
    mu: Fraction | UnsetType = UNSET


@dataclass(frozen=True, eq=False)
class Measurement(ABC):
    """What is measured and with which noise: its margins of error follow, and a debit names it by its digest.

    `strategy` has integer factors; the noise of each block is in `scales`. `exact_gaussian` means that it is Gaussian
    noise that was rounded (noise/gaussian.py), with a stronger guarantee than its ρ.
    """

    strategy: Strategy
    scales: tuple[Fraction, ...]  # of the noise on Âx: Laplace's scale, or Gauss's variance
    privacy: Privacy
    unit: Unit
    exact_gaussian: bool = field(default=False, kw_only=True)

    @property
    def domain(self) -> Domain:
        """What the release is about."""
        return self.strategy.domain

    @cached_property
    def form(self) -> Form:
        """What the measurements, with their noise, say about any workload."""
        return form_in_noise(self.strategy, self.scales, self.privacy.noise)

    def share_form(self, other: Measurement) -> None:
        """Give the form, if it is built, to what measures the same: one serves the forecast and the answers."""
        if "form" in vars(self):
            object.__setattr__(other, "form", self.form)

    @property
    def digest(self) -> str | None:
        """SHA-256 of what was measured and with which noise, by which a debit names it; it excludes the numbers.

        None if the strategy cannot be written to a file; then no publication can be made from it either.
        """
        return digest(self)

    @property
    def spending(self) -> Spending:
        """What is spent, by the kind of its guarantee."""
        return Spending.of(self.privacy, gaussian=self.exact_gaussian)

    def epsilon_at(self, delta: Exact) -> Fraction:
        """The least ε, rounded up, with which the measurements are known to be (ε, δ)-differentially private."""
        return least_epsilon(self.privacy, exact_delta(delta), gaussian=self.exact_gaussian)

    def error(self, workload: Workload) -> float:
        """The expected total squared error of the answers, for the strategy as measured, with rounding."""
        self.strategy.check_domain(workload.domain)
        total = self.form.total_variance(workload.products)
        if math.isinf(total):
            raise StrategyError("The release does not support this workload, so its error is not finite.")
        return total


def charged(*spent: Spending) -> PureDP | ZCDP:
    """The amount that a ledger is debited for releases, which compose: the sum of ε, or of ρ.

    >>> charged(Spending(pure=Fraction(1, 2))), charged(Spending(zcdp=Fraction(1, 8)), Spending(zcdp=Fraction(3, 8)))
    (PureDP('0.5'), ZCDP('0.5'))
    """
    total = sum(spent, start=Spending())
    return PureDP(total.pure) if total.pure else ZCDP(total.gaussian + total.zcdp)


def digest(measured: Measurement) -> str | None:
    """SHA-256 of a measurement before it is made: see `Release.digest`.

    Weights are left out, because they are floats that follow from the scales, which are exact. If strategies are ever
    written differently, the first line must keep the digests in existing ledgers distinct from new ones.
    """
    try:
        written, arrays = encode(measured.strategy.weighted([1.0] * len(measured.strategy.blocks)))
    except FileError:
        return None
    content: dict[str, Json] = {
        "format": "hdmm-measurement-1",
        "strategy": written,
        "arrays": {name: _array_digest(arrays[name]) for name in sorted(arrays)},
        "scales": once_each(str, measured.scales),
        "privacy": encode(PrivacyRecord(**asdict(measured.privacy)))[0],
        "unit": encode(measured.unit)[0],
        **({"noise": ROUNDED} if measured.exact_gaussian else {}),
    }
    return sha256(json.dumps(content, allow_nan=False, sort_keys=True).encode("ascii")).hexdigest()


def _array_digest(array: Array) -> str:
    layout = f"{array.dtype.str} {array.shape} ".encode()
    return sha256(layout + np.ascontiguousarray(array).tobytes()).hexdigest()


def verify_paid(release: Measurement, receipts: Sequence[Receipt | None], audit: Audit, dataset: str) -> None:
    """Raise LedgerError unless the dataset's debits that paid for the release, or for its parts, are in the audit."""
    debits = [debit_of(receipt, audit, dataset) for receipt in given_receipts(receipts)]
    if len(debits) > 1:
        _verify_parts(release, debits, audit)
        return
    (debit,) = debits
    if debit.pays_for is None and release.exact_gaussian:
        raise LedgerError(
            f"Receipt {debit.sequence} of the ledger {audit.store.path} is of an early version, whose Gaussian noise "
            "was discrete, but the release says that its noise was rounded. Take the release from an untouched copy."
        )
    if debit.pays_for is not None and debit.pays_for != release.digest:
        raise LedgerError(
            f"Receipt {debit.sequence} of the ledger {audit.store.path} paid for another release (one with "
            "another strategy, noise, guarantee or unit), or for none. Publish the release that it belongs to."
        )


def given_receipts(receipts: Sequence[Receipt | None]) -> tuple[Receipt, ...]:
    """The receipts of all parts of a release; LedgerError if one was measured without a ledger."""
    given = tuple(receipt for receipt in receipts if receipt is not None)
    if len(given) < len(receipts):
        raise LedgerError(
            "The release has no receipt: it was measured without a ledger, so no budget paid for it. Measure with "
            "a ledger to publish."
        )
    return given


def _verify_parts(release: Measurement, debits: Sequence[Entry], audit: Audit) -> None:
    """Raise LedgerError unless the debits of its parts are for all that a combination spends, on the same unit.

    Which measurement is whose is not told from a combination, so that no digest says more.
    """
    bought = sum((spent_by(audit.records[each - 1]) for each in {debit.sequence for debit in debits}), Spending())
    spent = release.spending
    enough = bought.pure >= spent.pure and bought.gaussian + bought.zcdp >= spent.gaussian + spent.zcdp
    if not enough or any(debit.unit not in (None, release.unit) for debit in debits):
        raise LedgerError(
            f"The debits in the ledger {audit.store.path} that the combined release names are not for all that it has "
            "measured. Combine the releases again, from untouched copies."
        )


def form_in_noise(strategy: Strategy, scales: Sequence[Fraction], noise: Noise) -> Form:
    """The form of a strategy of integers whose blocks are measured with noise of these scales."""
    precisions = once_each(lambda scale: noise_weight(scale, resolution(scale, noise), noise) ** 2, scales)
    return form_of(strategy, precisions)


def noise_weight(scale: Fraction, r: int, noise: Noise) -> float:
    """ω: one over the standard deviation of the noise on Âx. What rounding adds to σ², 2e-5 of it, is in the margins.

    >>> noise_weight(Fraction(4), 16, Noise.GAUSSIAN), round(noise_weight(Fraction(4), 16, Noise.LAPLACE), 6)
    (0.5, 0.176778)
    """
    if noise is Noise.GAUSSIAN:
        return 1 / math.sqrt(scale)
    return math.sqrt(2) * math.sinh(1 / (2 * float(scale * r))) * r
