"""Pictures of strategy selection: `python -m benchmarks.pictures [names …] [--output docs/img]`.

strategy  the p queries that OPT_0 finds for AllRange on 256 values (the paper's strategy figure)
p         error against p
minima    the local minima of 100 random starts: AllRange 256, and up-to-4-way marginals on 10⁸ cells
time      OPT_0 on merged attributes compared with OPT_x over time, on 64 × 64 ranges
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import hdmm
from benchmarks.workloads import up_to_k_way
from hdmm import AllRange, Domain, Workload
from hdmm.matrix import Array, Matrix, diagonal
from hdmm.select.minimize import minimize
from hdmm.select.opt_0 import grid_rows, varied
from hdmm.select.opt_m import opt_m
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.theta import DenseTheta

N = 256
INK = "#22577a"
COUNT = N * (N + 1) // 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES], help="which pictures; all by default")
    parser.add_argument("--output", type=Path, default=Path("docs/img"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or PICTURES:
        begun = time.perf_counter()
        figure = PICTURES[name]()
        target = arguments.output / f"opt-{name}.png"
        figure.savefig(target, dpi=110, bbox_inches="tight")
        plt.close(figure)
        print(f"{target}  {time.perf_counter() - begun:.0f} s", flush=True)


def random_start(V: Matrix, p: int, seed: int, tolerance: float = 1e-7) -> tuple[Array, float]:
    """(Θ, error) of one random start of OPT_0."""
    start = np.random.default_rng(seed).random((p, V.shape[0]))
    d = diagonal(V)
    found = minimize(lambda theta: DenseTheta(None).loss(theta, V, d), start, tolerance=tolerance)
    return found.x, found.value


def strategy() -> plt.Figure:
    V = AllRange().gram(N)
    theta, value = min((random_start(V, 13, seed) for seed in range(5)), key=lambda found: found[1])
    rows = theta / (1 + theta.sum(axis=0))
    rows = rows[np.argsort(rows.argmax(axis=1))]
    figure, axes = plt.subplots(13, 1, figsize=(7, 8), sharex=True, sharey=True)
    for axis, row in zip(axes, rows, strict=True):
        axis.fill_between(np.arange(N), row, color=INK, linewidth=0)
        axis.set_yticks([])
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[0].set_title(f"The 13 queries besides the identity, AllRange on {N} values: RMSE {np.sqrt(value / COUNT):.3f}")
    axes[-1].set_xlabel("value")
    return figure


def error_against_p() -> plt.Figure:
    V = AllRange().gram(N)
    ps = [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
    best = [min(random_start(V, p, seed)[1] for seed in range(3)) for p in ps]
    figure, axis = plt.subplots(figsize=(7, 4))
    axis.plot(ps, np.sqrt(np.array(best) / COUNT), "o-", color=INK)
    axis.set(xscale="log", xlabel="p", ylabel="RMSE at unit noise", title=f"AllRange on {N} values: best of 3 starts")
    axis.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
    axis.grid(alpha=0.3)
    return figure


def minima() -> plt.Figure:
    V = AllRange().gram(N)
    ranges = np.array([random_start(V, N // 16, seed)[1] for seed in range(100)])
    w = up_to_k_way(4)
    marginals = np.array(
        [hdmm.unit_error(w, opt_m(Problem(w), Search(np.random.default_rng(seed), 100 + seed))) for seed in range(100)]
    )
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    for axis, errors, title in (
        (axes[0], ranges, f"OPT_0, AllRange on {N} values"),
        (axes[1], marginals, "OPT_M, up-to-4-way marginals on 10⁸ cells"),
    ):
        ratio = np.sqrt(errors / errors.min())
        axis.hist(ratio, bins=30, color=INK)
        axis.set(title=title, xlabel="RMSE / best of 100 random starts", ylabel="starts")
    return figure


def over_time() -> plt.Figure:
    n, queries = 64, (64 * 65 // 2) ** 2
    domain = Domain({"x": n, "y": n})
    w = Workload.product(domain, x=AllRange(), y=AllRange())
    figure, axis = plt.subplots(figsize=(7, 4))
    for label, V, power in (("OPT_0 on merged attributes", w.gram, 1), ("OPT_x", AllRange().gram(n), 2)):
        # Random rows over 4096 cells take minutes to converge; a grid of blocks and strips does not.
        blocks = grid_rows((n, n), 8) if power == 1 else None
        d = diagonal(V)
        for seed in range(3):
            rng = np.random.default_rng(seed)
            start = rng.random((n // 16, n)) if blocks is None else varied(blocks, 0.1, rng)
            begun, seen = time.perf_counter(), list[tuple[float, float]]()
            minimize(
                lambda theta, V=V, d=d: DenseTheta(None).loss(theta, V, d),
                start,
                Search(
                    rng,
                    deadline=time.monotonic() + 45,
                    progress=lambda _, value, seen=seen, begun=begun: seen.append((time.perf_counter() - begun, value)),
                ),
            )
            at, values = np.array(seen).T
            style = {"color": INK, "linestyle": "-" if power == 1 else "--", "label": label if seed == 0 else None}
            axis.plot(at, np.sqrt(values**power / queries), **style)
    axis.set_ylim(14, 20)
    axis.set(xscale="log", xlabel="seconds", ylabel="RMSE at unit noise", title="All ranges on 64 × 64, three starts")
    axis.legend()
    axis.grid(alpha=0.3)
    return figure


PICTURES: dict[str, Callable[[], plt.Figure]] = {
    "strategy": strategy,
    "p": error_against_p,
    "minima": minima,
    "time": over_time,
}

if __name__ == "__main__":
    main()
