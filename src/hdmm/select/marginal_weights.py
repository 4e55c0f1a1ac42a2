"""The weights θ of measured subsets (or blocks): their share of the budget, chosen so that the error is small.

The error of weights θ is S²·Σ_b t_b/λ_b with λ = up(θ²) and S = Σθ (Laplace) or S² = Σθ² (Gaussian). With
g = down(t/λ²), so that Σ θ²g = Σ t/λ = F, the derivative of F with respect to θ_a is −2θ_a g_a.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hdmm.matrix import Array
from hdmm.privacy.guarantee import Noise
from hdmm.select.minimize import minimize
from hdmm.select.parts import Asked, Parted, asked_at
from hdmm.select.search import Search
from hdmm.strategy.subsets import SubsetSums

_CHECK = 16  # steps between checks of the gain


def slopes(sums: SubsetSums, t: Asked, u: Array) -> tuple[Array, Array, Array]:
    """(F, g, t/λ) of squared weights u: F = Σ t/λ, g = down(t/λ²); columns of u are independent.

    F is infinite if an eigenspace with t > 0 is not measured. The cost is one `up` and one `down`.

    >>> from hdmm.strategy.subsets import Whole
    >>> F, g, _ = slopes(Whole(np.array([0.5])), np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    >>> float(F), g.tolist()
    (1.5, [2.0, 1.5])
    """
    lam = sums.up(u)
    asked = asked_at(t, lam)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = asked / lam
        dual = quotient / lam
        if not asked.all():
            quotient, dual = (np.where(asked > 0, each, 0.0) for each in (quotient, dual))
        return quotient.sum(axis=0), sums.down(dual), quotient


def laplace_loss(sums: SubsetSums, t: Asked, theta: Array) -> tuple[float, Array]:
    """(Σθ)²·Σ t/λ and its gradient by θ.

    >>> from hdmm.strategy.subsets import Whole
    >>> laplace_loss(Whole(np.array([0.5])), np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    (1.5, array([3., 0.]))
    """
    F, g, _ = slopes(sums, t, theta * theta)
    S = float(theta.sum())
    with np.errstate(invalid="ignore"):  # both are infinite if something is not measured
        return S * S * float(F), 2 * S * float(F) - 2 * S * S * theta * g


def gaussian_loss(sums: SubsetSums, t: Asked, u: Array) -> tuple[float, Array]:
    """Σu·Σ t/λ and its gradient by u = θ², in which it is convex.

    >>> from hdmm.strategy.subsets import Whole
    >>> gaussian_loss(Whole(np.array([0.5])), np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    (1.5, array([-0.5,  0. ]))
    """
    F, g, _ = slopes(sums, t, u)
    S = float(u.sum())
    with np.errstate(invalid="ignore"):
        return S * float(F), float(F) - S * g


def descend(
    sums: SubsetSums,
    t: Asked,
    theta: Array,
    search: Search | None = None,
    *,
    steps: int,
    gain: float = 0.0,
    relax: float = 1.0,
) -> tuple[Array, Array]:
    """(θ with columns that sum to 1, their Laplace errors) after some steps; without `relax` none raises the error.

    Σ t/λ(θ') ≤ Σ_a g_a θ_a⁴/θ'_a² (Jensen), and θ' ∝ (g θ⁴)^⅓ minimises that times (Σθ')². For the p-norm of parts
    the like bound is on Σ_k e_kᵖ, and θ' ∝ θ(gθ)^(1/(2p+1)). `relax` lengthens the steps: near a minimum any value
    below 2 converges, and 1.5 (a square root in place of a cube root) needs two thirds of the steps, but a step may
    raise the error. Many starts, the columns of θ, cost little more than one. Stops early when _CHECK steps lower no
    column by `gain` of it. Weights that are 0 stay 0.
    """
    theta = theta / theta.sum(axis=0)
    degree = (2 * t.power + 1 if isinstance(t, Parted) else 3.0) / relax
    root = {2.0: np.sqrt, 3.0: np.cbrt}.get(degree) or _root(degree)
    before = None
    for step in range(steps):
        F, g, _ = slopes(sums, t, theta * theta)
        theta = theta * root(theta * (g / F))
        theta /= theta.sum(axis=0)
        if search is not None and search.late:
            break
        if step % _CHECK == _CHECK - 1:
            if before is not None and (before * (1 - gain) <= F).all():
                break
            before = F
    return theta, slopes(sums, t, theta * theta)[0]


def _curvatures(sums: SubsetSums, t: Asked, u: Array) -> Array:
    """Half the second derivative of Σ t/λ by each of u: Σ_b γ²_{a∖b} t_b/λ_b³."""
    lam = sums.up(u)
    asked = asked_at(t, lam)
    each = np.divide(asked, lam**3, out=np.zeros_like(lam), where=asked > 0)
    found = sums.squared().down(each)
    return np.where(found > 0, found, found[found > 0].min())  # what measures nothing that is asked for has none


def _root(degree: float) -> Callable[[Array], Array]:
    return lambda x: x ** (1 / degree)


def polish(
    sums: SubsetSums,
    t: Asked,
    theta: Array,
    search: Search | None = None,
    *,
    noise: Noise = Noise.LAPLACE,
    relative: bool = True,
    tolerance: float = 1e-12,
) -> Array:
    """θ of norm 1 at a local minimum, by L-BFGS-B from the given θ. For Gaussian noise it is the global minimum.

    With `relative`, steps are relative to the given weights, which keeps small weights small. Without it, small weights
    can grow: on the 2-way range-marginals of CPS, 32 products of five pairs of factors then reach 22.5; with it they
    fall back to the first two products, at 26.9.
    """
    at, start = (laplace_loss, theta) if noise is Noise.LAPLACE else (gaussian_loss, theta**2)
    scale = np.where(relative & (start > 0), start, 1.0)

    def loss(x: Array) -> tuple[float, Array]:
        value, gradient = at(sums, t, x * scale)
        if not math.isfinite(value):  # something is unmeasured: a large value, so that the step is shortened
            return 1e6 * first, np.zeros_like(x)
        return value, gradient * scale

    first = at(sums, t, start)[0]
    found = minimize(loss, start / scale, search, tolerance=tolerance)
    better = found.x * scale if found.value <= first else start
    theta = better if noise is Noise.LAPLACE else np.sqrt(better)
    return theta / noise.norm(theta)


def sparsified(sums: SubsetSums, t: Asked, theta: Array, *, noise: Noise) -> Array:
    """θ without negligible weights: as many of the smallest are dropped as raise the error by less than 1e-9."""

    def error(x: Array) -> float:
        return noise.norm(x) ** 2 * float(slopes(sums, t, x * x)[0])

    limit = error(theta) * (1 + 1e-9)
    for cut in (1e-3, 1e-4, 1e-5, 1e-6, 1e-8):
        fewer = np.where(theta > cut * theta.max(), theta, 0.0)
        if error(fewer) <= limit:
            return fewer
    return theta


def gaussian_weights(
    sums: SubsetSums, t: Asked, search: Search | None = None, *, start: Array | None = None, gap: float = 1e-7
) -> Array:
    """u = θ² with Σu = 1 and the least Σ t/λ, certified to within `gap` of the optimum.

    The problem is convex. For every u, F(u)²/max_a g_a is at most the optimum (Cauchy-Schwarz), which is the stopping
    test. Multiplicative steps u' ∝ u√g come first, then L-BFGS-B on u in units of the roots of the second derivatives:
    relative to u itself it takes up to thirty times as many steps.
    """
    u = np.full(sums.shape[1], 1.0 / sums.shape[1]) if start is None else start / start.sum()
    root = np.sqrt if not isinstance(t, Parted) else _root(t.power + 1)
    for _ in range(8):
        for _ in range(40):
            F, g, _ = slopes(sums, t, u)
            u = u * root(g / F)
            u /= u.sum()
            if search is not None and search.late:
                break
        F, g, _ = slopes(sums, t, u)
        if float(g.max()) <= float(F) * (1 + gap) or (search is not None and search.late):
            break
        scale = 1 / np.sqrt(_curvatures(sums, t, u))

        def loss(x: Array, scale: Array = scale, first: float = float(F)) -> tuple[float, Array]:
            value, gradient = gaussian_loss(sums, t, x * scale)
            return (value, scale * gradient) if math.isfinite(value) else (1e6 * first, np.zeros_like(x))

        found = minimize(loss, u / scale, search, tolerance=1e-14).x * scale
        u = found / found.sum()
        F, g, _ = slopes(sums, t, u)
        if float(g.max()) <= float(F) * (1 + gap):
            break
        u = np.where((u == 0) & (g > F), 1e-9, u)
        u /= u.sum()
    return u
