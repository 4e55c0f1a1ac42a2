"""Papers of an office: letterhead, titles, method, changes, combined publications, the registry, and SDMX."""

from __future__ import annotations

import base64
import csv
import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from hdmm import Workload, load_release, load_spec
from hdmm.apps.cli import run
from hdmm.base.exceptions import SpecError
from hdmm.publication.registry import TO_FILL_IN
from tests.publication.test_report import parsed, words
from tests.support.spec_cases import SPEC, planned, prepared, write_spec

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"><script>alert(1)</script></svg>'
REPORT = """
[report]
organisation = "Office of <Numbers>"
contact = "numbers@example.org"
period = "January 2026"
region = "Our town"
use = "To plan schools."
logo = "logo.svg"
"""
TITLED = SPEC.replace(
    "marginals = 2\nweight = 2",
    'marginals = [["sex", "age"], ["income"]]\ntitles = ["Women and men by age", "Incomes"]',
)
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a publication that has a letterhead, in out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logo.svg").write_bytes(SVG)
    spec = load_spec(prepared(tmp_path, TITLED.replace('folder = "out"', 'folder = "out"\nsdmx = true') + REPORT))
    planned(spec).save(spec.plan.folder)
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    return tmp_path


def test_the_report_says_who_publishes_what(folder: Path) -> None:
    html = (folder / "out" / "report.html").read_text()
    page = parsed(html)
    said = words(page)
    for text in ("Office of <Numbers>", "numbers@example.org", "Period: January 2026", "Region: Our town"):
        assert text in said
    (logo,) = page.iter("img")
    assert logo.get("src") == f"data:image/svg+xml;base64,{base64.b64encode(SVG).decode()}"
    assert "alert(1)" not in html
    assert [words(each) for each in page.iterfind(".//section[@class='table']/h2/bdi")] == [
        "Sex by age",
        "Women and men by age",
        "Incomes",
        "ages",
    ]
    quoted = words(next(page.iter("blockquote")))
    facts = json.loads((folder / "out" / "metadata.json").read_text())
    for text in (
        "McKenna, Miklau, Hay and Machanavajjhala",
        "ε = 0.5",
        "neighbours if they differ by one row added or removed",
        "discrete Laplace noise",
        "weighted least squares",
        facts["receipt"]["hash"],
        facts["specification"]["sha256"],
        facts["versions"]["hdmm"],
    ):
        assert text in quoted
    assert facts["publisher"]["period"] == "January 2026"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), (b"text", "not a picture"), (b"\x89PNG\r\n\x1a\n" + bytes(2**20), "more than")],
)
def test_what_is_not_a_logo_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "logo.svg").write_bytes(content)
    with pytest.raises(SpecError, match=message) as refused:
        load_spec(write_spec(tmp_path, SPEC + REPORT))
    assert refused.value.key == "report.logo"


@pytest.mark.parametrize("titles", ['["one"]', '["one", "two", "three"]', "[]"])
def test_each_set_needs_its_title(tmp_path: Path, titles: str) -> None:
    with pytest.raises(SpecError, match="a title of each"):
        load_spec(write_spec(tmp_path, TITLED.replace('["Women and men by age", "Incomes"]', titles)))
    with pytest.raises(SpecError, match="a title of each"):
        load_spec(write_spec(tmp_path, SPEC.replace("weight = 2", 'titles = ["a", "b", "c", "d", "e", "f"]')))


