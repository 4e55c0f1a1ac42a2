"""OPT_HDMM: restarts of several operators, whose best result is kept; anytime, and deterministic for a seed."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, final

import numpy as np
from threadpoolctl import threadpool_limits

from hdmm.exceptions import HdmmError
from hdmm.strategy.base import Strategy
from hdmm.strategy.problem import Problem
from hdmm.strategy.search import Search

_AGREEING = 3  # an operator stops when this many of its restarts agree
_GAIN = 1e-4  # a smaller relative gain does not count
_BEHIND = (1.5, 1.1, 1.03)  # an operator stops if it is this far behind the best after one restart, two or three
_PATIENCE = 12  # restarts without a gain after which the search stops
_RESERVE = (0.04, 0.25)  # of the time, at least and at most, for evaluating the last candidate
_LONGER = 3  # times as long as Identity the last candidate may take
_DONE = "all restarts were done"
INTERRUPTED = "interrupted by the user"


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """A method that finds strategies: its name, the function of one restart, and the most restarts that are useful.

    Restarts agree if their errors differ by less than the fraction `agree`, never if it is 0. `patience` is the number
    of restarts in a row that may leave the best error as it is before the operator stops: few if restarts take long,
    and no fewer than the kinds of starts that have been seen to win after the first.
    """

    name: str
    run: Callable[[Problem, Search], Strategy]
    restarts: int | None = None
    agree: float = 3e-4
    patience: int = 4


@final
@dataclass(frozen=True, slots=True)
class Candidate:
    """The result of one restart: the exact unit error of its strategy; infinite, with a note, if the restart failed."""

    operator: str
    start: int
    error: float
    seconds: float
    note: str = ""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The best strategy, and all candidates in the order in which they were tried."""

    strategy: Strategy
    best: Candidate
    candidates: tuple[Candidate, ...]
    stopped: str


Listener: TypeAlias = Callable[[Candidate, Candidate], None]
"""Called with each candidate and with the best so far."""

Job: TypeAlias = tuple[Operator, Problem, Search, int]
"""An operator, its inputs, and the number of jobs that share the time left when it starts."""

Result: TypeAlias = tuple[Candidate, Strategy] | None
"""The result of a job; None if the deadline had passed."""


def select(
    problem: Problem,
    operators: Sequence[Operator],
    *,
    restarts: int = 25,
    seed: int = 0,
    time_limit: float | None = None,
    workers: int = 1,
    listener: Listener | None = None,
    keep_interrupted: bool = False,
) -> Selection:
    """The best strategy that any restart of any operator finds for the problem.

    Operators take turns, so that each has one result before any has two. An operator stops when its restarts agree, if
    it falls behind, or if it has lost its patience, whatever the clock says. Every restart gets the error to beat, and
    may give up. The error of every candidate is recomputed exactly from its strategy, and Identity is always a
    candidate. For the same seed and number of workers (processes) the result is the same, unless the time limit ends
    the search: in one process a restart knows the results of all restarts before it; in several processes it knows the
    results of all earlier rounds. With `keep_interrupted`, KeyboardInterrupt ends the search, too, and the best so far
    is returned.
    """
    begun = time.monotonic()
    deadline = None
    tried = _Tried(listener)
    plain = Strategy.identity(problem.workload.domain)
    tried.add(Candidate("Identity", 0, problem.value(plain), time.monotonic() - begun), plain)
    if time_limit is not None:  # the last candidate is evaluated, too
        least, most = (fraction * time_limit for fraction in _RESERVE)
        deadline = begun + time_limit - min(max(_LONGER * (time.monotonic() - begun), least), most)
    stopped = _DONE
    try:
        with _pool(workers) as run:
            for batch in _batches(operators, restarts, tried, workers):
                found = dict(tried.found)
                # In one process, a job is made when the one before it is done, so that it has the latest error to beat.
                jobs = (
                    (
                        o,
                        problem,
                        Search(
                            rng=np.random.default_rng([seed, r, *o.name.encode()]),
                            restart=r,
                            deadline=deadline,
                            beat=tried.best.error,
                            found=found,
                        ),
                        waiting,
                    )
                    for waiting, (o, r) in zip(_waiting(batch, workers), batch, strict=True)
                )
                stopped = tried.take(run(jobs)) or stopped
                if stopped != _DONE:
                    break
    except KeyboardInterrupt:
        if not keep_interrupted:
            raise
        stopped = INTERRUPTED
    best = tried.best
    return Selection(tried.found[best.operator], best, tuple(tried.candidates), stopped)


