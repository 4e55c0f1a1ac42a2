"""Sums, means, quantiles and percentages in a specification, as they are published."""

from __future__ import annotations

import csv
import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hdmm
from hdmm import Bins, Spec, SpecError, StrategyError
from hdmm.answers.margins import half_width
from hdmm.apps.cli import run
from hdmm.base.numbers import LEVEL
from hdmm.publication.outlook import outlook
from tests.publication.test_report import parsed, words
from tests.support.spec_cases import SPEC, planned, write_csv

BINS = "income = { bins = [0, 10, 50, 100], values = [5, 30, 75] }"
MEASURED = """
[[table]]
name = "measured"
marginals = [["sex"]]
sum = "age"
mean = ["age", "income"]
quantiles = { age = [0.1, 0.5, 0.9] }

[[table]]
name = "shares"
marginals = [["sex", "smokes"]]
percent = "row"

[[table]]
name = "mixed"
sql = "SELECT sex, COUNT(*), SUM(age), AVG(age), MEDIAN(age) FROM people WHERE smokes = 1 GROUP BY sex"

[[table]]
name = "quartiles"
quantiles = ["income"]

[privacy]"""


def loaded(folder: Path, text: str) -> Spec:
    (folder / "people.toml").write_text(text)
    return hdmm.load_spec(folder / "people.toml")


def with_tables(tables: str) -> str:
    start, _, rest = SPEC.replace("income = { bins = [0, 10, 50, 100] }", BINS).partition("[[table]]")
    return start + tables.lstrip() + rest[rest.index("[privacy]") + len("[privacy]") :]


def test_what_is_asked_for_is_published(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sex = rng.choice(np.array(["M", "F"]), 4000)
    age, smokes, income = rng.integers(0, 20, 4000), rng.integers(0, 2, 4000), rng.integers(0, 100, 4000)
    write_csv(pa.table({"sex": sex, "age": age, "smokes": smokes, "income": income}), tmp_path / "people.csv")
    text = with_tables(MEASURED).replace('epsilon = "4"', "epsilon = 40").replace('epsilon = "0.5"', "epsilon = 40")
    spec = loaded(tmp_path, text)
    assert spec.domain["income"].values == Bins([0, 10, 50, 100], values=[5, 30, 75])
    plan = planned(spec)
    publication = hdmm.publish(spec, plan)
    rows = {name: _rows(publication.folder / "tables" / f"{name}.csv") for name in ("measured", "shares", "mixed")}
    men = sex == "M"
    known = {
        ("M", "sum of age"): age[men].sum(),
        ("M", "mean of age"): age[men].mean(),
        ("M", "mean of income"): np.array([5, 30, 75])[np.digitize(income[men], [10, 50])].mean(),
        ("M", "quantile 0.1 of age"): np.quantile(age[men], 0.1, method="inverted_cdf"),
        ("F", "quantile 0.9 of age"): np.quantile(age[~men], 0.9, method="inverted_cdf"),
    }
    for key, value in known.items():
        _, _, lower, upper = rows["measured"][key]
        wide = 2.5 * (upper - lower)  # six margins of 95 %, beyond which Laplace noise lies with a chance of 2e-8
        assert lower - wide <= value <= upper + wide, key
    shares = pq.read_table(publication.folder / "tables" / "shares.parquet").to_pylist()  # which has all digits
    of_men = [row for row in shares if row["sex"] == "M"]
    assert [row["smokes"] for row in of_men] == ["0", "1", "other"]
    assert sum(row["estimate"] for row in of_men) == pytest.approx(100)
    assert set(rows["mixed"]) == {(s, m) for s in "MF" for m in ("count", "SUM(age)", "AVG(age)", "MEDIAN(age)")}
    page = (publication.folder / "report.html").read_text()
    for title in ("measured: mean of age", "shares, in percent of the row", "mixed: MEDIAN(age)"):
        assert title in page
    promised = {each.table: each for each in outlook(spec, plan).tables}
    assert all(each.typical is each.worst is None for each in promised.values())  # they depend on the data
    assert hdmm.load_release(publication.folder / "release").domain == spec.domain


def test_a_mean_of_nobody_is_published_as_unknown(tmp_path: Path) -> None:
    table = {"sex": ["M"] * 500, "age": [7] * 500, "smokes": [1] * 500, "income": [20] * 500}
    write_csv(pa.table(table), tmp_path / "people.csv")
    tables = '[[table]]\nname = "ages"\nmarginals = [["sex"]]\nmean = "age"\n\n[privacy]'
    spec = loaded(tmp_path, with_tables(tables).replace("[output]", "[output]\nlevel = 0.99999999"))
    plan = planned(spec)
    publication = hdmm.publish(spec, plan)
    (ages,) = publication.tables
    np.testing.assert_array_equal(ages.unknown, [False, True])
    estimate, error, lower, upper = _rows(publication.folder / "tables" / "ages.csv")["F",]
    assert math.isnan(estimate)
    assert (error, lower, upper) == (math.inf, -math.inf, math.inf)
    assert "the group may be empty" in (publication.folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('mean = ["sex"]', "'M' is not a number"),
        ('mean = ["agee"]', "Did you mean 'age'"),
        ('sum = ["age", "age"]', "named twice"),
        ('quantiles = ["sex"]', "sex has no order"),
        ("quantiles = { age = [1.5] }", "not between 0 and 1"),
        ("quantiles = { age = [] }", "a list of different numbers"),
        ('mean = ["age"]\nranges = ["age"]', "Ranges overlap"),
        ('percent = "row"\nranges = ["age"]', "Ranges overlap"),
        ('percent = "row"\nmarginals = [["sex"]]', 'Use percent = "column"'),
        ('percent = "all"\nmarginals = [["sex"]]', "percent"),
        ('percent = "row"\nmean = ["age"]', "Percentages are of counts"),
        ('percent = "total"\nmarginals = [["sex", "age"]]\nmargin = 5', "depend on the data"),
        ('mean = ["age"]\nsql = "SELECT COUNT(*) FROM t"', "needs sql, or else"),
        ('percent = "total"\nsql = "SELECT sex, AVG(age) FROM t GROUP BY sex"', "Percentages are of one"),
    ],
)
def test_what_does_not_exist_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        loaded(tmp_path, with_tables(f'[[table]]\nname = "x"\n{keys}\n\n[privacy]'))


