"""Folders of table formats (Delta Lake, Iceberg, Hudi, …), whose files are more than their table (security I7).

Such a format rewrites files without removing the old ones, keeps rows that were deleted, and writes in a log which
files make up the table. Reading all files counts a record once per rewrite. A single file is refused as well: it may
hold records that the table has no more, or several versions of one. A folder within such a table (a partition, the
data of Iceberg) is known by the folders above it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from hdmm.base.exceptions import DataError

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


def _format_of(folder: Path) -> str:
    inside = _names(folder)
    for name, marks in _MARKS:
        if all(_is_there(folder, inside, mark) for mark in marks):
            return name
    return ""


def _is_there(folder: Path, inside: Collection[str], mark: str) -> bool:
    """Whether a folder holds a name. A folder that may be entered but not listed still tells names that are exact."""
    first, _, rest = mark.partition("/")
    if rest:
        return os.path.lexists(folder / first) and _is_there(folder / first, _names(folder / first), rest)
    return any(fnmatchcase(name, mark) for name in inside) if "*" in mark else os.path.lexists(folder / mark)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
