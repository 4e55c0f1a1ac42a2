"""OPT_⊗: one product of p-Identity matrices for a union of products (Sections 6.1 and 6.2 of the paper).

Merged attributes are one attribute: OPT_0 over the cells of several at once can beat every product of factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Eye, Matrix, Ones, PIdentity, diagonal, exchangeable, gram_inverse, trace, trace_product
from hdmm.privacy.guarantee import Noise
from hdmm.select.family import LARGEST
from hdmm.select.gaussian_optimum import eigen_seconds
from hdmm.select.minimize import minimize_arrays
from hdmm.select.opt_0 import MAX_EIGEN, opt_0, tree_rows, varied
from hdmm.select.problem import MOST_TOGETHER, Problem
from hdmm.select.search import Search
from hdmm.select.terms import Terms
from hdmm.select.theta import DenseTheta, theta_of
from hdmm.select.tree import tree_widths
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_TRIALS = 4  # descents; the best is finished, because on SF1 single descents differ by 3 % in RMSE
_SHORT = 300  # steps of a trial; after 60 steps its rank among the others says little
_SMALL = 512  # size up to which an attribute that is solved separately has several starts, too
_CYCLES = 20
_GAIN = 1e-5  # relative gain below which a cycle is the last
_DENSE = 2048  # size up to which all Θ are optimised together


def opt_x(problem: Problem, search: Search) -> Strategy:
    """⊗A_i that makes Σ_k w_k² Π_i tr((A_iᵀA_i)⁻¹V_ki) small, from one start of a portfolio.

    An attribute on which all products agree is solved separately, so that a single product takes d runs of OPT_0. The
    others are solved together, by the exact gradient. An attribute that every product totals gets Total. The result is
    never worse than Identity. Progress gets the error relative to Identity's. No vector over the domain is formed: a
    step takes O(Σ_i n_i p_i²) per distinct gram.

    >>> from hdmm import Domain, Identity, Prefix, Workload, unit_error
    >>> from hdmm.select.search import first_search
    >>> domain = Domain({"sex": 2, "age": 16, "state": 50})
    >>> w = Workload.product(domain, sex=Identity(), age=Prefix()) + Workload.product(domain, age=Identity())
    >>> strategy = opt_x(Problem(w), first_search())
    >>> list(strategy.blocks[0].axes), round((unit_error(w, strategy) / w.queries) ** 0.5, 2)
    ([0, 1], 2.41)
    """
    terms = problem.terms
    factors = product_factors(terms, problem.noise, search)
    return Strategy(problem.workload.domain, (Block(1.0, tuple(zip(terms.axes, factors, strict=True))),))


def product_factors(terms: Terms, noise: Noise, search: Search) -> list[Matrix]:
    """The factor of each attribute of the terms, by OPT_⊗; see `opt_x`."""
    factors: list[Matrix] = [Eye(n) for n in terms.sizes]
    alone, together = terms.separated()
    solved: dict[Matrix, Matrix] = {}  # attributes with equal grams have equal factors
    # The error is the product of the errors of all attributes, so one of several problems alone cannot report it.
    only = not together and len({terms.grams[i][0] for i in alone}) == 1
    seen = search.rescaled(1.0, len(alone)) if only else search.silent()
    for i in alone:
        V = terms.grams[i][0]
        if V not in solved:
            solved[V] = _alone(V, noise, seen)
        factors[i] = solved[V]
    if together:
        search = search.rescaled(math.prod(part_left(factors[i], terms.grams[i][0]) for i in alone))
        coupled = terms.restricted(together)
        smooth = noise is Noise.LAPLACE and max(coupled.sizes) <= _DENSE
        solve = _by_descent if smooth else _by_cycles
        for i, A in zip(together, solve(coupled, noise, search), strict=True):
            factors[i] = A
    return factors


def product_loss(
    terms: Terms, thetas: Sequence[Array], diagonals: Sequence[Sequence[Array]]
) -> tuple[float, list[Array]]:
    """(f, ∂f/∂Θ_i) of the product of p-Identity matrices; Identity has f = 1. `diagonals` are those of the grams.

    ∂f/∂H_i = Σ_v ∂f/∂τ_iv · V_iv is passed to OPT_0's gradient once per attribute. It takes one product with each gram.

    >>> from hdmm import Domain, Workload
    >>> terms = Terms.of(Workload.marginals(Domain({"a": 2, "b": 3}), k=1))
    >>> diagonals = [[diagonal(V) for V in each] for each in terms.grams]
    >>> product_loss(terms, [np.zeros((1, 2)), np.zeros((1, 3))], diagonals)[0]
    1.0
    """
    family = DenseTheta(None)
    inverses = list(map(family.inverse_gram, thetas, terms.grams, diagonals))
    taus = [each.taus for each in inverses]
    gradients = [each.gradient(weights.tolist()) for each, weights in zip(inverses, terms.partials(taus), strict=True)]
    return terms.error(taus), gradients


def random_start(V: Matrix, rng: np.random.Generator) -> Array:
    """A Θ to start a descent from: one constant row if V = aI + b11ᵀ, else random rows or a tree, of random weight.

    >>> random_start(Eye(3), np.random.default_rng(0)).shape
    (1, 3)
    """
    n = V.shape[0]
    level = float(np.exp(rng.uniform(-1.0, 1.5)))
    if exchangeable(V):
        return np.full((1, n), 3 * level)
    size = int(rng.choice([16, 8]))
    if rng.random() < 0.6:
        return level * rng.random((-(-n // size), n))
    return level * varied(tree_rows(n, tree_widths(n, size)), 0.0, rng)


def part_left(A: Matrix, V: Matrix) -> float:
    """The error on V of A, a result of OPT_0, relative to that of the identity.

    >>> part_left(Eye(2), Eye(2)), part_left(Ones(1, 2), Ones(2, 2))
    (1.0, 0.5)
    """
    return 1 / V.shape[0] if isinstance(A, Ones) else trace_product(gram_inverse(A), V) / trace(V)


def _alone(V: Matrix, noise: Noise, search: Search) -> Matrix:
    """The result of OPT_0; on small attributes the best of several starts, so that every attribute gets its best."""
    tries = _TRIALS if noise is Noise.LAPLACE and V.shape[0] <= _SMALL else 1
    best = opt_0(V, search.numbered(search.restart * tries), noise)
    if isinstance(best, Ones) or tries == 1:
        return best
    least = part_left(best, V)
    for j in range(1, tries):
        if search.late:
            break
        found = opt_0(V, search.numbered(search.restart * tries + j).racing(least), noise)
        if (part := part_left(found, V)) < least:
            best, least = found, part
    return best


def _by_descent(terms: Terms, noise: Noise, search: Search) -> list[Matrix]:
    """All Θ optimised together: short descents from several starts, the best of which is finished.

    Optimising one attribute after the other, as the paper does, ends at higher errors: 38.3 instead of 31.3 on the
    2-way range-marginals of CPS; and on [Prefix ⊗ Identity; Identity ⊗ Prefix] it ends at Identity, 5.701, instead of
    5.153.
    """
    diagonals = [[diagonal(V).astype(np.float64) for V in each] for each in terms.grams]

    def objective(xs: Sequence[Array]) -> tuple[float, list[Array]]:
        return product_loss(terms, xs, diagonals)

    even = [np.ones(len(each)) for each in terms.grams]
    mixed = [terms.surrogate(i, even) for i in range(len(terms.axes))]
    best: tuple[float, list[Array]] = (1.0, [])
    for trial in range(_TRIALS):
        if trial == 0 and search.restart == 0:
            found = [theta_of(opt_0(V, search.silent())) for V in mixed]
            pairs = zip(mixed, found, strict=True)
            starts = [random_start(V, search.rng) if x is None or not x.any() else x for V, x in pairs]
        else:
            starts = [random_start(V, search.rng) for V in mixed]
        xs, value = minimize_arrays(
            objective, starts, search.racing(best[0]), upper=LARGEST, tolerance=1e-5, iterations=_SHORT
        )
        if value < best[0]:
            best = value, xs
        if search.late:
            break
    if not best[1]:
        return [Eye(n) for n in terms.sizes]
    xs = best[1]
    for sharper in terms.sharpened():
        xs, _ = minimize_arrays(lambda xs, at=sharper: product_loss(at, xs, diagonals), xs, search, upper=LARGEST)
    return [PIdentity(x) for x in xs]


def _by_cycles(terms: Terms, noise: Noise, search: Search) -> list[Matrix]:
    """One attribute after the other, by OPT_0 on its surrogate workload; monotone. For Gaussian noise and trees."""
    factors: list[Matrix] = [Eye(n) for n in terms.sizes]
    taus = [np.ones(len(each)) for each in terms.grams]
    rng, again = search.rng, search.restart > 0
    if again:  # start as if the other attributes had factors that suit some of the products
        taus = [tau * np.exp(-2.0 * rng.random(len(tau))) for tau in taus]
    value = np.inf
    for cycle in range(_CYCLES):
        before = value
        for i in rng.permutation(len(taus)).tolist() if again else range(len(taus)):
            if cycle > 0 and search.late:
                break
            A = opt_0(terms.surrogate(i, taus), search.silent(), noise)
            if isinstance(A, Ones):  # at the weights of the parts all else is rounding
                A = Eye(A.shape[1])
            tau = terms.traces(i, A)
            trial = terms.error([*taus[:i], tau, *taus[i + 1 :]])
            if cycle == 0 or trial < value:
                factors[i], taus[i], value = A, tau, trial
        search.tell(cycle, value)
        if not value < before * (1 - _GAIN) or search.late:
            break
    return factors if value < 1 else [Eye(n) for n in terms.sizes]


def opt_merged(problem: Problem, search: Search, *, axes: Sequence[int] | None = None) -> Strategy:
    """OPT_⊗ with the attributes `axes` merged into one, whose gram Σ_k w_k² ⊗V_ki stays implicit. O(p²N) per step.

    By default, as many of the attributes on which the workload asks for more than the total are merged as fit into
    MOST_TOGETHER cells, the largest first. On 64 × 64 ranges this beats every product (14.2 instead of 15.4). With
    Gaussian noise and a workload of one product there is nothing to gain, because the product of the factors' optima
    is optimal.

    >>> from hdmm import Domain, Prefix
    >>> from hdmm.select.search import first_search
    >>> domain = Domain({"x": 4, "sex": 2, "y": 4})
    >>> w = Workload.product(domain, x=Prefix(), y=Prefix())
    >>> opt_merged(Problem(w), first_search()).blocks[0].axes
    (0, 2)
    """
    chosen = mergeable(problem) if axes is None else tuple(axes)
    if len(chosen) < 2:
        raise StrategyError(
            f"No two attributes that the workload uses fit into {MOST_TOGETHER:,} cells together. Use opt_x, or "
            "give the axes."
        )
    groups = AxisGroups.merging(problem.workload.domain, chosen)
    cells = math.prod(problem.workload.domain.shape[i] for i in chosen)
    if problem.noise is Noise.GAUSSIAN and cells <= MAX_EIGEN and not search.affords(eigen_seconds(cells)):
        raise StrategyError("There was no time left to optimise over all cells at once.")
    merged = Workload(groups.domain, tuple(map(groups.product, problem.workload.products)))
    found = opt_x(replace(problem, given=merged), search)
    blocks = (Block(b.weight, [(groups.groups[g], A) for g, A in b.by_axis.items()]) for b in found.blocks)
    return Strategy(problem.workload.domain, tuple(blocks))


def mergeable(problem: Problem) -> tuple[int, ...]:
    """The attributes that `opt_merged` merges by default: the largest that together fit into MOST_TOGETHER cells.

    >>> from hdmm import Domain
    >>> mergeable(Problem(Workload.marginals(Domain({"a": 64, "b": 1000, "c": 9}), k=2)))
    (1, 2)
    """
    terms = problem.terms
    cells, chosen = 1, list[int]()
    for axis, n in sorted(zip(terms.axes, terms.sizes, strict=True), key=lambda pair: (-pair[1], pair[0])):
        if cells * n <= MOST_TOGETHER and problem.restorable([*chosen, axis]):
            cells *= n
            chosen.append(axis)
    return tuple(sorted(chosen))