@pytest.mark.parametrize("values", ["[1, 2]", "[1, 2, nan]"])
def test_bins_need_as_many_values(tmp_path: Path, values: str) -> None:
    with pytest.raises(SpecError, match=r"values|value"):
        loaded(tmp_path, with_tables(MEASURED).replace("[5, 30, 75]", values))
    with pytest.raises(SpecError, match="Declare one number per bin"):
        loaded(tmp_path, with_tables(MEASURED).replace(", values = [5, 30, 75]", ""))


def test_no_plan_aims_at_the_margin_of_a_mean(tmp_path: Path) -> None:
    with pytest.raises(StrategyError, match="depend on the data"):
        loaded(tmp_path, with_tables(MEASURED)).aiming({"shares": 5})


def _rows(path: Path) -> dict[tuple[str, ...], tuple[float, ...]]:
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    k = head.index("estimate")
    return {tuple(row[:k]): tuple(map(float, row[k : k + 4])) for row in rows}


EACH = """
[[table]]
name = "means"
mean = ["age"]
quantiles = ["income"]
marginals = [0, 1]

[[table]]
name = "shares"
percent = "total"
marginals = 2

[privacy]
"""


def test_every_set_of_attributes_is_a_table(tmp_path: Path) -> None:
    spec = loaded(tmp_path, with_tables(EACH))
    names = [table.name for table in spec.tables]
    assert names[:3] == ["means_total", "means_sex", "means_age"]
    assert "shares_sex_age" in names
    assert len(names) == 5 + 6
    assert spec.tables[1].columns == ("sex", "measure")
    assert spec.tables[1].title == "means: sex"
    assert set(spec.groups) == {"means", "shares"}
    with pytest.raises(SpecError, match='Use percent = "column"'):
        loaded(tmp_path, with_tables(EACH.replace('"total"\nmarginals = 2', '"row"\nmarginals = [1, 2]')))


