"""The paper's evaluation beside ours: `python -m benchmarks.paper [NAME …] [--data DIR] [--quick]`.

Names are tables and figures, `all` of them, or `report`, which runs nothing: it prints all tables from what was
computed before, and where they differ from the paper's, and why. Every cell is kept in benchmarks/results as soon as it
is done, and is not run again.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import csv_tables
from benchmarks.paper.cells import Cell, Result, Store, run
from benchmarks.paper.limits import Limits, Outcome
from benchmarks.paper.report import as_csv, differences, lines, markdown, number
from benchmarks.paper.tables import TABLES, Settings, needed_files

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FIGURES = {
    "fig-scale": "Seconds on growing domains",
    "fig-opt": "Seconds of OPT_0 and OPT_M alone",
    "fig-p": "Error of OPT_0 for different numbers p of queries beside the identity",
    "fig-minima": "Local minima of random starts",
    "fig-strategy": "The queries that OPT_0 finds for all ranges",
    "fig-opt0-kron": "OPT_0 on merged attributes against OPT_x over time, on ranges over two attributes",
}
FROM_CELLS = {"fig-scale": "benchmarks.paper.figures:scalability", "fig-opt": "benchmarks.paper.alone:alone"}
GIGABYTE = 1 << 30
HEAD = (
    "From the cells that have been run; *not run* marks the others. A bold cell is more than 5 % from the paper's; the "
    "differences below say why. – is not applicable, \\* the paper's mark for what does not scale. Intervals are of "
    "95 %, for the mean of the trials."
)


def main(given: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(given)
    settings = _settings(arguments)
    store = Store(arguments.results / f"paper-cells{'-quick' if settings.quick else ''}.jsonl")
    names = [*TABLES, *FIGURES] if "all" in arguments.names else arguments.names
    for name in names:
        if name in TABLES:
            _table(name, settings, store, arguments)
        elif name != "report":
            _figure(name, settings, store, arguments.results)
    if "all" in arguments.names or "report" in arguments.names:
        _report(settings, store, arguments.results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.paper", description=__doc__)
    choices = [*TABLES, *FIGURES, "all", "report"]
    parser.add_argument("names", nargs="+", choices=choices, metavar="NAME", help=", ".join(choices))
    parser.add_argument("--data", type=Path, help="the folder of data sets, for DAWA and PrivBayes")
    parser.add_argument("--quick", action="store_true", help="small cells and little time; says what it leaves out")
    parser.add_argument("--rows", default="", help="only rows of tables that match this regular expression")
    parser.add_argument("--methods", default="", help="only methods that match this one, and HDMM")
    parser.add_argument("--trials", type=int, help="of data-dependent methods (25; 3 with --quick)")
    parser.add_argument("--share", default="1/2", help="of the budget for DAWA's first stage (1/2, as in the paper)")
    parser.add_argument("--time-limit", type=float, help="seconds of hdmm.optimize (60; 6 with --quick)")
    parser.add_argument("--opt-0-seconds", type=float, help="of OPT_0 in a trial of DAWA (20; 2 with --quick)")
    parser.add_argument("--cell-seconds", type=float, help="limit of a cell (1800; 60 with --quick)")
    parser.add_argument("--star-seconds", type=float, help="limit of the paper's * (300; 5 with --quick)")
    parser.add_argument("--memory", type=float, default=16.0, help="limit of a cell in GiB")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    def chosen(value: float | None, full: float, quick: float) -> float:
        return value if value is not None else quick if given.quick else full

    memory = int(given.memory * GIGABYTE)
    return Settings(
        data=given.data,
        quick=given.quick,
        trials=int(chosen(given.trials, 25, 3)),
        share=given.share,
        time_limit=chosen(given.time_limit, 60.0, 6.0),
        opt_0_seconds=chosen(given.opt_0_seconds, 20.0, 2.0),
        limits=Limits(chosen(given.cell_seconds, 1800.0, 60.0), memory),
        star_limits=Limits(chosen(given.star_seconds, 300.0, 5.0), memory),
    )


def _table(name: str, settings: Settings, store: Store, given: argparse.Namespace) -> None:
    folder: Path = given.results
    cells = [_asked_for(cell, given) for cell in TABLES[name](settings)]
    _say_what_is_missing(settings, needed_files(cells))
    print(f"{name}: {len(cells)} cells", flush=True)
    results = run(cells, store, _teller(len(cells)))
    folder.mkdir(parents=True, exist_ok=True)
    kind = "-quick" if settings.quick else ""
    (folder / f"paper-{name}{kind}.csv").write_text(as_csv(results))
    print(f"\n{markdown(name, results)}", flush=True)


def _asked_for(cell: Cell, given: argparse.Namespace) -> Cell:
    """The cell, left out where its row or method is not asked for. HDMM is what all are divided by."""
    asked = re.search(given.rows, cell.row) and (cell.method == "HDMM" or re.search(given.methods, cell.method))
    return cell if asked else replace(cell, skip="not asked for")


def _figure(name: str, settings: Settings, store: Store, folder: Path) -> None:
    figures = importlib.import_module("benchmarks.paper.figures")  # needs matplotlib, which tables do not
    kind = "-quick" if settings.quick else ""
    if settings.quick and name in figures.SLOW:
        print(f"{name}: left out by --quick (minutes)", flush=True)
        return
    begun = time.monotonic()
    if name in FROM_CELLS:
        module, _, function = FROM_CELLS[name].partition(":")
        figure, text = getattr(importlib.import_module(module), function)(settings, store, _teller(0))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"paper-{name}{kind}.csv").write_text(csv_tables.as_csv(text))
        print(f"\n{text}")
    else:
        figure = figures.picture(name)
    paths = figures.save(figure, folder, f"{name}{kind}")
    print(f"{name}: {', '.join(map(str, paths))}  {time.monotonic() - begun:.0f} s", flush=True)


def _report(settings: Settings, store: Store, folder: Path) -> None:
    """Print all tables, and write where they differ from the paper's, whatever they were run with."""
    found: dict[str, Sequence[Result]] = {}
    spent = "HDMM is one call of `hdmm.optimize` with its defaults, 60 seconds at most, unless the cell's arguments in"
    spent += " `benchmarks/results/paper-cells.jsonl` say otherwise; DAWA and PrivBayes are averages of 25 trials."
    text = ["# The paper's evaluation", "", HEAD, "", spent, ""]
    kind = "-quick" if settings.quick else ""
    for name, build in TABLES.items():
        cells = build(settings)
        found[name] = [store.found(cell) or Result(cell, Outcome("skipped", {}, 0.0, "not run yet")) for cell in cells]
        text.append(markdown(name, found[name]))
    for name in FROM_CELLS:
        path = folder / f"paper-{name}{kind}.csv"
        text += [
            f"## {FIGURES[name]}",
            "",
            csv_tables.as_markdown(path.read_text()) if path.exists() else "Not run yet.\n",
        ]
    apart = differences(found)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"paper-differences{kind}.csv").write_text(csv_tables.as_csv(apart))
    print("\n".join([*text, apart]))


