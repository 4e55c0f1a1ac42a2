"""OPT_G: marginals over optimised bases. It generalises OPT_M (identity bases) and OPT_x (all weight on one subset).

Blocks are θ_a ⊗_{i∈a} B_i, with Total on the other attributes. For fixed bases the weights are found as in OPT_M, from
other statistics (demand.py). Then p-Identity bases and weights are optimised together (loss.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from hdmm.matrix import Array, Eye, Matrix, Ones, PIdentity, exchangeable, summed
from hdmm.matrix.matrix import inverse
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import Demand, contrasts
from hdmm.select.family import LARGEST, Constant
from hdmm.select.gaussian_optimum import Extrapolation, eigen_seconds, gaussian_optimum
from hdmm.select.loss import BasesLoss, descended
from hdmm.select.marginal_weights import Weights, maximal, most_cells
from hdmm.select.opt_0 import MAX_EIGEN, cell_order, opt_0
from hdmm.select.opt_m import gaussian_marginals, laplace_marginals, marginal_strategy, scaled_bases
from hdmm.select.pairs import BaseFamily
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.terms import POWERS, Terms, beyond_total
from hdmm.select.theta import DenseTheta, Windows, theta_of
from hdmm.select.tree import tree_widths
from hdmm.strategy.strategy import Strategy
from hdmm.strategy.subsets import subset_of

_MOST_REACH = 1 << 21  # cells of the products, repeats counted, up to which bases are optimised
_ALL_ENTRIES = 512  # number of values up to which every entry of Θ is free
_LOCAL = 8192  # number of values up to which bases have rows besides the identity, local to the nodes of a tree
_TREES = ((16, 8), (15, 9), (17, 8), (16, 16))  # children of a lowest node, and of the nodes above
_ZERO = 1e-6  # on larger attributes, entries of Θ below this stay 0
_ROUNDS = 4
_MOST_ROUNDS = 100  # under Gaussian noise; prefixes on five of Adult's attributes take 10
_FIRST_GAIN = 1e-2  # what the first round is taken to gain
_LAST_GAIN = 1e-6  # of a round, after which no more are begun
_SHARE = 0.1  # of what the last round gained: how far a base may be from its optimum
_AGREE = 1e-6  # largest relative difference between the loss and the error of the finished strategy


Finished: TypeAlias = tuple[float, Strategy]
"""(error, strategy); the error is computed from the finished strategy, not taken from an optimiser."""


def opt_g(problem: Problem, search: Search, *, start: Strategy | None = None) -> Strategy:
    """Marginals over bases with small error for the workload: one start of a portfolio.

    `start` has weighted blocks over one factor per attribute, such as the results of OPT_x and OPT_M; the result is
    never worse than `start`. Without it, even restarts start from the results of OPT_0 for the predicates on each
    attribute, and odd restarts start from random bases. Attributes that every product totals get Total.

    >>> from hdmm import AllRange, Domain, Workload, unit_error
    >>> from hdmm.select.search import first_search
    >>> domain = Domain({"age": 32, "income": 32})
    >>> w = Workload.product(domain, age=AllRange()) + Workload.product(domain, income=AllRange())
    >>> found = opt_g(Problem(w), first_search())
    >>> len(found.blocks), unit_error(w, found) < 7.2**2 * w.queries
    (2, True)
    """
    plain = problem.demand
    if not plain.axes or plain.scale == 0:
        return marginal_strategy(problem.workload.domain, plain, {0: 1.0}, noise=problem.noise)
    bases, weights = _parts(plain, start) if start is not None else (None, None)
    if problem.noise is Noise.GAUSSIAN:
        bases = bases or _contrast_bases(problem.terms, search.silent().numbered(0))
        found = _gaussian(problem, bases, weights, search)
    else:
        if bases is None and search.restart % 2 and _reach(problem) <= _MOST_REACH:
            bases, weights = _random_start(problem, search)
        found = _laplace(problem, bases or _first_bases(problem.terms, search), weights, search)
    return min(found, key=lambda each: each[0])[1]


def _laplace(problem: Problem, bases: Mapping[int, Matrix], warm: Weights | None, search: Search) -> Iterator[Finished]:
    """The start, the best weights for its bases, and rounds of joint descent and new weights."""
    asked = problem.demand_over(bases)
    if warm is not None:
        yield _finished(problem, asked, warm, bases)
    movable = _reach(problem) <= _MOST_REACH and len(asked.needed) <= 1 << 12
    last = math.inf
    for _ in range(_ROUNDS):
        weights = laplace_marginals(asked, search.silent(), warm=warm)
        error, strategy = _finished(problem, asked, weights, bases)
        yield error, strategy
        free = not all(isinstance(base_family(B), Constant) for B in bases.values())
        if not (movable and free) or error > last * (1 - 1e-4) or search.late:
            return
        moved, weights, value = _moved(problem, weights, bases, search)
        asked = problem.demand_over(moved)
        error, strategy = _finished(problem, asked, weights, moved)
        slack = 1.0 if problem.parts is None else problem.parts.count ** (1 / POWERS[-1])
        if not value / slack * (1 - _AGREE) <= error <= value * (1 + _AGREE):
            return  # the loss has lost its digits; what was found before is kept
        yield error, strategy
        bases, warm, last = moved, weights, error


def refined(problem: Problem, start: Strategy, search: Search, *, steps: int = 10_000) -> Strategy:
    """The local minimum below a strategy of marginals over bases, its own subsets kept; no new ones are looked for.

    At most so many steps per power of the norm of the parts.
    For Gaussian noise one step towards the minimum: new weights for the bases, and new bases for their surrogates.
    """
    bases, weights = _parts(problem.demand, start)
    if problem.noise is Noise.GAUSSIAN:
        return min(_gaussian(problem, bases, weights, search, rounds=1), key=lambda each: each[0])[1]
    if _reach(problem) > _MOST_REACH:
        return start
    moved, weights, _ = _moved(problem, weights, bases, search, steps=steps)
    return _finished(problem, problem.demand_over(moved), weights, moved)[1]


def _moved(
    problem: Problem, weights: Weights, bases: Mapping[int, Matrix], search: Search, *, steps: int = 10_000
) -> tuple[dict[int, Matrix], Weights, float]:
    """(bases, weights, error) at the local minimum below the given ones, over all Θ_i and θ together."""
    subsets = sorted(weights)
    moved, theta, value = dict(bases), np.array([weights[a] for a in subsets]), math.inf
    for terms in problem.terms.per_total().sharpened():
        shared = [base_family(moved.get(axis, Eye(n))) for axis, n in zip(terms.axes, terms.sizes, strict=True)]
        loss, scale = BasesLoss.of(terms, subsets, dict(enumerate(shared))), math.exp(terms.log_scale)
        # On 1024² a step takes 10 ms; the last 1e-3 of the error is not worth thousands of steps.
        tolerance = 1e-7 if theta.size + sum(x.size for x in loss.starts) <= 1 << 13 else 1e-6
        theta, xs, value = descended(
            loss, theta, Noise.LAPLACE, search, upper=LARGEST, tolerance=tolerance, steps=steps, scale=scale
        )
        if math.isfinite(value):
            moved |= {terms.axes[i]: B for i, B in loss.matrices(xs)[1].items()}
        if search.late:
            break
    return moved, {a: w for a, w in zip(subsets, theta.tolist(), strict=True) if w > 0}, value


def base_family(B: Matrix, largest: float = LARGEST) -> BaseFamily:
    """What is free of a base. Large ones keep the zeros they come with: their optima have a few entries per cell, and
    the rest costs time."""
    theta = theta_of(B)
    if theta is None or not len(theta):
        return Constant(B)
    theta = np.minimum(theta, largest)
    if theta.shape[1] <= _ALL_ENTRIES:
        return DenseTheta(theta)
    return DenseTheta.within(theta, np.flatnonzero(theta > _ZERO))


def _gaussian(
    problem: Problem, bases: Mapping[int, Matrix], warm: Weights | None, search: Search, *, rounds: int = _MOST_ROUNDS
) -> Iterator[Finished]:
    """The start, the best weights for its bases, and where rounds of new bases and weights end."""
    asked = problem.demand_over(bases)
    if warm is not None:
        yield _finished(problem, asked, warm, bases)
    weights = gaussian_marginals(asked, search)
    yield _finished(problem, asked, weights, bases)
    if _reach(problem) <= _MOST_REACH and not search.late:
        yield _finished(problem, *_settled(problem, asked, weights, bases, search, rounds))


def _settled(
    problem: Problem, asked: Demand, weights: Weights, bases: Mapping[int, Matrix], search: Search, rounds: int
) -> tuple[Demand, Weights, Mapping[int, Matrix]]:
    """(demand, weights, bases) after rounds, each of which has all bases at once for their surrogates, and new weights.

    A base is optimised to within a tenth of what the last round gained: to 10⁻³, as OPT_0 does by itself, rounds stall
    up to 2·10⁻⁴ above where these end. Surrogates are extrapolated; a step that gains nothing is taken back.
    """
    terms = problem.terms.per_total()
    # Surrogates have no structure: beyond, a trace alone takes n products with them, minutes that nothing interrupts.
    movable = [
        j for j, each in enumerate(terms.grams) if terms.sizes[j] <= MAX_EIGEN and not exchangeable(summed(each))
    ]
    step = sum(eigen_seconds(terms.sizes[j]) for j in movable)
    best, least, gain = (asked, weights, bases), math.inf, _FIRST_GAIN
    ahead = Extrapolation()
    for _ in range(rounds + 1 if movable else 0):
        loss = BasesLoss.of(terms, list(weights), {i: Constant(bases[axis]) for i, axis in enumerate(terms.axes)})
        at, theta = loss.at([]), np.array(list(weights.values()))
        error = at.error(theta)  # infinite if some of what is asked for is known, and so not measured
        last, least = least, min(least, error)
        if error < last:
            best = asked, weights, bases
        if not search.affords(step) or not (error < last * (1 - _LAST_GAIN) or (error >= last and ahead.extrapolates)):
            break
        if error < last:
            gain = min(gain, last / error - 1)
            surrogates = at.surrogates(theta)
            grams = ahead.after([surrogates[j] for j in movable])
        else:
            grams = ahead.taken_back()
        optima = (gaussian_optimum(V, search.silent(), tolerance=_SHARE * gain).A for V in grams)
        bases = {**bases, **{terms.axes[j]: A for j, A in zip(movable, optima, strict=True)}}
        asked = problem.demand_over(bases)
        weights = gaussian_marginals(asked, search)
    return best


def _finished(problem: Problem, asked: Demand, weights: Weights, bases: Mapping[int, Matrix]) -> Finished:
    strategy = marginal_strategy(problem.workload.domain, asked, weights, noise=problem.noise, bases=bases)
    return problem.error(strategy), strategy


def _first_bases(terms: Terms, search: Search) -> dict[int, Matrix]:
    """The results of OPT_0 for each attribute's predicates; the identity if only cells and totals are asked for."""
    bases: dict[int, Matrix] = {}
    turn = search.restart // 2
    for axis, V in _mean_grams(terms, weighted=search.restart % 4 == 0).items():
        n = V.shape[0]
        if exchangeable(V):
            bases[axis] = Eye(n)
        elif _ALL_ENTRIES < n <= _LOCAL:
            bases[axis] = PIdentity(_local_tree(V, turn, rng=search.rng))
        else:
            found = opt_0(V, search.silent().numbered(turn))
            bases[axis] = Eye(n) if isinstance(found, Ones) else found
    return bases


