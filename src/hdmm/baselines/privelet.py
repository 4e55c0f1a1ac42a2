"""Privelet: Haar wavelet coefficients are measured."""

from __future__ import annotations

from hdmm.describe.workload import Workload
from hdmm.matrix import Haar
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy


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
