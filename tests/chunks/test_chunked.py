"""Unions, marginals and merged strategies in chunks: what a release in memory says, from the same measurements."""

from __future__ import annotations

import errno
import itertools
import math
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import (
    DataError,
    Domain,
    FileError,
    Identity,
    Ledger,
    Prefix,
    PureDP,
    StrategyError,
    Workload,
    from_array,
    from_chunks,
)
from hdmm.chunks.layout import ChunkLayout
from hdmm.chunks.passage import Slabs
from hdmm.describe.predicates import Vectors
from hdmm.describe.product import Product
from hdmm.matrix import Eye, Matrix, PIdentity
from hdmm.measure.chunked_release import ChunkedRelease, load_chunked
from hdmm.measure.measure import measure
from hdmm.measure.provenance import MeasuredPart
from hdmm.measure.release import Release
from hdmm.noise import ReleaseKey
from hdmm.privacy.guarantee import ZCDP
from hdmm.privacy.rows_of import UNKNOWN
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.lattice import resolution
from hdmm.strategy.slabs import exact_answers
from hdmm.strategy.strategy import Strategy
from tests.engines.test_engines import Here, here, measurements, written
from tests.support.effort import examples


def with_rows(n: int, kind: int) -> Matrix:
    """A factor that distinguishes all cells; two kinds of it on one attribute diagonalise together."""
    return Eye(n) if kind == 0 else PIdentity(np.full((1, n), 0.5) + 0.25 * np.arange(n))


@st.composite
def unions(draw: st.DrawFn) -> Strategy:
    """One to four blocks on all or some attributes; sometimes two attributes are measured together."""
    shape = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    domain = Domain({f"a{i}": n for i, n in enumerate(shape)})
    together = draw(st.sampled_from([None, (0, 1), (0, len(shape) - 1)]))
    blocks: list[Block] = []
    for _ in range(draw(st.integers(1, 4))):
        factors: list[tuple[tuple[int, ...], Matrix]] = []
        for i, n in enumerate(shape):
            if together is not None and i in together:
                continue
            kind = draw(st.integers(-1, 1))
            if kind >= 0:
                factors.append(((i,), with_rows(n, kind)))
        if together is not None and draw(st.booleans()):
            factors.append((together, with_rows(shape[together[0]] * shape[together[1]], draw(st.integers(0, 1)))))
        blocks.append(Block(draw(st.sampled_from([0.25, 0.5, 1.0])), sorted(factors, key=lambda each: each[0])))
    return Strategy(domain, tuple(blocks))


def in_memory(release: ChunkedRelease) -> Release:
    """The release with the same measurements in memory."""
    part = MeasuredPart("0" * 32, UNKNOWN, release.receipt)
    facts = release.strategy, release.scales, release.privacy, release.unit
    return Release(*facts, tuple(measurements(release)), (part,))


def tables(strategy: Strategy) -> list[Workload]:
    """Tables that the strategy supports, among marginals, and prefixes with attributes in another order."""
    domain = strategy.domain
    last, first = domain.names[-1], domain.names[0]
    asked = [Workload.marginals(domain, k=[k]) for k in range(len(domain) + 1)]
    asked.append(Workload.product(domain, **{last: Prefix(), first: Identity()}))
    found = [Workload(domain, (product,)) for w in asked for product in w.products]
    return [w for w in found if math.isfinite(strategy.total_variance(w))]


def least_chunk(strategy: Strategy) -> int:
    """The least power of two that chunks may have, so that there are many."""
    for bits in itertools.count(4):
        try:
            ChunkLayout.of(strategy, strategy.form, 2**bits)
        except StrategyError:
            continue
        return 2**bits
    raise AssertionError


