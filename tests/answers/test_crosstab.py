"""Cross-tabs: totals and percentages come from the release, with margins of their own, and files say what they hold."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hdmm import Domain, PureDP, from_array, load_spec
from hdmm.answers import totals
from hdmm.answers.table import NUMBER_COLUMNS, Table
from hdmm.answers.totals import crossed
from hdmm.apps.cli import run
from hdmm.base.exceptions import SpecError, StrategyError
from hdmm.base.numbers import decimal
from hdmm.baselines import laplace
from hdmm.measure.measure import measure
from hdmm.publication.answered import answer_table, answer_tables
from hdmm.publication.files import write_csv
from hdmm.publication.forecast import forecasts
from hdmm.publication.publish import Publication, publish
from hdmm.publication.report import render, write_workbook
from hdmm.publication.report.workbook import sheet_names
from hdmm.publication.spec.read import read_spec
from hdmm.sql import parse
from hdmm.sql.marginals import marginal_tables
from hdmm.strategy.strategy import Strategy
from tests.publication.test_report import EVIL, ages, everything, parsed, report, table, words
from tests.support.spec_cases import SPEC, planned, prepared

CROSSED = SPEC.replace("marginals = 2", 'marginals = [["sex", "smokes"], ["income"], ["sex", "age"]]')


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Publication:
    spec = load_spec(prepared(tmp_path_factory.mktemp("crossed"), CROSSED))
    return publish(spec, planned(spec))


# Totals and percentages


def test_the_shorter_column_goes_across_and_rows_that_do_not_cross_have_no_cross_tab() -> None:
    assert crossed([(a, b) for a in "xyz" for b in "uv"]).heads == ("u", "v")
    assert crossed([(b, a) for a in "xyz" for b in "uv"]).across == 0  # whatever the order of rows
    assert crossed([("x", "u"), ("x", "v"), ("y", "u")]) is None
    assert crossed([("x",), ("x",)]) is None
    three = crossed([(a, b, c) for a in "xyz" for b in "uv" for c in "pqr"])
    assert (three.across, three.heads, len(three.down)) == (1, ("u", "v"), 9)


def test_totals_are_the_answers_of_the_release(published: Publication) -> None:
    release = published.release
    by_name = {each.name: each for each in published.tables}
    for name, columns in (("pairs_sex_smokes", ("sex", "smokes")), ("P12", ("sex", "age"))):
        found = by_name[name].totals
        numbers = dict(zip(found.labels(), zip(*found.numbers, strict=True), strict=True))
        for column in columns:
            (asked,) = parse(release.domain, f"SELECT {column}, COUNT(*) FROM t GROUP BY {column}")
            answers = release.answer(asked.workload)
            expected = zip(answers.values, answers.stddev, *answers.interval(), strict=True)
            for (label,), row in zip(asked.labels(), expected, strict=True):
                total = tuple(str(label) if each == column else "(all)" for each in columns)
                np.testing.assert_allclose(numbers[total], row, rtol=1e-9)
        (everyone,) = parse(release.domain, "SELECT COUNT(*) FROM t")
        answers = release.answer(everyone.workload)
        np.testing.assert_allclose(numbers["(all)", "(all)"][:2], [answers.values[0], answers.stddev[0]], rtol=1e-9)
        assert numbers["(all)", "(all)"][0] == pytest.approx(by_name[name].estimate.sum())


def test_percentages_are_those_that_a_specification_may_ask_for(published: Publication) -> None:
    found = next(each for each in published.tables if each.name == "pairs_sex_smokes").shares
    release = published.release
    sql = "SELECT smokes, sex, COUNT(*) FROM t GROUP BY smokes, sex"
    (asked,) = parse(release.domain, sql, percent="row")  # sex has fewer values, so it goes across
    answers = release.answer(asked.workload)
    (quotient,) = asked.aggregates
    ratios = answers.ratios(quotient.numerator, quotient.denominator, quotient.factor)
    expected = dict(zip(asked.labels(), zip(ratios.values, *ratios.interval(), strict=True), strict=True))
    for (sex, smokes), *numbers in zip(found.labels(), found.estimate, found.lower, found.upper, strict=True):
        if smokes != "(all)":
            key = next(each for each in expected if tuple(map(str, each)) == (smokes, sex))
            np.testing.assert_allclose(numbers, expected[key], rtol=1e-7)


def test_totals_of_counts_with_noise_of_their_own_are_sums_of_them() -> None:
    """Nothing but the cells was measured, so that a total is their sum, and variances add."""
    domain = Domain({"sex": ["M", "F"], "age": 3})
    (asked,) = marginal_tables(domain, [("sex", "age")])
    release = measure(laplace(asked.workload), from_array(domain, np.full((2, 3), 50)), PureDP(1), ledger=None)
    found = answer_table(release, 0.95, asked, totals=True)
    numbers = dict(zip(found.totals.labels(), zip(*found.totals.numbers, strict=True), strict=True))
    cells = found.estimate.reshape(2, 3)
    assert numbers["(all)", "0"][0] == pytest.approx(cells[:, 0].sum())
    assert numbers["(all)", "0"][1] == pytest.approx(np.sqrt(2) * found.stddev[0])
    assert numbers["(all)", "(all)"][1] == pytest.approx(np.sqrt(6) * found.stddev[0])
    assert len(found.shares) == 8


def test_a_table_without_formulas_is_published_without_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise StrategyError("No formula.")

    domain = Domain({"sex": ["M", "F"], "age": 3})
    (asked,) = marginal_tables(domain, [("sex", "age")])
    release = measure(Strategy.identity(domain), from_array(domain, np.ones((2, 3), int)), PureDP(1), ledger=None)
    monkeypatch.setattr(totals, "evaluated", refused)
    found = answer_table(release, 0.95, asked, totals=True)
    assert found.totals is found.shares is None
    assert len(found) == 6


def test_totals_that_add_up_where_counts_are_whole(tmp_path: Path) -> None:
    text = CROSSED.replace('folder = "out"', 'folder = "out"\ncounts = "integers"')
    spec = load_spec(prepared(tmp_path, text))
    for each in publish(spec, planned(spec)).tables:
        if each.totals is not None:
            whole = dict(zip(each.totals.labels(), each.totals.estimate, strict=True))
            assert whole[("(all)",) * len(each.attributes)] == each.estimate.sum()
            assert ((each.totals.lower <= each.totals.estimate) & (each.totals.estimate <= each.totals.upper)).all()


def test_rows_that_overlap_have_no_totals(tmp_path: Path) -> None:
    union = "SELECT 'all' AS who, COUNT(*) FROM p UNION ALL SELECT 'men', COUNT(*) FROM p WHERE sex = 'M'"
    spec = load_spec(prepared(tmp_path, re.sub(r'sql = ".*?"', f'sql = "{union}"', SPEC, count=1)))
    release = publish(spec, planned(spec)).release
    found = {each.name: each for each in answer_tables(spec, release, forecasts(spec, release.form))}
    assert found["P12"].totals is found["P12"].shares is None
    assert found["ages"].totals is found["ages"].shares is None  # ranges


def test_a_cross_tab_shows_totals_and_percentages(published: Publication) -> None:
    page = parsed((published.folder / "report.html").read_text(encoding="utf-8"))
    shown = next(each for each in page.iter("table") if "sex × smokes" in words(each.find("caption")))
    assert [words(each) for each in shown.findall("thead/tr")[0]] == ["smokes", "sex", "Total"]
    assert words(shown.find("tfoot/tr")[0]) == "Total"
    assert shown.get("data-totals") == "last"
    assert len(shown.findall("tbody/tr")[0].findall(".//span[@class='share']")) == 2
    assert "%" in words(shown.find("tfoot/tr")[1])


# Words from the specification


HEADED = SPEC.replace('folder = "out"', 'folder = "out"\ncolumns = { sex = "Sex", age = "Age in years" }').replace(
    'name = "P12"', 'name = "P12"\nnote = "Ages are <b>completed</b> years."\ncolumns = { sex = "Sex at birth" }'
)


def test_headings_and_notes_are_those_of_the_specification(tmp_path: Path) -> None:
    spec = load_spec(prepared(tmp_path, HEADED))
    done = publish(spec, planned(spec))
    assert done["P12"].heads == ("Sex at birth", "Age in years")
    assert done["pairs_sex_age"].heads == ("Sex", "Age in years")
    assert done["pairs_sex_age"].title.endswith("Sex × Age in years")
    assert done["ages"].heads == ("Age in years from", "Age in years to")
    page = (done.folder / "report.html").read_text(encoding="utf-8")
    assert "Ages are &lt;b&gt;completed&lt;/b&gt; years." in page
    assert ">Sex at birth</th>" in page
    with open(done.folder / "tables" / "P12.csv", newline="", encoding="utf-8") as file:
        assert next(csv.reader(file))[:2] == ["sex", "age"]  # programs read the names


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ('columns = { agee = "Age" }\n[plan]', "output.columns.agee"),
        ('columns = { sex = "" }\n[plan]', "output.columns.sex"),
        ("columns = { sex = 3 }\n[plan]", "output.columns.sex"),
    ],
)
def test_headings_of_nothing_are_refused(given: str, key: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(f"{SPEC.partition('[output]')[0]}[output]\n{given}\n".encode(), Path("people.toml"))
    assert caught.value.key.startswith(key.rpartition(".")[0])
    text = SPEC.replace('name = "P12"', 'name = "P12"\ncolumns = { smokes = "Smokes" }')
    with pytest.raises(SpecError, match="no column 'smokes' in table 'P12'; there are sex, age"):
        read_spec(text.encode(), Path("people.toml"))


# The page


def test_the_example_is_a_row_that_is_easy_to_read() -> None:
    total = table([("M",), ("F",), ("(all)",)], [400.0, 500.0, 900.0], columns=("sex",))
    page = words(parsed(render(report(table([("a",)], [1.0], 5.0), total))))
    assert "“A table” has 500 ± 2 for sex F: the true number lies between 498 and 502." in page


def test_ranges_are_curves() -> None:
    labels = [(str(a), str(b)) for a in range(30) for b in range(a, 30)]
    ranged = table(labels, [float(b) - float(a) + 1 for a, b in map(tuple, labels)], columns=("age_from", "age_to"))
    section = parsed(render(report(ranged))).find(".//section[@class='table']")
    assert [words(each) for each in section.iterfind("figure/p")] == ["Each age", "From the first age up to each"]
    lines = [path.get("d") for path in section.iter("path") if path.get("class") == "estimate"]
    assert [len(re.findall("[ML]", line)) for line in lines] == [30, 30]


def test_labels_are_wrapped_and_not_cut() -> None:
    long = "a label that is far too long for the side of a narrow page"
    section = parsed(render(report(table([(long,), ("short",)])))).find(".//section[@class='table']")
    lines = ["".join(each.itertext()) for each in section.iter("tspan")]
    assert " ".join(lines) == f"{long} short"
    assert max(map(len, lines)) <= 22


def test_rows_beyond_the_page_are_there_for_the_filter() -> None:
    hostile = [(f"{EVIL}\t\n{k}",) for k in range(300)]
    root = parsed(render(report(table(hostile))))
    (more,) = root.iter("pre")
    lines = "".join(more.itertext()).split("\n")
    assert len(lines) == 100
    assert {line.count("\t") for line in lines} == {5}
    assert not list(more)


@pytest.mark.slow
def test_the_filter_finds_rows_in_a_browser(tmp_path: Path) -> None:
    import shutil

    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium on the PATH: install it (Debian: apt install chromium) to test the filter")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install '.[dev]' has playwright")
    labels = [(str(a), str(b)) for a in range(40) for b in range(a, 40)]
    page = tmp_path / "report.html"
    page.write_text(render(report(table(labels, columns=("age_from", "age_to")))), encoding="utf-8")
    with playwright.sync_playwright() as browsers:
        opened = browsers.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        view = opened.new_page(viewport={"width": 390, "height": 900})
        said: list[str] = []
        view.on("console", lambda message: said.append(message.text))
        view.goto(page.as_uri())
        view.fill("#filter-1", "18 36")
        assert view.inner_text("output") == "1 of 820 rows"
        shown = view.locator("#rows-1 tbody tr:visible")
        assert shown.count() == 1
        assert shown.inner_text().split()[:2] == ["18", "36"]
        view.fill("#filter-1", "")
        assert view.locator("#rows-1 tbody tr:visible").count() == 200
        assert view.evaluate("document.documentElement.scrollWidth") == 390
        assert said == []  # the policy lets this script run, and this one alone
        opened.close()


# Files


@pytest.mark.parametrize("scale", [0.003, 1.0, 37.0, 1e5])
def test_csv_has_the_digits_that_the_noise_leaves(scale: float) -> None:
    rng = np.random.default_rng(0)
    stddev = scale * rng.uniform(1, 3, 200)
    made = table(ages(200), 1000 * scale * rng.normal(size=200), stddev)
    file = io.BytesIO()
    write_csv(made, file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue().decode())))
    read = {name: np.array([float(row[name]) for row in rows]) for name in NUMBER_COLUMNS}
    assert (np.abs(read["estimate"] - made.estimate) <= 0.0501 * stddev.min()).all()
    assert ((read["lower"] <= made.lower) & (made.upper <= read["upper"]) & (made.stddev <= read["stddev"])).all()
    assert ((read["lower"] <= read["estimate"]) & (read["estimate"] <= read["upper"])).all()
    assert max(len(row["estimate"].replace("-", "").replace(".", "").lstrip("0")) for row in rows) <= 9


def test_what_is_not_noisy_has_all_its_digits() -> None:
    file = io.BytesIO()
    write_csv(table([("a",)], [1 / 3], 0.0), file)
    assert file.getvalue().splitlines()[1] == b"a,0.3333333333333333,0.0,0.3333333333333333,0.3333333333333333"
    assert str(decimal(-0.0004, 2)) == "0.00"


def test_bins_have_a_column_for_each_end(published: Publication, capsys: pytest.CaptureFixture[str]) -> None:
    path = published.folder / "tables" / "pairs_income"
    with open(path.with_suffix(".csv"), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    read = pq.read_table(path.with_suffix(".parquet")).to_pylist()
    for row, other in zip(rows, read, strict=True):
        if row["income"] == "other":
            assert row["income_from"] == row["income_to"] == ""
            assert other["income_from"] is other["income_to"] is None
        else:
            assert row["income"] == f"[{row['income_from']}, {row['income_to']})"
            assert other["income_from"] == float(row["income_from"]) < other["income_to"]
    assert run(["show", str(published.folder), "pairs_income", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["tables"]
    assert shown["columns"] == ["income"]


def test_the_data_package_describes_every_file(published: Publication) -> None:
    """The rules of Data Package, Data Resource and Table Schema, version 1, and what the files hold."""
    package = json.loads((published.folder / "datapackage.json").read_text(encoding="utf-8"))
    resources = package["resources"]
    names = [each["name"] for each in resources]
    assert len(set(names)) == len(names) > 0
    assert all(re.fullmatch(r"[a-z0-9._-]+", name) for name in names)
    paths = {each["path"] for each in resources}
    assert paths == {f"tables/{path.name}" for path in (published.folder / "tables").iterdir()}
    for each in resources:
        content = (published.folder / each["path"]).read_bytes()
        assert each["bytes"] == len(content)
        assert each["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert each["profile"] in ("data-resource", "tabular-data-resource")
        if each["format"] == "csv":
            _check_table(each, content.decode(each["encoding"]))


def _check_table(resource: dict[str, object], text: str) -> None:
    schema = resource["schema"]
    fields = schema["fields"]  # type: ignore[index]
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == [field["name"] for field in fields]
    assert [field["role"] for field in fields][-4:] == ["estimate", "stddev", "margin", "margin"]
    assert all(field["description"] for field in fields)
    assert schema["missingValues"] == [""]  # type: ignore[index]
    for row in rows[1:]:
        for field, value in zip(fields, row, strict=True):
            assert field["type"] in ("string", "number")
            if field["type"] == "number" and value != "":
                assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", value)


def test_reliability_is_in_the_data_package(tmp_path: Path) -> None:
    text = SPEC.replace('folder = "out"', 'folder = "out"\nflag = { relative_margin = 0.5 }')
    spec = load_spec(prepared(tmp_path, text))
    done = publish(spec, planned(spec))
    package = json.loads((done.folder / "datapackage.json").read_text(encoding="utf-8"))
    reliable, note = package["resources"][0]["schema"]["fields"][-2:]
    assert (reliable["type"], reliable["trueValues"], reliable["falseValues"]) == ("boolean", ["yes"], ["no"])
    with open(done.folder / "tables" / "P12.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert row["reliable"] in ("yes", "no")
            assert row["note"] in note["constraints"]["enum"]


# Excel


def workbook(*tables: Table) -> object:
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'hdmm[xlsx]' has openpyxl")
    file = io.BytesIO()
    write_workbook(report(*tables), file)
    return openpyxl.load_workbook(io.BytesIO(file.getvalue()))


def test_a_workbook_has_a_sheet_per_table_and_one_on_how_to_read_it() -> None:
    made = replace(table([("18",), ("F",)], [-3.26, 1234.5], 1.414, columns=("who",)), note="A note.")
    book = workbook(made, everything().tables[5])
    assert book.sheetnames == ["Cover", "Contents", "Notes", "a-table", "a-table (2)"]
    sheet = book["a-table"]
    assert [cell.value for cell in sheet[3]] == [
        *("who", "Estimate", "Margin", "From", "To", "Standard deviation", "Reliability")
    ]
    assert [cell.value for cell in sheet[4]] == [18, -3.3, 2.9, -6.2, -0.4, 1.42, "rough"]
    assert sheet["B5"].number_format == "#,##0.0"
    assert "A note." in sheet["A2"].value
    assert any("probability of at least 95" in str(row[1].value) for row in book["Notes"].iter_rows())


def test_a_workbook_is_accessible() -> None:
    """One marked table per sheet, no merged or blank cells inside, no frozen panes; a missing number has a reason."""
    wide = replace(table([("M",), ("F",)], [1.0, 2.0], columns=("Estimate",)), upper=np.array([9.0, 4.0]))
    book = workbook(wide, everything().tables[4])
    for sheet in book.worksheets:
        assert sheet["A1"].value
        assert not sheet.merged_cells.ranges
        assert sheet.freeze_panes is None
        marked = list(sheet.tables.values())
        assert len(marked) == (sheet.title != "Cover")
        for each in marked:
            rows = [[cell.value for cell in row] for row in sheet[each.ref]]
            assert [column.name for column in each.tableColumns] == rows[0]
            assert len(set(rows[0])) == len(rows[0])
            assert all(value not in (None, "") for row in rows for value in row)
            assert each.ref.endswith(str(sheet.max_row))
    assert book["a-table"]["C4"].value == "[z]"
    assert any("not applicable" in str(row[1].value) for row in book["Notes"].iter_rows())


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-x", "@SUM(A1)", "=HYPERLINK(1)", "#N/A", "\x01\ud800=1", "\t=1"])
def test_labels_are_never_formulas(text: str) -> None:
    """O2: whatever a label begins with, Excel reads it as text."""
    made = replace(table([(text,)], columns=(text,), title=text), note=text)
    book = workbook(made)
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                assert cell.data_type in ("s", "n", "inlineStr")
    label = book["a-table"]["A4"]
    assert label.value.endswith(text[-2:])
    assert label.quotePrefix


def test_sheet_names_are_legal_and_different() -> None:
    names = sheet_names(["NOTES", "a:b", "a?b", "x" * 50, "X" * 40, "", "'q'"])
    assert len({name.casefold() for name in names}) == 7
    assert all(0 < len(name) <= 31 and not re.search(r"[\[\]:*?/\\]", name) for name in names)
    assert "notes" not in {name.casefold() for name in names}


def test_report_writes_a_workbook_if_asked(published: Publication, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openpyxl", reason="pip install 'hdmm[xlsx]' has openpyxl")
    spec = published.folder.parent / "people.toml"
    assert run(["report", str(spec), "--xlsx", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert Path(written["workbook"]) == published.folder / "report.xlsx"
    assert (published.folder / "report.xlsx").stat().st_size > 1000
    (published.folder / "report.xlsx").unlink()


def test_a_missing_openpyxl_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hdmm.publication.report.workbook.find_spec", lambda _: None)
    with pytest.raises(Exception, match=r"pip install 'hdmm\[xlsx\]'"):
        write_workbook(report(), io.BytesIO())
