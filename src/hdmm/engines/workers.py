"""Engines: where the tasks of a release run whose vectors do not fit in memory.

A task is a function of this package and a small argument that can be pickled; its result is small, too. Arrays go
through chunk files in a folder that all workers share. What all tasks of a step need besides, an engine lends to its
workers' memory, outside of tasks: the key of the release, because engines write what tasks take and give to disk and
show it on dashboards, and factors, because they are large.

A cluster that is started here obeys this process and nobody else (security N11). Whoever can speak to a scheduler or a
worker can run code there, and take the key of a release. Ports of a machine are open to all of its users, so both sides
of every connection must show a certificate that was made for this cluster and is in its memory only. The ports for
pages, which Dask always opens, answer nothing. The folders of workers are private, because Dask imports modules from
them; by default, they would be in a folder that anybody could have made first.
"""

from __future__ import annotations

import importlib
import os
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar, final

from hdmm.base.exceptions import DataError, HdmmError
from hdmm.base.steps import shown_steps
from hdmm.engines.lending import Loan, give_back, renew, take
from hdmm.noise import KeyNotHereError, ReleaseKey

T = TypeVar("T")
_R = TypeVar("_R")

_ATTEMPTS = 5  # times that workers without the key are given it
_AHEAD = 128  # tasks that wait or run at most, so that results that nobody took yet stay few
_PAUSE = 1.0  # seconds between two attempts to reach the scheduler
_PATIENCE = 60.0  # seconds without any worker after which a task is given up
_LEAST_CHUNK = 1 << 10
_LEASE = 60.0  # seconds that workers keep what they are lent, unless it is renewed

__all__ = ["Workers", "dask"]
_KEEPING = {"MALLOC_MMAP_THRESHOLD_": 1 << 25, "MALLOC_TRIM_THRESHOLD_": 1 << 30, "OMP_THREAD_LIMIT": 1}
"""Environment of workers that keep what a task frees for the next, because fresh pages took half of the processor's
time, and that take one core per task."""
_SAFE = frozenset({"tls", "inproc"})  # kinds of addresses: encrypted with certificates, or inside this process


@dataclass(frozen=True, eq=False)
class Workers(ABC):
    """Runs tasks; `folder` holds their files, and `chunk_bytes` is what a task holds of one array."""

    folder: Path
    chunk_bytes: int
    precision: Literal["float32", "float64"]
    scheduler: str | None = field(default=None, kw_only=True)  # its address, if one was given
    unencrypted: bool = field(default=False, kw_only=True)

    @property
    def options(self) -> tuple[str, ...]:
        """The options with which a command finds this engine again."""
        address = () if self.scheduler is None else ("--scheduler", self.scheduler)
        accepted = ("--unencrypted",) if self.unencrypted else ()
        return ("--engine", "dask", "--engine-folder", str(self.folder), *address, *accepted)

    @abstractmethod
    def check(self) -> None:
        """Raise DataError if no task can run. Called before a budget is debited."""

    @abstractmethod
    def run(self, task: Callable[[T], _R], items: Sequence[T]) -> Iterable[_R]:
        """The results of the task for all items, in order, as they come. A task may be run more than once."""

    @abstractmethod
    def hand_out(self, name: str, loan: Loan | None) -> None:
        """Give all workers what is lent under this name, or take it back."""

    @final
    def results(self, what: str, task: Callable[[T], _R], items: Sequence[T]) -> Iterator[_R]:
        """The same, with progress shown in a terminal."""
        with shown_steps(what, len(items), long=len(items) > 1) as step:
            for result in self.run(task, items):
                step()
                yield result

    @final
    def all(self, what: str, task: Callable[[T], _R], items: Sequence[T]) -> list[_R]:
        """All results, when all tasks are done."""
        return list(self.results(what, task, items))

    @final
    @contextmanager
    def lending(self, work: object, key: ReleaseKey | None = None) -> Generator[str]:
        """The name by which tasks find the work and the key (`lent`), as long as the block lasts."""
        name = secrets.token_hex(8)
        loan = Loan(work, None if key is None else key.sealed())
        take(name, loan)
        try:
            self.hand_out(name, loan)
            yield name
        finally:
            give_back(name)
            with suppress(Exception):  # what was made is not lost with a worker, and a loan ends by itself
                self.hand_out(name, None)


