"""Answers to a workload from an estimate, with their standard deviations and intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from hdmm.answers.combinations import LinearEstimates, Ratios, sum_covariances, sum_variances
from hdmm.answers.margins import holding, interval
from hdmm.answers.table import BinBounds, Table, named_table, stacked_tables
from hdmm.base.exceptions import StrategyError, WorkloadError
from hdmm.base.notebook import Card, NotebookValue
from hdmm.base.numbers import LEVEL
from hdmm.describe.predicates import Amounts, PredicateSet, Shuffled, Union, Vectors, Weighted
from hdmm.describe.product import Product
from hdmm.describe.table_column import TableColumn
from hdmm.describe.table_query import size
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Matrix, column_norms
from hdmm.privacy.guarantee import Noise
from hdmm.reconstruct.empty_queries import empty_queries
from hdmm.reconstruct.estimate import Estimate, all_values
from hdmm.reconstruct.known import Known
from hdmm.select.goal import Goal
from hdmm.strategy.error import check_support
from hdmm.strategy.form import Form, NoClosedFormError, constant_variances

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

ChosenQueries: TypeAlias = int | slice | Sequence[int] | Array | sp.csr_array
"""Queries by their places, or a matrix of coefficients on them."""

_MOST_QUERIES = 1 << 30  # 8 GiB of answers
_NOTHING = 1e-3  # of a row: what rounding leaves, unless there are 10¹² of them


@final
@dataclass(frozen=True, eq=False)
class Answers(NotebookValue):
    """The answers of a release to a workload.

    `values` and `stddev` are for the rows of `workload.matrix`, in query order, so they carry the weights of its
    products; `tables()` holds the counts themselves, and `answers["ages"]` is one of these tables by its name.
    """

    workload: Workload
    counts: Array  # without weights
    centre: Array  # the unbiased estimates, the centres of the intervals: the counts themselves unless `biased`
    form: Form  # of the measurements with their noise
    noise: Noise
    named: tuple[tuple[str, int], ...] = ()  # tables by name, each with its number of products; none if they have none
    known: tuple[Known, ...] = ()

    @classmethod
    def of(
        cls,
        asked: Workload | Mapping[str, Workload],
        estimate: Estimate,
        form: Form,
        noise: Noise,
        *,
        unbiased: Estimate,
        known: tuple[Known, ...] = (),
    ) -> Answers:
        """The estimate's answers; StrategyError if what was measured does not support a product. O(queries)."""
        workload = asked if isinstance(asked, Workload) else Goal.of(asked).workload
        named = () if isinstance(asked, Workload) else tuple((name, len(w.products)) for name, w in asked.items())
        refuse_many_answers(workload)
        weighted = any(product.weight != 1 for product in workload.products)
        products = tuple([p.weighted(1.0) for p in workload.products]) if weighted else workload.products
        with suppress(NoClosedFormError):  # these are solved by iteration, which refuses what is not supported
            check_support(Workload(workload.domain, products), form)
        counts = _counts(workload, estimate)
        centre = counts if estimate is unbiased else _counts(workload, unbiased)
        return cls(workload, counts, centre, form, noise, named, known)

    def part(self, start: int, stop: int | None = None) -> Answers:
        """The answers to some products of the workload, which follow one another."""
        ends = np.cumsum([0, *(product.queries for product in self.workload.products)])[
            [start, -1 if stop is None else stop]
        ]
        at = slice(*ends.tolist())
        workload = Workload(self.workload.domain, self.workload.products[start:stop])
        counts = self.counts[at]
        centre = self.centre[at] if self.biased else counts
        return Answers(workload, counts, centre, self.form, self.noise, known=self.known)

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

    def interval(self, level: float = LEVEL) -> tuple[Array, Array]:
        """(lower, upper) for each of `values`: the true answer lies between them with at least this probability."""
        centre = self.centre if self._unweighted else self.centre * self._weights
        return self._held(interval(centre, self.stddev, level, self.noise), self.values)

    def tables(self, level: float = LEVEL) -> tuple[Table, ...]:
        """One labelled table per product of the workload, or per name: estimates of counts, and margins of error.

        A named workload of several products is one table with all their columns, and a row has no label in those that
        are not of its product.
        """
        found = self._by_product(level)
        if not self.named:
            return found
        each = iter(found)
        return tuple(_renamed(name, list(islice(each, count))) for name, count in self.named)

    def __getitem__(self, name: str) -> Table:
        """The table of this name, with intervals of 95 %; `tables(level)` has others.

        >>> from hdmm import Domain, PureDP, from_array, optimize
        >>> tables = {"sexes": Workload.marginals(Domain({"sex": ["M", "F"]}), k=1)}
        >>> data = from_array(tables["sexes"].domain, [3000, 2000])
        >>> release = optimize(tables, restarts=1).measure(data, PureDP(1), ledger=None)
        >>> len(release.answer(tables)["sexes"])
        2
        """
        return named_table(self.tables(), name)

    def to_arrow(self, level: float = LEVEL) -> pa.Table:
        """All tables as one, as their files have them; the first column, `table`, has their names. O(queries)."""
        return self._stacked(level).to_arrow()

    def to_pandas(self, level: float = LEVEL) -> pd.DataFrame:
        """The same as a pandas data frame."""
        return self._stacked(level).to_pandas()

    def to_polars(self, level: float = LEVEL) -> pl.DataFrame:
        """The same as a polars data frame."""
        return self._stacked(level).to_polars()

    def _stacked(self, level: float) -> Table:
        return stacked_tables("answers", self.tables(level), "table")

    def _by_product(self, level: float) -> tuple[Table, ...]:
        estimate, stddev, lower, upper = self.rows(None, level)
        found: list[Table] = []
        for product, at in self._slices():
            name, numbers = _name(product), (estimate[at], stddev[at], lower[at], upper[at])
            table = Table(name, name, _columns(product), product.labels, *numbers, level, self.biased)
            found.append(replace(table, bins=_unbounded(product)))
        return tuple(found)

    def ratio(self, numerator: ChosenQueries, denominator: ChosenQueries) -> Ratios:
        """`values` of some queries divided by those of others, with Fieller's intervals, from exact covariances.

        Queries are given by their places: one, several or a slice, or by a matrix of coefficients with one row per
        ratio. A single numerator or denominator serves for all.

        >>> from hdmm import Domain, PureDP, from_array, optimize
        >>> w = Workload.marginals(Domain({"sex": ["M", "F"]}), k=[1, 0])
        >>> release = optimize(w, restarts=1).measure(from_array(w.domain, [3000, 2000]), PureDP(1), ledger=None)
        >>> shares = release.answer(w).ratio([0, 1], 2)
        >>> shares.values.round(1), bool((shares.interval()[1] < 0.7).all())
        (array([0.6, 0.4]), True)
        """
        top, bottom = _broadcast(self._chosen(numerator), self._chosen(denominator))
        return self.ratios(top, bottom)

    def difference(self, first: ChosenQueries, second: ChosenQueries) -> LinearEstimates:
        """`values` of some queries minus those of others, given as in `ratio`, with exact standard deviations."""
        one, other = _broadcast(self._chosen(first), self._chosen(second))
        return LinearEstimates(*self.sums(sp.csr_array(one - other)), self.noise)

    def __sub__(self, other: Answers) -> LinearEstimates:
        """The change since another release with noise of its own, answered for the same workload: variances add."""
        if not isinstance(other, Answers):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        if self.workload != other.workload:
            raise WorkloadError("The answers are to different workloads. Ask both releases for the same queries.")
        if self.form is other.form:
            raise WorkloadError(
                "Both answers come from one release, so their noise is the same. Use answers.difference(first, second)."
            )
        centre = self.centre - other.centre
        wider = Noise.LAPLACE if Noise.LAPLACE in (self.noise, other.noise) else Noise.GAUSSIAN
        deviations = np.hypot(self.stddev, other.stddev)
        centre = centre if self._unweighted else centre * self._weights
        return LinearEstimates(self.values - other.values, centre, deviations, wider)

    def ratios(self, numerator: sp.csr_array, denominator: sp.csr_array, factor: float = 1.0) -> Ratios:
        """Each row of one matrix of coefficients over the same row of another; weights are left out."""
        one, two = (LinearEstimates(*self.sums(each), self.noise) for each in (numerator, denominator))
        covariance = sum_covariances(self.workload, self.form, numerator, denominator)
        return Ratios(one, two, covariance, factor, self.nothing(denominator))

    def nothing(self, combine: sp.csr_array) -> Array:
        """How near to 0 each row of a matrix of coefficients is if it is 0: a thousandth of a row, or any distance.

        Counts are whole numbers, and what is known of them has no noise, so that only rounding is left of a group that
        is known to be empty. If only its sum with others is known to be 0, there is noise, and nothing else.
        """
        shape, products = self.workload.domain.shape, self.workload.products
        units = [math.prod(_least(p, math.prod(shape[i] for i in on)) for on, p in q.sets) for q in products]
        each = np.repeat(np.array(units, dtype=np.float64), [product.queries for product in products])
        each[self._empty] = np.inf
        used = combine.data != 0
        rows = np.repeat(np.arange(size(combine)[0]), np.diff(combine.indptr))[used]
        found = np.full(size(combine)[0], np.inf)
        np.minimum.at(found, rows, np.abs(combine.data[used]) * each[combine.indices[used]])
        return np.where(np.bincount(rows, minlength=len(found)) > 0, _NOTHING * found, 0.0)

    def sums(self, combine: sp.csr_array | None) -> tuple[Array, Array, Array]:
        """(estimate, centre, stddev) of linear combinations of queries: row i is Σ combine[i, j]·query j.

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
        least = np.repeat(np.where(self._signs, -np.inf, 0.0), [product.queries for product in self.workload.products])
        return holding(bounds, estimate, least if combine is None else float(least.min(initial=0.0)))

    @cached_property
    def _empty(self) -> Array:
        """Which queries are known to count nobody."""
        found = np.zeros(len(self.counts), dtype=np.bool)
        if self.known:
            for (product, at), signed in zip(self._slices(), self._signs, strict=True):
                found[at] = False if signed else empty_queries(self.known, product)
        return found

    @property
    def _signs(self) -> list[bool]:
        """Whether queries of each product may have weights below 0, so that their answers may be."""
        products = self.workload.products
        asked = {(p, product.cells(axes)) for product in products for axes, p in product.sets}
        below = {(p, n) for p, n in asked if _signed(p.matrix(n))}
        return [any((p, product.cells(axes)) in below for axes, p in product.sets) for product in products]

    def __repr__(self) -> str:
        return f"Answers({self.workload.queries:,} queries in {len(self.named or self.workload.products):,} tables)"

    def _card(self) -> Card:
        queries = iter([product.queries for product in self.workload.products])
        tables = [(name, sum(islice(queries, count))) for name, count in self._tables]
        facts = {"Queries": f"{self.workload.queries:,}", "A table": 'answers["its name"]'}
        return Card("Answers", facts, ["table", "rows"], ([name, f"{n:,}"] for name, n in tables), total=len(tables))

    @property
    def _tables(self) -> Sequence[tuple[str, int]]:
        """The name of each table, and how many products it has."""
        return self.named or [(_name(product), 1) for product in self.workload.products]

    @cached_property
    def _deviations(self) -> Array:
        products = self.workload.products
        even = np.sqrt(constant_variances(self.form, products))
        if len(even) and (even == even[0]).all():
            return np.broadcast_to(even[0], len(self.counts))  # one number for all: of 10⁸ queries, 1 GB less
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

    def _chosen(self, rows: ChosenQueries) -> sp.csr_array:
        """The coefficients, on counts without weights, of some of `values`."""
        if sp.issparse(rows) or np.ndim(cast(ArrayLike, rows)) == 2:
            found = sp.csr_array(cast(ArrayLike, rows), dtype=np.float64)
            if size(found)[1] != len(self.counts):
                raise WorkloadError(
                    f"The coefficients are for {size(found)[1]:,} queries, but {len(self.counts):,} were answered. "
                    "Give one coefficient per query."
                )
            return found if self._unweighted else sp.csr_array(found * self._weights)
        try:
            places = np.atleast_1d(np.arange(len(self.counts))[cast(slice, rows)])
        except (IndexError, TypeError):
            raise WorkloadError(
                f"Not all of these places are among the {len(self.counts):,} queries. Give places from 0 to "
                f"{len(self.counts) - 1:,}, a slice, or a matrix of coefficients."
            ) from None
        weights = np.ones(len(places)) if self._unweighted else self._weights[places]
        at = np.arange(len(places) + 1)
        return sp.csr_array((weights, places, at), shape=(len(places), len(self.counts)))

    def _slices(self) -> Iterator[tuple[Product, slice]]:
        start = 0
        for product in self.workload.products:
            yield product, slice(start, start + product.queries)
            start += product.queries


def _unbounded(product: Product) -> BinBounds | None:
    """Mark sums of values that are known only by their bins: their intervals cover the noise alone."""
    if not product.binned_sums:
        return None
    ends = np.full(product.queries, np.inf)
    return BinBounds(-ends, ends)


def _columns(product: Product) -> tuple[TableColumn, ...]:
    """The label columns of a product's table."""
    each = [(product.domain.attribute_over(axes), predicates) for axes, predicates in product.sets]
    return tuple(TableColumn.of_predicates(attribute.name, predicates, attribute) for attribute, predicates in each)


