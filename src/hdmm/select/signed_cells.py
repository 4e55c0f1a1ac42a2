"""Strategies of any signs over all of a few cells, for Laplace noise: starts, and a descent on the error itself.

The Matrix Mechanism is the best of these descents (baselines.searched); OPT_S begins them at plans of others, too.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_lapack_funcs

from hdmm.matrix import Array, Haar, Nested, to_dense
from hdmm.select.minimize import minimize
from hdmm.select.search import Search

_BRANCHINGS = (2, 8)  # branching factors of the trees among the starts
_WAVES = (2, 3, 5)  # numbers of smooth rows: for all ranges on 32 cells three are best, and trees have 2 % more error
_SPREAD = 0.02  # size of the entries added to a start, so that no two rows stay equal
_RIDGE = 1e-9  # added to V's diagonal, relative to its mean, so that all cells stay measured
_WALL = 1e9  # the loss of an infeasible point; V has trace 1, so that a start has a loss near 1
_SOFT = (0.1, 0.01)  # successive μ of the smoothed |b|, relative to the root mean square of the column
_SOFT_TOLERANCE = 1e-4
_factored, _inverse = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)


def starts(V: Array) -> list[Array]:
    """The starts, each 2N × N: the cells, and above them trees, wavelets, smooth rows or the square root of V."""
    n = len(V)
    values, Q = np.linalg.eigh(V)
    root = (Q * np.maximum(values, 0.0) ** 0.25) @ Q.T
    tops = [to_dense(Haar(n))[:n], root * np.sqrt(n / np.trace(root @ root))]
    x = (np.arange(n) + 0.5) / n
    tops += [0.5 + 0.5 * np.cos(np.pi * np.outer(np.arange(1, p + 1), x)) for p in _WAVES if p <= n]
    for b in _BRANCHINGS:
        widths = [b**level for level in range(1, n + 1) if level == 1 or b ** (level - 1) < n]
        tops.append(to_dense(Nested(np.ones((len(widths), n)), widths))[-n:])
    rows, columns = np.indices((2 * n, n))
    wave = _SPREAD * np.cos(1 + rows * (columns + np.sqrt(2)))  # as good as random numbers here, and always the same
    return [np.vstack([np.eye(n), top, np.zeros((n - len(top), n))]) + wave for top in tops]


def descend(
    start: Array, V: Array, search: Search | None = None, *, tolerance: float = 1e-8, iterations: int = 3000
) -> tuple[float, Array]:
    """(tr(V(AᵀA)⁻¹), A) at a local minimum over A of the start's shape and full column rank, with columns of L1 norm 1.

    The descent is by L-BFGS-B, in three stages. The first two have √(b² + μ²) in place of |b|, for two values of μ. The
    last one has |b| itself, as A = P − N with P and N ≥ 0 and columns divided by their norms. Each stage runs until
    five steps gain on average less than `tolerance` (1e-4 for the smoothed stages), or for `iterations` steps. Without
    the smoothed stages, an entry that has reached 0 stays there: on Prefix 256 from the singular vectors, the error is
    then 3.5 times as large. V has trace 1. O(rows·N²) per step.

    >>> value, A = descend(np.eye(2), np.eye(2) / 2, iterations=10)
    >>> round(value, 6), A
    (1.0, array([[1., 0.], [0., 1.]]))
    """
    ridged = V + _RIDGE / len(V) * np.eye(len(V))
    B = start
    for softness in _SOFT:
        found = minimize(
            lambda x, softness=softness: soft_loss(x, ridged, softness),
            B / np.abs(B).sum(axis=0),
            search,
            lower=None,
            tolerance=max(tolerance, _SOFT_TOLERANCE),
            iterations=iterations,
        )
        B = found.x
    B = B / np.abs(B).sum(axis=0)
    split = np.stack([np.maximum(B, 0.0), np.maximum(-B, 0.0)])
    found = minimize(lambda x: split_loss(x, ridged), split, search, tolerance=tolerance, iterations=iterations)
    P, N = found.x
    return found.value, (P - N) / np.abs(P - N).sum(axis=0)


def soft_loss(B: Array, V: Array, softness: float) -> tuple[float, Array]:
    """The error of B with columns divided by Σ√(b² + μ²), μ being a fixed fraction of the column, and its gradient."""
    least = softness**2 * np.mean(B**2, axis=0)
    soft = np.sqrt(B**2 + least)
    value, by_entry, by_scale = _loss(B, soft.sum(axis=0), V)
    return value, by_entry + by_scale * B * (1 / soft + softness**2 * np.mean(1 / soft, axis=0))


def split_loss(x: Array, V: Array) -> tuple[float, Array]:
    """The error of B = P − N with columns divided by Σ(P + N), and its gradient."""
    P, N = x
    value, by_entry, by_scale = _loss(P - N, (P + N).sum(axis=0), V)
    return value, np.stack([by_scale + by_entry, by_scale - by_entry])


def _loss(B: Array, s: Array, V: Array) -> tuple[float, Array, Array]:
    """tr(V·S(BᵀB)⁻¹S), the error of BS⁻¹, and its gradients in B and in s (one Cholesky factor, three products)."""
    factor, fails = _factored(B.T @ B)
    if fails:  # A does not distinguish all cells: a large value makes the line search step back
        return _WALL, np.zeros_like(B), np.zeros_like(s)
    M, _ = _inverse(factor)
    M = np.triu(M) + np.triu(M, 1).T
    K = V * np.outer(s, s)
    return float(np.sum(K * M)), -2 * B @ (M @ K @ M), 2 * (V * M) @ s
