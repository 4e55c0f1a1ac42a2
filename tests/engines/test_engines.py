"""Measured in chunks: the same answers as in memory, with noise that a task which runs again draws again (N10)."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import (
    DataError,
    Domain,
    FileError,
    Identity,
    Ledger,
    LedgerError,
    Plan,
    Prefix,
    PureDP,
    StrategyError,
    Workload,
    from_array,
    from_chunks,
)
from hdmm.chunks.chunk_files import read_chunk
from hdmm.engines import Loan, Workers, lent
from hdmm.engines.workers import cluster_here
from hdmm.matrix import PIdentity
from hdmm.measure.chunked_release import ChunkedRelease, load_chunked
from hdmm.noise import KeyNotHereError, ReleaseKey
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import resolution
from hdmm.strategy.slabs import exact_answers
from hdmm.strategy.strategy import Strategy
from tests.support.chance import near

DOMAIN = Domain({"a": 7, "b": 5, "c": 6})
CUBE = Workload.product(DOMAIN, a=Prefix(), b=Prefix(), c=Prefix())
TABLES = Workload.product(DOMAIN, c=Prefix(), a=Identity()) + Workload.marginals(DOMAIN, k=range(3))
X = np.arange(DOMAIN.size).reshape(DOMAIN.shape) % 50
CHUNK = 2**10  # the least: 128 numbers


@dataclass(frozen=True, eq=False)
class Here(Workers):
    """Tasks in this process, each pickled and run several times, the last item first. `trouble` may fail them."""

    times: int = 1
    seen: list[bytes] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)

    def check(self) -> None:
        self.checks.append("checked")

    def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        found: dict[int, list[Any]] = {k: [] for k in range(len(items))}
        for _ in range(self.times):
            for k in reversed(range(len(items))):
                item = pickle.dumps(items[k])
                self.seen.append(item)
                found[k].append(task(pickle.loads(item)))
        for results in found.values():
            assert len(set(map(pickle.dumps, results))) == 1
        return [results[0] for results in found.values()]

    def hand_out(self, name: str, loan: Loan | None) -> None:
        assert loan is None or loan.sealed is None or "hidden" in f"{loan.sealed}"


def here(folder: Path, **options: Any) -> Here:
    return Here(folder / "chunks", options.pop("chunk_bytes", CHUNK), options.pop("precision", "float64"), **options)


def counts(start: int, stop: int) -> Any:
    return X.reshape(-1)[start:stop]


def fractional(start: int, stop: int) -> Any:
    return np.zeros(stop - start)


def too_few(start: int, stop: int) -> Any:
    return np.zeros(stop - start - 1, dtype=int)


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A product of p-Identities, as OPT_x finds them on larger domains."""
    factors = [(i, PIdentity(np.full((2, n), 0.3) + np.eye(2, n))) for i, n in enumerate(DOMAIN.shape)]
    found = hdmm.optimize(CUBE, restarts=1, progress=False, operators=[])
    return replace(found, strategy=Strategy(DOMAIN, (Block(1.0, factors),)))


@pytest.fixture
def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: ReleaseKey, noise: Any, scale: Fraction, size: int, *, block: int, chunk: int) -> Any:
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(ReleaseKey, "draw", nothing)


def measured(
    plan: Plan, engine: Workers, data: hdmm.Data | None = None, ledger: Ledger | None = None
) -> ChunkedRelease:
    return plan.measure(data or from_array(DOMAIN, X), PureDP(1), ledger=ledger, engine=engine)


def written(engine: Workers) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(engine.folder.rglob("*")) if path.is_file()}


def measurements(release: ChunkedRelease) -> list[Any]:
    """The measurements of each block, in the order of its queries, as a release in memory has them."""
    found, folder = list[Any](), release.engine.folder
    for b, digests in enumerate(release.digests):
        columns = release.layout.answer_columns(b)
        paths = [folder / f"measurements-{b}-{j}" for j in range(len(digests))]
        parts = [read_chunk(*each, columns) for each in zip(paths, digests, strict=True)]
        found.append(np.concatenate(parts).T.reshape(-1))
    return found


