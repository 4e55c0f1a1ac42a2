"""Goal: named tables, and the function of their errors that is minimised.

"total" is the sum of all squared errors, as in the paper; "tables" is the sum of the tables' mean squared errors, so
that all tables count equally; "worst" is the largest variance of any query. Targets are "worst" in other units: the
largest ratio, over the tables, of the worst variance to the variance that the target allows. Weights say how much
queries matter to an objective. Margins of error, and so targets, are of rows as they are published, without weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from numbers import Real
from typing import final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.hints import brief, did_you_mean
from hdmm.base.numbers import LEVEL
from hdmm.describe.error_rows import ErrorRows
from hdmm.describe.product import Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.terms import POWERS, Parts
from hdmm.strategy.error import check_support
from hdmm.strategy.form import Form, constant_variances, total_variances
from hdmm.strategy.strategy import Strategy

_LOOSE = 10.0  # a table without a target is held to so many times the largest one
_MOST_TARGET = 1e100  # whose square is finite, as that of its reciprocal is
_MOST_PARTS = 256  # products that are parts of their own; of more, the tables are


class Objective(StrEnum):
    """The function of the tables' errors that is minimised."""

    TOTAL = "total"
    TABLES = "tables"
    WORST = "worst"

    @classmethod
    def named(cls, name: str) -> Objective:
        """The objective of this name."""
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(repr(each.value) for each in cls)
            raise StrategyError(
                f"There is no objective {name!r}. Use one of {known}.{did_you_mean(name, list(cls))}"
            ) from None