@examples(25)
@given(unions(), st.sampled_from([PureDP(1), ZCDP("0.5")]), st.sampled_from([1, 2, 2**10]), st.booleans())
def test_answers_are_those_of_the_same_measurements_in_memory(
    strategy: Strategy, privacy: Any, times: int, in_chunks: bool
) -> None:
    domain = strategy.domain
    x = (np.arange(domain.size) * 7 % 50).reshape(domain.shape)
    order = strategy.groups.keeps_order
    data = from_chunks(domain, lambda a, b: x.reshape(-1)[a:b]) if in_chunks and order else from_array(domain, x)
    form = strategy.form
    with tempfile.TemporaryDirectory() as folder:
        engine = here(Path(folder))
        if not isinstance(form, ClassForm) or form.free:
            with pytest.raises(StrategyError, match="no diagonal form"):
                measure(strategy, data, privacy, engine=engine, ledger=None)
            return
        engine = here(Path(folder), chunk_bytes=times * least_chunk(strategy))
        release = measure(strategy, data, privacy, engine=engine, ledger=None)
        assert not [name for name in written(engine) if "tiles" in name]
        inside = in_memory(release)
        asked = [product for w in tables(release.strategy) for product in w.products]
        if asked:
            whole = Workload(domain, tuple(asked))
            found, expected = release.answer(whole), inside.answer(whole)
            assert found.values == pytest.approx(expected.values, rel=1e-9, abs=1e-9 * np.abs(expected.values).max())
            assert found.stddev == pytest.approx(expected.stddev, rel=1e-12)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=4),
    st.integers(1, 9),
)
def test_slabs_hold_every_row_once(axes: list[tuple[int, bool]], step: int) -> None:
    sizes, held = tuple(n for n, _ in axes), tuple(kept for _, kept in axes)
    rows = Slabs(sizes, step, held)
    places = [at for at in np.ndindex(*sizes) if all(kept or i == 0 for i, kept in zip(at, held, strict=True))]
    ends = [rows.slab(j) for j in range(rows.slabs)]
    assert [i for slab in ends for i in range(slab.start, slab.stop)] == list(range(len(places)))
    for j, slab in enumerate(ends):
        flat = [int(np.ravel_multi_index(places[i], sizes)) if sizes else 0 for i in range(slab.start, slab.stop)]
        here_ = rows.places(j)
        assert all(here_.start <= place < here_.stop for place in flat)


DOMAIN = Domain({"a": 6, "b": 5, "c": 8})
X = (np.arange(DOMAIN.size) * 11 % 60).reshape(DOMAIN.shape)
UNION = Strategy(
    DOMAIN,
    (
        Block(0.5, [(0, Eye(6)), (1, Eye(5)), (2, PIdentity(np.ones((1, 8))))]),
        Block(0.25, [(0, Eye(6))]),
        Block(0.25, ()),
    ),
)
LEAST = 512  # bytes: 64 numbers
TABLES = Workload.marginals(DOMAIN, k=range(3)) + Workload.product(DOMAIN, c=Prefix(), a=Identity())


def counts(start: int, stop: int) -> Any:
    return X.reshape(-1)[start:stop]


def measured(engine: Here, strategy: Strategy = UNION, ledger: Ledger | None = None) -> ChunkedRelease:
    return measure(strategy, from_chunks(DOMAIN, counts), PureDP(1), engine=engine, ledger=ledger)


@dataclass(frozen=True, eq=False)
class Counted(Here):
    """Notes which tasks run, and stops before the one that is named and numbered."""

    at: str = ""
    stop: int = 0
    ran: list[tuple[Any, ...]] = field(default_factory=list)

    def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        stop = self.stop if task.__name__ == self.at else len(items)
        self.ran.extend((task.__name__, *item[1:]) for item in items[:stop])
        found = super().run(task, items[:stop])
        if stop < len(items):
            raise KeyboardInterrupt
        return found


def counted(folder: Path, at: str = "", stop: int = 0) -> Counted:
    return Counted(folder / "chunks", LEAST, "float64", at=at, stop=stop)


