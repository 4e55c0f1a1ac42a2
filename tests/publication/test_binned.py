"""Sums and means of values of which only the bin is known: what their intervals cover is said, and what bins allow."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hdmm import (
    ZCDP,
    Amounts,
    Bins,
    Domain,
    Identity,
    Integers,
    PureDP,
    Strategy,
    Workload,
    from_array,
    load_spec,
    optimize,
    publish,
)
from hdmm.answers.table import BINNED, Table
from hdmm.apps.cli import run
from hdmm.baselines import laplace
from hdmm.measure.measure import measure
from hdmm.publication.answered import answer_table
from hdmm.publication.difference import difference
from hdmm.publication.published import open_published
from hdmm.sql import parse
from tests.publication.test_report import parsed, words
from tests.support.spec_cases import planned

EDGES = [0, 2_000, 10_000, 50_000]
DOMAIN = Domain({"sex": ["M", "F"], "age": Integers(18, 20), "pay": Bins(EDGES, values=[1_500, 9_000, 30_000])})
COUNTS = np.random.default_rng(0).integers(200, 400, DOMAIN.shape)
EXACT = PureDP(10**5)


def table(sql: str, counts: np.ndarray = COUNTS, domain: Domain = DOMAIN, privacy: object = EXACT) -> Table:
    release = measure(Strategy.identity(domain), from_array(domain, counts), privacy, ledger=None)
    (asked,) = parse(domain, sql)
    return answer_table(release, 0.95, asked, totals=True)


def ends_of(amounts: list[float], counts: np.ndarray = COUNTS) -> np.ndarray:
    return (counts.sum(axis=1) * amounts).sum(axis=1)


@pytest.mark.parametrize(
    ("expression", "low", "high"),
    [
        ("pay", EDGES[:-1], EDGES[1:]),
        ("2 * pay - 5", [2 * e - 5 for e in EDGES[:-1]], [2 * e - 5 for e in EDGES[1:]]),
        ("100 - pay", [100 - e for e in EDGES[1:]], [100 - e for e in EDGES[:-1]]),
        ("FLOOR(pay / 5000)", [0, 0, 2], [0, 2, 10]),
        ("CASE WHEN pay < 2000 THEN 7 ELSE pay END", [7, 2_000, 10_000], [7, 10_000, 50_000]),
    ],
)
def test_bounds_are_the_sums_at_the_ends_of_bins(expression: str, low: list[float], high: list[float]) -> None:
    for function, people in (("SUM", 1), ("AVG", COUNTS.sum(axis=(1, 2)))):
        found = table(f"SELECT sex, {function}({expression}) FROM t GROUP BY sex")
        assert found.bins is not None
        assert found.noise_only.all()
        np.testing.assert_allclose(found.bins.lower, ends_of(low) / people, rtol=1e-3, atol=1)
        np.testing.assert_allclose(found.bins.upper, ends_of(high) / people, rtol=1e-3, atol=1)
        assert (found.bins.lower <= found.lower).all()
        assert set(found.notes) == {"noise only"}
        assert not found.reliable.any()


@pytest.mark.parametrize("expression", ["age", "CASE WHEN pay >= 2000 THEN 1 ELSE 0 END", "1"])
def test_what_does_not_depend_on_the_place_in_a_bin_is_graded(expression: str) -> None:
    found = table(f"SELECT sex, SUM({expression}), AVG({expression}) FROM t GROUP BY sex")
    assert found.bins is None
    assert set(found.notes) == {"good"}


def test_other_measures_of_the_table_keep_their_intervals() -> None:
    found = table("SELECT sex, COUNT(*), AVG(pay), MEDIAN(pay), SUM(age) FROM t GROUP BY sex")
    assert found.bins is not None
    assert found.noise_only.tolist() == [False, False, True, True] + [False] * 4
    others = ~found.noise_only
    np.testing.assert_array_equal(found.bins.lower[others], found.lower[others])
    np.testing.assert_array_equal(found.bins.upper[others], found.upper[others])
    count, mean, *_ = found.by_measure()
    assert count.bins is None
    assert mean.bins is not None
    assert found.notes[:4] == ["good", "good", "noise only", "noise only"]


def test_selects_of_a_union_are_bounded_each_for_itself() -> None:
    sql = "SELECT 'pay' AS what, SUM(pay) FROM t UNION ALL SELECT 'age', SUM(age) FROM t"
    found = table(sql)
    assert found.bins is not None
    np.testing.assert_allclose(found.bins.lower, [ends_of(EDGES[:-1]).sum(), found.lower[1]], rtol=1e-3)
    np.testing.assert_allclose(found.bins.upper, [ends_of(EDGES[1:]).sum(), found.upper[1]], rtol=1e-3)


def test_bins_that_begin_at_0_are_bounded() -> None:
    """The lower ends add up to 0, which asks nothing of the data."""
    domain = Domain({"pay": Bins([0, 100], values=[50])})
    found = table("SELECT SUM(pay) FROM t", np.array([1000]), domain)
    assert found.bins is not None
    np.testing.assert_allclose([found.bins.lower[0], found.bins.upper[0]], [0, 100_000], rtol=1e-3)


def test_a_last_bin_without_an_end_to_speak_of_has_no_bounds() -> None:
    """No float holds every integer up to there, so that nothing is asked of the data."""
    domain = Domain({"pay": Bins([0, 100, 1e300], values=[50, 200])})
    found = table("SELECT SUM(pay), AVG(pay) FROM t", np.array([1000, 1000]), domain)
    assert found.bins is not None
    assert np.isinf(found.bins.lower).all()
    assert np.isinf(found.bins.upper).all()
    np.testing.assert_allclose(found.estimate, [250_000, 125], rtol=1e-3)


def test_percentages_of_sums_over_bins_have_no_bounds() -> None:
    release = measure(Strategy.identity(DOMAIN), from_array(DOMAIN, COUNTS), EXACT, ledger=None)
    (asked,) = parse(DOMAIN, "SELECT sex, age, SUM(pay) FROM t GROUP BY sex, age", percent="row")
    found = answer_table(release, 0.95, asked)
    assert found.bins is not None
    assert np.isinf(found.bins.lower).all()
    assert np.isinf(found.bins.upper).all()
    assert set(found.notes) == {"noise only"}


def test_sums_over_bins_have_no_totals_without_bounds() -> None:
    assert table("SELECT sex, SUM(pay) FROM t GROUP BY sex").totals is None
    assert table("SELECT sex, SUM(age) FROM t GROUP BY sex").totals is not None


def test_a_release_that_does_not_tell_the_bins_apart_has_no_bounds() -> None:
    workload = Workload.product(DOMAIN, sex=Identity(), pay=Amounts.of(DOMAIN["pay"]))
    release = measure(laplace(workload), from_array(DOMAIN, COUNTS), EXACT, ledger=None)
    (asked,) = parse(DOMAIN, "SELECT sex, SUM(pay) FROM t GROUP BY sex")
    found = answer_table(release, 0.95, asked)
    assert found.bins is not None
    assert np.isinf(found.bins.upper).all()
    assert set(found.notes) == {"noise only"}
    (sums,) = release.answer(workload).tables()  # from Python, too
    assert sums.bins is not None
    assert set(sums.notes) == {"noise only"}


@pytest.mark.parametrize("kind", ["nonnegative", "integers"])
def test_intervals_with_bins_hold_biased_estimates(kind: str) -> None:
    counts = np.zeros(DOMAIN.shape, dtype=np.int64)
    counts[0, 0, 2] = 3  # all others are raised to 0 where noise takes them below
    release = measure(Strategy.identity(DOMAIN), from_array(DOMAIN, counts), PureDP(1), ledger=None)
    for sql in ("SELECT sex, SUM(pay) FROM t GROUP BY sex", "SELECT sex, COUNT(*), SUM(pay) FROM t GROUP BY sex"):
        (asked,) = parse(DOMAIN, sql)
        found = answer_table(release, 0.95, asked, kind=kind, totals=True)
        assert found.biased
        assert found.bins is not None
        assert np.isfinite(found.bins.upper).all()
        assert (found.bins.lower <= found.lower).all()
        assert (found.lower <= found.estimate).all()
        assert (found.estimate <= found.upper).all()
        assert (found.upper <= found.bins.upper).all()


@pytest.mark.parametrize("privacy", [PureDP(5), ZCDP(5)])
def test_plans_for_sums_over_bins_support_their_bounds(privacy: PureDP | ZCDP) -> None:
    for sql in ("SELECT sex, AVG(pay) FROM t GROUP BY sex", "SELECT SUM(pay) FROM t"):
        (asked,) = parse(DOMAIN, sql)
        plan = optimize(asked.workload, noise=privacy.noise, restarts=1, time_limit=2, progress=False)
        release = plan.measure(from_array(DOMAIN, COUNTS), privacy, ledger=None)
        found = answer_table(release, 0.95, asked)
        assert found.bins is not None
        assert np.isfinite(found.bins.lower).all(), sql


@pytest.mark.parametrize("function", ["SUM", "AVG"])
def test_the_second_interval_covers_the_true_number(function: str) -> None:
    """Where in its bin each value lies is drawn anew, also at the ends; the noise interval misses almost always."""
    rng = np.random.default_rng(1)
    counts = np.array([900, 500, 40])
    domain = Domain({"pay": Bins(EDGES, values=[1_000, 6_000, 30_000])})
    (asked,) = parse(domain, f"SELECT {function}(pay) FROM t")
    release_of = Strategy.identity(domain)
    outside = missed = 0
    for k in range(60):
        low, high = np.array(EDGES[:-1]), np.array(EDGES[1:])
        share = [0.0, 1.0, rng.uniform()][k % 3]
        true = float((counts * (low + share * (high - low))).sum()) / (1 if function == "SUM" else counts.sum())
        found = answer_table(measure(release_of, from_array(domain, counts), PureDP(1), ledger=None), 0.99, asked)
        assert found.bins is not None
        missed += not found.bins.lower[0] <= true <= found.bins.upper[0]
        outside += not found.lower[0] <= true <= found.upper[0]
    assert missed <= 10  # of 60, at 1 % at most each: more by chance of 1e-10
    assert outside >= 40


SPEC = """
[data]
source = "people.parquet"
dataset = "people"

