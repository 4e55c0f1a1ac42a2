"""The certified gap of a plan under Gaussian noise: how far its objective can be above that of the best strategy.

Sums of errors have the bound of certificate.py. The largest variance is at least every weighted mean of variances, and
so at least the smallest that this mean can be. Weights are best where they are large like the plan's variances.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from scipy.linalg import null_space

from hdmm.bounds.certificate import gaussian_bound, worst_bound
from hdmm.bounds.svd import svd_bound
from hdmm.describe.predicates import Identity, Total, Weighted
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import is_plain
from hdmm.select.goal import Goal, Objective
from hdmm.select.opt_r import least_error, worst_marginals
from hdmm.select.worst_optimum import WrittenCells, worst_optimum
from hdmm.strategy.strategy import Strategy

KNOWN_LOOSENESS = (1.07, 1.46)
"""By which the best strategies for Laplace noise are above `loose_bound`, as root mean squared errors, where they are
known: prefixes and ranges on 2 to 8 values and marginals of 4 to 9 cells (docs/research/lower-bounds.md)."""

_POWERS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
_STEPS = (4.0, 2.0, 1.3, 1.1)  # by which the share of one group of products is raised or lowered
_SECONDS = 3.0  # for the weights; one bound may take as long again
_MOST_ROWS = 1 << 20  # of a product whose rows are weighed
_MOST_KNOWN = 1024  # cells beside known counts: O(n³), a second
_EXACT = 1e-4  # a smaller gap is not looked for


def certified_gap(goal: Goal, strategy: Strategy) -> float | None:
    """objective / bound − 1 under Gaussian noise; None where there is no bound: beside some known counts.

    >>> from hdmm import Domain
    >>> goal = Goal.of(Workload.marginals(Domain({"age": 4}), k=1))
    >>> round(certified_gap(goal, Strategy.identity(Domain({"age": 4}))), 6)
    0.0
    """
    value = goal.value(strategy, Noise.GAUSSIAN)
    bounds: Iterable[float | None]
    if strategy.known:
        bounds = [_beside_known(summed(goal), strategy.known) if goal.linear else None]
    elif goal.linear:
        bounds = [gaussian_bound(summed(goal))]
    elif WrittenCells.of(goal) is not None:  # the search for the optimum has a bound of its own, which meets it
        bounds = [worst_optimum(goal).bound]
    elif all(p in (Identity(), Total()) for product in goal.workload.products for _, p in product.sets):
        bounds = [worst_marginals(goal)]
    else:
        bounds = _worst_bounds(goal, strategy, value)
    best = max((bound for bound in bounds if bound is not None), default=0.0)
    gap = max(value / best - 1, 0.0) if best > 0 else math.inf
    return gap if math.isfinite(gap) else None


def loose_bound(goal: Goal) -> float:
    """What the objective of no strategy is below under Laplace noise: the bound for Gaussian noise, as ‖A‖₁ ≥ ‖A‖₂.

    >>> from hdmm import Domain, Prefix
    >>> goal = Goal.of(Workload.product(Domain({"age": 4}), age=Prefix()))
    >>> round(loose_bound(goal), 2), goal.value(Strategy.identity(Domain({"age": 4})), Noise.LAPLACE)
    (6.87, 10.0)
    """
    workload = summed(goal)
    return max(gaussian_bound(workload), svd_bound(workload))


def summed(goal: Goal) -> Workload:
    """The queries whose total error is the objective, or their mean where that is their largest; as they were given.

    Not compacted: fewer products have looser bounds.
    """
    if goal.objective is Objective.TOTAL:
        return goal.workload
    products = [
        replace(product, weight=product.weight / math.sqrt(counted))
        for name, table in goal.tables.items()
        for counted in [table.queries if goal.linear else goal.workload.queries * goal.allowed[name]]
        for product in table.products
    ]
    return Workload(goal.workload.domain, tuple(products))


def _beside_known(workload: Workload, known: Sequence[Product]) -> float | None:
    """A lower bound on the `unit_error` of every strategy that knows the answers to these products.

    Let the columns of N be an orthonormal basis of what is not known. A strategy has the error tr((NᵀXN)⁻¹NᵀWᵀWN) for
    X = AᵀA, tr(NᵀXN) ≤ tr(X) ≤ cells · ‖A‖², and by Cauchy and Schwarz these multiply to at least ‖WN‖²_*. For plain
    marginals, this is what measuring each residual space by itself reaches.
    """
    if is_plain(workload) and all(p == Identity() for product in known for _, p in product.factors):
        return least_error(workload, [product.axes for product in known])
    cells = workload.domain.size
    if cells > _MOST_KNOWN:
        return None
    V = to_dense(workload.gram).astype(np.float64)
    N = null_space(np.vstack([to_dense(product.matrix) for product in known]))
    return float(np.sqrt(np.maximum(np.linalg.eigvalsh(N.T @ V @ N), 0.0)).sum() ** 2 / cells)


def _worst_bounds(goal: Goal, strategy: Strategy, value: float) -> Iterator[float]:
    """Bounds on the largest variance in the goal's units, for weights moved while that gains and time is left."""
    end = time.monotonic() + _SECONDS
    rows = [
        _Rows.of(p, goal.allowed[name], strategy) for name, t in goal.tables.items() for p in t.products if p.weight
    ]
    domain = goal.workload.domain
    best, shares, products = 0.0, np.ones(len(rows)), goal.workload

    def bound(shares: Array, products: Workload) -> float:
        units = shares * [each.unit for each in rows]
        return float(units.sum() / shares.sum()) * worst_bound(products, units.tolist())

    for power in _POWERS:
        tried = Workload(domain, tuple(each.weighed(power) for each in rows))
        for trial in (np.array([each.sum(power) for each in rows]), np.array([each.largest**power for each in rows])):
            found = bound(trial, tried)
            yield found
            if found > best:
                best, shares, products = found, trial, tried
            if time.monotonic() > end or value <= (1 + _EXACT) * best:
                return
    groups = np.unique([each.kind for each in rows], axis=0, return_inverse=True)[1].ravel()
    for step in _STEPS if best > 0 else ():
        for group in range(int(groups.max()) + 1):
            for factor in (step, 1 / step):
                trial = np.where(groups == group, factor, 1.0) * shares
                while time.monotonic() < end and (found := bound(trial, products)) > best:
                    yield found
                    best, shares = found, trial
                    trial = np.where(groups == group, factor, 1.0) * shares


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The variances of a product's queries under a strategy, up to a factor; `unit` is that of the goal."""

    product: Product
    unit: float
    variances: Array | None  # by row of each factor; None where they are too many, and only their mean is known
    largest: float

    @classmethod
    def of(cls, product: Product, allowed: float, strategy: Strategy) -> _Rows:
        unit, plain = product.weight**2 / allowed, replace(product, weight=1.0)
        if product.queries > _MOST_ROWS:
            return cls(plain, unit, None, unit * strategy.form.total_variance([plain]) / plain.queries)
        shape = [p.count(product.cells(axes)) for axes, p in product.sets]
        found = unit * np.concatenate(list(strategy.form.variances(plain))).reshape(shape)
        return cls(plain, unit, found, float(found.max()))

    @property
    def kind(self) -> tuple[float, float, float]:
        """Products alike in these count alike, as those that differ in the names of their attributes do."""
        return (float(self.product.queries), float(f"{self.unit:.5g}"), float(f"{self.largest:.4g}"))

    def sum(self, power: float) -> float:
        """Σ vᵖ over the rows."""
        if self.variances is None:
            return self.product.queries * self.largest**power
        return float((self.variances**power).sum())

    def weighed(self, power: float) -> Product:
        """The product with rows weighed by vᵖ, as far as weights by factor can; their mean is 1."""
        if self.variances is None or power == 0 or np.ptp(self.variances) <= 1e-6 * self.largest:
            return self.product
        v = self.variances / self.largest
        axes = range(v.ndim)
        marginals = [(v**power).mean(axis=tuple(k for k in axes if k != j)) for j in axes]
        pairs = zip(self.product.sets, marginals, strict=True)
        sets = [(axes, Weighted(p, np.sqrt(m / m.mean()))) for (axes, p), m in pairs]
        return Product.of(self.product.domain, sets, self.product.weight)
