"""OPT_G: marginals over optimised bases; contains OPT_M (identity bases) and OPT_x (all weight on one subset).

Blocks are θ_a ⊗_{i∈a} B_i with Total elsewhere. For fixed bases the weights are found as in OPT_M, on other
statistics (demand.py); then p-Identity bases and weights move together (joint.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Dense, Eye, Matrix, Ones, PIdentity, scaled, summed
from hdmm.matrix.checks import inverse
from hdmm.predicates import PredicateSet, Total
from hdmm.privacy import Noise
from hdmm.strategy.base import Strategy
from hdmm.strategy.covers import maximal
from hdmm.strategy.demand import Demand, counted, demand, shares
from hdmm.strategy.guesses import Weights, most_cells
from hdmm.strategy.joint import MAX_TERMS, JointLoss, term_count
from hdmm.strategy.marginal import gaussian_marginals, laplace_marginals, marginal_strategy
from hdmm.strategy.minimize import minimize
from hdmm.strategy.mixture import tabulate
from hdmm.strategy.order import cell_order
from hdmm.strategy.p_identity import is_uniform, opt_0
from hdmm.strategy.problem import Problem
from hdmm.strategy.search import Search
from hdmm.strategy.subsets import subset_of
from hdmm.strategy.tree import tree_widths
from hdmm.strategy.windows import Windows
from hdmm.workload import Workload

_LARGEST = 1e3  # entries of Θ: beyond, the identity rows drown and the loss loses its digits
_ALL_ENTRIES = 512  # cells up to which every entry of Θ moves
_LOCAL = 8192  # cells up to which bases have rows beside the identity that are local to a tree's nodes
_TREES = ((16, 8), (15, 9), (17, 8), (16, 16))  # children of a lowest node, and of those above
_ZERO = 1e-6  # entries of Θ below this stay 0 beyond that
_INFEASIBLE = 1e6
_ROUNDS = 4
_AGREE = 1e-6  # the loss and the finished strategy's error may differ by this much of it
_CONTRAST = 1e-6  # what a contrast base keeps of the total, so that it stays invertible


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A finished strategy with its parts; its error is the strategy's own, not an optimiser's."""

    strategy: Strategy
    error: float
    bases: Mapping[int, Matrix]
    weights: Weights


def opt_g(
    problem: Problem,
    search: Search,
    *,
    bases: Sequence[Matrix] | None = None,
    theta: Mapping[tuple[int, ...], float] | None = None,
) -> Strategy:
    """Marginals over bases with small error for the workload: one start of a portfolio.

    `bases` (one matrix an attribute, columns of norm 1) and `theta` (weight by tuple of axes) say where to
    start, and the result is never worse than they are. Without them even restarts start from what OPT_0 finds
    for the predicates on each attribute, and odd ones from random bases. Attributes that every product totals
    are only totalled.

    >>> from hdmm import AllRange, Domain, unit_error
    >>> from hdmm.strategy.search import first_search
    >>> domain = Domain({"age": 32, "income": 32})
    >>> w = Workload.product(domain, age=AllRange()) + Workload.product(domain, income=AllRange())
    >>> found = opt_g(Problem(w), first_search())
    >>> len(found.blocks), unit_error(w, found) < 7.2**2 * w.queries
    (2, True)
    """
    workload, plain = problem.workload, problem.demand
    if not plain.axes or plain.scale == 0:
        return marginal_strategy(workload.domain, plain, {0: 1.0}, noise=problem.noise)
    given = _given(workload, plain, bases) if bases is not None else None
    warm = _warm(plain, theta) if theta is not None else None
    if problem.noise is Noise.GAUSSIAN:
        found = _gaussian(workload, plain, given, warm, search)
    else:
        if given is None and search.restart % 2 and term_count(workload, plain) <= MAX_TERMS:
            given, warm = _random_start(workload, plain, search)
        elif given is None:
            given = _first_bases(workload, plain, search)
        found = _laplace(workload, given, warm, search)
    return min(found, key=lambda candidate: candidate.error).strategy


