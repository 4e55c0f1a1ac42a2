"""Nonnegative tables that agree with each other, where all cells of the measured attributes are too many to hold.

The tables over the largest measured sets s of attributes are fitted: near the unbiased ones, without negative cells,
with equal sums wherever they share attributes, and with the estimated total. Tables agree if and only if each is a sum
of the same parts, one in the residual space of every set b of attributes:

    table_s = Σ_{b ⊆ s} part_b ⊗ 1/n_{s∖b},      Σ part_b = 0 along each attribute of b

so the nearest tables that agree have, as part_b, a weighted mean of what each table says of it. Tables of one shape are
worked on together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.base.steps import shown_steps
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array
from hdmm.reconstruct.estimate import Estimate, TableEstimate, all_values
from hdmm.strategy.form import Form, constant_variances
from hdmm.strategy.subsets import subsets

_Group: TypeAlias = Sequence[Attributes]  # sets of attributes whose tables have one shape

_MOST_STEPS = 500
_MIXED = 1e-4  # the share of the uniform table that may be mixed in at the end, to raise what is left below 0
_STIFF = 1.0  # ρ
_RELAXED = 1.8
_LONG = 1 << 18


def maximal(sets: Iterable[Attributes]) -> list[Attributes]:
    """The sets of attributes that are in no larger one."""
    found: list[Attributes] = []
    covered: set[Attributes] = set()
    for axes in sorted({tuple(sorted(each)) for each in sets}, key=lambda axes: (-len(axes), axes)):
        if axes not in covered:
            found.append(axes)
            covered.update(subsets(axes))
    return found


def agreeing_tables(
    form: Form, domain: Domain, sets: Sequence[Attributes], estimate: Estimate, total: float | None
) -> Estimate:
    """Nonnegative tables over these sets of attributes, and what follows from them.

    By the alternating direction method of multipliers, as in nonnegative.py: `tables` agree, `free` are not below 0,
    and `off` adds up how they differ.
    """
    groups = _groups(domain, sets)
    space = _Agreeing.of(domain, groups, _precisions(form, domain, groups), total)
    wanted = tables = space.nearest([_estimated(domain, group, estimate) for group in groups])
    free = [np.maximum(table, 0.0) for table in wanted]
    off = [np.zeros_like(table) for table in wanted]
    cells = sum(table.size for table in wanted)
    with shown_steps("Fitting nonnegative tables", _MOST_STEPS, long=cells >= _LONG) as advance:
        for _ in range(_MOST_STEPS):
            near = space.nearest([z - u for z, u in zip(free, off, strict=True)])
            tables = [(w + _STIFF * v) / (1 + _STIFF) for w, v in zip(wanted, near, strict=True)]
            for k, table in enumerate(tables):
                v = _RELAXED * table + (1 - _RELAXED) * free[k] + off[k]
                free[k] = np.maximum(v, 0.0)
                off[k] = v - free[k]
            advance()
            if _share(tables) <= _MIXED:
                break
    share = _share(tables)
    mixed = [
        np.maximum((1 - share) * t + share * _total(t)[:, *[None] * (t.ndim - 1)] / t[0].size, 0.0) for t in tables
    ]
    fitted = {s: mixed[k][row] for k, group in enumerate(groups) for row, s in enumerate(group)}
    within = {b: s for s in fitted for b in subsets(s)}

    def table_of(product: Product) -> tuple[Attributes, Array]:
        held = within.get(product.axes)
        if held is None:
            raise StrategyError(f"No measured table has all attributes of product ({product}), so it has no answer.")
        others = tuple(k for k, i in enumerate(held) if i not in product.axes)
        return product.axes, fitted[held].sum(axis=others)

    return TableEstimate(domain, table_of)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Agreeing:
    """The tables that agree. `rows[k][c]` says which part the positions c of each table of group k hold."""

    total: float | None
    precisions: Sequence[Array]  # one per table of each group
    rows: Sequence[dict[Attributes, tuple[tuple[int, ...], Array]]]
    weights: dict[tuple[int, ...], Array]  # by the shape of parts

    @classmethod
    def of(
        cls, domain: Domain, groups: Sequence[_Group], precisions: Sequence[Array], total: float | None
    ) -> _Agreeing:
        known: dict[Attributes, tuple[tuple[int, ...], int]] = {}
        counts: dict[tuple[int, ...], int] = {}
        rows: list[dict[Attributes, tuple[tuple[int, ...], Array]]] = []
        for group in groups:
            shape = tuple(domain.shape[i] for i in group[0])
            found: dict[Attributes, tuple[tuple[int, ...], Array]] = {}
            for c in subsets(range(len(shape))):
                part = tuple(shape[k] for k in c)
                numbers: list[int] = []
                for s in group:
                    b = tuple([s[k] for k in c])
                    if b not in known:
                        known[b] = part, counts.get(part, 0)
                        counts[part] = counts.get(part, 0) + 1
                    numbers.append(known[b][1])
                found[c] = part, np.array(numbers)
            rows.append(found)
        weights = {part: np.zeros(count) for part, count in counts.items()}
        for group, each, precision in zip(groups, rows, precisions, strict=True):
            cells = math.prod(domain.shape[i] for i in group[0])
            for part, held in each.values():
                np.add.at(weights[part], held, precision * math.prod(part) / cells)
        return cls(total, precisions, rows, weights)

    def nearest(self, tables: Sequence[Array]) -> list[Array]:
        """The nearest tables that agree and have the total."""
        parts = {part: np.zeros([len(weight), *part]) for part, weight in self.weights.items()}
        for table, precision, each in zip(tables, self.precisions, self.rows, strict=True):
            for c, (part, numbers) in each.items():
                others = tuple(k + 1 for k in range(table.ndim - 1) if k not in c)
                weighed = precision * math.prod(part) / table[0].size
                np.add.at(parts[part], numbers, table.sum(axis=others) * weighed[:, *[None] * len(part)])
        for part, weight in self.weights.items():
            parts[part] /= weight[:, *[None] * len(part)]
            for k in range(len(part)):
                parts[part] -= parts[part].mean(axis=k + 1, keepdims=True)
        if self.total is not None:
            parts[()][:] = self.total
        found: list[Array] = []
        for table, each in zip(tables, self.rows, strict=True):
            out = np.zeros_like(table)
            for c, (part, numbers) in each.items():
                here = [n if k in c else 1 for k, n in enumerate(table.shape[1:])]
                out += parts[part][numbers].reshape(-1, *here) * (math.prod(part) / table[0].size)
            found.append(out)
        return found


def _groups(domain: Domain, sets: Sequence[Attributes]) -> list[_Group]:
    """The sets whose tables have one shape, together."""
    found: dict[tuple[int, ...], list[Attributes]] = {}
    for s in sets:
        found.setdefault(tuple(domain.shape[i] for i in s), []).append(s)
    return list(found.values())


def _cells_of(domain: Domain, group: _Group) -> list[Product]:
    return [Product(domain, tuple((i, Identity()) for i in s), 1.0) for s in group]


def _estimated(domain: Domain, group: _Group, estimate: Estimate) -> Array:
    return all_values(estimate, _cells_of(domain, group)).reshape(len(group), *(domain.shape[i] for i in group[0]))


def _precisions(form: Form, domain: Domain, groups: Sequence[_Group]) -> list[Array]:
    """One over the mean variance of the cells of each table; 1 for all where that is not known."""
    products = [product for group in groups for product in _cells_of(domain, group)]
    found = constant_variances(form, products)
    try:
        for k in np.flatnonzero(np.isnan(found)).tolist():
            found[k] = np.concatenate(list(form.variances(products[k]))).mean()
    except StrategyError:  # without a closed form, or too large for it
        found[:] = 1.0
    found = np.where(found > 0, found, 1.0)
    return np.split(1 / found, np.cumsum([len(group) for group in groups])[:-1])


def _total(tables: Array) -> Array:
    return tables.reshape(len(tables), -1).sum(axis=1)


def _share(tables: Sequence[Array]) -> float:
    """The least share of uniform tables with which no cell is below 0."""
    least = [(t.reshape(len(t), -1).min(axis=1), _total(t) / t[0].size) for t in tables]
    return max(float(np.max(np.where(low < 0, -low / np.maximum(even - low, 1e-300), 0.0))) for low, even in least)
