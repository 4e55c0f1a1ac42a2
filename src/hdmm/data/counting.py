"""Marginals of coded rows: many marginals share a pass, and neighbouring ones share a count that is summed down."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from hdmm.base.exceptions import DataError
from hdmm.data.counts import Axes, Counts, cells, grain
from hdmm.describe.amount import Amount
from hdmm.describe.domain import Domain

_Index: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Slab: TypeAlias = dict[int, _Index]  # the codes of some rows, by axis

_JOINED_CELLS = 2**16  # a count this small is summed down faster than rows are counted again
_FEW_AXES = 16  # of a count that is summed by einsum, which takes up to 52
_ROWS_OF_A_SLAB = 2**21  # rows counted together: their indices take 16 MiB per attribute
_GROUPED_CELLS = 2**20  # of a grouping that a database counts for several marginals
_MOST_GROUPINGS = 16  # a database reads its rows once per grouping
_KEPT_BYTES = 2**30  # codes kept from one pass for the next
_CELLS_PER_PASS = 2**27  # counts held at once: 1 GiB


@final
@dataclass(frozen=True, slots=True)
class Cover:
    """Attributes that are counted together, and the marginals that are sums of that count."""

    axes: Axes
    wanted: tuple[Axes, ...]

    def marginals(self, counts: Counts) -> Iterator[Counts]:
        """The marginals asked for, from the count of the cover."""
        places = range(len(self.axes))
        for axes in self.wanted:
            kept = [place for place in places if self.axes[place] in axes]
            if len(kept) == len(places):
                yield counts
            elif len(places) <= _FEW_AXES and counts.size <= _JOINED_CELLS:
                yield np.asarray(np.einsum(counts, places, kept))  # of so few numbers, in a third of the time of sum
            else:
                yield np.asarray(counts.sum(axis=tuple(place for place in places if place not in kept)))


def covered(domain: Domain, wanted: Sequence[Axes]) -> list[Cover]:
    """Covers of the marginals, in their order: neighbours are counted together as long as that has few cells."""
    covers: list[Cover] = []
    for axes in wanted:
        if covers:
            union = tuple(sorted({*covers[-1].axes, *axes}))
            few = cells(domain, union) <= _JOINED_CELLS and grain(domain, union) in (1, grain(domain, axes))
            if union == covers[-1].axes or few:
                covers[-1] = Cover(union, (*covers[-1].wanted, axes))
                continue
        covers.append(Cover(axes, (axes,)))
    return covers


def groupings(domain: Domain, wanted: Sequence[Axes]) -> list[Axes]:
    """A few groupings from which a database's counts of all these marginals are sums; one if few do not suffice."""
    found: list[Axes] = []
    for axes in sorted(set(wanted), key=lambda axes: -most_groups(domain, axes)):
        joint = [tuple(sorted({*axes, *others})) for others in found]
        sizes = [most_groups(domain, union) for union in joint]
        small = [i for i, size in enumerate(sizes) if joint[i] == found[i] or size <= _GROUPED_CELLS]
        if small:
            best = min(small, key=lambda i: sizes[i] - most_groups(domain, found[i]))
            found[best] = joint[best]
        elif len(found) == _MOST_GROUPINGS:
            return [finest(wanted)]
        else:
            found.append(axes)
    return found


def most_groups(domain: Domain, axes: Axes) -> int:
    """How many groups a database finds at most: one for each cell, and for each step of an amount."""
    return math.prod([domain.attributes[axis].codes for axis in axes])


def finest(wanted: Sequence[Axes]) -> Axes:
    """The grouping by all attributes of these marginals."""
    return tuple(sorted({axis for axes in wanted for axis in axes}))


