"""The starts of the search for marginals: structured ones, covers, and random ones.

A start has one weight per subset of attributes; together its subsets contain everything that the workload needs. A
cover is a few larger subsets of attributes that together contain every subset a workload asks for.

Under Laplace noise the best marginal strategies resemble covering designs: fourteen 4-way marginals contain all 3-way
marginals of 8 attributes (the Steiner system S(3, 4, 8)), and fifteen contain all 2-way marginals of 12 attributes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from hdmm.select.demand import Demand
from hdmm.strategy.subsets import members, subset_of

Weights: TypeAlias = dict[int, float]
"""θ > 0 by subset of attributes."""

_SMALL = 10  # number of attributes up to which random starts have all 2^d subsets
_LISTED = 4096  # the most subsets in a start of one level
_MAX_TARGETS = 1 << 18
_ALL_CELLS = 2.0**28  # up to this size, all cells of the domain may be measured
_MOST_CELLS = 1e5  # else a marginal may have this many cells, or as many as the workload's largest


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


def spread_sets(d: int, k: int) -> list[int]:
    """Subsets of k of d attributes, such that no two share k − 1: a lexicographic code. O(subsets · code).

    >>> len(spread_sets(8, 4))  # the Steiner system S(3, 4, 8)
    14
    """
    found: list[int] = []
    for axes in itertools.combinations(range(d), k):
        subset = subset_of(axes)
        if all((subset & other).bit_count() < k - 1 for other in found):
            found.append(subset)
    return found


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


def initial_weights(asked: Demand, *, rng: np.random.Generator, restart: int) -> Iterator[Weights]:
    """The starts of one restart, structured ones first.

    Restart 0 has equal weights within levels, the workload's own subsets and covers of every width; later restarts
    draw other covers and log-uniform weights.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.select.demand import demand
    >>> asked = demand(Workload.marginals(Domain({"a": 2, "b": 3}), k=2))
    >>> next(initial_weights(asked, rng=np.random.default_rng(0), restart=0))
    {3: 1.0}
    """
    d = len(asked.axes)
    targets = maximal(asked.needed)
    limit = most_cells(asked)
    yield _equal(targets)
    if restart == 0 and len(asked.needed) <= _MAX_TARGETS:
        yield _blend((0.8, _equal(targets)), (0.2, _equal(list(asked.needed))))
        yield _by_cost(asked, list(asked.needed))
    widest = max(b.bit_count() for b in targets)
    if limit >= _ALL_CELLS or math.prod(asked.sizes) <= limit:
        full = (1 << d) - 1
        yield {full: 1.0}
        yield from (_blend((0.7, {full: 1.0}), (0.3, level)) for level in _levels(asked, range(d)))
        if restart == 0 and d <= _SMALL:
            yield from (_blend((0.8, {full: 1.0}), (0.2, _equal(spread_sets(d, k)))) for k in range(2, d))
    if restart == 0:
        yield from _levels(asked, range(widest, d))
        below = list(_levels(asked, range(widest)))
        yield from (
            _blend((0.75, top), (0.25, low)) for top in _levels(asked, range(widest, widest + 2)) for low in below
        )
    yield from _covers(asked, targets, widest=widest, rng=rng, limit=limit)
    if d <= _SMALL:
        for depth in (3.0, 6.0, 9.0):
            drawn = np.exp(-depth * rng.random((4, 1 << d)))
            yield from (dict(enumerate((row / row.sum()).tolist())) for row in drawn)


def most_cells(asked: Demand) -> float:
    """The number of cells that a measured marginal may have."""
    if math.prod(asked.sizes) <= _ALL_CELLS:
        return _ALL_CELLS
    largest = max(math.prod(asked.sizes[i] for i in members(b)) for b in asked.needed)
    return max(_MOST_CELLS, float(largest))


def _covers(
    asked: Demand, targets: list[int], *, widest: int, rng: np.random.Generator, limit: float
) -> Iterator[Weights]:
    d = len(asked.axes)
    own = _equal(targets)
    if len(targets) > _LISTED:
        widths = [widest + 1]
    else:
        widths = [s for s in range(widest + 1, min(d, widest + 6)) if d * math.comb(s, s // 2) <= 1 << 14]
    for width in widths:
        for repeat in range(3 if len(targets) <= 512 else 1):
            cover = greedy_cover(targets, asked.sizes, width=width, cells=limit, rng=rng)
            yield _blend((1.0, _equal(cover)), (0.01 * repeat, own))
    if len(targets) > _LISTED:
        return
    for groups in range(widest + 1, d):
        cover = group_cover(targets, d, groups=groups, rng=rng)
        if all(math.prod(asked.sizes[i] for i in members(a)) <= limit for a in cover):
            yield _equal(cover)


def _levels(asked: Demand, ways: range) -> Iterator[Weights]:
    """Equal weights on all subsets of one size."""
    d = len(asked.axes)
    limit = most_cells(asked)
    for k in ways:
        if k <= d and math.comb(d, k) <= _LISTED:
            chosen = itertools.combinations(range(d), k)
            level = [subset_of(axes) for axes in chosen if math.prod([asked.sizes[i] for i in axes]) <= limit]
            if level:
                yield _equal(level)


def _equal(subsets: list[int]) -> Weights:
    return dict.fromkeys(subsets, 1.0 / len(subsets))


def _by_cost(asked: Demand, subsets: list[int]) -> Weights:
    """Weights ∝ 1/√C_a, where C_a domain cells are summed into one cell of a; that is, ∝ √(cells of a)."""
    roots = [math.sqrt(math.prod(asked.sizes[i] for i in members(a))) for a in subsets]
    whole = sum(roots)
    return {a: r / whole for a, r in zip(subsets, roots, strict=True)}


def _blend(*parts: tuple[float, Weights]) -> Weights:
    """The weighted sum of starts."""
    blended: Weights = {}
    for share, weights in parts:
        for a, theta in weights.items():
            if share * theta > 0:
                blended[a] = blended.get(a, 0.0) + share * theta
    return blended
