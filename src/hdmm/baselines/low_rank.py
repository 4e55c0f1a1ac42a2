"""The Low-Rank Mechanism: the workload as a product BL of two factors, the second of which is measured."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from hdmm.baselines.applies import require_cells
from hdmm.baselines.explicit import cell_gram, explicit
from hdmm.matrix import Array
from hdmm.strategy.base import Strategy
from hdmm.workload import Workload

_MOST = 2048  # cells
_SLACK = 1.2  # rows of L over the rank of W, as the reference recommends
_OUTER, _INNER = 300, 5  # steps of the multipliers, and of L between two of them
_FIRST, _EVERY, _GROWTH = 0.5, 10, 1.5  # the penalty: at first, over the rank; steps after which it grows; by what
_CLOSE = 1e-6  # ‖W − BL‖_F over ‖W‖_F at which the factors are close enough to be made exact
_EXACT = 1e-9  # entries of R − BL, of about 1 in R, that are rounding
_NULL = 1e-12  # eigenvalues below this, of the largest, are zero


def low_rank(workload: Workload) -> Strategy:
    """A = L where W = BL makes ‖B‖²_F small with columns of L of L1 norm at most 1. Up to 2048 cells.

    By the reference's method: an augmented Lagrangian for W = BL, B in closed form, L by projected gradients with
    momentum, the penalty growing until they meet. W enters by its gram only, since ‖B‖_F does not change when W is
    replaced by R with RᵀR = WᵀW. At the end L is moved to where BL = W holds exactly, so that the workload is
    supported. A local optimum of a problem that is not convex. O(r²N) a step for r = 1.2·rank(W).

    Reference: Yuan, Zhang, Winslett, Xiao, Yang, Hao, "Low-rank mechanism: optimizing batch queries under
    differential privacy" (PVLDB 2012).

    >>> from hdmm import Domain, unit_error
    >>> w = Workload.product(Domain({"age": 8}), age=[[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]])
    >>> round(unit_error(w, low_rank(w)), 2)
    2.0
    """
    require_cells(workload, "low_rank", most=_MOST)
    values, Q = scipy.linalg.eigh(cell_gram(workload), driver="evd")
    seen = values > _NULL * values[-1]
    R = np.sqrt(values[seen])[:, None] * Q[:, seen].T * math.sqrt(np.count_nonzero(seen))  # ‖R‖²_F = its rank
    first = _FIRST
    while True:
        B, L = _factors(R, first * len(R))
        L += np.linalg.lstsq(B, R - B @ L, rcond=None)[0]  # the least change after which BL = R
        if np.allclose(B @ L, R, rtol=0, atol=_EXACT):
            break
        first *= 2  # a penalty so low that B and L lost a direction together, which neither finds again
    return explicit(workload.domain, L / np.abs(L).sum(axis=0).max())


def _factors(R: Array, penalty: float) -> tuple[Array, Array]:
    """B and L with BL ≈ R, ½‖B‖² small and the columns of L in the L1 ball."""
    k, n = R.shape
    r = max(k, math.floor(_SLACK * k))
    L = np.zeros((r, n))
    norms = np.linalg.norm(R, axis=1, keepdims=True)
    L[:k] = R / norms / math.sqrt(k)  # the reference's start: singular vectors, L1 norm at most 1
    spare = np.arange(r - k)
    L[k + spare, (spare * n) // max(r - k, 1)] = 1 / math.sqrt(k)
    L = _in_ball(L)
    multiplier = np.zeros((k, n))
    B = np.empty((k, r))
    for outer in range(_OUTER):
        target = penalty * R + multiplier
        B = np.linalg.solve(penalty * (L @ L.T) + np.eye(r), L @ target.T).T
        L = _descend(L, penalty * (B.T @ B), B.T @ target)
        rest = R - B @ L
        multiplier += penalty * rest
        if outer % _EVERY == _EVERY - 1:
            if float(np.linalg.norm(rest)) < _CLOSE * float(np.linalg.norm(R)):
                break
            penalty *= _GROWTH
    return B, L


def _descend(L: Array, G: Array, C: Array) -> Array:
    """A few steps towards the L in the ball with the least ½⟨L, GL⟩ − ⟨C, L⟩ (Nesterov's)."""
    step = 1 / max(float(np.linalg.norm(G, 2)), 1e-300)
    ahead, t = L, 1.0
    for _ in range(_INNER):
        moved = _in_ball(ahead - step * (G @ ahead - C))
        later = (1 + math.sqrt(1 + 4 * t * t)) / 2
        ahead = moved + (t - 1) / later * (moved - L)
        L, t = moved, later
    return L


def _in_ball(X: Array) -> Array:
    """The nearest matrix whose columns have L1 norm at most 1. O(size · log)."""
    size = np.abs(X)
    ordered = -np.sort(-size, axis=0)
    excess = (np.cumsum(ordered, axis=0) - 1) / np.arange(1, len(X) + 1)[:, None]
    last = np.count_nonzero(ordered > excess, axis=0) - 1
    cut = np.maximum(excess[last, np.arange(X.shape[1])], 0.0)
    return np.sign(X) * np.maximum(size - cut, 0.0)
