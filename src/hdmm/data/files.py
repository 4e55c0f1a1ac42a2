"""Tables in files: CSV, Parquet, folders of either, and tables of DuckDB databases.

What depends on rows decides nothing here. The dialect of a CSV file is fixed but for the delimiter, which its header
decides; every column of it is text, and values.py makes of the text what it means. Parquet is read by Arrow, which
takes values as they are: DuckDB would fail on a text that is not UTF-8, or a time past midnight (security I1). DuckDB
reads its own files; it writes no temporary ones (security O4), loads no extensions, and reaches for no network.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from hdmm.data.lines import csv_header, csv_rows
from hdmm.data.source import ROWS_AT_ONCE, Batch, Kind, Several, Source, of_record_batch
from hdmm.exceptions import DataError
from hdmm.lazy import Lazy

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    duckdb, pa, pq = Lazy("duckdb"), Lazy("pyarrow"), Lazy("pyarrow.parquet")

_CSV = (".csv", ".csv.gz")
_PARQUET = (".parquet", ".pq")
_DATABASE = (".duckdb",)
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "arrow_large_buffer_size": True,  # without it 2 GiB of text among 2²⁰ rows are an error
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "lock_configuration": "true",
}


def file_source(path: str | os.PathLike[str], table: str | None) -> Source:
    """The source that a path names. The path is looked at; no rows are read."""
    place = Path(path)
    if place.suffix in _DATABASE:
        if table is None:
            raise DataError(f"{place} is a database. Say which of its tables is meant: table='…'.")
        _refuse_what_is_no_file(place)
        return DatabaseTable(place, table)
    if table is not None:
        raise DataError(f"A table is named, and {place} is not a DuckDB database (.duckdb). Leave out table={table!r}.")
    files = _files(place)
    return CsvFiles(files) if files[0].name.endswith(_CSV) else ParquetFiles(files)


@final
@dataclass(frozen=True, slots=True)
class CsvFiles(Source):
    """CSV files in UTF-8 with a header line: fields between , ; | or tabs, in double quotes where needed.

    lines.py says which rows are read.
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
    """Parquet files. A column may have another type in each."""

    files: tuple[Path, ...]

    def columns(self) -> dict[str, Kind]:
        schemas = [_schema(file) for file in self.files]
        shared = _shared([schema.names for schema in schemas])
        types = {name: tuple(dict.fromkeys(schema.field(name).type for schema in schemas)) for name in shared}
        return {name: each[0] if len(each) == 1 else Several(each) for name, each in types.items()}

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        for file in self.files:
            with pq.ParquetFile(file) as opened:
                for rows in opened.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
                    yield of_record_batch(rows.select(columns))  # of "a", Arrow also gives "a.b"


@final
@dataclass(frozen=True, slots=True)
class DatabaseTable(Source):
    """A table or view of a DuckDB database file, opened for reading only."""

    file: Path
    table: str

    def columns(self) -> dict[str, pa.DataType | None]:
        query = f"SELECT * FROM {_quoted(self.table)} LIMIT 0"  # a name in quotes  # nosec B608
        try:
            with closing(_connected(self.file)) as connection:
                schema = connection.sql(query).to_arrow_reader().schema
        except duckdb.Error:
            raise DataError(
                f"{self.file} has no table {self.table!r} that can be read. Name a table or view of the database, and "
                f"close the programs that write to it."
            ) from None
        return dict(zip(schema.names, schema.types, strict=True))

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        names = ", ".join(map(_quoted, columns))
        query = f"SELECT {names} FROM {_quoted(self.table)}"  # names in quotes  # nosec B608
        with closing(_connected(self.file)) as connection:
            for rows in connection.sql(query).to_arrow_reader(ROWS_AT_ONCE):
                yield of_record_batch(rows.rename_columns(list(columns)))


def _connected(database: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(str(database), read_only=True, config=_SETTINGS)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _files(place: Path) -> tuple[Path, ...]:
    """The file itself, or all files of the one kind that a folder and the folders in it hold, by name."""
    if not place.is_dir():
        _refuse_what_is_no_file(place)
        if not place.name.endswith(_CSV + _PARQUET):
            raise DataError(
                f"{place} is of no kind that can be read by its name. Use .csv, .csv.gz, .parquet, .duckdb, or a "
                f"folder of CSV or Parquet files."
            )
        return (place,)
    found = sorted(file for file in place.rglob("*") if file.name.endswith(_CSV + _PARQUET) and file.is_file())
    if not found:
        raise DataError(f"The folder {place} holds no .csv, .csv.gz or .parquet files. Name the folder that does.")
    if len({file.name.endswith(_CSV) for file in found}) > 1:
        raise DataError(f"The folder {place} holds CSV and Parquet files. Keep files of one kind in it.")
    return tuple(found)


def _refuse_what_is_no_file(place: Path) -> None:
    if not place.is_file():
        raise DataError(f"There is no file {place}. Name a file or a folder that exists.")
    if not os.access(place, os.R_OK):
        raise DataError(f"The file {place} may not be read. Ask for the right to read it.")


def _schema(file: Path) -> pa.Schema:
    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException):
        raise DataError(f"{file} cannot be read as a Parquet file. Write it again.") from None
    if len(set(schema.names)) < len(schema.names):
        raise DataError(f"{file} has several columns of one name. Rename them.")
    return schema


def _shared(names: Sequence[Sequence[str]]) -> list[str]:
    """The names that all files have, in the order of the first."""
    return [name for name in names[0] if all(name in others for others in names)]
