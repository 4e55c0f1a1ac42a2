"""The only file in which data and noise meet.

`measure` makes a release of a strategy, data and a privacy guarantee: `prepare` (prepare.py), then `measure_prepared`,
which does so for vectors beyond memory in tasks that may run more than once.

They keep one order: everything that can be refused is refused, from public facts alone; the ledger is debited, durably;
the data is counted; exact integer noise is added to exact integer answers. A run that fails after the debit stays
charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import DataError, HdmmError, Interrupted, PrivacyError
from hdmm.base.signals import Finishing, finishing
from hdmm.base.steps import shown_steps
from hdmm.chunks.chunk_files import clear, write_chunk
from hdmm.chunks.layout import ChunkLayout
from hdmm.data import ChunkedCounts, Data
from hdmm.data.arrays import CountsBetween
from hdmm.data.counting import counting_order
from hdmm.data.records import TableData
from hdmm.describe.workload import Workload
from hdmm.engines import Device, Workers, lent
from hdmm.matrix import Array
from hdmm.matrix.matrix import frozen
from hdmm.measure.chunked_release import AnyRelease, ChunkedRelease, check_chunks
from hdmm.measure.measurement import charged
from hdmm.measure.prepare import Prepared, prepare
from hdmm.measure.provenance import MeasuredPart
from hdmm.measure.release import Release
from hdmm.noise import DeviceNoise, ReleaseKey, draw
from hdmm.privacy.guarantee import Noise, Privacy
from hdmm.privacy.ledger import Ledger, Receipt
from hdmm.privacy.rows_of import new_mark
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.reconstruct.known import Known
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import on_parts, resolution
from hdmm.strategy.slabs import exact_answers_of
from hdmm.strategy.strategy import Strategy

_Debit: TypeAlias = Callable[[Sequence[Sequence[str]]], Receipt | None]
_CHARGED = "The budget was debited and stays charged; to run again debits it again."
_CLAMP = 2**61
_MOST_DENSE = 1 << 27  # cells of rows that are counted with an engine: 1 GiB
_DRAWN = 1 << 18  # noise drawn in one call: 2 MiB, and some 20 MiB while it is drawn


def measure(
    strategy: Strategy,
    data: Data,
    privacy: Privacy,
    *,
    ledger: Ledger | None,
    unit: Unit | None = None,
    workload: Workload | None = None,
    purpose: str = "release",
    known: Sequence[Known] = (),
    engine: Device | Workers | None = None,
) -> AnyRelease:
    """The strategy's queries answered on the data, with noise that makes them private; in chunks if by workers.

    `ledger=None` must be written out: then nobody keeps the budget. The unit is one row, or as many as the data
    keeps of one person; rounding to integers is fitted to `workload`. `known` counts are public. See hdmm.Plan.measure.
    """
    unit, bound, in_chunks = unit_of(data, unit), data.rows_bound, isinstance(engine, Workers)
    _check_domain(strategy, data)
    prepared = prepare(
        strategy, privacy, unit=unit, rows_bound=bound, workload=workload, known=known, in_chunks=in_chunks
    )
    return measure_prepared(prepared, data, ledger=ledger, purpose=purpose, engine=engine)


def measure_prepared(
    prepared: Prepared, data: Data, *, ledger: Ledger | None, purpose: str, engine: Device | Workers | None = None
) -> AnyRelease:
    """Debit, count, add noise. What the data's schema and sizes rule out is refused before the debit.

    From the debit on, Ctrl-C and the like wait for the release, which `Interrupted` then holds.
    """
    _check_domain(prepared.strategy, data)
    given, prepared = prepared, replace(prepared, unit=unit_of(data, prepared.unit))
    if data.rows_bound > prepared.rows_bound:
        raise DataError(
            f"The data declares up to {data.rows_bound:,} rows, but the measurement was prepared for "
            f"{prepared.rows_bound:,}. Prepare it for as many as the data declares."
        )
    release: AnyRelease | None = None
    try:
        with finishing() as signals, _telling_charge(signals):
            debit = partial(_debited, data, ledger=ledger, prepared=prepared, purpose=purpose, signals=signals)
            if isinstance(engine, Workers):
                release = _in_chunks(prepared, data, engine, debit)
            else:
                release = _in_memory(prepared, data, engine, debit)
            given.share_form(release)  # the unit is not in it
            return release
    except KeyboardInterrupt:
        if release is None:
            raise
        raise Interrupted(
            "The release was measured before that took effect: it is the attribute `release` of this exception (at a "
            "prompt or in a notebook, sys.last_value.release). Save it, because its budget stays charged.",
            release,
        ) from None


def unit_of(data: Data, given: Unit | None) -> Unit:
    """The unit of privacy: as declared, of the persons in the data, and no smaller than what it keeps of them."""
    kept, column = data.max_rows_per_id or 1, data.id_column
    unit = Unit(rows=kept, id=column) if given is None else given
    if column is not None and unit.id not in (None, column):
        raise PrivacyError(
            f"The unit is a person by column {unit.id!r}, but the data distinguishes persons by {column!r}. Declare "
            "the data with that id, or leave the id out of the unit."
        )
    unit = replace(unit, id=column or unit.id)  # counts have no columns, so that of them the unit alone says whose
    if unit.rows < kept:
        raise PrivacyError(
            f"The data keeps up to {kept} rows of a person, but the unit protects {unit.rows}. Declare "
            f"Unit(rows={kept}), or keep fewer rows with max_rows_per_id."
        )
    return unit


def _in_memory(prepared: Prepared, data: Data, engine: Device | None, debit: _Debit) -> Release:
    strategy, scales, noise = prepared.strategy, prepared.scales, prepared.privacy.noise
    if engine is not None:
        engine.check(strategy)
        DeviceNoise(engine.xp).draw(
            noise, Fraction(1), 1
        )  # a kernel that does not compile fails here, before the debit
    names, table = strategy.domain.names, strategy.table
    axes = table.axes
    order = counting_order(strategy.domain, axes)
    wanted = [[names[i] for i in axes[j]] for j in order]
    receipt = debit(wanted)
    with _withholding():
        counts = data.marginals(wanted)
        if engine is None:
            measurements = exact_answers_of(on_parts(strategy), order, counts)
        else:
            blocks = on_parts(strategy)
            pairs = [(blocks[j], scales[j]) for j in order]
            found = _measured_on(engine, pairs, counts, noise)
            measurements = [y for _, y in sorted(zip(order, found, strict=True), key=itemgetter(0))]
    if engine is None:
        _add_noise(measurements, scales, noise)
    answers = tuple(map(frozen, measurements))
    part = MeasuredPart(new_mark(), data.rows_of, receipt)
    facts = strategy, scales, prepared.privacy, prepared.unit
    return Release(*facts, answers, (part,), prepared.known, exact_gaussian=prepared.exact_gaussian)


def _in_chunks(prepared: Prepared, data: Data, engine: Workers, debit: _Debit) -> ChunkedRelease:
    """Debit, count and add noise in tasks of an engine, in two passes over chunks in its folder.

    A task that runs again draws the same noise, from the key of this release (security N10). Exact answers are on
    disk between the passes only, encrypted under that key.
    """
    strategy, scales, privacy = prepared.strategy, prepared.scales, prepared.privacy
    layout = ChunkLayout.of(strategy, prepared.form, engine.chunk_bytes)
    unmeasured = tuple(("0" * 64,) * layout.answer_slabs(b).slabs for b in range(len(scales)))
    facts = strategy, scales, privacy, prepared.unit
    rounded = prepared.exact_gaussian
    draft = ChunkedRelease(*facts, unmeasured, None, layout, engine, data.rows_of, exact_gaussian=rounded)
    check_chunks(draft, data)
    engine.check()
    chunks = data if isinstance(data, ChunkedCounts) else None
    wanted = [[strategy.domain.names[i] for i in layout.groups.order]] if chunks is None and not _sparse(data) else []
    receipt = debit(wanted)
    work = _Measuring(layout, engine.folder, scales, privacy.noise, chunks)
    with ReleaseKey() as key, _withholding():
        try:
            found = _measured_in_chunks(work, data, engine, key)
        except BaseException:
            clear(engine.folder, "measurements")  # some chunks are no release
            raise
        finally:
            clear(engine.folder, "tiles")
    digests = tuple(tuple(found[b, j] for j in range(layout.answer_slabs(b).slabs)) for b in range(len(scales)))
    release = replace(draft, digests=digests, receipt=receipt)
    release.save()
    return release


def _check_domain(strategy: Strategy, data: Data) -> None:
    if strategy.domain != data.domain:
        raise DataError(
            f"The strategy is over ({', '.join(strategy.domain.names)}), but the data is over "
            f"({', '.join(data.domain.names)}). Build both on one Domain."
        )


def _debited(
    data: Data,
    wanted: Sequence[Sequence[str]],
    *,
    ledger: Ledger | None,
    prepared: Prepared,
    purpose: str,
    signals: Finishing,
) -> Receipt | None:
    """The receipt of the debit, after a last check that the source exists, has its columns and is not too large."""
    _check_counting(data, wanted)
    if ledger is None:
        return None
    paid, gaussian = charged(prepared.spending), prepared.exact_gaussian
    receipt = ledger.debit(paid, purpose, unit=prepared.unit, pays_for=prepared.digest, gaussian=gaussian)
    signals.debit()
    return receipt


def _check_counting(data: Data, wanted: Sequence[Sequence[str]]) -> None:
    data.check()
    data.check_marginals(wanted)


@contextmanager
def _withholding() -> Generator[None]:
    """Turn errors of other libraries into one that reveals nothing about the data (security O3)."""
    try:
        yield
    except HdmmError:
        raise
    except Exception as wrong:
        raise DataError(
            f"Counting the data failed ({type(wrong).__name__}). Nothing was released. Check the source, and run again."
        ) from None


@contextmanager
def _telling_charge(signals: Finishing) -> Generator[None]:
    """Say in every error after the debit, whatever its cause, that the budget stays charged (security L1)."""
    try:
        yield
    except Exception as wrong:
        if not signals.debited:
            raise
        if isinstance(wrong, HdmmError):
            wrong.args = (f"{wrong} {_CHARGED}", *wrong.args[1:])
            raise
        raise DataError(f"Measuring failed ({type(wrong).__name__}). Nothing was released. {_CHARGED}") from None


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Measuring:
    """What the tasks of a measurement share."""

    layout: ChunkLayout
    folder: Path
    scales: tuple[Fraction, ...]
    noise: Noise
    data: ChunkedCounts | None = field(repr=False)  # None if it is counted in this process

    def cells(self, i: int) -> tuple[int, int]:
        """The first cell of a slab of counts, and the one after its last."""
        rows, columns = self.layout.cell_rows.slab(i), math.prod(self.layout.shape[self.layout.outer :])
        return rows.start * columns, rows.stop * columns

    def take(self, i: int, slab: Array, key: ReleaseKey) -> None:
        """The first pass for a slab of counts: one count serves all blocks."""
        for block in range(len(self.scales)):
            self.layout.to_answers(block, self.folder, key).first_pass(i, slab)


def _measured_in_chunks(work: _Measuring, data: Data, engine: Workers, key: ReleaseKey) -> dict[tuple[int, int], str]:
    """The digests of all chunks of measurements, each by its block and number."""
    rows, chunks = work.layout.cell_rows, work.layout.answer_chunks
    if work.data is None:
        counts = _counts_between(data, [data.domain.names[i] for i in work.layout.groups.order])
        with shown_steps("Counting", rows.slabs, long=rows.slabs > 1) as step:
            for i in range(rows.slabs):
                work.take(i, counts(*work.cells(i)), key)
                step()
        del counts
    with engine.lending(work, key) as name:
        if work.data is not None:
            engine.all("Counting", _count_chunk, [(name, i) for i in range(rows.slabs)])
        found = dict[tuple[int, int], str]()
        done = engine.results("Measuring", _noisy_chunk, [(name, block, j) for block, j in chunks])
        for (block, j), digest_of in zip(chunks, done, strict=True):
            found[block, j] = digest_of
            work.layout.to_answers(block, work.folder, key).remove(j)
    return found


def _counts_between(data: Data, attributes: Sequence[str]) -> CountsBetween:
    """The counts of data in this process. Of many cells, only those that hold rows are in its memory."""
    if isinstance(data, TableData) and _sparse(data):
        return data.sparse(attributes).between
    x = data.marginal(attributes).reshape(-1)
    return lambda start, stop: x[start:stop]


def _sparse(data: Data) -> bool:
    """Whether data has more cells than are counted at once: a public fact, as what may be refused depends on it."""
    return isinstance(data, TableData) and data.domain.size > _MOST_DENSE


def _count_chunk(job: tuple[str, int]) -> None:
    name, i = job
    loan = lent(name)
    work: _Measuring = loan.work
    if work.data is not None:
        with _withholding():
            work.take(i, work.data.between(*work.cells(i)), loan.key)


def _noisy_chunk(job: tuple[str, int, int]) -> str:
    """The second pass for one chunk: exact answers, which get their noise before anything is written."""
    name, block, j = job
    loan = lent(name)
    work: _Measuring = loan.work
    scale, noise = work.scales[block], work.noise
    with _withholding():
        y, r = work.layout.to_answers(block, work.folder, loan.key).second_pass(j), resolution(scale, noise)
        y *= r
        y += loan.key.draw(noise, scale * r**noise.order, y.size, block=block, chunk=j).reshape(y.shape)
        np.clip(y, -_CLAMP, _CLAMP, out=y)
        return write_chunk(work.folder.joinpath(f"measurements-{block}-{j}"), y)


def _add_noise(measurements: Sequence[Array], scales: Sequence[Fraction], noise: Noise) -> None:
    """y ← clamp(r·y + Z), in place. Blocks with one scale share calls of the sampler; each draw is used once.

    In one thread: the sampler's calls are so short that two threads wait for the interpreter's lock, and took as long.
    """
    by_scale: dict[tuple[int, int], list[Array]] = {}
    for y, scale in zip(measurements, scales, strict=True):
        pieces = by_scale.setdefault(scale.as_integer_ratio(), [])
        pieces.extend([y[start : start + _DRAWN] for start in range(0, len(y), _DRAWN)])
    for ratio, pieces in by_scale.items():
        scale = Fraction(*ratio)
        r = resolution(scale, noise)
        for batch in _batches(pieces):
            ends = [0, *accumulate(map(len, batch))]
            drawn = draw(noise, scale * r**noise.order, ends[-1])
            parts = [drawn[start:stop] for start, stop in pairwise(ends)]
            for part, piece in zip(parts, batch, strict=True):
                part += r * piece  # modulo 2⁶⁴ if the table has more rows than declared
            np.clip(drawn, -_CLAMP, _CLAMP, out=drawn)  # of all together: a call takes as long as 1,000 numbers
            for part, piece in zip(parts, batch, strict=True):
                piece[:] = part


def _measured_on(
    engine: Device, blocks: Sequence[tuple[Block, Fraction]], counts: Iterable[Array], noise: Noise
) -> list[Array]:
    """clamp(r·y + Z) of every block by an engine, each given with its scale: the distribution of `_add_noise`."""
    drawn, found = DeviceNoise(engine.xp), list[Array]()
    for (block, scale), x in zip(blocks, counts, strict=True):
        y, r = engine.answers([A for _, A in block.factors], x), resolution(scale, noise)
        y *= r
        y += drawn.draw(noise, scale * r**noise.order, y.size)
        found.append(engine.to_host(engine.xp.clip(y, -_CLAMP, _CLAMP, out=y)))
    return found


def _batches(pieces: Sequence[Array]) -> Iterator[list[Array]]:
    """The pieces in batches of at most _DRAWN numbers."""
    batch, size = list[Array](), 0
    for piece in pieces:
        if batch and size + len(piece) > _DRAWN:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += len(piece)
    if batch:
        yield batch
