"""optimize: the best strategy that is found for a workload, as a Plan. Reads no data, spends no budget.

A `Reporter` shows how far the search is.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import final

from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from threadpoolctl import threadpool_limits

from hdmm.answers.margins import half_width
from hdmm.base.exceptions import StrategyError
from hdmm.base.steps import NotebookLine, in_notebook
from hdmm.describe.table_query import TableQuery
from hdmm.describe.workload import Workload
from hdmm.engines import Device
from hdmm.measure.plan import Plan
from hdmm.measure.targets import small_targets, stated_goal
from hdmm.privacy.guarantee import Noise
from hdmm.reconstruct.known import Known, known_counts, known_products
from hdmm.select.goal import Goal, Objective
from hdmm.select.operators import operators_beside
from hdmm.select.opt_hdmm import Listener, select
from hdmm.select.problem import Problem
from hdmm.select.search import Candidate, Operator
from hdmm.strategy.error import unit_error
from hdmm.strategy.informed import determined_by, unknown

DEFAULT_TIME_LIMIT = 60.0  # seconds: restarts after it have not paid in trials


def optimize(
    workload: Workload | Mapping[str, Workload | TableQuery] | Goal,
    *,
    objective: Objective | str | None = None,
    targets: Mapping[str, float | str] | None = None,
    expected: Mapping[str, ArrayLike] | None = None,
    level: float | None = None,
    known: Known | Sequence[Known] | None = None,
    noise: Noise | str = Noise.LAPLACE,
    restarts: int = 25,
    seed: int = 0,
    time_limit: float | None = DEFAULT_TIME_LIMIT,
    workers: int | None = None,
    executor: Executor | None = None,
    engine: Device | None = None,
    operators: Sequence[Operator] | None = None,
    listener: Listener | None = None,
    progress: bool | None = None,
    keep_interrupted: bool | None = None,
) -> Plan:
    """The best strategy OPT_HDMM finds for the workload (Section 7 of the paper), as a Plan.

    `workload` is one Workload, or a mapping from the names of tables to theirs, or the goal of a specification
    (`spec.goal`). A named table may also be one of `hdmm.sql.parse`, with means, percentages or quantiles. `objective`
    is what is minimised: "total" (the default for a Workload), the sum of all squared errors; "tables" (the default for
    a mapping), the sum of the tables' mean squared errors; "worst", the largest variance of any query. Weights count in
    all of these.

    If `targets` gives margins of error by table instead, the budget at which all of them hold is minimised, at
    confidence `level` (0.95): see `Plan.privacy_for`. Margins are in the unit of a table's rows, as they are published,
    so that the weights of a table with a target do not count. `expected` is a typical count by table, or one per row:
    then "2 %" of it is a target, too. Targets for means, percentages and quantiles need it, and hold to first order if
    all values are equally common.

    `known` are counts that are public already: none of the budget goes to them, and they lower the error of the rest.

    Deterministic for a seed where the time limit (seconds) is not met; the best so far is kept when it is.
    A search of more than a second uses the other cores, too, as OMP_NUM_THREADS allows; `workers=1` is this process
    alone. If `workers` is given, as many processes share the restarts from the beginning, and the calling script needs
    the usual `if __name__ == "__main__":`. So may any `executor` of concurrent.futures, such as a Dask client's
    (`client.get_executor()`), which stays open; `workers` then says how many restarts it runs at once, by which a time
    limit is shared. The plan is the same as that of one process. With `engine=hdmm.engines.gpu()`, a GPU computes what
    OPT_0 minimises if an attribute has 4,096 to 8,192 values; the plan then differs in its last digits.

    `listener(candidate, best)` hears of every candidate; progress is shown in a terminal and in a notebook unless told
    otherwise. With `keep_interrupted`, Ctrl-C ends the search, and the best plan so far is returned; a second one
    raises. By default that is so at a prompt and in a notebook. A script is interrupted, so that it does not go on and
    spend.

    >>> from hdmm import AllRange, Domain
    >>> w = Workload.product(Domain({"age": 64}), age=AllRange())
    >>> plan = optimize(w, restarts=1)
    >>> plan.operator, plan.error < 45_760  # Identity's
    ('OPT_0', True)
    """
    begun = time.monotonic()
    goal = stated_goal(workload, objective, targets, level, expected)
    noise = Noise.of(noise)
    half_width(1.0, goal.level, noise)  # so that a level that is none is refused before the search
    for line in small_targets(goal, targets):
        warnings.warn(line, stacklevel=2)
    if restarts < 1:
        raise StrategyError(f"The number of restarts is {restarts}. Use at least 1.")
    if workers is not None and workers < 1:
        raise StrategyError(f"The number of workers is {workers}. Use at least 1.")
    if executor is not None and not isinstance(executor, Executor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StrategyError(
            f"The executor is a {type(executor).__name__}. Give a concurrent.futures.Executor, such as a "
            "ProcessPoolExecutor, or client.get_executor() of a Dask client."
        )
    _check_engine(engine, alone=workers in (None, 1) and executor is None)
    if not any(product.weight > 0 for product in goal.workload.products):
        raise StrategyError("Every query has weight 0, so nothing is asked for. Give what matters a weight above 0.")
    public = known_counts(goal.workload.domain, known)
    problem = replace(Problem.of(goal.in_counts, noise), known=known_products(public))
    if public and all(determined_by(problem.known, product) for product in goal.workload.products):
        raise StrategyError("The known counts answer every query already. Publish them; there is nothing to measure.")
    if problem.parts is None:
        problem = replace(problem, given=unknown(problem.given, problem.known))
    merged = problem.merged
    chosen = operators_beside(merged) if operators is None else operators
    # One BLAS thread: on matrices of these sizes, several only wait for each other (5 times slower at n = 128).
    with (
        threadpool_limits(limits=1, user_api="blas"),
        Reporter(shown=progress, time_limit=time_limit, listener=listener) as report,
    ):
        found = select(
            merged,
            chosen,
            restarts=restarts,
            seed=seed,
            time_limit=None if time_limit is None else time_limit - (time.monotonic() - begun),
            workers=workers,
            executor=executor,
            xp=None if engine is None else engine.xp,
            listener=report,
            keep_interrupted=hasattr(sys, "ps1") if keep_interrupted is None else keep_interrupted,
        )
    strategy = problem.informed(merged.restored(replace(found.strategy, known=())))
    exact = goal.objective is Objective.TOTAL and problem.workload is goal.workload  # it was computed already
    return Plan(
        goal.workload,
        strategy,
        noise,
        found.best.error if exact else unit_error(goal.workload, strategy, noise=noise),
        found.best.operator,
        found.candidates,
        seed,
        found.stopped,
        goal,
        public,
    )


def _check_engine(engine: object, *, alone: bool) -> None:
    if engine is not None and not isinstance(engine, Device):
        raise StrategyError(
            f"The engine is a {type(engine).__name__}. A search takes hdmm.engines.gpu(); for several processes or "
            "machines, give workers or an executor."
        )
    if engine is not None and not alone:
        raise StrategyError(
            "A search on a GPU runs in one process, and several were asked for. Leave out the engine, or workers and "
            "executor."
        )


@final
class Reporter:
    """Shows progress in a terminal or a notebook, if it is to be shown; the caller's listener is called in any case.

    By default it is shown where someone watches: nothing is printed in a script whose output goes to a file.
    """

    def __init__(self, *, shown: bool | None, time_limit: float | None, listener: Listener | None) -> None:
        self.listener = listener
        self.first = math.inf
        notebook = in_notebook()
        shown = (notebook or sys.stderr.isatty()) if shown is None else shown
        self.line = NotebookLine("Selecting a strategy") if notebook and shown else None
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column()),  # wrapped below 80 columns
            TimeElapsedColumn(),
            TextColumn("" if time_limit is None else f"of {time_limit:g} s"),
            console=Console(stderr=True),
            transient=True,
            disable=notebook or not shown,
        )
        self.task = self.progress.add_task("selecting a strategy")

    def __enter__(self) -> Reporter:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        if self.line is not None:
            self.line.close()

    def __call__(self, candidate: Candidate, best: Candidate) -> None:
        if candidate.operator == "Identity":
            self.first = candidate.error
        gain = math.sqrt(self.first / best.error) if best.error > 0 else math.inf
        told = f"Start {candidate.start + 1}: {gain:.4g} × better than noise per cell"
        self.progress.update(self.task, description=f"{told}; Ctrl-C: stop")
        if self.line is not None:
            self.line.write(f"{told}; interrupt the kernel to take the best so far")
        if self.listener is not None:
            self.listener(candidate, best)