@final
@dataclass(slots=True)
class GroupCounts:
    """Groups of rows that a database has counted: codes of the attributes `axes`, and how many rows each group has."""

    domain: Domain
    axes: Axes
    _parts: list[tuple[_Indices, Counts]] = field(default_factory=list["tuple[_Indices, Counts]"])

    def add(self, slab: Slab, rows: Counts) -> None:
        """Add some more groups."""
        self._parts.append((_Indices(self.domain, slab), rows))

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._parts)

    def marginal(self, axes: Axes) -> Counts:
        """The marginal on some of the attributes. O(groups + cells)."""
        total = np.zeros(cells(self.domain, axes), np.int64)
        for indices, rows in self._parts:
            if not axes:  # a grouping by nothing has no codes
                total += rows.sum()
                continue
            for index, parts in indices.parts(axes):
                np.add.at(total, index, rows if parts is None else rows * parts)
        return total.reshape([self.domain.shape[axis] for axis in axes])

    def parts(self, axes: Axes) -> Iterator[tuple[Counts, Counts]]:
        """The cells of the groups among all cells of these attributes, in their order, and the rows of each."""
        for indices, rows in self._parts:
            yield indices.index(axes).astype(np.int64), rows


def cell_numbers(domain: Domain, axes: Axes, slabs: Iterable[Slab]) -> Iterator[tuple[Counts, Counts]]:
    """The cells of rows among all cells of these attributes, in their order, and 1 for each row."""
    for slab in slabs:
        index = _Indices(domain, slab).index(axes).astype(np.int64)
        yield index, np.ones(len(index), dtype=np.int64)


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


def counting_order(domain: Domain, wanted: Sequence[Axes]) -> list[int]:
    """The numbers of the marginals in an order in which many neighbours are counted together.

    The three-way marginals of d attributes fall into fours {a, b, c, −(a + b + c) mod d}, all but a few have
    four different attributes, so that one count of these serves four of them. The others stay as they come.
    """
    d = len(domain)
    triples = {j: axes for j, axes in enumerate(wanted) if len(axes) == 3}

    def four(axes: Axes) -> Axes:
        return tuple(sorted({*axes, -sum(axes) % d}))

    return [j for j in range(len(wanted)) if j not in triples] + sorted(triples, key=lambda j: four(triples[j]))


def passes(domain: Domain, covers: Sequence[Cover]) -> int:
    """The number of passes in which the covers are counted, from sizes alone."""
    return sum(1 for _ in _groups(domain, covers))


def count(domain: Domain, covers: Sequence[Cover], slabs: Callable[[], Iterable[Slab]]) -> Iterator[Counts]:
    """The count of each cover. O(rows · covers) time.

    The codes are kept if they take up to 1 GiB, and each cover is then counted when it is asked for. If they take more,
    rows are counted in passes that hold up to 2²⁷ cells at once. So whether rows are asked for again depends on their
    number: `slabs` must be able to give them as often as there are passes.
    """
    rows = (_Indices(domain, slab) for slab in slabs())
    kept, held = list[_Indices](), 0
    for indices in rows:
        kept.append(indices)
        held += sum(codes.nbytes for codes in indices.slab.values())
        if held > _KEPT_BYTES:
            break
    all_kept, tally = held <= _KEPT_BYTES, _Tally()
    first: Iterable[_Indices] | None = itertools.chain(kept, rows)
    for group in ([cover] for cover in covers) if all_kept else _groups(domain, covers):
        totals = [np.zeros(cells(domain, cover.axes), np.int64) for cover in group]
        if not all_kept and first is None:
            rows = (_Indices(domain, slab) for slab in slabs())
        for indices in kept if all_kept else first or rows:
            for total, cover in zip(totals, group, strict=True):
                for index, parts in indices.parts(cover.axes):
                    tally.add(total, index, parts)
        first = None
        for total, cover in zip(totals, group, strict=True):
            yield total.reshape([domain.shape[axis] for axis in cover.axes])


