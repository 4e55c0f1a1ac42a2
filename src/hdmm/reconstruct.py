"""What the measurements say about every cell, by generalised least squares: Release → Estimate.

x̂ = Σ_c (⊗ Z_c)Aᵀy / λ_c over the classes of the diagonal form (strategy/diagonal.py). An attribute where blocks either
measure one base or total is *split* into coordinates: the one direction Total sees, and n − 1 residuals. A marginal
then needs only the coordinates of its own attributes: x̂ over the domain is never built for marginal strategies.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce, singledispatch
from typing import TypeAlias, final

import numpy as np

from hdmm.coordinates import Axis, Cells, Eigen, Split, coordinates
from hdmm.domain import Domain
from hdmm.exceptions import StrategyError
from hdmm.lattice import kron_slabs
from hdmm.matrix import (
    Array,
    Chain,
    Dense,
    Eye,
    Matrix,
    Ones,
    gram,
)
from hdmm.matrix.checks import frozen
from hdmm.strategy.base import stacked_blocks
from hdmm.strategy.blocks import Block, Groups
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.direct import Direct
from hdmm.strategy.form import Form
from hdmm.strategy.grid import Grid
from hdmm.strategy.grouped import Grouped
from hdmm.strategy.iterative import Iterative, Written, solved
from hdmm.workload import Product

Axes: TypeAlias = tuple[int, ...]

_WHOLE = 1 << 27  # coordinates kept as one array where one block measures all attributes: 1 GiB, or as its answers
_MAX_CELLS = 1 << 31  # of an estimated table: 16 GiB
_MAX_SOLVED = 1 << 27  # cells up to which strategies without a closed form are solved by iteration
_TOLERANCE = 1e-10  # of that solver
_UNSEEN = 1e-3  # of a probe's answers, far above the solver's error


class Estimate(ABC):
    """Estimated counts; `values` answers a product that the strategy supports."""

    @abstractmethod
    def values(self, product: Product) -> Array:
        """The estimated answer to each query of the product, its weight left out, in query order."""


@singledispatch
def reconstruct(form: Form, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """The least-squares estimate from noisy answers to the blocks of a form, one rule per kind of form.

    Block j of weight ω_j was answered as answers[j] · units[j], with noise of variance 1/ω_j². O(d · cells) for
    products and unions of two, O(Σ_j 2^|a_j| + cells of the blocks) for marginals on attributes a_j.

    >>> from hdmm import Workload
    >>> from hdmm.strategy.base import Strategy
    >>> halves = Strategy(Domain({"x": 2}), (Block(1.0, [(0, Eye(2))]), Block(1.0, ())))
    >>> w = Workload.marginals(halves.domain, k=1)
    >>> reconstruct(halves.form, [np.array([3, 4]), np.array([10])], [1.0, 1.0]).values(w.products[0])
    array([4., 5.])
    """
    raise StrategyError(f"There is no rule for estimates from a {type(form).__name__}. This is a fault of hdmm.")


@reconstruct.register
def _(form: Diagonal, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    shape = form.domain.shape
    blocks = _without_totals(shape, form.blocks)
    axes = coordinates(shape, blocks)
    whole = _covering(shape, blocks, axes)
    return (_whole if whole else _parted)(form.domain, blocks, axes, answers, units)


@reconstruct.register
def _(form: Grouped, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    return GroupedEstimate(form.groups, reconstruct(form.inner, answers, units))


@reconstruct.register
def _(form: Direct, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    return _DirectEstimate(form, answers, units)


@reconstruct.register
def _(form: Grid, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    y = in_unit_noise(form.blocks, answers, units)
    A = stacked_blocks(form.domain.shape, form.blocks)
    x = form.gram_inverse.matmat(A.T.matmat(y[:, None]))
    return in_cells(form.domain, range(len(form.domain)), x)


@reconstruct.register(Written)
@reconstruct.register(Iterative)
def _(form: Written | Iterative, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    return _iterated(form.domain, _without_totals(form.domain.shape, form.blocks), answers, units)


def in_cells(domain: Domain, axes: Sequence[int], x: Array) -> CellEstimate:
    """The estimate that is x on the cells of these attributes; of the others only totals are known."""
    kinds: dict[int, Axis] = {i: Cells(Eye(domain.shape[i])) for i in axes}
    return CellEstimate(domain, kinds, x.reshape([domain.shape[i] for i in axes]))


def in_unit_noise(blocks: Sequence[Block], answers: Sequence[Array], units: Sequence[float]) -> Array:
    """The answers to all rows of the blocks, one below the other, each with noise of variance 1."""
    parts = zip(answers, units, blocks, strict=True)
    return np.concatenate([np.ravel(answer) * (unit * block.weight) for answer, unit, block in parts])


def _without_totals(shape: Sequence[int], blocks: Sequence[Block]) -> list[Block]:
    """The same blocks, of which none lists an attribute that it totals."""
    totals = [Ones(1, n) for n in shape]
    return [Block(b.weight, [(i, A) for i, A in b.by_axis.items() if totals[i] != A]) for b in blocks]


def _covering(shape: Sequence[int], blocks: Sequence[Block], axes: dict[int, Axis]) -> bool:
    """Whether one block measures every attribute that any does, on few cells, or with as many answers as cells."""
    cells = math.prod(shape[i] for i in axes)
    return any(cells <= max(_WHOLE, block.rows) for block in blocks if len(block.factors) == len(axes))


@final
@dataclass(frozen=True, slots=True, eq=False)
class CellEstimate(Estimate):
    """Coordinates T over the attributes `axes`: cells, except on split attributes."""

    domain: Domain
    axes: dict[int, Axis]
    T: Array

    def values(self, product: Product) -> Array:
        active = dict(product.factors)
        index = tuple(0 if isinstance(a, Split) and i not in active else slice(None) for i, a in self.axes.items())
        left = [i for i, at in zip(self.axes, index, strict=True) if at != 0]
        summed = tuple(k for k, i in enumerate(left) if i not in active)
        T = self.T[index]
        return _queries(product, self.axes, T.sum(axis=summed) if summed else T)


@final
@dataclass(frozen=True, eq=False)
class _SolvedEstimate(Estimate):
    """Cells found by iteration, which would answer any query; those that A does not support are refused."""

    A: Matrix
    cells: CellEstimate

    def values(self, product: Product) -> Array:
        probe, unseen = self._unseen
        off = np.abs(replace(self.cells, T=unseen).values(product)).max(initial=0.0)
        if off > _UNSEEN * np.abs(replace(self.cells, T=probe).values(product)).max(initial=0.0):
            raise StrategyError(
                f"The strategy does not measure everything that product ({product}) asks for, so it has no answer. Add "
                "the missing queries to the strategy, or optimise one for this workload."
            )
        return self.cells.values(product)

    @cached_property
    def _unseen(self) -> tuple[Array, Array]:
        """Numbers g in (0, 1) without a pattern, and d = g − A⁻Ag: Ad = 0, so Wd = 0 where A supports W."""
        shape = self.cells.T.shape
        g = np.modf(np.arange(1, self.A.shape[1] + 1, dtype=np.float64) ** 2 * math.sqrt(2))[0]
        seen = solved(gram(self.A), gram(self.A).matmat(g[:, None]), _TOLERANCE)[:, 0]
        return g.reshape(shape), (g - seen).reshape(shape)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _PartEstimate(Estimate):
    """Coordinates by component: what only the split attributes b see together, beside all other attributes."""

    domain: Domain
    axes: dict[int, Axis]
    parts: dict[Axes, Array]

    def values(self, product: Product) -> Array:
        active = dict(product.factors)
        kept = [i for i in self.axes if i in active]
        split = [i for i in kept if isinstance(self.axes[i], Split)]
        shape = self.domain.shape
        cells = math.prod(shape[i] for i in kept)
        if cells > _MAX_CELLS:
            raise StrategyError(
                f"These queries need an estimated table of {cells:.1e} cells. Ask for fewer attributes."
            )
        T = np.zeros([shape[i] for i in kept])
        whole = [i for i, a in self.axes.items() if not isinstance(a, Split)]
        for b in itertools.chain.from_iterable(itertools.combinations(split, k) for k in range(len(split) + 1)):
            part = self.parts.get(b)
            if part is None:
                continue  # not measured: 0, or the queries are not supported
            over = sorted({*b, *whole})
            summed = tuple(k for k, i in enumerate(over) if i not in active)
            index = tuple((slice(1, None) if i in b else 0) if i in split else slice(None) for i in kept)
            T[index] = part.sum(axis=summed) if summed else part
        return _queries(product, self.axes, T)


@final
@dataclass(frozen=True, slots=True, eq=False)
class GroupedEstimate(Estimate):
    """An estimate over groups of attributes, asked about the attributes one by one."""

    groups: Groups
    inner: Estimate

    def values(self, product: Product) -> Array:
        return self.groups.restored(product, self.inner.values(self.groups.product(product)))


@final
@dataclass(frozen=True, slots=True, eq=False)
class _DirectEstimate(Estimate):
    form: Direct
    answers: Sequence[Array]
    units: Sequence[float]

    def values(self, product: Product) -> Array:
        measured = self.form.block_of(product)
        if measured is None:
            raise StrategyError(f"Product ({product}) was not measured, and without inference it has no answer.")
        return self.answers[measured] * self.units[measured]


def _whole(
    domain: Domain,
    blocks: Sequence[Block],
    axes: dict[int, Axis],
    answers: Sequence[Array],
    units: Sequence[float],
) -> Estimate:
    """All coordinates in one array: O(cells) for each block that measures all attributes, less for the others."""
    if len(blocks) == 1:  # λ is ω² times δ = 1: nothing to weigh
        (block,) = blocks
        if all(isinstance(axis, Cells) for axis in axes.values()):
            T = _coordinates(block, axes, answers[0])
            T *= units[0]
            return CellEstimate(domain, axes, T)
    shape = [domain.shape[i] for i in axes]
    T, weight = np.zeros(shape), np.zeros(shape)
    for block, y, unit in zip(blocks, answers, units, strict=True):
        X = _coordinates(block, axes, y)
        X *= block.weight**2 * unit
        active = block.by_axis
        index = tuple(0 if isinstance(a, Split) and i not in active else slice(None) for i, a in axes.items())
        T[index] += _spread(X, block, axes, values=True)
        weight[index] += _spread(_deltas(block, axes), block, axes, values=False)
    np.divide(T, weight, out=T, where=weight > 0)
    T[weight <= 0] = 0.0
    return CellEstimate(domain, _in_cells(axes), _synthesised(T, list(axes), axes))


def _parted(
    domain: Domain,
    blocks: Sequence[Block],
    axes: dict[int, Axis],
    answers: Sequence[Array],
    units: Sequence[float],
) -> Estimate:
    """Coordinates by component, each in the block that measures it."""
    parts: dict[Axes, Array] = {}
    weights: dict[Axes, Array] = {}
    for block, y, unit in zip(blocks, answers, units, strict=True):
        split = [i for i in block.axes if isinstance(axes[i], Split)]
        X = _coordinates(block, axes, y)
        X *= block.weight**2 * unit
        X, delta = _spread(X, block, axes, values=True), _spread(_deltas(block, axes), block, axes, values=False)
        over = [i for i in axes if i in block.axes or not isinstance(axes[i], Split)]
        for b in itertools.chain.from_iterable(itertools.combinations(split, k) for k in range(len(split) + 1)):
            index = tuple((slice(1, None) if i in b else 0) if i in split else slice(None) for i in over)
            # The weight is the same for all residuals of a split attribute: one of them tells.
            first = tuple((slice(1, 2) if i in b else 0) if i in split else slice(None) for i in over)
            parts[b] = parts[b] + X[index] if b in parts else X[index].copy()
            weights[b] = weights[b] + delta[first] if b in weights else delta[first].copy()
    whole = [i for i, a in axes.items() if not isinstance(a, Split)]
    for b, weight in weights.items():
        part = parts[b]
        if part.size:
            part = np.divide(part, weight, out=np.zeros_like(part), where=weight > 0)
        parts[b] = _synthesised(part, sorted({*b, *whole}), axes)
    return _PartEstimate(domain, _in_cells(axes), parts)


def _coordinates(block: Block, axes: dict[int, Axis], y: Array) -> Array:
    """The block's answers in coordinates of the attributes that it measures."""
    factors = [axes[i].analysis(A) for i, A in block.by_axis.items()]
    return kron_slabs(factors, y, np.float64).reshape([A.shape[0] for A in factors])


