"""The semidefinite program of the Matrix Mechanism for Gaussian noise, by CVXPY and its solver SCS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hdmm.exceptions import StrategyError
from hdmm.lazy import Lazy
from hdmm.matrix import Array

if TYPE_CHECKING:
    import cvxpy
else:
    cvxpy = Lazy("cvxpy")  # an extra, and 2.5 s to import

_RIDGE = 1e-10  # of the mean of V's diagonal, added to it: X is of full rank
_PRECISION = 1e-7  # of SCS's residuals; OPT_0 for Gaussian noise has the same error to 1e-6
_MOST_STEPS = 50_000  # of SCS; 2,000 were the most seen


def semidefinite_optimum(V: Array) -> Array:
    """A = X^½ for the X that makes tr(VX⁻¹) least, diag X ≤ 1, X ⪰ 0; the longest column is of L2 norm 1.

    The program is convex and A its optimum, to about 1e-6 of the error. A cone of 2N × 2N, O(N³) per step of SCS: 0.5 s
    at 32 cells, 2 s at 64. Clarabel, which comes with CVXPY too, took 3 and 300 s.

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
            "The Matrix Mechanism for Gaussian noise is a semidefinite program, for which CVXPY is needed. Install "
            "hdmm[paper], or use hdmm.optimize(workload, noise='gaussian'), which finds the same optimum without it."
        ) from None
    # tr(LᵀX⁻¹L) with LLᵀ = V.
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.matrix_frac(root, X)), [cvxpy.diag(X) <= 1])
    problem.solve(solver="SCS", eps=_PRECISION, max_iters=_MOST_STEPS)
    if problem.status != "optimal":
        raise StrategyError(f"The semidefinite program over {n} cells was not solved: SCS says {problem.status!r}.")
    values, Q = np.linalg.eigh((X.value + X.value.T) / 2)
    values = np.maximum(values, np.finfo(float).eps * values[-1])
    A = (Q * np.sqrt(values)) @ Q.T
    return A / np.sqrt(np.max(np.sum(A**2, axis=0)))
