"""Strategies written out over all cells of a small domain."""

from __future__ import annotations

import numpy as np

from hdmm.describe.domain import Domain
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, to_dense
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy


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
