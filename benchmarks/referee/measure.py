"""One row measured: the plan that one call of hdmm.optimize makes, and its figure. A job of benchmarks.paper.limits."""

from __future__ import annotations

import math
import time
from typing import Any

from threadpoolctl import threadpool_limits

import hdmm
from benchmarks.referee.rows import ROWS
from benchmarks.referee.tables import Tables
from hdmm import ApproxDP, Plan, PureDP
from hdmm.answers.margins import half_width
from hdmm.privacy.guarantee import Noise
from hdmm.select.goal import Goal, Objective
from hdmm.select.operators import operators_for
from hdmm.select.opt_hdmm import Candidate, select
from hdmm.select.problem import Problem

LEVEL = 0.95
UNIT_MARGIN = half_width(1.0, LEVEL, Noise.GAUSSIAN)  # what a release states of a count whose variance is 1
LAPLACE = float(PureDP(1).variance_factor)  # at ε = 1; Gaussian figures are at ρ = 1/2, where it is 1


def measured(row: str, seed: int, time_limit: float) -> dict[str, Any]:
    """The row's figure, the seconds of selection, the operator, and the certified gap where the plan has one."""
    tables = ROWS[row].build()
    options: dict[str, Any] = {"seed": seed, "time_limit": time_limit, "progress": False}
    begun = time.perf_counter()
    match ROWS[row].figure:
        case "rmse":
            plan, value = _rmse(tables, options)
        case "worst variance":
            plan, value = _worst_variance(tables, options)
        case "privacy cost":
            plan, value = _privacy_cost(tables, options)
        case "sum of mse":
            plan, value = _sum_of_mse(tables, options)
        case "largest rmse":
            plan, value = _largest_rmse(tables, options)
        case "variance":
            plan, value = _variance(tables, ROWS[row].privacy, options)
    seconds = time.perf_counter() - begun
    gap = None if isinstance(plan, Candidate) else plan.gap
    return {"value": value, "seconds": seconds, "operator": plan.operator, "gap": gap}


def _rmse(tables: Tables, options: dict[str, Any]) -> tuple[Plan, float]:
    """At ρ = 1/2 the noise is the unit's: no factor is needed."""
    (workload,) = tables.values()
    plan = hdmm.optimize(workload, noise="gaussian", **options)
    return plan, math.sqrt(plan.error / workload.queries)


def _worst_variance(tables: Tables, options: dict[str, Any]) -> tuple[Plan, float]:
    plan = hdmm.optimize(tables, noise="gaussian", objective="worst", **options)
    return plan, max(plan.worst.values()) ** 2


def _privacy_cost(tables: Tables, options: dict[str, Any]) -> tuple[Plan, float]:
    targets = dict.fromkeys(tables, UNIT_MARGIN)
    plan = hdmm.optimize(tables, noise="gaussian", targets=targets, level=LEVEL, **options)
    return plan, 2 * float(plan.privacy_for(targets, level=LEVEL).rho)


def _variance(tables: Tables, privacy: ApproxDP | None, options: dict[str, Any]) -> tuple[Plan, float]:
    """What a release states of its noise: with the scale that was drawn with, after rounding to integers."""
    (workload,) = tables.values()
    if privacy is None:
        raise ValueError("A row of a variance needs a privacy.")
    plan = hdmm.optimize(workload, noise="gaussian", **options)
    release = plan.measure(hdmm.from_array(workload.domain, [3, 4]), privacy, ledger=None)
    return plan, float(release.answer(workload).stddev[0]) ** 2


def _sum_of_mse(tables: Tables, options: dict[str, Any]) -> tuple[Plan, float]:
    plan = hdmm.optimize(tables, objective="tables", **options)
    return plan, LAPLACE * sum(error**2 for error in plan.errors.values())


def _largest_rmse(tables: Tables, options: dict[str, Any]) -> tuple[Candidate, float]:
    """The largest mean variance of a table, which hdmm.optimize has no name for: its "worst" is that of any query."""
    problem = Problem.of(Goal(tables, Objective.WORST, means=True), Noise.LAPLACE).merged
    with threadpool_limits(limits=1, user_api="blas"):
        found = select(problem, operators_for(problem), seed=options["seed"], time_limit=options["time_limit"])
    return found.best, math.sqrt(LAPLACE * found.best.error)
