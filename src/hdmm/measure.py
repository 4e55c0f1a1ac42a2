"""The only file in which data and noise meet.

`measure` makes a Release of a strategy, data and a privacy guarantee: `prepare`, then `Prepared.measure`. `in_stages`
is for mechanisms that look at the data to decide what to ask next: its `Stages` count, add noise and choose. With an
engine, `Prepared.measure_in_chunks` does the same for vectors beyond memory, in tasks that may run more than once.

All keep one order: everything that can be refused is refused, from public facts alone; the ledger is debited, durably;
the data is counted; exact integer noise is added to exact integer answers. A run that fails after the debit stays
charged.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from typing import final

import numpy as np

from hdmm.chunk_files import clear, width_of, write_chunk
from hdmm.chunked import ChunkedRelease
from hdmm.cores import spread
from hdmm.data import ChunkedCounts, Data
from hdmm.data.base import Counts
from hdmm.data.counting import counting_order
from hdmm.engines import Device, Workers, lent
from hdmm.exceptions import DataError, HdmmError, PrivacyError, StrategyError
from hdmm.known import Known, known_counts, known_products
from hdmm.lattice import MAX_ANSWER, Lattice, exact_answers_of, once_each, resolution
from hdmm.layout import ChunkLayout
from hdmm.ledger import Ledger, Receipt
from hdmm.matrix import Array
from hdmm.matrix.checks import frozen
from hdmm.noise import DeviceNoise, ReleaseKey, check_scale, draw, exponential_choice
from hdmm.privacy import Noise, Privacy, PureDP, Unit
from hdmm.release import Release, charged, digest, form_in_noise
from hdmm.steps import shown_steps
from hdmm.strategy.base import Strategy
from hdmm.strategy.blocks import Block
from hdmm.strategy.form import Form
from hdmm.strategy.informed import known_by, told
from hdmm.workload import Workload

_CLAMP = 2**61
_DRAWN = 1 << 18  # noise drawn in one call: 2 MiB, and some 20 MiB while it is drawn
MOST_MEASUREMENTS = 1 << 31  # of all blocks together: 16 GiB
MOST_IN_CHUNKS = 1 << 40  # with an engine: 8 TiB


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
    engine: Device | None = None,
) -> Release:
    """The strategy's queries answered on the data, with noise that makes them private.

    `ledger=None` must be written out: then nobody keeps the budget. The unit is one row, or as many as the data
    keeps of one person; rounding to integers is fitted to `workload`. `known` counts are public. See hdmm.Plan.measure.
    """
    unit = unit_of(data, unit)
    _check_domain(strategy, data)
    prepared = prepare(strategy, privacy, unit=unit, rows_bound=data.rows_bound, workload=workload, known=known)
    return prepared.measure(data, ledger=ledger, purpose=purpose, engine=engine)


def measure_in_chunks(
    strategy: Strategy,
    data: Data,
    privacy: Privacy,
    engine: Workers,
    *,
    ledger: Ledger | None,
    unit: Unit | None = None,
    workload: Workload | None = None,
    purpose: str = "release",
    known: Sequence[Known] = (),
) -> ChunkedRelease:
    """The same in tasks of an engine, for vectors beyond memory."""
    unit = unit_of(data, unit)
    _check_domain(strategy, data)
    most, bound = MOST_IN_CHUNKS, data.rows_bound
    prepared = prepare(strategy, privacy, unit=unit, rows_bound=bound, workload=workload, known=known, most=most)
    return prepared.measure_in_chunks(data, engine, ledger=ledger, purpose=purpose)


def prepare(
    strategy: Strategy,
    privacy: Privacy,
    *,
    unit: Unit,
    rows_bound: int,
    workload: Workload | None = None,
    known: Sequence[Known] = (),
    most: int = MOST_MEASUREMENTS,
) -> Prepared:
    """The strategy, ready to be measured on a table of at most `rows_bound` rows; refused if that is impossible."""
    public = known_counts(strategy.domain, known)
    for product in strategy.known:
        if not told(known_products(public), product):
            names = known_by(product) or "nothing (the total)"
            raise StrategyError(f"The plan relies on known counts by {names}, which were not given. Give them again.")
    strategy = replace(strategy, known=known_products(public))
    lattice = Lattice.of(strategy, privacy.noise, max_rows=rows_bound, workload=workload)
    scales = lattice.scales(privacy, unit)
    _check(lattice, scales, rows_bound, privacy.noise, most)
    prepared = Prepared(lattice.strategy, scales, privacy, unit, rows_bound, public)
    if public:
        _ = prepared.form  # known counts that it cannot take are refused here, not after the debit
    return prepared


@final
@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A measurement before it is made: the strategy rounded to integers, and the exact scales of its noise.

    All that can be refused from public facts has been refused. It is made once, for the forecast and for the release.
    """

    strategy: Strategy
    scales: tuple[Fraction, ...]
    privacy: Privacy
    unit: Unit
    rows_bound: int
    known: tuple[Known, ...] = ()

    @property
    def form(self) -> Form:
        """What the measurements will say about queries, with their noise."""
        return form_in_noise(self.strategy, self.scales, self.privacy.noise)

    def measure(self, data: Data, *, ledger: Ledger | None, purpose: str, engine: Device | None = None) -> Release:
        """Debit, count, add noise. What the data's schema and sizes rule out is refused before the debit."""
        self._check_data(data)
        if engine is not None:
            engine.check(self.strategy)
            DeviceNoise(engine.xp).laplace(1, 1)  # a kernel that does not compile fails here, before the debit
        names, table = self.strategy.domain.names, self.strategy.table
        axes = table.axes
        order = counting_order(self.strategy.domain, axes)
        wanted = [[names[i] for i in axes[j]] for j in order]
        pays_for = None if ledger is None else digest(self.strategy, self.scales, self.privacy, self.unit)
        receipt = _debited(data, wanted, ledger, self.privacy, purpose, pays_for)
        with _withholding():
            counts = data.marginals(wanted)
            if engine is None:
                measurements = exact_answers_of(table, order, counts)
            else:
                pairs = [(self.strategy.blocks[j], self.scales[j]) for j in order]
                found = _measured_on(engine, pairs, counts, self.privacy.noise)
                measurements = [y for _, y in sorted(zip(order, found, strict=True), key=itemgetter(0))]
        if engine is None:
            _add_noise(measurements, self.scales, self.privacy.noise)
        answers = tuple(map(frozen, measurements))
        return Release(self.strategy, answers, self.scales, self.privacy, self.unit, receipt, self.known)

    def measure_in_chunks(self, data: Data, engine: Workers, *, ledger: Ledger | None, purpose: str) -> ChunkedRelease:
        """Debit, count and add noise in tasks of an engine, in two passes over chunks in its folder.

        A task that runs again draws the same noise, from the key of this release (security N10). Exact answers are on
        disk between the passes only, encrypted under that key.
        """
        self._check_data(data)
        layout = ChunkLayout.of(self.strategy, self.form, engine.chunk_bytes)
        _check_chunks(layout, data, engine, [_noise_width(scale, self.privacy.noise) for scale in self.scales])
        engine.check()
        names = self.strategy.domain.names
        wanted = [] if isinstance(data, ChunkedCounts) else [[names[i] for i in layout.groups.order]]
        pays_for = None if ledger is None else digest(self.strategy, self.scales, self.privacy, self.unit)
        receipt = _debited(data, wanted, ledger, self.privacy, purpose, pays_for)
        chunks = data if isinstance(data, ChunkedCounts) else None
        work = _Measuring(layout, engine.folder, self.scales, self.privacy.noise, chunks)
        with ReleaseKey() as key, _withholding():
            try:
                found = _measured_in_chunks(work, data, engine, key)
            except BaseException:
                clear(engine.folder, "measurements")  # some chunks are no release
                raise
            finally:
                clear(engine.folder, "tiles")
        digests = tuple(
            tuple(found[b, j] for j in range(layout.answer_slabs(b).slabs)) for b in range(len(self.scales))
        )
        privacy, unit = self.privacy, self.unit
        release = ChunkedRelease(self.strategy, digests, self.scales, privacy, unit, receipt, layout, engine)
        release.save()
        return release

    def _check_data(self, data: Data) -> None:
        _check_domain(self.strategy, data)
        unit_of(data, self.unit)
        if data.rows_bound > self.rows_bound:
            raise DataError(
                f"The data declares up to {data.rows_bound:,} rows, but the measurement was prepared for "
                f"{self.rows_bound:,}. Prepare it for as many as the data declares."
            )


