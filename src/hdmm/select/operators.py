"""The operators that suit a problem, in the form that OPT_HDMM runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import Identity
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_0 import FEW, kinds
from hdmm.select.opt_b import opt_b, own_base_candidates
from hdmm.select.opt_g import opt_g
from hdmm.select.opt_m import opt_m
from hdmm.select.opt_plus import opt_plus
from hdmm.select.opt_r import measurable, opt_r
from hdmm.select.opt_s import opt_s, suits_signs
from hdmm.select.opt_x import mergeable, opt_merged, opt_x
from hdmm.select.orbits import divisible, opt_orbits
from hdmm.select.problem import Problem
from hdmm.select.search import Operator, Search
from hdmm.select.spaces import on_cells, opt_spaces
from hdmm.select.worst import for_worst_case
from hdmm.select.worst_optimum import opt_worst, writable
from hdmm.strategy.informed import beyond_groups
from hdmm.strategy.strategy import Strategy

_MOST_FACTORS = 2**20  # of all products together, where OPT_x and OPT_+ are tried
_MOST_GAUSSIAN = 2**14  # the same for Gaussian noise, for which OPT_G alone is best on many attributes
_MOST_JOINT = 2048  # cells, where predicates on several attributes at once are optimised over all of them
_MARGINALS = 1e-4  # sets of marginals have many minima that are all but equal
_PATIENT = 12  # restarts of OPT_M take a tenth of a second, and gain late
_SIGNED = 3  # restarts of OPT_S: the first is the best on many cells, others on few, where they take no time
_IMPATIENT = 2  # restarts of OPT_+ and of merged attributes take up to half a minute; none gained after restart 1
_MOST_RANKED = 1 << 31  # queries times cells: two seconds
_SINGLE_ONLY = ("OPT_0", "OPT_B")  # of every cell there is nothing to merge; the form of OPT_B needs few cells
_UNIONS = 1e-3  # two products are refined in a few hundred steps, and end that near to each other


def operators_for(problem: Problem) -> list[Operator]:
    """The operators worth trying; those that are fast and often best come first.

    >>> from hdmm import Domain, Workload
    >>> [o.name for o in operators_for(Problem(Workload.marginals(Domain({"a": 3, "b": 4}), k=2)))]
    ['OPT_M', 'OPT_x', 'OPT_G', 'OPT_0']
    """
    signed = [Operator("OPT_S", opt_s, _SIGNED)] if suits_signs(problem) else []
    if any(product.joint for product in problem.given.products):
        return [*_over_several(problem), *signed]
    residual = [Operator("OPT_R", opt_r, 1)] if problem.noise is Noise.GAUSSIAN and measurable(problem.given) else []
    if residual and problem.plain:
        return residual
    if problem.whole and writable(problem):
        return [*residual, Operator("OPT_0", opt_worst, 1)]  # the optimum over all strategies
    products = problem.workload.products
    once = 1 if problem.noise.convex else None
    active = {i for product in products for i, _ in product.factors}
    if not active:  # multiples of the total, where there is nothing to gain
        return [*residual, Operator("OPT_0", opt_x, 1)]
    if len(active) == 1:
        (cells,) = (problem.workload.domain.shape[i] for i in active)
        patience = kinds(cells) - 1 if cells > FEW else 4  # one of each kind
        found = Operator("OPT_0", for_worst_case(_raced(opt_x), "descend"), once, patience=patience)
        return [*residual, found, *signed]
    if problem.whole and divisible(problem):
        return [*residual, Operator("OPT_0", opt_orbits, 1)]
    several = len({product.factors for product in products}) > 1
    chosen = [*residual, Operator("OPT_M", for_worst_case(_marginals, "descend"), once, agree=0.0, patience=_PATIENT)]
    # A step of the others goes through every attribute of every product: if these are many, plain marginals are
    # left to OPT_M, and other predicates to OPT_G.
    wide = problem.noise is Noise.GAUSSIAN and len(products) * len(active) > _MOST_GAUSSIAN
    quick = not wide and len(products) * len(active) <= _MOST_FACTORS
    if quick:
        chosen.append(Operator("OPT_x", for_worst_case(_raced(opt_x), "descend")))
    if quick or any(p != Identity() for product in products for _, p in product.factors):
        # One product has no use for marginals: after its own start and the one from OPT_x, nothing was gained. Under
        # Gaussian noise there are its own start and the two from others.
        starts = 1 if wide else 2 if not several else 3 if problem.noise.convex else None
        chosen.append(Operator("OPT_G", for_worst_case(_over_bases, "descend"), starts, agree=_MARGINALS))
    if several and quick:
        # Late, because a start takes seconds.
        chosen.append(Operator("OPT_+", for_worst_case(_raced(opt_plus), "repeat"), agree=_UNIONS, patience=_IMPATIENT))
    if several and quick and own_base_candidates(problem):
        chosen.append(Operator("OPT_B", for_worst_case(opt_b, "weigh"), once, agree=_MARGINALS))
    if quick and set(mergeable(problem)) == active and _ranked(problem, math.prod(problem.terms.sizes)):
        chosen.append(Operator("OPT_0", for_worst_case(_raced(opt_merged), "repeat"), patience=_IMPATIENT))
    return [*chosen, *signed]


def operators_beside(problem: Problem) -> list[Operator]:
    """The operators for a problem with known counts: for what it asks beyond known groups and, in turn, for all of it.

    The first is mostly better; but what is left of groups of groups is no tree any more.
    """
    apart = replace(problem, given=beyond_groups(problem.given, problem.known))
    if problem.parts is not None or apart.given is problem.given:
        return operators_for(problem)
    return [replace(o, run=partial(_run_in_turn, o.run, apart)) for o in operators_for(apart)]


def _run_in_turn(
    operator: Callable[[Problem, Search], Strategy], apart: Problem, problem: Problem, search: Search
) -> Strategy:
    return operator(problem if search.restart % 2 else apart, replace(search, beat=math.inf))


def _over_several(problem: Problem) -> list[Operator]:
    """The operators for predicates on several attributes at once.

    With Gaussian noise, OPT_R: each residual space by itself. The others know of predicates on single attributes only,
    and under Gaussian noise every cell has several times the error: for Laplace noise they are given every cell of the
    attributes that are seen together, in place of the predicates. On few cells, OPT_0 over all of them is a candidate.
    """
    active = tuple(sorted({i for product in problem.workload.products for i in product.axes}))
    cells = math.prod(problem.workload.domain.shape[i] for i in active)
    if problem.noise is Noise.GAUSSIAN:
        chosen = [Operator("OPT_R", _spaces, 1)]
        if problem.whole and writable(problem):
            return [*chosen, Operator("OPT_0", opt_worst, 1)]
    else:
        apart = replace(problem, given=on_cells(problem.workload))
        each = (o for o in operators_for(apart) if o.name not in _SINGLE_ONLY)
        chosen = [replace(o, run=partial(_run_instead, o.run, apart)) for o in each]
    if cells <= _MOST_JOINT and _ranked(problem, cells):
        merged = for_worst_case(_raced(partial(opt_merged, axes=active)), "repeat")
        chosen.append(Operator("OPT_0", merged, 1 if problem.noise.convex else None, patience=_IMPATIENT))
    return chosen


def _spaces(problem: Problem, search: Search) -> Strategy:
    """Each residual space at its own optimum, or by the closed form for all its cells where that is too large."""
    try:
        return opt_spaces(problem, search)
    except StrategyError:
        return opt_r(replace(problem, given=on_cells(problem.workload)), search)


def _run_instead(
    operator: Callable[[Problem, Search], Strategy], apart: Problem, problem: Problem, search: Search
) -> Strategy:
    """An operator run on another problem, whose errors are not those to beat."""
    return operator(apart, replace(search, beat=math.inf))


def _ranked(problem: Problem, cells: int) -> bool:
    """Whether the worst query under a strategy over all cells is found in seconds, which nothing interrupts."""
    if problem.parts is not None and problem.noise.convex:
        return False  # cells that are few enough to be merged have their worst query written out
    if problem.goal is None or problem.goal.linear:
        return True
    return problem.goal.workload.queries * cells <= _MOST_RANKED


def _raced(operator: Callable[[Problem, Search], Strategy]) -> Callable[[Problem, Search], Strategy]:
    """An operator whose progress is its error relative to Identity's; starts that fall behind are abandoned."""
    return partial(_run_raced, operator)  # unlike a closure, a partial of module functions can be pickled


def _run_raced(operator: Callable[[Problem, Search], Strategy], problem: Problem, search: Search) -> Strategy:
    plain = problem.identity_error
    if problem.noise.convex or plain <= 0:
        return operator(problem, search)
    return operator(problem, search.racing(search.beat / plain))


def _marginals(problem: Problem, search: Search) -> Strategy:
    """OPT_M from its own starts and, at every second restart from the third on, near the best of its results so far."""
    near = search.restart > 2 and search.restart % 2
    return opt_m(problem, search, start=search.found.get("OPT_M") if near else None)


def _over_bases(problem: Problem, search: Search) -> Strategy:
    """OPT_G from its own starts, and at restarts 1 and 2 from the results of OPT_x and OPT_M, which it generalises."""
    source = search.found.get({1: "OPT_x", 2: "OPT_M"}.get(search.restart, ""))
    raced = search if problem.noise.convex else search.racing(search.beat)
    return opt_g(problem, raced, start=source)