@final
@dataclass(frozen=True)
class Goal:
    """Tables by name and the objective; `targets` are the margins of error asked for, at confidence `level`, by table.

    Where there are targets the objective is "worst". The weights of a table with a target do not count, because margins
    are of rows as they are published. A table without one is held to ten times the largest, divided by its weights.
    With `means` a table counts by the mean of its variances in place of the largest.

    `rows` are those of tables whose rows are not just its queries: quotients, sums of several, or counts beside an
    expectation; none of a table whose margins depend on data. The tables that such a one is searched for by are named
    after it: "pay/1", "pay/2".

    >>> from hdmm import Domain, Prefix
    >>> domain = Domain({"sex": 2, "age": 4})
    >>> tables = {"sex": Workload.marginals(domain, [("sex",)]), "ages": Workload.product(domain, age=Prefix())}
    >>> goal = Goal(tables, Objective.TABLES)
    >>> goal.errors(Strategy.identity(domain), Noise.LAPLACE)
    {'sex': 2.0, 'ages': 2.23606797749979}
    >>> goal.worst(Strategy.identity(domain), Noise.LAPLACE)
    {'sex': 2.0, 'ages': 2.8284271247461903}
    """

    tables: Mapping[str, Workload]
    objective: Objective = Objective.TOTAL
    targets: Mapping[str, float] = field(default_factory=dict[str, float])
    level: float = LEVEL
    means: bool = False
    rows: Mapping[str, tuple[ErrorRows, ...]] = field(default_factory=dict[str, tuple[ErrorRows, ...]], compare=False)

    def __post_init__(self) -> None:
        tables = {name: published(w) if name in self.targets else w for name, w in self.tables.items()}
        object.__setattr__(self, "tables", tables)

    @classmethod
    def of(
        cls,
        asked: Workload | Mapping[str, Workload] | Goal,
        objective: Objective | str | None = None,
        targets: Mapping[str, float] | None = None,
        level: float | None = None,
    ) -> Goal:
        """The goal that a user states, checked; a workload alone is one table without a name."""
        if isinstance(asked, Goal):
            if objective is not None or targets is not None or level is not None:
                raise StrategyError("A goal has its objective, its targets and its level. Give it alone.")
            return asked
        level = LEVEL if level is None else level
        if isinstance(asked, Workload):
            if targets is not None:
                raise StrategyError(
                    "Targets name tables, but the workload has no name. Give a mapping: optimize({'ages': workload}, "
                    "targets={'ages': 50})."
                )
            return cls({"": asked}, Objective.named(objective or Objective.TOTAL), level=level)
        tables = _checked_tables(asked)
        if targets is None:
            return cls(tables, Objective.named(objective or Objective.TABLES), level=level)
        if objective is not None:
            raise StrategyError(
                f"Both an objective ({str(objective)!r}) and targets were given, but targets are an objective, too. "
                "Give one of the two."
            )
        return cls(tables, Objective.WORST, checked_targets(tables, targets), level)

    @property
    def linear(self) -> bool:
        """Whether the objective is a weighted sum of errors."""
        return self.objective is not Objective.WORST

    @cached_property
    def allowed(self) -> dict[str, float]:
        """The units in which the variance of each table counts."""
        loose = _LOOSE * max(self.targets.values(), default=1 / _LOOSE)
        return {name: self.targets.get(name, loose) ** 2 for name in self.tables}

    @cached_property
    def workload(self) -> Workload:
        """The queries of all tables, stacked."""
        tables = list(self.tables.values())
        return (
            tables[0]
            if len(tables) == 1
            else Workload(tables[0].domain, tuple(p for each in tables for p in each.products))
        )

    @cached_property
    def asked(self) -> tuple[Workload, Parts | None]:
        """The products, weighted so that their error is the objective or, with parts, each part's error is its own."""
        if self.objective is Objective.TOTAL:
            return self.workload, None
        products: list[Product] = []
        of: list[int] = []
        for k, (name, table) in enumerate(self.tables.items()):
            allowed = 1.0 if self.linear else self.allowed[name]
            all_rows = table.queries if self.linear or self.means else None
            for product in _compacted(table).products:
                rows = product.queries if all_rows is None else all_rows
                if product.weight > 0 and rows > 0:
                    products.append(product.weighted(product.weight / math.sqrt(rows * allowed)))
                    of.append(k)
        asked = Workload(self.workload.domain, tuple(products))
        if self.linear:
            return asked, None
        by_product = len(products) <= _MOST_PARTS and not self.means
        parts = np.arange(len(products)) if by_product else np.array(of)
        return asked, Parts(parts, int(parts.max()) + 1, POWERS[0])

    @cached_property
    def in_counts(self) -> Goal:
        """The goal that selection pursues: sums are divided by their largest amount, so that they do not drown counts.

        A table with a target is in units of that target already. Attributes with one value are left out, because what
        is asked of them is asked of their total. The goal itself if there is neither.
        """
        scaled = {
            name: _without_single_values(w if name in self.targets else w.in_counts())
            for name, w in self.tables.items()
        }
        return self if all(scaled[name] is w for name, w in self.tables.items()) else replace(self, tables=scaled)

    @property
    def in_units(self) -> tuple[Product, ...]:
        """All products, in units in which the largest variance of a query is the objective "worst"."""
        return tuple(
            replace(product, weight=product.weight / math.sqrt(self.allowed[name]))
            for name, table in self.tables.items()
            for product in table.products
            if product.weight > 0 and product.queries > 0
        )

    @cached_property
    def published(self) -> Goal:
        """The goal with tables whose rows are as they are published: the weights of none count."""
        return replace(self, tables={name: published(w) for name, w in self.tables.items()})

    @cached_property
    def error_rows(self) -> dict[str, tuple[ErrorRows, ...]]:
        """The rows of every table as it is published, by the name that users know, with the margins they may have."""
        found: dict[str, tuple[ErrorRows, ...]] = {}
        for name, table in self.published.tables.items():
            whole = name.rpartition("/")[0]
            if name not in self.rows and whole in self.rows and whole not in self.tables:
                found[whole] = self.rows[whole]
            else:
                margin = np.array([self.targets[name]]) if name in self.targets else None
                found[name] = self.rows.get(name, (ErrorRows(table, margin=margin),))
        return found

    def errors(self, strategy: Strategy, noise: Noise) -> dict[str, float]:
        """The root mean squared error of each table at unit noise, weights included."""
        unit = float(strategy.sensitivity(noise))
        form = strategy.form
        totals = total_variances(form, self.workload.products)
        if np.isinf(totals).any():
            check_support(self.workload, form)
        each = zip(self.tables.items(), self._by_table(totals), strict=True)
        return {name: unit * math.sqrt(math.fsum(found) / w.queries) for (name, w), found in each}

    def worst(self, strategy: Strategy, noise: Noise) -> dict[str, float]:
        """The largest standard deviation of a query of each table at unit noise, weights included. O(queries)."""
        unit, form = float(strategy.sensitivity(noise)), strategy.form
        largest = self._by_table(_largest_variances(self.workload, form))
        return {
            name: unit * math.sqrt(found.max(initial=0.0)) for name, found in zip(self.tables, largest, strict=True)
        }

    def _by_table(self, numbers: Array) -> list[Array]:
        """Numbers of the products of the workload, table by table."""
        return np.split(numbers, np.cumsum([len(w.products) for w in self.tables.values()])[:-1])

    def value(self, strategy: Strategy, noise: Noise) -> float:
        """The exact objective, by which strategies are compared."""
        if self.linear:
            asked, _ = self.asked
            return float(strategy.sensitivity(noise)) ** 2 * check_support(asked, strategy.form)
        worst = self.errors(strategy, noise) if self.means else self.worst(strategy, noise)
        return max(deviation**2 / self.allowed[name] for name, deviation in worst.items())


