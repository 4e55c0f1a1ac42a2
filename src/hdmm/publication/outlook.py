"""Outlook: what a plan promises in the user's words: margins of error, the least budget, and other noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from hdmm.answers.margins import half_width
from hdmm.answers.sum_rows import sum_variances
from hdmm.answers.table import Forecast
from hdmm.base.exceptions import StrategyError
from hdmm.describe.table_query import TableQuery
from hdmm.measure.accuracy import lattice_for, least_at, rounded_up
from hdmm.measure.optimize import optimize
from hdmm.measure.plan import Plan
from hdmm.measure.prepare import Prepared
from hdmm.measure.release import form_in_noise
from hdmm.privacy.gdp import gaussian_epsilon_up
from hdmm.privacy.guarantee import ZCDP, ApproxDP, Privacy, PureDP
from hdmm.publication.forecast import forecasts, ratio_variances, unit_variance
from hdmm.publication.spec import Spec
from hdmm.reconstruct.nonnegative import check_nonnegative
from hdmm.select.goal import largest_variance
from hdmm.strategy.form import Form

DELTA = Fraction(1, 10**9)  # of (ε, δ) where the specification declares none
_QUICK = 0.1  # of the time limit, for a plan with other noise


@final
@dataclass(frozen=True, slots=True)
class TableOutlook:
    """Margins of error of a table at the release's level: of a typical row (root mean square) and of the worst.

    `cells` and `counts` are those of a typical row under noise on every cell, and under noise on each count; None where
    that does not apply. `asked` is the margin that was asked for, `expected` a typical count.

    The margins of means and percentages are `assumed`: they depend on the data, and are those at counts as they are
    expected, with all values equally common. Where none is expected, and for quantiles, they are None. Rows of several
    units have no typical margin. `noise_only` says that some values are known by their bins only, so that the margins
    of their sums and means are of the noise alone.
    """

    name: str
    rows: int
    typical: float | None
    worst: float | None
    cells: float | None
    counts: float | None
    asked: float | None
    expected: float | None
    assumed: bool = False
    noise_only: bool = False

    @property
    def relative(self) -> float | None:
        """The margin of the worst row as a part of a typical count, if rows are counts."""
        if self.expected is None or self.worst is None or self.typical is None or self.assumed:
            return None
        return self.worst / self.expected


@final
@dataclass(frozen=True, slots=True)
class OtherNoise:
    """Another guarantee, and how many times the plan's its margins are, by a plan of a quick search."""

    privacy: Privacy
    times: float


def table_outlooks(spec: Spec, measured: Prepared) -> tuple[TableOutlook, ...]:
    """What each [[table]] will have, as the plan is measured under the specification's privacy."""
    form = measured.form
    z = half_width(1.0, spec.output.level, spec.privacy.noise)
    expected = iter(forecasts(spec, form))
    found: list[TableOutlook] = []
    for name, tables in spec.groups.items():
        each = [next(expected) for _ in tables]
        cells = _typical(z, each, lambda one: one.identity)
        counts = _typical(z, each, lambda one: one.direct)
        found.append(
            TableOutlook(
                name,
                sum(table.rows for table in tables),
                typical=_typical(z, each, lambda one: one.rmse),
                worst=_worst(z, tables, form),
                cells=cells,
                counts=counts,
                asked=tables[0].margin,
                expected=tables[0].expected,
                assumed=not all(table.linear for table in tables),
                noise_only=any(table.binned for table in tables),
            )
        )
    return tuple(found)


def refusal(spec: Spec, measured: Prepared) -> str | None:
    """Why the kind of counts that [output] asks for cannot be made from the plan; None if it can."""
    if spec.output.counts == "unbiased":
        return None
    try:
        check_nonnegative(measured.form, integers=spec.output.counts == "integers")
    except StrategyError as wrong:
        return str(wrong)
    return None