[domain]
sex = ["M", "F"]
hours = { bins = [0, 20, 40, 80], values = [15, 38, 50] }

[[table]]
name = "hours"
marginals = [["sex"]]
mean = ["hours"]
note = "A note."

[[table]]
name = "sexes"
marginals = [["sex"]]

[privacy]
epsilon = 10

[ledger]
path = "budget.db"
cap = { epsilon = 100 }

[output]
folder = "out"
flag = { relative_margin = 0.3 }
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("binned")
    rng = np.random.default_rng(0)
    sex, hours = np.repeat(["M", "F"], 2_000), rng.integers(0, 80, 4_000)
    pq.write_table(pa.table({"sex": sex, "hours": hours}), folder / "people.parquet")
    (folder / "people.toml").write_text(SPEC)
    spec = load_spec(folder / "people.toml")
    return publish(spec, planned(spec)).folder


def test_files_say_what_intervals_cover(published: Path) -> None:
    with open(published / "tables" / "hours.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[1:] == [
        "estimate",
        "stddev",
        "lower",
        "upper",
        "lower_with_bins",
        "upper_with_bins",
        "reliable",
        "note",
    ]
    read = pq.read_table(published / "tables" / "hours.parquet").to_pylist()
    for row, other in zip(rows, read, strict=True):
        assert row["note"] == other["note"] == "noise only"
        assert (row["reliable"], other["reliable"]) == ("no", False)
        assert float(row["lower_with_bins"]) <= other["lower_with_bins"] < other["lower"]
        assert float(row["upper_with_bins"]) >= other["upper_with_bins"] > other["upper"]
        assert other["lower_with_bins"] < 39.5 < other["upper_with_bins"]
    with open(published / "tables" / "sexes.csv", newline="") as file:
        assert "lower_with_bins" not in next(csv.reader(file))


