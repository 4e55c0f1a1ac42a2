"""The referee's tables: rows that build, one that runs end to end, and the notes on those that cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.paper.limits import Outcome
from benchmarks.referee.__main__ import Line, main
from benchmarks.referee.measure import UNIT_MARGIN, measured
from benchmarks.referee.rows import ROWS, SECTIONS, Row

import hdmm
from hdmm import ZCDP

WIDE = [name for name in ROWS if any(part in name for part in ("^50 ", "^100 "))]  # seconds to write down
CHEAP = "Prefix 256 (rmse)"


def test_every_row_has_a_name_of_its_own() -> None:
    assert len(ROWS) == sum(len(section.rows) for section in SECTIONS) == 91


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in WIDE else ()) for name in ROWS])
def test_the_rows_build(name: str) -> None:
    row = ROWS[name]
    tables = row.build()
    assert len({table.domain for table in tables.values()}) == 1
    assert row.figure != "rmse" or len(tables) == 1
    assert float(row.reach) > 0


@pytest.mark.parametrize(
    ("name", "queries"),
    [
        ("Adult marginals k = 1 (rmse)", 588),
        ("CPS prefixes k ≤ 3 (rmse)", 1 + 163 + 7000 + 72_556),
        ("[10]^30 ranges (rmse)", 30 * 55 + 435 * 55**2),
        ("[10]^100 prefixes (rmse)", 100 * 10 + 4950 * 10**2),
        ("[10]^40 pairs with |i − j| ≤ c (rmse)", 40 * 10 + 780 * 10),
        ("[10]^20 mixed (rmse)", 20 * 55 + 190 * 19 + 1140 * 10**3),
        ("Prefix 50 × 100, marginals of 7 × 4 × 2 (rmse)", 50 * 100 * 8 * 5 * 3),
        ("Budget of PL-94 (privacy cost)", 2 + 2 + 63 + 252),
        ("Budget of Age pyramid (privacy cost)", 3 * 116),
    ],
)
def test_the_rows_ask_for_what_they_say(name: str, queries: int) -> None:
    assert sum(table.queries for table in ROWS[name].build().values()) == queries


def test_the_demo_has_ten_tables_whatever_its_products_are_split_into() -> None:
    tables = ROWS["Demo, every table alike (sum of mse)"].build()
    assert len(tables) == 10
    assert any(len(table.products) > 1 for table in tables.values())


def test_unit_noise_is_that_of_privacy_cost_one() -> None:
    assert ZCDP("0.5").variance_factor == 1


def test_a_row_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "referee.csv"
    with pytest.raises(SystemExit) as ended:
        main(["--rows", CHEAP, "--output", str(kept)])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "| Prefix 256 | rmse | 2.5244 | 2.5246 |" in shown
    assert "91 rows: 1 reached, 0 short, 0 below the optimum, 90 not run." in shown
    assert kept.read_text().count("not run: not asked for") == 90


def test_a_row_that_does_not_finish_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1 of 1 rows are not reached"):
        main(["--rows", CHEAP, "--row-seconds", "0.01"])
    assert "timed out: stopped after 0.01 s" in capsys.readouterr().out


def test_rows_that_are_not_there() -> None:
    with pytest.raises(SystemExit, match="No row is named like Suffix"):
        main(["--rows", "Suffix"])


def done(value: float) -> Outcome:
    return Outcome("done", {"value": value, "seconds": 1.0, "operator": "OPT_0", "gap": 0.004}, 1.0)


@pytest.mark.parametrize(
    ("value", "optimal", "verdict"),
    [
        (2.5246, True, "reached"),
        (2.52464, True, "reached"),
        (2.5248, True, "short"),
        (2.51, True, "below the optimum"),
        (2.51, False, "reached"),
    ],
)
def test_a_figure_is_judged_by_the_digits_it_is_written_in(value: float, optimal: bool, verdict: str) -> None:
    line = Line(ROWS[CHEAP], optimal, done(value))
    assert line.verdict == verdict
    assert line.falls_short == (verdict != "reached")
    assert line.markdown.endswith(" |")
    assert "| 0.4 % |" in line.markdown
    assert not Line(replace(line.row, open=True), optimal, done(value)).falls_short


def row_with(figure: str) -> tuple[str, Row]:
    return next((name, row) for name, row in ROWS.items() if row.figure == figure)


@pytest.mark.parametrize(
    ("figure", "value"),
    [("worst variance", 9.0), ("privacy cost", 0.5), ("sum of mse", 2.0)],
)
def test_goals_are_measured_by_what_a_plan_says(figure: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names of the contract: objective, targets, level; errors, worst, privacy_for, gap."""
    heard: dict[str, Any] = {}

    def optimize(
        tables: Any,
        *,
        noise: str = "laplace",
        objective: str = "total",
        targets: Any = None,
        level: float = 0.95,
        seed: int = 0,
        time_limit: float = 60.0,
        progress: bool = False,
    ) -> SimpleNamespace:
        heard.update(noise=noise, objective=objective, targets=targets, tables=tables)
        errors = dict.fromkeys(tables, 0.0) | {next(iter(tables)): 1.0}
        return SimpleNamespace(
            errors=errors,
            worst=dict.fromkeys(tables, 3.0),
            privacy_for=lambda targets, level: ZCDP("0.25"),
            gap=0.01,
            operator="OPT_M",
        )

    monkeypatch.setattr(hdmm, "optimize", optimize)
    name, row = row_with(figure)
    found = measured(name, 0, 1.0)
    assert found["value"] == pytest.approx(value)
    assert found["gap"] == 0.01
    assert heard["noise"] == ("laplace" if row.figure == "sum of mse" else "gaussian")
    if figure == "privacy cost":
        assert pytest.approx(1.959964 + 1 / 64) == UNIT_MARGIN  # a step of the noise is part of a margin
        assert heard["targets"] == dict.fromkeys(heard["tables"], UNIT_MARGIN)
    else:
        assert heard["objective"] == ("tables" if figure == "sum of mse" else "worst")
