"""How wide an interval is: estimate ± z·stddev.

Under Gaussian noise z is the normal quantile. Under Laplace noise the error of an answer is a weighted sum of
independent Laplace variables, which ranges from a single one to nearly a normal variable; z is the largest of three
quantiles at that level: of one Laplace variable, of the sum of two equal ones, and of a normal one. No weights are
known for which the interval covers less (docs/guide/accuracy.md). The noise is discrete, with a standard
deviation of at least 64 steps (Gaussian) or 90 (Laplace), and z is larger by one such step, so a single count is
covered with at least its level (security O5).

A Reliability grades a count by its margin alone, which is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar, final

import numpy as np
from scipy.special import lambertw, ndtri

from hdmm.base.exceptions import WorkloadError
from hdmm.base.numbers import percent
from hdmm.matrix import Array
from hdmm.privacy.guarantee import Noise
from hdmm.strategy.lattice import LEAST_SCALE

GOOD, FAIR = 0.1, 0.3  # the margin as a fraction of the estimate
GRADES: Final = ("good", "fair", "rough", "may be 0", "noise only", "suppressed", "unknown", "impossible")
"""All words that say how reliable a number is, the best first."""

OBS_STATUS: Final = {"good": "A", "fair": "A", "impossible": "A", "suppressed": "Q", "unknown": "O"}
"""The codes of SDMX for the status of an observation, by grade: normal, suppressed, missing; others are U, of low
reliability."""

_FIRST = ("impossible", "suppressed", "unknown", "noise only")  # before a margin is judged
_Deviation = TypeVar("_Deviation", float, Array)


def half_width(stddev: _Deviation, level: float, noise: Noise) -> _Deviation:
    """How far an interval of this level extends to either side of its centre: z·stddev, a step of the noise included.

    >>> half_width(1.0, 0.95, Noise.GAUSSIAN), half_width(1.0, 0.95, Noise.LAPLACE), half_width(2.0, 0.9, Noise.LAPLACE)
    (1.97558898..., 2.12935126..., 3.31180456...)
    """
    if not 0 < level < 1:
        raise WorkloadError(f"A confidence level of {level!r} is not between 0 and 1. Use for example 0.95.")
    return (_quantile(level, noise) + _largest_step(noise)) * stddev


def interval(centre: Array, stddev: Array, level: float, noise: Noise) -> tuple[Array, Array]:
    """(lower, upper): the truth lies between them with at least probability `level`, if `centre` is unbiased."""
    half = half_width(stddev, level, noise)
    return centre - half, centre + half


def holding(bounds: tuple[Array, Array], estimate: Array, least: Array | float) -> tuple[Array, Array]:
    """An interval cut at `least`, below which no truth lies, then widened to hold a biased estimate: it covers no less.

    >>> holding((np.array([-3.0, 5.0]), np.array([-1.0, 9.0])), np.array([0.0, 4.0]), 0.0)
    (array([0., 4.]), array([0., 9.]))
    """
    lower, upper = (np.maximum(bound, least) for bound in bounds)
    return np.fmin(lower, estimate), np.fmax(upper, estimate)


@final
@dataclass(frozen=True, slots=True)
class Reliability:
    """A rule. A count is reliable if its margin is at most `fair` of the estimate.

    It is `written` as two columns of a table's files if asked for. Counts whose margin is above `suppress` of the
    estimate are left blank; None leaves none.

    >>> rule = Reliability(fair=0.3, suppress=1.0)
    >>> estimate, margin = np.array([100.0, 100.0, 100.0, 0.0]), np.array([5.0, 40.0, 130.0, 0.0])
    >>> rule.reliable(estimate, margin), rule.suppressed(estimate, margin)
    (array([ True, False, False,  True]), array([False, False,  True, False]))
    >>> nowhere, blank = np.zeros(4, dtype=bool), rule.suppressed(estimate, margin)
    >>> rule.notes(estimate, margin, nowhere, suppressed=blank, binned=nowhere, impossible=nowhere)
    ['good', 'rough', 'suppressed', 'good']
    """

    fair: float = FAIR
    suppress: float | None = None
    written: bool = False
    sdmx: bool = False  # whether files have the status of each number in the codes of SDMX

    def reliable(self, estimate: Array, margin: Array) -> Array:
        """Whether each count is reliable."""
        return margin <= self.fair * np.abs(estimate)

    def suppressed(self, estimate: Array, margin: Array) -> Array:
        """Whether each count is left blank."""
        if self.suppress is None:
            return np.zeros(len(estimate), dtype=bool)
        return margin > self.suppress * np.abs(estimate)

    def notes(
        self,
        estimate: Array,
        margin: Array,
        may_be_zero: Array,
        *,
        suppressed: Array,
        binned: Array,
        impossible: Array,
    ) -> list[str]:
        """How reliable each count is, in words; a number that may not exist is NaN.

        The margin of a sum or mean over bins is of the noise alone, so that it says nothing about the number.
        """
        conditions = [
            impossible,
            suppressed,
            np.isnan(estimate),
            binned,
            may_be_zero,
            margin <= min(GOOD, self.fair) * np.abs(estimate),
            self.reliable(estimate, margin),
        ]
        return np.select(conditions, [*_FIRST, "may be 0", "good", "fair"], "rough").tolist()

    @property
    def meanings(self) -> dict[str, str]:
        """What each of GRADES means.

        >>> Reliability(fair=0.3).meanings["fair"]
        'the margin is at most 30\xa0% of the estimate'
        """
        at_most, more = "the margin is at most {} of the estimate", "the margin is more than {} of the estimate"
        hidden = "the margin is too large" if self.suppress is None else more.format(percent(self.suppress))
        return {
            "good": at_most.format(percent(min(GOOD, self.fair))),
            "fair": at_most.format(percent(self.fair)),
            "rough": "it is more than that",
            "may be 0": "the interval includes 0",
            "noise only": "a sum or mean of values that are known only by their bin: the margin covers the noise, not "
            "where in their bins the values lie, and the number has no grade",
            "suppressed": f"{hidden}, and the number is not shown",
            "unknown": "the group may be empty, so that its mean, percentage or quantile may not exist",
            "impossible": "no record can be counted here, which is public: 0, without noise",
        }

    def explained(self, found: Iterable[str]) -> list[tuple[str, str]]:
        """The grades that a reader needs, with their meanings: those of margins, and others that were found.

        >>> [word for word, _ in PLAIN.explained(["good", "unknown"])]
        ['good', 'fair', 'rough', 'may be 0', 'unknown']
        """
        words = {*GRADES[:4], *found, *(["suppressed"] if self.suppress is not None else [])}
        return [(word, meaning) for word, meaning in self.meanings.items() if word in words]


PLAIN = Reliability()


def _quantile(level: float, noise: Noise) -> float:
    """z for continuous noise."""
    normal = float(ndtri((1 + level) / 2))
    if noise is Noise.GAUSSIAN:
        return normal
    one = -math.log(1 - level) / math.sqrt(2)
    two = -1 - float(lambertw(-2 * (1 - level) * math.exp(-2), -1).real) / 2  # (1 + z)e^(−2z) = 1 − level
    return max(normal, one, two)


def _largest_step(noise: Noise) -> float:
    """One step of the lattice, in standard deviations of the smallest noise.

    Half a step would be enough for a single count: with k = ⌊half-width⌋ + 1 steps, P(|N| ≥ k) is at most what
    continuous noise has beyond k − ½. Gaussian noise N = round(σZ) has exactly that, and for Laplace noise, 2qᵏ/(1 + q)
    ≤ q^(k−½), because 2√q ≤ 1 + q. The other half step outweighs that the deviation of Laplace noise is below √2·s by
    about one part in 24s², and that rounding, which adds 1/12 to σ², is left out of the deviation of Gaussian noise.
    """
    return 1 / LEAST_SCALE if noise is Noise.GAUSSIAN else math.sqrt(2) * math.sinh(1 / (2 * LEAST_SCALE))
