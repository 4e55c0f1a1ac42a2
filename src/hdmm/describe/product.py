"""Product: queries that are a product of predicate sets, one per attribute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.domain import Domain
from hdmm.describe.numeric import Bins
from hdmm.describe.predicates import Amounts, PredicateSet, Total
from hdmm.matrix import Array, Kron, Matrix, Ones, Permuted, Scaled, gram

Attributes: TypeAlias = tuple[int, ...]

_TOTAL = Total()
_MOST_PERMUTED = 1 << 27  # cells of a domain whose order is listed: 1 GiB


@final
@dataclass(frozen=True, slots=True)
class Product:
    """weight · W₁ ⊗ … ⊗ W_d: one predicate set per attribute; every combination of predicates is a query.

    `factors` holds (axis, predicates) for the attributes that are not Total, so that a marginal of 3 out of 100
    attributes takes three entries. `joint` holds (axes, predicates) for predicates on several attributes at once, such
    as x + y ≤ c, over their cells in row-major order; each attribute is in one of the two, once. In the order of
    queries the set with the first attribute varies slowest.

    >>> from hdmm import Identity
    >>> Product(Domain({"sex": ["M", "F"], "age": 115}), ((0, Identity()),)).queries
    2
    """

    domain: Domain
    factors: tuple[tuple[int, PredicateSet], ...]
    weight: float = 1.0
    joint: tuple[tuple[Attributes, PredicateSet], ...] = ()

    @classmethod
    def of(cls, domain: Domain, sets: Iterable[tuple[Attributes, PredicateSet]], weight: float = 1.0) -> Product:
        """The product of predicate sets on one attribute or several each, in any order; Total may be among them.

        >>> from hdmm import Identity, SumAtMost
        >>> Product.of(Domain({"x": 2, "y": 3, "z": 2}), [((0, 1), SumAtMost((2, 3))), ((2,), Identity())]).queries
        8
        """
        active = sorted([each for each in sets if not isinstance(each[1], Total)], key=_axes)
        single = tuple([(axes[0], p) for axes, p in active if len(axes) == 1])
        return cls(domain, single, weight, tuple([each for each in active if len(each[0]) > 1]))

    @property
    def sets(self) -> tuple[tuple[Attributes, PredicateSet], ...]:
        """All predicate sets but Total, on one attribute or several, in the order in which queries vary."""
        single = tuple([((i,), p) for i, p in self.factors])
        return tuple(sorted((*single, *self.joint), key=_axes)) if self.joint else single

    @property
    def axes(self) -> Attributes:
        """The attributes that are not totalled, ascending."""
        return tuple(sorted([i for i, _ in self.factors] + [i for axes, _ in self.joint for i in axes]))

    @property
    def binned_sums(self) -> Attributes:
        """The attributes counted in bins whose numbers the queries add up: bounds of such sums follow from the ends."""
        held = self.domain.attributes
        added = (i for axes, p in self.sets if isinstance(p, Amounts) for i in axes)
        return tuple([i for i in added if isinstance(held[i].values, Bins)])

    @property
    def predicates(self) -> tuple[PredicateSet, ...]:
        """One predicate set per attribute, Total included; WorkloadError if one is on several attributes at once."""
        self.check_single("This")
        active = dict(self.factors)
        return tuple(active.get(i, _TOTAL) for i in range(len(self.domain)))

    @property
    def queries(self) -> int:
        """The exact number of queries of the product, Π counts."""
        shape = self.domain.shape
        single = math.prod([p.count(shape[i]) for i, p in self.factors])
        return single * math.prod([p.count(self.cells(axes)) for axes, p in self.joint]) if self.joint else single

    @property
    def matrix(self) -> Matrix:
        """weight · ⊗ Wᵢ, implicit."""
        if not self.joint:
            return _scaled(self.weight, Kron(tuple(self._each_attribute("matrix"))))
        shape = self.domain.shape
        used = [i for axes, _ in self.sets for i in axes]
        order = [*used, *(i for i in range(len(shape)) if i not in used)]
        each = (p.matrix(self.cells(axes)) for axes, p in self.sets)
        kron = Kron((*each, *(Ones(1, shape[i]) for i in order[len(used) :])))
        if order == sorted(order):
            return _scaled(self.weight, kron)
        if self.domain.size > _MOST_PERMUTED:
            raise WorkloadError(
                f"The matrix of product ({self}) needs a list of all {self.domain.size:.1e} cells, because its "
                f"attributes are no neighbours. The limit is {_MOST_PERMUTED:,}. Declare these attributes next to each "
                "other."
            )
        return _scaled(self.weight, Permuted(kron, cell_places(shape, order)))

    @property
    def gram(self) -> Matrix:
        """weight² · ⊗ WᵢᵀWᵢ, implicit."""
        if self.joint:
            return gram(self.matrix)
        return _scaled(self.weight**2, Kron(tuple(self._each_attribute("gram"))))

    def weighted(self, weight: float) -> Product:
        """The same queries with another weight."""
        return Product(self.domain, self.factors, weight, self.joint)

    def cells(self, axes: Attributes) -> int:
        """The number of cells of several attributes together."""
        return math.prod([self.domain.shape[i] for i in axes])

    def over(self, axes: Sequence[int]) -> Product:
        """The same predicates, without those on other attributes, over a domain of these attributes, ascending.

        >>> from hdmm import Identity
        >>> product = Product(Domain({"sex": ["M", "F"], "age": 115}), ((0, Identity()), (1, Identity())))
        >>> product.over([1]).queries
        115
        """
        place = {i: k for k, i in enumerate(axes)}
        held = ((on, p) for on, p in self.sets if on[0] in place)
        domain = Domain([self.domain.attributes[i] for i in axes])
        return Product.of(domain, [(tuple([place[i] for i in on]), p) for on, p in held], self.weight)

    def check_single(self, what: str) -> None:
        """WorkloadError if the product has predicates on several attributes at once, which `what` does not take."""
        if self.joint:
            raise WorkloadError(
                f"{what} takes predicates on one attribute each; product ({self}) has some on several attributes at "
                "once. Merge these attributes with Domain.merge, or use hdmm.optimize."
            )

    def labels(self) -> Iterator[tuple[str, ...]]:
        """The labels of each query in order: one label per predicate set that is not Total."""
        return itertools.product(*(p.labels(self.domain.attribute_over(axes)) for axes, p in self.sets))

    def __str__(self) -> str:
        names = self.domain.names
        text = " × ".join(f"{', '.join(names[i] for i in axes)}: {p}" for axes, p in self.sets) or "Total"
        return text if self.weight == 1 else f"{self.weight:g} · ({text})"

    def _each_attribute(self, form: str) -> Iterator[Matrix]:
        for predicates, n in zip(self.predicates, self.domain.shape, strict=True):
            yield predicates.matrix(n) if form == "matrix" else predicates.gram(n)


def cell_places(shape: Sequence[int], order: Sequence[int]) -> Array:
    """The place of every cell (attributes in ascending order) among the cells with attributes in another order."""
    sizes = [shape[i] for i in order]
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(np.argsort(order)).ravel()


def _axes(each: tuple[Attributes, PredicateSet]) -> Attributes:
    return each[0]


def _scaled(weight: float, A: Matrix) -> Matrix:
    return A if weight == 1 else Scaled(weight, A)