def test_an_estimate_that_was_stopped_goes_on_from_the_chunks_that_are_there(tmp_path: Path) -> None:
    whole = measured(counted(tmp_path))
    stopped = counted(tmp_path, "_give_estimates", 2)
    with pytest.raises(KeyboardInterrupt):
        load_chunked(stopped).answer(TABLES)
    there = {name: content for name, content in written(stopped).items() if "estimates" in name}
    assert len(there) == 2
    assert not [name for name in written(stopped) if "tiles" in name]
    path = tmp_path / "chunks" / "estimates-1"  # one of them is damaged
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    again = counted(tmp_path)
    release = load_chunked(again)
    answers = release.answer(TABLES)
    missing = [k for k in range(release.layout.estimate_rows.slabs) if k != 0]
    assert [k for name, k, *_ in again.ran if name == "_give_estimates"] == missing
    assert written(again)["estimates-0"] == there["estimates-0"]
    assert np.array_equal(answers.values, whole.answer(TABLES).values)
    assert answers.values == pytest.approx(in_memory(whole).answer(TABLES).values, rel=1e-9)
    again.ran.clear()
    load_chunked(again).answer(Workload.marginals(DOMAIN, k=0))
    assert {name for name, *_ in again.ran} == {"_answer_chunks"}  # nothing is estimated twice


