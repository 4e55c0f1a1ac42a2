"""CSV files beside a specification: public, but read as strictly as data. A line is a row, and errors name the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hdmm.base.exceptions import DataError, SpecError
from hdmm.data.sources.csv_lines import csv_header, line_fields

_MOST_BYTES = 2**28


def public_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the line and the fields of every row; SpecError that names the line. O(bytes)."""
    if not path.is_file():  # nor a device, which has no end
        raise line_error(path, 1, "There is no such file. Give the path of a CSV file, relative to the specification.")
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        delimiter, names = csv_header(path)
    except DataError as wrong:
        raise line_error(path, 1, str(wrong)) from None
    except OSError as wrong:
        raise line_error(path, 1, f"The file cannot be read ({wrong.strerror}). Check its permissions.") from None
    if len(data) > _MOST_BYTES:
        raise line_error(path, 1, f"The file has more than {_MOST_BYTES:,} bytes. Give a smaller one.")
    rows = list(_rows(path, data, delimiter, len(names)))
    if not rows:
        raise line_error(path, 1, "The file has no rows. Give one line per value.")
    return names, rows


def line_error(path: Path, line: int, message: str) -> SpecError:
    """An error about a line of such a file."""
    return SpecError(message, file=str(path), line=line, key="")


def _rows(path: Path, data: bytes, delimiter: str, columns: int) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(data.split(b"\n")[1:], 2):
        try:
            text = line.rstrip(b"\r").decode()
        except UnicodeDecodeError:
            raise line_error(path, number, "This line is not text in UTF-8. Save the file as UTF-8.") from None
        if not text:
            continue
        simple = '"' not in text and "\r" not in text
        fields = text.split(delimiter) if simple else line_fields(text, delimiter)
        if len(fields) != columns or "\0" in text:
            raise line_error(
                path,
                number,
                f"This line does not have {columns} fields, as the first line has, or a quote is not closed.",
            )
        yield number, fields
