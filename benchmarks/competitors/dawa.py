"""DAWA: the shape of the data decides which cells are distinguished, and the workload how they are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np

from hdmm import Domain, Identity, PureDP, Strategy, Workload, from_array
from hdmm.baselines.fixed import greedy_tree, require_attributes
from hdmm.baselines.searched import require_cells
from hdmm.matrix import Array, Dense, Matrix, Ones
from hdmm.measure.measure import measure
from hdmm.noise import discrete_laplace
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import first_search
from hdmm.strategy.blocks import Block

_MOST = 1 << 14  # cells: the gram over the buckets is 2 GiB then
_CHUNK = 1 << 22  # entries of columns multiplied at a time
_AT_ONCE = 1 << 22  # cells of windows examined together: 32 MiB
COST_SENSITIVITY = 2  # of a bucket's cost to one row: |x_i − mean| changes by 1 − 1/L there and by 1/L in the others


def dawa(
    workload: Workload,
    x: Array,
    epsilon: Fraction,
    *,
    second_stage: Literal["greedy_h", "opt_0"] = "greedy_h",
    share: Fraction = Fraction(1, 4),
    time_limit: float = 30.0,
) -> Array:
    """The estimated counts of all cells, from counts of buckets that a private look at x found nearly uniform.

    With ε₁ = share·ε the cells are cut into buckets (`noisy_partition`). With the rest a strategy over the buckets is
    measured, chosen for the workload on counts that are equal within each bucket: GreedyH's tree as in the reference,
    or what the first start of OPT_0 finds within `time_limit` seconds. Defined for one attribute, or for two in the
    order of a Hilbert curve; up to 2¹⁴ cells. O(n²), and O(n·buckets) for the gram.

    Reference: Li, Hay, Miklau, Wang, "A data- and workload-aware algorithm for range queries under differential
    privacy" (PVLDB 2014).

    >>> from hdmm import Prefix
    >>> w = Workload.product(Domain({"age": 8}), age=Prefix())
    >>> dawa(w, np.array([900, 900, 900, 900, 0, 0, 0, 0]), Fraction(10)).round(-2)[[3, 7]] + 0
    array([900.,   0.])
    """
    require_attributes(workload, "dawa", most=2)
    require_cells(workload, "dawa", most=_MOST)
    domain, first, second = workload.domain, share * epsilon, (1 - share) * epsilon
    order = np.arange(domain.size) if len(domain) == 1 else hilbert_order(*domain.shape)
    counts = x.ravel()[order]
    scale = 2 * COST_SENSITIVITY * longest(domain.size) / first
    starts = noisy_partition(counts, lambda costs: costs + discrete_laplace(scale, costs.size), price=1 / second)

    buckets = Domain({"bucket": len(starts)})
    V = bucket_gram(workload, order, starts)
    A = greedy_tree(V) if second_stage == "greedy_h" else opt_0(V, first_search(time.monotonic() + time_limit))
    strategy = Strategy(buckets, (Block(1.0, () if isinstance(A, Ones) else ((0, A),)),))  # Ones: only totals are asked
    data = from_array(buckets, np.add.reduceat(counts, starts), rows_bound=2**30)
    release = measure(strategy, data, PureDP(second), ledger=None)
    found = release.answer(Workload.product(buckets, bucket=Identity())).values
    lengths, cells = _lengths_of(starts, domain.size), np.empty(domain.size)
    cells[order] = np.repeat(found / lengths, lengths)
    return cells


def bucket_gram(workload: Workload, order: Array, starts: list[int]) -> Matrix:
    """EᵀVE: the workload's gram over buckets, each of which spreads its count evenly (E has 1/length in its cells)."""
    n, V = len(order), workload.gram
    lengths = _lengths_of(starts, n)
    out = np.empty((len(starts), len(starts)))
    step = max(1, _CHUNK // n)
    bucket_of = np.empty(n, dtype=np.int64)
    bucket_of[order] = np.repeat(np.arange(len(starts)), lengths)
    for first in range(0, len(starts), step):
        some = np.arange(first, min(first + step, len(starts)))
        E = (bucket_of[:, None] == some) / lengths[some]
        out[:, some] = np.add.reduceat(V.matmat(E)[order], starts, axis=0) / lengths[:, None]
    return Dense((out + out.T) / 2)


def noisy_partition(x: Array, noisy: Callable[[Array], Array], *, price: Fraction) -> list[int]:
    """The starts of the buckets of least noisy cost, Σ (Σ_{i in bucket} |x_i − mean| + price + Z); O(n²), vectorised.

    Buckets are intervals of 1, 2, 4, … cells. The costs of all n·log n of them are multiplied by the longest length,
    which makes them integers, and are given at once to `noisy`, which adds to each its own Z.

    It is ε-differentially private with Laplace noise of scale 2·COST_SENSITIVITY·longest/ε, because one more row in
    cell i changes only buckets that contain i, and every partition has exactly one of those. Fix all Z except that of
    the winner's bucket with i: the winner wins if this Z is at most a threshold, and both the threshold and the cost
    change by at most COST_SENSITIVITY times the longest length.

    >>> noisy_partition(np.array([500, 500, 500, 500, 0, 0]), lambda costs: costs, price=Fraction(5))
    [0, 4]
    """
    fixed = round(price * longest(len(x)))
    exact = list(costs_of(x))
    found = np.split(noisy(np.concatenate(exact)), np.cumsum([len(costs) for costs in exact])[:-1])
    return least_cost([[cost + fixed for cost in costs.tolist()] for costs in found])


def longest(n: int) -> int:
    """The length of the longest bucket: the largest power of two up to n.

    >>> longest(1), longest(6)
    (1, 4)
    """
    return 1 << (n.bit_length() - 1)


def costs_of(x: Array) -> Iterator[Array]:
    """For lengths L = 1, 2, 4, …: `longest`·Σ|x_i − mean| of the interval of L cells that starts at each cell."""
    unit = longest(len(x))
    for length in _lengths(len(x)):
        windows = np.lib.stride_tricks.sliding_window_view(x, length)
        step = max(1, _AT_ONCE // length)
        costs: list[Array] = []
        for first in range(0, len(windows), step):
            some = windows[first : first + step]
            costs.append(np.abs(length * some - some.sum(axis=1, keepdims=True)).sum(axis=1))
        yield np.concatenate(costs) * (unit // length)


def least_cost(costs: Sequence[Sequence[int]]) -> list[int]:
    """The starts of the cheapest partition; costs[k][i] is for the 2^k cells from i on. O(n log n), in integers.

    Ties go to the partition whose last bucket is shortest, and so on to the left: one order for all data.
    """
    n = len(costs[0])
    best, last = [0], [0]
    for end in range(1, n + 1):
        ways = [(best[end - (1 << k)] + costs[k][end - (1 << k)], 1 << k) for k in range(end.bit_length())]
        cost, length = min(ways)
        best.append(cost)
        last.append(length)
    starts: list[int] = []
    end = n
    while end > 0:
        end -= last[end]
        starts.append(end)
    return starts[::-1]


def hilbert_order(rows: int, columns: int) -> Array:
    """The cells of a table by their place on the Hilbert curve of the smallest square of side 2^k that holds it.

    Cells next to each other on the curve are next to each other in the table. O(cells·k).

    >>> hilbert_order(2, 2)
    array([0, 1, 3, 2])
    """
    side = 1 << (max(rows, columns) - 1).bit_length()
    x, y = np.divmod(np.arange(rows * columns), columns)
    place = np.zeros(rows * columns, dtype=np.int64)
    half = side // 2
    while half > 0:
        right, upper = (x & half) > 0, (y & half) > 0
        place += half * half * ((3 * right) ^ upper)
        # The curve enters the lower quarters turned: mirrored where it leaves, then transposed.
        mirror = ~upper & right
        x, y = np.where(mirror, side - 1 - x, x), np.where(mirror, side - 1 - y, y)
        x, y = np.where(upper, x, y), np.where(upper, y, x)
        half //= 2
    return np.argsort(place, kind="stable")


def _lengths(n: int) -> list[int]:
    return [1 << k for k in range(n.bit_length())]


def _lengths_of(starts: list[int], n: int) -> Array:
    return np.diff([*starts, n])
