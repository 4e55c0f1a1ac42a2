"""OPT_HDMM: restarts of several operators, whose best result is kept; anytime, and deterministic for a seed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from hdmm.base.cores import usable_cores
from hdmm.base.exceptions import StrategyError
from hdmm.select.problem import Problem
from hdmm.select.restarts import results_from
from hdmm.select.search import CUT_SHORT, Candidate, Job, Operator, Result, Search
from hdmm.strategy.strategy import Strategy

_AGREEING = 3  # an operator stops when this many of its restarts agree
_GAIN = 1e-4  # a smaller relative gain does not count
_BEHIND = (1.5, 1.1, 1.03)  # an operator stops if it is this far behind the best after one restart, two or three
_PATIENCE = 12  # restarts without a gain after which the search stops
_TOGETHER = 8  # restarts of a batch, where there is one operator: more workers than that would have nothing to do
_RESERVE = (0.04, 0.25)  # of the time, at least and at most, for evaluating the last candidate
_LONGER = 3  # times as long as Identity the last candidate may take
_DONE = "all restarts were done"
_LATE = "the time limit was reached"
INTERRUPTED = "interrupted by the user"


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


def select(
    problem: Problem,
    operators: Sequence[Operator],
    *,
    restarts: int = 25,
    seed: int = 0,
    time_limit: float | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    xp: Any = None,
    listener: Listener | None = None,
    keep_interrupted: bool = False,
) -> Selection:
    """The best strategy that any restart of any operator finds for the problem.

    Operators take turns, so that each has one result before any has two. An operator stops when its restarts agree, if
    it falls behind, or if it has lost its patience, whatever the clock says. Every restart gets the error to beat when
    its batch began, and may give up. The error of every candidate is recomputed exactly from its strategy, and Identity
    is always a candidate. For the same seed the result is the same, unless the time limit ends the search, in one
    process as on an executor (or `workers` processes of its own; if neither is given, as many as there are cores, if it
    takes long), which may run all restarts of a batch at once. `xp` is the array namespace of a GPU, for a search in
    this process. With `keep_interrupted`, KeyboardInterrupt ends the
    search, too, and the best so far is returned.
    """
    begun = time.monotonic()
    deadline = None
    tried = _Tried(listener)
    values, plain = problem.values or problem, Strategy.identity(problem.workload.domain)
    every = values.value(Strategy.identity(values.workload.domain))
    tried.add(Candidate("Identity", 0, every, time.monotonic() - begun), plain)
    if values is not problem:  # the identity on merged cells is better than what stands for it, noise on every value
        tried.add(Candidate("Cells", 0, problem.value(plain), time.monotonic() - begun), plain)
    if time_limit is not None:  # the last candidate is evaluated, too
        least, most = (fraction * time_limit for fraction in _RESERVE)
        deadline = begun + time_limit - min(max(_LONGER * (time.monotonic() - begun), least), most)
    asked = workers is not None or executor is not None or xp is not None
    # Whether processes help by themselves is not known yet, so they do not decide how time is shared.
    stopped, turns = _DONE, _Turns(problem, operators, restarts, seed, deadline, workers or 1, xp, tried)
    try:
        with results_from(workers or (1 if asked else usable_cores()), executor, asked=asked) as results_of:
            for jobs in turns.batches():
                with closing(results_of(jobs, turns.needed)) as results:
                    stopped = tried.take(results) or stopped
                if stopped != _DONE:
                    break
    except KeyboardInterrupt:
        if not keep_interrupted:
            raise
        stopped = INTERRUPTED
    if stopped == _DONE and any(candidate.note == CUT_SHORT for candidate in tried.candidates):
        stopped = _LATE
    best = tried.best
    if best.operator not in tried.found:
        raise StrategyError(
            "No strategy that can be measured was found. If queries are about several amounts at once, give these "
            "larger steps; otherwise allow more time."
        )
    return Selection(tried.found[best.operator], best, tuple(tried.candidates), stopped)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Turns:
    """The order of restarts: in each round, one of every operator that is not settled."""

    problem: Problem
    operators: Sequence[Operator]
    restarts: int
    seed: int
    deadline: float | None
    workers: int
    xp: Any
    tried: _Tried

    def batches(self) -> Iterator[list[Job]]:
        """The jobs of each round, with what is known when it begins; of several rounds, where there is one operator.

        The first operator begins by itself: it is quick, and others give up early beside what it finds. In the first
        round later jobs share the time left, so that one operator cannot use up the time of the others.
        """
        restart = 0
        while active := [o for o in self.operators if self._allowed(o, restart)]:
            if restart == 0:
                first, *others = active
                yield [self._job(first, 0, 1 + math.ceil(len(others) / self.workers))]
                left = range(len(others), 0, -1)
                yield [self._job(o, 0, math.ceil(k / self.workers)) for o, k in zip(others, left, strict=True)]
                restart = 1
                continue
            end = restart + (_TOGETHER if len(self.operators) == 1 else 1)
            yield [self._job(o, k) for k in range(restart, end) for o in active if self._allowed(o, k)]
            restart = end

    def needed(self, job: Job) -> bool:
        """Whether the operator of a job has not settled since its batch began."""
        return not self.tried.settled(job.operator)

    def _allowed(self, operator: Operator, restart: int) -> bool:
        return restart < min(operator.restarts or self.restarts, self.restarts) and not self.tried.settled(operator)

    def _job(self, operator: Operator, restart: int, waiting: int = 1) -> Job:
        search = Search(
            rng=np.random.default_rng([self.seed, restart, *operator.name.encode()]),
            restart=restart,
            deadline=self.deadline,
            beat=self.tried.best.error,
            found=dict(self.tried.found),
            xp=self.xp,
        )
        return Job(operator, self.problem, search, waiting)


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
                return _LATE
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
