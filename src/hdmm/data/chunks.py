"""Counts that come in chunks, from a function: a histogram that fits in no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from hdmm.data.base import Axes, Counts, Data, checked_rows_bound, refuse_passes, withholding
from hdmm.domain import Domain
from hdmm.exceptions import DataError

CountsBetween: TypeAlias = Callable[[int, int], npt.NDArray[np.integer[Any]]]
"""Called with (start, stop); the counts of these cells, in the row-major order of the domain."""


def from_chunks(domain: Domain, counts: CountsBetween, *, rows_bound: int | None = None) -> Data:
    """Data of which a function gives the counts of any stretch of cells; for plans measured with an engine.

    `counts(start, stop)` gives one integer per cell from `start` to `stop`, in the row-major order of the domain. It
    runs on the engine's workers, and must give the same whenever it is called. By public rule a negative count is 0,
    and one above `rows_bound` (2³³) is `rows_bound`.

    >>> data = from_chunks(Domain({"a": 1000, "b": 1000}), lambda start, stop: np.zeros(stop - start, dtype=int))
    >>> data.domain.size
    1000000
    """
    if not callable(counts):
        raise DataError(f"The counts are a {type(counts).__name__}. Give a function of (start, stop).")
    return ChunkedCounts(domain, checked_rows_bound(rows_bound), counts)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ChunkedCounts(Data):
    """Counts that a function gives."""

    domain: Domain
    rows_bound: int
    _counts: CountsBetween = field(repr=False)
    max_rows_per_id: int | None = field(default=None, init=False)

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
                "The function gave something other than one integer per cell. Make it give an integer array of "
                "stop - start counts."
            )
        most = min(self.rows_bound, int(np.iinfo(found.dtype).max))
        return np.clip(found.reshape(-1), 0, most).astype(np.int64)


@refuse_passes.register
def _(data: ChunkedCounts, wanted: Sequence[Axes]) -> None:
    if wanted:
        raise DataError("Counts in chunks are measured by an engine. Give plan.measure(…, engine=hdmm.engines.dask()).")
