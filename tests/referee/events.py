"""Events that tell two tables apart, learned from samples of outputs alone: nothing here knows the mechanism.

A sample is an array with one output per row. The features of an output are its numbers and the differences of any two.
A family of events is the level sets of one number per output, its score; how a score is learned is what differs:

- `histogram_scores`: the outputs are put into bins by one feature, and a bin's score is how much more often the first
  table fell into it than the second (the histogram testers of DP-Auditorium: Kong, Muñoz Medina, Ribero, Syed 2023).
- `classifier_scores`: a classifier trained to tell the two tables apart, as DP-Auditorium's hockey-stick tester and
  Delta-Siege do. Two are offered: a linear discriminant, and the sum of the histograms of all numbers of an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tests.referee.claims import Floats

Score = Callable[[Floats], Floats]

MOST_BINS = 64
LEAST_IN_BIN = 12  # outputs of each table, about
THRESHOLDS = 256


@dataclass(frozen=True, slots=True)
class Event:
    """{score ≥ threshold}, and which table it is more probable on."""

    score: Score
    threshold: float
    swapped: bool
    words: str

    def seen(self, outputs: Floats) -> NDArray[np.bool]:
        """Which outputs are in the event."""
        return self.score(outputs) >= self.threshold


@dataclass(frozen=True, slots=True)
class Feature:
    """One number of an output, or the difference of two."""

    first: int
    second: int | None = None

    def of(self, outputs: Floats) -> Floats:
        column = outputs[:, self.first]
        return column if self.second is None else column - outputs[:, self.second]


@dataclass(frozen=True, slots=True)
class Histogram:
    """The logarithm of how much more often the first table falls into each bin of a feature."""

    feature: Feature
    edges: Floats
    ratios: Floats

    @classmethod
    def of(cls, feature: Feature, first: Floats, second: Floats) -> Histogram:
        """Bins of equal weight in both samples together; each count is raised by 1, so that none is 0."""
        a, b = feature.of(first), feature.of(second)
        both = np.concatenate([a, b])
        bins = min(MOST_BINS, max(2, len(both) // (2 * LEAST_IN_BIN)))
        edges = np.unique(np.quantile(both, np.linspace(0, 1, bins + 1)[1:-1], method="higher"))
        counts = [np.bincount(np.searchsorted(edges, x, "right"), minlength=len(edges) + 1) + 1 for x in (a, b)]
        return cls(feature, edges, np.log(counts[0] / counts[1]) - np.log(len(a) / len(b)))

    def __call__(self, outputs: Floats) -> Floats:
        return self.ratios[np.searchsorted(self.edges, self.feature.of(outputs), "right")]


@dataclass(frozen=True, slots=True)
class Summed:
    """The sum of histograms: the logarithm of the likelihood ratio, if the numbers of an output are independent."""

    histograms: tuple[Histogram, ...]

    def __call__(self, outputs: Floats) -> Floats:
        return np.sum([histogram(outputs) for histogram in self.histograms], axis=0)


@dataclass(frozen=True, slots=True)
class Discriminant:
    """Fisher's linear discriminant, (Σ + λ·diag Σ)⁻¹(m₁ − m₂): the best classifier of Gaussian outputs.

    λ is tiny. A direction in which the outputs have no spread, as that of two numbers with one draw of noise, gets a
    huge weight, as it should.
    """

    weights: Floats

    @classmethod
    def of(cls, first: Floats, second: Floats) -> Discriminant:
        gap = first.mean(axis=0) - second.mean(axis=0)
        spread = np.cov(first - first.mean(axis=0), rowvar=False) + np.cov(second - second.mean(axis=0), rowvar=False)
        spread = np.atleast_2d(spread)
        return cls(np.linalg.solve(spread + np.diag(1e-9 * np.diag(spread) + 1e-12), gap))

    def __call__(self, outputs: Floats) -> Floats:
        return outputs @ self.weights


def histogram_scores(first: Floats, second: Floats) -> Iterator[tuple[str, Score]]:
    """A histogram for each number of an output, and for the difference of every two."""
    numbers = range(first.shape[1])
    for i in numbers:
        yield f"number {i}", Histogram.of(Feature(i), first, second)
    for i, j in combinations(numbers, 2):
        yield f"numbers {i} and {j}", Histogram.of(Feature(i, j), first, second)


def classifier_scores(first: Floats, second: Floats) -> Iterator[tuple[str, Score]]:
    """The two classifiers."""
    yield "a linear discriminant", Discriminant.of(first, second)
    numbers = range(first.shape[1])
    yield "the sum of histograms", Summed(tuple(Histogram.of(Feature(i), first, second) for i in numbers))


@dataclass(frozen=True, slots=True)
class Family:
    """The level sets of one score, and how often each was seen: on the table it favours, and on the other."""

    score: Score
    thresholds: Floats
    favoured: Floats
    other: Floats
    swapped: bool
    words: str

    def event(self, i: int) -> Event:
        """One of them."""
        return Event(self.score, float(self.thresholds[i]), self.swapped, self.words)


def families(scores: Iterator[tuple[str, Score]], first: Floats, second: Floats) -> Iterator[Family]:
    """{score ≥ t}, which favours the first table, and {−score ≥ t}, which favours the second, for many t.

    A threshold lies between two values that were seen, so that rounding does not decide who is in the event.
    """
    for words, score in scores:
        for swapped, signed in ((False, score), (True, _negated(score))):
            on, off = (second, first) if swapped else (first, second)
            above, below = np.sort(signed(on)), np.sort(signed(off))
            values = np.unique(
                np.quantile(np.concatenate([above, below]), np.linspace(0, 1, THRESHOLDS), method="lower")
            )
            thresholds = (values[1:] + values[:-1]) / 2
            seen = [len(x) - np.searchsorted(x, thresholds, "left").astype(np.float64) for x in (above, below)]
            yield Family(signed, thresholds, *seen, swapped, words)


def _negated(score: Score) -> Score:
    return lambda outputs: -score(outputs)