def test_measuring_that_was_stopped_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is killed, so that nothing is cleaned up."""
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    engine = counted(tmp_path, "_noisy_chunk", 2)
    with monkeypatch.context() as patch:
        patch.setattr("hdmm.measure.measure.clear", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            measured(engine, ledger=ledger)
    assert written(engine)
    with pytest.raises(FileError, match="measuring did not finish"):
        load_chunked(engine)
    with pytest.raises(DataError, match="not empty"):
        measured(engine, ledger=ledger)
    assert ledger.remaining == 9


def test_only_chunks_that_a_table_needs_are_read(tmp_path: Path) -> None:
    """Of an attribute that some block totals, coordinate 0 is the total: most chunks do not matter to it."""
    engine = counted(tmp_path)
    release = measured(engine)
    whole = release.layout.estimate_rows.slabs
    _ = release.estimate
    for workload, most in ((Workload.marginals(DOMAIN, k=0), 1), (Workload.marginals(DOMAIN, k=3), whole)):
        engine.ran.clear()
        release.answer(workload)
        assert len(engine.ran) == most
    engine.ran.clear()
    release.answer(TABLES)  # all tables in one pass
    assert len(engine.ran) == len(set(engine.ran)) <= whole


def test_one_count_serves_all_blocks(tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []

    def spied(start: int, stop: int) -> Any:
        asked.append((start, stop))
        return counts(start, stop)

    engine = here(tmp_path, chunk_bytes=LEAST)
    release = measure(UNION, from_chunks(DOMAIN, spied), PureDP(1), engine=engine, ledger=None)
    assert len(release.digests) == 3
    assert [cell for a, b in sorted(asked) for cell in range(a, b)] == list(range(DOMAIN.size))


def test_every_block_has_noise_of_its_own(tmp_path: Path) -> None:
    twice = Strategy(DOMAIN, (UNION.blocks[0], UNION.blocks[0]))
    first, second = measurements(measured(here(tmp_path), twice))
    assert np.mean(first == second) < 0.5
    assert np.corrcoef(first - second, first + second)[0, 1] < 0.5


def refused(tmp_path: Path) -> list[tuple[Callable[[Ledger], object], str]]:
    apart = Strategy(DOMAIN, (Block(1.0, [((0, 2), Eye(48)), (1, Eye(5))]),))
    direct = Strategy.direct(Workload.marginals(DOMAIN, k=1))
    return [
        (lambda ledger: measured(here(tmp_path), apart, ledger), r"\(a, c\) that are not neighbours"),
        (lambda ledger: measured(here(tmp_path, precision="float32"), ledger=ledger), "precision='float64'"),
        (lambda ledger: measured(here(tmp_path), direct, ledger), "no diagonal form"),
    ]


def test_what_is_refused_costs_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    for refuse, message in refused(tmp_path):
        with pytest.raises((DataError, StrategyError), match=message):
            refuse(ledger)
    assert ledger.remaining == 10


def test_predicates_on_several_attributes_at_once_are_answered(tmp_path: Path) -> None:
    release = measured(here(tmp_path))
    some = Vectors(np.arange(120).reshape(3, 40) % 7)
    sets = (
        [((1, 2), some)],
        [((1, 2), some), ((0,), Prefix())],
        [((0, 2), Vectors(np.eye(2, 48))), ((1,), Identity())],
    )
    joint = Workload(DOMAIN, tuple(Product.of(DOMAIN, each) for each in sets))
    assert release.answer(joint).values == pytest.approx(in_memory(release).answer(joint).values, rel=1e-9)


def test_a_table_that_fits_in_no_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = measured(here(tmp_path))
    monkeypatch.setattr("hdmm.chunks.coordinates._MOST_GATHERED", 50)
    assert len(release.answer(Workload.marginals(DOMAIN, k=1)).values) == 19  # one after the other
    with pytest.raises(StrategyError, match="needs 240 numbers at once; the limit is 50"):
        release.answer(Workload.marginals(DOMAIN, k=3))


@pytest.mark.parametrize("when", ["_count_chunk", "_noisy_chunk", "_give_estimates"])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Said in words; measuring leaves nothing and stays charged; an estimate goes on where it stopped."""
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    fsync, left = os.fsync, [2]

    def full(fd: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(fd)

    class Full(Here):
        def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            with monkeypatch.context() as patch:
                if task.__name__ == when == "_count_chunk":
                    patch.setattr("hdmm.chunks.chunk_files.os.replace", lambda *_: full(-1))
                    left[0] = 0
                elif task.__name__ == when:
                    patch.setattr("hdmm.chunks.chunk_files.os.fsync", full)
                return super().run(task, items)

    engine = Full(tmp_path / "chunks", LEAST, "float64")
    with pytest.raises(FileError, match="cannot be written: No space left on device"):
        measured(engine, ledger=ledger).answer(TABLES)
    assert ledger.remaining == 9
    assert not [name for name in written(engine) if "tiles" in name or name.startswith(".")]
    if when == "_give_estimates":
        release = load_chunked(here(tmp_path, chunk_bytes=LEAST))
        assert release.answer(TABLES).values == pytest.approx(in_memory(release).answer(TABLES).values, rel=1e-9)
    else:
        assert written(engine) == {}


@pytest.mark.parametrize("chunks", [(2, 3, 5), (6, 5, 1), (1, 1, 8)])
def test_a_dask_array_of_counts_in_any_chunks(tmp_path: Path, chunks: tuple[int, ...]) -> None:
    dask_array = pytest.importorskip("dask.array")
    array = dask_array.from_array(X, chunks=chunks)
    for each, folder in ((array, "whole"), (array.reshape(-1), "flat")):
        data = from_chunks(DOMAIN, each)
        for start, stop in ((0, 240), (3, 7), (5, 40), (41, 199), (80, 120), (239, 240), (7, 8)):
            assert np.array_equal(data.between(start, stop), counts(start, stop))  # type: ignore[attr-defined]
        release = measure(UNION, data, PureDP(1000), engine=here(tmp_path / folder), ledger=None)
        assert release.answer(TABLES).values == pytest.approx(TABLES.matrix @ X.reshape(-1), abs=1)


def test_a_dask_array_that_is_no_counts(tmp_path: Path) -> None:
    dask_array = pytest.importorskip("dask.array")
    for wrong in (dask_array.from_array(X.astype(float)), dask_array.from_array(X.reshape(48, 5))):
        with pytest.raises(DataError, match="Give integers in the shape"):
            from_chunks(DOMAIN, wrong)
    lying = dask_array.from_array(X).map_blocks(lambda block: block / 2, dtype=int)
    with pytest.raises(DataError, match="one integer per cell"):
        measure(UNION, from_chunks(DOMAIN, lying), PureDP(1), engine=here(tmp_path), ledger=None)


class Shown:
    """Progress as a terminal would show it: what, of how many steps, whether it takes long, and the steps made."""

    def __init__(self) -> None:
        self.seen: list[list[Any]] = []

    @contextmanager
    def __call__(self, what: str, count: int, *, long: bool) -> Generator[Callable[[], None]]:
        entry = [what, count, long, 0]
        self.seen.append(entry)

        def step() -> None:
            entry[3] += 1

        yield step


@pytest.mark.parametrize("in_chunks", [True, False])
@pytest.mark.parametrize("chunk_bytes", [LEAST, 2**16])
def test_progress_has_a_step_for_every_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_chunks: bool, chunk_bytes: int
) -> None:
    shown = Shown()
    for home in ("measure.measure", "engines.workers"):
        monkeypatch.setattr(f"hdmm.{home}.shown_steps", shown)
    engine = here(tmp_path, chunk_bytes=chunk_bytes)
    data = from_chunks(DOMAIN, counts) if in_chunks else from_array(DOMAIN, X)
    release = measure(UNION, data, PureDP(1), engine=engine, ledger=None)
    layout = release.layout  # type: ignore[union-attr]
    slabs, chunks = layout.cell_rows.slabs, len(layout.answer_chunks)
    assert shown.seen == [["Counting", slabs, slabs > 1, slabs], ["Measuring", chunks, True, chunks]]
    assert (slabs > 1) == (chunk_bytes == LEAST)
    assert engine.checks == ["checked"]  # before the debit, and once


