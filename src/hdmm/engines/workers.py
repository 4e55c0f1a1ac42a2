"""Engines: where the tasks of a release run whose vectors do not fit in memory.

A task is a function of this package and a small argument that can be pickled; its result is small, too. Arrays go
through chunk files in a folder that all workers share. What all tasks of a step need besides, an engine lends to its
workers' memory, outside of tasks: the key of the release, because engines write what tasks take and give to disk and
show it on dashboards, and factors, because they are large.
"""

from __future__ import annotations

import importlib
import secrets
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar, final

from hdmm.exceptions import DataError, HdmmError
from hdmm.noise import ReleaseKey, SealedKey
from hdmm.steps import shown_steps

T = TypeVar("T")
_R = TypeVar("_R")

_ATTEMPTS = 5  # times that workers without the key are given it
_AHEAD = 128  # tasks that wait or run at most, so that results that nobody took yet stay few
_PATIENCE = 60.0  # seconds without any worker after which a task is given up
_LEAST_CHUNK = 1 << 10
HERE: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
"""Options of Dask's workers on this machine: no dashboard, and no port that others can reach or that may be taken."""
_LENT: dict[str, Loan] = {}  # to this process
KEEPING = {"MALLOC_MMAP_THRESHOLD_": 1 << 25, "MALLOC_TRIM_THRESHOLD_": 1 << 30, "OMP_THREAD_LIMIT": 1}
"""Environment of workers that keep what a task frees for the next, because fresh pages took half of the processor's
time, and that take one core per task."""

__all__ = ["Workers", "dask"]


class KeyNotHereError(HdmmError):
    """A worker does not hold the key of the release: it started after the key was lent."""


@dataclass(frozen=True, eq=False)
class Workers(ABC):
    """Runs tasks; `folder` holds their files, and `chunk_bytes` is what a task holds of one array."""

    folder: Path
    chunk_bytes: int
    precision: Literal["float32", "float64"]
    scheduler: str | None = field(default=None, kw_only=True)  # its address, if one was given

    @property
    def options(self) -> tuple[str, ...]:
        """The options with which a command finds this engine again."""
        address = () if self.scheduler is None else ("--scheduler", self.scheduler)
        return ("--engine", "dask", "--engine-folder", str(self.folder), *address)

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
        _take(name, loan)
        try:
            self.hand_out(name, loan)
            yield name
        finally:
            try:
                self.hand_out(name, None)
            finally:
                _take(name, None)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Loan:
    """What the tasks of one step share, in the memory of each worker: their work, and the key of the release."""

    work: Any = field(repr=False)
    sealed: SealedKey | ReleaseKey | None = field(repr=False)

    @property
    def key(self) -> ReleaseKey:
        """The key; KeyNotHereError if none was lent."""
        if self.sealed is None:
            raise KeyNotHereError("No key was lent.")
        return self.sealed.opened() if isinstance(self.sealed, SealedKey) else self.sealed


def lent(name: str) -> Loan:
    """What was lent to this process; KeyNotHereError if nothing was."""
    if name not in _LENT:
        raise KeyNotHereError("The key of the release is not here. Lend it again.")
    return _LENT[name]


def dask(
    client_or_address: object = None,
    folder: str | Path | None = None,
    *,
    chunk_bytes: int = 1 << 26,
    precision: Literal["float32", "float64"] = "float64",
) -> Workers:
    """An engine on Dask: a client, the address of a scheduler, or None for processes of this machine.

    All workers must see `folder`, which holds the chunks of the release; by default it is a new temporary folder. A
    worker holds a few arrays of `chunk_bytes` at a time. Estimates are stored in this `precision`. Exact counts travel
    between processes, and wait in the folder encrypted: on several machines, use Dask's TLS.
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
    client, connected = client_or_address, partial(distributed.Client, timeout=10)
    if not isinstance(client, distributed.Client):
        try:
            client = connected(client) if client is not None else _started_here(connected)
        except (OSError, TimeoutError, ValueError) as wrong:
            raise DataError(
                f"There is no scheduler at {client_or_address!r} ({type(wrong).__name__}). Start one with "
                "`dask scheduler`, or give None to use this machine."
            ) from None
    place = Path(tempfile.mkdtemp(prefix="hdmm-")) if folder is None else Path(folder).absolute()
    address = client_or_address if isinstance(client_or_address, str) else None
    return DaskWorkers(place, chunk_bytes, precision, client, scheduler=address)


def _started_here(connected: Callable[..., Any]) -> Any:
    """A client of new processes on this machine."""
    with importlib.import_module("dask").config.set({"distributed.nanny.pre-spawn-environ": KEEPING}):
        return connected(**HERE)


@final
@dataclass(frozen=True, eq=False)
class DaskWorkers(Workers):
    """Tasks on the workers of a Dask client. The key is handed out by Client.run, which keeps nothing."""

    client: Any = field(repr=False)
    lending_now: dict[str, Loan] = field(default_factory=dict[str, Loan], repr=False, init=False)

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
        if loan is None:
            self.lending_now.pop(name, None)
        else:
            self.lending_now[name] = loan
        self.client.run(_take, name, loan)

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
                for name, loan in list(self.lending_now.items()):
                    self.client.run(_take, name, loan)
                future = self.client.submit(task, item, pure=False)
            except HdmmError:
                raise
            except Exception as wrong:
                raise DataError(
                    f"A task failed on the engine ({type(wrong).__name__}). Nothing was released by it; a budget that "
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


def _take(name: str, loan: Loan | None) -> None:
    """Keep what is lent in this process, or forget it."""
    if loan is None:
        _LENT.pop(name, None)
    else:
        _LENT[name] = loan
