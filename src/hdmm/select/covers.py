"""Covers: a few larger subsets of attributes that together contain every subset a workload asks for.

Under Laplace noise the best marginal strategies resemble covering designs: fourteen 4-way marginals contain all 3-way
marginals of 8 attributes (the Steiner system S(3, 4, 8)), and fifteen contain all 2-way marginals of 12 attributes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from hdmm.strategy.subsets import members, subset_of


def maximal(subsets: Iterable[int]) -> list[int]:
    """The maximal subsets of a downward closed family, in ascending order. O(|b|) per subset b.

    >>> maximal([0, 1, 2, 3, 4])
    [3, 4]
    """
    family = set(subsets)
    return sorted(family - {b ^ 1 << i for b in family for i in members(b)})


def greedy_cover(
    targets: Sequence[int], sizes: Sequence[int], *, width: int, cells: float, rng: np.random.Generator
) -> list[int]:
    """Subsets of at most `width` attributes and `cells` cells that together contain all targets.

    Each subset starts as a target that is not covered yet, and grows by the attribute that covers the most further
    targets; ties are broken at random. At most O(d·2^width) per subset.

    >>> cover = greedy_cover([3, 5, 6], [2, 2, 2], width=3, cells=8, rng=np.random.default_rng(0))
    >>> cover
    [7]
    """
    d = len(sizes)
    logs = [math.log(n) for n in sizes]
    room = math.log(cells) + 1e-9
    open_targets = dict.fromkeys(targets[int(j)] for j in rng.permutation(len(targets)))
    ways = sorted({b.bit_count() for b in targets})
    cover: list[int] = []
    while open_targets:
        block = next(iter(open_targets))
        filled = sum(logs[i] for i in members(block))
        while block.bit_count() < width:
            order = [i for i in rng.permutation(d).tolist() if not block >> i & 1 and filled + logs[i] <= room]
            if not order:
                break
            parts = [p for k in ways for p in _of_size(block, k - 1)]
            gains = [sum(map(open_targets.__contains__, [p | 1 << i for p in parts])) for i in order]
            i = order[gains.index(max(gains))]
            if max(gains) == 0 and len(open_targets) == 1:
                break
            block |= 1 << i
            filled += logs[i]
        cover.append(block)
        for k in ways:
            for b in _of_size(block, k):
                open_targets.pop(b, None)
    return cover


def group_cover(targets: Sequence[int], d: int, *, groups: int, rng: np.random.Generator) -> list[int]:
    """For a random split of the attributes into groups, the union of the groups that each target touches.

    >>> sorted(group_cover([3, 5, 6], 3, groups=3, rng=np.random.default_rng(0)))
    [3, 5, 6]
    """
    group = rng.permutation(np.arange(d) % groups).tolist()
    unions = [subset_of([i for i in range(d) if group[i] == g]) for g in range(groups)]
    found = {sum({unions[group[i]] for i in members(b)}) for b in targets}
    return maximal_of(found)


def maximal_of(subsets: Iterable[int]) -> list[int]:
    """The maximal subsets of any family. O(k²).

    >>> maximal_of([1, 3, 4])
    [3, 4]
    """
    largest_first = sorted(set(subsets), key=lambda s: (-s.bit_count(), s))
    kept: list[int] = []
    for s in largest_first:
        if not any(s & other == s for other in kept):
            kept.append(s)
    return kept


def _of_size(block: int, k: int) -> list[int]:
    if k < 0:
        return []
    return [sum(bits) for bits in itertools.combinations([1 << i for i in members(block)], k)]
