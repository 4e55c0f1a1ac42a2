"""Identity: every cell of the table is measured once."""

from __future__ import annotations

from hdmm.matrix import Eye
from hdmm.strategy.base import BlockStrategy
from hdmm.strategy.diagonal import Block
from hdmm.workload import Workload


def identity(workload: Workload) -> BlockStrategy:
    """A = I: noise on every cell of the domain; any query is the sum of its cells.

    >>> from hdmm import Domain
    >>> identity(Workload.marginals(Domain({"age": 10}), k=1)).sensitivity("laplace")
    1
    """
    factors = tuple((i, Eye(n)) for i, n in enumerate(workload.domain.shape))
    return BlockStrategy(workload.domain, (Block(1.0, factors),))
