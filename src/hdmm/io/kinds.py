"""What files hold of domains, workloads and strategies: KINDS is the complete list.

A new kind is one line: its class, and its keys if they are not its fields. Predicate sets are listed in their own room.
What is read passes the same constructors and checks as a value built by hand. Sensitivities are never stored; they
follow from the factors (security F4).
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from itertools import pairwise
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    TypeAlias,
    TypeVar,
    cast,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import MatrixError, WorkloadError
from hdmm.describe.amount import Amount
from hdmm.describe.attribute import Attribute, Merged
from hdmm.describe.domain import Domain
from hdmm.describe.error_rows import ErrorRows
from hdmm.describe.levels import Level
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.predicates import PREDICATE_SETS, Groups, PredicateSet, Sets, Total, check_weight
from hdmm.describe.product import Product
from hdmm.describe.values import Labels, Values
from hdmm.describe.workload import Workload
from hdmm.io.strict_records import MisfitError, StrictRecord, shown
from hdmm.matrix import (
    AllIntervals,
    Array,
    Cumulative,
    Dense,
    ExtendedDiagonal,
    Eye,
    Forest,
    Haar,
    HalvedTriangle,
    Intervals,
    Matrix,
    Nested,
    Ones,
    Permuted,
    PIdentity,
    Repeated,
    Residual,
    RowScaled,
    Scaled,
    Sparse,
    Stack,
    TreeIdentity,
)
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.strategy.blocks import BlockTable
from hdmm.strategy.strategy import Strategy

T = TypeVar("T")
AxisOrAxes: TypeAlias = int | list[int]
WeightedRow: TypeAlias = tuple[float, list[tuple[AxisOrAxes, int]]]
"""[weight, [[axis, index], …]]: the index is of a distinct factor; several axes are a list of them."""
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_LABEL = str | int | float | bool

if TYPE_CHECKING:
    Stored = Annotated[T, "as files hold it"]
else:

    class Stored(ABC, Generic[T]):
        """A value of T in a record, read by its kind: msgspec would fill a dataclass without its constructor."""


class SetProducts(StrictRecord, frozen=True):
    """Products of predicate sets; each distinct set is written once."""

    distinct: list[PredicateSet]
    rows: list[WeightedRow]


class FactorProducts(StrictRecord, frozen=True):
    """Blocks of matrices; each distinct matrix is written once."""

    distinct: list[Matrix]
    rows: list[WeightedRow]


@final
@dataclass(frozen=True, slots=True, eq=False)
class FileKind:
    """One class: the record that holds it, and what builds it from the record's keys.

    `take` gives the keys of a value, which usually are its attributes, or None if another kind of its class holds it.
    """

    cls: type
    record: type[msgspec.Struct]
    build: Callable[..., Any]
    take: Callable[[Any], Mapping[str, Any] | None]

    @property
    def name(self) -> str:
        """Its name in files."""
        return self.record.__name__


def _kind(
    cls: type,
    keys: Mapping[str, Any],
    build: Callable[..., Any] | None = None,
    take: Callable[[Any], Mapping[str, Any] | None] | None = None,
    *,
    name: str = "",
    tagged: bool = True,
    optional: Mapping[str, Any] | None = None,
) -> FileKind:
    name = name or cls.__name__
    extra = [(key, form | msgspec.UnsetType, msgspec.UNSET) for key, form in (optional or {}).items()]
    record = msgspec.defstruct(
        name,
        [*keys.items(), *extra],
        tag=name if tagged else None,
        tag_field="kind" if tagged else None,
        forbid_unknown_fields=True,
        frozen=True,
    )
    return FileKind(cls, record, build or cls, take or _taker(tuple(keys), tuple(optional or ())))


def _taker(keys: Sequence[str], optional: Sequence[str]) -> Callable[[Any], Mapping[str, Any]]:
    """The keys of a value; optional ones only where it has something there, so that older files keep their bytes."""
    return lambda value: {key: getattr(value, key) for key in (*keys, *(k for k in optional if getattr(value, k)))}


def _merged(parts: Sequence[Attribute]) -> Values:
    return Domain(parts).merge([part.name for part in parts], name="merged").attributes[0].values


def _sets(members: Sequence[Sequence[int]], names: Sequence[str] | None) -> Sets:
    if names is None:
        return Sets(members)
    if len(set(names)) < len(names) or len(names) != len(members):
        raise WorkloadError(f"Sets has {len(members)} sets and {len(set(names))} distinct names. Name each set once.")
    return Sets(dict(zip(names, members, strict=True)))


def _of_fields(cls: type, build: Callable[..., Any] | None = None) -> FileKind:
    """The kind of a class whose keys are its fields."""
    hints = get_type_hints(cls)
    return _kind(cls, {field.name: _form(hints[field.name]) for field in fields(cast(Any, cls))}, build)


def _predicates(cls: type[PredicateSet]) -> FileKind:
    """The kind of a predicate set. What a level groups follows from its name."""
    return _kind(cls, {"level": str}) if cls is Groups else _of_fields(cls, _sets if cls is Sets else None)


def _form(hint: Any) -> Any:
    """What a file holds of a field: sizes and positions from 0, lists in place of tuples, the names of arrays."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is np.ndarray:
        return _ARRAY
    if origin is UnionType:
        return reduce(or_, map(_form, inner))
    if origin is tuple:
        return list[_form(inner[0])] if inner[1:] == (...,) else tuple[tuple(map(_form, inner))]
    return Size if hint is int else hint


