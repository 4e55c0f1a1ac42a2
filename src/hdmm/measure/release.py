"""Release: the result of a measurement, with all that is needed to answer queries from it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from msgspec import UNSET, UnsetType

from hdmm.answers.answers import Answers
from hdmm.answers.evaluate import evaluated
from hdmm.answers.rows import SyntheticRows
from hdmm.answers.table import Table
from hdmm.base.exceptions import FileError, StrategyError
from hdmm.base.notebook import Card, NotebookValue
from hdmm.base.numbers import LEVEL
from hdmm.describe.table_column import TableColumn
from hdmm.describe.workload import Workload
from hdmm.io import load_record, save_record
from hdmm.matrix import Array
from hdmm.measure.measurement import Measurement, charged, verify_paid
from hdmm.measure.provenance import MeasuredPart, read_parts
from hdmm.measure.release_file import ReleaseFile, read_paid, release_file
from hdmm.measure.synthesis import Evidence, rows_asked
from hdmm.privacy.ledger import Ledger, Receipt, seen_by
from hdmm.reconstruct.estimate import Estimate
from hdmm.reconstruct.known import Known, exactly, known_answers, known_counts, known_products, read_known
from hdmm.reconstruct.least_squares import reconstruct
from hdmm.reconstruct.nonnegative import check_nonnegative, in_integers, nonnegative
from hdmm.select.goal import Goal
from hdmm.strategy.form import NoForm
from hdmm.strategy.lattice import once_each, resolution


@final
@dataclass(frozen=True, eq=False)
class Release(Measurement, NotebookValue):
    """Noisy integers and all that is needed to answer from them. It holds nothing else about the data."""

    measurements: tuple[Array, ...]  # one array per block: r·Âx + noise
    parts: tuple[MeasuredPart, ...]  # the measurements that it is made of: itself, or those that were combined
    known: tuple[Known, ...] = ()  # published without noise; the strategy has their attributes

    @property
    def receipts(self) -> tuple[Receipt | None, ...]:
        """The debits that paid for its parts."""
        return tuple(part.receipt for part in self.parts)

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

        >>> from hdmm import Domain, PureDP, from_array, optimize
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

        >>> from hdmm import Domain, PureDP, Strategy, from_array
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

        >>> from hdmm import Domain, PureDP, from_array, optimize
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

        A debit from before debits named releases binds only the receipt: dataset, amount and place in the chain. So do
        those of the parts of a combination, and what they are for together must be at least what it spends.
        """
        verify_paid(self, self.receipts, seen_by(ledger).again(), ledger.dataset)

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
