"""Release: the result of a measurement, with all that is needed to answer queries from it."""

from __future__ import annotations

import importlib
import json
import math
import os
from abc import ABC
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
from msgspec import UNSET, UnsetType, structs

from hdmm.answers.answers import Answers
from hdmm.answers.evaluate import evaluated
from hdmm.answers.rows import SyntheticRows
from hdmm.answers.table import Table
from hdmm.base.exceptions import (
    BudgetError,
    FileError,
    LedgerError,
    MatrixError,
    NoiseError,
    PrivacyError,
    StrategyError,
)
from hdmm.base.notebook import Card, NotebookValue
from hdmm.base.numbers import LEVEL
from hdmm.describe.domain import Domain
from hdmm.describe.table_column import TableColumn
from hdmm.describe.workload import Workload
from hdmm.io import Json, Stored, StrictRecord, encode, load_record, save_record
from hdmm.matrix import Array
from hdmm.measure.provenance import (
    Mark,
    MeasuredPart,
    PartRecord,
    ReceiptRecord,
    RowsRecord,
    part_keys,
    read_parts,
    receipt_record,
)
from hdmm.measure.synthesis import Evidence, rows_asked
from hdmm.noise import check_scale
from hdmm.privacy.audit import Audit
from hdmm.privacy.guarantee import (
    ZCDP,
    Exact,
    GaussianDP,
    Noise,
    Privacy,
    PureDP,
    Unit,
    exact_delta,
    guarantee,
)
from hdmm.privacy.ledger import Ledger, Receipt, debit_of, seen_by
from hdmm.privacy.spending import Spending, least_epsilon
from hdmm.privacy.units import UNITS, charge
from hdmm.reconstruct.estimate import Estimate
from hdmm.reconstruct.known import (
    Known,
    KnownRecord,
    exactly,
    known_answers,
    known_counts,
    known_products,
    known_records,
    read_known,
)
from hdmm.reconstruct.least_squares import reconstruct
from hdmm.reconstruct.nonnegative import check_nonnegative, in_integers, nonnegative
from hdmm.select.goal import Goal
from hdmm.strategy.form import Form, NoForm
from hdmm.strategy.lattice import Lattice, once_each, resolution
from hdmm.strategy.strategy import Strategy, form_of

_ROUNDED: Final = "rounded-gaussian"


class PrivacyRecord(StrictRecord, frozen=True):
    """The privacy of a release: epsilon, or rho, or mu, or epsilon and delta, as exact fractions."""

    epsilon: Fraction | UnsetType = UNSET
    delta: Fraction | UnsetType = UNSET
    rho: Fraction | UnsetType = UNSET
    mu: Fraction | UnsetType = UNSET


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


