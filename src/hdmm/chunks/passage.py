"""(⊗ outer ⊗ inner) X of a matrix X that does not fit in memory, in two passes for any number of attributes.

X has one row per cell of the outer attributes and one column per cell of the inner ones, and comes in slabs of whole
rows. The first pass multiplies each slab by all inner factors and writes it as tiles; the second reads one tile of
every slab, which together are some whole columns, and multiplies these by all outer factors. What comes out is the
transpose, again in slabs of whole rows, so that the way back is the same with outer and inner exchanged.

Tiles are encrypted under the key of the release, because they hold exact answers. They are removed as soon as the slabs
that are made of them are written, so that tiles and slabs together take little more disk than the larger of the two.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import StrategyError
from hdmm.chunks.chunk_files import content_of, write_whole
from hdmm.matrix import Array, Eye, Matrix, Ones
from hdmm.noise import ReleaseKey
from hdmm.strategy.slabs import kron_slabs

TileNumbers: TypeAlias = Literal["int64", "float64", "float32"]
"""The numbers of tiles. Integers are exact, and always of 8 bytes: a width that fits would show how large they are."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Slabs:
    """The rows of a matrix in slabs: places of a grid, `step` at a time. Axes that are not held have place 0 only.

    >>> rows = Slabs((2, 3), 2, (True, False))
    >>> rows.size, [rows.slab(j) for j in range(rows.slabs)]
    (2, [slice(0, 1, None), slice(1, 2, None), slice(2, 2, None)])
    """

    sizes: tuple[int, ...]
    step: int
    held: tuple[bool, ...] = ()  # all of them if none is named

    @property
    def slabs(self) -> int:
        """How many slabs there are."""
        return -(-math.prod(self.sizes) // self.step)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self._before(math.prod(self.sizes))

    def places(self, j: int) -> slice:
        """The places of a slab in the grid."""
        return slice(j * self.step, min((j + 1) * self.step, math.prod(self.sizes)))

    def slab(self, j: int) -> slice:
        """The rows of a slab."""
        places = self.places(j)
        return slice(self._before(places.start), self._before(places.stop))

    def along(self, j: int) -> list[Array]:
        """The place on each axis, of every place of a slab."""
        places = self.places(j)
        return list(np.unravel_index(np.arange(places.start, places.stop), self.sizes)) if self.sizes else []

    def _before(self, place: int) -> int:
        """How many rows there are before a place: its digits in the grid, read without the axes that are not held."""
        if all(self.held):
            return place
        digits: list[int] = []
        for n in reversed(self.sizes):
            place, digit = divmod(place, n)
            digits.append(digit)
        count, passed = place, False  # passed: all rows that begin like this are before the place
        for n, held, digit in zip(self.sizes, self.held, reversed(digits), strict=True):
            if held:
                count = count * n + (0 if passed else digit)
            elif digit > 0 and not passed:
                count, passed = count + 1, True
        return count


@final
@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """One way through both passes: the factors, the rows that go in and come out, and where tiles are kept."""

    name: str  # no other passage in the folder has it
    outer: tuple[Matrix, ...]
    inner: tuple[Matrix, ...]
    rows_in: Slabs
    rows_out: Slabs
    stored: TileNumbers  # floats are multiplied in float64, however they are stored
    folder: Path
    key: ReleaseKey  # under which tiles are encrypted

    def first_pass(self, i: int, slab: Array, wanted: Container[int] | None = None) -> None:
        """The first pass for slab i: all inner factors, then one tile per slab that comes out, if it is wanted."""
        if self._totalled:
            slab = slab.reshape(self._height(i, whole=True), -1).sum(axis=0, keepdims=True, dtype=self._dtype)
        rows = self._height(i)
        shape = [rows, *(A.shape[1] for A in self.inner)]
        wide = kron_slabs([Eye(rows), *self.inner], slab.reshape(shape), self._dtype).reshape(rows, -1)
        for j in range(self.rows_out.slabs):
            if self.gives(j) and (wanted is None or j in wanted):
                tile = wide[:, self.rows_out.slab(j)].astype(self.stored, copy=False).tobytes()
                write_whole(self._tile(i, j), [self.key.hidden(tile, f"{self.name} {i} {j}")], lasting=False)

    def second_pass(self, j: int) -> Array:
        """The second pass: slab j of what comes out."""
        out = self.rows_out.slab(j)
        columns, slabs = out.stop - out.start, range(self.rows_in.slabs)
        outer = (Ones(1, len(slabs)),) if self._totalled else self.outer
        tall = np.empty((math.prod(A.shape[1] for A in outer), columns), dtype=self._dtype)
        start = 0
        for i in slabs:
            rows = self._height(i)
            tile = self.key.shown(content_of(self._tile(i, j)), f"{self.name} {i} {j}")
            tall[start : start + rows] = np.frombuffer(tile, dtype=self.stored).reshape(rows, columns)
            start += rows
        shape = [*(A.shape[1] for A in outer), columns]
        found = kron_slabs([*outer, Eye(columns)], tall.reshape(shape), self._dtype).reshape(-1, columns)
        return np.ascontiguousarray(found.T)

    def gives(self, j: int) -> bool:
        """Whether slab j of what comes out has any rows."""
        out = self.rows_out.slab(j)
        return out.start < out.stop

    def remove(self, j: int) -> None:
        """Remove the tiles of slab j, once what was made of it is on disk and no task will ask for it again."""
        for i in range(self.rows_in.slabs):
            self._tile(i, j).unlink(missing_ok=True)

    def _tile(self, i: int, j: int) -> Path:
        return self.folder / f"tiles-{self.name}-{i}-{j}"

    def _height(self, i: int, *, whole: bool = False) -> int:
        """The rows of a tile of slab i: those of the slab, or their sum where only that is asked for."""
        rows = self.rows_in.slab(i)
        return 1 if self._totalled and not whole else rows.stop - rows.start

    @property
    def _totalled(self) -> bool:
        return totalled(self.outer)

    @property
    def _dtype(self) -> type[np.int64] | type[np.float64]:
        return np.int64 if self.stored == "int64" else np.float64


def totalled(outer: Sequence[Matrix]) -> bool:
    """Whether all that is asked of the outer axes is their total, so that a slab's rows can be summed in it."""
    return all(Ones(1, A.shape[1]) == A for A in outer)


def split(sizes: Sequence[int], chunk_bytes: int) -> tuple[int, int, int]:
    """(number of outer axes, rows of slabs in, rows of slabs out), so that every slab fits the chunk.

    >>> split([100, 10, 10], 8 * 500)
    (1, 5, 5)
    """
    most = chunk_bytes // 8
    k = min(range(len(sizes) + 1), key=lambda k: max(math.prod(sizes[:k]), math.prod(sizes[k:])))
    outer, inner = math.prod(sizes[:k]), math.prod(sizes[k:])
    if max(outer, inner) > most:
        raise StrategyError(
            f"Chunks of {chunk_bytes:,} bytes are too small: some attributes together have {max(outer, inner):,} cells "
            f"that must be in memory at once. Give the engine chunk_bytes={8 * max(outer, inner)} or more."
        )
    return k, most // inner, most // outer
