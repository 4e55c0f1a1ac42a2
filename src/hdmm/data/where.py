"""Which rows are counted: those whose columns have given values, as attributes that drop all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, TypeAlias

from hdmm.base.exceptions import DataError
from hdmm.base.hints import brief
from hdmm.base.lazy import Lazy
from hdmm.data.sources.source import Readable, Source, plain_types
from hdmm.describe.attribute import Attribute
from hdmm.describe.entries import Label
from hdmm.describe.values import Labels, Values

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

RowsWith: TypeAlias = "Values | Label | Sequence[Label]"
"""The values of a column that rows must have to be counted."""


def filter_facts(where: Mapping[str, RowsWith]) -> dict[str, str]:
    """What a filter says about the rows that are counted, for `RowsOf`."""
    return {f"where {column}": repr(_wanted(column, given)) for column, given in where.items()}


def filtering(where: Mapping[str, RowsWith], source: Source) -> dict[str, Attribute]:
    """For each column of a filter an attribute that drops all rows with other values."""
    if not isinstance(where, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"where is {brief(where)}. Give values by column, such as {{'month': '2026-01'}}.")
    kinds = source.checked(list(where), advice="The filter (where) names it.") if where else {}
    wanted = {column: _as_days(column, _wanted(column, given), kinds[column]) for column, given in where.items()}
    return {column: Attribute(f"where {column}", values) for column, values in wanted.items()}


def _wanted(column: str, given: RowsWith) -> Values:
    values = given if isinstance(given, Values) else Labels(given if isinstance(given, list | tuple) else [given])
    if values.outside != "drop":
        raise DataError(f"The filter on column {column!r} counts other values, too. Give it outside='drop'.")
    return values


def _as_days(column: str, values: Values, kind: Readable) -> Values:
    """Texts such as 2026-01-31 as dates, for a column of dates."""
    kinds = plain_types(kind)
    if any(isinstance(each, pa.TimestampType) for each in kinds):
        raise DataError(f"The filter is on column {column!r} of timestamps. Filter by a column of dates, or in a view.")
    if not isinstance(values, Labels) or not any(pa.types.is_date(each) for each in kinds):
        return values
    try:
        return Labels([date.fromisoformat(each) if isinstance(each, str) else each for each in values.values])
    except ValueError:
        raise DataError(f"Column {column!r} holds dates. Filter it by days such as '2026-01-31'.") from None
