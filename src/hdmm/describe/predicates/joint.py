"""Predicates on two attributes at once that no product of sets is: x + y ≤ c and |x − y| ≤ c."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Self, final

import numpy as np

from hdmm.base.exceptions import WorkloadError
from hdmm.base.frozen import assign
from hdmm.describe.attribute import Attribute, Merged
from hdmm.describe.numeric import Integers
from hdmm.describe.predicates.predicate_set import PredicateSet
from hdmm.matrix import Array, Dense, Matrix

_MOST_ENTRIES = 1 << 24  # of the matrix of one set: 128 MiB, 200 × 200 values


class OnCells(PredicateSet):
    """Predicates on the positions of several attributes, in whichever order these are; `on` gives them their sizes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Bounded(OnCells):
    """`measure(x, y) ≤ c` for every c that it reaches, 0 upward; x and y are positions."""

    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assign(self, sizes=tuple(self.sizes))

    @abstractmethod
    def _measure(self, x: Array, y: Array) -> Array:
        """What is bounded, for each pair of positions."""

    @abstractmethod
    def _label(self, x: Attribute, y: Attribute, c: int) -> str: ...

    @final
    def on(self, attribute: Attribute) -> Self:
        parts = attribute.values.parts if isinstance(attribute.values, Merged) else ()
        return type(self)(tuple(part.size for part in parts))

    @final
    def count(self, n: int) -> int:
        return int(self._values(n).max()) + 1

    @final
    def build(self, n: int) -> Matrix:
        values = self._values(n)
        return Dense((values[None] <= np.arange(int(values.max()) + 1)[:, None]).astype(np.int64))

    @final
    def labels(self, attribute: Attribute) -> list[str]:
        if not isinstance(attribute.values, Merged):
            raise WorkloadError(f"Attribute {attribute.name!r} is one attribute; {type(self).__name__} is about two.")
        x, y = attribute.values.parts
        return [self._label(x, y, c) for c in range(self.count(attribute.size))]

    def _values(self, n: int) -> Array:
        name = type(self).__name__
        if len(self.sizes) != 2 or math.prod(self.sizes) != n:
            raise WorkloadError(
                f"{name} is about two attributes at once. Write Workload.product(domain, "
                f"{{('x', 'y'): {name}()}}) with the names of the two."
            )
        if n * sum(self.sizes) > _MOST_ENTRIES:
            raise WorkloadError(
                f"{name} on attributes of {self.sizes[0]:,} and {self.sizes[1]:,} values has more than "
                f"{_MOST_ENTRIES:,} entries. Use coarser bins, or ask for some of the sums or differences by SQL."
            )
        return self._measure(*np.indices(self.sizes).reshape(2, -1))


@final
@dataclass(frozen=True, slots=True)
class SumAtMost(_Bounded):
    """`x + y ≤ c` for c from 0 to the largest sum, of the positions of two attributes.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(SumAtMost((2, 2)).matrix(4))
    array([[1, 0, 0, 0],
           [1, 1, 1, 0],
           [1, 1, 1, 1]])
    """

    def _measure(self, x: Array, y: Array) -> Array:
        return x + y

    def _label(self, x: Attribute, y: Attribute, c: int) -> str:
        """In values where both attributes are integers that follow each other, else in positions."""
        match x.values, y.values:
            case Integers(first, _, step=1), Integers(other, _, step=1):
                return f"{x.name} + {y.name} ≤ {first + other + c}"
            case _:
                return f"position of {x.name} + position of {y.name} ≤ {c}"


@final
@dataclass(frozen=True, slots=True)
class DifferenceAtMost(_Bounded):
    """`|x − y| ≤ c` for c from 0 to the largest difference, of the positions of two attributes.

    >>> from hdmm.matrix import to_dense
    >>> to_dense(DifferenceAtMost((2, 2)).matrix(4))
    array([[1, 0, 0, 1],
           [1, 1, 1, 1]])
    """

    def _measure(self, x: Array, y: Array) -> Array:
        return np.abs(x - y)

    def _label(self, x: Attribute, y: Attribute, c: int) -> str:
        """In values where both attributes are integers from one number on, else in positions."""
        match x.values, y.values:
            case Integers(first, _, step=1), Integers(other, _, step=1) if first == other:
                return f"|{x.name} - {y.name}| ≤ {c}"
            case _:
                return f"|position of {x.name} - position of {y.name}| ≤ {c}"
