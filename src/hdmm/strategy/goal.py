"""Goal: named tables, and which function of their errors shall be small.

"total" is the sum of all squared errors, as in the paper; "tables" the sum of the tables' mean squared errors, so that
each table counts alike; "worst" the largest variance of any query. Targets are "worst" in other units: the largest
ratio, over the tables, of the worst variance to what the target allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import final

import numpy as np

from hdmm.error import check_support
from hdmm.exceptions import StrategyError
from hdmm.hints import did_you_mean
from hdmm.privacy import Noise
from hdmm.strategy.base import Strategy
from hdmm.strategy.parts import POWERS, Parts
from hdmm.workload import Product, Workload

_MOST_PARTS = 256  # products that are parts of their own; of more, the tables are


class Objective(StrEnum):
    """Which function of the tables' errors shall be small."""

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
@dataclass(frozen=True, eq=False)
class Goal:
    """Tables by name and the objective; `allowed` is the variance that a query of each table may have, for targets.

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
    allowed: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def linear(self) -> bool:
        """Whether the objective is a weighted sum of errors."""
        return self.objective is not Objective.WORST

    @cached_property
    def workload(self) -> Workload:
        """The queries of all tables, one below the other."""
        tables = list(self.tables.values())
        return Workload(tables[0].domain, tuple(p for each in tables for p in each.products))

    @cached_property
    def asked(self) -> tuple[Workload, Parts | None]:
        """The products weighted so that their error is the objective's, or the error of each part its own."""
        if self.objective is Objective.TOTAL:
            return self.workload, None
        products: list[Product] = []
        of: list[int] = []
        for k, (name, table) in enumerate(self.tables.items()):
            allowed = self.allowed.get(name, 1.0) if not self.linear else 1.0
            for product in _compacted(table).products:
                rows = table.queries if self.linear else product.queries
                if product.weight > 0 and rows > 0:
                    products.append(replace(product, weight=product.weight / math.sqrt(rows * allowed)))
                    of.append(k)
        asked = Workload(self.workload.domain, tuple(products))
        if self.linear:
            return asked, None
        parts = np.arange(len(products)) if len(products) <= _MOST_PARTS else np.array(of)
        return asked, Parts(parts, int(parts.max()) + 1, POWERS[0])

    def errors(self, strategy: Strategy, noise: Noise) -> dict[str, float]:
        """The root mean squared error of each table at unit noise."""
        unit = float(strategy.sensitivity(noise))
        form = strategy.form
        return {name: unit * math.sqrt(check_support(w, form) / w.queries) for name, w in self.tables.items()}

    def worst(self, strategy: Strategy, noise: Noise) -> dict[str, float]:
        """The largest standard deviation of a query of each table at unit noise. O(queries)."""
        unit = float(strategy.sensitivity(noise))
        return {name: unit * math.sqrt(_largest_variance(w, strategy)) for name, w in self.tables.items()}

    def value(self, strategy: Strategy, noise: Noise) -> float:
        """The objective, exactly: what strategies are compared by."""
        if self.linear:
            asked, _ = self.asked
            return float(strategy.sensitivity(noise)) ** 2 * check_support(asked, strategy.form)
        worst = self.worst(strategy, noise)
        return max(deviation**2 / self.allowed.get(name, 1.0) for name, deviation in worst.items())


def _compacted(table: Workload) -> Workload:
    return table.compact() if len(table.products) <= _MOST_PARTS else table


def _largest_variance(workload: Workload, strategy: Strategy) -> float:
    check_support(workload, strategy.form)
    return max(
        product.weight**2 * max(float(piece.max(initial=0.0)) for piece in strategy.variances(product))
        for product in workload.products
    )
