"""Identity: every cell of the table is measured once."""

from __future__ import annotations

from hdmm.strategy.base import BlockStrategy
from hdmm.workload import Workload


def identity(workload: Workload) -> BlockStrategy:
    """A = I: noise on every cell of the domain; any query is the sum of its cells.

    >>> from hdmm import Domain
    >>> identity(Workload.marginals(Domain({"age": 10}), k=1)).sensitivity("laplace")
    1
    """
    return BlockStrategy.identity(workload.domain)