def _amount(low: float, high: float, step: float) -> Amount:
    return Amount(low, high, step=step)


def _plain_bins(bins: Bins) -> Mapping[str, Any] | None:
    return {"edges": bins.edges, "outside": bins.outside} if bins.values is None else None


def _valued_bins(bins: Bins) -> Mapping[str, Any] | None:
    return {"edges": bins.edges, "outside": bins.outside, "values": bins.values}


def _p_identity(A: ExtendedDiagonal) -> Mapping[str, Any] | None:
    return {"theta": A.below.array} if A.order == 1 and isinstance(A.below, Dense) else None


def _tree_identity(A: ExtendedDiagonal) -> Mapping[str, Any] | None:
    if A.order is None or not isinstance(A.below, Nested):
        return None
    return {"weights": A.below.values, "widths": A.below.widths, "order": A.order}


def _diagonal_and_rows(A: ExtendedDiagonal) -> Mapping[str, Any] | None:
    return {"d": A.d, "below": A.below} if A.order is None else None


def _augmented(d: Array, below: Matrix) -> ExtendedDiagonal:
    return ExtendedDiagonal(below, d)


def _stack(blocks: Sequence[Matrix]) -> Stack:
    return Stack(tuple(blocks))


def _sparse(shape: tuple[int, int], starts: Array, columns: Array, entries: Array) -> Sparse:
    if not all(array.ndim == 1 for array in (starts, columns, entries)):
        raise MatrixError("A Sparse matrix is made of three lists of numbers.")
    try:
        held = sp.csr_array((entries, columns, starts), shape=shape)
        held.check_format(full_check=True)
    except (ValueError, TypeError, OverflowError):
        raise MatrixError("The lists of a Sparse matrix are not compressed rows.") from None
    return Sparse(held)


def _workload(domain: Domain, products: SetProducts) -> Workload:
    """The workload, with the checks of `Workload.product`, each predicate set tried once on each attribute."""
    tried: dict[tuple[tuple[int, ...], int], PredicateSet] = {}
    found: list[Product] = []
    for row, (weight, factors) in enumerate(_rows(products, "products")):
        try:
            check_weight(weight)
            previous, used, fitted = -1, set[int](), list[tuple[tuple[int, ...], PredicateSet]]()
            for axes, index in factors:
                predicates = products.distinct[index]
                ascending = all(a < b for a, b in pairwise((-1, *axes, len(domain)))) and axes[0] > previous
                if not ascending or used & set(axes) or isinstance(predicates, Total):
                    axis = axes[0] if len(axes) == 1 else axes
                    raise WorkloadError(
                        f"axis {axis} is out of order, outside 0 to {len(domain) - 1}, or Total. List ascending axes; "
                        "those left out are Total."
                    )
                previous = axes[0]
                used.update(axes)
                if (axes, index) not in tried:
                    attribute = domain.attribute_over(axes)
                    tried[axes, index] = predicates.on(attribute)
                    tried[axes, index].check(attribute)
                fitted.append((axes, tried[axes, index]))
        except WorkloadError as error:
            raise WorkloadError(f"row {row} of the products: {error}") from None
        found.append(Product.of(domain, fitted, weight))
    return Workload(domain, tuple(found))


def _row_keys(rows: ErrorRows) -> Mapping[str, Any]:
    keys = {key: getattr(rows, key) for key in ("workload", "factors", "expected", "margin")}
    keys["combine"] = None if rows.combine is None else Sparse(rows.combine)
    return {key: value for key, value in keys.items() if value is not None}


def _error_rows(workload: Workload, combine: Matrix | None = None, **numbers: Array) -> ErrorRows:
    """The rows, if there is a number from 0 on for each of them, or one for all."""
    if combine is not None and (not isinstance(combine, Sparse) or combine.shape[1] != workload.queries):
        raise WorkloadError("Rows are sums of the queries of their workload, by a Sparse matrix.")
    count = workload.queries if combine is None else combine.shape[0]
    for name, each in numbers.items():
        sizes = (count,) if name == "factors" else (1, count)
        if each.ndim != 1 or len(each) not in sizes or not (each >= 0).all() or not np.isfinite(each).all():
            raise WorkloadError(f"The {name} of rows are not {count:,} numbers from 0 on.")
    return ErrorRows(workload, None if combine is None else combine.csr, **numbers)


