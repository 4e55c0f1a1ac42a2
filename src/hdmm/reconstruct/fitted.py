"""Proportional fitting: estimates without negative counts that have the sums of known tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import final

import numpy as np

from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array
from hdmm.reconstruct.estimate import Estimate, TableEstimate
from hdmm.reconstruct.known import Known, by_group, codes_of

MOST_FITTED = 1 << 22
"""Up to which x is fitted to known counts whole: each of many rounds passes over it several times."""

_ROUNDS = 1000  # of proportional fitting
_CLOSE = 1e-12  # of the total
_LITTLE = 1e-3  # of the mean count


def fitted(estimate: Estimate, domain: Domain, axes: Sequence[int], known: Sequence[Known]) -> Estimate:
    """The estimate, none of whose counts is negative, in proportions that have the sums of the known marginals.

    On the cells of the measured and known attributes, `axes`, if these are few; else each table by itself.
    """
    return TableEstimate(domain, _Fitted(estimate, domain, tuple(axes), tuple(known))) if known else estimate


def groupings(domain: Domain, axes: Sequence[int], known: Sequence[Known]) -> list[Array]:
    """The group of every cell of these attributes in each known table."""
    shape = [domain.shape[i] for i in axes]
    places = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    found: list[Array] = []
    for each in known:
        groups = np.zeros(shape, np.int64)
        for i, p in each.product.factors:
            codes = codes_of(p, domain.shape[i])
            groups = groups * (int(codes.max()) + 1) + codes[places[axes.index(i)]]
        found.append(groups.ravel())
    return found


@final
@dataclass(frozen=True, eq=False)
class _Fitted:
    """The table from which a product is answered, fitted by iterative proportional fitting."""

    inner: Estimate
    domain: Domain
    axes: Attributes
    known: tuple[Known, ...]

    def __call__(self, product: Product) -> tuple[Attributes, Array]:
        if math.prod(self.domain.shape[i] for i in self.axes) <= MOST_FITTED:
            return self.axes, self._cells
        return product.axes, self._table(product.axes)

    @cached_property
    def _cells(self) -> Array:
        return self._table(self.axes)

    def _table(self, axes: Attributes) -> Array:
        """The known sums over and over, until all hold."""
        cells = Product(self.domain, tuple((i, Identity()) for i in axes))
        table = self.inner.values(cells).reshape([self.domain.shape[i] for i in axes])
        if len(self.known) > 1:  # where zeros leave no way to have all sums
            table = table + _LITTLE * (table.sum() + 1) / table.size
        for _ in range(_ROUNDS):
            off = 0.0
            for known in self.known:
                table, apart = _proportional(table, axes, known)
                off = max(off, apart)
            if off <= _CLOSE * max([1, *(known.total for known in self.known)]):
                break
        return table


def _proportional(table: Array, axes: Attributes, known: Known) -> tuple[Array, float]:
    """The table of these attributes in proportions that have known sums, and how far it was from these."""
    groups = {axes.index(i): codes_of(p, known.domain.shape[i]) for i, p in known.product.factors if i in axes}
    others = tuple(k for k in range(len(axes)) if k not in groups)
    target = np.expand_dims(known.summed(axes).astype(np.float64), others)

    def sums_of(x: Array) -> Array:
        found = x.sum(axis=others, keepdims=True)
        return reduce(lambda x, k: by_group(x, k, groups[k]), groups, found)

    def expand(x: Array) -> Array:
        return reduce(lambda x, k: x.take(groups[k], axis=k), groups, x)

    sums = sums_of(table)
    empty = (sums == 0) & (target > 0)
    if empty.any():
        table = np.where(expand(empty), 1.0, table)
        sums = sums_of(table)
    off = float(np.abs(sums - target).max(initial=0.0))
    return table * expand(np.divide(target, sums, out=np.zeros_like(sums), where=sums > 0)), off
