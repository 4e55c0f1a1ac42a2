"""Rows that are sums of queries, and how uncertain they are.

Where a condition joins attributes by OR, a row of a table is the sum of disjoint queries. Its standard error needs the
covariances of those; until they are computed, the sum of the standard errors bounds it from above.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hdmm.matrix import Array


def row_estimates(combine: sp.csr_array | None, values: Array) -> Array:
    """The estimate of each row: of its query, or the sum over its parts."""
    return values if combine is None else np.asarray(combine @ values)


def row_stddev(combine: sp.csr_array | None, stddev: Array) -> Array:
    """The standard deviation of each row; at most this, where rows are sums: σ(Σ X) ≤ Σ σ(X).

    >>> row_stddev(sp.csr_array([[1, 1]]), np.array([3.0, 4.0]))
    array([7.])
    """
    return stddev if combine is None else np.asarray(combine @ stddev)
