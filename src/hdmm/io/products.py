"""Weighted products as rows: each distinct predicate set or factor is written once, and shared once read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar, cast

from hdmm.io.forms import (
    AGAIN,
    INDEX,
    NUMBER,
    Arrays,
    Form,
    FormError,
    Source,
    as_list,
    as_object,
    check_keys,
    described,
    list_of,
    shown,
)
from hdmm.io.strict_json import Json

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Axes: TypeAlias = int | tuple[int, ...]
Row: TypeAlias = tuple[float, tuple[tuple[Axes, T], ...]]


class Weighed(Protocol[T_co]):
    """What is written: a Product of predicate sets, or a Block of matrices."""

    @property
    def weight(self) -> float: ...
    @property
    def factors(self) -> tuple[tuple[Axes, T_co], ...]: ...


def write_products(products: Sequence[Weighed[T]], form: Form[T], arrays: Arrays) -> Json:
    """{"distinct": [value, …], "rows": [[weight, [[axis, index], …]], …]}; several axes are a list of them.

    Values are one where they are written alike, so that names which equality leaves out are kept.
    """
    place = _places(form, arrays)
    rows: list[Json] = []
    distinct: list[Json] = []
    try:
        for product in products:
            factors = [[_written_axes(axes, arrays), place(value, distinct)] for axes, value in product.factors]
            rows.append([NUMBER.write(product.weight, arrays), factors])
    except FormError as wrong:
        raise wrong.under(f"[{len(rows)}]") from None
    return {"distinct": distinct, "rows": rows}


def read_products(value: Json, form: Form[T], source: Source) -> Sequence[Row[T]]:
    """The rows as (weight, ((axis, value), …)); axes and weights are checked by what is built from them."""
    given = as_object(value)
    check_keys(given, ("distinct", "rows"))
    try:
        distinct = list_of(form).read(given["distinct"], source)
    except FormError as wrong:
        raise wrong.under(".distinct") from None
    rows: list[Row[T]] = []
    try:
        for row in as_list(given["rows"]):
            if not isinstance(row, list) or len(row) != 2:
                raise FormError(f"is {described(row)}; a row is [weight, [[axis, index], …]]. {AGAIN}")
            factors = tuple([_factor(pair, distinct) for pair in as_list(row[1])])
            rows.append((NUMBER.read(row[0], source), factors))
    except FormError as wrong:
        raise wrong.under(f".rows[{len(rows)}]" if isinstance(given["rows"], list) else ".rows") from None
    return rows


def products_of(form: Form[T]) -> Form[Sequence[Row[T]]]:
    """The form of weighted products of such values: what has weight and factors is written, rows are read."""
    return Form(
        lambda products, arrays: write_products(products, form, arrays),  # pyright: ignore[reportArgumentType]
        lambda value, source: read_products(value, form, source),
    )


def _places(form: Form[T], arrays: Arrays) -> Callable[[T, list[Json]], int]:
    """Where a value stands among the distinct ones, added if it is new."""
    by_id: dict[int, int] = {}  # a hundred thousand products share few objects
    by_text: dict[str, int] = {}

    def place(value: T, distinct: list[Json]) -> int:
        found = by_id.get(id(value))
        if found is None:
            written = form.write(value, arrays)
            found = by_id[id(value)] = by_text.setdefault(repr(written), len(distinct))
            if found == len(distinct):
                distinct.append(written)
        return found

    return place


def _written_axes(axes: Axes, arrays: Arrays) -> Json:
    several = (axes,) if isinstance(axes, int) else axes
    written = [INDEX.write(axis, arrays) for axis in several]
    return written[0] if len(written) == 1 else written


def _factor(pair: Json, distinct: Sequence[T]) -> tuple[Axes, T]:
    match pair:
        case [int(axis), int(index)] if type(axis) is int and type(index) is int:
            axes: Axes = axis
        case [[_, _, *_] as several, int(index)] if type(index) is int and all(type(axis) is int for axis in several):
            axes = tuple(map(int, cast(list[int], several)))
        case _:
            raise FormError(f"holds {described(pair)} where a factor is [axis, index]. {AGAIN}")
    if not 0 <= index < len(distinct):
        raise FormError(f"refers to entry {shown(index)} of {len(distinct)} distinct ones. {AGAIN}")
    return axes, distinct[index]
