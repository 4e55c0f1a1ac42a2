"""Aggregates: how the rows of a table follow from the queries of its workload.

A row is a linear combination of queries (a count, a sum), a quotient of two (a mean, a percentage), or a quantile,
which is read from prefix counts. An aggregate is a logical value: `hdmm.answers.evaluate` computes its numbers from
answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast, final

import numpy as np
import scipy.sparse as sp

from hdmm.matrix import Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Row i is Σ combine[i, j]·query j."""

    name: str
    combine: sp.csr_array

    @property
    def names(self) -> tuple[str, ...]:
        """The name in every row."""
        return (self.name,)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """Row i is factor · Σ numerator[i, j]·query j / Σ denominator[i, j]·query j."""

    name: str
    numerator: sp.csr_array
    denominator: sp.csr_array
    factor: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """The name in every row."""
        return (self.name,)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """The quantiles q of n ordered cells in each of several groups: those of the first q, then of the next.

    Row g·n + k of `prefixes` counts the rows of group g up to cell k. Cell k holds values from low[k] to high[k].
    """

    names: tuple[str, ...]
    prefixes: sp.csr_array
    q: tuple[float, ...]
    low: Array
    high: Array


Aggregate: TypeAlias = Linear | Quotient | Quantiles


def size(matrix: sp.csr_array) -> tuple[int, int]:
    """Rows and queries."""
    return cast(tuple[int, int], matrix.shape)


def combined(aggregates: Sequence[Aggregate]) -> sp.csr_array | None:
    """The coefficients of all rows if every row is linear; None if not, or if each query is a row, in order."""
    linear = [each.combine for each in aggregates if isinstance(each, Linear)]
    if not linear or len(linear) < len(aggregates):
        return None
    found = linear[0] if len(linear) == 1 else sp.csr_array(sp.vstack(linear, format="csr"))
    rows, queries = size(found)
    if not rows == queries == found.nnz:
        return found
    places = np.arange(rows + 1)
    same = np.array_equal(found.indices, places[:-1]) and np.array_equal(found.indptr, places)
    return None if same and (found.data == 1).all() else found
