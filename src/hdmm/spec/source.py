"""The data that a specification names: a file, a folder, a table of a database, or what the caller hands over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hdmm.data import Data, from_table
from hdmm.data.table import TableLike
from hdmm.exceptions import DataError
from hdmm.lazy import Lazy
from hdmm.spec.model import Spec

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_FILE_URL = re.compile(r"(?:sqlite|duckdb)://([^?#]+)")


def open_data(spec: Spec, source: TableLike | None = None) -> Data:
    """The data of a specification, or a frame or table in its place. Columns are looked at; rows are not.

    A source such as sqlite://people.db is a database that Ibis reaches; other texts are paths, relative to the folder
    of the specification.
    """
    about, table = spec.data, None
    if source is None:
        source, table = _named(spec)
    return from_table(
        spec.domain,
        source,
        columns=about.columns,
        id=about.id,
        max_rows_per_id=about.max_rows_per_id,
        table=table,
        rows_bound=about.rows_bound,
    )


def _named(spec: Spec) -> tuple[TableLike, str | None]:
    """The source that the specification names, and the table of a DuckDB file."""
    named = spec.data.source
    if named is None:
        raise DataError(f"{spec.path} names no data. Add source to [data], or hand over a frame from Python.")
    if _URL.match(named):
        return _database_table(spec, named), None
    return spec.path.parent / named, spec.data.table


def _database_table(spec: Spec, url: str) -> ibis.Table:
    """What the database said is withheld: it may tell a password, or hold data."""
    if spec.data.table is None:
        raise DataError(f"{spec.path}: source is a database. Say which of its tables is meant: table in [data].")
    file = _FILE_URL.match(url)
    if file and not Path(file.group(1)).is_file():  # else Ibis would make one
        raise DataError(
            f"{spec.path}: there is no file {Path(file.group(1)).absolute()}. In a URL, sqlite://people.db lies in the "
            "folder where hdmm is run, sqlite:///data/people.db in /data."
        )
    try:
        return ibis.connect(url).table(spec.data.table)
    except ImportError:
        raise DataError("A source that is a database needs Ibis. Install hdmm[ibis] and the driver.") from None
    except Exception as wrong:
        raise DataError(
            f"{spec.path}: the database or its table cannot be opened ({type(wrong).__name__}). Check source and "
            "table in [data]."
        ) from None
