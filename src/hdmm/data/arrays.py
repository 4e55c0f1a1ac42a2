"""Counts that are given: in an array, in memory or mapped from a file; or in chunks, by a function or a Dask array."""

from __future__ import annotations

import importlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from hdmm.base.cores import run_parallel
from hdmm.base.exceptions import DataError
from hdmm.data.counts import Axes, Counts, Data, checked_rows_bound, refuse_passes, withholding
from hdmm.describe.domain import Domain
from hdmm.privacy.rows_of import RowsOf

_CELLS_AT_ONCE = 2**20

CountsBetween: TypeAlias = Callable[[int, int], npt.NDArray[np.integer[Any]]]
"""Called with (start, stop); the counts of these cells, in the row-major order of the domain."""


def from_array(
    domain: Domain, x: npt.NDArray[np.integer[Any]] | Sequence[object], *, rows_bound: int | None = None
) -> Data:
    """Data that are counts already: one integer per cell of the domain, in its shape or flat (row-major).

    By public rule a negative count is 0, and one above `rows_bound` (2³³) is `rows_bound`. The array is not
    copied; it may be a np.memmap.

    >>> from_array(Domain({"a": 2, "b": 2}), np.array([1, 2, 3, -4])).marginal(["b"])
    array([4, 2])
    """
    _refuse_amounts(domain)
    array = _integers(x)
    if array.shape not in (domain.shape, (domain.size,)):
        raise DataError(
            f"The array has the shape {array.shape}; the domain has the shape {domain.shape}. Give one count for each "
            f"cell, as an array of that shape or of length {domain.size}."
        )
    return Histogram(domain, checked_rows_bound(rows_bound), array.reshape(domain.shape))


def from_chunks(domain: Domain, counts: CountsBetween | object, *, rows_bound: int | None = None) -> Data:
    """Data whose counts a function or a dask.array gives, in chunks; for plans measured with an engine.

    `counts(start, stop)` gives one integer per cell from `start` to `stop`, in the row-major order of the domain. It
    runs on the engine's workers, and must give the same whenever it is called. A dask.array holds one integer per
    cell, in the domain's shape or flat, in chunks of any shape; each worker computes the part that it needs. By public
    rule a negative count is 0, and one above `rows_bound` (2³³) is `rows_bound`.

    >>> data = from_chunks(Domain({"a": 1000, "b": 1000}), lambda start, stop: np.zeros(stop - start, dtype=int))
    >>> data.domain.size
    1000000
    """
    _refuse_amounts(domain)
    given: Any = counts
    if _is_dask_array(given):
        if np.dtype(given.dtype).kind not in "iu" or tuple(given.shape) not in (domain.shape, (domain.size,)):
            raise DataError(
                f"The array holds {given.dtype} in the shape {tuple(given.shape)}. Give integers in the shape "
                f"{domain.shape} of the domain."
            )
        return ChunkedCounts(domain, checked_rows_bound(rows_bound), _DaskCounts(given))
    if not callable(given):
        raise DataError(f"The counts are a {type(given).__name__}. Give a function of (start, stop), or a dask.array.")
    return ChunkedCounts(domain, checked_rows_bound(rows_bound), cast(CountsBetween, given))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Histogram(Data):
    """A histogram over the whole domain; marginals are its sums."""

    domain: Domain
    rows_bound: int
    _x: npt.NDArray[np.integer[Any]] = field(repr=False)
    max_rows_per_id: int | None = field(default=None, init=False)
    rows_of: RowsOf = field(default_factory=RowsOf.in_memory, init=False, repr=False)

    def check(self) -> None:
        pass  # the constructor checked shape and type

    def _marginals(self, wanted: Sequence[Axes]) -> Iterator[Counts]:
        found = dict(self._shared(tuple(range(len(self.domain))), None, set(wanted)))
        return (found[axes] for axes in wanted)

    def _shared(self, axes: Axes, counts: Counts | None, wanted: set[Axes]) -> Iterator[tuple[Axes, Counts]]:
        """The wanted marginals of the counts on these attributes, None for the array itself.

        The attribute that most of them lack is summed over once for all of those; the rest follow in the same way. All
        3-way marginals of 8 attributes take 6 passes over the array; one by one they would take 56.
        """
        left = set(wanted)
        while left:
            if left == {axes}:
                yield axes, self._sum(axes) if counts is None else counts
                return
            absent = {axis: [one for one in left if axis not in one] for axis in axes}
            axis, without = max(absent.items(), key=lambda pair: len(pair[1]))
            if len(without) == 1:  # nothing to share
                (one,) = without
                yield one, self._sum(one) if counts is None else self._reduced(axes, counts, one)
            else:
                rest = tuple(other for other in axes if other != axis)
                summed = self._sum(rest) if counts is None else self._reduced(axes, counts, rest)
                yield from self._shared(rest, summed, set(without))
            left -= set(without)

    def _reduced(self, axes: Axes, counts: Counts, kept: Axes) -> Counts:
        summed = counts.sum(axis=tuple(k for k, axis in enumerate(axes) if axis not in kept))
        return np.asarray(np.minimum(summed, self.rows_bound))

    def _sum(self, axes: Axes) -> Counts:
        """O(cells of the domain), a slab of at most 2²⁰ of them at a time."""
        shape = self.domain.shape
        total = np.zeros([shape[axis] for axis in axes], np.int64)
        # A slab is a stretch of one axis, at one index of the axes before it, with all of the axes after it.
        cut = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= _CELLS_AT_ONCE)
        step = _CELLS_AT_ONCE // math.prod(shape[cut + 1 :])
        summed = tuple(axis - cut for axis in range(cut, len(shape)) if axis not in axes)
        starts = itertools.product(np.ndindex(shape[:cut]), range(0, shape[cut], step))
        slabs = [(*before, slice(start, start + step)) for before, start in starts]
        if len(axes) == len(shape):

            def place(here: tuple[int | slice, ...]) -> None:
                self._clipped(here, total[here])

            run_parallel(place, slabs)
            return total
        for here in slabs:
            part = self._clipped(here)
            into = total[(*(here[axis] for axis in axes if axis <= cut), ...)]
            into += part.sum(axis=summed) if summed else part
            np.minimum(into, self.rows_bound, out=into)
        return total

    def _clipped(self, here: tuple[int | slice, ...], out: Counts | None = None) -> Counts:
        """The counts of a slab between 0 and the bound, written to `out` if it is given."""
        x = self._x[here]
        held = np.empty(x.shape, np.int64) if out is None else out
        return np.clip(x, 0, min(self.rows_bound, int(np.iinfo(x.dtype).max)), out=held, casting="unsafe")


