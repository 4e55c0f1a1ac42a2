"""OPT_+: a union of two products, split and refined by its exact error (Section 6.1 of the paper, and past it)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hdmm.matrix import Array, Dense, Matrix, Ones, PIdentity, gram, to_dense
from hdmm.privacy import Noise
from hdmm.strategy.base import BlockStrategy
from hdmm.strategy.diagonal import Block
from hdmm.strategy.grouping import groupings
from hdmm.strategy.jointly import minimize_jointly
from hdmm.strategy.p_identity import opt_0
from hdmm.strategy.pair import MAX_CELLS, Pair
from hdmm.strategy.product import LARGEST, Progress, opt_x, product_factors, theta_of
from hdmm.strategy.terms import Terms
from hdmm.workload import Workload

_MAX_STEPS = 200


def opt_plus(
    workload: Workload,
    *,
    rng: np.random.Generator,
    restart: int = 0,
    noise: Noise = "laplace",
    deadline: float | None = None,
    progress: Progress | None = None,
) -> BlockStrategy:
    """[θ₁ ⊗A_1i; θ₂ ⊗A_2i], each product for a group of the workload's products, from one start of a portfolio.

    The groups are number `restart` of `groupings`. Each gets its product by OPT_⊗; then θ and all factors move
    together by the gradient of the exact error, in which what both products measure counts twice.
    """
    terms = Terms.of(workload)
    alone, together = terms.separated()
    coupled = terms.restricted(together)
    ways = groupings(coupled, rng=rng) if together else []
    if not ways or math.prod(coupled.sizes) > MAX_CELLS:
        return opt_x(workload, rng=rng, restart=restart, noise=noise, deadline=deadline, progress=progress)
    shared = {
        terms.axes[i]: opt_0(terms.grams[i][0], rng=rng, restart=restart, noise=noise, deadline=deadline) for i in alone
    }
    groups = ways[restart % len(ways)]
    parts = [_group_factors(coupled, group, rng, restart // len(ways), noise, deadline) for group in groups]
    shares, parts = refined(coupled, parts, noise=noise, deadline=deadline, progress=progress)
    blocks = [
        Block(share, _factors({**shared, **dict(zip(coupled.axes, part, strict=True))}))
        for share, part in zip(shares, parts, strict=True)
        if share > 0
    ]
    return BlockStrategy(workload.domain, tuple(blocks))


def refined(
    terms: Terms,
    parts: Sequence[Sequence[Matrix]],
    *,
    noise: Noise = "laplace",
    deadline: float | None = None,
    progress: Progress | None = None,
    steps: int = _MAX_STEPS,
) -> tuple[tuple[float, float], list[list[Matrix]]]:
    """((θ₁, θ₂), factors) of two products after joint descent on their exact error; Totals stay Totals."""
    kinds = [_Parameter(g, i, A, noise) for g, part in enumerate(parts) for i, A in enumerate(part)]
    fixed = [[to_dense(gram(A)).astype(np.float64) for A in part] for part in parts]
    free = [kind for kind in kinds if kind.start is not None]

    def pair_at(xs: Sequence[Array]) -> Pair:
        grams = [list(part) for part in fixed]
        for kind, x in zip(free, xs, strict=True):
            grams[kind.group][kind.axis] = kind.gram(x)
        return Pair.of(terms, grams[0], grams[1])

    def objective(xs: list[Array]) -> tuple[float, list[Array]]:
        pair = pair_at(xs)
        shares, value = pair.split(noise)
        gradients = pair.gradients(shares)
        return value, [kind.pulled(x, gradients[kind.group][kind.axis]) for kind, x in zip(free, xs, strict=True)]

    starts = [kind.start for kind in free if kind.start is not None]
    bounds = (0.0, LARGEST) if noise == "laplace" else (None, None)
    xs, _ = minimize_jointly(
        objective, starts, lower=bounds[0], upper=bounds[1], iterations=steps, deadline=deadline, progress=progress
    )
    shares, _ = pair_at(xs).split(noise)
    out = [list(part) for part in parts]
    for kind, x in zip(free, xs, strict=True):
        out[kind.group][kind.axis] = kind.factor(x)
    return shares, out


class _Parameter:
    """One factor as a function of free numbers: Θ of a p-Identity, or a root R with columns scaled to norm 1."""

    def __init__(self, group: int, axis: int, A: Matrix, noise: Noise) -> None:
        self.group, self.axis, self.noise = group, axis, noise
        if Ones(1, A.shape[1]) == A:
            self.start = None
        else:
            self.start = theta_of(A) if noise == "laplace" else to_dense(A).astype(np.float64)

    def factor(self, x: Array) -> Matrix:
        if self.noise == "laplace":
            return PIdentity(x[x.max(axis=1) > 0])
        return Dense(x / np.linalg.norm(x, axis=0))

    def gram(self, x: Array) -> Array:
        if self.noise == "laplace":
            s = 1 + x.sum(axis=0)
            G = (x / s).T @ (x / s)
            G.flat[:: len(s) + 1] += 1 / s**2
            return G
        A = x / np.linalg.norm(x, axis=0)
        return A.T @ A

    def pulled(self, x: Array, F: Array) -> Array:
        """∂f/∂x from F = ∂f/∂G: with A = B/s, ∂f/∂A = 2AF and ∂f/∂s = −2 diag(GF)/s."""
        if self.noise == "laplace":
            s = 1 + x.sum(axis=0)
            A = x / s
            AF = A @ F
            diag = np.einsum("pn,pn->n", AF, A) + F.diagonal() / s**2
            return 2 * AF / s - 2 * diag / s
        norms = np.linalg.norm(x, axis=0)
        A = x / norms
        AF = 2 * A @ F
        return (AF - A * np.einsum("pn,pn->n", AF, A)) / norms


def _group_factors(
    terms: Terms, group: tuple[int, ...], rng: np.random.Generator, restart: int, noise: Noise, deadline: float | None
) -> list[Matrix]:
    """One product for some of the terms, Total where they ask for no more."""
    part = terms.taken(group)
    found = dict(
        zip(part.axes, product_factors(part, rng=rng, restart=restart, noise=noise, deadline=deadline), strict=True)
    )
    return [found.get(axis, Ones(1, n)) for axis, n in zip(terms.axes, terms.sizes, strict=True)]


def _factors(by_axis: dict[int, Matrix]) -> tuple[tuple[int, Matrix], ...]:
    return tuple((i, A) for i, A in sorted(by_axis.items()) if Ones(1, A.shape[1]) != A)
