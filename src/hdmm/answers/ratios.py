"""Ratios and differences of estimates, with intervals that cover with at least their level.

Fieller's interval: r = N/D is the number for which N − r·D is 0. That is a linear query, whose variance follows exactly
from the covariance of N and D, so the interval is made of all r for which the interval of N − r·D holds 0. It covers
as often as the interval of one query does, whatever N and D are (docs/guide/measures.md). If D may be 0 at that level,
no ratio can be excluded, and the interval is unbounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from hdmm.answers.margins import half_width, interval
from hdmm.base.numbers import LEVEL
from hdmm.matrix import Array
from hdmm.privacy.guarantee import Noise


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
    >>> share.values, share.stddev.round(4), [end.round(4) for end in share.interval()]
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