@pytest.mark.parametrize("source", ["array", "chunks"])
@pytest.mark.parametrize("chunk_bytes", [CHUNK, 2**11, 2**20])
@pytest.mark.usefixtures("noiseless")
def test_without_noise_all_is_exact(plan: Plan, tmp_path: Path, source: str, chunk_bytes: int) -> None:
    """Measurements are those of the strategy, estimates are the counts, and tables come in their order."""
    data = from_array(DOMAIN, X) if source == "array" else from_chunks(DOMAIN, counts)
    release = measured(plan, here(tmp_path, chunk_bytes=chunk_bytes), data)
    assert all(len(chunk) <= chunk_bytes for name, chunk in written(release.engine).items() if "measurements" in name)
    r = resolution(release.scales[0], release.privacy.noise)
    expected = r * exact_answers([A for _, A in release.strategy.blocks[0].factors], X)
    assert np.array_equal(measurements(release)[0], expected)
    assert release.answer(TABLES).values == pytest.approx(TABLES.matrix @ X.reshape(-1), abs=1e-6)


def test_answers_have_the_noise_that_they_state(plan: Plan, tmp_path: Path) -> None:
    release = measured(plan, here(tmp_path, precision="float32"))
    inside = plan.measure(from_array(DOMAIN, X), PureDP(1), ledger=None)
    answers, others = release.answer(TABLES), inside.answer(TABLES)
    assert answers.stddev == pytest.approx(others.stddev, rel=1e-9)
    assert release.error(TABLES) == pytest.approx(inside.error(TABLES), rel=1e-9)
    z = (answers.values - TABLES.matrix @ X.reshape(-1)) / answers.stddev
    assert 0.2 < np.sqrt(np.mean(z**2)) < 3
    assert near(answers, TABLES.matrix @ X.reshape(-1))
    assert "ChunkedRelease(" in repr(release)


def test_tasks_that_run_again_give_the_same_numbers(plan: Plan, tmp_path: Path) -> None:
    """N10: every task runs three times, in any order; results and files are those of one run."""
    engine = here(tmp_path, times=3)
    release = measured(plan, engine, from_chunks(DOMAIN, counts))
    assert len(release.digests[0]) > 1
    once = written(engine)
    release.answer(TABLES)
    assert written(engine).items() >= once.items()
    other = measured(plan, here(tmp_path / "other"))
    assert not set(other.digests[0]) & set(release.digests[0])  # another release has another key


