"""Problem: what an operator is asked to solve, with what several of them need of it worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

from hdmm.error import unit_error
from hdmm.privacy import Noise
from hdmm.strategy.base import Strategy
from hdmm.strategy.demand import Demand, demand
from hdmm.strategy.terms import Terms
from hdmm.workload import Workload

_MOST_COMPACTED = 10_000  # products


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """The workload that was asked for, and the noise under which its error shall be small.

    >>> from hdmm import Domain
    >>> Problem(Workload.marginals(Domain({"a": 3, "b": 4}), k=2)).identity_error
    12.0
    """

    given: Workload
    noise: Noise = Noise.LAPLACE

    @cached_property
    def workload(self) -> Workload:
        """The same queries in fewer products, WᵀW unchanged; compacting very many takes longer than it saves."""
        return self.given.compact() if len(self.given.products) <= _MOST_COMPACTED else self.given

    @cached_property
    def terms(self) -> Terms:
        """What OPT_x and OPT_+ see of the workload."""
        return Terms.of(self.workload)

    @cached_property
    def demand(self) -> Demand:
        """What OPT_M sees of it: what is asked of each eigenspace of marginals."""
        return demand(self.workload)

    @cached_property
    def identity_error(self) -> float:
        """The error of measuring every cell once, to which others are compared."""
        return unit_error(self.workload, Strategy.identity(self.workload.domain), noise=self.noise)
