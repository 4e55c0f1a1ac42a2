"""Problem: the input of an operator, with quantities that several operators need computed once.

Values of an attribute that no query distinguishes are one cell each (`MergedCells`). Let M add up the values of each
cell, so that a workload is W = W'M, where W' has a column for each cell. A strategy A' for W' is A = A'M on the domain:
its columns are those of A', some of them repeated, so that its sensitivity is the same; and so is its error, because it
sees the data through M only. The other way round, the columns of any A for W at one value of each cell are a strategy
for W' that has no more error. So the least error stays the same, over all strategies and among p-Identities and
marginals, which only have fewer numbers to search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from hdmm.base.exceptions import MatrixError, StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import AllRange, Identity, PredicateSet, Prefix, Total, Vectors
from hdmm.describe.product import Attributes, Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Dense, Matrix, Repeated, to_dense
from hdmm.matrix.integers import entries
from hdmm.matrix.matrix import frozen
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import Demand, demand, is_plain
from hdmm.select.goal import Goal
from hdmm.select.terms import Parts, Terms
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.error import unit_error
from hdmm.strategy.form import total_variances
from hdmm.strategy.lattice import MAX_ANSWER
from hdmm.strategy.strategy import Strategy

_MOST_COMPACTED = 10_000  # products
MOST_RESTORED = 1024  # values that a factor with repeated columns may be on: its form takes O(n³), half a second
MOST_TOGETHER = 10_000  # cells of several attributes that OPT_0 takes as one: Θ of 128 rows takes 10 MB there
_WORTH = 0.5  # of the values: cells that make up for OPT_0 over all of them, which beats other operators by some 8 %
_MOST_ENTRIES = 1 << 22  # of a predicate set that is written out to compare its columns
_NEVER_ALIKE = (Identity, Prefix, AllRange)
_ROWS, _ROUNDED = 2**33, 2**7  # of tables, and the largest entry of a factor that is rounded to integers


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """The given workload, and the noise for which its error is minimised.

    The error is summed over all products, or over each of the `parts` and then combined (terms.py).

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
        """The same problem over cells that its queries distinguish; itself if these are the values.

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


@final
@dataclass(frozen=True, eq=False)
class MergedCells:
    """The cell of every value, by attribute, where some values share one; cells are in the order of their first values.

    >>> domain = Domain({"age": 6, "sex": 2})
    >>> ages = Workload.product(domain, age=[[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0]])
    >>> cells = MergedCells.of(ages.products)
    >>> cells.cells[0], cells.domain.shape
    (array([0, 0, 1, 2, 2, 3]), (4, 2))
    >>> to_dense(cells.workload(ages).products[0].over([0]).matrix)
    array([[1, 1, 0, 0],
           [0, 1, 1, 0]])
    """

    groups: AxisGroups  # attributes that only predicates on several at once ask for, as one attribute
    cells: Mapping[int, Array]

    @classmethod
    def of(cls, products: Sequence[Product], *, apart: Iterable[int] = ()) -> MergedCells | None:
        """The cells that some products distinguish, all values of the attributes `apart`; None if none are merged.

        Predicates on several attributes at once leave theirs as they are, unless nothing else is asked for. Where OPT_0
        takes all values of several attributes as one, which cannot be written back, cells must halve their number.
        O(entries) for each distinct predicate set.
        """
        groups = _groups(products, set(apart))
        over = list(map(groups.product, products))
        kept = {*apart, *(i for product in over for axes, _ in product.joint for i in axes)}
        found: dict[int, dict[PredicateSet, None]] = {}
        for i, p in {id(factor): factor for product in over for factor in product.factors}.values():
            found.setdefault(i, {})[p] = None
        cells = {i: _cells(list(sets), groups.domain.shape[i]) for i, sets in sorted(found.items()) if i not in kept}
        cells = {i: each for i, each in cells.items() if 1 < each.max(initial=0) + 1 < len(each)}
        if not cells:
            return None
        values = math.prod(groups.domain.shape[i] for i in {*found, *kept})
        fewer = math.prod((int(each.max()) + 1) / len(each) for each in cells.values())
        refused = MOST_RESTORED < values <= MOST_TOGETHER and fewer > _WORTH
        return None if refused else cls(groups, cells)

    @cached_property
    def domain(self) -> Domain:
        """The domain whose values are the cells."""
        attributes = list(self.groups.domain.attributes)
        for i, each in self.cells.items():
            (attributes[i],) = Domain({attributes[i].name: int(each.max()) + 1}).attributes
        return Domain(attributes)

    def workload(self, workload: Workload) -> Workload:
        """The same queries over the cells."""
        made: dict[tuple[int, PredicateSet], PredicateSet] = {}
        products: list[Product] = []
        for product in map(self.groups.product, workload.products):
            factors: list[tuple[Attributes, PredicateSet]] = []
            for i, p in product.factors:
                if i in self.cells and (i, p) not in made:
                    made[i, p] = self._over_cells(i, p)
                factors.append(((i,), made.get((i, p), p)))
            products.append(Product.of(self.domain, [*factors, *product.joint], product.weight))
        return Workload(self.domain, tuple(products))

    def restorable(self, axes: Sequence[int]) -> bool:
        """Whether a factor on these attributes together can be written on their values."""
        values = math.prod(self.groups.domain.shape[i] for i in axes)
        return values <= MOST_RESTORED or not any(i in self.cells for i in axes)

    def restored(self, strategy: Strategy) -> Strategy:
        """The strategy on the values of the domain."""
        table, groups = strategy.table, self.groups.groups
        on_values = (
            (tuple([i for g in axes for i in groups[g]]), self._on_values(axes, A)) for axes, A in table.distinct
        )
        return replace(strategy, domain=self.groups.original, blocks=replace(table, distinct=tuple(on_values)))

    def _over_cells(self, i: int, p: PredicateSet) -> PredicateSet:
        first = np.unique(self.cells[i], return_index=True)[1]
        W = to_dense(p.matrix(self.groups.domain.shape[i]))[:, first]
        if (W == 1).all() and len(W) == 1:
            return Total()
        square = W.shape[0] == W.shape[1] and ((W == 0) | (W == 1)).all()
        return Identity() if square and (W.sum(axis=0) == 1).all() and (W.sum(axis=1) == 1).all() else Vectors(W)

    def _on_values(self, axes: Attributes, A: Matrix) -> Matrix:
        if not any(i in self.cells for i in axes):
            return A
        shape = [self.domain.shape[i] for i in axes]
        places = [self.cells.get(i, np.arange(n)) for i, n in zip(axes, shape, strict=True)]
        index = np.ravel_multi_index(np.ix_(*places), shape).ravel()
        if isinstance(A, Repeated):
            return Repeated(A.inner, A.index[index])
        if len(index) > MOST_RESTORED:
            return Repeated(A, index)
        array = to_dense(A)[:, index]
        whole = np.array_equal(array, np.rint(array))
        return Dense(frozen(array.astype(np.int64) if whole else array))


def _groups(products: Sequence[Product], apart: set[int]) -> AxisGroups:
    """The attributes of all products as one, if they are few enough and some predicates are on all of them at once."""
    domain = products[0].domain
    joint = [axes for product in products for axes, _ in product.joint]
    if not joint or apart:
        return AxisGroups.apart(domain)
    together, used = AxisGroups.of(domain, joint), tuple(sorted({i for product in products for i in product.axes}))
    alone = used in together.groups and math.prod(domain.shape[i] for i in used) <= MOST_RESTORED
    return together if alone else AxisGroups.apart(domain)


def _cells(sets: Sequence[PredicateSet], n: int) -> Array:
    """The number of each value's cell, in the order of their first values; one per value if the sets are too large."""
    large = n > MOST_RESTORED or sum(p.count(n) for p in sets) * n > _MOST_ENTRIES
    if large or any(isinstance(p, _NEVER_ALIKE) for p in sets):
        return np.arange(n)
    columns = np.vstack([to_dense(p.matrix(n)) for p in sets]).T + 0.0  # which makes −0 equal to 0
    numbers: dict[bytes, int] = {}
    return frozen(
        np.array([numbers.setdefault(each.tobytes(), len(numbers)) for each in np.ascontiguousarray(columns)])
    )
