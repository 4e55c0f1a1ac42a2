"""The rows of a table as the page shows them: a cross-tab with totals and percentages, or a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import final

import numpy as np

from hdmm.answers.margins import GRADES
from hdmm.answers.table import PrintedRow, Table
from hdmm.answers.totals import RowLabels, crossed, fits
from hdmm.base.exceptions import ReportError
from hdmm.base.numbers import spelled
from hdmm.describe.entries import ALL
from hdmm.publication.report.labels import shown

_BLANK = "–"


@final
@dataclass(frozen=True, slots=True)
class ShownRow:
    """One row in words. `margin` is blank where the interval is not symmetric, so that its ends alone say it.

    `share` has the percentage and how sure it is, if there is one; `bins` the ends of what noise and bins leave
    possible, where a number is of values that are known by their bins only.
    """

    labels: tuple[str, ...]
    estimate: str
    margin: str
    lower: str
    upper: str
    grade: str
    share: tuple[str, str] | None = None
    bins: tuple[str, str] | None = None

    @classmethod
    def of(cls, row: PrintedRow) -> ShownRow:
        """The row as a page and a terminal show it."""
        labels, numbers = tuple(map(shown, row.labels)), row.numbers
        if numbers is None:
            return cls(labels, _BLANK, _BLANK, _BLANK, _BLANK, row.grade)
        margin = "" if numbers.margin is None else f"± {spelled(numbers.margin)}"
        texts = spelled(numbers.estimate), margin, spelled(numbers.lower), spelled(numbers.upper)
        bins = None if row.bins is None else (spelled(row.bins[0]), spelled(row.bins[1]))
        return cls(labels, *texts, row.grade, None if row.share is None else _share(cls.of(row.share)), bins)

    @property
    def is_blank(self) -> bool:
        """Whether there is no number to show."""
        return self.estimate == _BLANK

    @property
    def spread(self) -> str:
        """How sure the number is, for a place beside it: its margin, or its interval."""
        return self.margin or f"{self.lower} to {self.upper}"

    def line(self, *, shares: bool, bins: bool) -> str:
        """All of it separated by tabs, from which the script of the page makes a row."""
        share = [" ".join(self.share or ())] if shares else []
        ends = (self.bins or (_BLANK, _BLANK)) if bins else ()
        texts = (*self.labels, self.estimate, self.margin, *share, self.lower, self.upper, *ends, self.grade)
        return "\t".join(" ".join(text.split()) for text in texts)


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
    labels = list(table.words())
    if len(labels) != len(table) or any(len(row) != len(table.attributes) for row in labels):
        raise ReportError(
            f"Table {table.name!r} has {len(table):,} rows, but some row does not have one label for each of its "
            f"{len(table.attributes)} columns. Give as many labels as there are columns."
        )
    return labels


def rows(table: Table, at: slice = slice(None)) -> list[ShownRow]:
    """Some rows as they are shown."""
    return [ShownRow.of(row) for row in islice(table.printed(), *at.indices(len(table)))]


def total_of(table: Table, labels: RowLabels) -> ShownRow | None:
    """The row of everything, if there is one: that of a table without columns is alone in it."""
    everything = (ALL,) * len(table.attributes)
    if everything in labels:
        k = labels.index(everything)
        return rows(table, slice(k, k + 1))[0]
    return next((ShownRow.of(row) for row in table.printed_totals() if row.labels == everything), None)


def cross_tab(table: Table, labels: RowLabels) -> ShownCrossTab | None:
    """The table as a cross-tab, if two or more of its columns cross and it has a place on the page."""
    tab = crossed(labels)
    if tab is None or tab.across is None or not fits(tab) or len(tab.heads) < 2:
        return None
    found = {row.labels: ShownRow.of(row) for row in chain(table.printed(), table.printed_totals())}
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


def _share(row: ShownRow) -> tuple[str, str]:
    """A percentage, and how sure it is."""
    return (_BLANK, "") if row.is_blank else (f"{row.estimate}\xa0%", row.spread)


def readable(table: Table, labels: RowLabels) -> int | None:
    """The row that explains how to read a table: the largest reliable count of one group; None if there is none."""
    shown_notes = np.array(table.notes)
    named = np.array([bool(row) and not {ALL, "", "other"} & set(row) for row in labels], dtype=bool)
    for grade in ("good", "fair"):
        here = np.flatnonzero(named & (shown_notes == grade))
        if len(here):
            return int(here[table.estimate[here].argmax()])
    return None
