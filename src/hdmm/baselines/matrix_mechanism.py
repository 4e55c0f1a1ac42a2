"""The Matrix Mechanism: the best strategy there is, where the domain is small enough to look for it."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from hdmm.baselines.applies import require_cells
from hdmm.baselines.explicit import cell_gram, explicit
from hdmm.baselines.hb import height
from hdmm.matrix import Array, Haar, Nested, to_dense
from hdmm.strategy.base import Strategy
from hdmm.strategy.minimize import minimize
from hdmm.workload import Workload

_MOST = 64  # cells
_RIDGE = 1e-9  # of the mean of V's diagonal, added to it: all cells stay measured, by a little
_WALL = 1e9  # the loss where there is none; V has trace 1, so that a start has a loss near 1
_BRANCHINGS = (2, 8)  # of the trees among the starts
_WAVES = (2, 3, 5)  # numbers of smooth rows: on 32 cells three give the best for all ranges, trees 2 % more
_SPREAD = 0.02  # entries added to a start, so that no two rows stay alike


def matrix_mechanism(workload: Workload) -> Strategy:
    """The least ‖A‖₁²·‖WA⁺‖²_F found over all A of 2N rows with entries of any sign. Up to 64 cells.

    The reference's program is semidefinite but for a constraint on rank, without which it has no use for the L1
    norm, and with it is not convex. Here it is solved as it stands in A = P − N, P and N ≥ 0, by L-BFGS-B from
    seven starts: trees, wavelets, smooth rows, V's square root. So: the best local optimum of seven. O(N³) a step.

    Reference: Li, Hay, Rastogi, Miklau, McGregor, "Optimizing linear counting queries under differential privacy"
    (PODS 2010).

    >>> from hdmm import Domain, Prefix, unit_error
    >>> w = Workload.product(Domain({"age": 8}), age=Prefix())
    >>> round(unit_error(w, matrix_mechanism(w)), 2)  # Identity has 36
    35.4
    """
    require_cells(workload, "matrix_mechanism", most=_MOST)
    V = cell_gram(workload)
    V = V + _RIDGE / len(V) * np.eye(len(V))
    found = [minimize(lambda x: _loss(x, V), _split(start), tolerance=1e-8, iterations=3000) for start in _starts(V)]
    P, N = min(found, key=lambda minimum: minimum.value).x
    return explicit(workload.domain, (P - N) / (P + N).sum(axis=0))


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


def _split(B: Array) -> Array:
    return np.stack([np.maximum(B, 0.0), np.maximum(-B, 0.0)])


def _starts(V: Array) -> list[Array]:
    """2N × N each: the cells, and above them trees, wavelets, smooth rows or the root of V (good for L2 columns)."""
    n = len(V)
    values, Q = np.linalg.eigh(V)
    root = (Q * np.maximum(values, 0.0) ** 0.25) @ Q.T
    tops = [to_dense(Haar(n))[:n], root * np.sqrt(n / np.trace(root @ root))]
    x = (np.arange(n) + 0.5) / n
    tops += [0.5 + 0.5 * np.cos(np.pi * np.outer(np.arange(1, p + 1), x)) for p in _WAVES if p <= n]
    for b in _BRANCHINGS:
        widths = [b**level for level in range(1, height(n, b) + 1)]
        tops.append(to_dense(Nested(np.ones((len(widths), n)), widths))[-n:])
    rows, columns = np.indices((2 * n, n))
    wave = _SPREAD * np.cos(1 + rows * (columns + np.sqrt(2)))  # as good as random here, and always the same
    return [np.vstack([np.eye(n), top, np.zeros((n - len(top), n))]) + wave for top in tops]
