"""ChunkedRelease: a release whose measurements lie in a folder of chunks, because they do not fit in memory.

It holds one product of invertible factors, y = r·(⊗Âᵢ)x + Z, so that x̂ = (⊗ Âᵢ⁺)y/r: the way of a Passage, back. The
estimate lies in chunks, too, and answers are computed from it for the tables that are asked for, and only for those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from hdmm.answer import Answers
from hdmm.domain import Domain
from hdmm.engines import Workers
from hdmm.exceptions import FileError, StrategyError
from hdmm.io import load_record, save_record
from hdmm.lattice import kron_slabs, resolution
from hdmm.ledger import Ledger, Receipt
from hdmm.matrix import Array, Eye, Matrix, Ones
from hdmm.noise import ReleaseKey
from hdmm.passage import Passage, read_chunk, split, write_chunk
from hdmm.privacy import Privacy, Unit
from hdmm.reconstruct import Estimate
from hdmm.release import MeasuredFile, PrivacyRecord, ReceiptRecord, digest, form_in_noise, read_paid, verify_paid
from hdmm.strategy.axis import axis_of
from hdmm.strategy.base import Strategy
from hdmm.strategy.form import Form
from hdmm.workload import Product, Workload

_MOST_GATHERED = 1 << 28  # numbers of an answer that are put together in this process: 2 GiB


class ChunkedFile(MeasuredFile, frozen=True):
    """All that chunks.json holds of a release; its chunks lie in the folder above."""

    digests: list[str]
    chunk_bytes: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class ChunkLayout:
    """How the cells of one product lie in chunks: the first `outer` factors by the others, in slabs of whole rows."""

    factors: tuple[Matrix, ...]
    outer: int
    rows_in: int
    rows_out: int

    @classmethod
    def of(cls, strategy: Strategy, chunk_bytes: int) -> ChunkLayout:
        """The layout; StrategyError if the strategy is not one product that can be inverted attribute by attribute."""
        blocks = strategy.blocks
        if len(blocks) != 1 or any(len(on) != 1 for on, _ in blocks[0].factors) or strategy.known:
            raise StrategyError(
                "The plan measures several products, or attributes together, or relies on known counts. An engine "
                "measures one product of attributes, as prefixes of every attribute need; measure without an engine, "
                "or make a plan for such a workload."
            )
        factors = tuple(A for _, A in blocks[0].factors)
        if blocks[0].axes != tuple(range(len(strategy.domain))) or any(_inverse(A) is None for A in factors):
            raise StrategyError(
                "The plan does not distinguish all cells of all attributes, in their order. Leave out of the domain "
                "what the workload does not ask for, or measure without an engine."
            )
        return cls(factors, *split(factors, chunk_bytes))

    def there(self, folder: Path, key: str) -> Passage:
        """From exact counts to exact answers."""
        outer, inner = self.factors[: self.outer], self.factors[self.outer :]
        return Passage(outer, inner, self.rows_in, self.rows_out, True, folder, key)

    def back(self, folder: Path, key: str) -> Passage:
        """From answers to estimates of all cells."""
        inverses = [A if found is None else found for A in self.factors for found in [_inverse(A)]]
        outer, inner = tuple(inverses[self.outer :]), tuple(inverses[: self.outer])
        return Passage(outer, inner, self.rows_out, self.rows_in, False, folder, key)

    @property
    def answers_per_row(self) -> int:
        """Numbers in a row of a chunk of measurements: answers of the outer factors."""
        return math.prod(A.shape[0] for A in self.factors[: self.outer])

    @property
    def cells_per_row(self) -> int:
        """Numbers in a row of a chunk of counts or estimates: cells of the inner attributes."""
        return math.prod(A.shape[1] for A in self.factors[self.outer :])

    @property
    def bytes_needed(self) -> int:
        """On disk, at most: exact answers after one pass, measurements, and estimates after one pass and two."""
        return 8 * 4 * math.prod(max(A.shape) for A in self.factors)


@final
@dataclass(frozen=True, eq=False)
class ChunkedRelease:
    """Noisy integers in a folder, and all that is needed to answer from them. It holds nothing else about the data."""

    strategy: Strategy
    digests: tuple[str, ...]  # of the chunks of measurements
    scales: tuple[Fraction, ...]
    privacy: Privacy
    unit: Unit
    receipt: Receipt | None
    layout: ChunkLayout
    engine: Workers

    @property
    def domain(self) -> Domain:
        """What the release is about."""
        return self.strategy.domain

    @property
    def digest(self) -> str | None:
        """SHA-256 of what was measured and with which noise: see `Release.digest`."""
        return digest(self.strategy, self.scales, self.privacy, self.unit)

    @cached_property
    def form(self) -> Form:
        """What the measurements, with their noise, say about any workload."""
        return form_in_noise(self.strategy, self.scales, self.privacy.noise)

    @cached_property
    def estimate(self) -> Estimate:
        """The least-squares estimate of the counts, in chunks; computed when first asked for, in two passes."""
        unit = 1 / resolution(self.scales[0], self.privacy.noise)
        # Nothing here is secret, but tiles under a key are also checked when they are read.
        with ReleaseKey() as key, self.engine.lending(key) as name:
            back = self.layout.back(self.engine.folder, name)
            try:
                columns = self.layout.answers_per_row
                jobs = [(back, i, each, columns, unit) for i, each in enumerate(self.digests)]
                self.engine.run(_take_measurements, jobs)
                places = range(len(back.slabs_out))
                digests = self.engine.run(_give_estimates, [(back, j, self.engine.precision) for j in places])
            finally:
                back.clear()
        return _ChunkedEstimate(self.layout, self.engine, tuple(digests))

    def answer(self, workload: Workload) -> Answers:
        """Answers to any workload that the strategy supports, one pass over the estimate per table; no privacy."""
        self.strategy.check_domain(workload.domain)
        return Answers.of(workload, self.estimate, self.form, self.privacy.noise, unbiased=self.estimate)

    def error(self, workload: Workload) -> float:
        """The expected total squared error of the answers, for the strategy as measured, with rounding."""
        self.strategy.check_domain(workload.domain)
        return self.form.total_variance(workload.products)

    def verify(self, ledger: Ledger) -> None:
        """Raise LedgerError unless this ledger holds the debit that paid for this very release (security L7)."""
        verify_paid(self.receipt, self.digest, ledger)

    def save(self) -> Path:
        """Write what the chunks hold beside them, so that `load_chunked` finds it; `measure` has done so already."""
        file = ChunkedFile(
            strategy=self.strategy,
            scales=list(self.scales),
            privacy=PrivacyRecord(**asdict(self.privacy)),
            unit=self.unit,
            receipt=None if self.receipt is None else ReceiptRecord(**asdict(self.receipt)),
            digests=list(self.digests),
            chunk_bytes=self.engine.chunk_bytes,
        )
        return save_record(self.engine.folder / "release", "chunks", file)

    def __repr__(self) -> str:
        return f"ChunkedRelease({len(self.digests):,} chunks over {self.domain.size:,} cells, {self.privacy})"


def load_chunked(engine: Workers) -> ChunkedRelease:
    """The release whose chunks lie in the engine's folder; chunks are checked by their digests when they are read."""
    file, _ = load_record(engine.folder / "release", "chunks", ChunkedFile)
    at = str(engine.folder / "release" / "chunks.json")
    privacy, receipt = read_paid(file, at)
    if file.chunk_bytes != engine.chunk_bytes:
        raise FileError(
            f"{at}: the release was made with chunks of {file.chunk_bytes} bytes, and the engine has chunks of "
            f"{engine.chunk_bytes}. Give the engine chunk_bytes={file.chunk_bytes}."
        )
    try:
        layout = ChunkLayout.of(file.strategy, file.chunk_bytes)
    except StrategyError as wrong:
        raise FileError(f"{at}: {wrong}") from None
    if len(file.digests) != len(layout.there(engine.folder, "").slabs_out):
        raise FileError(f"{at}: {len(file.digests)} digests are not those of all chunks. It is damaged.")
    scales, digests = tuple(file.scales), tuple(file.digests)
    return ChunkedRelease(file.strategy, digests, scales, privacy, file.unit, receipt, layout, engine)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _ChunkedEstimate(Estimate):
    """Estimated counts of all cells, in chunks."""

    layout: ChunkLayout
    engine: Workers
    digests: tuple[str, ...]

    def values(self, product: Product) -> Array:
        if product.joint:
            raise StrategyError(
                "Predicates on several attributes at once are not answered from chunks. Ask for others."
            )
        asked = dict(product.factors)
        sizes = [A.shape[1] for A in self.layout.factors]
        rows = [asked[i].matrix(n) if i in asked else Ones(1, n) for i, n in enumerate(sizes)]
        outer, inner = rows[: self.layout.outer], tuple(rows[self.layout.outer :])
        height, width = math.prod(sizes[: self.layout.outer]), math.prod(W.shape[0] for W in inner)
        if height * width > _MOST_GATHERED:
            raise StrategyError(
                f"The table ({product}) needs {height * width:,} numbers at once; the limit is {_MOST_GATHERED:,}. Ask "
                "for a table on fewer attributes, or for fewer rows of it."
            )
        read = [(self.engine.folder / f"estimates-{j}", each) for j, each in enumerate(self.digests)]
        jobs = [(*one, self.engine.precision, self.layout.cells_per_row, inner) for one in read]
        whole = np.concatenate(self.engine.run(_answer_chunk, jobs))
        found = kron_slabs([*outer, Eye(width)], whole.reshape([*sizes[: self.layout.outer], width]), np.float64)
        # Tables come with their attributes in the order in which they are asked for.
        order = [i for i, _ in product.factors]
        shape = [asked[i].matrix(sizes[i]).shape[0] for i in sorted(order)]
        return found.reshape(shape).transpose([sorted(order).index(i) for i in order]).reshape(-1)


def _take_measurements(job: tuple[Passage, int, str, int, float]) -> None:
    back, i, sha256, columns, unit = job
    y = read_chunk(back.folder / f"measurements-{i}", sha256, "<i8", columns)
    back.take(i, y * unit)


def _give_estimates(job: tuple[Passage, int, str]) -> str:
    back, j, precision = job
    return write_chunk(back.folder / f"estimates-{j}", back.give(j).astype(precision))


def _answer_chunk(job: tuple[Path, str, str, int, Sequence[Matrix]]) -> Array:
    """The inner factors of a table, on one chunk of the estimate."""
    path, sha256, precision, columns, inner = job
    x = read_chunk(path, sha256, precision, columns)
    shape = [len(x), *(W.shape[1] for W in inner)]
    return kron_slabs([Eye(len(x)), *inner], x.reshape(shape), np.float64).reshape(len(x), -1)


def _inverse(A: Matrix) -> Matrix | None:
    """(AᵀA)⁻¹Aᵀ; None if A does not distinguish all cells, or hardly does."""
    axis = axis_of((A,))
    if axis is None or axis.total is not None or not (axis.delta == 1).all() or not isinstance(axis.synthesis, Eye):
        return None
    return axis.analyses[0]
