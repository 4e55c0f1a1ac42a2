"""A release is asked after it was published: answers with margins, without data and without budget."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest

from hdmm import Workload, load_release, load_spec, publish
from hdmm.apps.cli import run
from hdmm.base.numbers import LEVEL
from tests.support.spec_cases import SPEC, planned, prepared

Captured = pytest.CaptureFixture[str]
MARGINALS = SPEC.replace("marginals = 2", 'marginals = [["sex", "smokes"], ["income"]]').replace("weight = 2", "")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder, and nothing else: neither data nor ledger."""
    folder = tmp_path_factory.mktemp("published")
    spec = load_spec(prepared(folder, MARGINALS))
    out = publish(spec, planned(spec)).folder
    return Path(shutil.copytree(out, tmp_path_factory.mktemp("alone") / "out"))


def told(capsys: Captured) -> dict[str, object]:
    return json.loads(capsys.readouterr().out)


def test_a_query_is_answered_with_margins_from_the_release_alone(published: Path, capsys: Captured) -> None:
    sql = "SELECT sex, COUNT(*) FROM people WHERE age >= 10 GROUP BY sex"
    assert run(["query", str(published), sql, "--json"]) == 0
    found = told(capsys)
    release = load_release(published / "release")
    expected = release.answer(Workload.sql(release.domain, sql))
    (table,) = found["tables"]  # type: ignore[misc]
    assert [row["sex"] for row in table["rows"]] == ["M", "F"]
    for key, numbers in zip(
        ("estimate", "stddev", "lower", "upper"),
        (expected.values, expected.stddev, *expected.interval()),
        strict=True,
    ):
        np.testing.assert_allclose([row[key] for row in table["rows"]], numbers)
    assert found["privacy"]["epsilon"] == "1/2"  # type: ignore[index]
    assert sorted(path.name for path in published.iterdir()) == [
        "datapackage.json",
        "metadata.json",
        "plan",
        "release",
        "report.html",
        "tables",
    ]


def test_a_query_prints_a_table_for_people(published: Path, capsys: Captured) -> None:
    assert (
        run(["query", str(published), "SELECT age, COUNT(*) FROM t GROUP BY age", "--rows", "3", "--level", "0.8"]) == 0
    )
    shown = capsys.readouterr().out
    assert "20 rows, intervals of 80 %" in shown
    assert "… 17 more rows" in shown
    assert "nothing was spent" in shown


def test_csv_has_every_row_and_nothing_else(published: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["query", str(published), "SELECT age, COUNT(*) FROM t GROUP BY age", "--csv"]) == 0
    rows = list(csv.reader(io.StringIO(capfdbinary.readouterr().out.decode())))
    assert rows[0] == ["age", "estimate", "stddev", "lower", "upper"]
    assert [row[0] for row in rows[1:]] == [str(age) for age in range(20)]


