"""Predicate sets that are listed: sets of positions, and explicit vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.attribute import Attribute
from hdmm.describe.predicates.predicate_set import PredicateSet, not_empty, position
from hdmm.describe.predicates.ranges import Identity
from hdmm.matrix import Array, Dense, Matrix, Sparse


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
        members = tuple(tuple(sorted({position(i) for i in s})) for s in listed)
        if any(s and s[0] < 0 for s in members):
            raise WorkloadError("A set has a negative position. Positions count from 0.")
        object.__setattr__(self, "members", not_empty(members, "Sets"))
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


def as_predicates(value: PredicateSet | ArrayLike) -> PredicateSet:
    """A predicate set unchanged; anything else as explicit Vectors.

    >>> as_predicates([[1, 1, 0]]).count(3)
    1
    """
    if isinstance(value, type) and issubclass(value, PredicateSet):
        raise WorkloadError(f"{value.__name__} is a class, not a set of predicates. Write {value.__name__}().")
    return value if isinstance(value, PredicateSet) else Vectors(value)


def _set_label(labels: Sequence[str], members: Sequence[int]) -> str:
    shown = ", ".join(labels[i] for i in members[:4])
    return f"{{{shown}, … {len(members) - 4} more}}" if len(members) > 4 else f"{{{shown}}}"