def gathered(slabs: Iterable[Slab]) -> Iterator[Slab]:
    """The same rows in larger slabs, because a count of many cells is added to once per slab."""
    waiting: list[Slab] = []
    for slab in slabs:
        waiting.append(slab)
        if sum(map(_rows, waiting)) >= _ROWS_OF_A_SLAB:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def smallest_type(size: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds the codes of an attribute."""
    return np.dtype(np.min_scalar_type(size - 1))


def _joined(slabs: Sequence[Slab]) -> Slab:
    return {axis: np.concatenate([slab[axis] for slab in slabs]) for axis in slabs[0]}


def _rows(slab: Slab) -> int:
    return len(next(iter(slab.values())))


def _groups(domain: Domain, covers: Sequence[Cover]) -> Iterator[list[Cover]]:
    group: list[Cover] = []
    held = 0
    for cover in covers:
        size = cells(domain, cover.axes)
        if group and held + size > _CELLS_PER_PASS:
            yield group
            group, held = [], 0
        group.append(cover)
        held += size
    if group:
        yield group


@final
@dataclass(slots=True)
class _Indices:
    """Row-major indices of rows. What the first half of the attributes adds to them is kept for the next call.

    Each index has the least type that holds it: of few cells, two bytes are read and written four times as fast as
    eight. So each half is indexed by itself, of attributes with ten values in one byte.
    """

    domain: Domain
    slab: Slab
    _kept: tuple[Axes, int] = ((), 0)
    _first: _Index = field(default_factory=lambda: np.empty(0, np.uint8))

    def __post_init__(self) -> None:
        for axis, codes in self.slab.items():  # once per slab, because sums of unit vectors do not check their indices
            if codes.dtype.kind != "u" or codes.max(initial=0) >= self.domain.attributes[axis].codes:
                raise DataError("A row has a code beyond its attribute. This is a fault in hdmm; please report it.")

    def parts(self, axes: Axes) -> Iterator[tuple[_Index, Counts | None]]:
        """The index of every row, and how many parts of it are there (None: the whole row).

        With amounts, once for each cell to which they give a part of the row.
        """
        amounts = {axis: values for axis in axes if isinstance(values := self.domain.attributes[axis].values, Amount)}
        for ends in itertools.product(*(range(values.size) for values in amounts.values())):
            parts, at = None, dict(self.slab)
            for (axis, values), cell in zip(amounts.items(), ends, strict=True):
                share = values.parts(self.slab[axis], cell)
                parts = share if parts is None else parts * share
                at[axis] = np.full(_rows(self.slab), cell, np.uint8)
            yield (self if parts is None else _Indices(self.domain, at)).index(axes), parts

    def index(self, axes: Axes) -> _Index:
        """The index of every row among the cells of these attributes, and none divides it."""
        half = (len(axes) + 1) // 2
        first, second = axes[:half], axes[half:]
        inner = cells(self.domain, second)
        if self._kept != (first, inner):
            self._kept, self._first = (first, inner), self._scaled(self._of(first), inner, cells(self.domain, axes))
        return self._first + self._of(second) if second else self._first

    def _of(self, axes: Axes) -> _Index:
        if not axes:
            return np.zeros(_rows(self.slab), np.uint8)
        found: _Index = self.slab[axes[0]]
        for k, axis in enumerate(axes[1:], 2):
            found = self._scaled(found, self.domain.shape[axis], cells(self.domain, axes[:k]))
            found += self.slab[axis]
        return found

    def _scaled(self, index: _Index, by: int, within: int) -> _Index:
        """The index times a number of cells, in a type that holds that number and all cells."""
        return np.multiply(index, by, dtype=smallest_type(within + 1))


@final
@dataclass(slots=True)
class _Tally:
    """How many rows have each index: the sum of their unit vectors, as one row of a sparse matrix.

    That takes half of the time of numpy.bincount, which reads the indices once more and needs them in eight bytes. The
    matrix of the last call is kept for the next.
    """

    _sizes: tuple[int, int] = (0, 1)
    _units: sp.csr_array = field(default_factory=lambda: _unit_vectors(0, 1))

    def add(self, total: Counts, index: _Index, parts: Counts | None = None) -> None:
        """Add the rows, or parts of them, to a total, whose cells all indices must be."""
        if parts is not None or len(total) > 8 * len(index):  # of few rows, do not make another array of many cells
            np.add.at(total, index, 1 if parts is None else parts)
            return
        sizes = len(index), len(total)
        if self._sizes != sizes:
            self._sizes, self._units = sizes, _unit_vectors(*sizes)
        self._units.indices[:] = index
        total += self._units.toarray()[0]


def _unit_vectors(rows: int, cells: int) -> sp.csr_array:
    """The sum of so many unit vectors, as yet all of the first cell."""
    ends = np.array([0, rows], np.int32)
    return sp.csr_array((np.ones(rows, np.int64), np.zeros(rows, np.int32), ends), shape=(1, cells))


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
