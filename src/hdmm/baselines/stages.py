"""Answers of mechanisms that look at the data to decide what to measure: they have no stddev, and must fit memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hdmm.answers.answers import Answers, refuse_many_answers
from hdmm.base.exceptions import DataError
from hdmm.data import Data
from hdmm.describe.workload import Workload
from hdmm.privacy.guarantee import Noise
from hdmm.reconstruct.estimate import Estimate
from hdmm.strategy.form import NoForm

_DATA_DEPENDENT = (
    "The error of a data-dependent mechanism depends on the data, so its standard deviations must not be published. "
    "Use .values, or hdmm.optimize for answers with margins of error."
)


def refuse_workload(workload: Workload, data: Data) -> None:
    """Refuse a workload over another domain than the data's, or with more answers than can be held. Reads no data."""
    if workload.domain != data.domain:
        raise DataError(
            f"The workload is over ({', '.join(workload.domain.names)}), but the data is over "
            f"({', '.join(data.domain.names)}). Build both on one Domain."
        )
    refuse_many_answers(workload)


def answered(workload: Workload, estimate: Estimate) -> Answers:
    """The estimate's answers. Their error depends on the data, so asking for a stddev is an error."""
    products = (estimate.values(replace(product, weight=1.0)) for product in workload.products)
    counts = np.concatenate(list(products))
    return Answers(workload, counts, counts, NoForm(workload.domain, (), _DATA_DEPENDENT), Noise.LAPLACE)
