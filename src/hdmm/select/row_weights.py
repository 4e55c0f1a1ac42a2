"""Row weights: they make a mean over the queries of a product represent its worst query.

The queries of a product are weighed through its factors, ω_r = Π_i r_i, so that every operator sees them as another
product of the same kind. Weights move towards the queries of large variance, and where they settle, the weighted mean
is the worst variance of what has weight at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from hdmm.describe.predicates import Weighted
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.privacy.guarantee import Noise
from hdmm.select.problem import Problem
from hdmm.strategy.strategy import Strategy

_MOST_ROWS = 1 << 22  # of a product whose rows are weighed: their variances are held at once
_EVEN = 1e-3  # of the mean: variances closer than that are alike


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
