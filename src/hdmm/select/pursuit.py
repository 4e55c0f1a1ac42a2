"""Pursuit: what an operator finds, moved on until the worst query of any table is no worse than it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from hdmm.matrix import PIdentity
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_b import refined
from hdmm.select.parts import POWERS
from hdmm.select.problem import Problem
from hdmm.select.row_weights import RowWeights
from hdmm.select.search import Search
from hdmm.select.theta import theta_of
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_ROUNDS_WITHOUT_GAIN = 3
_ROUND_GAIN = 1e-3
_LEAST_STRIDE = 0.1
_REPEATS = 2
_HOPELESS = 4.0  # times the value to beat: two products do not make up for it
_STEPS = 150  # of a descent, at each power of the norm
_DRAWS = 2  # descents with a base drawn anew
_STUCK = 100.0  # entries of Θ: above, gradients lose their digits
_CELLS_PER_ROW = 4  # of a base drawn anew
_MOST_DRAWN = 1 << 14  # entries of Θ

OperatorRun: TypeAlias = Callable[[Problem, Search], Strategy]


def pursued(operator: OperatorRun) -> OperatorRun:
    """An operator that also pursues the worst query of any table, where that is the goal."""
    return partial(_run, operator)  # unlike a closure, a partial of module functions can be pickled


def weighed(operator: OperatorRun) -> OperatorRun:
    """An operator that descends on the largest of the parts itself, and whose result the weights of rows move on."""
    return partial(_run_weighed, operator)


def repeated(operator: OperatorRun) -> OperatorRun:
    """An operator without descents from what was found, which runs again at other weights where "worst" is the goal.

    It does not run at all where one product is so far behind that several products will not make up for it.
    """
    return partial(_run_repeated, operator)


def _run_weighed(operator: OperatorRun, problem: Problem, search: Search) -> Strategy:
    strategy = operator(problem, search)
    if problem.parts is None or problem.noise is Noise.GAUSSIAN:
        return strategy
    return _rows_weighed(strategy, problem, search)


def _run_repeated(operator: OperatorRun, problem: Problem, search: Search) -> Strategy:
    if problem.parts is None:
        return operator(problem, search)
    product = search.found.get("OPT_x")
    if product is not None and problem.error(product) > _HOPELESS * search.beat:
        return product
    strategy = operator(problem, search)
    best, weights = strategy, RowWeights.even(problem)
    for _ in range(_REPEATS):
        if problem.error(strategy) >= search.beat or search.late:
            break
        weights = weights.moved(strategy, 1)
        strategy = operator(replace(weights.weighed, goal=problem.goal), search)
        best = min(best, strategy, key=problem.value)
    return best


def _run(operator: OperatorRun, problem: Problem, search: Search) -> Strategy:
    if problem.parts is None:
        return operator(problem, search)
    if problem.noise is Noise.GAUSSIAN:
        return _by_shares(operator, problem, search)
    return _by_parts(operator, problem, search)


def _by_shares(operator: OperatorRun, problem: Problem, search: Search) -> Strategy:
    """The operator's strategy for the sum of the errors, and steps of it and of the shares of the sum in turn.

    Selection for Gaussian noise is convex, or nearly so, and (ω, strategy) a saddle point: shares move by squared
    ratios (worst.py), and the strategy by one step only, so that neither runs ahead of the other.
    """
    weights = RowWeights.even(problem)
    strategy = operator(weights.weighed, replace(search, beat=math.inf))
    best, least, stalled = strategy, problem.value(strategy), 0
    while stalled < _ROUNDS_WITHOUT_GAIN and not search.late:
        moved = weights.moved(strategy, 2)
        if moved is weights:
            break
        weights = moved
        strategy = refined(weights.weighed, strategy, search.silent())
        value = problem.value(strategy)
        stalled = 0 if value < least * (1 - _ROUND_GAIN) else stalled + 1
        if value < least:
            best, least = strategy, value
    return best


def _by_parts(operator: OperatorRun, problem: Problem, search: Search) -> Strategy:
    """The operator's strategy, and descents on the norm of the parts as the weights of their rows move.

    Every second restart the operator is given the sum of the errors first: where that ends, the descent on their
    largest starts better than from what suits the largest from the beginning (24.3 against 25.1 on the demo's tables).
    Where a descent on the norm ends above that on the worst query, what suits the sum is the result.
    """
    if search.restart % 2:
        return _rows_weighed(operator(problem, search), problem, search)
    # The largest of several errors is at least their mean, which is what a sum has to beat.
    parts = 1 if problem.parts is None else problem.parts.count
    summed = operator(replace(problem, parts=None, goal=None), replace(search, beat=parts * search.beat))
    best = refined(problem, summed, search.silent(), steps=_STEPS)
    if problem.error(best) < search.beat:
        drawn = (_redrawn(summed, search.rng) for _ in range(_DRAWS))
        tried = [best, *(refined(problem, each, search.silent(), steps=_STEPS) for each in drawn)]
        best = min(tried, key=problem.error)
    return min(_rows_weighed(best, problem, search), summed, key=problem.value)


def _rows_weighed(strategy: Strategy, problem: Problem, search: Search) -> Strategy:
    """The strategy, or a better one after rounds in which rows of large variance gain weight.

    A round that gains nothing is taken back, and the next one has half its stride.
    """
    if problem.error(strategy) >= search.beat or (problem.goal is not None and problem.goal.means):
        return strategy  # the mean of a product is at most its worst row, and weights only raise it
    best, least, stride = strategy, problem.value(strategy), 1.0
    weights = RowWeights.even(problem)
    while stride >= _LEAST_STRIDE and not search.late:
        moved = weights.moved(best, stride)
        if moved is weights:
            break
        strategy = refined(_sharpest(moved.weighed), best, search.silent(), steps=_STEPS)
        value = problem.value(strategy)
        if value > least * (1 - _ROUND_GAIN):
            stride /= 2
        if value < least:
            best, least, weights = strategy, value, moved
    return best


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


def _sharpest(problem: Problem) -> Problem:
    return problem if problem.parts is None else replace(problem, parts=replace(problem.parts, power=POWERS[-1]))