def _random_start(problem: Problem, search: Search) -> tuple[dict[int, Matrix], Weights]:
    """(bases, weights) after a descent from random p-Identities with n/16, n/12 or n/8 rows.

    At first, all weight is on the one product of all bases, and rows are uniform. At every second such restart, and if
    that product has too many cells, all weight is on the workload's own subsets, and rows are bumps.
    """
    plain = problem.demand
    share = (16, 12, 8)[search.restart // 4 % 3]
    one_product = search.restart % 4 == 1 and math.prod(plain.sizes) <= most_cells(plain)
    bases: dict[int, Matrix] = {}
    for axis, n in zip(plain.axes, plain.sizes, strict=True):
        p = max(1, n // share)
        bases[axis] = PIdentity(search.rng.random((p, n)) if one_product else bumps(p, n, rng=search.rng))
    subsets = [(1 << len(plain.axes)) - 1] if one_product else maximal(plain.needed)
    weights = dict.fromkeys(subsets, 1.0 / len(subsets))
    moved, weights, _ = _moved(problem, weights, bases, search)
    return moved, weights


def _local_tree(V: Matrix, turn: int, *, rng: np.random.Generator) -> Array:
    """Θ of a tree over the cells in V's order, in which each row can grow three nodes beyond its own. O(pn).

    The result of OPT_0 for the attribute alone is a poor start, and keeps its zeros: on 1024² [AllRange ⊗ Total;
    Total ⊗ AllRange] it leads to 15.01 instead of 14.96.
    """
    n = V.shape[0]
    windows = Windows.of(n, tree_widths(n, *_TREES[turn % len(_TREES)]), reach=3)
    theta = np.where(windows.free, windows.own[:, :, None] + 1e-3 * rng.random(windows.free.shape), 0.0)
    return windows.unpacked(theta)[:, inverse(cell_order(V))]


def bumps(p: int, n: int, *, rng: np.random.Generator) -> Array:
    """A p × n array of smooth rows at random places, of widths from n/p to n.

    On ranges over 256², such a start reaches in 60 steps the loss that uniform rows reach in 300.
    """
    centre = n * np.sort(rng.random(p))
    width = n / p * np.exp2(rng.uniform(0, math.log2(p), p)) if p > 1 else np.full(1, float(n))
    distance = (np.arange(n) - centre[:, None]) / width[:, None]
    return np.exp(-(distance**2)) * rng.uniform(0.5, 1.5, (p, n))


def _mean_grams(terms: Terms, *, weighted: bool) -> dict[int, Matrix]:
    """V̂_i = Σ_k w_k² c_k V_ki over the products that do not total attribute i, by axis.

    c_k is the demand of the product on all other attributes together. On each attribute it is the mean square of the
    predicates or, if `weighted`, what marginals would measure for them in units of the total.
    """
    unit = terms.per_total()
    asks = unit.marginal_asks if weighted else [np.ones(len(each)) for each in unit.grams]
    return {
        axis: beyond_total(by_gram / by_gram.max(), each)
        for axis, by_gram, each in zip(unit.axes, unit.partials(asks), unit.grams, strict=True)
    }


def _contrast_bases(terms: Terms, search: Search) -> dict[int, Matrix]:
    """Bases for Gaussian noise: contrasts if only cells and totals are asked for, else the results of OPT_0.

    A contrast base measures x − mean(x) and nothing of the total, so that each eigenspace is measured by one subset.
    With such bases the weights reach the singular-value bound of marginals.
    """
    bases: dict[int, Matrix] = {}
    for axis, V in _mean_grams(terms, weighted=True).items():
        n = V.shape[0]
        if exchangeable(V):
            bases[axis] = contrasts(n)
        else:
            bases[axis] = opt_0(V, search, Noise.GAUSSIAN)
    return bases


def _parts(plain: Demand, start: Strategy) -> tuple[dict[int, Matrix], Weights]:
    """(bases, weights by subset) of a strategy, on the attributes that some product does not total."""
    place = {axis: j for j, axis in enumerate(plain.axes)}
    bases: dict[int, Matrix] = {axis: Eye(n) for axis, n in zip(plain.axes, plain.sizes, strict=True)}
    weights: Weights = {}
    for block in start.blocks:
        weight, held = scaled_bases(block)
        bases |= {axis: B for axis, B in held.items() if axis in place}
        a = subset_of([place[axis] for axis in block.axes if axis in place])
        weights[a] = weights.get(a, 0.0) + weight
    return bases, weights


def _reach(problem: Problem) -> float:
    """Σ_k 2^s_k: the cells of the products, repeats counted; the cost of a joint loss apart from the bases."""
    active = set(problem.demand.axes)
    if active != set(problem.terms.axes):  # every weight is 0
        return math.inf
    return float(sum(2.0 ** sum(i in active for i, _ in product.factors) for product in problem.workload.products))