def test_the_report_shows_changes_and_a_workbook_has_a_cover(folder: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'hdmm[xlsx]' has openpyxl")
    next_month = ["people.toml", "--output", "next"]
    assert run(["release", *next_month, "--yes", "--quiet"]) == 0
    assert run(["report", *next_month, "--since", "out", "--xlsx", "--quiet"]) == 0
    page = parsed((folder / "next" / "report.html").read_text())
    section = page.find(".//section[@aria-labelledby='changes']")
    assert section is not None
    assert "The releases have independent noise" in words(section)
    tables = section.find(".//table")
    assert tables is not None
    compared = {words(row[0]): words(row[1]) for row in tables.iterfind("tbody/tr")}
    assert compared["Women and men by age"] == "40"
    assert compared["Sex by age"] == "40"
    assert "Changes since" not in (folder / "out" / "report.html").read_text()
    cover = [row[0].value for row in openpyxl.load_workbook(folder / "next" / "report.xlsx")["Cover"].iter_rows()]
    assert {"Office of <Numbers>", "Period: January 2026", "Contact: numbers@example.org"} <= set(cover)
    assert run(["report", *next_month, "--since", "nowhere", "--quiet"]) == 1


def test_the_registry_gets_a_record_of_its_third_tier(folder: Path, capsys: Captured) -> None:
    assert run(["report", "people.toml", "--registry"]) == 0
    assert TO_FILL_IN in capsys.readouterr().out
    text = (folder / "out" / "registry.yaml").read_text()
    record = yaml.safe_load(text)
    schema = json.loads((Path(__file__).parent / "registry_schema.json").read_text())
    jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker()).validate(record)
    deployment = record["deployment"]
    assert deployment["administrative"]["tier"] == 3
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.5}
    assert deployment["basic"]["data_curators"][0]["data_curator_name"] == "Office of <Numbers>"
    release = load_release(folder / "out" / "release")
    total = release.answer(Workload.marginals(release.domain, k=0)).values[0]
    assert deployment["privacy_loss"]["number_of_privacy_units"] == max(round(float(total)), 0)
    checked = [line.split(":")[0].strip() for line in text.splitlines() if "# TO CHECK: " in line]
    assert checked == [
        *("data_curator_type", "data_product_sector", "trust_assumptions", "data_source_type"),
        "preprocessing_and_hyperparameter_tuning",
    ]
    assert deployment["implementation"]["justification"] == TO_FILL_IN  # why this budget, which no file says
    for part, properties in schema["properties"]["deployment"]["properties"].items():
        assert set(deployment[part]) == set(properties["properties"]), part  # a record of this tier leaves nothing out
    assert run(["release", "people.toml", "--force", "--yes", "--quiet"]) == 0  # what hdmm wrote may be replaced


def test_files_have_the_status_of_sdmx(folder: Path) -> None:
    with (folder / "out" / "tables" / "P12.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["CONF_STATUS"] for row in rows} == {"F"}
    assert {row["OBS_STATUS"] for row in rows} <= {"A", "U"}
    for row in rows:
        margin = float(row["upper"]) - float(row["estimate"])
        most = 0.3 * abs(float(row["estimate"]))  # of a fair number
        if abs(margin - most) > 0.15 * margin:  # numbers are rounded
            assert (row["OBS_STATUS"] == "A") == (margin < most)


def test_releases_of_the_same_rows_are_published_as_one(folder: Path, capsys: Captured) -> None:
    assert run(["release", "people.toml", "--output", "again", "--yes", "--quiet"]) == 0
    assert run(["combine", "out", "again", "--output", "both", "--spec", "people.toml", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["privacy"]["epsilon"] == "1"

    def margins(where: str) -> list[float]:
        assert run(["show", where, "P12", "--json"]) == 0
        (table,) = json.loads(capsys.readouterr().out)["tables"]
        return [row["stddev"] for row in table["rows"]]

    assert all(b == pytest.approx(a / 2**0.5) for a, b in zip(margins("out"), margins("both"), strict=True))
    page = words(parsed((folder / "both" / "report.html").read_text()))
    assert "ε = 1 spent" in page
    facts = json.loads((folder / "both" / "metadata.json").read_text())
    first, second = (each["sequence"] for each in facts["combined_from"])
    assert f"entries {first} and {second} of the ledger" in page
    assert first < second
    assert run(["combine", "out", "again", "--output", "both", "--spec", "people.toml"]) == 1  # it is there already
    assert run(["combine", "out", "again", "--output", "both", "--spec", "people.toml", "--force", "--quiet"]) == 0
    assert run(["combine", "out", "again", "--output", "plain", "--quiet"]) == 0
    assert run(["show", "plain", "sex"]) == 0
    assert run(["combine", "out", "out", "--output", "twice"]) == 1
    assert not (folder / "twice").exists()
    assert run(["combine", "out", "again", "--output", "plain", "--force"]) == 2