@pytest.mark.parametrize("part", ["first_pass", "second_pass"])
def test_an_error_amid_a_task_tells_its_type_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """O3: its message may hold exact numbers, and a worker logs it before anything here could withhold it."""
    heard: list[str] = []

    class Logs(Here):
        def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            try:
                return super().run(task, items)
            except Exception as wrong:
                heard.append(str(wrong))
                raise

    def fails(*_: object) -> None:
        raise ValueError("canary 4711")

    monkeypatch.setattr(f"hdmm.chunks.passage.Passage.{part}", fails)
    engine = Logs(tmp_path / "chunks", LEAST, "float64")
    with pytest.raises(DataError, match=r"failed \(ValueError\)") as error:
        measured(engine)
    assert heard == [str(error.value)]
    assert "canary" not in heard[0]
    assert written(engine) == {}


def test_no_engine_no_debit(tmp_path: Path) -> None:
    class Gone(Here):
        def check(self) -> None:
            raise DataError("The Dask scheduler has no workers.")

    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    with pytest.raises(DataError, match="no workers"):
        measured(Gone(tmp_path / "chunks", LEAST, "float64"), ledger=ledger)
    assert ledger.remaining == 10


@pytest.mark.parametrize("drawn", [2**62, -(2**62), 0, 1])
@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.5")])
def test_chunks_are_the_exact_answers_in_steps_of_the_lattice_plus_noise_clamped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, privacy: Any, drawn: int
) -> None:
    """y = clamp(r·Âx + Z), with one draw of each chunk's own size under its own number and the scale in steps."""
    asked: list[tuple[Any, ...]] = []

    def same(self: ReleaseKey, noise: Any, scale: Fraction, size: int, *, block: int, chunk: int) -> Any:
        asked.append((noise, scale, size, block, chunk))
        return np.full(size, drawn, dtype=np.int64)

    monkeypatch.setattr(ReleaseKey, "draw", same)
    engine = here(tmp_path, chunk_bytes=LEAST)
    release = measure(UNION, from_chunks(DOMAIN, counts), privacy, engine=engine, ledger=None)
    noise, expected = privacy.noise, list[tuple[Any, ...]]()
    for b, (block, scale, y) in enumerate(
        zip(release.strategy.blocks, release.scales, measurements(release), strict=True)  # type: ignore[arg-type]
    ):
        r = resolution(scale, noise)
        held = X.sum(axis=tuple(i for i in range(3) if i not in block.axes))
        exact = r * exact_answers([A for _, A in block.factors], held).astype(object)
        assert y.tolist() == np.clip(exact + drawn, -(2**61), 2**61).tolist()
        rows, columns = release.layout.answer_slabs(b), release.layout.answer_columns(b)  # type: ignore[union-attr]
        for j in range(rows.slabs):
            size = (rows.slab(j).stop - rows.slab(j).start) * columns
            expected.append((noise, scale * r**noise.order, size, b, j))
    assert sorted(asked, key=lambda each: each[3:]) == expected