def check_named(what: str, name: object, tables: Collection[str]) -> None:
    """Refuse what is said about a table that does not exist."""
    if name not in tables:
        raise StrategyError(
            f"There is {what} for {name!r}, but no table of that name.{did_you_mean(str(name), list(tables))} The "
            f"tables are: {', '.join(map(repr, tables))}."
        )


def checked_targets(tables: Collection[str], targets: Mapping[str, float]) -> dict[str, float]:
    """The margins of error asked for, by table; StrategyError if one is not a margin or its table does not exist."""
    if not targets:
        raise StrategyError("The targets are empty. Give a margin of error for at least one table.")
    for name, target in targets.items():
        check_named("a target", name, tables)
        if isinstance(target, bool) or not isinstance(target, Real) or not 0 < float(target) < math.inf:
            raise StrategyError(
                f"The target for {name!r} is {brief(target)}. Give a margin of error above 0, such as 50."
            )
        if not 1 / _MOST_TARGET <= float(target) <= _MOST_TARGET:
            raise StrategyError(
                f"The target for {name!r} is {target!r}, which no budget that can be written reaches. Give a margin of "
                "error as counts have it, such as 50."
            )
    return {name: float(target) for name, target in targets.items()}


def _checked_tables(asked: object) -> dict[str, Workload]:
    if not isinstance(asked, Mapping):
        raise StrategyError(
            f"The workload is a {type(asked).__name__}. Give a Workload, which says which counts matter: "
            "Workload.marginals(domain, k=2), or Workload.sql(domain, '…'); or a mapping from names of tables to "
            "workloads."
        )
    tables: dict[str, Workload] = {}
    for name, table in asked.items():
        if not isinstance(name, str) or not isinstance(table, Workload):
            raise StrategyError(
                f"The mapping has {name!r}: {type(table).__name__}. Give each table's name as text, and its Workload."
            )
        tables[name] = table
    if not tables:
        raise StrategyError("The mapping of tables is empty. Give at least one table.")
    domains = {table.domain for table in tables.values()}
    if len(domains) > 1:
        raise StrategyError("The tables are over different domains. Declare one domain and write every table over it.")
    return tables


def _without_single_values(table: Workload) -> Workload:
    """The same queries without predicates on attributes of one value: each of their rows is a multiple of the total."""
    single = [i for i, n in enumerate(table.domain.shape) if n == 1]
    if not any(i in product.axes for product in table.products for i in single):
        return table
    return Workload(table.domain, tuple(p for product in table.products for p in _split(product, single)))


def _split(product: Product, single: Sequence[int]) -> Iterator[Product]:
    """The rows of a product on the values of `single` attributes, as products of their own on the others."""
    sets = [(tuple([i for i in axes if i not in single]), p, product.cells(axes)) for axes, p in product.sets]
    multiples = [np.abs(to_dense(p.matrix(n)).ravel()).tolist() for axes, p, n in sets if not axes]
    for each in itertools.product(*multiples):
        kept = [(axes, p) for axes, p, _ in sets if axes]
        yield Product.of(product.domain, kept, product.weight * math.prod(each))


def _compacted(table: Workload) -> Workload:
    return table.compact() if len(table.products) <= _MOST_PARTS else table


def published(table: Workload) -> Workload:
    """The queries of a table as its rows are published, without weights; what has weight 0 is not asked for.

    >>> from hdmm import Domain
    >>> published(3 * Workload.marginals(Domain({"sex": 2}), k=1)).products[0].weight
    1.0
    """
    if all(product.weight in (0, 1) for product in table.products):
        return table
    return Workload(table.domain, tuple([p.weighted(1.0) if p.weight > 0 else p for p in table.products]))


def largest_variance(workload: Workload, form: Form) -> float:
    """The largest variance of a query of the workload, weights included. O(queries)."""
    return float(_largest_variances(workload, form).max(initial=0.0))


def _largest_variances(workload: Workload, form: Form) -> Array:
    """The same for each product, all of them supported."""
    check_support(workload, form)
    found = constant_variances(form, workload.products)
    for k in np.flatnonzero(np.isnan(found)).tolist():
        found[k] = max(float(piece.max(initial=0.0)) for piece in form.variances(workload.products[k]))
    return found * np.array([product.weight for product in workload.products]) ** 2
