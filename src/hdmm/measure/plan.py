"""Plan: a selected strategy, its exact expected error, and how it was found; its `measure` is the one private step."""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import final, overload

from msgspec import UNSET, UnsetType

from hdmm.answers.charts import Chart, errors_chart
from hdmm.answers.margins import half_width
from hdmm.base.exceptions import DataError, FileError, HdmmError, LedgerError, PrivacyError, StrategyError
from hdmm.base.notebook import Card, NotebookValue
from hdmm.base.numbers import up
from hdmm.bounds.gap import KNOWN_LOOSENESS, certified_gap, loose_bound
from hdmm.data import Data
from hdmm.describe.advice import advice as domain_advice
from hdmm.describe.error_rows import ErrorRows
from hdmm.describe.workload import Workload
from hdmm.engines import Device, Workers
from hdmm.io import Stored, StrictRecord, load_record, save_record
from hdmm.measure.accuracy import lattice_for, least_privacy, margins
from hdmm.measure.chunked_release import ChunkedRelease
from hdmm.measure.measure import measure
from hdmm.measure.release import Release
from hdmm.measure.targets import small_targets
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, Noise, Privacy, PureDP
from hdmm.privacy.ledger import Ledger
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.reconstruct.known import Known, KnownRecord, known_products, known_records, read_known
from hdmm.select.goal import Goal, Objective, checked_targets
from hdmm.select.search import Candidate
from hdmm.strategy.error import rmse, unit_error
from hdmm.strategy.strategy import Strategy


class GoalFile(StrictRecord, frozen=True):
    """The goal of a plan for named tables: how many products of the workload each has, and what was minimised."""

    tables: list[tuple[str, int]]
    objective: Objective
    targets: list[tuple[str, float]]
    level: float
    rows: list[tuple[str, list[Stored[ErrorRows]]]] | UnsetType = UNSET


class PlanFile(StrictRecord, frozen=True):
    """All that plan.json holds. The error is computed from the strategy, never read."""

    noise: Noise
    operator: str
    seed: int
    stopped: str
    candidates: list[tuple[str, int, float | None, float, str]]  # operator, start, error, seconds, note
    workload: Stored[Workload]
    strategy: Stored[Strategy]
    goal: GoalFile | UnsetType = UNSET
    known: list[KnownRecord] | UnsetType = UNSET


