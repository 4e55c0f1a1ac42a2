"""Estimates without negative counts: they are biased, and only made on request.

Up to 4 million measured cells, this is nonnegative least squares (over x ≥ 0). Beyond that, every table is projected by
itself onto the nonnegative tables with the estimated total; such tables need not agree with each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import final

import numpy as np

from hdmm.domain import Domain
from hdmm.exceptions import StrategyError
from hdmm.matrix import Array
from hdmm.predicates import Identity
from hdmm.reconstruct import Estimate, GroupedEstimate, in_cells, in_unit_noise
from hdmm.strategy.blocks import Block, stacked_blocks
from hdmm.strategy.coupled import Coupled
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.direct import Direct
from hdmm.strategy.form import Form
from hdmm.strategy.grid import Grid
from hdmm.strategy.grouped import Grouped
from hdmm.strategy.iterative import Unknown, Written
from hdmm.strategy.minimize import minimize
from hdmm.strategy.orthogonal import Orthogonal
from hdmm.workload import Product

MOST_CELLS = 1 << 22
"""Up to which x is found whole: a few arrays of 32 MiB, some hundred products with the strategy."""

_STEPS = 1000
_TOLERANCE = 1e-9  # the fraction of the squared residual that a step must gain


@singledispatch
def nonnegative(form: Form, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    """An estimate with no count below 0, from the same measurements as the unbiased `estimate`.

    >>> from hdmm import Workload
    >>> from hdmm.matrix import Eye
    >>> from hdmm.reconstruct import reconstruct
    >>> from hdmm.strategy.base import Strategy
    >>> domain = Domain({"x": 2})
    >>> form = Strategy(domain, (Block(1.0, [(0, Eye(2))]),)).form
    >>> raw = reconstruct(form, [np.array([3, -1])], [1.0])
    >>> found = nonnegative(form, [np.array([3, -1])], [1.0], raw)
    >>> found.values(Workload.marginals(domain, k=1).products[0])
    array([3., 0.])
    """
    raise StrategyError(f"There is no rule for estimates from a {type(form).__name__}. This is a fault of hdmm.")


@nonnegative.register
def _(form: Direct, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    return _Clipped(estimate)


@nonnegative.register
def _(form: Grouped, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    raw = estimate.inner if isinstance(estimate, GroupedEstimate) else estimate
    return GroupedEstimate(form.groups, nonnegative(form.inner, answers, units, raw))


@nonnegative.register
def _(form: Orthogonal, answers: Sequence[Array], units: Sequence[float], estimate: Estimate) -> Estimate:
    return _Projected(form.domain, estimate)


@nonnegative.register(Coupled)
@nonnegative.register(Diagonal)
@nonnegative.register(Grid)
@nonnegative.register(Written)
@nonnegative.register(Unknown)
def _(
    form: Coupled | Diagonal | Grid | Written | Unknown,
    answers: Sequence[Array],
    units: Sequence[float],
    estimate: Estimate,
) -> Estimate:
    axes = sorted({i for block in form.blocks for i in block.axes})
    if math.prod(form.domain.shape[i] for i in axes) > MOST_CELLS:
        return _Projected(form.domain, estimate)
    return _solved(form.domain, form.blocks, axes, answers, units, estimate)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Clipped(Estimate):
    """Queries measured one by one; an answer below 0 becomes 0."""

    inner: Estimate

    def values(self, product: Product) -> Array:
        return np.maximum(self.inner.values(product), 0.0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Projected(Estimate):
    """For each product by itself, the nearest nonnegative table over its attributes with the estimated total."""

    domain: Domain
    inner: Estimate

    def values(self, product: Product) -> Array:
        axes = product.axes
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
    domain: Domain,
    blocks: Sequence[Block],
    axes: Sequence[int],
    answers: Sequence[Array],
    units: Sequence[float],
    estimate: Estimate,
) -> Estimate:
    """min ‖A x − y‖² over x ≥ 0 on the cells of the measured attributes, by L-BFGS-B from x̂ cut at 0."""
    place = {axis: k for k, axis in enumerate(axes)}
    A = stacked_blocks(
        [domain.shape[i] for i in axes],
        [Block(b.weight, [(place[i], A) for i, A in b.by_axis.items()]) for b in blocks],
    )
    y = in_unit_noise(blocks, answers, units)
    # Counts are as large as the noise or larger, so in units of the noise the problem is well scaled.
    unit = 1 / max(block.weight for block in blocks)

    def squares(x: Array) -> tuple[float, Array]:
        residual = A.matmat(unit * x[:, None]) - y[:, None]
        return float(np.vdot(residual, residual)) / 2, unit * A.T.matmat(residual)[:, 0]

    cells = Product(domain, tuple((i, Identity()) for i in axes), 1.0)
    start = np.maximum(estimate.values(cells), 0.0) / unit
    found = minimize(squares, start, tolerance=_TOLERANCE, iterations=_STEPS)
    return in_cells(domain, axes, unit * found.x)
