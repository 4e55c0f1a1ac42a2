"""Targets: margins of error as people state them, as the goal of a search, and as what the errors of rows may be.

A target is a number in the unit of the rows of a table (people, money, percentage points, years), or a part of their
counts, such as "2 %", where something is expected. Those of means, percentages and quantiles take an expected count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from hdmm.answers.first_order import aims, error_rows
from hdmm.base.exceptions import StrategyError, WorkloadError
from hdmm.base.hints import brief
from hdmm.describe.advice import small_margins
from hdmm.describe.error_rows import ErrorRows
from hdmm.describe.table_query import NO_MARGIN, TableQuery
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.select.goal import Goal, Objective, check_named, checked_targets


def stated_goal(
    asked: Workload | Mapping[str, Workload | TableQuery] | Goal,
    objective: Objective | str | None = None,
    targets: Mapping[str, float | str] | None = None,
    level: float | None = None,
    expected: Mapping[str, ArrayLike] | None = None,
) -> Goal:
    """The goal that a caller of `optimize` states, checked.

    >>> from hdmm import Domain, Integers
    >>> from hdmm.sql import parse
    >>> (ages,) = parse(Domain({"sex": 2, "age": Integers(18, 67)}), "SELECT sex, AVG(age) FROM t GROUP BY sex")
    >>> goal = stated_goal({"ages": ages}, targets={"ages": 0.5}, expected={"ages": 1_000})
    >>> {name: round(target) for name, target in goal.targets.items()}  # of the sums of ages, and of the counts
    {'ages/1': 354, 'ages/2': 8}
    """
    if not isinstance(asked, Mapping):
        if expected is not None:
            raise StrategyError("What is expected names tables. Give a mapping: optimize({'ages': table}, …).")
        return Goal.of(asked, objective, None if targets is None else _numbers(targets), level)
    bare = {name: table.workload if isinstance(table, TableQuery) else table for name, table in asked.items()}
    checked = Goal.of(bare, objective, None if targets is None else _numbers(targets), level)
    for name in (counts := _mapping(expected)):
        check_named("something expected", name, bare)
    groups: dict[str, list[TableQuery]] = {}
    for name, each in asked.items():
        if (whole := name.rpartition("/")[0]) in bare:
            raise StrategyError(f"Table {name!r} is named as a part of table {whole!r} would be. Rename one of them.")
        table = each if isinstance(each, TableQuery) else TableQuery.of_rows(name, each)
        table = replace(table, group=name, margin=None, relative=None)
        groups[name] = [aimed(_expecting(table, counts.get(name)), (targets or {}).get(name))]
    return goal_of(groups, checked.objective, checked.level)


def goal_of(groups: Mapping[str, Sequence[TableQuery]], objective: Objective | str, level: float) -> Goal:
    """The goal of named tables: the margins that they may have where some have one, else the objective over all.

    Several tables of one name are planned for as one. Beside margins, a table without one is held to ten times the
    largest, divided by its weight. Where rows are not queries, the queries of each unit are a table of their own.
    """
    tables: dict[str, Workload] = {}
    targets: dict[str, float] = {}
    rows: dict[str, tuple[ErrorRows, ...]] = {}
    for name, each in groups.items():
        found = [error_rows(table) for table in each]
        if not all(table.linear for table in each):
            rows[name] = () if None in found else tuple(own for own in found if own is not None)
        elif any(table.combine is not None or table.expected is not None for table in each):
            rows[name] = tuple(own for own in found if own is not None)
        asked = [aim for table, own in zip(each, found, strict=True) for aim in aims(table, own)]
        if asked and not all(table.linear for table in each):  # queries of several units, with targets of their own
            for k, (workload, target) in enumerate(asked, start=1):
                tables[f"{name}/{k}"], targets[f"{name}/{k}"] = workload, target
            continue
        if asked:
            targets[name] = min(target for _, target in asked)
        tables[name] = _together(each)
    goal = Goal.of(tables, None, targets, level) if targets else Goal.of(tables, objective, None, level)
    return replace(goal, rows=rows)


def aimed(table: TableQuery, target: float | str | None) -> TableQuery:
    """The same table with this margin of error, or with none; StrategyError if it cannot have it."""
    try:
        return table.aimed(target)
    except WorkloadError as wrong:
        raise StrategyError(f"Table {table.group!r}: {wrong}") from None


def check_targets(tables: Collection[str], targets: Mapping[str, float | str]) -> None:
    """Refuse targets of tables that do not exist, or that are neither a margin nor text, which is read later."""
    checked_targets(tables, _numbers(targets))


def allowed_margins(goal: Goal, targets: Mapping[str, float | str] | None) -> list[tuple[ErrorRows, Array]]:
    """The rows that targets are about, or else that have margins by the goal, and the margins that they may have."""
    tables = goal.error_rows
    own = [(rows, rows.margin) for each in tables.values() for rows in each]
    if targets is None and any(margin is not None for _, margin in own):
        return [(rows, margin) for rows, margin in own if margin is not None]
    check_targets(tables, targets or {})
    found: list[tuple[ErrorRows, Array]] = []
    for name, target in (targets or {}).items():
        try:
            if not tables[name]:
                raise WorkloadError(NO_MARGIN)
            found += [(rows, rows.allowed(target)) for rows in tables[name]]
        except WorkloadError as wrong:
            raise StrategyError(f"Table {name!r}: {wrong}") from None
    return found


def small_targets(goal: Goal, targets: Mapping[str, float | str] | None) -> list[str]:
    """What to say of targets for counts that are less than one row, because a part was meant."""
    counted = {name for name, each in goal.error_rows.items() if all(rows.counted for rows in each)}
    return small_margins({n: t for n, t in (targets or {}).items() if n in counted and not isinstance(t, str)})


def _together(tables: Sequence[TableQuery]) -> Workload:
    """The queries of tables that are asked for together, times their weight unless they have a margin."""
    weight = 1.0 if tables[0].margin is not None else tables[0].weight
    products = (product for table in tables for product in table.workload.products)
    return Workload(tables[0].workload.domain, tuple(replace(p, weight=weight * p.weight) for p in products))


def _numbers(targets: Mapping[str, float | str]) -> dict[str, float]:
    """Targets with a number in the place of text."""
    return {name: 1.0 if isinstance(target, str) else target for name, target in targets.items()}


def _expecting(table: TableQuery, counts: ArrayLike | None) -> TableQuery:
    try:
        return table if counts is None else table.expecting(counts)
    except WorkloadError as wrong:
        raise StrategyError(f"Table {table.group!r}: {wrong}") from None


def _mapping(expected: object) -> Mapping[str, ArrayLike]:
    if not isinstance(expected, Mapping | None):
        raise StrategyError(
            f"What is expected is {brief(expected)}. Give typical counts by table, such as {{'ages': 1000}}."
        )
    return expected or {}
