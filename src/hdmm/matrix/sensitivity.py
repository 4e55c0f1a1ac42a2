"""largest_column_norm: max over all cells of Σⱼ cⱼ Πᵢ νⱼᵢ[xᵢ], attribute by attribute, exact for integers.

A privacy loss is such a maximum, so what the search leaves out must never be the largest (security S5). It never is,
for integers cⱼ and νⱼᵢ (fractions cⱼ are multiplied by their common denominator first), for these reasons:

1. *One cell for another.* All cⱼ and νⱼᵢ are at least 0, so the sum never decreases when one νⱼᵢ[xᵢ] grows. If
   cell b of attribute i has νⱼᵢ[b] ≤ νⱼᵢ[a] for every j, every x with xᵢ = b may take xᵢ = a instead without loss, so
   `_reduced` drops b. By transitivity it does not matter that a may be dropped later because another dominates it, nor
   in which order rows are compared: the first of several equal rows stays, and a row is dropped only if one that
   dominates it stays.
2. *Groups.* If terms share no attribute, the maximum of their sum is the sum of their maxima (`_apart`).
3. *States.* After some attributes are decided, the sum is Σₖ sₖ·gₖ(rest): gₖ ≥ 0 is the product of the norms still to
   come, the same for every choice, and sₖ ≥ 0 is the sum of what was chosen for the terms that share gₖ. So two
   choices with the same s are one state, a state with s ≤ s' everywhere never ends above s' (1. again, `_undominated`),
   and no state ends above Σₖ sₖ·max gₖ, its bound (`_Stage.most`).
4. *Bounds.* A cell attains `best`, because `_greedy` decides every attribute. A state whose bound is at most `best`
   cannot improve on it, and only such states and dominated ones are dropped. So at the end `best` is the maximum.

Each comparison in 1, 3 and 4 is of exact numbers. A search is in float64 only if Σⱼ cⱼ Πᵢ max νⱼᵢ < 2⁵³: every
state, product and partial sum is then an integer below that (a vector's largest norm is at least 1, or its terms are
0), and floats hold it exactly. From there to 2⁶³ the search is in int64, for the same reason, and beyond that in
Python's integers. The order in which rows are compared may come from sums that round; it decides how many comparisons
are made, not their outcome.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, lcm, prod
from numbers import Integral
from typing import Any

import numpy as np

from hdmm.base.connected import connected
from hdmm.base.exceptions import MatrixError
from hdmm.matrix.matrix import Array

Coefficient = int | float | Fraction
Key = frozenset[tuple[int, int]]  # (attribute, number of a vector of norms on it) for each vector that is not constant

_STATES = 10**6  # combinations of cells that may be kept
_HELD = 2**26  # numbers they may take: 512 MiB
_EXPANDED = 2**23  # numbers in a block of new combinations: 64 MiB
_COMPARED = 3 * 10**8  # numbers compared in one search for dominated combinations: below a second
_ROUNDING = 1e-12  # float norms that differ by less are one constant, their largest


def largest_column_norm(coefficients: Sequence[Coefficient], profiles: Sequence[Mapping[int, Array]]) -> Coefficient:
    """max_x Σⱼ cⱼ Πᵢ νⱼᵢ[xᵢ] over the cells x of a domain that is never listed.

    Block j has coefficient cⱼ ≥ 0 and, for the attributes i in profiles[j], the vector νⱼᵢ ≥ 0 of its
    factor's column norms; it is 1 on all other attributes. Constant vectors go into the coefficient; blocks
    that share no attribute are maximised separately; then one attribute at a time is decided, keeping only
    combinations that no other dominates and whose bound exceeds the best value found. Exact (a Python int or
    a Fraction) unless a float is given; float norms equal up to 1e-12 count as their largest. Linear in the
    blocks if all vectors are constant, else O(combinations kept · cells · blocks) per attribute.

    >>> largest_column_norm([1, 2], [{0: np.array([3, 1])}, {0: np.array([1, 4]), 7: np.array([1, 5])}])
    41
    """
    if len(coefficients) != len(profiles):
        raise MatrixError(f"There are {len(coefficients)} coefficients for {len(profiles)} blocks.")
    vectors = _Vectors()
    terms: dict[Key, Coefficient] = {}
    for j, (coefficient, profile) in enumerate(zip(coefficients, profiles, strict=True)):
        if not ((not isinstance(coefficient, float) or isfinite(coefficient)) and coefficient >= 0):
            raise MatrixError(f"Coefficient {j} is {coefficient!r}; it must be finite and at least 0.")
        c, key = vectors.folded(coefficient, profile)
        terms[key] = terms.get(key, 0) + c
    floats = any(v.dtype.kind == "f" for v in vectors.arrays) or any(isinstance(c, float) for c in terms.values())
    fewer, arrays = _reduced({key: c for key, c in terms.items() if c != 0}, vectors.arrays)
    if floats:
        return float(sum(_maximum(part, arrays, exact=False) for part in _apart(fewer)))
    scale = lcm(*(Fraction(c).denominator for c in fewer.values()))
    whole: dict[Key, Coefficient] = {key: int(c * scale) for key, c in fewer.items()}
    best = sum(int(_maximum(part, arrays, exact=True)) for part in _apart(whole))
    return best if scale == 1 else Fraction(best, scale)


class _Vectors:
    """The distinct vectors of norms seen so far, found again by content."""

    __slots__ = ("_known", "_sizes", "arrays")

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._known: dict[tuple[int, str, Hashable], tuple[Coefficient, int | None]] = {}
        self._sizes: dict[int, int] = {}

    def folded(self, coefficient: Coefficient, profile: Mapping[int, Array]) -> tuple[Coefficient, Key]:
        """The coefficient times the constant vectors, and the names of the others."""
        c, names = coefficient, list[tuple[int, int]]()
        for attribute, norms in profile.items():
            constant, number = self._found(attribute, norms)
            if number is None:
                c = c * constant
            else:
                names.append((attribute, number))
        return c, frozenset(names)

    def _found(self, attribute: int, norms: Array) -> tuple[Coefficient, int | None]:
        """(the constant, None) or (1, number of the vector)."""
        if norms.ndim != 1 or norms.size == 0 or not _held_as_numbers(norms):
            raise MatrixError(
                f"Norms on attribute {attribute} must be a vector of numbers, not an array of shape "
                f"{norms.shape} and type {norms.dtype}."
            )
        is_object = norms.dtype.kind == "O"
        key = attribute, norms.dtype.str, tuple(norms.tolist()) if is_object else norms.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._classified(attribute, norms)
        return found

    def _classified(self, attribute: int, norms: Array) -> tuple[Coefficient, int | None]:
        if norms.dtype.kind == "u":  # together with int64, NumPy would turn them into floats
            return self._found(attribute, norms.astype(np.int64 if norms.max() < 2**63 else object))
        size = self._sizes.setdefault(attribute, norms.size)
        if size != norms.size:
            raise MatrixError(f"Attribute {attribute} has {size} cells in one block and {norms.size} in another.")
        if not norms.min() >= 0:
            raise MatrixError(f"Norms on attribute {attribute} must be at least 0; the least is {norms.min()}.")
        constant = _constant(norms)
        if constant is not None:
            return constant, None
        self.arrays.append(norms)
        return 1, len(self.arrays) - 1


def _held_as_numbers(norms: Array) -> bool:
    """Integers or floats; an array of objects holds Python's integers and nothing else."""
    return norms.dtype.kind in "iuf" or (norms.dtype.kind == "O" and all(type(v) is int for v in norms.tolist()))


