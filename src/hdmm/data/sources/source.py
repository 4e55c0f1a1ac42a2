"""Source: a table that names its columns, and gives the columns asked for in batches of rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import DataError
from hdmm.base.hints import did_you_mean
from hdmm.base.lazy import Lazy
from hdmm.data.columns import AnyColumn

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pandas.api.extensions import ExtensionDtype
else:
    pa, pd, pl = Lazy("pyarrow"), Lazy("pandas"), Lazy("polars")

Batch: TypeAlias = "dict[str, AnyColumn]"
# What a source declares about a column. None is one type that Arrow lacks, such as decimals of any length.
ColumnKind: TypeAlias = "pa.DataType | Untyped | Several | Unreadable | None"
Readable: TypeAlias = "pa.DataType | Untyped | Several | None"

ROWS_AT_ONCE = 2**20
_INT128_DIGITS = 39
_MOST_NAMED = 30
_NO_NAME = re.compile(r"\W*[0-9]|\W*$|Unnamed: [0-9]")  # what a value begins with, and pandas' word for nothing


@final
@dataclass(frozen=True, slots=True)
class Unreadable:
    """The name of a type whose values a source cannot give."""

    name: str

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Untyped:
    """The name of a type that says nothing about the values: Python objects, or what SQLite calls a date."""

    name: str

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Several:
    """The types of a column whose type differs between files."""

    types: tuple[pa.DataType, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.types))


class Source(ABC):
    """A table. Its columns are public; its rows are not, and are read only by batches()."""

    __slots__ = ()

    @abstractmethod
    def columns(self) -> Mapping[str, ColumnKind]:
        """The names of the columns, with their types if the source declares them."""

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """These columns of all rows. Any error may be about a value: it must not reach the user."""

    def checked(self, wanted: Sequence[str]) -> dict[str, Readable]:
        """The types of these columns; DataError if a column is missing or its type cannot be read. Reads no values."""
        there = self.columns()
        found: dict[str, Readable] = {}
        for name in wanted:
            if name not in there:
                hint = did_you_mean(name, there)
                raise DataError(
                    f"Column {name!r} is not in the data.{hint}{_listed(self, there, wanted)} If an attribute's column "
                    "has another name, say so in columns: { attribute = column }."
                )
            kind = there[name]
            if isinstance(kind, Unreadable) or any(pa.types.is_nested(plain) for plain in plain_types(kind)):
                raise DataError(f"Column {name!r} holds values of type {kind}. Give a column of text or numbers.")
            found[name] = kind
        return found


@singledispatch
def stamp(source: Source) -> object:
    """A value that stays equal as long as the columns of a source cannot have changed. Reads no rows and no columns.

    If only reading the columns again could show a change, the value equals nothing else.
    """
    return object()


@singledispatch
def declares_names(source: Source) -> bool:
    """Whether the names of columns are part of a schema. What has no schema may have a person's row in their place."""
    return True


def _listed(source: Source, there: Collection[str], wanted: Collection[str]) -> str:
    """The names of the columns as a sentence, if they are names for certain: a file may lack the line that has them."""
    names = [name for name in there if name not in wanted]
    folded = {name.casefold() for name in there}
    known = sum(name.casefold() in folded for name in wanted)
    header = 2 * known >= len(wanted) and not any(map(_NO_NAME.match, there))
    if not (declares_names(source) or header):
        return " The first line of the data does not look like a line of names. Does the data have one?"
    if not names:
        return ""
    more = f", and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f" Other columns are {', '.join(name[:60] for name in names[:_MOST_NAMED])}{more}."


def plain_types(kind: ColumnKind) -> list[pa.DataType]:
    """The Arrow types of a column (for a dictionary, the type of its values); none if it has no Arrow type."""
    types = kind.types if isinstance(kind, Several) else (kind,)
    found = [each for each in types if isinstance(each, pa.DataType)]
    return [each.value_type if isinstance(each, pa.DictionaryType) else each for each in found]


@final
@dataclass(frozen=True, slots=True, eq=False)
class PandasFrame(Source):
    """A pandas DataFrame. The types of its columns may have been chosen by what they hold (kinds.py)."""

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
    """A polars DataFrame or LazyFrame; a LazyFrame computes only the columns asked for."""

    frame: pl.DataFrame | pl.LazyFrame

    def columns(self) -> dict[str, ColumnKind]:
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


@declares_names.register(PandasFrame)
@declares_names.register(PolarsFrame)
@declares_names.register(ArrowTable)
@declares_names.register(ArrowReader)
def _(source: Source) -> bool:
    return False


def of_record_batch(rows: pa.RecordBatch) -> Batch:
    """The columns of Arrow's rows."""
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def of_schema(schema: pa.Schema) -> dict[str, pa.DataType | None]:
    """The types of the columns."""
    return dict(zip(schema.names, schema.types, strict=True))


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
        return Unreadable(str(kind))
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
