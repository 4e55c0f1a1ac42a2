"""The files of a table: which formats there are, which columns they have, and how each is written and described."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, final

import numpy as np

from hdmm.answers.margins import GRADES, OBS_STATUS
from hdmm.answers.table import BINNED, NUMBER_COLUMNS, Table, apart, plain
from hdmm.base.lazy import Lazy
from hdmm.describe.entries import Number
from hdmm.describe.table_column import LabelEnds
from hdmm.io.folder import write_file
from hdmm.io.strict_json import Json
from hdmm.matrix import Array

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")

RELIABILITY_COLUMNS = ("reliable", "note")
SDMX_COLUMNS = ("OBS_STATUS", "CONF_STATUS")
BIN_COLUMNS = ("lower_with_bins", "upper_with_bins")
_STDDEV = NUMBER_COLUMNS.index("stddev")
_FORMULA = frozenset("=+-@\t\r\n")  # and their Unicode variants of another width or size, such as ＝ or ﹢
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_ROWS = 2**16

STDDEV: Final = (
    "It is that of the noise in the unbiased estimate; of means and percentages to first order, and of quantiles by "
    "the width of the interval."
)
"""What a standard deviation in a file is."""

_UPPER_END = "The upper end, which is not in the range."
_LABEL = "Text that a spreadsheet would run as a formula has a leading ' in CSV."
_ROUNDED = "Every row has the digits that its own noise leaves a meaning; the Parquet file has all digits."


@final
@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a table's files: its name, and what the data package says of it.

    Its role there is label, range (an end of a bin), estimate, stddev, margin or reliability.
    """

    name: str
    field: Mapping[str, Json]


def file_columns(table: Table) -> list[FileColumn]:
    """The columns of a table's files: its labels, those of bins followed by their two ends, then the numbers.

    >>> from hdmm.describe.numeric import Bins
    >>> from hdmm.describe.table_column import TableColumn
    >>> income = TableColumn.of_values("income", Bins([0, 10, 50]))
    >>> table = Table("t", "T", (income,), lambda: [("[0, 10)",), ("[10, 50)",)], *4 * [np.array([3.0, 4.0])], 0.95)
    >>> [column.name for column in file_columns(table)]
    ['income', 'income_from', 'income_to', 'estimate', 'stddev', 'lower', 'upper']
    """
    labels = list(_label_columns(table))
    numbers = list(_number_columns(table))
    names = apart([column.name for column in labels], [column.name for column in numbers])
    return [*(FileColumn(name, column.field) for name, column in zip(names, labels, strict=True)), *numbers]


def number_columns(table: Table) -> tuple[str, ...]:
    """The names of the columns of numbers: with bins if sums or means are of values known by their bins only."""
    return NUMBER_COLUMNS if table.bins is None else (*NUMBER_COLUMNS, *BIN_COLUMNS)


def write_csv(table: Table, file: BinaryIO, columns: Sequence[FileColumn] | None = None) -> None:
    """Write a table as CSV in UTF-8, rounded as docs/reference/spec.md says; `columns` are its own, if they are listed.

    Text that a spreadsheet would run as a formula gets a leading ' (security O2).
    """
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\r\n")  # which makes it quote text that holds either character
    writer.writerow([escape_formula(column.name) for column in columns or file_columns(table)])
    ends = _bin_ends(table)
    for row, fine in zip(table.printed(exact=None), table.reliable.tolist(), strict=True):
        labels = [escape_formula(each) if isinstance(each, str) else each for each in _with_ends(row.labels, ends)]
        one = row.numbers
        numbers: list[Decimal | None]
        numbers = [None, row.stddev, None, None] if one is None else [one.estimate, row.stddev, one.lower, one.upper]
        numbers += [] if table.bins is None else row.bins or (None, None)
        written = ["" if number is None else plain(number) for number in numbers]
        graded = ["yes" if fine else "no", row.grade] * table.reliability.written
        writer.writerow([*labels, *written, *graded, *([_status(row.grade), "F"] * table.reliability.sdmx)])
    text.detach()


