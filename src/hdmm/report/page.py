"""render: a Report as one HTML page that needs no network and no script, prints, and can be read aloud."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING
from importlib.metadata import version
from importlib.resources import files
from itertools import islice
from typing import Final

import numpy as np

from hdmm.ledger.units import UNITS, shown
from hdmm.matrix import Matrix
from hdmm.privacy import ZCDP, ApproxDP, Privacy, PureDP
from hdmm.report.markup import Markup, join, tag
from hdmm.report.model import Report, ReportTable
from hdmm.report.numbers import down, figure, number, percent, places, up
from hdmm.report.pictures import MOST_BASES, base_picture, bases, block_picture, measured, over
from hdmm.report.plots import Plot, plot, swatch
from hdmm.sql.columns import Column, columns

MOST_ROWS: Final = 200
"""Of a table on the page; the rest is in its CSV file."""

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_GOOD, _FAIR = 0.1, 0.3  # the margin as a part of the estimate
_MOST_NAMED = 20  # columns of the data
_DELTA = "1e-6"  # at which ρ is explained
_INFERRED: Final = (
    "The tables above were not counted one by one. A smaller set of counts was chosen, before the data was read, from "
    "which all of them follow with little error; only those were measured, with noise, and every table is computed "
    "from them. So the tables agree with each other: where one is a sum of another, the numbers add up."
)
_DIRECT: Final = (
    "Every table was measured by itself, with its own noise. Where one table is a sum of another, the numbers agree "
    "only within their margins."
)
_LARGEST_FACTOR = 1e4  # of probabilities that is still written out


def render(report: Report) -> str:
    """The report as one self-contained HTML page. O(rows shown); long tables are cut, and say so.

    >>> from hdmm import Domain, Unit
    >>> from hdmm.strategy.base import Strategy
    >>> strategy = Strategy.identity(Domain({"sex": ["M", "F"]}))
    >>> empty = Report("A & B", "people", "2026", PureDP(1), Unit(), None, 0.95, (), strategy, "Identity", ())
    >>> '<h1 dir="auto">A &amp; B</h1>' in render(empty)
    True
    """
    sections = (
        _header(report),
        tag(
            "main", _reading(report), _contents(report), *_tables(report), _strategy(report), _method(report), id="main"
        ),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", report.title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(files("hdmm.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    skip = tag("a", "Skip to the content", href="#main", class_="skip")
    page = tag("html", head, tag("body", skip, *sections, _footer(report)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _header(report: Report) -> Markup:
    facts = [
        ("Protection", _parameter(report.privacy), _kind(report.privacy)),
        ("Unit of privacy", "One row" if report.unit.rows == 1 else f"{report.unit.rows:,} rows", str(report.unit)),
        ("Budget", *_budget(report)),
        (
            "Published",
            f"{report.counts:,} counts",
            f"in {_many(len(report.tables), 'table')}, margins at {percent(report.level)}",
        ),
    ]
    cards = (
        tag("div", tag("dt", name), tag("dd", tag("strong", value), tag("span", detail)))
        for name, value, detail in facts
    )
    return tag(
        "header",
        tag("p", "Statistics with differential privacy", class_="kicker"),
        tag("h1", report.title, dir="auto"),
        tag("p", "Dataset ", tag("bdi", report.dataset), " · ", tag("time", report.created), class_="source"),
        tag("p", *_guarantee(report), class_="lead"),
        tag("dl", *cards, class_="facts"),
    )


def _guarantee(report: Report) -> Iterable[str]:
    """The promise in one sentence of plain words."""
    match report.privacy:
        case PureDP(epsilon):
            factor, rest = _factor(float(epsilon)), "."
        case ZCDP():
            factor, rest = _factor(float(report.privacy.epsilon_at(_DELTA))), ", plus at most one in a million."
        case ApproxDP(epsilon, delta):
            factor, rest = _factor(float(epsilon)), f", plus at most {float(delta):.2g}."
    yield "Every number here carries random noise, which limits what they can tell about whether the data held "
    yield tag("strong", _unit_words(report))
    yield f": that changes the probability of any result by a factor of at most {factor}{rest}"


def _unit_words(report: Report) -> str:
    one = report.unit.rows == 1
    rows = "any one row" if one else f"the rows of any one person (up to {report.unit.rows:,})"
    if report.unit.neighbours == "replace":
        return f"{rows} as {'it is' if one else 'they are'} or with other values"
    return rows


def _factor(epsilon: float) -> str:
    return figure(math.exp(epsilon), ROUND_CEILING) if epsilon < math.log(_LARGEST_FACTOR) else f"e^{figure(epsilon)}"


def _parameter(privacy: Privacy) -> str:
    return str(privacy).partition(" (")[0]


def _kind(privacy: Privacy) -> str:
    return str(privacy).partition(" (")[2].rstrip(")")


def _budget(report: Report) -> tuple[str, str]:
    receipt = report.receipt
    if receipt is None:
        return "Not recorded", "no ledger was debited for this release"
    spent, left = (shown(receipt.parameter, math.floor(amount * UNITS)) for amount in (receipt.amount, receipt.balance))
    return f"{spent} spent", f"{left} is left of the dataset’s budget"


def _reading(report: Report) -> Markup:
    level = percent(report.level)
    out_of = percent(1 - report.level)
    misses = up(report.counts * (1 - report.level), 0)
    may = (
        f"That a true count lies within its interval: at most {out_of} of such intervals lie beside it.",
        "That one count is larger than another, where their intervals do not overlap.",
        "What sums and differences of counts come to: their margin is at most the sum of the margins that go in.",
    )
    may_not = (
        "Anything about one person, from a small count or from its absence.",
        "That a count marked “may be 0” is really there: its interval includes 0.",
        "That the least or the largest of many counts is so by more than chance: the noise alone makes some stand out.",
        f"That every interval holds: of {report.counts:,} counts here, on average up to {misses} lie beside theirs.",
    )
    return tag(
        "section",
        tag("h2", "How to read this", id="reading"),
        tag(
            "p",
            f"A margin of error is written ±. The true count lies within the estimate plus or minus its margin with a "
            f"probability of at least {level}. {_example(report)}",
        ),
        tag(
            "p",
            "Noise can make a small count negative, and most counts fractional. They are published as they are: "
            "lifting them to 0 would bias every sum made from them, and making them whole would keep sums from adding "
            "up. This page shows as many digits as the noise leaves meaning to; margins are rounded up, and the ends "
            "of intervals outward. Margins are about the noise that protects people, and not about errors in the data "
            "itself: sampling, missing answers, mistakes.",
        ),
        tag("p", _counted(report)),
        tag(
            "div",
            tag("div", tag("h3", "You may conclude"), tag("ul", *(tag("li", each) for each in may)), class_="may"),
            tag(
                "div",
                tag("h3", "You may not conclude"),
                tag("ul", *(tag("li", each) for each in may_not)),
                class_="may-not",
            ),
            class_="two",
        ),
        tag("h3", "How reliable a number is"),
        tag(
            "p",
            "Small counts have large margins for their size. Every row says which it is: ",
            _grade("good"),
            f" the margin is at most {percent(_GOOD)} of the estimate; ",
            _grade("fair"),
            f" at most {percent(_FAIR)}; ",
            _grade("rough"),
            " more than that; ",
            _grade("may be 0"),
            " the interval includes 0.",
        ),
        aria_labelledby="reading",
    )


def _example(report: Report) -> str:
    """The largest count of the first table, as an example."""
    table = next((table for table in report.tables if len(table)), None)
    if table is None:
        return ""
    k, digits = int(table.estimate.argmax()), places(table.stddev, table.estimate)
    estimate, margin, low, high = (float(a[k]) for a in (table.estimate, table.margin, table.lower, table.upper))
    return (
        f"For example “{table.title}” has {number(estimate, digits)} ± {up(margin, digits)} for "
        f"{', '.join(table.labels[k]) or 'the total'}: a true count from {down(low, digits)} to {up(high, digits)}."
    )


def _counted(report: Report) -> str:
    """Which rows the tables are about: what the domain declares, and what happens to other values."""
    known = columns(report.strategy.domain)
    named = _listed([f"{name} ({_range(column)})" for name, column in islice(known.items(), _MOST_NAMED)])
    more = f" and {_many(len(known) - _MOST_NAMED, 'more column')}" if len(known) > _MOST_NAMED else ""
    others = [name for name, column in known.items() if column.values.outside == "other"]
    dropped = "any of them" if not others else "any of the others" if len(others) < len(known) else ""
    return (
        f"Counted are rows by {named}{more}. "
        + (f"Rows with another value, or none, in {_listed(others)} are counted as “other”. " if others else "")
        + (f"A row with another value, or none, in {dropped} is in no table and in no total." if dropped else "")
    ).strip()


def _range(column: Column) -> str:
    """The declared values of a column: all of a few, the first and the last of many."""
    labels = [str(column.values.label(code)) for code in sorted({*range(min(column.declared, 3)), column.declared - 1})]
    if column.declared <= 4:
        return ", ".join(labels)
    return f"{labels[0]} … {labels[-1]}, {column.declared:,} values"


def _contents(report: Report) -> Markup:
    heading = tag("h2", "The tables, and how exact they are", id="contents")
    if not report.tables:
        return tag("section", heading, tag("p", "This release has no tables."), aria_labelledby="contents")
    heads = (
        "Table",
        "Rows",
        "Expected error",
        "Noise on every cell",
        "Noise on every answer",
        "No method below",
        "Compared",
    )
    head = tag(
        "tr", *(tag("th", name, scope="col", class_=None if k in (0, 6) else "number") for k, name in enumerate(heads))
    )
    rows = (
        tag(
            "tr",
            tag("th", tag("a", table.title, href=f"#table-{k}"), scope="row", dir="auto"),
            *(
                tag("td", value, class_="number")
                for value in (
                    f"{len(table):,}",
                    figure(table.predicted_rmse),
                    *("–" if error is None else figure(error) for error in _others(table)),
                )
            ),
            tag("td", _bars(table), class_="bars"),
        )
        for k, table in enumerate(report.tables, 1)
    )
    caption = tag(
        "caption",
        "Expected error of one count (root mean square), known before the data was read",
    )
    key = (("bar", "this release"), ("bar cells", "noise on every cell"), ("bar answers", "noise on every answer"))
    return tag(
        "section",
        heading,
        tag(
            "p",
            "The expected error is the typical distance of a published count from the true one. Beside it: what the "
            "same protection would have cost with noise on every cell of the data (Identity), with noise on every "
            "answer (the Laplace or Gauss mechanism), and an error below which no method of this kind comes, even for "
            "that table alone. Bars of one row share a scale; one with a gap is longer than it is drawn. The upright "
            "line is that lower bound.",
        ),
        _key(key),
        _scrolled(tag("table", caption, tag("thead", head), tag("tbody", *rows), class_="contents"), "Expected error"),
        aria_labelledby="contents",
    )


def _others(table: ReportTable) -> tuple[float | None, float | None, float | None]:
    return table.identity_rmse, table.laplace_rmse, table.bound_rmse


def _bars(table: ReportTable) -> Markup:
    """The errors of one row of the contents as bars; the numbers stand beside them."""
    cells, answers, bound = (error or 0.0 for error in _others(table))
    largest = min(max(table.predicted_rmse, cells, bound) * 3, max(table.predicted_rmse, cells, bound, answers)) or 1.0
    bars = [
        tag("rect", class_=kind, x=0, y=y, width=f"{min(100 * error / largest, 100):.2f}%", height=6)
        for error, kind, y in (
            (table.predicted_rmse, "bar", 1),
            (table.identity_rmse, "bar cells", 10),
            (table.laplace_rmse, "bar answers", 19),
        )
        if error is not None
    ]
    if answers > largest:
        bars.append(tag("rect", class_="gap", x="94%", y=18, width="2%", height=8))
    if table.bound_rmse is not None:
        x = f"{100 * table.bound_rmse / largest:.2f}%"
        bars.append(tag("line", class_="bound", x1=x, x2=x, y1=0, y2=26))
    return tag("svg", *bars, height=26, aria_hidden="true")


def _tables(report: Report) -> Iterable[Markup]:
    for k, table in enumerate(report.tables, 1):
        anchor = f"table-{k}"
        heading = tag("h2", tag("span", f"Table {k}", class_="kicker"), " ", tag("bdi", table.title), id=anchor)
        if not len(table):
            yield tag("section", heading, tag("p", "This table has no rows."), aria_labelledby=anchor)
            continue
        yield tag(
            "section",
            heading,
            _figure(plot(table, percent(report.level), f"plot-{k}")),
            _rows(table, report.level, k),
            aria_labelledby=anchor,
            class_="table",
        )


def _rows(table: ReportTable, level: float, k: int) -> Markup:
    digits = places(table.stddev, table.estimate)
    cut = len(table) > MOST_ROWS
    names = table.columns or ("",)
    head = tag(
        "tr",
        *(tag("th", name, scope="col", dir="auto") if name else tag("th", "Count", scope="col") for name in names),
        *(tag("th", name, scope="col", class_="number") for name in ("Estimate", "± Margin", "From", "To")),
        tag("th", "Reliability", scope="col"),
    )
    numbers = zip(
        table.labels,
        table.estimate.tolist(),
        table.margin.tolist(),
        table.lower.tolist(),
        table.upper.tolist(),
        _grades(table),
        strict=True,
    )
    rows: list[Markup] = []
    for labels, estimate, margin, lower, upper, grade in islice(numbers, MOST_ROWS):
        words = [tag("th", label, scope="row", dir="auto") for label in labels or ("Total",)]
        values = (number(estimate, digits), f"± {up(margin, digits)}", down(lower, digits), up(upper, digits))
        rows.append(tag("tr", *words, *(tag("td", each, class_="number") for each in values), tag("td", _grade(grade))))
    caption = f"Table {k}: {table.title}, with margins of error at {percent(level)}"
    if cut:
        caption += f"; the first {MOST_ROWS} of {len(table):,} rows"
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *rows))
    file = tag("code", f"{table.name}.csv")
    note = (
        tag("p", f"Rows 1 to {MOST_ROWS} of {len(table):,}. All rows are in ", file, ", published with this report.")
        if cut
        else tag("p", "The same numbers, with all their digits, are in ", file, ", published with this report.")
    )
    counted = () if table.definition is None else (tag("p", "What is counted: ", tag("code", table.definition)),)
    return join((_scrolled(whole, f"Table {k}"), tag("div", note, *counted, class_="note")))


def _grades(table: ReportTable) -> list[str]:
    """How reliable each row is, in words."""
    size = np.abs(table.estimate)
    conditions = [table.may_be_zero, table.margin <= _GOOD * size, table.margin <= _FAIR * size]
    return np.select(conditions, ["may be 0", "good", "fair"], "rough").tolist()


def _grade(word: str) -> Markup:
    return tag("span", word, class_=f"grade {word.replace(' ', '-')}")


def _strategy(report: Report) -> Markup:
    domain, blocks = measured(report.strategy, report.privacy.noise)
    parts: list[Markup] = [tag("h2", "What was measured", id="strategy")]
    parts.append(tag("p", _DIRECT if report.strategy.inference == "none" else _INFERRED))
    if blocks:
        first = ", ".join(f"{over(block, domain)} ({percent(block.share)})" for block in blocks[:3])
        more = f" and {_many(len(blocks) - 3, 'more block')}" if len(blocks) > 3 else ""
        parts.append(tag("p", f"Measured, with shares of the privacy budget: {first}{more}."))
        parts.append(_figure(block_picture(domain, blocks, "strategy-blocks")))
        parts.extend(_bases(bases(domain, blocks)))
    return tag("section", *parts, aria_labelledby="strategy")


def _bases(found: Sequence[tuple[str, Matrix]]) -> Iterable[Markup]:
    for k, (name, A) in enumerate(found[:MOST_BASES], 1):
        yield tag("h3", "Sums on ", tag("bdi", name))
        drawn = base_picture(name, A, f"base-{k}")
        if drawn is None:
            yield tag("p", f"{A.shape[0]:,} counts over {A.shape[1]:,} values: too many to draw, or each of one value.")
        else:
            yield _figure(drawn)
    if len(found) > MOST_BASES:
        yield tag("p", f"{MOST_BASES} of {len(found)} such sets of sums are shown.")


def _method(report: Report) -> Markup:
    receipt = report.receipt
    facts = [
        ("Guarantee", str(report.privacy)),
        ("Unit of privacy", str(report.unit)),
        ("Noise", f"discrete {report.privacy.noise.capitalize()}"),
        ("Strategy found by", report.operator),
        ("Estimates", "weighted least squares from all measurements"),
        ("Software", f"hdmm {version('hdmm')}, Python {platform.python_version()}, NumPy {version('numpy')}"),
    ]
    if receipt is not None:
        facts += [
            ("Ledger entry", f"{receipt.sequence} of dataset {receipt.dataset}, {receipt.timestamp}"),
            ("Hash of the entry", receipt.hash),
        ]
    rows = (tag("div", tag("dt", name), tag("dd", value, dir="auto")) for name, value in facts)
    notes = (
        [tag("h3", "Notes"), tag("ul", *(tag("li", note, dir="auto") for note in report.notes))] if report.notes else []
    )
    return tag(
        "section",
        tag("h2", "Method", id="method"),
        tag(
            "p",
            "The High-Dimensional Matrix Mechanism (McKenna, Miklau, Hay and Machanavajjhala, VLDB 2018). The strategy "
            "does not depend on the data, and its expected error is computed, not simulated. Measured again, the same "
            "data would give other noise: a release is repeated from its saved measurements, never from the data.",
        ),
        tag("dl", *rows, class_="method"),
        *notes,
        aria_labelledby="method",
    )


def _footer(report: Report) -> Markup:
    return tag("footer", tag("p", tag("bdi", report.title), " · ", tag("bdi", report.created), " · made with hdmm"))


def _figure(drawn: Plot) -> Markup:
    return tag("figure", drawn.svg, tag("figcaption", drawn.caption, _key(drawn.key)))


def _key(entries: Iterable[tuple[str, str]]) -> Markup:
    items = [tag("li", swatch(kind), " ", meaning) for kind, meaning in entries]
    return tag("ul", *items, class_="key") if items else Markup()


def _scrolled(table: Markup, name: str) -> Markup:
    """The table in a box that scrolls by itself on a narrow page, also from the keyboard."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"{name}, scrollable")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
