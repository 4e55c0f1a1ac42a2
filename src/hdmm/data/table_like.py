"""Tables as users give them, frames, files and databases, opened as data with one row per record."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from hdmm.base.exceptions import DataError
from hdmm.base.hints import brief
from hdmm.base.lazy import Lazy, loaded
from hdmm.data.counts import Data, checked_rows_bound
from hdmm.data.engines import IbisTable
from hdmm.data.engines.address import place_of
from hdmm.data.records import TableData
from hdmm.data.sources.frames import ArrowDataset, ArrowReader, ArrowTable, PandasFrame, PolarsFrame
from hdmm.data.sources.source import Source
from hdmm.data.sources.table_files import file_source, stamp
from hdmm.data.types import are_floats
from hdmm.data.where import RowsWith, filter_facts, filtering
from hdmm.describe.domain import Domain
from hdmm.privacy.rows_of import RowsOf, new_mark

if TYPE_CHECKING:
    import ibis
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds
else:
    ibis, pa, pd, pl = Lazy("ibis"), Lazy("pyarrow"), Lazy("pandas"), Lazy("polars")
    ds = Lazy("pyarrow.dataset")

TableLike: TypeAlias = """
    str | os.PathLike[str] | pd.DataFrame | pl.DataFrame | pl.LazyFrame | pa.Table | pa.RecordBatch
    | pa.RecordBatchReader | ds.Dataset | ibis.Table
"""


def from_table(
    domain: Domain,
    source: TableLike,
    *,
    columns: Mapping[str, str] | None = None,
    id: str | None = None,  # noqa: A002 (what a user calls it)
    max_rows_per_id: int | None = None,
    where: Mapping[str, RowsWith] | None = None,
    table: str | None = None,
    rows_bound: int | None = None,
    fetch: bool = False,
    declared_types: bool = False,
) -> Data:
    """Data with one row per record: a frame, a file, a folder of files, or a table in a database.

    `columns` names the column of an attribute if it has another name. With `id`, a column that says
    whose row it is, at most `max_rows_per_id` rows of each person are counted, and rows without an id are dropped.
    `where` says which rows are counted: those whose columns have these values, such as {"month": "2026-01"}, a list of
    values, or Bins of one interval.
    `table` names the table of a .duckdb file. Only the columns are examined now; marginal() reads the rows.
    A database that Ibis reaches counts its rows itself. A table that it cannot count exactly is refused; with
    `fetch=True`, its rows are fetched instead.

    Give a file by its path, not as a frame that was read from it: readers choose the types of columns by what the rows
    hold, so one person could change how all others are read. Frames whose types show this are refused, unless you
    say with `declared_types=True` that nobody but you chose the types of all columns. A RecordBatchReader needs this.
    Equal ids are one person, however they are typed or written: 7, 7.0, "7" and "07" are equal.

    >>> table = pa.table({"sex": ["M", "F", "F", "?"], "years": [30, 31, 31, 40]})
    >>> domain = Domain({"sex": ["M", "F"], "age": range(30, 33)})
    >>> from_table(domain, table, columns={"age": "years"}).marginal(["age", "sex"])
    array([[1, 0],
           [0, 2],
           [0, 0]])
    """
    found = _source(source, table)
    kept = _checked_max_rows(id, max_rows_per_id)
    mark, names = new_mark(), _column_names(domain, columns or {})
    filters, facts = filtering(where or {}, found), names | filter_facts(where or {})
    place = place_of(source, table) if isinstance(source, str | os.PathLike) else mark
    data = TableData(
        domain=domain,
        rows_bound=checked_rows_bound(rows_bound),
        max_rows_per_id=kept,
        _source=found,
        _columns=names | {filtered.name: column for column, filtered in filters.items()},
        _id=id,
        _fetch=fetch,
        _declared=declared_types,
        _stamp=stamp(found),  # before the columns are examined, so that no change of them is missed
        _read=Domain((*domain.attributes, *filters.values())) if filters else domain,
        rows_of=RowsOf.of(place, facts, None if id is None or kept is None else (id, kept, mark)),
    )
    kinds = data.checked_columns()
    if id is not None and are_floats(kinds[id]):
        warnings.warn(
            f"The ids in column {id!r} are floats, which do not distinguish integers beyond 2**53: there, two people "
            "may share an id. Store ids as integers or text.",
            stacklevel=2,
        )
    return data


def _source(given: TableLike, table: str | None) -> Source:
    if isinstance(given, str | os.PathLike):
        return file_source(given, table)
    if table is not None:
        raise DataError(f"table={brief(table)} is for a .duckdb file; the source is a {type(given).__name__}.")
    if loaded("pandas") and isinstance(given, pd.DataFrame):
        return PandasFrame(given)
    if loaded("polars") and isinstance(given, pl.DataFrame | pl.LazyFrame):
        return PolarsFrame(given)
    if loaded("ibis") and isinstance(given, ibis.Table):
        return IbisTable(given)
    if loaded("pyarrow") and isinstance(given, pa.RecordBatchReader):
        return ArrowReader(given)
    if loaded("pyarrow") and isinstance(given, pa.Table | pa.RecordBatch):
        return ArrowTable(given)
    if loaded("pyarrow.dataset") and isinstance(given, ds.Dataset):
        return ArrowDataset(given)
    raise DataError(
        f"The source is a {type(given).__name__}. Give a pandas or polars frame, a pyarrow table, an Ibis table, or "
        f"the path of a CSV, Parquet or DuckDB file or of a folder of files."
    )


def _column_names(domain: Domain, given: Mapping[str, str]) -> dict[str, str]:
    """The column of each attribute, or of each part it was merged from."""
    names = {part.name: part.name for attribute in domain.attributes for part in attribute.parts}
    for attribute, column in given.items():
        if attribute not in names:
            raise DataError(
                f"columns names a column for {attribute!r}, which is not an attribute of the domain; "
                f"attributes: {', '.join(names)}."
            )
        if not isinstance(column, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataError(
                f"The column of attribute {attribute!r} is {brief(column)}. Give the name of a column as text."
            )
    return names | dict(given)


def _checked_max_rows(column: str | None, given: int | None) -> int | None:
    if (column is None) != (given is None):
        raise DataError(
            "id and max_rows_per_id belong together: the column that says whose row it is, and the most rows of one "
            "person that are counted. Give both, or neither if each row is a person."
        )
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"max_rows_per_id is {brief(given)}. Give a positive integer.")
    return given
