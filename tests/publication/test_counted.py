"""Which rows are counted is said wherever numbers are: those of each person up to a number, and of declared values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hdmm import load_spec, publish
from hdmm.apps.cli import run
from hdmm.publication.report import render
from tests.publication.test_report import parsed, report, words
from tests.support.spec_cases import SPEC, planned, prepared

BOUNDED = SPEC.replace('dataset = "people-2026"', 'dataset = "people-2026"\nid = "who"\nmax_rows_per_id = 3')
SAID = "At most 3 rows of each person are counted: others of the same person, and rows that do not say whose they are"


@pytest.mark.parametrize("rows", [1, 3])
def test_dropped_rows_are_said_everywhere(tmp_path: Path, rows: int) -> None:
    text = BOUNDED.replace("max_rows_per_id = 3", f"max_rows_per_id = {rows}")
    spec = load_spec(
        prepared(tmp_path, text.replace('title = "People"', 'title = "People"\nimpossible = ["age = 19"]'))
    )
    folder = publish(spec, planned(spec)).folder
    said = SAID if rows == 3 else SAID.replace("3 rows of each person are", "1 row of each person is")
    outside = "A row with another value, or no value, in any of the others is in no table and in no total."
    impossible = "Nor is a row for which this holds, which was declared impossible: age = 19."
    page = words(parsed((folder / "report.html").read_text(encoding="utf-8")))
    stated = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))["rows"]
    assert stated["max_rows_per_id"] == rows
    package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))["description"]
    texts = [page, stated["meaning"], package]
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'hdmm[xlsx]' has openpyxl")
    assert run(["report", str(tmp_path / "people.toml"), "--xlsx", "--quiet"]) == 0
    guide = openpyxl.load_workbook(folder / "report.xlsx")["Notes"]
    texts.append(next(row[1].value for row in guide.iter_rows() if row[0].value == "Rows"))
    for each in texts:
        assert said in each
        assert outside in each
        assert impossible in each
        assert "“True” numbers are those of the rows that are counted." in each


def test_nothing_is_said_of_persons_where_rows_are_not_bounded() -> None:
    assert "of each person" not in words(parsed(render(report())))
