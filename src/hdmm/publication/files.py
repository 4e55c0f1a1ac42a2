"""A table as files: CSV with the digits that have a meaning, and Parquet with all of them."""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, final

import numpy as np

from hdmm.answers.table import Table
from hdmm.base.lazy import Lazy
from hdmm.matrix import Array

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")

NUMBER_COLUMNS = ("estimate", "stddev", "lower", "upper")
RELIABILITY_COLUMNS = ("reliable", "note")
BIN_COLUMNS = ("lower_with_bins", "upper_with_bins")
_STDDEV = NUMBER_COLUMNS.index("stddev")
_UNBOUNDED = ("-inf", "inf")
_FORMULA = frozenset("=+-@\t\r\n")  # and their Unicode variants of another width or size, such as ＝ or ﹢
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_BIN = re.compile(r"\[([-+.0-9e]+), ([-+.0-9e]+)\)")
_ROWS = 2**16


@final
@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a table's files: its labels, each column of bins followed by the two ends, then the numbers."""

    header: tuple[str, ...]
    labels: tuple[int, ...]  # the places of labels in the header
    binned: frozenset[int]  # which labels are bins

    @property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """The places of the lower and upper ends of bins."""
        return tuple((self.labels[k] + 1, self.labels[k] + 2) for k in sorted(self.binned))

    def row(self, labels: Iterable[str | None]) -> list[str | None]:
        """The labels of a row, with the ends of bins."""
        found: list[str | None] = []
        for k, label in enumerate(labels):
            found.append(label)
            if k in self.binned:
                found += _ends(label)
        return found


def file_columns(table: Table) -> FileColumns:
    """The columns of a table's files. O(rows).

    >>> number = np.array([3.0, 4.0])
    >>> bins = [("[0, 10)",), ("[10, 50)",)]
    >>> table = Table("t", "T", ("income",), lambda: bins, number, number, number, number, 0.95)
    >>> file_columns(table).header
    ('income', 'income_from', 'income_to', 'estimate', 'stddev', 'lower', 'upper')
    """
    places: list[int] = []
    names: list[str] = []
    binned = _binned(table)
    for k, name in enumerate(table.attributes):
        places.append(len(names))
        names += [name, f"{name}_from", f"{name}_to"] if k in binned else [name]
    numbers = (*number_columns(table), *(RELIABILITY_COLUMNS if table.reliability.written else ()))
    header = replace(table, attributes=tuple(names)).header(numbers)
    return FileColumns(tuple(header), tuple(places), binned)


def number_columns(table: Table) -> tuple[str, ...]:
    """The names of the columns of numbers: with bins if sums or means are of values of which only the bin is known."""
    return NUMBER_COLUMNS if table.bins is None else (*NUMBER_COLUMNS, *BIN_COLUMNS)


def write_csv(table: Table, file: BinaryIO) -> None:
    """Write a table as CSV in UTF-8, rounded as docs/reference/spec.md says.

    Text that a spreadsheet would run as a formula gets a leading ' (security O2).
    """
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\r\n")  # which makes it quote text that holds either character
    columns = file_columns(table)
    writer.writerow(map(harmless, columns.header))
    extra: Iterable[tuple[str, ...]] = itertools.repeat((), len(table))
    if table.reliability.written:
        extra = zip(["yes" if fine else "no" for fine in table.reliable.tolist()], table.notes, strict=True)
    for labels, numbers, more in zip(table.labels(), _spelled(table), extra, strict=True):
        row = (None if each is None else harmless(each) for each in columns.row(labels))
        writer.writerow([*row, *numbers, *more])
    text.detach()


def write_parquet(table: Table, file: BinaryIO) -> None:
    """Write a table as Parquet: labels are text, numbers are floats with all their digits, and `reliable` is a boolean.

    Ends of bins are numbers.
    """
    columns = file_columns(table)
    ends = {place for pair in columns.ends for place in pair}
    names = number_columns(table)
    first = len(columns.header) - len(names) - 2 * table.reliability.written
    kinds = [pa.float64() if k in ends else pa.string() for k in range(first)] + [pa.float64()] * len(names)
    bounds = () if table.bins is None else (table.bins.lower, table.bins.upper)
    found = [_blanked(table, name, each) for name, each in zip(names, (*table.numbers, *bounds), strict=True)]
    if table.reliability.written:
        kinds += [pa.type_for_alias("bool"), pa.string()]
        found += [table.reliable, np.array(table.notes, dtype=object)]
    schema = pa.schema(list(zip(columns.header, kinds, strict=True)))
    with pq.ParquetWriter(file, schema) as writer:
        labels = map(columns.row, table.labels())
        for start in range(0, max(len(table), 1), _ROWS):
            stop = min(start + _ROWS, len(table))
            words: list[Sequence[str | float | None]] = list(zip(*itertools.islice(labels, stop - start), strict=True))
            for k in ends:
                words[k] = [None if end is None else float(end) for end in words[k]]
            arrays = [pa.array(column, kind) for column, kind in zip(words, kinds, strict=False)]
            rest = zip(found, kinds[first:], strict=True)
            arrays += [pa.array(each[start:stop], kind) for each, kind in rest]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _spelled(table: Table) -> Iterator[list[str | None]]:
    """The numbers of each row as they are written: rounded, and all digits of what is not noisy."""
    values = zip(*(each.tolist() for each in table.numbers), strict=True)
    rows, ends_with_bins = table.rounded(exact=None), table.rounded_bins(exact=None)
    for row, bins, gone, numbers in zip(rows, ends_with_bins, table.suppressed.tolist(), values, strict=True):
        if row is None:
            written = [repr(each) for each in numbers]
            ends: Sequence[str | None] = _UNBOUNDED
        else:
            written = [f"{each:f}" for each in (row.estimate, row.stddev, row.lower, row.upper)]
            ends = (
                _UNBOUNDED
                if bins is None
                else [text if end is None else f"{end:f}" for end, text in zip(bins, _UNBOUNDED, strict=True)]
            )
        found = [*written, *(ends if table.bins is not None else ())]
        yield [None if gone and k != _STDDEV else each for k, each in enumerate(found)]


def _binned(table: Table) -> frozenset[int]:
    """The label columns that hold bins, besides totals and what is in no bin."""
    found: set[int] = set()
    others: set[int] = set()
    for row in table.labels():
        for k, label in enumerate(row):
            if label is not None and label.startswith("[") and _BIN.fullmatch(label):
                found.add(k)
            elif label not in (None, "(all)", "other"):
                others.add(k)
    return frozenset(found - others)


def _ends(label: str | None) -> tuple[str | None, str | None]:
    found = None if label is None else _BIN.fullmatch(label)
    return (None, None) if found is None else (found[1], found[2])


def _blanked(table: Table, name: str, numbers: Array) -> Array:
    """The numbers as they are written: None where a count is suppressed, which its standard deviation never is."""
    blank = table.suppressed
    if name == "stddev" or not blank.any():
        return numbers
    shown = numbers.astype(object)
    shown[blank] = None
    return shown


def harmless(text: str) -> str:
    """Text as it stands in CSV, with ' before what a spreadsheet would take for a formula.

    >>> harmless("=1+1"), harmless("＝1+1"), harmless("-12"), harmless("F")
    ("'=1+1", "'＝1+1", '-12', 'F')
    """
    starts = unicodedata.normalize("NFKC", text[:1])[:1] in _FORMULA
    return f"'{text}" if starts and not _NUMBER.fullmatch(text) else text
