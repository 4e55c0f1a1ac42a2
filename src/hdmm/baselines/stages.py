"""Answers of mechanisms that look at the data to decide what to measure: as many as fit, and without a stddev."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, final

import numpy as np

from hdmm.answer import Answers
from hdmm.data import Data
from hdmm.exceptions import DataError, StrategyError
from hdmm.matrix import Array
from hdmm.privacy import Noise
from hdmm.reconstruct import Estimate
from hdmm.strategy.form import Form
from hdmm.workload import Product, Workload

_MOST_QUERIES = 1 << 30  # 8 GiB of answers


def refuse_workload(workload: Workload, data: Data) -> None:
    """Refuse a workload over another domain than the data's, or with more answers than can be held. Reads no data."""
    if workload.domain != data.domain:
        raise DataError(
            f"The workload is over ({', '.join(workload.domain.names)}) and the data over "
            f"({', '.join(data.domain.names)}). Build both on one Domain."
        )
    if workload.queries > _MOST_QUERIES:
        raise StrategyError(
            f"{workload.queries:,} answers would fill {8 * workload.queries / 1e9:.0f} GB. Ask for the products of the "
            "workload a few at a time."
        )


def answered(workload: Workload, estimate: Estimate) -> Answers:
    """The estimate's answers. Their error depends on the data, so that asking for a stddev is an error."""
    products = (estimate.values(replace(product, weight=1.0)) for product in workload.products)
    counts = np.concatenate(list(products))
    return Answers(workload, counts, counts, DataDependent(), Noise.LAPLACE)


@final
@dataclass(frozen=True, slots=True, eq=False)
class DataDependent(Form):
    """What a mechanism measured that chose it by looking at the data: its errors cannot be told without them."""

    def total_variance(self, products: Sequence[Product]) -> float:
        self._refuse()

    def variances(self, product: Product) -> Iterator[Array]:
        self._refuse()

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StrategyError(
            "The error of a data-dependent mechanism depends on the data: it has no standard deviations that may be "
            "told. Use .values, or hdmm.optimize for answers with margins of error."
        )
