"""Predicate sets on one attribute: the vocabulary of workloads.

A predicate set is logical: it does not depend on a domain until its matrix on n values or its labels on an attribute
are needed. Positions are 0-based and ranges are inclusive, in the attribute's order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from hdmm.domain import Attribute
from hdmm.exceptions import WorkloadError
from hdmm.matrix import (
    AllIntervals,
    Array,
    Cumulative,
    Dense,
    Eye,
    Intervals,
    Matrix,
    Ones,
    Permuted,
    RowScaled,
    Sparse,
    Stack,
    gram,
)

T = TypeVar("T")

_MOST_RANGES = 2**26  # of Width, which holds both ends of every range: 1 GiB


class PredicateSet(ABC):
    """A list of predicates on one attribute; `a | b` lists those of a and then those of b, repeats included."""

    __slots__ = ()

    @abstractmethod
    def count(self, n: int) -> int:
        """How many predicates there are on an attribute of n values."""

    @abstractmethod
    def build(self, n: int) -> Matrix:
        """The matrix of the predicates on n values, built anew; `matrix` caches it."""

    @abstractmethod
    def labels(self, attribute: Attribute) -> list[str]:
        """One label per predicate, in order, made of the attribute's labels. O(count)."""

    @final
    def check(self, attribute: Attribute) -> None:
        """Raise WorkloadError if the set does not fit the attribute."""
        try:
            self.matrix(attribute.size)
        except WorkloadError as error:
            raise WorkloadError(f"Attribute {attribute.name!r}: {error}") from None

    @final
    def matrix(self, n: int) -> Matrix:
        """The predicates as the rows of a matrix with n columns, built once per set and size."""
        return _matrix(self, n)

    @final
    def gram(self, n: int) -> Matrix:
        """V = WᵀW of the matrix W on n values, implicit if W has structure."""
        return _gram(self, n)

    @final
    def __or__(self, other: PredicateSet) -> PredicateSet:
        if not isinstance(other, PredicateSet):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Union((self, other))


@lru_cache(maxsize=4096)
def _matrix(predicates: PredicateSet, n: int) -> Matrix:
    return predicates.build(n)


@lru_cache(maxsize=4096)
def _gram(predicates: PredicateSet, n: int) -> Matrix:
    return gram(predicates.matrix(n))


@final
@dataclass(frozen=True, slots=True)
class Identity(PredicateSet):
    """One predicate per value: I.

    >>> Identity().matrix(3).shape
    (3, 3)
    """

    def count(self, n: int) -> int:
        return n

    def build(self, n: int) -> Matrix:
        return Eye(n)

    def labels(self, attribute: Attribute) -> list[str]:
        return [str(label) for label in attribute.labels]


@final
@dataclass(frozen=True, slots=True)
class Total(PredicateSet):
    """The one predicate that is always true: T.

    >>> Total().matrix(3).shape
    (1, 3)
    """

    def count(self, n: int) -> int:
        return 1

    def build(self, n: int) -> Matrix:
        return Ones(1, n)

    def labels(self, attribute: Attribute) -> list[str]:
        return ["total"]


@final
@dataclass(frozen=True, slots=True)
class Prefix(PredicateSet):
    """`value ≤ v` for every v, the cumulative distribution: P.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Prefix().matrix(3))
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """

    def count(self, n: int) -> int:
        return n

    def build(self, n: int) -> Matrix:
        return Cumulative(n)

    def labels(self, attribute: Attribute) -> list[str]:
        return [f"≤ {label}" for label in attribute.labels]


@final
@dataclass(frozen=True, slots=True)
class AllRange(PredicateSet):
    """Every range lo ≤ value ≤ hi, in order of (lo, hi): R, n(n+1)/2 predicates.

    >>> AllRange().count(1024)
    524800
    """

    def count(self, n: int) -> int:
        return n * (n + 1) // 2

    def build(self, n: int) -> Matrix:
        return AllIntervals(n)

    def labels(self, attribute: Attribute) -> list[str]:
        names = Identity().labels(attribute)
        return [_range_label(names, lo, hi) for lo in range(len(names)) for hi in range(lo, len(names))]


@final
@dataclass(frozen=True, slots=True)
class Ranges(PredicateSet):
    """The listed inclusive ranges [lo, hi] of positions.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Ranges([(0, 1), (2, 2)]).matrix(3))
    array([[1., 1., 0.],
           [0., 0., 1.]])
    """

    bounds: tuple[tuple[int, int], ...]

    def __init__(self, bounds: Iterable[tuple[int, int]]) -> None:
        pairs = tuple((_position(lo), _position(hi)) for lo, hi in bounds)
        for lo, hi in pairs:
            if not 0 <= lo <= hi:
                raise WorkloadError(
                    f"Range [{lo}, {hi}] is not a range of positions. Write inclusive pairs with 0 <= lo <= hi."
                )
        object.__setattr__(self, "bounds", _not_empty(pairs, "Ranges"))

    def count(self, n: int) -> int:
        return len(self.bounds)

    def build(self, n: int) -> Matrix:
        for lo, hi in self.bounds:
            if hi >= n:
                raise WorkloadError(f"the range [{lo}, {hi}] ends past the last of {n} values. Use hi <= {n - 1}.")
        lo, hi = np.array(self.bounds, dtype=np.int64).T
        return Intervals(n, lo, hi)

    def labels(self, attribute: Attribute) -> list[str]:
        names = Identity().labels(attribute)
        return [_range_label(names, lo, hi) for lo, hi in self.bounds]


