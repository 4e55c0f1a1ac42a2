"""render: a Report as one HTML page that needs no network, prints, and can be read aloud. It reads well without script.

The words are in templates/. Everything in a report is a value there, never a template, and is escaped (security O1).
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from hdmm.answers.margins import GOOD, GRADES
from hdmm.answers.picture import ranged
from hdmm.answers.rows import SyntheticRows
from hdmm.answers.table import BINNED, Table
from hdmm.answers.totals import RowLabels
from hdmm.base.numbers import date, decimal, figure, many, percent, places, spelled, up, whole
from hdmm.base.templates import html_page, templates
from hdmm.describe.entries import ALL
from hdmm.matrix import Array
from hdmm.measure.release import Release
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP
from hdmm.privacy.spending import least_epsilon
from hdmm.publication.protection import shown_guess, shown_up
from hdmm.publication.report.contents import Report, listed, method_facts, quotable, spending
from hdmm.publication.report.labels import shortened
from hdmm.publication.report.pictures import (
    MOST_BASES,
    base_picture,
    bases,
    block_picture,
    measured,
    over,
    trade_off_picture,
)
from hdmm.publication.report.plots import plots_of
from hdmm.publication.report.rows_shown import cross_tab, grades, labels_of, readable, rows, total_of

MOST_SHOWN_ROWS: Final = 200
"""Of a table on the page; the rest is found by the filter, or in its files."""

MOST_FILTERED: Final = 20_000
"""Rows of a table that the filter finds; all tables of a page share five times as many."""

MOST_SECTIONS: Final = 300
"""Tables on the page; the others are in their files."""

_LONG = 30  # rows from which on a table has a filter
_MOST_LISTED = 3  # blocks
_DELTA = Fraction(1, 10**6)  # the δ at which ρ is explained
_TWO_UP = Context(prec=2, rounding=ROUND_CEILING)  # two digits of a δ
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LARGEST_FACTOR = 1e4  # the largest factor of probabilities that is written out


def render(report: Report) -> str:
    """The report as one self-contained HTML page. O(rows); long tables are cut, and say so.

    A character that no document may contain becomes U+FFFD.

    >>> from hdmm import Domain, Unit
    >>> from hdmm.strategy.strategy import Strategy
    >>> strategy = Strategy.identity(Domain({"sex": ["M", "F"]}))
    >>> empty = Report("A & B", "people", "2026", PureDP(1), Unit(), (), 0.95, (), strategy, "Identity")
    >>> '<h1 dir="auto">A &amp; B</h1>' in render(empty)
    True
    """
    report = replace(report, tables=tuple(part for table in report.tables for part in table.by_measure()))
    labels = [labels_of(table) for table in report.tables]
    factor, rest = _guarantee(report)
    return _page(
        "page.html",
        report=report,
        change=_change(report),
        factor=factor,
        known=report.known,
        rest=rest,
        facts=_facts(report),
        summary=_summary(report),
        script=_script_hash(),
        example=_example(report, labels),
        counted=_counted(report),
        misses=up(report.counts * (1 - report.level), 0),
        good=min(GOOD, report.reliability.fair),
        exact_left_out=any(map(_is_left_out, report.tables)),
        binned=any(table.bins is not None for table in report.tables),
        tables=_tables(report.tables[:MOST_SECTIONS], labels),
        blocks=_blocks(report),
        protection=_protection(report),
        method=method_facts(report),
        quotable=quotable(report),
    )


def render_rows(rows: SyntheticRows, release: Release) -> str:
    """The page beside synthetic rows: what they are good for, how near they are to the release, and their columns."""
    furthest = sorted(rows.closeness, key=lambda near: near.typical, reverse=True)[:MOST_SECTIONS]
    return _page("rows.html", rows=rows, release=release, total=round(rows.total), shown=furthest)


def _page(name: str, **values: object) -> str:
    found = templates(
        "hdmm.publication.report",
        date=date,
        figure=figure,
        listed=listed,
        many=many,
        percent=percent,
        shortened=shortened,
        whole=whole,
    )
    return html_page(found, name, **values)


@cache
def _script_hash() -> str:
    """What the page's policy says of the one script that may run."""
    text = _page("script.js")
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _summary(report: Report) -> list[tuple[str, str]]:
    """(grade, share of all rows) for each grade that occurs."""
    found: Counter[str] = Counter()
    for table in report.tables:
        found.update(grades(table))
    return [(grade, f"{100 * found[grade] / report.counts:.1f}\xa0%") for grade in GRADES if found[grade]]