def test_chunks_have_noise_of_their_own(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream is used for two chunks, and each draw fills exactly one."""
    drawn: list[tuple[int, int, int]] = []
    draw = ReleaseKey.draw

    def recorded(self: ReleaseKey, noise: Any, scale: Fraction, size: int, *, block: int, chunk: int) -> Any:
        drawn.append((block, chunk, size))
        return draw(self, noise, scale, size, block=block, chunk=chunk)

    monkeypatch.setattr(ReleaseKey, "draw", recorded)
    release = measured(plan, here(tmp_path))
    assert sorted(chunk for _, chunk, _ in drawn) == list(range(len(release.digests[0])))
    assert sum(size for *_, size in drawn) == release.strategy.blocks[0].rows


def test_the_key_is_in_no_task_file_or_log(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made: list[bytes] = []
    init = ReleaseKey.__init__

    def kept(self: ReleaseKey) -> None:
        init(self)
        made.append(bytes(self._secret))

    monkeypatch.setattr(ReleaseKey, "__init__", kept)
    engine = here(tmp_path)
    release = measured(plan, engine, from_chunks(DOMAIN, counts))
    release.answer(TABLES)
    assert len(made) == 2  # of the release, and of the tiles of its estimate
    everything = b"".join([*engine.seen, *written(engine).values(), caplog.text.encode(), repr(release).encode()])
    for secret in made:
        assert secret not in everything
        assert secret.hex().encode() not in everything


def test_exact_answers_are_on_disk_encrypted_only_and_not_for_long(plan: Plan, tmp_path: Path) -> None:
    """O4: a run that is killed between the passes leaves nothing that can be read."""
    left: dict[str, bytes] = {}

    class Stops(Here):
        def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            if task.__name__ == "_noisy_chunk":
                left.update(written(self))
                raise KeyboardInterrupt
            return super().run(task, items)

    engine = Stops(tmp_path / "chunks", CHUNK, "float64")
    big = np.full(DOMAIN.shape, 123456789)
    with pytest.raises(KeyboardInterrupt):
        measured(plan, engine, from_array(DOMAIN, big))
    assert sum(map(len, left.values())) > 8 * DOMAIN.size
    raw = b"".join(left.values())
    numbers = np.frombuffer(raw[: len(raw) // 8 * 8], "<i8")
    assert (np.abs(numbers) > 2**40).mean() > 0.9  # ciphertext: plain answers are below 2⁴⁰
    assert len(set(raw)) > 250  # of 4,032 random bytes, all 256 values but for a chance of 4 in 100,000
    assert written(engine) == {}


def test_a_run_that_fails_among_chunks_leaves_none_and_stays_charged(plan: Plan, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    made: list[str] = []

    class Fails(Here):
        def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            found = super().run(task, items[:-1] if task.__name__ == "_noisy_chunk" else items)
            if task.__name__ == "_noisy_chunk":
                made.extend(written(self))
                raise OSError("No space left on device")
            return found

    engine = Fails(tmp_path / "chunks", CHUNK, "float64")
    with pytest.raises(DataError, match=r"failed \(OSError\)\. Nothing was released"):
        measured(plan, engine, ledger=ledger)
    assert "measurements-0-0" in made
    assert written(engine) == {}
    assert ledger.remaining == 9


def test_the_budget_is_debited_once_and_before_the_data(plan: Plan, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    balances: list[Fraction] = []

    def spied(start: int, stop: int) -> Any:
        balances.append(ledger.remaining)
        return counts(start, stop)

    class Plain(Here):
        def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            return [task(item) for item in items for _ in range(2)][::2]

    release = measured(plan, Plain(tmp_path / "chunks", CHUNK, "float64"), from_chunks(DOMAIN, spied), ledger)
    assert set(balances) == {Fraction(9)}
    assert ledger.remaining == 9
    assert release.receipt is not None
    release.answer(TABLES)
    assert ledger.remaining == 9


def refusals(tmp_path: Path, plan: Plan) -> Iterator[tuple[Any, str]]:
    full = here(tmp_path / "full")
    full.folder.mkdir(parents=True)
    (full.folder / "something").touch()
    direct = replace(plan, strategy=Strategy.direct(CUBE))
    wide = hdmm.optimize(Workload.product(Domain({"a": 200}), a=Identity()), restarts=1, progress=False)
    data = from_array(DOMAIN, X)
    yield lambda ledger: measured(plan, full, data, ledger), "not empty"
    yield lambda ledger: measured(direct, here(tmp_path), data, ledger), "no diagonal form"
    yield (
        lambda ledger: measured(wide, here(tmp_path), from_array(wide.workload.domain, [1] * 200), ledger),
        "chunk_bytes=1600 or more",
    )
    yield lambda ledger: measured(plan, "dask", data, ledger), "The engine is a str"  # type: ignore[arg-type]


def test_what_is_refused_costs_nothing(plan: Plan, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    for refused, message in refusals(tmp_path, plan):
        with pytest.raises((DataError, StrategyError), match=message):
            refused(ledger)
    assert ledger.remaining == 10


def test_a_small_disk_is_refused(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hdmm.measure.chunked_release.shutil.disk_usage", lambda _: type("usage", (), {"free": 100}))
    with pytest.raises(DataError, match="MiB on disk"):
        measured(plan, here(tmp_path))


def test_counts_in_chunks_need_an_engine_and_integers(plan: Plan, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    with pytest.raises(DataError, match="measured by an engine"):
        plan.measure(from_chunks(DOMAIN, counts), PureDP(1), ledger=ledger)
    assert ledger.remaining == 10
    for wrong in (fractional, too_few):
        with pytest.raises(DataError, match="one integer per cell"):
            measured(plan, here(tmp_path), from_chunks(DOMAIN, wrong))
    with pytest.raises(DataError, match="Give a function"):
        from_chunks(DOMAIN, X)  # type: ignore[arg-type]


def test_a_function_that_fails_tells_nothing(plan: Plan, tmp_path: Path) -> None:
    def fails(start: int, stop: int) -> Any:
        raise ValueError("canary 4711")

    class Plain(Here):
        def run(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            return [task(item) for item in items]

    engine = Plain(tmp_path / "chunks", CHUNK, "float64")
    with pytest.raises(DataError) as error:
        measured(plan, engine, from_chunks(DOMAIN, fails))
    assert "canary" not in str(error.value)
    assert error.value.__cause__ is None
    assert written(engine) == {}


def test_a_release_is_loaded_from_its_folder(plan: Plan, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    release = measured(plan, here(tmp_path), ledger=ledger)
    loaded = load_chunked(here(tmp_path))
    assert np.array_equal(loaded.answer(TABLES).values, release.answer(TABLES).values)
    assert (loaded.privacy, loaded.receipt, loaded.digest) == (release.privacy, release.receipt, release.digest)
    loaded.verify(ledger)
    with pytest.raises(FileError, match=f"Give the engine chunk_bytes={CHUNK}"):
        load_chunked(here(tmp_path, chunk_bytes=2**12))
    with pytest.raises(LedgerError, match="no receipt"):
        measured(plan, here(tmp_path / "unpaid")).verify(ledger)


def test_a_folder_that_lies_about_its_privacy_is_refused(plan: Plan, tmp_path: Path) -> None:
    release = measured(plan, here(tmp_path))
    path = release.engine.folder / "release" / "chunks.json"
    text = path.read_text()
    path.write_text(text.replace('"epsilon":"1"', '"epsilon":"1/2"').replace('"epsilon": "1"', '"epsilon": "1/2"'))
    assert path.read_text() != text
    with pytest.raises(FileError, match="measurements spend 1"):
        load_chunked(release.engine)


@pytest.mark.parametrize("name", ["measurements-0-0", "estimates-0"])
def test_an_altered_chunk_is_refused(plan: Plan, tmp_path: Path, name: str) -> None:
    release = measured(plan, here(tmp_path))
    if name == "estimates-0":
        _ = release.estimate
    path = release.engine.folder / name
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match=f"{name} was altered"):
        release.answer(TABLES)
    path.unlink()
    with pytest.raises(FileError, match=f"{name} cannot be read"):
        release.answer(TABLES)


def test_a_key_is_lent_for_as_long_as_the_release_is_made(tmp_path: Path) -> None:
    engine, key = here(tmp_path), ReleaseKey()
    with engine.lending(None, key) as name:
        assert lent(name).key is key
    with pytest.raises(KeyNotHereError):
        lent(name)


def killed_once(start: int, stop: int) -> Any:
    """Counts; the first worker that is asked for the first cells is killed amid its task."""
    mark = Path(os.environ["HDMM_TEST_MARK"])
    if start == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return np.arange(start, stop) % 50


@pytest.mark.slow
def test_a_worker_that_is_killed_on_dask(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks run again elsewhere, or on a worker that starts without the key and is given it."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("HDMM_TEST_MARK", str(tmp_path / "mark"))
    cluster = cluster_here(n_workers=1, threads_per_worker=1)
    with cluster, distributed.Client(cluster) as client:
        engine = hdmm.engines.dask(client, tmp_path / "chunks", chunk_bytes=CHUNK)
        release = measured(plan, engine, from_chunks(DOMAIN, killed_once))
        answers = release.answer(TABLES)
    assert (tmp_path / "mark").exists()
    assert near(answers, TABLES.matrix @ X.reshape(-1))


def lost(start: int, stop: int) -> Any:
    """No counts: the worker that is asked ends."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_workers_that_are_lost_again_and_again_on_dask(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("hdmm.engines.workers._PATIENCE", 5.0)
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    cluster = cluster_here(n_workers=1, threads_per_worker=1)
    with cluster, distributed.Client(cluster) as client:
        engine = hdmm.engines.dask(client, tmp_path / "chunks", chunk_bytes=CHUNK)
        with pytest.raises(DataError, match=r"A task failed|start again and again|lost all of its workers"):
            measured(plan, engine, from_chunks(DOMAIN, lost), ledger)
    assert ledger.remaining == 9
    assert written(engine) == {}


def test_the_last_worker_is_lost(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the debit that is refused, and later it is not waited for without end."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("hdmm.engines.workers._PATIENCE", 0.2)
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    cluster = cluster_here(n_workers=0, processes=False)
    with cluster, distributed.Client(cluster) as client:
        engine = hdmm.engines.dask(client, tmp_path / "chunks", chunk_bytes=CHUNK)
        with pytest.raises(DataError, match="has no workers"):
            measured(plan, engine, from_chunks(DOMAIN, counts), ledger)
        assert ledger.remaining == 10
        monkeypatch.setattr(type(engine), "check", lambda _: None)
        with pytest.raises(DataError, match="lost all of its workers"):
            measured(plan, engine, from_chunks(DOMAIN, counts), ledger)
    assert ledger.remaining == 9
    assert written(engine) == {}


def test_dask_in_this_process(plan: Plan, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    cluster = cluster_here(n_workers=1, processes=False)
    with cluster, distributed.Client(cluster) as client:
        engine = hdmm.engines.dask(client, tmp_path / "chunks", chunk_bytes=CHUNK)
        release = measured(plan, engine, from_chunks(DOMAIN, counts))
        answers = release.answer(TABLES)
    assert near(answers, TABLES.matrix @ X.reshape(-1))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "ws://127.0.0.1:1", "TLS+tcp://there:1"])
def test_a_scheduler_without_tls_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent there, because even its answers are not to be trusted."""
    distributed = pytest.importorskip("distributed")

    def connects(*_: object, **__: object) -> None:
        raise AssertionError("It connects.")

    monkeypatch.setattr(distributed.Client, "__init__", connects)
    with pytest.raises(DataError, match=f"scheduler at '{re.escape(address)}' is reached without encryption"):
        hdmm.engines.dask(address)


def test_a_client_without_tls_is_refused(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=0, processes=False, protocol="tcp://", dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        with pytest.raises(DataError, match="is reached without encryption"):
            hdmm.engines.dask(client, tmp_path)
        assert hdmm.engines.dask(client, tmp_path, unencrypted=True).options[-1] == "--unencrypted"
    with pytest.raises(DataError, match="client is closed"):
        hdmm.engines.dask(client, tmp_path)


def test_workers_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "canary 4711")

    monkeypatch.setattr("hdmm.engines.workers.tempfile.mkdtemp", full)
    with pytest.raises(DataError, match=r"cannot be started on this machine \(No space left on device\)"):
        hdmm.engines.dask()


def test_no_scheduler_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    def refused(*_: object, **__: object) -> None:
        raise OSError("Timed out trying to connect")

    monkeypatch.setattr(distributed.Client, "__init__", refused)
    with pytest.raises(DataError, match=r"no scheduler at 'tcp://127\.0\.0\.1:1'"):
        hdmm.engines.dask("tcp://127.0.0.1:1", unencrypted=True)
    with pytest.raises(DataError, match="given a int"):
        hdmm.engines.dask(5)
    with pytest.raises(DataError, match="chunk_bytes is 1"):
        hdmm.engines.dask(chunk_bytes=1)