def fields_of(resource: dict[str, Any]) -> dict[str, Any]:
    return {field["name"]: field for field in resource["schema"]["fields"]}


def test_the_page_the_package_and_the_workbook_say_it(published: Path) -> None:
    page = parsed((published / "report.html").read_text(encoding="utf-8"))
    first, second = page.iterfind(".//section[@class='table']")
    assert BINNED in words(first)
    assert BINNED not in words(second)
    heads = [words(each) for each in first.findall(".//thead/tr/th")]
    assert heads[-3:] == ["From, with bins", "To, with bins", "Reliability"]
    assert "noise only" in words(page.find(".//section/h3[@id='grades']/.."))
    contents = [words(row[0]) for row in page.findall(".//table[@class='contents']/tbody/tr")]
    assert contents == ["sexes"]  # an error of the noise alone would not be that of the mean
    stated = json.loads((published / "metadata.json").read_text())["tables"]
    assert [each.get("bins") for each in stated] == [BINNED, None]
    assert [each["rmse"] is None for each in stated] == [True, False]
    package = json.loads((published / "datapackage.json").read_text())
    resource = next(each for each in package["resources"] if each["path"] == "tables/hours.csv")
    assert resource["description"] == f"A note. {BINNED}"
    assert "unbiased" not in fields_of(resource)["estimate"]["description"]  # of a mean, and by bins
    assert "Means, percentages and quantiles are computed" in package["description"]
    fields = fields_of(resource)
    assert "noise and bins" in fields["upper_with_bins"]["description"]
    assert "noise only" in fields["note"]["constraints"]["enum"]
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'hdmm[xlsx]' has openpyxl")
    assert run(["report", str(published.parent / "people.toml"), "--xlsx", "--quiet"]) == 0
    sheet = openpyxl.load_workbook(published / "report.xlsx")["hours"]
    guide = openpyxl.load_workbook(published / "report.xlsx")["Notes"]
    grades = next(row[1].value for row in guide.iter_rows() if row[0].value == "Reliability")
    assert "fair: the margin is at most 30\xa0% of the estimate" in grades  # by the rule of this publication
    assert "noise only" in grades
    assert "impossible" not in grades  # which none is
    assert BINNED in sheet["A2"].value
    assert [cell.value for cell in sheet[3]][5:7] == ["From, with bins", "To, with bins"]
    assert sheet["F4"].value < sheet["D4"].value
    assert sheet["G4"].value > sheet["E4"].value


