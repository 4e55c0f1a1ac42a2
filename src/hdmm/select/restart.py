"""One restart of an operator: what it is given, and what it finds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np

from hdmm.base.exceptions import HdmmError
from hdmm.select.problem import Problem
from hdmm.select.search import Limit, Search
from hdmm.strategy.strategy import Strategy

CUT_SHORT = "cut short by the time limit"
"""The note of a restart that would have gone on."""


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

    @property
    def name(self) -> tuple[str, int]:
        """What no two jobs of a selection have in common."""
        return self.operator.name, self.search.restart


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
