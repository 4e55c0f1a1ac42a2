"""compact: a union of products written with fewer products and the same WᵀW."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hdmm.base.mixing import mixed
from hdmm.describe.predicates import AllRange, Identity, PredicateSet, Prefix, Ranges, Sets, Total, Union, Vectors
from hdmm.matrix import Array, to_dense

Factors: TypeAlias = dict[int, PredicateSet]
"""The predicate sets of one product by attribute; attributes left out are Total."""

_MAX_ENTRIES = 1 << 16  # sets with at most this many entries are compared row by row, larger ones as a whole


def compact(shape: Sequence[int], products: Sequence[tuple[float, Factors]]) -> list[tuple[float, Factors]]:
    """Fewer (weight, factors) with the same WᵀW.

    Repeat two steps until neither helps: products with equal factors become one with weight √Σw²; products
    of equal weight that differ in one attribute only are stacked there, on the attribute that saves most.
    The result does not depend on the order of the products. O(k·d log k) per step for k products.

    >>> one, two = Sets([[0]]), Sets([[1]])
    >>> compact((2,), [(1.0, {0: one}), (1.0, {0: two})])
    [(1.0, {0: Identity()})]
    """
    catalogs = [_Catalog(n) for n in shape]
    codes = np.zeros((len(products), len(shape)), dtype=np.int32)  # 0 is Total in every catalog
    for k, (_, factors) in enumerate(products):
        for i, predicates in factors.items():
            codes[k, i] = catalogs[i].code(predicates)
    rows = _CodedProducts.of(np.array([w for w, _ in products]), codes).without_duplicates()
    # Savings are recomputed only for the attribute that seems best: stale ones mostly shrink, and before the
    # end all are recomputed.
    savings = np.full(len(shape), np.inf)
    fresh = np.zeros(len(shape), dtype=bool)
    while savings.max() > 0 or not fresh.all():
        if savings.max() == 0:
            savings[~fresh] = np.inf
        i = int(np.argmax(savings))
        if fresh[i]:
            rows = rows.stacked(i, catalogs[i]).without_duplicates()
            savings[i] = 0
            fresh[:] = False
        else:
            savings[i] = len(rows.codes) - len(rows.alike_except_on(i)[1])
            fresh[i] = True
    found = [
        (float(w), [(i, c) for i, c in enumerate(row) if c])
        for w, row in zip(rows.weights, rows.codes.tolist(), strict=True)
    ]
    found.sort(key=lambda item: (-item[0], [(i, catalogs[i].rank(c)) for i, c in item[1]]))
    return [(w, {i: catalogs[i].predicates(c) for i, c in sets}) for w, sets in found]


@dataclass(frozen=True, slots=True, eq=False)
class _CodedProducts:
    """The products as rows of codes, one for a set on each attribute, with a hash of each row's codes."""

    weights: Array
    codes: Array
    hashes: Array

    @classmethod
    def of(cls, weights: Array, codes: Array) -> _CodedProducts:
        hashes = np.zeros(len(codes), dtype=np.uint64)
        for axis, column in enumerate(codes.T):
            hashes += _mixed(column, axis)
        return cls(weights, codes, hashes)

    def without_duplicates(self) -> _CodedProducts:
        """The rows, with equal ones merged into one of weight √Σw²."""
        groups, first = _groups(self.hashes, lambda rows: self.codes[rows])
        if len(first) == len(groups):
            return self
        order = np.lexsort((self.weights, groups))  # sums in one order, so that equal multisets give equal floats
        squares = np.bincount(groups[order], weights=self.weights[order] ** 2, minlength=len(first))
        return _CodedProducts(np.sqrt(squares), self.codes[first], self.hashes[first])

    def alike_except_on(self, axis: int) -> tuple[Array, Array]:
        """(a number per row, the first row of each number): rows that agree in all but one attribute share it."""
        weight = np.unique(self.weights, return_inverse=True)[1]
        # The weight takes the place of the attribute that may differ.
        hashes = self.hashes - _mixed(self.codes[:, axis], axis) + _mixed(weight, axis)
        return _groups(hashes, lambda rows: _replaced(self.codes[rows], axis, weight[rows]))

    def stacked(self, axis: int, catalog: _Catalog) -> _CodedProducts:
        """The rows, with those that differ on this attribute only merged into one, whose set there is their union."""
        groups, first = self.alike_except_on(axis)
        several = np.bincount(groups) > 1
        members: defaultdict[int, list[int]] = defaultdict(list)
        at = np.flatnonzero(several[groups])
        for group, code in zip(groups[at].tolist(), self.codes[at, axis].tolist(), strict=True):
            members[group].append(code)
        codes, hashes = self.codes[first], self.hashes[first]
        hashes -= _mixed(codes[:, axis], axis)
        for group, united in members.items():
            codes[group, axis] = catalog.union(united)
        hashes += _mixed(codes[:, axis], axis)
        return _CodedProducts(self.weights[first], codes, hashes)


def _mixed(codes: Array, axis: int) -> Array:
    """64 well mixed bits for each code of an attribute, which are added modulo 2⁶⁴."""
    return mixed(codes.astype(np.uint64) + np.uint64((axis + 1) << 32))


def _replaced(codes: Array, axis: int, column: Array) -> Array:
    codes[:, axis] = column
    return codes


