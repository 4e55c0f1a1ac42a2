"""A report as an Excel workbook: a cover, a list of tables and notes, then one sheet per table. It has no formulas.

It follows what the Government Statistical Service of the United Kingdom asks of accessible spreadsheets: every sheet
begins with its title and holds one table, marked as such; no cells are merged, no row or column in the data is blank,
panes are not frozen, and a cell without a number says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from importlib.util import find_spec
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias, cast

from hdmm.answers.table import BINNED, Table, apart
from hdmm.base.exceptions import ReportError
from hdmm.base.lazy import Lazy
from hdmm.base.numbers import date, many, percent
from hdmm.publication.files import STDDEV
from hdmm.publication.report.contents import Report, listed, quotable
from hdmm.publication.report.labels import shown

if TYPE_CHECKING:
    import openpyxl
    import openpyxl.cell
    import openpyxl.styles
    import openpyxl.utils
    import openpyxl.worksheet.filters
    import openpyxl.worksheet.table
    from openpyxl.cell.cell import Cell
    from openpyxl.worksheet.worksheet import Worksheet
else:
    openpyxl = Lazy("openpyxl")

MOST_SHEET_ROWS: Final = 2**20
"""Rows of a sheet, by Excel."""

_COVER, _CONTENTS, _NOTES = "Cover", "Contents", "Notes"
_NOT_AVAILABLE, _NOT_RELIABLE, _NOT_APPLICABLE = "[x]", "[u]", "[z]"
_MISSING = (
    f"{_NOT_AVAILABLE}: not available; {_NOT_RELIABLE}: left out because it is not reliable; {_NOT_APPLICABLE}: not "
    "applicable, such as a margin where the interval reaches further to one side."
)
_HEAD = 3  # rows above the rows of a table
_MOST_TEXT = 32_767  # characters of a cell, by Excel
_MOST_NAME = 31  # characters of a sheet's name, by Excel
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,14})")
_SAMPLE = 500  # rows that decide how wide columns are
_WIDEST = 50

_Value: TypeAlias = tuple[float | str, str]
"""A number and its format; or, where there is none, the reason in short."""


def write_workbook(report: Report, file: BinaryIO) -> None:
    """Write the report as .xlsx: numbers are numbers, labels are text and never formulas (security O2)."""
    if find_spec("openpyxl") is None:
        raise ReportError("Excel workbooks need openpyxl. Run pip install 'hdmm[xlsx]', or leave out --xlsx.")
    book = openpyxl.Workbook(write_only=True)
    book.properties.creator, book.properties.title = "hdmm", _plain(report.title)
    names = sheet_names([table.name for table in report.tables])
    sheets = [cast("Worksheet", book.create_sheet(name)) for name in (_COVER, _CONTENTS, _NOTES)]
    _write_cover(report, sheets[0])
    contents = [
        (name, f"{table.title} ({many(len(table), 'row')})") for name, table in zip(names, report.tables, strict=True)
    ]
    _write_pairs(sheets[1], "Contents", ("Sheet", "Table"), [(_NOTES, "How to read the tables"), *contents])
    _write_pairs(sheets[2], "Notes", ("Subject", "Note"), _facts(report))
    for place, (table, name) in enumerate(zip(report.tables, names, strict=True), start=1):
        _write_table(table, place, cast("Worksheet", book.create_sheet(name)))
    book.save(file)


def sheet_names(names: Sequence[str]) -> list[str]:
    """Names that Excel allows, each used once whatever its case.

    >>> sheet_names(["P12", "p12", "a/b", "History", "x" * 40])
    ['P12', 'p12 (2)', 'a-b', 'History (2)', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx']
    """
    taken = {*(name.casefold() for name in (_COVER, _CONTENTS, _NOTES)), "history"}  # Excel keeps the last for itself
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


def _write_cover(report: Report, sheet: Worksheet) -> None:
    """Lines in one column: the title, who publishes it, and what protects people."""
    about = report.letterhead
    said = [
        about.organisation,
        about.period and f"Period: {about.period}",
        about.region and f"Region: {about.region}",
        about.use,
        f"Dataset: {report.dataset}",
        f"Date: {date(report.created)}",
        f"{report.guarantee}, hiding {report.unit}. Numbers carry random noise.",
        about.contact and f"Contact: {about.contact}",
        f"The sheet {_CONTENTS} lists the tables, and {_NOTES} says how to read them.",
    ]
    sheet.column_dimensions["A"].width = 90
    sheet.append([_text(sheet, report.title, size=16)])
    for line in filter(None, said):
        sheet.append([_text(sheet, line, wrap=True)])


def _write_pairs(sheet: Worksheet, title: str, heads: tuple[str, str], pairs: Sequence[tuple[str, str]]) -> None:
    """A sheet with one table of two columns of text."""
    sheet.column_dimensions["A"].width, sheet.column_dimensions["B"].width = 34, 90
    sheet.append([_text(sheet, title, size=16)])
    sheet.append([_text(sheet, "This sheet holds one table.")])
    sheet.append([_text(sheet, head, bold=True) for head in heads])
    for name, value in pairs:
        sheet.append([_text(sheet, name), _text(sheet, value, wrap=True)])
    _mark(sheet, title, heads, len(pairs))


def _mark(sheet: Worksheet, name: str, heads: Sequence[str], rows: int) -> None:
    """Mark the rows below the head of a sheet as a table, which screen readers announce; heads must differ."""
    if not rows:
        return
    made = openpyxl.worksheet.table.Table(displayName=name, ref=f"A{_HEAD}:{_letter(len(heads) - 1)}{_HEAD + rows}")
    for k, head in enumerate(heads, start=1):
        made.tableColumns.append(openpyxl.worksheet.table.TableColumn(id=k, name=head))
    made.autoFilter = openpyxl.worksheet.filters.AutoFilter(ref=made.ref)
    sheet.tables.add(made)  # `add_table` warns in this mode whatever the columns are


def _facts(report: Report) -> list[tuple[str, str]]:
    level = percent(report.level)
    biased = report.kind != "unbiased"
    known: list[tuple[str, str]] = []
    if report.known:
        known.append(("Without noise", f"Counts {listed(report.known)}, and all that follows from them alone."))
    return [
        ("Protection", f"{report.guarantee}, hiding {report.unit}. Numbers carry random noise."),
        *known,
        ("Rows", " ".join(report.counted())),
        ("Estimate", "The number. " + ("It is biased: see the report." if biased else "Noise may make it negative.")),
        ("From, To", f"The true number of what is counted lies between these with a probability of at least {level}."),
        ("Margin", "The same as estimate ± margin, unless the interval reaches further to one side."),
        ("Cells without a number", _MISSING),
        ("From, To, with bins", "The same where only the bins of values are known, and covers noise and bins."),
        ("Share", "Percent of the total of the row’s line in the report, with a margin or an interval of its own."),
        ("Standard deviation", STDDEV),
        ("Reliability", f"{'; '.join(f'{word}: {meaning}' for word, meaning in report.grades)}."),
        ("Rounding", "Every row has the digits that its own noise leaves a meaning; Parquet files have all digits."),
        ("Method", quotable(report)),
        ("Totals", "From the measurements, with margins of their own. Do not add up margins."),
    ]


def _write_table(table: Table, place: int, sheet: Worksheet) -> None:
    """Title, note and header, then one row per number; totals are last."""
    header = ["Estimate", "Margin", "From", "To"]
    header += ["From, with bins", "To, with bins"] if table.bins is not None else []
    header += ["Share, %", "Share margin", "Share from", "Share to"] if table.shares is not None else []
    header += ["Standard deviation", "Reliability"]
    header = [*apart(map(_heading, table.heads), (head.casefold() for head in header)), *header]
    rows = list(_rows_within(table))
    for k, head in enumerate(header):
        texts = [str(row[k]) for row in rows[:_SAMPLE] if k < len(table.attributes)]
        width = max(map(len, [head, *texts])) + 2
        sheet.column_dimensions[_letter(k)].width = min(max(width, 11), _WIDEST)
    cut = f" The first {len(rows):,} rows; all are in {table.name}.csv." if len(rows) < len(table) else ""
    sheet.append([_text(sheet, table.title, size=14)])
    notes = [
        "This sheet holds one table.",
        f"Margins at {percent(table.level)}.",
        table.note,
        None if table.bins is None else BINNED,
    ]
    sheet.append([_text(sheet, " ".join(filter(None, notes)) + cut)])
    sheet.append([_text(sheet, head, bold=True) for head in header])
    for row in rows:
        sheet.append([_cell(sheet, each) for each in row])
    _mark(sheet, f"Table_{place}", header, len(rows))


def _rows_within(table: Table) -> Iterator[list[str | _Value]]:
    """As many rows as a sheet has, then the totals."""
    room = MOST_SHEET_ROWS - _HEAD - (0 if table.totals is None else len(table.totals))
    for row in chain(islice(table.printed(), room), table.printed_totals()):
        numbers, share = row.numbers, None if row.share is None else row.share.numbers
        values: list[Decimal | None]
        values = [None] * 4 if numbers is None else [numbers.estimate, numbers.margin, numbers.lower, numbers.upper]
        values += [] if table.bins is None else row.bins or (None, None)
        if table.shares is not None:
            values += [None] * 4 if share is None else [share.estimate, share.margin, share.lower, share.upper]
        known = numbers is not None and numbers.estimate.is_finite()
        missing = _NOT_RELIABLE if row.grade == "suppressed" else _NOT_APPLICABLE if known else _NOT_AVAILABLE
        yield [*map(shown, row.labels), *(_value(each, missing) for each in [*values, row.stddev]), row.grade]


def _value(value: Decimal | None, missing: str) -> _Value:
    """A number as it was rounded, with a format that shows its digits; or why there is none."""
    if value is None or not value.is_finite():
        return missing, "@"
    digits = max(-int(value.as_tuple().exponent), 0)
    return float(value), f"#,##0.{'0' * digits}" if digits else "#,##0"


def _cell(sheet: Worksheet, value: str | _Value) -> Cell:
    if isinstance(value, str):
        return _label(sheet, value)
    number, form = value
    return _text(sheet, number) if isinstance(number, str) else _number(sheet, number, form)


def _number(sheet: Worksheet, value: float, form: str) -> Cell:
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


def _heading(text: str) -> str:
    """A heading that the column of a marked table may have: one line of at most 250 characters."""
    return _plain(" ".join(text.split()))[:250] or "column"


def _letter(column: int) -> str:
    return openpyxl.utils.get_column_letter(column + 1)


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
