"""Engines: where the tasks of a release run whose vectors do not fit in memory.

A task is a function of this package and a small argument that can be pickled; its result is small, too. Arrays go
through chunk files in a folder that all workers share. The one thing that tasks need besides is the key of the release:
an engine lends it to its workers' memory, outside of tasks, because engines write what tasks take and give to disk and
show it on dashboards.
"""

from __future__ import annotations

import importlib
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, final

from hdmm.exceptions import DataError, HdmmError
from hdmm.noise import ReleaseKey, SealedKey

T = TypeVar("T")
_R = TypeVar("_R")

_ATTEMPTS = 5  # times that workers without the key are given it
_LEAST_CHUNK = 1 << 10
_KEYS: dict[str, ReleaseKey] = {}  # lent to this process, by the names of releases

__all__ = ["Workers", "dask"]


class KeyNotHereError(HdmmError):
    """A worker does not hold the key of the release: it started after the key was lent."""


@dataclass(frozen=True, eq=False)
class Workers(ABC):
    """Runs tasks; `folder` holds their files, and `chunk_bytes` is what a task holds of one array."""

    folder: Path
    chunk_bytes: int
    precision: Literal["float32", "float64"]

    @abstractmethod
    def check(self) -> None:
        """Raise DataError if no task can run. Called before a budget is debited."""

    @abstractmethod
    def run(self, task: Callable[[T], _R], items: Sequence[T]) -> list[_R]:
        """The results of the task for all items, in order. A task may be run more than once."""

    @abstractmethod
    def hand_out(self, name: str, key: SealedKey | None) -> None:
        """Give all workers the key of this name, or take it back."""

    @contextmanager
    def lending(self, key: ReleaseKey) -> Generator[str]:
        """The name by which tasks find the key (`lent`), as long as the block lasts."""
        name = secrets.token_hex(8)
        _take(name, key.sealed())
        try:
            self.hand_out(name, key.sealed())
            yield name
        finally:
            try:
                self.hand_out(name, None)
            finally:
                _take(name, None)


def lent(name: str) -> ReleaseKey:
    """The key that was lent to this process; KeyNotHereError if none was."""
    if name not in _KEYS:
        raise KeyNotHereError("The key of the release is not here. Lend it again.")
    return _KEYS[name]


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
    client: Any = client_or_address
    if not isinstance(client, distributed.Client):
        try:
            client = distributed.Client(client, timeout=10)
        except (OSError, TimeoutError, ValueError) as wrong:
            raise DataError(
                f"There is no scheduler at {client_or_address!r} ({type(wrong).__name__}). Start one with "
                "`dask scheduler`, or give None to use this machine."
            ) from None
    place = Path(tempfile.mkdtemp(prefix="hdmm-")) if folder is None else Path(folder).absolute()
    return DaskWorkers(place, chunk_bytes, precision, client)


@final
@dataclass(frozen=True, eq=False)
class DaskWorkers(Workers):
    """Tasks on the workers of a Dask client. The key is handed out by Client.run, which keeps nothing."""

    client: Any = field(repr=False)
    lending_now: dict[str, SealedKey] = field(default_factory=dict[str, SealedKey], repr=False, init=False)

    def check(self) -> None:
        try:
            workers = self.client.scheduler_info()["workers"]
        except Exception as wrong:
            raise DataError(
                f"The Dask scheduler does not answer ({type(wrong).__name__}). Start it, and make a new engine."
            ) from None
        if not workers:
            raise DataError("The Dask scheduler has no workers. Start some, for example with `dask worker`.")

    def hand_out(self, name: str, key: SealedKey | None) -> None:
        if key is None:
            self.lending_now.pop(name, None)
        else:
            self.lending_now[name] = key
        self.client.run(_take, name, key)

    def run(self, task: Callable[[T], _R], items: Sequence[T]) -> list[_R]:
        done: dict[int, _R] = {}
        for _ in range(_ATTEMPTS):
            waiting = {k: self.client.submit(task, items[k], pure=False) for k in range(len(items)) if k not in done}
            try:
                for k, future in waiting.items():
                    try:
                        done[k] = future.result()
                    except KeyNotHereError:  # on a worker that started since
                        continue
            except HdmmError:
                raise
            except Exception as wrong:
                raise DataError(
                    f"A task failed on the engine ({type(wrong).__name__}). Nothing was released; a budget that was "
                    "debited stays charged. Check the workers, their memory and the disk, and run again."
                ) from None
            finally:
                self.client.cancel(list(waiting.values()))
            if len(done) == len(items):
                return [done[k] for k in range(len(items))]
            for name, key in list(self.lending_now.items()):
                self.client.run(_take, name, key)
        raise DataError("Workers of the engine start again and again. Check their memory, and run again.")


def _take(name: str, key: ReleaseKey | SealedKey | None) -> None:
    """Keep the key in this process, or forget it."""
    if key is None:
        _KEYS.pop(name, None)
    else:
        _KEYS[name] = key.opened() if isinstance(key, SealedKey) else key
