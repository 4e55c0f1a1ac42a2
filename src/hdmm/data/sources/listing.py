"""Which files a path names: the file itself, or the files of a folder, with each record read once (security I7).

A folder collects more than its tables: copies that editors and operating systems keep under hidden names, links, and
compressed copies. A person in a file that is read five times is counted five times, at five times the privacy loss that
the release states. So hidden names are left out, and files that may be the same table twice are refused, or that are
part of a table format.

A table format (Delta Lake, Iceberg, Hudi, …) rewrites files without removing the old ones, keeps rows that were
deleted, and writes in a log which files make up the table. Reading all files counts a record once per rewrite. A single
file is refused as well: it may hold records that the table has no more, or several versions of one. A folder within
such a table (a partition, the data of Iceberg) is known by the folders above it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from hdmm.base.exceptions import DataError

CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")
_HIDDEN = (".", "_")
# A format, and names that lie together in the folder of each of its tables; * stands for anything.
_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Delta Lake", ("_delta_log",)),
    ("Apache Hudi", (".hoodie",)),
    ("Apache Hudi", (".hoodie_partition_metadata",)),
    ("Spark Structured Streaming", ("_spark_metadata",)),
    ("Databricks", ("_committed_*",)),
    ("Apache Iceberg", ("metadata/*.metadata.json",)),
    ("Apache Iceberg", ("metadata/*.metadata.json.gz",)),
    ("Apache Iceberg", ("metadata/*.gz.metadata.json",)),
    ("Apache Iceberg", ("metadata/version-hint.text",)),
    ("Apache Paimon", ("snapshot", "manifest", "schema")),
    ("DuckLake", ("ducklake-*.parquet",)),
)


def is_csv(file: Path) -> bool:
    """Whether a file is CSV by its name, whatever the case of its letters."""
    return file.name.lower().endswith(CSV)


def listed(place: Path) -> tuple[Path, ...]:
    """The file itself, or all files of the one kind that a folder and the folders in it hold, by name."""
    if not place.is_dir():
        require_readable_file(place)
        if not _is_table(place.name):
            raise DataError(
                f"The name of {place} does not say what kind of file it is. Use .csv, .csv.gz, .parquet, .duckdb, or "
                f"a folder of CSV or Parquet files."
            )
        refuse_table_formats([place])
        return (place,)
    found = sorted(_walked(place))
    if not found:
        raise DataError(f"The folder {place} holds no .csv, .csv.gz or .parquet files. Name the folder that does.")
    if len(set(map(is_csv, found))) > 1:
        raise DataError(f"The folder {place} holds both CSV and Parquet files. Keep files of one kind in it.")
    refuse_table_formats(found)
    _refuse_copies(found)
    return tuple(found)


def require_readable_file(place: Path) -> None:
    """Refuse a path that names no file, or one that may not be read."""
    if not place.is_file():
        raise DataError(f"There is no file {place}. Name a file or a folder that exists.")
    if not os.access(place, os.R_OK):
        raise DataError(f"You do not have permission to read the file {place}. Ask for it.")


def refuse_table_formats(files: Iterable[Path]) -> None:
    """Raise DataError if a file lies in a folder of a table format, or anywhere below one."""
    named = list(files)
    places = {file.parent for file in named} | {
        Path(os.path.realpath(file)).parent for file in named if file.is_symlink()
    }
    within = {Path(os.path.abspath(place)) for place in places} | {Path(os.path.realpath(place)) for place in places}
    for folder in sorted({above for place in within for above in (place, *place.parents)}):
        if found := _format_of(folder):
            raise DataError(
                f"{folder} is a table of {found}, whose files may hold a record several times, or records that were "
                f"deleted. Read the table with {found} or an engine that knows it, such as DuckDB or Spark, and give "
                "what it reads: write it to Parquet files in a folder of their own, or to a table of a database."
            )


def _walked(folder: Path) -> Iterator[Path]:
    """The tables of a folder and of the folders in it. Hidden names are left out and no link is followed."""
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError:
        raise DataError(f"You do not have permission to read the folder {folder}. Ask for it.") from None
    for entry in inside:
        place = folder / entry.name
        if entry.name.startswith(_HIDDEN):
            continue
        if entry.is_symlink() and (_is_table(entry.name) or entry.is_dir()):
            raise DataError(
                f"{place} is a link, which may lead to records that are also read elsewhere. Put the file or folder "
                "itself in its place, or remove the link."
            )
        if entry.is_dir(follow_symlinks=False):
            yield from _walked(place)
        elif _is_table(entry.name) and entry.is_file(follow_symlinks=False):
            require_readable_file(place)
            yield place


def _refuse_copies(found: list[Path]) -> None:
    """Refuse two names of one file, and two forms of one table."""
    names: dict[tuple[Path, str], Path] = {}
    places: dict[tuple[int, int], Path] = {}
    for file in found:
        status = file.stat()
        for other in (
            names.setdefault((file.parent, _stem(file.name)), file),
            places.setdefault((status.st_dev, status.st_ino), file),
        ):
            if other != file:
                raise DataError(
                    f"{other} and {file} may hold the same records, which would be counted twice. Keep one of them in "
                    "the folder; if they are different tables, give them different names."
                )


def _is_table(name: str) -> bool:
    return name.lower().endswith(CSV + PARQUET)


def _stem(name: str) -> str:
    """The name of a table without its suffixes: people for people.csv, people.CSV and people.csv.gz."""
    lower = name.lower()
    return lower.removesuffix(next(end for end in CSV + PARQUET if lower.endswith(end)))


def _format_of(folder: Path) -> str:
    inside = _names(folder)
    for name, marks in _MARKS:
        if all(_is_there(folder, inside, mark) for mark in marks):
            return name
    return ""


def _is_there(folder: Path, inside: Collection[str], mark: str) -> bool:
    """Whether a folder holds a name. A folder that may be entered but not listed still confirms exact names."""
    first, _, rest = mark.partition("/")
    if rest:
        return os.path.lexists(folder / first) and _is_there(folder / first, _names(folder / first), rest)
    return any(fnmatchcase(name, mark) for name in inside) if "*" in mark else os.path.lexists(folder / mark)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
