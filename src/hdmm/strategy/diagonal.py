"""Diagonal: λ and the axes of a union of products; error and variance are each written once here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, Dense, Eye, Kron, Matrix, Ones, quadratic
from hdmm.strategy.axis import Axis, axis_of
from hdmm.strategy.blocks import Block, BlockTable
from hdmm.strategy.form import Form, NoClosedFormError
from hdmm.strategy.joint_classes import joint_products, joint_variances, linked
from hdmm.strategy.mixture import SLAB_CELLS, Mixture, box_keys, quotient_sum, tabulate_numbers, tabulated

_MAX_BOX = 1 << 28  # cells one product's variances may need at once (2 GiB)
_KEPT = 1 << 16  # numbers of a table that is kept for the next product
_TOTAL = Total()
_Factors: TypeAlias = tuple[Matrix, ...]
_NONE: Mapping[int, Callable[[_Factors], Axis | None]] = MappingProxyType({})


@final
@dataclass(frozen=True, eq=False)
class Diagonal(Form):
    """The axes and λ = Σ_j θ_j² ⊗ δ_ji, factored: it never fills N cells by itself."""

    domain: Domain
    blocks: Sequence[Block]  # each factor on one attribute
    axes: tuple[Axis, ...]
    lam: Mixture

    @classmethod
    def of(
        cls, domain: Domain, blocks: Sequence[Block], axis_for: Mapping[int, Callable[[_Factors], Axis | None]] = _NONE
    ) -> Diagonal:
        """The form of the stacked blocks; NoClosedFormError if they have none.

        `axis_for` makes the axes of attributes whose factors have a form of their own.
        """
        totals: list[Matrix] = [Ones(1, n) for n in domain.shape]
        table = BlockTable.of(blocks)
        pairs = [(axes[0], A) for axes, A in table.distinct]
        choices, factors = tabulate_numbers(table.starts, table.numbers, pairs, totals)
        named = enumerate(zip(factors, domain.names, strict=True))
        axes = tuple(_axis(each, name, axis_for.get(i, axis_of)) for i, (each, name) in named)
        squares = table.weights**2
        return cls(domain, table, axes, Mixture(squares, choices, tuple(axis.delta for axis in axes)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the attributes."""
        return self.domain.shape

    def total_variance(self, products: Sequence[Product]) -> float:
        """Σ_cells t/λ with t = Σ_k w_k² ⊗ tr(V_ki Z_c); infinite where a product is not supported."""
        products = tuple(products)  # itself if it is one: a plan and its goal ask for the same total
        if self._last_total.get("products") is not products:
            self._last_total.update(products=products, total=self._total_variance(products))
        return self._last_total["total"]

    @cached_property
    def _last_total(self) -> dict[str, Any]:
        return {}

    def _total_variance(self, products: tuple[Product, ...]) -> float:
        joint = [product for product in products if product.joint]
        if joint:
            plain = [product for product in products if not product.joint]
            return math.fsum([*map(self._joint_total, joint), self.total_variance(plain) if plain else 0.0])
        choices, sets = tabulated(products, len(self.shape))
        grams = [[p.gram(n) for p in each] for each, n in zip(sets, self.shape, strict=True)]
        pairs = list(zip(self.axes, grams, strict=True))
        tables = tuple(np.stack([axis.traces(V) for V in each], axis=1) for axis, each in pairs)
        squares = np.array([product.weight for product in products]) ** 2
        total = quotient_sum(Mixture(squares, choices, tables), self.lam)
        if math.isinf(total):
            return total
        # What may be rounding does not decide support; but where it is measured, it counts (SF1's fourth digit).
        fuller = tuple(np.stack([axis.traces(V, axis.rounding) for V in each], axis=1) for axis, each in pairs)
        if all(map(np.array_equal, tables, fuller)):
            return total
        return quotient_sum(Mixture(squares, choices, fuller), self.lam, supported=True)

    def even_row(self, i: int, predicates: PredicateSet) -> Array | None:
        """w Z_c wᵀ by class, if it is the same for all rows w of the predicates; else None."""
        table = self.axes[i].variances(predicates.matrix(self.shape[i]))
        return table[0] if len(table) and np.allclose(table, table[0], rtol=1e-12, atol=0) else None

    def variances(self, product: Product) -> Iterator[Array]:
        """(⊗ ζ_i)(1/λ) with ζ_i = w Z_c wᵀ: the variance of each query, in pieces of bounded size.

        O(queries × classes of the last attributes): a Kronecker product, not one query at a time.
        """
        if product.joint:
            yield from _kron_pieces(*self._joint_tables(product))
            return
        asked = dict(product.factors)
        sets = {i: asked.get(i, _TOTAL) for i in self._deciding(product)}
        boxes = {i: self._seen(i, p) for i, p in sets.items()}
        if any(len(box) == 0 for box in boxes.values()):  # queries of all zeros always have the answer 0
            yield np.zeros(product.queries)
            return
        inverse = self._inverse(boxes)
        rows = {i: p.count(self.shape[i]) for i, p in sets.items()}
        wide = [i for i, box in boxes.items() if rows[i] == product.queries and rows[i] * len(box) > SLAB_CELLS][:1]
        tables = {i: self._table(i, p) for i, p in sets.items() if i not in wide}
        if not wide:
            yield from _kron_pieces([*tables.values()], inverse)
            return
        # One attribute carries all the queries: fold the others into one form Σ_c g_c Z_c on it, which
        # takes n² numbers instead of the queries × classes of its table.
        (widest,) = wide
        eye = np.eye(len(boxes[widest]))
        weights = np.zeros(len(self.axes[widest].delta))
        pieces = _kron_pieces([tables.get(i, eye) for i in sets], inverse)
        weights[boxes[widest]] = np.concatenate(list(pieces))
        W = sets[widest].matrix(self.shape[widest])
        yield np.maximum(quadratic(W, self.axes[widest].mixed(weights)), 0.0)

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        """cov(query rows[k] of one product, query others[k] of another), without weights. O(pairs × cells)."""
        if first.joint or second.joint:
            return self._joint_covariances(first, rows, second, others)
        deciding = self._deciding(first, second)
        sets = [[dict(product.factors).get(i, _TOTAL) for i in deciding] for product in (first, second)]
        at, to = (
            np.unravel_index(chosen, [p.count(self.shape[i]) for i, p in zip(deciding, each, strict=True)] or [1])
            for chosen, each in zip((rows, others), sets, strict=True)
        )
        boxes = {i: np.intersect1d(self._seen(i, p), self._seen(i, q)) for i, p, q in zip(deciding, *sets, strict=True)}
        if any(len(box) == 0 for box in boxes.values()):
            return np.zeros(len(rows))
        tables: list[Array] = []
        for i, p, q, a, b in zip(deciding, *sets, at, to, strict=False):
            pairs, place = np.unique(np.stack([a, b], axis=1), axis=0, return_inverse=True)
            R, S = (rows_of(w.matrix(self.shape[i]), pairs[:, k]) for k, w in enumerate((p, q)))
            tables.append(self.axes[i].products(R, S)[:, boxes[i]][place.ravel()])
        return _summed(tables, self._inverse(boxes), len(rows))

    def _joint_total(self, product: Product) -> float:
        """The total variance of a product with predicates on several attributes; infinite if it is not supported."""
        tables, inverse = self._joint_tables(product)
        asked = reduce(np.multiply.outer, [table.max(axis=0, initial=0.0) for table in tables]).ravel()
        if (asked[inverse == 0] > 0).any():
            return math.inf
        return product.weight**2 * float(sum(piece.sum() for piece in _kron_pieces(tables, inverse)))

    def _joint_tables(self, product: Product) -> tuple[list[Array], Array]:
        """What each predicate set sees of the classes of its attributes, and 1/λ in the order of the sets."""
        totals = [((i,), _TOTAL) for i in self._deciding(product) if i not in product.axes]
        sets = sorted((*product.sets, *totals), key=lambda each: each[0])
        boxes = {axes[0]: self._seen(axes[0], p) for axes, p in sets if len(axes) == 1}
        if any(len(box) == 0 for box in boxes.values()):  # queries of all zeros
            return [np.zeros((product.queries, 1))], np.ones(1)
        tables = [
            self._table(axes[0], p) if len(axes) == 1 else self._joint_table(axes, p, product.cells(axes))
            for axes, p in sets
        ]
        inverse = self._inverse_over([axes for axes, _ in sets], boxes)
        numbers = [table for table in tables if table.shape == (1, 1)]  # totals of attributes that no block totals
        left = [table for table in tables if table.shape != (1, 1)]
        return left or [np.ones((1, 1))], inverse * math.prod(float(table[0, 0]) for table in numbers)

    def _joint_table(self, axes: Attributes, p: PredicateSet, cells: int) -> Array:
        """w(⊗ Z_c)wᵀ of predicates on several attributes; once for attributes that are alike."""
        alike = tuple(self.axes[i] for i in axes)
        if (alike, p) not in self._known_joint:
            self._known_joint[alike, p] = joint_variances(alike, p.matrix(cells))
        return self._known_joint[alike, p]

    def _joint_covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        parts = linked(
            [*((i,) for i in self._deciding(first, second)), *(a for p in (first, second) for a, _ in p.sets)]
        )
        tables: list[Array] = []
        for axes in parts:
            R, S = (_columns(p, axes, chosen) for p, chosen in ((first, rows), (second, others)))
            tables.append(joint_products([self.axes[i] for i in axes], R, S))
        return _summed(tables, self._inverse_over(parts), len(rows))

    def _inverse_over(self, parts: Sequence[Attributes], seen: Mapping[int, Array] | None = None) -> Array:
        """1/λ on all classes of the attributes, or on those that are seen; they vary in the order of the parts."""
        order = [i for axes in parts for i in axes]
        every = {i: np.arange(len(self.axes[i].delta)) for i in sorted(order)}
        boxes = {i: (seen or {}).get(i, box) for i, box in every.items()}
        inverse = self._inverse(boxes).reshape([len(box) for box in boxes.values()])
        return inverse.transpose([sorted(order).index(i) for i in order]).ravel()

    def _deciding(self, *products: Product) -> Sequence[int]:
        """The attributes on which variances of the products depend: their own if totals are plain, else all."""
        if not self._totals_are_plain:
            return range(len(self.shape))
        return sorted({i for product in products for axes, _ in product.sets for i in axes})

    @cached_property
    def _totals_are_plain(self) -> bool:
        """Whether the form is too large to write out, and a total sees only the first class, with weight 1.

        This holds for marginals of many attributes: 161,700 products over 100 attributes take seconds.
        """
        large = self.lam.cells > SLAB_CELLS and self.lam.is_binary
        return large and all(axis.total is not None for axis in self.axes)

    def _seen(self, i: int, predicates: PredicateSet) -> Array:
        """The classes of an attribute that the predicates see; computed once."""
        found = self._known_classes.get((i, predicates))
        if found is None:
            axis = self.axes[i]
            found = np.flatnonzero(axis.traces(predicates.gram(self.shape[i]), axis.rounding))
            self._known_classes[i, predicates] = found
        return found

    def _table(self, i: int, predicates: PredicateSet) -> Array:
        """w Z_c wᵀ of the predicates on the classes of an attribute that they see; kept if it is small."""
        found = self._known_tables.get((i, predicates))
        if found is None:
            found = self.axes[i].variances(predicates.matrix(self.shape[i]))[:, self._seen(i, predicates)]
            if found.size <= _KEPT:
                self._known_tables[i, predicates] = found
        return found

    @cached_property
    def _known_classes(self) -> dict[tuple[int, PredicateSet], Array]:
        return {}

    @cached_property
    def _known_tables(self) -> dict[tuple[int, PredicateSet], Array]:
        return {}

    @cached_property
    def _known_joint(self) -> dict[tuple[tuple[Axis, ...], PredicateSet], Array]:
        return {}

    def _inverse(self, boxes: Mapping[int, Array]) -> Array:
        """1/λ on the cells of a box, in row-major order; 0 if λ is 0. Attributes left out are totalled."""
        size = math.prod(len(box) for box in boxes.values())
        if size > _MAX_BOX:
            raise StrategyError(
                f"The variances of these queries need {size:.1e} cells of the strategy's form in memory. Ask for "
                "the total error instead, or for queries on fewer attributes."
            )
        if self.lam.cells <= SLAB_CELLS:
            places = np.zeros(1, dtype=np.int64)
            for table, box in zip(self.lam.tables, boxes.values(), strict=True):
                places = (places[:, None] * len(table) + box).ravel()
            lam = self._all_cells[places]
        elif self.lam.is_binary:
            lam = self.lam.sparse.at(box_keys(boxes, len(self.shape)))
        else:
            lam = self.lam.restricted([*boxes.values()]).values()
        return np.divide(1.0, lam, out=np.zeros(len(lam)), where=lam > 0)

    @cached_property
    def _all_cells(self) -> Array:
        return self.lam.values()


