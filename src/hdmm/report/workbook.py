"""A report as an Excel workbook: a sheet on how to read it, then one sheet per table. It has no formulas."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN
from importlib.util import find_spec
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias, cast

from hdmm.exceptions import ReportError
from hdmm.lazy import Lazy
from hdmm.report.labels import shown
from hdmm.report.model import Report
from hdmm.report.numbers import date, decimal, many, percent, places
from hdmm.report.rows import labels_of
from hdmm.table import Table

if TYPE_CHECKING:
    import openpyxl
    import openpyxl.cell
    import openpyxl.styles
    import openpyxl.utils
    from openpyxl.cell.cell import Cell
    from openpyxl.worksheet.worksheet import Worksheet
else:
    openpyxl = Lazy("openpyxl")

MOST_SHEET_ROWS: Final = 2**20
"""Rows of a sheet, by Excel."""

_GUIDE = "How to read"
_HEAD = 3  # rows above the rows of a table
_MOST_TEXT = 32_767  # characters of a cell, by Excel
_MOST_NAME = 31  # characters of a sheet's name, by Excel
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,14})")
_SAMPLE = 500  # rows that decide how wide columns are
_WIDEST = 50

_Value: TypeAlias = tuple[float | None, str]
"""A number and its format."""


def write_workbook(report: Report, file: BinaryIO) -> None:
    """Write the report as .xlsx: numbers are numbers, labels are text and never formulas (security O2)."""
    if find_spec("openpyxl") is None:
        raise ReportError("Excel workbooks need openpyxl. Run pip install 'hdmm[xlsx]', or leave out --xlsx.")
    book = openpyxl.Workbook(write_only=True)
    book.properties.creator, book.properties.title = "hdmm", _plain(report.title)
    names = sheet_names([table.name for table in report.tables])
    _write_guide(report, names, cast("Worksheet", book.create_sheet(_GUIDE)))
    for table, name in zip(report.tables, names, strict=True):
        _write_table(table, cast("Worksheet", book.create_sheet(name)))
    book.save(file)


def sheet_names(names: Sequence[str]) -> list[str]:
    """Names that Excel allows, each used once whatever its case.

    >>> sheet_names(["P12", "p12", "a/b", "History", "x" * 40])
    ['P12', 'p12 (2)', 'a-b', 'History (2)', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx']
    """
    taken = {_GUIDE.casefold(), "history"}  # Excel keeps the second for itself
    found: list[str] = []
    for name in names:
        base = re.sub(r"[\[\]:*?/\\\x00-\x1f]", "-", _plain(name)).strip("' ") or "table"
        made, k = base[:_MOST_NAME], 1
        while made.casefold() in taken:
            k += 1
            made = f"{base[: _MOST_NAME - len(f' ({k})')]} ({k})"
        taken.add(made.casefold())
        found.append(made)
    return found


def _write_guide(report: Report, names: Sequence[str], sheet: Worksheet) -> None:
    sheet.column_dimensions["A"].width, sheet.column_dimensions["B"].width = 34, 90
    sheet.append([_text(sheet, report.title, size=16)])
    for name, value in _facts(report):
        sheet.append([_text(sheet, name, bold=True), _text(sheet, value, wrap=True)])
    sheet.append([])
    sheet.append([_text(sheet, "Sheet", bold=True), _text(sheet, "Table", bold=True)])
    for table, name in zip(report.tables, names, strict=True):
        sheet.append([_text(sheet, name), _text(sheet, f"{table.title} ({many(len(table), 'row')})", wrap=True)])


def _facts(report: Report) -> list[tuple[str, str]]:
    level = percent(report.level)
    biased = report.kind != "unbiased"
    return [
        ("Dataset", report.dataset),
        ("Date", date(report.created)),
        ("Protection", f"{report.privacy}, hiding {report.unit}. Numbers carry random noise."),
        ("Estimate", "The number. " + ("It is biased: see the report." if biased else "Noise may make it negative.")),
        ("Margin", f"The true number lies within estimate ± margin with a probability of at least {level}."),
        ("From, To", f"The same as an interval: the true number lies between these with at least {level}."),
        ("Share, Share margin", "Percent of the total of the row’s line in the report, and the margin of that."),
        ("Standard deviation", "Of the noise in the unbiased estimate."),
        ("Reliability", "good: the margin is small for the number; fair; rough; may be 0: the interval includes 0."),
        ("Rounding", "Digits that the noise leaves no meaning are left out; the Parquet files have all of them."),
        ("Totals", "From the measurements, with margins of their own. Do not add up margins."),
    ]


def _write_table(table: Table, sheet: Worksheet) -> None:
    """Title, note and header, then one row per number; totals are last."""
    shares = table.shares is not None
    header = [*table.heads, "Estimate", "Margin", "From", "To", *(["Share, %", "Share margin"] if shares else [])]
    header += ["Standard deviation", "Reliability"]
    rows = list(_rows_within(table))
    for k, head in enumerate(header):
        texts = [str(row[k]) for row in rows[:_SAMPLE] if k < len(table.attributes)]
        width = max(map(len, [head, *texts])) + 2
        sheet.column_dimensions[_letter(k)].width = min(max(width, 11), _WIDEST)
    sheet.freeze_panes = f"A{_HEAD + 1}"
    sheet.auto_filter.ref = f"A{_HEAD}:{_letter(len(header) - 1)}{_HEAD + max(len(rows), 1)}"
    cut = f" The first {len(rows):,} rows; all are in {table.name}.csv." if len(rows) < len(table) else ""
    sheet.append([_text(sheet, table.title, size=14)])
    sheet.append([_text(sheet, f"Margins at {percent(table.level)}. {table.note or ''}".strip() + cut)])
    sheet.append([_text(sheet, head, bold=True) for head in header])
    for row in rows:
        sheet.append([_number(sheet, *each) if isinstance(each, tuple) else _label(sheet, each) for each in row])


def _rows_within(table: Table) -> Iterator[list[str | _Value]]:
    """As many rows as a sheet has, then the totals."""
    room = MOST_SHEET_ROWS - _HEAD - (0 if table.totals is None else len(table.totals))
    shares = _shares(table)
    digits = [_digits(part) for part in table.by_measure()]
    each = max(len(table) // table.measures, 1)
    for found in filter(None, (table, table.totals)):
        columns = (found.estimate, found.margin, found.lower, found.upper, found.stddev)
        numbers = zip(*(column.tolist() for column in columns), found.notes, strict=True)
        for k, (words, (*values, grade)) in enumerate(zip(labels_of(found), numbers, strict=True)):
            if k >= room:
                break
            share = [] if table.shares is None else shares.get(words, [(None, "0"), (None, "0")])
            gone = grade in ("suppressed", "unknown")
            *shown_numbers, spread = _rounded(values, digits[k // each if found is table else 0])
            blank: list[_Value] = [(None, "0")]
            yield [
                *map(shown, words),
                *(blank * 4 if gone else shown_numbers),
                *(blank * len(share) if gone else share),
                *(blank if grade == "unknown" else [spread]),
                grade,
            ]


def _shares(table: Table) -> dict[tuple[str, ...], list[_Value]]:
    found = table.shares
    if found is None:
        return {}
    digits = _digits(found)
    numbers = zip(found.estimate.tolist(), found.margin.tolist(), strict=True)
    return {
        words: [_value(estimate, digits, ROUND_HALF_EVEN), _value(margin, digits, ROUND_CEILING)]
        for words, (estimate, margin) in zip(labels_of(found), numbers, strict=True)
    }


def _rounded(values: Sequence[float], digits: int) -> list[_Value]:
    """Estimate, margin, lower, upper and, with one digit more, standard deviation; intervals are never narrowed."""
    rules = (ROUND_HALF_EVEN, ROUND_CEILING, ROUND_FLOOR, ROUND_CEILING)
    found = [_value(value, digits, rule) for value, rule in zip(values[:-1], rules, strict=True)]
    return [*found, _value(values[-1], digits + 1, ROUND_CEILING)]


def _value(value: float, digits: int, rounding: str) -> _Value:
    form = f"#,##0.{'0' * digits}" if digits else "#,##0"
    return (float(decimal(value, digits, rounding)) if math.isfinite(value) else None), form


def _digits(table: Table) -> int:
    return places(table.stddev[~table.unknown], table.estimate[~table.unknown])


def _number(sheet: Worksheet, value: float | None, form: str) -> Cell:
    cell = openpyxl.cell.WriteOnlyCell(sheet, value)
    cell.number_format = form
    return cell


def _label(sheet: Worksheet, label: str) -> Cell:
    """A label: a whole number as a number, so that it sorts; anything else as text."""
    return _number(sheet, int(label), "0") if _INTEGER.fullmatch(label) else _text(sheet, label)


def _text(sheet: Worksheet, text: str, *, bold: bool = False, wrap: bool = False, size: int = 11) -> Cell:
    """Text as text, whatever it begins with: typed as a string, and marked so that it stays one when it is edited."""
    cell = openpyxl.cell.WriteOnlyCell(sheet, _plain(text)[:_MOST_TEXT])
    cell.data_type, cell.quotePrefix = "s", True
    cell.font = openpyxl.styles.Font(bold=bold or size > 11, size=size)
    if wrap:
        cell.alignment = openpyxl.styles.Alignment(wrap_text=True, vertical="top")
    return cell


def _letter(column: int) -> str:
    return openpyxl.utils.get_column_letter(column + 1)


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
