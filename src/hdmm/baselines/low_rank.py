"""The Low-Rank Mechanism: the workload is factored as BL, and L is measured."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from hdmm.baselines.applies import require_cells
from hdmm.baselines.descent import descend
from hdmm.baselines.written_out import cell_gram, explicit
from hdmm.describe.workload import Workload
from hdmm.strategy.strategy import Strategy

_MOST = 1024  # cells
_SLACK = 1.2  # ratio of the rows of L to the rank of W, as the reference recommends
_NULL = 1e-12  # eigenvalues below this, relative to the largest, are zero
_FAINT = 0.01  # the start's weight on directions that the workload does not ask for
_STEPS = 1000  # the most steps of a stage of `descend`
_TOLERANCE = 1e-5  # relative to the error: a stage ends when five steps gain on average less than this


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
    require_cells(workload, "low_rank", most=_MOST)
    V, group = cell_gram(workload)
    values, Q = scipy.linalg.eigh(V, driver="evd")
    n, rank = len(V), int(np.count_nonzero(values > _NULL * values[-1]))
    spare = np.arange(max(0, math.floor(_SLACK * rank) - n))
    cells = np.zeros((len(spare), n))
    cells[spare, spare * n // max(len(spare), 1)] = 1.0
    start = np.vstack([Q.T * np.where(values > _NULL * values[-1], 1.0, _FAINT)[:, None], cells])
    return explicit(workload.domain, descend(start, V, tolerance=_TOLERANCE, iterations=_STEPS)[1][:, group])
