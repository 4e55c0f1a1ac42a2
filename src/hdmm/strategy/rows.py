"""Row weights: what makes a mean over the queries of a product speak for its worst one.

The queries of a product are weighed through its factors, ω_r = Π_i r_i, so that every operator sees them as another
product of the same kind; Σω is the number of queries. Weights move towards the queries of large variance, and where
they settle, the weighted mean is the worst variance of what has weight at all.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hdmm.matrix import Array
from hdmm.predicates import PredicateSet, Weighted
from hdmm.strategy.base import Strategy
from hdmm.strategy.problem import Problem
from hdmm.workload import Product, Workload

_MOST_ROWS = 1 << 22  # of a product whose rows are weighed: their variances are held at once
_STRIDE = 1.0
_EVEN = 1e-3  # of the mean: variances closer than that are alike


def weighed_rows(problem: Problem, strategy: Strategy) -> Problem | None:
    """The problem with the rows of each product weighed by their variances under a strategy; None if all are alike."""
    products = [_weighed(product, strategy) for product in problem.workload.products]
    if all(new is old for new, old in zip(products, problem.workload.products, strict=True)):
        return None
    return replace(problem, given=Workload(problem.workload.domain, tuple(products)))


def _weighed(product: Product, strategy: Strategy) -> Product:
    if product.joint or not product.factors or product.queries > _MOST_ROWS:
        return product
    shape = product.domain.shape
    inner = [_plain(p) for _, p in product.factors]
    counts = [p.count(shape[i]) for (i, _), p in zip(product.factors, inner, strict=True)]
    plain = Product(product.domain, tuple((i, p) for (i, _), p in zip(product.factors, inner, strict=True)))
    v = np.concatenate(list(strategy.variances(plain))).reshape(counts)
    held = [_weights(p, m) for (_, p), m in zip(product.factors, counts, strict=True)]
    for j, w in enumerate(held):
        v = v * w.reshape([-1 if k == j else 1 for k in range(len(counts))])
    mean = float(v.sum()) / math.prod(counts)
    factors: list[tuple[int, PredicateSet]] = []
    for j, (i, p) in enumerate(product.factors):
        others = tuple(k for k in range(len(counts)) if k != j)
        ratio = v.sum(axis=others) / (held[j] * math.prod(counts[k] for k in others) * mean)
        if np.ptp(ratio) <= _EVEN:
            factors.append((i, p))
            continue
        moved = held[j] * ratio**_STRIDE
        factors.append((i, Weighted(inner[j], np.sqrt(moved * counts[j] / moved.sum()))))
    return replace(product, factors=tuple(factors)) if factors != list(product.factors) else product


def _plain(predicates: PredicateSet) -> PredicateSet:
    return predicates.inner if isinstance(predicates, Weighted) else predicates


def _weights(predicates: PredicateSet, count: int) -> Array:
    return predicates.weights**2 if isinstance(predicates, Weighted) else np.ones(count)
