"""The data that a specification names: a file, a folder, a table of a database, or what the caller passes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hdmm.base.exceptions import DataError
from hdmm.base.hints import did_you_mean
from hdmm.base.lazy import Lazy
from hdmm.data import Data, from_table
from hdmm.data.engines.address import place_of, why_closed
from hdmm.data.engines.engine import Backend
from hdmm.data.engines.sqlite import open_sqlite
from hdmm.data.records import of_rows
from hdmm.data.table_like import TableLike
from hdmm.data.where import filter_facts
from hdmm.describe.values import Values
from hdmm.privacy.rows_of import RowsOf
from hdmm.publication.spec.keys import is_url
from hdmm.publication.spec.model import Spec
from hdmm.sql.row_filter import row_filter

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

_IN_FILES = ("duckdb", "sqlite")  # databases whose engine runs in this process


def open_data(spec: Spec, source: TableLike | None = None) -> Data:
    """The data of a specification, or a frame or table in its place. Columns are examined; rows are not read.

    A source such as sqlite://people.db is a database that Ibis reaches; other texts are paths, relative to the folder
    of the specification.
    """
    try:
        return _opened(spec, source)
    except DataError as wrong:
        raise type(wrong)(spec.masked(str(wrong))) from None


def _opened(spec: Spec, source: TableLike | None) -> Data:
    about, table, known = spec.data, None, rows_of(spec)
    if source is None:
        source, table = _named(spec)
    else:
        known = replace(known, source=None)
    data = from_table(
        spec.domain,
        source,
        columns=about.columns,
        id=about.id,
        max_rows_per_id=about.max_rows_per_id,
        where=_where(spec),
        table=table,
        rows_bound=about.rows_bound,
        fetch=about.fetch,
    )
    return of_rows(data, known.source, known.period)


def rows_of(spec: Spec) -> RowsOf:
    """The rows that a release of the specification would be of, by what it says. Opens no data.

    If persons have ids, nobody knows yet which of their rows will be counted.
    """
    about = spec.data
    named = about.source if about.source is None or is_url(about.source) else spec.path.parent / about.source
    return RowsOf.of(
        None if named is None else place_of(named, about.table),
        about.columns | filter_facts(_where(spec)),
        None if about.id is None else (about.id, about.max_rows_per_id or 1, None),
        spec.recorded,
    )


def _where(spec: Spec) -> dict[str, Values]:
    return {} if spec.data.where is None else row_filter(spec.data.where)


def _named(spec: Spec) -> tuple[TableLike, str | None]:
    """The source that the specification names, and the table of a DuckDB file."""
    named = spec.data.source
    if named is None:
        raise DataError(f"{spec.path} names no data. Add source to [data], or pass a frame from Python.")
    if is_url(named):
        return _database_table(spec, named)
    if "://" in named or "password=" in named.lower():
        raise DataError(
            f"{spec.path}: source is an address of no known form. Write a URL whose scheme is in lower case: postgres://…"
        )
    return spec.path.parent / named, spec.data.table


def _database_table(spec: Spec, url: str) -> tuple[TableLike, str | None]:
    """A table that Ibis reaches, or a DuckDB database and the name of its table.

    The database's message is withheld, because it may hold a password or data; address.py says what it means.
    """
    if spec.data.table is None:
        raise DataError(f"{spec.path}: source is a database. Name one of its tables with table in [data].")
    scheme, _, place = url.partition("://")
    if scheme == "file":
        raise DataError(f"{spec.path}: source is the URL of a file. Write only its path.")
    if scheme in _IN_FILES:
        _require_readable_file(spec, scheme, place)
    if scheme == "duckdb":
        return url, spec.data.table
    try:
        connected = open_sqlite(Path(place)) if scheme == "sqlite" else ibis.connect(url)
    except ImportError:
        raise DataError("A source that is a database needs Ibis. Install hdmm[ibis] and the driver.") from None
    except Exception as wrong:
        raise DataError(f"{spec.path}: the database cannot be opened: {why_closed(url, wrong)}") from None
    try:
        return connected.table(spec.data.table), None
    except Exception as wrong:
        hint = _other_table(connected, spec.data.table)
        connected.disconnect()
        raise DataError(
            f"{spec.path}: the database has no table {spec.data.table!r} that you may read ({type(wrong).__name__})."
            f"{hint} Check table in [data]."
        ) from None


def _other_table(connected: Backend, name: str) -> str:
    """A table of the database that may be meant, as a question."""
    try:
        return did_you_mean(name, connected.list_tables())
    except Exception:  # whatever the database says, the error is about the table that is missing
        return ""


def _require_readable_file(spec: Spec, scheme: str, place: str) -> None:
    if re.search("[?#]", place):
        raise DataError(
            f"{spec.path}: source is a URL with options, but a database in a file is opened for reading with fixed "
            "settings. Leave out what follows ? or #."
        )
    if not Path(place).is_file():
        raise DataError(
            f"{spec.path}: there is no file {Path(place).absolute()}. Check the URL: {scheme}://people.db lies in the "
            f"folder where hdmm is run, and {scheme}:///data/people.db in /data."
        )
