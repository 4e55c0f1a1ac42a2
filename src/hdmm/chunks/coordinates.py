"""ChunkedEstimate: the least-squares estimate of a release in chunks, in coordinates of each axis (layout.py).

It is computed in two passes over the measurements, which leave out chunks that are there already: what a run that was
stopped has written is used by the next. Tables are answered in one pass over the chunks, however many are asked for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import FileError, StrategyError
from hdmm.chunks.chunk_files import clear, read_chunk, read_signed, write_signed
from hdmm.chunks.layout import ChunkLayout
from hdmm.chunks.passage import Passage, TileNumbers
from hdmm.describe.product import Product
from hdmm.engines import Workers, lent
from hdmm.matrix import Array, Dense, Eye, Kron, Matrix
from hdmm.noise import ReleaseKey
from hdmm.reconstruct.estimate import Estimate, all_values
from hdmm.strategy.axis import Axis, after
from hdmm.strategy.slabs import kron_slabs

_MANY = 128  # tasks that read the chunks of an estimate, so that their results are few
_MOST_GATHERED = 1 << 28  # numbers of answers that are put together in this process: 2 GiB


@final
@dataclass(frozen=True, slots=True, eq=False)
class ChunkedEstimate(Estimate):
    """Estimated coordinates of all cells, in chunks that are signed with what they were computed from."""

    layout: ChunkLayout
    engine: Workers
    source: str

    @classmethod
    def of(
        cls, layout: ChunkLayout, engine: Workers, digests: Sequence[Sequence[str]], units: Sequence[float]
    ) -> ChunkedEstimate:
        """The estimate from measurements with these digests; chunks of it that are there and intact stay."""
        source = sha256(f"{engine.precision} {list(map(list, digests))}".encode()).hexdigest()
        work = _Estimating(layout, engine.folder, engine.precision, source, digests, units)
        places = range(layout.estimate_rows.slabs)
        there = [k for k in places if work.path(k).exists()]
        if len(there) == len(places):  # each is checked when it is read
            return cls(layout, engine, source)
        clear(engine.folder, "tiles")
        with engine.lending(work) as name:
            intact = engine.all("Checking the estimate", _is_intact, [(name, k) for k in there])
        missing = sorted(set(places) - set(itertools.compress(there, intact)))
        work = replace(work, wanted=frozenset(missing))
        # Nothing here is secret, but tiles under a key are also checked when they are read.
        with ReleaseKey() as key, engine.lending(work, key) as name:
            try:
                jobs = [(name, block, j) for block, j in layout.answer_chunks]
                engine.all("Estimating, first pass", _take_measurements, jobs)
                done = engine.results("Estimating, second pass", _give_estimates, [(name, k) for k in missing])
                for k, _ in zip(missing, done, strict=True):
                    for way in work.ways(key):
                        way.remove(k)
            finally:
                clear(engine.folder, "tiles")
        return cls(layout, engine, source)

    def values(self, product: Product) -> Array:
        return all_values(self, [product])

    def gathered(self, tables: Sequence[_Table]) -> list[Array]:
        """The coordinates that some tables need, in one pass over the chunks that hold any of them."""
        rows = self.layout.estimate_rows
        work = _Answering(self.layout, self.engine.folder, self.engine.precision, self.source, tables)
        chosen = [k for k in range(rows.slabs) if any(table.needs(self.layout, k) for table in tables)]
        found = [np.zeros((table.height(self.layout), table.width)) for table in tables]
        step = 1 + len(chosen) // _MANY  # parts of a table that are added up before they travel
        with self.engine.lending(work) as name:
            jobs = [(name, *chosen[start : start + step]) for start in range(0, len(chosen), step)]
            for parts in self.engine.results("Answering", _answer_chunks, jobs):
                for out, (places, part) in zip(found, parts, strict=True):
                    out[places] += part
        return found


@all_values.register
def _(estimate: ChunkedEstimate, products: Sequence[Product]) -> Array:
    """The values of all products: as many in one pass over the chunks as fit in memory together."""
    layout, groups = estimate.layout, estimate.layout.groups
    tables = [_Table.of(product if groups.trivial else groups.product(product), layout) for product in products]
    out: list[Array] = []
    batch, size = list[_Table](), 0
    for table, product in itertools.chain(zip(tables, products, strict=True), [(None, None)]):
        cells = 0 if table is None else table.height(layout) * table.width
        if cells > _MOST_GATHERED:
            raise StrategyError(
                f"The table ({product}) needs {cells:,} numbers at once; the limit is {_MOST_GATHERED:,}. Ask for a "
                "table on fewer attributes, or for fewer rows of it."
            )
        if batch and (table is None or size + cells > _MOST_GATHERED):
            done = zip(batch, estimate.gathered(batch), strict=True)
            out += [each.finished(layout, found) for each, found in done]
            batch, size = [], 0
        if table is not None:
            batch.append(table)
            size += cells
    values = zip(products, out, strict=True)
    return np.concatenate([each if groups.trivial else groups.restored(p, each) for p, each in values])


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One product of queries: what a chunk is multiplied by on inner axes, and how its rows are summed on outer ones.

    Outer axes that are asked for stay coordinates until all chunks are together, and so do inner ones on which a
    predicate sees several attributes.
    """

    product: Product
    asked: tuple[int, ...]  # axes, ascending
    inner: tuple[Matrix, ...]
    totals: dict[int, Array]  # of outer axes that are not asked for: the weight of each coordinate

    @classmethod
    def of(cls, product: Product, layout: ChunkLayout) -> _Table:
        axes, sets = layout.form.axes, {on[0]: p for on, p in product.sets if len(on) == 1}
        asked = sorted(i for on, _ in product.sets for i in on)
        inner: list[Matrix] = []
        for i in range(layout.outer, len(axes)):
            if i not in asked:
                inner.append(Dense(_total(axes[i])[None]))
            else:
                n = layout.shape[i]
                inner.append(after(sets[i].matrix(n), axes[i].synthesis) if i in sets else Eye(axes[i].coordinates))
        totals = {i: _total(axes[i]) for i in range(layout.outer) if i not in asked}
        return cls(product, tuple(asked), tuple(inner), totals)

    @property
    def width(self) -> int:
        """Numbers that a row of a chunk becomes."""
        return math.prod(M.shape[0] for M in self.inner)

    def height(self, layout: ChunkLayout) -> int:
        """Rows once they are summed."""
        return math.prod(n for i, n in enumerate(layout.estimate_rows.sizes) if i not in self.totals)

    def needs(self, layout: ChunkLayout, k: int) -> bool:
        """Whether chunk k holds a row that counts: of an axis that some block totals, coordinate 0 is the total."""
        axes, rows = layout.form.axes, layout.estimate_rows
        held = tuple(i not in self.totals or axes[i].total is None for i in range(layout.outer))
        slab = type(rows)(rows.sizes, rows.step, held).slab(k)
        return slab.stop > slab.start

    def part(self, layout: ChunkLayout, k: int, x: Array) -> tuple[Array, Array]:
        """What chunk k contributes: to which rows, and what."""
        along, sizes = layout.estimate_rows.along(k), layout.estimate_rows.sizes
        weights, places = np.ones(len(x)), np.zeros(len(x), dtype=np.int64)
        for i, at in enumerate(along):
            if i in self.totals:
                weights *= self.totals[i][at]
            else:
                places = places * sizes[i] + at
        used = np.flatnonzero(weights)
        if not len(used):
            return used, np.empty((0, self.width))
        distinct, to = np.unique(places[used], return_inverse=True)
        if not np.array_equal(distinct, places) or not (weights == 1).all():
            combine = sp.csr_array((weights[used], (to.ravel(), used)), shape=(len(distinct), len(x)))
            x = combine @ x
        shape = [len(distinct), *(M.shape[1] for M in self.inner)]
        found = kron_slabs([Eye(len(distinct)), *self.inner], x.reshape(shape), np.float64)
        return distinct, found.reshape(len(distinct), -1)

    def finished(self, layout: ChunkLayout, found: Array) -> Array:
        """One value per query, with the attributes in the order of the product."""
        axes, inner = layout.form.axes, dict(enumerate(self.inner, start=layout.outer))
        shape = [inner[i].shape[0] if i in inner else axes[i].coordinates for i in self.asked]
        order = [i for on, _ in self.product.sets for i in on]
        T = found.reshape(shape).transpose([self.asked.index(i) for i in order])
        last: list[Matrix] = []
        for on, predicates in self.product.sets:
            if len(on) == 1 and on[0] in inner:
                last.append(Eye(inner[on[0]].shape[0]))
            else:
                S = [axes[i].synthesis for i in on]
                W = predicates.matrix(self.product.cells(on))
                last.append(after(W, S[0] if len(S) == 1 else Kron(tuple(S))))
        return kron_slabs(last, np.ascontiguousarray(T), np.float64)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Estimating:
    """What the tasks of an estimate share."""

    layout: ChunkLayout
    folder: Path
    precision: TileNumbers
    source: str
    digests: Sequence[Sequence[str]]
    units: Sequence[float]
    wanted: frozenset[int] = frozenset()

    def path(self, k: int) -> Path:
        return self.folder / f"estimates-{k}"

    def ways(self, key: ReleaseKey) -> list[Passage]:
        """The way back of every block."""
        blocks = range(len(self.layout.factors))
        return [self.layout.to_coordinates(block, self.folder, key, self.precision) for block in blocks]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Answering:
    """What the tasks of some tables share."""

    layout: ChunkLayout
    folder: Path
    precision: TileNumbers
    source: str
    tables: Sequence[_Table]


