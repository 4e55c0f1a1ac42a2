"""Which columns of an Ibis table have a type that says what they hold, whatever the rows are (security I5, I6).

SQLite stores values of any type in almost any column. The affinity of a declared type converts what is written: in a
column of integers, of text or of floats, one number is stored in one way, however it was spelled. A column without an
affinity (no declared type, BLOB, ANY) stores 0.1 and '0.1' beside each other, and Ibis takes its type from the first
row. The same holds for what a view or an expression computes, unless it is converted there.

Of a pandas frame in memory, Ibis takes the type of a column of objects from its values.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import numpy as np

from hdmm.base.lazy import Lazy, loaded
from hdmm.data.engines.local import Backend
from hdmm.data.sources.source import Untyped

if TYPE_CHECKING:
    import ibis
    import ibis.expr.operations as ops
    import pandas as pd
else:
    ops, pd = Lazy("ibis.expr.operations"), Lazy("pandas")


def untyped_columns(backend: Backend, table: ibis.Table) -> dict[str, Untyped]:
    """The columns whose type says nothing about their values. Reads no rows."""
    if backend.name == "sqlite":
        return {name: Untyped("any") for name in table.columns if not _converted(backend, table.op(), name)}
    held: list[Any] = [getattr(each, "data", None) for each in table.op().find(ops.InMemoryTable)]
    frames = [data.obj for data in held if hasattr(data, "obj")]
    types = [kind for frame in frames if loaded("pandas") and isinstance(frame, pd.DataFrame) for kind in frame.dtypes]
    if not any(kind == np.dtype(object) for kind in types):
        return {}
    alone = frames[0].dtypes if isinstance(table.op(), ops.InMemoryTable) else {}
    # Of what is computed from several columns, it cannot be said from which.
    return {name: Untyped("object") for name in table.columns if alone.get(name, np.dtype(object)) == np.dtype(object)}


def _converted(backend: Backend, relation: Any, column: str) -> bool:
    if isinstance(relation, ops.DatabaseTable):
        return _affinity(_declared(backend.con, relation.namespace.database or "main", relation.name, column))
    value = None if isinstance(relation, ops.Set | ops.SQLQueryResult) else relation.values.get(column)
    if isinstance(value, ops.Cast):
        return value.to.is_string() or value.to.is_integer() or value.to.is_floating()
    return isinstance(value, ops.Field) and _converted(backend, value.rel, value.name)


def _declared(connection: sqlite3.Connection, schema: str, table: str, column: str) -> str:
    """The declared type of a column; none if the table is a view, or virtual and stored elsewhere."""
    named = "WHERE type = 'table' AND rootpage > 0 AND name = ? COLLATE NOCASE"
    catalogue = '"' + schema.replace('"', '""') + '".sqlite_master'
    if connection.execute(" ".join(["SELECT 1 FROM", catalogue, named]), [table]).fetchone() is None:
        return ""
    types = "SELECT type FROM pragma_table_xinfo(?, ?) WHERE name = ? COLLATE NOCASE"
    found = connection.execute(types, [table, schema, column]).fetchone()
    return "" if found is None else str(found[0]).upper()


def _affinity(declared: str) -> bool:
    return "INT" in declared or not ("BLOB" in declared or declared in ("", "ANY"))
