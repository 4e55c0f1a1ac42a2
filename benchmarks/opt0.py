"""One start of OPT_0: the error reached, the target and the seconds; and one step compared with the textbook formula.

`python -m benchmarks.opt0` runs all rows, and `python -m benchmarks.opt0 1024` those of up to 1024 cells.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdmm.matrix import (
    AllIntervalsGram,
    Conjugated,
    Cumulative,
    Dense,
    Gram,
    Intervals,
    Kron,
    Matrix,
    column_norms,
    gram,
    gram_inverse,
    to_dense,
    trace_product,
)
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import Search
from hdmm.select.theta import DenseTheta

Floats = NDArray[np.float64]


class Row(NamedTuple):
    """A workload by its gram matrix, the target RMSE at unit noise, and the seconds allowed."""

    name: str
    V: Matrix
    queries: int
    target: float | None
    seconds: float | None
    noise: Noise = Noise.LAPLACE


def main(largest: int = 2**20) -> None:
    """Print one line per row, and then the ratio of one step to the textbook's."""
    print(f"{'workload':<28}{'reached':>10}{'target':>9}{'seconds':>9}{'within':>8}  matrix")
    for row in rows():
        if row.V.shape[0] > largest:
            continue
        start = time.monotonic()
        A = opt_0(row.V, Search(np.random.default_rng(0), deadline=start + 600), row.noise)
        seconds = time.monotonic() - start
        norm = float(column_norms(A, row.noise.order).max())
        error = trace_product(gram_inverse(A), row.V) * norm ** (2 / row.noise.order)
        reached = math.sqrt(error / row.queries)
        target, within = (f"{x:g}" if x is not None else "" for x in (row.target, row.seconds))
        kind = f"{type(A).__name__} {A.shape[0]} x {A.shape[1]}"
        print(f"{row.name:<28}{reached:>10.4f}{target:>9}{seconds:>9.1f}{within:>8}  {kind}", flush=True)
    step_ratio()


def rows() -> list[Row]:
    """The targets on one attribute, the smallest first."""

    def prefix(n: int, target: float | None, seconds: float | None, noise: Noise = Noise.LAPLACE) -> Row:
        return Row(f"Prefix {n}{_mark(noise)}", Gram(Cumulative(n)), n, target, seconds, noise)

    def ranges(n: int, target: float | None, seconds: float | None, noise: Noise = Noise.LAPLACE) -> Row:
        return Row(f"AllRange {n}{_mark(noise)}", AllIntervalsGram(n), n * (n + 1) // 2, target, seconds, noise)

    shuffle = np.random.default_rng(0).permutation(1024)
    lo = np.arange(1024 - 31)
    P, R = Gram(Cumulative(64)), AllIntervalsGram(64)
    return [
        ranges(128, 4.752, None),
        prefix(128, 4.449, None),
        ranges(256, 2.9014, None, Noise.GAUSSIAN),
        prefix(256, 2.5246, None, Noise.GAUSSIAN),
        ranges(1024, 7.79, 2),
        prefix(1024, 6.74, 2),
        Row("AllRange 1024, shuffled", Conjugated(AllIntervalsGram(1024), shuffle), 1024 * 1025 // 2, 7.80, None),
        Row("Width 32, 1024", gram(Intervals(1024, lo, lo + 31)), 993, 4.525, None),
        ranges(1024, 3.5151, 60, Noise.GAUSSIAN),
        prefix(1024, 2.9557, 60, Noise.GAUSSIAN),
        ranges(2048, None, 10),
        prefix(2048, None, 10),
        Row("Prefix x Prefix 64, merged", Kron((P, P)), 64**2, 14.0, 120),
        Row("AllRange x AllRange 64", Kron((R, R)), 2080**2, 14.22, 120),
        prefix(4096, 8.49, 60),
        ranges(8192, 11.58, 60),
        prefix(8192, 9.84, 60),
        prefix(65_536, 13.43, 60),
        ranges(65_536, None, None),
        prefix(2**20, 18.2, 60),
    ]


def step_ratio(n: int = 2048, p: int = 128) -> None:
    """Compare one loss with its gradient, for a dense V, with the formula that has n × n temporaries."""
    rng = np.random.default_rng(0)
    theta, V = rng.random((p, n)), to_dense(AllIntervalsGram(n)).astype(np.float64)
    held = Dense(V)
    d = V.diagonal()
    mine, ours = best_of(lambda: DenseTheta(None).loss(theta, held, d))
    theirs, reference = best_of(lambda: textbook(theta, V))
    difference = np.abs(ours[1] - reference[1]).max() / np.abs(reference[1]).max()
    print(
        f"one step, dense V, n = {n}, p = {p}: ours {mine * 1e3:.0f} ms, textbook {theirs * 1e3:.0f} ms, "
        f"{theirs / mine:.1f} x faster; largest difference {difference:.0e}"
    )


def textbook(theta: Floats, V: Floats) -> tuple[float, Floats]:
    """tr((AᵀA)⁻¹V) and its gradient −2A(XVX), X = (AᵀA)⁻¹, by the chain rule through A = [I; Θ]D; all n × n."""
    n = theta.shape[1]
    s = 1 + theta.sum(axis=0)
    A = np.vstack([np.eye(n), theta]) / s
    X = np.linalg.inv(A.T @ A)
    XV = X @ V
    by_A = -2 * A @ (XV @ X)
    by_s = -(A * by_A).sum(axis=0) / s  # ∂a/∂s = −a/s
    return float(np.trace(XV)), by_A[n:] / s + by_s


def best_of(step: Callable[[], tuple[float, Floats]], repeats: int = 5) -> tuple[float, tuple[float, Floats]]:
    """(least seconds, the result)."""
    seconds, result = math.inf, step()
    for _ in range(repeats):
        start = time.perf_counter()
        result = step()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, result


def _mark(noise: Noise) -> str:
    return ", Gaussian" if noise is Noise.GAUSSIAN else ""


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
