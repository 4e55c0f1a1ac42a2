"""Combinations of answers: sums of queries with exact variances, differences, and ratios with intervals that cover.

Fieller's interval: r = N/D is the number for which N − r·D is 0. That is a linear query, whose variance follows exactly
from the covariance of N and D, so the interval is made of all r for which the interval of N − r·D holds 0. It covers
as often as the interval of one query does, whatever N and D are (docs/guide/measures.md). If D may be 0 at that level,
no ratio can be excluded, and the interval is unbounded.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.answers.margins import half_width, interval
from hdmm.base.numbers import LEVEL
from hdmm.base.tolerances import NO_VARIANCE
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.privacy.guarantee import Noise
from hdmm.strategy.form import Form


def sum_variances(workload: Workload, form: Form, combine: sp.csr_array) -> Array:
    """The variance of each row at unit noise: row i is Σ combine[i, j]·query j, without weights.

    Σ cov(j, l) over the pairs of queries of a row. O(pairs × cells of the form).

    >>> from hdmm import Domain
    >>> from hdmm.baselines import identity
    >>> w = Workload.marginals(Domain({"age": 3}), k=range(2))
    >>> sum_variances(w, identity(w).form, sp.csr_array([[0, 1, 1, 0], [1, 1, 0, 0]]))  # two cells; one of them twice
    array([2., 6.])
    """
    return np.maximum(sum_covariances(workload, form, combine, combine), 0.0)


def sum_covariances(workload: Workload, form: Form, combine: sp.csr_array, other: sp.csr_array) -> Array:
    """The covariance at unit noise of each row of one matrix with the same row of another; see `sum_variances`.

    >>> from hdmm import Domain
    >>> from hdmm.baselines import identity
    >>> w = Workload.marginals(Domain({"age": 3}), k=range(2))
    >>> sum_covariances(w, identity(w).form, sp.csr_array([[1, 0, 0, 0]]), sp.csr_array([[0, 2, 0, 0]]))
    array([2.])
    """
    products = workload.products
    starts = np.cumsum([0, *(product.queries for product in products[:-1])])
    rows, first, second = _pairs(combine, other)
    a, b = np.asarray(combine.indices)[first], np.asarray(other.indices)[second]
    of, to = (np.searchsorted(starts, queries, side="right") - 1 for queries in (a, b))
    found = np.empty(len(rows))
    for i, j in set(zip(of.tolist(), to.tolist(), strict=True)):
        here = np.flatnonzero((of == i) & (to == j))
        found[here] = form.covariances(products[i], a[here] - starts[i], products[j], b[here] - starts[j])
    terms = np.asarray(combine.data)[first] * np.asarray(other.data)[second] * found
    count = len(np.asarray(combine.indptr)) - 1
    total, size = (np.bincount(rows, weights=each, minlength=count) for each in (terms, np.abs(terms)))
    return np.where(np.abs(total) > NO_VARIANCE * size, total, 0.0)  # a sum that is known has no variance


def uniform_answers(workload: Workload) -> Array:
    """The answers to all queries, without weights, if every cell holds the same part of one row.

    >>> from hdmm import Domain
    >>> uniform_answers(Workload.marginals(Domain({"age": 4, "sex": ["M", "F"]}), k=[0, 1])).round(2)
    array([1.  , 0.25, 0.25, 0.25, 0.25, 0.5 , 0.5 ])
    """
    found: list[Array] = []
    for product in workload.products:
        each = [p.matrix(n := product.cells(axes)).matmat(np.full((n, 1), 1 / n))[:, 0] for axes, p in product.sets]
        found.append(functools.reduce(np.kron, each, np.ones(1)))
    return np.concatenate(found)


def _pairs(combine: sp.csr_array, other: sp.csr_array) -> tuple[Array, Array, Array]:
    """(row, place, place) for every entry of a row with every entry of the same row of the other matrix."""
    starts, others = np.asarray(combine.indptr, np.int64), np.asarray(other.indptr, np.int64)
    lengths = np.diff(others)
    counts = np.diff(starts) * lengths
    rows = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, starts[rows] + within // lengths[rows], others[rows] + within % lengths[rows]


@final
@dataclass(frozen=True, eq=False)
class LinearEstimates:
    """Estimates that are linear in the measurements: `values` and their standard deviations."""

    values: Array
    centre: Array  # the unbiased estimates, as in Answers
    stddev: Array
    noise: Noise

    def interval(self, level: float = LEVEL) -> tuple[Array, Array]:
        """(lower, upper): the truth lies between them with at least this probability."""
        return interval(self.centre, self.stddev, level, self.noise)


@final
@dataclass(frozen=True, eq=False)
class Ratios:
    """Quotients of two linear estimates each, times `factor`; `covariance` is that of numerator and denominator.

    `stddev` is that of N − r·D over |D|, which is first-order only. The interval is not. A denominator of at most
    `nothing` is 0 but for rounding, as that of a group that is known to be empty.

    >>> one = np.array([1.0])
    >>> part, whole = (LinearEstimates(v * one, v * one, one, Noise.GAUSSIAN) for v in (30.0, 100.0))
    >>> share = Ratios(part, whole, 0.5 * one)
    >>> share.values, share.stddev.round(4), [end.round(4) for end in share.interval(0.95)]
    (array([0.3]), array([0.0089]), [array([0.2824]), array([0.3175])])
    """

    numerator: LinearEstimates
    denominator: LinearEstimates
    covariance: Array
    factor: float = 1.0
    nothing: Array | float = 0.0

    @cached_property
    def values(self) -> Array:
        """The ratios; NaN where the estimated denominator is 0."""
        return self.factor * _divided(self.numerator.values, self._cut(self.denominator.values))

    @cached_property
    def stddev(self) -> Array:
        """The standard deviation of each ratio, to first order; infinite where the estimated denominator is 0."""
        spread = _divided(np.sqrt(self._spread), self._cut(self.denominator.centre) ** 2)
        return np.where(np.isnan(spread), np.inf, self.factor * spread)

    def interval(self, level: float = LEVEL) -> tuple[Array, Array]:
        """(lower, upper) by Fieller: −∞ and ∞ where the denominator may be 0 at this level."""
        q = half_width(1.0, level, self.numerator.noise)
        N, D, v, w, c = self._moments
        bounded = q**2 * w < D**2
        scale = np.where(bounded, D**2 - q**2 * w, 1.0)
        middle = (N * D - q**2 * c) / scale
        # (N·D − q²c)² − (D² − q²w)(N² − q²v), written so that nothing cancels
        half = q * np.sqrt(np.maximum(self._spread - q**2 * np.maximum(v * w - c**2, 0.0), 0.0)) / scale
        point = _divided(N, np.where(bounded, D, 1.0))  # inside but for rounding
        lower, upper = np.minimum(middle - half, point), np.maximum(middle + half, point)
        return np.where(bounded, self.factor * lower, -np.inf), np.where(bounded, self.factor * upper, np.inf)

    @property
    def _moments(self) -> tuple[Array, Array, Array, Array, Array]:
        one, two = self.numerator, self.denominator
        return one.centre, self._cut(two.centre), one.stddev**2, two.stddev**2, self.covariance

    def _cut(self, denominator: Array) -> Array:
        return np.where(np.abs(denominator) > self.nothing, denominator, 0.0)

    @property
    def _spread(self) -> Array:
        """D²·var(N − r·D) at the estimated r."""
        N, D, v, w, c = self._moments
        return np.maximum(v * D**2 - 2 * c * N * D + w * N**2, 0.0)


def _divided(numerator: Array, denominator: Array) -> Array:
    return np.divide(numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=denominator != 0)
