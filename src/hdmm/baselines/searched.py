"""The Matrix Mechanism and the Low-Rank Mechanism: strategies searched for among all, written out over all cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from scipy.linalg import get_lapack_funcs

from hdmm.base.exceptions import NotApplicableError, StrategyError
from hdmm.base.lazy import Lazy
from hdmm.base.tolerances import RIDGE
from hdmm.baselines.hierarchies import height
from hdmm.describe.domain import Domain
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, Haar, Nested, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.minimize import minimize
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

if TYPE_CHECKING:
    import cvxpy
else:
    cvxpy = Lazy("cvxpy")  # an extra, which takes 2.5 s to import

_MATRIX_CELLS = 64  # cells
_BRANCHINGS = (2, 8)  # branching factors of the trees among the starts
_WAVES = (2, 3, 5)  # numbers of smooth rows: for all ranges on 32 cells three are best, and trees have 2 % more error
_SPREAD = 0.02  # size of the entries added to a start, so that no two rows stay equal
_LOW_RANK_CELLS = 1024  # cells
_SLACK = 1.2  # ratio of the rows of L to the rank of W, as the reference recommends
_NULL = 1e-12  # eigenvalues below this, relative to the largest, are zero
_FAINT = 0.01  # the start's weight on directions that the workload does not ask for
_LOW_RANK_STEPS = 1000  # the most steps of a stage of `descend`
_LOW_RANK_TOLERANCE = 1e-5  # relative to the error: a stage ends when five steps gain on average less than this
_RIDGE = 1e-9  # added to V's diagonal, relative to its mean, so that all cells stay measured
_WALL = 1e9  # the loss of an infeasible point; V has trace 1, so that a start has a loss near 1
_SOFT = (0.1, 0.01)  # successive μ of the smoothed |b|, relative to the root mean square of the column
_SOFT_TOLERANCE = 1e-4
_factored, _inverse = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)
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
    found = [descend(start, V, tolerance=1e-8, iterations=3000) for start in _starts(V)]
    return explicit(workload.domain, min(found, key=lambda pair: pair[0])[1][:, group])


def _starts(V: Array) -> list[Array]:
    """The starts, each 2N × N: the cells, and above them trees, wavelets, smooth rows or the square root of V."""
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
    wave = _SPREAD * np.cos(1 + rows * (columns + np.sqrt(2)))  # as good as random numbers here, and always the same
    return [np.vstack([np.eye(n), top, np.zeros((n - len(top), n))]) + wave for top in tops]


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


def descend(start: Array, V: Array, *, tolerance: float, iterations: int) -> tuple[float, Array]:
    """(tr(V(AᵀA)⁻¹), A) at a local minimum over A of the start's shape and full column rank, with columns of L1 norm 1.

    The descent is by L-BFGS-B, in three stages. The first two have √(b² + μ²) in place of |b|, for two values of μ. The
    last one has |b| itself, as A = P − N with P and N ≥ 0 and columns divided by their norms. Each stage runs until
    five steps gain on average less than `tolerance` (1e-4 for the smoothed stages), or for `iterations` steps. Without
    the smoothed stages, an entry that has reached 0 stays there: on Prefix 256 from the singular vectors, the error is
    then 3.5 times as large. V has trace 1. O(rows·N²) per step.

    >>> value, A = descend(np.eye(2), np.eye(2) / 2, tolerance=1e-8, iterations=10)
    >>> round(value, 6), A
    (1.0, array([[1., 0.], [0., 1.]]))
    """
    ridged = V + _RIDGE / len(V) * np.eye(len(V))
    B = start
    for softness in _SOFT:
        found = minimize(
            lambda x, softness=softness: _soft_loss(x, ridged, softness),
            B / np.abs(B).sum(axis=0),
            lower=None,
            tolerance=max(tolerance, _SOFT_TOLERANCE),
            iterations=iterations,
        )
        B = found.x
    B = B / np.abs(B).sum(axis=0)
    split = np.stack([np.maximum(B, 0.0), np.maximum(-B, 0.0)])
    found = minimize(lambda x: _split_loss(x, ridged), split, tolerance=tolerance, iterations=iterations)
    P, N = found.x
    return found.value, (P - N) / np.abs(P - N).sum(axis=0)


def _soft_loss(B: Array, V: Array, softness: float) -> tuple[float, Array]:
    """The error of B with columns divided by Σ√(b² + μ²), μ being a fixed fraction of the column, and its gradient."""
    least = softness**2 * np.mean(B**2, axis=0)
    soft = np.sqrt(B**2 + least)
    value, by_entry, by_scale = _loss(B, soft.sum(axis=0), V)
    return value, by_entry + by_scale * B * (1 / soft + softness**2 * np.mean(1 / soft, axis=0))


def _split_loss(x: Array, V: Array) -> tuple[float, Array]:
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
