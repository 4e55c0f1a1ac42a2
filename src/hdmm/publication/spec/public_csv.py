"""CSV files beside a specification, of levels or of known counts: public, but read as strictly as data.

A line is a row, and errors name the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hdmm.base.exceptions import DataError, DomainError, SpecError
from hdmm.base.numbers import many
from hdmm.data.sources.csv_lines import csv_header, line_fields
from hdmm.describe.domain import Domain
from hdmm.describe.entries import Label
from hdmm.describe.table_query import TableQuery
from hdmm.describe.values import Values
from hdmm.io.strict_records import shown
from hdmm.matrix import Array
from hdmm.publication.files import escape_formula
from hdmm.publication.spec.document import Document
from hdmm.publication.spec.keys import KnownKeys
from hdmm.reconstruct.known import Known, known_counts

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


def read_lookup(path: Path, declared: Values | None) -> tuple[list[str], dict[str, list[Label]]]:
    """(the values of the first column, the groups of every level), in the order of the declared values.

    Without declared values, those in the file are the values, in its order. Groups are texts. The file is public, but
    it is read as strictly as data: a line is a row, and every error names its line. O(bytes).
    """
    names, rows = public_rows(path)
    if len(names) < 2 or not all(names):
        raise line_error(path, 1, "The first line must name the values and at least one level, such as tract,county.")
    place: dict[object, int] = {}
    values: list[str] = []
    groups: list[list[str]] = []
    lines: list[int] = []
    size = None if declared is None else declared.size - (declared.outside == "other")
    codes = None if declared is None else declared.encode([fields[0] for _, fields in rows]).tolist()
    for i, (line, (value, *own)) in enumerate(rows):
        if not value:
            raise line_error(path, line, "The value in the first column is empty. Give every line a value.")
        code = value if codes is None or size is None or not 0 <= codes[i] < size else codes[i]
        if codes is not None and code is value:
            raise line_error(
                path, line, f"{shown(value)} is not a value that is declared. Declare it, or leave it out."
            )
        first = place.setdefault(code, i)
        if first != i:
            raise _twice(path, line, lines[first], names, (values[first], *groups[first]), (value, *own))
        empty = next((name for name, group in zip(names[1:], own, strict=True) if not group), None)
        if empty is not None:
            raise line_error(
                path, line, f"{shown(value)} has no {shown(empty)}. Every value is in one group of each level."
            )
        values.append(value)
        groups.append(own)
        lines.append(line)
    order = list(range(len(values)))
    if declared is not None and size is not None:
        if missing := size - len(place):
            label = shown(declared.label(next(code for code in range(size) if code not in place)))
            wanted = many(missing, "declared value")
            raise line_error(path, 1, f"There is no line for {wanted}, such as {label}. Add one for each.")
        order = [place[code] for code in range(size)]
    return values, {name: [groups[i][k] for i in order] for k, name in enumerate(names[1:])}


def _twice(
    path: Path, line: int, first: int, names: list[str], old: tuple[str, ...], new: tuple[str, ...]
) -> SpecError:
    value = shown(new[0])
    for name, before, after in zip(names[1:], old[1:], new[1:], strict=True):
        if before != after:
            return line_error(
                path,
                line,
                f"{value} has {shown(name)} {shown(after)} here and {shown(before)} on line {first}. A level gives "
                "every value one group.",
            )
    return line_error(path, line, f"{value} is on line {first}, too. List every value once.")


def known_tables(
    document: Document, given: Sequence[KnownKeys] | KnownKeys, base: Path, declared: Domain, domain: Domain
) -> tuple[Known, ...]:
    """The known counts over the domain of the tables, in which attributes may be merged; they agree with each other."""
    several = not isinstance(given, KnownKeys)
    found: list[Known] = []
    for i, keys in enumerate([given] if isinstance(given, KnownKeys) else given):
        place = ("known", i) if several else ("known",)
        with document.locating(*place, "attributes"):
            columns = declared.columns(keys.attributes, "with known counts")
        with document.locating(*place, "counts"):
            counts = keys.counts
            if isinstance(counts, str):
                counts = _read(base / counts, {column.name: column.values for column in columns})
            found.append(Known(domain, keys.attributes, counts))
    with document.locating("known"):
        return known_counts(domain, found)


def read_expected(path: Path, table: TableQuery) -> Array:
    """A public count of each row of a table, in its order, from a CSV file or from an earlier publication of the table.

    The file has the columns of the table, and "estimate" or one more. A published estimate that is below its own margin
    counts as that margin, because it says no more; any other count is above 0.
    """
    path = path / "tables" / f"{table.name}.csv" if path.is_dir() else path
    header, rows = public_rows(path)
    others = [name for name in header if name not in table.columns]
    count = "estimate" if "estimate" in others else others[0] if len(others) == 1 else None
    if count is None or set(table.columns) - set(header):
        raise _other_columns(path, header, table.columns)
    found: dict[tuple[str, ...], float] = {}
    for line, fields in rows:
        words = dict(zip(header, fields, strict=True))
        number = _number(path, line, words[count])
        if "upper" in words and count == "estimate":
            number = max(number, _number(path, line, words["upper"]) - number)
        if not number > 0:
            raise line_error(path, line, f"{shown(words[count])} is not a count above 0. Expect at least a few rows.")
        found[tuple(words[name] for name in table.columns)] = number
    keys = [tuple("" if label is None else escape_formula(str(label)) for label in row) for row in table.labels()]
    if missing := [key for key in keys if key not in found]:
        raise line_error(
            path, 1, f"{len(missing):,} rows of the table have no count, such as {', '.join(missing[0])[:80]}."
        )
    return np.array([found[key] for key in keys])


def _other_columns(path: Path, header: Sequence[str], wanted: Iterable[str]) -> SpecError:
    """An error about a file of counts that does not have these columns and one more."""
    names = ", ".join([*wanted, "count"])
    return line_error(path, 1, f"The columns are {', '.join(header)[:80]}. They must be {names}.")


def _number(path: Path, line: int, word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise line_error(path, line, f"{shown(word)} is not a number. Give the count of every row.")
    return number


def _read(path: Path, columns: dict[str, Values]) -> Array:
    """The counts in a CSV file: a column per attribute or level, with its labels, and one more with the counts."""
    header, rows = public_rows(path)
    others = [name for name in header if name not in columns]
    if len(others) != 1 or sorted(header) != sorted([*columns, *others]):
        raise _other_columns(path, header, columns)
    shape = [values.size for values in columns.values()]
    if (missing := math.prod(shape) - len(rows)) > 0:
        raise DomainError(
            f"{path} has no count for {missing:,} of {math.prod(shape):,} combinations of values. Give every "
            "combination one row, with 0 where nobody is."
        )
    codes = {name: {str(each.label(code)): code for code in range(each.size)} for name, each in columns.items()}
    counts = np.full(shape, -1, dtype=np.int64)
    for line, fields in rows:
        words = dict(zip(header, map(str.strip, fields), strict=True))
        for name, known in codes.items():
            if words[name] not in known:
                raise line_error(path, line, f"{shown(words[name])} is not a value of {name}. Write it as declared.")
        place = tuple(known[words[name]] for name, known in codes.items())
        if counts[place] >= 0:
            raise line_error(path, line, "There are two rows for one combination of values. Leave one out.")
        word = words[others[0]]
        if not (word.isascii() and word.isdigit() and len(word) <= 16):
            raise line_error(path, line, f"{shown(word)} is not a count. Give a whole number from 0 on.")
        counts[place] = int(word)
    return counts
