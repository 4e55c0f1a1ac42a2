"""The paper's figures as PNG and SVG: scalability from cells, the others from benchmarks.pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.paper.cells import Cell, Result, Store, run
from benchmarks.paper.tables import JOBS, PUBLISHED, Settings
from benchmarks.pictures import PICTURES

FIGURES = {"fig-p": "p", "fig-minima": "minima", "fig-strategy": "strategy", "fig-opt0-kron": "time"}
RESTARTS = 25  # of HDMM, as in the paper
SLOW = {"fig-p", "fig-minima", "fig-opt0-kron"}  # minutes each
INKS = {
    "HDMM": "#22577a",
    "GreedyH": "#c8553d",
    "LRM": "#588b8b",
    "DataCube": "#d4a017",
    "OPT_0": "#22577a",
    "OPT_x": "#22577a",
    "OPT_M": "#c8553d",
    "OPT_+": "#588b8b",
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of a method on growing domains of a family, and the sizes of an attribute to try, to the limit."""

    family: str
    method: str
    sizes: Sequence[int]
    quick: int  # how many sizes --quick runs


_LINE = [2**k for k in range(5, 21)]
_CUBE = [4, 8, 16, 32, 64, 128, 256, 512, 800, 1024]
_EIGHT = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
# A title, the largest N of each method in the paper (in_text.scalability), and the curves.
PANELS: list[tuple[str, dict[str, float], list[Curve]]] = [
    (
        "1D Prefix",
        {"HDMM": 1e4, "GreedyH": 1e4, "LRM": 1e4},
        [
            Curve("1D Prefix", "HDMM", _LINE, 5),
            Curve("1D Prefix", "GreedyH", _LINE, 6),
            Curve("1D Prefix", "LRM", _LINE, 2),
        ],
    ),
    ("3D Prefix", {"HDMM": 1e9}, [Curve("3D Prefix", "HDMM", _CUBE, 4), Curve("3D Prefix", "LRM", _CUBE, 1)]),
    (
        "8D 3-way marginals",
        {"HDMM": 1e9, "DataCube": 1e8},
        [
            Curve("8D 3-way marginals", "HDMM", _EIGHT, 4),
            Curve("8D 3-way marginals", "DataCube", _EIGHT, 4),
            Curve("8D 3-way marginals", "LRM", _EIGHT, 1),
        ],
    ),
    (
        "measure + reconstruct",
        {"OPT_x": 1e9, "OPT_M": 1e9, "OPT_+": 1e8},
        [
            Curve("3D Prefix", "OPT_x", _CUBE, 4),
            Curve("8D 3-way marginals", "OPT_M", _EIGHT, 4),
            Curve("3D union", "OPT_+", _CUBE, 3),
        ],
    ),
]


def scale_cells(curve: Curve, settings: Settings) -> list[Cell]:
    """The points of a curve, small ones first."""
    sizes = curve.sizes[: curve.quick] if settings.quick else curve.sizes
    restarts = RESTARTS if curve.method == "HDMM" and not settings.quick else 1
    return [
        Cell(
            "fig-scale",
            f"{curve.family} n={n}",
            curve.method,
            f"{JOBS}:scale",
            {
                "family": curve.family,
                "method": curve.method,
                "n": n,
                "time_limit": settings.time_limit,
                "repeat": restarts,
            },
            None,
            settings.star_limits if curve.method in ("LRM", "DataCube", "GreedyH") else settings.limits,
        )
        for n in sizes
    ]


def scalability(settings: Settings, store: Store, tell: Callable[[Result, bool], None]) -> tuple[plt.Figure, str]:
    """The figure and its figures as Markdown; a curve ends at the first size that does not finish."""
    figure, axes = plt.subplots(1, 4, figsize=(16, 3.8))
    rows = [
        "| figure | method | largest N done | seconds there | next N | what happened there |",
        "|---|---|---|---|---|---|",
    ]
    for axis, (title, claims, curves) in zip(axes, PANELS, strict=True):
        for curve in curves:
            done, stopped = followed(scale_cells(curve, settings), store, tell)
            at = [r.outcome.figures["cells"] for r in done]
            measuring = title == "measure + reconstruct"
            seconds = [r.outcome.figures["measure"] + (0.0 if measuring else r.outcome.figures["select"]) for r in done]
            axis.plot(at, seconds, "o-", color=INKS[curve.method], markersize=3, label=curve.method)
            end = "the last size tried" if stopped is None else f"{stopped.outcome.status}: {stopped.outcome.note[:80]}"
            following = "" if stopped is None else stopped.cell.row
            last = f"{at[-1]:.2g} | {seconds[-1]:.2f}" if done else "none | "
            rows.append(f"| {title} | {curve.method} | {last} | {following} | {end} |")
        axis.set(xscale="log", yscale="log", xlabel="N", title=title)
        for k, (method, most) in enumerate(claims.items()):  # beside each other where they are the same
            axis.axvline(most * 1.15**k, color=INKS[method], linestyle=":", linewidth=1)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    axes[0].set_ylabel("seconds (dotted: the paper's largest N)")
    figure.tight_layout()
    limits = PUBLISHED["in_text"]["scalability"]
    said = (
        "Seconds to select, measure and reconstruct on data of zeros; the last panel without selection. HDMM selects "
        f"with {RESTARTS} restarts at most, and ends them after {settings.time_limit:g} s. The paper ran "
        f"each method to a timeout of {limits['timeout_minutes']} minutes on 4 cores and 16 GB. Its limits: "
        f"{limits['one_d_limit']} in 1D; on 3-way marginals HDMM {limits['hdmm_limit_3way_marginals']}, DataCube "
        f"{limits['datacube_limit']}."
    )
    head = [
        "## Scalability",
        "",
        said,
        "",
    ]
    return figure, "\n".join([*head, *rows, ""])


def followed(
    cells: Sequence[Cell], store: Store, tell: Callable[[Result, bool], None]
) -> tuple[list[Result], Result | None]:
    """The points up to the first that is not done, and that one."""
    done: list[Result] = []
    for cell in cells:
        (result,) = run([cell], store, tell)
        if result.outcome.status != "done":
            return done, result
        done.append(result)
    return done, None


def picture(name: str) -> plt.Figure:
    """One of the pictures of benchmarks.pictures."""
    return PICTURES[FIGURES[name]]()


def save(figure: plt.Figure, folder: Path, name: str) -> list[Path]:
    """The figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"paper-{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return paths
