"""render: a Report as one HTML page that needs no network and no script, prints, and can be read aloud.

The words are in templates/. Everything in a report is a value there, never a template, and is escaped (security O1).
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING
from functools import cache
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from hdmm.exceptions import ReportError
from hdmm.lazy import Lazy
from hdmm.ledger.units import UNITS, shown
from hdmm.privacy import ZCDP, ApproxDP, PureDP
from hdmm.reliability import GOOD, Reliability
from hdmm.report.model import Report
from hdmm.report.numbers import down, figure, many, number, percent, places, up, whole
from hdmm.report.pictures import MOST_BASES, base_picture, bases, block_picture, measured, over
from hdmm.report.plots import RowLabels, grid, plot, shortened
from hdmm.sql.columns import Column, columns
from hdmm.strategy.informed import known_by
from hdmm.table import Table

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = Lazy("jinja2")

_ESTIMATES = {
    "unbiased": "weighted least squares from all measurements",
    "nonnegative": "weighted least squares from all measurements under the condition that no count is below 0",
    "integers": "weighted least squares from all measurements under the condition that no count is below 0, rounded",
}

MOST_SHOWN_ROWS: Final = 200
"""Of a table on the page; the rest is in its CSV file."""

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # not in XML or UTF-8
MOST_SECTIONS: Final = 300
"""Tables on the page; the others are in their files."""

_MOST_ACROSS, _MOST_DOWN = 12, 100  # of a cross-tab
_BLANK = "–"
_MOST_NAMED = 20  # columns of the data
_MOST_LISTED = 3  # blocks
_DELTA = "1e-6"  # the δ at which ρ is explained
_LARGEST_FACTOR = 1e4  # the largest factor of probabilities that is written out


def render(report: Report) -> str:
    """The report as one self-contained HTML page. O(rows); long tables are cut, and say so.

    A character that no document may contain becomes U+FFFD.

    >>> from hdmm import Domain, Unit
    >>> from hdmm.strategy.base import Strategy
    >>> strategy = Strategy.identity(Domain({"sex": ["M", "F"]}))
    >>> empty = Report("A & B", "people", "2026", PureDP(1), Unit(), None, 0.95, (), strategy, "Identity")
    >>> '<h1 dir="auto">A &amp; B</h1>' in render(empty)
    True
    """
    report = replace(report, tables=tuple(part for table in report.tables for part in table.by_measure()))
    labels = [_labels(table) for table in report.tables]
    rule = report.tables[0].reliability if report.tables else Reliability()
    factor, rest = _guarantee(report)
    known = [f"by {known_by(product)}" if product.axes else "of all rows" for product in report.strategy.known]
    page = _templates().get_template("page.html")
    html = page.render(
        report=report,
        unit_words=_unit_words(report),
        factor=factor,
        known=known,
        rest=rest,
        facts=_facts(report),
        example=_example(report, labels),
        counted=_counted(report),
        misses=up(report.counts * (1 - report.level), 0),
        good=min(GOOD, rule.fair),
        fair=rule.fair,
        suppress=rule.suppress,
        unknown=any(bool(table.unknown.any()) for table in report.tables),
        impossible=any(table.impossible is not None for table in report.tables),
        tables=[_table(table, each) for table, each in zip(report.tables, labels, strict=True)][:MOST_SECTIONS],
        blocks=_blocks(report),
        method=_method(report),
    )
    return _FORBIDDEN.sub("\ufffd", html)


@cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("hdmm.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"figure": figure, "listed": _listed, "many": many, "percent": percent, "shortened": shortened}
    cast(dict[str, object], found.filters).update({**filters, "whole": whole})
    return found


def _labels(table: Table) -> RowLabels:
    labels = [tuple(label or "" for label in row) for row in table.labels()]
    if len(labels) != len(table) or any(len(row) != len(table.attributes) for row in labels):
        raise ReportError(
            f"Table {table.name!r} has {len(table):,} rows, but some row does not have one label for each of its "
            f"{len(table.attributes)} columns. Give as many labels as there are columns."
        )
    return labels


def _facts(report: Report) -> list[tuple[str, str, str]]:
    """(name, value, detail) of each card at the top."""
    parameter, _, kind = str(report.privacy).partition(" (")
    rows = "One row" if report.unit.rows == 1 else f"{report.unit.rows:,} rows"
    budget, left = "Not recorded", "no ledger was debited for this release"
    if report.receipt is not None:
        amounts = (math.floor(amount * UNITS) for amount in (report.receipt.amount, report.receipt.balance))
        spent, balance = (shown(report.receipt.parameter, amount) for amount in amounts)
        budget, left = f"{spent} spent", f"{balance} is left of the dataset’s budget"
    tables = f"in {many(len(report.tables), 'table')}, margins at {percent(report.level)}"
    return [
        ("Protection", parameter, kind.rstrip(")")),
        ("Unit of privacy", rows, str(report.unit)),
        ("Budget", budget, left),
        ("Published", f"{report.counts:,} counts", tables),
    ]


def _guarantee(report: Report) -> tuple[str, str]:
    """The factor by which a person's data may change a probability, and what is added to it."""
    match report.privacy:
        case PureDP(epsilon):
            return _factor(float(epsilon)), "."
        case ZCDP():
            return _factor(float(report.privacy.epsilon_at(_DELTA))), ", plus at most one in a million."
        case ApproxDP(epsilon, delta):
            return _factor(float(epsilon)), f", plus at most {float(delta):.2g}."


