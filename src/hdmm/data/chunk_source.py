"""Counts that come in chunks, from a function or a Dask array: a histogram that fits in no memory."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DataError
from hdmm.data.counts import Axes, Counts, Data, checked_rows_bound, refuse_passes, withholding
from hdmm.describe.domain import Domain
from hdmm.privacy.rows_of import RowsOf

CountsBetween: TypeAlias = Callable[[int, int], npt.NDArray[np.integer[Any]]]
"""Called with (start, stop); the counts of these cells, in the row-major order of the domain."""


def from_chunks(domain: Domain, counts: CountsBetween | object, *, rows_bound: int | None = None) -> Data:
    """Data of which a function or a dask.array gives the counts, in chunks; for plans measured with an engine.

    `counts(start, stop)` gives one integer per cell from `start` to `stop`, in the row-major order of the domain. It
    runs on the engine's workers, and must give the same whenever it is called. A dask.array holds one integer per
    cell, in the domain's shape or flat, in chunks of any shape; each worker computes the part that it needs. By public
    rule a negative count is 0, and one above `rows_bound` (2³³) is `rows_bound`.

    >>> data = from_chunks(Domain({"a": 1000, "b": 1000}), lambda start, stop: np.zeros(stop - start, dtype=int))
    >>> data.domain.size
    1000000
    """
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
