"""How two publications differ: tables, rows beyond the margins of their difference, and what both spend together.

Noise of different releases is independent, so variances add. Where two releases share measurements it is not: then
standard errors add, which is the most that the error of a difference can be, and a release differs from itself by no
noise at all. Of values that are known by their bins only, the margin of a difference also covers where these lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import Literal, TypeAlias, final

import numpy as np

from hdmm.answers.margins import half_width
from hdmm.answers.table import Table
from hdmm.base.hints import first_of
from hdmm.base.numbers import decimal, places, spelled
from hdmm.base.tolerances import SAME_COUNT
from hdmm.matrix import Array
from hdmm.measure.combine import share_measurements
from hdmm.measure.measurement import charged
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.publication.answered import measured_at
from hdmm.publication.published import Published, shown_table
from hdmm.publication.report.contents import Changes

Relation: TypeAlias = Literal["same", "shared", "independent"]
_RowKey: TypeAlias = tuple[tuple[str | None, ...], int]

_EXACT_PLACES = 2  # of differences without noise
_MOST_CHANGES = 50  # rows that a report lists


@final
@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row whose two estimates are further apart than `margin`."""

    labels: tuple[str | None, ...]
    first: float
    second: float
    margin: float

    @property
    def excess(self) -> float:
        """How many margins the estimates are apart."""
        return abs(self.second - self.first) / self.margin if self.margin else float("inf")

    def printed(self, level: float) -> tuple[str, str, str, str]:
        """Both numbers, their difference and its margin, with the digits that its noise leaves a meaning."""
        found = places(self.margin / half_width(1.0, level, Noise.LAPLACE))
        digits = _EXACT_PLACES if found is None else found
        first, second, apart = (decimal(each, digits) for each in (self.first, self.second, self.second - self.first))
        sign = "+" if apart > 0 else ""
        margin = spelled(decimal(self.margin, digits, ROUND_CEILING))
        return spelled(first), spelled(second), sign + spelled(apart), margin


@final
@dataclass(frozen=True, slots=True)
class TableDifference:
    """A table that both have: how many rows were compared, which differ (by most first), and what was not compared.

    If `columns_differ`, nothing was compared. `by_chance` is how many rows are beyond their margin on average, at most,
    if nothing but noise differs; None where it is not known, as of means, percentages, quantiles and biased counts.
    """

    table: str
    columns_differ: bool
    rows: int
    only_first: int
    only_second: int
    without_margin: int
    by_chance: float | None
    differing: tuple[RowDifference, ...]


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """Two publications beside each other. `together` is the guarantee of both, if both are of one dataset.

    `binned` are the tables with sums or means of values that are known by their bins only.
    """

    relation: Relation
    level: float
    together: Privacy | None
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    tables: tuple[TableDifference, ...]
    binned: tuple[str, ...] = ()

    @property
    def meaning(self) -> str:
        """How the two were compared, in a sentence or two."""
        if not self.binned or self.relation == "same":
            return self._compared
        return (
            f"{self._compared} Of some values of {first_of(self.binned)} only the bin is known; the margins of their "
            "sums and means also cover wherever in their bins the values lie."
        )

    @property
    def _compared(self) -> str:
        match self.relation:
            case "same":
                return "Both are publications of one release: no noise lies between them, so every difference is shown."
            case "shared":
                return (
                    "The releases share measurements, so their noise is not independent: differences are shown that "
                    "are larger than both margins together."
                )
            case "independent":
                return (
                    "The releases have independent noise: differences are shown that are larger than their joint "
                    f"margin at {100 * self.level:g} %."
                )

    @property
    def rows(self) -> list[tuple[str, RowDifference]]:
        """The rows that differ with the names of their tables, those by most margins first."""
        every = [(table.table, row) for table in self.tables for row in table.differing]
        return sorted(every, key=lambda pair: pair[1].excess, reverse=True)


def difference(first: Published, second: Published, *, level: float | None = None) -> Difference:
    """How the tables of two publications differ, at a confidence level or at the larger of those they have."""
    relation, at = _relation(first, second), level or max(first.level, second.level)
    both = [name for name in first.tables if name in second.tables]
    return Difference(
        relation,
        at,
        _together(first, second, relation),
        tuple(name for name in first.tables if name not in second.tables),
        tuple(name for name in second.tables if name not in first.tables),
        tuple(_table(first, second, name, relation, at) for name in both),
        tuple(name for name in both if any(shown_table(each, name, level=None).bins for each in (first, second))),
    )


def _relation(first: Published, second: Published) -> Relation:
    one, two = first.release, second.release
    receipts = [each.receipt.hash for each in (one, two) if each.receipt is not None]
    same = len(one.measurements) == len(two.measurements) and all(
        map(np.array_equal, one.measurements, two.measurements)
    )
    if same or len(receipts) == 2 > len(set(receipts)):
        return "same"
    return "shared" if share_measurements([one, two]) else "independent"


