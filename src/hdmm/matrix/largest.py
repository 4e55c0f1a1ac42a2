"""largest_column_norm: max over all cells of Σⱼ cⱼ Πᵢ νⱼᵢ[xᵢ], attribute by attribute, exact for integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, lcm, prod
from numbers import Integral, Rational
from typing import Any

import numpy as np

from hdmm.exceptions import MatrixError
from hdmm.matrix.base import Array

Number = int | float | Fraction
Key = frozenset[
    tuple[int, int]
]  # (attribute, number of a vector of norms on it), where a block is not constant

_STATES = 10**6  # combinations of cells that may stay in play
_EXPANDED = 2**23  # numbers in a block of new combinations: 64 MiB
_COMPARED = 3 * 10**8  # numbers compared in one search for dominated combinations: below a second
_ROUNDING = 1e-12  # float norms that differ by less are one constant, their largest


def largest_column_norm(coefficients: Sequence[Number], profiles: Sequence[Mapping[int, Array]]) -> Number:
    """max_x Σⱼ cⱼ Πᵢ νⱼᵢ[xᵢ] over the cells x of a domain that is never listed.

    Block j has coefficient cⱼ ≥ 0 and, for the attributes i in profiles[j], the vector νⱼᵢ ≥ 0 of its
    factor's column norms; it is 1 on all other attributes. Constant vectors go into the coefficient; blocks
    that share no attribute are maximised apart; then one attribute at a time is decided, keeping only
    combinations that no other dominates and whose bound passes the best value found. Exact (a Python int or
    a Fraction) unless a float is given; float norms equal up to 1e-12 count as their largest. Linear in the
    blocks if all vectors are constant, else O(combinations kept · cells · blocks) an attribute.

    >>> largest_column_norm([1, 2], [{0: np.array([3, 1])}, {0: np.array([1, 4]), 7: np.array([1, 5])}])
    41
    """
    if len(coefficients) != len(profiles):
        raise MatrixError(f"There are {len(coefficients)} coefficients for {len(profiles)} blocks.")
    exact = all(isinstance(c, Rational) for c in coefficients)
    vectors = _Vectors({}, [], {}, {})
    terms: dict[Key, Number] = {}
    for j, (coefficient, profile) in enumerate(zip(coefficients, profiles, strict=True)):
        if not (isfinite(coefficient) and coefficient >= 0):
            raise MatrixError(
                f"Coefficient {j} is {coefficient!r}; a norm's coefficient is finite, at least 0."
            )
        c, key = coefficient, []
        for attribute, norms in profile.items():
            constant, number = vectors.add(attribute, norms)
            if number is None:
                c = c * constant
            else:
                key.append((attribute, number))
        name = frozenset(key)
        terms[name] = terms.get(name, 0) + c
    exact = exact and all(v.dtype.kind in "iuO" for v in vectors.arrays) and not vectors.inexact
    return _solve({key: c for key, c in terms.items() if c != 0}, vectors.arrays, exact=exact)


@dataclass(frozen=True, slots=True)
class _Vectors:
    """The distinct vectors of norms seen so far, by object and by content."""

    by_object: dict[tuple[int, int], tuple[Number, int | None]]
    arrays: list[Array]
    by_content: dict[tuple[int, bytes | tuple[int, ...]], int]
    sizes: dict[int, int]

    @property
    def inexact(self) -> bool:
        return any(isinstance(constant, float) for constant, _ in self.by_object.values())

    def add(self, attribute: int, norms: Array) -> tuple[Number, int | None]:
        """(the constant, None) or (1, number of the vector)."""
        found = self.by_object.get((attribute, id(norms)))
        if found is None:
            found = self.by_object[attribute, id(norms)] = self._classified(attribute, norms)
        return found

    def _classified(self, attribute: int, norms: Array) -> tuple[Number, int | None]:
        if norms.ndim != 1 or norms.size == 0 or norms.dtype.kind not in "iufO":
            raise MatrixError(
                f"Norms on attribute {attribute} must be a vector of numbers, not {norms!r:.80}."
            )
        if self.sizes.setdefault(attribute, norms.size) != norms.size:
            raise MatrixError(
                f"Attribute {attribute} has {self.sizes[attribute]} cells in one block and {norms.size} in "
                f"another."
            )
        least, most = norms.min(), norms.max()
        if not least >= 0:
            raise MatrixError(f"Norms on attribute {attribute} must be at least 0; the least is {least}.")
        if least == most or (norms.dtype.kind == "f" and most - least <= _ROUNDING * most):
            return (float(most) if norms.dtype.kind == "f" else int(most)), None
        content = tuple(norms.tolist()) if norms.dtype.kind == "O" else norms.astype(np.float64).tobytes()
        if norms.dtype.kind in "iu" and int(most) >= 2**53:
            content = tuple(norms.tolist())
        number = self.by_content.setdefault((attribute, content), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(norms)
        return 1, number


def _solve(terms: dict[Key, Number], arrays: list[Array], *, exact: bool) -> Number:
    if not exact:
        return float(sum(_component(part, arrays, exact=False) for part in _apart(terms)))
    scale = lcm(*(Fraction(c).denominator for c in terms.values()))
    whole: dict[Key, Number] = {key: int(c * scale) for key, c in terms.items()}
    best = sum(
        int(_component(part, arrays, exact=True)) for part in _apart(whole)
    )  # whole, if held as floats
    return best if scale == 1 else Fraction(best, scale)


def _apart(terms: dict[Key, Number]) -> Iterable[dict[Key, Number]]:
    """The terms, in groups that share no attribute; the constant one by itself."""
    parent: dict[int, int] = {}

    def root(a: int) -> int:
        while parent.setdefault(a, a) != a:
            parent[a] = a = parent[parent[a]]
        return a

    for key in terms:
        attributes = [a for a, _ in key]
        for a in attributes[1:]:
            parent[root(a)] = root(attributes[0])
    groups: dict[int, dict[Key, Number]] = {}
    for key, c in terms.items():
        groups.setdefault(min((root(a) for a, _ in key), default=-1), {})[key] = c
    return groups.values()


def _component(terms: dict[Key, Number], arrays: list[Array], *, exact: bool) -> Number:
    """The maximum of one group of terms: a search, attribute by attribute, over what each has come to."""
    keys = list(terms)
    bound = sum(c * prod(_python(arrays[v].max()) for _, v in key) for key, c in terms.items())
    kind = np.dtype(object if exact and bound >= 2**53 else np.float64)  # below 2^53 floats are exact
    attributes = sorted({a for key in keys for a, _ in key}, key=lambda a: _cells(a, keys, arrays))
    stages = [_Stage(keys, np.ones((1, len(keys)), dtype=kind), np.arange(len(keys)), np.ones(len(keys)))]
    for attribute in attributes:
        stages.append(_stage(attribute, stages[-1].keys, arrays, kind))
    states = np.array([[terms[key] for key in keys]], dtype=kind)
    best = _greedy(states[0], stages)
    for done, stage in enumerate(stages):
        parts: list[Array] = []
        step = max(1, _EXPANDED // stage.cells.size)
        for start in range(0, len(states), step):
            block = stage.advance(states[start : start + step])
            bounds = block @ stage.most
            best = max(best, _greedy(block[bounds.argmax()], stages[done + 1 :]))
            parts.append(block[bounds > best])
        states = np.concatenate(parts)
        states = states[_undominated(states, stage.most)]
        if len(states) > _STATES:
            raise MatrixError(
                f"The largest column norm of {len(terms)} different products needs {len(states):,} combinations "
                f"of cells; at most {_STATES:,} are tried. Use fewer different factors on one attribute."
            )
        if not len(states):
            break
    return _python(best)


@dataclass(frozen=True, slots=True)
class _Stage:
    """One attribute's step: multiply by the norms of a cell, then add up terms that no longer differ."""

    keys: list[Key]  # what is left to decide of each term after the step
    cells: Array  # (cells that no other dominates, terms before)
    merge: Array  # term before → term after
    most: Array  # per term after, the most its other attributes can multiply it by

    def advance(self, states: Array) -> Array:
        """All cells for all states: (states·cells, terms after)."""
        products = (states[:, None] * self.cells).reshape(-1, self.cells.shape[1])
        if len(self.keys) == products.shape[1]:
            return products
        out = np.zeros((len(products), len(self.keys)), dtype=products.dtype)
        for before, after in enumerate(self.merge.tolist()):
            out[:, after] += products[:, before]
        return out


