"""The files of synthetic rows: Parquet, CSV, what their columns hold, how near they are, and a page that says so."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hdmm.answers.rows import SyntheticRows
from hdmm.base.exceptions import FileError
from hdmm.base.lazy import Lazy
from hdmm.base.numbers import number
from hdmm.io.folder import whole_folder, write_file
from hdmm.publication.files import escape_formula
from hdmm.publication.preflight import require_paid
from hdmm.publication.published import Published
from hdmm.publication.report.page import render_rows

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as pq
else:
    pa, arrow_csv, pq = Lazy("pyarrow"), Lazy("pyarrow.csv"), Lazy("pyarrow.parquet")

FOLDER = "rows"
"""Where rows are written beside the tables, unless another folder is given."""

_FILES = ("rows.parquet", "rows.csv", "columns.csv", "closeness.csv", "about.html")


def check_rows_folder(target: Path, *, force: bool) -> os.stat_result | None:
    """The folder of earlier rows that may be replaced, if there is one; FileError if something must stay."""
    try:
        there = os.lstat(target)
        names = set(os.listdir(target)) if stat.S_ISDIR(there.st_mode) else {""}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror}. Choose another folder.") from None
    if names - set(_FILES):
        raise FileError(f"{target} exists and holds files that are not rows. Choose another folder with --output.")
    if names and not force:
        raise FileError(f"{target} holds rows. Choose another folder with --output, or use --force to replace them.")
    return there


def make_rows(
    published: Published,
    target: Path,
    ledger: tuple[Path, str],
    count: int | None = None,
    *,
    by: Sequence[str] = (),
    force: bool = False,
) -> SyntheticRows:
    """Make rows from what was published and write them, unless it was not paid for or the folder holds something.

    `ledger` is its path and what names it (`require_paid`): rows are published as tables are.
    """
    require_paid(published.release, published.folder, *ledger)
    check_rows_folder(target, force=force)
    made = published.release.rows(count, by=by, impossible=published.impossible)
    write_rows(published, made, target, force=force)
    return made


def write_rows(published: Published, rows: SyntheticRows, target: Path, *, force: bool = False) -> Path:
    """Write rows as a folder, whole or not at all: the files that `_FILES` names. O(rows · columns)."""
    with whole_folder(target, partial(check_rows_folder, target, force=force)) as folder:
        table = rows.to_arrow()
        fills: Sequence[Callable[[BinaryIO], object]] = (
            partial(pq.write_table, table),
            partial(_write_csv, table),
            partial(_write_lines, ["column", "kind", "values", "remark"], _columns(rows)),
            partial(_write_lines, ["measured_together", "numbers", "typical", "largest"], _closeness(rows)),
            lambda file: file.write(render_rows(rows, published.release).encode()),
        )
        for name, fill in zip(_FILES, fills, strict=True):
            write_file(folder / name, fill)
    return target


def _write_csv(table: pa.Table, file: BinaryIO) -> None:
    """The same rows as CSV, in which text that a spreadsheet would run as a formula has a leading ' (security O2)."""
    columns: dict[str, object] = {}
    for name in table.schema.names:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.DictionaryArray):
            words = [escape_formula(str(word)) for word in column.dictionary.to_pylist()]
            codes = column.indices.to_numpy(zero_copy_only=False)
            column = pa.DictionaryArray.from_arrays(codes, pa.array(words, pa.string())).dictionary_decode()
        columns[escape_formula(name)] = column
    arrow_csv.write_csv(pa.table(columns), file)


def _write_lines(header: Sequence[str], lines: Iterable[Sequence[str]], file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows([escape_formula(word) for word in line] for line in lines)
    text.detach()


def _columns(rows: SyntheticRows) -> list[tuple[str, ...]]:
    return [(column.name, column.kind, column.values, column.remark) for column in rows.columns]


def _closeness(rows: SyntheticRows) -> list[tuple[str, ...]]:
    return [
        (
            " × ".join(near.attributes) or "the total",
            str(near.numbers),
            number(near.typical, 2),
            number(near.largest, 2),
        )
        for near in rows.closeness
    ]
