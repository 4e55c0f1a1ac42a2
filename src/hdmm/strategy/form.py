"""Form: what the measurements of a strategy say about any product of queries, at unit noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from hdmm.base.exceptions import StrategyError
from hdmm.describe.product import Product
from hdmm.matrix import Array


class NoClosedFormError(StrategyError):
    """No formula gives the variances of what was measured, as for blocks too large to write out."""


class Form(ABC):
    """Variances at unit noise: one unit of variance on every measurement.

    `hdmm.strategy.error` multiplies them by the squared sensitivity and the privacy's variance factor; a release has
    its own precisions in place of the weights. Estimates from measurements are in `hdmm.reconstruct.least_squares`.
    """

    __slots__ = ()

    @abstractmethod
    def total_variance(self, products: Sequence[Product]) -> float:
        """‖W A⁺‖²_F, weights included: the summed variance of all queries; infinite if one has no answer."""

    @abstractmethod
    def variances(self, product: Product) -> Iterator[Array]:
        """The variance of each query of a supported product, without its weight, in pieces."""

    @abstractmethod
    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        """The covariance of query rows[k] of one product with others[k] of another, without weights."""
