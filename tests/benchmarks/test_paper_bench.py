"""The runner of the paper's evaluation: cells under limits, kept on disk, reported next to the paper's."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.paper import even, jobs
from benchmarks.paper.__main__ import RESULTS, main
from benchmarks.paper.cells import Cell, Result, Store, run
from benchmarks.paper.limits import Limits, NoDataError, Outcome, limited
from benchmarks.paper.reasons import CAVEATS, SLIPS, reason
from benchmarks.paper.report import as_csv, dawa_ratios, differences, lines, markdown
from benchmarks.paper.scatter import METHODS, deviation, rows, squared_errors
from benchmarks.paper.tables import PUBLISHED, TABLES, Settings, dawa_row, needed_files

import hdmm
from benchmarks import csv_tables
from hdmm import AllRange, Domain, NotApplicableError, Prefix, Workload
from hdmm.baselines.fixed import branching, height
from hdmm.matrix import to_dense

HERE = "tests.benchmarks.test_paper_bench"
SMALL = Limits(30.0, 4 << 30)


def fine(rmse: float) -> dict[str, Any]:
    return {"rmse": rmse}


def counting(path: str, rmse: float) -> dict[str, Any]:
    with Path(path).open("a") as file:
        file.write("ran\n")
    return {"rmse": rmse}


def sleeper() -> dict[str, Any]:
    time.sleep(60)
    return {}


def hog() -> dict[str, Any]:
    return {"sum": float(np.ones(1 << 30).sum())}  # 8 GiB


def undefined() -> dict[str, Any]:
    raise NotApplicableError("not for this workload")


def broken() -> dict[str, Any]:
    raise ValueError("a fault")


def dead() -> dict[str, Any]:
    import os

    os._exit(3)


@pytest.mark.parametrize(
    ("job", "limits", "status", "note"),
    [
        ("sleeper", Limits(0.5, 4 << 30), "timed out", "after 0.5 s"),
        ("hog", SMALL, "out of memory", "allocate"),
        ("undefined", SMALL, "not applicable", "not for this workload"),
        ("broken", SMALL, "failed", "ValueError: a fault"),
        ("dead", SMALL, "out of memory", "exit code 3"),
    ],
)
def test_what_happens_to_a_job_is_reported(job: str, limits: Limits, status: str, note: str) -> None:
    outcome = limited(f"{HERE}:{job}", {}, limits)
    assert outcome.status == status
    assert note in outcome.note
    assert outcome.figures == {}


def test_a_job_that_is_done_has_figures() -> None:
    outcome = limited(f"{HERE}:fine", {"rmse": 2.5}, SMALL)
    assert (outcome.status, outcome.figures) == ("done", {"rmse": 2.5})


def tiny(path: Path, *, identity: float = 3.0) -> list[Cell]:
    row = {"HDMM": (2.0, 1.0), "Identity": (identity, 1.5), "LM": (8.0, 3.0)}
    return [
        Cell("table-marginals", "K = 1", method, f"{HERE}:counting", {"path": str(path), "rmse": rmse}, paper, SMALL)
        for method, (rmse, paper) in row.items()
    ]


def quiet(result: Result, ran: bool) -> None:
    pass


def test_cells_are_run_once(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "cells.jsonl"
    heard: list[bool] = []
    results = run(tiny(log), Store(path), lambda _, ran: heard.append(ran))
    assert [result.rmse for result in results] == [2.0, 3.0, 8.0]
    again = run(tiny(log), Store(path), lambda _, ran: heard.append(ran))
    assert [result.rmse for result in again] == [2.0, 3.0, 8.0]
    assert heard == [True] * 3 + [False] * 3
    assert log.read_text().count("ran") == 3
    run(tiny(log, identity=4.0), Store(path), quiet)  # other arguments: that cell again
    assert log.read_text().count("ran") == 4
    assert len(path.read_text().splitlines()) == 4


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "cells.jsonl"
    run(tiny(log)[:2], Store(path), quiet)
    results = run(tiny(log), Store(path), quiet)
    assert [result.outcome.status for result in results] == ["done"] * 3
    assert log.read_text().count("ran") == 3


def test_what_timed_out_is_tried_again_only_with_more_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells.jsonl")

    def cell(seconds: float) -> Cell:
        return Cell("table-main", "Prefix 1D", "MM", f"{HERE}:sleeper", {}, "*", Limits(seconds, 4 << 30))

    store.add(cell(5.0), Outcome("timed out", {}, 5.0, "stopped"))
    assert store.settled(cell(5.0)) is not None
    assert store.settled(cell(1.0)) is not None
    assert store.settled(cell(9.0)) is None


def test_failures_and_missing_data_are_not_kept_for_good(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells.jsonl")
    cell = Cell("table-main", "Prefix 1D", "DAWA", f"{HERE}:broken", {}, 2.96, SMALL)
    for status in ("failed", "no data"):
        store.add(cell, Outcome(status, {}, 0.0, "why"))
        assert store.settled(cell) is None


def test_where_the_data_lie_is_no_part_of_a_result(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells.jsonl")
    cells = [Cell("t", "r", "m", f"{HERE}:fine", {"rmse": 1.0, "data": folder}) for folder in ("here", "there")]
    store.add(cells[0], Outcome("done", {"rmse": 1.0}, 0.0))
    assert store.settled(cells[1]) is not None


def test_a_table_says_ours_beside_the_papers(tmp_path: Path) -> None:
    results = run(tiny(tmp_path / "log"), Store(tmp_path / "cells.jsonl"), quiet)
    assert [line.ours for line in lines(results)] == [1.0, 1.5, 4.0]
    text = markdown("table-marginals", results)
    assert "1.50 / 1.50" in text
    assert "**4.00 / 3.00**" in text
    rows = list(csv.DictReader(io.StringIO(as_csv(results))))
    assert [(row["method"], row["ratio"], row["paper"]) for row in rows] == [
        ("HDMM", "1", "1.0"),
        ("Identity", "1.5", "1.5"),
        ("LM", "4", "3.0"),
    ]
    page = differences({"table-marginals": results})
    assert "1 cells agree to 5 %, 1 do not, 0 have" in page
    assert "| K = 1 | LM | 4.00 | 3.00 | +33 % | Not explained. |" in page


def test_formulas_are_held_to_two_per_cent_of_the_paper_whatever_our_hdmm_is(tmp_path: Path) -> None:
    results = run(tiny(tmp_path / "log"), Store(tmp_path / "cells.jsonl"), quiet)
    page = differences({"table-marginals": results})
    gain = lines(results)[0].gain
    assert gain is not None  # the paper's Identity cell of K = 1 is 435
    assert gain < 0.01
    assert "0 of 2 cells are within 2 % of the paper's" in page
    assert f"| table-marginals | K = 1 | {100 * (1 / gain - 1):+.1f} % | Not explained. |" in page


def test_a_better_strategy_is_the_reason_where_it_explains_the_cell() -> None:
    cell = Cell("table-marginals", "K = 3", "LM", "", {}, 1.96)
    assert "10.0 % lower" in reason(cell, 1.96 / 0.9, 1.96, 1 / 0.9)
    assert reason(cell, 3.9, 1.96, 1 / 0.9) == "Not explained."
    assert "within the interval" in reason(cell, 3.9, 1.96, 1 / 0.9, (1.5, 5.0))
    slip = Cell("table-main", "Permuted Range", "LM", "", {}, 877_000)
    assert reason(slip, 33_500, 877_000, 1.0).startswith("A slip in the paper")


def test_every_reason_is_about_some_cell() -> None:
    cells = [cell for build in TABLES.values() for cell in build(Settings())]
    for known in [*SLIPS, *CAVEATS]:
        assert any(known.fits(cell) for cell in cells), known


def test_the_tables_have_the_papers_cells() -> None:
    sizes = {name: len(build(Settings())) for name, build in TABLES.items()}
    expected = {"table-main": 11 * 12, "table-1d": 9 * 5, "table-2d": 12 * 5, "table-marginals": 8 * 4}
    assert sizes == {**expected, "table-dawa": 3 * 2 * 5 * 2}
    for build in TABLES.values():
        cells = build(Settings())
        assert len({cell.key for cell in cells}) == len(cells)
        for cell in cells:  # as a job of its own gets them
            assert json.loads(json.dumps(dict(cell.arguments))) == dict(cell.arguments)


@pytest.mark.parametrize(
    ("name", "queries", "cells"),
    [
        ("main/Prefix 1D", 1024, 1024),
        ("main/SF1", 4151, 500_480),
        ("1d/All Range/128", 8256, 128),
        ("1d/Permuted Range/128", 8256, 128),
        ("2d/P x P/64", 64**2, 64**2),
        ("2d/(R x T) u (T x R)/64", 2 * 2080, 64**2),
        ("marginals/2", 2881, 10**8),
    ],
)
def test_rows_name_their_workloads(name: str, queries: int, cells: int) -> None:
    w = jobs.workload(name)
    assert (w.queries, w.domain.size) == (queries, cells)


def test_a_baseline_reproduces_its_cell() -> None:
    found = limited("benchmarks.paper.jobs:baseline", {"name": "1d/Prefix/128", "method": "Privelet"}, SMALL)
    log = PUBLISHED["table_lowd_1d"]["rows"][3]["hdmm_rmse_author_log"]
    assert found.figures["rmse"] / log == pytest.approx(1.78, abs=0.005)


def test_a_lifted_cap_lets_the_limits_decide() -> None:
    arguments = {"name": "2d/P x P/256", "method": "MM"}
    capped = limited("benchmarks.paper.jobs:baseline", arguments, SMALL)
    assert capped.status == "not applicable"
    lifted = limited("benchmarks.paper.jobs:baseline", {**arguments, "uncapped": True}, SMALL)
    assert lifted.status in ("too large", "out of memory")


def test_averages_carry_an_interval() -> None:
    found = jobs._averaged([2.0, 4.0, 6.0], 2, "1")
    assert found["rmse"] == pytest.approx(math.sqrt(4.0 / (2 * 2)))
    assert found["low"] < found["rmse"] < found["high"]
    assert jobs._averaged([2.0], 2, "1")["low"] is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dpbench_1d").mkdir()
    rng = np.random.default_rng(0)
    np.save(tmp_path / "dpbench_1d" / "HEPTH_4096.npy", rng.integers(0, 9, 4096).astype(np.int32))
    return tmp_path


def test_dawa_of_the_table_runs_on_a_sample(folder: Path) -> None:
    for stage in ("greedy_h", "opt_0"):
        found = jobs.dawa_stage("HEPTH", 16, 1000, stage, "1", "1/4", 2, 1.0, str(folder))
        assert found["rmse"] > 0
        assert found["trials"] == 2


@pytest.mark.parametrize("data", ["", "folder"])
def test_a_missing_file_is_named(data: str, folder: Path) -> None:
    where = str(folder) if data else ""
    with pytest.raises(NoDataError, match=r"dpbench_1d/PATENT_4096\.npy is (needed|missing)"):
        jobs.dawa("main/Prefix 1D", "Patent", "1", "1/4", 1, where)
    with pytest.raises(NoDataError, match="schema of CPH"):
        jobs.privbayes("main/SF1", "CPH", "1", 1, where)
    with pytest.raises(NotApplicableError):
        jobs.dawa("main/SF1", "CPH", "1", "1/4", 1, where)


def test_dawa_ratios_are_greedy_h_over_opt_0() -> None:
    def result(method: str, rmse: float) -> Result:
        figures = {"rmse": rmse, "relative_error": 0.1}
        return Result(Cell("table-dawa", dawa_row("HEPTH", 256, 1000), method, "", {}), Outcome("done", figures, 1.0))

    found = dawa_ratios([result("GreedyH", 3.0), result("OPT_0", 2.0)], 256, 1000)
    assert found == {"HEPTH": (1.5, pytest.approx(1.5 * math.sqrt(0.02) / 2))}


def test_the_command_says_what_is_missing_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [cell for cell in TABLES["table-dawa"](Settings()) if cell.row == dawa_row("HEPTH", 256, 1000)]
    monkeypatch.setitem(TABLES, "table-dawa", lambda _: cells)
    assert needed_files(cells) == ["dpbench_1d/HEPTH_4096.npy"]
    main(["table-dawa", "--results", str(tmp_path / "results")])
    shown = capsys.readouterr()
    assert "no --data DIR was given: dpbench_1d/HEPTH_4096.npy" in shown.err
    assert "no data" in shown.out
    main(["table-dawa", "--data", str(tmp_path), "--results", str(tmp_path / "results")])
    shown = capsys.readouterr()
    assert "lacks them: dpbench_1d/HEPTH_4096.npy" in shown.err
    assert "not run / 1.04" in shown.out
    assert "no data" in (tmp_path / "results" / "paper-table-dawa.csv").read_text()


def test_the_report_marks_what_was_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", "--results", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "not run" in shown
    assert "0 cells agree" in shown
    assert (tmp_path / "paper-differences.csv").read_text().startswith("section,table,workload,")


def test_tables_are_kept_as_csv_and_printed_again() -> None:
    text = "# A\n\nProse.\n\n| x | y |\n|---|---|\n| **1** | a \\| b |\n\n## B\n\n| x | z |\n|---|---|\n| 2 |  |\n"
    text += "| 3 | c |\n"
    kept = csv_tables.as_csv(text)
    assert kept == "section,x,y,z\nA,1,a | b,\nB,2,,\nB,3,,c\n"
    assert csv_tables.as_csv(csv_tables.as_markdown(kept)) == kept


@pytest.mark.parametrize("file", sorted(p.name for p in RESULTS.glob("*.csv") if "-table-" not in p.name))
def test_every_kept_table_can_be_printed(file: str) -> None:
    kept = (RESULTS / file).read_text(encoding="utf-8")
    assert list(csv.DictReader(csv_tables.as_csv(csv_tables.as_markdown(kept)).splitlines())) == list(
        csv.DictReader(kept.splitlines())
    )


def test_a_point_of_the_scalability_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in jobs.CAPPED.values():
        monkeypatch.setattr(import_module(module), limit, 1 << 62)  # so that what the job sets is undone
    for family, method in (("1D Prefix", "HDMM"), ("1D Prefix", "LRM"), ("3D union", "OPT_+")):
        found = jobs.scale(family, method, 4, 2.0, 1)
        assert found["cells"] == (4 if family == "1D Prefix" else 64)
        assert found["measure"] > 0


@pytest.mark.parametrize(("operator", "size", "queries"), [("OPT_0", 8, 36), ("OPT_M", 2, 121)])
def test_a_point_of_the_figure_of_operators_alone(operator: str, size: int, queries: int) -> None:
    found = jobs.alone(operator, size, 5.0)
    assert found["seconds"] > 0
    plain = 10**2 + 2 * 10**2 + 10**2 if operator == "OPT_M" else sum(w * (9 - w) for w in range(1, 9))  # Identity's
    assert 0 < found["rmse"] <= math.sqrt(plain / queries)


def test_the_figure_of_operators_alone_has_a_quick_mode(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.paper.alone import PANELS, alone, alone_cells

    store = Store(tmp_path / "cells.jsonl")
    for panel in PANELS:
        quick, full = (alone_cells(panel, Settings(quick=quick)) for quick in (True, False))
        assert [cell.key for cell in quick] == [cell.key for cell in full[: len(quick)]]
        assert len(quick) < len(full)
        for cell in quick:
            store.add(cell, Outcome("done", {"seconds": 0.5, "rmse": 2.0, "ended": cell.method == "OPT_M"}, 1.0))
    _, text = alone(Settings(quick=True), store, quiet)
    assert "| N = 1024 | 0.5 | 2 |" in text
    assert "| d = 10 | 0.5, ended by the time limit | 2 |" in text


@pytest.mark.parametrize("method", METHODS)
def test_the_scatter_of_trials_is_that_of_the_formula(method: str) -> None:
    """2‖Q‖²_F + 3ΣQ_ii², Q = (WA⁺)ᵀWA⁺, for Laplace noise of variance 1, whose excess kurtosis is 3."""
    w = jobs.workload("2d/(R x T) u (T x R)/8")
    strategy = jobs.STRATEGIES[method](w)
    WA = to_dense(w.matrix) @ np.linalg.pinv(to_dense(strategy.matrix))
    Q = WA.T @ WA
    found = squared_errors(w, strategy, 20_000, np.random.default_rng(0))
    assert np.trace(Q) == pytest.approx(strategy.total_variance(w), rel=1e-9)
    assert found.mean() == pytest.approx(np.trace(Q), rel=0.02)
    variance = 2 * np.sum(Q**2) + 3 * np.sum(np.diag(Q) ** 2)
    assert found.var() == pytest.approx(variance, rel=0.1)
    exact = method == "Privelet"
    rng = np.random.default_rng(1)
    assert deviation(w, strategy, 5000, rng) == pytest.approx(math.sqrt(variance), rel=1e-9 if exact else 0.1)


def test_the_table_of_scatter_has_the_papers_cells() -> None:
    head, _, *lines = rows([64], "P x P", trials=20)
    assert head.count("|") == lines[0].count("|")
    assert [line.split(" | ")[:4] for line in lines] == [
        ["| P x P 64²", "Privelet", "3.177", "3.40"],
        ["| P x P 64²", "HB", "1.436", "1.41"],
        ["| P x P 64²", "Quadtree", "1.676", "1.72"],
    ]


def test_a_workload_of_no_table() -> None:
    with pytest.raises(ValueError, match="No table"):
        jobs.workload("3d/x")


@pytest.mark.parametrize("n", [5, 30, 130])
def test_trees_by_dense_matrices_are_those_of_the_baseline_and_as_even_as_can_be(n: int) -> None:
    b = branching(n, 1)
    inverse = even.gram_inverse(n, even.cut_short(n, b))
    for predicates, error in ((Prefix(), even.prefix_error(inverse)), (AllRange(), even.range_error(inverse))):
        w = Workload.product(Domain({"x": n}), x=predicates)
        expected = math.sqrt(hdmm.unit_error(w, hdmm.baselines.hb(w)) / w.queries)
        assert height(n, b) * error == pytest.approx(expected, rel=1e-9)
    for level in even.split_evenly(n, 3):
        assert [end for _, end in level] == [*(first for first, _ in level[1:]), n]
        assert len({end - first for first, end in level}) <= 2
    assert even.split_evenly(n, 3)[-1] == [(i, i + 1) for i in range(n)]