def test_questions_are_answered_with_the_bounds(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["query", str(published), "SELECT sex, AVG(hours) FROM t GROUP BY sex"],
        ["show", str(published), "hours"],
    ):
        assert run([*arguments, "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["tables"]
        assert found["bins"] == BINNED
        assert all(row["lower_with_bins"] < row["lower"] and row["note"] == "noise only" for row in found["rows"])
        assert run(arguments) == 0
        shown = capsys.readouterr().out
        assert "with bins" in shown
        assert "noise only" in shown


def test_a_difference_of_sums_is_shown_where_neither_noise_nor_bins_explain_it(tmp_path: Path) -> None:
    """Means of 10 and of 60 hours differ wherever in their bins hours lie; those of 30 and 41 need not."""
    found = {}
    for name, hours in {"even": (0, 20, 40), "later": (20, 40, 40), "least": (0, 0, 0), "most": (40, 40, 60)}.items():
        folder = tmp_path / name
        folder.mkdir()
        each = np.tile(hours, 1_000)
        pq.write_table(pa.table({"sex": ["M", "F", "M"] * 1_000, "hours": each}), folder / "people.parquet")
        (folder / "people.toml").write_text(SPEC)
        spec = load_spec(folder / "people.toml")
        found[name] = open_published(publish(spec, planned(spec)).folder)
    near, far = (difference(found[a], found[b]).tables[0] for a, b in (("even", "later"), ("least", "most")))
    assert (near.rows, near.differing) == (2, ())
    assert [row.labels for row in far.differing] in ([("M",), ("F",)], [("F",), ("M",)])
    shown = difference(found["least"], found["most"])
    assert shown.binned == ("hours",)
    assert "Of some values of hours only the bin is known" in shown.meaning
    for row in far.differing:  # the smallest difference that hours in their bins leave is 40 − 20
        assert row.second - row.first - row.margin == pytest.approx(20, abs=2)
    same = difference(found["even"], found["even"])
    assert (same.relation, "bin" in same.meaning, same.tables[0].differing) == ("same", False, ())
