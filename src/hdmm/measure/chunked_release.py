"""ChunkedRelease: a release whose measurements lie in a folder of chunks, because they do not fit in memory.

The estimate lies in chunks, too (coordinates.py), and answers are computed from it for the tables that are asked for,
and only for those.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, final

import numpy as np
from msgspec import UNSET, UnsetType

from hdmm.answers.answers import Answers
from hdmm.base.exceptions import DataError, FileError, StrategyError
from hdmm.chunks.chunk_files import width_of
from hdmm.chunks.coordinates import ChunkedEstimate
from hdmm.chunks.layout import ChunkLayout
from hdmm.data import ChunkedCounts, Data
from hdmm.describe.workload import Workload
from hdmm.engines import Workers
from hdmm.io import encode, load_record, save_record
from hdmm.measure.measurement import Measurement, form_in_noise, verify_paid
from hdmm.measure.provenance import RowsRecord, read_rows, rows_record
from hdmm.measure.release import Release
from hdmm.measure.release_file import MeasuredFile, measured_record, read_paid
from hdmm.privacy.guarantee import Noise
from hdmm.privacy.ledger import Ledger, Receipt, seen_by
from hdmm.privacy.rows_of import UNKNOWN, RowsOf
from hdmm.reconstruct.known import Known
from hdmm.strategy.lattice import resolution

_ENVELOPE = 4096  # bytes of a record, or of an array in it, besides what they hold: headers, the receipt


class ChunkedFile(MeasuredFile, frozen=True, kw_only=True):
    """All that chunks.json holds of a release; its chunks lie in the folder above."""

    digests: list[list[str]]  # of each block
    chunk_bytes: int
    rows: RowsRecord | UnsetType = UNSET


@final
@dataclass(frozen=True, eq=False)
class ChunkedRelease(Measurement):
    """Noisy integers in a folder, and all that is needed to answer from them. It holds nothing else about the data."""

    digests: tuple[tuple[str, ...], ...]  # of the chunks of measurements of each block
    receipt: Receipt | None
    layout: ChunkLayout
    engine: Workers
    rows: RowsOf = UNKNOWN

    @cached_property
    def estimate(self) -> ChunkedEstimate:
        """The least-squares estimate, in chunks; computed when first asked for, in two passes over what is missing."""
        units = [1 / resolution(scale, self.privacy.noise) for scale in self.scales]
        return ChunkedEstimate.of(self.layout, self.engine, self.digests, units)

    def answer(self, workload: Workload, *, nonnegative: bool = False, integers: bool = False) -> Answers:
        """Answers to any workload that the strategy supports, in one pass over the estimate; costs no privacy."""
        if nonnegative or integers:
            raise StrategyError(
                "Counts that are not negative are not computed in chunks. Ask for unbiased counts, or measure without "
                "an engine."
            )
        self.strategy.check_domain(workload.domain)
        return Answers.of(workload, self.estimate, self.form, self.privacy.noise, unbiased=self.estimate)

    @property
    def receipts(self) -> tuple[Receipt | None, ...]:
        """The debit that paid for it."""
        return (self.receipt,)

    @property
    def known(self) -> tuple[Known, ...]:
        """Nothing is known besides what was measured."""
        return ()

    def verify(self, ledger: Ledger) -> None:
        """Raise LedgerError unless this ledger holds the debit that paid for this very release (security L7)."""
        verify_paid(self, self.receipts, seen_by(ledger).again(), ledger.dataset)

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write what the chunks hold beside them, where `load_chunked` finds it, as `measure` has done already.

        Under another path it is a record of the release, without its chunks.
        """
        return save_record(self.engine.folder / "release" if path is None else path, "chunks", self._file)

    @property
    def _file(self) -> ChunkedFile:
        facts, digests = measured_record(self, self.receipt), list(map(list, self.digests))
        return ChunkedFile(**facts, digests=digests, chunk_bytes=self.engine.chunk_bytes, rows=rows_record(self.rows))

    @property
    def bytes_needed(self) -> int:
        """What it takes on disk, at most, while it is measured and estimated, with its record and the ends of files."""
        block = os.statvfs(self.engine.folder).f_frsize  # each file takes whole ones
        widths = [_noise_width(scale, self.privacy.noise) for scale in self.scales]
        chunks = self.layout.bytes_needed(np.dtype(self.engine.precision).itemsize, widths, block)
        content, arrays = encode(self._file)
        held = sum(array.nbytes + _ENVELOPE + block for array in arrays.values())
        return chunks + held + len(json.dumps(content)) + _ENVELOPE + block

    def __repr__(self) -> str:
        count = sum(map(len, self.digests))
        return f"ChunkedRelease({count:,} chunks over {self.domain.size:,} cells, {self.privacy})"