def _example(report: Report, labels: Sequence[RowLabels]) -> Mapping[str, object] | None:
    """A row that is easy to read: of the first table that has one, else the largest count of the first table."""
    for table, words in zip(report.tables, labels, strict=True):
        if (k := readable(table, words)) is not None:
            return _explained(table, words, k)
    for table, words in zip(report.tables, labels, strict=True):
        hidden = table.suppressed | table.unknown | table.noise_only
        if not hidden.all():
            return _explained(table, words, int(np.where(hidden, -np.inf, table.estimate).argmax()))
    return None


def _explained(table: Table, labels: RowLabels, k: int) -> Mapping[str, object]:
    (row,) = rows(table, slice(k, k + 1))
    words = [f"{head} {label}" for head, label in zip(table.heads, row.labels, strict=True)]
    if (what := ranged(table.label_columns)) is not None:
        first, last = row.labels[-2:]
        words[-2:] = [f"{what} {first} to {last}"]
    return {"title": table.title, "label": ", ".join(words) or "the total", "row": row}


def _tables(tables: Sequence[Table], labels: Sequence[RowLabels]) -> list[Mapping[str, object]]:
    """What the page shows of each table; the last ones of very long pages are without rows for the filter."""
    left = 5 * MOST_FILTERED
    found: list[Mapping[str, object]] = []
    for place, (table, words) in enumerate(zip(tables, labels, strict=False), start=1):
        most = min(MOST_FILTERED, left)
        made = {"place": place, **_table(table, words, filtered=len(table) <= most)}
        left -= len(table) if made["more"] else 0
        found.append(made)
    return found


def _table(table: Table, labels: RowLabels, *, filtered: bool) -> Mapping[str, object]:
    expected = table.forecast
    errors = (None,) * 4 if expected is None else (expected.rmse, expected.identity, expected.direct, expected.bound)
    cross, total = cross_tab(table, labels), total_of(table, labels)
    last = bool(table.attributes) and len(labels) > 1 and labels[-1] == (ALL,) * len(table.attributes)
    end = len(labels) - last  # a total at the end stands in the foot of the table
    first = rows(table, slice(min(MOST_SHOWN_ROWS, end)))
    more = rows(table, slice(MOST_SHOWN_ROWS, end)) if cross is None and filtered else []
    shares, bins = table.shares is not None, table.bins is not None
    lines = end if cross is None else len(cross.lines)
    known = ~(table.unknown | table.suppressed)
    return {
        "name": table.name,
        "title": table.title,
        "heads": table.heads,
        "definition": table.definition,
        "note": table.note,
        "count": len(table),
        "listed": end,
        "errors": errors,
        "left_out": _is_left_out(table),
        "assumed": None if expected is None else expected.assumed,
        "bars": _bars(*errors),
        "plots": plots_of(table.picture()),
        "rows": first,
        "total": total if last or table.totals is not None else None,
        "sum": None if total is None or total.is_blank else total,
        "typical": _typical(table.margin[known], table.estimate[known]) if known.any() else "–",
        "grades": grades(table),
        "more": "\n".join(row.line(shares=shares, bins=bins) for row in more),
        "cross": cross,
        "shares": shares,
        "only_here": ["totals"] * (table.totals is not None) + ["percentages"] * shares,
        "bins": BINNED if bins else None,
        "symmetric": all(row.margin for row in (*first, *more)),
        "filter": lines > _LONG,
        "hint": _hint(table, labels if cross is None else [words for words, _ in cross.lines]),
        "lines": lines,
    }


def _is_left_out(table: Table) -> bool:
    """Whether no error of a table was known before the data was read, or only that of the noise."""
    return table.bins is not None or (table.forecast is not None and table.forecast.rmse is None)


def _typical(margins: Array, estimates: Array) -> str:
    """The median of margins, with the digits that a number with this margin has; whole if the estimates are."""
    margin = float(np.median(margins))
    digits = places(margin) or 0
    return spelled(
        decimal(margin, min(digits, 0) if (estimates == np.rint(estimates)).all() else digits, ROUND_CEILING)
    )


