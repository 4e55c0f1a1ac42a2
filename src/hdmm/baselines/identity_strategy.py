"""Identity: every cell of the table is measured once."""

from __future__ import annotations

from hdmm.describe.workload import Workload
from hdmm.strategy.strategy import Strategy


def identity(workload: Workload) -> Strategy:
    """A = I: noise on every cell of the domain; any query is the sum of its cells.

    >>> from hdmm import Domain
    >>> identity(Workload.marginals(Domain({"age": 10}), k=1)).sensitivity("laplace")
    1
    """
    return Strategy.identity(workload.domain)