def _factor(epsilon: float) -> str:
    return figure(math.exp(epsilon), ROUND_CEILING) if epsilon < math.log(_LARGEST_FACTOR) else f"e^{figure(epsilon)}"


def _unit_words(report: Report) -> str:
    one = report.unit.rows == 1
    rows = "any one row" if one else f"the rows of any one person (up to {report.unit.rows:,})"
    if report.unit.neighbours == "replace":
        return f"{rows} as {'it is' if one else 'they are'} or with other values"
    return rows


def _example(report: Report, labels: Sequence[RowLabels]) -> Mapping[str, str] | None:
    """The largest count of the first table that has any."""
    for table, words in zip(report.tables, labels, strict=True):
        hidden = table.suppressed | table.unknown
        if not hidden.all():
            k = int(np.where(hidden, -np.inf, table.estimate).argmax())
            label, estimate, margin, lower, upper, _ = _rows(table, words, slice(k, k + 1))[0]
            said = {"title": table.title, "label": ", ".join(label) or "the total", "estimate": estimate}
            return {**said, "margin": margin, "lower": lower, "upper": upper}
    return None


def _counted(report: Report) -> Mapping[str, object]:
    """Which rows the tables are about: what the domain declares, and what happens to other values."""
    known = columns(report.strategy.domain)
    others = [name for name, column in known.items() if column.values.outside == "other"]
    return {
        "columns": [f"{name} ({_range(column)})" for name, column in islice(known.items(), _MOST_NAMED)],
        "more": max(len(known) - _MOST_NAMED, 0),
        "others": others,
        "dropped": "any of them" if not others else "any of the others" if len(others) < len(known) else "",
    }


def _range(column: Column) -> str:
    """The declared values of a column: all if they are few, else the first and the last."""
    labels = [str(column.values.label(code)) for code in sorted({*range(min(column.declared, 3)), column.declared - 1})]
    if column.declared <= 4:
        return ", ".join(labels)
    return f"{labels[0]} … {labels[-1]}, {column.declared:,} values"


def _table(table: Table, labels: RowLabels) -> Mapping[str, object]:
    expected = table.forecast
    errors = (None,) * 4 if expected is None else (expected.rmse, expected.identity, expected.direct, expected.bound)
    return {
        "name": table.name,
        "title": table.title,
        "attributes": table.attributes,
        "definition": table.definition,
        "count": len(table),
        "errors": errors,
        "bars": _bars(*errors),
        "plot": None if table.suppressed.all() else plot(table, labels, percent(table.level)),
        "rows": _rows(table, labels, slice(MOST_SHOWN_ROWS)),
        "cross": _cross(table, labels),
    }


def _cross(table: Table, labels: RowLabels) -> Mapping[str, object] | None:
    """The table with one column of labels down and the other, which is no longer, across, if it fits the page."""
    sides = grid(table, labels)
    if sides is None or min(map(len, sides)) > _MOST_ACROSS or max(map(len, sides)) > _MOST_DOWN:
        return None
    cells = [(estimate, margin, grade) for _, estimate, margin, _, _, grade in _rows(table, labels, slice(None))]
    (down, across), (first, second) = sides, table.attributes
    lines = [cells[k : k + len(across)] for k in range(0, len(cells), len(across))]
    if len(across) > len(down):
        down, across, first, second = across, down, second, first
        lines = [list(line) for line in zip(*lines, strict=True)]
    return {"down": first, "across": second, "heads": across, "lines": list(zip(down, lines, strict=True))}


def _rows(table: Table, labels: RowLabels, at: slice) -> list[tuple[tuple[str, ...], str, str, str, str, str]]:
    """(labels, estimate, margin, from, to, how reliable) of some rows, as they are shown."""
    digits = places(table.stddev[~table.unknown], table.estimate[~table.unknown])
    numbers = (each[at].tolist() for each in (table.estimate, table.margin, table.lower, table.upper))
    return [
        (words, _BLANK, _BLANK, _BLANK, _BLANK, grade)
        if grade == "suppressed"
        else (words, "–", "∞", "−∞", "∞", grade)
        if math.isnan(estimate)
        else (words, number(estimate, digits), up(margin, digits), down(lower, digits), up(upper, digits), grade)
        for words, estimate, margin, lower, upper, grade in zip(labels[at], *numbers, table.notes[at], strict=True)
    ]


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


def _method(report: Report) -> list[tuple[str, str]]:
    facts = [
        ("Guarantee", str(report.privacy)),
        ("Unit of privacy", str(report.unit)),
        ("Noise", f"discrete {report.privacy.noise.capitalize()}"),
        ("Strategy found by", report.operator),
        ("Estimates", _ESTIMATES[report.kind]),
        ("Software", f"hdmm {version('hdmm')}, Python {platform.python_version()}, NumPy {version('numpy')}"),
    ]
    if report.receipt is not None:
        receipt = report.receipt
        facts += [
            ("Ledger entry", f"{receipt.sequence} of dataset {receipt.dataset}, {receipt.timestamp}"),
            ("Hash of the entry", receipt.hash),
        ]
    return facts


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
