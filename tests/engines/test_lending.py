"""Loans to workers: they end by themselves unless they are renewed, and their keys are overwritten (N10)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import DataError, Plan, from_chunks
from hdmm.engines import Loan, lending, lent
from hdmm.engines.lending import give_back, renew, take
from hdmm.engines.workers import cluster_here
from hdmm.noise import KeyNotHereError, ReleaseKey
from hdmm.privacy.guarantee import Noise
from tests.engines.test_engines import CHUNK, DOMAIN, counts, here, measured, measurements, plan

__all__ = ["plan"]  # a fixture


def arrived(key: ReleaseKey) -> ReleaseKey:
    """The key as it is in a worker's memory."""
    function, arguments = key.sealed().__reduce__()
    return function(*arguments)  # type: ignore[operator, no-any-return]


def until(done: Callable[[], bool]) -> None:
    """Wait for something that happens by itself."""
    for _ in range(1200):
        if done():
            return
        time.sleep(0.1)
    raise AssertionError("It did not happen.")


def is_lent(name: str) -> bool:
    return name in lending._LENT


def test_a_key_that_is_given_back_is_overwritten() -> None:
    with ReleaseKey() as key:
        copy = arrived(key)
        secret = copy._secret
        assert bytes(secret) == bytes(key._secret)
        take("loan", Loan(None, copy))
        assert lent("loan").key is copy
        give_back("loan")
        assert not any(secret)
        with pytest.raises(KeyNotHereError):
            lent("loan")
        with pytest.raises(KeyNotHereError):
            copy.hidden(b"", "a task that is still at work")
        give_back("loan")  # again: nothing is there
        assert any(key._secret)  # the release's own is not touched


def test_what_a_key_came_in_is_overwritten() -> None:
    with ReleaseKey() as key:
        function, (sent,) = key.sealed().__reduce__()
        copy = function(sent)  # type: ignore[operator]
        assert not any(sent)
        assert copy.shown(key.hidden(b"exact", "tile"), "tile") == b"exact"


def test_keys_that_are_derived_are_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[bytearray] = []
    overwrite = type(ReleaseKey()._secret).overwrite

    def kept(self: bytearray) -> None:
        assert any(self)
        derived.append(self)
        overwrite(self)  # type: ignore[arg-type]

    monkeypatch.setattr(type(ReleaseKey()._secret), "overwrite", kept)
    key = ReleaseKey()
    key.shown(key.hidden(b"exact", "tile"), "tile")
    key.draw(Noise.LAPLACE, Fraction(3), 5, block=0, chunk=0)
    assert len(derived) == 3
    assert not any(map(any, derived))


def test_no_key_is_derived_from_one_that_is_being_overwritten() -> None:
    """Noise under a key of zeros could be computed by anybody."""
    key = ReleaseKey()
    key._lock.acquire()
    forgotten = threading.Thread(target=key.forget)
    forgotten.start()
    assert any(key._secret)  # whoever derives a key now has the lock, and is waited for
    key._lock.release()
    forgotten.join()
    with pytest.raises(KeyNotHereError, match="forgotten"):
        key.hidden(b"", "tile")


def test_a_loan_ends_unless_it_is_renewed() -> None:
    with ReleaseKey() as key:
        copy = arrived(key)
        take("short", Loan(None, copy), 0.05)
        take("long", Loan("work", None), 3600)
        with lending._LOCK:  # however long it takes until the next line, the lease does not end before
            take("renewed", Loan("work", None), 0.3)
            renew("renewed", 3600)
        until(lambda: not is_lent("short"))
        assert not copy._secret
        renew("short", 3600)  # too late: nothing comes back
        assert not is_lent("short")
        assert lent("long").work == "work"
    time.sleep(0.4)  # longer than the lease was that is renewed
    assert is_lent("renewed")
    for name in ("long", "renewed"):
        give_back(name)


def test_what_is_lent_again_does_not_disturb_a_task_at_work() -> None:
    with ReleaseKey() as key:
        first, again = arrived(key), arrived(key)
        take("loan", Loan(None, first), 3600)
        take("loan", Loan(None, again), 3600)
        assert lent("loan").key is first
        assert any(first._secret)
        assert not again._secret  # the second copy is overwritten at once
        give_back("loan")
        assert not first._secret