@final
@dataclass(frozen=True, eq=False)
class Plan(NotebookValue):
    """What to measure for a workload.

    `error` is the total squared error at unit noise, ‖A‖²·‖W A⁺‖²_F; `candidates` lists everything that was tried.
    """

    workload: Workload
    strategy: Strategy
    noise: Noise
    error: float
    operator: str
    candidates: tuple[Candidate, ...]
    seed: int
    stopped: str
    goal: Goal
    known: tuple[Known, ...] = ()

    @cached_property
    def value(self) -> float:
        """The objective at unit noise, by which plans for one goal are compared: smaller is better."""
        return self.goal.in_counts.value(self.strategy, self.noise)

    @cached_property
    def gap(self) -> float | None:
        """How far the objective can be above that of the best strategy there is, certified, as a fraction of it.

        A squared error for "total" and "tables"; for "worst" and targets, the ρ that is needed. None for Laplace noise,
        which has no bound that is near the best plans. Beside known counts, only "total" and "tables" have one, for
        marginals and on up to 1,024 cells. Seconds at most, once.

        >>> from hdmm import Domain, optimize
        >>> optimize(Workload.marginals(Domain({"a": 3, "b": 4}), k=1), noise="gaussian", restarts=1).gap < 1e-3
        True
        """
        return certified_gap(self.goal.in_counts, self.strategy) if self.noise is Noise.GAUSSIAN else None

    def __repr__(self) -> str:
        w = self.workload
        return f"Plan({self.operator} for {w.queries:,} queries over {w.domain.size:,} cells, {self.noise} noise)"

    def _card(self) -> Card:
        """What is measured, and the error of every table."""
        one = PureDP(1) if self.noise is Noise.LAPLACE else ZCDP(1)
        times = math.sqrt(one.variance_factor)
        facts = {
            "Workload": f"{self.workload.queries:,} queries over {self.workload.domain.size:,} cells",
            "Noise": str(self.noise),
            "Found by": self.operator,
            "Measures": _measured(self.strategy, self.noise),
        }
        names = self.goal.tables
        rows = ([name, f"{names[name].queries:,}", f"{times * error:.4g}"] for name, error in self.errors.items())
        header = ["table", "queries", f"root mean squared error at {str(one).partition(' (')[0]}"]
        return Card("Plan", facts, header, rows, total=len(names))

    @cached_property
    def errors(self) -> dict[str, float]:
        """The root mean squared error per row of each table as it is published, without weights, at unit noise."""
        return self.goal.published.errors(self.strategy, self.noise)

    @cached_property
    def worst(self) -> dict[str, float]:
        """The largest standard deviation of a row of each table as it is published, at unit noise. O(queries)."""
        found = self.goal.published.worst(self.strategy, self.noise)
        return {name: max(deviation, self.errors[name]) for name, deviation in found.items()}  # equal up to rounding

    def privacy_for(
        self,
        targets: Mapping[str, float | str] | None = None,
        level: float | None = None,
        *,
        unit: Unit | None = None,
        rows_bound: int | None = None,
    ) -> PureDP | ZCDP:
        """The least privacy budget, rounded up, at which every row of each table has at most its margin of error.

        Margins are those that the tables of a release print at this confidence level, of unbiased estimates; weights do
        not count. Without `targets`, those of the plan hold; they are stated as for `optimize`, and parts are of what
        was expected there. Give `rows_bound` if the data declares one.

        >>> from hdmm import Domain, optimize
        >>> plan = optimize({"sex": Workload.marginals(Domain({"sex": 2}), k=1)}, restarts=1)
        >>> plan.privacy_for({"sex": 10}, level=0.95)
        PureDP('0.3012')
        """
        found = least_privacy(
            self.goal,
            lattice_for(self.strategy, self.noise, self.workload, rows_bound),
            self.noise,
            targets,
            level=self.goal.level if level is None else level,
            unit=unit or Unit(),
        )
        for line in small_targets(self.goal, targets):
            warnings.warn(line, stacklevel=2)
        return found

    def rmse(self, privacy: Privacy) -> float:
        """The root mean squared error per query under the privacy's noise."""
        self._check_noise(privacy)
        return rmse(self.workload, self.strategy, privacy)

    def plot(self, privacy: Privacy | None = None, *, unit: Unit | None = None) -> Chart:
        """The margin of the worst row of each table against ε (or ρ), from a quarter of the privacy to four times.

        Margins are those that the tables of a release have at the plan's level, without weights; targets are drawn
        beside them. Without `privacy`, the middle is the least that reaches the targets, or else ε = 1 or ρ = 1. Needs
        hdmm[plots].
        """
        if privacy is None:
            least = PureDP(1) if self.noise is Noise.LAPLACE else ZCDP(1)
            privacy = self.privacy_for(unit=unit) if self.goal.targets else least
        self._check_noise(privacy)
        lattice = lattice_for(self.strategy, self.noise, self.workload)
        found = margins(self.goal, lattice, privacy, level=self.goal.level, unit=unit or Unit())
        title, upward = "Margins of error", f"margin of the worst row (± at {100 * self.goal.level:g} %)"
        targets = {
            name: min(float(rows.margin.min()) for rows in each if rows.margin is not None)
            for name, each in self.goal.error_rows.items()
            if any(rows.margin is not None for rows in each)
        }
        return errors_chart(title, found, privacy, names="table", upward=upward, targets=targets)

    @overload
    def measure(
        self,
        data: Data,
        privacy: Privacy,
        *,
        ledger: Ledger | None,
        unit: Unit | None = None,
        purpose: str = "release",
        engine: Device | None = None,
    ) -> Release: ...

    @overload
    def measure(
        self,
        data: Data,
        privacy: Privacy,
        *,
        ledger: Ledger | None,
        unit: Unit | None = None,
        purpose: str = "release",
        engine: Workers,
    ) -> ChunkedRelease: ...

    def measure(
        self,
        data: Data,
        privacy: Privacy,
        *,
        ledger: Ledger | None,
        unit: Unit | None = None,
        purpose: str = "release",
        engine: Device | Workers | None = None,
    ) -> Release | ChunkedRelease:
        """The one private step: the strategy measured on the data with exact noise, after the ledger is debited.

        The budget is charged to `ledger` before data is read, and stays charged whatever happens then; without a
        ledger, write `ledger=None`. The unit of privacy is one row added or removed, or as many rows as the data
        keeps of a person; see `Unit`. `engine=hdmm.engines.gpu()` computes answers and Laplace noise on a GPU. With
        `engine=hdmm.engines.dask()`, it is measured and answered in chunks on disk, where its vectors do not fit in
        memory.

        >>> import numpy as np
        >>> from hdmm import Domain, PureDP, from_array, optimize
        >>> w = Workload.marginals(Domain({"sex": ["M", "F"]}), k=1)
        >>> release = optimize(w, restarts=1).measure(from_array(w.domain, [5, 7]), PureDP(1), ledger=None)
        >>> release.answer(w).stddev.round(3)
        array([1.414, 1.414])
        """
        _check_measured(data, privacy, ledger, engine)
        self._check_noise(privacy)
        return measure(
            self.strategy,
            data,
            privacy,
            ledger=ledger,
            unit=unit,
            workload=self.workload,
            purpose=purpose,
            known=self.known,
            engine=engine,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan as a folder (JSON and arrays), whole or not at all; `load_plan` reads it."""
        file = PlanFile(
            noise=self.noise,
            operator=self.operator,
            seed=self.seed,
            stopped=self.stopped,
            candidates=[
                (c.operator, c.start, c.error if math.isfinite(c.error) else None, c.seconds, c.note)
                for c in self.candidates
            ],
            workload=self.workload,
            strategy=self.strategy,
            goal=_goal_file(self.goal),
            known=known_records(self.known),
        )
        return save_record(path, "plan", file)

    def _check_noise(self, privacy: Privacy) -> None:
        if privacy.noise != self.noise:
            raise StrategyError(
                f"The plan was made for {self.noise} noise, but {privacy} adds {privacy.noise} noise. Make a plan with "
                f"noise={privacy.noise!r}."
            )

    def explain(self, *, advice: bool = True) -> str:
        """The plan in words: what is measured, how good it is, what else was tried, and what to declare otherwise."""
        return "\n".join([*_explain(self), *(domain_advice(self.workload.domain) if advice else [])])


def _check_measured(data: object, privacy: object, ledger: object, engine: object) -> None:
    """Refuse arguments of `Plan.measure` of another type, and say what to pass; nothing is spent."""
    if not isinstance(data, Data):
        raise DataError(
            f"The data is a {type(data).__name__}. Give hdmm.from_table(domain, …) of a path or a frame, or "
            "hdmm.from_array(domain, …) of counts."
        )
    if not isinstance(privacy, PureDP | ZCDP | GaussianDP | ApproxDP):
        raise PrivacyError(
            f"The privacy is a {type(privacy).__name__}. Give a guarantee, such as PureDP('0.5') or ZCDP('0.1')."
        )
    if ledger is not None and not isinstance(ledger, Ledger):
        raise LedgerError(
            f"The ledger is a {type(ledger).__name__}. Give hdmm.Ledger('budget.db', dataset='…', cap=…), or "
            "ledger=None if nobody keeps the budget."
        )
    if not isinstance(engine, Device | Workers | None):
        raise DataError(
            f"The engine is a {type(engine).__name__}. Give hdmm.engines.gpu(), hdmm.engines.dask(…), or None "
            "for this process."
        )


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan that `Plan.save` wrote. Its error and sensitivity are computed from the strategy, never read."""
    file, _ = load_record(path, "plan", PlanFile)
    at = str(Path(path) / "plan.json")
    if file.strategy.domain is not file.workload.domain:  # equal domains of one file are one object
        raise FileError(
            f"{at} strategy is over the domain ({', '.join(file.strategy.domain.names)}), which is not the workload's "
            f"({', '.join(file.workload.domain.names)}). Load what belongs together."
        )
    known = read_known(file.workload.domain, file.known, at)
    try:
        strategy = replace(file.strategy, known=known_products(known)) if known else file.strategy
        error = unit_error(file.workload, strategy, noise=file.noise)
    except StrategyError as wrong:
        raise FileError(f"{at}: the strategy does not suit the workload. {wrong}") from None
    candidates = tuple(
        Candidate(operator, start, math.inf if found is None else found, seconds, note)
        for operator, start, found, seconds, note in file.candidates
    )
    goal = Goal.of(file.workload) if isinstance(file.goal, UnsetType) else _goal(file.goal, file.workload, at)
    return Plan(
        file.workload, strategy, file.noise, error, file.operator, candidates, file.seed, file.stopped, goal, known
    )


def _goal_file(goal: Goal) -> GoalFile | UnsetType:
    if goal == Goal.of(goal.workload) and not goal.rows:
        return UNSET
    sizes = [(name, len(table.products)) for name, table in goal.tables.items()]
    rows = [(name, list(each)) for name, each in goal.rows.items()]
    return GoalFile(sizes, goal.objective, list(goal.targets.items()), goal.level, rows or UNSET)


def _goal(file: GoalFile, workload: Workload, at: str) -> Goal:
    ends = list(itertools.accumulate((count for _, count in file.tables), initial=0))
    names = {name for name, _ in file.tables}
    if (
        min((count for _, count in file.tables), default=0) < 1
        or ends[-1] != len(workload.products)
        or len(names) < len(ends) - 1
    ):
        raise FileError(f"{at} goal: the tables are not those of the workload. Plan again.")
    tables = {
        name: Workload(workload.domain, workload.products[start:stop])
        for (name, _), start, stop in zip(file.tables, ends[:-1], ends[1:], strict=True)
    }
    try:
        targets = checked_targets(tables, dict(file.targets)) if file.targets else {}
        half_width(1.0, file.level, Noise.LAPLACE)
    except HdmmError as wrong:
        raise FileError(f"{at} goal: {wrong}") from None
    rows = {} if isinstance(file.rows, UnsetType) else {name: tuple(each) for name, each in file.rows}
    if any(own.workload.domain != workload.domain for each in rows.values() for own in each):
        raise FileError(f"{at} goal: the rows of tables are over another domain than the workload. Plan again.")
    return Goal(tables, file.objective, targets, file.level, rows=rows)


def _explain(plan: Plan) -> list[str]:
    w = plan.workload
    unit = math.sqrt(plan.error / w.queries)
    lines = [
        f"{w.queries:,} queries over {w.domain.size:,} cells, {plan.noise} noise.",
        f"{plan.operator} found a strategy with a root mean squared error of {unit:.4g} per query at unit noise.",
    ]
    identity = next((c.error for c in plan.candidates if c.operator == "Identity"), math.inf)
    if math.isfinite(identity) and plan.value > 0:
        lines.append(
            f"By its goal, it is {math.sqrt(identity / plan.value):.2f} times better than noise on every cell."
        )
    if plan.gap is not None:
        smaller = up(100 * (1 - (1 + plan.gap) ** -0.5), 2)
        lines.append(f"No strategy can have errors that are more than {smaller} % smaller.")
    elif not plan.known and (bound := loose_bound(plan.goal.in_counts)) > 0:
        times, (least, most) = math.sqrt(plan.value / bound), KNOWN_LOOSENESS
        lines += [
            f"No strategy can be more than {up(times, 2)} times better (a loose bound, from Gaussian noise).",
            f"On 2 to 9 cells, where the best strategies are known, a factor of {least} to {most} is the bound's own.",
        ]
    lines.append(f"It measures {_measured(plan.strategy, plan.noise)}.")
    by_operator: dict[str, list[Candidate]] = {}
    for candidate in plan.candidates:
        by_operator.setdefault(candidate.operator, []).append(candidate)
    lines.append(f"Tried ({plan.stopped}):")
    for name, tried in by_operator.items():
        best = min(tried, key=lambda c: c.error)
        times = math.sqrt(best.error / plan.value) if plan.value > 0 else 1.0
        found = f"{times:.4g} times the plan's error" if math.isfinite(best.error) else best.note
        seconds = sum(c.seconds for c in tried)
        lines.append(f"  {name:<9} {len(tried):2} start{'s' if len(tried) != 1 else ' '} {seconds:6.1f} s  {found}")
    return lines


def _measured(strategy: Strategy, noise: Noise) -> str:
    names, shares = strategy.domain.names, strategy.shares(noise).tolist()
    parts: list[str] = []
    for j in sorted(range(len(shares)), key=lambda j: -shares[j])[:5]:
        over = " × ".join(names[i] for i in sorted(strategy.blocks[j].axes)) or "the total"
        parts.append(f"{over} ({100 * shares[j]:.0f} % of the budget)")
    more = f" and {len(shares) - 5} more" if len(shares) > 5 else ""
    return ", ".join(parts) + more
