"""Answers to a workload from an estimate, with their standard deviations and margins of error.

How an interval is computed: estimate ± z·stddev. Under Gaussian noise z is the normal quantile. Under Laplace noise the
error of an answer is a weighted sum of independent Laplace variables, anything from one of them to, nearly, a normal; z
is the largest quantile of one, of two alike and of a normal at that level. No weights are known for which the interval
covers less (docs/margins.md has the numbers). The noise is discrete, of a deviation of at least 64 steps (Gaussian) or
90 (Laplace), and z is larger by one such step, so that a single count is covered with at least its level (security O5).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp
from scipy.special import lambertw, ndtri

from hdmm.error import check_support
from hdmm.exceptions import StrategyError, WorkloadError
from hdmm.lattice import LEAST_SCALE
from hdmm.matrix import Array
from hdmm.privacy import Noise
from hdmm.reconstruct import Estimate
from hdmm.strategy.form import Form, NoClosedFormError
from hdmm.sums import sum_variances
from hdmm.workload import Product, Workload

_MOST_QUERIES = 1 << 30  # 8 GiB of answers
_SHOWN = 20  # rows of a table that are printed


def margin(level: float, noise: Noise) -> float:
    """z: how many standard deviations an interval of this level extends to either side, a step of the noise included.

    >>> margin(0.95, Noise.GAUSSIAN), margin(0.95, Noise.LAPLACE), margin(0.9, Noise.LAPLACE)
    (1.97558898..., 2.12935126..., 1.65590228...)
    """
    if not 0 < level < 1:
        raise WorkloadError(f"A confidence level of {level!r} is not between 0 and 1. Use for example 0.95.")
    return _quantile(level, noise) + _largest_step(noise)


def _quantile(level: float, noise: Noise) -> float:
    """z of noise without steps."""
    normal = float(ndtri((1 + level) / 2))
    if noise is Noise.GAUSSIAN:
        return normal
    one = -math.log(1 - level) / math.sqrt(2)
    two = -1 - float(lambertw(-2 * (1 - level) * math.exp(-2), -1).real) / 2  # (1 + z)e^(−2z) = 1 − level
    return max(normal, one, two)


def _largest_step(noise: Noise) -> float:
    """A step of the lattice, in standard deviations of the least noise.

    Half a step would do for a single count: with k = ⌊half-width⌋ + 1 steps, P(|Z| ≥ k) is at most what continuous
    noise has beyond k − ½. For Laplace, 2qᵏ/(1 + q) ≤ q^(k−½), as 2√q ≤ 1 + q. For Gauss, Σ_{j≥k} f(j) ≤ ∫_{k−½} f if
    f(x) = e^(−x²/(2σ²)) is convex, x ≥ σ, and Σ f(j) ≥ ∫ f; below σ the sum is larger by parts in 24σ², which the
    other half step outweighs, as it does that Laplace's deviation is below √2·s by parts in 24s².
    """
    return 1 / LEAST_SCALE if noise is Noise.GAUSSIAN else math.sqrt(2) * math.sinh(1 / (2 * LEAST_SCALE))


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of a release to a workload.

    `values` and `stddev` are of the rows of `workload.matrix`, in query order, so they carry the weights of its
    products; `tables()` are the counts themselves.
    """

    workload: Workload
    counts: Array  # weights left out
    centre: Array  # the unbiased estimates, about which the intervals lie: the counts themselves unless `biased`
    form: Form  # of the measurements with their noise
    noise: Noise

    @classmethod
    def of(cls, workload: Workload, estimate: Estimate, form: Form, noise: Noise, *, unbiased: Estimate) -> Answers:
        """The estimate's answers; StrategyError if what was measured does not support a product. O(queries)."""
        if workload.queries > _MOST_QUERIES:
            raise StrategyError(
                f"{workload.queries:,} answers would fill {8 * workload.queries / 1e9:.0f} GB. Ask for the products "
                "of the workload a few at a time."
            )
        asked = Workload(workload.domain, tuple(replace(product, weight=1.0) for product in workload.products))
        with suppress(NoClosedFormError):  # solved by iteration, which finds out
            check_support(asked, form)
        counts = _counts(workload, estimate)
        return cls(workload, counts, counts if estimate is unbiased else _counts(workload, unbiased), form, noise)

    @property
    def biased(self) -> bool:
        """Whether the estimates are of a kind that is biased: nonnegative ones."""
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
        """(lower, upper) of each of `values`: it lies between them with at least this probability."""
        half = margin(level, self.noise) * self.stddev
        centre = self.centre if self._unweighted else self.centre * self._weights
        return centre - half, centre + half

    def tables(self, level: float = 0.95) -> tuple[Table, ...]:
        """One labelled table a product of the workload: estimates of counts, and margins of error."""
        z = margin(level, self.noise)
        return tuple(
            Table(
                product,
                self.counts[at],
                self._deviations[at],
                self.centre[at] - z * self._deviations[at],
                self.centre[at] + z * self._deviations[at],
                level,
                self.biased,
            )
            for product, at in self._slices()
        )

    def sums(self, combine: sp.csr_array) -> tuple[Array, Array, Array]:
        """(estimate, centre, stddev) of sums of queries: row i sums the queries j with combine[i, j] = 1.

        Variances are exact, covariances of the summed queries included: O(pairs of queries in a row × cells).
        """
        return (
            combine @ self.counts,
            combine @ self.centre,
            np.sqrt(sum_variances(self.workload, self.form, combine)),
        )

    def __repr__(self) -> str:
        return f"Answers({self.workload.queries:,} queries in {len(self.workload.products):,} tables)"

    @cached_property
    def _deviations(self) -> Array:
        out = np.empty(self.workload.queries)
        for product, at in self._slices():
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


