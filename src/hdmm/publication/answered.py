"""What is published of a release: its tables with their intervals, totals and percentages, and the report on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from hdmm.answers.answers import Answers
from hdmm.answers.evaluate import evaluated
from hdmm.answers.margins import PLAIN, Reliability
from hdmm.answers.table import BinBounds, Forecast, Table
from hdmm.answers.totals import Totals, with_totals
from hdmm.base.exceptions import HdmmError
from hdmm.base.tolerances import SAME_COUNT
from hdmm.describe.entries import Label
from hdmm.describe.product import Product
from hdmm.describe.table_query import AtEnds, TableQuery
from hdmm.measure.chunked_release import AnyRelease
from hdmm.measure.release import Release
from hdmm.privacy.ledger import Receipt
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
    """The answers of a release to one table, with intervals of this level, and with totals and percentages if asked.

    The release is asked once: for the queries of the table, and for those of its totals or of the ends of its bins.
    """
    crossing = Totals.of(query) if totals else None
    own = query.workload.products
    beside = _beside(release, query, () if crossing is None or kind != "unbiased" else crossing.products)
    workload = replace(query.workload, products=(*own, *beside)) if beside else query.workload
    everything = release.answer(workload, nonnegative=kind == "nonnegative", integers=kind == "integers")
    answers = everything.part(0, len(own)) if beside else everything
    if query.linear:
        estimate, stddev, lower, upper = answers.rows(query.combine, level)
    else:
        estimate, stddev, lower, upper = evaluated(query.aggregates, answers, level)
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
    )
    if query.at_ends is not None:
        ends = everything.part(len(own)) if beside else None
        found = replace(found, bins=_bounds(found, query.at_ends, ends))
    if crossing is not None:
        found = with_totals(found, query, crossing, everything)
    return found if (order := query.order) is None else found.arranged(order)


def _beside(release: AnyRelease, query: TableQuery, totals: Sequence[Product]) -> Sequence[Product]:
    """The products that are asked for beside those of a table; none if not all of them have answers.

    Nothing is lost then: totals are added up from rows, and sums over bins are published without bounds.
    """
    ends = query.at_ends
    products = totals if ends is None else () if ends.workload is None else ends.workload.products
    with suppress(HdmmError):
        if products and math.isfinite(release.form.total_variance(products)):
            return products
    return ()


def _bounds(table: Table, ends: AtEnds, answers: Answers | None) -> BinBounds:
    """The intervals of sums and means that hold wherever in their bins the values lie.

    A true sum is at least the sum of the lower ends of bins, and at most that of the upper ends. Each is a query with
    an interval of its own, whose one side is needed where it reaches further than the noise. Without `answers` to
    these queries, and for percentages of such sums, there are no bounds.
    """
    shape = (table.measures, -1)
    lower, upper = table.lower.copy().reshape(shape), table.upper.copy().reshape(shape)
    measures = list(ends.measures)
    if answers is None:
        lower[measures], upper[measures] = -math.inf, math.inf
    else:
        _, _, least, most = evaluated(ends.aggregates, answers, table.level)
        slack = SAME_COUNT * (upper[measures] - lower[measures])
        low, high = np.split(least, 2)[0].reshape(len(measures), -1), np.split(most, 2)[1].reshape(len(measures), -1)
        lower[measures] = np.where(low < lower[measures] - slack, low, lower[measures])
        upper[measures] = np.where(high > upper[measures] + slack, high, upper[measures])
    return BinBounds(lower.ravel(), upper.ravel())


def reliability_of(output: OutputPart) -> Reliability:
    """The rule of [output]: `flag` says what is reliable, or else `suppress`; either adds the columns."""
    suppress = None if output.suppress is None else output.suppress.relative_margin
    said = [rule.relative_margin for rule in (output.flag, output.suppress) if rule is not None]
    return Reliability(*said[:1], suppress=suppress, written=bool(said), sdmx=output.sdmx)


def report_of(spec: Spec, release: AnyRelease, operator: str, tables: tuple[Table, ...]) -> Report:
    """What the page and the workbook are about."""
    return Report(
        title=spec.title,
        dataset=spec.data.dataset,
        created=measured_at(release),
        privacy=release.privacy,
        unit=release.unit,
        receipts=receipts_of(release),
        level=spec.output.level,
        tables=tables,
        strategy=release.strategy,
        operator=operator,
        kind=spec.output.counts,
        most_rows=spec.data.max_rows_per_id,
        impossible=spec.impossible,
        where=spec.data.where,
        exact_gaussian=release.exact_gaussian,
        letterhead=spec.letterhead,
        logo=spec.logo,
        digest=None if spec.tells_secret else spec.digest,
    )


def measured_at(release: AnyRelease) -> str:
    """When the data was measured last: the time of a receipt, or now if there is none."""
    times = [receipt.timestamp for receipt in receipts_of(release)]
    return max(times, default=datetime.now(UTC).isoformat(timespec="seconds"))


def receipts_of(release: AnyRelease) -> tuple[Receipt, ...]:
    """What paid for a release: one debit, or those of the parts of a combination."""
    found = [part.receipt for part in release.parts] if isinstance(release, Release) else [release.receipt]
    return tuple(receipt for receipt in found if receipt is not None)


def _text(label: Label | None) -> str | None:
    return None if label is None else str(label)
