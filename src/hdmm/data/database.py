"""A table in any database that Ibis reaches: the database counts it.

Each attribute becomes an expression that depends on the row alone and is NULL outside the declaration; the database
groups by those. Grouping by a column of text itself would be wrong: a database may take 'm' for 'M' and answer with
either, and then one row could change how others are counted. If a type has no such expression (numbers as text,
decimals, dates), and in SQLite, whose columns hold values of any type, rows are fetched instead. Columns of a type that
cannot be fetched are refused before any row is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from hdmm.attribute import Attribute
from hdmm.data.coding import drops
from hdmm.data.columns import encode
from hdmm.data.engines import READS_OTHER_FILES, Backend, check_backend, memory_backend, reading_sqlite
from hdmm.data.postgres import counts_in_postgres, postgres_kinds, postgres_rows
from hdmm.data.source import ROWS_AT_ONCE, Batch, ColumnKind, Source, Unreadable, Untyped, of_record_batch
from hdmm.entries import INT64_END, Codes
from hdmm.exceptions import DataError
from hdmm.lazy import Lazy
from hdmm.values import Bins, Integers, Labels, Values

if TYPE_CHECKING:
    import duckdb
    import ibis
    import ibis.expr.datatypes as dt
    import ibis.expr.operations as ops
else:
    duckdb, ibis = Lazy("duckdb"), Lazy("ibis")
    dt, ops = Lazy("ibis.expr.datatypes"), Lazy("ibis.expr.operations")

Expression: TypeAlias = Any  # of Ibis: what it offers depends on the type of a column, which is known at run time only
Cell: TypeAlias = tuple[Expression, Values]  # an expression of a row, and what reads its values
CountedGroups: TypeAlias = tuple[dict[Attribute, Codes], Codes]  # codes of groups of rows, and how many rows each has

_MOST_CASES = 1000
_DECIMAL_DIGITS = 38  # the most that a decimal may have if Ibis gives it to Arrow


@final
@dataclass(frozen=True, slots=True, eq=False)
class IbisTable(Source):
    """A table expression of Ibis. A table that no connection holds is computed by a DuckDB of our own."""

    table: ibis.Table
    _backend: Backend = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bound = self.table.op().find((ops.DatabaseTable, ops.SQLQueryResult, ops.UnboundTable))
        object.__setattr__(self, "_backend", self.table.get_backend() if bound else memory_backend())

    def columns(self) -> dict[str, ColumnKind]:
        check_backend(self._backend)
        if self._backend.name == "postgres":
            return postgres_kinds(self._backend, self.table)
        any_type = self._backend.name == "sqlite"
        kinds = {name: _kind(kind, any_type=any_type) for name, kind in self.table.schema().items()}
        if self._backend.name == "duckdb":
            readable = [name for name, kind in kinds.items() if not isinstance(kind, Unreadable)]
            _refuse_other_files(self._backend, self.table.select(readable).limit(0) if readable else None)
        return kinds

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        return _rows(self._backend, self.table.select(list(columns)))

    def grouped(
        self, column: Callable[[Attribute], str], keys: Sequence[Attribute], others: Sequence[Attribute]
    ) -> Iterator[CountedGroups] | None:
        """Rows that no attribute drops, counted by the cells of the keys; None if the database cannot."""
        found = {part: _cell(self.table[column(part)], part.values) for a in (*keys, *others) for part in a.parts}
        cells = {part: cell for part, cell in found.items() if cell is not None}
        if not cells or len(cells) < len(found) or not self._counts_exactly({column(part) for part in cells}):
            return None
        names = {part: f"c{i}" for i, part in enumerate(cells)}
        rows = self.table.select(**{names[part]: expression for part, (expression, _) in cells.items()})
        inside = [rows[names[part]].notnull() for part in cells if drops(part)]
        by = [part for key in keys for part in key.parts]
        kept = rows.filter(inside) if inside else rows
        counted = kept.aggregate([kept.count().name("n")], by=[kept[names[part]] for part in by])
        return (
            ({part: encode(cells[part][1], batch[names[part]]) for part in by}, _integers(batch["n"]))
            for batch in _rows(self._backend, counted)
        )

    def _counts_exactly(self, columns: Collection[str]) -> bool:
        """Whether the database compares the values of these columns as values.py does."""
        if self._backend.name == "postgres":
            return counts_in_postgres(self._backend, self.table, columns)
        return self._backend.name != "sqlite"


def _refuse_other_files(backend: Backend, nothing: ibis.Table | None) -> None:
    """Refuse a view that reads more than its database: DuckDB says so when it is asked for no rows."""
    try:
        if nothing is not None:
            backend.to_pyarrow(nothing)
    except duckdb.PermissionException:
        raise DataError(READS_OTHER_FILES.format("The Ibis table")) from None


def _rows(backend: Backend, table: ibis.Table) -> Iterator[Batch]:
    if backend.name == "sqlite":
        # Ibis would convert each column to its declared type, which fails on values of other types.
        names = table.columns
        with reading_sqlite(backend.con), closing(backend.raw_sql(backend.compile(table))) as cursor:
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    elif backend.name == "postgres":
        yield from postgres_rows(backend, table)
    elif backend.name == "duckdb":  # Ibis 12 reads batches with a method that DuckDB 2 no longer has
        yield from map(of_record_batch, backend.to_pyarrow(table).to_batches(max_chunksize=ROWS_AT_ONCE))
    else:
        yield from map(of_record_batch, backend.to_pyarrow_batches(table, chunk_size=ROWS_AT_ONCE))


def _cell(column: Expression, values: Values) -> Cell | None:
    """The expression of an attribute's cell; None if there is no exact one."""
    kind = column.type()
    if kind.is_boolean():
        bits = [(condition, ibis.literal(bit, "int8")) for condition, bit in ((column, 1), (~column, 0))]
        return _cell(ibis.cases(*bits), values)  # not every engine casts truth values to numbers
    if kind.is_integer() and kind.bounds.upper >= INT64_END:  # not every engine writes such numbers
        return None
    if isinstance(values, Labels):
        return _cell_of_labels(column, values)
    if isinstance(values, Integers) and kind.is_integer() and values.step == 1:
        low, high = max(values.first, kind.bounds.lower), min(values.last, kind.bounds.upper)
        return (column.between(low, high).ifelse(column, ibis.null()), values) if low <= high else None
    if isinstance(values, Bins) and (kind.is_integer() or kind.is_floating()):
        # For an integer v, v < e is v < ⌈e⌉; engines would round large integers to compare them with a float.
        edges = [math.ceil(edge) if kind.is_integer() else float(edge) for edge in values.edges]
        if kind.is_integer() and not kind.bounds.lower <= edges[0] < edges[-1] <= kind.bounds.upper:
            return None
        branches = [(column < edge, place - 1) for place, edge in enumerate(edges)]
        return _positions(branches, values)
    return None