def rows_of(W: Matrix, index: Array) -> Array:
    """The rows of W with these numbers, as columns. O(cost(Wᵀ)) each."""
    chosen = np.zeros((W.shape[0], len(index)))
    chosen[index, np.arange(len(index))] = 1.0
    return W.T.matmat(chosen)


def _columns(product: Product, part: Attributes, rows: Array) -> Array:
    """The product's queries of these numbers on the cells of some attributes, as columns; all 1 on those it totals."""
    counts = [p.count(product.cells(axes)) for axes, p in product.sets]
    at = np.unravel_index(rows, counts) if counts else ()
    columns = np.ones([*(1 for _ in part), len(rows)])
    for (axes, p), chosen in zip(product.sets, at, strict=True):
        if axes[0] in part:
            shape = [product.domain.shape[i] if i in axes else 1 for i in part]
            columns = columns * rows_of(p.matrix(product.cells(axes)), chosen).reshape(*shape, -1)
    whole = np.broadcast_to(columns, (*(product.domain.shape[i] for i in part), len(rows)))
    return whole.reshape(-1, len(rows))


def _summed(tables: Sequence[Array], inverse: Array, count: int) -> Array:
    """Σ over the classes of the product of each table's row and 1/λ, for each of the pairs of queries."""
    out = np.empty(count)
    step = max(1, SLAB_CELLS // len(inverse))
    for start in range(0, count, step):
        part = np.broadcast_to(inverse, (min(step, count - start), len(inverse)))
        for table in tables:  # the first class of what is left is the slowest
            here = table[start : start + step]
            part = np.einsum("kc,kcr->kr", here, part.reshape(len(here), here.shape[1], -1))
        out[start : start + step] = part[:, 0]
    return out


def _axis(factors: _Factors, name: str, axis_for: Callable[[_Factors], Axis | None]) -> Axis:
    found = axis_for(factors)
    if found is None:
        raise NoClosedFormError(
            f"The {len(factors)} different factors on attribute {name!r} do not diagonalise together, so the "
            "strategy has no closed form. Use at most two products, or marginals."
        )
    return found


def _kron_pieces(tables: Sequence[Array], vector: Array) -> Iterator[Array]:
    """(⊗ tables)·vector in pieces of whole rows of the first table, so that memory stays bounded."""
    head, *tail = tables or [np.ones((1, 1))]
    rest = Kron(tuple(Dense(table) for table in tail)) if tail else Eye(1)
    inner = rest.along(vector.reshape(head.shape[1], -1, 1))[:, :, 0]
    step = max(1, (SLAB_CELLS << 2) // max(rest.shape[0], 1))
    for start in range(0, len(head), step):
        yield (head[start : start + step] @ inner).ravel()