def test_groups_of_means_and_percentages_may_be_levels(tmp_path: Path) -> None:
    text = (
        with_tables(EACH)
        .replace("marginals = [0, 1]", 'marginals = [["half"]]')
        .replace("marginals = 2", 'marginals = [["half", "sex"]]')
    )
    halves = ", ".join(["'young'"] * 10 + ["'old'"] * 10)
    spec = loaded(tmp_path, text.replace("last = 19 }", f"last = 19, levels = {{ half = [{halves}] }} }}"))
    means, shares = spec.tables
    assert [row[0] for row in means.labels()][:2] == ["young", "old"]
    assert shares.columns == ("half", "sex")
    assert shares.rows == 4


EXPECTED = """
[[table]]
name = "ages"
marginals = [["sex"]]
mean = ["age"]
EXPECTED

[[table]]
name = "shares"
marginals = [["sex", "smokes"]]
percent = "row"
EXPECTED

[[table]]
name = "medians"
quantiles = ["age"]
EXPECTED

[[table]]
name = "both"
sql = "SELECT sex, COUNT(*), SUM(age) FROM people GROUP BY sex"

[[table]]
name = "sexes"
marginals = [["sex"]]

[privacy]"""


@pytest.mark.parametrize("expected", [None, 900])
def test_errors_told_are_of_what_is_published(
    tmp_path: Path, expected: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Means and percentages at the group size that is expected; what depends on the data is left out."""
    cells = list(product(["M", "F"], range(20), [0, 1, None], [5, 30, 75]))
    rows = [cell for cell in cells for _ in range(15)]  # every value is equally common; 900 of each sex and smokes
    names = ("sex", "age", "smokes", "income")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    write_csv(pa.table({**columns, "smokes": pa.array(columns["smokes"], pa.int64())}), tmp_path / "people.csv")
    line = "" if expected is None else f"expected = {expected}"
    spec = loaded(tmp_path, with_tables(EXPECTED.replace("EXPECTED", line)).replace('"0.5"', "1"))
    plan = planned(spec)
    done = hdmm.publish(spec, plan)
    promised = {each.table: each for each in outlook(spec, plan).tables}
    told = {each.name: each for each in done.forecasts}
    found = {each.name: each for each in done.tables}
    stated = {each["name"]: each for each in json.loads((done.folder / "metadata.json").read_text())["tables"]}
    assert promised["both"].typical is told["both"].rmse is None  # counts and sums have no common unit
    assert promised["both"].worst == pytest.approx(half_width(found["both"].stddev.max(), LEVEL, spec.privacy.noise))
    assert told["sexes"].rmse == pytest.approx(np.sqrt((found["sexes"].stddev ** 2).mean()))
    size = {"ages": 2700, "shares": 900, "medians": 5400}  # what the data has, of which fewer are expected of means
    for name in ("ages", "shares", "medians"):
        assert (promised[name].worst is None) == (told[name].rmse is None) == (expected is None)
        assert stated[name]["rmse"] == told[name].rmse
        if expected is not None and name == "medians":  # the files have the width of an interval of whole years
            assert promised[name].worst < found[name].stddev.max() * size[name] / 900 * 3
        elif expected is not None:
            assert told[name].assumed == stated[name]["rmse_assumes"] == 900
            assert told[name].rmse == pytest.approx(found[name].stddev.mean() * size[name] / 900, rel=0.1)
            worst = half_width(found[name].stddev.max() * size[name] / 900, LEVEL, spec.privacy.noise)
            assert promised[name].worst == pytest.approx(worst, rel=0.15)
    page = parsed((done.folder / "report.html").read_text(encoding="utf-8"))
    listed = [words(row[0]) for row in page.findall(".//table[@class='contents']/tbody/tr")]
    assert [each for each in listed if "both" in each] == []
    assert len(listed) == (1 if expected is None else 6)
    assert sum("at counts of 900, all values equally common" in each for each in listed) == (
        0 if expected is None else 5
    )
    assert run(["plan", str(tmp_path / "people.toml"), "--json"]) == 0
    margins = {each["table"]: each for each in json.loads(capsys.readouterr().out)["margins"]}
    assert (margins["medians"]["worst"] is None) == (margins["medians"]["typical"] is None) == (expected is None)
    assert margins["ages"]["assumed"] is True
    assert run(["plan", str(tmp_path / "people.toml")]) == 0
    assert "depend on the data" in capsys.readouterr().out
