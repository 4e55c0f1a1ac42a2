"""How much an error measured by running a mechanism scatters: `python -m benchmarks.paper.scatter [--sizes N …]`.

The paper's figures of data-independent methods on two attributes differ from the exact ones in both directions. If its
cells were averages over trials, their root mean squared error would scatter about the exact one by half the relative
standard deviation of the squared error of a trial, over the root of the trials. This prints that beside the
differences. The squared error of a trial is zᵀQz, Q = (WA⁺)ᵀWA⁺, of Laplace noise z of variance 1: its mean is tr Q,
its variance 2‖Q‖²_F + 3ΣQ_ii². For Privelet, a Kronecker product, that is computed; for trees the standard deviation is
estimated from trials of our own, so that 1024² is within reach. Tests compare both with dense algebra.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

import hdmm
from benchmarks.paper.jobs import STRATEGIES, workload
from benchmarks.paper.tables import PUBLISHED
from hdmm import Strategy, Workload
from hdmm.matrix import Array, Matrix, gram_inverse, to_dense
from hdmm.strategy.class_inverse import Grid

METHODS = ("Privelet", "HB", "Quadtree")
TRIALS = 25  # of the paper, for methods whose error it could not compute
_AT_ONCE = 1 << 24  # numbers


def deviation(w: Workload, strategy: Strategy, trials: int, rng: np.random.Generator) -> float:
    """The standard deviation of the squared error of a trial: exact for a product, else from as many trials."""
    if not (isinstance(strategy, Strategy) and len(strategy.blocks) == 1):
        return float(np.std(squared_errors(w, strategy, trials, rng), ddof=1))
    inverses = [np.linalg.pinv(to_dense(A)) for _, A in strategy.blocks[0].factors]
    grams = [[to_dense(p.gram(n)) for p, n in zip(q.predicates, w.domain.shape, strict=True)] for q in w.products]
    Qs = [[P.T @ V @ P for P, V in zip(inverses, each, strict=True)] for each in grams]  # Q = Σ over products of ⊗
    squares = sum(math.prod(float(np.sum(a * b)) for a, b in zip(Q, R, strict=True)) for Q in Qs for R in Qs)
    diagonal = sum(np.multiply.outer(*map(np.diag, Q)) for Q in Qs)
    return math.sqrt(2 * squares + 3 * float(np.sum(diagonal**2)))


def squared_errors(w: Workload, strategy: Strategy, trials: int, rng: np.random.Generator) -> Array:
    """‖WA⁺z‖² of as many draws of Laplace noise z, each entry of variance 1."""
    A, H = strategy.matrix, _inverse(strategy)
    found: list[Array] = []
    while len(found) < trials:
        some = min(trials - len(found), max(1, _AT_ONCE // A.shape[0]))
        z = rng.laplace(scale=math.sqrt(0.5), size=(A.shape[0], some))
        x = H.matmat(A.T.matmat(z))
        found += np.einsum("ij,ij->j", x, w.gram.matmat(x)).tolist()
    return np.array(found)


def _inverse(strategy: Strategy) -> Matrix:
    """(AᵀA)⁻¹ of a Kronecker product, or of a tree of squares."""
    if len(strategy.blocks) == 1:
        return gram_inverse(strategy.matrix)
    grid = Grid.of(strategy.domain.shape, strategy.blocks)
    assert grid is not None
    return grid.gram_inverse


def rows(sizes: Sequence[int], asked: str, trials: int) -> Iterator[str]:
    """One line per cell: the exact ratio, the paper's, their difference, and what averages over trials scatter by."""
    yield f"| workload | method | exact | paper | apart | scatter of {TRIALS} trials | of 1 | apart / scatter |"
    yield "|---|---|---|---|---|---|---|---|"
    rng = np.random.default_rng(0)
    for row in PUBLISHED["table_lowd_2d"]["rows"]:
        n, name = row["domain"][0], row["workload"]
        if n not in sizes or not re.search(asked, name):
            continue
        w = workload(f"2d/{name}/{n}")
        hdmm_error = hdmm.unit_error(w, STRATEGIES["Identity"](w)) / row["ratios"]["Identity"] ** 2
        for method in METHODS:
            strategy = STRATEGIES[method](w)
            ours = math.sqrt(hdmm.unit_error(w, strategy) / hdmm_error)
            one = deviation(w, strategy, trials, rng) / strategy.total_variance(w) / 2
            apart = row["ratios"][method] / ours - 1
            scatter = one / math.sqrt(TRIALS)
            yield (
                f"| {name} {n}² | {method} | {ours:.3f} | {row['ratios'][method]:.2f} | {100 * apart:+.1f} % | "
                f"{100 * scatter:.1f} % | {100 * one:.1f} % | {abs(apart) / scatter:.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.scatter", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256], metavar="N", help="values an attribute")
    parser.add_argument("--rows", default="", metavar="REGEX", help="workloads")
    parser.add_argument("--trials", type=int, default=400, help="of ours, to estimate the scatter (400)")
    given = parser.parse_args()
    for line in rows(given.sizes, given.rows, given.trials):
        print(line, flush=True)


if __name__ == "__main__":
    main()
