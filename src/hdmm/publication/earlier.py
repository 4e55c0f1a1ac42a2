"""What earlier releases of the same data say about the tables of a specification, alone and beside a new plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from hdmm.answers.margins import half_width
from hdmm.base.exceptions import StrategyError
from hdmm.describe.table_query import TableQuery
from hdmm.measure.combine import check_alike, check_same_rows, check_unit, combine
from hdmm.measure.prepare import Prepared
from hdmm.measure.release import Release, form_in_noise
from hdmm.publication.outlook import worst_deviation
from hdmm.publication.spec import Spec
from hdmm.publication.spec.origin import rows_of
from hdmm.strategy.form import Form
from hdmm.strategy.strategy import Strategy


@final
@dataclass(frozen=True, slots=True)
class Already:
    """The margin of the worst row of a table by earlier releases alone; None if they have none, or cannot know it."""

    name: str
    margin: float | None
    asked: float | None

    @property
    def enough(self) -> bool:
        """Whether the margin that was asked for is reached, so that nothing more needs to be bought."""
        return self.margin is not None and self.asked is not None and self.margin <= self.asked


def combined_for(spec: Spec, releases: Sequence[Release], *, same_rows: bool = False) -> Release:
    """The earlier releases as one; StrategyError if they are not of the specification's rows, domain, unit and noise.

    `same_rows=True` states that the rows are the same though nothing shows it.
    """
    both = combine(releases, same_rows=same_rows)
    if both.domain != spec.domain:
        raise StrategyError(f"The earlier releases are over another domain than {spec.path}. Declare the same one.")
    check_alike(releases, spec.privacy, spec.data.dataset)
    named = all(part.rows is not None for part in both.parts)
    check_unit(both.unit, spec.unit if named else replace(spec.unit, id=None))
    if not same_rows:
        check_same_rows([rows_of(spec), *(part.rows for part in both.parts)])
    return both.informed(spec.known) if spec.known else both


def already(spec: Spec, release: Release) -> tuple[Already, ...]:
    """What each table has without anything new."""
    return tuple(Already(t.name, _margin(spec, t, release.form), t.margin) for t in spec.tables)


def lacking(spec: Spec, found: Sequence[Already]) -> Spec | None:
    """The specification with only those tables that are not said well enough already; None if there are none."""
    enough = {each.name for each in found if each.enough}
    tables = tuple(table for table in spec.tables if table.name not in enough)
    return replace(spec, tables=tables) if tables else None


def together(spec: Spec, release: Release, measured: Prepared) -> dict[str, float | None]:
    """The margin of the worst row of each table from the earlier releases and the planned one together."""
    strategy = Strategy(spec.domain, (*release.strategy.blocks, *measured.strategy.blocks))
    strategy = replace(strategy, known=measured.strategy.known)
    form = form_in_noise(strategy, (*release.scales, *measured.scales), spec.privacy.noise)
    return {table.name: _margin(spec, table, form) for table in spec.tables}


def _margin(spec: Spec, table: TableQuery, form: Form) -> float | None:
    try:
        deviation = worst_deviation(table, form)
    except StrategyError:  # no answer, or no formula for its margin
        return None
    return None if deviation is None else half_width(deviation, spec.output.level, spec.privacy.noise)