def _groups(hashes: Array, rows: Callable[[Array], Array]) -> tuple[Array, Array]:
    """(a number per row, the first row of each number); equal rows have the same number.

    Rows are grouped by hash, and rows that share a hash are compared; if two different rows share one, all are sorted.
    """
    _, first, groups = np.unique(hashes, return_index=True, return_inverse=True)
    shared = np.flatnonzero(np.bincount(groups)[groups] > 1)
    if not np.array_equal(rows(first[groups[shared]]), rows(shared)):
        _, first, groups = np.unique(rows(np.arange(len(hashes))), axis=0, return_index=True, return_inverse=True)
    return groups.ravel(), first


class _Catalog:
    """The predicate sets seen on one attribute, numbered; each is a multiset of atoms.

    An atom is one row (a vector, by its bytes) or a large set kept whole. Sets with the same atoms get the
    same number, whatever they were written as.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.codes: dict[PredicateSet, int] = {}
        self.sets: list[tuple[bytes | PredicateSet, ...]] = []
        self.numbers: dict[tuple[bytes | PredicateSet, ...], int] = {}
        self.originals: dict[int, PredicateSet] = {}
        self.ranks: dict[int, tuple[int, str]] = {}
        self.code(Total())

    def code(self, predicates: PredicateSet) -> int:
        """The number of a predicate set as it was given."""
        code = self.codes.get(predicates)
        if code is None:
            code = self._number(self._atoms(predicates))
            self.codes[predicates] = code
            self.originals.setdefault(code, predicates)
        return code

    def union(self, codes: list[int]) -> int:
        """The number of the union of numbered sets, with repeats."""
        if len(codes) == 1:
            return codes[0]
        return self._number(tuple(atom for code in codes for atom in self.sets[code]))

    def predicates(self, code: int) -> PredicateSet:
        """The set with that number, as it was given or, if it was not given, in its plainest form."""
        if code not in self.originals:
            self.originals[code] = self._plain(self.sets[code])
        return self.originals[code]

    def rank(self, code: int) -> tuple[int, str]:
        """A sort key that does not depend on the order of arrival."""
        if code not in self.ranks:
            predicates = self.predicates(code)
            self.ranks[code] = predicates.count(self.n), repr(predicates)
        return self.ranks[code]

    def _number(self, atoms: tuple[bytes | PredicateSet, ...]) -> int:
        atoms = tuple(sorted(atoms, key=_atom_key))
        code = self.numbers.setdefault(atoms, len(self.sets))
        if code == len(self.sets):
            self.sets.append(atoms)
        return code

    def _atoms(self, predicates: PredicateSet) -> tuple[bytes | PredicateSet, ...]:
        if isinstance(predicates, Union):
            return tuple(atom for part in predicates.parts for atom in self._atoms(part))
        if predicates.count(self.n) * self.n > max(_MAX_ENTRIES, self.n):
            return (predicates,)
        return tuple(row.tobytes() for row in to_dense(predicates.matrix(self.n)).astype(np.float64))

    def _plain(self, atoms: tuple[bytes | PredicateSet, ...]) -> PredicateSet:
        whole = [atom for atom in atoms if isinstance(atom, PredicateSet)]
        rows = [np.frombuffer(atom) for atom in atoms if isinstance(atom, bytes)]
        return _union([*whole, *_rows_as_sets(rows, self.n)])


def _atom_key(atom: bytes | PredicateSet) -> tuple[int, bytes | str]:
    return (0, atom) if isinstance(atom, bytes) else (1, repr(atom))


def _rows_as_sets(rows: list[Array], n: int) -> list[PredicateSet]:
    """The rows as structured sets: Identity, Total, Prefix or AllRange if they match one, else Ranges or Sets."""
    binary = [row for row in rows if np.isin(row, (0.0, 1.0)).all()]
    real = [row for row in rows if not np.isin(row, (0.0, 1.0)).all()]
    found: list[PredicateSet] = []
    left = Counter(tuple(np.flatnonzero(row).tolist()) for row in binary)
    for form, members in _structured_forms(n, rows=len(binary)):
        while left.total() >= len(members) and all(left[m] for m in members):
            left -= Counter(members)
            found.append(form)
    # Shortest first, then by position: values, then brackets, then the total, in the order in which tables are read.
    listed = sorted(left.elements(), key=lambda s: (len(s), s))
    if listed and all(s and s[-1] - s[0] + 1 == len(s) for s in listed):
        found.append(Ranges((s[0], s[-1]) for s in listed))
    elif listed:
        found.append(Sets(listed))
    if real:
        found.append(Vectors(np.array(sorted(real, key=lambda row: row.tolist()))))
    return found


def _structured_forms(n: int, *, rows: int) -> list[tuple[PredicateSet, list[tuple[int, ...]]]]:
    """The structured sets on n values that have at most `rows` rows, larger ones first."""
    span = tuple(range(n))
    forms: list[tuple[PredicateSet, list[tuple[int, ...]]]] = []
    if n > 2 and rows >= n * (n + 1) // 2:
        forms.append((AllRange(), [span[lo : hi + 1] for lo in range(n) for hi in range(lo, n)]))
    if n > 2 and rows >= n:
        forms.append((Prefix(), [span[: hi + 1] for hi in range(n)]))
    if n > 1 and rows >= n:
        forms.append((Identity(), [(i,) for i in range(n)]))
    return [*forms, (Total(), [span])]


def _union(parts: list[PredicateSet]) -> PredicateSet:
    return parts[0] if len(parts) == 1 else Union(parts)