def least_privacy_for(spec: Spec, plan: Plan) -> Privacy | None:
    """The least budget of the specification's kind at which every margin holds; None where none was asked for."""
    asked = [table for table in spec.tables if table.margin is not None]
    if not asked:
        return None
    noise = plan.noise
    lattice = lattice_for(plan.strategy, noise, plan.workload, spec.data.rows_bound)
    z = half_width(1.0, spec.output.level, noise)

    def excess(privacy: Privacy) -> float:
        form = form_in_noise(lattice.strategy, lattice.scales(privacy, spec.unit), noise)
        return max(z * (worst_deviation(table, form) or 0.0) / table.margin for table in asked if table.margin)

    found = least_at(noise, excess)
    if isinstance(spec.privacy, ApproxDP) and isinstance(found, ZCDP):
        epsilon = rounded_up(float(gaussian_epsilon_up(found.rho, spec.privacy.delta)))
        while ApproxDP(epsilon, spec.privacy.delta).rho < found.rho:
            epsilon = rounded_up(float(epsilon) * 1.0001)
        return ApproxDP(epsilon, spec.privacy.delta)
    return found


def share_of(privacy: Privacy, least: Privacy) -> float:
    """How many times the least budget a budget is, in ε or ρ."""
    if isinstance(privacy, ZCDP) and isinstance(least, ZCDP):
        return float(privacy.rho / least.rho)
    if isinstance(privacy, PureDP | ApproxDP) and isinstance(least, PureDP | ApproxDP):
        return float(privacy.epsilon / least.epsilon)
    raise TypeError(f"{privacy} and {least} are not of one kind.")


def comparable(privacy: Privacy) -> Sequence[Privacy]:
    """Guarantees that other noise gives, of which users ask how they compare.

    Pure ε is compared with (ε, 10⁻⁹), and with ρ = ε²/2, which it implies; (ε, δ) with pure ε; ρ with the pure ε of
    which it implies (ε, 10⁻⁹), rounded up.

    >>> comparable(PureDP(1))
    (ApproxDP('1', delta='0.000000001'), ZCDP('0.5'))
    >>> comparable(ZCDP("0.5"))
    (PureDP('6.475'),)
    """
    match privacy:
        case PureDP():
            return ApproxDP(privacy.epsilon, DELTA), ZCDP(privacy.epsilon**2 / 2)
        case ApproxDP():
            return (PureDP(privacy.epsilon),)
        case ZCDP():
            return (PureDP(rounded_up(float(privacy.epsilon_at(DELTA)))),)


def other_noise(spec: Spec, plan: Plan) -> tuple[OtherNoise, ...]:
    """What the other noise gives, by a plan found in a tenth of the time limit, or a second."""
    others = comparable(spec.privacy)
    quick = optimize(
        spec.goal,
        known=spec.known,
        noise=others[0].noise,
        restarts=1,
        seed=spec.plan.seed,
        time_limit=max(1.0, _QUICK * spec.plan.time_limit),
        progress=False,
    )

    def margin(privacy: Privacy, found: Plan) -> float:
        variance = unit_variance(spec, privacy) * found.value
        return half_width(math.sqrt(variance), spec.output.level, privacy.noise)

    here = margin(spec.privacy, plan)
    return tuple(OtherNoise(each, margin(each, quick) / here) for each in others if here > 0)


def _typical(z: float, each: Sequence[Forecast], error: Callable[[Forecast], float | None]) -> float | None:
    """The margin of a typical row of several tables; None where a method does not apply to one of them."""
    squares = [None if (e := error(one)) is None else one.rows * e**2 for one in each]
    if any(square is None for square in squares):
        return None
    rows = sum(one.rows for one in each)
    return z * math.sqrt(math.fsum(square for square in squares if square is not None) / max(rows, 1))


def _worst(z: float, tables: Sequence[TableQuery], form: Form) -> float | None:
    """The margin of the worst row of several tables; None where it depends on the data."""
    found = [worst_deviation(table, form) for table in tables]
    return None if None in found else z * max(each for each in found if each is not None)


def worst_deviation(table: TableQuery, form: Form) -> float | None:
    """The largest standard deviation of a row; None if it depends on the data, and nothing is expected of these."""
    if not table.linear:
        variances = ratio_variances(table, form)
        return None if variances is None else math.sqrt(float(variances.max(initial=0.0)))
    if table.combine is None:
        return math.sqrt(largest_variance(table.workload, form))
    return math.sqrt(float(sum_variances(table.workload, form, table.combine).max(initial=0.0)))