def _constant(norms: Array) -> Coefficient | None:
    least, most = _python(norms.min()), _python(norms.max())
    return most if least == most or (isinstance(most, float) and most - least <= _ROUNDING * most) else None


def _reduced(terms: dict[Key, Coefficient], arrays: list[Array]) -> tuple[dict[Key, Coefficient], list[Array]]:
    """The same maximum with only the cells of each attribute that no other cell dominates.

    If one cell does best by all its vectors, as for one kind of predicate, the attribute disappears.
    """
    numbers: dict[int, set[int]] = {}
    for key in terms:
        for attribute, v in key:
            numbers.setdefault(attribute, set()).add(v)
    short = list(arrays)
    constants: dict[int, Coefficient] = {}
    for found in numbers.values():
        kept = _undominated(np.stack([arrays[v] for v in found], axis=1), np.ones(len(found), dtype=np.int64))
        for v in found:
            short[v] = arrays[v][kept]
            constant = _constant(short[v])
            if constant is not None:
                constants[v] = constant
    out: dict[Key, Coefficient] = {}
    for key, c in terms.items():
        left = frozenset(part for part in key if part[1] not in constants)
        out[left] = out.get(left, 0) + c * prod(constants[v] for _, v in key if v in constants)
    return out, short


def _apart(terms: dict[Key, Coefficient]) -> Iterable[dict[Key, Coefficient]]:
    """The terms, in groups that share no attribute; the constant term forms a group by itself."""
    first = {a: part[0] for part in connected({a for a, _ in key} for key in terms) for a in part}
    groups: dict[int, dict[Key, Coefficient]] = {}
    for key, c in terms.items():
        groups.setdefault(min((first[a] for a, _ in key), default=-1), {})[key] = c
    return groups.values()


