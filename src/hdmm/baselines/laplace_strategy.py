"""The Laplace mechanism: the workload's own queries are measured."""

from __future__ import annotations

from hdmm.describe.workload import Workload
from hdmm.strategy.strategy import Strategy


def laplace(workload: Workload) -> Strategy:
    """A = W: noise on every query of the workload; the error is ‖W‖₁² per query, and there is no inference.

    Reference: Dwork, McSherry, Nissim, Smith, "Calibrating noise to sensitivity" (TCC 2006).

    >>> from hdmm import Domain
    >>> laplace(Workload.marginals(Domain({"age": 10}), k=range(2))).sensitivity("laplace")
    2
    """
    return Strategy.direct(workload)