def _strategy(domain: Domain, blocks: FactorProducts, inference: str) -> Strategy:
    rows, found = _rows(blocks, "blocks"), dict[tuple[tuple[int, ...], int], int]()
    numbers = [found.setdefault(factor, len(found)) for _, factors in rows for factor in factors]
    starts = np.cumsum([0, *(len(factors) for _, factors in rows)])
    weights = np.array([weight for weight, _ in rows], dtype=np.float64)
    distinct = tuple([(axes, blocks.distinct[index]) for axes, index in found])
    table = BlockTable(weights, starts, np.array(numbers, dtype=np.int64), distinct)
    return Strategy(domain, table, cast(Any, inference))


def _rows(products: Any, key: str) -> list[tuple[float, list[tuple[tuple[int, ...], int]]]]:
    """The rows as (weight, [(axes, number of a value), …]); axes and weights are checked by what is built from them."""
    distinct = products.distinct
    for i, (_, factors) in enumerate(products.rows):
        for axes, index in factors:
            if not 0 <= index < len(distinct):
                raise MisfitError(
                    f"This refers to entry {shown(index)} of {len(distinct)} distinct ones.", (key, "rows", i)
                )
            if isinstance(axes, list) and len(axes) < 2:
                raise MisfitError("A list of axes must have two or more.", (key, "rows", i))
    return [
        (weight, [(tuple(axes) if isinstance(axes, list) else (axes,), i) for axes, i in factors])
        for weight, factors in products.rows
    ]


_BINS = {"edges": list[int | float], "outside": str}
_ARRAY = np.ndarray
_TREE = {"weights": _ARRAY, "widths": list[Size], "order": int}
_OVER = {"domain": Stored[Domain]}
_LEVELS = {"levels": list[Stored[Level]]}
_ROWS = {"combine": Matrix, "factors": _ARRAY, "expected": _ARRAY, "margin": _ARRAY}

KINDS: Mapping[type, Sequence[FileKind]] = {
    Unit: (_kind(Unit, {"rows": int, "neighbours": str}, tagged=False, optional={"id": str}),),
    Domain: (_kind(Domain, {"attributes": list[Stored[Attribute]]}, tagged=False),),
    Attribute: (_kind(Attribute, {"name": str, "values": Values}, tagged=False),),
    Values: (
        _kind(Labels, {"values": list[_LABEL], "outside": str}, optional=_LEVELS),
        _kind(Integers, {"first": int, "last": int, "step": int, "outside": str}, optional=_LEVELS),
        _kind(Bins, _BINS, None, _plain_bins, optional=_LEVELS),
        _kind(Bins, {**_BINS, "values": list[int | float]}, None, _valued_bins, name="ValuedBins", optional=_LEVELS),
        _kind(Amount, {"low": int | float, "high": int | float, "step": int | float}, _amount),
        _kind(Merged, {"parts": list[Stored[Attribute]]}, _merged),
    ),
    Level: (_kind(Level, {"name": str, "groups": list[_LABEL], "codes": _ARRAY}, tagged=False),),
    Workload: (_kind(Workload, {**_OVER, "products": SetProducts}, _workload, tagged=False),),
    ErrorRows: (
        _kind(ErrorRows, {"workload": Stored[Workload]}, _error_rows, _row_keys, tagged=False, optional=_ROWS),
    ),
    PredicateSet: tuple(map(_predicates, PREDICATE_SETS)),
    Strategy: (_kind(Strategy, {**_OVER, "blocks": FactorProducts, "inference": str}, _strategy),),
    Matrix: (
        *map(_of_fields, (Eye, Ones, Haar, HalvedTriangle, Residual, Nested, Permuted, Repeated, Dense)),
        *map(_of_fields, (Cumulative, AllIntervals, Intervals, RowScaled)),
        _kind(ExtendedDiagonal, {"theta": _ARRAY}, PIdentity, _p_identity, name="PIdentity"),
        _kind(ExtendedDiagonal, _TREE, TreeIdentity, _tree_identity, name="TreeIdentity"),
        _kind(ExtendedDiagonal, {"d": _ARRAY, "below": Matrix}, _augmented, _diagonal_and_rows, name="Augmented"),
        _kind(ExtendedDiagonal, {"below": Matrix, "order": int}),
        _kind(Forest, {"values": _ARRAY, "nodes": _ARRAY}),
        _kind(Sparse, {"shape": tuple[Size, Size], "starts": _ARRAY, "columns": _ARRAY, "entries": _ARRAY}, _sparse),
        _kind(Stack, {"blocks": list[Matrix]}, _stack),
        _kind(Scaled, {"c": int | float, "inner": Matrix}),
    ),
}

for _held in (Unit, Domain, Attribute, Level, Workload, ErrorRows, Strategy):
    cast(Any, Stored).register(_held)
