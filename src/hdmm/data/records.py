"""A table with one row per record: coded by the domain, counted into marginals.

If an attribute is declared with outside="drop", a row whose value is outside is in no marginal on any attributes, so
that all marginals are of the same table. So the columns of such attributes are always read, along with those of the
marginals asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

import numpy as np
import numpy.typing as npt

from hdmm.base.cores import run_parallel
from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.columns import AnyColumn, codes, decimal, drops, encode
from hdmm.data.counting import (
    Cover,
    GroupCounts,
    Slab,
    SparseCounts,
    cell_numbers,
    count,
    covered,
    finest,
    gathered,
    groupings,
    passes,
    smallest_type,
)
from hdmm.data.counts import Axes, Counts, Data, grain, refuse_passes, withholding
from hdmm.data.engines import IbisTable
from hdmm.data.engines.engine import CannotCountError, CountedSource, CountRequest
from hdmm.data.identity import Rows, bounded, people
from hdmm.data.sources.frames import ArrowDataset, ArrowReader, ArrowTable, PandasFrame, PolarsFrame
from hdmm.data.sources.source import Batch, Readable, Source
from hdmm.data.sources.table_files import files_of, stamp
from hdmm.data.types import doubts, has_text, refuse_ids, refuse_types
from hdmm.describe.attribute import Attribute, kept_rows
from hdmm.describe.domain import Domain
from hdmm.describe.entries import Codes
from hdmm.privacy.rows_of import UNKNOWN, RowsOf

if TYPE_CHECKING:
    import ibis
    import polars as pl
else:
    ibis, pl = Lazy("ibis"), Lazy("polars")

_Read = TypeVar("_Read")
_FRAMES = (PandasFrame, PolarsFrame, ArrowTable, ArrowReader, ArrowDataset)  # which may have been read from a file


@final
@dataclass(frozen=True, slots=True, eq=False)
class TableSource:
    """A source, what is read of it, the column of each attribute or part of a merged one, and the column of ids."""

    source: Source
    read: Domain
    columns: Mapping[str, str]
    id: str | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class TableData(Data):
    """Rows of a source; nothing of them is kept between calls."""

    domain: Domain
    rows_bound: int
    max_rows_per_id: int | None
    _source: Source = field(repr=False)
    _columns: Mapping[str, str] = field(repr=False)
    _id: str | None = field(repr=False)
    _fetch: bool = field(repr=False)
    _declared: bool = field(repr=False)
    _stamp: object = field(repr=False)
    _read: Domain = field(repr=False)  # the domain, and attributes that drop rows that the filter leaves out
    _key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    rows_of: RowsOf = field(default=UNKNOWN, repr=False)

    @property
    def origin(self) -> TableSource:
        """Where rows come from, for listing the files and for examining the data. No release asks for it."""
        return TableSource(self._source, self._read, self._columns, self._id)

    @property
    def id_column(self) -> str | None:
        return self._id

    @property
    def reads_once(self) -> bool:
        """Whether the source can be read only once."""
        return isinstance(self._source, ArrowReader)

    @property
    def one_pass(self) -> bool:
        """Whether another pass might see other rows. With ids, the rows kept stay in memory for the next pass.

        Files are compared with what they were before, and a database counts all passes of one state of its table.
        """
        match self._source:
            case _ if self._id is not None:
                return False
            case PolarsFrame(frame):
                return isinstance(frame, pl.LazyFrame)
            case IbisTable(may_fetch=here):
                return not (here or self._counts_there(range(len(self._read))))
            case ArrowDataset(in_memory=in_memory):
                return not in_memory
            case _:
                return self.reads_once

    @property
    def _inferred(self) -> bool:
        """Whether the types of columns may have been chosen by what the rows hold."""
        frames = self._source.has_frames if isinstance(self._source, IbisTable) else isinstance(self._source, _FRAMES)
        return frames and not self._declared

    def check(self) -> None:
        if stamp(self._source) != self._stamp:  # otherwise its columns were checked when it was opened
            self.checked_columns()

    def checked_columns(self) -> dict[str, Readable]:
        """The types of the columns; DataError if one is missing or cannot be what it is declared as."""
        if self.reads_once and not self._declared:
            raise DataError(
                "A RecordBatchReader may read a file whose types it inferred from the first rows, and fail on a row "
                "that does not fit. Give reader.read_all(); or, if what it reads declares its types, as Parquet files "
                "and databases do, say so: declared_types=True."
            )
        kinds = self._source.checked(self._names(self._read.attributes))
        for part in (part for attribute in self._read.attributes for part in attribute.parts):
            refuse_types(part, self._columns[part.name], kinds[self._columns[part.name]], inferred=self._inferred)
        if self._id is not None:
            refuse_ids(self._id, kinds[self._id], inferred=self._inferred)
        if isinstance(self._source, CountedSource) and not self._source.may_fetch:
            self._counts_there(range(len(self._read)))
        return kinds

    def _marginals(self, wanted: Sequence[Axes]) -> Iterator[Counts]:
        before = stamp(self._source)
        self.check()
        covers = covered(self._read, wanted)
        with withholding():
            for cover, counts in zip(covers, self._counts(covers, before), strict=True):
                for axes, found in zip(cover.wanted, cover.marginals(counts), strict=True):
                    each = grain(self._read, cover.axes) // grain(self._read, axes)  # parts, of amounts summed over
                    yield found if each == 1 else np.asarray(found // each)

    def _counts(self, covers: Sequence[Cover], before: object) -> Iterator[Counts]:
        wanted = [cover.axes for cover in covers]
        if isinstance(self._source, CountedSource) and self._counts_there(finest(wanted)):
            groups = self._source.groups(self._asked(finest(wanted)), groupings(self._read, wanted))
            found = list(self._unchanged(groups, before))
            return (self._smallest(found, axes).marginal(axes) for axes in wanted)
        if self._id is not None:
            kept = self._bounded(before)
            return count(self._read, covers, lambda: kept)
        needed = set(finest(wanted)) or {0}
        return count(self._read, covers, lambda: self._unchanged(gathered(self._coded(needed)), before))

    def sparse(self, attributes: Sequence[str]) -> SparseCounts:
        """`marginal` of all attributes, in this order, in memory for the cells that hold rows alone. One pass."""
        before = stamp(self._source)
        self.check()
        axes = tuple(map(self._read.names.index, attributes))
        with withholding():
            if isinstance(self._source, CountedSource) and self._counts_there(axes):
                (found,) = self._unchanged(self._source.groups(self._asked(axes), [finest([axes])]), before)
                parts = found.parts(axes)
            else:
                slabs = gathered(self._coded(axes)) if self._id is None else self._bounded(before)
                parts = cell_numbers(self._read, axes, self._unchanged(slabs, before))
            return SparseCounts.of(parts, self.rows_bound)

    def _counts_there(self, wanted: Collection[int]) -> bool:
        """Whether the source counts its rows itself; CannotCountError if it cannot and may not give them either."""
        if not isinstance(self._source, CountedSource):
            return False
        try:
            if isinstance(self._source, IbisTable) and self._inferred:
                self._refuse_hexadecimal(self._source.table)
            self._source.check_counting(self._asked(wanted))
        except CannotCountError:
            if not ((self._fetch and self._source.gives_batches) or self._source.may_fetch):
                raise
            return False
        return True

    def _refuse_hexadecimal(self, table: ibis.Table) -> None:
        """Raise CannotCountError if numbers are to be found in text of a frame, where engines find no hexadecimal."""
        parts = [part for attribute in self._read.attributes for part in attribute.parts if not has_text(part.values)]
        for column in [*(self._columns[part.name] for part in parts), *([] if self._id is None else [self._id])]:
            if table[column].type().is_string():
                raise CannotCountError(
                    f"Column {column!r} is text of a frame in memory, which a database does not read as hdmm does. Put "
                    "the frame into a table of the database, set fetch = true, or say declared_types=True if you chose "
                    "the types of all columns of the frame yourself."
                )

    def _asked(self, wanted: Collection[int]) -> CountRequest:
        """What the database is asked: the wanted attributes and those that may drop a row; with ids, all of them."""
        every = self._read.attributes
        needed = [axis for axis, a in enumerate(every) if self._id is not None or axis in wanted or drops(a)] or [0]
        return CountRequest(self._read, tuple(needed), self._columns, self._id, self.max_rows_per_id or 0, self._key)

    def _smallest(self, found: Sequence[GroupCounts], axes: Axes) -> GroupCounts:
        return min((groups for groups in found if {*groups.axes} >= {*axes}), key=len)

    def _bounded(self, before: object) -> list[Slab]:
        """At most max_rows_per_id rows of each person, with all attributes: every marginal counts the same rows."""
        rows = bounded(self._key, self.max_rows_per_id or 0, self._unchanged(self._owned(), before))
        return [] if rows is None else [dict(enumerate(rows.codes))]

    def _unchanged(self, rows: Iterable[_Read], before: object) -> Iterator[_Read]:
        """All rows of one pass; DataError if the files are no longer those of the passes before.

        A person whose row differs between two passes is in cells that no single row is in, and the noise is for one.
        """
        yield from rows
        if files_of(self._source) and stamp(self._source) != before:
            raise DataError(
                "The files of the data changed while they were read. Let the programs that write them finish, and "
                "measure again; write new versions to new files."
            )

    def _owned(self) -> Iterator[Rows]:
        for batch, found in self._batches(range(len(self._read))):
            persons, there = people(self._key, self._decimal(batch[self._id or ""]))
            kept = there & kept_rows(list(found.values()))
            yield Rows(persons[kept], list(self._packed(found, kept).values()))

    def _coded(self, wanted: Collection[int]) -> Iterator[Slab]:
        for _, found in self._batches(wanted):
            kept = kept_rows(list(found.values()))
            yield self._packed({axis: found[axis] for axis in wanted}, kept)

    def _batches(self, wanted: Collection[int]) -> Iterator[tuple[Batch, dict[int, Codes]]]:
        """Batches of rows, and their codes for the attributes that are wanted or may drop a row."""
        needed = {axis: a for axis, a in enumerate(self._read.attributes) if axis in wanted or drops(a)}
        for batch in self._source.batches(self._names(needed.values())):
            found = dict.fromkeys(needed, np.empty(0, np.int64))  # in the order of the axes, whichever is coded first
            run_parallel(partial(self._encode, batch, found), list(needed))
            yield batch, found

    def _encode(self, batch: Batch, found: dict[int, Codes], axis: int) -> None:
        found[axis] = codes(self._read.attributes[axis], self._reader(batch))

    def _reader(self, batch: Batch) -> Callable[[Attribute], Codes]:
        def read(part: Attribute) -> Codes:
            column = batch[self._columns[part.name]]
            return encode(part.values, column if has_text(part.values) else self._decimal(column))

        return read

    def _decimal(self, column: AnyColumn) -> AnyColumn:
        """A column of numbers or ids; in a frame, hexadecimal numbers in its text are those that readers take."""
        return decimal(column) if self._inferred else column

    def _packed(self, found: Mapping[int, Codes], kept: npt.NDArray[np.bool]) -> Slab:
        packed = {axis: code.astype(smallest_type(self._read.attributes[axis].codes)) for axis, code in found.items()}
        return packed if kept.all() else {axis: code[kept] for axis, code in packed.items()}

    def _names(self, attributes: Iterable[Attribute]) -> list[str]:
        """The columns to read for these attributes, and the one of ids."""
        names = [self._columns[part.name] for attribute in attributes for part in attribute.parts]
        return list(dict.fromkeys(names if self._id is None else [*names, self._id]))


def of_rows(data: Data, source: str | None, period: str | None) -> Data:
    """The same data, known to be of this source and period: digests of `RowsOf`. The source stays if it is None."""
    if not isinstance(data, TableData):
        return data
    return replace(data, rows_of=replace(data.rows_of, source=source or data.rows_of.source, period=period))


def doubtful_types(data: Data) -> list[str]:
    """What the types of the columns suggest was not meant: values that are outside the domain. Reads no rows."""
    if not isinstance(data, TableData):
        return []
    columns, kinds = data.origin.columns, data.checked_columns()
    parts = [part for attribute in data.origin.read.attributes for part in attribute.parts]
    return [doubt for part in parts for doubt in doubts(part, columns[part.name], kinds[columns[part.name]])]


def read_files(data: Data) -> tuple[Path, ...]:
    """The files that the data is read from; none if it is a frame, an array or a table on a server."""
    return files_of(data.origin.source) if isinstance(data, TableData) else ()


@refuse_passes.register
def _(data: TableData, wanted: Sequence[Axes]) -> None:
    """Refuse several passes over data that can be read once: the number of rows must not decide what fails (I8)."""
    if passes(data.domain, covered(data.domain, wanted)) > 1 and data.one_pass:
        raise DataError(
            "These marginals are counted in several passes, but the data can be read only once, or may be different "
            "when it is read again (a RecordBatchReader, a Dataset of files, a lazy frame, rows that a database is "
            "asked for). Give the path of the files, a Table or a frame in memory, or measure smaller marginals."
        )