def in_stages(
    data: Data,
    privacy: Privacy,
    shares: Sequence[Fraction | str],
    *,
    sensitivities: Sequence[int],
    tables: Sequence[Sequence[str]],
    ledger: Ledger | None,
    unit: Unit | None,
    purpose: str,
) -> Stages:
    """The stages of a mechanism, after all that can be refused is refused and the whole budget is debited.

    Each stage except the last has a share of ε. `sensitivities` says how much one row changes what each stage adds
    noise to. Noise too large for 64-bit integers is refused, and so are `tables` too large to count. Reads no data.
    """
    stages = Stages(data, split(privacy, shares), tuple(sensitivities), unit_of(data, unit))
    for stage in range(len(sensitivities)):
        check_scale(Noise.LAPLACE, stages.scale(stage))
    _debited(data, tables, ledger, privacy, purpose)
    return stages


@final
@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """Data under one debit that is spent in stages, ε = ε₁ + ε₂ + …, exactly. All of them protect one unit."""

    _data: Data = field(repr=False)
    epsilons: tuple[Fraction, ...]
    sensitivities: tuple[int, ...]
    unit: Unit

    @property
    def factor(self) -> int:
        """The factor on every stage's sensitivity to one row: a unit is this many rows, one after another."""
        return self.unit.factor(Noise.LAPLACE, signed=False)

    def scale(self, stage: int) -> Fraction:
        """The scale of Laplace noise that spends the stage on a query of its sensitivity."""
        return Fraction(self.sensitivities[stage] * self.factor, self.epsilons[stage])

    def counted(self, wanted: Iterable[Sequence[str]]) -> Iterator[Counts]:
        """The exact marginals. What is made from them leaves the mechanism only through `noisy` or `chosen`."""
        with _withholding():
            yield from self._data.marginals(wanted)

    def noisy(self, stage: int, values: Counts) -> Counts:
        """The values, each with Laplace noise of the stage's scale: exact integers."""
        return values + draw(Noise.LAPLACE, self.scale(stage), values.size).reshape(values.shape)

    def chosen(self, stage: int, scores: Sequence[Fraction | int]) -> int:
        """The index of one score, chosen by the exponential mechanism at the stage's scale; large ones are likelier."""
        return exponential_choice(scores, self.scale(stage))


