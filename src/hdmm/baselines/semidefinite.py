"""The semidefinite program of the Matrix Mechanism for Gaussian noise, by CVXPY and its solver SCS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.lazy import Lazy
from hdmm.matrix import Array

if TYPE_CHECKING:
    import cvxpy
else:
    cvxpy = Lazy("cvxpy")  # an extra, which takes 2.5 s to import

_RIDGE = 1e-10  # added to V's diagonal, relative to its mean, so that X has full rank
_PRECISION = 1e-7  # bound on SCS's residuals; OPT_0 for Gaussian noise has the same error to 1e-6
_MOST_STEPS = 50_000  # limit on the steps of SCS; no run has needed more than 2,000


def semidefinite_optimum(V: Array) -> Array:
    """A = X^½ for the X that minimises tr(VX⁻¹) subject to diag X ≤ 1 and X ⪰ 0; the largest column L2 norm is 1.

    The program is convex, and A is its optimum to about 1e-6 of the error. The cone is 2N × 2N, with O(N³) per step of
    SCS: 0.5 s at 32 cells and 2 s at 64. Clarabel, which also comes with CVXPY, took 3 and 300 s.

    >>> semidefinite_optimum(np.eye(2)).round(6)
    array([[1., 0.], [0., 1.]])
    """
    n = len(V)
    mean = float(np.trace(V)) / n
    root = np.linalg.cholesky(V / mean + _RIDGE * np.eye(n))
    try:
        X: Any = cvxpy.Variable((n, n), symmetric=True)
    except ImportError:
        raise StrategyError(
            "The Matrix Mechanism for Gaussian noise is a semidefinite program, which needs CVXPY. Install "
            "hdmm[paper], or use hdmm.optimize(workload, noise='gaussian'), which finds the same optimum without it."
        ) from None
    # tr(LᵀX⁻¹L) with LLᵀ = V.
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.matrix_frac(root, X)), [cvxpy.diag(X) <= 1])
    problem.solve(solver="SCS", eps=_PRECISION, max_iters=_MOST_STEPS)
    if problem.status != "optimal":
        raise StrategyError(
            f"SCS did not solve the semidefinite program over {n} cells; its status is {problem.status!r}. Use "
            "hdmm.optimize(workload, noise='gaussian')."
        )
    values, Q = np.linalg.eigh((X.value + X.value.T) / 2)
    values = np.maximum(values, np.finfo(float).eps * values[-1])
    A = (Q * np.sqrt(values)) @ Q.T
    return A / np.sqrt(np.max(np.sum(A**2, axis=0)))
