"""Picture: what is drawn of a table, by Altair in a notebook or as SVG on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

from hdmm.describe.entries import ALL
from hdmm.describe.table_column import LabelEnds, TableColumn
from hdmm.matrix import Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """The rows of a table that have numbers, all of one measure, without totals beside their parts.

    On one scale with its parts, a total would leave them no room. `totals`, `suppressed` and `unknown` say how many
    rows are left out. `bins` are the ends of the intervals that also cover where in their bins values lie.
    """

    title: str
    columns: tuple[TableColumn, ...]
    labels: Sequence[tuple[str, ...]]
    estimate: Array
    lower: Array
    upper: Array
    measure: str
    level: float
    biased: bool = False
    suppressed: int = 0
    unknown: int = 0
    totals: int = 0
    bins: tuple[Array, Array] | None = None

    @property
    def heads(self) -> tuple[str, ...]:
        """What readers see above the columns of labels."""
        return tuple(column.head for column in self.columns)

    @property
    def widest(self) -> tuple[Array, Array]:
        """The ends of the intervals that cover all that is uncertain; they may be infinite."""
        return (self.lower, self.upper) if self.bins is None else self.bins

    @property
    def may_be_zero(self) -> Array:
        """Whether the interval includes 0."""
        lower, upper = self.widest
        return (lower <= 0) & (upper >= 0)

    @property
    def ranged(self) -> str | None:
        """The column whose ranges the last two columns bound; None if they are not the ends of ranges."""
        return ranged(self.columns)

    @property
    def joined(self) -> Picture:
        """The same with the ends of a range as one label, in a column of ranges."""
        places = [k for k, column in enumerate(self.columns) if column.kind != "to"]
        words = [tuple([_range(row[k : _end(self.columns, k)]) for k in places]) for row in self.labels]
        return replace(self, columns=tuple(_column(self.columns, k) for k in places), labels=words)

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, rows: Sequence[int]) -> Picture:
        """The same of some rows."""
        labels, places = [self.labels[k] for k in rows], list(rows)
        numbers = {"estimate": self.estimate[places], "lower": self.lower[places], "upper": self.upper[places]}
        bins = None if self.bins is None else (self.bins[0][places], self.bins[1][places])
        return replace(self, labels=labels, bins=bins, **numbers)

    def without_totals(self) -> Picture:
        """The rows that are parts of totals; all if there are none."""
        parts = [k for k, row in enumerate(self.labels) if ALL not in row]
        return replace(self.at(parts), totals=len(self) - len(parts)) if parts else self


def ranged(columns: Sequence[TableColumn]) -> str | None:
    """The column whose ranges the last two columns bound; None if they are not the ends of ranges."""
    return columns[-2].ranged if len(columns) > 1 and columns[-2].kind == "from" else None


def steps(values: Sequence[str], ends: LabelEnds) -> list[str]:
    """The labels that are steps of one scale: all if their numbers rise; of all ranges, the shortest; or none.

    >>> ends = {"0": (0, 0), "0 – 1": (0, 1), "1": (1, 1)}
    >>> steps(["0", "1"], ends), steps(["0", "0 – 1", "1"], ends), steps(["north", "south"], ends)
    (['0', '1'], ['0', '1'], [])
    """
    found = [ends[value] for value in values if value in ends]
    if len(found) < len(values) or not all(a < b for a, b in pairwise(found)):
        return []
    shortest = {start: value for value, (start, _) in reversed(list(zip(values, found, strict=True)))}
    n = len(shortest)
    return list(shortest.values())[::-1] if len(values) in (n, n * (n + 1) // 2) else []


def _end(columns: Sequence[TableColumn], k: int) -> int:
    return k + 1 + (columns[k].kind == "from")


def _range(ends: Sequence[str]) -> str:
    """The label of a range.

    >>> _range(["0", "4"]), _range(["4", "4"]), _range(["F"])
    ('0 – 4', '4', 'F')
    """
    return " – ".join(dict.fromkeys(ends))


def _column(columns: Sequence[TableColumn], k: int) -> TableColumn:
    """The column of ranges in place of those of its first and last values."""
    if columns[k].kind != "from":
        return columns[k]
    first, last = columns[k], columns[k + 1]

    def ends() -> LabelEnds:
        starts, stops = first.ends(), last.ends()
        pairs = ((a, b) for a in starts for b in stops if starts[a] <= stops[b])
        return {_range(pair): (starts[pair[0]][0], stops[pair[1]][1]) for pair in pairs}

    return TableColumn(first.name, first.ranged, ends=ends)
