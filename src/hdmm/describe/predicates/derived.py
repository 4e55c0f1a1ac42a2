"""Predicate sets made from another: on permuted positions, or with weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.base.exceptions import WorkloadError
from hdmm.base.frozen import assign
from hdmm.base.hints import brief
from hdmm.describe.attribute import Attribute
from hdmm.describe.predicates.predicate_set import PredicateSet, position
from hdmm.matrix import Array, Matrix, Permuted, RowScaled


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
