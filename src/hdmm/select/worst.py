"""The worst query as the goal: weights on rows, moved around any operator until they represent the worst.

The queries of a product are weighed through its factors, ω_r = Π_i r_i, so that every operator sees them as another
product of the same kind. Weights move towards the queries of large variance, and where they settle, the weighted mean
is the worst variance of what has weight at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, final

import numpy as np

from hdmm.describe.predicates import Weighted
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, PIdentity
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_b import refined
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.terms import POWERS
from hdmm.select.theta import theta_of
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_MOST_ROWS = 1 << 22  # of a product whose rows are weighed: their variances are held at once
_EVEN = 1e-3  # of the mean: variances closer than that are alike
_PATIENCE = 3  # rounds without a gain, after which there are no more
_GAIN = 1e-3  # of a round
_LEAST_STRIDE = 0.1
_REPEATS = 2
_HOPELESS = 4.0  # times the value to beat: two products do not make up for it
_STEPS = 150  # of a descent, at each power of the norm
_DRAWS = 2  # descents with a base drawn anew
_STUCK = 100.0  # entries of Θ: above, gradients lose their digits
_CELLS_PER_ROW = 4  # of a base drawn anew
_MOST_DRAWN = 1 << 14  # entries of Θ

OperatorRun: TypeAlias = Callable[[Problem, Search], Strategy]
Step: TypeAlias = Callable[[Problem, Strategy], Strategy]
"""(the problem at other weights, the last strategy) ↦ a strategy for these weights."""

Mode: TypeAlias = Literal["descend", "weigh", "repeat"]
"""How an operator gets to the worst query: descents from what it finds for the sum of the errors; descents from what it
finds for the largest of the parts itself; or runs of it at other weights, where nothing descends from what it finds."""


def for_worst_case(operator: OperatorRun, mode: Mode) -> OperatorRun:
    """An operator that also moves the weights of rows towards the worst query of any table, where that is the goal."""
    return partial(_run, operator, mode)  # unlike a closure, a partial of module functions can be pickled


def rounds(
    problem: Problem, start: Strategy, step: Step, search: Search, *, stride: float = 2.0, most: int | None = None
) -> Strategy:
    """The strategy of the least worst variance among a start and the steps from it, between which row weights move.

    Selection for Gaussian noise is convex, or nearly so, and (ω, strategy) a saddle point: weights move by squared
    ratios (worst_optimum.py), and the strategy by one step only, so that neither runs ahead of the other. Under Laplace
    noise a round that gains nothing is taken back, and the next one has half its stride.
    """
    if search.late:  # ranking queries takes as long as the time that is kept for the result
        return start
    convex, weights = problem.noise.convex, RowWeights.even(problem)
    strategy = best = start
    least, stalled, count = problem.value(start), 0, 0
    while stalled < _PATIENCE and stride >= _LEAST_STRIDE and not search.late and (most is None or count < most):
        moved = weights.moved(strategy if convex else best, stride)
        if moved is weights:
            break
        strategy = step(moved.weighed, strategy if convex else best)
        value, count = problem.value(strategy), count + 1
        gains = value < least * (1 - _GAIN)
        if convex:
            stalled = 0 if gains else stalled + 1
        elif not gains:
            stride /= 2
        if convex or value < least:
            weights = moved
        if value < least:
            best, least = strategy, value
    return best


def _run(operator: OperatorRun, mode: Mode, problem: Problem, search: Search) -> Strategy:
    if problem.parts is None:
        return operator(problem, search)
    if mode == "repeat":
        return _repeated(operator, problem, search)
    if not problem.noise.convex:
        if mode == "descend" and search.restart % 2 == 0:
            return _descended(operator, problem, search)
        return _weighed(operator(problem, search), problem, search)
    if mode == "weigh":
        return operator(problem, search)
    start = operator(RowWeights.even(problem).weighed, replace(search, beat=math.inf))
    return rounds(problem, start, lambda weighed, last: refined(weighed, last, search.silent()), search)


def _repeated(operator: OperatorRun, problem: Problem, search: Search) -> Strategy:
    """What an operator finds at other weights of the rows; not at all where one product is hopelessly far behind."""
    product = search.found.get("OPT_x")
    if product is not None and problem.error(product) > _HOPELESS * search.beat:
        return product
    start = operator(problem, search)
    if problem.error(start) >= search.beat:
        return start

    def step(weighed: Problem, last: Strategy) -> Strategy:
        return operator(replace(weighed, goal=problem.goal), search)

    return rounds(problem, start, step, search, stride=1.0, most=_REPEATS)


def _descended(operator: OperatorRun, problem: Problem, search: Search) -> Strategy:
    """The operator's strategy for the sum of the errors, and descents on their largest as the weights of rows move.

    Where the sum ends, the descent on the largest starts better than from what suits the largest from the beginning
    (24.3 against 25.1 on the demo's tables). Where a descent on the norm of the parts ends above that on the worst
    query, what suits the sum is the result.
    """
    # The largest of several errors is at least their mean, which is what a sum has to beat.
    parts = 1 if problem.parts is None else problem.parts.count
    summed = operator(replace(problem, parts=None, goal=None), replace(search, beat=parts * search.beat))
    best = refined(problem, summed, search.silent(), steps=_STEPS)
    if problem.error(best) < search.beat:
        drawn = (_redrawn(summed, search.rng) for _ in range(_DRAWS))
        tried = [best, *(refined(problem, each, search.silent(), steps=_STEPS) for each in drawn)]
        best = min(tried, key=problem.error)
    found = _weighed(best, problem, search)
    return min(found, summed, key=problem.error if search.late else problem.value)


def _weighed(start: Strategy, problem: Problem, search: Search) -> Strategy:
    """The strategy, or a better one after descents on the largest of the parts, whose rows are weighed."""
    if problem.error(start) >= search.beat or (problem.goal is not None and problem.goal.means):
        return start  # the mean of a product is at most its worst row, and weights only raise it

    def step(weighed: Problem, last: Strategy) -> Strategy:
        parts = None if weighed.parts is None else replace(weighed.parts, power=POWERS[-1])
        return refined(replace(weighed, parts=parts), last, search.silent(), steps=_STEPS)

    return rounds(problem, start, step, search, stride=1.0)


def _redrawn(strategy: Strategy, rng: np.random.Generator) -> Strategy:
    """The strategy with a base drawn at random: those with entries so large that nothing moves them, or any one.

    On the demo's tables the start from the sum's own bases ends at 24.3, those with another base for races at 24.06 on
    average. Random rows beat those that are varied a little.
    """
    thetas = {axis: theta_of(A) for block in strategy.blocks for (axis, *_), A in block.factors}
    free = {axis: theta for axis, theta in thetas.items() if theta is not None and 0 < theta.size <= _MOST_DRAWN}
    if not free:
        return strategy
    stuck = [axis for axis, theta in free.items() if theta.max() > _STUCK]
    chosen = stuck or [int(rng.choice(list(free)))]
    drawn = {
        axis: PIdentity(rng.random((-(-n // _CELLS_PER_ROW), n))) for axis in chosen for n in [free[axis].shape[1]]
    }
    blocks = (
        Block(block.weight, [(axes, drawn.get(axes[0], A)) for axes, A in block.factors]) for block in strategy.blocks
    )
    return replace(strategy, blocks=tuple(blocks))


@final
@dataclass(frozen=True, slots=True, eq=False)
class RowWeights:
    """For each product of a problem its share, and weights of mean 1 on the rows of each of its predicate sets.

    Shares are those of a sum of errors. Where parts are combined by a norm, the norm weighs them, and shares stay 1.
    """

    problem: Problem
    shares: Array
    rows: tuple[tuple[Array, ...], ...]

    @classmethod
    def even(cls, problem: Problem) -> RowWeights:
        """All rows alike."""
        products = problem.workload.products
        rows = tuple(tuple(np.ones(p.count(each.cells(axes))) for axes, p in each.sets) for each in products)
        return cls(problem, np.ones(len(products)), rows)

    @property
    def weighed(self) -> Problem:
        """The problem at these weights: errors are summed under Gaussian noise, where that is a convex problem."""
        products = [
            Product.of(
                product.domain,
                [
                    (axes, p if np.ptp(r) <= _EVEN else Weighted(p, np.sqrt(r)))
                    for (axes, p), r in zip(product.sets, rows, strict=True)
                ],
                product.weight * math.sqrt(share),
            )
            for product, share, rows in zip(self.problem.workload.products, self.shares, self.rows, strict=True)
        ]
        weighed = replace(self.problem, given=Workload(self.problem.workload.domain, tuple(products)))
        return weighed if self.problem.noise is Noise.LAPLACE else replace(weighed, parts=None, goal=None)

    def moved(self, strategy: Strategy, stride: float) -> RowWeights:
        """ω ← ω·vˢ at the variances v under a strategy, in product form: each factor has the marginal of the result.

        Where errors are summed, shares move as well, to the sums of the results. Itself if all variances are alike.
        """
        products = self.problem.workload.products
        found = [_moved(*each, strategy, stride) for each in zip(products, self.rows, strict=True)]
        rows = tuple(each for _, each in found)
        shares = self.shares
        if self.problem.noise is Noise.GAUSSIAN:
            units = np.array([p.weight**2 * p.queries for p in products])
            shares = shares * np.array([mean for mean, _ in found]) * units**stride
            shares = shares / shares.mean()
        same = all(new is old for new, old in zip(sum(rows, ()), sum(self.rows, ()), strict=True))
        return (
            self if same and np.allclose(shares, self.shares, rtol=_EVEN) else replace(self, shares=shares, rows=rows)
        )


def _moved(
    product: Product, rows: Sequence[Array], strategy: Strategy, stride: float
) -> tuple[float, tuple[Array, ...]]:
    """(the mean of ω·vˢ, its marginal on each factor divided by that)."""
    counts = [len(r) for r in rows]
    if product.queries > _MOST_ROWS:
        queries = float(product.queries)
        return (strategy.form.total_variance([replace(product, weight=1.0)]) / queries) ** stride, tuple(rows)
    v = np.concatenate(list(strategy.variances(replace(product, weight=1.0)))).reshape(counts) ** stride
    for j, r in enumerate(rows):
        v = v * r.reshape([-1 if k == j else 1 for k in range(len(counts))])
    mean = float(v.mean())
    marginals = [v.mean(axis=tuple(k for k in range(len(counts)) if k != j)) / mean for j in range(len(counts))]
    ratios = (np.divide(m, r, out=np.ones_like(r), where=r > 0) for m, r in zip(marginals, rows, strict=True))
    moved = (r if np.ptp(q) <= _EVEN else m for q, m, r in zip(ratios, marginals, rows, strict=True))
    return mean, tuple(moved)
