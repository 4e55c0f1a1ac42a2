"""Grouped: the form of blocks with factors on several attributes, by way of the groups that these form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.describe.product import Product
from hdmm.matrix import Array
from hdmm.strategy.blocks import AxisGroups
from hdmm.strategy.form import Form


@final
@dataclass(frozen=True, slots=True, eq=False)
class Grouped(Form):
    """The form over groups answers a product in which all combinations of predicates on a group are one set."""

    groups: AxisGroups
    inner: Form

    def total_variance(self, products: Sequence[Product]) -> float:
        return self.inner.total_variance([self.groups.product(product) for product in products])

    def variances(self, product: Product) -> Iterator[Array]:
        pieces = self.inner.variances(self.groups.product(product))
        if self.groups.keeps_order:
            yield from pieces
        else:
            yield self.groups.restored(product, np.concatenate(list(pieces)))

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        at, to = self.groups.query(first, rows), self.groups.query(second, others)
        return self.inner.covariances(self.groups.product(first), at, self.groups.product(second), to)
