"""Workload: the queries that matter, as a weighted union of products of predicate sets."""

from __future__ import annotations

import importlib
import itertools
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from hdmm.base.exceptions import WorkloadError
from hdmm.base.notebook import Card, NotebookValue
from hdmm.describe.amount import SUM_IT
from hdmm.describe.compact import compact
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import (
    AllRange,
    Amounts,
    Identity,
    OnCells,
    PredicateSet,
    Shuffled,
    Total,
    Union,
    Weighted,
    as_predicates,
    check_weight,
)
from hdmm.describe.product import Attributes, Product, cell_places
from hdmm.matrix import Matrix, Stack, Sum, column_norms, nbytes

_MAX_MARGINALS = 1 << 21  # listed one by one, at a quarter of a kilobyte per marginal


@final
@dataclass(frozen=True, slots=True, repr=False)
class Workload(NotebookValue):
    """A weighted union of products over one domain.

    >>> domain = Domain({"sex": ["M", "F"], "age": 115})
    >>> w = Workload.product(domain, sex=Identity(), age=AllRange()) + 2.0 * Workload.marginals(domain, k=1)
    >>> w
    Workload(13,457 queries in 3 products over 230 cells)
    """

    domain: Domain
    products: tuple[Product, ...]

    def __post_init__(self) -> None:
        if not self.products:
            raise WorkloadError("The workload is empty. Add at least one product or marginal.")

    @classmethod
    def product(
        cls,
        domain: Domain,
        predicates: Mapping[str, PredicateSet | ArrayLike]
        | Mapping[str | tuple[str, ...], PredicateSet | ArrayLike]
        | None = None,
        /,
        **named: PredicateSet | ArrayLike,
    ) -> Workload:
        """A workload of one product; attributes that are not named are Total.

        A tuple of names has predicates on several attributes at once, over their cells in row-major order.

        >>> Workload.product(Domain({"sex": ["M", "F"], "age": 115}), age=AllRange()).queries
        6670
        >>> from hdmm import SumAtMost
        >>> Workload.product(Domain({"x": 3, "y": 3}), {("x", "y"): SumAtMost()}).queries  # x + y ≤ 0, …, x + y ≤ 4
        5
        """
        factors: dict[Attributes, PredicateSet] = {}
        for names, value in (*(predicates or {}).items(), *named.items()):
            axes, placed = _placed(domain, (names,) if isinstance(names, str) else tuple(names), as_predicates(value))
            attribute = domain.attribute_over(axes)
            placed = placed.on(attribute)
            placed.check(attribute)
            if any(set(axes) & set(others) for others in factors):
                raise WorkloadError(
                    f"The predicates on ({', '.join(domain.names[i] for i in axes)}) share an attribute with others of "
                    "the product. Give each attribute one predicate set, or add up several products."
                )
            factors[axes] = placed
        return cls(domain, (Product.of(domain, factors.items()),))

    @classmethod
    def marginals(cls, domain: Domain, k: int | Iterable[int] | Iterable[Iterable[str]]) -> Workload:
        """All marginals of k attributes, those of every k in an iterable, or the listed attribute sets.

        Queries and columns are in the domain's order of attributes, whatever the order in which a set lists them.

        >>> domain = Domain({"sex": ["M", "F"], "race": 7, "age": 115})
        >>> [Workload.marginals(domain, k).queries for k in (0, 1, range(3), [("sex", "age")])]
        [1, 124, 1174, 230]
        """
        return cls._over_subsets(domain, k, {name: Identity() for name in domain.countable})

    @classmethod
    def range_marginals(
        cls,
        domain: Domain,
        k: int | Iterable[int] | Iterable[Iterable[str]] | None = None,
        *,
        ranges: Iterable[str] | None = None,
    ) -> Workload:
        """Marginals with AllRange on the attributes in `ranges` (default: the ordered ones) and Identity on the others.

        Without k, all of them as one product of AllRange and Identity ∪ Total.

        >>> domain = Domain({"age": 50, "sex": ["M", "F"]})
        >>> Workload.range_marginals(domain).queries, Workload.range_marginals(domain, k=1).queries
        (3825, 1277)
        """
        ordered = {a.name for a in domain.attributes if a.ordered} if ranges is None else set(ranges)
        for name in ordered:
            domain.axis(name)
        sets: dict[str, PredicateSet] = {n: AllRange() if n in ordered else Identity() for n in domain.countable}
        if k is not None:
            return cls._over_subsets(domain, k, sets)
        whole = {n: p if n in ordered else p | Total() for n, p in sets.items()}
        return cls.product(domain, whole)

    @classmethod
    def sql(cls, domain: Domain, text: str, *, impossible: Sequence[str] = ()) -> Workload:
        """The counts that SQL statements ask for, multiplied by their weights; docs/reference/sql.md has the grammar.

        Cells in which one of the `impossible` conditions holds are counted in no query.

        >>> domain = Domain({"sex": ["M", "F"], "age": 115})
        >>> Workload.sql(domain, "SELECT sex, COUNT(*) FROM t WHERE age >= 18 GROUP BY sex")
        Workload(2 queries in 1 product over 230 cells)
        >>> Workload.sql(domain, "SELECT age, COUNT(*) FROM t GROUP BY age", impossible=["age > 110"]).queries
        111
        """
        # Imported by name on first use, because hdmm.sql is built on this file and its parser takes 0.1 s to load.
        return importlib.import_module("hdmm.sql").workload_from_sql(domain, text, impossible=impossible)

    @classmethod
    def _over_subsets(
        cls,
        domain: Domain,
        k: int | Iterable[int] | Iterable[Iterable[str]],
        sets: Mapping[str, PredicateSet],
    ) -> Workload:
        pairs = {
            domain.axis(name): (domain.axis(name), given) for name, given in sets.items()
        }  # shared by all products
        subsets = list(_subsets(domain, k))
        if not subsets:
            raise WorkloadError("No marginals were asked for, because k is empty. Use for example k=2.")
        return cls(domain, tuple([Product(domain, tuple([pairs[i] for i in s])) for s in subsets]))

    @property
    def queries(self) -> int:
        """The exact number of queries."""
        return sum(p.queries for p in self.products)

    @property
    def matrix(self) -> Matrix:
        """W, implicit: the paper's ImpVec. Rows are in the order of the products and include the weights."""
        blocks = tuple(p.matrix for p in self.products)
        return blocks[0] if len(blocks) == 1 else Stack(blocks)

    @property
    def gram(self) -> Matrix:
        """V = WᵀW, implicit."""
        terms = tuple(p.gram for p in self.products)
        return terms[0] if len(terms) == 1 else Sum(terms)

    @property
    def nbytes(self) -> int:
        """The bytes of the implicit form: its arrays, each counted once, and 8 per weight."""
        shape = self.domain.shape
        sets = {(p, math.prod(shape[i] for i in axes)) for product in self.products for axes, p in product.sets}
        return 8 * len(self.products) + sum(nbytes(p.matrix(n)) for p, n in sets)

    def compact(self) -> Workload:
        """An equivalent workload of fewer products: WᵀW, and therefore the error of every strategy, is unchanged.

        Duplicates become weights (m copies of a query are one query of weight √m) and products that differ in one
        attribute are stacked, until neither applies.

        >>> domain = Domain({"sex": ["M", "F"]})
        >>> (Workload.product(domain, sex=[[1, 0]]) + Workload.product(domain, sex=[[0, 1]])).compact()
        Workload(2 queries in 1 product over 2 cells)
        """
        shape, several = self.domain.shape, sorted({axes for p in self.products for axes, _ in p.joint})
        # Attributes that predicates see together are one more attribute: Total on all others, as any is.
        places: list[Attributes] = [*((i,) for i in range(len(shape))), *several]
        at = {axes: k for k, axes in enumerate(places)}
        products = [(p.weight, {at[axes]: sets for axes, sets in p.sets}) for p in self.products]
        fewer = compact([math.prod(shape[i] for i in axes) for axes in places], products)
        back = ((w, {places[k]: p for k, p in factors.items()}) for w, factors in fewer)
        return Workload(self.domain, tuple(Product.of(self.domain, factors.items(), w) for w, factors in back))

    def in_counts(self) -> Workload:
        """The workload with each product of `Amounts` divided by the largest of them; itself if there are none.

        Selection sees this one: otherwise the error of one sum of incomes would outweigh that of all counts.
        """
        if Amounts not in {type(p) for product in self.products for _, p in product.factors}:
            return self
        scales = [
            math.prod(p.largest for _, p in product.factors if isinstance(p, Amounts)) for product in self.products
        ]
        if all(scale == 1 for scale in scales):
            return self
        scaled = zip(self.products, scales, strict=True)
        return Workload(
            self.domain, tuple(replace(product, weight=product.weight / scale) for product, scale in scaled)
        )

    def normalised(self) -> Workload:
        """The workload with each query divided by its L1 norm: the paper's approach to relative error.

        >>> Workload.product(Domain({"age": 4})).normalised().products[0].weight
        0.25
        """
        return Workload(self.domain, tuple(_normalised(p) for p in self.products))

    def labels(self) -> Iterator[tuple[str, ...]]:
        """The label of each query, in query order."""
        return itertools.chain.from_iterable(p.labels() for p in self.products)

    def __add__(self, other: Workload) -> Workload:
        if not isinstance(other, Workload):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        if other.domain != self.domain:
            raise WorkloadError(
                f"The workloads are over different domains: {', '.join(self.domain.names)} and "
                f"{', '.join(other.domain.names)}. Build both on the same Domain."
            )
        return Workload(self.domain, self.products + other.products)

    def __rmul__(self, weight: float) -> Workload:
        if not isinstance(weight, numbers.Real):
            return NotImplemented
        factor = check_weight(weight)
        return Workload(self.domain, tuple(replace(p, weight=factor * p.weight) for p in self.products))

    __mul__ = __rmul__

    def __repr__(self) -> str:
        k = len(self.products)
        return (
            f"Workload({self.queries:,} queries in {k:,} product{'s' if k != 1 else ''} "
            f"over {self.domain.size:,} cells)"
        )

    def _card(self) -> Card:
        """The products and how many queries each has."""
        rows = ([str(product), f"{product.queries:,}"] for product in self.products)
        facts = {"Queries": f"{self.queries:,}", "Cells of the domain": f"{self.domain.size:,}"}
        return Card("Workload", facts, ["product", "queries"], rows, total=len(self.products))


