"""Restarts in this process or on an executor, where they begin before their turn, with the same results.

A restart is given the least error so far and what other operators found. A restart that is begun early is given what is
known then. When its turn comes, its result counts only if it would be given the same now; otherwise it is run again. So
the plan is that of one process, whatever the executor and the number of its workers. What is lost is time of workers
that would have been idle.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, final

from threadpoolctl import threadpool_limits

from hdmm.base.exceptions import HdmmError, StrategyError
from hdmm.select.search import Job, Result, result_of
from hdmm.strategy.strategy import Strategy

_AHEAD = 32  # restarts that wait or run on the executor at most
_LOOK = 0.1  # seconds between looks at whether Ctrl-C was pressed
_OVERDUE = 0.1  # of a time limit: workers stop by themselves, and after this nobody waits for them any more

JobResult: TypeAlias = tuple[Result, frozenset[str]]
"""The result of a job, and the operators whose strategies it looked at."""


@contextmanager
def results_from(
    workers: int, executor: Executor | None, later: Callable[[Job], Iterator[Job]]
) -> Generator[Callable[[Iterator[Job]], Iterator[Result]]]:
    """What gives the results of jobs, in order: this process, or an executor, which begins later jobs early."""
    if workers == 1 and executor is None:
        yield lambda jobs: map(result_of, jobs)
        return
    with held_interrupts() as interrupted, _pool(workers, executor) as pool:
        ahead = SpeculativeExecutor(pool, later, interrupted)
        try:
            yield ahead.results
        finally:
            ahead.cancel()


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
    finally:  # what still runs was begun early, or was interrupted, and is not needed
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
class SpeculativeExecutor:
    """Jobs on an executor. `later` gives those that will probably follow a job; if `interrupted`, waiting ends."""

    def __init__(
        self, executor: Executor, later: Callable[[Job], Iterator[Job]], interrupted: Callable[[], bool]
    ) -> None:
        self.executor = executor
        self.later = later
        self.interrupted = interrupted
        self.start = time.monotonic()
        self.begun: dict[tuple[str, int], tuple[Job, Future[JobResult]]] = {}

    def results(self, jobs: Iterator[Job]) -> Iterator[Result]:
        """The results of the jobs, in order; each job is taken when the result before it was."""
        for job in jobs:
            self._begin(job)
            for later in islice(self.later(job), _AHEAD - 1):
                self._begin(later)
            result, looked_at = self._result(job)
            given = self.begun.pop(job.name)[0].search.found
            if any(given.get(name) is not job.search.found.get(name) for name in looked_at):
                self._begin(job)
                result, _ = self._result(job)
                del self.begun[job.name]
            yield result

    def cancel(self) -> None:
        """Drop the jobs that have not started; those that have will end, and nobody waits for them."""
        for _, future in self.begun.values():
            future.cancel()

    def _begin(self, job: Job) -> None:
        """Submit the job, unless it was submitted with the same error to beat."""
        if job.name in self.begun:
            given, future = self.begun[job.name]
            if given.search.beat == job.search.beat:
                return
            future.cancel()
        deadline = job.search.deadline
        # Clocks that count from a machine's start differ between machines; those of the day hardly do.
        until = None if deadline is None else time.time() + deadline - time.monotonic()
        try:
            self.begun[job.name] = job, self.executor.submit(_elsewhere, job, until)
        except Exception as wrong:
            raise _failed(wrong) from wrong

    def _result(self, job: Job) -> JobResult:
        deadline, until = job.search.deadline, math.inf
        if deadline is not None:
            until = max(time.monotonic(), deadline) + 1.0 + _OVERDUE * (deadline - self.start)
        try:
            return self._awaited(self.begun[job.name][1], until)
        except TimeoutError:
            return None, frozenset()
        except HdmmError:
            raise
        except Exception as wrong:
            raise _failed(wrong) from wrong

    def _awaited(self, future: Future[JobResult], until: float) -> JobResult:
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


def _elsewhere(job: Job, until: float | None) -> JobResult:
    """The result of a job in another thread, process or machine, in one BLAS thread as in one process."""
    found = _Noted(job.search.found)
    deadline = None if until is None else time.monotonic() + (until - time.time())
    with threadpool_limits(limits=1, user_api="blas"):
        result = result_of(replace(job, search=replace(job.search, deadline=deadline, found=found)))
    return result, frozenset(found.looked_at)


@final
class _Noted(Mapping[str, Strategy]):
    """What operators found, with a note of what was looked at."""

    def __init__(self, found: Mapping[str, Strategy]) -> None:
        self.found = found
        self.looked_at: set[str] = set()

    def __getitem__(self, name: str) -> Strategy:
        self.looked_at.add(name)
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        self.looked_at.update(self.found)
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)