@final
@dataclass(frozen=True, eq=False)
class Release(Measurement, NotebookValue):
    """Noisy integers and all that is needed to answer from them. It holds nothing else about the data."""

    measurements: tuple[Array, ...]  # one array per block: r·Âx + noise
    parts: tuple[MeasuredPart, ...]  # the measurements that it is made of: itself, or those that were combined
    known: tuple[Known, ...] = ()  # published without noise; the strategy has their attributes

    @property
    def receipt(self) -> Receipt | None:
        """The debit that paid for it; None without a ledger, and of a combination, whose parts have their own."""
        return self.parts[0].receipt if len(self.parts) == 1 else None

    @cached_property
    def estimate(self) -> Estimate:
        """The least-squares estimate of the counts, computed when first asked for."""
        return exactly(self._least_squares, self.known)

    @cached_property
    def nonnegative(self) -> Estimate:
        """The estimate under the condition that no count is below 0, which makes it biased (`nonnegative`)."""
        return exactly(self._not_negative, self.known)

    @cached_property
    def integers(self) -> Estimate:
        """The nonnegative estimate rounded so that all tables still add up; biased too (`whole_numbers`)."""
        check_nonnegative(self.form, integers=True)
        found = in_integers(self.form, *self._answers, self._not_negative, self.known)
        return exactly(found, self.known)

    def answer(
        self,
        workload: Workload | Mapping[str, Workload],
        *,
        nonnegative: bool = False,
        integers: bool = False,
        fitted: bool = False,
        known: Known | Sequence[Known] | None = None,
    ) -> Answers:
        """Answers to any workload that the strategy supports, or to several by name; costs no privacy.

        `nonnegative=True` answers from an estimate that has no negative counts, and `integers=True` from one of whole
        numbers that are not negative either. Tables agree, and the total is kept. Both are biased, mostly upward where
        counts are small; the answers say so. `stddev` is that of the unbiased estimate, and intervals are wide enough
        to hold both estimates. `known` are counts that are public besides those of the release: they are reproduced,
        and inform the rest.

        `fitted=True` answers from a distribution of rows that fits what was measured: it is not negative either, mostly
        nearer to the truth, and answers any workload. If part of it was not measured, all of it follows from the model
        only, nothing is known about its error, and `stddev` is infinite.
        """
        if known is not None:
            informed = self.informed(known)
            return informed.answer(workload, nonnegative=nonnegative, integers=integers, fitted=fitted)
        self.strategy.check_domain(Goal.of(workload).workload.domain)
        if fitted:
            return self._fitted_answers(workload)
        estimate = self.integers if integers else self.nonnegative if nonnegative else self.estimate
        noise = self.privacy.noise
        return Answers.of(workload, estimate, self.form, noise, unbiased=self.estimate, known=self.known)

    def rows(self, n: int | None = None, *, by: Sequence[str] = (), impossible: Sequence[str] = ()) -> SyntheticRows:
        """Made-up rows whose tables are near those of the release: n of them, or as many as it counts; free.

        They are the same at every call. Known counts hold exactly, and so does the table `by` some attributes, as
        `answer(fitted=True)` has it, rounded; with another n, in proportion. No row fulfils an `impossible` condition.
        A row stands for no person, and nothing is known about tables far from those measured: see docs/guide/rows.md.

        >>> from hdmm import from_array, optimize
        >>> domain = Domain({"sex": ["M", "F"], "age": 3})
        >>> plan = optimize(Workload.marginals(domain, k=2), restarts=1)
        >>> release = plan.measure(from_array(domain, [[300, 0, 200], [100, 400, 0]]), PureDP(10), ledger=None)
        >>> rows = release.rows(1000)
        >>> len(rows), rows.to_arrow().column_names
        (1000, ['sex', 'age'])
        """
        evidence = self._evidence
        wanted = rows_asked(n, evidence.total, len(self.domain))
        codes = evidence.codes(wanted, by, impossible)
        measured = tuple(i for i in range(len(self.domain)) if i not in evidence.components.unmeasured)
        return SyntheticRows(
            self.domain, tuple(codes), evidence.total, self.digest, measured, *evidence.measured, self._held_by
        )

    def informed(self, known: Known | Sequence[Known]) -> Release:
        """The same release with more counts that are known; StrategyError if they contradict each other.

        >>> from hdmm import from_array
        >>> from hdmm.measure.measure import measure
        >>> data = from_array(Domain({"sex": ["M", "F"]}), [5, 7])
        >>> release = measure(Strategy.identity(data.domain), data, PureDP(1), ledger=None)
        >>> told = release.informed(Known(data.domain, [], 12)).answer(Workload.marginals(data.domain, k=range(2)))
        >>> float(told.values[0]), told.stddev.round(3)
        (12.0, array([0., 1., 1.]))
        """
        given = (known,) if isinstance(known, Known) else tuple(known)
        held = known_counts(self.domain, (*self.known, *given))
        return replace(self, strategy=replace(self.strategy, known=known_products(held)), known=held)

    def quantile(
        self, attribute: str, q: float | Sequence[float] = 0.5, *, by: Sequence[str] = (), level: float = LEVEL
    ) -> Table:
        """Quantiles of an attribute of integers or bins in each group, many at once, from prefix counts; free.

        The q-quantile is the smallest value up to which at least q of the rows lie. A bin is known only up to its
        edges, and the estimate lies between them in proportion. Where a group may be empty, the estimate is NaN and the
        interval unbounded. StrategyError if prefixes of the attribute were not measured.

        >>> from hdmm import Domain, from_array, optimize
        >>> domain = Domain({"sex": ["M", "F"], "age": 99})
        >>> plan = optimize(Workload.sql(domain, "SELECT sex, MEDIAN(age) FROM t GROUP BY sex"), restarts=1)
        >>> release = plan.measure(from_array(domain, np.full(domain.shape, 1000)), PureDP(10), ledger=None)
        >>> print(release.quantile("age", [0.25, 0.5], by=["sex"], level=0.95))
        sex  quantile  estimate  95 % from  to
        M    0.25            24         24  24
        F    0.25            24         24  24
        M    0.5             49         49  49
        F    0.5             49         49  49
        """
        # Imported by name because only those who use SQL, or this, should wait for its parser.
        sql = importlib.import_module("hdmm.sql")
        several = not isinstance(q, float | int)
        asked = [q] if isinstance(q, float | int) else list(q)
        names = [self.domain[name].name for name in by]
        text = sql.select_sql(names, sql.quantile_sql(self.domain[attribute], asked))
        (statement,) = sql.parse(self.domain, text)
        numbers = evaluated(statement.aggregates, self.answer(statement.workload), level)
        groups = list(statement.labels())[: len(numbers[0]) // len(asked)]
        rows = [(*map(str, row[: len(names)]), *([f"{p:g}"] if several else [])) for p in asked for row in groups]
        title = f"Quantiles of {attribute}"
        columns = [TableColumn.of_values(name, self.domain[name].values) for name in names]
        columns += [TableColumn("quantile", ends=lambda: {f"{p:g}": (p, p) for p in asked})] if several else []
        return Table(attribute, title, tuple(columns), lambda: rows, *numbers, level)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the release as a folder (JSON and arrays), whole or not at all; `load_release` reads it."""
        file = release_file(self, self.parts, self.known)
        return save_record(path, "release", file, measurements=np.concatenate(self.measurements))

    def verify(self, ledger: Ledger) -> None:
        """Raise LedgerError unless this ledger holds the debit that paid for this very release (security L7).

        A debit from before debits named releases binds only the receipt: dataset, amount and place in the chain.
        """
        verify_paid(self, self.receipt, seen_by(ledger).again(), ledger.dataset)

    def charged_again(self, ledger: Ledger, purpose: str) -> Release:
        """The same release with the receipt of a new debit, for a ledger restored from before the release was paid."""
        gaussian = self.exact_gaussian
        paid = ledger.debit(charged(self.spending), purpose, unit=self.unit, pays_for=self.digest, gaussian=gaussian)
        return replace(self, parts=(replace(self.parts[0], receipt=paid),))

    @cached_property
    def _evidence(self) -> Evidence:
        answers, units = self._answers
        return Evidence(
            self.form, tuple(y * unit for y, unit in zip(answers, units, strict=True)), self.estimate, self.known
        )

    def _held_by(self, workload: Workload, rows: Estimate) -> Answers:
        """What rows answer, with intervals that hold it."""
        self.strategy.check_domain(workload.domain)
        return Answers.of(workload, rows, self.form, self.privacy.noise, unbiased=self.estimate, known=self.known)

    def _fitted_answers(self, workload: Workload | Mapping[str, Workload]) -> Answers:
        evidence, noise = self._evidence, self.privacy.noise
        with suppress(StrategyError):  # which refuses what was not measured
            return Answers.of(workload, evidence.near, self.form, noise, unbiased=self.estimate, known=self.known)
        form = NoForm(self.domain, (), "These numbers follow from a model, so nothing is known of their error.", True)
        return Answers.of(
            workload, evidence.modelled, form, noise, unbiased=evidence.components.estimate, known=self.known
        )

    @cached_property
    def _not_negative(self) -> Estimate:
        return nonnegative(self.form, *self._answers, self._least_squares, self.known)

    @cached_property
    def _least_squares(self) -> Estimate:
        return reconstruct(self.form, *self._answers)

    @property
    def _answers(self) -> tuple[tuple[Array, ...], list[float]]:
        """The answers to all blocks of the form and their units: the measurements, and what is known."""
        exact = known_answers(self.form, self.known)
        return (*self.measurements, *exact), [*self._units, *[1.0] * len(exact)]

    @property
    def _units(self) -> list[float]:
        return once_each(lambda scale: 1 / resolution(scale, self.privacy.noise), self.scales)

    def __repr__(self) -> str:
        count = sum(map(len, self.measurements))
        return f"Release({count:,} measurements over {self.domain.size:,} cells, {self.privacy})"

    def _card(self) -> Card:
        """What was measured, at which privacy, and what paid for it."""
        paid = self.receipt
        facts = {
            "Guarantee": str(self.privacy),
            "Unit of privacy": str(self.unit),
            "Paid by": "no ledger" if paid is None else f"record {paid.sequence} of the ledger, dataset {paid.dataset}",
            "Cells of the domain": f"{self.domain.size:,}",
        }
        names, blocks = self.domain.names, self.strategy.blocks
        rows = ([" × ".join(names[i] for i in b.axes) or "the total", f"{b.rows:,}"] for b in blocks)
        return Card("Release", facts, ["measured", "numbers"], rows, total=len(blocks))


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
        "noise": _ROUNDED if measured.exact_gaussian else UNSET,
    }


def verify_paid(release: Measurement, receipt: Receipt | None, audit: Audit, dataset: str) -> None:
    """Raise LedgerError unless the dataset's debit that paid for the release is in the audit."""
    if receipt is None:
        raise LedgerError(
            "The release has no receipt: it was measured without a ledger, so no budget paid for it. Measure with "
            "a ledger to publish."
        )
    debit = debit_of(receipt, audit, dataset)
    if debit.pays_for is None and release.exact_gaussian:
        raise LedgerError(
            f"Receipt {receipt.sequence} of the ledger {audit.store.path} is of an early version, whose Gaussian noise "
            "was discrete, but the release says that its noise was rounded. Take the release from an untouched copy."
        )
    if debit.pays_for is not None and debit.pays_for != release.digest:
        raise LedgerError(
            f"Receipt {receipt.sequence} of the ledger {audit.store.path} paid for another release (one with "
            "another strategy, noise, guarantee or unit), or for none. Publish the release that it belongs to."
        )


def load_release(path: str | os.PathLike[str]) -> Release:
    """The release that `Release.save` wrote. What it spends is computed from its factors and noise, never read."""
    if (Path(path) / "chunks.json").is_file():
        raise FileError(
            f"{path} was measured in chunks, which lie in the folder of its engine. Open it with "
            "hdmm.load_chunked(hdmm.engines.dask(folder=…)); to publish it, add --engine dask and its --engine-folder."
        )
    file, arrays = load_record(path, "release", ReleaseFile)
    at = str(Path(path) / "release.json")
    privacy, receipt = read_paid(file, at, parts=1 if isinstance(file.parts, UnsetType) else len(file.parts))
    sizes = [block.rows for block in file.strategy.blocks]
    y = arrays.get("measurements")
    if y is None or y.dtype != np.int64 or y.shape != (sum(sizes),):
        raise FileError(f"{at}: the measurements are not {sum(sizes):,} integers. Save the release again.")
    measurements = tuple(np.split(y, np.cumsum(sizes)[:-1]))
    parts = read_parts(file.mark, file.rows, receipt, file.parts)
    if not parts:
        raise FileError(f"{at}: neither `mark` and `rows` nor `parts` say what was measured. Save the release again.")
    rounded = file.noise is not UNSET
    release = Release(
        file.strategy, tuple(file.scales), privacy, file.unit, measurements, parts, exact_gaussian=rounded
    )
    known = read_known(release.domain, file.known, at)
    return release.informed(known) if known else release


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
        **({"noise": _ROUNDED} if measured.exact_gaussian else {}),
    }
    return sha256(json.dumps(content, allow_nan=False, sort_keys=True).encode("ascii")).hexdigest()


def _array_digest(array: Array) -> str:
    layout = f"{array.dtype.str} {array.shape} ".encode()
    return sha256(layout + np.ascontiguousarray(array).tobytes()).hexdigest()


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
