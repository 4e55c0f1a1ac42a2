"""Restarts in this process or on an executor, with the same results.

The restarts of a batch are given what was known when it began, and nothing of each other's, so that they may run in any
order and at the same time. Their results are taken in the order of the batch, wherever they come from.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, final

from threadpoolctl import threadpool_limits

from hdmm.base.exceptions import HdmmError, StrategyError
from hdmm.select.search import Job, Result, result_of

_LOOK = 0.1  # seconds between looks at whether Ctrl-C was pressed
_OVERDUE = 0.1  # of a time limit: workers stop by themselves, and after this nobody waits for them any more

BatchResults: TypeAlias = Callable[[Sequence[Job], Callable[[Job], bool]], Generator[Result]]
"""(jobs, whether one is still needed) ↦ the results of those that are, each asked when the result before is taken."""


@contextmanager
def results_from(workers: int, executor: Executor | None) -> Generator[BatchResults]:
    """What gives the results of a batch: this process, or an executor, which may run all of its jobs at once."""
    if workers == 1 and executor is None:
        yield lambda jobs, needed: (result_of(job) for job in jobs if needed(job))
        return
    with held_interrupts() as interrupted, _pool(workers, executor) as pool:
        yield BatchExecutor(pool, interrupted, time.monotonic()).results


@contextmanager
def _pool(workers: int, executor: Executor | None) -> Generator[Executor]:
    """The executor, or one of `workers` processes."""
    if executor is not None:
        yield executor
        return
    # Processes are spawned, not forked, because the parent may have threads.
    context = _Recording()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupts)
    try:
        yield pool
    finally:  # what still runs was interrupted, or is not needed
        with suppress(BrokenExecutor):
            last = pool.submit(_ignore_interrupts)
            pool.shutdown(wait=False, cancel_futures=True)
            while not (last.running() or last.done()):  # a pool that still holds cancelled jobs fails if workers end
                time.sleep(0.01)
        for process in context.started:
            process.terminate()


class _Recording(SpawnContext):
    """The context of spawned processes, which knows those that it started."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[BaseProcess] = []

    def Process(self, *arguments: Any, **named: Any) -> BaseProcess:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.started.append(_Undisturbed(*arguments, **named))
        return self.started[-1]


class _Undisturbed(SpawnProcess):
    """A process that no Ctrl-C reaches, not even while it starts and does not ignore it yet."""

    def start(self) -> None:
        if sys.platform == "win32":
            super().start()
            return
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # which the new process inherits
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)


def _ignore_interrupts() -> None:
    """Ctrl-C in a terminal reaches every process, but is for the one that searches."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@final
@dataclass(frozen=True, slots=True, eq=False)
class BatchExecutor:
    """Jobs on an executor since a time; if `interrupted`, waiting for them ends."""

    executor: Executor
    interrupted: Callable[[], bool]
    start: float

    def results(self, jobs: Sequence[Job], needed: Callable[[Job], bool]) -> Generator[Result]:
        """The results of the jobs that are needed, in order; the others are cancelled, or nobody waits for them."""
        futures = list(map(self._begun, jobs))
        try:
            for job, future in zip(jobs, futures, strict=True):
                if needed(job):
                    yield self._result(job, future)
        finally:
            for future in futures:
                future.cancel()

    def _begun(self, job: Job) -> Future[Result]:
        deadline = job.search.deadline
        # Clocks that count from a machine's start differ between machines; those of the day hardly do.
        until = None if deadline is None else time.time() + deadline - time.monotonic()
        try:
            return self.executor.submit(_elsewhere, job, until)
        except Exception as wrong:
            raise _failed(wrong) from wrong

    def _result(self, job: Job, future: Future[Result]) -> Result:
        deadline, until = job.search.deadline, math.inf
        if deadline is not None:
            until = max(time.monotonic(), deadline) + 1.0 + _OVERDUE * (deadline - self.start)
        try:
            return self._awaited(future, until)
        except TimeoutError:
            return None
        except HdmmError:
            raise
        except Exception as wrong:
            raise _failed(wrong) from wrong

    def _awaited(self, future: Future[Result], until: float) -> Result:
        while not self.interrupted():
            try:
                return future.result(min(_LOOK, max(0.0, until - time.monotonic())))
            except TimeoutError:
                if future.done() or time.monotonic() >= until:
                    raise
        raise KeyboardInterrupt


@contextmanager
def held_interrupts() -> Generator[Callable[[], bool]]:
    """What says whether Ctrl-C was pressed in the block, which does not interrupt it; a second one does.

    KeyboardInterrupt in the middle of what a future does can leave its lock taken, and the executor then never ends.
    """
    before, pressed = signal.getsignal(signal.SIGINT), list[bool]()
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def note(number: int, frame: Any) -> None:
        pressed.append(True)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:  # after the last result
        raise KeyboardInterrupt


def _failed(wrong: Exception) -> StrategyError:
    return StrategyError(
        f"A restart failed on the executor ({type(wrong).__name__}). Check that its workers run and have the same "
        "version of hdmm, or optimise without an executor."
    )


def _elsewhere(job: Job, until: float | None) -> Result:
    """The result of a job in another thread, process or machine, in one BLAS thread as in one process."""
    deadline = None if until is None else time.monotonic() + (until - time.time())
    with threadpool_limits(limits=1, user_api="blas"):
        return result_of(replace(job, search=replace(job.search, deadline=deadline)))
