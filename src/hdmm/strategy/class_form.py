"""ClassForm: the attributes split into classes, with what is known in each; error and variance are written once here.

On most attributes all blocks are diagonal in common coordinates, which form classes (axis.py). The *free* attributes
are the others: none, one on which blocks have bases of their own, or all together. For every combination b of
classes, X_b is what the blocks measure of the free attributes, a number λ_b if there are none (class_inverse.py).
AxisFactors on several attributes make these one attribute (axis_groups.py), and so does a form that is written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np

from hdmm.base.connected import connected
from hdmm.base.exceptions import StrategyError
from hdmm.base.tolerances import SUPPORT
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import PredicateSet, Total
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, Dense, Eye, Kron, Matrix, quadratic, trace
from hdmm.matrix.matrix import frozen
from hdmm.strategy.axis import Axis, axis_beside_total, axis_of, joint_products, joint_variances
from hdmm.strategy.axis_groups import AxisGroups, Tabulated
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_inverse import Boxes, Coupled, Grid, Inverse, Pairs, Scalars
from hdmm.strategy.form import Form, NoClosedFormError, constant_variances, total_variances
from hdmm.strategy.mixture import SLAB_CELLS, Mixture, tabulated

MOST_WRITTEN = 4096  # cells of a dense AᵀA: 128 MiB and an eigendecomposition of seconds
_KEPT = 1 << 16  # numbers of a table that is kept for the next product
_MANY = 256  # products from which on constant variances are quicker together
_MOST_REACH = 1 << 24  # classes that products or blocks reach, repeats counted, for their totals to be found together
_TOTAL = Total()

AxisRule: TypeAlias = Callable[[tuple[Matrix, ...]], Axis | None]
_NO_RULES: Mapping[int, AxisRule] = MappingProxyType({})


@final
@dataclass(frozen=True, eq=False)
class ClassForm(Form):
    """The axes, λ = Σ_j θ_j² ⊗ δ_ji factored, and X_b⁻¹: it never fills N cells by itself."""

    groups: AxisGroups
    axes: tuple[Axis, ...]  # of each group of attributes; of a free one, its cells
    lam: Mixture
    free: Attributes
    inverse: Inverse

    @classmethod
    def diagonal(cls, table: Tabulated, axis_for: Mapping[int, AxisRule] = _NO_RULES) -> ClassForm:
        """The form where no attribute is free; NoClosedFormError if there is none.

        `axis_for` makes the axes of attributes whose factors have a form of their own.
        """
        named = enumerate(zip(table.factors, table.groups.domain.names, strict=True))
        axes, lam, free = table.split([_axis(each, name, axis_for.get(i, axis_of)) for i, (each, name) in named])
        return cls(table.domain, table.blocks, table.groups, axes, lam, free, Scalars(lam))

    @classmethod
    def coupled(cls, table: Tabulated) -> ClassForm | None:
        """The form where one attribute is free; None if more are, or if there are too many classes or values."""
        axes, lam, free = table.split([axis_beside_total(each) for each in table.factors])
        found = Coupled.of(lam, table.factors, free)
        return found and cls(table.domain, table.blocks, table.groups, axes, lam, free, found)

    @classmethod
    def grid(cls, table: Tabulated) -> ClassForm | None:
        """The form of a tree of squares over two attributes, which are both free; None for other blocks."""
        found = Grid.of(table.groups.domain.shape, table.groups.blocks(table.blocks))
        return found and cls(table.domain, table.blocks, table.groups, *table.split([None] * len(table.factors)), found)

    @classmethod
    def whole(cls, domain: Domain, blocks: Sequence[Block]) -> ClassForm | None:
        """The form where all attributes together are free, written out; None on too many cells for that."""
        if domain.size > MOST_WRITTEN:
            return None
        table = Tabulated.of(AxisGroups.whole(domain), blocks)
        axes, lam, free = table.split([None])
        found = Coupled.of(lam, table.factors, free)
        return found and cls(domain, table.blocks, table.groups, axes, lam, free, found)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the attributes, groups as one."""
        return self.groups.domain.shape

    def total_variance(self, products: Sequence[Product]) -> float:
        """Σ_b tr(X_b⁻¹V_b), which is Σ_cells t/λ if no attribute is free; infinite if a product is not supported."""
        products = tuple(products)  # itself if it is one: a plan and its goal ask for the same total
        if self._last_total.get("products") is not products:
            self._last_total.update(products=products, total=self._total_variance(products))
        return self._last_total["total"]

    def variances(self, product: Product) -> Iterator[Array]:
        """Σ_b ζ_b·wX_b⁻¹wᵀ with ζ = ⊗ w Z_c wᵀ: the variance of each query, in pieces of bounded size.

        O(queries × classes of the last attributes): a Kronecker product, not one query at a time.
        """
        grouped = self.groups.product(product)
        if self.free and grouped.joint:
            yield from self._whole.variances(product)
        elif self.groups.keeps_order:
            yield from self._variances(grouped)
        else:
            yield self.groups.restored(product, np.concatenate(list(self._variances(grouped))))

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        """cov(query rows[k] of one product, query others[k] of another), without weights. O(pairs × cells)."""
        one, two = self.groups.product(first), self.groups.product(second)
        if self.free and (one.joint or two.joint):
            return self._whole.covariances(first, rows, second, others)
        asked = [
            (one, _places(one, self.groups.query(first, rows))),
            (two, _places(two, self.groups.query(second, others))),
        ]
        parts = connected([*((i,) for i in self._deciding(one, two)), *(on for p in (one, two) for on, _ in p.joint)])
        boxes: dict[int, Array] = {}
        tables: list[Array] = []
        columns: list[Pairs] = []
        for part in parts:
            R, S, pair = _pairs(part, asked, len(rows))
            if part[0] in self.free:
                columns.append((R, S, pair))
                continue
            boxes |= {i: np.arange(len(self.axes[i].delta)) for i in part}
            if len(part) == 1:
                (i,) = part
                seen, also = (self._seen(i, dict(p.factors).get(i, _TOTAL)) for p in (one, two))
                boxes[i] = np.intersect1d(seen, also)
                tables.append(self.axes[i].products(R, S)[:, boxes[i]][pair])
            else:
                tables.append(joint_products([self.axes[i] for i in part], R, S)[pair])
        boxes = dict(sorted(boxes.items()))
        if any(len(box) == 0 for box in boxes.values()):
            return np.zeros(len(rows))
        core = self.inverse.pairs(boxes, columns)
        order = [i for part in parts for i in part if i in boxes]
        return _summed(tables, _arranged(core, {i: len(box) for i, box in boxes.items()}, order), len(rows))

    def constant_row(self, i: int, predicates: PredicateSet) -> Array | None:
        """w Z_c wᵀ by class, if it is the same for all rows w of the predicates; else None."""
        table = self.axes[i].variances(predicates.matrix(self.shape[i]))
        return table[0] if len(table) and np.allclose(table, table[0], rtol=1e-12, atol=0) else None

    def _total_variance(self, products: tuple[Product, ...]) -> float:
        grouped = products if self.groups.trivial else tuple(map(self.groups.product, products))
        if any(each.joint for each in grouped):
            apart = [(product, each) for product, each in zip(products, grouped, strict=True) if each.joint]
            plain = tuple(product for product, each in zip(products, grouped, strict=True) if not each.joint)
            total = self._total_variance(plain) if plain else 0.0
            if self.free:
                return total + self._whole.total_variance([product for product, _ in apart])
            return total + math.fsum(self._joint_total(each) for _, each in apart)
        choices, sets = tabulated(grouped, len(self.shape))
        grams = [[p.gram(n) for p in each] for each, n in zip(sets, self.shape, strict=True)]
        squares = np.array([product.weight for product in grouped]) ** 2
        tables = self.traces(grams)
        total = self._summed(squares, choices, grams, tables)
        if math.isinf(total):
            return total
        if all(axis.rounding == SUPPORT for axis in self.axes):
            return total
        # What may be rounding does not decide support; but where it is measured, it counts (SF1's fourth digit).
        fuller = self.traces(grams, fully=True)
        if all(map(np.array_equal, tables, fuller)):
            return total
        return self._summed(squares, choices, grams, fuller, supported=True)

    def traces(self, grams: Sequence[Sequence[Matrix]], *, fully: bool = False) -> tuple[Array, ...]:
        """tr(V Z_c) by class and kind of predicates, for each attribute; 1 for one that is free."""
        return tuple(
            np.ones((1, len(each)))
            if i in self.free
            else np.stack([axis.traces(V, axis.rounding if fully else SUPPORT) for V in each], axis=1)
            for i, (axis, each) in enumerate(zip(self.axes, grams, strict=True))
        )

    def _summed(
        self,
        squares: Array,
        choices: Array,
        grams: Sequence[Sequence[Matrix]],
        tables: tuple[Array, ...],
        *,
        supported: bool = False,
    ) -> float:
        """Σ_b tr(X_b⁻¹V_b), one kind of predicates on the free attributes after the other."""
        if not self.free:
            return self.inverse.total(Mixture(squares, choices, tables), [], supported=supported)
        kinds, which = np.unique(choices[:, list(self.free)], axis=0, return_inverse=True)
        total = 0.0
        for k, numbers in enumerate(kinds.tolist()):
            rows = np.flatnonzero((which.ravel() == k) & (squares > 0))
            V = [grams[i][kind] for i, kind in zip(self.free, numbers, strict=True)]
            if len(rows) and math.prod(map(trace, V)) > 0:
                t = Mixture(squares[rows], choices[rows], tables)
                total += self.inverse.total(t, V, supported=supported)
        return total

    def _variances(self, product: Product) -> Iterator[Array]:
        """The variances of a product over groups."""
        sets = self._sets(product)
        boxes = self._boxes(sets)
        if any(len(box) == 0 for box in boxes.values()):  # queries of all zeros always have the answer 0
            yield np.zeros(product.queries)
            return
        core = self._core(sets, boxes)
        single = [(axes[0], p) for axes, p in sets if len(axes) == 1 and axes[0] in boxes]
        rows = {i: p.count(self.shape[i]) for i, p in single}
        wide = [(i, p) for i, p in single if rows[i] == product.queries and rows[i] * len(boxes[i]) > SLAB_CELLS]
        if not wide:
            yield from _kron_pieces(self._tables(sets), core)
            return
        # One attribute carries all the queries: fold the others into one form Σ_c g_c Z_c on it, which
        # takes n² numbers instead of the queries × classes of its table.
        widest, predicates = wide[0]
        folded = [Eye(len(boxes[widest])) if on == (widest,) else self._tables([(on, p)])[0] for on, p in sets]
        weights = np.zeros(len(self.axes[widest].delta))
        weights[boxes[widest]] = np.concatenate(list(_kron_pieces(folded, core)))
        yield np.maximum(quadratic(predicates.matrix(self.shape[widest]), self.axes[widest].mixed(weights)), 0.0)

    def _joint_total(self, product: Product) -> float:
        """The total variance of a product with predicates on several attributes; infinite if it is not supported."""
        sets = self._sets(product)
        boxes = self._boxes(sets)
        if any(len(box) == 0 for box in boxes.values()):
            return 0.0
        core = self._core(sets, boxes)
        asked = [self._table(axes, p).max(axis=0, initial=0.0) for axes, p in sets]
        if (reduce(np.kron, asked)[core == 0] > 0).any():
            return math.inf
        return product.weight**2 * float(sum(piece.sum() for piece in _kron_pieces(self._tables(sets), core)))

    def _sets(self, product: Product) -> list[tuple[Attributes, PredicateSet]]:
        """The predicate sets of a product and the totals on which its variances depend, in the order of queries."""
        totals = [((i,), _TOTAL) for i in self._deciding(product) if i not in product.axes]
        return sorted((*product.sets, *totals), key=lambda each: each[0])

    def _boxes(self, sets: Sequence[tuple[Attributes, PredicateSet]]) -> dict[int, Array]:
        """The classes that predicate sets see: all, if they are on several attributes."""
        found = {axes[0]: self._seen(axes[0], p) for axes, p in sets if len(axes) == 1 and axes[0] not in self.free}
        found |= {i: np.arange(len(self.axes[i].delta)) for axes, _ in sets if len(axes) > 1 for i in axes}
        return dict(sorted(found.items()))

    def _core(self, sets: Sequence[tuple[Attributes, PredicateSet]], boxes: Boxes) -> Array:
        """wX_b⁻¹wᵀ for the classes that are seen and the queries on free attributes, in the order of the sets."""
        W = {axes[0]: p.matrix(self.shape[axes[0]]) for axes, p in sets if axes[0] in self.free}
        core = self.inverse.queries(boxes, [*W.values()])
        sizes = {i: len(box) for i, box in boxes.items()} | {i: w.shape[0] for i, w in W.items()}
        return _arranged(core[None], sizes, [i for axes, _ in sets for i in axes])[0]

    def _deciding(self, *products: Product) -> list[int]:
        """The attributes on which variances of products depend: their own, and those that no block totals.

        On all others only Total's class counts, with weight 1.
        """
        asked = {i for product in products for axes, _ in product.sets for i in axes}
        return sorted(asked | self._never_totalled)

    @cached_property
    def _never_totalled(self) -> frozenset[int]:
        return frozenset(i for i, axis in enumerate(self.axes) if axis.total is None)

    def _seen(self, i: int, predicates: PredicateSet) -> Array:
        """The classes of an attribute that the predicates see; computed once."""
        axis = self.axes[i]
        found = self._known_classes.get((axis, predicates))
        if found is None:
            found = np.flatnonzero(axis.traces(predicates.gram(self.shape[i]), axis.rounding))
            self._known_classes[axis, predicates] = found
        return found

    def _tables(self, sets: Sequence[tuple[Attributes, PredicateSet]]) -> list[Dense | Eye]:
        """What each set sees of the classes; on a free attribute, which the core has already, the identity."""
        shape, free = self.shape, self.free
        return [Eye(p.count(shape[on[0]])) if on[0] in free else Dense(self._table(on, p)) for on, p in sets]

    def _table(self, axes: Attributes, predicates: PredicateSet) -> Array:
        """w(⊗ Z_c)wᵀ of the predicates on the classes that they see; kept if it is small."""
        alike = tuple([self.axes[i] for i in axes])
        found = self._known_tables.get((alike, predicates))
        if found is None:
            W, is_joint = predicates.matrix(math.prod(self.shape[i] for i in axes)), len(axes) > 1
            seen = slice(None) if is_joint else self._seen(axes[0], predicates)
            found = frozen((joint_variances(alike, W) if is_joint else alike[0].variances(W))[:, seen])
            if found.size <= _KEPT or is_joint:
                self._known_tables[alike, predicates] = found
        return found

    @cached_property
    def _whole(self) -> ClassForm:
        """All cells written out, for predicates on several attributes at once; StrategyError if they are too many."""
        found = ClassForm.whole(self.domain, self.blocks)
        if found is None:
            raise StrategyError(
                "Some blocks of the strategy have bases of their own. Then predicates on several attributes at once "
                f"have variances on up to {MOST_WRITTEN:,} cells only; the domain has {self.domain.size:,}. Use "
                "hdmm.optimize for a workload that has these predicates."
            )
        return found

    @cached_property
    def _last_total(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _known_classes(self) -> dict[tuple[Axis, PredicateSet], Array]:
        return {}

    @cached_property
    def _known_tables(self) -> dict[tuple[tuple[Axis, ...], PredicateSet], Array]:
        return {}


@total_variances.register
def _(form: ClassForm, products: Sequence[Product]) -> Array:
    plain = form.groups.trivial and not form.free and not any(product.joint for product in products)
    if plain and form.lam.is_binary and form.lam.reach <= _MOST_REACH:
        choices, sets = tabulated(products, len(form.shape))
        grams = [[p.gram(n) for p in each] for each, n in zip(sets, form.shape, strict=True)]
        asked, fuller = (Mixture(np.ones(len(products)), choices, form.traces(grams, fully=f)) for f in (False, True))
        if fuller.reach <= _MOST_REACH:
            totals = np.where(form.lam.missing(asked), np.inf, form.lam.quotients(fuller))
            squares = np.array([product.weight for product in products]) ** 2
            return np.multiply(squares, totals, out=np.zeros(len(totals)), where=squares > 0)
    return np.array([form.total_variance([product]) for product in products])


@constant_variances.register
def _(form: ClassForm, products: Sequence[Product]) -> Array:
    found = np.full(len(products), np.nan)
    plain = form.groups.trivial and not form.free and not any(product.joint for product in products)
    if len(products) <= _MANY or not plain or not form.lam.is_binary:
        return found
    choices, sets = tabulated(products, len(form.shape))
    kinds = [[form.constant_row(i, p) for p in each] for i, each in enumerate(sets)]
    constant = np.ones(len(products), dtype=bool)
    for i, each in enumerate(kinds):
        constant &= np.array([row is not None for row in each])[choices[:, i]]
    tables = [
        np.stack([np.zeros(len(axis.delta)) if row is None else row for row in each], axis=1)
        for axis, each in zip(form.axes, kinds, strict=True)
    ]
    found[constant] = form.lam.quotients(Mixture(np.ones(int(constant.sum())), choices[constant], tuple(tables)))
    return found


def rows_of(W: Matrix, index: Array) -> Array:
    """The rows of W with these numbers, as columns. O(cost(Wᵀ)) each."""
    chosen = np.zeros((W.shape[0], len(index)))
    chosen[index, np.arange(len(index))] = 1.0
    return W.T.matmat(chosen)


def _axis(factors: tuple[Matrix, ...], name: str, axis_for: AxisRule) -> Axis:
    found = axis_for(factors)
    if found is None:
        raise NoClosedFormError(
            f"The {len(factors)} different factors on attribute {name!r} do not diagonalise together, so the "
            "strategy has no closed form. Use at most two products, or marginals."
        )
    return found


def _places(product: Product, rows: Array) -> dict[Attributes, Array]:
    """Which predicate of each set queries of these numbers have."""
    counts = [p.count(product.cells(axes)) for axes, p in product.sets]
    at = np.unravel_index(rows, counts) if counts else ()
    return {axes: each for (axes, _), each in zip(product.sets, at, strict=True)}


def _pairs(part: Attributes, asked: Sequence[tuple[Product, dict[Attributes, Array]]], count: int) -> Pairs:
    """The distinct pairs of queries on the cells of some attributes, as columns, and which each pair has."""
    index = [at[axes] for _, at in asked for axes in at if axes[0] in part]
    chosen, pair = np.unique(np.stack([np.zeros(count, dtype=np.intp), *index]), axis=1, return_inverse=True)
    numbers = iter(chosen[1:])
    R, S = (
        _columns(product, part, {axes: next(numbers) for axes in at if axes[0] in part}, chosen.shape[1])
        for product, at in asked
    )
    return R, S, pair.ravel()


def _columns(product: Product, part: Attributes, chosen: Mapping[Attributes, Array], count: int) -> Array:
    """Queries on the cells of some attributes, as columns; all 1 on those that the product totals."""
    shape, sets = product.domain.shape, dict(product.sets)
    columns = np.ones([*(1 for _ in part), count])
    for axes, index in chosen.items():
        here = [shape[i] if i in axes else 1 for i in part]
        columns = columns * rows_of(sets[axes].matrix(product.cells(axes)), index).reshape(*here, -1)
    return np.broadcast_to(columns, (*(shape[i] for i in part), count)).reshape(-1, count)


def _arranged(core: Array, sizes: Mapping[int, int], order: Sequence[int]) -> Array:
    """The rows of a core, whose attributes vary in the order of `sizes`, with them in another order."""
    if [*sizes] == [*order]:
        return core
    places = [0, *(1 + [*sizes].index(i) for i in order)]
    return core.reshape(-1, *sizes.values()).transpose(places).reshape(len(core), -1)


def _summed(tables: Sequence[Array], core: Array, count: int) -> Array:
    """Σ over the classes of the product of each table's row and the core's, for each of the pairs of queries."""
    whole = np.broadcast_to(core, (count, core.shape[1]))
    out = np.empty(count)
    step = max(1, SLAB_CELLS // core.shape[1])
    for start in range(0, count, step):
        part = whole[start : start + step]
        for table in tables:  # the first class of what is left is the slowest
            here = table[start : start + step]
            part = np.einsum("kc,kcr->kr", here, part.reshape(len(here), here.shape[1], -1))
        out[start : start + step] = part[:, 0]
    return out


def _kron_pieces(tables: Sequence[Dense | Eye], core: Array) -> Iterator[Array]:
    """(⊗ tables)·core in pieces of whole rows of the first table, so that memory stays bounded."""
    head, *tail = tables or [Eye(1)]
    rest = Kron(tuple(tail)) if tail else Eye(1)
    rows = core.reshape(head.shape[1], -1, 1)
    step = max(1, (SLAB_CELLS << 2) // max(rest.shape[0], 1))
    if isinstance(head, Eye):
        yield from (rest.along(rows[start : start + step]).ravel() for start in range(0, len(rows), step))
        return
    inner = rest.along(rows)[:, :, 0]
    yield from ((head.array[start : start + step] @ inner).ravel() for start in range(0, len(head.array), step))
