"""What the measurements say about every cell, by generalised least squares: Release → Estimate.

x̂ = Σ_b (⊗ Z_b)X_b⁻¹Aᵀy over the classes of the form (strategy/class_form.py), in coordinates of each attribute
(estimate.py); other forms have rules of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator, cg

from hdmm.base.exceptions import StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.product import Attributes, Product
from hdmm.matrix import Array, Dense, Eye, Matrix, diagonal, gram
from hdmm.reconstruct.estimate import (
    TOGETHER,
    CoordinateEstimate,
    Estimate,
    ProductEstimate,
    TableEstimate,
    alike,
    in_cells,
    stacked,
)
from hdmm.strategy.axis import Axis, cells_of
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.form import Direct, Form, NoForm
from hdmm.strategy.orthogonal import Orthogonal
from hdmm.strategy.slabs import kron_slabs
from hdmm.strategy.subsets import subsets

_WHOLE = 1 << 27  # coordinates kept as one array where one block measures all attributes: 1 GiB, or as its answers
_KEPT, _AGAIN = 1 << 27, 1 << 16  # numbers that are kept at any rate: 1 GiB; and of a part that is worked out again
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
def _(form: ClassForm, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """x̂ = Σ_b (⊗ S_b) X_b⁻¹ (Σ_j ω_j² (⊗ R_b Aᵀ)y_j), by parts (see CoordinateEstimate); a free attribute's R is I."""
    axes, choices = form.axes, form.lam.choices
    measured = choices != [-1 if axis.total is None else axis.total for axis in axes]
    apart = None if form.free else _measured_apart(form, measured)
    if apart is not None:
        blocks = {b: j for j, b in enumerate(apart)}
        return CoordinateEstimate(form.groups, axes, (), _PartsApart(form, answers, units, blocks))
    held = _held(form, measured)
    relative = form.lam.coefficients / form.lam.coefficients.max()  # a single block then has weight 1
    later = {} if held else _worked_out_later(form, measured, answers)

    def added(j: int, parts: dict[Attributes, Array], *, top: bool) -> None:
        """Add what block j says to the parts, or to its top part alone."""
        active = np.flatnonzero(measured[j]).tolist()
        analyses = [axes[i].analyses[choices[j, i]] for i in active]
        X = kron_slabs(analyses, answers[j], np.float64).reshape([R.shape[0] for R in analyses])
        X *= relative[j] * units[j]
        deltas = {i: axes[i].delta[:, choices[j, i]] for i in active}
        for k, (i, delta) in enumerate(deltas.items()):
            if not delta.all():  # of what it does not measure, a block has rounding only, which must not be weighed
                X[*[slice(None)] * k, np.repeat(delta == 0, axes[i].sizes)] = 0.0
        split = {i: delta for i, delta in deltas.items() if i not in held and len(delta) > 1}
        always = [i for i, delta in split.items() if delta[0] == 0]
        for b in [tuple(split)] if top else subsets([i for i in split if i not in always], always=always):
            if not top and b in later:
                continue
            index = tuple(slice(None) if i in held else slice(1, None) if i in b else 0 for i in active)
            over = sorted((*b, *held))
            place = tuple(slice(None) if measured[j, i] else 0 for i in over)
            _add(parts, b, place, X[index], [axes[i].coordinates - (i in b) for i in over])

    def solved(b: Attributes, part: Array) -> Array:
        over = sorted((*b, *held))
        boxes = {i: np.arange(int(i in b), len(axes[i].delta)) for i in over if i not in form.free}
        found = form.inverse.solved(part, boxes, [axes[i].sizes[box] for i, box in boxes.items()])
        return _synthesised(found, [axes[i] for i in over])

    def top_part(b: Attributes) -> Array:
        parts: dict[Attributes, Array] = {}
        added(later[b], parts, top=True)
        return solved(b, parts[b])

    parts: dict[Attributes, Array] = {}
    for j in range(len(answers)):
        added(j, parts, top=False)
    for b, part in parts.items():
        parts[b] = solved(b, part)
    ends = tuple(cells_of(axis.factors[:1]) if axis.total is None else axis for axis in axes)
    return CoordinateEstimate(form.groups, ends, held, _PartsLater(parts, later, top_part) if later else parts)