@final
@dataclass(frozen=True, slots=True)
class Width(PredicateSet):
    """Every range of exactly `width` contiguous values: n − width + 1 predicates.

    >>> Width(32).count(1024)
    993
    """

    width: int

    def __post_init__(self) -> None:
        if _position(self.width) < 1:
            raise WorkloadError(f"Ranges of width {self.width} hold no values. Use a width of at least 1.")

    def count(self, n: int) -> int:
        return n - self.width + 1

    def build(self, n: int) -> Matrix:
        if self.width > n:
            raise WorkloadError(f"ranges of width {self.width} do not fit {n} values. Use a width <= {n}.")
        if self.count(n) > _MOST_RANGES:
            raise WorkloadError(
                f"there are {self.count(n):,} ranges of width {self.width}, but at most {_MOST_RANGES:,} can be "
                "listed. Use coarser bins, or AllRange(), which is implicit."
            )
        lo = np.arange(n - self.width + 1)
        return Intervals(n, lo, lo + self.width - 1)

    def labels(self, attribute: Attribute) -> list[str]:
        names = Identity().labels(attribute)
        return [_range_label(names, lo, lo + self.width - 1) for lo in range(self.count(len(names)))]


@final
@dataclass(frozen=True, slots=True)
class Sets(PredicateSet):
    """`value in {…}` for each listed set of positions; a mapping gives the sets names.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Sets({"ends": [0, 2], "middle": [1]}).matrix(3))
    array([[1, 0, 1],
           [0, 1, 0]])
    """

    members: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] | None = field(compare=False)

    def __init__(self, sets: Iterable[Iterable[int]] | Mapping[str, Iterable[int]]) -> None:
        names = tuple(str(name) for name in sets) if isinstance(sets, Mapping) else None
        listed = list(sets.values() if isinstance(sets, Mapping) else sets)
        members = tuple(tuple(sorted({_position(i) for i in s})) for s in listed)
        if any(s and s[0] < 0 for s in members):
            raise WorkloadError("A set has a negative position. Positions count from 0.")
        object.__setattr__(self, "members", _not_empty(members, "Sets"))
        object.__setattr__(self, "names", names)

    def count(self, n: int) -> int:
        return len(self.members)

    def build(self, n: int) -> Matrix:
        for s in self.members:
            if s and s[-1] >= n:
                raise WorkloadError(f"a set has the position {s[-1]}, but there are {n} values. Use 0 to {n - 1}.")
        lengths = [len(s) for s in self.members]
        columns = np.array([i for s in self.members for i in s], dtype=np.int32)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        rows = sp.csr_array((np.ones(len(columns), dtype=np.int64), columns, starts), shape=(len(lengths), n))
        # Below a few thousand entries, a dense product is faster than a sparse one.
        if len(lengths) * n <= 4096 or 4 * len(columns) > len(lengths) * n:
            return Dense(rows.toarray())
        return Sparse(rows)

    def labels(self, attribute: Attribute) -> list[str]:
        if self.names is not None:
            return list(self.names)
        labels = Identity().labels(attribute)
        return [_set_label(labels, s) for s in self.members]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Vectors(PredicateSet):
    """Explicit query vectors, one per row: 0/1 predicates or real coefficients.

    >>> Vectors([[1, 0, 0.5]]).count(3)
    1
    """

    rows: Array
    names: tuple[str, ...] | None = None

    def __init__(self, rows: ArrayLike, *, names: Sequence[str] | None = None) -> None:
        array = np.array(rows)
        if array.ndim != 2 or array.shape[0] == 0 or array.dtype.kind not in "biuf":
            raise WorkloadError(
                f"Vectors was given an array of shape {array.shape} and type {array.dtype}. Give a 2-D array of "
                "numbers, one row per query."
            )
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise WorkloadError("Vectors has a coefficient that is NaN or infinite. Use finite numbers.")
        if names is not None and len(names) != len(array):
            raise WorkloadError(f"Vectors has {len(array)} rows but {len(names)} names. Give one name per row.")
        array.setflags(write=False)
        object.__setattr__(self, "rows", array)
        object.__setattr__(self, "names", None if names is None else tuple(names))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vectors) and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return hash((self.rows.shape, self.rows.tobytes()))

    def count(self, n: int) -> int:
        return len(self.rows)

    def build(self, n: int) -> Matrix:
        if self.rows.shape[1] != n:
            hint = " Use Total()?" if (self.rows == 1).all() else ""
            raise WorkloadError(f"it has {n} values, but its predicate matrix has {self.rows.shape[1]} columns.{hint}")
        # Whole numbers are stored as integers, so that the sensitivity is exact.
        whole = np.abs(self.rows).max() < 2**53 and np.array_equal(self.rows, np.rint(self.rows))
        return Dense(self.rows.astype(np.int64) if whole else self.rows)

    def labels(self, attribute: Attribute) -> list[str]:
        if self.names is not None:
            return list(self.names)
        return [f"vector {i}" for i in range(len(self.rows))]


