"""Every row is rounded by its own noise, and ± says the same as From and To: on the page, in files, in a terminal."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hdmm.answers.table import Table
from hdmm.base.numbers import decimal, places, rounded_row
from hdmm.describe.table_column import named_columns
from hdmm.publication.files import write_csv
from hdmm.publication.report import render
from hdmm.publication.report.rows_shown import rows
from tests.answers.test_crosstab import workbook
from tests.publication.test_report import ages, parsed, report, table, words

finite = st.floats(-1e12, 1e12)


@given(finite, st.floats(1e-6, 1e9), st.floats(0, 5), st.floats(0, 5), st.booleans())
@example(84.815, 1.15, 2.08, 2.167, False)
@example(-3.26, 1.414, 2.0, 2.0, False)
@example(5.0, 3.0, 5 / 3, 2.0, True)
@example(1.1125369292536007e-308, 0.0078125, 1e-06, 1e-06, False)
def test_what_is_shown_agrees_and_is_never_narrower(
    estimate: float, stddev: float, below: float, above: float, whole: bool
) -> None:
    estimate = float(round(estimate)) if whole else estimate
    lower, upper = estimate - below * stddev, estimate + above * stddev
    row = rounded_row(estimate, stddev, lower, upper, whole=whole)
    assert Fraction(row.lower) <= Fraction(repr(lower))
    assert Fraction(repr(upper)) <= Fraction(row.upper)
    assert row.lower <= row.estimate <= row.upper
    assert Fraction(repr(stddev)) <= Fraction(row.stddev)
    unit = Fraction(10) ** -row.places
    if row.margin is not None:
        assert (row.lower, row.upper) == (row.estimate - row.margin, row.estimate + row.margin)
    assert Fraction(repr(lower)) - Fraction(row.lower) <= 3 * unit
    assert Fraction(row.upper) - Fraction(repr(upper)) <= 3 * unit
    assert lower < 0 or row.lower >= 0  # what cannot be below 0 is not said to be
    if whole:
        assert row.estimate == Decimal(int(estimate))


@given(st.floats(1e-7, 1e12))
def test_rounding_takes_at_most_a_twentieth_of_the_noise(stddev: float) -> None:
    digits = places(stddev)
    assert digits is not None
    assert 10.0**-digits <= 0.1001 * stddev or digits == 0
    assert 10.0**-digits >= 0.0099 * stddev or digits == 0
    assert digits >= 0 or stddev >= 1000


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ((33.683, 14.8, 2.223, 65.143), ("34", "± 32", "2", "66")),
        ((84.815, 1.15, 82.41, 87.307), ("84.8", "± 2.6", "82.2", "87.4")),
        ((84.815, 1.15, 82.1, 87.307), ("84.8", "", "82.1", "87.4")),
        ((1_234_567.8, 34_567.0, 1_160_960.1, 1_308_175.5), ("1,235,000", "± 75,000", "1,160,000", "1,310,000")),
        ((4.4, 3.1, 0.0, 11.2), ("4.4", "", "0.0", "11.2")),
        ((27.0, 0.0, 27.0, 27.0), ("27", "± 0", "27", "27")),
        ((27.0, 0.47, 26.0, 28.0), ("27", "± 1", "26", "28")),
        ((38.2113, 0.0678, 38.0671, 38.3555), ("38.211", "± 0.145", "38.066", "38.356")),
        ((float("nan"), float("inf"), float("-inf"), float("inf")), ("–", "", "−∞", "∞")),
    ],
)
def test_rows_read_as_people_write_them(numbers: tuple[float, ...], shown: tuple[str, ...]) -> None:
    estimate, stddev, lower, upper = (np.array([each, each]) for each in numbers)
    one = Table("t", "T", named_columns("a"), lambda: [("x",), ("y",)], estimate, stddev, lower, upper, 0.95)
    assert [(row.estimate, row.margin, row.lower, row.upper) for row in rows(one)] == [shown, shown]


def uneven() -> Table:
    """Rows whose noise differs by four orders of magnitude, one of them with an interval that is cut at 0."""
    made = table(ages(4), [1_234_567.8, 33.683, 0.51234, 4.4], [34_567.0, 14.8, 0.0123, 3.1], columns=("age",))
    made.lower[3] = 0.0
    return made


def test_page_workbook_files_and_terminal_show_the_same_numbers() -> None:
    made = uneven()
    page = parsed(render(report(made)))
    cells = [[words(cell) for cell in row][1:5] for row in page.findall(".//section[@class='table']//tbody/tr")]
    plain = [
        [each.replace("− ", "-").replace("−", "-").replace(",", "").removeprefix("± ") for each in row] for row in cells
    ]
    assert [row[1] == "" for row in plain] == [False, False, False, True]
    sheet = workbook(made)["a-table"]
    for row, line in zip(plain, sheet.iter_rows(4, 7), strict=True):
        assert ["[z]" if each == "" else float(each) for each in row] == [cell.value for cell in line[1:5]]
        for text, cell in zip(row, line[1:5], strict=True):
            digits = len(text.partition(".")[2])
            assert cell.value == "[z]" or cell.number_format == ("#,##0." + "0" * digits if digits else "#,##0")
    file = io.BytesIO()
    write_csv(made, file)
    for row, line in zip(plain, csv.DictReader(io.StringIO(file.getvalue().decode())), strict=True):
        assert [row[0], row[2], row[3]] == [line["estimate"], line["lower"], line["upper"]]
    printed = [re.split(r"\s{2,}", line)[1:] for line in str(made).splitlines()[1:]]
    assert [[each.replace(",", "") for each in row] for row in printed] == [[r[0], r[2], r[3]] for r in plain]
    heads = page.find(".//section[@class='table']//thead/tr")
    assert [cell.get("class") for cell in heads][3:5] == ["number", "number"]  # From and To stay on narrow screens


def test_the_example_says_the_same_twice() -> None:
    made = table([("M",)], [84.815], 1.15, columns=("sex",))
    made.lower[:] = 82.1
    text = words(parsed(render(report(made))))
    assert "has 84.8 (82.1 to 87.2) for sex M: the true number lies between 82.1 and 87.2." in text


@pytest.mark.parametrize(("estimates", "shown"), [([48.0, 73.0], "± 3"), ([48.5, 73.0], "± 2.5")])
def test_the_typical_margin_of_whole_numbers_is_whole(estimates: list[float], shown: str) -> None:
    """As of medians, which were listed with ± 7.0 beside ± 7 in their own table."""
    made = table(ages(2), estimates, 1.25)
    assert shown in [words(cell) for cell in parsed(render(report(made))).findall(".//table[@class='summary']//td")]


def test_decimals_are_exact() -> None:
    assert f"{decimal(1e22, -3):f}" == "1" + "0" * 22
    assert decimal(0.5, 0) == 0
    assert str(decimal(-0.4, 0)) == "0"


def test_what_is_known_is_shown_without_noise_whatever_rounding_leaves_of_it() -> None:
    """A total of two counts that are known together was shown as 530.000000000 ± 0.000000180, or 260.00 ± 0.01."""
    for exact in (2, None):
        row = rounded_row(259.9999999999999, 0.0, 259.99999999999994, 260.00000000000006, exact=exact)
        assert [str(each) for each in (row.estimate, row.margin, row.lower, row.upper)] == ["260", "0", "260", "260"]
