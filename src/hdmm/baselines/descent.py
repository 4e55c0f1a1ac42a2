"""Descent to a strategy with any entries: what the Matrix Mechanism and the Low-Rank Mechanism search for."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from hdmm.matrix import Array
from hdmm.strategy.minimize import minimize

_RIDGE = 1e-9  # of the mean of V's diagonal, added to it: all cells stay measured, by a little
_WALL = 1e9  # the loss where there is none; V has trace 1, so that a start has a loss near 1


def descend(start: Array, V: Array, *, tolerance: float, iterations: int) -> tuple[float, Array]:
    """(tr(V(AᵀA)⁻¹), A) at a local minimum over A of the start's shape and full column rank, columns of L1 norm 1.

    In A = P − N, P and N ≥ 0, columns divided by their norms, by L-BFGS-B. V has trace 1. O(rows·N²) a step.

    >>> value, A = descend(np.eye(2), np.eye(2) / 2, tolerance=1e-8, iterations=10)
    >>> round(value, 6), A
    (1.0, array([[1., 0.], [0., 1.]]))
    """
    ridged = V + _RIDGE / len(V) * np.eye(len(V))
    split = np.stack([np.maximum(start, 0.0), np.maximum(-start, 0.0)])
    found = minimize(lambda x: _loss(x, ridged), split, tolerance=tolerance, iterations=iterations)
    P, N = found.x
    return found.value, (P - N) / np.abs(P - N).sum(axis=0)


def _loss(x: Array, V: Array) -> tuple[float, Array]:
    """tr(V·S(BᵀB)⁻¹S) of B = P − N, S its columns' Σ(P + N), and the gradients: the error of BS⁻¹."""
    P, N = x
    B, s = P - N, (P + N).sum(axis=0)
    try:
        factor = cho_factor(B.T @ B, check_finite=False)
    except LinAlgError:  # a step of the line search too far, where cells are not told apart: it turns back
        return _WALL, np.zeros_like(x)
    M = cho_solve(factor, np.eye(len(V)), check_finite=False)
    K = V * np.outer(s, s)
    by_scale = 2 * (V * M) @ s
    by_row = -2 * B @ (M @ K @ M)
    return float(np.sum(K * M)), np.stack([by_row + by_scale, by_scale - by_row])
