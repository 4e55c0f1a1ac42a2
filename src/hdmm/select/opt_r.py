"""OPT_R: residual spaces, each measured by itself, at the precisions of least error under Gaussian noise.

The residual space b, a set of attributes, holds what their joint table says beyond all smaller ones. It is measured by
⊗_{i∈b}(nᵢI − J), with Total elsewhere. A workload asks it for v_b = Σ_k w_k² Π_{i∈b} g₁ki Π_{i∉b} g₀ki, where
g₀ = 1ᵀV1/n² and g₁ = tr V − 1ᵀV1/n for the gram V of a predicate set. At precision λ_b it adds v_b/λ_b to the error and
λ_b p_b to the squared sensitivity, with p_b = Π_{i∈b}(1 − 1/nᵢ), so that the best is

    λ_b ∝ √(v_b/p_b),      error (Σ_b √(v_b p_b))²

If all predicates treat the values of an attribute alike, that is the least error of all strategies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Eye, Ones, Residual, quadratic
from hdmm.select.demand import counted, is_plain, shares
from hdmm.select.goal import Goal
from hdmm.select.problem import Problem
from hdmm.select.search import Search, first_search
from hdmm.strategy.blocks import Block, BlockTable
from hdmm.strategy.mixture import ListedTerms, Mixture, tabulate, tabulated
from hdmm.strategy.strategy import Strategy

_MOST_SPACES = 1 << 22  # of all products, repeats counted
_MOST_OF_ONE = 1 << 12  # of one product: each takes a few array operations
_MOST_ROWS = 1 << 30  # of the blocks of all products, repeats counted: half of what can be measured
_STEPS = 400
_CERTAIN = 1e-7  # of the largest variance: what it may be above its lower bound
_LEAST = 1e-200  # of a row's weight, so that it can come back
_SPARSE = 16  # times as many subsets as spaces: more, and no marginals are looked for
_NOTHING = 1e-9  # of λ: less is rounding
_TOTAL = (1.0, 0.0)  # the shares of Total


def opt_r(problem: Problem, search: Search) -> Strategy:
    """The strategy of residual spaces with the least error for the problem, or with the least worst variance.

    The cost is O(Σ_k 2^s_k) for products on s_k attributes, for any number and size of attributes. All restarts are
    equal.

    >>> from hdmm import Domain, Noise, unit_error
    >>> from hdmm.select.search import first_search
    >>> w = Workload.marginals(Domain({"a": 10, "b": 10, "c": 10}), k=range(2))
    >>> found = opt_r(Problem(w, Noise.GAUSSIAN), first_search())
    >>> len(found.blocks), round(unit_error(w, found, noise=Noise.GAUSSIAN), 3)
    (4, 93.67)
    """
    goal = problem.goal
    if goal is not None and not goal.linear and is_plain(goal.workload):
        spaces = _Spaces.of(goal.workload.domain, _by_row(goal), problem.known_axes)
        return spaces.strategy(spaces.least_worst(search)[0])
    spaces = _Spaces.of(problem.workload.domain, _by_product(problem.workload), problem.known_axes)
    return spaces.strategy(spaces.precisions(spaces.mixture.coefficients))


def least_error(workload: Workload, known: Sequence[Sequence[int]]) -> float:
    """(Σ_b √(v_b p_b))² over the residual spaces that are asked for and not known: of plain marginals, the least error.

    >>> least_error(Workload.marginals(Domain({"a": 4}), k=1), [])
    4.0
    """
    spaces = _Spaces.of(workload.domain, _by_product(workload), known)
    return float(np.sqrt(spaces.listed.sums(spaces.mixture.coefficients) * spaces.norms).sum() ** 2)


def worst_marginals(goal: Goal) -> float:
    """What the largest variance of the goal's marginals, in its units, is not below for any strategy.

    The rows of a marginal are alike, so that some best strategy for the sum of weighted variances treats all values of
    an attribute alike, and measures residual spaces.

    >>> goal = Goal.of(Workload.marginals(Domain({"a": 4}), k=1), "worst")
    >>> round(worst_marginals(goal), 6)
    1.0
    """
    return _Spaces.of(goal.workload.domain, _by_row(goal)).least_worst(first_search())[1]


def measurable(workload: Workload) -> bool:
    """Whether the residual spaces of the workload are few enough to be measured, by their number and their rows.

    >>> measurable(Workload.product(Domain({f"a{i}": 10 for i in range(20)}), {"a0": [[1] * 10]}))
    True
    """
    shape = workload.domain.shape
    choices, sets = tabulated(workload.products, len(shape))
    spaces, rows = np.ones(len(choices)), np.ones(len(choices))
    for i, (each, n) in enumerate(zip(sets, shape, strict=True)):
        here = np.flatnonzero(np.array([p != Total() for p in each])[choices[:, i]])
        spaces[here] *= 2.0
        rows[here] *= n + 1.0
    few = spaces.max() <= _MOST_OF_ONE and float(spaces.sum()) <= _MOST_SPACES
    return bool(few) and float(rows.sum()) <= _MOST_ROWS


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Spaces:
    """The residual spaces that products, or single rows of them, ask for.

    A term of `mixture` is a product, or all rows of it that ask for the same; `listed` has what it asks of each space.
    """

    domain: Domain
    mixture: Mixture
    listed: ListedTerms
    norms: Array  # p_b of each space

    @classmethod
    def of(cls, domain: Domain, mixture: Mixture, known: Sequence[Sequence[int]] = ()) -> _Spaces:
        """The spaces that the terms ask for, without those of marginals that are known."""
        shape = np.array(domain.shape, dtype=np.float64)
        listed = mixture.listed
        norms, asked = np.ones(len(listed.keys)), np.ones(len(listed.keys), dtype=bool)
        for places, axes in listed.keys.by_size:
            norms[places] = (1 - 1 / shape)[axes].prod(axis=1)
            for each in known:
                asked[places] &= ~np.isin(axes, list(each)).all(axis=1)
        if known:
            here = asked[listed.cells]
            cells = (np.cumsum(asked) - 1)[listed.cells[here]]
            listed = ListedTerms(listed.keys[asked], listed.terms[here], cells, listed.values[here])
        return cls(domain, mixture, listed, norms[asked])

    def precisions(self, coefficients: Array) -> Array:
        """λ of least error for terms of these squared weights, with Σ λ_b p_b = 1."""
        v = self.listed.sums(coefficients)
        return np.sqrt(v / self.norms) / np.sqrt(v * self.norms).sum()

    def least_worst(self, search: Search) -> tuple[Array, float]:
        """λ of the least largest variance of any term, by weights ω ← ω·(variance/g)² of the terms, and a bound on it.

        g is the least sum of the variances weighted by ω, which no strategy's largest variance is below, Σω being 1.
        """
        units = self.mixture.coefficients
        omega = np.full(len(units), 1.0 / len(units))
        best, least, bound = self.precisions(omega * units), math.inf, 0.0
        for step in range(_STEPS):
            lam = self.precisions(omega * units)
            variances = units * self.listed.against(1 / lam, len(units))
            g, largest = float(omega @ variances), float(variances.max())
            bound = max(bound, g)
            if largest < least:
                best, least = lam, largest
            search.tell(step, least)
            if least <= bound * (1 + _CERTAIN) or search.late:
                break
            omega = np.maximum(omega * (variances / g) ** 2, _LEAST)
            omega /= omega.sum()
        return best, bound

    def strategy(self, lam: Array) -> Strategy:
        """The strategy that measures every space at its precision; by marginals, where these do it exactly."""
        sizes = np.array(self.domain.shape, dtype=np.float64)
        whole = self._marginals(lam)
        kind, lam = (Residual, lam) if whole is None else (Eye, whole)
        found: list[tuple[Array, Array]] = []
        for places, axes in self.listed.keys.by_size:
            weights = np.sqrt(lam[places])
            if whole is None:
                weights /= sizes[axes].prod(axis=1)
            found.append((weights[weights > 0], axes[weights > 0]))
        weights = np.concatenate([weights for weights, _ in found])
        if not len(weights):
            return Strategy(self.domain, (Block(1.0, ()),))
        starts = np.cumsum(np.repeat([0, *(axes.shape[1] for _, axes in found)], [1, *(len(w) for w, _ in found)]))
        used, numbers = np.unique(np.concatenate([axes.ravel() for _, axes in found]), return_inverse=True)
        factors = tuple([((i,), kind(self.domain.shape[i])) for i in used.tolist()])
        return Strategy(self.domain, BlockTable(weights, starts, numbers, factors))

    def _marginals(self, lam: Array) -> Array | None:
        """The squared weights u of marginals that measure each space b as λ_b = Σ_{a ⊇ b} u_a Π_{i∈a∖b} 1/nᵢ, if any.

        Marginals have fewer and smaller numbers, and only they can be measured where one table has many attributes.
        They are looked for where the spaces are a good part of all subsets of the attributes: O(d·2^d).
        """
        d = len(self.domain)
        used = np.flatnonzero([table[1:].any() for table in self.mixture.tables])
        if 1 << len(used) > _SPARSE * len(lam):
            return None
        bits = np.zeros(d, dtype=np.int64)
        bits[used] = 1 << np.arange(len(used))
        subsets = np.zeros(len(lam), dtype=np.int64)
        for places, axes in self.listed.keys.by_size:
            subsets[places] = bits[axes].sum(axis=1)
        u = np.zeros(1 << len(used))
        u[subsets] = lam
        for place, i in enumerate(used.tolist()):
            halves = u.reshape(-1, 2, 1 << place)
            halves[:, 0] -= halves[:, 1] / self.domain.shape[i]
        found = np.where(np.abs(u[subsets]) <= _NOTHING * lam, 0.0, u[subsets])
        return found if (found >= 0).all() and np.count_nonzero(np.abs(u) > _NOTHING * lam.max()) <= len(lam) else None


def _by_product(workload: Workload) -> Mixture:
    """The products, with what all their queries together ask for."""
    products = counted(workload)
    shape = workload.domain.shape
    choices, sets = tabulated(workload.products if len(products) == len(workload.products) else products, len(shape))
    tables = [np.array([shares(Eye(n), p, n) for p in each]).T for each, n in zip(sets, shape, strict=True)]
    return Mixture(np.array([product.weight for product in products]) ** 2, choices, tuple(tables))


def _by_row(goal: Goal) -> Mixture:
    """The rows of the goal's products, those of a product that ask for the same as one; a unit is what is allowed."""
    shape, products = goal.workload.domain.shape, goal.workload.products
    choices, sets = tabulated(products, len(shape))
    each_kinds = [[_kinds(i, p, shape[i]) for p in each] for i, each in enumerate(sets)]
    if all(len(kinds) == 1 for each in each_kinds for kinds in each) and all(p.weight > 0 for p in products):
        allowed = np.repeat(
            [goal.allowed[name] for name in goal.tables], [len(t.products) for t in goal.tables.values()]
        )
        squares = np.array([product.weight for product in products]) ** 2
        return Mixture(squares / allowed, choices, tuple(np.array([k[0][1] for k in each]).T for each in each_kinds))
    rows: list[tuple[tuple[int, tuple[float, float]], ...]] = []
    units: list[float] = []
    for name, table in goal.tables.items():
        for product in table.products:
            if product.weight > 0:
                each = list(_rows(product))
                rows += each
                units += [product.weight**2 / goal.allowed[name]] * len(each)
    choices, kinds = tabulate(rows, [_TOTAL] * len(goal.workload.domain))
    return Mixture(np.array(units), choices, tuple(np.array(each).T for each in kinds))


def _rows(product: Product) -> Iterator[tuple[tuple[int, tuple[float, float]], ...]]:
    """Every combination of kinds of rows of the product's predicate sets."""
    shape = product.domain.shape
    return itertools.product(*[_kinds(i, p, shape[i]) for i, p in product.factors])


@lru_cache(maxsize=1024)
def _kinds(i: int, predicates: PredicateSet, n: int) -> tuple[tuple[int, tuple[float, float]], ...]:
    """(i, (g₀, g₁)) of single rows of a predicate set on attribute i, each once."""
    W = predicates.matrix(n)
    sums, squares = quadratic(W, Ones(n, n)), quadratic(W, Eye(n))
    pairs = np.stack([sums / n**2, np.maximum(squares - sums / n, 0.0)], axis=1)
    return tuple((i, (float(g0), float(g1))) for g0, g1 in np.unique(pairs.round(12), axis=0))
