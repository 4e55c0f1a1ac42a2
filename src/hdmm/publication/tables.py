"""The tables of a release as they are published: with their intervals, as CSV and Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from hdmm.chunked import AnyRelease
from hdmm.entries import Label
from hdmm.evaluate import evaluated
from hdmm.lazy import Lazy
from hdmm.margins import holding
from hdmm.matrix import Array
from hdmm.reliability import PLAIN, Reliability
from hdmm.spec import Spec, TableRequest
from hdmm.spec.records import OutputPart
from hdmm.sql import Statement
from hdmm.table import Forecast, Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")

NUMBER_COLUMNS = ("estimate", "standard_error", "lower", "upper")
RELIABILITY_COLUMNS = ("reliable", "note")
_FORMULA = frozenset("=+-@\t\r\n")  # and their Unicode variants of another width or size, such as ＝ or ﹢
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_ROWS = 2**16


def answer_tables(spec: Spec, release: AnyRelease, expected: Sequence[Forecast]) -> tuple[Table, ...]:
    """The answers of a release to every table that is asked for, with the expected error of each."""
    asked = zip(spec.tables, expected, strict=True)
    output = spec.output
    rule = _reliability(output)
    return tuple(answer_table(release, output.level, table, forecast, output.counts, rule) for table, forecast in asked)


def answer_table(
    release: AnyRelease,
    level: float,
    asked: TableRequest,
    expected: Forecast | None = None,
    kind: str = "unbiased",
    reliability: Reliability = PLAIN,
) -> Table:
    """The answers of a release to one table, with intervals of this level."""
    counts = asked.counts
    answers = release.answer(asked.workload, nonnegative=kind == "nonnegative", integers=kind == "integers")
    if isinstance(counts, Statement) and not counts.linear:
        estimate, stddev, *bounds = evaluated(counts.aggregates, answers, level)
        lower, upper = holding((bounds[0], bounds[1]), estimate, -math.inf) if answers.biased else bounds
    else:
        estimate, stddev, lower, upper = answers.rows(asked.combine, level)
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
        counts.text if isinstance(counts, Statement) else None,
        expected,
        reliability,
        len(counts.measures) if isinstance(counts, Statement) else 1,
        asked.impossible if asked.impossible.any() else None,
    )


def _reliability(output: OutputPart) -> Reliability:
    """The rule of [output]: `flag` says what is reliable, or else `suppress`; either adds the columns."""
    suppress = None if output.suppress is None else output.suppress.relative_margin
    said = [rule.relative_margin for rule in (output.flag, output.suppress) if rule is not None]
    return Reliability(*said[:1], suppress=suppress, written=bool(said))


def write_csv(table: Table, file: BinaryIO) -> None:
    """Write a table as CSV in UTF-8. Text that a spreadsheet would run as a formula gets a leading ' (security O2)."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\r\n")  # which makes it quote text that holds either character
    writer.writerow(map(harmless, table.header(_columns(table))))
    shown = [_blanked(table, name, each).tolist() for name, each in zip(NUMBER_COLUMNS, table.numbers, strict=True)]
    if table.reliability.written:
        shown += [["yes" if fine else "no" for fine in table.reliable.tolist()], table.notes]
    for labels, row in zip(table.labels(), zip(*shown, strict=True), strict=True):
        writer.writerow([*(None if label is None else harmless(label) for label in labels), *row])
    text.detach()


def write_parquet(table: Table, file: BinaryIO) -> None:
    """Write a table as Parquet: labels are text, numbers are floats, and whether a count is reliable is a boolean."""
    kinds = [pa.string()] * len(table.attributes) + [pa.float64()] * len(NUMBER_COLUMNS)
    found = [_blanked(table, name, each) for name, each in zip(NUMBER_COLUMNS, table.numbers, strict=True)]
    if table.reliability.written:
        kinds += [pa.type_for_alias("bool"), pa.string()]
        found += [table.reliable, np.array(table.notes, dtype=object)]
    schema = pa.schema(list(zip(table.header(_columns(table)), kinds, strict=True)))
    with pq.ParquetWriter(file, schema) as writer:
        labels = iter(table.labels())
        for start in range(0, max(len(table), 1), _ROWS):
            stop = min(start + _ROWS, len(table))
            columns = list(zip(*itertools.islice(labels, stop - start), strict=True))
            arrays = [pa.array(column, pa.string()) for column in columns]
            rest = zip(found, kinds[len(table.attributes) :], strict=True)
            arrays += [pa.array(each[start:stop], kind) for each, kind in rest]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _columns(table: Table) -> tuple[str, ...]:
    return (*NUMBER_COLUMNS, *RELIABILITY_COLUMNS) if table.reliability.written else NUMBER_COLUMNS


def _blanked(table: Table, name: str, numbers: Array) -> Array:
    """The numbers as they are written: None where a count is suppressed, which its standard error never is."""
    blank = table.suppressed
    if name == "standard_error" or not blank.any():
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


def _text(label: Label | None) -> str | None:
    return None if label is None else str(label)
