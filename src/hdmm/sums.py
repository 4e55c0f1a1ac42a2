"""Rows that are sums of queries, and their exact variances from the covariances of the queries."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hdmm.matrix import Array
from hdmm.strategy.form import Form
from hdmm.workload import Workload


def sum_variances(workload: Workload, form: Form, combine: sp.csr_array) -> Array:
    """The variance of each sum at unit noise: row i sums the queries j with combine[i, j] = 1, without weights.

    Σ cov(j, l) over the pairs of queries of a row. O(pairs × cells of the form).

    >>> from hdmm import Domain
    >>> from hdmm.baselines import identity
    >>> w = Workload.marginals(Domain({"age": 3}), k=range(2))
    >>> sum_variances(w, identity(w).form, sp.csr_array([[0, 1, 1, 0], [1, 1, 0, 0]]))  # two cells; one of them twice
    array([2., 6.])
    """
    products = workload.products
    starts = np.cumsum([0, *(product.queries for product in products[:-1])])
    rows, first, second = _pairs(combine)
    of, to = (np.searchsorted(starts, queries, side="right") - 1 for queries in (first, second))
    found = np.empty(len(rows))
    for i, j in set(zip(of.tolist(), to.tolist(), strict=True)):
        here = np.flatnonzero((of == i) & (to == j))
        at, other = first[here] - starts[i], second[here] - starts[j]
        found[here] = form.covariances(products[i], at, products[j], other)
    count = len(np.asarray(combine.indptr)) - 1
    return np.maximum(np.bincount(rows, weights=found, minlength=count), 0.0)


def _pairs(combine: sp.csr_array) -> tuple[Array, Array, Array]:
    """(row, query, query) for every ordered pair of queries that a row sums."""
    starts, queries = np.asarray(combine.indptr), np.asarray(combine.indices)
    lengths = np.diff(starts)
    rows = np.repeat(np.arange(len(lengths)), lengths**2)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths**2) - lengths**2, lengths**2)
    length, start = lengths[rows], starts[rows]
    return rows, queries[start + within // length], queries[start + within % length]
