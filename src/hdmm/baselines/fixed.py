"""Strategies that need no search: noise on every cell, on every query, or on wavelet coefficients."""

from __future__ import annotations

from hdmm.describe.workload import Workload
from hdmm.matrix import Haar
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy


def identity(workload: Workload) -> Strategy:
    """A = I: noise on every cell of the domain; any query is the sum of its cells.

    >>> from hdmm import Domain
    >>> identity(Workload.marginals(Domain({"age": 10}), k=1)).sensitivity("laplace")
    1
    """
    return Strategy.identity(workload.domain)


def laplace(workload: Workload) -> Strategy:
    """A = W: noise on every query of the workload; the error is ‖W‖₁² per query, and there is no inference.

    Reference: Dwork, McSherry, Nissim, Smith, "Calibrating noise to sensitivity" (TCC 2006).

    >>> from hdmm import Domain
    >>> laplace(Workload.marginals(Domain({"age": 10}), k=range(2))).sensitivity("laplace")
    2
    """
    return Strategy.direct(workload)


def privelet(workload: Workload) -> Strategy:
    """A = ⊗ Haar(n_i): the wavelet of every attribute, padded to a power of two; sensitivity Π (1 + ⌈log₂ n_i⌉).

    The weight of each coefficient in the reference makes it the difference of two sums, with entries ±1. It is defined
    on any domain. Computing the error takes O(N log N) for ranges on one attribute.

    Reference: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms" (TKDE 2011).

    >>> from hdmm import Domain
    >>> privelet(Workload.marginals(Domain({"age": 8, "sex": 2}), k=2)).sensitivity("laplace")
    8
    """
    return Strategy(workload.domain, (Block(1.0, tuple((i, Haar(n)) for i, n in enumerate(workload.domain.shape))),))
