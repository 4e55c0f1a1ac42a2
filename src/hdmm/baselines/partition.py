"""DAWA's first stage: cells in order, cut into buckets of nearly equal counts, under differential privacy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from hdmm.data.counts import Counts
from hdmm.matrix import Array

_AT_ONCE = 1 << 22  # cells of windows examined together: 32 MiB
COST_SENSITIVITY = (
    2  # of a bucket's cost to one row: |x_i − mean| changes by 1 − 1/L in its cell and by 1/L in the others
)


def noisy_partition(x: Counts, noisy: Callable[[Counts], Counts], *, price: Fraction) -> list[int]:
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


def costs_of(x: Counts) -> Iterator[Counts]:
    """For lengths L = 1, 2, 4, …: `longest`·Σ|x_i − mean| of the interval of L cells that starts at each cell."""
    unit = longest(len(x))
    for length in _lengths(len(x)):
        windows = np.lib.stride_tricks.sliding_window_view(x, length)
        step = max(1, _AT_ONCE // length)
        costs: list[Counts] = []
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
