"""Table: counts with labels and intervals, from answers to files and pages. Forecast: the expected error of a table."""

from __future__ import annotations

import importlib
import io
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

import numpy as np

from hdmm.answers.charts import Chart, errors_chart, estimates_chart, stacked_charts
from hdmm.answers.margins import PLAIN, Reliability
from hdmm.answers.picture import Picture
from hdmm.base.exceptions import ReportError, WorkloadError
from hdmm.base.hints import did_you_mean, first_of
from hdmm.base.lazy import Lazy, require
from hdmm.base.notebook import MOST_SHOWN, Card, NotebookValue
from hdmm.base.numbers import RoundedRow, outward, rounded_row
from hdmm.describe.table_column import TableColumn, named_columns
from hdmm.matrix import Array
from hdmm.privacy.guarantee import Privacy

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pl, pq = Lazy("polars"), Lazy("pyarrow.parquet")

NUMBER_COLUMNS: Final = ("estimate", "stddev", "lower", "upper")
"""What every row of a table has, in the order of `Table.numbers`."""

BINNED: Final = (
    "Of some values only the bin is known. In sums and means, one number stands for all values of a bin, so that their "
    "margins cover the noise alone and they have no grade. The interval with bins also covers wherever in their bins "
    "the values lie; it is unbounded where the measurements do not distinguish the bins."
)
"""What readers of a table with `bins` must know."""


@final
@dataclass(frozen=True, slots=True)
class Forecast:
    """Root mean squared errors per row of one table, known before any data; None if a method does not apply.

    `identity` is the error with noise on every cell, `direct` with noise on every count asked for (the Laplace
    mechanism); both spend the whole budget on all tables. No strategy has an error below `bound`. The error of a mean,
    percentage or quantile depends on the data, and rows of several units have no common one: there `rmse` is None,
    unless counts of `assumed` are expected; then all values are taken to be equally common.
    """

    name: str
    rows: int
    rmse: float | None
    identity: float | None = None
    direct: float | None = None
    bound: float | None = None
    privacy: Privacy | None = None  # at which these are the errors
    assumed: float | None = None
    answered: bool = True  # whether the measurements determine what is asked for

    def plot(self) -> Chart:
        """The errors against ε (or ρ), from a quarter of the forecast's to four times. Needs hdmm[plots]."""
        if self.privacy is None:
            raise ReportError(f"The forecast of {self.name!r} does not say at which privacy. Give it one.")
        errors = {
            "hdmm": self.rmse,
            "noise on every cell": self.identity,
            "noise on every count": self.direct,
            "bound on any strategy": self.bound,
        }
        known = {name: error for name, error in errors.items() if error is not None}
        upward = "root mean squared error per row"
        return errors_chart(f"Expected error of {self.name}", known, self.privacy, names="method", upward=upward)


@final
@dataclass(frozen=True, slots=True, eq=False)
class BinBounds:
    """Intervals of rows that add up values known by their bins only: the margin of these is of the noise alone.

    From `lower` to `upper`, the true number is covered wherever in their bins the values lie; this holds the interval
    of the noise, and is unbounded where the measurements do not distinguish the bins. Any other row has its own
    interval here.
    """

    lower: Array
    upper: Array

    def at(self, rows: Array | slice) -> BinBounds:
        """The same of some rows."""
        return BinBounds(self.lower[rows], self.upper[rows])


@final
@dataclass(frozen=True, slots=True)
class PrintedRow:
    """A row with the digits that its noise leaves a meaning: what files, pages and terminals write of it.

    `bins` are the ends of what noise and bins leave possible, and `share` is its percentage, where a table has some.
    A number that is suppressed is not here, nor what is beside it; its standard deviation always is.
    """

    labels: tuple[str, ...]
    numbers: RoundedRow | None
    stddev: Decimal
    grade: str
    bins: tuple[Decimal, Decimal] | None
    share: PrintedRow | None


