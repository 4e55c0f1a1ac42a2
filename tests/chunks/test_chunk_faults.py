"""Faults while chunks are made: kills at every write, full disks, workers that are lost (B5, O4).

A run that is stopped anywhere leaves nothing that tells a count, has debited at most once, and either left a whole
release, which is opened without measuring again, or none.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import DataError, Domain, FileError, HdmmError, Ledger, PureDP, Workload, from_array, from_chunks
from hdmm.engines.workers import cluster_here
from hdmm.matrix import Eye, PIdentity
from hdmm.measure.chunked_release import ChunkedRelease, free_folder, is_whole, load_chunked
from hdmm.measure.measure import measure
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy
from tests.engines.test_engines import Here, here, written
from tests.measure.test_faults import ended, forked

DOMAIN = Domain({"a": 2, "b": 3, "c": 4})
COUNT = 1234567891  # in every cell: what is on disk is searched for it and its sums
X = np.full(DOMAIN.shape, COUNT)
UNION = Strategy(
    DOMAIN, (Block(0.5, [(0, Eye(2)), (1, Eye(3)), (2, PIdentity(np.ones((1, 4))))]), Block(0.5, [(0, Eye(2))]))
)
LEAST = 96  # bytes: 12 numbers
TABLES = Workload.marginals(DOMAIN, k=1)
SEEN = [os.replace, os.fsync, os.rename, os.mkdir]


def counts(start: int, stop: int) -> Any:
    return X.reshape(-1)[start:stop]


def released(engine: Any, ledger: Ledger | None) -> ChunkedRelease:
    data = from_chunks(DOMAIN, counts)
    return measure(UNION, data, PureDP(1), engine=engine, ledger=ledger)  # type: ignore[return-value]


def killed_at(number: int, folder: Path, path: Path) -> int:
    """Measure in a child that is gone without a trace when it is about to do its n-th act on files."""
    left = [number]

    def before(act: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)
            return act(*args, **options)

        return called

    def work() -> None:
        ledger = Ledger(path, dataset="people", cap=PureDP(10))
        for act in SEEN:
            setattr(os, act.__name__, before(act))
        released(here(folder, chunk_bytes=LEAST), ledger)

    return ended(forked(work))


def tells_counts(folder: Path) -> bool:
    """Whether a file under the folder holds an exact count, or an exact sum of some, as a number or in digits.

    Measurements are left out: noise may be 0.
    """
    for path in folder.rglob("*"):
        if path.is_file() and "measurements" not in path.name:
            content = path.read_bytes()
            if str(COUNT).encode() in content:
                return True
            for start in range(8):
                numbers = np.frombuffer(content, "<i8", (len(content) - start) // 8, offset=start)
                if ((numbers != 0) & (np.abs(numbers) < 2**48) & (numbers % COUNT == 0)).any():
                    return True
    return False


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_act_on_files(tmp_path: Path) -> None:
    """Kill −9 has no handlers, and neither has os._exit: what is on disk then is all there is."""
    wholes, number, code = 0, 0, 9
    while code == 9:
        number += 1
        folder, path = tmp_path / f"{number}", tmp_path / f"{number}.db"
        folder.mkdir()
        Ledger(path, dataset="people", cap=PureDP(10))
        code = killed_at(number, folder, path)
        assert not tells_counts(folder)
        ledger, engine = Ledger(path, dataset="people"), here(folder, chunk_bytes=LEAST)
        assert ledger.remaining in (9, 10)
        if is_whole(engine):
            wholes += 1
            release = load_chunked(engine)
            release.verify(ledger)
            assert len(release.answer(TABLES).values) == 9
        elif (folder / "chunks").exists():
            with pytest.raises(HdmmError):
                load_chunked(engine)
            if ledger.remaining == 10:
                assert not any(name.startswith("measurements") for name in written(engine))
    assert code == 0
    assert number > 25
    assert 1 <= wholes < number


@pytest.mark.slow
def test_every_flipped_bit_of_a_record_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    """The digests of chunks stand in the record; the record is bound to its debit."""
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    engine = here(tmp_path, chunk_bytes=LEAST)
    expected = released(engine, ledger).answer(TABLES)
    for path in sorted((engine.folder / "release").iterdir()):
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            for estimate in engine.folder.glob("estimates-*"):
                estimate.unlink()
            try:
                release = load_chunked(engine)
                release.verify(ledger)
                found = release.answer(TABLES)
            except HdmmError:
                continue
            assert np.array_equal(found.values, expected.values), (path.name, at)
            assert np.array_equal(found.stddev, expected.stddev), (path.name, at)
        path.write_bytes(content)


class Small:
    """A file system of so many KiB, for as long as a block lasts."""

    def __init__(self, place: Path, kib: int) -> None:
        self.place, self.kib = place, kib

    def __enter__(self) -> Path:
        self.place.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self.kib}k", "tmpfs", str(self.place)],
            check=False,
            capture_output=True,
        )
        if done.returncode:
            pytest.skip("no file system can be mounted here, which takes the rights of root")
        return self.place

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.place)], check=True)


@pytest.mark.slow
def test_a_disk_that_is_too_small_is_refused_before_the_debit_and_not_later(tmp_path: Path) -> None:
    """The space that is asked for is enough for all that is written, to the last file: on no disk measuring fails."""
    refused, made = 0, 0
    for kib in (32, 64, 96, 128, 160, 192, 256, 512):
        ledger = Ledger(tmp_path / f"{kib}.db", dataset="people", cap=PureDP(10))
        with Small(tmp_path / f"{kib}", kib) as folder:
            engine = here(folder, chunk_bytes=LEAST)
            try:
                release = released(engine, ledger)
            except DataError as wrong:
                said = str(wrong)
                refused += 1
            else:
                assert len(release.answer(TABLES).values) == 9
                made += 1
                continue
        assert f"MiB on disk, but {engine.folder} has" in said
        assert ledger.remaining == 10
    assert refused > 1
    assert made > 1


@pytest.mark.slow
def test_a_disk_that_fills_up_on_dask_is_said_to_be_full(tmp_path: Path) -> None:
    """Somebody else fills it after the check. The message names the disk, not workers or memory."""
    distributed = pytest.importorskip("distributed")
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
    with (
        Small(tmp_path / "small", 1024) as folder,
        cluster_here(n_workers=1, threads_per_worker=1) as cluster,
        distributed.Client(cluster) as client,
    ):
        engine = hdmm.engines.dask(client, folder / "chunks", chunk_bytes=1024)
        data = from_chunks(DOMAIN, Filling(folder / "other"))
        with pytest.raises(FileError, match=f"No space left on device.*disk of {engine.folder} is full"):
            measure(UNION, data, PureDP(1), engine=engine, ledger=ledger)
        assert written(engine) == {}
    assert ledger.remaining == 9


class Filling:
    """Counts; whoever asks finds the disk full then."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, start: int, stop: int) -> Any:
        with open(self.path, "ab", 0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        return np.full(stop - start, COUNT)


def test_a_file_that_may_not_be_so_large(tmp_path: Path) -> None:
    """A limit on sizes of files is told as it is, and leaves nothing behind."""
    said, wide = tmp_path / "said", 2**20

    def work() -> None:
        domain = Domain({"a": 1000})
        strategy = Strategy(domain, (Block(1.0, [(0, Eye(1000))]),))
        ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(10))
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hdmm.chunks.chunk_files.secrets.token_hex", lambda _: "x" * 16)
            with pytest.raises(FileError) as error:
                measure(
                    strategy,
                    from_array(domain, np.zeros(1000, dtype=int)),
                    PureDP(1),
                    engine=Wide(tmp_path / "chunks", wide, "float64"),
                    ledger=ledger,
                )
        said.write_text(json.dumps([str(error.value), str(ledger.remaining), list(written(here(tmp_path)))]))

    assert ended(forked(work)) == 0
    message, left, files = json.loads(said.read_text())
    assert "File too large" in message
    assert f"disk of {tmp_path / 'chunks'} is full" in message
    assert (left, files) == ("9", [])


