"""OPT_+: a union of products over two factors per attribute, optimised by its exact error.

Section 6.2 of the paper has one product per group and optimises each by itself; here all of them move together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Array, Matrix, Ones, PIdentity, gram_inverse, trace_product
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import LARGEST
from hdmm.select.minimize import minimize_arrays, minimize_relative
from hdmm.select.opt_0 import opt_0, tree_rows, varied
from hdmm.select.opt_x import opt_x, part_left, product_factors
from hdmm.select.pairs import PairsLoss, family_of
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.terms import Terms, is_total, mixed
from hdmm.select.theta import theta_of
from hdmm.select.tree import tree_widths
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_MOST_CELLS = 1 << 22  # of the form: a few arrays of 32 MiB
_VARIED = 2  # further starts, with other weights on the totals of identities
_SHORT = 60  # steps of a trial; the best trial is finished
_CHEAP = 1 << 18  # cells of a pair's form up to which there are trials: a step takes a tenth of a second
_STEPS = 300
_WIDE = 1 << 22  # cells of all blocks together: an array of 32 MiB
_COMBINED = 6  # number of attributes up to which every combination of their factors is tried
_GAIN = 1e-4  # relative gain of further combinations that is worth one more descent
_LEAST = 1e-4  # shares below this are dropped
_TAME = 3.0  # entries of Θ at the start of a descent of all factors; from the ends of single ones it gets nowhere
_LOST = 1e-3  # above what the loss says: an error that shows that the loss has lost its digits
_MOST_CLUSTERED = 512  # number of terms up to which pairs of them are compared, which takes a second or two

Grouping = tuple[tuple[int, ...], ...]
"""The numbers of the terms in each group; every term is in one group."""


def opt_plus(problem: Problem, search: Search) -> Strategy:
    """[θ_g ⊗A_gi]_g, each product for a group of the workload's products, from one start of a portfolio.

    The first restart takes the two groups that `groupings` considers most promising, the second takes more groups over
    two factors per attribute (`paired`), the third takes the first two groups again, and later ones take the other
    pairs of groups. Each group gets its product by OPT_⊗. Then θ and all factors are optimised together by the gradient
    of the exact error, in which every product may use what the others measure. At the end, products of other
    combinations of the factors may be added. The result is one product if the workload does not have two groups.
    O(Σ n_i³ + Σ n_i·N) per step, where N is the number of cells over the attributes on which products differ; an
    attribute with only identities and totals, or with a factor that is Total, counts two.

    >>> from hdmm import AllRange, Domain, Workload, unit_error
    >>> from hdmm.select.search import first_search
    >>> domain = Domain({"x": 16, "y": 16})
    >>> w = Workload.product(domain, x=AllRange()) + Workload.product(domain, y=AllRange())
    >>> one, two = (operator(Problem(w), first_search()) for operator in (opt_x, opt_plus))
    >>> unit_error(w, two) < 0.6 * unit_error(w, one)
    True
    """
    terms, noise = problem.terms, problem.noise
    alone, together = terms.separated()
    coupled = terms.restricted(together)
    fits = bool(together) and math.prod(coupled.folded().sizes) <= _MOST_CELLS
    ways = groupings(coupled, search) if fits else []
    if not ways:
        return opt_x(problem, search)
    shared = {terms.axes[i]: opt_0(terms.grams[i][0], search.silent(), noise) for i in alone}
    left = math.prod(part_left(shared[terms.axes[i]], terms.grams[i][0]) for i in alone)
    search = search.rescaled(left)
    start = _start(coupled, ways, noise, search.silent())
    if noise is Noise.LAPLACE:
        start = replace(start, parts=[[*map(_tamed, part)] for part in start.parts])
    if search.late:
        raise StrategyError("There was no time left to refine a union of products.")
    trials = [start]
    if noise is Noise.LAPLACE and math.prod(coupled.folded().sizes) * len(start.blocks) <= 2 * _CHEAP:
        trials += [_changed(coupled, start, change, search.rng) for change in (_fresh, *[_nudged] * _VARIED)]
    best = start
    for each in trials if len(trials) > 1 else []:
        found = refined(coupled, each, noise, search, steps=_SHORT)
        best = min(best, found, key=lambda each: (each.collapsed, each.error))
        if search.late:
            break
    for sharper in coupled.sharpened():
        if search.late and math.isfinite(best.error):
            break
        coupled, best = sharper, refined(sharper, best, noise, search)
    more = best if search.late else widened(coupled, best, noise, search.silent())
    if more.error < best.error * (1 - _GAIN):
        best = refined(coupled, more, noise, search)
    if best.error >= 1:  # not better than Identity; one product is never worse than Identity
        return opt_x(problem, search)
    blocks = [
        Block(share, _factors({**shared, **{coupled.axes[i]: best.parts[f][i] for i, f in enumerate(row)}}))
        for share, row in zip(best.shares, best.blocks.tolist(), strict=True)
        if share > 0
    ]
    strategy = Strategy(problem.workload.domain, tuple(blocks))
    # Near singular factors the loss loses its digits, and takes what is not measured for measured. Of several parts,
    # the loss is not their largest error, and shows only that.
    loss = math.inf if problem.parts is not None else best.error * left * problem.identity_error
    error = problem.error(strategy)
    if math.isfinite(error) and error <= (1 + _LOST) * loss:
        return strategy
    return min(strategy, opt_x(problem, search), key=problem.error)


@final
@dataclass(frozen=True, slots=True, eq=False)
class PairedProducts:
    """Products over two factors per attribute.

    `parts` holds the first and the second factors, `blocks` the number (0 or 1) of each product's factor on every
    attribute, and `shares` the weights of the products. `error` is exact, and relative to Identity's.
    """

    shares: tuple[float, ...]
    blocks: Array
    parts: Sequence[Sequence[Matrix]]
    error: float = math.inf

    @property
    def collapsed(self) -> bool:
        """Whether one product has almost all the weight, so that OPT_⊗ finds a strategy as good."""
        return max(self.shares) > 1 - 1e-3

    def loss(self, terms: Terms, noise: Noise) -> PairsLoss:
        """The error of the products for the terms, as a function of the free numbers of the factors."""
        families = [
            (family_of(A, noise, even=even), family_of(B, noise, even=even))
            for A, B, even in zip(*self.parts, terms.even(), strict=True)
        ]
        return PairsLoss.of(terms.folded(), families, self.blocks)


def refined(
    terms: Terms, products: PairedProducts, noise: Noise, search: Search, *, steps: int = _STEPS
) -> PairedProducts:
    """The products after a joint descent on their exact error; Totals stay Totals.

    The shares are optimal at every step, so that the gradient is that at fixed shares. On 64 × 64 [Prefix ⊗ Identity;
    Identity ⊗ Prefix] this reaches 5.235, while shares that move with the factors reach 5.249 in as many steps.
    """
    loss = products.loss(terms, noise)
    last, inner = products.shares, search.silent()

    def objective(xs: list[Array]) -> tuple[float, list[Array]]:
        nonlocal last
        form = loss.at(xs)
        last, value = form.split(noise, _revived(last), inner)
        return value, form.gradient(np.array(last))[2]

    xs = loss.starts
    movable = bool(xs) and math.isfinite(objective(xs)[0])
    if movable and noise is Noise.LAPLACE:
        xs, _ = minimize_relative(objective, xs, search, upper=LARGEST, iterations=steps)
    elif movable:
        xs, _ = minimize_arrays(objective, xs, search, lower=None, iterations=steps)
    shares, error = loss.at(xs).split(noise, _revived(last), inner)
    return PairedProducts(shares, products.blocks, loss.matrices(xs), error)


def _revived(shares: Sequence[float]) -> list[float]:
    """Shares from which to optimise again: all are positive, because a Laplace share of 0 would stay 0."""
    return [0.9 * share + 0.1 / len(shares) for share in shares]


def widened(terms: Terms, products: PairedProducts, noise: Noise, search: Search) -> PairedProducts:
    """Products of every combination of the same factors, with new shares; the given ones if these are too many.

    The shares start at the mean of the given ones and equal ones, because a Laplace share of 0 stays 0.
    """
    d = len(terms.axes)
    if d > _COMBINED or math.prod(terms.folded().sizes) << d > _WIDE:
        return products
    blocks = np.array(list(itertools.product((0, 1), repeat=d)))
    held = dict(zip(map(tuple, products.blocks.tolist()), products.shares, strict=True))
    start = [0.5 * held.get(tuple(row), 0.0) + 0.5 / len(blocks) for row in blocks.tolist()]
    loss = replace(products, blocks=blocks).loss(terms, noise)
    shares, error = loss.at(loss.starts).split(noise, start, search, relative=False)
    kept = [g for g, share in enumerate(shares) if share > _LEAST]
    return PairedProducts(tuple(shares[g] for g in kept), blocks[kept], products.parts, error)


def _start(terms: Terms, ways: Sequence[Grouping], noise: Noise, search: Search) -> PairedProducts:
    """One product for each of two groups, or, at the second restart, more groups over two factors per attribute."""
    blocks, sides = paired(terms, search)
    more = len(blocks) > 2 and math.prod(terms.folded().sizes) * len(blocks) <= _WIDE
    starts = [ways[0], *[None] * more, *ways]  # the first way twice: its descents end up to 4 % apart
    turn, which = divmod(search.restart, len(starts))
    search = search.numbered(turn)
    groups = starts[which]
    if groups is not None:
        parts = [_group_factors(terms, group, noise, search) for group in groups]
        return PairedProducts((0.5, 0.5), np.repeat([[0], [1]], len(terms.axes), axis=1), parts)
    asked = terms.partials([np.ones(len(each)) for each in terms.grams])
    parts = [
        [
            opt_0(
                mixed(weights[side == f].tolist(), [V for V, g in zip(each, side.tolist(), strict=True) if g == f]),
                search,
                noise,
            )
            for weights, each, side in zip(asked, terms.grams, sides, strict=True)
        ]
        for f in range(2)
    ]
    return PairedProducts((1 / len(blocks),) * len(blocks), blocks, parts)


def _group_factors(terms: Terms, group: tuple[int, ...], noise: Noise, search: Search) -> list[Matrix]:
    """The factors of one product for some of the terms; Total on attributes where they ask only for the total."""
    part = terms.taken(group)
    found = dict(zip(part.axes, product_factors(part, noise, search), strict=True))
    return [found.get(axis, Ones(1, n)) for axis, n in zip(terms.axes, terms.sizes, strict=True)]


def _tamed(A: Matrix) -> Matrix:
    theta = theta_of(A)
    return A if theta is None else PIdentity(np.minimum(theta, _TAME))


def _fresh(A: Matrix, rng: np.random.Generator) -> Matrix:
    """A tree in place of an optimised factor.

    A factor that suits one group is a poor start for two groups together: on 256 × 256 [AllRange ⊗ Total; Total ⊗
    AllRange] it leads to 10.81, a tree to 10.73.
    """
    n = A.shape[1]
    return PIdentity(varied(tree_rows(n, tree_widths(n, 16)), 0.0, rng))


def _nudged(A: Matrix, rng: np.random.Generator) -> Matrix:
    theta = theta_of(A)
    return A if theta is None else PIdentity(varied(theta, 0.5, rng))


def _changed(
    terms: Terms,
    start: PairedProducts,
    change: Callable[[Matrix, np.random.Generator], Matrix],
    rng: np.random.Generator,
) -> PairedProducts:
    """The products with other factors, and with other weights on the totals of identities.

    The joint error has minima in which one of the products does not measure these totals. On the 2-way range-marginals
    of CPS, such starts lead to 26.9 instead of 31.1.
    """

    def changed(A: Matrix, *, even: bool) -> Matrix:
        return A if isinstance(A, Ones) else _evenly(A, rng) if even else change(A, rng)

    even = terms.even()
    parts = [[changed(A, even=e) for A, e in zip(part, even, strict=True)] for part in start.parts]
    return replace(start, parts=parts)


def _evenly(A: Matrix, rng: np.random.Generator) -> Matrix:
    return PIdentity(np.full((1, A.shape[1]), float(np.exp(2 * rng.normal()))))


def _factors(by_axis: dict[int, Matrix]) -> tuple[tuple[int, Matrix], ...]:
    return tuple((i, A) for i, A in sorted(by_axis.items()) if not isinstance(A, Ones))


def groupings(terms: Terms, search: Search) -> list[Grouping]:
    """Pairs of groups to try, the most promising first, without repeats; empty if there is only one term.

    Terms are grouped by the single-product strategies that suit them (two clusters), by whether one attribute is
    active, by the number of active attributes, into halves in order, as in the paper, and into random halves.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.select.search import first_search
    >>> terms = Terms.of(Workload.marginals(Domain({"a": 2, "b": 3}), k=1))
    >>> groupings(terms, first_search())
    [((0,), (1,))]
    """
    k = len(terms.coefficients)
    if k < 2:
        return []
    active = terms.active
    masks = [_clusters(terms, search)] if k <= _MOST_CLUSTERED else []
    masks += [active[:, i] for i in np.argsort(-np.asarray(terms.sizes), kind="stable")]
    masks += [active.sum(axis=1) > size for size in np.unique(active.sum(axis=1))]
    masks += [np.arange(k) >= k // 2, search.rng.permutation(k) >= k // 2]
    found: dict[Grouping, None] = {}
    for mask in masks:
        parts = (tuple(np.flatnonzero(~mask).tolist()), tuple(np.flatnonzero(mask).tolist()))
        if all(parts):
            found[parts if parts[0] < parts[1] else parts[::-1]] = None
    return list(found)


def paired(terms: Terms, search: Search) -> tuple[Array, list[Array]]:
    """(factors of the blocks, blocks × attributes; factor of each gram): many groups over two factors per attribute.

    On every attribute the grams are divided in two: one gram each if there are two, Total and the rest, or the two
    clusters whose strategies serve all grams best. Terms with the same factors on all attributes form one group. So
    every product is a group if all have different grams, and every set of active attributes is a group if there are
    only Total and one other gram.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.select.search import first_search
    >>> terms = Terms.of(Workload.marginals(Domain({"a": 2, "b": 3, "c": 4}), k=1))
    >>> paired(terms, first_search())[0]
    array([[0, 1, 1],
           [1, 0, 1],
           [1, 1, 0]])
    """
    sides = [_sides(each, search) for each in terms.grams]
    rows = np.stack([side[terms.choices[:, i]] for i, side in enumerate(sides)], axis=1)
    return np.unique(rows, axis=0), sides


def _sides(grams: Sequence[Matrix], search: Search) -> Array:
    """0 or 1 for each gram of an attribute."""
    totals = np.array([is_total(V) for V in grams])
    if totals.any() or len(grams) <= 2:
        return totals.astype(np.int64) if totals.any() else np.arange(len(grams))
    costs = np.array([_costs(V, grams, search) for V in grams])
    return _two_clusters(costs, search).astype(np.int64)


def _clusters(terms: Terms, search: Search) -> Array:
    """Two clusters of terms, around the two terms whose strategies together serve all terms best.

    The strategy of a term is a product of one result of OPT_0 per distinct gram. Its cost for another term is the
    product of traces, which is infinite if it measures only the total where the other term needs more. Every term
    goes to the cheaper of the two, and the budget is divided by the cube roots of the costs. O(k²·(d + k)).
    """
    k, d = terms.choices.shape
    logs = np.zeros((k, k))  # [strategy, term]
    for i in range(d):
        each = terms.grams[i]
        table = np.array([np.log(_costs(V, each, search)) for V in each])
        logs += table[terms.choices[:, i][:, None], terms.choices[:, i][None, :]]
    costs = terms.coefficients * np.exp(logs)
    return _two_clusters(costs, search)


def _two_clusters(costs: Array, search: Search) -> Array:
    """A mask of the terms that go to the second of the best two strategies; `costs` is [strategy, term]. O(k³)."""
    k = len(costs)
    best, mask = np.inf, np.arange(k) > 0
    for p in range(k):
        if search.late:
            break
        for q in range(p + 1, k):
            second = costs[q] < costs[p]
            second[q], second[p] = True, False
            value = np.cbrt(costs[p][~second].sum()) + np.cbrt(costs[q][second].sum())
            if value < best:
                best, mask = value, second
    return mask


def _costs(V: Matrix, others: Sequence[Matrix], search: Search) -> Array:
    """The error of each gram under the strategy that suits V, relative to its error under Identity."""
    A = opt_0(V, search.silent().numbered(0))
    if isinstance(A, Ones):
        return np.array([1 / V.shape[0] if is_total(U) else np.inf for U in others])
    H = gram_inverse(A)
    return np.array([trace_product(H, U) for U in others])