def _laplace(
    workload: Workload, bases: Mapping[int, Matrix], warm: Weights | None, search: Search
) -> Iterator[Candidate]:
    """The start, the best weights for its bases, and rounds of joint descent and new weights."""
    asked = demand(workload, bases)
    if warm is not None:
        yield _candidate(workload, asked, warm, bases, noise=Noise.LAPLACE)
    movable = term_count(workload, asked) <= MAX_TERMS and len(asked.needed) <= 1 << 12
    last = math.inf
    for _ in range(_ROUNDS):
        weights = laplace_marginals(asked, search.silent(), warm=warm)
        yield (found := _candidate(workload, asked, weights, bases, noise=Noise.LAPLACE))
        thetas = {i: B.theta for i, B in bases.items() if isinstance(B, PIdentity) and len(B.theta)}
        if not (movable and thetas) or found.error > last * (1 - 1e-4):
            return
        if search.late:
            return
        moved, weights, value = _joint(workload, asked, weights, bases, search)
        asked = demand(workload, moved)
        found = _candidate(workload, asked, weights, moved, noise=Noise.LAPLACE)
        if abs(found.error - value) > _AGREE * found.error:
            return  # the loss has lost its digits; what was found before stands
        yield found
        bases, warm, last = moved, weights, found.error


def _joint(
    workload: Workload,
    asked: Demand,
    weights: Weights,
    bases: Mapping[int, Matrix],
    search: Search,
) -> tuple[dict[int, Matrix], Weights, float]:
    """(bases, weights, loss) at the local minimum below the given ones, all Θ_i and θ moving together."""
    subsets = sorted(weights)
    loss = JointLoss.of(workload, asked, subsets, {i: B for i, B in bases.items() if not isinstance(B, PIdentity)})
    start = {i: np.minimum(B.theta, _LARGEST) for i, B in bases.items() if isinstance(B, PIdentity)}
    # Large bases keep the zeros they come with: their optima have a few entries a cell, and the rest costs time.
    free = {i: np.flatnonzero((theta > _ZERO) | (theta.shape[1] <= _ALL_ENTRIES)) for i, theta in start.items()}
    ends = np.cumsum([len(subsets)] + [len(entries) for entries in free.values()])

    def split(x: Array) -> tuple[Array, dict[int, Array]]:
        weights_of, *pieces = np.split(x, ends[:-1])
        thetas: dict[int, Array] = {}
        for (i, entries), piece in zip(free.items(), pieces, strict=True):
            thetas[i] = np.zeros(start[i].shape)
            thetas[i].flat[entries] = piece
        return weights_of, thetas

    def objective(x: Array) -> tuple[float, Array]:
        value, by_theta, by_base = loss(*split(x))
        if not math.isfinite(value):  # a step that leaves something unmeasured: far too high, so it is shortened
            return _INFEASIBLE * first, np.zeros_like(x)
        return value, np.concatenate([by_theta, *(by_base[i].flat[entries] for i, entries in free.items())])

    pieces = [start[i].flat[entries] for i, entries in free.items()]
    x0 = np.concatenate([np.array([weights[a] for a in subsets]), *pieces])
    first = loss(*split(x0))[0]
    # On 1024² a step takes 10 ms; the last 1e-3 of the error is not worth thousands of them.
    tolerance = 1e-7 if len(x0) <= 1 << 13 else 1e-6
    found = minimize(objective, x0, search, upper=_LARGEST, tolerance=tolerance)
    theta, thetas = split(found.x)
    kept = {a: w for a, w in zip(subsets, theta.tolist(), strict=True) if w > 0}
    return {**bases, **{i: PIdentity(each) for i, each in thetas.items()}}, kept, found.value


