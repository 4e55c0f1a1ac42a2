"""Search: one restart of an operator. What it is given besides its problem, when it ends early, and what it finds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np

from hdmm.base.exceptions import HdmmError
from hdmm.select.problem import Problem
from hdmm.strategy.strategy import Strategy

_WARM = 64  # steps before a descent is judged: the first dozens repair a bad start
_LOOK = 16  # steps between judgements
_CLOSE = 2e-3  # relative margin above the value to beat, because the predicted end of a descent is inexact

CUT_SHORT = "cut short by the time limit"
"""The note of a restart that would have gone on."""

Progress: TypeAlias = Callable[[int, float], None]
"""Called with the step, counted from 1, and the least value so far; may raise StopIteration to end the descent."""


@final
@dataclass(slots=True, eq=False)
class Limit:
    """Whether the time limit changed what a restart did: all copies of its search share one."""

    met: bool = False


@final
@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One restart: its randomness, its number, its deadline (on the clock of time.monotonic()) and its progress.

    `progress` is called after every step. `beat` is the least error found so far: a descent that will not get below it
    may be abandoned. `found` holds the best strategy of each operator so far, for operators that start from another's.
    `xp` is the array namespace of a GPU, if there is one, for OPT_0 on many cells. `limit` notes whether the restart
    was ever told that its time is over.

    >>> Search(np.random.default_rng(0), deadline=0.0).late
    True
    """

    rng: np.random.Generator
    restart: int = 0
    deadline: float | None = None
    progress: Progress | None = None
    beat: float = math.inf
    found: Mapping[str, Strategy] = field(default_factory=dict[str, Strategy])
    xp: Any = None
    limit: Limit = field(default_factory=Limit)

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return not self.affords(0.0)

    def affords(self, seconds: float) -> bool:
        """Whether a step of about this length, which cannot be interrupted, ends before the deadline.

        >>> Search(np.random.default_rng(0)).affords(1e9), Search(np.random.default_rng(0), deadline=0.0).affords(1.0)
        (True, False)
        """
        affordable = self.deadline is None or time.monotonic() + seconds <= self.deadline
        self.limit.met |= not affordable
        return affordable

    def numbered(self, restart: int) -> Search:
        """The same search with another restart number."""
        return replace(self, restart=restart)

    def silent(self) -> Search:
        """The same search without a progress callback."""
        return replace(self, progress=None)

    def rescaled(self, scale: float, power: int = 1) -> Search:
        """The same search, whose progress callback gets scale·valueᵖᵒʷᵉʳ.

        >>> search = Search(np.random.default_rng(0), progress=lambda step, value: print(step, value)).rescaled(2.0, 2)
        >>> search.tell(1, 3.0)
        1 18.0
        """
        progress = self.progress
        if progress is None:
            return self

        def tell(step: int, value: float) -> None:
            progress(step, scale * value**power)

        return replace(self, progress=tell)

    def racing(self, beat: float) -> Search:
        """The same search, in which a descent ends as soon as it is not expected to reach the value `beat`."""
        return replace(self, progress=Race(beat, self.progress))

    def tell(self, step: int, value: float) -> None:
        """Call the progress callback, if there is one."""
        if self.progress is not None:
            self.progress(step, value)


def first_search(deadline: float | None = None) -> Search:
    """The first restart, with the same randomness every time."""
    return Search(np.random.default_rng(0), deadline=deadline)


@final
class Race:
    """A progress callback that ends a descent that is not expected to reach `beat`; `then` is called as well.

    From step 64 on, a descent ends if gaining once more what the second half of its steps gained would not suffice.
    Descents gain less and less, like 1/steps or faster, so that few descents are ended that would have won; a losing
    start costs a tenth of a winning one (prefix sums over 1024 cells). Only values and steps decide, never the clock.

    >>> race = Race(1.0)
    >>> for step in range(1, 101):
    ...     race(step, 1.5 + 1 / step)
    Traceback (most recent call last):
    StopIteration
    >>> step
    64
    """

    def __init__(self, beat: float, then: Progress | None = None) -> None:
        self.enough = beat * (1 + _CLOSE)
        self.then = then
        self.values: list[float] = []

    def __call__(self, step: int, value: float) -> None:
        if self.then is not None:
            self.then(step, value)
        if step == 1:  # another descent of the same restart
            self.values = []
        self.values.append(value)
        if step >= _WARM and step % _LOOK == 0 and 2 * value - self.values[step // 2 - 1] > self.enough:
            raise StopIteration


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """A method that finds strategies: its name, the function of one restart, and the most restarts that are useful.

    `run` must honour the deadline of its search: every descent is given the search, and none is begun when it is late.
    What it has then is its result; if that is nothing, it raises a StrategyError.

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
    """The result of one restart: the exact unit error of its strategy; infinite, with a note, if the restart failed.

    The note also says if the time limit cut it short.
    """

    operator: str
    start: int
    error: float
    seconds: float
    note: str = ""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One restart of an operator: its inputs, and the number of jobs that share the time left when it starts."""

    operator: Operator
    problem: Problem
    search: Search
    waiting: int = 1


Result: TypeAlias = tuple[Candidate, Strategy] | None
"""The result of a job; None if the deadline had passed."""


def result_of(job: Job) -> Result:
    """The result of one restart, with its exact error; None past the deadline."""
    operator, problem, search = job.operator, job.problem, job.search
    now = time.monotonic()
    if search.deadline is not None:
        if now >= search.deadline:
            return None
        search = replace(search, deadline=now + (search.deadline - now) / job.waiting, limit=Limit())
    try:
        strategy = problem.informed(operator.run(problem, search))
        error, note = problem.value(strategy), ""
    except (HdmmError, np.linalg.LinAlgError) as failure:  # one start that fails must not lose the others
        strategy, error, note = Strategy.identity(problem.workload.domain), math.inf, str(failure)
    note = note or (CUT_SHORT if search.limit.met else "")
    return Candidate(operator.name, search.restart, error, time.monotonic() - now, note), strategy