@reconstruct.register
def _(form: Orthogonal, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """A_b⁺y of every block b, in coordinates of the parts it sees, its attributes ascending."""
    coordinates: list[Array] = []
    for j, (block, y, unit) in enumerate(zip(form.blocks, answers, units, strict=True)):
        parts = form.parts_of(j)
        each = [form.factor(axes, A, tuple(parts[i] for i in axes))[1] for axes, A in block.factors]
        T = kron_slabs([Dense(inverse) for inverse in each], y, np.float64)
        order = block.axes
        T = T.reshape([form.parts[i][parts[i]].shape[1] for i in order])
        coordinates.append(unit * T.transpose([order.index(i) for i in sorted(order)]))

    def values(product: Product) -> Array:
        """What every block says about the product."""
        found = np.zeros(product.queries)
        for space in filter(None, form.spaces(product)):
            T, axes = coordinates[space.number], sorted(form.blocks[space.number].axes)
            order = [i for on, _ in space.sets for i in on]
            for i in order:
                if i not in axes:  # the block totals it
                    one = form.total_in(i)
                    T, axes = np.multiply.outer(T, one / (one @ one)), [*axes, i]
            rows = [Dense(form.rows(*on, parts)) for on, parts in zip(space.sets, space.parts, strict=True)]
            found += kron_slabs(rows, T.transpose([axes.index(i) for i in order]), np.float64)
        return found

    return ProductEstimate(values)


@reconstruct.register
def _(form: Direct, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    return as_measured(form, [y * unit for y, unit in zip(answers, units, strict=True)])


@reconstruct.register
def _(form: NoForm, answers: Sequence[Array], units: Sequence[float]) -> Estimate:
    """(AᵀA)x = Aᵀy by conjugate gradients over all cells."""
    if form.domain.size > _MAX_SOLVED:
        raise StrategyError(
            f"The strategy's blocks have no closed form and its domain has {form.domain.size:.1e} cells; the "
            f"limit for solving by iteration is {_MAX_SOLVED:,}. Use at most two products, or marginals."
        )
    A = AxisGroups.of(form.domain, [axes for block in form.blocks for axes, _ in block.factors]).stacked(form.blocks)
    x = _solved(A, A.T.matmat(in_unit_noise(form.blocks, answers, units)[:, None])[:, 0])
    return TableEstimate(form.domain, _SolvedTable(form.domain, A, x))


def in_unit_noise(blocks: Sequence[Block], answers: Sequence[Array], units: Sequence[float]) -> Array:
    """The answers to all rows of the blocks, stacked, each scaled to noise of variance 1."""
    parts = zip(answers, units, blocks, strict=True)
    return np.concatenate([np.ravel(answer) * (unit * block.weight) for answer, unit, block in parts])


def as_measured(form: Direct, answers: Sequence[Array]) -> Estimate:
    """Answers to the products that were measured, and to no others."""

    def values(product: Product) -> Array:
        measured = form.block_of(product)
        if measured is None:
            raise StrategyError(f"Product ({product}) was not measured, and without inference it has no answer.")
        return answers[measured]

    return ProductEstimate(values)


@final
@dataclass(frozen=True, eq=False)
class _SolvedTable:
    """Cells found by iteration. They would answer any query, so queries that A does not support are refused."""

    domain: Domain
    A: Matrix
    x: Array

    def __call__(self, product: Product) -> tuple[Attributes, Array]:
        axes = tuple(range(len(self.domain)))
        off, all_of_it = (np.abs(in_cells(self.domain, axes, g).values(product)).max(initial=0.0) for g in self._probes)
        if off > _UNSEEN * all_of_it:
            raise StrategyError(
                f"The strategy does not measure everything that product ({product}) asks for, so it has no answer. Add "
                "the missing queries to the strategy, or optimise one for this workload."
            )
        return axes, self.x

    @cached_property
    def _probes(self) -> tuple[Array, Array]:
        """d = g − A⁻Ag of irregular numbers g in (0, 1), and these: Ad = 0, so Wd = 0 if A supports W."""
        g = np.modf(np.arange(1, self.A.shape[1] + 1, dtype=np.float64) ** 2 * math.sqrt(2))[0]
        return g - _solved(self.A, gram(self.A).matmat(g[:, None])[:, 0]), g


def _held(form: ClassForm, measured: Array) -> Attributes:
    """The attributes whose coordinates every part holds in full: free ones, and others that no block totals.

    If no attribute is free, and one block measures every attribute that any block does, on few cells or with as many
    answers as cells, all of those are held, and there is one part.
    """
    touched = np.flatnonzero(measured.any(axis=0)).tolist()
    cells = math.prod(form.shape[i] for i in touched)
    whole = np.flatnonzero(measured.sum(axis=1) == len(touched)).tolist()
    if not form.free and any(cells <= max(_WHOLE, form.blocks[j].rows) for j in whole):
        return tuple(touched)
    return tuple(i for i in touched if form.axes[i].total is None)


def _measured_apart(form: ClassForm, measured: Array) -> list[Attributes] | None:
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

    form: ClassForm
    answers: Sequence[Array]
    units: Sequence[float]
    blocks: Mapping[Attributes, int]
    kept: dict[Attributes, Array] = field(default_factory=dict[Attributes, Array])

    def __post_init__(self) -> None:
        most, axes = max(map(len, self.blocks)), self.form.axes
        fewer = ((b, len(self.answers[j])) for b, j in self.blocks.items() if len(b) < most)
        for sets in alike(((tuple([axes[i] for i in b]), size, b) for b, size in fewer), TOGETHER):
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


def _worked_out_later(
    form: ClassForm, measured: npt.NDArray[np.bool], answers: Sequence[Array]
) -> dict[Attributes, int]:
    """The blocks on the most attributes, by these, whose top parts are not kept, if together they take much memory.

    No other block says anything about such a part, and none is so large that working it out again takes long.
    """
    split = measured & (np.array([len(axis.delta) for axis in form.axes]) > 1)
    sizes = split.sum(axis=1)
    most = np.flatnonzero(sizes == sizes.max()).tolist()
    numbers = [len(answers[j]) for j in most]
    blocks = {tuple(np.flatnonzero(split[j]).tolist()): j for j in most}
    few = sum(numbers) <= _KEPT or max(numbers) > _AGAIN or len(blocks) < len(most)
    return {} if few else blocks


@final
@dataclass(frozen=True, slots=True, eq=False)
class _PartsLater(Mapping[Attributes, Array]):
    """Parts that are kept, and those on the most attributes, which are worked out when a table asks for them.

    Each of these is of one block. All of them would take as much memory as the answers: 3 GB of blocks on four of 100
    attributes of ten values, while tables of three of them ask for none.
    """

    kept: Mapping[Attributes, Array]
    later: Mapping[Attributes, int]
    made: Callable[[Attributes], Array]

    def __getitem__(self, b: Attributes) -> Array:
        return self.made(b) if b in self.later else self.kept[b]

    def __contains__(self, b: object) -> bool:
        return b in self.kept or b in self.later

    def __iter__(self) -> Iterator[Attributes]:
        return itertools.chain(self.kept, self.later)

    def __len__(self) -> int:
        return len(self.kept) + len(self.later)


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


def _synthesised(T: Array, axes: Sequence[Axis]) -> Array:
    """T with the coordinates of attributes that no block totals turned into cells; the others stay coordinates."""
    for k, axis in enumerate(axes):
        if axis.total is None and not isinstance(axis.synthesis, Eye):
            T = axis.synthesis.along(T.reshape(math.prod(T.shape[:k]), T.shape[k], -1)).reshape(
                *T.shape[:k], -1, *T.shape[k + 1 :]
            )
    return T


def _solved(A: Matrix, u: Array) -> Array:
    """x with AᵀAx = u by conjugate gradients, preconditioned by the diagonal."""
    X = gram(A)
    scale = diagonal(X).astype(np.float64)
    scale = np.where(scale > 0, scale, 1.0)
    n = len(scale)

    def times(x: Array) -> Array:
        return X.matmat(x.reshape(-1, 1))[:, 0]

    def unscaled(x: Array) -> Array:
        return x.ravel() / scale

    operators: list[Any] = [LinearOperator(shape=(n, n), matvec=f, dtype=np.float64) for f in (times, unscaled)]  # pyright: ignore[reportCallIssue]
    found, failed = cg(operators[0], u.astype(np.float64), rtol=_TOLERANCE, maxiter=10 * n, M=operators[1])
    if failed:
        raise StrategyError(
            f"Conjugate gradients did not converge in {10 * n:,} steps: the strategy may not support the workload. "
            "Add the missing queries to it, or use at most two products."
        )
    return found
