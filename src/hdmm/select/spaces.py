"""OPT_R: each residual space measured by itself, at its own optimum for Gaussian noise; any number of attributes.

Queries on pairs of attributes that overlap, such as x + y ≤ c on all pairs of 40 attributes, have no common factors.
But every query is a sum of what it asks of the residual spaces of its attributes (residual.py), these are orthogonal,
and one block per space makes AᵀA block diagonal: the error is Σ_b tr(X_b⁺V_b), and the optimum of each space is a
small convex problem. With squared column norms at most s_b in space b, Σ_b s_b = 1, the least error is (Σ_b √loss_b)².
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.predicates import Identity, PredicateSet, Weighted
from hdmm.describe.product import Attributes, Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, to_dense, trace
from hdmm.select.gaussian_optimum import GramBlock, ascent
from hdmm.select.means import AskedSet, Means, SpaceDemand, best_means, centred, demands, short_basis
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.whole_factors import SpaceFactor, near_integers, on_basis, triangle, whole_basis
from hdmm.select.worst import RowWeights, rounds
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_MOST_SPACES = 1 << 20
_GAP = 1e-5  # relative, at which the optimum of a space is found
_STEPS = 4000
_ROUNDS = 20  # of weighing rows: the worst is then within 1 % of where it ends
_FINEST, _COARSE = 12, 4  # times the number of values: the most that weights of values may sum to
_MOST_BITS = 27.9  # of all factors of a block together, for answers below 2^60 on 2^32 rows
_NOTHING = 1e-9
_RIDGE = 1e-4  # of the mean of what is asked, where coefficients are not whole: the whole space is measured then

SpaceKey: TypeAlias = tuple[tuple[int, ...], frozenset[tuple[tuple[AskedSet, ...], float]]]
"""The kinds of a space's attributes, and what is asked of it."""


def opt_spaces(problem: Problem, search: Search) -> Strategy:
    """One block for every residual space that the workload asks something of. O(spaces · rank² · cells) per step.

    Where the worst query counts, rows are weighed by their variances, again and again, and the best strategy is kept.

    >>> from hdmm import Domain, Noise, SumAtMost, Workload
    >>> from hdmm.select.search import first_search
    >>> w = Workload.product(Domain({"x": 3, "y": 3, "z": 3}), {("x", "z"): SumAtMost()})
    >>> [block.axes for block in opt_spaces(Problem(w, Noise.GAUSSIAN), first_search()).blocks]
    [(), (0,), (2,), (0, 2)]
    """
    products = RowWeights.even(problem).weighed.workload.products
    wanted = _best_means(products, search)
    means = wanted.whole(_FINEST)
    best = _least_sum(products, means, search)
    if _largest(best) > 2**_MOST_BITS:  # numbers on many cells
        means = wanted.whole(_COARSE)
        best = _least_sum(products, means, search)
    if problem.parts is None:
        return best

    def step(weighed: Problem, last: Strategy) -> Strategy:
        return _least_sum(tuple(map(_stepped, weighed.workload.products)), means, search)

    return rounds(problem, best, step, search, most=_ROUNDS)


def _largest(strategy: Strategy) -> int:
    """The largest entry of a block."""
    return max(math.prod([int(np.abs(to_dense(A)).max()) for _, A in block.factors]) for block in strategy.blocks)


def _best_means(products: tuple[Product, ...], search: Search) -> Means:
    """The means of least error, the same for attributes that are asked for in the same ways."""
    means = Means.alike(products)
    alike = Counter(_keys(demands(products, means.kinds), means.kinds).values())
    return best_means(means, [(float(count), dict(demand)) for (_, demand), count in alike.items()], search)


def _stepped(product: Product) -> Product:
    """The product with its weights in steps of 1 %, so that spaces that are asked for the same stay so."""
    sets = [(axes, Weighted(p.inner, _step(p.weights)) if isinstance(p, Weighted) else p) for axes, p in product.sets]
    return Product.of(product.domain, sets, float(_step(np.array(product.weight))))


def _step(weights: Array) -> Array:
    return np.exp(0.01 * np.rint(np.log(weights) / 0.01))


def _least_sum(products: tuple[Product, ...], means: Means, search: Search) -> Strategy:
    """The strategy with the least sum of squared errors over all products."""
    domain = products[0].domain
    known: dict[SpaceKey, tuple[list[tuple[Attributes, Dense]], float, float]] = {}
    found: list[tuple[Attributes, list[tuple[Attributes, Dense]], float, float]] = []
    keys = _keys(demands(products, means.kinds), means.kinds)
    for b, key in sorted(keys.items(), key=lambda item: (len(item[0]), item[0])):
        if key not in known:
            known[key] = _space(key[0], dict(key[1]), means, search)
        factors, norm, loss = known[key]
        if loss > 0:
            found.append((b, factors, norm, loss))
    if not found:
        raise StrategyError("The workload asks for nothing. Give a product a weight above 0.")
    whole = math.fsum(math.sqrt(loss) for *_, loss in found)
    return Strategy(
        domain,
        tuple(
            Block(math.sqrt(math.sqrt(loss) / whole / norm), [(tuple(b[k] for k in at), A) for at, A in factors])
            for b, factors, norm, loss in found
        ),
    )


