"""Margins as people state them: in the unit of a mean, as a part of each row's count; and honest baselines."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hdmm import Domain, Integers, load_spec, optimize
from hdmm.answers.first_order import ratio_variances
from hdmm.apps.cli import run
from hdmm.base.exceptions import SpecError, StrategyError
from hdmm.baselines import identity
from hdmm.publication.outlook import Outlook, outlook
from hdmm.publication.spec import Spec
from hdmm.sql import parse
from tests.support.spec_cases import prepared, write_spec

SPEC = """
[data]
dataset = "expected"
source = "people.csv"
[domain]
sex = ["M", "F"]
age = { first = 0, last = 19 }
smokes = { first = 0, last = 1, outside = "other" }
income = { bins = [0, 10, 50, 100], values = [5, 30, 75] }
[amounts]
wage = { low = 0, high = 4_000, step = 10 }
%s
[privacy]
%s
[ledger]
path = "budget.db"
cap = { %s }
[plan]
time_limit = 1
restarts = 1
"""
MEAN = '[[table]]\nname = "wages"\nmarginals = [["sex"]]\nmean = "wage"\nexpected = 500\nmargin = 40\n'
SHARE = '[[table]]\nname = "shares"\nmarginals = [["sex", "smokes"]]\npercent = "row"\nexpected = 300\nmargin = 2\n'
MEDIAN = (
    '[[table]]\nname = "ages"\nmarginals = [["sex"]]\nquantiles = { age = [0.25, 0.5] }\nexpected = 800\nmargin = 1\n'
)
COUNTS = '[[table]]\nname = "counts"\nmarginals = [["sex", "smokes"]]\nexpected = "%s"\nmargin = "10 %%"\n'
EXPECTED = "sex,smokes,n\nM,0,400\nM,1,100\nM,other,90\nF,0,300\nF,1,200\nF,other,80\n"
Captured = pytest.CaptureFixture[str]


def read(folder: Path, tables: str, privacy: str = 'epsilon = "1"') -> Spec:
    return load_spec(write_spec(folder, SPEC % (tables, privacy, privacy)))


def planned(spec: Spec) -> Outlook:
    plan = optimize(spec.goal, noise=spec.privacy.noise, restarts=1, time_limit=1, progress=False)
    return outlook(spec, plan)


@pytest.mark.parametrize("privacy", ['epsilon = "1"', 'rho = "0.5"'])
def test_a_margin_of_a_mean_a_share_or_a_median_is_in_its_own_unit(tmp_path: Path, privacy: str) -> None:
    """The smallest budget meets every margin exactly, and the plan is made for the margins that were asked for."""
    found = planned(read(tmp_path, MEAN + SHARE + MEDIAN, privacy))
    least = found.least
    assert least is not None
    worst = [table.worst for table in found.tables]
    asked = [table.asked for table in found.tables]
    assert asked == [40, 2, 1]
    parts = [w / a for w, a in zip(worst, asked, strict=True) if w and a]
    power = 1.0 if "epsilon" in privacy else 0.5
    assert max(parts) * least.declared_times_least**power == pytest.approx(1, rel=1e-3)
    tight = planned(read(tmp_path, MEAN + SHARE + MEDIAN.replace("margin = 1", "margin = 0.1"), privacy))
    assert tight.tables[2].worst < found.tables[2].worst  # type: ignore[operator]


def test_a_margin_can_be_tried_on_the_command_line(tmp_path: Path) -> None:
    spec = read(tmp_path, MEAN + COUNTS.replace('"%s"', "100").replace("%%", "%"))
    assert spec.aiming({"wages": 20}).tables[0].margin == 20
    assert spec.aiming({"counts": "5 %"}).tables[1].margin == 5
    bare = replace(spec, tables=tuple(replace(table, margin=None, expected=None) for table in spec.tables))
    bad: list[tuple[Spec, str, float | str]] = [(spec, "wages", each) for each in ("2 %", "40", math.inf, math.nan, 0)]
    for about, name, margin in [
        *bad,
        (spec, "wage", 3),
        (spec, "wage", "3 %"),
        (bare, "wages", 3),
        (bare, "counts", "3 %"),
    ]:
        with pytest.raises(StrategyError, match=name):  # one class for whatever is no target, as in Python
            about.aiming({name: margin})


def test_quantiles_to_first_order_are_as_noise_moves_them() -> None:
    """The deviation of a median that is read from noisy counts, all values equally common."""
    domain = Domain({"age": Integers(0, 99)})
    (table,) = parse(domain, "SELECT MEDIAN(age) FROM t")
    variances = ratio_variances(replace(table, expected=100_000.0), identity(table.workload).form)
    assert variances is not None
    rng = np.random.default_rng(28)
    noise = rng.normal(0, 1.0, (4000, 100))
    running = np.cumsum(1000 + noise, axis=1)
    medians = [np.interp(row[-1] / 2, row, np.arange(100)) for row in running]
    assert float(np.std(medians)) == pytest.approx(math.sqrt(variances[0]), rel=0.1)


def test_each_row_may_have_a_margin_by_its_own_count(tmp_path: Path) -> None:
    (tmp_path / "last.csv").write_text(EXPECTED)
    spec = read(tmp_path, COUNTS % "last.csv")
    (table,) = spec.tables
    assert table.expected_rows is not None
    assert table.expected_rows.tolist() == [400, 100, 90, 300, 200, 80]
    assert (table.expected, table.margin) == (150, pytest.approx(8))
    found = planned(spec)
    (shown,) = found.tables
    assert shown.relative == pytest.approx(shown.worst / 80)  # type: ignore[operator]
    assert found.least is not None
    assert shown.relative / 0.1 * found.least.declared_times_least == pytest.approx(1, rel=1e-3)  # type: ignore[operator]


def test_an_earlier_release_says_what_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = SPEC % (COUNTS.replace('"%s"', "100").replace("%%", "%"), 'epsilon = "1"', 'epsilon = "3"')
    path = prepared(tmp_path, text.replace("[amounts]\nwage = { low = 0, high = 4_000, step = 10 }\n", ""))
    assert run(["release", str(path), "--yes", "--quiet"]) == 0
    path.write_text(path.read_text().replace("expected = 100", 'expected = "out"'))
    (table,) = load_spec(path).tables
    assert table.expected_rows is not None
    assert (table.expected_rows > 0).all()
    assert run(["plan", str(path), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EXPECTED.replace("F,other,80\n", ""), "1 rows of the table have no count"),
        (EXPECTED.replace("80", "0"), "not a count above 0"),
        (EXPECTED.replace("80", "nan"), "not a number"),
        (EXPECTED.replace("smokes", "age"), "must be sex, smokes, count"),
        (None, "no such file"),
    ],
)
def test_what_is_no_expectation_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "last.csv").write_text(text)
    with pytest.raises(SpecError, match=message):
        read(tmp_path, COUNTS % "last.csv")


# Each table by itself


def test_tables_that_share_nothing_gain_nothing(tmp_path: Path, capsys: Captured) -> None:
    """Two tables under Laplace noise: each has half of the budget, and a deviation of √2 · 2/ε."""
    two = '[[table]]\nname = "a"\nmarginals = [["town"]]\n[[table]]\nname = "b"\nmarginals = [["job"]]\n'
    text = SPEC.replace('sex = ["M", "F"]', "town = 90\njob = 80") % (two, 'epsilon = "1"', 'epsilon = "1"')
    found = planned(load_spec(write_spec(tmp_path, text)))
    for table in found.tables:
        assert table.each_table_alone_evenly == pytest.approx(table.noise_on_each_count)
        assert table.each_table_alone == pytest.approx(table.each_table_alone_evenly)
    assert found.remark is not None
    assert "no two tables share a column" in found.remark
    assert run(["plan", str(tmp_path / "people.toml"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["remark"] == found.remark
    assert said["margins"][0]["each_table_alone"] == pytest.approx(found.tables[0].each_table_alone)


def test_the_best_parts_of_the_budget_serve_the_goal_best(tmp_path: Path) -> None:
    """By brute force over all ways to divide the budget between ranges and counts."""
    two = '[[table]]\nname = "a"\nranges = ["age"]\n[[table]]\nname = "b"\nmarginals = [["sex"]]\nweight = 3\n'
    for privacy, power in (('epsilon = "1"', 2), ('rho = "0.5"', 1)):
        found = planned(read(tmp_path, two, privacy)).tables
        whole = [(table.each_table_alone_evenly or 0) ** 2 / 2**power for table in found]
        parts = np.linspace(0.001, 0.999, 9999)
        costs = whole[0] / parts**power + 9 * whole[1] / (1 - parts) ** power
        best = sum(w * (table.each_table_alone or 0) ** 2 for w, table in zip((1, 9), found, strict=True))
        assert best == pytest.approx(costs.min(), rel=1e-4)


def test_planning_gains_where_tables_share_columns(tmp_path: Path) -> None:
    """Cells that are measured once serve both tables; by themselves, each has about half of the budget."""
    asked = (
        '[[table]]\nname = "cells"\nmarginals = 2\n[[table]]\nname = "ages"\nmarginals = [["sex", "age"], ["age"]]\n'
    )
    text = SPEC % (asked, 'epsilon = "1"', 'epsilon = "1"')
    text = "".join(
        line for line in text.splitlines(True) if not line.startswith(("smokes", "income", "[amounts", "wage"))
    )
    found = planned(load_spec(write_spec(tmp_path, text)))
    assert found.remark is None
    assert all(1.2 * table.typical < table.each_table_alone for table in found.tables)  # type: ignore[operator]


def test_a_relative_margin_needs_an_expectation(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="none is expected"):
        read(tmp_path, '[[table]]\nname = "a"\nmarginals = [["sex"]]\nmargin = "2 %"\n')


# Bad input


@pytest.mark.parametrize(
    ("there", "bad", "message"),
    [
        ("low = 0, high = 4_000", "low = 4_000, high = 0", "Give a low that is below high"),
        ("step = 10", "step = 7", "do not divide"),
        ("wage = {", "age = {", "line 11, amounts.age: Amount 'age': An attribute has this name"),
        ("last = 19 }\nsmokes", "last = 19, groups = { wage = 10 } }\nsmokes", "amounts.wage: .*A level has this name"),
        ("low = 0, high = 4_000", "low = 0, high = 4_000, steps = 3", "Did you mean 'step'"),
        ("step = 10", "step = 0", "above 0"),
        ("step = 10", "step = nan", "step of an amount is nan"),
        ("expected = 100", "expected = nan", "a number above 0"),
        ('margin = "10 %"', "margin = -3", "a number above 0, or a percentage"),
        ('margin = "10 %"', "margin = inf", "a number above 0, or a percentage"),
        ("low = 0", "low = nan", "nan"),
        ("high = 4_000", "high = inf", "inf"),
        ("high = 4_000", "high = 9_007_199_254_740_994", "2\\*\\*53"),
        ('source = "people.csv"', 'source = "people.csv"\nwhere = "nobody = 1"', "nobody"),
        ("expected = 100", "", "none is expected"),
        ("expected = 100", "expected = 0", "expected"),
        ('margin = "10 %"', 'margin = "-3 %"', "neither a number nor a percentage"),
    ],
)
def test_bad_input_is_refused_before_any_debit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, there: str, bad: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = COUNTS.replace('"%s"', "100").replace("%%", "%")
    text = SPEC % (tables, 'epsilon = "1"', 'epsilon = "1"')
    assert there in text
    write_spec(tmp_path, text.replace(there, bad, 1))
    rows = "sex,age,smokes,income,wage\nM,1,0,5,100\nF,2,1,30,nan\nM,3,0,60,1e300\nF,4,1,5,\n"
    (tmp_path / "people.csv").write_text(rows)
    assert run(["release", "people.toml", "--yes"]) == 1
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "budget.db").exists()


def test_wild_values_of_an_amount_are_clipped_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN and infinities are missing; 10³⁰⁰ and 2⁵³ + 2 count as the bound. The noise has a deviation of 0.06."""
    monkeypatch.chdir(tmp_path)
    asked = '[[table]]\nname = "sums"\nmarginals = [["sex"]]\nsum = "wage"\n'
    write_spec(tmp_path, SPEC % (asked, 'epsilon = "1e5"', 'epsilon = "1e5"'))
    wild = "M,1,0,5,nan\nM,1,0,5,inf\nM,1,0,5,1e300\nF,1,0,5,-1e300\nF,1,0,5,9007199254740994\nF,1,0,5,12.4\n"
    (tmp_path / "people.csv").write_text(f"sex,age,smokes,income,wage\n{wild}")
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    with (tmp_path / "out" / "tables" / "sums.csv").open() as file:
        sums = [float(row["estimate"]) for row in csv.DictReader(file)]
    assert sums == pytest.approx([4000, 4010], abs=2)
