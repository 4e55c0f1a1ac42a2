"""Strategy: what is measured, and what that says about any workload, before any data is seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, final

from hdmm.domain import Domain
from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Eye, Kron, Matrix, Ones, Permuted, Scaled, Stack, column_norms, largest_column_norm
from hdmm.matrix.largest import Coefficient
from hdmm.privacy import Noise
from hdmm.strategy.blocks import Block, Groups, unordered
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.direct import Direct
from hdmm.strategy.form import Form, NoClosedFormError
from hdmm.strategy.grid import Grid
from hdmm.strategy.grouped import Grouped
from hdmm.strategy.iterative import MOST_WRITTEN, Unknown, Written
from hdmm.strategy.residual import Residual
from hdmm.workload import Product, Workload

_MOST_TOGETHER = 1 << 20  # cells of attributes that overlapping factors join, up to which they are listed

Inference: TypeAlias = Literal["least-squares", "none"]


@final
@dataclass(frozen=True, eq=False)
class Strategy:
    """A = [θ_j · ⊗ A_j]_j: queries to measure with noise, from which the answers to a workload are derived.

    By least squares over all blocks; or, with inference "none", the blocks are the workload itself, and each is
    published as it was measured. Variances are at unit noise: one unit of variance on every measurement.

    >>> domain = Domain({"sex": ["M", "F"], "age": 4})
    >>> halves = Strategy(domain, (Block(0.5, [(0, Eye(2))]), Block(0.5, [(1, Eye(4))])))
    >>> halves.sensitivity("laplace"), round(halves.total_variance(Workload.marginals(domain, k=1)), 9)
    (1.0, 20.0)
    """

    domain: Domain
    blocks: tuple[Block, ...]
    inference: Inference = "least-squares"

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
        for block in self.blocks:
            block.check(self.domain)
        if self.inference not in ("least-squares", "none"):
            raise StrategyError(f"Inference {self.inference!r} is unknown. Use 'least-squares' or 'none'.")
        if self.inference == "least-squares":  # else the order is that of the queries
            object.__setattr__(self, "blocks", tuple(map(self.groups.ordered, self.blocks)))

    def __repr__(self) -> str:
        return f"Strategy({len(self.blocks):,} block{'s' * (len(self.blocks) > 1)} over {self.domain.size:,} cells)"

    @property
    def matrix(self) -> Matrix:
        """A, implicit."""
        stacked = stacked_blocks(self.groups.domain.shape, self._by_group)
        return stacked if self.groups.keeps_order else Permuted(stacked, unordered(self.domain, self.groups.order))

    def sensitivity(self, noise: Noise | str) -> float:
        """The largest column norm of A: L1 for Laplace, exact where A is integer; L2 for Gaussian."""
        order = Noise.of(noise).order
        largest = self.largest_norm([_exact(block.weight) ** order for block in self.blocks], order)
        if order == 2:
            return math.sqrt(largest)
        return largest if isinstance(largest, int) else float(largest)

    def largest_norm(self, coefficients: Sequence[Coefficient], order: Literal[1, 2]) -> Coefficient:
        """max over the cells c of Σ_j coefficient_j·‖A_j e_c‖, L1 or squared L2; no vector over the domain.

        Where factors on overlapping attributes join so many that their cells cannot be listed, the sum of each block's
        largest: never less, and the same if some cell has them all.
        """
        if not self.groups.trivial and self._is_wide:
            each = {A: max(column_norms(A, order).tolist()) for A in {A for b in self.blocks for _, A in b.factors}}
            largest = (math.prod([each[A] for _, A in block.factors]) for block in self.blocks)
            return sum(c * norm for c, norm in zip(coefficients, largest, strict=True))
        blocks = [block.by_axis for block in self._by_group]
        norms = {A: column_norms(A, order) for A in {A for block in blocks for A in block.values()}}
        return largest_column_norm(coefficients, [{i: norms[A] for i, A in block.items()} for block in blocks])

    def total_variance(self, workload: Workload) -> float:
        """‖W A⁺‖²_F, weights included: the summed unit-noise variance; infinite where not supported."""
        self.check_domain(workload.domain)
        return self.form.total_variance(workload.products)

    def variances(self, product: Product) -> Iterator[Array]:
        """The unit-noise variance of each query of a supported product, weight left out, in pieces."""
        self.check_domain(product.domain)
        return self.form.variances(product)

    def check_domain(self, other: Domain) -> None:
        """StrategyError unless a workload's domain is the strategy's."""
        if self.domain != other:
            raise StrategyError(
                f"The strategy is over ({', '.join(self.domain.names)}) and the workload over "
                f"({', '.join(other.names)}). Build both on one Domain."
            )

    def weighted(self, weights: Sequence[float]) -> Strategy:
        """The same strategy with other weights of its blocks."""
        return replace(self, blocks=tuple(Block(w, b.factors) for b, w in zip(self.blocks, weights, strict=True)))

    @cached_property
    def form(self) -> Form:
        """What the strategy says about any workload; `form_of` chooses it."""
        return form_of(self)

    @cached_property
    def groups(self) -> Groups:
        """The attributes that blocks touch together."""
        return Groups.of(self.domain, self.blocks)

    @cached_property
    def _is_wide(self) -> bool:
        """Whether factors that overlap join attributes of too many cells to list."""
        shape = self.domain.shape
        largest = max(math.prod(shape[i] for i in group) for group in self.groups.groups if len(group) > 1)
        return largest > _MOST_TOGETHER and self.groups.overlap(self.blocks)

    @property
    def _by_group(self) -> tuple[Block, ...]:
        return self.blocks if self.groups.trivial else tuple(map(self.groups.block, self.blocks))


def form_of(strategy: Strategy, precisions: Sequence[float] | None = None) -> Form:
    """The form in which a strategy's variances are computed, of the first of these kinds that it has.

    At unit noise; or with the precision (one over the variance) of the measurements of each block, weights left out.

    Direct without inference; Residual where factors on several attributes see no totals, one block per set of
    attributes; Grouped where other factors sit on several attributes; Diagonal for one product, for two, and
    for any number whose factors diagonalise together on each attribute (marginals, marginals over bases, hierarchies
    of nested splits); Grid for trees of squares; Written on up to 4096 cells; Unknown, without variances, beyond.

    >>> form_of(Strategy.identity(Domain({"x": 2}))).__class__.__name__
    'Diagonal'
    """
    if precisions is not None:
        strategy = strategy.weighted([math.sqrt(precision) for precision in precisions])
    if strategy.inference == "none":
        return Direct(strategy.domain, strategy.blocks)
    groups = strategy.groups
    if groups.trivial:
        return _least_squares(strategy.domain, strategy.blocks)
    residual = Residual.of(strategy.domain, strategy.blocks)
    if residual is not None:
        return residual
    return Grouped(groups, _least_squares(groups.domain, tuple(map(groups.block, strategy.blocks))))


def stacked_blocks(shape: Sequence[int], blocks: Sequence[Block]) -> Matrix:
    """The matrix of blocks whose factors sit on one attribute each, attributes of these sizes."""
    totals = [Ones(1, n) for n in shape]
    stacked: list[Matrix] = []
    for block in blocks:
        active = block.by_axis
        kron = Kron(tuple(active.get(i, total) for i, total in enumerate(totals)))
        stacked.append(kron if block.weight == 1 else Scaled(block.weight, kron))
    return stacked[0] if len(stacked) == 1 else Stack(tuple(stacked))


def _least_squares(domain: Domain, blocks: tuple[Block, ...]) -> Form:
    try:
        return Diagonal.of(domain, blocks)
    except NoClosedFormError as without:
        grid = Grid.of(domain, blocks)
        if grid is not None:
            return grid
        if domain.size <= MOST_WRITTEN:
            return Written.of(domain, blocks, stacked_blocks(domain.shape, blocks))
        return Unknown(str(without), domain, blocks)


def _exact(weight: float) -> int | float:
    return int(weight) if float(weight).is_integer() else float(weight)