def _deltas(block: Block, axes: dict[int, Axis]) -> Array:
    """ω² ⊗ δ over the attributes that the block measures."""
    vectors = [axes[i].delta(A) for i, A in block.by_axis.items()]
    return reduce(np.multiply.outer, vectors, np.asarray(block.weight**2))


def _spread(X: Array, block: Block, axes: dict[int, Axis], *, values: bool) -> Array:
    """X with the attributes where the block totals and the coordinates are eigenvectors put in: Qᵀ1, or its δ."""
    active = block.by_axis
    over = [i for i in axes if i in active or isinstance(axes[i], Eigen)]
    for place, i in enumerate(over):
        axis = axes[i]
        if i not in active and isinstance(axis, Eigen):
            vector = axis.Q.sum(axis=0) if values else axis.delta(Ones(1, len(axis.Q)))
            shape = [1] * (X.ndim + 1)
            shape[place] = len(vector)
            X = np.expand_dims(X, place) * vector.reshape(shape)
    return X


def _synthesised(T: Array, over: Sequence[int], axes: dict[int, Axis]) -> Array:
    """T with coordinates of eigenvectors turned into cells; those of split attributes stay."""
    for k, i in enumerate(over):
        axis = axes[i]
        if isinstance(axis, Eigen):
            T = np.moveaxis(np.tensordot(axis.Q, T, axes=(1, k)), 0, k)
    return T


