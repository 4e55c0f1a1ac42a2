"""What the measurements say about every cell, by generalised least squares: Release → Estimate.

x̂ = Σ_c (⊗ Z_c)Aᵀy / λ_c over the classes of the diagonal form (strategy/diagonal.py), in coordinates of each attribute
(estimate.py); other forms have rules of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce, singledispatch
from typing import final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.product import Product
from hdmm.matrix import Array, Dense, Eye, Matrix, Ones, gram, to_dense
from hdmm.reconstruct.estimate import (
    LARGEST_TABLE,
    CoordinateEstimate,
    Estimate,
    GroupedEstimate,
    cells_axis,
    in_cells,
    stacked,
    subsets,
)
from hdmm.strategy.axis import Axis
from hdmm.strategy.blocks import Attributes, Block, stacked_blocks
from hdmm.strategy.coupled import Coupled
from hdmm.strategy.diagonal import Diagonal
from hdmm.strategy.direct import Direct
from hdmm.strategy.form import Form
from hdmm.strategy.grid import Grid
from hdmm.strategy.grouped import Grouped
from hdmm.strategy.iterative import Unknown, Written, solved
from hdmm.strategy.orthogonal import Orthogonal, inverted
from hdmm.strategy.slabs import TOGETHER, alike, kron_slabs

_WHOLE = 1 << 27  # coordinates kept as one array where one block measures all attributes: 1 GiB, or as its answers
_MAX_SOLVED = 1 << 27  # cells up to which strategies without a closed form are solved by iteration
_TOLERANCE = 1e-10  # of that solver
_UNSEEN = 1e-3  # the fraction of a probe's answers that counts as not supported, far above the solver's error


@singledispatch
def reconstruct(form: Form, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """The least-squares estimate from noisy answers to the blocks of a form, one rule per kind of form.

    Block j of weight ω_j was answered as answers[j] · units[j], with noise of variance 1/ω_j². O(d · cells) for
    products and unions of two, O(Σ_j 2^|a_j| + cells of the blocks) for marginals on attributes a_j.

    >>> from hdmm import Workload
    >>> from hdmm.strategy.strategy import Strategy
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
    apart = _measured_apart(form, measured)
    if apart is not None:
        blocks = {b: j for j, b in enumerate(apart)}
        return CoordinateEstimate(axes, (), _PartsApart(form, answers, units, blocks))
    held = _held(form, measured)
    heaviest = max(block.weight for block in form.blocks)  # a single block then has weight 1
    parts: dict[Attributes, Array] = {}
    weights: dict[Attributes, Array] = {}
    for j, (block, y, unit) in enumerate(zip(form.blocks, answers, units, strict=True)):
        active = np.flatnonzero(measured[j]).tolist()
        analyses = [axes[i].analyses[choices[j, i]] for i in active]
        X = kron_slabs(analyses, y, np.float64).reshape([R.shape[0] for R in analyses])
        X *= (block.weight / heaviest) ** 2 * unit
        deltas = [axes[i].delta[:, choices[j, i]] for i in active]
        for k, (i, delta) in enumerate(zip(active, deltas, strict=True)):
            if not delta.all():  # of what it does not measure, a block has rounding only, which must not be weighed
                X[*[slice(None)] * k, np.repeat(delta == 0, axes[i].sizes)] = 0.0
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
    ends = tuple(cells_axis(axis.factors[0].shape[1]) if axis.total is None else axis for axis in axes)
    return CoordinateEstimate(ends, held, parts)