def write_parquet(table: Table, file: BinaryIO, columns: Sequence[FileColumn] | None = None) -> None:
    """Write a table as Parquet: labels are text, numbers are floats with all their digits, and `reliable` is a boolean.

    Ends of bins are numbers. A heading that is not the name of its column is in the column's metadata, as `title`.
    """
    schema = pa.schema([_parquet_field(column) for column in columns or file_columns(table)])
    bounds = () if table.bins is None else (table.bins.lower, table.bins.upper)
    numbers = [_blanked(table, k, each) for k, each in enumerate((*table.numbers, *bounds))]
    numbers += [table.reliable, np.array(table.notes, dtype=object)] if table.reliability.written else []
    if table.reliability.sdmx:
        numbers += [np.array(each, dtype=object) for each in ([*map(_status, table.notes)], ["F"] * len(table))]
    ends = _bin_ends(table)
    labels = (tuple(_with_ends(row, ends)) for row in table.labels())
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, max(len(table), 1), _ROWS):
            stop = min(start + _ROWS, len(table))
            words = list(zip(*itertools.islice(labels, stop - start), strict=True))
            values = [*(words or [()] * (len(schema.names) - len(numbers))), *(each[start:stop] for each in numbers)]
            arrays = [pa.array(each, kind) for each, kind in zip(values, schema.types, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _parquet_field(column: FileColumn) -> pa.Field:
    types = {"string": pa.string(), "number": pa.float64(), "boolean": pa.type_for_alias("bool")}
    title = str(column.field.get("title", column.name))
    stated = None if title == column.name else {"title": title}
    return pa.field(column.name, types[str(column.field["type"])], metadata=stated)


def _bin_ends(table: Table) -> list[LabelEnds | None]:
    """For each column of bins, their ends; None for other columns."""
    return [column.ends() if column.kind == "bins" else None for column in table.label_columns]


def _with_ends(labels: Iterable[str | None], ends: Sequence[LabelEnds | None]) -> Iterator[str | Number | None]:
    """The labels of a row, with the ends of bins."""
    for label, known in zip(labels, ends, strict=True):
        yield label
        if known is not None:
            yield from known.get(label or "", (None, None))


def _blanked(table: Table, place: int, numbers: Array) -> Array:
    """The numbers as they are written: None where a count is suppressed, which its standard deviation never is."""
    blank = table.suppressed
    if place == _STDDEV or not blank.any():
        return numbers
    shown = numbers.astype(object)
    shown[blank] = None
    return shown


def escape_formula(text: str) -> str:
    """Text as it stands in CSV, with ' before what a spreadsheet would take for a formula.

    >>> escape_formula("=1+1"), escape_formula("＝1+1"), escape_formula("-12"), escape_formula("F")
    ("'=1+1", "'＝1+1", '-12', 'F')
    """
    starts = unicodedata.normalize("NFKC", text[:1])[:1] in _FORMULA
    return f"'{text}" if starts and not _NUMBER.fullmatch(text) else text


def _label_columns(table: Table) -> Iterator[FileColumn]:
    for column in table.label_columns:
        yield FileColumn(column.name, {"type": "string", "role": "label", "title": column.head, "description": _LABEL})
        if column.kind == "bins":
            for end, text in (("from", "The lower end, which is in the range."), ("to", _UPPER_END)):
                yield FileColumn(f"{column.name}_{end}", {"type": "number", "role": "range", "description": text})


def _number_columns(table: Table) -> Iterator[FileColumn]:
    level = f"{100 * table.level:g} %"
    estimate = f"{'A biased' if table.biased else 'The'} estimate: see the description of the package."
    which = "end of the interval that covers noise and bins: inf or -inf if unbounded."
    described = [
        ("estimate", f"{estimate} {_ROUNDED}"),
        ("stddev", f"The standard deviation, rounded up. {STDDEV}"),
        ("margin", f"The lower end of the {level} interval, rounded outward."),
        ("margin", f"The upper end of the {level} interval, rounded outward."),
        ("margin", f"The lower {which}"),
        ("margin", f"The upper {which}"),
    ]
    for name, (role, text) in zip(number_columns(table), described, strict=False):
        yield FileColumn(name, {"type": "number", "role": role, "description": text})
    if table.reliability.written:
        meaning = f"Whether the margin of error is at most {table.reliability.fair:g} of the estimate."
        truth: dict[str, Json] = {"type": "boolean", "trueValues": ["yes"], "falseValues": ["no"]}
        words: dict[str, Json] = {"type": "string", "constraints": {"enum": list(GRADES)}}
        texts = (meaning, "How reliable the estimate is, in words.")
        for name, kind, text in zip(RELIABILITY_COLUMNS, (truth, words), texts, strict=True):
            yield FileColumn(name, {**kind, "role": "reliability", "description": text})

    if table.reliability.sdmx:
        statuses = (
            ("The status of the number in the codes of SDMX.", ["A", "U", "Q", "O"]),
            ("Its confidentiality in the codes of SDMX: free for publication.", ["F"]),
        )
        for name, (text, codes) in zip(SDMX_COLUMNS, statuses, strict=True):
            coded: dict[str, Json] = {"type": "string", "constraints": {"enum": list[Json](codes)}}
            yield FileColumn(name, {**coded, "role": "reliability", "description": text})


def _status(grade: str) -> str:
    return OBS_STATUS.get(grade, "U")


def _csv_resource(table: Table, columns: Sequence[FileColumn]) -> dict[str, Json]:
    return {
        **({} if table.definition is None else {"sql": table.definition}),
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "dialect": {
            "delimiter": ",",
            "lineTerminator": "\r\n",
            "quoteChar": '"',
            "doubleQuote": True,
            "header": True,
        },
        "schema": {
            "fields": [{"name": column.name, **column.field} for column in columns],
            "missingValues": [""],
        },
    }


def _parquet_resource(_: Table, __: Sequence[FileColumn]) -> dict[str, Json]:
    return {"format": "parquet", "mediatype": "application/vnd.apache.parquet"}


@final
@dataclass(frozen=True, slots=True)
class Format:
    """A format in which every table is published: how its file is written, and described in the data package.

    Both are given the table and its columns.
    """

    name: str
    ending: str
    write: Callable[[Table, BinaryIO, Sequence[FileColumn]], None]
    profile: str
    resource: Callable[[Table, Sequence[FileColumn]], dict[str, Json]]

    def path(self, table: str) -> str:
        """The file of a table, in the output folder."""
        return f"tables/{table}.{self.ending}"


FORMATS: Final = (
    Format("CSV", "csv", write_csv, "tabular-data-resource", _csv_resource),
    Format("Parquet", "parquet", write_parquet, "data-resource", _parquet_resource),
)
"""All formats; a resource of the first has the name of its table."""


def format_names() -> list[str]:
    """The names of all formats."""
    return [each.name for each in FORMATS]


def file_paths(table: str) -> list[str]:
    """The files of a table, in the output folder."""
    return [each.path(table) for each in FORMATS]


def write_table(table: Table, folder: Path) -> list[Json]:
    """Write a table into a folder in every format, and return what the data package says of each file."""
    columns, found = file_columns(table), list[Json]()
    notes = " ".join(filter(None, (table.note, None if table.bins is None else BINNED)))
    described = {"title": table.title, **({"description": notes} if notes else {})}
    for k, (each, path) in enumerate(zip(FORMATS, file_paths(table.name), strict=True)):
        name = table.name.lower()  # names differ in more than case
        write_file(folder / path, lambda file, each=each: each.write(table, file, columns))
        found.append(
            {
                "name": f"{name}.{each.ending}" if k else name,
                **_stated(folder / path, path),
                "profile": each.profile,
                **described,
                **each.resource(table, columns),
            }
        )
    return found


def _stated(file: Path, path: str) -> dict[str, Json]:
    """The path of a file as the package has it, its size and its SHA-256."""
    with open(file, "rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return {"path": path, "bytes": os.fstat(opened.fileno()).st_size, "hash": f"sha256:{digest}"}
