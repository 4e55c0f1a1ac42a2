"""SparseCounts: the counts of more cells than fit in memory, of which few hold any row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np

from hdmm.data.counts import Counts


@final
@dataclass(frozen=True, slots=True, eq=False)
class SparseCounts:
    """The numbers of the cells that hold rows, ascending, and how many rows each holds."""

    cells: Counts = field(repr=False)
    rows: Counts = field(repr=False)

    @classmethod
    def of(cls, parts: Iterable[tuple[Counts, Counts]], rows_bound: int) -> Self:
        """The sum of parts, each of cells in any order and the rows of each. O(rows·log(parts)) time, O(cells) memory.

        Two sums are added up once the later one has as many cells, so that each cell is moved few times.

        >>> found = SparseCounts.of([(np.array([7, 2, 7]), np.array([1, 1, 1])), (np.array([2]), np.array([4]))], 100)
        >>> found.between(0, 4), found.between(4, 8)
        (array([0, 0, 5, 0]), array([0, 0, 0, 2]))
        """
        sums: list[tuple[Counts, Counts]] = []
        for part in parts:
            sums.append(_summed([part]))
            while len(sums) > 1 and len(sums[-1][0]) >= len(sums[-2][0]):
                sums[-2:] = [_summed(sums[-2:])]
        cells, rows = sums[0] if len(sums) == 1 else _summed(sums)
        return cls(cells, np.minimum(rows, rows_bound))

    def between(self, start: int, stop: int) -> Counts:
        """The counts of the cells from start to stop, those without rows among them."""
        found = np.zeros(stop - start, dtype=np.int64)
        here = slice(*np.searchsorted(self.cells, [start, stop]).tolist())
        found[self.cells[here] - start] = self.rows[here]
        return found


def _summed(parts: list[tuple[Counts, Counts]]) -> tuple[Counts, Counts]:
    """The distinct cells of all parts, ascending, and the rows of each."""
    cells = np.concatenate([np.empty(0, dtype=np.int64), *(cells for cells, _ in parts)])
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(rows for _, rows in parts)])
    order = np.argsort(cells, kind="stable" if len(parts) > 1 else None)  # stable is fast on two that are sorted
    cells, rows = cells[order], rows[order]
    new = np.ones(len(cells), dtype=bool)
    np.not_equal(cells[1:], cells[:-1], out=new[1:])
    first = np.flatnonzero(new)
    return cells[first], np.add.reduceat(rows, first) if len(first) else rows