def split(privacy: Privacy, shares: Sequence[Fraction | str]) -> tuple[Fraction, ...]:
    """The ε of each stage of a pure guarantee: the shares given, and the rest for one more stage.

    >>> split(PureDP(1), ["1/4"])
    (Fraction(1, 4), Fraction(3, 4))
    """
    if not isinstance(privacy, PureDP):
        raise PrivacyError(f"This mechanism is for pure differential privacy; {privacy} was given. Use PureDP.")
    parts = [PureDP(share).epsilon for share in shares]
    if sum(parts) >= 1:
        raise PrivacyError(f"The stages' shares {', '.join(map(str, parts))} leave nothing of the budget. Give less.")
    spent = [privacy.epsilon * part for part in parts]
    return (*spent, privacy.epsilon - sum(spent))


def unit_of(data: Data, given: Unit | None) -> Unit:
    """The unit of privacy: as declared, and no smaller than what the data keeps of one person."""
    kept = data.max_rows_per_id or 1
    unit = Unit(rows=kept) if given is None else given
    if unit.rows < kept:
        raise PrivacyError(
            f"The data keeps up to {kept} rows of a person, but the unit protects {unit.rows}. Declare "
            f"Unit(rows={kept}), or keep fewer rows with max_rows_per_id."
        )
    return unit