def _say_what_is_missing(settings: Settings, files: Sequence[str]) -> None:
    missing = [name for name in files if settings.data is None or not (settings.data / name).exists()]
    if missing:
        where = "no --data DIR was given" if settings.data is None else f"{settings.data} lacks them"
        print(f"Cells on real data are left out, for {where}: {', '.join(missing)}", file=sys.stderr, flush=True)


def _teller(total: int) -> Callable[[Result, bool], None]:
    """Prints each cell as it is done, with its ratio where HDMM's error of the row is known."""
    seen: list[Result] = []

    def tell(result: Result, ran: bool) -> None:
        seen.append(result)
        row = [r for r in seen if r.cell.row == result.cell.row]
        line = next(line for line in lines(row) if line.result is result)
        cell, outcome = result.cell, result.outcome
        ours = line.shown
        if cell.method == "HDMM" and result.rmse is not None:
            ours = f"RMSE {result.rmse:.4g}"
        elif line.ours is None and outcome.status == "done":
            ours = f"RMSE {result.rmse:.4g}" if result.rmse is not None else "done"
        note = f"  {outcome.note[:60]}" if outcome.note and line.ours is None else ""
        count = f"[{len(seen):3}/{total}] " if total else ""
        paper = "" if cell.paper is None else f"  paper {number(cell.paper)}"
        when = f"{outcome.seconds:7.1f} s" if ran else "  on disk" if outcome.status != "skipped" else "         "
        print(f"{count}{when}  {cell.row:<28} {cell.method:<9} {ours}{paper}{note}", flush=True)

    return tell


if __name__ == "__main__":
    main()