def _name(product: Product) -> str:
    return " × ".join(column.name for column in _columns(product)) or "total"


def _renamed(name: str, tables: Sequence[Table]) -> Table:
    """The table of a named workload, which has one table per product."""
    return replace(tables[0], name=name, title=name) if len(tables) == 1 else stacked_tables(name, tables)


def _broadcast(one: sp.csr_array, other: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
    """Both matrices, the shorter one repeated to the length of the longer one."""
    a, b = size(one)[0], size(other)[0]
    if a != b and 1 not in (a, b):
        raise WorkloadError(f"{a:,} queries are compared with {b:,}. Give as many, or one for all.")
    return (one[np.zeros(b, int)], other) if a == 1 else (one, other[np.zeros(a, int)]) if b == 1 else (one, other)


def refuse_many_answers(workload: Workload) -> None:
    """Refuse a workload with more answers than can be held."""
    if workload.queries > _MOST_QUERIES:
        raise StrategyError(
            f"{workload.queries:,} answers would fill {8 * workload.queries / 1e9:.0f} GB. Ask for the products of the "
            "workload a few at a time."
        )


@lru_cache(maxsize=1024)
def _least(p: PredicateSet, n: int) -> float:
    """The smallest nonzero amount that one row of the data adds to an answer."""
    match p:
        case Amounts() | Vectors():
            return float(np.abs(p.rows[p.rows != 0]).min(initial=np.inf))
        case Weighted(inner, weights):
            return float(weights[weights != 0].min(initial=np.inf)) * _least(inner, n)
        case Union(parts):
            return min(_least(part, n) for part in parts)
        case Shuffled(inner, _):
            return _least(inner, n)
        case _:
            return 1.0


def _signed(W: Matrix) -> bool:
    """Whether some weight of a query is below 0, so that its answer may be."""
    return bool((column_norms(W, 1) > W.T.matmat(np.ones((W.shape[0], 1)))[:, 0] + 1e-9).any())


def _counts(workload: Workload, estimate: Estimate) -> Array:
    return all_values(estimate, workload.products)
