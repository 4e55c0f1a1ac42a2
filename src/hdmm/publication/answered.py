"""What is published of a release: its tables with their intervals, totals and percentages, and the report on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import numpy as np

from hdmm.answers.evaluate import evaluated
from hdmm.answers.margins import PLAIN, Reliability, holding
from hdmm.answers.table import BinBounds, Forecast, Table
from hdmm.answers.totals import with_totals
from hdmm.base.exceptions import HdmmError
from hdmm.describe.entries import Label
from hdmm.describe.table_query import TableQuery
from hdmm.matrix import Array
from hdmm.measure.chunked_release import AnyRelease
from hdmm.publication.report import Report
from hdmm.publication.spec import Spec
from hdmm.publication.spec.keys import OutputPart


def answer_tables(spec: Spec, release: AnyRelease, expected: Sequence[Forecast]) -> tuple[Table, ...]:
    """The answers of a release to every table that is asked for, with the expected error of each."""
    output = spec.output
    rule = reliability_of(output)
    return tuple(
        answer_table(release, output.level, query, forecast, output.counts, rule, totals=True)
        for query, forecast in zip(spec.tables, expected, strict=True)
    )


def answer_table(
    release: AnyRelease,
    level: float,
    query: TableQuery,
    expected: Forecast | None = None,
    kind: str = "unbiased",
    reliability: Reliability = PLAIN,
    *,
    totals: bool = False,
) -> Table:
    """The answers of a release to one table, with intervals of this level, and with totals and percentages if query."""
    answers = release.answer(query.workload, nonnegative=kind == "nonnegative", integers=kind == "integers")
    if query.linear:
        estimate, stddev, lower, upper = answers.rows(query.combine, level)
    else:
        estimate, stddev, *bounds = evaluated(query.aggregates, answers, level)
        lower, upper = holding((bounds[0], bounds[1]), estimate, -math.inf) if answers.biased else bounds
    found = Table(
        query.name,
        query.title,
        query.label_columns,
        lambda: (tuple(map(_text, row)) for row in query.labels()),
        estimate,
        stddev,
        lower,
        upper,
        level,
        answers.biased,
        query.text,
        expected,
        reliability,
        len(query.measures),
        query.impossible if query.impossible.any() else None,
        query.note,
        measure=query.count,
        bins=_bounds(release, query, level, lower, upper),
    )
    found = with_totals(found, query, answers, release.answer) if totals else found
    return found if (order := query.order) is None else found.arranged(order)


def _bounds(release: AnyRelease, query: TableQuery, level: float, lower: Array, upper: Array) -> BinBounds | None:
    """The intervals of sums and means that hold wherever in their bins the values lie; None if no value is in a bin.

    A true sum is at least the sum of the lower ends of bins, and at most that of the upper ends. Each is a query with
    an interval of its own, of which one side is needed. Percentages of such sums have no bounds.
    """
    ends = query.at_ends
    if ends is None:
        return None
    binned = np.zeros((len(query.measures), len(lower) // len(query.measures)), dtype=bool)
    binned[list(ends.measures)] = True
    found = BinBounds(
        binned.ravel(), np.where(binned.ravel(), -math.inf, lower), np.where(binned.ravel(), math.inf, upper)
    )
    if ends.workload is None:
        return found
    with suppress(HdmmError):  # nothing is lost: these rows are published without bounds
        if not any(math.isinf(release.form.total_variance([product])) for product in ends.workload.products):
            _, _, least, most = evaluated(ends.aggregates, release.answer(ends.workload), level)
            found.lower[found.rows] = np.split(least, 2)[0]
            found.upper[found.rows] = np.split(most, 2)[1]
    return found


def reliability_of(output: OutputPart) -> Reliability:
    """The rule of [output]: `flag` says what is reliable, or else `suppress`; either adds the columns."""
    suppress = None if output.suppress is None else output.suppress.relative_margin
    said = [rule.relative_margin for rule in (output.flag, output.suppress) if rule is not None]
    return Reliability(*said[:1], suppress=suppress, written=bool(said))


def report_of(spec: Spec, release: AnyRelease, operator: str, tables: tuple[Table, ...]) -> Report:
    """What the page and the workbook are about."""
    return Report(
        title=spec.title,
        dataset=spec.data.dataset,
        created=measured_at(release),
        privacy=release.privacy,
        unit=release.unit,
        receipt=release.receipt,
        level=spec.output.level,
        tables=tables,
        strategy=release.strategy,
        operator=operator,
        kind=spec.output.counts,
        most_rows=spec.data.max_rows_per_id,
        impossible=spec.impossible,
    )


def measured_at(release: AnyRelease) -> str:
    """When the data was measured: the time of the receipt, or now if there is none."""
    return datetime.now(UTC).isoformat(timespec="seconds") if release.receipt is None else release.receipt.timestamp


def _text(label: Label | None) -> str | None:
    return None if label is None else str(label)
