"""Mixture: Σ_j coef_j ⊗_i columns, a vector over the cells of classes, kept factored.

Both λ = Σ_j θ_j² ⊗ δ_ji of a strategy and t = Σ_k w_k² ⊗ tr(V_ki Z_c) of a workload are such sums, and the
error is Σ_cells t/λ. A cell is one class per attribute.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, final

import numpy as np

from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Dense, Kron

T = TypeVar("T")

SLAB_CELLS = 1 << 22  # cells written out at once (32 MiB); more are processed in slabs of that size
_MAX_DENSE = 1 << 24  # two-class forms with more cells are summed over subsets instead
_MAX_WALK = 1 << 34  # cells processed in slabs: minutes
_MAX_SUBSETS = 1 << 26  # subsets written out by the sparse form (1 GiB with their keys)


@final
@dataclass(frozen=True, eq=False)
class Mixture:
    """Σ_j coefficients[j] · ⊗_i tables[i][:, choices[j, i]].

    `tables[i]` is classes × distinct factors of attribute i. O(k·d + Σ table entries) memory.
    """

    coefficients: Array
    choices: Array
    tables: tuple[Array, ...]

    @cached_property
    def cells(self) -> int:
        """Π classes."""
        return math.prod(len(table) for table in self.tables)

    @cached_property
    def is_binary(self) -> bool:
        """Whether every attribute has at most two classes."""
        return all(len(table) <= 2 for table in self.tables)

    def restricted(self, boxes: Sequence[Array]) -> Mixture:
        """The same sum on the cells with class i among boxes[i]."""
        tables = tuple(table[box] for table, box in zip(self.tables, boxes, strict=True))
        return Mixture(self.coefficients, self.choices, tables)

    def slabs(self) -> Iterator[list[Array]]:
        """Boxes that together cover all cells, each of at most SLAB_CELLS if the axes allow it."""
        if self.cells > _MAX_WALK:
            raise StrategyError(
                f"The strategy's diagonal form has {float(self.cells):.1e} cells, which are too many. Use a product "
                "or marginals for domains of this size."
            )
        axes = [np.arange(len(table)) for table in self.tables]
        if self.cells <= SLAB_CELLS:
            yield axes
            return
        # The leading axes are cut into single classes, the next one into steps, and the rest stay whole.
        split, tail = 0, self.cells
        while tail > SLAB_CELLS:
            tail //= len(axes[split])
            split += 1
        step = SLAB_CELLS // tail
        for heads in itertools.product(*axes[: split - 1]):
            fixed = [np.array([head]) for head in heads]
            for start in range(0, len(axes[split - 1]), step):
                yield [*fixed, axes[split - 1][start : start + step], *axes[split:]]

    def values(self) -> Array:
        """The vector over all cells; the first attribute varies slowest.

        It is computed from the tensor of coefficients, one axis at a time, in O(d·(Π factors + cells)), which is a
        superset sum if there are two of each; or product by product in O(k·cells), whichever costs less.
        """
        widths = [table.shape[1] for table in self.tables]
        if math.prod(widths) <= min(max(len(self.coefficients) * self.cells, 1 << 12), _MAX_SUBSETS):
            code = np.zeros(len(self.choices), dtype=np.int64)
            for i, width in enumerate(widths):
                code = code * width + self.choices[:, i]
            tensor = np.bincount(code, weights=self.coefficients, minlength=math.prod(widths))
            return Kron(tuple(Dense(table) for table in self.tables)).matmat(tensor[:, None])[:, 0]
        total = np.zeros(self.cells)
        step = max(1, SLAB_CELLS // max(self.cells, 1))
        for start in range(0, len(self.coefficients), step):
            part = self.coefficients[None, start : start + step]
            for i, table in enumerate(self.tables):
                columns = table[:, self.choices[start : start + step, i]]
                part = (part[:, None, :] * columns[None]).reshape(-1, part.shape[1])
            total += part.sum(axis=1)
        return total

    @cached_property
    def sparse(self) -> SparseCells:
        """The nonzero cells if every attribute has at most two classes, for any number of attributes.

        A term reaches the cells whose second-class attributes include all on which it is 0 in the first class, and any
        of the others on which it is not 0 in the second: 2^s cells for s such others. O(Σ_j 2^s_j) time and memory,
        whatever the size of the domain.
        """
        k, d = self.choices.shape
        first, second = np.ones((k, d)), np.zeros((k, d))
        for i, table in enumerate(self.tables):
            column = self.choices[:, i]
            first[:, i] = table[0, column]
            if len(table) == 2:
                second[:, i] = table[1, column]
        free, fixed = (second > 0) & (first > 0), (second > 0) & (first == 0)
        sizes = free.sum(axis=1)
        if float(np.exp2(sizes).sum()) > _MAX_SUBSETS:
            raise StrategyError(
                f"Marginals of up to {int(sizes.max())} out of {d} attributes reach more than {_MAX_SUBSETS:,} "
                "subsets. Use fewer or smaller marginals."
            )
        scale = self.coefficients * np.where(free, 1.0, np.where(fixed, second, first)).prod(axis=1)
        keys: list[Array] = []
        values: list[Array] = []
        for size, always in np.unique(np.stack([sizes, fixed.sum(axis=1)], axis=1), axis=0).tolist():
            rows = np.flatnonzero((sizes == size) & (fixed.sum(axis=1) == always))
            axes, within = (np.nonzero(each[rows])[1].reshape(len(rows), -1) for each in (free, fixed))
            v0 = np.take_along_axis(first[rows], axes, axis=1)
            v1 = np.take_along_axis(second[rows], axes, axis=1)
            for mask in itertools.product((False, True), repeat=size):
                take = np.array(mask, dtype=bool)
                keys.append(subset_keys(np.sort(np.hstack([axes[:, take], within]), axis=1), d))
                values.append(scale[rows] * v0[:, ~take].prod(axis=1) * v1[:, take].prod(axis=1))
        unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        return SparseCells(unique, np.bincount(inverse, weights=np.concatenate(values)))


@final
@dataclass(frozen=True, slots=True, eq=False)
class SparseCells:
    """Values on cells, which are named by the subset of attributes in their second class; 0 on all other cells."""

    keys: Array
    values: Array

    def at(self, keys: Array) -> Array:
        """The values at the keys, 0 if there is none. O(log) per key."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.values[place], 0.0)


