"""Merged attributes: OPT_0 over the cells of several attributes at once, which no product of factors reaches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from hdmm.domain import Attribute, Domain, Merged
from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Kron, Matrix, Permuted
from hdmm.predicates import PredicateSet, Total
from hdmm.privacy import Noise
from hdmm.strategy.base import BlockStrategy, Strategy
from hdmm.strategy.problem import Problem
from hdmm.strategy.product import opt_x
from hdmm.strategy.search import Search
from hdmm.workload import Product, Workload

MAX_MERGED = 10_000  # cells of a merged attribute: Θ of 128 rows takes 10 MB, a step a tenth of a second


def opt_merged(problem: Problem, search: Search, *, axes: Sequence[int] | None = None) -> MergedStrategy:
    """OPT_⊗ with the attributes `axes` merged into one, whose gram Σ_k w_k² ⊗V_ki stays implicit. O(p²N) a step.

    Without `axes`: as many as fit MAX_MERGED cells, the largest first, of those on which the workload asks for more
    than the total. Beats every product on 64 × 64 ranges (14.2 against 15.4). With Gaussian noise and one product
    in the workload there is nothing to gain: the product of the factors' optima is optimal.

    >>> from hdmm import Domain, Prefix
    >>> from hdmm.strategy.search import first_search
    >>> domain = Domain({"x": 4, "sex": 2, "y": 4})
    >>> w = Workload.product(domain, x=Prefix(), y=Prefix())
    >>> opt_merged(Problem(w), first_search()).axes
    (0, 2)
    """
    chosen = mergeable(problem) if axes is None else tuple(sorted(axes))
    if len(chosen) < 2:
        raise StrategyError(
            f"No two attributes that the workload uses fit {MAX_MERGED:,} cells together. Use opt_x, or name the axes."
        )
    merge = Merge(problem.workload.domain, chosen)
    inner = opt_x(Problem(merge.workload(problem.workload), problem.noise), search)
    return MergedStrategy(problem.workload.domain, chosen, inner)


def mergeable(problem: Problem) -> tuple[int, ...]:
    """The attributes that `opt_merged` merges unless told: the largest that fit MAX_MERGED cells together.

    >>> from hdmm import Domain
    >>> mergeable(Problem(Workload.marginals(Domain({"a": 64, "b": 1000, "c": 9}), k=2)))
    (1, 2)
    """
    terms = problem.terms
    cells, chosen = 1, list[int]()
    for axis, n in sorted(zip(terms.axes, terms.sizes, strict=True), key=lambda pair: (-pair[1], pair[0])):
        if cells * n <= MAX_MERGED:
            cells *= n
            chosen.append(axis)
    return tuple(sorted(chosen))


@final
@dataclass(frozen=True, eq=False)
class MergedStrategy(Strategy):
    """A strategy over `domain` that is a strategy over the domain with the attributes `axes` as one.

    Measuring, error and variances are the inner strategy's: a product of the workload becomes one over the merged
    domain whose predicates on the merged attribute are all combinations of its own.

    >>> from hdmm import Domain, Prefix
    >>> from hdmm.matrix import Eye
    >>> from hdmm.strategy.diagonal import Block
    >>> domain = Domain({"x": 2, "y": 3})
    >>> cells = BlockStrategy(Merge(domain, (0, 1)).domain, (Block(1.0, ((0, Eye(6)),)),))
    >>> MergedStrategy(domain, (0, 1), cells).total_variance(Workload.product(domain, x=Prefix()))
    9.0
    """

    domain: Domain
    axes: tuple[int, ...]
    inner: BlockStrategy

    def __post_init__(self) -> None:
        if self.inner.domain != self.merge.domain:
            raise StrategyError(
                f"The inner strategy is over ({', '.join(self.inner.domain.names)}), not over the merged domain "
                f"({', '.join(self.merge.domain.names)}). Build it on Merge(domain, axes).domain."
            )

    @property
    def matrix(self) -> Matrix:
        return self.inner.matrix if self.merge.keeps_order else Permuted(self.inner.matrix, self.merge.cells)

    def sensitivity(self, noise: Noise | str) -> float:
        return self.inner.sensitivity(noise)

    def total_variance(self, workload: Workload) -> float:
        return self.inner.total_variance(self.merge.workload(workload))

    def variances(self, product: Product) -> Iterator[Array]:
        pieces = self.inner.variances(self.merge.product(product))
        if self.merge.keeps_order:
            yield from pieces
        else:
            yield self.merge.unmerged(product, np.concatenate(list(pieces)))

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        merge = self.merge
        at, to = merge.merged_query(first, rows), merge.merged_query(second, others)
        return self.inner.covariances(merge.product(first), at, merge.product(second), to)

    @cached_property
    def merge(self) -> Merge:
        return Merge(self.domain, self.axes)


@final
@dataclass(frozen=True)
class Merge:
    """What becomes of a domain, its cells and its workloads when the attributes `axes` become one.

    >>> from hdmm import Domain
    >>> merge = Merge(Domain({"x": 4, "sex": 2, "y": 3}), (0, 2))
    >>> merge.domain.shape, merge.order, merge.keeps_order
    ((12, 2), (0, 2, 1), False)
    """

    original: Domain
    axes: tuple[int, ...]

    def __post_init__(self) -> None:
        d = len(self.original)
        if (
            len(self.axes) < 2
            or list(self.axes) != sorted(set(self.axes))
            or not 0 <= self.axes[0] <= self.axes[-1] < d
        ):
            raise StrategyError(f"Axes {self.axes} cannot be merged. List two or more of 0 to {d - 1}, ascending.")

    @cached_property
    def domain(self) -> Domain:
        """The domain with the attributes as one, at the place of the first."""
        names = [self.original.names[i] for i in self.axes]
        return self.original.merge(names, name="×".join(names))

    @property
    def order(self) -> tuple[int, ...]:
        """The original attributes in the order in which they vary over the merged cells, slowest first."""
        first = self.axes[0]
        rest = [i for i in range(len(self.original)) if i not in self.axes]
        return (*(i for i in rest if i < first), *self.axes, *(i for i in rest if i > first))

    @property
    def keeps_order(self) -> bool:
        """Whether the merged attributes are neighbours, so that cells and queries keep their order."""
        return self.order == tuple(range(len(self.original)))

    @property
    def cells(self) -> Array:
        """The place of every original cell in the merged domain. O(N)."""
        shape = [self.original.shape[i] for i in self.order]
        return np.arange(self.original.size).reshape(shape).transpose(np.argsort(self.order)).ravel()

    def unmerged(self, product: Product, values: Array) -> Array:
        """One value a query of the merged product, in the order of the queries of the product itself. O(queries)."""
        counts = [p.count(n) for p, n in zip(product.predicates, self.original.shape, strict=True)]
        return values.reshape([counts[i] for i in self.order]).transpose(np.argsort(self.order)).ravel()

    def merged_query(self, product: Product, rows: Array) -> Array:
        """The numbers of these queries of the product among those of the merged product."""
        counts = [p.count(n) for p, n in zip(product.predicates, self.original.shape, strict=True)]
        places = np.unravel_index(rows, counts)
        return np.ravel_multi_index([places[i] for i in self.order], [counts[i] for i in self.order])

    def workload(self, workload: Workload) -> Workload:
        """The same queries over the merged domain; in their order too, where the attributes are neighbours."""
        if workload.domain != self.original:
            raise StrategyError(
                f"The strategy is over ({', '.join(self.original.names)}) and the workload over "
                f"({', '.join(workload.domain.names)}). Build both on one Domain."
            )
        return Workload(self.domain, tuple(map(self.product, workload.products)))

    def product(self, product: Product) -> Product:
        """The product with all combinations of its predicates on the merged attributes as one set."""
        active = dict(product.factors)
        first = self.axes[0]
        rest = [i for i in range(len(self.original)) if i not in self.axes[1:]]
        sets = {new: active[old] for new, old in enumerate(rest) if old != first and old in active}
        if any(i in active for i in self.axes):
            parts = tuple(active.get(i, Total()) for i in self.axes)
            sets[rest.index(first)] = Crossed(parts, tuple(self.original.shape[i] for i in self.axes))
        return Product(self.domain, tuple(sorted(sets.items())), product.weight)


@final
@dataclass(frozen=True, slots=True)
class Crossed(PredicateSet):
    """All combinations of one predicate a merged attribute: W₁ ⊗ … ⊗ W_m, the first slowest.

    >>> from hdmm import Prefix
    >>> Crossed((Prefix(), Total()), (4, 3)).matrix(12).shape
    (4, 12)
    """

    parts: tuple[PredicateSet, ...]
    sizes: tuple[int, ...]

    def count(self, n: int) -> int:
        return math.prod(part.count(size) for part, size in zip(self.parts, self.sizes, strict=True))

    def build(self, n: int) -> Matrix:
        if math.prod(self.sizes) != n:
            raise StrategyError(f"Crossed predicates on {self.sizes} cells do not fit an attribute of {n} values.")
        return Kron(tuple(part.matrix(size) for part, size in zip(self.parts, self.sizes, strict=True)))

    def labels(self, attribute: Attribute) -> list[str]:
        if not isinstance(attribute.values, Merged):
            raise StrategyError(f"Attribute {attribute.name!r} is not merged. Use Domain.merge.")
        each = [p.labels(a) for p, a in zip(self.parts, attribute.values.parts, strict=True)]
        return [" × ".join(words) for words in itertools.product(*each)]
