"""hdmm diff: two publications beside each other, and what of their differences noise explains."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hdmm import load_release, load_spec
from hdmm.answers.margins import half_width
from hdmm.apps.cli import run
from hdmm.measure.combine import combine
from hdmm.privacy.guarantee import Noise
from hdmm.publication.difference import RowDifference, difference
from hdmm.publication.published import open_published
from tests.support.spec_cases import SPEC, people, planned, prepared

Captured = pytest.CaptureFixture[str]
PRECISE = SPEC.replace('epsilon = "0.5"', 'epsilon = "200"').replace('epsilon = "4"', 'epsilon = "1000"')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def released(text: str = SPEC, *outputs: str, more: tuple[str, ...] = ()) -> None:
    spec = load_spec(prepared(Path(), text))
    planned(spec).save(spec.plan.folder)
    for output in outputs:
        assert run(["release", "people.toml", "--yes", "--quiet", "--output", output, *more]) == 0


def told(capsys: Captured, *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert run(["diff", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_two_releases_of_the_same_people_differ_by_noise_only(folder: Path, capsys: Captured) -> None:
    released(SPEC, "one", "two")
    found = told(capsys, "one", "two", "--level", "0.9999999999")
    assert (found["relation"], found["only_first"], found["only_second"]) == ("independent", [], [])
    assert found["together"]["epsilon"] == "1"  # type: ignore[index]
    assert all(table["differing"] == [] for table in found["tables"])  # type: ignore[union-attr]
    assert found["tables"][0]["rows"] == 40  # type: ignore[index]
    assert run(["diff", "one", "two", "--level", "0.9999999999"]) == 0
    out = capsys.readouterr().out
    assert (
        "one: ε = 0.5 (pure differential privacy), hiding one row added or removed, record 3 of 'people-2026'." in out
    )
    assert "together they spend ε = 1" in out
    assert "No estimate differs by more than its margin." in out
    assert max(map(len, out.split("Tables in both:")[1].splitlines())) <= 80


def test_the_joint_margin_is_that_of_independent_noise(folder: Path) -> None:
    released(SPEC, "one", "two")
    one, two = (open_published(Path(name)) for name in ("one", "two"))
    for level in (0.05, 0.5):
        table = difference(one, two, level=level).tables[0]
        read = [pq.read_table(f"{name}/tables/P12.parquet").to_pydict() for name in ("one", "two")]
        estimates, errors = ([np.array(each[key]) for each in read] for key in ("estimate", "stddev"))
        margin = half_width(np.hypot(*errors), level, Noise.LAPLACE)
        expected = np.abs(estimates[0] - estimates[1]) > margin
        assert len(table.differing) == expected.sum()
        assert expected.sum() > 0
        shown = {row.margin for row in table.differing}
        assert all(np.isclose(margin, each).any() for each in shown)


def test_differences_have_the_digits_that_their_noise_leaves() -> None:
    """All had one place: a change of 0.43 ± 0.06 percent as 0.4 ± 0.1, and sums of millions with tenths."""
    rows = [(49.255, 49.685, 0.0612), (-21.9, 63.31, 35.28), (28_400_123.4, 31_500_456.7, 2_612_345.0), (2.0, 1.5, 0.0)]
    assert [list(RowDifference((), *row).printed(0.95)) for row in rows] == [
        ["49.255", "49.685", "+0.430", "0.062"],
        ["−22", "63", "+85", "36"],
        ["28,400,000", "31,500,000", "+3,100,000", "2,700,000"],
        ["2.00", "1.50", "−0.50", "0.00"],
    ]


def test_what_changed_in_the_data_is_found(folder: Path, capsys: Captured) -> None:
    released(PRECISE, "one")
    moved = people()
    ages = moved.column("age").to_pylist()
    assert ages.count(7) > 5
    moved = moved.set_column(1, "age", [[8 if age == 7 else age for age in ages]])
    pq.write_table(moved, "people.parquet")
    assert run(["release", "people.toml", "--yes", "--quiet", "--output", "two"]) == 0
    found = told(capsys, "one", "two")
    (table,) = [each for each in found["tables"] if each["table"] == "P12"]  # type: ignore[union-attr]
    changed = {tuple(row["labels"]) for row in table["differing"]}  # type: ignore[index]
    assert {("M", "7"), ("M", "8"), ("F", "7"), ("F", "8")} <= changed
    assert run(["diff", "one", "two", "--rows", "3"]) == 0
    out = capsys.readouterr().out
    assert "The largest differences:" in out
    assert "more rows; --rows shows more of them" in out


def test_one_release_differs_from_itself_by_nothing(folder: Path, capsys: Captured) -> None:
    """A margin for independent noise would hide whatever changed in how it was published."""
    released(SPEC, "one")
    found = told(capsys, "one", "one")
    assert found["relation"] == "same"
    assert found["together"] is None  # nothing was spent twice
    assert all(table["differing"] == [] for table in found["tables"])  # type: ignore[union-attr]
    table = pq.read_table("one/tables/P12.parquet").to_pandas()
    table.loc[3, "estimate"] += 0.5  # as another way of publishing might
    shutil.copytree("one", "two")
    table.to_parquet("two/tables/P12.parquet")
    found = told(capsys, "one", "two")
    (changed,) = [each for each in found["tables"] if each["differing"]]  # type: ignore[union-attr]
    assert [row["second"] - row["first"] for row in changed["differing"]] == [pytest.approx(0.5)]  # type: ignore[index]


def test_releases_that_share_measurements_are_not_independent(folder: Path) -> None:
    released(SPEC, "one", "two")
    both = combine([load_release("one/release"), load_release("two/release")])
    both.save("both")
    found = difference(open_published(Path("one")), open_published(Path("both")))
    assert found.relation == "shared"
    assert found.together is None


def test_tables_that_one_lacks_and_columns_that_changed(folder: Path, capsys: Captured) -> None:
    released(SPEC, "one", more=("--only", "P12", "--only", "ages"))
    text = SPEC.replace(
        "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age", "SELECT sex, COUNT(*) FROM people GROUP BY sex"
    )
    released(text, "two", more=("--only", "P12", "--only", "pairs"))
    found = told(capsys, "one", "two")
    assert found["only_first"] == ["ages"]
    assert "pairs_sex_age" in found["only_second"]  # type: ignore[operator]
    assert [(each["table"], each["columns_differ"]) for each in found["tables"]] == [("P12", True)]  # type: ignore[union-attr]
    assert run(["diff", "one", "two"]) == 0
    assert "Only in one: ages." in capsys.readouterr().out
    assert run(["diff", "one", "none"]) == 1
    assert "There is no release in none" in capsys.readouterr().err


def test_what_differs_by_chance_is_said_of_counts_and_sums_only(folder: Path, capsys: Captured) -> None:
    """The margin of a mean, percentage or quantile is to first order, and that of fitted counts is of others."""
    more = '[[table]]\nname = "share"\nmarginals = [["sex", "smokes"]]\npercent = "row"\n\n[privacy]'
    released(SPEC.replace("[privacy]", more), "one", "two")
    tables = {table["table"]: table for table in told(capsys, "one", "two")["tables"]}  # type: ignore[union-attr]
    assert tables["share"]["by_chance"] is None
    assert tables["P12"]["by_chance"] == pytest.approx(0.05 * tables["P12"]["rows"])
    assert run(["diff", "one", "two"]) == 0
    assert "known of unbiased counts and sums only" in capsys.readouterr().out
    assert run(["diff", "one", "one"]) == 0
    assert "by chance" not in capsys.readouterr().out
