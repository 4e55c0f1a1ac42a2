"""OPT_0 for Gaussian noise: minimise tr(X⁻¹V) over X = AᵀA with diag X = 1, which is convex.

The dual maximises (tr (Λ½VΛ½)½)² / tr Λ over diagonal Λ ≥ 0: every Λ is a lower bound on the error of every A
with columns of L2 norm at most 1. At Λ = I it is the singular-value bound.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.linalg import eigh

from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Array, Dense, Matrix, to_dense
from hdmm.select.search import Search, first_search

_RIDGE = 1e-10  # relative to the mean diagonal of V: gives A full rank, and costs its root in error
_STRIDE = 2.0  # the exponent of a step: 1 also converges, in twice as many steps
_ABOVE = 1 + 1e-14  # columns are scaled to a little less than 1, so that rounding never takes them above it


@final
@dataclass(frozen=True, slots=True, eq=False)
class GaussianOptimum:
    """A with columns of L2 norm 1, its loss tr((AᵀA)⁻¹V), and a bound that no other such A can beat."""

    A: Dense
    loss: float
    bound: float

    @property
    def gap(self) -> float:
        """How far the loss can be above the optimum, as a fraction of it."""
        return self.loss / self.bound - 1.0


def gaussian_optimum(
    V: Matrix,
    search: Search | None = None,
    *,
    tolerance: float = 1e-3,
    iterations: int = 200,
) -> GaussianOptimum:
    """The optimal strategy for Gaussian noise, to within a computed gap. An n × n eigenproblem per step: O(n³).

    At the optimum V = XΛX, so X = Λ^-½(Λ½VΛ½)½Λ^-½, and diag X = 1; Λ ← Λ·(diag X)² converges to it. The iteration
    stops when the gap is below `tolerance`, or at the deadline of the search.

    >>> from hdmm.matrix import AllIntervalsGram
    >>> found = gaussian_optimum(AllIntervalsGram(8))
    >>> found.gap < 1e-3, bool(np.allclose((found.A.array**2).sum(axis=0), 1))
    (True, True)
    """
    search = search or first_search()
    G = to_dense(V).astype(np.float64)
    n = len(G)
    G.flat[:: n + 1] += _RIDGE * max(float(np.trace(G)) / n, np.finfo(float).tiny)
    lam = np.sqrt(np.diag(G))
    best: GaussianOptimum | None = None
    bound = 0.0
    for step in range(1, iterations + 1):
        begun = time.monotonic()
        roots = np.sqrt(lam)
        values, Q = eigh(roots[:, None] * G * roots, driver="evd", overwrite_a=True, check_finite=False)
        halves = np.sqrt(np.maximum(values, values[-1] * 1e-30))
        bound = max(bound, float(halves.sum()) ** 2 / float(lam.sum()))
        root_diagonal = np.einsum("ij,j,ij->i", Q, halves, Q)  # diag (Λ½VΛ½)½
        last = step == iterations or not search.affords(time.monotonic() - begun)  # as long again
        if best is None or step % 2 == 0 or last:
            for norms in (root_diagonal, np.maximum(root_diagonal, lam)):
                best = _better(best, _primal(G, Q, halves, norms, bound))
            search.tell(step, best.loss)
            if last or best.loss <= (1 + tolerance) * bound:
                break
        lam = lam * (root_diagonal / lam) ** _STRIDE
    if best is None:
        raise StrategyError(f"The number of iterations is {iterations}. Use at least 1.")
    return GaussianOptimum(best.A, best.loss, bound)


def eigen_seconds(n: int) -> float:
    """About how long a step takes on one core, which cannot be interrupted: 0.6 s at 1,000 values.

    >>> round(eigen_seconds(4096))
    41
    """
    return 6e-10 * n**3


def _primal(G: Array, Q: Array, halves: Array, norms: Array, bound: float) -> GaussianOptimum:
    """A = (Λ½VΛ½)^¼ in its eigenvectors, with columns divided by the roots of `norms`.

    With norms = diag (Λ½VΛ½)½ every column has norm 1; with the larger of that and Λ, columns that the optimum leaves
    shorter, if V is singular, stay shorter.
    """
    scale = np.sqrt(norms)
    A = np.sqrt(halves)[:, None] * Q.T / scale
    A /= np.maximum(np.sqrt(np.einsum("ij,ij->j", A, A)), 1.0) * _ABOVE
    P = Q * scale[:, None]  # A⁻¹ up to the roots of halves
    loss = float(np.sum(np.einsum("ij,ij->j", P, G @ P) / halves))
    return GaussianOptimum(Dense(A), loss, bound)


def _better(first: GaussianOptimum | None, second: GaussianOptimum) -> GaussianOptimum:
    return second if first is None or second.loss < first.loss else first
