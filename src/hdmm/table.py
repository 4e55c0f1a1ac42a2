"""Table: counts with labels and intervals, from answers to files and pages. Forecast: the expected error of a table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from hdmm.matrix import Array
from hdmm.reliability import PLAIN, Reliability

_SHOWN = 20  # rows that are printed
_NUMBERS = ("estimate", "stddev", "lower", "upper")


@final
@dataclass(frozen=True, slots=True)
class Forecast:
    """Root mean squared errors per row of one table, known before any data; None if a method does not apply.

    `identity` is the error with noise on every cell, `direct` with noise on every count asked for (the Laplace
    mechanism); both spend the whole budget on all tables. No strategy has an error below `bound`.
    """

    name: str
    rows: int
    rmse: float
    identity: float | None = None
    direct: float | None = None
    bound: float | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Estimates of counts, one per row, labelled by `attributes`; a total has no attributes.

    The interval from lower to upper covers the true count with probability at least `level`. A biased estimate need
    not lie in the middle of its interval. `labels()` yields the labels of every row, from the start at each call, and
    None for a label that a row does not have. `definition` is the SQL that says what is counted.

    >>> ages = [("young",), ("old",)]
    >>> number = np.array([12.0, 30.0])
    >>> print(Table("age", "By age", ("age",), lambda: ages, number, number / 10, number - 2, number + 2, 0.95))
    age    estimate  95 % from    to
    young      12.0       10.0  14.0
    old        30.0       28.0  32.0
    """

    name: str
    title: str
    attributes: tuple[str, ...]
    labels: Callable[[], Iterable[tuple[str | None, ...]]]
    estimate: Array
    stddev: Array
    lower: Array
    upper: Array
    level: float
    biased: bool = False
    definition: str | None = None
    forecast: Forecast | None = None
    reliability: Reliability = PLAIN
    measures: int = 1  # of different units, whose rows follow one another; the last label names them
    impossible: Array | None = None  # whether a row has impossible cells only, so that it is 0 without noise
    headings: tuple[str, ...] = ()  # what readers see above the columns of labels; their names if left out
    note: str | None = None  # what readers see under the table
    totals: Table | None = None  # sums of rows, with (all) in place of the labels that they are over
    shares: Table | None = None  # rows and totals in percent of the total of their line: see hdmm.crosstab

    def by_measure(self) -> tuple[Table, ...]:
        """One table per measure, named in its title, because numbers of different units are not compared."""
        if self.measures == 1:
            return (self,)
        rows = len(self) // self.measures
        found: list[Table] = []
        for start in range(0, len(self), rows):
            labels = list(itertools.islice(self.labels(), start, start + rows))
            numbers = dict(zip(_NUMBERS, (each[start : start + rows] for each in self.numbers), strict=True))
            title, kept = f"{self.title}: {labels[0][-1]}", tuple(row[:-1] for row in labels)
            zero = None if self.impossible is None else self.impossible[start : start + rows]
            heads = {"attributes": self.attributes[:-1], "headings": self.headings[:-1]}
            named = replace(self, title=title, measures=1, impossible=zero, **heads)
            found.append(replace(named, labels=partial(tuple, kept), **numbers))
        return tuple(found)

    @property
    def heads(self) -> tuple[str, ...]:
        """What readers see above each column of labels."""
        return self.headings or self.attributes

    @property
    def margin(self) -> Array:
        """How far the interval reaches from the estimate, on the longer side."""
        return np.maximum(self.upper - self.estimate, self.estimate - self.lower)

    @property
    def may_be_zero(self) -> Array:
        """Whether the interval includes 0."""
        return (self.lower <= 0) & (self.upper >= 0)

    @property
    def unknown(self) -> Array:
        """Whether a number may not exist, such as the mean of a group that may be empty: NaN, between −∞ and ∞."""
        return np.isnan(self.estimate)

    @property
    def reliable(self) -> Array:
        """Whether the margin of each count is small for its size, by the table's rule."""
        return self.reliability.reliable(self.estimate, self.margin)

    @property
    def suppressed(self) -> Array:
        """Whether each count is left blank in files and pages, by the table's rule."""
        return self.reliability.suppressed(self.estimate, self.margin)

    @property
    def notes(self) -> list[str]:
        """How reliable each count is: good, fair, rough, may be 0, suppressed, unknown, or impossible."""
        found = self.reliability.notes(self.estimate, self.margin, self.may_be_zero)
        if self.impossible is None:
            return found
        return ["impossible" if zero else note for note, zero in zip(found, self.impossible.tolist(), strict=True)]

    @property
    def numbers(self) -> tuple[Array, Array, Array, Array]:
        """Estimate, stddev, lower and upper, as they are written side by side."""
        return self.estimate, self.stddev, self.lower, self.upper

    def columns(self) -> dict[str, Array]:
        """The whole table: label columns, then estimate, stddev, lower and upper. O(rows)."""
        labels = np.array(list(self.labels()), dtype=object).reshape(len(self), len(self.attributes))
        return dict(zip(self.header(_NUMBERS), [*labels.T, *self.numbers], strict=True))

    def header(self, numbers: Sequence[str]) -> list[str]:
        """The names of all columns, each once: a label column has _ added if its name is taken.

        Case is ignored, because engines that read CSV fold it.
        """
        taken = set(numbers)
        found: list[str] = []
        for name in self.attributes:
            while name.casefold() in taken:
                name += "_"
            taken.add(name.casefold())
            found.append(name)
        return [*found, *numbers]

    def __len__(self) -> int:
        return len(self.estimate)

    def __str__(self) -> str:
        """The first rows, aligned."""
        name = "biased estimate" if self.biased else "estimate"
        rows = [[*self.attributes, name, f"{100 * self.level:g} % from", "to"]]
        everything = zip(self.labels(), self.estimate, self.lower, self.upper, strict=True)
        for words, *numbers in itertools.islice(everything, _SHOWN):
            rows.append([*(word or "" for word in words), *(f"{number:,.1f}" for number in numbers)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        texts = len(self.attributes)
        lines = [
            "  ".join(
                cell.ljust(width) if k < texts else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        more = len(self) - _SHOWN
        return "\n".join([*lines, f"… {more:,} more rows"] if more > 0 else lines)
