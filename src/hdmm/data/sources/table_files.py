"""Tables in files: CSV, Parquet, folders of either, and tables of DuckDB databases.

Nothing here depends on the rows. The dialect of a CSV file is fixed except for the delimiter, which its header decides;
every column is text, and values.py interprets the text. Parquet is read by Arrow, which takes values as they are:
DuckDB would fail on text that is not UTF-8, or on a time past midnight (security I1). DuckDB reads its own files, as
engines/duckdb.py opens them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.columns import is_text
from hdmm.data.engines.duckdb import DuckDBTable
from hdmm.data.sources.csv_lines import csv_header, csv_rows
from hdmm.data.sources.listing import is_csv, listed, require_readable_file
from hdmm.data.sources.source import (
    ROWS_AT_ONCE,
    Batch,
    ColumnKind,
    Several,
    Source,
    of_record_batch,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")

_DATABASE = (".duckdb",)
_DUCKDB_URL = "duckdb://"
_LENGTH = 4  # bytes before each text of a column of Parquet
_SMALL = 2**16  # bytes that are collected whatever they are
_COLLECTED = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"})


def file_source(path: str | os.PathLike[str], table: str | None) -> Source:
    """The source that a path names, or duckdb:// and the path of a database. Its columns are read, and no rows."""
    url = isinstance(path, str) and path.startswith(_DUCKDB_URL)
    place = Path(path.removeprefix(_DUCKDB_URL) if isinstance(path, str) else path)
    if url or place.suffix.lower() in _DATABASE:
        if table is None:
            raise DataError(f"{place} is a database. Name one of its tables: table='…'.")
        require_readable_file(place)
        return DuckDBTable(place, table)
    if table is not None:
        raise DataError(f"{place} is not a DuckDB database (.duckdb), so it has no tables. Leave out table={table!r}.")
    files = listed(place)
    return CsvFiles(files) if is_csv(files[0]) else ParquetFiles(files)


def files_of(source: Source) -> tuple[Path, ...]:
    """The files that a source reads; none if it does not read files."""
    match source:
        case CsvFiles() | ParquetFiles():
            return source.files
        case DuckDBTable():
            return (source.file,)
        case _:
            return ()


def stamp(source: Source) -> object:
    """A value that stays equal as long as the columns of a source cannot have changed. Reads no rows and no columns.

    If only reading the columns again could show a change, the value equals nothing else.
    """
    files = files_of(source)
    if isinstance(source, DuckDBTable):
        files = (source.file, source.file.with_name(source.file.name + ".wal"))  # which has what is not in it yet
    return tuple(map(_status, files)) if files else object()


@final
@dataclass(frozen=True, slots=True)
class CsvFiles(Source):
    """CSV files in UTF-8 with a header line: fields between , ; | or tabs, in double quotes where needed.

    csv_lines.py says which rows are read.
    """

    files: tuple[Path, ...]

    def columns(self) -> dict[str, pa.DataType | None]:
        return dict.fromkeys(_shared([csv_header(file)[1] for file in self.files]), pa.string())

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        for file in self.files:
            yield from csv_rows(file, columns)


@final
@dataclass(frozen=True, slots=True)
class ParquetFiles(Source):
    """Parquet files. A column may have a different type in each."""

    files: tuple[Path, ...]
    declares_names: ClassVar[bool] = True

    def columns(self) -> dict[str, ColumnKind]:
        schemas = [_schema(file) for file in self.files]
        shared = _shared([schema.names for schema in schemas])
        types = {name: tuple(dict.fromkeys(schema.field(name).type for schema in schemas)) for name in shared}
        return {name: each[0] if len(each) == 1 else Several(each) for name, each in types.items()}

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        for file in self.files:
            with pq.ParquetFile(file, **_reading(file, columns)) as opened:
                for rows in opened.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
                    yield of_record_batch(rows.select(columns))  # asked for "a", Arrow also gives "a.b"


def _status(file: Path) -> tuple[int, ...] | None:
    """A value that changes when a file is written or replaced; None if the file is gone."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _schema(file: Path) -> pa.Schema:
    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException):
        raise DataError(f"{file} cannot be read as a Parquet file. Write it again.") from None
    if len(set(schema.names)) < len(schema.names):
        raise DataError(f"{file} has several columns of one name. Rename them.")
    return schema


def _reading(file: Path, columns: Sequence[str]) -> dict[str, Any]:
    """How Arrow reads these columns: text as distinct values and a number per row, where the file itself holds it so.

    Then no text is written out for each row. If most texts were different, collecting them would take longer; such text
    takes more than four bytes per row, by which its length is written. Text that is too long to be collected, or whose
    pages are encoded in another way, is not, because Arrow fails on it: no value may decide that (security I1). By
    default, Arrow collects each column that was a dictionary when the file was written, and fails on text
    that is not UTF-8 if the numbers of its places had not 32 bits.
    """
    found = pq.read_metadata(file)
    schema = found.schema.to_arrow_schema()
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    apart = {
        chunk.path_in_schema
        for chunk in chunks
        if not _COLLECTED.issuperset(chunk.encodings)
        or chunk.total_uncompressed_size > max(_LENGTH * chunk.num_values, _SMALL)
    }
    dictionaries = {name for name in columns if isinstance(schema.field(name).type, pa.DictionaryType)}
    if dictionaries & apart:
        return {"binary_type": pa.large_binary()}  # which makes nothing a dictionary
    text = {name for name in columns if is_text(schema.field(name).type)}
    return {"read_dictionary": sorted((text | dictionaries) - apart)}


def _shared(names: Sequence[Sequence[str]]) -> list[str]:
    """The names that all files have, in the order of the first."""
    return [name for name in names[0] if all(name in others for others in names)]
