"""OPT_B: marginals over bases, of which blocks have their own on one attribute or two. It generalises OPT_G.

A base that suits ranges by state need not suit ranges by sex. On the attribute that is freed the blocks no longer
diagonalise together, but their error is exact still, a sum over the classes of the other attributes (coupled.py), and
all bases and weights move on it together. On the demo's tables, each alike, the error falls by 28 %. On two attributes
the blocks that hold both have one base each, and all other blocks another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from hdmm.matrix import Array, Dense, Eye, Matrix, PIdentity, scaled, summed, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select import opt_g as bases
from hdmm.select.coupled_loss import CoupledLoss, asked_classes
from hdmm.select.family import Constant, Explicit, Roots
from hdmm.select.minimize import minimize_arrays
from hdmm.select.opt_0 import is_uniform, opt_0
from hdmm.select.opt_g import base_family, bumps, opt_g
from hdmm.select.opt_m import scaled_bases, unscaled_block
from hdmm.select.parts import sharpened
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.terms import Terms, is_total
from hdmm.select.theta import theta_of
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy
from hdmm.strategy.subsets import subset_of

_LARGEST = 100.0  # entries of Θ
_MOST_STEPS = 1 << 31  # classes · n³ per evaluation: a second
_MOST_PAIR_STEPS = 1 << 25  # classes · (n₀³ + n₁³) per evaluation: 20 ms, because descents take a thousand
_HOPS = 8  # descents on a pair per restart
_SMALL = 64  # values of an attribute up to which other bases are tried: each takes a tenth of a second
_TRIES = 3


def opt_b(problem: Problem, search: Search) -> Strategy:
    """Marginals over bases with small error, in which one attribute or two have bases of their own: one start.

    The start is the best result so far, of OPT_G or its own, or a start of OPT_G. At even restarts its bases are
    copied for every block; at odd ones they are drawn anew. Every attribute that can be freed is, one at a time, and
    one pair of them per restart. Under Gaussian noise, where copies end as low as any draws, they are copied, every
    pair is freed, and of attributes that can be exchanged one. Never worse than the start.
    """
    before = [search.found[name] for name in ("OPT_B", "OPT_G") if name in search.found]
    found = before or [opt_g(problem, search)]
    first, convex = found[-1], problem.noise.convex
    axes, pairs = unlike(problem)
    for axis in axes:
        start = next((each for each in found if _coupled_on(each, (axis,))), first)
        start = _rebased(problem, start, axis, search.silent())
        drawn = slice(None if search.restart % 2 and not convex else 0)
        found.append(freed(problem, start, (axis,), search, drawn=drawn))
        if search.late:
            return min(found, key=problem.error)
    for pair in pairs if convex else pairs[search.restart % max(len(pairs), 1) :][:1]:
        found.append(freed(problem, first, pair, search) if convex else _hopped(problem, found, pair, search))
        if search.late:
            break
    return min(found, key=problem.error)


def _hopped(problem: Problem, found: Sequence[Strategy], pair: tuple[int, int], search: Search) -> Strategy:
    """The best of several descents on a pair of attributes from the best of the strategies found.

    The first draws all its bases anew, and the others one of them. Most fall behind within a hundred steps and end.
    """
    starts = [each for each in found if _coupled_on(each, pair)]
    best = min(starts, key=problem.error, default=found[-1])
    scale = math.exp(problem.terms.per_total().log_scale)
    for hop in range(_HOPS):
        raced = search.numbered(hop)
        if problem.parts is None:
            raced = raced.racing(problem.error(best) / scale)
        one = (search.restart + hop) % 4
        drawn = slice(one, one + 1) if len(_own_axes(best)) else slice(None)
        best = min(best, freed(problem, best, pair, raced, drawn=drawn), key=problem.error)
        if search.late:
            break
    return best


def unlike(problem: Problem) -> tuple[list[int], list[tuple[int, int]]]:
    """The attributes and the pairs that can be freed; under Gaussian noise, one of those that can be exchanged.

    There they start from the same bases, and end with the same error. Under Laplace noise other draws end elsewhere.
    """
    axes = freeable(problem)
    if not problem.noise.convex:
        return axes, freeable_pairs(problem, axes)
    place, kinds = problem.terms.axes.index, list[list[int]]()
    for axis in axes:
        alike = (kind for kind in kinds if problem.terms.interchangeable(place(kind[0]), place(axis)))
        if (kind := next(alike, None)) is None:
            kinds.append([axis])
        else:
            kind.append(axis)
    number = {axis: k for k, kind in enumerate(kinds) for axis in kind[:2]}  # two can be a pair
    found = freeable_pairs(problem, sorted(number))
    pairs = {frozenset((number[i], number[j])): (i, j) for i, j in reversed(found)}
    return [kind[0] for kind in kinds], sorted(pairs.values())


def freeable(problem: Problem) -> list[int]:
    """The attributes that several products hold with predicates for which a base is better than the identity."""
    terms = problem.terms
    found: list[int] = []
    for i, each in enumerate(terms.grams):
        others = [j for j in range(len(terms.axes)) if j != i]
        holding = terms.choices[_held(terms, i)][:, others]
        if all(map(is_uniform, each)) or len(np.unique(holding, axis=0)) < 2:
            continue
        if len(asked_classes(terms, others)) * terms.sizes[i] ** 3 <= _MOST_STEPS:
            found.append(terms.axes[i])
    return found


def freeable_pairs(problem: Problem, axes: Sequence[int]) -> list[tuple[int, int]]:
    """The pairs of some of these attributes that some product holds both of, and others one of."""
    terms = problem.terms
    found: list[tuple[int, int]] = []
    for pair in itertools.combinations(axes, 2):
        i, j = map(terms.axes.index, pair)
        first, second = _held(terms, i), _held(terms, j)
        others = [k for k in range(len(terms.axes)) if k not in (i, j)]
        if len(asked_classes(terms, others)) * (terms.sizes[i] ** 3 + terms.sizes[j] ** 3) > _MOST_PAIR_STEPS:
            continue
        if (first & second).any() and (first & ~second).any() and (second & ~first).any():
            found.append(pair)
    return found


def _held(terms: Terms, i: int) -> Array:
    """Which products hold an attribute."""
    return np.isin(terms.choices[:, i], [v for v, V in enumerate(terms.grams[i]) if not is_total(V)])


def descended(problem: Problem, start: Strategy, search: Search, *, steps: int = 10_000) -> Strategy:
    """The local minimum below a strategy of marginals over bases, of which one attribute or two may have several.

    As `bases.descended`, whose strategies have one base per attribute; so many steps per power of the norm of parts.
    """
    own = _own_axes(start)
    if not own:
        return bases.descended(problem, start, search, steps=steps)
    return freed(problem, start, own, search, steps=steps) if len(own) <= 2 else start


def freed(
    problem: Problem,
    start: Strategy,
    axes: tuple[int, ...],
    search: Search,
    *,
    drawn: slice = slice(0),
    steps: int = 10_000,
) -> Strategy:
    """The local minimum below a strategy, with a base for every block on one attribute, or with two on each of two.

    `drawn` are those of its bases that are drawn anew.
    """
    terms = problem.terms.per_total()
    place = {a: j for j, a in enumerate(terms.axes)}
    blocks = [block for block in start.blocks if set(block.axes) <= set(place)]
    weights, held = zip(*map(scaled_bases, blocks), strict=True) if blocks else ((), ())
    theta = np.array(weights)
    subsets = [subset_of([place[a] for a in block.axes]) for block in blocks]
    numbers, taken = _numbered(blocks, axes)
    if not taken or len(blocks) < len(start.blocks):
        return start
    own: list[Matrix] = [held[g][axis] for g, axis in taken]
    own[drawn] = [_drawn(B, search, problem.noise) for B in own[drawn]]
    base = [each.get(axes[0], 0) for each in numbers]
    free = [place[axis] for axis in axes]
    shared = {a: B for each in held for a, B in each.items() if a not in axes}
    for each in sharpened(terms.parts):
        sharper = Terms(terms.axes, terms.coefficients, terms.choices, terms.grams, terms.log_scale, each)
        theta, own, shared = _descended(sharper, subsets, free, theta, own, base, shared, problem.noise, search, steps)
    found = [
        unscaled_block(w, [(a, own[numbers[g][a]] if a in axes else shared[a]) for a in block.axes])
        for g, (w, block) in enumerate(zip(theta.tolist(), blocks, strict=True))
        if w > 0
    ]
    return Strategy(start.domain, tuple(found))


def _numbered(blocks: Sequence[Block], axes: tuple[int, ...]) -> tuple[list[dict[int, int]], list[tuple[int, int]]]:
    """(the number of each block's base on the free attributes, the block and attribute that each base comes from).

    On two attributes, first come the bases of the blocks that hold both. Nothing if there would be one base only.
    """
    held = [[a for a in axes if a in block.axes] for block in blocks]
    if len(axes) == 1:
        taken = [(g, axes[0]) for g, each in enumerate(held) if each]
        return [{axes[0]: taken.index((g, axes[0]))} if each else {} for g, each in enumerate(held)], (
            taken if len(taken) > 1 else []
        )
    kinds = [list(axes), list(axes), [axes[0]], [axes[1]]]
    if not all(kind in held for kind in kinds):
        return [], []
    taken = [(held.index(kind), axis) for kind, axis in zip(kinds, (*axes, *axes), strict=True)]
    both = {axes[0]: 0, axes[1]: 1}
    return [both if len(each) == 2 else {a: 2 + axes.index(a) for a in each} for each in held], taken


def _descended(
    terms: Terms,
    subsets: Sequence[int],
    free: Sequence[int],
    theta: Array,
    own: Sequence[Matrix],
    base: Sequence[int],
    shared: Mapping[int, Matrix],
    noise: Noise,
    search: Search,
    steps: int,
) -> tuple[Array, list[Matrix], dict[int, Matrix]]:
    """(θ, own bases, shared bases) at the local minimum below the given ones, at one power of the norm of the parts."""
    sizes = terms.sizes
    families = {
        i: _family(shared.get(axis, Eye(n)), noise, shared=True)
        for i, (axis, n) in enumerate(zip(terms.axes, sizes, strict=True))
    }
    loss = CoupledLoss.of(terms, subsets, free, [_family(B, noise) for B in own], base, families)

    def objective(xs: list[Array]) -> tuple[float, list[Array]]:
        theta = xs[0]
        F, by_theta, by_x = loss.gradient(theta, xs[1:])
        if not math.isfinite(F):
            return math.inf, [by_theta, *by_x]
        if noise is Noise.LAPLACE:
            S, slope = float(theta.sum()) ** 2, 2 * theta.sum()
        else:
            S, slope = float(theta @ theta), 2 * theta
        return S * F, [slope * F + S * by_theta, *(S * each for each in by_x)]

    starts = [theta, *loss.starts]
    if not math.isfinite(objective(starts)[0]):
        return theta, list(own), dict(shared)
    bounds = (0.0, _LARGEST) if noise is Noise.LAPLACE else (None, None)
    tolerance = 1e-6 if len(free) == 1 else 1e-7  # steps on two attributes are cheap, and gain late
    (theta, *xs), _ = minimize_arrays(
        objective, starts, search, lower=bounds[0], upper=bounds[1], tolerance=tolerance, iterations=steps
    )
    moved, others = loss.matrices(xs)
    return np.abs(theta), moved, {terms.axes[i]: B for i, B in others.items()}


def _coupled_on(strategy: Strategy, axes: tuple[int, ...]) -> bool:
    """Whether the blocks of a strategy share the bases of all attributes but these."""
    return set(_own_axes(strategy)) <= set(axes)


def _own_axes(strategy: Strategy) -> tuple[int, ...]:
    """The attributes on which blocks have different bases."""
    factors = {(a, A) for block in strategy.blocks for a, A in block.by_axis.items()}
    axes = [a for a, _ in factors]
    return tuple(sorted({a for a in axes if axes.count(a) > 1}))


def _rebased(problem: Problem, start: Strategy, free: int, search: Search) -> Strategy:
    """The start with bases drawn anew on the other attributes, by OPT_0 for what is asked there, where that helps.

    OPT_0 has many minima: on the races of the demo its starts end between 19.7 and 26.9.
    """
    terms = problem.terms.per_total()
    best, least = start, problem.error(start)
    if problem.noise is Noise.GAUSSIAN:
        return start
    for i, (axis, each) in enumerate(zip(terms.axes, terms.grams, strict=True)):
        if axis == free or terms.sizes[i] > _SMALL or all(map(is_uniform, each)):
            continue
        asked = terms.partials([np.ones(len(grams)) for grams in terms.grams])[i]
        V = summed(scaled(float(w), V) for w, V in zip(asked, each, strict=True) if not is_total(V))
        for turn in range(_TRIES):
            B = opt_0(V, search.numbered(_TRIES * search.restart + turn))
            blocks = [Block(b.weight, [(a, B if a == (axis,) else A) for a, A in b.factors]) for b in start.blocks]
            moved = Strategy(start.domain, tuple(blocks))
            error = problem.error(moved)
            if error < least:
                best, least = moved, error
        start = best
    return best


def _family(B: Matrix, noise: Noise, *, shared: bool = False) -> Explicit:
    if noise is Noise.LAPLACE:
        theta = theta_of(B)
        if shared and theta is not None and theta.max(initial=0.0) > _LARGEST:
            return Constant(B)
        return base_family(B, _LARGEST)
    return Constant(B) if shared else Roots(to_dense(B).astype(np.float64))


def _drawn(B: Matrix, search: Search, noise: Noise) -> Matrix:
    """A base drawn anew in the place of another."""
    n = B.shape[1]
    if noise is Noise.GAUSSIAN:
        return Dense(search.rng.normal(size=(n, n)) / math.sqrt(n) + np.eye(n))
    rows = max(1, n // (7, 10, 14)[search.restart // 2 % 3])
    return PIdentity(bumps(rows, n, rng=search.rng))
