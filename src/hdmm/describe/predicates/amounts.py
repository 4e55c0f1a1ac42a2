"""Amounts: queries that add up the numbers of cells instead of counting rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.attribute import Attribute, naming
from hdmm.describe.predicates.listed_sets import Vectors
from hdmm.describe.predicates.predicate_set import PredicateSet
from hdmm.matrix import Array, Matrix

MOST_AMOUNTS: Final = 2**24
_MOST = 2**53  # beyond it a float does not hold every integer


@final
@dataclass(frozen=True, slots=True, init=False)
class Amounts(PredicateSet):
    """Sums Σ amount·count: each query has one amount per cell, such as the age that the cell stands for.

    Whole amounts are exact integers. Selection divides them by the largest, so that sums do not drown counts.

    >>> from hdmm import Attribute, Integers
    >>> from hdmm.matrix import to_dense
    >>> to_dense(Amounts.of(Attribute("age", Integers(18, 20))).matrix(3))
    array([[18, 19, 20]])
    """

    vectors: Vectors

    def __init__(self, rows: ArrayLike, *, names: Sequence[str] | None = None) -> None:
        vectors = Vectors(rows, names=names)
        if vectors.rows.size > MOST_AMOUNTS:
            raise WorkloadError(
                f"{vectors.rows.size:,} amounts were given; the limit is {MOST_AMOUNTS:,}. Use fewer groups, or "
                "coarser values."
            )
        if np.abs(vectors.rows).max() > _MOST:
            raise WorkloadError("An amount is beyond 2**53, where floats do not hold every integer. Use a larger unit.")
        object.__setattr__(self, "vectors", vectors)

    @classmethod
    def of(cls, attribute: Attribute) -> Amounts:
        """The sum of an attribute: of integers, of numeric labels, or of the values declared for bins.

        A value outside counts as nothing: its row is dropped, or in the cell "other", which has the amount 0.
        """
        if attribute.size > MOST_AMOUNTS:
            raise WorkloadError(
                f"Attribute {attribute.name!r} has {attribute.size:,} cells; sums are limited to {MOST_AMOUNTS:,}. "
                "Use coarser values."
            )
        with naming(attribute.name):
            numbers = [attribute.values.number(code) or 0 for code in range(attribute.size)]
        if max(map(abs, numbers)) > _MOST:
            raise WorkloadError(f"Attribute {attribute.name!r} holds numbers beyond 2**53. Use a larger unit.")
        return cls([numbers], names=[f"sum of {attribute.name}"])

    @property
    def rows(self) -> Array:
        """The amounts, one row per query."""
        return self.vectors.rows

    @property
    def names(self) -> tuple[str, ...] | None:
        """The labels of the queries, if they have any."""
        return self.vectors.names

    @property
    def largest(self) -> float:
        """The largest amount, by which selection divides; 1 if all are 0."""
        return float(np.abs(self.rows).max()) or 1.0

    def count(self, n: int) -> int:
        return self.vectors.count(n)

    def build(self, n: int) -> Matrix:
        return self.vectors.build(n)

    def labels(self, attribute: Attribute) -> list[str]:
        return self.vectors.labels(attribute)
