"""Ours beside the matrix mechanism on random small workloads: `python -m benchmarks.mechanism [N] [--from K]`.

Laplace noise. Both may use any signs, the matrix mechanism on up to 64 cells. The figure is the ratio of the total
squared errors; the exit status is not zero if a ratio is above 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np

import hdmm
from hdmm import AllRange, DifferenceAtMost, Domain, Identity, Prefix, Ranges, SumAtMost, Width, Workload, baselines

_ROUNDING = 5e-4  # what integers and other stopping rules cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the seed of the first workload")
    given = parser.parse_args()
    ratios: list[float] = []
    for seed in range(given.first, given.first + given.count):
        name, w = workload(np.random.default_rng(seed))
        theirs = hdmm.unit_error(w, baselines.matrix_mechanism(w))
        plan = hdmm.optimize(w, progress=False)
        ratios.append(plan.error / theirs)
        above = "  above" if ratios[-1] > 1 + _ROUNDING else ""
        print(f"{seed:4} {name:<26} {plan.operator:<8} {ratios[-1]:.4f}{above}", flush=True)
    many = sum(ratio > 1 + _ROUNDING for ratio in ratios)
    middle = statistics.median(ratios)
    print(f"{len(ratios)} workloads: {min(ratios):.4f} to {max(ratios):.4f}, median {middle:.4f}; {many} above 1")
    return 1 if many else 0


def workload(rng: np.random.Generator) -> tuple[str, Workload]:
    """Ranges, subsets, windows, unions of products or predicates on pairs, drawn at random."""
    n, a, b = int(rng.integers(4, 25)), int(rng.integers(2, 6)), int(rng.integers(2, 6))
    line, plane = Domain({"x": n}), Domain({"x": a, "y": b})
    match int(rng.integers(5)):
        case 0:
            ends = np.sort(rng.integers(0, n, (int(rng.integers(2, 2 * n)), 2)), axis=1).tolist()
            return f"{len(ends)} ranges on {n}", Workload.product(line, x=Ranges([(lo, hi) for lo, hi in ends]))
        case 1:
            rows = (rng.random((int(rng.integers(2, n + 1)), n)) < 0.5).astype(int).tolist()
            return f"{len(rows)} subsets of {n}", Workload.product(line, x=rows)
        case 2:
            width = int(rng.integers(2, n))
            return f"windows of {width} on {n}", Workload.product(line, x=Width(width))
        case 3:
            one, two, three, four = ([Identity(), Prefix(), AllRange()][k] for k in rng.integers(0, 3, 4).tolist())
            both = Workload.product(plane, x=three, y=four)
            return f"union on {a} × {b}", Workload.product(plane, x=one) + Workload.product(plane, y=two) + both
        case _:
            square, kinds = Domain({"x": a, "y": a}), [SumAtMost(), DifferenceAtMost()]
            parts = [Workload.product(square, {("x", "y"): kinds[k]}) for k in range(2)]
            chosen = [parts[0], parts[1], parts[0] + parts[1]][int(rng.integers(3))]
            return f"pairs on {a} × {a}", chosen


if __name__ == "__main__":
    sys.exit(main())
