"""The numbers of aggregates: estimates, standard deviations and intervals, from answers to queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from scipy.optimize import isotonic_regression

from hdmm.answers.answers import Answers
from hdmm.answers.combinations import sum_covariances
from hdmm.answers.margins import half_width, holding, interval
from hdmm.base.tolerances import SAME_COUNT
from hdmm.describe.table_query import Aggregate, Linear, Quantiles, Quotient
from hdmm.matrix import Array

RowNumbers: TypeAlias = tuple[Array, Array, Array, Array]
"""Estimate, standard deviation, lower and upper."""


def evaluated(aggregates: Sequence[Aggregate], answers: Answers, level: float) -> RowNumbers:
    """The numbers of all rows, aggregate by aggregate.

    Where a denominator may be 0 at this level, a quotient or quantile may not exist: its estimate is NaN, its standard
    deviation infinite, and its interval unbounded. An interval always holds its estimate.
    """
    found = [_numbers(each, answers, level) for each in aggregates]
    estimate, stddev, lower, upper = (np.concatenate(each) for each in zip(*found, strict=True))
    return estimate, stddev, *(holding((lower, upper), estimate, -math.inf) if answers.biased else (lower, upper))


def _numbers(aggregate: Aggregate, answers: Answers, level: float) -> RowNumbers:
    match aggregate:
        case Linear():
            estimate, centre, stddev = answers.sums(aggregate.combine)
            return estimate, stddev, *interval(centre, stddev, level, answers.noise)
        case Quotient():
            ratios = answers.ratios(aggregate.numerator, aggregate.denominator, aggregate.factor)
            lower, upper = ratios.interval(level)
            # A biased denominator may be 0 where the unbiased one is not.
            return _where(np.isfinite(lower) & np.isfinite(ratios.values), ratios.values, ratios.stddev, lower, upper)
        case Quantiles():
            return _quantiles(aggregate, answers, level)


def _where(exists: Array, estimate: Array, stddev: Array, lower: Array, upper: Array) -> RowNumbers:
    return (
        np.where(exists, estimate, np.nan),
        np.where(exists, stddev, np.inf),
        np.where(exists, lower, -np.inf),
        np.where(exists, upper, np.inf),
    )


def _quantiles(asked: Quantiles, answers: Answers, level: float) -> RowNumbers:
    """Woodruff's intervals: a value is possible if its prefix may reach q of the total, and that before it may not.

    Only two prefixes can go wrong, each on one side, so an interval has the level of the margins. For a larger q
    intervals are never lower: they are widened where they would be (docs/guide/measures.md).
    """
    cells = len(asked.low)
    estimate, centre, stddev = (each.reshape(-1, cells) for each in answers.sums(asked.prefixes))
    ends = np.repeat(np.arange(1, len(centre) + 1) * cells - 1, cells)
    with_total = sum_covariances(answers.workload, answers.form, asked.prefixes, asked.prefixes[ends])
    with_total = with_total.reshape(-1, cells)
    total, variance = centre[:, -1:], stddev[:, -1:] ** 2
    slack = SAME_COUNT * np.abs(centre).max(axis=1, keepdims=True, initial=1.0)
    order = np.argsort(asked.q, kind="stable")
    lower, upper = np.empty((len(order), len(centre))), np.empty((len(order), len(centre)))
    for i in order.tolist():
        q = asked.q[i]
        spread = np.sqrt(np.maximum(stddev**2 - 2 * q * with_total + q**2 * variance, 0.0))
        half = half_width(spread, level, answers.noise) + slack
        above = centre - q * total
        first = np.argmax(above + half >= 0, axis=1)
        last = (np.arange(1, cells) * (above - half < 0)[:, :-1]).max(axis=1, initial=0)
        lower[i], upper[i] = asked.low[first], asked.high[np.maximum(first, last)]
    lower[order] = np.minimum.accumulate(lower[order][::-1])[::-1]
    upper[order] = np.maximum.accumulate(upper[order])
    point = np.clip(_points(asked, estimate), lower, upper)
    least = half_width(np.sqrt(variance[:, 0]), level, answers.noise)
    nothing = answers.nothing(asked.prefixes[np.arange(1, len(centre) + 1) * cells - 1])
    exists = np.tile(total[:, 0] > np.maximum(least, nothing), len(order))
    width = (upper - lower).ravel() / (2 * half_width(1.0, level, answers.noise))
    return _where(exists, point.ravel(), width, lower.ravel(), upper.ravel())


def _points(asked: Quantiles, prefixes: Array) -> Array:
    """The quantiles (q × groups) of the nearest counts that never decrease; within a bin, in proportion."""
    found = np.empty((len(asked.q), len(prefixes)))
    for g, row in enumerate(prefixes):
        rising = np.concatenate([[0.0], isotonic_regression(row).x])
        wanted = np.asarray(asked.q) * rising[-1]
        at = np.minimum(np.searchsorted(rising[1:], wanted - SAME_COUNT * abs(rising[-1])), len(asked.low) - 1)
        inside = rising[at + 1] - rising[at]
        share = np.divide(wanted - rising[at], inside, out=np.zeros(len(at)), where=inside > 0)
        found[:, g] = asked.low[at] + np.clip(share, 0, 1) * (asked.high[at] - asked.low[at])
    return found