def test_a_loan_that_cannot_be_taken_back_loses_nothing(plan: Plan, tmp_path: Path) -> None:
    """What was measured is a release, whatever becomes of the workers then."""

    class Gone(type(here(tmp_path))):  # type: ignore[misc]
        def hand_out(self, name: str, loan: Loan | None) -> None:
            if loan is None:
                raise OSError("the worker is gone")

    release = measured(plan, Gone(tmp_path / "chunks", CHUNK, "float64"))
    assert len(measurements(release)[0]) == release.strategy.blocks[0].rows
    assert not lending._LENT


class Client:
    """A client whose connection fails some times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.called = failures, list[str]()

    def run(self, function: Callable[..., None], *arguments: object, on_error: str) -> None:
        self.called.append(function.__name__)
        assert on_error == "ignore"  # one worker that is lost fails no other
        if self.failures:
            self.failures -= 1
            raise OSError("Timed out trying to connect")


def test_lending_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = hdmm.engines.workers
    monkeypatch.setattr(workers, "_PAUSE", 0.0)
    client = Client(2)
    engine = workers.DaskWorkers(tmp_path, CHUNK, "float64", client)
    with engine.lending("work"):
        assert client.called == ["take"] * 3
    assert client.called == ["take"] * 3 + ["give_back"]
    assert engine.lending_now == {}
    client = Client(1000)
    engine = workers.DaskWorkers(tmp_path, CHUNK, "float64", client)
    with pytest.raises(DataError, match="scheduler cannot be reached"), engine.lending("work"):
        pass
    assert client.called.count("take") == workers._ATTEMPTS
    assert engine.lending_now == {}


DRIVER = """
import sys, time
from dataclasses import replace
import hdmm
from hdmm.noise import ReleaseKey

engine = replace(hdmm.engines.dask(sys.argv[1], sys.argv[2], unencrypted=True), lease=float(sys.argv[3]))
with ReleaseKey() as key, engine.lending("work", key):
    (engine.folder / "tile").write_bytes(key.hidden(b"exact counts", "tile"))
    print(bytes(key._secret).hex(), flush=True)
    time.sleep(3600)
"""


@contextmanager
def cluster_of_others() -> Generator[Any]:
    """A scheduler and a worker that outlive the driver, and a client of theirs."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def held() -> list[str]:
    """What is lent to this worker; with the key, if it has not been overwritten."""
    return [f"{name} {bytes(loan.key._secret).hex()}" for name, loan in lending._LENT.items() if loan.sealed]


def copies(pid: int, secret: bytes) -> int:
    """How often the secret is in the memory of a process."""
    found = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            place = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if place is None or "[v" in line:
                continue
            start, stop = (int(each, 16) for each in place.groups())
            try:
                memory.seek(start)
                found += memory.read(stop - start).count(secret)
            except OSError:
                continue
    return found


@pytest.mark.slow
def test_a_worker_forgets_the_key_of_a_driver_that_is_killed(tmp_path: Path) -> None:
    """B1, O4: what the killed run left on disk can be read by nobody once its loan has ended."""
    with cluster_of_others() as client:
        arguments = [client.scheduler.address, str(tmp_path), "20"]
        paths = os.pathsep.join(filter(None, sys.path))
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )
        assert driver.stdout is not None
        try:
            secret = bytes.fromhex(driver.stdout.readline())
            (worker,) = client.run(os.getpid).values()
            ((found,),) = client.run(held).values()
            assert found.split()[1] == secret.hex()
        finally:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            driver.stdout.close()
        before = copies(worker, secret) if Path("/proc/self/mem").exists() else 0
        until(lambda: list(client.run(held).values()) == [[]])
        assert (tmp_path / "tile").read_bytes()
        if before:
            assert copies(worker, secret) < before


def slow_counts(start: int, stop: int) -> Any:
    """Counts for which several leases pass."""
    if start == 0:
        time.sleep(15)
    return counts(start, stop)


@pytest.mark.slow
def test_a_release_that_takes_long_keeps_its_key(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renewed, so that no task ever asks for it."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("hdmm.engines.workers._ATTEMPTS", 1)  # a task that asks fails the release
    with cluster_here(n_workers=1, threads_per_worker=1) as cluster, distributed.Client(cluster) as client:
        engine = replace(hdmm.engines.dask(client, tmp_path / "chunks", chunk_bytes=CHUNK), lease=6.0)
        release = measured(plan, engine, from_chunks(DOMAIN, slow_counts))
        assert np.concatenate(measurements(release)).size == release.strategy.blocks[0].rows
        assert list(client.run(held).values()) == [[]]