class Wide(Here):
    """Tasks that are given more than fits into a file."""

    def run(self, task: Callable[[Any], Any], items: Any) -> list[Any]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 50_000))
        try:
            return super().run(task, items)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))


def test_the_space_that_is_asked_for_is_what_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of the disk are counted after every file that is written: tiles, chunks, the record and estimates."""
    taken: list[int] = []
    replace = os.replace

    def counted(*names: Any) -> None:
        replace(*names)
        paths = [path for path in (tmp_path / "chunks").rglob("*") if path.is_file()]
        taken.append(sum(512 * path.stat().st_blocks for path in paths))

    monkeypatch.setattr("hdmm.chunks.chunk_files.os.replace", counted)
    release = released(here(tmp_path, chunk_bytes=LEAST), None)
    taken.append(sum(512 * path.stat().st_blocks for path in (tmp_path / "chunks").rglob("*") if path.is_file()))
    release.answer(TABLES)
    assert max(taken) <= release.bytes_needed <= 4 * max(taken)


def test_every_file_of_the_record_may_take_one_block_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = released(here(tmp_path, chunk_bytes=LEAST), None)
    arrays = len(list((tmp_path / "chunks" / "release").glob("*.npy")))
    assert arrays == 2
    monkeypatch.setattr(type(release.layout), "bytes_needed", lambda *_: 0)
    needed: list[int] = []
    for block in (512, 4096):
        monkeypatch.setattr(os, "statvfs", lambda _, block=block: SimpleNamespace(f_frsize=block))
        needed.append(release.bytes_needed)
    assert needed[1] - needed[0] == (arrays + 1) * (4096 - 512)


def test_a_folder_that_holds_a_release_keeps_it(tmp_path: Path) -> None:
    engine = here(tmp_path, chunk_bytes=LEAST)
    released(engine, None)
    before = written(engine)
    for refused in (lambda: free_folder(engine), lambda: released(engine, None)):
        with pytest.raises(DataError, match=f"{engine.folder} holds a release. To publish that .* add --resume"):
            refused()
    assert written(engine) == before
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be used: File exists"):
        free_folder(Here(tmp_path / "file", LEAST, "float64"))
