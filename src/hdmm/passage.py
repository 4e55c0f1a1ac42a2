"""(⊗ outer ⊗ inner) X of a matrix X that does not fit in memory, in two passes for any number of attributes.

X has one row per cell of the outer attributes and one column per cell of the inner ones, and comes in slabs of whole
rows. The first pass multiplies each slab by all inner factors and writes it as tiles; the second reads one tile of
every slab, which together are some whole columns, and multiplies these by all outer factors. What comes out is the
transpose, again in slabs of whole rows, so that the way back is the same with outer and inner exchanged.

Tiles are encrypted under the key of the release, because they hold exact answers; they are removed afterwards. Chunks,
which hold noisy numbers, have a digest that is checked when they are read.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from hdmm.engines import lent
from hdmm.exceptions import FileError, StrategyError
from hdmm.lattice import kron_slabs
from hdmm.matrix import Array, Eye, Matrix
from hdmm.noise import HIDING


@final
@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """One way through both passes: the factors, the rows of slabs that go in and come out, and where tiles are kept."""

    outer: tuple[Matrix, ...]
    inner: tuple[Matrix, ...]
    rows_in: int
    rows_out: int
    exact: bool  # integers; floats otherwise
    folder: Path
    key: str  # the name of the key under which tiles are encrypted

    @property
    def slabs_in(self) -> list[slice]:
        """The rows of each slab that goes in."""
        return slabs(math.prod(A.shape[1] for A in self.outer), self.rows_in)

    @property
    def slabs_out(self) -> list[slice]:
        """The rows of each slab that comes out: columns of what the first pass gives."""
        return slabs(math.prod(A.shape[0] for A in self.inner), self.rows_out)

    def take(self, i: int, slab: Array) -> None:
        """The first pass for slab i: all inner factors, then one tile per slab that comes out."""
        here = self.slabs_in[i]
        rows = here.stop - here.start
        shape = [rows, *(A.shape[1] for A in self.inner)]
        wide = kron_slabs([Eye(rows), *self.inner], slab.reshape(shape), self._dtype).reshape(rows, -1)
        key = lent(self.key)
        tiles = (key.hidden(wide[:, out].tobytes(), f"{i} {j}") for j, out in enumerate(self.slabs_out))
        write_whole(self.folder / f"tiles-{i}", tiles)

    def give(self, j: int) -> Array:
        """The second pass: slab j of what comes out."""
        out = self.slabs_out[j]
        columns = out.stop - out.start
        tall = np.empty((self.slabs_in[-1].stop, columns), dtype=self._dtype)
        for i, here in enumerate(self.slabs_in):
            rows = here.stop - here.start
            tall[here] = np.frombuffer(self._tile(i, j, rows), dtype=self._dtype).reshape(rows, columns)
        shape = [*(A.shape[1] for A in self.outer), columns]
        found = kron_slabs([*self.outer, Eye(columns)], tall.reshape(shape), self._dtype).reshape(-1, columns)
        return np.ascontiguousarray(found.T)

    def clear(self, names: str = "tiles") -> None:
        """Remove the tiles, or the chunks of this name."""
        for path in self.folder.glob(f"*{names}-*"):
            path.unlink(missing_ok=True)

    @property
    def _dtype(self) -> type[np.int64] | type[np.float64]:
        return np.int64 if self.exact else np.float64

    def _tile(self, i: int, j: int, rows: int) -> bytes:
        """Tile j of slab i, found by the sizes of those before it."""
        out = self.slabs_out[j]
        with open(self.folder / f"tiles-{i}", "rb") as file:
            file.seek(8 * rows * out.start + HIDING * j)
            hidden = file.read(8 * rows * (out.stop - out.start) + HIDING)
        return lent(self.key).shown(hidden, f"{i} {j}")


def slabs(size: int, step: int) -> list[slice]:
    """The slabs of so many rows.

    >>> slabs(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def split(factors: Sequence[Matrix], chunk_bytes: int) -> tuple[int, int, int]:
    """(number of outer factors, rows of slabs in, rows of slabs out), so that every slab fits the chunk.

    >>> split([Eye(100), Eye(10), Eye(10)], 8 * 500)
    (1, 5, 5)
    """
    sizes = [max(A.shape) for A in factors]
    most = chunk_bytes // 8
    outer, inner = min(
        ((math.prod(sizes[:k]), math.prod(sizes[k:])) for k in range(len(sizes) + 1)),
        key=max,
    )
    if max(outer, inner) > most:
        raise StrategyError(
            f"Chunks of {chunk_bytes:,} bytes are too small: some attributes together have {max(outer, inner):,} cells "
            f"that must be in memory at once. Give the engine chunk_bytes={8 * max(outer, inner)} or more."
        )
    k = next(k for k in range(len(sizes) + 1) if math.prod(sizes[:k]) == outer and math.prod(sizes[k:]) == inner)
    return k, most // inner, most // outer


def write_chunk(path: Path, array: Array) -> str:
    """Write the numbers of a chunk, whole or not at all; its digest."""
    content = np.ascontiguousarray(array).data.cast("B")
    write_whole(path, iter([content]))
    return hashlib.sha256(content).hexdigest()


def read_chunk(path: Path, digest: str, dtype: str, columns: int) -> Array:
    """The numbers of a chunk, in rows of so many columns; FileError if they are not those that were written."""
    try:
        content = path.read_bytes()
    except OSError as wrong:
        raise FileError(
            f"{path.name} cannot be read ({type(wrong).__name__}). Put the folder back as it was."
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise FileError(f"{path.name} was altered since it was written. Put the folder back as it was.")
    return np.frombuffer(content, dtype=dtype).reshape(-1, columns)


def write_whole(path: Path, pieces: Iterator[bytes | memoryview]) -> None:
    """Write a file under a name of its own, then give it its name: a task that runs twice leaves one whole file."""
    temporary = path.with_name(f".{secrets.token_hex(8)}-{path.name}")
    try:
        with open(temporary, "xb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
