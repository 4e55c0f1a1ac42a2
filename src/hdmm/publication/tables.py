"""The tables of a release as they are published: estimates with their intervals, totals and percentages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hdmm.chunked import AnyRelease
from hdmm.entries import Label
from hdmm.evaluate import evaluated
from hdmm.margins import holding
from hdmm.publication.totals import with_totals
from hdmm.reliability import PLAIN, Reliability
from hdmm.spec import Spec, TableRequest
from hdmm.spec.records import OutputPart
from hdmm.sql import Statement
from hdmm.table import Forecast, Table


def answer_tables(spec: Spec, release: AnyRelease, expected: Sequence[Forecast]) -> tuple[Table, ...]:
    """The answers of a release to every table that is asked for, with the expected error of each."""
    output = spec.output
    rule = _reliability(output)
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
        asked.columns,
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
        asked.headings,
        asked.note,
        measure=counts.count if isinstance(counts, Statement) else "count",
    )
    found = with_totals(found, asked, answers, release) if totals else found
    return found if (order := asked.order) is None else found.arranged(order)


def _reliability(output: OutputPart) -> Reliability:
    """The rule of [output]: `flag` says what is reliable, or else `suppress`; either adds the columns."""
    suppress = None if output.suppress is None else output.suppress.relative_margin
    said = [rule.relative_margin for rule in (output.flag, output.suppress) if rule is not None]
    return Reliability(*said[:1], suppress=suppress, written=bool(said))


def _text(label: Label | None) -> str | None:
    return None if label is None else str(label)
