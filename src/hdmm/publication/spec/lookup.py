"""Levels from a CSV file: the first column has the values of an attribute, every other column is a level."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hdmm.base.exceptions import SpecError
from hdmm.describe.entries import Label
from hdmm.describe.values import Values
from hdmm.io.strict_records import shown
from hdmm.publication.spec.public_csv import line_error, public_rows


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
        missing = np.setdiff1d(np.arange(size), np.array(list(place), np.int64))
        if missing.size:
            label = shown(declared.label(int(missing[0])))
            raise line_error(
                path, 1, f"{missing.size:,} declared values are missing, such as {label}. Add a line for each."
            )
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