def on_cells(workload: Workload) -> Workload:
    """The workload with every cell, as often as they ask for one on average, in place of predicates on several
    attributes: for operators that know predicates on single attributes only.

    >>> from hdmm import Domain, SumAtMost
    >>> on_cells(Workload.product(Domain({"x": 3, "y": 3}), {("x", "y"): SumAtMost()})).queries
    9
    """
    products: list[Product] = []
    for product in workload.products:
        weight, factors = product.weight, list(product.factors)
        for axes, p in product.joint:
            n = product.cells(axes)
            weight *= math.sqrt(trace(p.gram(n)) / n)
            factors += [(i, Identity()) for i in axes]
        products.append(Product(product.domain, tuple(sorted(factors, key=lambda each: each[0])), weight))
    return Workload(workload.domain, tuple(products))


def _keys(spaces: Mapping[Attributes, SpaceDemand], kinds: Sequence[int]) -> dict[Attributes, SpaceKey]:
    """The kinds of each space's attributes and what it is asked for: spaces that have these in common are alike."""
    return {b: (tuple([kinds[i] for i in b]), frozenset(demand.items())) for b, demand in spaces.items()}


def _space(
    kinds: tuple[int, ...], demand: SpaceDemand, means: Means, search: Search
) -> tuple[list[tuple[Attributes, Dense]], float, float]:
    """(factors by their places in the space, largest squared column norm, loss) of one residual space.

    What one product asks is measured by a factor per predicate set: for Gaussian noise the product of the factors'
    optima is optimal. Several products that touch the space are taken together, written out.
    """
    terms = [
        (square * math.prod([means.norm(each) ** 2 for each in asked if max(each[2]) < 0]), _active(asked))
        for asked, square in demand.items()
    ]
    if not kinds:
        return [], 1.0, math.fsum(square for square, _ in terms)
    scale, parts = 1.0, [(tuple(range(len(kinds))), terms)]
    if len(terms) == 1:
        ((scale, asked),) = terms
        parts = [(tuple(sorted([k for k in each[2] if k >= 0])), [(1.0, (each,))]) for each in asked]
    factors: list[tuple[Attributes, Dense]] = []
    norm, loss = 1.0, scale
    for places, terms in parts:
        best = _optimum(tuple(kinds[k] for k in places), places, terms, means, search, most=_MOST_BITS / len(parts))
        factors.append((places, best.A))
        norm, loss = norm * best.norm, loss * best.loss
    return sorted(factors, key=lambda each: each[0]), norm, loss


def _active(asked: tuple[AskedSet, ...]) -> tuple[AskedSet, ...]:
    return tuple([each for each in asked if max(each[2]) >= 0])


def _optimum(
    kinds: tuple[int, ...],
    places: Attributes,
    terms: list[tuple[float, tuple[AskedSet, ...]]],
    means: Means,
    search: Search,
    *,
    most: float,
) -> SpaceFactor:
    """The best factor of integers for what is asked on some attributes of a space."""
    begun = time.monotonic()
    weighted, spanning = list[Array](), list[Array]()
    sizes, parts = means.sizes(kinds), means.parts(kinds)
    for square, asked in terms:
        weighted.append(math.sqrt(square) * _cleared(means.rows(asked, places)))
        plain = means.rows([(_unweighted(p), of, at) for p, of, at in asked], places)
        spanning.append(_cleared(plain) * (means.parts([k for _, of, _ in asked for k in of]) // parts))
    F = _compressed(np.vstack(weighted))
    if not len(F):
        return SpaceFactor(Dense(np.zeros((1, math.prod(sizes)), dtype=np.int64)), 1.0, 0.0)
    reserve = time.monotonic() - begun  # rounding takes as long as this did
    every = reduce(np.kron, [short_basis(means.weights[k]) for k in kinds])
    if len(F) == len(every):
        return near_integers(F, every, _least(F, search, reserve=reserve), most=most)
    B = whole_basis(np.vstack(spanning), parts, F)
    if B is None:
        ridge = math.sqrt(_RIDGE * float((F**2).sum()) / len(every))
        F = _compressed(np.vstack([F, ridge * centred(np.eye(math.prod(sizes)), [means.means[k] for k in kinds])]))
        return near_integers(F, every, _least(F, search, reserve=reserve), most=most)
    return on_basis(F, B, _least(F, search, reserve=reserve))


def _cleared(rows: Array) -> Array:
    return np.where(np.abs(rows) > _NOTHING * np.abs(rows).max(initial=1.0), rows, 0.0)


def _compressed(F: Array) -> Array:
    """Rows of full rank with the same FᵀF."""
    if len(F) > F.shape[1]:
        F = triangle(F)
    values, U = np.linalg.eigh(F @ F.T)
    return U[:, values > max(values[-1], 0.0) * _NOTHING].T @ F if len(F) else F


def _least(F: Array, search: Search, *, reserve: float = 0.0) -> Array:
    """A with columns of L2 norm at most 1 that minimises tr((AᵀA)⁺FᵀF), F of full row rank r; an r × r problem.

    Columns that the optimum leaves short lose their Λ. It ends `reserve` seconds before the deadline.
    """
    lam = np.sqrt((F**2).sum(axis=0))
    best, least, bound = F, math.inf, 0.0
    steps = ascent(lambda: [GramBlock(1.0, F)], np.maximum(lam, 1e-6 * lam.max()), factored=True)
    for _, step in zip(range(_STEPS), steps, strict=False):
        largest = float(step.diagonal.max())
        bound = max(bound, step.root**2)
        if step.root * largest < least:
            best, least = step.factors[0] / math.sqrt(largest), step.root * largest
        if least <= (1 + _GAP) * bound or not search.affords(reserve):
            break
    return best


def _unweighted(p: PredicateSet) -> PredicateSet:
    """The same predicates without weights of their own, which do not change what they span."""
    return _unweighted(p.inner) if isinstance(p, Weighted) else p
