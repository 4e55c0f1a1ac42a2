"""Answers to a workload from an estimate, with their standard deviations and intervals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.error import check_support
from hdmm.exceptions import StrategyError
from hdmm.margins import holding, interval
from hdmm.matrix import Array, Matrix, column_norms
from hdmm.privacy import Noise
from hdmm.reconstruct import Estimate, all_values
from hdmm.strategy.even import even_variances
from hdmm.strategy.form import Form, NoClosedFormError
from hdmm.sums import sum_variances
from hdmm.table import Table
from hdmm.workload import Product, Workload

_MOST_QUERIES = 1 << 30  # 8 GiB of answers


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of a release to a workload.

    `values` and `stddev` are for the rows of `workload.matrix`, in query order, so they carry the weights of its
    products; `tables()` holds the counts themselves.
    """

    workload: Workload
    counts: Array  # without weights
    centre: Array  # the unbiased estimates, the centres of the intervals: the counts themselves unless `biased`
    form: Form  # of the measurements with their noise
    noise: Noise

    @classmethod
    def of(cls, workload: Workload, estimate: Estimate, form: Form, noise: Noise, *, unbiased: Estimate) -> Answers:
        """The estimate's answers; StrategyError if what was measured does not support a product. O(queries)."""
        refuse_many_answers(workload)
        asked = Workload(workload.domain, tuple(replace(product, weight=1.0) for product in workload.products))
        with suppress(NoClosedFormError):  # these are solved by iteration, which refuses what is not supported
            check_support(asked, form)
        counts = _counts(workload, estimate)
        return cls(workload, counts, counts if estimate is unbiased else _counts(workload, unbiased), form, noise)

    @property
    def biased(self) -> bool:
        """Whether the estimates are biased, as nonnegative ones are."""
        return self.centre is not self.counts

    @cached_property
    def values(self) -> Array:
        """One estimate per query, weighted as in `workload.matrix`."""
        return self.counts if self._unweighted else self.counts * self._weights

    @cached_property
    def stddev(self) -> Array:
        """The standard deviation of each of `values`."""
        return self._deviations if self._unweighted else self._deviations * self._weights

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """(lower, upper) for each of `values`: the true answer lies between them with at least this probability."""
        centre = self.centre if self._unweighted else self.centre * self._weights
        return self._held(interval(centre, self.stddev, level, self.noise), self.values)

    def tables(self, level: float = 0.95) -> tuple[Table, ...]:
        """One labelled table per product of the workload: estimates of counts, and margins of error."""
        estimate, stddev, lower, upper = self.rows(None, level)
        names = self.workload.domain.names
        found: list[Table] = []
        for product, at in self._slices():
            attributes = tuple(names[i] for i, _ in product.factors)
            name = " × ".join(attributes) or "total"
            numbers = estimate[at], stddev[at], lower[at], upper[at]
            found.append(Table(name, name, attributes, product.labels, *numbers, level, self.biased))
        return tuple(found)

    def sums(self, combine: sp.csr_array | None) -> tuple[Array, Array, Array]:
        """(estimate, centre, stddev) of sums of queries: row i sums the queries j with combine[i, j] = 1.

        Variances are exact, with the covariances of the summed queries: O(pairs of queries in a row × cells). None
        means the queries themselves. Weights are left out.
        """
        if combine is None:
            return self.counts, self.centre, self._deviations
        return (
            combine @ self.counts,
            combine @ self.centre,
            np.sqrt(sum_variances(self.workload, self.form, combine)),
        )

    def rows(self, combine: sp.csr_array | None, level: float) -> tuple[Array, Array, Array, Array]:
        """(estimate, stddev, lower, upper) of the same sums; an interval always holds its estimate."""
        estimate, centre, stddev = self.sums(combine)
        lower, upper = self._held(interval(centre, stddev, level, self.noise), estimate, combine)
        return estimate, stddev, lower, upper

    def _held(
        self, bounds: tuple[Array, Array], estimate: Array, combine: sp.csr_array | None = None
    ) -> tuple[Array, Array]:
        """The interval of an unbiased estimate made to hold a biased one; counts are known to be at least 0."""
        if not self.biased:
            return bounds
        products, shape = self.workload.products, self.workload.domain.shape
        asked = {(p, shape[i]) for product in products for i, p in product.factors}
        below = {(p, n) for p, n in asked if _signed(p.matrix(n))}
        signed = [any((p, shape[i]) in below for i, p in product.factors) for product in products]
        least = np.repeat(np.where(signed, -np.inf, 0.0), [product.queries for product in products])
        return holding(bounds, estimate, least if combine is None else float(least.min(initial=0.0)))

    def __repr__(self) -> str:
        return f"Answers({self.workload.queries:,} queries in {len(self.workload.products):,} tables)"

    @cached_property
    def _deviations(self) -> Array:
        products = self.workload.products
        even = np.sqrt(even_variances(self.form, products))
        out = np.repeat(even, [product.queries for product in products])
        if np.isnan(even).any():
            for (product, at), known in zip(self._slices(), (~np.isnan(even)).tolist(), strict=True):
                if not known:
                    out[at] = np.sqrt(np.concatenate(list(self.form.variances(replace(product, weight=1.0)))))
        return out

    @property
    def _unweighted(self) -> bool:
        return all(product.weight == 1 for product in self.workload.products)

    @property
    def _weights(self) -> Array:
        products = self.workload.products
        return np.repeat([product.weight for product in products], [product.queries for product in products])

    def _slices(self) -> Iterator[tuple[Product, slice]]:
        start = 0
        for product in self.workload.products:
            yield product, slice(start, start + product.queries)
            start += product.queries


def refuse_many_answers(workload: Workload) -> None:
    """Refuse a workload with more answers than can be held."""
    if workload.queries > _MOST_QUERIES:
        raise StrategyError(
            f"{workload.queries:,} answers would fill {8 * workload.queries / 1e9:.0f} GB. Ask for the products of the "
            "workload a few at a time."
        )


def _signed(W: Matrix) -> bool:
    """Whether some weight of a query is below 0, so that its answer may be."""
    return bool((column_norms(W, 1) > W.T.matmat(np.ones((W.shape[0], 1)))[:, 0] + 1e-9).any())


def _counts(workload: Workload, estimate: Estimate) -> Array:
    return all_values(estimate, workload.products)
