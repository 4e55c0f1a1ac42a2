"""Restarts in this process, in others or on an executor, with the same results.

The restarts of a batch are given what was known when it began, and nothing of each other's, so that they may run in any
order and at the same time. Their results are taken in the order of the batch, wherever they come from.

Unless a caller says otherwise, a search that takes longer than a second starts processes for the other cores, and goes
on by itself until these are there. They do not run the program of the caller, which might measure and spend again.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, final

from threadpoolctl import threadpool_limits

from hdmm.base.exceptions import HdmmError, StrategyError
from hdmm.base.lazy import Lazy
from hdmm.select.search import Job, Result, result_of

if TYPE_CHECKING:
    import resource
else:
    resource = Lazy("resource")  # which Windows lacks

_LONG = 1.0  # seconds of a search after which processes are started for it: they take as long to be there
_MOST_SENT = 2**24  # bytes of a restart that is sent to another process by default
_LOOK = 0.1  # seconds between looks at whether Ctrl-C was pressed
_OVERDUE = 0.1  # of a time limit: workers stop by themselves, and after this nobody waits for them any more

BatchResults: TypeAlias = Callable[[Sequence[Job], Callable[[Job], bool]], Generator[Result]]
"""(jobs, whether one is still needed) ↦ the results of those that are, each asked when the result before is taken."""


@contextmanager
def results_from(workers: int, executor: Executor | None, *, asked: bool) -> Generator[BatchResults]:
    """What gives the results of a batch: this process, or an executor, which may run all of its jobs at once.

    If nobody asked for the workers, they help in a long search, if they can.
    """
    if workers == 1 and executor is None:
        yield lambda jobs, needed: (result_of(job) for job in jobs if needed(job))
        return
    if not asked:
        with ExitStack() as stack:
            yield _Helped(workers, stack).results
        return
    with held_interrupts() as interrupted, _pool(workers, executor) as pool:
        yield BatchExecutor(pool, interrupted, time.monotonic()).results


@contextmanager
def _pool(workers: int, executor: Executor | None = None, *, apart: bool = False) -> Generator[Executor]:
    """The executor, or one of `workers` processes, which know nothing of the caller's program if they are `apart`."""
    if executor is not None:
        yield executor
        return
    # Processes are spawned, not forked, because the parent may have threads.
    context = _Recording(apart=apart)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupts)
    try:
        yield pool
    finally:  # what still runs was interrupted, or is not needed
        with held_interrupts():
            with suppress(BrokenExecutor, OSError):
                last = pool.submit(_ignore_interrupts)
                pool.shutdown(wait=False, cancel_futures=True)
                while not (last.running() or last.done()):  # one with cancelled jobs fails if its workers end
                    time.sleep(0.01)
            for process in context.started:
                process.terminate()


@final
class _Helped:
    """The jobs of a search: this process runs them until others are there, which it starts if the search takes long."""

    def __init__(self, workers: int, stack: ExitStack) -> None:
        self.workers, self.stack, self.start = workers, stack, time.monotonic()
        self.pool: Executor | None = None
        self.begun: list[Future[None]] = []  # of each process that was started
        self.interrupted: Callable[[], bool] | None = None

    def results(self, jobs: Sequence[Job], needed: Callable[[Job], bool]) -> Generator[Result]:
        """The results of the jobs that are needed, in order."""
        left = deque(jobs)

        def reached(job: Job) -> bool:
            while left[0] is not job:  # which have results
                left.popleft()
            return needed(job)

        while left:
            if (helpers := self._helpers(left)) is None:
                job = left.popleft()
                if needed(job):
                    yield result_of(job)
                continue
            try:
                yield from helpers.results(tuple(left), reached)
                return
            except StrategyError:  # the system may have ended them for want of memory
                self.workers = 1

    def _helpers(self, jobs: Sequence[Job]) -> BatchExecutor | None:
        if self.workers > 1 and self.pool is None and len(jobs) > 1 and time.monotonic() >= self.start + _LONG:
            self._start_helpers(jobs[0])
        if self.workers == 1 or self.pool is None or not all(each.done() for each in self.begun):
            return None
        if self.interrupted is None:
            self.interrupted = self.stack.enter_context(held_interrupts())
        return BatchExecutor(self.pool, self.interrupted, self.start)

    def _start_helpers(self, job: Job) -> None:
        workers = min(self.workers, _most_in_memory())
        self.workers = 1  # unless all goes well
        # A process of another pool starts none, nor does a frozen program: it would be started again.
        alone = parent_process() is not None or getattr(sys, "frozen", False)
        if workers > 1 and not alone and _can_be_sent(job):
            with suppress(OSError, ImportError, NotImplementedError), held_interrupts():
                self.pool = self.stack.enter_context(_pool(workers, apart=True))
                self.begun = [self.pool.submit(_ignore_interrupts) for _ in range(workers)]
                self.workers = workers


def _most_in_memory() -> int:
    """As many processes as fit into half of the machine's memory, if each takes what this one took at most."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    except (ImportError, AttributeError, ValueError, OSError):  # not every system says
        return 1
    return memory // (2 * taken)


def _can_be_sent(job: Job) -> bool:
    """Whether a job is small, and holds nothing that only the caller's program has."""
    try:
        ForkingPickler(_Sent()).dump(job)
    except Exception:  # whatever cannot be sent says so in its own way
        return False
    return True


@final
class _Sent:
    """A file that refuses what is not sent."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> int:
        self.size += len(data)
        if self.size > _MOST_SENT or b"__main__" in bytes(data):
            raise ValueError
        return len(data)


class _Recording(SpawnContext):
    """The context of spawned processes, which knows those that it started."""

    def __init__(self, *, apart: bool) -> None:
        super().__init__()
        self.apart = apart
        self.started: list[BaseProcess] = []

    def Process(self, *arguments: Any, **named: Any) -> BaseProcess:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.started.append((_Apart if self.apart else _Undisturbed)(*arguments, **named))
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


class _Apart(_Undisturbed):
    """Such a process that does not run the main module of this one, which it would import."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # with nothing to import
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


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