def _check_domain(strategy: Strategy, data: Data) -> None:
    if strategy.domain != data.domain:
        raise DataError(
            f"The strategy is over ({', '.join(strategy.domain.names)}), but the data is over "
            f"({', '.join(data.domain.names)}). Build both on one Domain."
        )


def _check(lattice: Lattice, scales: Sequence[Fraction], rows: int, noise: Noise, most: int) -> None:
    """Refuse what cannot be measured, from public numbers alone (security I4, S2)."""
    table = lattice.strategy.table
    count = sum(table.products([A.shape[0] for _, A in table.distinct]).tolist())
    if count > most:
        raise StrategyError(
            f"The strategy has {count:.3g} measurements; the limit is {most:,}. Optimise for a workload "
            "on fewer attributes at a time, or for marginals."
        )
    resolutions = once_each(lambda scale: _checked_resolution(scale, noise), scales)
    if max(largest * r for largest, r in zip(lattice.largest_answers(rows), resolutions, strict=True)) > MAX_ANSWER:
        raise StrategyError(
            f"Answers on a table of up to {rows:,} rows do not fit 64-bit integers with so little noise. Declare a "
            "smaller rows_bound for the data, or spend less privacy."
        )


def _check_chunks(layout: ChunkLayout, data: Data, engine: Workers, widths: Sequence[int]) -> None:
    """Refuse counts whose order does not suit, a precision that does not, and a folder that is full or too small."""
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
    folder, needed = engine.folder, layout.bytes_needed(np.dtype(engine.precision).itemsize, widths)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        holds, free = any(folder.iterdir()), shutil.disk_usage(folder).free
    except OSError as wrong:
        raise DataError(f"The engine's folder cannot be used ({type(wrong).__name__}). Give another one.") from None
    if holds:
        raise DataError("The engine's folder is not empty. Give each release a new folder.")
    if free < needed:
        raise DataError(
            f"The release needs up to {needed >> 20:,} MiB on disk, but the engine's folder has {free >> 20:,} MiB "
            "left. Give a folder on a larger disk."
        )