def _hint(table: Table, labels: RowLabels) -> str:
    """What a reader may look for: both ends of a range, or one label."""
    return (
        shortened(" ".join(labels[len(labels) // 2][-1 if ranged(table.label_columns) is None else -2 :]), 20)
        if labels
        else ""
    )


def _facts(report: Report) -> list[tuple[str, str, str]]:
    """(name, value, detail) of each card at the top."""
    parameter, _, kind = report.guarantee.partition(" (")
    rows = "One row" if report.unit.rows == 1 else f"{report.unit.rows:,} rows"
    budget, left = spending(report.receipts)
    tables = f"in {many(len(report.tables), 'table')}, margins at {percent(report.level)}"
    return [
        ("Protection", parameter, kind.rstrip(")")),
        ("Unit of privacy", rows, str(report.unit)),
        ("Budget", budget, left),
        ("Published", many(report.counts, "number"), tables),
    ]


def _guarantee(report: Report) -> tuple[str, str]:
    """The factor by which a person's data may change a probability, and what is added to it."""
    match report.privacy:
        case PureDP(epsilon):
            return _factor(float(epsilon)), "."
        case ZCDP() | GaussianDP():
            return _factor(
                float(least_epsilon(report.privacy, _DELTA, gaussian=report.exact_gaussian))
            ), ", plus at most one in a million."
        case ApproxDP(epsilon, delta):
            return _factor(float(epsilon)), f", plus at most {float(_TWO_UP.divide(*delta.as_integer_ratio())):g}."


def _protection(report: Report) -> Mapping[str, object]:
    """The guarantee in all ways that hold at once, and what it leaves to an attacker."""
    found = report.protection
    stated = {"μ": found.mu, "ρ": found.rho, "ε": found.pure}
    return {
        "stated": [(symbol, shown_up(value)) for symbol, value in stated.items() if value is not None],
        "pairs": [(_power_of_ten(delta), shown_up(epsilon)) for epsilon, delta in found.pairs],
        "guess": None if found.guess is None else shown_guess(found.guess),
        "plot": trade_off_picture(found),
    }


def _power_of_ten(delta: float) -> str:
    """10⁻⁹, of 1e-9."""
    return f"10{str(round(math.log10(delta))).translate(_RAISED)}"


def _factor(epsilon: float) -> str:
    return (
        figure(math.exp(epsilon), ROUND_CEILING)
        if epsilon < math.log(_LARGEST_FACTOR)
        else f"e^{figure(epsilon, ROUND_CEILING)}"
    )


def _change(report: Report) -> str:
    """What may be different about one unit of privacy, as the beginning of a sentence."""
    rows = "any one row" if report.unit.rows == 1 else f"the rows of any one person (up to {report.unit.rows:,})"
    return f"{'Changing the values of' if report.unit.neighbours == 'replace' else 'Adding or removing'} {rows}"


def _counted(report: Report) -> list[str]:
    """Which rows the tables are about, with the headings that readers see."""
    headed = {name: head for table in report.tables for name, head in zip(table.attributes, table.heads, strict=True)}
    return report.counted(headed)


def _bars(
    rmse: float | None, identity: float | None, direct: float | None, bound: float | None
) -> Mapping[str, object]:
    """The errors of one table as bars, in percent of the longest bar that is drawn whole."""
    near = max(rmse or 0.0, identity or 0.0, bound or 0.0)
    longest = min(3 * near, max(near, direct or 0.0)) or 1.0
    widths = [None if error is None else min(100 * error / longest, 100.0) for error in (rmse, identity, direct)]
    return {
        "bars": list(zip(("bar", "bar cells", "bar answers"), widths, strict=True)),
        "gap": (direct or 0.0) > longest,
        "bound": None if bound is None else 100 * bound / longest,
    }


def _blocks(report: Report) -> Mapping[str, object]:
    """What was measured: the largest blocks in words, all blocks in a picture, and the sums on single attributes."""
    domain, blocks = measured(report.strategy, report.privacy.noise)
    found = bases(domain, blocks)
    return {
        "largest": ", ".join(f"{over(block, domain)} ({percent(block.share)})" for block in blocks[:_MOST_LISTED]),
        "more": max(len(blocks) - _MOST_LISTED, 0),
        "plot": block_picture(domain, blocks) if blocks else None,
        "bases": [(name, *A.shape, base_picture(name, A)) for name, A in found[:MOST_BASES]],
        "base_count": len(found),
    }