AnyRelease: TypeAlias = Release | ChunkedRelease
"""A release in memory, or in chunks."""


def free_folder(engine: Workers) -> Path:
    """The engine's folder; DataError if it cannot be used, or holds more than the plan of what will be measured."""
    folder = engine.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = set(os.listdir(folder)) - {"plan"}
    except OSError as wrong:
        raise DataError(f"{folder} cannot be used: {wrong.strerror}. Give the engine another folder.") from None
    if is_whole(engine):
        raise DataError(
            f"The engine's folder is not empty: {folder} holds a release. To publish that without spending anything, "
            "add --resume; to measure another one, give a new folder."
        )
    if names:
        raise DataError(f"The engine's folder is not empty: {folder}. Give each release a new folder.")
    return folder


def is_whole(engine: Workers) -> bool:
    """Whether all of a release has been measured in the engine's folder: its record is written last."""
    return (engine.folder / "release" / "chunks.json").is_file()


def check_chunks(draft: ChunkedRelease, data: Data) -> None:
    """Refuse counts whose order does not suit, a precision that does not, and a folder that is full or too small.

    The draft is the release before it is measured, without its digests.
    """
    layout, engine = draft.layout, draft.engine
    if isinstance(data, ChunkedCounts) and not layout.groups.keeps_order:
        together = next(group for group in layout.groups.groups if group[-1] - group[0] >= len(group))
        named = ", ".join(data.domain.names[i] for i in together)
        raise StrategyError(
            f"The plan measures attributes together ({named}) that are not neighbours in the domain, so that counts "
            "in chunks would come in another order. Build the domain with them side by side, and plan again."
        )
    if engine.precision == "float32" and any(axis.total is not None for axis in layout.form.axes):
        raise StrategyError(
            "The plan measures totals of some attributes, which are stored as they are, and precision='float32' keeps "
            "seven digits of them. Give the engine precision='float64'."
        )
    folder = free_folder(engine)
    needed, free = draft.bytes_needed, shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"The release needs up to {needed / 2**20:,.1f} MiB on disk, but {folder} has {free / 2**20:,.1f} MiB "
            "left. Give a folder on a larger disk."
        )


def _noise_width(scale: Fraction, noise: Noise) -> int:
    """The bytes of an integer that holds the noise: 32 times its scale is as good as never drawn."""
    steps = scale * resolution(scale, noise) ** noise.order
    return width_of(32 * math.isqrt(math.ceil(steps ** (2 // noise.order))))


def load_chunked(engine: Workers, record: str | os.PathLike[str] | None = None) -> ChunkedRelease:
    """The release whose chunks lie in the engine's folder; chunks are checked by their digests when they are read.

    If a run was stopped while it computed the estimate, the chunks of it that are there are used, and the others are
    computed when a table is asked for. A run that was stopped while it measured cannot be continued. If a `record` of
    the release is given (`ChunkedRelease.save`), the folder must hold that very release.
    """
    at = engine.folder / "release" / "chunks.json"
    if not at.exists() and any(engine.folder.glob("measurements-*")):
        raise FileError(
            f"{engine.folder} holds a release whose measuring did not finish. It cannot be continued, because the key "
            "of its noise is gone, and a budget that was debited stays charged. Remove the folder, and measure again."
        )
    file, _ = load_record(engine.folder / "release", "chunks", ChunkedFile)
    privacy, receipt = read_paid(file, str(at))
    if file.chunk_bytes != engine.chunk_bytes:
        raise FileError(
            f"{at}: the release was made with chunks of {file.chunk_bytes} bytes, and the engine has chunks of "
            f"{engine.chunk_bytes}. Give the engine chunk_bytes={file.chunk_bytes}."
        )
    try:
        form = form_in_noise(file.strategy, file.scales, privacy.noise)
        layout = ChunkLayout.of(file.strategy, form, file.chunk_bytes)
    except StrategyError as wrong:
        raise FileError(f"{at}: {wrong}") from None
    if record is not None and load_record(record, "chunks", ChunkedFile)[0].digests != file.digests:
        raise FileError(f"{engine.folder} holds another release than {record}. Give the folder that it was made in.")
    scales, digests = tuple(file.scales), tuple(map(tuple, file.digests))
    if [len(each) for each in digests] != [layout.answer_slabs(b).slabs for b in range(len(layout.factors))]:
        raise FileError(f"{at}: the digests are not those of all chunks. It is damaged.")
    rounded, rows = file.noise is not UNSET, read_rows(file.rows)
    return ChunkedRelease(
        file.strategy, scales, privacy, file.unit, digests, receipt, layout, engine, rows, exact_gaussian=rounded
    )
