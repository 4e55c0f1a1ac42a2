"""The columns of a table are in the order in which they were listed, whatever the order of the domain."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hdmm import Publication, Spec, load_spec, publish
from hdmm.apps.cli import run
from tests.publication.test_report import parsed, words
from tests.support.spec_cases import planned

SPEC = """
[data]
source = "people.parquet"
dataset = "people"

[domain]
sex = ["M", "F"]
age = { first = 0, last = 2 }
district = { labels = ["north", "south", "west"], levels = { side = ["cold", "warm", "warm"] } }

TABLES

[privacy]
epsilon = 50

[ledger]
path = "budget.db"
cap = { epsilon = 1000 }

[output]
folder = "out"
"""
COUNTS = np.array([[[300, 40, 500], [10, 20, 30], [3, 2, 1]], [[700, 60, 90], [11, 21, 31], [6, 5, 4]]])


def loaded(folder: Path, tables: str) -> Spec:
    sex, age, district = (each.ravel() for each in np.indices(COUNTS.shape))
    rows = np.repeat(np.arange(COUNTS.size), COUNTS.ravel())
    names = np.array(["north", "south", "west"])[district[rows]]
    table = {"sex": np.array(["M", "F"])[sex[rows]], "age": age[rows], "district": names}
    pq.write_table(pa.table(table), folder / "people.parquet")
    (folder / "people.toml").write_text(SPEC.replace("TABLES", tables))
    return load_spec(folder / "people.toml")


def published(folder: Path, tables: str) -> Publication:
    spec = loaded(folder, tables)
    return publish(spec, planned(spec))


def test_percentages_are_of_the_rows_that_were_listed(tmp_path: Path) -> None:
    """The table "Women and men in each district" has the share of women in each district, not the reverse."""
    found = published(tmp_path, '[[table]]\nname = "s"\nmarginals = [["district", "sex"]]\npercent = "row"\n')
    (table,) = found.tables
    assert table.attributes == ("district", "sex")
    by_district = COUNTS.sum(axis=1).T  # district by sex
    expected = 100 * by_district / by_district.sum(axis=1, keepdims=True)
    assert list(table.labels()) == [(d, s) for d in ("north", "south", "west") for s in ("M", "F")]
    np.testing.assert_allclose(table.estimate, expected.ravel(), atol=3)
    np.testing.assert_allclose(table.estimate.reshape(3, 2).sum(axis=1), 100)
    page = parsed((found.folder / "report.html").read_text(encoding="utf-8"))
    shown = next(each for each in page.iter("table") if "in percent of the row" in words(each.find("caption")))
    assert [words(each) for each in shown.find("thead/tr")] == ["district", "sex"]
    assert shown.get("data-totals") is None  # no column looks like a total


@pytest.mark.parametrize("listed", [["district", "sex"], ["district", "age", "sex"], ["age", "sex"], ["sex", "side"]])
def test_counts_by_listed_columns_are_those_of_their_labels(tmp_path: Path, listed: list[str]) -> None:
    found = published(tmp_path, f'[[table]]\nname = "t"\nmarginals = [{json.dumps(listed)}, ["sex"]]\n')
    table = found.tables[0]
    assert table.name == "t_" + "_".join(listed)
    assert table.title == "t: " + " × ".join(listed)
    assert table.attributes == tuple(listed)
    values = {"sex": ["M", "F"], "age": ["0", "1", "2"], "district": ["north", "south", "west"]}
    side = {"north": "cold", "south": "warm", "west": "warm"}
    expected: dict[tuple[str, ...], int] = {}
    for (s, a, d), count in np.ndenumerate(COUNTS):
        cell = {"sex": values["sex"][s], "age": values["age"][a], "district": values["district"][d]}
        cell["side"] = side[cell["district"]]
        key = tuple(cell[name] for name in listed)
        expected[key] = expected.get(key, 0) + count
    labels = list(table.labels())
    order = {**values, "side": ["cold", "warm"]}
    assert labels == sorted(expected, key=lambda row: [order[n].index(x) for n, x in zip(listed, row, strict=True)])
    np.testing.assert_allclose(table.estimate, [expected[row] for row in labels], atol=5)
    for totals in filter(None, (table.totals,)):
        for row, number in zip(totals.labels(), totals.estimate, strict=True):
            kept = [
                count
                for key, count in expected.items()
                if all(a in ("(all)", b) for a, b in zip(row, key, strict=True))
            ]
            assert number == pytest.approx(sum(kept), abs=5)
    with open(found.folder / "tables" / f"{table.name}.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head[: len(listed)] == listed
    assert [tuple(row[: len(listed)]) for row in rows] == labels
    stated = json.loads((found.folder / "metadata.json").read_text())["tables"][0]
    assert stated["columns"] == listed


def test_levels_of_one_attribute_may_stand_apart(tmp_path: Path) -> None:
    found = published(tmp_path, '[[table]]\nname = "t"\nmarginals = [["district", "sex", "side"]]\n')
    (table,) = found.tables
    assert table.attributes == ("district", "sex", "side")
    numbers = dict(zip(table.labels(), table.estimate, strict=True))
    assert numbers["north", "F", "cold"] == pytest.approx(COUNTS[1, :, 0].sum(), abs=5)
    assert numbers["west", "M", "warm"] == pytest.approx(COUNTS[0, :, 2].sum(), abs=5)


def test_ranges_keep_the_order_too(tmp_path: Path) -> None:
    found = published(tmp_path, '[[table]]\nname = "t"\nmarginals = [["district", "age"]]\nranges = ["age"]\n')
    (table,) = found.tables
    assert table.attributes == ("district", "age_from", "age_to")
    numbers = dict(zip(table.labels(), table.estimate, strict=True))
    assert numbers["south", "1", "2"] == pytest.approx(COUNTS[:, 1:, 1].sum(), abs=5)


def test_ranges_may_be_listed_first(tmp_path: Path) -> None:
    (table,) = published(tmp_path, RANGES).tables
    assert table.attributes == ("age_from", "age_to", "sex")
    numbers = dict(zip(table.labels(), table.estimate, strict=True))
    assert numbers["0", "1", "F"] == pytest.approx(COUNTS[1, :2].sum(), abs=5)


RANGES = '[[table]]\nname = "t"\nmarginals = [["age", "sex"]]\nranges = ["age"]\n'


def test_impossible_cells_keep_the_order(tmp_path: Path) -> None:
    spec = loaded(tmp_path, f'{RANGES}\n[[table]]\nname = "u"\nmarginals = [["district", "sex"]]\n')
    path = tmp_path / "people.toml"
    path.write_text("impossible = [\"age = 2 AND sex = 'M'\"]\n" + path.read_text())
    spec = load_spec(path)
    found = publish(spec, planned(spec))
    ranged, plain = found.tables
    numbers = dict(zip(ranged.labels(), ranged.estimate, strict=True))
    assert numbers["1", "2", "M"] == pytest.approx(COUNTS[0, 1].sum(), abs=5)
    assert [row for row, zero in zip(ranged.labels(), ranged.impossible, strict=True) if zero] == [("2", "2", "M")]
    assert plain.attributes == ("district", "sex")
    assert [row[0] for row in plain.labels()] == ["north", "north", "south", "south", "west", "west"]


def test_sql_has_rows_in_the_order_of_its_columns(tmp_path: Path) -> None:
    sql = "SELECT district, sex, COUNT(*), SUM(age) FROM p WHERE age < 2 GROUP BY ROLLUP(district, sex)"
    found = published(tmp_path, f'[[table]]\nname = "t"\nsql = "{sql}"\n')
    (table,) = found.tables
    labels = list(table.labels())
    groups = [(d, s) for d in ("north", "south", "west") for s in ("M", "F")]
    assert [row[:2] for row in labels[:6]] == groups
    numbers = dict(zip(labels, table.estimate, strict=True))
    assert len(numbers) == 20
    for d, s in groups:
        i, j = ["north", "south", "west"].index(d), ["M", "F"].index(s)
        assert numbers[d, s, "count"] == pytest.approx(COUNTS[j, :2, i].sum(), abs=5)
        assert numbers[d, s, "SUM(age)"] == pytest.approx(COUNTS[j, 1, i], abs=5)
    assert (
        run(["query", str(found.folder), "SELECT district, sex, COUNT(*) FROM p GROUP BY sex, district", "--json"]) == 0
    )


def test_asked_columns_are_shown_in_the_order_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = published(tmp_path, '[[table]]\nname = "t"\nmarginals = [["sex", "district"]]\n')
    assert run(["show", str(found.folder), "district,sex", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["tables"]
    assert shown["columns"] == ["district", "sex"]
    assert [(row["district"], row["sex"]) for row in shown["rows"]][:3] == [
        ("north", "M"),
        ("north", "F"),
        ("south", "M"),
    ]
    assert run(["show", str(found.folder), "district,district,sex", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["columns"] == ["district", "sex"]


def test_the_workbook_and_the_plan_have_the_listed_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'hdmm[xlsx]' has openpyxl")
    found = published(tmp_path, '[[table]]\nname = "t"\nmarginals = [["district", "sex"], ["age"]]\n')
    assert run(["report", str(tmp_path / "people.toml"), "--xlsx", "--quiet"]) == 0
    sheet = openpyxl.load_workbook(found.folder / "report.xlsx")["t_district_sex"]
    assert [cell.value for cell in sheet[3]][:2] == ["district", "sex"]
    assert [[cell.value for cell in row][:2] for row in sheet.iter_rows(4, 6)] == [
        ["north", "M"],
        ["north", "F"],
        ["south", "M"],
    ]
    assert run(["check", str(tmp_path / "people.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["columns"] == ["district", "sex"]
