"""compact: a union of products written with fewer products, WᵀW unchanged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from hdmm.matrix import Array, to_dense
from hdmm.predicates import (
    AllRange,
    Identity,
    PredicateSet,
    Prefix,
    Ranges,
    Sets,
    Total,
    Union,
    Vectors,
)

Factors: TypeAlias = dict[int, PredicateSet]
"""The predicate sets of one product by attribute; attributes left out are Total."""

_MAX_ENTRIES = 1 << 16  # sets of at most this many entries are compared row by row, larger ones whole


def compact(shape: Sequence[int], products: Sequence[tuple[float, Factors]]) -> list[tuple[float, Factors]]:
    """Fewer (weight, factors) with the same WᵀW.

    Repeat two steps until neither helps: products with equal factors become one with weight √Σw²; products
    of equal weight that differ in one attribute only are stacked there, on the attribute that saves most.
    The result does not depend on the order of the products. O(k·d log k) a step for k products.

    >>> one, two = Sets([[0]]), Sets([[1]])
    >>> compact((2,), [(1.0, {0: one}), (1.0, {0: two})])
    [(1.0, {0: Identity()})]
    """
    catalogs = [_Catalog(n) for n in shape]
    weights = np.array([w for w, _ in products])
    codes = np.zeros((len(products), len(shape)), dtype=np.int64)  # 0 is Total in every catalog
    for k, (_, factors) in enumerate(products):
        for i, predicates in factors.items():
            codes[k, i] = catalogs[i].code(predicates)
    while True:
        weights, codes = _merge_duplicates(weights, codes)
        keys = _leave_one_out_keys(weights, codes)
        groups = [int(key.max()) + 1 for key in keys]
        i = int(np.argmin(groups))
        if groups[i] == len(codes):
            break
        weights, codes = _stack(weights, codes, axis=i, key=keys[i], catalog=catalogs[i])
    rows = [
        (float(w), {i: catalogs[i].predicates(c) for i, c in enumerate(row) if c})
        for w, row in zip(weights, codes.tolist(), strict=True)
    ]
    names = [(-w, tuple(sorted((i, catalogs[i].rank(p)) for i, p in f.items()))) for w, f in rows]
    return [rows[k] for k in sorted(range(len(rows)), key=names.__getitem__)]


def _merge_duplicates(weights: Array, codes: Array) -> tuple[Array, Array]:
    """Rows with equal codes as one, with weight √Σw²."""
    key = _combine(codes.T)
    k = int(key.max()) + 1
    if k == len(codes):
        return weights, codes
    _, first = np.unique(key, return_index=True)
    order = np.lexsort((weights, key))  # sums in one order, so that equal multisets give equal floats
    squares = np.bincount(key[order], weights=weights[order] ** 2, minlength=k)
    return np.sqrt(squares), codes[first]


def _leave_one_out_keys(weights: Array, codes: Array) -> list[Array]:
    """For each attribute, group numbers of the rows that agree in weight and all other attributes."""
    d = codes.shape[1]
    before = [np.unique(weights, return_inverse=True)[1]]
    for i in range(d - 1):
        before.append(_combine([before[-1], codes[:, i]]))
    after = np.zeros(len(codes), dtype=np.int64)
    keys: list[Array] = []
    for i in reversed(range(d)):
        keys.append(_combine([before[i], after]))
        after = _combine([after, codes[:, i]])
    return keys[::-1]


def _combine(columns: Sequence[Array] | Array) -> Array:
    """One number for each distinct row of the columns, 0 … groups − 1."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        # Both factors are at most the number of rows or codes, far below 2³¹ each.
        key = np.unique(key * (int(column.max()) + 1) + column, return_inverse=True)[1]
    return key


def _stack(weights: Array, codes: Array, *, axis: int, key: Array, catalog: _Catalog) -> tuple[Array, Array]:
    """Rows of one group become one row whose set on the axis is the union of theirs."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for group, code in zip(key.tolist(), codes[:, axis].tolist(), strict=True):
        members[group].append(code)
    _, first = np.unique(key, return_index=True)
    stacked = codes[first]
    stacked[:, axis] = [catalog.union(members[g]) for g in range(len(first))]
    return weights[first], stacked


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
        """The number of the union of numbered sets, repeats kept."""
        if len(codes) == 1:
            return codes[0]
        return self._number(tuple(atom for code in codes for atom in self.sets[code]))

    def predicates(self, code: int) -> PredicateSet:
        """The set of that number: as given where it was given, else in its plainest form."""
        if code not in self.originals:
            self.originals[code] = self._plain(self.sets[code])
        return self.originals[code]

    def rank(self, predicates: PredicateSet) -> tuple[int, str]:
        """A sort key that does not depend on the order of arrival."""
        return predicates.count(self.n), repr(predicates)

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
    """The rows in structured forms where they match one: Identity, Total, Prefix, AllRange, Ranges, Sets."""
    binary = [row for row in rows if np.isin(row, (0.0, 1.0)).all()]
    real = [row for row in rows if not np.isin(row, (0.0, 1.0)).all()]
    found: list[PredicateSet] = []
    left = Counter(tuple(np.flatnonzero(row).tolist()) for row in binary)
    for form, members in _structured_forms(n, rows=len(binary)):
        while left.total() >= len(members) and all(left[m] for m in members):
            left -= Counter(members)
            found.append(form)
    # Shortest first, then by position: values before brackets before the total, as tables are read.
    listed = sorted(left.elements(), key=lambda s: (len(s), s))
    if listed and all(s and s[-1] - s[0] + 1 == len(s) for s in listed):
        found.append(Ranges((s[0], s[-1]) for s in listed))
    elif listed:
        found.append(Sets(listed))
    if real:
        found.append(Vectors(np.array(sorted(real, key=lambda row: row.tolist()))))
    return found


def _structured_forms(n: int, *, rows: int) -> list[tuple[PredicateSet, list[tuple[int, ...]]]]:
    """The structured sets on n values that at most that many rows can hold, larger first."""
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
