"""Problem: the input of an operator, with quantities that several operators need computed once."""

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
    """The given workload, and the noise for which its error is to be made small.

    >>> from hdmm import Domain
    >>> Problem(Workload.marginals(Domain({"a": 3, "b": 4}), k=2)).identity_error
    12.0
    """

    given: Workload
    noise: Noise = Noise.LAPLACE

    @cached_property
    def workload(self) -> Workload:
        """An equivalent workload of fewer products (same WᵀW), unless there are too many for compacting to pay."""
        return self.given.compact() if len(self.given.products) <= _MOST_COMPACTED else self.given

    @cached_property
    def terms(self) -> Terms:
        """The form of the workload that OPT_x and OPT_+ use."""
        return Terms.of(self.workload)

    @cached_property
    def demand(self) -> Demand:
        """The form of the workload that OPT_M uses: its demand on each eigenspace of marginals."""
        return demand(self.workload)

    @cached_property
    def identity_error(self) -> float:
        """The error of measuring every cell once, with which other errors are compared."""
        return unit_error(self.workload, Strategy.identity(self.workload.domain), noise=self.noise)
