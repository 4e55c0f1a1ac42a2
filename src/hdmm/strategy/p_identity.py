"""OPT_0: the best p-Identity matrix for one attribute (Section 5.2 of the paper), by its workload's gram matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from hdmm.matrix import Array, Eye, Matrix, Ones, PIdentity, diagonal, total, trace
from hdmm.privacy import Noise
from hdmm.strategy.minimize import minimize

_LARGEST = 1e3  # entries of Θ: past it the identity rows are noise, and the loss loses its digits


def loss_and_gradient(theta: Array, V: Matrix, diagonal_of_V: Array | None = None) -> tuple[float, Array]:
    """C = tr((AᵀA)⁻¹V) of A = PIdentity(Θ), and ∂C/∂Θ. One product with V, O(np²) besides; no n × n array.

    With s = 1 + Θᵀ1, B = Θ·diag(s), R = (I + ΘΘᵀ)⁻¹, U = BV and K = UBᵀ:

        C = Σ s²∘diag V − tr(RK)
        ∂C/∂s = 2 s∘diag V − 2 Σ_k (RU∘Θ)_k
        ∂C/∂Θ = 2 RKRΘ − 2 RU∘s + 1 ⊗ ∂C/∂s

    >>> loss_and_gradient(np.zeros((1, 3)), Eye(3))[0]
    3.0
    """
    p, n = theta.shape
    d = diagonal(V).astype(np.float64) if diagonal_of_V is None else diagonal_of_V
    s = 1.0 + theta.sum(axis=0)
    if p == 0:
        return float(s * s @ d), np.zeros((0, n))
    B = theta * s
    M = theta @ theta.T
    M.flat[:: p + 1] += 1.0
    R = cho_solve(cho_factor(M, lower=True, overwrite_a=True, check_finite=False), np.eye(p), check_finite=False)
    RU = R @ V.along(B[:, :, None])[:, :, 0]
    RK = RU @ B.T
    value = float(s * s @ d) - float(np.trace(RK))
    by_scale = 2 * s * d - 2 * np.einsum("kn,kn->n", RU, theta)
    gradient = (2 * RK @ R) @ theta
    RU *= 2 * s
    gradient -= RU
    gradient += by_scale
    return value, gradient


def opt_0(
    V: Matrix,
    *,
    rng: np.random.Generator,
    restart: int = 0,
    p: int | None = None,
    noise: Noise = "laplace",
    warm: Array | None = None,
    deadline: float | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Matrix:
    """A matrix with columns of norm 1 that makes tr((AᵀA)⁻¹V) small: one start of a portfolio.

    >>> opt_0(Eye(3), rng=np.random.default_rng(0))
    Eye(n=3)
    """
    n = V.shape[0]
    if n == 1:
        return Eye(1)
    if trace(V) - total(V) / n <= 1e-12 * trace(V):
        return Ones(1, n)
    d = diagonal(V).astype(np.float64)
    if warm is not None:
        start = np.asarray(warm, dtype=np.float64)
    elif restart % 2 == 0:
        start = _tree_start(n, (16, 8, 4, 32)[(restart // 2) % 4]) + 1e-3 * rng.random((1, n))
    else:
        start = rng.random((p or max(1, n // 16), n))
    if len(start) == 0:
        return Eye(n)
    found = minimize(
        lambda theta: loss_and_gradient(theta, V, d), start, upper=_LARGEST, deadline=deadline, progress=progress
    )
    return PIdentity(found.x) if found.value < trace(V) * (1 - 1e-9) else Eye(n)


def _tree_start(n: int, branching: int) -> Array:
    rows: list[Array] = []
    width = branching
    cells = np.arange(n)
    while width < n:
        rows.append((cells // width == np.arange(-(-n // width))[:, None]).astype(np.float64))
        width *= branching
    return np.concatenate([*rows, np.ones((1, n))])
