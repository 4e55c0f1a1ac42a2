"""The tables of a release as they are published: with their intervals, as CSV and Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from hdmm.entries import Label
from hdmm.lazy import Lazy
from hdmm.release import Release
from hdmm.spec import Spec, TableRequest
from hdmm.sql import Statement
from hdmm.table import Forecast, Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")

NUMBER_COLUMNS = ("estimate", "standard_error", "lower", "upper")
_FORMULA = frozenset("=+-@\t\r\n")  # and their Unicode variants of another width or size, such as ＝ or ﹢
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_ROWS = 2**16


def answer_tables(spec: Spec, release: Release, expected: Sequence[Forecast]) -> tuple[Table, ...]:
    """The answers of a release to every table that is asked for, with the expected error of each."""
    asked = zip(spec.tables, expected, strict=True)
    return tuple(_table(release, spec.output.level, table, forecast) for table, forecast in asked)


def _table(release: Release, level: float, asked: TableRequest, expected: Forecast) -> Table:
    answers = release.answer(asked.workload)
    estimate, stddev, lower, upper = answers.rows(asked.combine, level)
    definition = counts.text if isinstance(counts := asked.counts, Statement) else None
    return Table(
        asked.name,
        asked.title,
        asked.columns,
        lambda: (tuple(map(_text, row)) for row in asked.labels()),
        estimate,
        stddev,
        lower,
        upper,
        level,
        answers.biased,
        definition,
        expected,
    )


def write_csv(table: Table, file: BinaryIO) -> None:
    """Write a table as CSV in UTF-8. Text that a spreadsheet would run as a formula gets a leading ' (security O2)."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\r\n")  # which makes it quote text that holds either character
    writer.writerow(map(harmless, table.header(NUMBER_COLUMNS)))
    numbers = zip(*(each.tolist() for each in table.numbers), strict=True)
    for labels, row in zip(table.labels(), numbers, strict=True):
        writer.writerow([*(None if label is None else harmless(label) for label in labels), *row])
    text.detach()


def write_parquet(table: Table, file: BinaryIO) -> None:
    """Write a table as Parquet: labels are text, the rest are floats."""
    kinds = [pa.string()] * len(table.attributes) + [pa.float64()] * len(NUMBER_COLUMNS)
    schema = pa.schema(list(zip(table.header(NUMBER_COLUMNS), kinds, strict=True)))
    with pq.ParquetWriter(file, schema) as writer:
        labels = iter(table.labels())
        for start in range(0, max(len(table), 1), _ROWS):
            stop = min(start + _ROWS, len(table))
            columns = list(zip(*itertools.islice(labels, stop - start), strict=True))
            arrays = [pa.array(column, pa.string()) for column in columns]
            arrays += [pa.array(each[start:stop], pa.float64()) for each in table.numbers]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def harmless(text: str) -> str:
    """Text as it stands in CSV, with ' before what a spreadsheet would take for a formula.

    >>> harmless("=1+1"), harmless("＝1+1"), harmless("-12"), harmless("F")
    ("'=1+1", "'＝1+1", '-12', 'F')
    """
    starts = unicodedata.normalize("NFKC", text[:1])[:1] in _FORMULA
    return f"'{text}" if starts and not _NUMBER.fullmatch(text) else text


def _text(label: Label | None) -> str | None:
    return None if label is None else str(label)