class Framed(NotebookValue):
    """A value that is an Arrow table, and a data frame of the libraries that read these."""

    __slots__ = ()

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """An Arrow table."""

    def to_pandas(self) -> pd.DataFrame:
        """The same as a pandas data frame."""
        require("pandas", "Data frames of pandas", "pip install pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The same as a polars data frame."""
        require("polars", "Data frames of polars", "pip install polars")
        return cast("pl.DataFrame", pl.from_arrow(self.to_arrow()))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Table(Framed):
    """Estimates of counts, one per row, labelled by `label_columns`; a total has none.

    The interval from lower to upper covers the true count with probability at least `level`. A biased estimate need
    not lie in the middle of its interval. `labels()` yields the labels of every row, from the start at each call, and
    None for a label that a row does not have. `definition` is the SQL that says what is counted.

    >>> ages = [("young",), ("old",)]
    >>> number = np.array([12.0, 30.0])
    >>> columns = named_columns("age")
    >>> print(Table("age", "By age", columns, lambda: ages, number, number / 10, number - 2, number + 2, 0.95))
    age    estimate  95 % from  to
    young        12         10  14
    old          30         28  32
    """

    name: str
    title: str
    label_columns: tuple[TableColumn, ...]
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
    note: str | None = None  # what readers see under the table
    totals: Table | None = None  # sums of rows, with (all) in place of the labels that they are over
    shares: Table | None = None  # rows and totals in percent of the total of their line: see hdmm.answers.totals
    measure: str = "count"  # what the numbers are, as an axis names it
    bins: BinBounds | None = None  # where some rows add up numbers that stand for bins

    def by_measure(self) -> tuple[Table, ...]:
        """One table per measure, named in its title, because numbers of different units are not compared."""
        if self.measures == 1:
            return (self,)
        rows = len(self) // self.measures
        found: list[Table] = []
        for start in range(0, len(self), rows):
            labels = list(itertools.islice(self.labels(), start, start + rows))
            measure, kept = f"{labels[0][-1]}", tuple(row[:-1] for row in labels)
            part = self._of_rows(slice(start, start + rows), partial(tuple, kept))
            bins, columns = part.bins if part.noise_only.any() else None, self.label_columns[:-1]
            title = f"{self.title}: {measure}"
            found.append(replace(part, title=title, label_columns=columns, measures=1, bins=bins, measure=measure))
        return tuple(found)

    def arranged(self, order: Array) -> Table:
        """The same rows in another order; O(rows)."""
        labels = list(self.labels())
        return self._of_rows(order, lambda: map(labels.__getitem__, order.tolist()))

    def _of_rows(self, rows: Array | slice, labels: Callable[[], Iterable[tuple[str | None, ...]]]) -> Table:
        """The numbers of some rows, under these labels."""
        numbers = dict(zip(NUMBER_COLUMNS, (each[rows] for each in self.numbers), strict=True))
        zero = None if self.impossible is None else self.impossible[rows]
        bins = None if self.bins is None else self.bins.at(rows)
        return replace(self, labels=labels, impossible=zero, bins=bins, **numbers)

    def words(self) -> Iterator[tuple[str, ...]]:
        """The labels of every row as they are written: nothing for a label that a row does not have."""
        return (tuple(label or "" for label in row) for row in self.labels())

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the columns of labels."""
        return tuple(column.name for column in self.label_columns)

    @property
    def heads(self) -> tuple[str, ...]:
        """What readers see above each column of labels."""
        return tuple(column.head for column in self.label_columns)

    @property
    def margin(self) -> Array:
        """How far the interval reaches from the estimate, on the longer side."""
        return np.maximum(self.upper - self.estimate, self.estimate - self.lower)

    @property
    def may_be_zero(self) -> Array:
        """Whether the interval includes 0."""
        return (self.lower <= 0) & (self.upper >= 0)

    @property
    def noise_only(self) -> Array:
        """Whether the interval of a row covers the noise, but not wherever in their bins values lie."""
        if self.bins is None:
            return np.zeros(len(self), dtype=bool)
        return (self.bins.lower < self.lower) | (self.bins.upper > self.upper)

    @property
    def unknown(self) -> Array:
        """Whether a number may not exist, such as the mean of a group that may be empty: NaN, between −∞ and ∞."""
        return np.isnan(self.estimate)

    @property
    def reliable(self) -> Array:
        """Whether the margin of each count is small for its size, by the table's rule, and covers all that it may."""
        return self.reliability.reliable(self.estimate, self.margin) & ~self.noise_only

    @property
    def suppressed(self) -> Array:
        """Whether each count is left blank in files and pages, by the table's rule, or was in the file it is from."""
        return self.reliability.suppressed(self.estimate, self.margin) | np.isnan(self.lower)

    @property
    def notes(self) -> list[str]:
        """How reliable each count is: good, fair, rough, may be 0, noise only, suppressed, unknown, or impossible."""
        return self.reliability.notes(
            self.estimate,
            self.margin,
            self.may_be_zero,
            suppressed=self.suppressed,
            binned=self.noise_only,
            impossible=np.zeros(len(self), dtype=bool) if self.impossible is None else self.impossible,
        )

    @property
    def numbers(self) -> tuple[Array, Array, Array, Array]:
        """Estimate, stddev, lower and upper, as they are written side by side."""
        return self.estimate, self.stddev, self.lower, self.upper

    def printed(self, *, exact: int | None = 2) -> Iterator[PrintedRow]:
        """Every row as it is written, in whatever format.

        `exact` is how many decimal places numbers without noise have; None leaves them all their digits.
        """
        rows = max(len(self) // self.measures, 1)
        parts = (self.estimate[start : start + rows] for start in range(0, len(self), rows))
        whole = [bool((part == np.rint(part))[np.isfinite(part)].all()) for part in parts]
        shares = {} if self.shares is None else {row.labels: row for row in self.shares.printed()}
        numbers = zip(*(each.tolist() for each in self.numbers), strict=True)
        for k, (labels, each, grade) in enumerate(zip(self.words(), numbers, self.notes, strict=True)):
            row = rounded_row(*each, whole=whole[k // rows], exact=exact)
            if grade == "suppressed":
                yield PrintedRow(labels, None, row.stddev, grade, None, None)
            else:
                yield PrintedRow(labels, row, row.stddev, grade, self._printed_bins(k, row), shares.get(labels))

    def printed_totals(self) -> Iterator[PrintedRow]:
        """The totals that are not among the rows, with their percentages."""
        return iter(()) if self.totals is None else replace(self.totals, shares=self.shares).printed()

    def _printed_bins(self, k: int, row: RoundedRow) -> tuple[Decimal, Decimal] | None:
        """The ends of `bins` with the digits of their row, rounded outward; None if there are none."""
        if self.bins is None:
            return None
        lower = outward(float(self.bins.lower[k]), row.places, ROUND_FLOOR)
        upper = outward(float(self.bins.upper[k]), row.places, ROUND_CEILING)
        return min(lower, row.lower), max(upper, row.upper)

    def columns(self) -> dict[str, Array]:
        """The whole table: label columns, then estimate, stddev, lower and upper. O(rows)."""
        labels = np.array(list(self.labels()), dtype=object).reshape(len(self), len(self.attributes))
        return dict(zip(self.header(NUMBER_COLUMNS), [*labels.T, *self.numbers], strict=True))

    def header(self, numbers: Sequence[str]) -> list[str]:
        """The names of all columns, each once: a label column has _ added if its name is taken."""
        return [*apart(self.attributes, numbers), *numbers]

    def to_arrow(self) -> pa.Table:
        """The table as its Parquet file has it: the same columns, and blanks where a count is suppressed. O(rows)."""
        # Imported by name on first use, because files are made of tables.
        file = io.BytesIO()
        importlib.import_module("hdmm.publication.files").write_parquet(self, file)
        return pq.read_table(file)

    def plot(self) -> Chart:
        """The estimates with their intervals: curves with a band along a scale such as age, else bars.

        Suppressed and unknown numbers are not drawn, nor totals beside their parts. Needs hdmm[plots].
        """
        return stacked_charts([estimates_chart(table.picture()) for table in self.by_measure()])

    def __len__(self) -> int:
        return len(self.estimate)

    def __str__(self) -> str:
        """The first rows, aligned."""
        rows = [self._header, *itertools.islice(self._rows(), MOST_SHOWN)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        texts = len(self.attributes)
        lines = [
            "  ".join(
                cell.ljust(width) if k < texts else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        more = len(self) - MOST_SHOWN
        return "\n".join([*lines, f"… {more:,} more rows"] if more > 0 else lines)

    def _card(self) -> Card:
        """The first rows."""
        return Card(self.title, {}, self._header, self._rows(), texts=len(self.attributes), total=len(self))

    @property
    def _header(self) -> list[str]:
        name = "biased estimate" if self.biased else "estimate"
        return [*self.heads, name, f"{100 * self.level:g} % from", "to"]

    def _rows(self) -> Iterator[list[str]]:
        """Each row in words, as it is shown; what is suppressed is blank."""
        for row in self.printed():
            if row.numbers is None:
                yield [*row.labels, "", "", ""]
            else:
                numbers = (row.numbers.estimate, row.numbers.lower, row.numbers.upper)
                yield [*row.labels, *(plain(each, ",") for each in numbers)]

    def picture(self) -> Picture:
        """What is drawn of the table, if it has one measure."""
        hidden = self.suppressed
        known = np.isfinite(self.estimate) & np.isfinite(self.lower) & np.isfinite(self.upper)
        everything = Picture(
            self.title,
            self.label_columns,
            list(self.words()),
            self.estimate,
            self.lower,
            self.upper,
            self.measure,
            self.level,
            self.biased,
            int(hidden.sum()),
            int((~known & ~hidden).sum()),
            bins=None if self.bins is None else (self.bins.lower, self.bins.upper),
        )
        return everything.at(np.flatnonzero(known & ~hidden).tolist()).without_totals()


def plain(value: Decimal, grouping: str = "") -> str:
    """A number as programs read it: without grouping, or with this sign of it.

    >>> plain(Decimal("1234.50")), plain(Decimal(1234), ","), plain(Decimal("-Infinity"))
    ('1234.50', '1,234', '-inf')
    """
    return format(value, f"{grouping}f") if value.is_finite() else str(float(value))


def apart(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """The names with _ added where one is taken. Case is ignored, because engines that read CSV fold it.

    >>> apart(["age", "Age", "lower"], ["lower"])
    ['age', 'Age_', 'lower_']
    """
    taken, found = set(others), list[str]()
    for name in names:
        while name.casefold() in taken:
            name += "_"
        taken.add(name.casefold())
        found.append(name)
    return found


def named_table(tables: Sequence[Table], name: object) -> Table:
    """The table of this name; WorkloadError, which lists the names, if there is none."""
    found = [table for table in tables if table.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise WorkloadError(f"{len(found):,} tables are named {name!r}. Take one of them by its place in tables().")
    names = [table.name for table in tables]
    listed = first_of(list(map(repr, names)))
    raise WorkloadError(f"There is no table {name!r}.{did_you_mean(str(name), names)} The tables are: {listed}.")


def stacked_tables(name: str, tables: Sequence[Table], column: str | None = None) -> Table:
    """Tables of one level as one, in which a row has no label in a column that is not of its table.

    If a `column` is named, it comes first and has the names of the tables.

    >>> one = Table("a", "a", named_columns("a"), lambda: [("x",)], *4 * [np.ones(1)], 0.95)
    >>> both = stacked_tables("both", [one, replace(one, name="b", label_columns=named_columns("b"))], "table")
    >>> both.attributes, list(both.labels())
    (('table', 'a', 'b'), [('a', 'x', None), ('b', None, 'x')])
    """
    columns: dict[str, TableColumn] = {}
    for each in (each for table in tables for each in table.label_columns):
        known = columns.get(each.name, each)
        columns[each.name] = each if known.kind == each.kind else TableColumn(each.name)

    def labels() -> Iterator[tuple[str | None, ...]]:
        for table in tables:
            places = [table.attributes.index(each) if each in table.attributes else None for each in columns]
            first = () if column is None else (table.name,)
            for row in table.labels():
                yield (*first, *(None if k is None else row[k] for k in places))

    estimate, stddev, lower, upper = map(np.concatenate, zip(*(table.numbers for table in tables), strict=True))
    header = (*(() if column is None else named_columns(column)), *columns.values())
    numbers = estimate, stddev, lower, upper
    found = Table(name, name, header, labels, *numbers, tables[0].level, tables[0].biased)
    if all(table.bins is None for table in tables):
        return found
    ends = [
        (table.lower, table.upper) if table.bins is None else (table.bins.lower, table.bins.upper) for table in tables
    ]
    return replace(found, bins=BinBounds(*map(np.concatenate, zip(*ends, strict=True))))
