"""What the measurements say about every cell, by generalised least squares: Release → Estimate.

x̂ = Σ_c (⊗ Z_c)Aᵀy / λ_c over the classes of the diagonal form (strategy/diagonal.py), in coordinates of each attribute
(strategy/axis.py) of which a total is the first. A marginal then needs only the coordinates of its own attributes: x̂
over the domain is never built for marginal strategies.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce, singledispatch
from typing import final

import numpy as np

from hdmm.domain import Domain
from hdmm.exceptions import StrategyError
from hdmm.lattice import kron_slabs
from hdmm.matrix import Array, Dense, Eye, Kron, Matrix, Ones, gram, to_dense
from hdmm.strategy.axis import Axis, after, axis_of
from hdmm.strategy.base import stacked_blocks
from hdmm.strategy.blocks import Attributes, Block, Groups
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.direct import Direct
from hdmm.strategy.form import Form
from hdmm.strategy.grid import Grid
from hdmm.strategy.grouped import Grouped
from hdmm.strategy.iterative import Unknown, Written, solved
from hdmm.strategy.residual import Residual
from hdmm.workload import Product

_WHOLE = 1 << 27  # coordinates kept as one array where one block measures all attributes: 1 GiB, or as its answers
_LARGEST_TABLE = 1 << 31  # coordinates of an estimated table: 16 GiB
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
    """x̂ = Σ_c (⊗ S_c)(Σ_j ω_j² (⊗ R_c Aᵀ)y_j) / λ_c, by parts (see CoordinateEstimate)."""
    axes, choices = form.axes, form.lam.choices
    measured = choices != [-1 if axis.total is None else axis.total for axis in axes]
    held = _held(form, measured)
    heaviest = max(block.weight for block in form.blocks)  # one block alone has nothing to weigh
    parts: dict[Attributes, Array] = {}
    weights: dict[Attributes, Array] = {}
    for j, (block, y, unit) in enumerate(zip(form.blocks, answers, units, strict=True)):
        active = np.flatnonzero(measured[j]).tolist()
        analyses = [axes[i].analyses[choices[j, i]] for i in active]
        X = kron_slabs(analyses, y, np.float64).reshape([R.shape[0] for R in analyses])
        X *= (block.weight / heaviest) ** 2 * unit
        deltas = [axes[i].delta[:, choices[j, i]] for i in active]
        weight = reduce(np.multiply.outer, deltas, np.asarray((block.weight / heaviest) ** 2))
        split = [(i, delta) for i, delta in zip(active, deltas, strict=True) if i not in held and len(delta) > 1]
        for b in subsets([i for i, delta in split if delta[0] > 0], always=[i for i, delta in split if delta[0] == 0]):
            index = tuple(slice(None) if i in held else slice(1, None) if i in b else 0 for i in active)
            over = sorted((*b, *held))
            place = tuple(slice(None) if measured[j, i] else 0 for i in over)
            _add(parts, b, place, X[index], [axes[i].coordinates - (i in b) for i in over])
            _add(weights, b, place, weight[index], [len(axes[i].delta) - (i in b) for i in over])
    for b, part in parts.items():
        over = sorted((*b, *held))
        _weigh(part, weights[b], [axes[i].sizes[1:] if i in b else axes[i].sizes for i in over])
        parts[b] = _synthesised(part, [axes[i] for i in over])
    ends = tuple(_cells(axis.factors[0].shape[1]) if axis.total is None else axis for axis in axes)
    return CoordinateEstimate(ends, held, parts)


@reconstruct.register
def _(form: Grouped, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    return GroupedEstimate(form.groups, reconstruct(form.inner, answers, units))


@reconstruct.register
def _(form: Residual, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """A_b⁺y of every residual space b, on the cells of its attributes in ascending order."""
    shape, parts = form.domain.shape, dict[Attributes, Array]()
    inverses = {A: Dense(np.linalg.pinv(to_dense(A).astype(np.float64))) for b in form.blocks for _, A in b.factors}
    for block, y, unit in zip(form.blocks, answers, units, strict=True):
        order = block.axes
        T = kron_slabs([inverses[A] for _, A in block.factors], y, np.float64).reshape([shape[i] for i in order])
        parts[tuple(sorted(order))] = unit * T.transpose([order.index(i) for i in sorted(order)])
    return _ResidualEstimate(form.domain, parts)


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
@reconstruct.register(Unknown)
def _(form: Written | Unknown, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    return _iterated(form.domain, form.blocks, answers, units)


def in_cells(domain: Domain, axes: Sequence[int], x: Array) -> CoordinateEstimate:
    """The estimate that is x on the cells of these attributes; of the others only totals are known."""
    kinds = [_cells(n) if i in axes else _known_axis((Ones(1, n),)) for i, n in enumerate(domain.shape)]
    return CoordinateEstimate(tuple(kinds), tuple(axes), {(): x.reshape([domain.shape[i] for i in axes])})


def in_unit_noise(blocks: Sequence[Block], answers: Sequence[Array], units: Sequence[float]) -> Array:
    """The answers to all rows of the blocks, one below the other, each with noise of variance 1."""
    parts = zip(answers, units, blocks, strict=True)
    return np.concatenate([np.ravel(answer) * (unit * block.weight) for answer, unit, block in parts])


def subsets(axes: Sequence[int], always: Sequence[int] = ()) -> Iterator[Attributes]:
    """All sets of these attributes, each with those that are always there, ascending.

    >>> list(subsets([0, 2], always=[1]))
    [(1,), (0, 1), (1, 2), (0, 1, 2)]
    """
    for size in range(len(axes) + 1):
        for chosen in itertools.combinations(axes, size):
            yield tuple(sorted((*chosen, *always)))


@final
@dataclass(frozen=True, slots=True, eq=False)
class CoordinateEstimate(Estimate):
    """Coordinates in parts: that of b holds what is beyond the total on every attribute of b.

    An attribute that some block totals has the coordinate 0, which is its total, and others. A part has an axis for
    every attribute of b, without the coordinate 0, and one for every attribute that is held, with all coordinates: what
    no block totals, or all attributes if one block measures them all. Marginals need only the parts of their subsets.
    """

    axes: tuple[Axis, ...]
    held: Attributes
    parts: dict[Attributes, Array]

    def values(self, product: Product) -> Array:
        asked, axes = sorted(i for each, _ in product.sets for i in each), self.axes
        shape = [axes[i].coordinates for i in asked]
        if math.prod(shape) > _LARGEST_TABLE:
            raise StrategyError(
                f"These queries need an estimated table of {math.prod(shape):.1e} cells. Ask for fewer attributes."
            )
        split = [i for i in asked if i not in self.held and axes[i].coordinates > 1]
        if split or () not in self.parts:
            T = np.zeros(shape)
            for b in subsets(split):
                if b in self.parts:  # else not measured: 0, or the queries are not supported
                    index = tuple(slice(None) if i in self.held else slice(1, None) if i in b else 0 for i in asked)
                    T[index] = self._part(b, asked)
        else:
            T = self._part((), asked)
        order = [i for each, _ in product.sets for i in each]
        if product.joint:
            T = T.reshape(shape).transpose([asked.index(i) for i in order])
        each = [(p.matrix(product.cells(on)), [axes[i].synthesis for i in on]) for on, p in product.sets]
        synthesis = [after(W, S[0] if len(S) == 1 else Kron(tuple(S))) for W, S in each]
        return kron_slabs(synthesis, T, np.float64)

    def _part(self, b: Attributes, asked: Container[int]) -> Array:
        """A part with the held attributes that are not asked for totalled."""
        if not self.held:
            return self.parts[b]
        over = sorted((*b, *self.held))
        totals = [i not in asked and self.axes[i].total is not None for i in over]
        part = self.parts[b][tuple(0 if total else slice(None) for total in totals)]
        left = [i for i, total in zip(over, totals, strict=True) if not total]
        summed = tuple(k for k, i in enumerate(left) if i not in asked)
        return part.sum(axis=summed) if summed else part


@final
@dataclass(frozen=True, eq=False)
class _SolvedEstimate(Estimate):
    """Cells found by iteration, which would answer any query; those that A does not support are refused."""

    A: Matrix
    cells: CoordinateEstimate

    def values(self, product: Product) -> Array:
        probe, unseen = self._unseen
        off = np.abs(replace(self.cells, parts={(): unseen}).values(product)).max(initial=0.0)
        if off > _UNSEEN * np.abs(replace(self.cells, parts={(): probe}).values(product)).max(initial=0.0):
            raise StrategyError(
                f"The strategy does not measure everything that product ({product}) asks for, so it has no answer. Add "
                "the missing queries to the strategy, or optimise one for this workload."
            )
        return self.cells.values(product)

    @cached_property
    def _unseen(self) -> tuple[Array, Array]:
        """Numbers g in (0, 1) without a pattern, and d = g − A⁻Ag: Ad = 0, so Wd = 0 where A supports W."""
        shape = self.cells.parts[()].shape
        g = np.modf(np.arange(1, self.A.shape[1] + 1, dtype=np.float64) ** 2 * math.sqrt(2))[0]
        seen = solved(gram(self.A), gram(self.A).matmat(g[:, None]), _TOLERANCE)[:, 0]
        return g.reshape(shape), (g - seen).reshape(shape)


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
class _ResidualEstimate(Estimate):
    """What is beyond all totals, for each set of attributes; a table is the sum of those of its subsets, spread out."""

    domain: Domain
    parts: dict[Attributes, Array]

    def values(self, product: Product) -> Array:
        shape, order = self.domain.shape, [i for axes, _ in product.sets for i in axes]
        if math.prod(shape[i] for i in order) > _LARGEST_TABLE:
            raise StrategyError(f"These queries need an estimated table on {len(order)} attributes. Ask for fewer.")
        T = np.zeros([shape[i] for i in sorted(order)])
        for b in subsets(sorted(order)):
            if b in self.parts:  # else not measured: 0, or the queries are not supported
                spread = math.prod(shape[i] for i in order if i not in b)
                T += self.parts[b].reshape([shape[i] if i in b else 1 for i in sorted(order)]) / spread
        T = T.transpose([sorted(order).index(i) for i in order])
        return kron_slabs([p.matrix(product.cells(axes)) for axes, p in product.sets], T, np.float64)


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


def _held(form: Diagonal, measured: Array) -> Attributes:
    """The attributes of which every part holds all coordinates: those that no block totals.

    If one block measures every attribute that any does, on few cells or with as many answers as cells, all of those:
    then there is one part.
    """
    touched = np.flatnonzero(measured.any(axis=0)).tolist()
    cells = math.prod(form.domain.shape[i] for i in touched)
    whole = np.flatnonzero(measured.sum(axis=1) == len(touched)).tolist()
    if any(cells <= max(_WHOLE, form.blocks[j].rows) for j in whole):
        return tuple(touched)
    return tuple(i for i in touched if form.axes[i].total is None)


def _add(
    parts: dict[Attributes, Array], b: Attributes, place: tuple[int | slice, ...], X: Array, shape: list[int]
) -> None:
    """Add X to a part at a place in it; a first X that fills it becomes it."""
    if b in parts:
        parts[b][place] += X
    elif 0 not in place:
        parts[b] = np.asarray(X, order="C")
    else:
        parts[b] = np.zeros(shape)
        parts[b][place] = X


def _weigh(part: Array, weight: Array, sizes: Sequence[Array]) -> None:
    """Divide a part by its weights, which are one for all coordinates of a class; what nothing measured becomes 0."""
    inverse = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
    if (inverse == 1).all():
        return
    for k, each in enumerate(sizes):
        if len(each) > 1:
            inverse = np.repeat(inverse, each, axis=k)
    part *= inverse


def _synthesised(T: Array, axes: Sequence[Axis]) -> Array:
    """T with coordinates of attributes that no block totals turned into cells; those of the others stay."""
    for k, axis in enumerate(axes):
        if axis.total is None and not isinstance(axis.synthesis, Eye):
            T = axis.synthesis.along(T.reshape(math.prod(T.shape[:k]), T.shape[k], -1)).reshape(
                *T.shape[:k], -1, *T.shape[k + 1 :]
            )
    return T


def _cells(n: int) -> Axis:
    """The axis whose coordinates are the cells."""
    return _known_axis((Eye(n),))


def _known_axis(factors: tuple[Matrix, ...]) -> Axis:
    axis = axis_of(factors)
    if axis is None:
        raise StrategyError("One factor has no axis. This is a fault of hdmm.")
    return axis


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
