"""Strategy: what is measured, and what that says about any workload, before any data is seen."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from hdmm.domain import Domain
from hdmm.exceptions import StrategyError
from hdmm.matrix import Array, Eye, Kron, Matrix, Ones, Scaled, Stack, column_norms, largest_column_norm
from hdmm.predicates import PredicateSet
from hdmm.privacy import Noise
from hdmm.strategy.diagonal import Block, DiagonalForm, NoClosedFormError
from hdmm.strategy.iterative import MAX_CELLS, DenseForm
from hdmm.workload import Product, Workload

_PIECE = 1 << 22


class Strategy(ABC):
    """Queries to measure with noise, from which the answers to a workload are derived.

    Variances here are at unit noise: one unit of variance on every measurement. `hdmm.error` multiplies them
    by the squared sensitivity and the privacy's variance factor.
    """

    domain: Domain

    @property
    @abstractmethod
    def matrix(self) -> Matrix:
        """A, implicit."""

    @abstractmethod
    def sensitivity(self, noise: Noise | str) -> float:
        """The largest column norm of A: L1 for Laplace, exact where A is integer; L2 for Gaussian."""

    @abstractmethod
    def total_variance(self, workload: Workload) -> float:
        """‖W A⁺‖²_F, weights included: the summed unit-noise variance; infinite where not supported."""

    @abstractmethod
    def variances(self, product: Product) -> Iterator[Array]:
        """The unit-noise variance of each query of a supported product, weight left out, in pieces."""

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        """The covariance at unit noise of query rows[k] of one product with others[k] of another, weights left out."""
        raise StrategyError(f"Covariances of a {type(self).__name__} are not known. Ask for variances.")


@final
@dataclass(frozen=True, eq=False)
class BlockStrategy(Strategy):
    """A = [θ_j · A_j1 ⊗ … ⊗ A_jd]_j answered by least squares, through its diagonal form.

    The form exists for one product, for two, and for any number whose factors diagonalise together on each
    attribute: marginals, marginals over bases, hierarchies of nested splits. Others are exact up to 4096 cells, by
    dense algebra; beyond, `hdmm.strategy.iterative` estimates their error.

    >>> domain = Domain({"sex": ["M", "F"], "age": 4})
    >>> halves = BlockStrategy(domain, (Block(0.5, ((0, Eye(2)),)), Block(0.5, ((1, Eye(4)),))))
    >>> halves.sensitivity("laplace"), round(halves.total_variance(Workload.marginals(domain, k=1)), 9)
    (1.0, 20.0)
    """

    domain: Domain
    blocks: tuple[Block, ...]

    def __repr__(self) -> str:
        return (
            f"BlockStrategy({len(self.blocks):,} block{'s' * (len(self.blocks) > 1)} over {self.domain.size:,} cells)"
        )

    @classmethod
    def identity(cls, domain: Domain) -> BlockStrategy:
        """A = I: every cell measured once."""
        return cls(domain, (Block(1.0, tuple((i, Eye(n)) for i, n in enumerate(domain.shape))),))

    def __post_init__(self) -> None:
        if not self.blocks:
            raise StrategyError("The strategy has no blocks. Measure at least the total.")
        for block in self.blocks:
            _check_block(block, self.domain)

    @property
    def matrix(self) -> Matrix:
        totals = [Ones(1, n) for n in self.domain.shape]
        blocks: list[Matrix] = []
        for block in self.blocks:
            active = dict(block.factors)
            kron = Kron(tuple(active.get(i, total) for i, total in enumerate(totals)))
            blocks.append(kron if block.weight == 1 else Scaled(block.weight, kron))
        return blocks[0] if len(blocks) == 1 else Stack(tuple(blocks))

    def sensitivity(self, noise: Noise | str) -> float:
        weights = [block.weight for block in self.blocks]
        return _sensitivity(weights, [dict(block.factors) for block in self.blocks], Noise.of(noise))

    def total_variance(self, workload: Workload) -> float:
        _check_domain(self.domain, workload.domain)
        return self._form.total_variance(workload.products)

    def variances(self, product: Product) -> Iterator[Array]:
        _check_domain(self.domain, product.domain)
        return self._form.variances(product)

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        return self._form.covariances(first, rows, second, others)

    @cached_property
    def _form(self) -> DiagonalForm | DenseForm:
        try:
            return DiagonalForm.of(self.domain, self.blocks)
        except NoClosedFormError:
            if self.domain.size > MAX_CELLS:
                raise
            return DenseForm.of(self.matrix)


@final
@dataclass(frozen=True, eq=False)
class DirectStrategy(Strategy):
    """The workload itself, measured and published as it is: no inference, so no other query has an answer.

    >>> w = Workload.marginals(Domain({"age": 4}), k=range(2))
    >>> DirectStrategy(w).sensitivity("laplace"), DirectStrategy(w).total_variance(w)
    (2, 5.0)
    """

    workload: Workload

    @property
    def domain(self) -> Domain:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.workload.domain

    @property
    def matrix(self) -> Matrix:
        return self.workload.matrix

    def sensitivity(self, noise: Noise | str) -> float:
        shape, products = self.domain.shape, self.workload.products
        factors = [{i: p.matrix(shape[i]) for i, p in product.factors} for product in products]
        return _sensitivity([product.weight for product in products], factors, Noise.of(noise))

    def total_variance(self, workload: Workload) -> float:
        _check_domain(self.domain, workload.domain)
        return math.fsum(
            product.queries * product.weight**2 * self._variance.get(product.factors, math.inf)
            for product in workload.products
            if product.weight > 0
        )

    def variances(self, product: Product) -> Iterator[Array]:
        _check_domain(self.domain, product.domain)
        for start in range(0, product.queries, _PIECE):
            yield np.full(min(_PIECE, product.queries - start), self._variance[product.factors])

    def covariances(self, first: Product, rows: Array, second: Product, others: Array) -> Array:
        if first.factors != second.factors:
            return np.zeros(len(rows))
        return np.where(rows == others, self._variance[first.factors], 0.0)

    @cached_property
    def _variance(self) -> dict[tuple[tuple[int, PredicateSet], ...], float]:
        """The variance of a query of each product, from the one measurement of largest weight."""
        weights: dict[tuple[tuple[int, PredicateSet], ...], float] = {}
        for product in self.workload.products:
            if product.weight > 0:
                weights[product.factors] = max(product.weight, weights.get(product.factors, 0.0))
        return {factors: weight**-2 for factors, weight in weights.items()}


def _sensitivity(weights: Sequence[float], factors: Sequence[dict[int, Matrix]], noise: Noise) -> float:
    """The largest column norm of stacked products, without a vector over the domain."""
    order = noise.order
    norms = {A: column_norms(A, order) for A in {A for block in factors for A in block.values()}}
    exact = [int(w) if float(w).is_integer() else float(w) for w in weights]
    largest = largest_column_norm(
        [w**order for w in exact], [{i: norms[A] for i, A in block.items()} for block in factors]
    )
    if noise is Noise.GAUSSIAN:
        return math.sqrt(largest)
    return largest if isinstance(largest, int) else float(largest)


def _check_domain(own: Domain, other: Domain) -> None:
    if own != other:
        raise StrategyError(
            f"The strategy is over ({', '.join(own.names)}) and the workload over ({', '.join(other.names)}). "
            "Build both on one Domain."
        )


def _check_block(block: Block, domain: Domain) -> None:
    if not (math.isfinite(block.weight) and block.weight > 0):
        raise StrategyError(f"A block has weight {block.weight}. Weights are finite and above 0; drop the block?")
    previous = -1
    for i, A in block.factors:
        if not previous < i < len(domain):
            raise StrategyError(f"A block lists axis {i} out of order or outside 0 to {len(domain) - 1}.")
        if A.shape[1] != domain.shape[i]:
            raise StrategyError(
                f"Attribute {domain.names[i]!r} has {domain.shape[i]} values but a block's matrix has "
                f"{A.shape[1]} columns."
            )
        previous = i