def _in_cells(axes: dict[int, Axis]) -> dict[int, Axis]:
    return {i: Cells(Eye(len(axis.Q))) if isinstance(axis, Eigen) else axis for i, axis in axes.items()}


def _queries(product: Product, axes: dict[int, Axis], T: Array) -> Array:
    """The answers of a product from the coordinates of its own attributes, in their order.

    On an attribute of which only totals were measured, a supported predicate is some multiple of the total.
    """
    factors: list[Matrix] = []
    for i, predicates in product.factors:
        n = product.domain.shape[i]
        W, axis = predicates.matrix(n), axes.get(i)
        if axis is None:
            factors.append(Dense(frozen(W.matmat(np.full((n, 1), 1 / n)))))
        else:
            factors.append(_after(W, axis.synthesis) if isinstance(axis, Split) else W)
    return kron_slabs(factors, T, np.float64)


def _after(W: Matrix, synthesis: Matrix) -> Matrix:
    return synthesis if isinstance(W, Eye) else Chain(W, synthesis)


def _iterated(domain: Domain, blocks: Sequence[Block], answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """Blocks that have no common form: (AᵀA)x = Aᵀy by conjugate gradients over all cells."""
    if domain.size > _MAX_SOLVED:
        raise StrategyError(
            f"The strategy's blocks have no closed form and its domain has {domain.size:.1e} cells; {_MAX_SOLVED:,} "
            "is the limit for solving by iteration. Use at most two products, or marginals."
        )
    y = in_unit_noise(blocks, answers, units)
    A = stacked_blocks(domain.shape, blocks)
    x = solved(gram(A), A.T.matmat(y[:, None]), _TOLERANCE)[:, 0]
    return _SolvedEstimate(A, in_cells(domain, range(len(domain)), x))
