"""Levels from a CSV file: the first column has the values of an attribute, every other column is a level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hdmm.base.exceptions import DataError, SpecError
from hdmm.data.sources.csv_lines import csv_header, line_fields
from hdmm.describe.entries import Label
from hdmm.describe.values import Values
from hdmm.io.strict_records import shown

MOST_LOOKUP_BYTES = 2**26


def read_lookup(path: Path, declared: Values | None) -> tuple[list[str], dict[str, list[Label]]]:
    """(the values of the first column, the groups of every level), in the order of the declared values.

    Without declared values, those in the file are the values, in its order. Groups are texts. The file is public, but
    it is read as strictly as data: a line is a row, and every error names its line. O(bytes).
    """
    names, rows = _rows(path)
    place: dict[object, int] = {}
    values: list[str] = []
    groups: list[list[str]] = []
    lines: list[int] = []
    size = None if declared is None else declared.size - (declared.outside == "other")
    codes = None if declared is None else declared.encode([fields[0] for _, fields in rows]).tolist()
    for i, (line, (value, *own)) in enumerate(rows):
        code = value if codes is None or size is None or not 0 <= codes[i] < size else codes[i]
        if codes is not None and code is value:
            raise _error(path, line, f"{shown(value)} is not a value that is declared. Declare it, or leave it out.")
        first = place.setdefault(code, i)
        if first != i:
            raise _twice(path, line, lines[first], names, (values[first], *groups[first]), (value, *own))
        empty = next((name for name, group in zip(names[1:], own, strict=True) if not group), None)
        if empty is not None:
            raise _error(
                path, line, f"{shown(value)} has no {shown(empty)}. Every value is in one group of each level."
            )
        values.append(value)
        groups.append(own)
        lines.append(line)
    order = list(range(len(values)))
    if declared is not None and size is not None:
        missing = np.setdiff1d(np.arange(size), np.array(list(place), np.int64))
        if missing.size:
            label = shown(declared.label(int(missing[0])))
            raise _error(
                path, 1, f"{missing.size:,} declared values are missing, such as {label}. Add a line for each."
            )
        order = [place[code] for code in range(size)]
    return values, {name: [groups[i][k] for i in order] for k, name in enumerate(names[1:])}


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the line and the fields of every row."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        raise _error(path, 1, "There is no such .csv file. Give the path of a look-up file, relative to this one.")
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_LOOKUP_BYTES + 1)
        delimiter, names = csv_header(path)
    except DataError as wrong:
        raise _error(path, 1, str(wrong)) from None
    except OSError as wrong:
        raise _error(path, 1, f"The file cannot be read ({wrong.strerror}). Check the path.") from None
    if len(data) > MOST_LOOKUP_BYTES:
        raise _error(
            path, 1, f"The file has more than {MOST_LOOKUP_BYTES:,} bytes. Give a look-up file of levels only."
        )
    if len(names) < 2 or not all(names):
        raise _error(path, 1, "The first line must name the values and at least one level, such as tract,county.")
    rows = list(_lines(path, data, delimiter, len(names)))
    if not rows:
        raise _error(path, 1, "The file has no rows. Give one line per value.")
    return names, rows


def _lines(path: Path, data: bytes, delimiter: str, columns: int) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(data.split(b"\n")[1:], 2):
        try:
            text = line.rstrip(b"\r").decode()
        except UnicodeDecodeError:
            raise _error(path, number, "This line is not text in UTF-8. Save the file as UTF-8.") from None
        if not text:
            continue
        simple = '"' not in text and "\r" not in text
        fields = text.split(delimiter) if simple else line_fields(text, delimiter)
        if len(fields) != columns or "\0" in text:
            raise _error(
                path,
                number,
                f"This line does not have {columns} fields, as the first line has, or a quote is not closed.",
            )
        if not fields[0]:
            raise _error(path, number, "The value in the first column is empty. Give every line a value.")
        yield number, fields


def _twice(
    path: Path, line: int, first: int, names: list[str], old: tuple[str, ...], new: tuple[str, ...]
) -> SpecError:
    value = shown(new[0])
    for name, before, after in zip(names[1:], old[1:], new[1:], strict=True):
        if before != after:
            return _error(
                path,
                line,
                f"{value} has {shown(name)} {shown(after)} here and {shown(before)} on line {first}. A level gives "
                "every value one group.",
            )
    return _error(path, line, f"{value} is on line {first}, too. List every value once.")


def _error(path: Path, line: int, message: str) -> SpecError:
    return SpecError(message, file=str(path), line=line, key="")
