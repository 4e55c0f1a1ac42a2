"""ChunkLayout: how the counts, answers and coordinates of a strategy lie in chunks, and the ways between them.

A strategy of any number of blocks whose form is diagonal is estimated in coordinates of each attribute:
c = (Σ_j ω_j² (⊗ R Aᵀ) y_j) / λ (reconstruct.py). Every block has one way there, from counts to its answers, and one
back, from its answers to coordinates; one product is the case of one block. Cells and coordinates lie as a matrix with
one row per place of the outer axes and one column per place of the inner ones; answers lie transposed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce, singledispatch
from pathlib import Path
from typing import final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.chunks.passage import Passage, Slabs, TileNumbers, split, totalled
from hdmm.matrix import Array, Eye, Matrix, Ones
from hdmm.noise import ReleaseKey
from hdmm.strategy.axis_groups import AxisGroups
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.form import Form
from hdmm.strategy.strategy import Strategy

_BESIDES = 128  # bytes of a file besides its numbers, at most: its name in the folder; a nonce and a tag, or a digest


@final
@dataclass(frozen=True, eq=False)
class ChunkLayout:
    """One axis per attribute, or per group of attributes that factors measure together; the first ones are outer."""

    groups: AxisGroups
    form: ClassForm  # diagonal, of the blocks with their noise
    factors: tuple[tuple[Matrix, ...], ...]  # of each block, on every axis: a total where it has none
    outer: int
    rows: int  # of a slab of counts or coordinates
    answer_rows: int  # of a slab of answers

    @classmethod
    def of(cls, strategy: Strategy, form: Form, chunk_bytes: int) -> ChunkLayout:
        """The layout; StrategyError if the strategy has no diagonal form, or the chunks are too small for it."""
        diagonal = _diagonal(form)
        groups = strategy.groups
        blocks = groups.blocks(strategy.blocks)
        totals = [Ones(1, n) for n in groups.domain.shape]
        factors = tuple(tuple(map(block.by_axis.get, range(len(totals)), totals)) for block in blocks)
        sizes = [
            max(n, axis.coordinates, *(block[i].shape[0] for block in factors))
            for i, (n, axis) in enumerate(zip(groups.domain.shape, diagonal.axes, strict=True))
        ]
        return cls(groups, diagonal, factors, *split(sizes, chunk_bytes))

    @property
    def shape(self) -> tuple[int, ...]:
        """The cells of each axis."""
        return self.groups.domain.shape

    @property
    def coordinates(self) -> tuple[int, ...]:
        """The coordinates of each axis."""
        return tuple(axis.coordinates for axis in self.form.axes)

    @property
    def cell_rows(self) -> Slabs:
        """The rows of the counts."""
        return Slabs(self.shape[: self.outer], self.rows)

    @property
    def estimate_rows(self) -> Slabs:
        """The rows of the estimated coordinates."""
        return Slabs(self.coordinates[: self.outer], self.rows)

    def answer_slabs(self, block: int) -> Slabs:
        """The rows of the answers to a block."""
        return Slabs(tuple(A.shape[0] for A in self.factors[block][self.outer :]), self.answer_rows)

    def answer_columns(self, block: int) -> int:
        """The numbers in a row of the answers to a block."""
        return math.prod(A.shape[0] for A in self.factors[block][: self.outer])

    @property
    def answer_chunks(self) -> list[tuple[int, int]]:
        """Every chunk of answers: its block, and its number."""
        return [(b, j) for b in range(len(self.factors)) for j in range(self.answer_slabs(b).slabs)]

    def to_answers(self, block: int, folder: Path, key: ReleaseKey) -> Passage:
        """From exact counts to exact answers of a block."""
        outer, inner = self.factors[block][: self.outer], self.factors[block][self.outer :]
        return Passage(str(block), outer, inner, self.cell_rows, self.answer_slabs(block), "int64", folder, key)

    def to_coordinates(self, block: int, folder: Path, key: ReleaseKey, stored: TileNumbers) -> Passage:
        """From answers to a block to its part of the coordinates, before it is weighed."""
        choices, measured = self.form.lam.choices[block], self.measured[block]
        analyses = tuple(
            axis.analyses[k] if held else Eye(1)
            for axis, k, held in zip(self.form.axes, choices.tolist(), measured, strict=True)
        )
        outer, inner = analyses[: self.outer], analyses[self.outer :]
        return Passage(
            str(block), inner, outer, self.answer_slabs(block), self._coordinate_slabs(block), stored, folder, key
        )

    def _coordinate_slabs(self, block: int) -> Slabs:
        """The rows of the coordinates that a block has."""
        return Slabs(self.coordinates[: self.outer], self.rows, self.measured[block][: self.outer])

    def weight(self, block: int) -> float:
        """ω² of a block, relative to the heaviest one."""
        weights = [each.weight for each in self.form.blocks]
        return float((weights[block] / max(weights)) ** 2)

    @cached_property
    def measured(self) -> list[tuple[bool, ...]]:
        """Whether each block measures each axis; it holds coordinate 0 alone of one that it totals."""
        totals = [-1 if axis.total is None else axis.total for axis in self.form.axes]
        return [tuple(row) for row in (self.form.lam.choices != totals).tolist()]

    def solved(self, slab: int, parts: Iterable[Array | None]) -> Array:
        """A slab of coordinates, from the part of each block that has one in it: their sum, divided by λ."""
        rows, shape = self.estimate_rows, self.coordinates[self.outer :]
        places = rows.places(slab)
        out = np.zeros((places.stop - places.start, *shape))
        along = rows.along(slab)
        for part, measured in zip(parts, self.measured, strict=True):
            if part is not None:
                absent = [at > 0 for at, held in zip(along, measured, strict=False) if not held]
                here = np.flatnonzero(~np.logical_or.reduce(absent)) if absent else slice(None)
                index = tuple(slice(None) if held else slice(0, 1) for held in measured[self.outer :])
                sizes = [n if held else 1 for n, held in zip(shape, measured[self.outer :], strict=True)]
                count = len(part)
                out[(here, *index)] += part.reshape(count, *sizes)
        found = out.reshape(len(out), -1)
        if len(self.factors) > 1 or not all((axis.delta == 1).all() for axis in self.form.axes):
            found *= self._inverse(along, len(out))
        return found

    def _inverse(self, along: list[Array], count: int) -> Array:
        """1/λ of a slab; 0 where nothing was measured."""
        outer, inner = list[Array](), list[Array]()
        for block, choice in enumerate(self.form.lam.choices.tolist()):
            pairs = zip(self.form.axes, choice, strict=True)
            deltas = [np.repeat(axis.delta[:, k], axis.sizes) for axis, k in pairs]
            seen = [delta[at] for delta, at in zip(deltas, along, strict=False)]
            outer.append(reduce(np.multiply, seen, np.full(count, self.weight(block))))
            inner.append(reduce(np.multiply.outer, deltas[self.outer :], np.ones(())).ravel())
        lam = np.stack(outer, axis=1) @ np.stack(inner)
        return np.divide(1.0, lam, out=np.zeros_like(lam), where=lam > 0)

    def bytes_needed(self, itemsize: int, widths: Sequence[int], block: int) -> int:
        """On disk, at most: tiles and what is made of them, which takes their place, beside all measurements later.

        `widths` are the bytes of a measurement of each block, if noise is most of it; a file takes whole blocks of the
        disk, of so many bytes. If more are needed, estimating may not fit, and can go on elsewhere; measuring, which
        cannot, fits in any case.
        """
        measured = measuring = back = 0
        file = block + _BESIDES
        slabs_in, slabs_out = self.cell_rows.slabs, self.estimate_rows.slabs
        for b, (factors, width) in enumerate(zip(self.factors, widths, strict=True)):
            rows = slabs_in if totalled(factors[: self.outer]) else self.cell_rows.size
            height, slabs = self.answer_slabs(b).size, self.answer_slabs(b).slabs
            measured += width * height * self.answer_columns(b) + file * slabs
            measuring += 8 * height * max(rows, self.answer_columns(b)) + file * slabs * (slabs_in + 1)
            back += itemsize * height * self._coordinate_slabs(b).size + file * slabs * slabs_out
        estimates = itemsize * math.prod(self.coordinates) + file * slabs_out
        most = max(measuring, measured + max(back, estimates) + file * slabs_out)
        return most + most // 8  # for tasks at work, whose tiles are still there


@singledispatch
def _diagonal(form: Form) -> ClassForm:
    """The form, if all blocks are diagonal in it; else StrategyError."""
    raise StrategyError(
        "The blocks of the plan have no diagonal form in common, or the plan relies on known counts or is "
        "published without inference. An engine measures products, unions of two, marginals, and hierarchies "
        "of nested splits; measure without an engine, or make a plan of such a kind."
    )


@_diagonal.register
def _(form: ClassForm) -> ClassForm:
    return _diagonal.dispatch(Form)(form) if form.free else form
