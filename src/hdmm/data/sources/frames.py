"""Frames in memory, and datasets of pyarrow.

A dataset has one schema, usually that of its first file, and Arrow converts the columns of all other files to it while
it reads. Whether that succeeds, and which person an id then names, depends on the values: 2**53 + 1 fails as a float,
and "x" as a number. So the files must have the types of the dataset, and no dictionaries (security I1, I5). Text files,
whose types Arrow infers from the first rows, are refused (security I6), and so are files of table formats
(security I7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.columns import AnyColumn
from hdmm.data.sources.listing import refuse_table_formats
from hdmm.data.sources.source import (
    ROWS_AT_ONCE,
    Batch,
    ColumnKind,
    Source,
    Unreadable,
    Untyped,
    of_record_batch,
    of_schema,
    plain_types,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.fs as pa_fs
    from pandas.api.extensions import ExtensionDtype
else:
    pa, pd, pl = Lazy("pyarrow"), Lazy("pandas"), Lazy("polars")
    ds, pa_fs = Lazy("pyarrow.dataset"), Lazy("pyarrow.fs")

_INT128_DIGITS = 39
_SCAN = re.compile(r"(\w+) SCAN\b")  # in a plan of polars
_TYPED_FILES = ("Parquet", "Ipc")
_CODED = (
    "is of type {} in a file of the dataset, and whether Arrow can read that depends on its values. Write Parquet "
    "files if these are others, and give the path of the folder instead of a dataset."
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class PandasFrame(Source):
    """A pandas DataFrame. The types of its columns may have been chosen by what they hold (types.py)."""

    frame: pd.DataFrame

    def columns(self) -> dict[str, ColumnKind]:
        return {str(name): _type_of_pandas(kind) for name, kind in self.frame.dtypes.items()}

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        places = {str(name): place for place, name in enumerate(self.frame.columns)}
        for start in range(0, len(self.frame), ROWS_AT_ONCE):
            rows = self.frame.iloc[start : start + ROWS_AT_ONCE]
            yield {name: _of_pandas(rows.iloc[:, places[name]]) for name in columns}


@final
@dataclass(frozen=True, slots=True, eq=False)
class PolarsFrame(Source):
    """A polars DataFrame or LazyFrame; a LazyFrame computes only the columns asked for.

    A LazyFrame that reads text takes the types of columns from the first rows, and fails on a later row that does not
    fit: one row would decide (security I1, I6). So it may read Parquet and Arrow's own files alone.
    """

    frame: pl.DataFrame | pl.LazyFrame

    def columns(self) -> dict[str, ColumnKind]:
        if isinstance(self.frame, pl.LazyFrame):
            scans = _SCAN.findall(self.frame.explain(optimized=False))
            if others := sorted(set(scans).difference(_TYPED_FILES)):
                raise DataError(
                    f"The lazy frame reads files that may not declare types ({', '.join(others)}), and fails on a row "
                    "that does not fit the first ones. Give the path of the file, or collect the frame."
                )
        return {name: _type_of_polars(kind) for name, kind in self.frame.lazy().collect_schema().items()}

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        frame = self.frame.lazy().select(list(columns)).collect()
        for rows in frame.iter_slices(ROWS_AT_ONCE):
            yield {name: _of_polars(rows[name]) for name in columns}


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrowTable(Source):
    """A pyarrow Table or RecordBatch."""

    table: pa.Table | pa.RecordBatch

    def columns(self) -> dict[str, pa.DataType | None]:
        return of_schema(self.table.schema)

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        chosen = self.table.select(list(columns))
        parts = chosen.to_batches(max_chunksize=ROWS_AT_ONCE) if isinstance(chosen, pa.Table) else [chosen]
        return map(of_record_batch, parts)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrowReader(Source):
    """A pyarrow RecordBatchReader, which can be read once."""

    reader: pa.RecordBatchReader
    _read: list[None] = field(default_factory=list[None], init=False)  # one entry once it has been read

    def columns(self) -> dict[str, pa.DataType | None]:
        self._refuse_another_time()
        return of_schema(self.reader.schema)

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        self._refuse_another_time()
        self._read.append(None)
        return (of_record_batch(rows.select(list(columns))) for rows in self.reader)

    def _refuse_another_time(self) -> None:
        if self._read:
            raise DataError(
                "The RecordBatchReader has been read, and can be read only once. Give a new one or a Table."
            )


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrowDataset(Source):
    """A pyarrow Dataset of files or of tables in memory."""

    dataset: ds.Dataset

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory, so that they are the same whenever they are read."""
        return all(isinstance(part, ds.InMemoryDataset) for part in _parts(self.dataset))

    def columns(self) -> dict[str, ColumnKind]:
        schema = self.dataset.schema
        found: dict[str, ColumnKind] = dict(of_schema(schema))
        others: dict[str, dict[pa.DataType, None]] = {}
        coded: dict[str, ColumnKind] = {}
        for part in _parts(self.dataset):
            made = part.format if isinstance(part, ds.FileSystemDataset) else None
            if isinstance(part, ds.FileSystemDataset):
                _refuse_files(part)
            for fragment in [] if isinstance(part, ds.InMemoryDataset) else part.get_fragments():
                for name, kind in zip(fragment.physical_schema.names, fragment.physical_schema.types, strict=True):
                    if name in found and not _alike(kind, schema.field(name).type):
                        others.setdefault(name, {})[kind] = None
                    coded_text = isinstance(made, ds.ParquetFileFormat) and isinstance(kind, pa.DictionaryType)
                    if name in found and (coded_text or _of_orc(made, kind)):
                        coded[name] = Unreadable(_CODED.format(kind))
        for name, kinds in others.items():
            own = schema.field(name).type
            found[name] = Unreadable(
                f"of the dataset is of type {own}, and of other types in its files: "
                f"{', '.join(map(str, (own, *kinds)))}. Whether Arrow can convert them depends on their values. Give "
                "the path of the folder instead of a dataset, or write all files with one type."
            )
        return found | coded

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        return map(of_record_batch, self.dataset.to_batches(columns=list(columns)))