def _is_intact(job: tuple[str, int]) -> bool:
    name, k = job
    work: _Estimating = lent(name).work
    try:
        read_signed(work.path(k), f"{work.source} {k}", work.precision, 1)
    except FileError:
        return False
    return True


def _take_measurements(job: tuple[str, int, int]) -> None:
    name, block, j = job
    loan = lent(name)
    work: _Estimating = loan.work
    layout, path = work.layout, work.folder / f"measurements-{block}-{j}"
    y = read_chunk(path, work.digests[block][j], layout.answer_columns(block))
    work.ways(loan.key)[block].first_pass(j, y * (work.units[block] * layout.weight(block)), work.wanted)


def _give_estimates(job: tuple[str, int]) -> None:
    name, k = job
    loan = lent(name)
    work: _Estimating = loan.work
    parts = (way.second_pass(k) if way.gives(k) else None for way in work.ways(loan.key))
    found = work.layout.solved(k, parts).astype(work.precision, copy=False)
    write_signed(work.path(k), found, f"{work.source} {k}")


def _answer_chunks(job: tuple[str, *tuple[int, ...]]) -> list[tuple[Array, Array]]:
    """What some chunks of the estimate contribute to each table: to which rows, and what."""
    name, *chunks = job
    work: _Answering = lent(name).work
    layout, columns = work.layout, math.prod(work.layout.coordinates[work.layout.outer :])
    found = [(np.empty(0, dtype=np.int64), np.empty((0, table.width))) for table in work.tables]
    for k in chunks:
        x = read_signed(work.folder / f"estimates-{k}", f"{work.source} {k}", work.precision, columns)
        parts = [table.part(layout, k, x) for table in work.tables]
        found = [_added(rows, part) for rows, part in zip(found, parts, strict=True)]
    return found


def _added(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """The sum of two parts of a table, each given as places of rows, ascending, and the rows."""
    places = np.union1d(one[0], other[0])
    total = np.zeros((len(places), one[1].shape[1]))
    for at, rows in (one, other):
        total[np.searchsorted(places, at)] += rows
    return places, total


def _total(axis: Axis) -> Array:
    """How much each coordinate counts in the total: 1 and 0 if some block totals the axis (strategy/axis.py)."""
    if axis.total is not None:
        return np.eye(1, axis.coordinates)[0]
    return axis.synthesis.T.matmat(np.ones((axis.synthesis.shape[0], 1)))[:, 0]