def _refuse_amounts(domain: Domain) -> None:
    if set(domain.names) - set(domain.countable):
        raise DataError("Amounts are added up from rows, and counts have none. Give a table with from_table.")


def _integers(x: object) -> npt.NDArray[np.integer[Any]]:
    array = np.asanyarray(x)
    if array.dtype.kind not in "iu" or isinstance(array, np.ma.MaskedArray):
        raise DataError(
            f"The array is a {type(array).__name__} of {array.dtype}, but counts are integers. If these are whole "
            f"numbers, give np.asarray(x).astype(np.int64)."
        )
    return cast(npt.NDArray[np.integer[Any]], array)


def _is_dask_array(counts: object) -> bool:
    """Whether it is a dask.array; if Dask is not imported, it is none."""
    return "dask.array" in sys.modules and isinstance(counts, importlib.import_module("dask.array").Array)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _DaskCounts:
    """The cells of a dask.array between two places, computed in the thread that asks: a worker is busy with it."""

    array: Any = field(repr=False)

    def __call__(self, start: int, stop: int) -> Any:
        parts = [part.compute(scheduler="synchronous").reshape(-1) for part in _parts(self.array, start, stop)]
        return np.concatenate(parts)


def _parts(array: Any, start: int, stop: int) -> Iterator[Any]:
    """The boxes whose cells, one after the other, are those between two places. No other chunks are computed."""
    if array.ndim == 1:
        yield array[start:stop]
        return
    cells = math.prod(array.shape[1:])
    first, last = -(-start // cells), stop // cells  # the planes that lie between the places as a whole
    if first > last:
        yield from _parts(array[last], start - last * cells, stop - last * cells)
        return
    if start < first * cells:
        yield from _parts(array[first - 1], start - (first - 1) * cells, cells)
    if first < last:
        yield array[first:last]
    if last * cells < stop:
        yield from _parts(array[last], 0, stop - last * cells)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ChunkedCounts(Data):
    """Counts that a function of two places gives."""

    domain: Domain
    rows_bound: int
    _counts: CountsBetween = field(repr=False)
    max_rows_per_id: int | None = field(default=None, init=False)
    rows_of: RowsOf = field(default_factory=RowsOf.in_memory, init=False, repr=False)

    def check(self) -> None:
        pass  # the function is called only after the debit

    def _marginals(self, wanted: Sequence[Axes]) -> Iterator[Counts]:
        return iter(())  # none is wanted: see below

    def between(self, start: int, stop: int) -> Counts:
        """The counts of these cells, clipped by the public rule."""
        with withholding():
            found = np.asarray(self._counts(start, stop))
        if found.dtype.kind not in "iu" or found.size != stop - start:
            raise DataError(
                "The function or array gave something other than one integer per cell. Make it give an integer array "
                "of stop - start counts."
            )
        most = min(self.rows_bound, int(np.iinfo(found.dtype).max))
        return np.clip(found.reshape(-1), 0, most).astype(np.int64)


@refuse_passes.register
def _(data: ChunkedCounts, wanted: Sequence[Axes]) -> None:
    if wanted:
        raise DataError("Counts in chunks are measured by an engine. Give plan.measure(…, engine=hdmm.engines.dask()).")
