"""Report: what the page is about, which rows its tables count, and how they were made. Everything in it is public."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from typing import Final, Literal, final

import numpy as np

from hdmm.answers.margins import PLAIN, Reliability
from hdmm.answers.table import NUMBER_COLUMNS, Table
from hdmm.base.exceptions import ReportError
from hdmm.base.numbers import date, many
from hdmm.describe.amount import Amount
from hdmm.describe.attribute import Column, columns
from hdmm.describe.domain import Domain
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.privacy.ledger import Receipt
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.privacy.units import UNITS, shown
from hdmm.publication.protection import Protection, in_full
from hdmm.publication.spec.keys import ReportPart
from hdmm.strategy.informed import known_by
from hdmm.strategy.strategy import Strategy

_MOST_NAMED: Final = 20  # columns of the data
_NOWHERE = "in no table and in no total"
_ESTIMATES = {
    "unbiased": "weighted least squares from all measurements",
    "nonnegative": "weighted least squares from all measurements under the condition that no count is below 0",
    "integers": "weighted least squares from all measurements under the condition that no count is below 0, rounded",
}


@final
@dataclass(frozen=True, slots=True)
class Changes:
    """What is different from the publication before: how it was compared, each table, and rows that differ."""

    since: str  # when the data of that one was measured
    meaning: str
    tables: Sequence[tuple[str, str, str]]  # title, rows compared, rows beyond the margin
    rows: Sequence[tuple[str, str, str, str, str, str]]  # title, row, before, now, difference, margin
    more: int  # rows that are not listed
    others: Sequence[str]  # sentences about tables of one publication only


@final
@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """One release, as its readers see it. `level` is the confidence level of the intervals in the tables.

    `most_rows` is how many rows of each person were counted at most, if rows say whose they are, `impossible` has
    the conditions under which no row was counted, and `where` the one under which rows were counted, if there is one.
    """

    title: str
    dataset: str
    created: str
    privacy: Privacy
    unit: Unit
    receipts: tuple[Receipt, ...]  # what paid for it: several for a combination of releases
    level: float
    tables: tuple[Table, ...]
    strategy: Strategy
    operator: str
    kind: Literal["unbiased", "nonnegative", "integers"] = "unbiased"
    most_rows: int | None = None
    impossible: tuple[str, ...] = ()
    where: str | None = None
    exact_gaussian: bool = False  # of `Measurement`
    letterhead: ReportPart = field(default_factory=ReportPart)
    logo: str | None = None  # as a data URL, so that the page needs no other file
    digest: str | None = None  # SHA-256 of the specification
    changes: Changes | None = None

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ReportError(f"A confidence level of {self.level!r} is not between 0 and 1. Use for example 0.95.")
        for table in self.tables:
            if table.biased and self.kind == "unbiased":
                raise ReportError(
                    f"Table {table.name!r} has biased estimates, but the page says that no count was raised to 0. "
                    'Answer without nonnegative=True, or give the report the kind "nonnegative" or "integers".'
                )
            _check(table, self.level)

    @property
    def guarantee(self) -> str:
        """What the release guarantees, as ε too."""
        return in_full(self.privacy, gaussian=self.exact_gaussian)

    @property
    def known(self) -> list[str]:
        """The rows whose counts were declared as public."""
        return [f"by {known_by(product)}" if product.axes else "of all rows" for product in self.strategy.known]

    @property
    def protection(self) -> Protection:
        """What the release guarantees, in all ways that hold at once."""
        return Protection.of(self.privacy, gaussian=self.exact_gaussian)

    @property
    def reliability(self) -> Reliability:
        """The rule by which numbers are graded."""
        return self.tables[0].reliability if self.tables else PLAIN

    @property
    def grades(self) -> list[tuple[str, str]]:
        """The words for how reliable numbers are, and what they mean."""
        return self.reliability.explained(note for table in self.tables for note in table.notes)

    @property
    def counts(self) -> int:
        """The rows of all tables."""
        return sum(map(len, self.tables))

    def counted(self, headings: Mapping[str, str] | None = None) -> list[str]:
        """Which rows the tables are about, in sentences, with the headings of columns that readers see."""
        domain = self.strategy.domain
        return counted_rows(domain, headings, most_rows=self.most_rows, impossible=self.impossible, where=self.where)


def counted_rows(
    domain: Domain,
    headings: Mapping[str, str] | None = None,
    *,
    most_rows: int | None = None,
    impossible: Sequence[str] = (),
    where: str | None = None,
) -> list[str]:
    """What the domain declares, what happens to other values, and how many rows of a person are counted.

    >>> counted_rows(Domain({"sex": ["M", "F"]}), {"sex": "Sex"}, most_rows=1)[2]
    'At most 1 row of each person is counted: others of the same person, and rows that do not say whose they are, ...'
    """
    every = {(headings or {}).get(name, name): column for name, column in columns(domain.attributes).items()}
    known = {name: column for name, column in every.items() if not column.values.divided}
    amounts = [(name, each) for name, column in every.items() if isinstance(each := column.values, Amount)]
    others = [name for name, column in known.items() if column.values.outside == "other"]
    shown = [f"{name} ({_range(column)})" for name, column in islice(known.items(), _MOST_NAMED)]
    shown += [many(len(known) - _MOST_NAMED, "more column")] if len(known) > _MOST_NAMED else []
    said = [f"Rows are counted by {listed(shown)}."] if shown else []
    if others:
        said.append(f"Rows with another value, or no value, in {listed(others)} are counted as “other”.")
    if len(others) < len(known):
        rest = "any of the others" if others else "any of them"
        said.append(f"A row with another value, or no value, in {rest} is {_NOWHERE}.")
    if impossible:
        said.append(f"Nor is a row for which this holds, which was declared impossible: {'; '.join(impossible)}.")
    said += [
        f"Values of {name} below {low} count as {low}, and those above {high} as {high}; they are rounded to steps of "
        f"{step}. A row without a value is not in its sums and means."
        for name, each in amounts
        for low, high, step in [[f"{end:,}".replace("-", "−") for end in (each.low, each.high, each.step)]]
    ]
    if where is not None:
        said.append(f"Only rows are counted for which this holds: {where}.")
    if most_rows is not None:
        count = f"{many(most_rows, 'row')} of each person {'is' if most_rows == 1 else 'are'} counted"
        said.append(
            f"At most {count}: others of the same person, and rows that do not say whose they are, are {_NOWHERE}."
        )
    return [*said, "“True” numbers are those of the rows that are counted."]


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _check(table: Table, level: float) -> None:
    """Refuse a table that the page would misrepresent."""
    if table.level != level:
        raise ReportError(
            f"Table {table.name!r} has intervals of level {table.level}, but the report says {level}. Use one level."
        )
    sizes = {array.shape for array in table.numbers}
    unknown = table.unknown & np.isneginf(table.lower) & np.isposinf(table.upper) if len(sizes) == 1 else False
    for what, array in zip(NUMBER_COLUMNS, table.numbers, strict=True):
        if array.shape != (len(table),):
            raise ReportError(
                f"Table {table.name!r} has {len(table):,} rows, but its {what} has shape {array.shape}. "
                "Give one number per row."
            )
        if not (np.isfinite(array) | unknown).all():
            raise ReportError(f"The {what} of table {table.name!r} has entries that are not finite numbers.")
    inside = (table.stddev >= 0) & (table.lower <= table.estimate) & (table.estimate <= table.upper)
    if not (inside | unknown).all():
        raise ReportError(
            f"Table {table.name!r} has a standard deviation below 0, or an estimate outside its interval."
        )
    expected = table.forecast
    if expected is not None:
        for error in (expected.rmse, expected.identity, expected.direct, expected.bound):
            if error is not None and not (np.isfinite(error) and error >= 0):
                raise ReportError(f"Table {table.name!r} has an expected error of {error}. Leave out what is unknown.")


def _range(column: Column) -> str:
    """The declared values of a column: all if they are few, else the first and the last."""
    labels = [str(column.values.label(code)) for code in sorted({*range(min(column.declared, 3)), column.declared - 1})]
    if column.declared <= 4:
        return ", ".join(labels)
    return f"{labels[0]} … {labels[-1]}, {column.declared:,} values"


def quotable(report: Report) -> str:
    """How the tables were made, in sentences that stand alone."""
    about, blocks = report.letterhead, report.strategy.blocks
    whose = f" by {about.organisation}" if about.organisation else ""
    when = f" ({about.period})" if about.period else ""
    queries = many(sum(block.rows for block in blocks), "linear combination")
    tables = many(len(report.tables), "table")
    said = (
        f"“{report.title}”{when} was published{whose} on {date(report.created)} from the dataset {report.dataset}: "
        f"{many(report.counts, 'number')} in {tables}, protected by differential privacy with the High-Dimensional "
        f"Matrix Mechanism (McKenna, Miklau, Hay and Machanavajjhala, PVLDB 2018). {queries} in "
        f"{many(len(blocks), 'block')} were chosen without looking at the data ({report.operator}) and measured with "
        f"independent {_noise(report)} noise from the randomness of the operating system. The release satisfies "
        f"{report.guarantee}; two datasets are neighbours if they differ by {report.unit}. "
        f"{_accounting(report.receipts)} Everything else is post-processing: every number is estimated by "
        f"{_ESTIMATES[report.kind]}, with an interval from its exact variance."
    )
    if report.known:
        said += f" Counts {listed(report.known)} were public, and are reproduced without noise."
    digest = "" if report.digest is None else f" The specification has the SHA-256 digest {report.digest}."
    return f"{said} Software: hdmm {version('hdmm')}.{digest}"


def _accounting(receipts: Sequence[Receipt]) -> str:
    if not receipts:
        return "No ledger recorded what it spent."
    entries = listed([str(each.sequence) for each in receipts])
    records = "entry" if len(receipts) == 1 else "entries"
    return (
        f"It is {records} {entries} of the ledger of the dataset, which adds up the losses of all releases (sequential "
        f"composition) and refuses what exceeds a cap; the last hash is {receipts[-1].hash}."
    )


def spending(receipts: Sequence[Receipt]) -> tuple[str, str]:
    """What a release has spent, and what was left then."""
    if not receipts:
        return "Not recorded", "no ledger was debited for this release"
    last = receipts[-1]
    amounts = sum(receipt.amount for receipt in receipts), last.balance
    spent, balance = (shown(last.parameter, math.floor(amount * UNITS)) for amount in amounts)
    return f"{spent} spent", f"{balance} is left of the dataset’s budget"


def method_facts(report: Report) -> list[tuple[str, str]]:
    """The facts at the end of the page, by name."""
    facts = [
        ("Guarantee", report.guarantee),
        ("Unit of privacy", str(report.unit)),
        ("Noise", _noise(report)),
        ("Strategy found by", report.operator),
        ("Estimates", _ESTIMATES[report.kind]),
        ("Software", f"hdmm {version('hdmm')}, Python {platform.python_version()}, NumPy {version('numpy')}"),
    ]
    for receipt in report.receipts:
        facts += [
            ("Ledger entry", f"{receipt.sequence} of dataset {receipt.dataset}, {date(receipt.timestamp)}"),
            ("Hash of the entry", receipt.hash),
        ]
    return facts if report.digest is None else [*facts, ("Digest of the specification", report.digest)]


def _noise(report: Report) -> str:
    if report.exact_gaussian:
        return "Gaussian (rounded to whole numbers)"
    return "discrete Laplace" if report.privacy.noise is Noise.LAPLACE else "discrete Gaussian"
