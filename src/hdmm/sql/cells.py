"""Cells: a set of cells of one attribute, stored as runs of neighbours, so that a million cells cost as much as one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeAlias, final

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.predicates import Identity, PredicateSet, Ranges, Sets, Total

Run: TypeAlias = tuple[int, int]

MOST_LISTED = 2**22  # cells, runs or groups that are listed one by one


@final
@dataclass(frozen=True, slots=True)
class Cells:
    """A subset of the n cells of an attribute: disjoint inclusive runs in order, and no two are adjacent.

    >>> Cells.of(10, [(5, 7), (0, 2), (3, 3)])
    Cells(n=10, runs=((0, 3), (5, 7)))
    >>> ~Cells.of(10, [(0, 3)]) & Cells.of(10, [(2, 6)])
    Cells(n=10, runs=((4, 6),))
    """

    n: int
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, n: int, runs: Iterable[Run]) -> Cells:
        """The union of r runs in any order, which may overlap; runs with lo > hi are empty. O(r log r)."""
        kept = [run for run in runs if run[0] <= run[1]]
        if len(kept) < 2:
            return cls(n, tuple(kept))
        joined: list[Run] = []
        for lo, hi in sorted(kept):
            if joined and lo <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], hi))
            else:
                joined.append((lo, hi))
        return cls(n, tuple(joined))

    @classmethod
    def span(cls, n: int, start: int, stop: int) -> Cells:
        """The cells from start to stop, without stop itself."""
        return cls.of(n, [(start, stop - 1)])

    @property
    def full(self) -> bool:
        """Whether every cell is in the set."""
        return self.runs == ((0, self.n - 1),)

    @property
    def count(self) -> int:
        """The number of cells in the set."""
        return sum(hi - lo + 1 for lo, hi in self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(lo, hi + 1) for lo, hi in self.runs)

    def __contains__(self, cell: int) -> bool:
        at = bisect_right(self.runs, (cell, self.n)) - 1
        return at >= 0 and cell <= self.runs[at][1]

    def __invert__(self) -> Cells:
        ends = [-1, *chain.from_iterable(self.runs), self.n]
        gaps = ((ends[i] + 1, ends[i + 1] - 1) for i in range(0, len(ends), 2))
        return Cells(self.n, tuple(gap for gap in gaps if gap[0] <= gap[1]))

    def __or__(self, other: Cells) -> Cells:
        return Cells.of(self.n, self.runs + other.runs)

    def __and__(self, other: Cells) -> Cells:
        """The intersection. O(r + s): the two lists of runs are traversed together."""
        found: list[Run] = []
        i = j = 0
        while i < len(self.runs) and j < len(other.runs):
            (a, b), (c, d) = self.runs[i], other.runs[j]
            if max(a, c) <= min(b, d):
                found.append((max(a, c), min(b, d)))
            i, j = (i + 1, j) if b < d else (i, j + 1)
        return Cells(self.n, tuple(found))


def intersection(sets: list[Cells]) -> Cells:
    """The cells that are in all sets; runs are sorted once, so that r runs in total take O(r log r).

    >>> list(intersection([Cells.span(9, 2, 7), Cells.span(9, 4, 9), Cells.span(9, 0, 6)]))
    [4, 5]
    """
    return sets[0] if len(sets) == 1 else ~Cells.of(sets[0].n, chain.from_iterable((~cells).runs for cells in sets))


def predicates(groups: list[Cells], n: int) -> PredicateSet:
    """One predicate per set of cells, in the simplest form possible: Identity, Total, Ranges or Sets.

    >>> predicates([Cells(3, ((0, 0),)), Cells(3, ((1, 2),))], 3)
    Ranges(bounds=((0, 0), (1, 2)))
    """
    if len(groups) == 1 and groups[0].full:
        return Total()
    if len(groups) == n and all(cells.runs == ((i, i),) for i, cells in enumerate(groups)):
        return Identity()
    if all(len(cells.runs) == 1 for cells in groups):
        return Ranges(cells.runs[0] for cells in groups)
    listed = sum(cells.count for cells in groups)
    if listed > MOST_LISTED:
        raise WorkloadError(
            f"Sets that are not ranges have {listed:,} cells in total; the limit is {MOST_LISTED:,}. "
            "Use ranges, or coarser bins."
        )
    return Sets(groups)


def partition(sets: Iterable[Cells], n: int) -> list[Cells]:
    """The classes of cells that no set distinguishes, in the order of their first cells.

    Cells between two neighbouring ends of runs are in the same class: O(e·s) for e ends in s sets.

    >>> [list(c) for c in partition([Cells(6, ((0, 1), (4, 5))), Cells(6, ((4, 4),))], 6)]
    [[0, 1, 5], [2, 3], [4]]
    """
    held = list(sets)
    ends = sorted({0, n} | {end for cells in held for lo, hi in cells.runs for end in (lo, hi + 1)})
    classes: dict[tuple[bool, ...], list[Run]] = {}
    for start, stop in pairwise(ends):
        classes.setdefault(tuple(start in cells for cells in held), []).append((start, stop - 1))
    return [Cells.of(n, runs) for runs in classes.values()]