@final
@dataclass(frozen=True, slots=True)
class Union(PredicateSet):
    """Several predicate sets one after the other, repeats included; `Identity() | Total()` makes one.

    >>> (Identity() | Total()).count(5)
    6
    """

    parts: tuple[PredicateSet, ...]

    def __init__(self, parts: Iterable[PredicateSet]) -> None:
        flat: list[PredicateSet] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Union) else [part])
        object.__setattr__(self, "parts", _not_empty(tuple(flat), "Union"))

    def count(self, n: int) -> int:
        return sum(part.count(n) for part in self.parts)

    def build(self, n: int) -> Matrix:
        return Stack(tuple(part.matrix(n) for part in self.parts))

    def labels(self, attribute: Attribute) -> list[str]:
        return [label for part in self.parts for label in part.labels(attribute)]


@final
@dataclass(frozen=True, slots=True)
class Shuffled(PredicateSet):
    """A predicate set on permuted positions: position i of the attribute takes the role of position order[i].

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Shuffled(Prefix(), [2, 0, 1]).matrix(3))
    array([[0., 1., 0.],
           [0., 1., 1.],
           [1., 1., 1.]])
    """

    inner: PredicateSet
    order: tuple[int, ...]

    def __init__(self, inner: PredicateSet, order: Iterable[int]) -> None:
        positions = tuple(_position(i) for i in order)
        if sorted(positions) != list(range(len(positions))):
            raise WorkloadError("The order of Shuffled is not a permutation. List each position once.")
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "order", positions)

    def count(self, n: int) -> int:
        return self.inner.count(n)

    def build(self, n: int) -> Matrix:
        if len(self.order) != n:
            raise WorkloadError(f"it has {n} values, but the permutation of Shuffled lists {len(self.order)}.")
        return Permuted(self.inner.matrix(n), np.array(self.order))

    def labels(self, attribute: Attribute) -> list[str]:
        return [f"{label} (shuffled)" for label in self.inner.labels(attribute)]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Weighted(PredicateSet):
    """A predicate set with one weight per predicate: diag(weights)·W.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(Weighted(Identity(), [1, 2]).matrix(2))
    array([[1., 0.],
           [0., 2.]])
    """

    inner: PredicateSet
    weights: Array

    def __init__(self, inner: PredicateSet, weights: ArrayLike) -> None:
        values = np.array(weights, dtype=np.float64)
        if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
            raise WorkloadError(
                "The weights of Weighted are not a list of finite numbers >= 0. Give one per predicate."
            )
        values.setflags(write=False)
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "weights", values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weighted) and self.inner == other.inner and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((self.inner, self.weights.tobytes()))

    def count(self, n: int) -> int:
        return len(self.weights)

    def build(self, n: int) -> Matrix:
        if len(self.weights) != self.inner.count(n):
            raise WorkloadError(
                f"Weighted has {len(self.weights)} weights for {self.inner.count(n)} predicates. "
                "Give one weight per predicate."
            )
        return RowScaled(self.weights, self.inner.matrix(n))

    def labels(self, attribute: Attribute) -> list[str]:
        return self.inner.labels(attribute)


def as_predicates(value: PredicateSet | ArrayLike) -> PredicateSet:
    """A predicate set unchanged; anything else as explicit Vectors.

    >>> as_predicates([[1, 1, 0]]).count(3)
    1
    """
    if isinstance(value, type) and issubclass(value, PredicateSet):
        raise WorkloadError(f"{value.__name__} is a class, not a set of predicates. Write {value.__name__}().")
    return value if isinstance(value, PredicateSet) else Vectors(value)


def check_weight(weight: float) -> float:
    """The weight as a float, if it is finite and not negative."""
    try:
        value = float(weight)
    except (TypeError, ValueError):
        raise WorkloadError(f"The weight {weight!r} is not a number. Use a finite number >= 0.") from None
    if not (np.isfinite(value) and value >= 0):
        raise WorkloadError(f"The weight {value} is not allowed. Use a finite number >= 0.")
    return value


def _position(value: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WorkloadError(f"The position {value!r} is not an integer. Positions count the values from 0.")
    return int(value)


def _not_empty(items: tuple[T, ...], kind: str) -> tuple[T, ...]:
    if not items:
        raise WorkloadError(f"{kind} has no predicates. List at least one, or use Total() to count all rows.")
    return items


def _range_label(names: Sequence[str], lo: int, hi: int) -> str:
    return names[lo] if lo == hi else f"{names[lo]} – {names[hi]}"


def _set_label(labels: Sequence[str], members: Sequence[int]) -> str:
    shown = ", ".join(labels[i] for i in members[:4])
    return f"{{{shown}, … {len(members) - 4} more}}" if len(members) > 4 else f"{{{shown}}}"
