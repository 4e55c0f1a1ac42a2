"""Pursuit: what an operator finds, moved on until the worst query of any table is no worse than it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from hdmm.privacy import Noise
from hdmm.strategy.base import Strategy
from hdmm.strategy.bases import descended
from hdmm.strategy.parts import POWERS
from hdmm.strategy.problem import Problem
from hdmm.strategy.rows import RowWeights
from hdmm.strategy.search import Search

_ROUNDS_WITHOUT_GAIN = 3
_ROUND_GAIN = 1e-3

OperatorRun: TypeAlias = Callable[[Problem, Search], Strategy]


def pursued(operator: OperatorRun) -> OperatorRun:
    """An operator that also pursues the worst query of any table, where that is the goal."""
    return partial(_run, operator)  # unlike a closure, a partial of module functions can be pickled


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
        strategy = descended(weights.weighed, strategy, search.silent())
        value = problem.value(strategy)
        stalled = 0 if value < least * (1 - _ROUND_GAIN) else stalled + 1
        if value < least:
            best, least = strategy, value
    return best


def _by_parts(operator: OperatorRun, problem: Problem, search: Search) -> Strategy:
    """The operator's strategy, and descents on the norm of the parts as the weights of their rows move.

    Every second restart the operator is given the sum of the errors first: where that ends, the descent on their
    largest starts better than from what suits the largest from the beginning (24.3 against 25.1 on the demo's tables).
    """
    parts = problem.parts
    if parts is None or search.restart % 2:
        strategy = operator(problem, search)
    else:
        summed = replace(problem, parts=None, goal=None)
        found = operator(summed, replace(search, beat=math.inf))
        strategy = descended(problem, found, search.silent())
    best, least, stalled = strategy, problem.value(strategy), 0
    sharp = problem if parts is None else replace(problem, parts=replace(parts, power=POWERS[-1]))
    weights = RowWeights.even(sharp)
    while stalled < _ROUNDS_WITHOUT_GAIN and not search.late:
        moved = weights.moved(strategy, 1)
        if moved is weights:
            break
        weights = moved
        strategy = descended(weights.weighed, strategy, search.silent())
        value = problem.value(strategy)
        stalled = 0 if value < least * (1 - _ROUND_GAIN) else stalled + 1
        if value < least:
            best, least = strategy, value
    return best
