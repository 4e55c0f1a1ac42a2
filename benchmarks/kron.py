"""Kronecker products on 2^24 cells, compared with numpy.einsum in the same run: `python -m benchmarks.kron`."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from hdmm.matrix import Cumulative, Dense, Eye, Kron, Matrix, Ones, PIdentity, to_dense

REPEATS = 3
Floats = NDArray[np.float64]


def main(log2_cells: int = 24) -> None:
    """Print one line per case: the seconds of both, their ratio, the largest difference and the peak memory."""
    print(f"A·x, A a Kronecker product on 2^{log2_cells} cells; best of {REPEATS}; peak memory in units of x")
    print(f"{'factors':<36}{'ours s':>9}{'einsum s':>10}{'ratio':>8}{'max diff':>10}{'ours mem':>10}{'einsum mem':>12}")
    for name, factors in cases(log2_cells):
        sizes = tuple(A.shape[1] for A in factors)
        X = np.random.default_rng(0).normal(size=prod(sizes))
        A = Kron(factors)
        reference = einsum(factors, sizes)

        ours, mine, my_peak = measured(lambda A=A, X=X: A.matmat(X[:, None])[:, 0])
        theirs, yours, your_peak = measured(lambda reference=reference, X=X: reference(X))
        difference = np.abs(mine - yours).max() / max(1.0, np.abs(yours).max())
        print(
            f"{name:<36}{ours:>9.3f}{theirs:>10.3f}{theirs / ours:>7.1f}x{difference:>10.0e}"
            f"{my_peak / X.nbytes:>9.1f}x{your_peak / X.nbytes:>11.1f}x",
            flush=True,
        )


def cases(log2_cells: int) -> list[tuple[str, tuple[Matrix, ...]]]:
    """Names and factors: dense random ones of several shapes, then structured ones."""
    k = log2_cells
    rng = np.random.default_rng(1)

    def random(n: int) -> Matrix:
        return Dense(rng.normal(size=(n, n)) / n**0.5)

    def base(n: int, p: int) -> Matrix:
        return PIdentity(rng.uniform(size=(p, n)))

    two, three, four, eight = 2 ** (k // 2), 2 ** (k // 3), 2 ** (k // 4), 2 ** (k // 8)
    return [
        (f"dense {two}^2", tuple(random(two) for _ in range(2))),
        (f"dense {three}^3", tuple(random(three) for _ in range(3))),
        (f"dense {four}^4", tuple(random(four) for _ in range(4))),
        (f"dense {eight}^8", tuple(random(eight) for _ in range(8))),
        (f"dense 2^{k}", tuple(random(2) for _ in range(k))),
        (f"prefix {two} x prefix {two}", (Cumulative(two), Cumulative(two))),
        (f"prefix {three}^3", tuple(Cumulative(three) for _ in range(3))),
        (f"total x identity x prefix, {three}^3", (Ones(1, three), Eye(three), Cumulative(three))),
        (f"identity x total x identity, {three}^3", (Eye(three), Ones(1, three), Eye(three))),
        (f"p-identity {two}^2, p = 64", tuple(base(two, 64) for _ in range(2))),
        (f"p-identity {three}^3, p = 16", tuple(base(three, 16) for _ in range(3))),
        (f"prefix {eight}^8", tuple(Cumulative(eight) for _ in range(8))),
    ]


def einsum(factors: tuple[Matrix, ...], sizes: tuple[int, ...]) -> Callable[[Floats], Floats]:
    """The same product by numpy.einsum on dense factors, with a path that is found beforehand.

    The path is optimal for up to four factors. With nine operands, finding the optimal path takes very long, so the
    greedy path is used, which also takes one factor at a time.
    """
    arrays = [to_dense(A) for A in factors]
    d = len(arrays)
    operands: list[object] = []
    for i, array in enumerate(arrays):
        operands += [array, [d + i, i]]
    optimize = "optimal" if d <= 4 else "greedy"
    shape = np.broadcast_to(np.float64(0), sizes)  # finding a path needs only shapes
    path = np.einsum_path(shape, list(range(d)), *operands, list(range(d, 2 * d)), optimize=optimize)[0]
    return lambda x: np.einsum(
        x.reshape(sizes), list(range(d)), *operands, list(range(d, 2 * d)), optimize=path
    ).ravel()


def measured(product: Callable[[], Floats]) -> tuple[float, Floats, int]:
    """(least seconds, the result, peak bytes NumPy allocated)."""
    seconds = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        product()
        seconds = min(seconds, time.perf_counter() - start)
    tracemalloc.start()
    result = product()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, result, peak


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
