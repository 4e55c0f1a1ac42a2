"""Forecasts: the error that each table will have, and that other methods would have. Reads no data, spends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from hdmm.answers.combinations import sum_variances
from hdmm.answers.first_order import ratio_variances
from hdmm.answers.table import Forecast
from hdmm.base.exceptions import HdmmError
from hdmm.baselines import identity, laplace
from hdmm.bounds.svd import svd_bound
from hdmm.data.counts import DEFAULT_ROWS_BOUND
from hdmm.describe.table_query import TableQuery
from hdmm.describe.workload import Workload
from hdmm.measure.plan import Plan
from hdmm.measure.prepare import Prepared, prepare
from hdmm.privacy.guarantee import Privacy
from hdmm.publication.spec import Spec
from hdmm.strategy.form import Form, constant_variances


def forecasts(spec: Spec, measured: Form) -> tuple[Forecast, ...]:
    """The errors of all tables, given the form of measurements with their noise (a release's, or `as_measured`)."""
    return tuple(_forecasts(spec, measured))


def as_measured(spec: Spec, plan: Plan, *, in_chunks: bool = False) -> Prepared:
    """The strategy as it will be measured: rounded to integers, with the noise of the specification."""
    rows = spec.data.rows_bound or DEFAULT_ROWS_BOUND
    return prepare(
        plan.strategy,
        spec.privacy,
        unit=spec.unit,
        rows_bound=rows,
        workload=plan.workload,
        known=spec.known,
        in_chunks=in_chunks,
    )


def unit_variance(spec: Spec, privacy: Privacy) -> float:
    """The variance at sensitivity 1 under a privacy and the specification's unit."""
    factor = spec.unit.factor(privacy.noise, signed=False)
    return float(privacy.variance_factor) * factor ** (2 // privacy.noise.order)


def _forecasts(spec: Spec, measured: Form) -> Iterator[Forecast]:
    noise, unit = spec.privacy.noise, unit_variance(spec, spec.privacy)
    asked = Workload(spec.domain, tuple(product for table in spec.tables for product in table.workload.products))
    sensitivity = _applicable(lambda: laplace(asked.in_counts()).sensitivity(noise))
    even = _even(spec, measured, asked)
    known: dict[object, tuple[float | None, float | None]] = {}
    for table in spec.tables:
        w, rows = table.workload, table.rows
        if not table.comparable:
            yield _of_ratios(table, measured, spec.privacy)
            continue
        key = _alike(w)
        if key not in known:  # 4,950 tables of pairs are of few kinds
            without = table.combine is not None or bool(spec.known)  # the bound holds where nothing is known
            least = None if without else _applicable(lambda w=w: svd_bound(w))
            known[key] = _applicable(lambda w=w: identity(w).total_variance(w)), least
        cells, least = known[key]
        error = math.sqrt(even.get(table.name) or _squared(table, measured) / rows)
        yield Forecast(
            table.name,
            rows,
            rmse=error,
            identity=None if cells is None else math.sqrt(unit * cells / rows),
            direct=None if sensitivity is None else math.sqrt(unit) * sensitivity * _scale(table),
            bound=None if least is None else math.sqrt(unit * least / rows),
            privacy=spec.privacy,
            answered=math.isfinite(error),
        )


def _of_ratios(table: TableQuery, measured: Form, privacy: Privacy) -> Forecast:
    """What is known before any data about means, percentages and quantiles, or about several measures at once."""
    answered = math.isfinite(measured.total_variance(table.workload.products))
    variances = ratio_variances(table, measured) if answered else None
    error = None if variances is None else math.sqrt(float(variances.mean()))
    assumed = None if error is None else table.expected
    return Forecast(table.name, table.rows, error, privacy=privacy, assumed=assumed, answered=answered)


def _alike(workload: Workload) -> object:
    """Equal for tables of one product with the same predicates on as many values: they differ in no error but ours."""
    if len(workload.products) != 1:
        return workload
    shape = workload.domain.shape
    return tuple((p, shape[i]) for i, p in workload.products[0].factors)


def _even(spec: Spec, measured: Form, asked: Workload) -> dict[str, float]:
    """The variance of a row of each table whose rows all have the same, where tables are many; all are supported."""
    single = [t for t in spec.tables if t.comparable and t.combine is None and len(t.workload.products) == 1]
    variances = constant_variances(measured, [table.workload.products[0] for table in single]).tolist()
    if all(map(math.isnan, variances)) or math.isinf(measured.total_variance(asked.products)):
        return {}
    return {table.name: v for table, v in zip(single, variances, strict=True) if not math.isnan(v)}


def _squared(table: TableQuery, measured: Form) -> float:
    """The expected squared error of all rows."""
    if table.combine is None:
        return measured.total_variance(table.workload.products)
    return float(sum_variances(table.workload, measured, table.combine).sum())


def _scale(table: TableQuery) -> float:
    """By how much sums are larger than counts: the root mean square, over queries, of their largest amounts."""
    workload = table.workload
    pairs = zip(workload.products, workload.in_counts().products, strict=True)
    squares = sum(product.queries * (product.weight / scaled.weight) ** 2 for product, scaled in pairs)
    return math.sqrt(squares / workload.queries)


def _applicable(compute: Callable[[], float]) -> float | None:
    try:
        found = compute()
    except HdmmError:  # too large for the method, or not supported
        return None
    return found if math.isfinite(found) else None
