"""A table says the same in every form: on the page, in the workbook, in CSV and Parquet, in a terminal, in plots."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hdmm import load_spec
from hdmm.answers.margins import Reliability
from hdmm.answers.table import BinBounds, PrintedRow, Table
from hdmm.apps.cli import run
from hdmm.describe.table_column import TableColumn, named_columns
from hdmm.publication.files import write_csv, write_parquet
from hdmm.publication.publish import publish
from hdmm.publication.report import render
from tests.answers.test_charts import records
from tests.answers.test_crosstab import workbook
from tests.publication.test_report import parsed, report, words
from tests.support.spec_cases import SPEC, planned, prepared

SEX, AGE = ("F", "M"), ("old", "young")
BLANKS = (None, "", "–")


def suppressing() -> Table:
    """A cross-tab in which a count, a total and the percentage of another count are suppressed."""
    rule = Reliability(suppress=0.5, written=True)

    def made(labels: list[tuple[str, ...]], numbers: list[float], margins: list[float]) -> Table:
        value, margin = np.array(numbers), np.array(margins)
        ends = (value - margin, value + margin)
        return Table(
            "t", "T", named_columns("sex", "age"), lambda: labels, value, margin / 2, *ends, 0.95, reliability=rule
        )

    cells = [(sex, age) for sex in SEX for age in AGE]
    totals = [(sex, "(all)") for sex in SEX] + [("(all)", age) for age in (*AGE, "(all)")]
    counts = made(cells, [101, 202, 303, 404], [90, 11, 12, 13])
    sums = made(totals, [1303, 1707, 1404, 1606, 3010], [14, 1500, 15, 16, 17])
    lines = [(sex, age) for sex in (*SEX, "(all)") for age in AGE]
    shares = made(lines, [51.1, 52.2, 53.3, 54.4, 55.5, 56.6], [1, 1, 49, 1, 1, 1])
    return replace(counts, totals=sums, shares=shares)


def binned() -> Table:
    """Means of bins: the interval with bins ends far from that of the noise, just outside it, nowhere, or with it."""
    value, margin = np.array([40.0, 40.123, 40.0, 40.0]), 0.0251 * np.ones(4)
    lower, upper = value - margin, value + margin
    bins = BinBounds(
        np.array([30.0, lower[1] - 1e-6, -np.inf, lower[3]]), np.array([52.0, upper[1] + 1e-6, np.inf, upper[3]])
    )
    labels = [(word,) for word in ("far", "near", "open", "same")]
    return Table("t", "T", named_columns("sex"), lambda: labels, value, margin / 2, lower, upper, 0.95, bins=bins)


def printed(table: Table) -> list[PrintedRow]:
    return [*table.printed(), *table.printed_totals()]


def test_what_is_suppressed_is_in_no_form() -> None:
    table = suppressing()
    gone = ["101", "1707", "1,707", "53.3"]
    there = ["303", "1303", "1,303", "404", "52.2", "54.4"]
    assert [row.numbers is None for row in printed(table)] == [k in (0, 5) for k in range(9)]
    assert all(row.share is None for row in printed(table) if row.numbers is None)
    page = words(parsed(render(report(table))))
    cells = [cell.value for row in workbook(table)["t"].iter_rows(4) for cell in row]
    sheet = " ".join(map(str, cells))
    text, binary = io.BytesIO(), io.BytesIO()
    write_csv(table, text)
    write_parquet(table, binary)
    files = text.getvalue().decode() + str(pq.read_table(binary).to_pylist())
    for form in (page, sheet, files, str(table), str(table.plot().to_dict())):
        assert not [number for number in gone if number in form]
    for form in (page, sheet):
        assert {number.replace(",", "") for number in there if number in form} == {n for n in there if "," not in n}
        assert "51.1" not in form  # the percentage of a count that is suppressed


def test_a_suppressed_total_is_blank_with_its_percentage() -> None:
    table = suppressing()
    table = replace(table, totals=replace(table.totals, lower=table.totals.estimate - 9e9))
    assert {row.share for row in table.printed_totals()} == {None}
    page = parsed(render(report(table)))
    foot = [words(cell) for cell in page.findall(".//section[@class='table']//tfoot//td")]
    assert foot == ["– suppressed"] * 3
    rows = list(workbook(table)["t"].iter_rows(8, values_only=True))
    assert [row[2:8] for row in rows] == [("[u]",) * 6] * 5


def test_the_interval_with_bins_holds_that_of_the_noise_in_every_form() -> None:
    table = binned()
    assert table.notes == ["noise only"] * 3 + ["good"]
    for row in table.printed():
        assert row.numbers is not None
        assert row.bins is not None
        assert row.bins[0] <= row.numbers.lower <= row.numbers.upper <= row.bins[1]
    text, binary = io.BytesIO(), io.BytesIO()
    write_csv(table, text)
    write_parquet(table, binary)
    rows = list(csv.DictReader(io.StringIO(text.getvalue().decode())))
    sheet = workbook(table)["t"].iter_rows(4, values_only=True)
    page = parsed(render(report(table))).findall(".//section[@class='table']//tbody/tr")
    for row, exact, line, shown in zip(rows, pq.read_table(binary).to_pylist(), sheet, page, strict=True):
        assert Decimal(row["lower_with_bins"]) <= Decimal(row["lower"]) < Decimal(row["upper"])
        assert Decimal(row["upper"]) <= Decimal(row["upper_with_bins"])
        assert exact["lower_with_bins"] <= exact["lower"] < exact["upper"] <= exact["upper_with_bins"]
        cells = [words(cell) for cell in shown][1:]
        for k, name in ((2, "lower"), (3, "upper"), (4, "lower_with_bins"), (5, "upper_with_bins")):
            assert cells[k].replace("−", "-").replace("∞", "inf").replace("- ", "-") == row[name]
            assert line[k + 1] == ("[z]" if "inf" in row[name] else float(row[name]))


def test_plots_draw_the_interval_with_bins() -> None:
    table = binned()
    figure = parsed(render(report(table))).find(".//section[@class='table']/figure")
    assert figure is not None
    drawn = {kind: figure.findall(f".//line[@class='{kind}']") for kind in ("outer", "whisker")}
    places = [[[float(line.get(end, "").rstrip("%")) for end in ("x1", "x2")] for line in drawn[k]] for k in drawn]
    for (least, most), (low, high) in zip(*places, strict=True):
        assert least <= low < high <= most
    assert places[0][2] == [0, 100]  # unbounded: to both edges
    assert "interval with bins" in words(figure.find("figcaption"))
    chart = table.plot().to_dict()
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["bar", "rule", "rule"]
    ends = [(row["lower_with_bins"], row["upper_with_bins"]) for row in records(chart, 0)]
    assert ends[0] == (30.0, 52.0)
    assert ends[2] == (None, None)
    assert "also cover where in their bins" in " ".join(chart["title"]["subtitle"])


@pytest.mark.parametrize("rows", [30, 70])
def test_long_plots_draw_it_too(rows: int) -> None:
    """A curve along a scale has a line at either end, and points have a thin whisker each."""
    value = 100.0 + np.arange(rows)
    labels = [(str(k),) for k in range(rows)]
    ends = {str(k): (k, k) for k in range(rows)}
    for columns in ((TableColumn("age", ends=lambda: ends),), named_columns("place")):
        bins = BinBounds(value - 9, value + 20)
        made = Table("t", "T", columns, lambda: labels, value, value / 99, value - 3, value + 3, 0.95, bins=bins)
        picture = parsed(render(report(made))).find(".//section[@class='table']/figure")
        assert len(picture.findall(".//*[@class='outer']")) == (rows if rows <= 60 else 1)
        fields = [layer["encoding"] for layer in made.plot().to_dict()["layer"]]
        assert "lower_with_bins" in str(fields)


def test_a_published_table_is_shown_under_its_headings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SPEC.replace('name = "P12"', 'name = "P12"\ncolumns = { sex = "Gender" }')
    done = publish(spec := load_spec(prepared(tmp_path, text)), planned(spec))
    assert pq.read_schema(done.folder / "tables" / "P12.parquet").names[:2] == ["sex", "age"]
    assert run(["show", str(done.folder), "P12"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["Gender", "age", "estimate"]
