"""HB with nodes that are split evenly, by dense matrices: `python -m benchmarks.paper.even [--n 8192]`.

Our HB has nodes of b^l cells, the last one cut short. Where b^h is not n, a tree whose nodes are cut into b parts as
equal as can be is another one. This prints the error of both on one attribute, beside the paper's cells. O(n³) time,
O(n²) memory: some minutes and 2 GB on 8192 cells.
"""

from __future__ import annotations

import argparse
import itertools
import math

import numpy as np
import scipy.linalg as sl

from benchmarks.paper.tables import PUBLISHED
from hdmm.baselines.fixed import branching, height
from hdmm.matrix import Array

Level = list[tuple[int, int]]  # the first cell of each node, and the one after its last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=8192, help="cells: 128, 1024 or 8192 are in the paper")
    n: int = parser.parse_args().n
    b = branching(n, 1)
    published = {row["workload"]: row for row in PUBLISHED["table_lowd_1d"]["rows"] if row["domain"][0] == n}
    print(f"{n} cells, branching {b}: error over the paper's HDMM error, and the paper's cell", flush=True)
    trees = {"cut short": cut_short(n, b), "split evenly": split_evenly(n, b)}
    for name, levels in trees.items():
        inverse = gram_inverse(n, levels)
        for workload, error in (("Prefix", prefix_error(inverse)), ("All Range", range_error(inverse))):
            row, rmse = published.get(workload), len(levels) * error
            ratio = f"{rmse / row['hdmm_rmse_author_log']:.3f}  paper {row['ratios']['HB']}" if row else ""
            print(f"{name:<13} {workload:<10} RMSE {rmse:.4f}  {ratio}", flush=True)


def cut_short(n: int, b: int) -> list[Level]:
    """Nodes of 1, b, b², … cells, as hdmm.baselines.fixed has them."""
    return [[(a, min(a + b**k, n)) for a in range(0, n, b**k)] for k in range(height(n, b))]


def split_evenly(n: int, b: int) -> list[Level]:
    """Every node cut into b parts whose sizes differ by at most one, down to the cells.

    >>> split_evenly(5, 2)[0]
    [(0, 2), (2, 5)]
    """
    levels: list[Level] = []
    level: Level = [(0, n)]
    while any(end - first > 1 for first, end in level):
        parts = [np.linspace(a, e, min(b, e - a) + 1).astype(int).tolist() for a, e in level]
        level = [pair for cuts in parts for pair in itertools.pairwise(cuts)]
        levels.append(level)
    return levels


def gram_inverse(n: int, levels: list[Level]) -> Array:
    """The lower triangle of (AᵀA)⁻¹, where A has one row per node."""
    gram = np.zeros((n, n))
    for level in levels:
        for first, end in level:
            gram[first:end, first:end] += 1
    inverse, info = sl.lapack.dpotri(sl.cholesky(gram, lower=True, overwrite_a=True), lower=1, overwrite_c=1)
    assert info == 0
    return inverse


def prefix_error(inverse: Array) -> float:
    """Root mean squared error of the prefixes: V_ij = n − max(i, j)."""
    n = len(inverse)
    total = sum((n - i) * (2 * inverse[i, :i].sum() + inverse[i, i]) for i in range(n))
    return math.sqrt(total / n)


def range_error(inverse: Array) -> float:
    """Root mean squared error of all ranges: V_ij = (min(i, j) + 1)(n − max(i, j))."""
    n, ends = len(inverse), np.arange(1.0, len(inverse) + 1)
    total = sum((n - i) * (2 * inverse[i, :i] @ ends[:i] + inverse[i, i] * (i + 1)) for i in range(n))
    return math.sqrt(total / (n * (n + 1) / 2))


if __name__ == "__main__":
    main()
