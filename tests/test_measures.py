"""Sums, means, quantiles and percentages in a specification, as they are published."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hdmm
from hdmm import Bins, Spec, SpecError, StrategyError
from hdmm.forecast import as_measured
from hdmm.outlook import table_outlooks
from tests.spec_cases import SPEC, write_csv

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
    spec = loaded(tmp_path, with_tables(MEASURED).replace('epsilon = "0.5"', "epsilon = 4"))
    assert spec.domain["income"].values == Bins([0, 10, 50, 100], values=[5, 30, 75])
    plan = hdmm.optimize(spec.goal, noise=spec.privacy.noise, restarts=1, time_limit=1)
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
        assert lower - (upper - lower) <= value <= upper + (upper - lower), key  # twice as wide: it may miss
    shares = pq.read_table(publication.folder / "tables" / "shares.parquet").to_pylist()  # which has all digits
    of_men = [row for row in shares if row["sex"] == "M"]
    assert [row["smokes"] for row in of_men] == ["0", "1", "other"]
    assert sum(row["estimate"] for row in of_men) == pytest.approx(100)
    assert set(rows["mixed"]) == {(s, m) for s in "MF" for m in ("count", "SUM(age)", "AVG(age)", "MEDIAN(age)")}
    page = (publication.folder / "report.html").read_text()
    for words in ("measured: mean of age", "shares, in percent of the row", "mixed: MEDIAN(age)"):
        assert words in page
    outlook = {each.name: each for each in table_outlooks(spec, as_measured(spec, plan))}
    assert outlook["measured"].worst < 50  # of counts and scaled sums, not of sums of ages
    assert hdmm.load_release(publication.folder / "release").domain == spec.domain


def test_a_mean_of_nobody_is_published_as_unknown(tmp_path: Path) -> None:
    table = {"sex": ["M"] * 500, "age": [7] * 500, "smokes": [1] * 500, "income": [20] * 500}
    write_csv(pa.table(table), tmp_path / "people.csv")
    tables = '[[table]]\nname = "ages"\nmarginals = [["sex"]]\nmean = "age"\n\n[privacy]'
    spec = loaded(tmp_path, with_tables(tables).replace("[output]", "[output]\nlevel = 0.9999"))
    plan = hdmm.optimize(spec.goal, noise=spec.privacy.noise, restarts=1)
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
        _, *rows = csv.reader(file)
    return {tuple(row[:-4]): tuple(map(float, row[-4:])) for row in rows}


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
    assert set(spec.asked) == {"means", "shares"}
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
