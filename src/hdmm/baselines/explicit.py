"""Strategies written out over all cells of a small domain."""

from __future__ import annotations

import numpy as np

from hdmm.domain import Domain
from hdmm.matrix import Array, Dense, to_dense
from hdmm.strategy.base import BlockStrategy, Strategy
from hdmm.strategy.diagonal import Block
from hdmm.strategy.merged import Merge, MergedStrategy
from hdmm.workload import Workload


def explicit(domain: Domain, A: Array) -> Strategy:
    """The strategy of an m × N array over the cells in row-major order. Its error takes O(N³).

    >>> explicit(Domain({"x": 2, "y": 2}), np.eye(4)).sensitivity("laplace")
    1.0
    """
    if len(domain) == 1:
        return BlockStrategy(domain, (Block(1.0, ((0, Dense(A)),)),))
    axes = tuple(range(len(domain)))
    return MergedStrategy(domain, axes, BlockStrategy(Merge(domain, axes).domain, (Block(1.0, ((0, Dense(A)),)),)))


def cell_gram(workload: Workload) -> Array:
    """WᵀW over all cells, over its trace; the identity where the workload asks for nothing. O(N²).

    >>> from hdmm import Prefix
    >>> 6 * cell_gram(Workload.product(Domain({"x": 3}), x=Prefix()))
    array([[3., 2., 1.],
           [2., 2., 1.],
           [1., 1., 1.]])
    """
    V = to_dense(workload.gram).astype(np.float64)
    trace = float(np.trace(V))
    return V / trace if trace > 0 else np.eye(len(V)) / len(V)
