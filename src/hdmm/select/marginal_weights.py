"""The weights θ of measured subsets (or blocks): their share of the budget, chosen so that the error is small; starts.

The error of weights θ is S²·Σ_b t_b/λ_b with λ = up(θ²) and S = Σθ (Laplace) or S² = Σθ² (Gaussian). With
g = down(t/λ²), so that Σ θ²g = Σ t/λ = F, the derivative of F with respect to θ_a is −2θ_a g_a.

A start of the search for marginals has one weight per subset of attributes, structured or random; together its subsets
contain everything that the workload needs. A cover is a few larger subsets that contain every subset that is asked for.
Under Laplace noise the best marginal strategies resemble covering designs: fourteen 4-way marginals contain all 3-way
marginals of 8 attributes (the Steiner system S(3, 4, 8)), and fifteen contain all 2-way marginals of 12 attributes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from hdmm.matrix import Array
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import Asked, Demand, Parted, asked_at
from hdmm.select.minimize import minimize
from hdmm.select.search import Search
from hdmm.strategy.subsets import SubsetSums, members, subset_of

_CHECK = 16  # steps between checks of the gain
_SMALL = 10  # number of attributes up to which random starts have all 2^d subsets
_LISTED = 4096  # the most subsets in a start of one level
_MAX_TARGETS = 1 << 18
_ALL_CELLS = 2.0**28  # up to this size, all cells of the domain may be measured
_MOST_CELLS = 1e5  # else a marginal may have this many cells, or as many as the workload's largest

Weights: TypeAlias = dict[int, float]
"""θ > 0 by subset of attributes."""


def slopes(sums: SubsetSums, t: Asked, u: Array) -> tuple[Array, Array, Array]:
    """(F, g, t/λ) of squared weights u: F = Σ t/λ, g = down(t/λ²); columns of u are independent.

    F is infinite if an eigenspace with t > 0 is not measured. The cost is one `up` and one `down`.

    >>> from hdmm.strategy.subsets import Whole
    >>> F, g, _ = slopes(Whole(np.array([0.5])), np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    >>> float(F), g.tolist()
    (1.5, [2.0, 1.5])
    """
    lam = sums.up(u)
    asked = asked_at(t, lam)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = asked / lam
        dual = quotient / lam
        if not asked.all():
            quotient, dual = (np.where(asked > 0, each, 0.0) for each in (quotient, dual))
        return quotient.sum(axis=0), sums.down(dual), quotient


def laplace_loss(sums: SubsetSums, t: Asked, theta: Array) -> tuple[float, Array]:
    """(Σθ)²·Σ t/λ and its gradient by θ.

    >>> from hdmm.strategy.subsets import Whole
    >>> laplace_loss(Whole(np.array([0.5])), np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    (1.5, array([3., 0.]))
    """
    F, g, _ = slopes(sums, t, theta * theta)
    S = float(theta.sum())
    with np.errstate(invalid="ignore"):  # both are infinite if something is not measured
        return S * S * float(F), 2 * S * float(F) - 2 * S * S * theta * g


def gaussian_loss(sums: SubsetSums, t: Asked, u: Array) -> tuple[float, Array]:
    """Σu·Σ t/λ and its gradient by u = θ², in which it is convex.

    >>> from hdmm.strategy.subsets import Whole
    >>> gaussian_loss(Whole(np.array([0.5])), np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    (1.5, array([-0.5,  0. ]))
    """
    F, g, _ = slopes(sums, t, u)
    S = float(u.sum())
    with np.errstate(invalid="ignore"):
        return S * float(F), float(F) - S * g


def descend(
    sums: SubsetSums,
    t: Asked,
    theta: Array,
    search: Search | None = None,
    *,
    steps: int,
    gain: float = 0.0,
    relax: float = 1.0,
) -> tuple[Array, Array]:
    """(θ with columns that sum to 1, their Laplace errors) after some steps; without `relax` none raises the error.

    Σ t/λ(θ') ≤ Σ_a g_a θ_a⁴/θ'_a² (Jensen), and θ' ∝ (g θ⁴)^⅓ minimises that times (Σθ')². For the p-norm of parts
    the like bound is on Σ_k e_kᵖ, and θ' ∝ θ(gθ)^(1/(2p+1)). `relax` lengthens the steps: near a minimum any value
    below 2 converges, and 1.5 (a square root in place of a cube root) needs two thirds of the steps, but a step may
    raise the error. Many starts, the columns of θ, cost little more than one. Stops early when _CHECK steps lower no
    column by `gain` of it. Weights that are 0 stay 0.
    """
    theta = theta / theta.sum(axis=0)
    degree = (2 * t.power + 1 if isinstance(t, Parted) else 3.0) / relax
    root = {2.0: np.sqrt, 3.0: np.cbrt}.get(degree) or _root(degree)
    before = None
    for step in range(steps):
        F, g, _ = slopes(sums, t, theta * theta)
        theta = theta * root(theta * (g / F))
        theta /= theta.sum(axis=0)
        if search is not None and search.late:
            break
        if step % _CHECK == _CHECK - 1:
            if before is not None and (before * (1 - gain) <= F).all():
                break
            before = F
    return theta, slopes(sums, t, theta * theta)[0]


def _curvatures(sums: SubsetSums, t: Asked, u: Array) -> Array:
    """Half the second derivative of Σ t/λ by each of u: Σ_b γ²_{a∖b} t_b/λ_b³."""
    lam = sums.up(u)
    asked = asked_at(t, lam)
    each = np.divide(asked, lam**3, out=np.zeros_like(lam), where=asked > 0)
    found = sums.squared().down(each)
    return np.where(found > 0, found, found[found > 0].min())  # what measures nothing that is asked for has none


def _root(degree: float) -> Callable[[Array], Array]:
    return lambda x: x ** (1 / degree)


def polish(
    sums: SubsetSums,
    t: Asked,
    theta: Array,
    search: Search | None = None,
    *,
    noise: Noise = Noise.LAPLACE,
    relative: bool = True,
    tolerance: float = 1e-12,
) -> Array:
    """θ of norm 1 at a local minimum, by L-BFGS-B from the given θ. For Gaussian noise it is the global minimum.

    With `relative`, steps are relative to the given weights, which keeps small weights small. Without it, small weights
    can grow: on the 2-way range-marginals of CPS, 32 products of five pairs of factors then reach 22.5; with it they
    fall back to the first two products, at 26.9.
    """
    at, start = (laplace_loss, theta) if noise is Noise.LAPLACE else (gaussian_loss, theta**2)
    scale = np.where(relative & (start > 0), start, 1.0)

    def loss(x: Array) -> tuple[float, Array]:
        value, gradient = at(sums, t, x * scale)
        if not math.isfinite(value):  # something is unmeasured: a large value, so that the step is shortened
            return 1e6 * first, np.zeros_like(x)
        return value, gradient * scale

    first = at(sums, t, start)[0]
    found = minimize(loss, start / scale, search, tolerance=tolerance)
    better = found.x * scale if found.value <= first else start
    theta = better if noise is Noise.LAPLACE else np.sqrt(better)
    return theta / noise.norm(theta)


def sparsified(sums: SubsetSums, t: Asked, theta: Array, *, noise: Noise) -> Array:
    """θ without negligible weights: as many of the smallest are dropped as raise the error by less than 1e-9."""

    def error(x: Array) -> float:
        return noise.norm(x) ** 2 * float(slopes(sums, t, x * x)[0])

    limit = error(theta) * (1 + 1e-9)
    for cut in (1e-3, 1e-4, 1e-5, 1e-6, 1e-8):
        fewer = np.where(theta > cut * theta.max(), theta, 0.0)
        if error(fewer) <= limit:
            return fewer
    return theta


def gaussian_weights(
    sums: SubsetSums, t: Asked, search: Search | None = None, *, start: Array | None = None, gap: float = 1e-7
) -> Array:
    """u = θ² with Σu = 1 and the least Σ t/λ, certified to within `gap` of the optimum.

    The problem is convex. For every u, F(u)²/max_a g_a is at most the optimum (Cauchy-Schwarz), which is the stopping
    test. Multiplicative steps u' ∝ u√g come first, then L-BFGS-B on u in units of the roots of the second derivatives:
    relative to u itself it takes up to thirty times as many steps.
    """
    u = np.full(sums.shape[1], 1.0 / sums.shape[1]) if start is None else start / start.sum()
    root = np.sqrt if not isinstance(t, Parted) else _root(t.power + 1)
    for _ in range(8):
        for _ in range(40):
            F, g, _ = slopes(sums, t, u)
            u = u * root(g / F)
            u /= u.sum()
            if search is not None and search.late:
                break
        F, g, _ = slopes(sums, t, u)
        if float(g.max()) <= float(F) * (1 + gap) or (search is not None and search.late):
            break
        scale = 1 / np.sqrt(_curvatures(sums, t, u))

        def loss(x: Array, scale: Array = scale, first: float = float(F)) -> tuple[float, Array]:
            value, gradient = gaussian_loss(sums, t, x * scale)
            return (value, scale * gradient) if math.isfinite(value) else (1e6 * first, np.zeros_like(x))

        found = minimize(loss, u / scale, search, tolerance=1e-14).x * scale
        u = found / found.sum()
        F, g, _ = slopes(sums, t, u)
        if float(g.max()) <= float(F) * (1 + gap):
            break
        u = np.where((u == 0) & (g > F), 1e-9, u)
        u /= u.sum()
    return u


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
