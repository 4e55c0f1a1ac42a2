"""The paper's tables as cells, in full or quick."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paper.cells import HALF_HOUR, Cell
from benchmarks.paper.limits import Limits
from benchmarks.workloads import PAPER

PUBLISHED: dict[str, Any] = json.loads((PAPER / "paper_tables.json").read_text())
ROOT_TWO = "1.4142135623730951"
QUICK_SKIP = "left out by --quick"
JOBS = "benchmarks.paper.jobs"
OPTIONS = {"DataCube": {"norm": "L2"}}  # as the paper ran a method


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is spent on each cell."""

    data: Path | None = None
    quick: bool = False
    trials: int = 25
    share: str = "1/2"  # of DAWA's first stage: the paper's DAWA cells are GreedyH's over 1 − 1/2, to 2 %
    time_limit: float = 60.0  # seconds of hdmm.optimize
    opt_0_seconds: float = 20.0  # of OPT_0 in DAWA's second stage, a trial
    limits: Limits = HALF_HOUR
    star_limits: Limits = HALF_HOUR  # for what the paper says does not scale

    @property
    def folder(self) -> str:
        return "" if self.data is None else str(self.data)


def main_table(settings: Settings) -> list[Cell]:
    """11 workloads × 12 methods; the paper's "*" are tried, their own limits on cells lifted."""
    published = PUBLISHED["table_main"]
    cells: list[Cell] = []
    for row in published["rows"]:
        for method in _hdmm_first(published["columns"]):
            cells.append(_main_cell(row, method, settings))
    return cells


def _main_cell(row: dict[str, Any], method: str, settings: Settings) -> Cell:
    name, paper = f"main/{row['workload']}", row["ratios"][method]
    star = paper == "*"
    long = row["workload"] == "SF1+" or (method == "LRM" and not star) or (method == "PrivBayes" and paper == "-")
    skip = QUICK_SKIP if settings.quick and long else ""
    limits = settings.star_limits if star else settings.limits
    job, arguments = "baseline", {"name": name, "method": method, "uncapped": star, **OPTIONS.get(method, {})}
    if method == "HDMM":
        job, arguments = "selected", {"name": name, "time_limit": settings.time_limit}
    elif method in ("DAWA", "PrivBayes"):
        job = method.lower()
        arguments = {"name": name, "dataset": row["dataset"], "epsilon": "1", "trials": settings.trials}
        arguments |= {"data": settings.folder} | (
            {"share": settings.share, "uncapped": star} if method == "DAWA" else {}
        )
    return Cell("table-main", row["workload"], method, f"{JOBS}:{job}", arguments, paper, limits, skip)


def line_table(settings: Settings) -> list[Cell]:
    return _low_dimensional("table-1d", "table_lowd_1d", "1d", 1024, settings)


def plane_table(settings: Settings) -> list[Cell]:
    return _low_dimensional("table-2d", "table_lowd_2d", "2d", 256, settings)


def _low_dimensional(table: str, source: str, prefix: str, quick: int, settings: Settings) -> list[Cell]:
    cells: list[Cell] = []
    for row in PUBLISHED[source]["rows"]:
        n = row["domain"][0]
        skip = QUICK_SKIP if settings.quick and n > quick else ""
        name = f"{prefix}/{row['workload']}/{n}"
        cells += _simple(table, f"{row['workload']} {'x'.join(map(str, row['domain']))}", name, row, skip, settings)
    return cells


def marginal_table(settings: Settings) -> list[Cell]:
    """Up-to-K-way marginals on 10^8 cells."""
    cells: list[Cell] = []
    for row in PUBLISHED["table_highd_marginals"]["rows"]:
        cells += _simple("table-marginals", f"K = {row['K']}", f"marginals/{row['K']}", row, "", settings)
    return cells


def _simple(table: str, row: str, name: str, published: dict[str, Any], skip: str, settings: Settings) -> list[Cell]:
    """A row of data-independent methods."""
    cells: list[Cell] = []
    for method in _hdmm_first(published["ratios"]):
        job, arguments = "baseline", {"name": name, "method": method, **OPTIONS.get(method, {})}
        if method == "HDMM":
            job, arguments = "selected", {"name": name, "time_limit": settings.time_limit}
        paper = published["ratios"][method]
        cells.append(Cell(table, row, method, f"{JOBS}:{job}", arguments, paper, settings.limits, skip))
    return cells


def dawa_table(settings: Settings) -> list[Cell]:
    """DAWA with GreedyH and with OPT_0 on the DPBench sets: three domain sizes, two data sizes."""
    published = PUBLISHED["table_dawa"]
    cells: list[Cell] = []
    for row in published["rows"]:
        n = row["domain"]
        for size in (1000, 10_000_000):
            for dataset in published["datasets"]:
                for method, stage in (("GreedyH", "greedy_h"), ("OPT_0", "opt_0")):
                    arguments = {
                        "dataset": dataset,
                        "n": n,
                        "size": size,
                        "stage": stage,
                        "epsilon": ROOT_TWO,
                        "share": settings.share,
                        "trials": settings.trials,
                        "opt_0_seconds": settings.opt_0_seconds,
                        "data": settings.folder,
                    }
                    skip = QUICK_SKIP if settings.quick and n > 256 else ""
                    label = dawa_row(dataset, n, size)
                    # 25 trials of OPT_0 on 4096 cells take a quarter of an hour.
                    cells.append(
                        Cell("table-dawa", label, method, f"{JOBS}:dawa_stage", arguments, None, settings.limits, skip)
                    )
    return cells


def dawa_row(dataset: str, n: int, size: int) -> str:
    return f"{dataset} {n} cells {size} rows"


def needed_files(cells: list[Cell]) -> list[str]:
    """Files of --data that the cells read."""
    files: set[str] = set()
    by_dataset = {
        "Patent": "dpbench_1d/PATENT_4096.npy",
        "Taxi": "dpbench_2d/BeijingTaxiE_256x256.npy",
        "Adult": "adult.csv.gz",
        "CPS": "cps.csv.gz",
    }
    for cell in cells:
        dataset = cell.arguments.get("dataset")
        if cell.skip:
            continue
        if cell.table == "table-dawa":
            files.add(f"dpbench_1d/{dataset}_4096.npy")
        elif dataset in by_dataset:
            files.add(by_dataset[dataset])
    return sorted(files)


def _hdmm_first(methods: Any) -> list[str]:
    """HDMM, which the others are divided by, then the rest in the paper's order."""
    return sorted(methods, key=lambda method: method != "HDMM")


TABLES: dict[str, Callable[[Settings], list[Cell]]] = {
    "table-main": main_table,
    "table-1d": line_table,
    "table-2d": plane_table,
    "table-marginals": marginal_table,
    "table-dawa": dawa_table,
}
