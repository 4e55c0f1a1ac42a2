"""The paper's last figure: seconds of OPT_0 alone on growing domains, and of OPT_M alone on more attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt

from benchmarks.paper.cells import Cell, Result, Store
from benchmarks.paper.figures import INKS, followed
from benchmarks.paper.tables import JOBS, Settings


@dataclass(frozen=True, slots=True)
class Panel:
    """An operator over sizes, and what the paper says of it: the largest size, and one it does in 10 seconds."""

    operator: str
    workload: str
    axis: str
    sizes: Sequence[int]
    quick: int  # how many sizes --quick runs
    largest: int
    in_ten_seconds: int


PANELS = [
    Panel("OPT_0", "all ranges of N values", "N", [2**k for k in range(5, 14)], 6, 8192, 1024),
    Panel("OPT_M", "marginals on up to 3 of d attributes of size 10", "d", range(2, 15), 9, 14, 10),
]


def alone_cells(panel: Panel, settings: Settings) -> list[Cell]:
    """The points of a panel, small ones first."""
    sizes = panel.sizes[: panel.quick] if settings.quick else panel.sizes
    return [
        Cell(
            "fig-opt",
            f"{panel.axis} = {size}",
            panel.operator,
            f"{JOBS}:alone",
            {"operator": panel.operator, "size": size, "time_limit": settings.time_limit},
            None,
            settings.limits,
        )
        for size in sizes
    ]


def alone(settings: Settings, store: Store, tell: Callable[[Result, bool], None]) -> tuple[plt.Figure, str]:
    """The figure, and its numbers as Markdown; a panel ends at the first size that does not finish."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8))
    said = (
        "Seconds of one core for one start, and the root mean squared error that it ends with. The paper's OPT_0 goes "
        "up to N = 8192 and takes less than 10 s at N = 1024; its OPT_M goes up to d = 14 and takes less than 10 s up "
        f"to d = 10. Its workloads are not named; ours are {PANELS[0].workload} and {PANELS[1].workload}."
    )
    text = ["## OPT_0 and OPT_M alone", "", said, ""]
    for axis, panel in zip(axes, PANELS, strict=True):
        done, stopped = followed(alone_cells(panel, settings), store, tell)
        seconds = [r.outcome.figures["seconds"] for r in done]
        axis.plot([r.cell.arguments["size"] for r in done], seconds, "o-", color=INKS[panel.operator], markersize=3)
        axis.axvline(panel.largest, color="grey", linestyle=":", linewidth=1)
        axis.plot(panel.in_ten_seconds, 10.0, "kv", markersize=5)
        axis.set(yscale="log", xlabel=panel.axis, title=f"{panel.operator}: {panel.workload}")
        axis.title.set_fontsize(9)
        axis.grid(alpha=0.3)
        text += [f"## {panel.operator}, {panel.axis}", "", "| size | seconds | RMSE |", "|---|---|---|"]
        for result, spent in zip(done, seconds, strict=True):
            found = result.outcome.figures
            ended = ", ended by the time limit" if found["ended"] else ""
            text.append(f"| {result.cell.row} | {spent:.3g}{ended} | {found['rmse']:.5g} |")
        if stopped is not None:
            text.append(f"| {stopped.cell.row} | {stopped.outcome.status} | {stopped.outcome.note[:80]} |")
        text.append("")
    axes[0].set_xscale("log", base=2)
    axes[0].set_ylabel("seconds (dotted: the paper's largest; ▾: its bound)")
    figure.tight_layout()
    return figure, "\n".join(text)
