"""Groups: one predicate per group of a level, such as every county of an attribute of tracts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.base.exceptions import DomainError, WorkloadError
from hdmm.describe.attribute import Attribute
from hdmm.describe.predicates.listed_sets import Sets
from hdmm.describe.predicates.predicate_set import PredicateSet
from hdmm.matrix import Array, Intervals, Matrix


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
