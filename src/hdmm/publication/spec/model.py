"""Spec: what a specification says, read and checked. Reads no data, spends nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import final

from msgspec import structs

from hdmm.base.exceptions import StrategyError
from hdmm.base.hints import did_you_mean
from hdmm.base.numbers import many
from hdmm.data.engines.address import without_password
from hdmm.describe.advice import advice, small_margins
from hdmm.describe.domain import Domain
from hdmm.describe.table_query import TableQuery
from hdmm.describe.workload import Workload
from hdmm.measure.targets import aimed, check_targets, goal_of
from hdmm.privacy.guarantee import Privacy
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.publication.spec.keys import DataPart, OutputPart, PlanPart, ReportPart
from hdmm.reconstruct.known import Known
from hdmm.select.goal import Goal, Objective

_LONGEST_PART = 60  # characters of the names of tables in the name of a folder


@final
@dataclass(frozen=True, slots=True)
class LedgerPart:
    """[ledger]: the file that keeps the budget, and the most that may ever be spent."""

    path: Path
    cap: Privacy


@final
@dataclass(frozen=True, slots=True, repr=False)
class Spec:
    """A specification: the data, the tables asked for, and what they may cost.

    `domain` is the declared one, with attributes merged if a condition joins them by OR.
    """

    path: Path
    digest: str  # SHA-256 of the file
    title: str
    data: DataPart
    domain: Domain
    tables: tuple[TableQuery, ...]
    privacy: Privacy
    unit: Unit
    ledger: LedgerPart
    output: OutputPart
    plan: PlanPart
    impossible: tuple[str, ...] = ()
    known: tuple[Known, ...] = ()
    letterhead: ReportPart = field(default_factory=ReportPart)
    logo: str | None = None  # of the letterhead, as a data URL
    variables: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()  # of a command line, that say what else is not as in the file
    withheld: frozenset[str] = frozenset()  # variables in the address of the data (security O6)
    tells_secret: bool = False  # whether a password is written into the file itself

    @property
    def goal(self) -> Goal:
        """What a plan is made for: the margins where tables have some, else the objective over weighted tables."""
        return goal_of(self.groups, self.plan.objective or Objective.TABLES, self.output.level)

    @property
    def groups(self) -> dict[str, list[TableQuery]]:
        """The tables that each [[table]] asks for, by its name."""
        found: dict[str, list[TableQuery]] = {}
        for table in self.tables:
            found.setdefault(table.group, []).append(table)
        return found

    @property
    def advice(self) -> list[str]:
        """What a user may want to declare otherwise, in full sentences; of attributes only if that is welcome."""
        margins = {
            table.group: table.margin
            for table in self.tables
            if table.margin is not None and table.linear and table.workload.in_counts() == table.workload  # of counts
        }
        return [*(advice(self.domain) if self.plan.advice else []), *small_margins(margins)]

    @property
    def workload(self) -> Workload:
        """The queries of all tables, weighed as a plan sees them."""
        return self.goal.workload

    @property
    def recorded(self) -> dict[str, str]:
        """The variables that may be published and recorded: not those in an address, which may be a password."""
        return {name: value for name, value in self.variables if name not in self.withheld}

    def masked(self, text: str) -> str:
        """A text about the data with the names of withheld variables in the place of their values."""
        for name, value in self.variables:
            if name in self.withheld and value:
                text = text.replace(value, f"${{{name}}}")
        return text

    @property
    def command(self) -> str:
        """The file and the options with which a command finds this specification again, for a shell.

        The values of withheld variables are for the user to fill in.
        """
        values = {name: self.recorded.get(name, "…") for name, _ in self.variables}
        given = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
        return " ".join(map(quote, (str(self.path), *given, *self.options)))

    def redirected(self, source: str | None, output: str | os.PathLike[str] | None) -> Spec:
        """The same specification about another source, or with another output folder; paths are as in a shell."""
        found = self
        if source is not None:
            url = "://" in source  # also one that is refused later: it may hold a password
            where, written = (source, without_password(source)) if url else (str(Path(source).absolute()), source)
            found = replace(found, data=structs.replace(found.data, source=where), options=("--source", written))
        if output is not None:
            folder = structs.replace(found.output, folder=Path(output).absolute())
            found = replace(found, output=folder, options=(*found.options, "--output", os.fspath(output)))
        return found

    def only(self, names: Sequence[str]) -> Spec:
        """The same specification with these tables alone, named as [[table]]s or as tables of one.

        Its plan has a folder of its own, so that it does not replace the plan of all tables.
        """
        there = {name: None for table in self.tables for name in (table.group, table.name)}
        for name in names:
            if name not in there:
                hint = did_you_mean(name, there)
                raise StrategyError(f"There is no table {name!r} in {self.path}; there are {', '.join(there)}.{hint}")
        tables = tuple(table for table in self.tables if table.group in names or table.name in names)
        options = (*self.options, *(word for name in names for word in ("--only", name)))
        if len(tables) == len(self.tables):
            return replace(self, options=options)
        named = "+".join(table.name for table in tables)
        part = named if len(named) <= _LONGEST_PART else sha256(named.encode()).hexdigest()[:16]
        plan = structs.replace(self.plan, folder=self.plan.folder.with_name(f"{self.plan.folder.name}.only-{part}"))
        return replace(self, tables=tables, plan=plan, options=options)

    def aiming(self, margins: Mapping[str, float | str]) -> Spec:
        """The same specification with these margins, or parts of expected counts, and no others; StrategyError if one
        is none."""
        check_targets(self.groups, margins)
        tables = tuple(aimed(table, margins.get(table.group)) for table in self.tables)
        return replace(self, tables=tables, plan=structs.replace(self.plan, objective=None))

    def __repr__(self) -> str:
        return f"Spec({str(self.path)!r}, {many(len(self.tables), 'table')} over {self.domain.size:,} cells)"