def _gaussian(
    workload: Workload, plain: Demand, given: Mapping[int, Matrix] | None, warm: Weights | None, search: Search
) -> Iterator[Candidate]:
    """The start, the best weights for its bases, and block-cyclic rounds: each base for its own surrogate."""
    bases = dict(given) if given is not None else _contrast_bases(workload, plain, search.silent().numbered(0))
    asked = demand(workload, bases)
    if warm is not None:
        yield _candidate(workload, asked, warm, bases, noise=Noise.GAUSSIAN)
    best = None
    for _ in range(_ROUNDS):
        asked = demand(workload, bases)
        weights = gaussian_marginals(asked, search)
        found = _candidate(workload, asked, weights, bases, noise=Noise.GAUSSIAN)
        yield found
        if best is not None and found.error > best * (1 - 1e-5):
            return
        best = found.error
        if term_count(workload, asked) > MAX_TERMS or search.late:
            return
        movable = [i for i, V in _surrogates(workload, plain, weighted=False).items() if not is_uniform(V)]
        if not movable:
            return
        subsets = sorted(weights)
        theta = np.array([weights[a] for a in subsets])
        for i in movable:
            M = JointLoss.of(workload, asked, subsets, bases).surrogates(theta)[i]
            bases = {**bases, i: opt_0(M, search.silent(), Noise.GAUSSIAN)}


def _candidate(
    workload: Workload, asked: Demand, weights: Weights, bases: Mapping[int, Matrix], *, noise: Noise
) -> Candidate:
    strategy = marginal_strategy(workload.domain, asked, weights, noise=noise, bases=bases)
    error = float(strategy.sensitivity(noise)) ** 2 * strategy.total_variance(workload)
    return Candidate(strategy, error, bases, weights)


def _first_bases(workload: Workload, plain: Demand, search: Search) -> dict[int, Matrix]:
    """What OPT_0 finds for each attribute's predicates; the identity where only cells and totals are asked for."""
    bases: dict[int, Matrix] = {}
    turn = search.restart // 2
    for axis, V in _surrogates(workload, plain, weighted=search.restart % 4 == 0).items():
        n = workload.domain.shape[axis]
        if is_uniform(V):
            bases[axis] = Eye(n)
            continue
        if _ALL_ENTRIES < n <= _LOCAL:
            bases[axis] = PIdentity(_local_tree(V, turn, rng=search.rng))
            continue
        found = opt_0(V, search.silent().numbered(turn))
        bases[axis] = Eye(n) if isinstance(found, Ones) else found
    return bases


