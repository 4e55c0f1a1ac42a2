"""Subsets of attributes, and sums over them: the information that measured marginals give about eigenspaces.

A subset of attributes is an integer with bit i for attribute i, and `Subsets` holds many of them. An ascending tuple of
attributes says in addition which axes an array has (`subsets` lists such tuples, and `members` makes one).

Measuring the marginal on a gives the information γ_{a∖b} about the eigenspace b ⊆ a (the complement of the total on the
attributes of b, the total on the others) and none about other eigenspaces, where γ_x = Π_{i∈x} γ_i and γ_i = 1/c_i
(1/n for the identity). Total is the unit, so that products over many attributes neither overflow nor underflow.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.describe.product import Attributes
from hdmm.matrix import Array

_DENSE = 1 << 21  # entries up to which an incidence matrix is an array (16 MiB), since BLAS is then faster than CSR
_LOW_BITS = 4  # attributes summed by one small matrix product if d is large, because strided passes are slower
_LARGE = 12


class SubsetSums(ABC):
    """The linear map from squared weights u_a of subsets to λ_b = Σ_{a ⊇ b} γ_{a∖b} u_a, and its transpose."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(eigenspaces, subsets)."""

    @abstractmethod
    def up(self, u: Array) -> Array:
        """λ_b = Σ_{a ⊇ b} γ_{a∖b} u_a; u has one row per subset, and its columns are independent."""

    @abstractmethod
    def down(self, v: Array) -> Array:
        """g_a = Σ_{b ⊆ a} γ_{a∖b} v_b, the transpose of `up`."""

    @abstractmethod
    def squared(self) -> SubsetSums:
        """The same map with γ² in the place of γ, as second derivatives take."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Whole(SubsetSums):
    """All 2^d subsets and eigenspaces, with row x for the subset x. O(d·2^d) per column.

    >>> Whole(np.array([0.5, 0.1])).up(np.array([0.0, 0.0, 0.0, 1.0])).tolist()
    [0.05, 0.1, 0.5, 1.0]
    """

    gamma: Array

    @property
    def shape(self) -> tuple[int, int]:
        cells = 1 << len(self.gamma)
        return cells, cells

    def up(self, u: Array) -> Array:
        return self._passes(u, into=0)

    def down(self, v: Array) -> Array:
        return self._passes(v, into=1)

    def squared(self) -> SubsetSums:
        return Whole(self.gamma**2)

    def _passes(self, x: Array, *, into: int) -> Array:
        """x[into] += γ_i · x[1 − into] along every attribute; the lowest few bits at once if d is large."""
        first = _LOW_BITS if x.ndim == 1 and len(self.gamma) >= _LARGE else 0
        if first:
            small = np.ones((1, 1))
            for gamma in self.gamma[:first]:
                small = np.kron([[1.0, gamma], [0.0, 1.0]], small)
            x = (x.reshape(-1, 1 << first) @ (small if into else small.T)).reshape(x.shape)
        else:
            x = x.copy()
        for i in range(first, len(self.gamma)):
            halves = x.reshape(len(x) >> (i + 1), 2, -1)
            halves[:, into] += self.gamma[i] * halves[:, 1 - into]
        return x


@final
@dataclass(frozen=True, slots=True, eq=False)
class Listed(SubsetSums):
    """Chosen eigenspaces × chosen subsets, by their incidence matrix. O(incidences) per column."""

    incidence: Array | sp.csr_array

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.incidence.shape  # pyright: ignore[reportGeneralTypeIssues]
        return int(rows), int(columns)

    def up(self, u: Array) -> Array:
        return self.incidence @ u

    def down(self, v: Array) -> Array:
        return self.incidence.T @ v

    def squared(self) -> SubsetSums:
        return Listed(self.incidence * self.incidence)


def listed(eigenspaces: Sequence[int], subsets: Sequence[int], gamma: Array) -> Listed:
    """The sums over some eigenspaces and some subsets.

    >>> listed([0, 1], [1, 3], np.array([0.5, 0.1])).incidence
    array([[0.5 , 0.05],
           [1.  , 0.1 ]])
    """
    return Incidences.of(eigenspaces, subsets, len(gamma)).sums(gamma)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Incidences:
    """Which subsets (columns) hold which eigenspaces (rows); what they say of these follows from γ.

    `inside` and `outside` are the memberships of the eigenspaces and of the subsets.
    """

    inside: Array
    outside: Array
    rows: Array
    columns: Array

    @classmethod
    def of(cls, eigenspaces: Sequence[int], subsets: Sequence[int], d: int) -> Incidences:
        """By a product of memberships if the table is small, else by listing the subsets of each: O(Σ_a 2^|a|)."""
        inside, outside = (Subsets.of(each, d).membership().astype(np.float64) for each in (eigenspaces, subsets))
        if len(eigenspaces) * len(subsets) <= _DENSE:
            return cls(inside, outside, *np.nonzero(inside @ outside.T == inside.sum(axis=1)[:, None]))
        place = {b: j for j, b in enumerate(eigenspaces)}
        found = [(place[b], k) for k, a in enumerate(subsets) for b in submasks(a) if b in place]
        rows, columns = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return cls(inside, outside, rows, columns)

    def sums(self, gamma: Array) -> Listed:
        """γ_{a∖b} at every incidence: an array if the table is small, else sparse. O(incidences)."""
        nothing = gamma == 0
        logs = np.log(np.where(nothing, 1.0, gamma))
        values = np.exp((self.outside @ logs)[self.columns] - (self.inside @ logs)[self.rows])
        if nothing.any():
            values *= (self.outside @ nothing)[self.columns] == (self.inside @ nothing)[self.rows]
        shape = len(self.inside), len(self.outside)
        if math.prod(shape) > _DENSE:
            return Listed(sp.csr_array((values, (self.rows, self.columns)), shape=shape))
        table = np.zeros(shape)
        table[self.rows, self.columns] = values
        return Listed(table)


@final
@dataclass(frozen=True, eq=False)
class Subsets:
    """Many subsets of d attributes: attribute i of subset k is bit i mod 64 of columns[i // 64, k].

    >>> found = Subsets.of([5, 6, 5], 3)
    >>> found.numbers(), found.membership()[1].tolist()
    ([5, 6, 5], [False, True, True])
    >>> found.distinct()[0].numbers(), found.distinct()[1].tolist()
    ([5, 6], [0, 1, 0])
    """

    d: int
    columns: Array

    @classmethod
    def of(cls, subsets: Sequence[int], d: int) -> Subsets:
        """Those that are given as integers."""
        data = b"".join([int(s).to_bytes(8 * _width(d), "little") for s in subsets])
        words = np.frombuffer(data, dtype="<u8").reshape(len(subsets), _width(d))
        return cls(d, np.ascontiguousarray(words.T, dtype=np.uint64))

    @classmethod
    def single(cls, d: int) -> Subsets:
        """The subsets of one attribute each, {i} in place i."""
        i = np.arange(d)
        columns = np.zeros((_width(d), d), dtype=np.uint64)
        columns[i // 64, i] = np.uint64(1) << (i % 64).astype(np.uint64)
        return cls(d, columns)

    @classmethod
    def joined(cls, parts: Sequence[Subsets]) -> Subsets:
        """All subsets of the parts, one part after the other."""
        return cls(parts[0].d, np.concatenate([part.columns for part in parts], axis=1))

    def __len__(self) -> int:
        return self.columns.shape[1]

    def __getitem__(self, places: Array) -> Subsets:
        return Subsets(self.d, self.columns[:, places])

    def numbers(self) -> list[int]:
        """Each as an integer."""
        return [sum(word << 64 * k for k, word in enumerate(words)) for words in self.columns.T.tolist()]

    def membership(self) -> Array:
        """Whether each holds each attribute: one row per subset."""
        octets = np.ascontiguousarray(self.columns.T, dtype="<u8").view(np.uint8)
        return np.unpackbits(octets, axis=1, bitorder="little", count=self.d).view(np.bool_)

    @cached_property
    def by_size(self) -> tuple[tuple[Array, Array], ...]:
        """(places, attributes of each, ascending) of the subsets of each size, the smallest first."""
        held = self.membership()
        sizes = held.sum(axis=1)
        places = [np.flatnonzero(sizes == size) for size in np.flatnonzero(np.bincount(sizes)).tolist()]
        return tuple([(each, np.nonzero(held[each])[1].reshape(len(each), -1)) for each in places])

    def distinct(self) -> tuple[Subsets, Array]:
        """(each once, ascending as numbers; the place of every subset among them)."""
        order = np.lexsort(self.columns)
        ordered = self.columns[:, order]
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in ordered])
        places = np.empty(len(order), dtype=np.intp)
        places[order] = np.cumsum(is_first) - 1
        return Subsets(self.d, ordered[:, is_first]), places

    def places(self, others: Subsets) -> Array:
        """Where others stand among these, which ascend as numbers; −1 for those that do not. O(log) each."""
        if not len(self):
            return np.full(len(others), -1)
        found = np.minimum(np.searchsorted(self._comparable, others._comparable), len(self) - 1)
        return np.where(self._comparable[found] == others._comparable, found, -1)

    @cached_property
    def _comparable(self) -> Array:
        """One value for each, in the order of the numbers."""
        if len(self.columns) == 1:
            return self.columns[0]
        words = np.ascontiguousarray(self.columns[::-1].T, dtype=">u8")
        return words.view(f"S{words.itemsize * words.shape[1]}")[:, 0]


def _width(d: int) -> int:
    return max(1, -(-d // 64))


def submasks(a: int) -> Iterator[int]:
    """All 2^|a| subsets of a subset, itself first and the empty one last.

    >>> list(submasks(5))
    [5, 4, 1, 0]
    """
    b = a
    while True:
        yield b
        if b == 0:
            return
        b = (b - 1) & a


def subsets(axes: Sequence[int], always: Sequence[int] = ()) -> Iterator[Attributes]:
    """All sets of these attributes, the smallest first, each together with those in `always`, ascending.

    >>> list(subsets([0, 2], always=[1]))
    [(1,), (0, 1), (1, 2), (0, 1, 2)]
    """
    for size in range(len(axes) + 1):
        for chosen in itertools.combinations(axes, size):
            yield tuple(sorted((*chosen, *always))) if always else chosen


def members(a: int) -> list[int]:
    """The attributes of a subset, ascending.

    >>> members(5)
    [0, 2]
    """
    found: list[int] = []
    while a:
        low = a & -a
        found.append(low.bit_length() - 1)
        a ^= low
    return found


def subset_of(axes: Sequence[int]) -> int:
    """The subset of some attributes.

    >>> subset_of([0, 2])
    5
    """
    return sum([1 << i for i in axes])
