"""OPT_⊗: one product of p-Identity matrices for a union of products (Section 6.1 of the paper)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from hdmm.matrix import Array, Eye, Matrix, PIdentity, diagonal
from hdmm.privacy import Noise
from hdmm.strategy.base import BlockStrategy
from hdmm.strategy.diagonal import Block
from hdmm.strategy.jointly import minimize_jointly
from hdmm.strategy.p_identity import loss_and_gradient, opt_0
from hdmm.strategy.terms import Terms
from hdmm.workload import Workload

Progress = Callable[[int, float], None]

LARGEST = 1e3  # entries of Θ: where an attribute is mostly totalled they would grow without end
_CYCLES = 20
_GAIN = 1e-5  # a cycle that gains less of the error is the last


def opt_x(
    workload: Workload,
    *,
    rng: np.random.Generator,
    restart: int = 0,
    noise: Noise = "laplace",
    deadline: float | None = None,
    progress: Progress | None = None,
) -> BlockStrategy:
    """⊗A_i that makes Σ_k w_k² Π_i tr((A_iᵀA_i)⁻¹V_ki) small, from one start of a portfolio; never worse than Identity.

    An attribute on which all products agree is solved by itself: a single product is d runs of OPT_0. The others
    take turns, each by OPT_0 on its surrogate workload, and then move together by the exact gradient. An attribute
    that every product totals is Total. `progress` is given (step, error as a part of Identity's).

    >>> from hdmm import Domain, Identity, Prefix, unit_error
    >>> domain = Domain({"sex": 2, "age": 16, "state": 50})
    >>> w = Workload.product(domain, sex=Identity(), age=Prefix()) + Workload.product(domain, sex=Identity())
    >>> strategy = opt_x(w, rng=np.random.default_rng(0))
    >>> [axis for axis, _ in strategy.blocks[0].factors], unit_error(w, strategy) < 0.5 * 32 * 8.5 * 50
    ([0, 1], True)
    """
    terms = Terms.of(workload)
    factors = product_factors(
        terms, rng=rng, restart=restart, noise=noise, deadline=deadline, progress=progress
    )
    return BlockStrategy(workload.domain, (Block(1.0, tuple(zip(terms.axes, factors, strict=True))),))


def product_factors(
    terms: Terms,
    *,
    rng: np.random.Generator,
    restart: int = 0,
    noise: Noise = "laplace",
    deadline: float | None = None,
    progress: Progress | None = None,
) -> list[Matrix]:
    """The factor of each attribute of the terms, by OPT_⊗."""
    factors: list[Matrix] = [Eye(n) for n in terms.sizes]
    alone, together = terms.separated()
    for i in alone:
        factors[i] = opt_0(
            terms.grams[i][0], rng=rng, restart=restart, noise=noise, deadline=deadline, progress=progress
        )
    if together:
        coupled = terms.restricted(together)
        found = _coupled_factors(coupled, rng, restart, noise, deadline, progress)
        for i, A in zip(together, found, strict=True):
            factors[i] = A
    return factors


def joint_loss(terms: Terms, thetas: Sequence[Array]) -> tuple[float, list[Array]]:
    """(f, ∂f/∂Θ_i) of the product of p-Identity matrices, Identity having f = 1.

    ∂f/∂Θ_i = Σ_v ∂f/∂τ_iv · ∂τ_iv/∂Θ_i: OPT_0's gradient, once a distinct gram of the attribute.

    >>> from hdmm import Domain, Identity
    >>> terms = Terms.of(Workload.marginals(Domain({"a": 2, "b": 3}), k=1))
    >>> joint_loss(terms, [np.zeros((1, 2)), np.zeros((1, 3))])[0]
    1.0
    """
    evaluated = [
        [loss_and_gradient(theta, V) for V in each] for theta, each in zip(thetas, terms.grams, strict=True)
    ]
    taus = [np.array([tau for tau, _ in each]) for each in evaluated]
    gradients = [
        np.tensordot(weights, np.stack([g for _, g in each]), axes=1)
        for weights, each in zip(terms.partials(taus), evaluated, strict=True)
    ]
    return terms.error(taus), gradients


def _coupled_factors(
    terms: Terms,
    rng: np.random.Generator,
    restart: int,
    noise: Noise,
    deadline: float | None,
    progress: Progress | None,
) -> list[Matrix]:
    """Block-cyclic descent until a cycle gains little, then all Θ together; monotone after the first cycle."""
    d = len(terms.axes)
    factors: list[Matrix] = [Eye(n) for n in terms.sizes]
    taus = [np.ones(len(each)) for each in terms.grams]
    if restart:  # as if the other attributes had factors that suit some of the products
        taus = [tau * np.exp(-2.0 * rng.random(len(tau))) for tau in taus]
    order = rng.permutation(d).tolist() if restart else range(d)
    value = np.inf
    for cycle in range(_CYCLES):
        before = value
        for i in order:
            V = terms.surrogate(i, taus)
            warm = theta_of(factors[i]) if cycle else None
            A = opt_0(V, rng=rng, restart=restart, noise=noise, warm=warm, deadline=deadline, progress=None)
            tau = terms.traces(i, A)
            trial = terms.error([*taus[:i], tau, *taus[i + 1 :]])
            if cycle == 0 or trial < value:
                factors[i], taus[i], value = A, tau, trial
        if progress is not None:
            progress(cycle, value)
        if not value < before * (1 - _GAIN) or (deadline is not None and time.monotonic() > deadline):
            break
    thetas = [theta_of(A) for A in factors]
    if noise == "laplace" and all(theta is not None for theta in thetas):
        starts = [theta for theta in thetas if theta is not None]
        found, better = minimize_jointly(
            lambda xs: joint_loss(terms, xs), starts, upper=LARGEST, deadline=deadline, progress=progress
        )
        if better < value:
            factors, value = [PIdentity(theta) for theta in found], better
    return factors if value < 1 else [Eye(n) for n in terms.sizes]


def theta_of(A: Matrix) -> Array | None:
    """Θ of a p-Identity matrix, one row of zeros for the identity, None for other kinds.

    >>> theta_of(Eye(2))
    array([[0., 0.]])
    """
    match A:
        case PIdentity(theta):
            return theta
        case Eye(n):
            return np.zeros((1, n))
        case _:
            return None
