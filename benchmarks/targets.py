"""The target figures, measured: `python -m benchmarks.targets [rows …] [--seed N] [--output FILE]`.

RMSE is at unit noise, √(plan.error / queries), which is the paper's convention at ε = √2. Every row is one call of
hdmm.optimize with its defaults, or with the given restarts and time limit. Seconds are of the wall clock and of the
processor; where other programs run, compare the latter, with a time limit (0 for none) that no row reaches. The exit
status is not zero if a row without a question mark falls short.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hdmm
from benchmarks.csv_tables import as_csv
from benchmarks.workloads import adult_domain, cps_domain, sf1, up_to_k_way
from hdmm import AllRange, Domain, Identity, Prefix, Shuffled, Total, Width, Workload
from hdmm.bounds.certificate import gaussian_bound
from hdmm.describe.predicates import PredicateSet
from hdmm.measure.optimize import DEFAULT_TIME_LIMIT
from hdmm.privacy.guarantee import Noise


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    build: Callable[[], Workload]
    reach: str
    paper: float | None = None
    open: bool = False
    total: bool = False
    noise: Noise = Noise.LAPLACE


def line(n: int, predicates: PredicateSet) -> Callable[[], Workload]:
    return lambda: Workload.product(Domain({"x": n}), x=predicates)


def plane(n: int, *products: tuple[PredicateSet, PredicateSet]) -> Callable[[], Workload]:
    domain = Domain({"x": n, "y": n})
    return lambda: Workload(domain, tuple(p for x, y in products for p in Workload.product(domain, x=x, y=y).products))


def shuffled(n: int) -> Workload:
    order = np.random.default_rng(1).permutation(n)
    return Workload.product(Domain({"x": n}), x=Shuffled(AllRange(), order))


T, P, R = Total(), Prefix(), AllRange()
ONE = Identity()
K_WAY = ("4752", "1.921e6", "1.0787e8", "1.967e9", "1.151e10", "2.0758e10", "2.1888e10", "2.2029e10")

ROWS = [
    Row("AllRange 128", line(128, R), "4.752", 4.754),
    Row("AllRange 1024", line(1024, R), "7.784", 7.838),
    Row("AllRange 8192", line(8192, R), "11.398", 11.577),
    Row("Prefix 128", line(128, P), "4.449", 4.450),
    Row("Prefix 1024", line(1024, P), "6.734", 6.774),
    Row("Prefix 4096", line(4096, P), "8.466"),
    Row("Prefix 8192", line(8192, P), "9.463", 10.005),
    Row("Prefix 65536", line(65536, P), "13.11"),
    Row("AllRange shuffled 1024", lambda: shuffled(1024), "7.784", 7.832),
    Row("Width 32 on 1024", line(1024, Width(32)), "4.519", 4.525),
    Row("P x P 64", plane(64, (P, P)), "13.99", 13.83),
    Row("R x R 64", plane(64, (R, R)), "14.20", 14.29),
    Row("P x P 256", plane(256, (P, P)), "26.82", 27.05),
    Row("P x P 1024", plane(1024, (P, P)), "45.35", 45.9),
    Row("R x R 256", plane(256, (R, R)), "32.45", 32.6),
    Row("RT u TR 64", plane(64, (R, T), (T, R)), "7.354", 7.51),
    Row("RT u TR 256", plane(256, (R, T), (T, R)), "10.735", 10.85),
    Row("RT u TR 1024", plane(1024, (R, T), (T, R)), "14.97", 15.2),
    Row("PI u IP 64", plane(64, (P, ONE), (ONE, P)), "5.153", 5.14),
    Row("PI u IP 256", plane(256, (P, ONE), (ONE, P)), "7.76", 7.87),
    Row("CPS all range-marginals", lambda: Workload.range_marginals(cps_domain()), "31.39", 31.5),
    Row("CPS 2-way range-marginals", lambda: Workload.range_marginals(cps_domain(), k=2), "22.06", 31.3),
    Row("SF1", sf1, "4.335"),
    Row("SF1+", lambda: sf1(plus=True), "5.90"),
    Row(
        "Adult all marginals",
        lambda: Workload.product(adult_domain(), dict.fromkeys(adult_domain().names, ONE | T)),
        "3.560",
        2.87,
    ),
    Row("Adult 2-way marginals", lambda: Workload.marginals(adult_domain(), k=2), "6.198", 4.74),
    *(
        Row(f"10^8 up to {k}-way", lambda k=k: up_to_k_way(k), reach, total=True)
        for k, reach in enumerate(K_WAY, start=1)
    ),
    Row("Gaussian AllRange 256", line(256, R), "2.9014", noise=Noise.GAUSSIAN),
    Row("Gaussian AllRange 1024", line(1024, R), "3.5151", noise=Noise.GAUSSIAN),
    Row("Gaussian Prefix 256", line(256, P), "2.5246", noise=Noise.GAUSSIAN),
    Row("Gaussian Prefix 1024", line(1024, P), "2.9557", noise=Noise.GAUSSIAN),
    Row("Gaussian Prefix 4096", line(4096, P), "47110", noise=Noise.GAUSSIAN, total=True),
    Row("Gaussian AllRange 4096", line(4096, R), "1.4343e8", noise=Noise.GAUSSIAN, total=True),
    Row("Gaussian SF1", sf1, "15225", noise=Noise.GAUSSIAN, total=True),
    Row("Gaussian SF1+", lambda: sf1(plus=True), "977100", noise=Noise.GAUSSIAN, total=True),
]

COLUMNS = f"{'reached':>10} | {'target':>10} | {'paper':>7} | {'seconds':>7} | {'CPU':>6}"
HEAD = f"| {'workload':<26} | {COLUMNS} | {'operator':<8} | |"
RULE = "|---|---|---|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Line:
    """The measured row as a line of the table, the seconds it took, and whether it passes."""

    text: str
    seconds: float
    used: float
    fine: bool


def measure(row: Row, *, seed: int, restarts: int, time_limit: float | None) -> Line:
    """The row, measured. A target is met if it is met to the digits in which it is written."""
    w = row.build()
    start, used = time.perf_counter(), time.process_time()
    plan = hdmm.optimize(w, noise=row.noise, seed=seed, restarts=restarts, time_limit=time_limit, workers=1)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    reached = plan.error if row.total else math.sqrt(plan.error / w.queries)
    met = reached <= float(row.reach) + half_digit(row.reach)
    verdict = "reached" if met else ("short (open)" if row.open else f"SHORT{_optimum(row, w)}")
    shown = f"{reached:.5g}" if row.total else f"{reached:.4f}"
    target = row.reach + (" ?" if row.open else "")
    paper = "" if row.paper is None else f"{row.paper:g}"
    figures = f"{shown:>10} | {target:>10} | {paper:>7} | {seconds:7.1f} | {used:6.1f}"
    return Line(f"| {row.name:<26} | {figures} | {plan.operator:<8} | {verdict} |", seconds, used, met or row.open)


def _optimum(row: Row, w: Workload) -> str:
    """For Gaussian noise, the bound that no strategy can beat, from the dual of the convex problem."""
    least = None if row.noise is Noise.LAPLACE else gaussian_bound(w)
    return "" if least is None else f": no strategy is below {math.sqrt(least / w.queries):.4f}"


def half_digit(reach: str) -> float:
    """Half a unit of the last digit a target is written in."""
    mantissa, _, exponent = reach.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="names (or parts of names) of rows; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=25, help="the most restarts of an operator")
    parser.add_argument("--time-limit", type=float, default=DEFAULT_TIME_LIMIT, help="seconds per row; 0 for no limit")
    parser.add_argument("--output", type=Path, help="also write the table here, as CSV")
    arguments = parser.parse_args()
    chosen = [r for r in ROWS if not arguments.rows or any(part in r.name for part in arguments.rows)]
    if not chosen:
        sys.exit(f"No row has a name with {arguments.rows}. Rows: {', '.join(r.name for r in ROWS)}.")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
    print(HEAD, RULE, sep="\n", flush=True)
    measured: list[Line] = []
    for row in chosen:
        limit = arguments.time_limit or None
        measured.append(measure(row, seed=arguments.seed, restarts=arguments.restarts, time_limit=limit))
        print(measured[-1].text, flush=True)
    seconds, used = (statistics.median(each) for each in zip(*((m.seconds, m.used) for m in measured), strict=True))
    median = f"The median of {len(measured)} rows is {seconds:.1f} seconds, {used:.1f} of the processor."
    print(f"\n{median}", flush=True)
    short = sum(not m.fine for m in measured)
    if arguments.output:
        arguments.output.write_text(as_csv("\n".join(["# Targets", "", HEAD, RULE, *(m.text for m in measured)])))
    sys.exit(f"{short} of {len(chosen)} rows fall short" if short else 0)


if __name__ == "__main__":
    main()