def _counts(workload: Workload, estimate: Estimate) -> Array:
    return np.concatenate([estimate.values(product) for product in workload.products])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The answers to one product: a row per query, labelled by the attributes that are not totalled.

    The interval from lower to upper covers the true count with at least probability `level`. Biased estimates need
    not lie in the middle of theirs.
    """

    product: Product
    estimate: Array
    stddev: Array
    lower: Array
    upper: Array
    level: float
    biased: bool

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the label columns; none for a total."""
        names = self.product.domain.names
        return tuple(names[i] for i, _ in self.product.factors)

    def labels(self) -> tuple[list[str], ...]:
        """The labels of every attribute's predicates; rows go through all combinations, the last fastest."""
        attributes = self.product.domain.attributes
        return tuple(predicates.labels(attributes[i]) for i, predicates in self.product.factors)

    def columns(self) -> dict[str, Array]:
        """The whole table: label columns, then estimate, stddev, lower and upper. O(rows)."""
        labels = self.labels()
        sizes = [len(each) for each in labels]
        columns: dict[str, Array] = {}
        for k, (name, each) in enumerate(zip(self.attributes, labels, strict=True)):
            inner = math.prod(sizes[k + 1 :])
            columns[name] = np.tile(np.repeat(np.array(each, dtype=object), inner), math.prod(sizes[:k]))
        return {
            **columns,
            "estimate": self.estimate,
            "stddev": self.stddev,
            "lower": self.lower,
            "upper": self.upper,
        }

    def __len__(self) -> int:
        return len(self.estimate)

    def __str__(self) -> str:
        """The first rows, aligned."""
        name = "biased estimate" if self.biased else "estimate"
        rows = [[*self.attributes, name, f"{100 * self.level:g} % from", "to"]]
        everything = zip(itertools.product(*self.labels()), self.estimate, self.lower, self.upper, strict=True)
        for words, *numbers in itertools.islice(everything, _SHOWN):
            rows.append([*words, *(f"{number:,.1f}" for number in numbers)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        texts = len(self.attributes)
        lines = [
            "  ".join(
                cell.ljust(width) if k < texts else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        more = len(self) - _SHOWN
        return "\n".join([*lines, f"… {more:,} more rows"] if more > 0 else lines)
