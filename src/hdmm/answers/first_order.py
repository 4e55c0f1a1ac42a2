"""Means, percentages and quantiles to first order: each is nearly a sum of queries, in a group of expected size.

Let N and D be sums of queries and r = N/D. An error of N − r·D, divided by D, is the error of r to first order. The
q-quantile is off by the error of F − q·T, divided by how many values lie in a unit there; F counts the values up to it,
and T all. All values are taken to be equally common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hdmm.answers.combinations import sum_variances, uniform_answers
from hdmm.describe.error_rows import ErrorRows
from hdmm.describe.table_query import Quantiles, Quotient, TableQuery, size
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.select.goal import largest_variance, published
from hdmm.strategy.form import Form

_ONE = np.ones(1)


def ratio_variances(table: TableQuery, form: Form) -> Array | None:
    """The variances of means, percentages or quantiles, to first order, in groups of as many rows as are expected.

    An expected count is that of the group of a mean or quantile, and that of the row of a percentage. None if none is
    expected, or if the rows are of several measures.
    """
    found = _combination(table)
    if found is None:
        return None
    combine, factors = found
    return factors**2 * sum_variances(table.workload, form, combine)


def error_rows(table: TableQuery) -> ErrorRows | None:
    """The rows of a table as far as their errors go, with the margins that they may have; None if that depends on data.

    It does for means, percentages and quantiles if nothing is expected, or if the rows are of several measures.
    """
    expected = table.expected if table.expected_rows is None else table.expected_rows
    counts = None if expected is None else np.atleast_1d(np.asarray(expected, float))
    if table.relative is not None and counts is not None:
        margin = table.relative * counts
    else:
        margin = None if table.margin is None else np.array([table.margin])
    if table.linear:
        return ErrorRows(published(table.workload), table.combine, None, counts, margin)
    found = _combination(table)
    return None if found is None else ErrorRows(table.workload, *found, counts, margin)


def worst_part(rows: ErrorRows, form: Form, allowed: Array = _ONE) -> float:
    """The largest standard deviation of a row as a part of what is allowed, for each row or for all. O(queries)."""
    if rows.combine is None and len(allowed) == 1:
        return math.sqrt(largest_variance(rows.workload, form)) / float(allowed[0])
    combine = sp.csr_array(sp.eye_array(rows.workload.queries)) if rows.combine is None else rows.combine
    deviations = np.sqrt(sum_variances(rows.workload, form, combine))
    factors = 1.0 if rows.factors is None else rows.factors
    return float((deviations * factors / allowed).max(initial=0.0))


def worst_deviation(table: TableQuery, form: Form) -> float | None:
    """The largest standard deviation of a row; None if it depends on the data, and nothing is expected of these."""
    rows = error_rows(table)
    return None if rows is None else worst_part(rows, form)


def aims(table: TableQuery, rows: ErrorRows | None) -> Iterator[tuple[Workload, float]]:
    """The queries that a table with a margin asks about, each with the margin it may have at most.

    Counts and sums may have that of the table, or less if a row adds up several. A mean of margin m has at most that if
    each of the p kinds of queries in it adds at most m²/p to its variance, as far as they are independent: the plan
    aims at that, and the budget is found by exact variances. `rows` are its `error_rows`.
    """
    if table.linear:
        if table.target is not None:
            yield table.workload, table.target
        return
    if rows is None or rows.combine is None or rows.factors is None or table.margin is None:
        return
    squares = sp.csc_array(sp.diags_array(rows.factors**2) @ rows.combine.multiply(rows.combine))
    starts = np.cumsum([0, *(product.queries for product in table.workload.products)]).tolist()
    spreads = [
        math.sqrt(float(np.asarray(squares[:, start:end].sum(axis=1)).max(initial=0.0)))
        for start, end in pairwise(starts)
    ]
    used = sum(spread > 0 for spread in spreads)
    for product, spread in zip(table.workload.products, spreads, strict=True):
        if spread > 0:
            yield Workload(table.workload.domain, (product,)), table.margin / (spread * math.sqrt(used))


def _combination(table: TableQuery) -> tuple[sp.csr_array, Array] | None:
    """The sums of queries whose errors, each times a factor, are those of the rows."""
    if table.expected is None or len(table.aggregates) != 1:
        return None
    match table.aggregates[0]:
        case Quotient() as ratio:
            return _of_ratio(table, ratio, table.expected)
        case Quantiles() as quantiles:
            return _of_quantiles(quantiles, table.expected)
        case _:
            return None


def _of_ratio(table: TableQuery, ratio: Quotient, expected: float) -> tuple[sp.csr_array, Array]:
    uniform = uniform_answers(table.workload)
    above, below = ratio.numerator @ uniform, ratio.denominator @ uniform
    shares = np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
    group = expected / np.where(shares > 0, shares, np.inf) if table.percent else np.full(len(above), expected)
    factors = np.divide(ratio.factor, group, out=np.zeros(len(above)), where=group > 0)
    return sp.csr_array(ratio.numerator - sp.diags_array(shares) @ ratio.denominator), factors


def _of_quantiles(asked: Quantiles, expected: float) -> tuple[sp.csr_array, Array] | None:
    n, prefixes = len(asked.low), sp.csr_array(asked.prefixes)
    middles = (asked.low + asked.high) / 2
    if n < 2 or not np.isfinite(middles).all():
        return None
    ends = np.arange(size(prefixes)[0] // n) * n
    rows = [prefixes[ends + min(math.ceil(q * n), n) - 1] - q * prefixes[ends + n - 1] for q in asked.q]
    combine = sp.csr_array(sp.vstack(rows, format="csr"))
    apart = (middles[-1] - middles[0]) / (n - 1)  # of two values
    return combine, np.full(size(combine)[0], apart * n / expected)