def _stage(attribute: int, keys: list[Key], arrays: list[Array], kind: np.dtype[Any]) -> _Stage:
    size = _cells(attribute, keys, arrays)
    cells = np.ones((size, len(keys)), dtype=kind)
    left: dict[Key, int] = {}
    merge: list[int] = []
    for j, key in enumerate(keys):
        for a, v in key:
            if a == attribute:
                cells[:, j] = arrays[v]
        merge.append(left.setdefault(frozenset(part for part in key if part[0] != attribute), len(left)))
    most = np.array([prod(_python(arrays[v].max()) for _, v in key) for key in left], dtype=kind)
    kept = _undominated(cells, np.ones(len(keys)))
    return _Stage(list(left), cells[kept], np.array(merge), most)


def _cells(attribute: int, keys: list[Key], arrays: list[Array]) -> int:
    return next(arrays[v].size for key in keys for a, v in key if a == attribute)


def _greedy(state: Array, stages: Sequence[_Stage]) -> Number:
    """A value that some cell attains: at each attribute the cell with the largest bound."""
    for stage in stages:
        block = stage.advance(state[None])
        state = block[(block @ stage.most).argmax()]
    return state.sum()


def _undominated(states: Array, weights: Array) -> Array:
    """Indices of the rows that are nowhere ≥-dominated by another, as far as a bounded search tells.

    To keep a dominated row is harmless. O(rows² · terms), at most `_COMPARED`.
    """
    if len(states) < 2:
        return np.arange(len(states))
    order = np.argsort(states @ weights, kind="stable")[::-1]  # only an earlier row can dominate
    if states.shape[1] == 1:
        return order[:1]
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


def _python(value: Any) -> Number:
    """A NumPy or Python number as a Python number."""
    if isinstance(value, Integral):
        return int(value)
    return value if isinstance(value, Fraction) else float(value)