def _type_of_pandas(kind: np.dtype[Any] | ExtensionDtype) -> ColumnKind:
    if isinstance(kind, pd.SparseDtype):
        return _type_of_pandas(kind.subtype)
    if kind == np.dtype(object):
        return Untyped("object")
    try:
        return pa.array(pd.Series([], dtype=kind), from_pandas=True).type
    except Exception:  # not an Arrow type: complex numbers, categories of mixed values
        return Untyped(str(kind))


def _type_of_polars(kind: pl.DataType) -> ColumnKind:
    if kind.is_nested():
        return Unreadable.of_type(kind)
    if isinstance(kind, pl.Object):
        return Untyped(str(kind))
    try:
        return pl.Series([], dtype=kind).to_arrow().type
    except Exception:  # Arrow has no integers of 128 bits
        return pa.decimal256(_INT128_DIGITS, 0) if kind.is_integer() else Untyped(str(kind))


def _of_pandas(column: pd.Series) -> AnyColumn:
    """Extension types through Arrow, which keeps integers exact among missing values; others through NumPy."""
    if isinstance(column.dtype, pd.api.extensions.ExtensionDtype):
        try:
            array = pa.array(column, from_pandas=True)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except Exception:  # not an Arrow type: periods, intervals, categories of mixed values
            return column.astype(object).to_numpy()
    return column.to_numpy()


def _of_polars(column: pl.Series) -> AnyColumn:
    try:
        return column.to_arrow()
    except Exception:  # Python objects
        return column.to_list()


def _parts(dataset: ds.Dataset) -> Iterator[ds.Dataset]:
    """The datasets that a dataset unites, or the dataset itself."""
    if isinstance(dataset, ds.UnionDataset):
        for child in dataset.children:
            yield from _parts(child)
    else:
        yield dataset


def _refuse_files(dataset: ds.FileSystemDataset) -> None:
    if isinstance(dataset.format, ds.CsvFileFormat | ds.JsonFileFormat):
        raise DataError(
            "The dataset reads text files: Arrow infers the types of their columns from the rows and fails on a row "
            "that does not fit. Give the path of the CSV file or folder instead of a dataset."
        )
    folder, files = "", dataset.filesystem
    if isinstance(files, pa_fs.SubTreeFileSystem):
        folder, files = files.base_path, files.base_fs
    if isinstance(files, pa_fs.LocalFileSystem):
        refuse_table_formats(Path(folder, file) for file in dataset.files)


def _of_orc(made: ds.FileFormat | None, kind: pa.DataType) -> bool:
    """Whether it is a time of an ORC file, which Arrow converts to nanoseconds, where it fails on distant ones."""
    return made is not None and made.default_extname == "orc" and isinstance(kind, pa.TimestampType)


def _alike(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of a type are taken as they are by another: the same, missing ones, or coded in a dictionary."""
    return plain_types(kind) == plain_types(other) or pa.types.is_null(kind)
