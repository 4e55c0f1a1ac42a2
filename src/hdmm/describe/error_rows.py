"""ErrorRows: the rows of a table as far as their errors go, and the margins of error that they may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.table_query import NO_MARGIN, stated_margin
from hdmm.describe.workload import Workload
from hdmm.matrix import Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class ErrorRows:
    """Rows whose errors follow from those of queries: that of row i is factors[i] · Σ combine[i, j] · error of query j.

    Each query is a row, in order, if `combine` is None. `factors` is None for counts and sums; those of means,
    percentages and quantiles hold to first order. `expected` are counts, and `margin` is what an error may be: a number
    per row, or one for all rows. Weights do not count.
    """

    workload: Workload
    combine: sp.csr_array | None = None
    factors: Array | None = None
    expected: Array | None = None
    margin: Array | None = None

    @property
    def counted(self) -> bool:
        """Whether rows are numbers of records, and not sums of other numbers, or quotients."""
        return self.factors is None and self.workload.in_counts() == self.workload

    def allowed(self, target: float | str) -> Array:
        """The margins that a target allows: itself for every row, or, of text such as "2 %", a part of each count."""
        if not isinstance(target, str):
            return np.array([float(target)])
        if self.factors is not None:
            raise WorkloadError(NO_MARGIN)
        if self.expected is None:
            return np.array([stated_margin(target, None)])  # raises
        return stated_margin(target, 1.0) * self.expected
