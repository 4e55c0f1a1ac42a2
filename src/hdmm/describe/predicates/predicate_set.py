"""PredicateSet: a list of predicates on one attribute; and sets made of others: joined, permuted or weighted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.base.exceptions import WorkloadError
from hdmm.base.frozen import assign
from hdmm.base.hints import brief
from hdmm.describe.attribute import Attribute
from hdmm.matrix import Array, Matrix, Permuted, RowScaled, Stack, gram

T = TypeVar("T")


class PredicateSet(ABC):
    """A list of predicates on one attribute; `a | b` lists those of a and then those of b, repeats included."""

    __slots__ = ()

    @abstractmethod
    def count(self, n: int) -> int:
        """How many predicates there are on an attribute of n values."""

    @abstractmethod
    def build(self, n: int) -> Matrix:
        """The matrix of the predicates on n values, newly built; `matrix` caches it."""

    @abstractmethod
    def labels(self, attribute: Attribute) -> list[str]:
        """One label per predicate, in order, made of the attribute's labels. O(count)."""

    def on(self, attribute: Attribute) -> PredicateSet:
        """The set with what it needs to know of the attribute: Groups looks its level up, others stay as they are."""
        return self

    def places(self, n: int) -> Iterable[tuple[int, int]]:
        """Where each predicate stands on a scale of n values, its first and its last; none if they have no place.

        A count of all values up to one stands at that value.
        """
        return ()

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
class Union(PredicateSet):
    """Several predicate sets one after the other, repeats included; `Identity() | Total()` makes one.

    >>> from hdmm.describe.predicates import Identity, Total
    >>> (Identity() | Total()).count(5)
    6
    """

    parts: tuple[PredicateSet, ...]

    def __init__(self, parts: Iterable[PredicateSet]) -> None:
        flat: list[PredicateSet] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Union) else [part])
        assign(self, parts=not_empty(tuple(flat), "Union"))

    def on(self, attribute: Attribute) -> PredicateSet:
        return Union(part.on(attribute) for part in self.parts)

    def count(self, n: int) -> int:
        return sum(part.count(n) for part in self.parts)

    def build(self, n: int) -> Matrix:
        return Stack(tuple(part.matrix(n) for part in self.parts))

    def labels(self, attribute: Attribute) -> list[str]:
        return [label for part in self.parts for label in part.labels(attribute)]


def position(value: int) -> int:
    """The position as an int; WorkloadError if it is not an integer."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WorkloadError(f"The position {brief(value)} is not an integer. Positions count the values from 0.")
    return int(value)


def not_empty(items: tuple[T, ...], kind: str) -> tuple[T, ...]:
    """The items, if there are any; else WorkloadError."""
    if not items:
        raise WorkloadError(f"{kind} has no predicates. List at least one, or use Total() to count all rows.")
    return items


@final
@dataclass(frozen=True, slots=True)
class Shuffled(PredicateSet):
    """A predicate set on permuted positions: position i of the attribute takes the role of position order[i].

    >>> from hdmm.matrix import to_dense
    >>> from hdmm.describe.predicates import Prefix
    >>> to_dense(Shuffled(Prefix(), [2, 0, 1]).matrix(3))
    array([[0., 1., 0.],
           [0., 1., 1.],
           [1., 1., 1.]])
    """

    inner: PredicateSet
    order: tuple[int, ...]

    def __init__(self, inner: PredicateSet, order: Iterable[int]) -> None:
        positions = tuple(position(i) for i in order)
        if sorted(positions) != list(range(len(positions))):
            raise WorkloadError("The order of Shuffled is not a permutation. List each position once.")
        assign(self, inner=inner, order=positions)

    def on(self, attribute: Attribute) -> PredicateSet:
        return Shuffled(self.inner.on(attribute), self.order)

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
    >>> from hdmm.describe.predicates import Identity
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
        assign(self, inner=inner, weights=values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weighted) and self.inner == other.inner and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((self.inner, self.weights.tobytes()))

    def on(self, attribute: Attribute) -> PredicateSet:
        return Weighted(self.inner.on(attribute), self.weights)

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

    def places(self, n: int) -> Iterable[tuple[int, int]]:
        return self.inner.places(n)


def check_weight(weight: float) -> float:
    """The weight as a float, if it is finite and not negative."""
    try:
        value = float(weight)
    except (TypeError, ValueError):
        raise WorkloadError(f"The weight {brief(weight)} is not a number. Use a finite number >= 0.") from None
    if not (np.isfinite(value) and value >= 0):
        raise WorkloadError(f"The weight {value} is not allowed. Use a finite number >= 0.")
    return value
