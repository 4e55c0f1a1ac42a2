"""Direct: queries measured and published as they are, without inference, so no other query has an answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np

from hdmm.describe.domain import Domain
from hdmm.describe.product import Product
from hdmm.matrix import Array
from hdmm.strategy.blocks import Attributes, Block, content
from hdmm.strategy.form import Form

_PIECE = 1 << 22

Queries: TypeAlias = tuple[tuple[Attributes, Any], ...]
"""The factors of a product by what they hold, so that equal queries are found whoever made them."""


@final
@dataclass(frozen=True, eq=False)
class Direct(Form):
    """Every block is a product of the workload; the largest weight counts if several are equal."""

    domain: Domain
    blocks: Sequence[Block]

    def total_variance(self, products: Sequence[Product]) -> float:
        return math.fsum(
            product.queries * product.weight**2 * self._variance(product) for product in products if product.weight > 0
        )

    def variances(self, product: Product) -> Iterator[Array]:
        variance = self._variance(product)
        for start in range(0, product.queries, _PIECE):
            yield np.full(min(_PIECE, product.queries - start), variance)

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        if self.block_of(first) != self.block_of(second):
            return np.zeros(len(rows))
        return np.where(rows == others, self._variance(first), 0.0)

    def block_of(self, product: Product) -> int | None:
        """The number of the block that measures these queries; None if none does."""
        return self._heaviest.get(tuple((axes, content(p.matrix(product.cells(axes)))) for axes, p in product.sets))

    def _variance(self, product: Product) -> float:
        found = self.block_of(product)
        return math.inf if found is None else self.blocks[found].weight ** -2

    @cached_property
    def _heaviest(self) -> dict[Queries, int]:
        found: dict[Queries, int] = {}
        for j, block in enumerate(self.blocks):
            key = tuple((axes, content(A)) for axes, A in block.factors)
            if key not in found or block.weight > self.blocks[found[key]].weight:
                found[key] = j
        return found
