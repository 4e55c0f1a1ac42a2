"""Strategy: what is measured, and what that says about any workload, before any data is seen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import Groups, PredicateSet
from hdmm.describe.product import Attributes, Product
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Eye, Matrix, Ones, Repeated, Residual, column_norms, largest_column_norm
from hdmm.matrix.sensitivity import Coefficient
from hdmm.privacy.guarantee import Noise
from hdmm.strategy.axis import axis_of
from hdmm.strategy.axis_groups import AxisGroups, Tabulated
from hdmm.strategy.blocks import Block, BlockTable, sharing
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.form import Direct, Form, NoClosedFormError, NoForm
from hdmm.strategy.informed import SURE, Leveled, WithExactBlocks, needed
from hdmm.strategy.mixture import SLAB_CELLS
from hdmm.strategy.orthogonal import Orthogonal
from hdmm.strategy.subsets import subsets

_MOST_TOGETHER = 1 << 20  # cells of attributes that overlapping factors join, up to which they are listed

Inference: TypeAlias = Literal["least-squares", "none"]


@final
@dataclass(frozen=True, eq=False)
class Strategy:
    """A = [θ_j · ⊗ A_j]_j: queries to measure with noise, from which the answers to a workload are derived.

    Answers are by least squares over all blocks. With inference "none", the blocks are the workload itself, and each is
    published as it was measured. Variances are at unit noise: one unit of variance on every measurement. `known` are
    products, by values or by groups of them, whose answers are public; they need not be measured, and have no noise.

    >>> domain = Domain({"sex": ["M", "F"], "age": 4})
    >>> halves = Strategy(domain, (Block(0.5, [(0, Eye(2))]), Block(0.5, [(1, Eye(4))])))
    >>> halves.sensitivity("laplace"), round(halves.total_variance(Workload.marginals(domain, k=1)), 9)
    (1.0, 20.0)
    """

    domain: Domain
    blocks: Sequence[Block]
    inference: Inference = "least-squares"
    known: tuple[Product, ...] = ()

    @classmethod
    def identity(cls, domain: Domain) -> Strategy:
        """A = I: every cell measured once."""
        return cls(domain, (Block(1.0, [(i, Eye(n)) for i, n in enumerate(domain.shape)]),))

    @classmethod
    def direct(cls, workload: Workload) -> Strategy:
        """The workload itself, measured and published as it is: no other query has an answer.

        >>> w = Workload.marginals(Domain({"age": 4}), k=range(2))
        >>> Strategy.direct(w).sensitivity("laplace"), Strategy.direct(w).total_variance(w)
        (2, 5.0)
        """
        blocks = [
            Block(product.weight, [(axes, p.matrix(product.cells(axes))) for axes, p in product.sets])
            for product in workload.products
            if product.weight > 0
        ]
        if not blocks:
            raise StrategyError("The strategy measures nothing: every product of the workload has weight 0.")
        return cls(workload.domain, tuple(blocks), "none")

    def __post_init__(self) -> None:
        if not self.blocks:
            raise StrategyError("The strategy has no blocks. Measure at least the total.")
        in_order = self.table.check(self.domain)
        if self.inference not in ("least-squares", "none"):
            raise StrategyError(f"Inference {self.inference!r} is unknown. Use 'least-squares' or 'none'.")
        if self.known and self.inference == "none":
            raise StrategyError(
                "The strategy publishes its queries as they were measured, so known counts cannot inform them. Use "
                "least squares, or leave out the known counts."
            )
        # Without inference, the order is that of the queries.
        if self.inference == "least-squares" and not (in_order and self.groups.trivial):
            object.__setattr__(self, "blocks", tuple(map(self.groups.ordered, self.blocks)))
            del self.__dict__["table"]

    def __repr__(self) -> str:
        return f"Strategy({len(self.blocks):,} block{'s' * (len(self.blocks) > 1)} over {self.domain.size:,} cells)"

    @property
    def matrix(self) -> Matrix:
        """A, implicit."""
        return self.groups.stacked(self.blocks)

    def sensitivity(self, noise: Noise | str) -> float:
        """The largest column norm of A: L1 for Laplace, exact if A is integer; L2 for Gaussian."""
        order = Noise.of(noise).order
        if order not in self._sensitivities:
            distinct, place = np.unique(self.table.weights, return_inverse=True)
            powers = [_exact(weight) ** order for weight in distinct.tolist()]
            largest = self.largest_norm([powers[k] for k in place.tolist()], order)
            if order == 2:
                self._sensitivities[order] = math.sqrt(largest)
            else:
                self._sensitivities[order] = largest if isinstance(largest, int) else float(largest)
        return self._sensitivities[order]

    def largest_norm(self, coefficients: Sequence[Coefficient], order: Literal[1, 2]) -> Coefficient:
        """max over the cells c of Σ_j coefficient_j·‖A_j e_c‖, L1 or squared L2; no vector over the domain.

        If factors on overlapping attributes join so many that their cells cannot be listed, it is the sum of each
        block's largest norm: never less, and the same if some cell has them all.
        """
        if not self.groups.trivial and self._is_wide:
            return _dot(coefficients, self.norms(order).tolist())
        if not self.groups.trivial:
            blocks = [block.by_axis for block in self.groups.blocks(self.blocks)]
            norms = {A: column_norms(A, order) for A in {A for block in blocks for A in block.values()}}
            return largest_column_norm(coefficients, [{i: norms[A] for i, A in block.items()} for block in blocks])
        known = {A: column_norms(A, order) for A in {A for _, A in self.table.distinct}}
        vectors = [known[A] for _, A in self.table.distinct]
        alike = [_constant(v) for v in vectors]
        # Blocks whose columns all have one norm add the same to every cell: of 166,751 no more than their sum is left.
        plain = self.table.products([int(c is not None) for c in alike]) == 1
        norms = self.table.products([c or 0 for c in alike])[plain].tolist()
        everywhere = _dot([c for c, here in zip(coefficients, plain.tolist(), strict=True) if here], norms)
        others = np.flatnonzero(~plain).tolist()
        profiles = [self.table.factors(j, vectors) for j in others]
        return largest_column_norm([everywhere, *(coefficients[j] for j in others)], [{}, *profiles])

    def shares(self, noise: Noise) -> Array:
        """The share of the budget that each block costs: its largest column norm, squared for Gaussian noise."""
        costs = self.table.weights**noise.order * self.norms(noise.order)
        return np.asarray(costs / costs.sum(), dtype=np.float64)

    def total_variance(self, workload: Workload) -> float:
        """‖W A⁺‖²_F, weights included: the summed unit-noise variance; infinite if not supported."""
        self.check_domain(workload.domain)
        return self.form.total_variance(workload.products)

    def variances(self, product: Product) -> Iterator[Array]:
        """The unit-noise variance of each query of a supported product, without its weight, in pieces."""
        self.check_domain(product.domain)
        return self.form.variances(product)

    def check_domain(self, other: Domain) -> None:
        """Raise StrategyError unless a workload's domain is the strategy's."""
        if self.domain != other:
            raise StrategyError(
                f"The strategy is over ({', '.join(self.domain.names)}), but the workload is over "
                f"({', '.join(other.names)}). Build both on one Domain."
            )

    def weighted(self, weights: Sequence[float]) -> Strategy:
        """The same strategy with other weights of its blocks."""
        return replace(self, blocks=replace(self.table, weights=np.array(weights)))

    @cached_property
    def form(self) -> Form:
        """What the strategy says about any workload; `form_of` chooses it."""
        return form_of(self)

    @cached_property
    def groups(self) -> AxisGroups:
        """The attributes that blocks touch together."""
        return AxisGroups.of(self.domain, [axes for axes, _ in self.table.distinct])

    @cached_property
    def table(self) -> BlockTable:
        """The blocks as arrays."""
        return BlockTable.of(self.blocks)

    @cached_property
    def _sensitivities(self) -> dict[int, float]:
        return {}

    @cached_property
    def _is_wide(self) -> bool:
        """Whether factors that overlap join attributes of too many cells to list."""
        shape = self.domain.shape
        largest = max(math.prod(shape[i] for i in group) for group in self.groups.groups if len(group) > 1)
        return largest > _MOST_TOGETHER and self.groups.overlap(self.blocks)

    def norms(self, order: Literal[1, 2]) -> Array:
        """The largest column norm, L1 or squared L2, of each block without its weight; exact for integers."""
        known = {A: max(column_norms(A, order).tolist()) for A in {A for _, A in self.table.distinct}}
        return self.table.products([known[A] for _, A in self.table.distinct])


def form_of(strategy: Strategy, precisions: Sequence[float] | None = None) -> Form:
    """The form in which a strategy's variances are computed: the first of the kinds below that applies.

    It is at unit noise or, without weights, at the given precision (one over the variance) of each block.

    WithExactBlocks beside known counts; Direct without inference; Orthogonal if factors on several attributes, or with
    repeated columns, see parts that are apart. Otherwise a ClassForm: for one product, for two, and for any number
    whose factors diagonalise together on each attribute (marginals, marginals over bases, hierarchies of nested
    splits); where they do on all attributes but one; for trees of squares; and on up to 4096 cells. Beyond, NoForm.

    >>> len(form_of(Strategy.identity(Domain({"x": 2}))).axes)
    1
    """
    if precisions is not None:
        strategy = strategy.weighted([math.sqrt(precision) for precision in precisions])
    if strategy.known:
        return _informed(strategy)
    if strategy.inference == "none":
        return Direct(strategy.domain, strategy.blocks)
    blocks = sharing(strategy.table)
    plain = strategy.groups.trivial and not any(isinstance(A, Repeated) for _, A in blocks.distinct)
    return (None if plain else Orthogonal.of(strategy.domain, blocks)) or _class_form(strategy, blocks)


def diagonal_form(strategy: Strategy) -> ClassForm | None:
    """The form of a strategy whose blocks all diagonalise together, without known counts; None for others."""
    if strategy.known or strategy.inference == "none":
        return None
    with suppress(NoClosedFormError):
        return ClassForm.diagonal(Tabulated.of(strategy.groups, sharing(strategy.table)))
    return None


def _class_form(strategy: Strategy, blocks: BlockTable) -> ClassForm | NoForm:
    table = Tabulated.of(strategy.groups, blocks)
    try:
        return ClassForm.diagonal(table)
    except NoClosedFormError as without:
        found = ClassForm.grid(table) or ClassForm.coupled(table) or ClassForm.whole(strategy.domain, blocks)
        return found or NoForm(strategy.domain, blocks, str(without))


def _informed(strategy: Strategy) -> WithExactBlocks:
    """The form of a strategy that knows some counts: the first of four that there is (strategy/informed.py)."""
    domain, known, plain = strategy.domain, strategy.known, replace(strategy, known=())
    if any(isinstance(p, Groups) for product in known for _, p in product.factors):
        if (leveled := _leveled(strategy)) is not None:
            return leveled
    elif (spaces := _residual_blocks(strategy)) is not None:
        form = form_of(Strategy(domain, (*strategy.blocks, *spaces)))
        return WithExactBlocks(domain, strategy.blocks, form, spaces)
    else:
        blocks = [Block(SURE, [*_bases(strategy, product.axes)]) for product in known]
        sure = Strategy(domain, (*strategy.blocks, *blocks))
        form = diagonal_form(sure)
        if form is not None and _measured_whole(form, len(blocks)):
            return WithExactBlocks(domain, sure.blocks[: -len(blocks)], form, sure.blocks[-len(blocks) :])
    # What is known by attributes that are never measured says nothing about measurements, except for its sums.
    seen = {i for block in strategy.blocks for i in block.axes}
    products = needed([Product(domain, tuple([f for f in each.factors if f[0] in seen])) for each in known])
    norms = np.sqrt(strategy.norms(2).astype(np.float64))
    heaviest = float((strategy.table.weights * norms).max())  # on the scale of what is measured
    queries = [Block(heaviest, [(i, p.matrix(domain.shape[i])) for i, p in each.factors]) for each in products]
    stacked = Strategy(domain, (*strategy.blocks, *queries))
    for each, is_stacked in ((plain, False), (stacked, True)):
        found = each.form
        if found.closed and math.isfinite(found.total_variance(products)):
            measured, determined = stacked.blocks[: -len(queries)], stacked.blocks[-len(queries) :]
            return WithExactBlocks(domain, measured, found, determined, known, products, is_stacked)
    raise StrategyError(
        "What the strategy measures and the known counts have no common form, on too many cells to write out, so there "
        "would be no margins of error. Leave out these known counts, or give them by fewer attributes, such as the "
        "total."
    )


def _leveled(strategy: Strategy) -> WithExactBlocks | None:
    """The diagonal form of a strategy that knows groups of values, if its attributes have a base each (`Leveled`)."""
    domain, table, own = strategy.domain, sharing(strategy.table), dict[int, list[Matrix]]()
    if not strategy.groups.trivial:
        return None
    for (i,), A in table.distinct:
        if Ones(1, domain.shape[i]) != A and not any(A is other for other in own.get(i, ())):
            own.setdefault(i, []).append(A)
    levels: dict[int, dict[Groups, None]] = {}
    for i, p in (factor for product in strategy.known for factor in product.factors):
        if isinstance(p, Groups):
            levels.setdefault(i, {})[p] = None
    made: dict[int, tuple[list[Groups], Leveled]] = {}
    for i, each in levels.items():
        bases, ordered = own.get(i, [Eye(domain.shape[i])]), sorted(each, key=lambda p: len(p.names))
        found = Leveled.of(bases[0], [np.asarray(p.codes) for p in ordered]) if len(bases) == 1 else None
        if found is None:
            return None
        made[i] = ordered, found

    def factor(i: int, p: PredicateSet) -> Matrix:
        ordered, found = made[i]
        return found.rows[ordered.index(p)] if isinstance(p, Groups) else found.cells

    blocks: list[Block] = []
    for product in strategy.known:
        plain = _bases(strategy, [i for i in product.axes if i not in made])
        known_groups = (((i,), factor(i, p)) for i, p in product.factors if i in made)
        blocks.append(Block(SURE, sorted([*plain, *known_groups], key=lambda f: f[0])))
    try:
        tabulated = Tabulated.of(strategy.groups, (*table, *blocks))
        form = ClassForm.diagonal(tabulated, {i: found.axis for i, (_, found) in made.items()})
    except NoClosedFormError:
        return None
    if form.lam.cells > SLAB_CELLS or not _measured_whole(form, len(blocks), except_on=made):
        return None
    return WithExactBlocks(domain, table, form, blocks, strategy.known)


def _residual_blocks(strategy: Strategy) -> tuple[Block, ...] | None:
    """The residual spaces of the known marginals, if the strategy measures such spaces only, and none of these.

    Each is then measured once and by itself, however large its attributes are.
    """
    shape = strategy.domain.shape
    known = [product.axes for product in strategy.known]
    spaces = {b: None for axes in known for b in subsets(axes)}
    residual = all(isinstance(A, Residual) for _, A in strategy.table.distinct)
    if not residual or any(block.axes in spaces for block in strategy.blocks):
        return None
    return tuple(Block(SURE, [(i, Residual(shape[i])) for i in b]) for b in spaces)


def _measured_whole(form: ClassForm, count: int, *, except_on: Container[int] = ()) -> bool:
    """Whether the last blocks measure all classes of each attribute on which they are not totals."""
    chosen = enumerate(zip(form.axes, form.lam.choices[-count:].T.tolist(), strict=True))
    columns = [each for i, each in chosen if i not in except_on]
    pairs = {(axis, k) for axis, column in columns for k in column if k != axis.total}
    return all((axis.delta[:, k] > 0).all() for axis, k in pairs)


def _bases(strategy: Strategy, axes: Sequence[int]) -> Iterator[tuple[Attributes, Matrix]]:
    """Factors that measure all cells of some attributes: the strategy's own if it has one that does, else identities.

    Any such factor says the same about a marginal that is known; the strategy's own diagonalises with the rest.
    """
    shape, distinct = strategy.domain.shape, strategy.table.distinct
    joint = [group for group in strategy.groups.groups if len(group) > 1 and set(group) <= set(axes)]
    alone = [(i,) for i in axes if not any(i in group for group in joint)]
    for group in (*joint, *alone):
        n = math.prod(shape[i] for i in group)
        own = [A for held, A in distinct if held == group and Ones(1, n) != A]
        axis = axis_of((own[0], Ones(1, n))) if len(own) == 1 and n > 1 else None
        yield group, own[0] if axis is not None and (axis.delta[:, 0] > 0).all() else Eye(n)


def _constant(norms: Array) -> int | None:
    """The one whole number that all norms are, if they are."""
    return int(norms[0]) if norms.dtype.kind in "iu" and len(norms) and (norms == norms[0]).all() else None


def _dot(coefficients: Sequence[Coefficient], norms: Sequence[int | float]) -> Coefficient:
    """Σ coefficient·norm; exact unless a coefficient is a float."""
    if any(isinstance(c, float) for c in coefficients):
        return math.fsum(float(c) * norm for c, norm in zip(coefficients, norms, strict=True))
    ratios = [c.as_integer_ratio() for c in coefficients]  # to hash fractions takes several times as long
    numbers, counted = dict(zip(ratios, coefficients, strict=True)), Counter(zip(ratios, norms, strict=True))
    return sum((numbers[ratio] * norm * times for (ratio, norm), times in counted.items()), start=0)


def _exact(weight: float) -> int | float:
    return int(weight) if float(weight).is_integer() else float(weight)