def dask(
    client_or_address: object = None,
    folder: str | Path | None = None,
    *,
    chunk_bytes: int = 1 << 26,
    precision: Literal["float32", "float64"] = "float64",
    unencrypted: bool = False,
) -> Workers:
    """An engine on Dask: a client, the address of a scheduler, or None for processes of this machine.

    All workers must see `folder`, which holds the chunks of the release; by default it is a new temporary folder. A
    worker holds a few arrays of `chunk_bytes` at a time. Estimates are stored in this `precision`. Exact counts wait in
    the folder encrypted; their key travels between processes, so a scheduler that is reached without TLS is refused
    unless `unencrypted` says that nobody else can reach it.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise DataError("The engine needs Dask, which is not installed. Run: pip install 'hdmm[dask]'") from None
    if not _LEAST_CHUNK <= chunk_bytes <= 1 << 34 or precision not in ("float32", "float64"):
        raise DataError(
            f"chunk_bytes is {chunk_bytes} and precision {precision!r}. Give from 2**10 to 2**34 bytes, and 'float32' "
            "or 'float64'."
        )
    if not isinstance(client_or_address, str | distributed.Client | None):
        raise DataError(
            f"The engine was given a {type(client_or_address).__name__}. Give a dask.distributed.Client, the address "
            "of a scheduler, or None for this machine."
        )
    address = client_or_address if isinstance(client_or_address, str) else None
    client = _client(distributed.Client, client_or_address, unencrypted=unencrypted)
    place = Path(tempfile.mkdtemp(prefix="hdmm-")) if folder is None else Path(folder).absolute()
    return DaskWorkers(place, chunk_bytes, precision, client, scheduler=address, unencrypted=unencrypted)


def _client(kind: Any, given: Any, *, unencrypted: bool) -> Any:
    """The client that was given, or one of the scheduler at an address, or one of new processes on this machine."""
    if isinstance(given, kind):
        if given.scheduler is None:
            raise DataError("The Dask client is closed. Give one that is connected, or the address of a scheduler.")
        if not unencrypted:
            refuse_unencrypted(given.scheduler.address)
        return given
    if given is None:
        try:
            return kind(cluster_here())
        except (OSError, TimeoutError, RuntimeError) as wrong:
            raise DataError(
                f"Workers cannot be started on this machine ({_why(wrong)}). Check its memory, and the space for "
                f"temporary files in {tempfile.gettempdir()}."
            ) from None
    if not unencrypted:
        refuse_unencrypted(given)
    try:
        return kind(given, timeout=10)
    except (OSError, TimeoutError, ValueError, TypeError) as wrong:  # TypeError if there is no certificate for TLS
        raise DataError(
            f"There is no scheduler at {given!r} ({_why(wrong)}). Start one with `dask scheduler`, name the "
            "certificates in Dask's configuration if it has TLS, or give None to use this machine."
        ) from None


def _why(wrong: Exception) -> str:
    """The system's words for an error of its own; of others the type alone (security O3)."""
    return os.strerror(wrong.errno) if isinstance(wrong, OSError) and wrong.errno else type(wrong).__name__


