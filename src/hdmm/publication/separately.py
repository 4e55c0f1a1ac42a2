"""Each table by itself, as users of other libraries have it, who ask one query after the other.

Every query has a part of the budget. A table is measured by noise on its own rows or on its own cells, whichever is
better, and the budget is divided evenly, or so that the goal of the specification is met best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.answers.combinations import sum_variances
from hdmm.answers.first_order import ratio_variances
from hdmm.answers.table import Forecast
from hdmm.base.exceptions import HdmmError
from hdmm.baselines import laplace
from hdmm.describe.table_query import TableQuery
from hdmm.matrix import Array, Eye
from hdmm.privacy.guarantee import Noise
from hdmm.publication.forecast import unit_variance
from hdmm.publication.spec import Spec
from hdmm.select.goal import Objective, largest_variance
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_LEAST_GAIN = 0.02  # of a margin


@final
@dataclass(frozen=True, slots=True)
class Separate:
    """The error of a typical row of each table, in the order of the tables, if each is measured by itself.

    None of a table whose error depends on the data. `evenly` is with the same part of the budget for each table, and
    `best` with the parts that serve the goal best. `remark` says so if a plan gains nothing by measuring them together.
    """

    best: tuple[float | None, ...]
    evenly: tuple[float | None, ...]
    remark: str | None = None


def separately(spec: Spec, planned: Sequence[Forecast]) -> Separate | None:
    """What the tables would have by themselves, beside what is planned; None if it is not known of some table."""
    tables, power = spec.tables, spec.privacy.noise.order
    if spec.known:
        return None
    known: dict[object, tuple[float, float] | None] = {}
    found: list[tuple[float, float]] = []
    for table in tables:
        key = (table.workload, table.expected, table.percent) if table.combine is None else id(table)
        if key not in known:
            known[key] = _variance(spec, table)
        if (both := known[key]) is None:
            return None
        found.append(both)
    costs, variances = np.array(found).T
    unit, shares = unit_variance(spec, spec.privacy), _shares(spec, costs)
    exponent = 2 // power  # the variance grows with the square of 1/ε, and with 1/ρ
    best, evenly = (np.sqrt(unit * variances / part**exponent) for part in (shares, 1 / len(tables)))
    shown = [one.rmse is not None for one in planned]
    return Separate(
        tuple(float(e) if s else None for e, s in zip(best, shown, strict=True)),
        tuple(float(e) if s else None for e, s in zip(evenly, shown, strict=True)),
        _remark(spec, planned, best),
    )


def _variance(spec: Spec, table: TableQuery) -> tuple[float, float] | None:
    """(what a plan minimises, that of a typical row): the least variance at unit noise with the whole budget.

    Plans minimise the worst row where a margin is asked for, else a typical one of counts, in which sums are divided by
    their largest value. None if there is no formula.
    """
    used = sorted({axis for product in table.workload.products for axis in product.axes})
    shape = table.workload.domain.shape
    cells = Strategy(table.workload.domain, (Block(1.0, tuple((i, Eye(shape[i])) for i in used)),))
    ways = [cells] if table.combine is not None else [cells, laplace(table.workload.in_counts())]
    return min((each for way in ways if (each := _under(spec, table, way)) is not None), default=None)


def _under(spec: Spec, table: TableQuery, strategy: Strategy) -> tuple[float, float] | None:
    try:
        unit, form = float(strategy.sensitivity(spec.privacy.noise)) ** 2, strategy.form
        counts = form.total_variance(table.workload.in_counts().products) / table.workload.queries
        shown = ratio_variances(table, form) if not table.linear else None
        if shown is None and table.combine is not None:
            shown = sum_variances(table.workload, form, table.combine)
        published = form.total_variance(table.workload.products) / table.workload.queries
        typical = published if shown is None else float(shown.mean())
        if table.margin is None:
            return unit * counts, unit * typical
        worst = largest_variance(table.workload, form) if shown is None else float(shown.max())
        return unit * worst, unit * typical
    except HdmmError:  # too many cells
        return None


def _shares(spec: Spec, variances: Array) -> Array:
    """The parts of the budget, ε or ρ, that meet the goal best.

    A sum of costs c/s² or c/s is least at shares in proportion to the cube or the square root of the costs, and the
    largest of them at shares in proportion to their square roots or to themselves. Beside margins, a table without one
    has an even share.
    """
    goal, squared = spec.goal, spec.privacy.noise is Noise.LAPLACE
    rows = {name: sum(table.rows for table in each) for name, each in spec.groups.items()}
    weights: list[float] = []
    for table in spec.tables:
        match goal.objective:
            case Objective.TOTAL:
                weights.append(table.weight**2 * table.rows)
            case Objective.TABLES:
                weights.append(table.weight**2 * table.rows / rows[table.group])
            case Objective.WORST:
                weights.append((1 / (table.margin or 1 / table.weight)) ** 2)
    costs = variances * np.array(weights)
    if goal.objective is Objective.WORST:
        parts = np.sqrt(costs) if squared else costs
    else:
        parts = np.cbrt(costs) if squared else np.sqrt(costs)
    even = np.array([bool(goal.targets) and table.margin is None for table in spec.tables])
    rest = float(parts[~even].sum()) or 1.0
    return np.where(even, 1 / len(even), parts / rest * (1 - even.mean()))


def _remark(spec: Spec, planned: Sequence[Forecast], best: Array) -> str | None:
    """What to say if no table gains by measuring the tables together."""
    pairs = [(one.rmse, float(alone)) for one, alone in zip(planned, best, strict=True) if one.rmse is not None]
    gains = [math.log(alone / rmse) for rmse, alone in pairs if rmse > 0 and alone > 0]
    if not gains or sum(gains) / len(gains) > _LEAST_GAIN:
        return None
    used = [{axis for product in table.workload.products for axis in product.axes} for table in spec.tables]
    if len(used) == 1:
        why = "there is one table, and noise on each of its rows or cells is as good"
    elif not any(one & other for k, one in enumerate(used) for other in used[:k]):
        why = "no two tables share a column, so that no measurement serves two of them"
    else:
        why = "what the tables share is too little for a measurement to serve two of them well"
    return f"Planning gains nothing over measuring each table by itself: {why}."
