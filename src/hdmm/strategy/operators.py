"""The operators that suit a problem, in the form that OPT_HDMM runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hdmm.predicates import Identity
from hdmm.strategy.base import Strategy
from hdmm.strategy.bases import descended, opt_g
from hdmm.strategy.marginal import opt_m
from hdmm.strategy.merged import mergeable, opt_merged
from hdmm.strategy.parts import POWERS
from hdmm.strategy.problem import Problem
from hdmm.strategy.product import opt_x
from hdmm.strategy.rows import weighed_rows
from hdmm.strategy.search import Search
from hdmm.strategy.select import Operator
from hdmm.strategy.spaces import on_cells, opt_r
from hdmm.strategy.union import opt_plus

_MOST_FACTORS = 2**20  # of all products together, where OPT_x and OPT_+ are tried
_MOST_MERGED = 2048  # cells, where predicates on several attributes at once are optimised over all of them
_MARGINALS = 1e-4  # sets of marginals have many minima that are all but equal; up-to-8-way gains at restart 6
_ROUNDS_WITHOUT_GAIN = 3
_ROUND_GAIN = 1e-3
_UNIONS = 1e-3  # two products are refined in a few hundred steps, and end that near to each other


def operators_for(problem: Problem) -> list[Operator]:
    """The operators worth trying; those that are fast and often best come first.

    >>> from hdmm import Domain, Workload
    >>> [o.name for o in operators_for(Problem(Workload.marginals(Domain({"a": 3, "b": 4}), k=2)))]
    ['OPT_M', 'OPT_x', 'OPT_G', 'OPT_0']
    """
    products = problem.workload.products
    once = 1 if problem.noise.convex else None
    if any(product.joint for product in products):
        return _over_several(problem)
    active = {i for product in products for i, _ in product.factors}
    if len(active) <= 1:
        return [Operator("OPT_0", _pursued(_raced(opt_x)), once)]
    several = len({product.factors for product in products}) > 1
    chosen = [Operator("OPT_M", _pursued(opt_m), once, agree=_MARGINALS)]
    # A step of the others goes through every attribute of every product: if these are many, plain marginals are
    # left to OPT_M, and other predicates to OPT_G.
    quick = len(products) * len(active) <= _MOST_FACTORS
    if quick:
        chosen.append(Operator("OPT_x", _pursued(_raced(opt_x))))
    if quick or any(p != Identity() for product in products for _, p in product.factors):
        # One product has no use for marginals: after its own start and the one from OPT_x, nothing was gained.
        chosen.append(Operator("OPT_G", _pursued(_over_bases), None if several else 2, agree=_MARGINALS))
    if several and quick:
        chosen.append(Operator("OPT_+", _raced(opt_plus), agree=_UNIONS))  # late, because a start takes seconds
    if quick and set(mergeable(problem)) == active:
        chosen.append(Operator("OPT_0", _raced(opt_merged)))
    return chosen


def _over_several(problem: Problem) -> list[Operator]:
    """The operators for predicates on several attributes at once.

    With Gaussian noise, OPT_R: each residual space by itself. The others know of predicates on single attributes only:
    for Laplace noise they are given every cell of the attributes that are seen together, in place of the predicates.
    On few cells, all attributes merged into one is a candidate for both.
    """
    active = tuple(sorted({i for product in problem.workload.products for axes, _ in product.sets for i in axes}))
    cells = math.prod(problem.workload.domain.shape[i] for i in active)
    chosen = [Operator("OPT_R", opt_r, 1)] if problem.noise.convex else []
    if problem.parts is None and cells <= _MOST_MERGED:
        once = 1 if problem.noise.convex else None
        chosen.append(Operator("OPT_0", _raced(partial(opt_merged, axes=active)), once))
    if not problem.noise.convex:
        apart = replace(problem, given=on_cells(problem.workload))
        chosen += [
            replace(o, run=partial(_run_instead, o.run, apart)) for o in operators_for(apart) if o.name != "OPT_0"
        ]
    return chosen


def _run_instead(
    operator: Callable[[Problem, Search], Strategy], apart: Problem, problem: Problem, search: Search
) -> Strategy:
    """An operator run on another problem, whose errors are not those to beat."""
    return operator(apart, replace(search, beat=math.inf))


def _raced(operator: Callable[[Problem, Search], Strategy]) -> Callable[[Problem, Search], Strategy]:
    """An operator whose progress is its error relative to Identity's; starts that fall behind are abandoned."""
    return partial(_run_raced, operator)  # unlike a closure, a partial of module functions can be pickled


def _run_raced(operator: Callable[[Problem, Search], Strategy], problem: Problem, search: Search) -> Strategy:
    plain = problem.identity_error
    if problem.noise.convex or plain <= 0:
        return operator(problem, search)
    return operator(problem, search.racing(search.beat / plain))


def _pursued(operator: Callable[[Problem, Search], Strategy]) -> Callable[[Problem, Search], Strategy]:
    """An operator that also pursues the worst query of any table, where that is the goal."""
    return partial(_run_pursued, operator)


def _run_pursued(operator: Callable[[Problem, Search], Strategy], problem: Problem, search: Search) -> Strategy:
    """The operator's strategy, moved on until the worst rows are no worse than they must be.

    Every second restart the operator is given the sum of the errors first: where that ends, the descent on their
    largest starts better than from what suits the largest from the beginning (24.3 against 25.1 on the demo's tables).
    """
    if problem.parts is None:
        return operator(problem, search)
    if search.restart % 2:
        strategy = operator(problem, search)
    else:
        summed = replace(problem, parts=None, goal=None)
        found = operator(summed, replace(search, beat=math.inf))
        strategy = descended(problem, found, search.silent())
    best, least, stalled = strategy, problem.value(strategy), 0
    weighed: Problem | None = replace(problem, parts=replace(problem.parts, power=POWERS[-1]))
    while stalled < _ROUNDS_WITHOUT_GAIN and not search.late:
        weighed = weighed_rows(weighed, strategy)
        if weighed is None:
            break
        strategy = descended(weighed, strategy, search.silent())
        value = problem.value(strategy)
        stalled = 0 if value < least * (1 - _ROUND_GAIN) else stalled + 1
        if value < least:
            best, least = strategy, value
    return best


def _over_bases(problem: Problem, search: Search) -> Strategy:
    """OPT_G from its own starts, and at restarts 1 and 2 from the results of OPT_x and OPT_M, which it generalises."""
    source = search.found.get({1: "OPT_x", 2: "OPT_M"}.get(search.restart, ""))
    raced = search if problem.noise.convex else search.racing(search.beat)
    return opt_g(problem, raced, start=source)