@final
@dataclass(frozen=True, eq=False)
class DaskWorkers(Workers):
    """Tasks on the workers of a Dask client. The key is handed out by Client.run, which keeps nothing."""

    client: Any = field(repr=False)
    lease: float = field(default=_LEASE, kw_only=True)
    lending_now: dict[str, tuple[Loan, threading.Event]] = field(
        default_factory=dict[str, tuple[Loan, threading.Event]], repr=False, init=False
    )

    def check(self) -> None:
        try:
            workers = self.client.scheduler_info()["workers"]
        except Exception as wrong:
            raise DataError(
                f"The Dask scheduler does not answer ({type(wrong).__name__}). Start it, and make a new engine."
            ) from None
        if not workers:
            raise DataError("The Dask scheduler has no workers. Start some, for example with `dask worker`.")

    def hand_out(self, name: str, loan: Loan | None) -> None:
        if loan is not None:
            ended = threading.Event()
            self.lending_now[name] = loan, ended
            self._everywhere(take, name, loan, self.lease)
            threading.Thread(target=self._renew, args=(name, ended), daemon=True).start()
        elif name in self.lending_now:
            self.lending_now.pop(name)[1].set()
            self._everywhere(give_back, name)

    def _renew(self, name: str, ended: threading.Event) -> None:
        """Renew a loan until it ends. Where that fails, the loan ends, and is lent again when a task asks for it."""
        while not ended.wait(self.lease / 4):
            with suppress(Exception):
                self.client.run(renew, name, self.lease, on_error="ignore")

    def _everywhere(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function on all workers; one that is lost meanwhile is left out, and asks if it comes again."""
        for attempt in range(_ATTEMPTS):
            try:
                self.client.run(function, *arguments, on_error="ignore")
                return
            except (OSError, TimeoutError) as wrong:  # the connection is lost, and Dask makes it again
                if attempt == _ATTEMPTS - 1:
                    raise DataError(
                        f"The Dask scheduler cannot be reached ({_why(wrong)}). Check it, and run again."
                    ) from None
                time.sleep(_PAUSE)

    def run(self, task: Callable[[T], _R], items: Sequence[T]) -> Iterator[_R]:
        waiting: deque[tuple[T, Any]] = deque()
        left = iter(items)
        try:
            for _ in items:
                for item in islice(left, _AHEAD - len(waiting)):
                    waiting.append((item, self.client.submit(task, item, pure=False)))
                result = self._result(task, *waiting[0])
                waiting.popleft()  # and is not computed again if its worker is lost now
                yield result
        finally:
            self.client.cancel([future for _, future in waiting])

    def _result(self, task: Callable[[T], _R], item: T, future: Any) -> _R:
        for _ in range(_ATTEMPTS):
            try:
                self._wait(future)
                return future.result()
            except KeyNotHereError:  # on a worker that started since
                for name, (loan, _) in list(self.lending_now.items()):
                    self._everywhere(take, name, loan, self.lease)
                future = self.client.submit(task, item, pure=False)
            except HdmmError:
                raise
            except Exception as wrong:
                raise DataError(
                    f"A task failed on the engine ({_why(wrong)}). Nothing was released by it; a budget that "
                    "was debited stays charged. Check the workers, their memory and the disk, and run again."
                ) from None
        raise DataError("Workers of the engine start again and again. Check their memory, and run again.")

    def _wait(self, future: Any) -> None:
        """Wait for a task as long as there are workers, or some may start again."""
        wait, seen = importlib.import_module("distributed").wait, time.monotonic()
        while True:
            with suppress(TimeoutError):
                wait(future, timeout=min(5.0, _PATIENCE))
                return
            if self.client.scheduler_info()["workers"]:
                seen = time.monotonic()
            elif time.monotonic() - seen > _PATIENCE:
                raise DataError(
                    "The engine has lost all of its workers. A budget that was debited stays charged. Start workers, "
                    "and run again."
                )


def cluster_here(**options: Any) -> Any:
    """A LocalCluster, by default of as many processes as there are cores; `options` are its own."""
    distributed, dask = importlib.import_module("distributed"), importlib.import_module("dask")
    folder = tempfile.mkdtemp(prefix="hdmm-workers-")
    private = {
        "temporary-directory": folder,
        "distributed.nanny.pre-spawn-environ": _KEEPING,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    try:
        with dask.config.set(private):
            cluster = distributed.LocalCluster(
                security=True, dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}, **options
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(cluster, shutil.rmtree, folder, ignore_errors=True)
    return cluster


def refuse_unencrypted(address: str) -> None:
    """Raise DataError unless what is sent to this address can be read by nobody else."""
    kind = importlib.import_module("distributed.comm").parse_address(address)[0]
    if kind not in _SAFE:
        raise DataError(
            f"The scheduler at {address!r} is reached without encryption and certificates: whoever can connect to it "
            "or to its workers can take the key of the release, and with it the exact counts. Start scheduler and "
            "workers with Dask's TLS, and give an address that starts with tls://. If nobody else can reach them, add "
            "--unencrypted (unencrypted=True)."
        )
