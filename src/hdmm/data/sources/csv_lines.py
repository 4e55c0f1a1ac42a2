"""CSV files, line by line: a row is a line, and no bytes in a line change how another line is read.

If a quote may run over line breaks, one broken row swallows all rows after it. Here a line break always ends a row, and
whether a line is read depends only on what it holds itself (security I1):

- Lines end with a line feed; the last may end with the file. Carriage returns at the end of a line, however many, are
  not part of it, whether a line feed follows or the file ends: what follows a line does not change it (security I8).
- A line is left out if it is empty, is longer than 1 MiB, has another number of fields than the header, has a carriage
  return inside, or has a quote that is neither around a field nor doubled within a quoted field.
- A field is text. A field that is not UTF-8 is missing; columns.py takes care of that.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.sources.source import ROWS_AT_ONCE, Batch, of_record_batch

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pa_csv
else:
    pa, pc, pa_csv = Lazy("pyarrow"), Lazy("pyarrow.compute"), Lazy("pyarrow.csv")

_DELIMITERS = ",;\t|"
_LONGEST_LINE = 2**20
_BYTES_AT_ONCE = 2**22


def csv_header(file: Path) -> tuple[str, list[str]]:
    """The delimiter and the names of the columns; the delimiter is the one that gives the most columns."""
    try:
        with _opened(file) as stream:
            read = stream.readline(_LONGEST_LINE + 1)
        first = read.removesuffix(b"\n")
        line = first.decode("utf-8-sig").removesuffix("\r")
    except (OSError, EOFError, UnicodeDecodeError):
        raise DataError(f"The first line of {file} cannot be read as UTF-8. Save the file as CSV in UTF-8.") from None
    readings = {delimiter: line_fields(line, delimiter) for delimiter in _DELIMITERS}
    delimiter = max(readings, key=lambda d: len(readings[d]))
    names = readings[delimiter]
    if not read:
        raise DataError(f"{file} is empty. Its first line must name the columns.")
    if not names or len(first) > _LONGEST_LINE:
        raise DataError(
            f"The first line of {file} does not name each column once. Give the file a header line of at most 1 MiB, "
            f"with every quote closed, and lines that end with a line feed."
        )
    if len(set(names)) < len(names):
        raise DataError(f"The first line of {file} does not name each column once. Give the columns different names.")
    return delimiter, names


def csv_rows(file: Path, columns: Sequence[str]) -> Iterator[Batch]:
    """These columns of all rows, as text. O(bytes), and some megabytes of memory whatever the file holds."""
    delimiter, names = csv_header(file)
    numbers = list(map(str, range(len(names))))  # Arrow is given no names
    chosen = [numbers[names.index(name)] for name in columns]
    parse = pa_csv.ParseOptions(
        delimiter=delimiter,
        quote_char='"',
        double_quote=True,
        escape_char=False,
        newlines_in_values=False,
        ignore_empty_lines=True,
    )
    convert = pa_csv.ConvertOptions(
        check_utf8=False,
        column_types=dict.fromkeys(chosen, pa.dictionary(pa.int32(), pa.string())),
        null_values=[],  # empty text is text
        include_columns=chosen,
    )
    with _opened(file) as stream:
        stream.readline()
        for lines in _whole_lines(stream):
            # Arrow would remove a byte order mark from the first line that it is given, so this one is empty.
            text = b"\n" + _readable(_without_returns(lines), delimiter, len(names))
            read = pa_csv.ReadOptions(column_names=numbers, block_size=len(text))
            table = pa_csv.read_csv(_in_arrow(text), read, parse, convert)
            for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
                yield of_record_batch(batch.rename_columns(list(columns)))


def _in_arrow(text: bytes) -> pa.BufferReader:
    """A copy that Arrow owns. Its threads may let go of what they read after the reader has returned, even while Python
    exits; an object of Python's, let go of by another thread by then, ends the process with C++'s `terminate`."""
    copy = pa.BufferOutputStream()
    copy.write(text)
    return pa.BufferReader(copy.getvalue())


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """What is left of a file, in pieces that end with a line feed. The rest of a line that is too long is not kept."""
    rest = b""
    while piece := stream.read(_BYTES_AT_ONCE):
        lines, end, rest = (rest + piece).rpartition(b"\n")
        rest = _begun(rest)
        if end:
            yield lines + end
    if rest:
        yield rest + b"\n"


def _begun(line: bytes) -> bytes:
    """As much of the beginning of a line as is needed to read it once its end has come."""
    without = line.rstrip(b"\r")
    if len(without) > _LONGEST_LINE:
        return b"x" * (_LONGEST_LINE + 1)  # too long, whatever follows: a return among what is kept would be its end
    return line[: len(without) + 1]  # one return at the end says as much as many


def _without_returns(lines: bytes) -> bytes:
    """The same lines without the carriage returns at their ends. O(bytes)."""
    if b"\r\r\n" in lines:
        return b"".join(cast(list[bytes], pc.replace_substring_regex(_each(lines), r"\r+\n\z", "\n").to_pylist()))
    return lines.replace(b"\r\n", b"\n")


def _readable(lines: bytes, delimiter: str, columns: int) -> bytes:
    """The lines that can be read by themselves and have as many fields as there are columns."""
    each = _each(lines)
    kept = _numpy(pc.binary_length(each)) <= _LONGEST_LINE + len("\n")
    kept &= _numpy(pc.match_substring_regex(each, rf"\A{_fields_pattern(delimiter)}\n\z"))
    unquoted = pc.replace_substring_regex(each, '"[^"]*"', "") if b'"' in lines else each
    kept &= _numpy(pc.count_substring(unquoted, delimiter)) == columns - 1
    # Arrow could leave out rows with another number of fields itself, but fails if such a row is not UTF-8.
    return lines if kept.all() else b"".join(cast(list[bytes], each.filter(kept).to_pylist()))


def _each(lines: bytes) -> pa.Array:
    """Lines one by one, each with its line feed."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1
    places = np.concatenate([[0], ends]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(places), pa.py_buffer(lines)])


def _fields_pattern(delimiter: str) -> str:
    """A regular expression for the fields of a line: in quotes, with quotes doubled within, or without any."""
    d = re.escape(delimiter)
    field = rf'(?:"(?:[^"\r\n]|"")*"|[^"{d}\r\n]*)'
    return rf"{field}(?:{d}{field})*"


def line_fields(line: str, delimiter: str) -> list[str]:
    """The fields of a line; none if it cannot be read."""
    if not re.fullmatch(_fields_pattern(delimiter), line):
        return []
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a field of more than 131,072 characters
        return []


def _numpy(array: pa.Array) -> npt.NDArray[Any]:
    return array.to_numpy(zero_copy_only=False)


def _opened(file: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file)) if file.suffix.lower() == ".gz" else open(file, "rb")
