"""PredicateSet: a list of predicates on one attribute; Union: several of them, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, final

import numpy as np

from hdmm.base.exceptions import WorkloadError
from hdmm.base.frozen import assign
from hdmm.base.hints import brief
from hdmm.describe.attribute import Attribute
from hdmm.matrix import Matrix, Stack, gram

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
