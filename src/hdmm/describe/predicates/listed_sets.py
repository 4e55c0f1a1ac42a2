"""Predicate sets that are listed: sets of positions, the groups of a level, explicit vectors, and amounts to add up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from hdmm.base.exceptions import DomainError, WorkloadError
from hdmm.base.frozen import assign
from hdmm.describe.attribute import Attribute, naming
from hdmm.describe.predicates.predicate_set import PredicateSet, not_empty, position
from hdmm.describe.predicates.ranges import Identity
from hdmm.matrix import Array, Dense, Intervals, Matrix, Sparse

MOST_AMOUNTS: Final = 2**24
_MOST = 2**53  # beyond it a float does not hold every integer


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
        assign(self, members=not_empty(members, "Sets"), names=names)

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
class Groups(PredicateSet):
    """`value in group` for every group of a level; every value is in exactly one. O(n) numbers for n values.

    A level belongs to an attribute: Workload.product looks it up there.

    >>> from hdmm import Domain, Labels, Workload
    >>> tracts = Labels(["T1", "T2", "T3"], levels={"county": ["Kent", "Kent", "Essex"]})
    >>> list(Workload.product(Domain({"tract": tracts}), tract=Groups("county")).labels())
    [('Kent',), ('Essex',)]
    """

    level: str
    codes: Array | None = None
    names: tuple[str, ...] = ()

    def on(self, attribute: Attribute) -> PredicateSet:
        try:
            groups, codes = attribute.level(self.level)
        except DomainError as error:
            raise WorkloadError(str(error)) from None
        return Groups(self.level, codes, tuple(str(groups.label(code)) for code in range(groups.size)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Groups) or (self.level, self.names) != (other.level, other.names):
            return False
        if self.codes is None or other.codes is None:
            return self.codes is other.codes
        return np.array_equal(self.codes, other.codes)

    def __hash__(self) -> int:
        return hash((self.level, self.names))

    def __repr__(self) -> str:
        return f"Groups({self.level!r})"

    def count(self, n: int) -> int:
        self._on(n)
        return len(self.names)

    def build(self, n: int) -> Matrix:
        codes = self._on(n)
        if (np.diff(codes) >= 0).all():
            starts = np.searchsorted(codes, np.arange(len(self.names) + 1))
            return Intervals(n, starts[:-1], starts[1:] - 1)
        order = np.argsort(codes, kind="stable")
        return Sets(np.split(order, np.searchsorted(codes[order], np.arange(1, len(self.names))))).build(n)

    def labels(self, attribute: Attribute) -> list[str]:
        self._on(attribute.size)
        return list(self.names)

    def _on(self, n: int) -> Array:
        if self.codes is None:
            raise WorkloadError(f"{self!r} is of no attribute yet. Give it to Workload.product, which looks it up.")
        if len(self.codes) != n:
            raise WorkloadError(f"it has {n} values, but level {self.level!r} groups {len(self.codes)}.")
        return self.codes


@dataclass(frozen=True, slots=True, eq=False)
class _Rows(PredicateSet):
    """Queries that are written out, one per row; whole numbers are stored as integers."""

    rows: Array
    names: tuple[str, ...] | None = None

    def __init__(self, rows: ArrayLike, *, names: Sequence[str] | None = None) -> None:
        array, kind = np.array(rows), type(self).__name__
        if array.ndim != 2 or array.shape[0] == 0 or array.dtype.kind not in "biuf":
            raise WorkloadError(
                f"{kind} was given an array of shape {array.shape} and type {array.dtype}. Give a 2-D array of "
                "numbers, one row per query."
            )
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise WorkloadError(f"{kind} has a coefficient that is NaN or infinite. Use finite numbers.")
        if names is not None and len(names) != len(array):
            raise WorkloadError(f"{kind} has {len(array)} rows but {len(names)} names. Give one name per row.")
        array.setflags(write=False)
        assign(self, rows=array, names=None if names is None else tuple(names))

    @final
    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and np.array_equal(self.rows, other.rows)  # whose class is final

    @final
    def __hash__(self) -> int:
        return hash((type(self), self.rows.shape, self.rows.tobytes()))

    @final
    def count(self, n: int) -> int:
        return len(self.rows)

    @final
    def build(self, n: int) -> Matrix:
        if self.rows.shape[1] != n:
            hint = " Use Total()?" if (self.rows == 1).all() else ""
            raise WorkloadError(f"it has {n} values, but its predicate matrix has {self.rows.shape[1]} columns.{hint}")
        # Whole numbers are stored as integers, so that the sensitivity is exact.
        whole = np.abs(self.rows).max() < _MOST and np.array_equal(self.rows, np.rint(self.rows))
        return Dense(self.rows.astype(np.int64) if whole else self.rows)

    @final
    def labels(self, attribute: Attribute) -> list[str]:
        if self.names is not None:
            return list(self.names)
        return [f"vector {i}" for i in range(len(self.rows))]


@final
class Vectors(_Rows):
    """Explicit query vectors, one per row: 0/1 predicates or real coefficients.

    >>> Vectors([[1, 0, 0.5]]).count(3)
    1
    """

    __slots__ = ()


@final
class Amounts(_Rows):
    """Sums Σ amount·count: each query has one amount per cell, such as the age that the cell stands for.

    Whole amounts are exact integers. Selection divides them by the largest, so that sums do not drown counts.

    >>> from hdmm import Attribute, Integers
    >>> from hdmm.matrix import to_dense
    >>> to_dense(Amounts.of(Attribute("age", Integers(18, 20))).matrix(3))
    array([[18, 19, 20]])
    """

    __slots__ = ()

    def __init__(self, rows: ArrayLike, *, names: Sequence[str] | None = None) -> None:
        super().__init__(rows, names=names)
        if self.rows.size > MOST_AMOUNTS:
            raise WorkloadError(
                f"{self.rows.size:,} amounts were given; the limit is {MOST_AMOUNTS:,}. Use fewer groups, or "
                "coarser values."
            )
        if np.abs(self.rows).max() > _MOST:
            raise WorkloadError("An amount is beyond 2**53, where floats do not hold every integer. Use a larger unit.")

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
    def largest(self) -> float:
        """The largest amount, by which selection divides; 1 if all are 0."""
        return float(np.abs(self.rows).max()) or 1.0


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