@reconstruct.register
def _(form: Coupled, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """The same by parts, in which X_b⁻¹ on the cells of the free attributes takes the place of 1/λ."""
    axes, free, n = form.axes, form.free, form.domain.shape
    unsplit = [i for i, axis in axes.items() if axis.total is None]
    held = tuple(sorted((*unsplit, *free)))
    parts: dict[Attributes, Array] = {}
    for block, y, unit in zip(form.blocks, answers, units, strict=True):
        factors = {i: A for i, A in block.by_axis.items() if i in free or Ones(1, n[i]) != A}
        factors |= {i: Ones(1, n[i]) for i in free if i not in factors}
        active = sorted(factors)
        analyses = [factors[i].T if i in free else axes[i].analyses[axes[i].factors.index(factors[i])] for i in active]
        X = kron_slabs(analyses, y, np.float64).reshape([R.shape[0] for R in analyses])
        X *= block.weight**2 * unit
        seen = {i: axes[i].delta[:, axes[i].factors.index(factors[i])] for i in active if i not in held}
        split = {i: delta for i, delta in seen.items() if len(delta) > 1}
        always = [i for i, delta in split.items() if delta[0] == 0]
        for b in subsets([i for i in split if i not in always], always=always):
            index = tuple(slice(None) if i in held else slice(1, None) if i in b else 0 for i in active)
            parts[b] = parts.get(b, 0.0) + X[index]
    for b, part in parts.items():
        over = sorted((*b, *held))
        ends = [over.index(i) for i in free]
        moved = np.moveaxis(part, ends, range(-len(free), 0))
        parts[b] = np.moveaxis(form.solved(b, moved), range(-len(free), 0), ends)
        parts[b] = _synthesised(parts[b], [cells_axis(n[i]) if i in free else axes[i] for i in over])
    kinds = [cells_axis(n[i]) if i in held else axes[i] for i in range(len(n))]
    return CoordinateEstimate(tuple(kinds), held, parts)


@reconstruct.register
def _(form: Grouped, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    return GroupedEstimate(form.groups, reconstruct(form.inner, answers, units))


@reconstruct.register
def _(form: Orthogonal, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """A_b⁺y of every residual space b, on the cells of its attributes in ascending order."""
    shape, parts = form.domain.shape, dict[Attributes, Array]()
    inverses = {A: Dense(inverted(to_dense(A).astype(np.float64))) for b in form.blocks for _, A in b.factors}
    for block, y, unit in zip(form.blocks, answers, units, strict=True):
        order = block.axes
        T = kron_slabs([inverses[A] for _, A in block.factors], y, np.float64).reshape([shape[i] for i in order])
        parts[tuple(sorted(order))] = unit * T.transpose([order.index(i) for i in sorted(order)])
    return _OrthogonalEstimate(form.domain, parts)


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


def in_unit_noise(blocks: Sequence[Block], answers: Sequence[Array], units: Sequence[float]) -> Array:
    """The answers to all rows of the blocks, stacked, each scaled to noise of variance 1."""
    parts = zip(answers, units, blocks, strict=True)
    return np.concatenate([np.ravel(answer) * (unit * block.weight) for answer, unit, block in parts])


@final
@dataclass(frozen=True, eq=False)
class _SolvedEstimate(Estimate):
    """Cells found by iteration. They would answer any query, so queries that A does not support are refused."""

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
        """Irregular numbers g in (0, 1), and d = g − A⁻Ag: Ad = 0, so Wd = 0 if A supports W."""
        shape = self.cells.parts[()].shape
        g = np.modf(np.arange(1, self.A.shape[1] + 1, dtype=np.float64) ** 2 * math.sqrt(2))[0]
        seen = solved(gram(self.A), gram(self.A).matmat(g[:, None]), _TOLERANCE)[:, 0]
        return g.reshape(shape), (g - seen).reshape(shape)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _OrthogonalEstimate(Estimate):
    """What is beyond all totals, for each set of attributes; a table is the sum of those of its subsets, spread out."""

    domain: Domain
    parts: dict[Attributes, Array]

    def values(self, product: Product) -> Array:
        shape, order = self.domain.shape, [i for axes, _ in product.sets for i in axes]
        if math.prod(shape[i] for i in order) > LARGEST_TABLE:
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
    """The attributes whose coordinates every part holds in full: those that no block totals.

    If one block measures every attribute that any block does, on few cells or with as many answers as cells, all of
    those are held, and there is one part.
    """
    touched = np.flatnonzero(measured.any(axis=0)).tolist()
    cells = math.prod(form.domain.shape[i] for i in touched)
    whole = np.flatnonzero(measured.sum(axis=1) == len(touched)).tolist()
    if any(cells <= max(_WHOLE, form.blocks[j].rows) for j in whole):
        return tuple(touched)
    return tuple(i for i in touched if form.axes[i].total is None)


def _measured_apart(form: Diagonal, measured: Array) -> list[Attributes] | None:
    """The attributes of each block, if every one measures a residual space by itself: what no total sees, and once."""
    alone = [
        axis.total is not None and len(axis.delta) <= 2 and not np.delete(axis.delta[0], axis.total).any()
        for axis in form.axes
    ]
    if not all(alone):
        return None
    rows, columns = np.nonzero(measured)
    sizes = np.bincount(rows, minlength=len(measured))
    apart = [tuple(each) for each in _split_lists(columns.tolist(), sizes.tolist())]
    return apart if len(set(apart)) == len(apart) else None


def _split_lists(values: list[int], sizes: list[int]) -> Iterator[list[int]]:
    start = 0
    for size in sizes:
        yield values[start : start + size]
        start += size


@final
@dataclass(frozen=True, slots=True, eq=False)
class _PartsApart(Mapping[Attributes, Array]):
    """The parts of blocks each of which measures a residual space by itself: R_cAᵀy/δ_c of its answers y.

    Those on the most attributes are worked out when they are asked for, because together they would take nearly as much
    memory as the answers, and a table asks for one of them. The others are asked for by many tables, and kept.
    """

    form: Diagonal
    answers: Sequence[Array]
    units: Sequence[float]
    blocks: Mapping[Attributes, int]
    kept: dict[Attributes, Array] = field(default_factory=dict[Attributes, Array])

    def __post_init__(self) -> None:
        most, axes = max(map(len, self.blocks)), self.form.axes
        fewer = ((b, len(self.answers[j])) for b, j in self.blocks.items() if len(b) < most)
        for sets in alike(((tuple([id(axes[i]) for i in b]), size, b) for b, size in fewer), TOGETHER):
            self.kept.update(zip(sets, np.ascontiguousarray(self.read(sets)), strict=True))

    def __getitem__(self, b: Attributes) -> Array:
        return stacked(self, [b])[0]

    def __contains__(self, b: object) -> bool:
        return b in self.blocks

    def __iter__(self) -> Iterator[Attributes]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def read(self, sets: Sequence[Attributes]) -> Array:
        """The parts of some sets of attributes from the answers, one row each."""
        axes, choices = self.form.axes, self.form.lam.choices
        blocks = [self.blocks[b] for b in sets]
        kinds = choices[np.reshape(blocks, (-1, 1)), np.reshape(np.array(sets, dtype=np.intp), (len(sets), -1))]
        if (kinds != kinds[0]).any():  # other factors
            return np.concatenate([self.read([b]) for b in sets])
        each = [(axes[i], int(kind)) for i, kind in zip(sets[0], kinds[0], strict=True)]
        scale = math.prod(float(axis.delta[1, kind]) for axis, kind in each)
        y = np.stack([self.answers[j] for j in blocks], dtype=np.float64)
        y *= np.array([self.units[j] for j in blocks])[:, None] / scale
        X = kron_slabs([Eye(len(sets)), *(axis.analyses[kind] for axis, kind in each)], y, np.float64)
        return X.reshape([len(sets), *(axis.coordinates for axis, _ in each)])[:, *(slice(1, None) for _ in each)]


@stacked.register
def _(parts: _PartsApart, sets: Sequence[Attributes]) -> Array:
    kept = [parts.kept[b] for b in sets if b in parts.kept]
    return np.stack(kept) if kept else parts.read(sets)


def _add(
    parts: dict[Attributes, Array], b: Attributes, place: tuple[int | slice, ...], X: Array, shape: list[int]
) -> None:
    """Add X to a part at a place in it; the first X becomes the part if it fills it."""
    if b in parts:
        parts[b][place] += X
    elif 0 not in place:
        parts[b] = np.asarray(X, order="C")
    else:
        parts[b] = np.zeros(shape)
        parts[b][place] = X


def _weigh(part: Array, weight: Array, sizes: Sequence[Array]) -> None:
    """Divide a part by its weights, one for all coordinates of a class; what was not measured becomes 0."""
    inverse = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
    if (inverse == 1).all():
        return
    for k, each in enumerate(sizes):
        if len(each) > 1:
            inverse = np.repeat(inverse, each, axis=k)
    part *= inverse


def _synthesised(T: Array, axes: Sequence[Axis]) -> Array:
    """T with the coordinates of attributes that no block totals turned into cells; the others stay coordinates."""
    for k, axis in enumerate(axes):
        if axis.total is None and not isinstance(axis.synthesis, Eye):
            T = axis.synthesis.along(T.reshape(math.prod(T.shape[:k]), T.shape[k], -1)).reshape(
                *T.shape[:k], -1, *T.shape[k + 1 :]
            )
    return T


def _iterated(domain: Domain, blocks: Sequence[Block], answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """Blocks that have no common form: (AᵀA)x = Aᵀy by conjugate gradients over all cells."""
    if domain.size > _MAX_SOLVED:
        raise StrategyError(
            f"The strategy's blocks have no closed form and its domain has {domain.size:.1e} cells; the "
            f"limit for solving by iteration is {_MAX_SOLVED:,}. Use at most two products, or marginals."
        )
    y = in_unit_noise(blocks, answers, units)
    A = stacked_blocks(domain.shape, blocks)
    x = solved(gram(A), A.T.matmat(y[:, None]), _TOLERANCE)[:, 0]
    return _SolvedEstimate(A, in_cells(domain, range(len(domain)), x))
