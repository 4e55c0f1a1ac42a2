"""The rows of a table as the page shows them: a cross-tab with totals and percentages, or a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias, final

import numpy as np

from hdmm.answers.crosstab import RowLabels, crossed, fits
from hdmm.answers.reliability import GRADES
from hdmm.answers.table import Table
from hdmm.base.exceptions import ReportError
from hdmm.base.numbers import spelled
from hdmm.describe.entries import ALL
from hdmm.publication.report.labels import shown

_BLANK = "–"
_BLANKS = (_BLANK, _BLANK)
_Texts: TypeAlias = tuple[str, str, str, str, str]


@final
@dataclass(frozen=True, slots=True)
class ShownRow:
    """One row in words. `margin` is blank where the interval is not symmetric, so that its ends alone say it.

    `share` has the percentage and how sure it is, if there is one; `bins` the ends of what noise and bins leave
    possible, where a number is of values of which only the bin is known.
    """

    labels: tuple[str, ...]
    estimate: str
    margin: str
    lower: str
    upper: str
    grade: str
    share: tuple[str, str] | None = None
    bins: tuple[str, str] | None = None

    @property
    def spread(self) -> str:
        """How sure the number is, for a place beside it: its margin, or its interval."""
        return _spread(self.margin, self.lower, self.upper)

    def line(self, *, shares: bool, bins: bool) -> str:
        """All of it separated by tabs, from which the script of the page makes a row."""
        share = [" ".join(self.share or ())] if shares else []
        texts = (self.estimate, self.margin, *share, self.lower, self.upper, *((self.bins or _BLANKS) if bins else ()))
        return "\t".join(" ".join(text.split()) for text in (*self.labels, *texts, self.grade))


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
    return [
        ShownRow(tuple(map(shown, words)), *texts, None if texts[-1] == "suppressed" else share, bins)
        for words, texts, share, bins in islice(_each(table, table, labels), *at.indices(len(table)))
    ]


def total_of(table: Table, labels: RowLabels) -> ShownRow | None:
    """The row of everything, if there is one: that of a table without columns is alone in it."""
    everything = (ALL,) * len(table.attributes)
    if everything in labels:
        k = labels.index(everything)
        return rows(table, labels, slice(k, k + 1))[0]
    return _total_rows(table).get(everything)


def bare_total(table: Table) -> tuple[str, str] | None:
    """The total and how sure it is, for a summary."""
    everything = (ALL,) * len(table.attributes)
    for found in filter(None, (table, table.totals)):
        places_of = [k for k, row in enumerate(found.labels()) if tuple(row) == everything]
        if places_of and not found.suppressed[places_of[0]] and not found.unknown[places_of[0]]:
            estimate, *interval, _ = next(islice(texts_of(found), places_of[0], None))
            return estimate, _spread(*interval)
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
    """The totals that a table does not have as rows."""
    if table.totals is None:
        return {}
    found = _each(table.totals, table, labels_of(table.totals))
    return {words: ShownRow(tuple(map(shown, words)), *texts, share, bins) for words, texts, share, bins in found}


def _each(
    found: Table, table: Table, labels: RowLabels
) -> Iterator[tuple[tuple[str, ...], _Texts, tuple[str, str] | None, tuple[str, str] | None]]:
    """The labels of rows, their texts, their percentages, and what bins leave possible."""
    shares = _shares(table)
    for words, texts, bins in zip(labels, texts_of(found), bins_of(found), strict=True):
        yield words, texts, shares.get(words), bins


def texts_of(table: Table) -> Iterator[_Texts]:
    """(estimate, ± margin, from, to, how reliable) of all rows, as they are shown on the page and in a terminal."""
    for row, grade in zip(table.rounded(), table.notes, strict=True):
        if grade == "suppressed":
            yield _BLANK, _BLANK, _BLANK, _BLANK, grade
        elif row is None:
            yield _BLANK, "", "−∞", "∞", grade
        else:
            margin = "" if row.margin is None else f"± {spelled(row.margin)}"
            yield spelled(row.estimate), margin, spelled(row.lower), spelled(row.upper), grade


def bins_of(table: Table) -> Iterator[tuple[str, str] | None]:
    """What noise and bins leave possible of each row; None for rows that have no such bounds."""
    for ends, gone in zip(table.rounded_bins(), table.suppressed.tolist(), strict=True):
        if ends is None or gone:
            yield _BLANKS if gone else None
        else:
            low, high = ends
            yield "−∞" if low is None else spelled(low), "∞" if high is None else spelled(high)


def _spread(margin: str, lower: str, upper: str) -> str:
    """A margin, or the ends of an interval that has none."""
    return margin or f"{lower} to {upper}"


def _shares(table: Table) -> dict[tuple[str, ...], tuple[str, str]]:
    """Percentages by label, with how sure they are."""
    found = table.shares
    if found is None:
        return {}
    return {
        words: (estimate, "") if estimate == _BLANK else (f"{estimate}\xa0%", _spread(*interval))
        for words, (estimate, *interval, _) in zip(labels_of(found), texts_of(found), strict=True)
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
