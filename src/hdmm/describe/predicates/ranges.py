"""Predicate sets with structure: single values, the total, and ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import final

import numpy as np

from hdmm.base.exceptions import WorkloadError
from hdmm.base.frozen import assign
from hdmm.describe.attribute import Attribute
from hdmm.describe.predicates.predicate_set import PredicateSet, not_empty, position
from hdmm.matrix import AllIntervals, Cumulative, Eye, Intervals, Matrix, Ones

_MOST_RANGES = 2**26  # of Width, which holds both ends of every range: 1 GiB


@final
@dataclass(frozen=True, slots=True)
class Identity(PredicateSet):
    """One predicate per value: I.

    >>> Identity().matrix(3).shape
    (3, 3)
    """

    def count(self, n: int) -> int:
        return n

    def build(self, n: int) -> Matrix:
        return Eye(n)

    def labels(self, attribute: Attribute) -> list[str]:
        return [str(label) for label in attribute.labels]

    def places(self, n: int) -> Iterable[tuple[int, int]]:
        return _single(n)


@final
@dataclass(frozen=True, slots=True)
class Total(PredicateSet):
    """The one predicate that is always true: T.

    >>> Total().matrix(3).shape
    (1, 3)
    """

    def count(self, n: int) -> int:
        return 1

    def build(self, n: int) -> Matrix:
        return Ones(1, n)

    def labels(self, attribute: Attribute) -> list[str]:
        return ["total"]


@final
@dataclass(frozen=True, slots=True)
class Prefix(PredicateSet):
    """`value ≤ v` for every v, the cumulative distribution: P.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Prefix().matrix(3))
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """

    def count(self, n: int) -> int:
        return n

    def build(self, n: int) -> Matrix:
        return Cumulative(n)

    def labels(self, attribute: Attribute) -> list[str]:
        return [f"≤ {label}" for label in attribute.labels]

    def places(self, n: int) -> Iterable[tuple[int, int]]:
        return _single(n)


@final
@dataclass(frozen=True, slots=True)
class AllRange(PredicateSet):
    """Every range lo ≤ value ≤ hi, in order of (lo, hi): R, n(n+1)/2 predicates.

    >>> AllRange().count(1024)
    524800
    """

    def count(self, n: int) -> int:
        return n * (n + 1) // 2

    def build(self, n: int) -> Matrix:
        return AllIntervals(n)

    def labels(self, attribute: Attribute) -> list[str]:
        return _range_labels(attribute, self.places(attribute.size))

    def places(self, n: int) -> Iterable[tuple[int, int]]:
        return combinations_with_replacement(range(n), 2)


@final
@dataclass(frozen=True, slots=True)
class Ranges(PredicateSet):
    """The listed inclusive ranges [lo, hi] of positions.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Ranges([(0, 1), (2, 2)]).matrix(3))
    array([[1., 1., 0.],
           [0., 0., 1.]])
    """

    bounds: tuple[tuple[int, int], ...]

    def __init__(self, bounds: Iterable[tuple[int, int]]) -> None:
        pairs = tuple((position(lo), position(hi)) for lo, hi in bounds)
        for lo, hi in pairs:
            if not 0 <= lo <= hi:
                raise WorkloadError(
                    f"Range [{lo}, {hi}] is not a range of positions. Write inclusive pairs with 0 <= lo <= hi."
                )
        assign(self, bounds=not_empty(pairs, "Ranges"))

    def count(self, n: int) -> int:
        return len(self.bounds)

    def build(self, n: int) -> Matrix:
        for lo, hi in self.bounds:
            if hi >= n:
                raise WorkloadError(f"the range [{lo}, {hi}] ends past the last of {n} values. Use hi <= {n - 1}.")
        lo, hi = np.array(self.bounds, dtype=np.int64).T
        return Intervals(n, lo, hi)

    def labels(self, attribute: Attribute) -> list[str]:
        return _range_labels(attribute, self.bounds)

    def places(self, n: int) -> Iterable[tuple[int, int]]:
        return self.bounds


@final
@dataclass(frozen=True, slots=True)
class Width(PredicateSet):
    """Every range of exactly `width` contiguous values: n − width + 1 predicates.

    >>> Width(32).count(1024)
    993
    """

    width: int

    def __post_init__(self) -> None:
        if position(self.width) < 1:
            raise WorkloadError(f"Ranges of width {self.width} hold no values. Use a width of at least 1.")

    def count(self, n: int) -> int:
        return n - self.width + 1

    def build(self, n: int) -> Matrix:
        if self.width > n:
            raise WorkloadError(f"ranges of width {self.width} do not fit {n} values. Use a width <= {n}.")
        if self.count(n) > _MOST_RANGES:
            raise WorkloadError(
                f"there are {self.count(n):,} ranges of width {self.width}, but at most {_MOST_RANGES:,} can be "
                "listed. Use coarser bins, or AllRange(), which is implicit."
            )
        lo = np.arange(n - self.width + 1)
        return Intervals(n, lo, lo + self.width - 1)

    def labels(self, attribute: Attribute) -> list[str]:
        return _range_labels(attribute, self.places(attribute.size))

    def places(self, n: int) -> Iterable[tuple[int, int]]:
        return ((lo, lo + self.width - 1) for lo in range(self.count(n)))


def _single(n: int) -> Iterable[tuple[int, int]]:
    return ((k, k) for k in range(n))


def _range_labels(attribute: Attribute, bounds: Iterable[tuple[int, int]]) -> list[str]:
    names = Identity().labels(attribute)
    return [names[lo] if lo == hi else f"{names[lo]} – {names[hi]}" for lo, hi in bounds]