def _placed(domain: Domain, names: tuple[str, ...], predicates: PredicateSet) -> tuple[Attributes, PredicateSet]:
    """The axes, ascending, and the predicates over their cells in that order."""
    axes = tuple(map(domain.axis, names))
    if not axes or len(set(axes)) < len(axes):
        raise WorkloadError(f"({', '.join(names)}) names an attribute twice, or none. Name each attribute once.")
    ascending = tuple(sorted(axes))

    def placed(p: PredicateSet) -> PredicateSet:
        match p:
            case OnCells():
                return p
            case Union(parts):
                return Union(map(placed, parts))
            case Weighted(inner, weights):
                return Weighted(placed(inner), weights)
            case _:
                return p if axes == ascending else Shuffled(p, cell_places(domain.shape, axes).tolist())

    return ascending, placed(predicates) if len(axes) > 1 else predicates


def _subsets(domain: Domain, k: int | Iterable[int] | Iterable[Iterable[str]]) -> Iterator[tuple[int, ...]]:
    """The axes of each marginal asked for."""
    axes_of_all = [domain.axis(name) for name in domain.countable]
    d, count = len(axes_of_all), 0
    for item in [k] if isinstance(k, numbers.Integral) else list(k):  # pyright: ignore[reportArgumentType]
        if isinstance(item, numbers.Integral):
            size = int(item)
            if not 0 <= size <= d:
                raise WorkloadError(f"There are no {size}-way marginals of {d} attributes. Use k from 0 to {d}.")
            count += math.comb(d, size)
            if count > _MAX_MARGINALS:
                raise WorkloadError(
                    f"At least {count:,} marginals of {d} attributes were asked for; the limit is {_MAX_MARGINALS:,}. "
                    "Ask for fewer, or for all of them as one product of Identity() | Total() on every attribute."
                )
            yield from itertools.combinations(axes_of_all, size)
        elif isinstance(item, str):
            raise WorkloadError(f"Marginal {item!r} is a string. Write an attribute set such as [({item!r},)].")
        else:
            axes = [domain.axis(name) for name in item]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
            if len(set(axes)) < len(axes):
                names = ", ".join(domain.names[i] for i in axes)
                raise WorkloadError(f"Marginal ({names}) names an attribute twice. Name each attribute once.")
            for amount in (domain.names[i] for i in axes if domain.attributes[i].values.divided):
                raise WorkloadError(f"{amount!r} is an amount, by which rows are not counted. {SUM_IT}")
            yield tuple(sorted(axes))


def _normalised(product: Product) -> Product:
    """The product with every query divided by its L1 norm, which is the product of its rows' norms."""
    weight, factors = product.weight, list[tuple[Attributes, PredicateSet]]()
    totals = [((i,), Total()) for i in range(len(product.domain)) if i not in product.axes]
    for axes, given in (*product.sets, *totals):
        scale, predicates = _normalised_set(given, product.cells(axes))
        weight *= scale
        factors.append((axes, predicates))
    return Product.of(product.domain, factors, weight)


@lru_cache(maxsize=1024)
def _normalised_set(predicates: PredicateSet, n: int) -> tuple[float, PredicateSet]:
    """(c, S) such that c·S has the rows divided by their L1 norms; S keeps its structure if all norms are equal."""
    norms = column_norms(predicates.matrix(n).T, 1)
    norms = np.where(norms > 0, norms, 1.0)  # a query of all zeros is left unchanged
    if (norms == norms[0]).all():
        return 1 / float(norms[0]), predicates
    return 1.0, Weighted(predicates, 1 / norms)