def _noise_width(scale: Fraction, noise: Noise) -> int:
    """The bytes of an integer that holds the noise: more than 32 times its scale is as good as never drawn."""
    steps = scale * resolution(scale, noise) ** noise.order
    return width_of(32 * math.isqrt(math.ceil(steps ** (2 // noise.order))))


def _checked_resolution(scale: Fraction, noise: Noise) -> int:
    r = resolution(scale, noise)
    check_scale(noise, scale * r**noise.order)
    return r


def _debited(
    data: Data,
    wanted: Sequence[Sequence[str]],
    ledger: Ledger | None,
    privacy: Privacy,
    purpose: str,
    pays_for: str | None = None,
) -> Receipt | None:
    """The receipt of the debit, after a last check that the source exists, has its columns and is not too large."""
    data.check()
    data.check_marginals(wanted)
    return None if ledger is None else ledger.debit(charged(privacy), purpose, pays_for=pays_for)


@contextmanager
def _withholding() -> Generator[None]:
    """Turn errors of other libraries into one that reveals nothing about the data (security O3)."""
    try:
        yield
    except HdmmError:
        raise
    except Exception as wrong:
        raise DataError(
            f"Counting the data failed ({type(wrong).__name__}). Nothing was released; a budget that was debited stays "
            "charged. Check the source and run again."
        ) from None


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Measuring:
    """What the tasks of a measurement share."""

    layout: ChunkLayout
    folder: Path
    scales: tuple[Fraction, ...]
    noise: Noise
    data: ChunkedCounts | None = field(repr=False)  # None if it is counted in this process

    def take(self, i: int, slab: Array, key: ReleaseKey) -> None:
        """The first pass for a slab of counts: one count serves all blocks."""
        for block in range(len(self.scales)):
            self.layout.there(block, self.folder, key).take(i, slab)


def _measured_in_chunks(work: _Measuring, data: Data, engine: Workers, key: ReleaseKey) -> dict[tuple[int, int], str]:
    """The digests of all chunks of measurements, each by its block and number."""
    rows, chunks = work.layout.cell_rows, work.layout.answer_chunks
    if work.data is None:
        x = data.marginal([data.domain.names[i] for i in work.layout.groups.order]).reshape(rows.size, -1)
        with shown_steps("Counting", rows.slabs, long=rows.slabs > 1) as step:
            for i in range(rows.slabs):
                work.take(i, x[rows.slab(i)], key)
                step()
        del x
    with engine.lending(work, key) as name:
        if work.data is not None:
            engine.all("Counting", _count_chunk, [(name, i) for i in range(rows.slabs)])
        found = dict[tuple[int, int], str]()
        done = engine.results("Measuring", _noisy_chunk, [(name, block, j) for block, j in chunks])
        for (block, j), digest_of in zip(chunks, done, strict=True):
            found[block, j] = digest_of
            work.layout.there(block, work.folder, key).remove(j)
    return found


def _count_chunk(job: tuple[str, int]) -> None:
    name, i = job
    loan = lent(name)
    work: _Measuring = loan.work
    rows, data = work.layout.cell_rows, work.data
    if data is not None:
        slab, cells = rows.slab(i), data.domain.size // rows.size
        with _withholding():
            work.take(i, data.between(slab.start * cells, slab.stop * cells), loan.key)


def _noisy_chunk(job: tuple[str, int, int]) -> str:
    """The second pass for one chunk: exact answers, which get their noise before anything is written."""
    name, block, j = job
    loan = lent(name)
    work: _Measuring = loan.work
    scale, noise = work.scales[block], work.noise
    with _withholding():
        y, r = work.layout.there(block, work.folder, loan.key).give(j), resolution(scale, noise)
        y *= r
        y += loan.key.draw(noise, scale * r**noise.order, y.size, block=block, chunk=j).reshape(y.shape)
        np.clip(y, -_CLAMP, _CLAMP, out=y)
        return write_chunk(work.folder.joinpath(f"measurements-{block}-{j}"), y)


def _add_noise(measurements: Sequence[Array], scales: Sequence[Fraction], noise: Noise) -> None:
    """y ← clamp(r·y + Z), in place. Blocks with one scale share calls of the sampler; each draw is used once."""
    by_scale: dict[int, list[Array]] = {}
    for y, scale in zip(measurements, scales, strict=True):
        by_scale.setdefault(id(scale), []).extend([y[start : start + _DRAWN] for start in range(0, len(y), _DRAWN)])
    known = {id(scale): scale for scale in scales}
    jobs = [
        (known[key], resolution(known[key], noise), batch)
        for key, pieces in by_scale.items()
        for batch in _batches(pieces)
    ]

    def add(job: tuple[Fraction, int, list[Array]]) -> None:
        scale, r, batch = job
        drawn = draw(noise, scale * r**noise.order, sum(map(len, batch)))
        start = 0
        for piece in batch:
            piece *= r
            piece += drawn[start : start + len(piece)]  # modulo 2⁶⁴ if the table has more rows than declared
            np.clip(piece, -_CLAMP, _CLAMP, out=piece)
            start += len(piece)

    spread(add, jobs)


def _measured_on(
    engine: Device, blocks: Sequence[tuple[Block, Fraction]], counts: Iterable[Array], noise: Noise
) -> list[Array]:
    """clamp(r·y + Z) of every block by an engine, each given with its scale: the distribution of `_add_noise`."""
    drawn, found = DeviceNoise(engine.xp), list[Array]()
    for (block, scale), x in zip(blocks, counts, strict=True):
        y, r = engine.answers([A for _, A in block.factors], x), resolution(scale, noise)
        if noise is Noise.LAPLACE:
            y *= r
            y += drawn.laplace(scale * r, y.size)
            found.append(engine.to_host(engine.xp.clip(y, -_CLAMP, _CLAMP, out=y)))
        else:  # Gaussian noise is drawn by the processor
            found.append(engine.to_host(y))
            _add_noise(found[-1:], [scale], noise)
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