def test_a_table_is_shown_as_it_was_published(published: Path, capsys: Captured) -> None:
    assert run(["show", str(published), "P12", "--json"]) == 0
    (table,) = told(capsys)["tables"]  # type: ignore[misc]
    with open(published / "tables" / "P12.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["age"] for row in table["rows"]] == [row["age"] for row in written]
    upper = np.array([row["upper"] for row in table["rows"]])  # from Parquet, with all digits
    rounded = np.array([float(row["upper"]) for row in written])
    assert ((upper <= rounded) & (rounded < upper + 0.2)).all()  # the estimate as it is shown ± the margin


def test_a_table_is_shown_under_its_title(tmp_path: Path, capsys: Captured) -> None:
    """Whoever sees 49.86 must see that it is a percentage."""
    table = '[[table]]\nname = "share"\nmarginals = [["sex", "smokes"]]\npercent = "row"\n\n[privacy]'
    folder = publish(spec := load_spec(prepared(tmp_path, MARGINALS.replace("[privacy]", table))), planned(spec)).folder
    assert run(["show", str(folder), "share"]) == 0
    assert "in percent of the row" in capsys.readouterr().out


def test_columns_are_shown_as_counts(published: Path, capsys: Captured) -> None:
    assert run(["show", str(published), "sex, smokes", "--json"]) == 0
    (table,) = told(capsys)["tables"]  # type: ignore[misc]
    assert [(row["sex"], row["smokes"]) for row in table["rows"]][:3] == [("M", "0"), ("M", "1"), ("M", "other")]
    assert run(["show", str(published), "total", "--json"]) == 0
    (table,) = told(capsys)["tables"]  # type: ignore[misc]
    assert len(table["rows"]) == 1
    assert run(["show", str(published / "release"), "sex", "--quiet"]) == 0


def test_what_there_is_to_show(published: Path, capsys: Captured) -> None:
    assert run(["show", str(published)]) == 0
    shown = capsys.readouterr().out
    assert "Tables: P12, pairs_sex_smokes, pairs_income, ages" in shown
    assert "Columns: sex, age, smokes, income" in shown


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT age, COUNT(*) FROM t WHERE income < 10 GROUP BY age", "age × income were not measured together"),
        ("SELECT region, COUNT(*) FROM t GROUP BY region", "region"),
        ("SELECT MAX(age) FROM t", "MAX"),
    ],
)
def test_what_was_not_measured_is_said(published: Path, capsys: Captured, sql: str, words: str) -> None:
    assert run(["query", str(published), sql]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


def test_an_unsupported_query_lists_what_was_measured(published: Path, capsys: Captured) -> None:
    assert run(["show", str(published), "age,income"]) == 1
    error = capsys.readouterr().err
    assert "It measured" in error
    assert "release a table of these" in error


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "{out}", "P13"], 1, "neither a published table nor a list of columns"),
        (["show", "{out}", "P12", "--level", "0.5"], 1, f"published with intervals of {LEVEL}"),
        (["show", "nowhere", "P12"], 1, "There is no release in nowhere"),
        (["query", "{out}", "SELECT COUNT(*) FROM t", "--csv", "--json"], 2, "one table"),
        (["query", "{out}", "SELECT COUNT(*) FROM t; SELECT COUNT(*) FROM t", "--csv"], 2, "one table"),
        (["query", "{out}", "SELECT COUNT(*) FROM t", "--level", "1"], 2, "--level"),
    ],
)
def test_wrong_questions(published: Path, capsys: Captured, arguments: list[str], code: int, words: str) -> None:
    assert run([argument.format(out=published) for argument in arguments]) == code
    assert words in capsys.readouterr().err


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder with impossible cells, whole numbers, and a rule about unreliable counts."""
    folder = tmp_path_factory.mktemp("marked")
    text = MARGINALS.replace('title = "People"', 'title = "People"\nimpossible = ["age < 5 AND sex = \'M\'"]').replace(
        'folder = "out"', 'folder = "out"\ncounts = "integers"\nsuppress = { relative_margin = 0.5 }'
    )
    spec = load_spec(prepared(folder, text))
    return publish(spec, planned(spec)).folder


def test_impossible_cells_stay_out_of_answers_and_are_marked(marked: Path, capsys: Captured) -> None:
    assert (
        run(["query", str(marked), "SELECT sex, age, COUNT(*) FROM t WHERE age < 7 GROUP BY sex, age", "--json"]) == 0
    )
    rows = told(capsys)["tables"][0]["rows"]  # type: ignore[index]
    for row in rows:
        assert (row["stddev"] == 0) == (row["sex"] == "M" and int(row["age"]) < 5)
    assert run(["show", str(marked), "sex,age", "--json"]) == 0
    shown = told(capsys)["tables"][0]["rows"]  # type: ignore[index]
    for one, other in zip((row for row in shown if int(row["age"]) < 7), rows, strict=True):
        assert one == {key: pytest.approx(value) if key == "estimate" else ANY for key, value in other.items()}
    stated = json.loads((marked / "metadata.json").read_text())
    assert stated["impossible"] == ["age < 5 AND sex = 'M'"]
    assert [table.get("impossible_rows") for table in stated["tables"]] == [5, None, None, None]
    with open(marked / "tables" / "P12.csv", newline="") as file:
        notes = {(row["sex"], row["age"]): row["note"] for row in csv.DictReader(file)}
    assert {key for key, note in notes.items() if note == "impossible"} == {("M", str(age)) for age in range(5)}
    assert "no record can be counted here" in (marked / "report.html").read_text()


def test_a_shown_table_says_what_was_suppressed_and_that_it_is_biased(
    marked: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["show", str(marked), "P12", "--json"]) == 0
    table = json.loads(capfdbinary.readouterr().out)["tables"][0]
    assert table["columns"] == ["sex", "age"]
    assert table["biased"] is True
    assert None in [row["estimate"] for row in table["rows"]]
    assert run(["show", str(marked), "P12"]) == 0
    printed = capfdbinary.readouterr().out.decode()
    assert "biased estimate" in printed
    assert "suppressed" in printed
    assert "whole numbers that are not below 0" in printed
    assert run(["show", str(marked), "P12", "--csv"]) == 0
    assert capfdbinary.readouterr().out == (marked / "tables" / "P12.csv").read_bytes()


def test_what_may_not_exist_is_unknown_to_programs_too(published: Path, capsys: Captured) -> None:
    sql = "SELECT AVG(age) FROM t WHERE age = 19 AND sex = 'F'"
    assert run(["query", str(published), sql, "--json", "--level", "0.999999999999"]) == 0
    (row,) = told(capsys)["tables"][0]["rows"]  # type: ignore[index]
    assert row["estimate"] is None


def test_a_label_column_may_have_the_name_of_a_column_of_bins(tmp_path: Path, capsys: Captured) -> None:
    text = MARGINALS.replace("SELECT sex, age, COUNT(*)", "SELECT sex AS lower_with_bins, age, COUNT(*)")
    spec = load_spec(prepared(tmp_path, text))
    folder = publish(spec, planned(spec)).folder
    assert run(["show", str(folder), "P12", "--json"]) == 0
    (table,) = told(capsys)["tables"]  # type: ignore[misc]
    assert table["columns"] == ["lower_with_bins", "age"]
    assert table["rows"][0]["lower_with_bins"] == "M"


def test_answers_are_graded_as_the_report_does(published: Path, marked: Path, capsys: Captured) -> None:
    sql = "SELECT sex, age, COUNT(*) FROM t GROUP BY sex, age"
    assert run(["query", str(published), sql, "--json"]) == 0
    rows = told(capsys)["tables"][0]["rows"]  # type: ignore[index]
    for row in rows:
        margin, size = max(row["upper"] - row["estimate"], row["estimate"] - row["lower"]), abs(row["estimate"])
        grade = "good" if margin <= 0.1 * size else "fair" if margin <= 0.3 * size else "rough"
        assert row["note"] == ("may be 0" if row["lower"] <= 0 <= row["upper"] else grade)
        assert row["reliable"] == (margin <= 0.3 * size)
    assert "may be 0" in {row["note"] for row in rows}
    assert run(["query", str(published), sql]) == 0
    shown = capsys.readouterr().out
    assert "reliability" in shown
    assert "may be 0: the interval includes 0" in shown
    assert run(["show", str(published), "P12", "--json"]) == 0
    assert {row["note"] for row in told(capsys)["tables"][0]["rows"]} >= {"may be 0"}  # type: ignore[index]
    assert run(["query", str(marked), "SELECT sex, COUNT(*) FROM t GROUP BY sex", "--json"]) == 0
    for row in told(capsys)["tables"][0]["rows"]:  # type: ignore[index]
        assert row["reliable"] == (row["upper"] - row["estimate"] <= 0.5 * row["estimate"])  # the rule of that report
    assert run(["show", str(marked), "P12", "--json"]) == 0
    notes = [(row["estimate"], row["note"]) for row in told(capsys)["tables"][0]["rows"]]  # type: ignore[index]
    assert all((estimate is None) == (note == "suppressed") for estimate, note in notes)
