"""The Matrix Mechanism and the Low-Rank Mechanism: strategies searched for among all, written out over all cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from hdmm.base.exceptions import NotApplicableError, StrategyError
from hdmm.base.lazy import Lazy
from hdmm.base.tolerances import RIDGE
from hdmm.describe.domain import Domain
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_s import descend, starts
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

if TYPE_CHECKING:
    import cvxpy
else:
    cvxpy = Lazy("cvxpy")  # an extra, which takes 2.5 s to import

_MATRIX_CELLS = 64  # cells
_LOW_RANK_CELLS = 1024  # cells
_SLACK = 1.2  # ratio of the rows of L to the rank of W, as the reference recommends
_NULL = 1e-12  # eigenvalues below this, relative to the largest, are zero
_FAINT = 0.01  # the start's weight on directions that the workload does not ask for
_LOW_RANK_STEPS = 1000  # the most steps of a stage of `descend`
_LOW_RANK_TOLERANCE = 1e-5  # relative to the error: a stage ends when five steps gain on average less than this
_PRECISION = 1e-7  # bound on SCS's residuals; OPT_0 for Gaussian noise has the same error to 1e-6
_SCS_STEPS = 50_000  # limit on the steps of SCS; no run has needed more than 2,000


def matrix_mechanism(workload: Workload, *, noise: Noise | str = Noise.LAPLACE) -> Strategy:
    """The A with the least ‖A‖²·‖WA⁺‖²_F found, over all A with entries of any sign. Up to 64 cells.

    For Gaussian noise (‖A‖ is the largest L2 norm of a column) this is a semidefinite program, which is solved to its
    optimum by `semidefinite_optimum` and needs CVXPY. For Laplace noise (L1) the reference's program is semidefinite
    except for a constraint on rank; without that constraint it cannot express the L1 norm, and with it the program is
    not convex. Here it is solved directly in A, of 2N × N entries, by `descend` from seven starts: trees, wavelets,
    smooth rows and V's square root. The result is the best of seven local optima. O(N³) per step.

    Reference: Li, Hay, Rastogi, Miklau, McGregor, "Optimizing linear counting queries under differential privacy"
    (PODS 2010).

    >>> from hdmm import Domain, Prefix, unit_error
    >>> w = Workload.product(Domain({"age": 8}), age=Prefix())
    >>> round(unit_error(w, matrix_mechanism(w)), 2)  # Identity has 36
    35.05
    >>> round(unit_error(w, matrix_mechanism(w, noise="gaussian"), noise="gaussian"), 2)
    17.87
    """
    require_cells(workload, "matrix_mechanism", most=_MATRIX_CELLS)
    V, group = cell_gram(workload)
    if Noise.of(noise) is Noise.GAUSSIAN:
        return explicit(workload.domain, semidefinite_optimum(V)[:, group])
    found = [descend(start, V) for start in starts(V)]
    return explicit(workload.domain, min(found, key=lambda pair: pair[0])[1][:, group])


def low_rank(workload: Workload) -> Strategy:
    """A = L, where W = BL makes ‖B‖²_F small and the columns of L have L1 norm at most 1. Up to 1024 cells.

    This is the reference's program with its start, the singular vectors of W. For given L the best B is WL⁺, so that
    the program depends on L alone and is solved as such; the reference alternates between B and L with a penalty for
    W ≠ BL. Cells that no query distinguishes share one column. L has at least as many rows as columns; rows
    beyond 1.2·rank(W) are faint at the start, so W = BL holds exactly. The result is a local optimum, because the
    problem is not convex. O(N³) per step; 300 to 500 steps were needed at 256 cells, and 700 to 900 at 1024.

    Reference: Yuan, Zhang, Winslett, Xiao, Yang, Hao, "Low-rank mechanism: optimizing batch queries under
    differential privacy" (PVLDB 2012).

    >>> from hdmm import Domain, unit_error
    >>> w = Workload.product(Domain({"age": 8}), age=[[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]])
    >>> round(unit_error(w, low_rank(w)), 1)
    2.0
    """
    require_cells(workload, "low_rank", most=_LOW_RANK_CELLS)
    V, group = cell_gram(workload)
    values, Q = scipy.linalg.eigh(V, driver="evd")
    n, rank = len(V), int(np.count_nonzero(values > _NULL * values[-1]))
    spare = np.arange(max(0, math.floor(_SLACK * rank) - n))
    cells = np.zeros((len(spare), n))
    cells[spare, spare * n // max(len(spare), 1)] = 1.0
    start = np.vstack([Q.T * np.where(values > _NULL * values[-1], 1.0, _FAINT)[:, None], cells])
    return explicit(
        workload.domain, descend(start, V, tolerance=_LOW_RANK_TOLERANCE, iterations=_LOW_RANK_STEPS)[1][:, group]
    )


def semidefinite_optimum(V: Array) -> Array:
    """A = X^½ for the X that minimises tr(VX⁻¹) subject to diag X ≤ 1 and X ⪰ 0; the largest column L2 norm is 1.

    The program is convex, and A is its optimum to about 1e-6 of the error. The cone is 2N × 2N, with O(N³) per step of
    SCS: 0.5 s at 32 cells and 2 s at 64. Clarabel, which also comes with CVXPY, took 3 and 300 s.

    >>> semidefinite_optimum(np.eye(2)).round(6)
    array([[1., 0.], [0., 1.]])
    """
    n = len(V)
    mean = float(np.trace(V)) / n
    root = np.linalg.cholesky(V / mean + RIDGE * np.eye(n))
    try:
        X: Any = cvxpy.Variable((n, n), symmetric=True)
    except ImportError:
        raise StrategyError(
            "The Matrix Mechanism for Gaussian noise is a semidefinite program, which needs CVXPY. Install "
            "hdmm[paper], or use hdmm.optimize(workload, noise='gaussian'), which finds the same optimum without it."
        ) from None
    # tr(LᵀX⁻¹L) with LLᵀ = V.
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.matrix_frac(root, X)), [cvxpy.diag(X) <= 1])
    problem.solve(solver="SCS", eps=_PRECISION, max_iters=_SCS_STEPS)
    if problem.status != "optimal":
        raise StrategyError(
            f"SCS did not solve the semidefinite program over {n} cells; its status is {problem.status!r}. Use "
            "hdmm.optimize(workload, noise='gaussian')."
        )
    values, Q = np.linalg.eigh((X.value + X.value.T) / 2)
    values = np.maximum(values, np.finfo(float).eps * values[-1])
    A = (Q * np.sqrt(values)) @ Q.T
    return A / np.sqrt(np.max(np.sum(A**2, axis=0)))


def explicit(domain: Domain, A: Array) -> Strategy:
    """The strategy of an m × N array over the cells in row-major order. Its error takes O(N³).

    >>> explicit(Domain({"x": 2, "y": 2}), np.eye(4)).sensitivity("laplace")
    1.0
    """
    return Strategy(domain, (Block(1.0, [(tuple(range(len(domain))), Dense(A))]),))


def cell_gram(workload: Workload) -> tuple[Array, Array]:
    """(V, group): WᵀW, divided by its trace, over groups of cells that no query distinguishes; the group of every cell.

    Taking the columns `group` turns a strategy over the groups into one over the cells. V is 1 by 1 if the workload
    asks for nothing. O(N²).

    >>> V, group = cell_gram(Workload.product(Domain({"x": 3}), x=[[1, 1, 0], [1, 1, 1]]))
    >>> 3 * V, group
    (array([[2., 1.], [1., 1.]]), array([0, 0, 1]))
    """
    V = to_dense(workload.gram).astype(np.float64)
    if not V.any():
        return np.ones((1, 1)), np.zeros(len(V), dtype=np.int64)
    # Columns of W are equal if the rows of V are equal: then ‖wᵢ − wⱼ‖² = Vᵢᵢ − 2Vᵢⱼ + Vⱼⱼ = 0.
    rounded = np.round(V / np.abs(V).max(), 12) + 0.0
    _, first, group = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    first, group = first[order], np.argsort(order)[group.ravel()]
    V = V[np.ix_(first, first)]
    return V / np.trace(V), group


def require_cells(workload: Workload, name: str, *, most: int) -> None:
    """Raise NotApplicableError if the domain has more cells than the method can handle; the paper's tables show "*".

    >>> from hdmm import Domain
    >>> require_cells(Workload.marginals(Domain({"a": 9}), k=1), "low_rank", most=8)
    Traceback (most recent call last):
    ...
    hdmm.base.exceptions.NotApplicableError: low_rank holds matrices over all cells of the domain, which ...
    """
    if workload.domain.size > most:
        raise NotApplicableError(
            f"{name} holds matrices over all cells of the domain, which may be at most {most:,}; this domain has "
            f"{workload.domain.size:,}. Use hdmm.optimize, or coarser bins."
        )