def _cell_of_labels(column: Expression, values: Labels) -> Cell | None:
    kind = column.type()
    whole, text = kind.is_integer(), kind.is_string()
    if not (whole or text) or not all(isinstance(label, int | str) for label in values.values):
        return None
    if text and not all(isinstance(label, str) and label.isprintable() for label in values.values):
        return None  # text may spell a label that is a number: see values.py
    usable = (int(label) if whole else label for label in values.values if isinstance(label, int if whole else str))
    places = {label: place for place, label in enumerate(values.values)}
    branches = [
        (column == label, places[label])
        for label in usable
        if not whole or kind.bounds.lower <= label <= kind.bounds.upper
    ]
    return _positions(branches, values)


def _positions(branches: Sequence[tuple[Any, int]], values: Values) -> Cell | None:
    if not 1 <= len(branches) <= _MOST_CASES:
        return None
    places = Integers(0, values.size - (values.outside == "other") - 1, outside=values.outside)
    cases = [(condition, ibis.literal(place, "int32")) for condition, place in branches]
    return ibis.cases(*cases).nullif(ibis.literal(-1, "int32")), places


def _integers(column: Any) -> Codes:
    return np.asarray(column, np.int64)


def _kind(kind: dt.DataType, *, any_type: bool) -> ColumnKind:
    """The type in Arrow. With `any_type`, a column holds values of any type and all of them can be read."""
    plain = kind.is_boolean() or kind.is_integer() or kind.is_float32() or kind.is_float64() or kind.is_null()
    text = kind.is_string() or kind.is_binary() or kind.is_uuid()
    time = kind.is_date() or kind.is_time() or kind.is_timestamp()
    if any_type and (time or kind.is_uuid()):
        return Untyped(type(kind).__name__.lower())  # SQLite has no such values: they are written as text or numbers
    if plain or text or time or (isinstance(kind, dt.Decimal) and 0 < (kind.precision or 0) <= _DECIMAL_DIGITS):
        return kind.to_pyarrow()
    return None if any_type else Unreadable(type(kind).__name__.lower())