def _batches(
    operators: Sequence[Operator], restarts: int, tried: _Tried, workers: int
) -> Iterator[list[tuple[Operator, int]]]:
    """(operator, restart) of one round, or of enough rounds to occupy the workers, without settled operators."""
    restart = 0
    while restart < restarts:
        active = [o for o in operators if restart < (o.restarts or restarts) and not tried.settled(o)]
        if not active:
            return
        rounds = range(restart, min(restarts, restart + max(1, workers // len(active))))
        yield [(o, r) for r in rounds for o in active if r < (o.restarts or restarts)]
        restart = rounds.stop


def _waiting(batch: Sequence[tuple[Operator, int]], workers: int) -> list[int]:
    """The number of jobs that share the time left when each job starts: itself and, in the first round, all later jobs.

    So the first start of one operator cannot use up the time of the others.
    """
    first = batch[0][1] == 0
    return [-(-(len(batch) - j) // workers) if first else 1 for j in range(len(batch))]


def _result(job: Job) -> Result:
    """The result of one restart, with its exact error; None past the deadline."""
    operator, problem, search, waiting = job
    now = time.monotonic()
    if search.deadline is not None:
        if now >= search.deadline:
            return None
        search = replace(search, deadline=now + (search.deadline - now) / waiting)
    try:
        strategy = problem.informed(operator.run(problem, search))
        error, note = problem.value(strategy), ""
    except (HdmmError, np.linalg.LinAlgError) as failure:  # one start that fails must not lose the others
        strategy, error, note = Strategy.identity(problem.workload.domain), math.inf, str(failure)
    return Candidate(operator.name, search.restart, error, time.monotonic() - now, note), strategy


@contextmanager
def _pool(workers: int) -> Generator[Callable[[Iterator[Job]], Iterator[Result]]]:
    """A function that runs a batch in order: in this process, or in `workers` processes."""
    if workers == 1:
        yield lambda jobs: map(_result, jobs)
        return
    # Processes are spawned, not forked, because the parent may have threads.
    context = _Recording()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_worker) as pool:
        try:
            yield lambda jobs: pool.map(_result, jobs)
        except KeyboardInterrupt:  # nobody waits for what still runs
            for process in context.started:
                process.terminate()
            raise


class _Recording(SpawnContext):
    """The context of spawned processes, which knows those that it started."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[BaseProcess] = []

    def Process(self, *arguments: Any, **named: Any) -> BaseProcess:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.started.append(super().Process(*arguments, **named))
        return self.started[-1]


def _prepare_worker() -> None:
    """One BLAS thread each; Ctrl-C in a terminal reaches every process, but is for the one that searches."""
    threadpool_limits(limits=1, user_api="blas")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Tried:
    """The candidates so far, the best strategy of each operator, and the best of all."""

    def __init__(self, listener: Listener | None) -> None:
        self.listener = listener
        self.candidates: list[Candidate] = []
        self.found: dict[str, Strategy] = {}
        self.lowest: dict[str, Candidate] = {}

    @property
    def best(self) -> Candidate:
        return min(self.lowest.values(), key=lambda candidate: candidate.error)

    def add(self, candidate: Candidate, strategy: Strategy) -> None:
        self.candidates.append(candidate)
        operator = candidate.operator
        if operator not in self.lowest or candidate.error < self.lowest[operator].error:
            if math.isfinite(candidate.error):
                self.found[operator] = strategy  # first: an interruption between the two must leave the best a strategy
            self.lowest[operator] = candidate
        if self.listener is not None:
            self.listener(candidate, self.best)

    def take(self, results: Iterator[Result]) -> str:
        """Add results in order, and return the reason why the search ends, or an empty text."""
        for result in results:
            if result is None:
                return "the time limit was reached"
            self.add(*result)
            if self.stale():
                return "further restarts no longer improved the plan"
        return ""

    def stale(self) -> bool:
        """Whether the last restarts gained nothing."""
        before = self.candidates[:-_PATIENCE]
        return bool(before) and min(c.error for c in before) <= (1 + _GAIN) * self.best.error

    def settled(self, operator: Operator) -> bool:
        """Whether more restarts of the operator are unlikely to help."""
        errors = sorted(c.error for c in self.candidates if c.operator == operator.name)
        if not errors or (len(errors) == 1 and math.isinf(errors[0])):  # a failure says nothing about the next start
            return False
        if errors[0] > _BEHIND[min(len(errors), len(_BEHIND)) - 1] * self.best.error:
            return True
        if self.fruitless(operator) >= operator.patience:
            return True
        return len(errors) >= _AGREEING and errors[_AGREEING - 1] < (1 + operator.agree) * errors[0]

    def fruitless(self, operator: Operator) -> int:
        """The number of the operator's restarts since it last lowered the error of all."""
        least, since = math.inf, 0
        for candidate in self.candidates:
            if candidate.operator == operator.name:
                since = 0 if candidate.error < least * (1 - _GAIN) else since + 1
            least = min(least, candidate.error)
        return since
