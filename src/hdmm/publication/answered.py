"""The tables of a release as they are published: estimates with their intervals, totals and percentages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from hdmm.answers.evaluate import evaluated
from hdmm.answers.margins import holding
from hdmm.answers.reliability import PLAIN, Reliability
from hdmm.answers.table import BinBounds, Forecast, Table
from hdmm.base.exceptions import HdmmError
from hdmm.describe.entries import ALL, Label
from hdmm.describe.numeric import Bins
from hdmm.describe.table_column import ColumnKind, TableColumn, cell_ends, number_ends
from hdmm.matrix import Array
from hdmm.measure.chunked_release import AnyRelease
from hdmm.publication.spec import Spec, TableRequest
from hdmm.publication.spec.keys import OutputPart
from hdmm.publication.spec.shorthand import Shorthand
from hdmm.publication.spec.tables import heading
from hdmm.publication.totals import with_totals
from hdmm.sql import Statement
from hdmm.sql.comparisons import columns


def answer_tables(spec: Spec, release: AnyRelease, expected: Sequence[Forecast]) -> tuple[Table, ...]:
    """The answers of a release to every table that is asked for, with the expected error of each."""
    output = spec.output
    rule = reliability_of(output)
    return tuple(
        answer_table(release, output.level, asked, forecast, output.counts, rule, totals=True)
        for asked, forecast in zip(spec.tables, expected, strict=True)
    )


def answer_table(
    release: AnyRelease,
    level: float,
    asked: TableRequest,
    expected: Forecast | None = None,
    kind: str = "unbiased",
    reliability: Reliability = PLAIN,
    *,
    totals: bool = False,
) -> Table:
    """The answers of a release to one table, with intervals of this level, and with totals and percentages if asked."""
    counts = asked.counts
    answers = release.answer(asked.workload, nonnegative=kind == "nonnegative", integers=kind == "integers")
    if isinstance(counts, Statement) and not counts.linear:
        estimate, stddev, *bounds = evaluated(counts.aggregates, answers, level)
        lower, upper = holding((bounds[0], bounds[1]), estimate, -math.inf) if answers.biased else bounds
    else:
        estimate, stddev, lower, upper = answers.rows(asked.combine, level)
    found = Table(
        asked.name,
        asked.title,
        _columns(asked),
        lambda: (tuple(map(_text, row)) for row in asked.labels()),
        estimate,
        stddev,
        lower,
        upper,
        level,
        answers.biased,
        counts.text if isinstance(counts, Statement) else None,
        expected,
        reliability,
        len(counts.measures) if isinstance(counts, Statement) else 1,
        asked.impossible if asked.impossible.any() else None,
        asked.note,
        measure=counts.count if isinstance(counts, Statement) else "count",
        bins=_bounds(release, counts, level, lower, upper) if isinstance(counts, Statement) else None,
    )
    found = with_totals(found, asked, answers, release) if totals else found
    return found if (order := asked.order) is None else found.arranged(order)


def _bounds(release: AnyRelease, counts: Statement, level: float, lower: Array, upper: Array) -> BinBounds | None:
    """The intervals of sums and means that hold wherever in their bins the values lie; None if no value is in a bin.

    A true sum is at least the sum of the lower ends of bins, and at most that of the upper ends. Each is a query with
    an interval of its own, of which one side is needed. Percentages of such sums have no bounds.
    """
    ends = counts.at_ends
    if ends is None:
        return None
    binned = np.zeros((len(counts.measures), len(lower) // len(counts.measures)), dtype=bool)
    binned[list(ends.measures)] = True
    found = BinBounds(
        binned.ravel(), np.where(binned.ravel(), -math.inf, lower), np.where(binned.ravel(), math.inf, upper)
    )
    if ends.workload is None or counts.totals is not None:
        return found
    with suppress(HdmmError):  # nothing is lost: these rows are published without bounds
        if not any(math.isinf(release.form.total_variance([product])) for product in ends.workload.products):
            _, _, least, most = evaluated(ends.aggregates, release.answer(ends.workload), level)
            found.lower[found.rows] = np.split(least, 2)[0]
            found.upper[found.rows] = np.split(most, 2)[1]
    return found


def _columns(asked: TableRequest) -> tuple[TableColumn, ...]:
    """The label columns of a table: which hold bins or the ends of ranges, and which numbers their labels are."""
    every = columns(asked.workload.domain).values()
    bins = {
        label: ends for each in every if isinstance(each.values, Bins) for label, ends in cell_ends(each.values).items()
    }
    ranged: dict[str, tuple[ColumnKind, str]] = {}
    if isinstance(asked.counts, Shorthand):
        for part in (part for part in asked.counts.labelled if part.ranged):
            base = heading(part.columns[0].name, asked.headings)
            ranged |= {part.names[0]: ("from", base), part.names[1]: ("to", base)}
    found: list[TableColumn] = []
    for name, labels in zip(asked.columns, _distinct(asked), strict=True):
        inside = {label: bins[label] for label in labels if isinstance(label, str) and label in bins}
        others = labels - inside.keys() - {None, ALL, "other"}
        kind, of = ranged.get(name, ("bins" if inside and not others else "labels", ""))
        ends = partial(dict, {**number_ends(labels), **inside})
        found.append(TableColumn(name, heading(name, asked.headings), kind, ends, of))
    return tuple(found)


def _distinct(asked: TableRequest) -> list[set[Label | None]]:
    """The labels of each column."""
    found: list[set[Label | None]] = [set() for _ in asked.columns]
    for row in asked.labels():
        for labels, label in zip(found, row, strict=True):
            labels.add(label)
    return found


def reliability_of(output: OutputPart) -> Reliability:
    """The rule of [output]: `flag` says what is reliable, or else `suppress`; either adds the columns."""
    suppress = None if output.suppress is None else output.suppress.relative_margin
    said = [rule.relative_margin for rule in (output.flag, output.suppress) if rule is not None]
    return Reliability(*said[:1], suppress=suppress, written=bool(said))


def _text(label: Label | None) -> str | None:
    return None if label is None else str(label)
