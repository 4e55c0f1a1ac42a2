"""The rows of a table as the page shows them: a cross-tab with totals and percentages, or a list."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from hdmm.crosstab import RowLabels, crossed, fits
from hdmm.exceptions import ReportError
from hdmm.report.labels import shown
from hdmm.report.numbers import down, number, places, up
from hdmm.sql.blocks import ALL
from hdmm.table import Table

GRADES: Final = ("good", "fair", "rough", "may be 0", "suppressed", "unknown", "impossible")
_BLANK = "–"
_MOST_SHARE_PLACES = 2  # of percentages


@final
@dataclass(frozen=True, slots=True)
class ShownRow:
    """One row in words. `share` has the percentage and its margin, if there is one."""

    labels: tuple[str, ...]
    estimate: str
    margin: str
    lower: str
    upper: str
    grade: str
    share: tuple[str, str] | None = None

    def line(self, *, shares: bool) -> str:
        """All of it separated by tabs, from which the script of the page makes a row."""
        share = " ± ".join(self.share or ()) if shares else None
        texts = (*self.labels, self.estimate, self.margin, self.lower, self.upper, self.grade, share)
        return "\t".join(" ".join(text.split()) for text in texts if text is not None)


@final
@dataclass(frozen=True, slots=True)
class ShownCrossTab:
    """A cross-tab: a line has its labels and one row per head; totals are last in each line, and the last line."""

    stubs: tuple[str, ...]
    across: str
    heads: tuple[str, ...]
    lines: tuple[tuple[tuple[str, ...], tuple[ShownRow, ...]], ...]
    total: tuple[ShownRow, ...]  # of all lines; empty if it is not known
    totalled: bool  # whether lines have totals


def labels_of(table: Table) -> RowLabels:
    """The labels of all rows; ReportError if a row has too few or too many."""
    labels = [tuple(label or "" for label in row) for row in table.labels()]
    if len(labels) != len(table) or any(len(row) != len(table.attributes) for row in labels):
        raise ReportError(
            f"Table {table.name!r} has {len(table):,} rows, but some row does not have one label for each of its "
            f"{len(table.attributes)} columns. Give as many labels as there are columns."
        )
    return labels


def rows(table: Table, labels: RowLabels, at: slice = slice(None)) -> list[ShownRow]:
    """Some rows as they are shown, with their percentages."""
    shares = _shares(table)
    return [
        ShownRow(tuple(map(shown, words)), *texts, None if texts[-1] == "suppressed" else shares.get(words))
        for words, texts in zip(labels[at], _texts(table, at, _digits(table)), strict=True)
    ]


def total_of(table: Table, labels: RowLabels) -> ShownRow | None:
    """The row of everything, if there is one: that of a table without columns is alone in it."""
    everything = (ALL,) * len(table.attributes)
    if everything in labels:
        k = labels.index(everything)
        return rows(table, labels, slice(k, k + 1))[0]
    return _total_rows(table).get(everything)


def bare_total(table: Table) -> tuple[str, str] | None:
    """The total and its margin with digits of their own, for a summary."""
    everything = (ALL,) * len(table.attributes)
    for found in filter(None, (table, table.totals)):
        places_of = [k for k, row in enumerate(found.labels()) if tuple(row) == everything]
        if places_of and not found.suppressed[places_of[0]] and not found.unknown[places_of[0]]:
            at = slice(places_of[0], places_of[0] + 1)
            ((estimate, margin, *_),) = _texts(found, at, places(found.stddev[at], found.estimate[at]))
            return estimate, margin
    return None


def cross_tab(table: Table, labels: RowLabels) -> ShownCrossTab | None:
    """The table as a cross-tab, if two or more of its columns cross and it has a place on the page."""
    tab = crossed(labels)
    if tab is None or tab.across is None or not fits(tab) or len(tab.heads) < 2:
        return None
    found = _all_rows(table, labels)
    heads = (*tab.heads, ALL)
    totalled = all(tab.row(each, ALL) in found for each in tab.down)
    used = heads if totalled else tab.heads
    total = [found.get(tab.row(tab.everything, head)) for head in used]
    stubs = [name for k, name in enumerate(table.heads) if k != tab.across]
    return ShownCrossTab(
        tuple(stubs),
        table.heads[tab.across],
        tab.heads,
        tuple((each, tuple(found[tab.row(each, head)] for head in used)) for each in tab.down),
        tuple(row for row in total if row is not None) if None not in total else (),
        totalled,
    )


def grades(table: Table) -> Mapping[str, int]:
    """How many rows have each grade, the best first.

    >>> number = np.array([100.0, 1.0])
    >>> grades(Table("t", "T", (), lambda: [(), ()], number, np.ones(2), number - 2, number + 2, 0.95))
    {'good': 1, 'may be 0': 1}
    """
    found = Counter(table.notes)
    return {grade: found[grade] for grade in GRADES if found[grade]}


def _all_rows(table: Table, labels: RowLabels) -> dict[tuple[str, ...], ShownRow]:
    """The rows of a table and of its totals, by their labels."""
    return dict(zip(labels, rows(table, labels), strict=True)) | _total_rows(table)


def _total_rows(table: Table) -> dict[tuple[str, ...], ShownRow]:
    """The totals that a table does not have as rows, with its digits."""
    if table.totals is None:
        return {}
    shares, texts = _shares(table), _texts(table.totals, slice(None), _digits(table))
    pairs = zip(labels_of(table.totals), texts, strict=True)
    return {words: ShownRow(tuple(map(shown, words)), *each, shares.get(words)) for words, each in pairs}


def _digits(table: Table) -> int:
    return places(table.stddev[~table.unknown], table.estimate[~table.unknown])


def _texts(table: Table, at: slice, digits: int) -> list[tuple[str, str, str, str, str]]:
    """(estimate, margin, from, to, how reliable) of some rows."""
    numbers = (each[at].tolist() for each in (table.estimate, table.margin, table.lower, table.upper))
    return [
        (_BLANK, _BLANK, _BLANK, _BLANK, grade)
        if grade == "suppressed"
        else ("–", "∞", "−∞", "∞", grade)
        if math.isnan(estimate)
        else (number(estimate, digits), up(margin, digits), down(lower, digits), up(upper, digits), grade)
        for estimate, margin, lower, upper, grade in zip(*numbers, table.notes[at], strict=True)
    ]


def _shares(table: Table) -> dict[tuple[str, ...], tuple[str, str]]:
    """Percentages by label: one digit less than counts have, because they are read at a glance."""
    found = table.shares
    if found is None:
        return {}
    known = ~found.unknown
    digits = min(max(places(found.stddev[known], found.estimate[known]) - 1, 0), _MOST_SHARE_PLACES)
    numbers: Sequence[tuple[float, float]] = list(zip(found.estimate.tolist(), found.margin.tolist(), strict=True))
    return {
        words: (_BLANK, "∞") if math.isnan(estimate) else (f"{number(estimate, digits)}\xa0%", up(margin, digits))
        for words, (estimate, margin) in zip(labels_of(found), numbers, strict=True)
    }


def readable(table: Table, labels: RowLabels) -> int | None:
    """The row that explains how to read a table: the largest reliable count of one group; None if there is none."""
    shown_notes = np.array(table.notes)
    named = np.array([bool(row) and not {ALL, "", "other"} & set(row) for row in labels], dtype=bool)
    for grade in ("good", "fair"):
        here = np.flatnonzero(named & (shown_notes == grade))
        if len(here):
            return int(here[table.estimate[here].argmax()])
    return None