def _maximum(terms: dict[Key, Coefficient], arrays: list[Array], *, exact: bool) -> Coefficient:
    """The maximum of one group of terms: a search over states, attribute by attribute."""
    keys = list(terms)
    bound = sum(c * prod(_python(arrays[v].max()) for _, v in key) for key, c in terms.items())
    kind: np.dtype[Any] = _kind(bound) if exact else np.dtype(np.float64)
    sizes = {a: arrays[v].size for key in keys for a, v in key}
    stages: list[_Stage] = []
    for attribute in sorted(sizes, key=lambda a: sizes[a]):
        stages.append(_stage(attribute, stages[-1].keys if stages else keys, arrays, kind))
    states = np.array([[terms[key] for key in keys]], dtype=kind)
    best = _greedy(states[0], stages)
    for done, stage in enumerate(stages):
        kept = np.empty((0, len(stage.keys)), dtype=kind)
        limit = min(_STATES, _HELD // len(stage.keys))
        step = max(1, _EXPANDED // stage.cells.size)
        for start in range(0, len(states), step):
            block = stage.advance(states[start : start + step])
            bounds = block @ stage.most
            best = max(best, _greedy(block[bounds.argmax()], stages[done + 1 :]))
            kept = np.concatenate([kept, block[bounds > best]])
            if len(kept) > limit or start + step >= len(states):
                kept = kept[kept @ stage.most > best]
                kept = kept[_undominated(kept, stage.most)]
            if len(kept) > limit:
                raise MatrixError(
                    f"The largest column norm of {len(terms)} different products needs {len(kept):,} "
                    f"combinations of cells; at most {limit:,} are tried. Use fewer different factors on one "
                    f"attribute."
                )
        states = kept
    return _python(best)


def _kind(bound: Coefficient) -> np.dtype[Any]:
    """The fastest numbers that hold all integers up to the bound, and compare and add them exactly."""
    if bound < 2**53:
        return np.dtype(np.float64)
    return np.dtype(np.int64 if bound < 2**63 else object)


@dataclass(frozen=True, slots=True)
class _Stage:
    """One attribute's step: multiply by the norms of a cell, then add up terms that no longer differ."""

    keys: list[Key]  # what is left to decide of each term after the step
    cells: Array  # (cells, terms before)
    order: Array  # terms before, with those that become one next to each other
    starts: Array  # where each term after begins in that order
    most: Array  # per term after, the most its other attributes can multiply it by

    def advance(self, states: Array) -> Array:
        """All cells for all states: (states·cells, terms after)."""
        products = (states[:, None] * self.cells).reshape(-1, self.cells.shape[1])
        return np.add.reduceat(products[:, self.order], self.starts, axis=1)


def _stage(attribute: int, keys: list[Key], arrays: list[Array], kind: np.dtype[Any]) -> _Stage:
    used = {j: v for j, key in enumerate(keys) for a, v in key if a == attribute}
    cells = np.ones((arrays[next(iter(used.values()))].size, len(keys)), dtype=kind)
    after: dict[Key, list[int]] = {}
    for j, key in enumerate(keys):
        if j in used:
            cells[:, j] = arrays[used[j]]
        after.setdefault(key - {(attribute, used[j])} if j in used else key, []).append(j)
    starts = np.cumsum([0, *(len(group) for group in after.values())])[:-1]
    most = np.array([prod(_python(arrays[v].max()) for _, v in key) for key in after], dtype=kind)
    return _Stage(list(after), cells, np.concatenate([*after.values()]), starts, most)


def _greedy(state: Array, stages: Sequence[_Stage]) -> Coefficient:
    """A value that some cell attains: at each attribute the cell with the largest bound."""
    best = state
    for stage in stages:
        block = stage.advance(best[None])
        best = block[(block @ stage.most).argmax()]
    return best.sum()


def _undominated(states: Array, weights: Array) -> Array:
    """Indices of the rows that no other row dominates, as far as a bounded search finds.

    Keeping a dominated row is harmless. The weights say which rows to compare first, and may round or wrap: a row
    is dropped only if a comparison entry by entry finds one that dominates it. O(rows² · terms), at most `_COMPARED`.
    """
    if len(states) < 2:
        return np.arange(len(states))
    if states.shape[1] == 1:
        return states.argmax(axis=0)
    order = np.argsort(states @ weights, kind="stable")[::-1]  # if nothing rounds, only an earlier row dominates
    ranks = states[order]
    if ranks.dtype == np.dtype(object):  # ranks order as the values do
        ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in ranks.T], axis=1)
    compared, i = 0, 0
    while i < len(ranks) - 1 and compared < _COMPARED:
        kept = np.ones(len(ranks), dtype=bool)
        kept[i + 1 :] = (ranks[i + 1 :] > ranks[i]).any(axis=1)
        compared += ranks[i + 1 :].size
        if not kept.all():
            ranks, order = ranks[kept], order[kept]
        i += 1
    return order


def _python(value: Any) -> Coefficient:
    """A NumPy or Python number as a Python number."""
    return int(value) if isinstance(value, Integral) else float(value)
