"""Problem: the input of an operator, with quantities that several operators need computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from hdmm.base.exceptions import MatrixError, StrategyError
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Attributes, Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Matrix
from hdmm.matrix.integers import entries
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import Demand, demand, is_plain
from hdmm.select.goal import Goal
from hdmm.select.merged_cells import MergedCells
from hdmm.select.parts import Parts
from hdmm.select.terms import Terms
from hdmm.strategy.error import unit_error
from hdmm.strategy.form import total_variances
from hdmm.strategy.lattice import MAX_ANSWER
from hdmm.strategy.strategy import Strategy

_MOST_COMPACTED = 10_000  # products
_ROWS, _ROUNDED = 2**33, 2**7  # of tables, and the largest entry of a factor that is rounded to integers


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """The given workload, and the noise for which its error is minimised.

    The error is summed over all products, or over each of the `parts` and then combined (parts.py).

    >>> from hdmm import Domain
    >>> Problem(Workload.marginals(Domain({"a": 3, "b": 4}), k=2)).identity_error
    12.0
    """

    given: Workload
    noise: Noise = Noise.LAPLACE
    parts: Parts | None = None
    goal: Goal | None = None
    known: tuple[Product, ...] = ()  # whose answers are public, so that nothing needs to be asked about them
    cells: MergedCells | None = None  # which are the domain's values, where they are merged
    values: Problem | None = None  # the problem whose cells are merged

    @classmethod
    def of(cls, goal: Goal, noise: Noise) -> Problem:
        """The problem that a goal poses."""
        asked, parts = goal.asked
        return cls(asked, noise, parts, goal)

    @cached_property
    def merged(self) -> Problem:
        """The same problem over cells that its queries distinguish (merged_cells.py); itself if these are the values.

        Values of attributes about which counts are known stay apart, and so do bins whose sums are asked for: these
        are published with what they would be at the ends of the bins.
        """
        products = [*self.given.products, *(self.goal.workload.products if self.goal is not None else ())]
        known = {i for product in self.known for i in product.axes}
        cells = MergedCells.of(products, apart=known.union(*(product.binned_sums for product in products)))
        if cells is None:
            return self
        goal = self.goal
        if goal is not None:
            goal = replace(goal, tables={name: cells.workload(table) for name, table in goal.tables.items()})
        known = tuple([Product.of(cells.domain, product.sets, product.weight) for product in self.known])
        return Problem(cells.workload(self.given), self.noise, self.parts, goal, known, cells, self)

    def restored(self, strategy: Strategy) -> Strategy:
        """A strategy for the merged problem on the values of the domain."""
        return strategy if self.cells is None else self.cells.restored(strategy)

    def restorable(self, axes: Sequence[int]) -> bool:
        """Whether a factor on these attributes together can be written on the values of the domain."""
        return self.cells is None or self.cells.restorable(axes)

    @cached_property
    def workload(self) -> Workload:
        """The same queries in fewer products, WᵀW unchanged; compacting very many takes longer than it saves."""
        if self.parts is not None or len(self.given.products) > _MOST_COMPACTED or self.plain:
            return self.given
        fewer = self.given.compact()
        return self.given if fewer == self.given else fewer  # then its error is that of what was given

    @cached_property
    def plain(self) -> bool:
        """Whether the optimum is in closed form: Gaussian noise, and predicates that treat all values alike."""
        return self.noise is Noise.GAUSSIAN and is_plain(self.given)

    @cached_property
    def terms(self) -> Terms:
        """What OPT_x and OPT_+ see of the workload."""
        return Terms.of(self.workload, self.parts)

    @cached_property
    def demand(self) -> Demand:
        """What OPT_M sees of the workload: what is asked of each eigenspace of marginals.

        It is the same in fewer products, which take longer to find than to do without.
        """
        return self._measurable_of(demand(self.given, None, self.parts))

    def demand_over(self, bases: Mapping[int, Matrix]) -> Demand:
        """What is asked of each eigenspace over the bases, by axis."""
        return self._measurable_of(demand(self.workload, bases, self.parts))

    def _measurable_of(self, asked: Demand) -> Demand:
        """What is asked beside known counts, with marginals over several large amounts ruled out."""
        grains = tuple(self._grains[axis] for axis in asked.axes)
        return replace(asked, grains=grains if max(grains, default=1) > 1 else ()).without(self.known_axes)

    @cached_property
    def known_axes(self) -> list[Attributes]:
        """The sets of attributes whose marginals are known whole, groups of values being less than these."""
        return [tuple(i for i, p in product.factors if p == Identity()) for product in self.known]

    def informed(self, strategy: Strategy) -> Strategy:
        """The strategy, beside what is known."""
        return replace(strategy, known=self.known) if self.known else strategy

    def error(self, strategy: Strategy) -> float:
        """The error of a strategy: that of the workload, or the largest of its parts; infinite if it has no answer."""
        return self._beside_known(strategy, self._error)

    def value(self, strategy: Strategy) -> float:
        """The value by which strategies are compared: the error, or the goal's; StrategyError if there is no answer."""
        return self._beside_known(strategy, self._value)

    def _beside_known(self, strategy: Strategy, compute: Callable[[Strategy], float]) -> float:
        """The error beside what is known; without it if that has too many cells, as Identity has on 40 attributes."""
        if self.known and not strategy.known:
            with suppress(StrategyError):
                return compute(self.informed(strategy))
        return compute(strategy)

    def _error(self, strategy: Strategy) -> float:
        scale = float(strategy.sensitivity(self.noise)) ** 2
        form, products = strategy.form, self.workload.products
        if self.parts is None:
            return scale * form.total_variance(products)
        return scale * float(self.parts.sums(total_variances(form, products)).max())

    def _value(self, strategy: Strategy) -> float:
        if not self._measurable(strategy):
            return math.inf
        if self.goal is not None and not self.goal.linear:
            return self.goal.value(strategy, self.noise)
        return unit_error(self.workload, strategy, noise=self.noise)

    def _measurable(self, strategy: Strategy) -> bool:
        """Whether answers about parts of rows, into which amounts divide them, are integers of 64 bits.

        They are not if a block has two large amounts, or one and several factors that have to be rounded.
        """
        grains, table = self._grains, strategy.table
        if max(grains) == 1:
            return True
        parts = [_largest_entry(A) * math.prod([grains[i] for i in axes]) for axes, A in table.distinct]
        return max(table.products(parts).tolist()) * _ROWS <= MAX_ANSWER

    @property
    def whole(self) -> bool:
        """Whether a factor on all attributes together is measurable, whatever its numbers."""
        return math.prod(self._grains) * _ROUNDED * _ROWS <= MAX_ANSWER

    @property
    def _grains(self) -> tuple[int, ...]:
        """Into how many parts each attribute divides a row."""
        return (self.values or self).given.domain.grains

    @cached_property
    def identity_error(self) -> float:
        """The error of measuring every cell once, to which others are compared."""
        return self.error(Strategy.identity(self.workload.domain))


def _largest_entry(A: Matrix) -> int:
    """The largest integer of a factor once it is rounded."""
    try:
        return max(1, *map(abs, entries(A)))
    except MatrixError:  # it is not of integers yet
        return _ROUNDED
