"""Domains, workloads and strategies as JSON and arrays: one table of kinds drives writing and reading.

A new kind is one entry of KINDS: its class, its fields and their forms. What is read goes through the constructors and
checks that building it by hand goes through. Sensitivities are never stored; they follow from the factors (security
F4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import scipy.sparse as sp

from hdmm.domain import Attribute, Domain, Merged
from hdmm.exceptions import FileError, MatrixError, StrategyError, WorkloadError
from hdmm.io.forms import (
    ARRAY,
    EDGE,
    INDEX,
    INTEGER,
    LABEL,
    NUMBER,
    PAIR,
    TEXT,
    Arrays,
    Form,
    FormError,
    Kind,
    Source,
    list_of,
    one_of,
    optional,
    record,
)
from hdmm.io.products import Row, products_of
from hdmm.io.strict_json import Json
from hdmm.matrix import (
    AllIntervals,
    Array,
    Cumulative,
    Dense,
    ExtendedDiagonal,
    Eye,
    Haar,
    Intervals,
    Matrix,
    Nested,
    Ones,
    Permuted,
    PIdentity,
    RowScaled,
    Sparse,
    Stack,
    TreeIdentity,
)
from hdmm.predicates import (
    AllRange,
    Identity,
    PredicateSet,
    Prefix,
    Ranges,
    Sets,
    Shuffled,
    Total,
    Union,
    Vectors,
    Weighted,
    Width,
    check_weight,
)
from hdmm.strategy.base import Strategy, grid_blocks
from hdmm.strategy.blocks import Block, Groups
from hdmm.values import Bins, Integers, Labels, Values
from hdmm.workload import Product, Workload

T = TypeVar("T")
Encoded: TypeAlias = tuple[Json, dict[str, Array]]


def encode_domain(domain: Domain) -> Encoded:
    """A domain as (JSON, arrays). Labels are texts, integers, floats and truth values, and keep their types.

    >>> encode_domain(Domain({"age": 115}))[0]["attributes"]
    [{'name': 'age', 'values': {'kind': 'Integers', 'first': 0, 'last': 114, 'step': 1, 'outside': 'drop'}}]
    """
    return _encoded(DOMAIN, domain, "domain")


def decode_domain(value: Json, arrays: Mapping[str, Array], *, at: str = "domain") -> Domain:
    """The domain that `encode_domain` wrote; FileError, which begins with `at`, for anything else.

    >>> decode_domain(*encode_domain(Domain({"age": 115}))).shape
    (115,)
    """
    return _decoded(DOMAIN, value, Source(arrays), at)


def encode_workload(workload: Workload) -> Encoded:
    """A workload as (JSON, arrays), its domain included; each distinct predicate set is written once.

    >>> encode_workload(Workload.marginals(Domain({"a": 2, "b": 3}), k=2))[0]["products"]
    {'distinct': [{'kind': 'Identity'}], 'rows': [[1.0, [[0, 0], [1, 0]]]]}
    """
    return _encoded(WORKLOAD, workload, "workload")


def decode_workload(
    value: Json, arrays: Mapping[str, Array], *, at: str = "workload", domain: Domain | None = None
) -> Workload:
    """The workload that `encode_workload` wrote; FileError, which begins with `at`, for anything else.

    Where a domain is given, the workload must be over it, and holds that very object.

    >>> decode_workload(*encode_workload(Workload.marginals(Domain({"a": 2, "b": 3}), k=1)))
    Workload(5 queries in 2 products over 6 cells)
    """
    workload = _decoded(WORKLOAD, value, _source(arrays, domain), at)
    _check_domain(workload.domain, domain, at)
    return workload


def encode_strategy(strategy: Strategy) -> Encoded:
    """A strategy as (JSON, arrays), its domain included, its sensitivity not; each distinct factor is written once.

    >>> eye = Strategy(Domain({"a": 2}), (Block(1.0, [(0, Eye(2))]),))
    >>> encode_strategy(eye)[0]["blocks"]
    {'distinct': [{'kind': 'Eye', 'n': 2}], 'rows': [[1.0, [[0, 0]]]]}
    """
    return _encoded(STRATEGY, strategy, "strategy")


def decode_strategy(
    value: Json, arrays: Mapping[str, Array], *, at: str = "strategy", domain: Domain | None = None
) -> Strategy:
    """The strategy that `encode_strategy` wrote; FileError, which begins with `at`, for anything else.

    Where a domain is given, the strategy must be over it, and holds that very object.

    >>> eye = Strategy(Domain({"a": 2}), (Block(0.5, [(0, Eye(2))]),))
    >>> decode_strategy(*encode_strategy(eye)).sensitivity("laplace")
    0.5
    """
    strategy = _decoded(STRATEGY, value, _source(arrays, domain), at)
    _check_domain(strategy.domain, domain, at)
    return strategy


def _encoded(form: Form[T], value: T, at: str) -> Encoded:
    arrays: Arrays = {}
    try:
        return form.write(value, arrays), arrays
    except FormError as wrong:
        raise FileError(f"{at}{wrong.path} cannot be written: it {wrong}") from None


def _decoded(form: Form[T], value: Json, source: Source, at: str) -> T:
    try:
        return form.read(value, source)
    except FormError as wrong:
        raise FileError(f"{at}{wrong.path}: {wrong}") from None


def _source(arrays: Mapping[str, Array], domain: Domain | None) -> Source:
    return Source(arrays, [] if domain is None else [domain])


def _check_domain(own: Domain, expected: Domain | None, at: str) -> None:
    if expected is not None and own != expected:
        raise FileError(
            f"{at} is over the domain ({', '.join(own.names)}), which is not the domain "
            f"({', '.join(expected.names)}) expected. Load what belongs together."
        )


def _merged(parts: Sequence[Attribute]) -> Values:
    return Domain(parts).merge([part.name for part in parts], name="merged").attributes[0].values


def _read_domain(value: Json, source: Source) -> Domain:
    domain = _DOMAIN.read(value, source)
    for known in source.domains:
        if known == domain:
            return known
    source.domains.append(domain)
    return domain


def _sets(members: Sequence[Sequence[int]], names: Sequence[str] | None) -> Sets:
    if names is None:
        return Sets(members)
    if len(set(names)) < len(names) or len(names) != len(members):
        raise WorkloadError(f"Sets has {len(members)} sets and {len(set(names))} distinct names. Name each set once.")
    return Sets(dict(zip(names, members, strict=True)))


def _workload(domain: Domain, products: Sequence[Row[PredicateSet]]) -> Workload:
    """What `Workload.product` checks, with each predicate set tried once on each attribute."""
    tried: set[tuple[int, int]] = set()
    for row, (weight, factors) in enumerate(products):
        try:
            check_weight(weight)
            previous = -1
            for axis, predicates in factors:
                if not isinstance(axis, int) or not previous < axis < len(domain) or isinstance(predicates, Total):
                    raise WorkloadError(
                        f"axis {axis} is out of order, outside 0 to {len(domain) - 1}, or Total. List ascending axes; "
                        "those left out are Total."
                    )
                previous = axis
                if (axis, id(predicates)) not in tried:
                    predicates.check(domain.attributes[axis])
                    tried.add((axis, id(predicates)))
        except WorkloadError as error:
            raise WorkloadError(f"row {row} of the products: {error}") from None
    return Workload(domain, tuple(Product(domain, cast(Any, factors), weight) for weight, factors in products))


def _strategy(domain: Domain, blocks: Sequence[Row[Matrix]], inference: str = "least-squares") -> Strategy:
    return Strategy(domain, tuple(Block(weight, factors) for weight, factors in blocks), cast(Any, inference))


def _merged_strategy(domain: Domain, axes: Sequence[int], inner: Strategy) -> Strategy:
    """What version 1 wrote of blocks with factors on several attributes: blocks over the merged domain."""
    groups = Groups.merging(domain, axes)
    if inner.domain != groups.domain:
        raise StrategyError("the inner strategy is not over the merged domain.")
    blocks = (Block(b.weight, [(groups.groups[g], A) for g, A in b.by_axis.items()]) for b in inner.blocks)
    return Strategy(domain, tuple(blocks))


def _stack(blocks: Sequence[Matrix]) -> Stack:
    return Stack(tuple(blocks))


def _sparse(shape: tuple[int, int], starts: Array, columns: Array, entries: Array) -> Sparse:
    if not all(array.ndim == 1 for array in (starts, columns, entries)):
        raise MatrixError("Sparse is made of three lists of numbers.")
    try:
        held = sp.csr_array((entries, columns, starts), shape=shape)
        held.check_format(full_check=True)
    except (ValueError, TypeError, OverflowError):
        raise MatrixError("Its lists are not a matrix in compressed rows.") from None
    return Sparse(held)


def _any(family: type[T]) -> Form[T]:
    return one_of(lambda: KINDS[family])


_VALUES = _any(Values)
_SET = _any(PredicateSet)
_FACTOR = _any(Matrix)
STRATEGY = _any(Strategy)
_ATTRIBUTES = list_of(record(Kind(Attribute, {"name": TEXT, "values": _VALUES})))
_DOMAIN = record(Kind(Domain, {"attributes": _ATTRIBUTES}))
DOMAIN = Form(_DOMAIN.write, _read_domain)
WORKLOAD = record(Kind(Workload, {"domain": DOMAIN, "products": products_of(_SET)}, _workload))
_NAMES = optional(list_of(TEXT))

KINDS: Mapping[type, Sequence[Kind[Any]]] = {
    Values: (
        Kind(Labels, {"values": list_of(LABEL), "outside": TEXT}),
        Kind(Integers, {"first": INTEGER, "last": INTEGER, "step": INTEGER, "outside": TEXT}),
        Kind(Bins, {"edges": list_of(EDGE), "outside": TEXT}),
        Kind(Merged, {"parts": _ATTRIBUTES}, _merged),
    ),
    PredicateSet: (
        Kind(Identity),
        Kind(Total),
        Kind(Prefix),
        Kind(AllRange),
        Kind(Width, {"width": INDEX}),
        Kind(Ranges, {"bounds": list_of(PAIR)}),
        Kind(Sets, {"members": list_of(list_of(INDEX)), "names": _NAMES}, _sets),
        Kind(Vectors, {"rows": ARRAY, "names": _NAMES}),
        Kind(Union, {"parts": list_of(_SET)}),
        Kind(Shuffled, {"inner": _SET, "order": list_of(INDEX)}),
        Kind(Weighted, {"inner": _SET, "weights": ARRAY}),
    ),
    Matrix: (
        Kind(Eye, {"n": INDEX}),
        Kind(Ones, {"m": INDEX, "n": INDEX}),
        Kind(Haar, {"n": INDEX}),
        Kind(Nested, {"values": ARRAY, "widths": list_of(INDEX)}),
        Kind(ExtendedDiagonal, {"below": _FACTOR, "d": optional(ARRAY), "order": optional(INTEGER)}),
        Kind(Permuted, {"inner": _FACTOR, "index": ARRAY}),
        Kind(Dense, {"array": ARRAY}),
        Kind(Cumulative, {"n": INDEX}),
        Kind(AllIntervals, {"n": INDEX}),
        Kind(Intervals, {"n": INDEX, "lo": ARRAY, "hi": ARRAY}),
        Kind(Sparse, {"shape": PAIR, "starts": ARRAY, "columns": ARRAY, "entries": ARRAY}, _sparse),
        Kind(Stack, {"blocks": list_of(_FACTOR)}, _stack),
        Kind(RowScaled, {"weights": ARRAY, "inner": _FACTOR}),
        Kind(ExtendedDiagonal, {"theta": ARRAY}, PIdentity, former="PIdentity"),
        Kind(
            ExtendedDiagonal,
            {"weights": ARRAY, "widths": list_of(INDEX), "order": INTEGER},
            TreeIdentity,
            former="TreeIdentity",
        ),
        Kind(ExtendedDiagonal, {"d": ARRAY, "below": _FACTOR}, former="Augmented"),
    ),
    Strategy: (
        Kind(Strategy, {"domain": DOMAIN, "blocks": products_of(_FACTOR), "inference": TEXT}, _strategy),
        Kind(Strategy, {"domain": DOMAIN, "blocks": products_of(_FACTOR)}, _strategy, former="BlockStrategy"),
        Kind(Strategy, {"workload": WORKLOAD}, Strategy.direct, former="DirectStrategy"),
        Kind(
            Strategy,
            {"domain": DOMAIN, "widths": list_of(INDEX), "weights": list_of(NUMBER)},
            grid_blocks,
            former="GridTree",
        ),
        Kind(
            Strategy,
            {"domain": DOMAIN, "axes": list_of(INDEX), "inner": STRATEGY},
            _merged_strategy,
            former="MergedStrategy",
        ),
    ),
}