def _random_start(workload: Workload, plain: Demand, search: Search) -> tuple[dict[int, Matrix], Weights]:
    """(bases, weights) below random p-Identities with n/16, n/12 or n/8 rows.

    All weight is on their one product at first and rows are uniform; or, at every second such restart and
    where that product has too many cells, all weight is on the workload's own subsets and rows are bumps.
    """
    share = (16, 12, 8)[search.restart // 4 % 3]
    one_product = search.restart % 4 == 1 and math.prod(plain.sizes) <= most_cells(plain)
    bases: dict[int, Matrix] = {}
    for axis, n in zip(plain.axes, plain.sizes, strict=True):
        p = max(1, n // share)
        bases[axis] = PIdentity(search.rng.random((p, n)) if one_product else _bumps(p, n, rng=search.rng))
    subsets = [(1 << len(plain.axes)) - 1] if one_product else maximal(plain.needed)
    weights = dict.fromkeys(subsets, 1.0 / len(subsets))
    asked = demand(workload, bases)
    moved, weights, _ = _joint(workload, asked, weights, bases, search)
    return moved, weights


def _local_tree(V: Matrix, turn: int, *, rng: np.random.Generator) -> Array:
    """Θ of a tree over the cells in V's order, each row free to grow three nodes past its own. O(pn).

    What OPT_0 finds for the attribute alone is a poor place to start, and keeps its zeros: 15.01 against 14.96 on
    1024² [AllRange ⊗ Total; Total ⊗ AllRange].
    """
    n = V.shape[0]
    windows = Windows.of(n, tree_widths(n, *_TREES[turn % len(_TREES)]), reach=3)
    theta = np.where(windows.free, windows.own[:, :, None] + 1e-3 * rng.random(windows.free.shape), 0.0)
    return windows.unpacked(theta)[:, inverse(cell_order(V))]


def _bumps(p: int, n: int, *, rng: np.random.Generator) -> Array:
    """p × n: smooth rows at random places, of every width from n/p to n.

    On ranges over 256² the loss falls from such a start in 60 steps to where uniform rows get in 300.
    """
    centre = n * np.sort(rng.random(p))
    width = n / p * np.exp2(rng.uniform(0, math.log2(p), p)) if p > 1 else np.full(1, float(n))
    distance = (np.arange(n) - centre[:, None]) / width[:, None]
    return np.exp(-(distance**2)) * rng.uniform(0.5, 1.5, (p, n))


def _surrogates(workload: Workload, plain: Demand, *, weighted: bool) -> dict[int, Matrix]:
    """V̂_i = Σ_k w_k² c_k V_ki over the products that do not total attribute i, by axis.

    c_k is what the product asks of the other attributes together, each in units of its total; 1 unweighted.
    """
    shape = workload.domain.shape
    products = counted(workload)
    totals: list[PredicateSet] = [Total()] * len(shape)
    choices, sets = tabulate([product.factors for product in products], totals)
    asks = [np.array([sum(shares(Eye(n), p, n)) for p in each]) for each, n in zip(sets, shape, strict=True)]
    table = np.stack([ask[choices[:, i]] for i, ask in enumerate(asks)], axis=1)
    squares = np.array([product.weight for product in products]) ** 2
    logs = np.log(np.maximum(table, 1e-300))
    found: dict[int, Matrix] = {}
    for axis in plain.axes:
        rest = logs.sum(axis=1) - logs[:, axis]
        share = squares * (np.exp(rest - rest.max()) if weighted else 1.0)
        by_set = np.bincount(choices[:, axis], weights=share, minlength=len(sets[axis]))
        terms = [
            scaled(float(c), p.gram(shape[axis]))
            for c, p in zip(by_set / by_set.max(), sets[axis], strict=True)
            if c > 0 and shares(Eye(shape[axis]), p, shape[axis])[1] > 0
        ]
        found[axis] = summed(terms)
    return found


def _contrast_bases(workload: Workload, plain: Demand, search: Search) -> dict[int, Matrix]:
    """Bases for Gaussian noise: contrasts where only cells and totals are asked for, else what OPT_0 finds.

    A contrast base measures x − mean(x) and next to nothing of the total, so that every eigenspace has a
    subset of its own: with it the weights reach the singular-value bound of marginals.
    """
    bases: dict[int, Matrix] = {}
    for axis, V in _surrogates(workload, plain, weighted=True).items():
        n = workload.domain.shape[axis]
        if is_uniform(V):
            mean = np.full((n, n), 1.0 / n)
            rest = (n - _CONTRAST) / (n - 1)  # the eigenvalue that keeps diag(BᵀB) = 1
            bases[axis] = Dense(math.sqrt(rest) * (np.eye(n) - mean) + math.sqrt(_CONTRAST) * mean)
        else:
            bases[axis] = opt_0(V, search, Noise.GAUSSIAN)
    return bases


def _given(workload: Workload, plain: Demand, bases: Sequence[Matrix]) -> dict[int, Matrix]:
    """The caller's bases of the attributes that need one, checked."""
    names, shape = workload.domain.names, workload.domain.shape
    if len(bases) != len(shape):
        raise StrategyError(f"There are {len(bases)} bases for {len(shape)} attributes. Give one base per attribute.")
    for axis in plain.axes:
        if bases[axis].shape[1] != shape[axis]:
            raise StrategyError(
                f"Attribute {names[axis]!r} has {shape[axis]} values but its base has {bases[axis].shape[1]} columns."
            )
        if bases[axis].shape[0] < shape[axis]:
            raise StrategyError(
                f"The base of attribute {names[axis]!r} has {bases[axis].shape[0]} rows and cannot tell its "
                f"{shape[axis]} values apart. Use Eye({shape[axis]}), or what opt_0 finds."
            )
    return {axis: bases[axis] for axis in plain.axes}


def _warm(plain: Demand, theta: Mapping[tuple[int, ...], float]) -> Weights:
    """The caller's weights by subset of the attributes that take part."""
    place = {axis: j for j, axis in enumerate(plain.axes)}
    weights: Weights = {}
    for axes, weight in theta.items():
        a = subset_of([place[i] for i in axes if i in place])
        if weight > 0:
            weights[a] = weights.get(a, 0.0) + weight
    return weights
