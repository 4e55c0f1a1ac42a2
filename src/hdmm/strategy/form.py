"""Form: what the measurements of a strategy say about any product of queries, at unit noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any, ClassVar, NoReturn, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array
from hdmm.strategy.blocks import Block, content

_PIECE = 1 << 22

Queries: TypeAlias = tuple[tuple[Attributes, Any], ...]
"""The factors of a product by what they hold, so that equal queries are found whoever made them."""


class NoClosedFormError(StrategyError):
    """No formula gives the variances of what was measured, as for blocks too large to write out."""


@dataclass(frozen=True, eq=False)
class Form(ABC):
    """Variances at unit noise, one unit of variance on every measurement, of the blocks that were measured.

    `hdmm.strategy.error` multiplies them by the squared sensitivity and the privacy's variance factor; a release has
    its own precisions in place of the weights. Estimates from measurements are in `hdmm.reconstruct.least_squares`.
    """

    domain: Domain
    blocks: Sequence[Block]
    closed: ClassVar[bool] = True  # whether there are formulas; without them the methods raise NoClosedFormError
    has_cells: ClassVar[bool] = True  # whether estimates come from one table of all cells that were measured

    @property
    def exact_blocks(self) -> Sequence[Block]:
        """Blocks whose answers are known without noise, besides those that were measured."""
        return ()

    @abstractmethod
    def total_variance(self, products: Sequence[Product]) -> float:
        """‖W A⁺‖²_F, weights included: the summed variance of all queries; infinite if one has no answer."""

    @abstractmethod
    def variances(self, product: Product) -> Iterator[Array]:
        """The variance of each query of a supported product, without its weight, in pieces."""

    @abstractmethod
    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        """The covariance of query rows[k] of one product with others[k] of another, without weights."""


@singledispatch
def constant_variances(form: Form, products: Sequence[Product]) -> Array:
    """The one variance of all queries of each supported product, without its weight; NaN where this is not known.

    A few array operations for any number of products: 100 attributes have 161,700 tables of three, which take minutes
    one at a time.

    >>> from hdmm import Domain, Workload
    >>> from hdmm.strategy.strategy import Strategy
    >>> w = Workload.marginals(Domain({f"a{i}": 3 for i in range(13)}), k=3)
    >>> constant_variances(Strategy.identity(w.domain).form, w.products)[:2]
    array([59049., 59049.])
    """
    return np.full(len(products), np.nan)


@singledispatch
def total_variances(form: Form, products: Sequence[Product]) -> Array:
    """The `total_variance` of each product by itself, of many in a few array operations where there are two classes."""
    return np.array([form.total_variance([product]) for product in products])


@final
@dataclass(frozen=True, eq=False)
class Direct(Form):
    """Queries measured and published as they are, without inference, so that no other query has an answer.

    Every block is a product of the workload; the largest weight counts if several are equal.
    """

    has_cells: ClassVar[bool] = False

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


@final
@dataclass(frozen=True, eq=False)
class NoForm(Form):
    """Measurements whose variances are not known, for a `reason` that the error states.

    This is the form of blocks on too many cells to write out, whose answers are found by iteration; and, without
    blocks, of mechanisms that choose what they measure by looking at the data.
    """

    reason: str
    unbounded: bool = False  # nothing is known about any error, so that variances are infinite instead of refused
    closed: ClassVar[bool] = False

    def total_variance(self, products: Sequence[Product]) -> float:
        self._refuse()

    def variances(self, product: Product) -> Iterator[Array]:
        if not self.unbounded:
            self._refuse()
        yield np.full(product.queries, np.inf)

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NoClosedFormError(self.reason)
