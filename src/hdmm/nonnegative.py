"""Estimates without negative counts: biased, and never made unless asked for.

Up to 4 million measured cells: least squares over x ≥ 0 (nonnegative least squares). Beyond, every table is projected
by itself on the nonnegative tables with the estimated total; such tables need not agree with each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.domain import Domain
from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Kron, Matrix, Ones, Scaled, Stack
from hdmm.predicates import Identity
from hdmm.reconstruct import Estimate, MergedEstimate, in_cells, in_unit_noise
from hdmm.strategy.base import BlockStrategy, DirectStrategy, Strategy
from hdmm.strategy.grid import GridTree
from hdmm.strategy.merged import MergedStrategy
from hdmm.strategy.minimize import minimize
from hdmm.workload import Product

MOST_CELLS = 1 << 22
"""Up to which x is found whole: a few arrays of 32 MiB, some hundred products with the strategy."""

_STEPS = 1000
_TOLERANCE = 1e-9  # of the squared residual, that a step must gain


def nonnegative(strategy: Strategy, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    """An estimate with no count below 0, from the same measurements as the unbiased `estimate`.

    >>> from hdmm.matrix import Eye
    >>> from hdmm.reconstruct import reconstruct
    >>> from hdmm.strategy.diagonal import Block
    >>> from hdmm import Workload
    >>> domain = Domain({"x": 2})
    >>> cells = BlockStrategy(domain, (Block(1.0, ((0, Eye(2)),)),))
    >>> raw = reconstruct(cells, [np.array([3, -1])], [1.0])
    >>> found = nonnegative(cells, [np.array([3, -1])], [1.0], raw)
    >>> found.values(Workload.marginals(domain, k=1).products[0])
    array([3., 0.])
    """
    match strategy:
        case DirectStrategy():
            return _Clipped(estimate)
        case MergedStrategy():
            raw = estimate.inner if isinstance(estimate, MergedEstimate) else estimate
            return MergedEstimate(strategy, nonnegative(strategy.inner, answers, units, raw))
        case GridTree():
            return nonnegative(strategy.blocks, answers, units, estimate)
        case BlockStrategy():
            axes = sorted({i for block in strategy.blocks for i, _ in block.factors})
            if math.prod(strategy.domain.shape[i] for i in axes) > MOST_CELLS:
                return _Projected(strategy.domain, estimate)
            return _solved(strategy, axes, answers, units, estimate)
        case _:
            raise StrategyError(f"A {type(strategy).__name__} cannot be answered from. Give blocks of products.")


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Clipped(Estimate):
    """Queries measured one by one: what is below 0 becomes 0."""

    inner: Estimate

    def values(self, product: Product) -> Array:
        return np.maximum(self.inner.values(product), 0.0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Projected(Estimate):
    """The nearest nonnegative table with the estimated total, for the attributes of each product by themselves."""

    domain: Domain
    inner: Estimate

    def values(self, product: Product) -> Array:
        axes = [i for i, _ in product.factors]
        whole = Product(self.domain, tuple((i, Identity()) for i in axes), 1.0)
        total = max(0.0, float(self.inner.values(Product(self.domain, (), 1.0))[0]))
        table = on_simplex(self.inner.values(whole), total)
        return in_cells(self.domain, axes, table).values(product)


def on_simplex(x: Array, total: float) -> Array:
    """The nearest point to x with no entry below 0 and this sum. O(n log n).

    >>> on_simplex(np.array([3.0, 1.0, -1.0]), 3.0)
    array([2.5, 0.5, 0. ])
    """
    falling = np.sort(x)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(x) + 1)
    kept = np.flatnonzero(falling > excess)
    return np.maximum(x - excess[kept[-1]], 0.0) if len(kept) else np.zeros(len(x))


def _solved(
    strategy: BlockStrategy, axes: Sequence[int], answers: Sequence[Array], units: Sequence[float], estimate: Estimate
) -> Estimate:
    """min ‖A x − y‖² over x ≥ 0 on the cells of the measured attributes, by L-BFGS-B from x̂ cut at 0."""
    shape = [strategy.domain.shape[i] for i in axes]
    blocks: list[Matrix] = []
    for block in strategy.blocks:
        active = dict(block.factors)
        factors = tuple(active.get(i, Ones(1, n)) for i, n in zip(axes, shape, strict=True))
        blocks.append(Scaled(block.weight, Kron(factors)))
    A = Stack(tuple(blocks))
    y = in_unit_noise(strategy, answers, units)
    # Counts are of the size of the noise or larger: in units of the noise the problem is well scaled.
    unit = 1 / max(block.weight for block in strategy.blocks)

    def squares(x: Array) -> tuple[float, Array]:
        residual = A.matmat(unit * x[:, None]) - y[:, None]
        return float(np.vdot(residual, residual)) / 2, unit * A.T.matmat(residual)[:, 0]

    cells = Product(strategy.domain, tuple((i, Identity()) for i in axes), 1.0)
    start = np.maximum(estimate.values(cells), 0.0) / unit
    found = minimize(squares, start, tolerance=_TOLERANCE, iterations=_STEPS)
    return in_cells(strategy.domain, axes, unit * found.x)
