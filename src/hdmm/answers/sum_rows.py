"""Rows that are linear combinations of queries, and their exact variances from the covariances of the queries."""

from __future__ import annotations

import functools

import numpy as np
import scipy.sparse as sp

from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.strategy.form import Form


def sum_variances(workload: Workload, form: Form, combine: sp.csr_array) -> Array:
    """The variance of each row at unit noise: row i is Σ combine[i, j]·query j, without weights.

    Σ cov(j, l) over the pairs of queries of a row. O(pairs × cells of the form).

    >>> from hdmm import Domain
    >>> from hdmm.baselines import identity
    >>> w = Workload.marginals(Domain({"age": 3}), k=range(2))
    >>> sum_variances(w, identity(w).form, sp.csr_array([[0, 1, 1, 0], [1, 1, 0, 0]]))  # two cells; one of them twice
    array([2., 6.])
    """
    return np.maximum(sum_covariances(workload, form, combine, combine), 0.0)


def sum_covariances(workload: Workload, form: Form, combine: sp.csr_array, other: sp.csr_array) -> Array:
    """The covariance at unit noise of each row of one matrix with the same row of another; see `sum_variances`.

    >>> from hdmm import Domain
    >>> from hdmm.baselines import identity
    >>> w = Workload.marginals(Domain({"age": 3}), k=range(2))
    >>> sum_covariances(w, identity(w).form, sp.csr_array([[1, 0, 0, 0]]), sp.csr_array([[0, 2, 0, 0]]))
    array([2.])
    """
    products = workload.products
    starts = np.cumsum([0, *(product.queries for product in products[:-1])])
    rows, first, second = _pairs(combine, other)
    a, b = np.asarray(combine.indices)[first], np.asarray(other.indices)[second]
    of, to = (np.searchsorted(starts, queries, side="right") - 1 for queries in (a, b))
    found = np.empty(len(rows))
    for i, j in set(zip(of.tolist(), to.tolist(), strict=True)):
        here = np.flatnonzero((of == i) & (to == j))
        found[here] = form.covariances(products[i], a[here] - starts[i], products[j], b[here] - starts[j])
    weights = np.asarray(combine.data)[first] * np.asarray(other.data)[second] * found
    return np.bincount(rows, weights=weights, minlength=len(np.asarray(combine.indptr)) - 1)


def uniform_answers(workload: Workload) -> Array:
    """The answers to all queries, without weights, if every cell holds the same part of one row.

    >>> from hdmm import Domain
    >>> uniform_answers(Workload.marginals(Domain({"age": 4, "sex": ["M", "F"]}), k=[0, 1])).round(2)
    array([1.  , 0.25, 0.25, 0.25, 0.25, 0.5 , 0.5 ])
    """
    found: list[Array] = []
    for product in workload.products:
        each = [p.matrix(n := product.cells(axes)).matmat(np.full((n, 1), 1 / n))[:, 0] for axes, p in product.sets]
        found.append(functools.reduce(np.kron, each, np.ones(1)))
    return np.concatenate(found)


def _pairs(combine: sp.csr_array, other: sp.csr_array) -> tuple[Array, Array, Array]:
    """(row, place, place) for every entry of a row with every entry of the same row of the other matrix."""
    starts, others = np.asarray(combine.indptr, np.int64), np.asarray(other.indptr, np.int64)
    lengths = np.diff(others)
    counts = np.diff(starts) * lengths
    rows = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, starts[rows] + within // lengths[rows], others[rows] + within % lengths[rows]