def _together(first: Published, second: Published, relation: Relation) -> Privacy | None:
    receipts = [each.release.receipt for each in (first, second)]
    names = {None if receipt is None else receipt.dataset for receipt in receipts}
    kinds = {each.release.privacy.noise for each in (first, second)}
    if relation != "independent" or len(names) > 1 or names == {None} or len(kinds) > 1:
        return None
    return charged(first.release.spending, second.release.spending)


def _table(first: Published, second: Published, name: str, relation: Relation, level: float) -> TableDifference:
    one, two = (shown_table(each, name, level=None) for each in (first, second))
    if one.attributes != two.attributes:
        return TableDifference(name, True, 0, len(one), len(two), 0, None, ())
    places = dict(_numbered(two))
    pairs = [(i, places[key], key[0]) for key, i in _numbered(one) if key in places]
    left, right = (np.array([pair[k] for pair in pairs], dtype=np.int64) for k in (0, 1))
    a, b = one.estimate[left], two.estimate[right]
    margin = _margin(one.stddev[left], two.stddev[right], relation, level, _noise(first, second))
    if relation != "same":
        margin = margin + _within_bins(one, left, upward=b > a) + _within_bins(two, right, upward=b < a)
    known = np.isfinite(a) & np.isfinite(b) & np.isfinite(margin)
    beyond = known & (np.abs(b - a) > margin + SAME_COUNT * np.maximum(1, np.abs(a)))
    rows = [
        RowDifference(pairs[k][2], float(a[k]), float(b[k]), float(margin[k])) for k in np.flatnonzero(beyond).tolist()
    ]
    rows.sort(key=lambda row: (row.excess, abs(row.second - row.first)), reverse=True)
    return TableDifference(
        name,
        False,
        int(known.sum()),
        len(one) - len(pairs),
        len(two) - len(pairs),
        len(pairs) - int(known.sum()),
        (1 - level) * int(known.sum()) if _has_margins(one, first) and _has_margins(two, second) else None,
        tuple(rows),
    )


def _margin(one: Array, two: Array, relation: Relation, level: float, noise: Noise) -> Array:
    """The most by which noise may separate two estimates of one number."""
    match relation:
        case "same":
            return np.zeros(len(one))
        case "shared":
            return half_width(one + two, level, noise)
        case "independent":
            return half_width(np.hypot(one, two), level, noise)


def _within_bins(table: Table, rows: Array, *, upward: Array) -> Array:
    """How much further than the noise the truth of each row may be, upward or downward, because only bins are known."""
    if table.bins is None:
        return np.zeros(len(rows))
    above, below = table.bins.upper - table.upper, table.lower - table.bins.lower
    return np.maximum(np.where(upward, above[rows], below[rows]), 0.0)


def _has_margins(table: Table, published: Published) -> bool:
    """Whether every interval is the one of an unbiased count or sum: as far to both sides as its deviation says."""
    half = half_width(table.stddev, table.level, published.release.privacy.noise)
    near = SAME_COUNT * np.maximum(np.abs(table.estimate), half)
    ends = np.abs(table.upper - table.estimate - half), np.abs(table.estimate - table.lower - half)
    return not table.biased and bool((np.maximum(*ends) <= near)[~table.suppressed].all())


def _noise(first: Published, second: Published) -> Noise:
    """Gaussian if both are: the quantiles of Laplace noise are the larger ones, also for sums of both."""
    kinds = {each.release.privacy.noise for each in (first, second)}
    return Noise.GAUSSIAN if kinds == {Noise.GAUSSIAN} else Noise.LAPLACE


def _numbered(table: Table) -> Iterator[tuple[_RowKey, int]]:
    """The rows by their labels; rows with equal labels differ by their order."""
    seen: Counter[tuple[str | None, ...]] = Counter()
    for place, labels in enumerate(table.labels()):
        yield (labels, seen[labels]), place
        seen[labels] += 1


def changes_since(before: Published, now: Published) -> Changes:
    """What a report says of the differences from the publication before."""
    found, titles = difference(before, now), dict(zip(now.tables, now.titles, strict=True))
    others = [
        f"Only {where}: {first_of(names)}."
        for where, names in (("before", found.only_first), ("now", found.only_second))
        if names
    ]
    rows = [
        (
            titles[table],
            ", ".join(filter(None, row.labels)) or "total",
            *row.printed(found.level),
        )
        for table, row in found.rows
    ]
    return Changes(
        measured_at(before.release),
        found.meaning,
        [
            (titles[t.table], f"{t.rows:,}", "other columns" if t.columns_differ else f"{len(t.differing):,}")
            for t in found.tables
        ],
        rows[:_MOST_CHANGES],
        max(len(rows) - _MOST_CHANGES, 0),
        others,
    )