def tabulate(rows: Sequence[tuple[tuple[int, T], ...]], defaults: Sequence[T]) -> tuple[Array, list[tuple[T, ...]]]:
    """(choices, distinct factors per attribute) of rows of (axis, factor) pairs; what is left out is the default.

    >>> choices, factors = tabulate([((0, "I"),), ((1, "I"),)], ["T", "T"])
    >>> choices.tolist(), factors
    ([[0, 1], [1, 0]], [('I', 'T'), ('I', 'T')])
    """
    seen: list[dict[T, int]] = [{} for _ in defaults]
    choices = np.full((len(rows), len(defaults)), -1, dtype=np.int32)
    for j, row in enumerate(rows):
        for i, factor in row:
            choices[j, i] = seen[i].setdefault(factor, len(seen[i]))
    for i, default in enumerate(defaults):
        left_out = choices[:, i] < 0
        if left_out.any():
            choices[left_out, i] = seen[i].setdefault(default, len(seen[i]))
    return choices, [tuple(factors) for factors in seen]


def subset_keys(axes: Array, d: int) -> Array:
    """One number per row, which differs for different ascending axes: digits in base d + 1.

    >>> subset_keys(np.array([[0, 2], [1, 2]]), 3).tolist()
    [7, 11]
    """
    count, size = axes.shape
    exact = object if (d + 1) ** size >= 2**63 else np.int64
    key = np.zeros(count, dtype=exact)
    for column in axes.T:
        key = key * (d + 1) + (column.astype(exact) + 1)
    return key


def box_keys(boxes: Mapping[int, Array], d: int) -> Array:
    """The keys of the cells of a box, in row-major order. Boxes hold classes 0 and 1; attributes left out have class 0.

    >>> box_keys({2: np.array([0, 1])}, 3).tolist()
    [0, 3]
    """
    active = sum(len(box) > 1 or box[0] > 0 for box in boxes.values())
    keys: Array = np.zeros(1, dtype=object if (d + 1) ** active >= 2**63 else np.int64)
    for i, box in boxes.items():
        steps = [keys * (d + 1) + (i + 1) if c else keys for c in box.tolist()]
        keys = np.stack(steps, axis=1).ravel()
    return keys


def quotient_sum(t: Mixture, lam: Mixture) -> float:
    """Σ_cells t/λ; infinite if a cell of t is not measured at all (λ = 0 < t)."""
    if lam.cells <= _MAX_DENSE or not lam.is_binary:
        return math.fsum(_quotients(t.restricted(box).values(), lam.restricted(box).values()) for box in lam.slabs())
    return _quotients(t.sparse.values, lam.sparse.at(t.sparse.keys))


def _quotients(t: Array, lam: Array) -> float:
    needed = t > 0
    if (lam[needed] == 0).any():
        return math.inf
    return float(np.sum(t[needed] / lam[needed]))
