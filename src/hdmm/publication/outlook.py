"""Outlook: what a plan promises in the user's words: margins of error, the least budget, and other noise.

Also what earlier releases of the same data have already, alone and beside a new plan. Reads no data, spends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from hdmm.answers.first_order import error_rows, worst_deviation, worst_part
from hdmm.answers.margins import half_width
from hdmm.answers.table import Forecast
from hdmm.base.exceptions import StrategyError
from hdmm.describe.table_query import TableQuery
from hdmm.measure.accuracy import least_privacy, rounded_up
from hdmm.measure.combine import check_alike, check_same_rows, check_unit, combine
from hdmm.measure.measurement import form_in_noise
from hdmm.measure.optimize import optimize
from hdmm.measure.plan import Plan
from hdmm.measure.prepare import Prepared
from hdmm.measure.release import Release
from hdmm.privacy.gdp import gaussian_epsilon_up
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, Privacy, PureDP
from hdmm.publication.forecast import as_measured, forecasts, unit_variance
from hdmm.publication.protection import DELTA, as_protective, best_guess, epsilon_at_delta
from hdmm.publication.separately import Separate, separately
from hdmm.publication.spec import Spec
from hdmm.publication.spec.origin import rows_of
from hdmm.reconstruct.nonnegative import check_nonnegative
from hdmm.strategy.form import Form
from hdmm.strategy.lattice import Lattice
from hdmm.strategy.strategy import Strategy

_QUICK = 0.1  # of the time limit, for a plan with other noise


@final
@dataclass(frozen=True, slots=True)
class TableOutlook:
    """Margins of error of a [[table]] at the release's level: of a typical row (root mean square) and of the worst.

    The last four are those of a typical row with simpler mechanisms; None where one does not apply. If each table is
    measured alone, the budget is divided among them as serves the goal best, or evenly. `asked` is the
    margin that was asked for, `expected` a typical count, and `relative` the worst margin as a part of that, if rows
    are counts.

    The margins of means and percentages are `assumed`: they depend on the data, and are those at counts as they are
    expected, with all values equally common. Where none is expected, and for quantiles, they are None. Rows of several
    units have no typical margin. `noise_only` says that some values are known by their bins only, so that the margins
    of their sums and means are of the noise alone.
    """

    table: str
    rows: int
    typical: float | None
    worst: float | None
    asked: float | None
    expected: float | None
    relative: float | None
    assumed: bool
    noise_only: bool
    noise_on_every_cell: float | None
    noise_on_each_count: float | None
    each_table_alone: float | None
    each_table_alone_evenly: float | None


@final
@dataclass(frozen=True, slots=True)
class LeastBudget:
    """The least budget of the specification's kind at which every margin holds that was asked for."""

    privacy: Privacy
    reached: bool  # by the declared budget
    declared_times_least: float  # in ε or ρ


@final
@dataclass(frozen=True, slots=True)
class OtherNoise:
    """Another guarantee, and how many times the plan's its margins are, by a plan of a quick search.

    `epsilon` is its ε at δ = 10⁻⁹ (without δ, if it is pure). `guess` is how often a guess is right at most; `equal`
    says that this is as often as under the specification's.
    """

    privacy: Privacy
    times: float
    epsilon: float
    guess: float
    equal: bool


@final
@dataclass(frozen=True, slots=True)
class Outlook:
    """What a plan promises for a specification. `refused` is the reason why its release would be refused, if any."""

    forecasts: tuple[Forecast, ...]
    tables: tuple[TableOutlook, ...]
    least: LeastBudget | None  # None if no margin was asked for, or none of what is noisy
    remark: str | None  # about what planning gains over each table by itself, if that is nothing
    refused: str | None


def outlook(spec: Spec, plan: Plan) -> Outlook:
    """What a plan that was made for the specification promises, measured under the specification's privacy."""
    measured = as_measured(spec, plan)
    expected = forecasts(spec, measured.form)
    alone = separately(spec, expected)
    return Outlook(
        expected,
        _by_table(spec, measured.form, expected, alone),
        _least(spec, measured),
        None if alone is None else alone.remark,
        _refusal(spec, measured.form),
    )


def table_outlooks(spec: Spec, form: Form) -> tuple[TableOutlook, ...]:
    """What each [[table]] will have, given the form of measurements with their noise."""
    expected = forecasts(spec, form)
    return _by_table(spec, form, expected, separately(spec, expected))


def _by_table(spec: Spec, form: Form, expected: Sequence[Forecast], alone: Separate | None) -> tuple[TableOutlook, ...]:
    z, forecast = half_width(1.0, spec.output.level, spec.privacy.noise), iter(expected)
    blank = (None,) * len(expected)
    errors = zip(*((blank, blank) if alone is None else (alone.best, alone.evenly)), strict=True)
    found: list[TableOutlook] = []
    for name, tables in spec.groups.items():
        each = [next(forecast) for _ in tables]
        best, evenly = zip(*(next(errors) for _ in tables), strict=True)
        first, assumed = tables[0], not all(table.linear for table in tables)
        deviations = [worst_deviation(table, form) for table in tables]
        typical = _typical(z, each, lambda one: one.rmse)
        worst = None if None in deviations else z * max(each for each in deviations if each is not None)
        is_count = typical is not None and not assumed and worst is not None and first.expected is not None
        found.append(
            TableOutlook(
                name,
                sum(table.rows for table in tables),
                typical=typical,
                worst=worst,
                asked=first.margin,
                expected=first.expected,
                relative=max(z * _largest_part(table, form) for table in tables) if is_count else None,
                assumed=assumed,
                noise_only=any(table.binned for table in tables),
                noise_on_every_cell=_typical(z, each, lambda one: one.identity),
                noise_on_each_count=_typical(z, each, lambda one: one.direct),
                each_table_alone=_typical_of(z, each, best),
                each_table_alone_evenly=_typical_of(z, each, evenly),
            )
        )
    return tuple(found)


def _refusal(spec: Spec, form: Form) -> str | None:
    """The reason why the plan cannot give the kind of counts that [output] asks for; None if it can."""
    try:
        if spec.output.counts != "unbiased":
            check_nonnegative(form, integers=spec.output.counts == "integers")
    except StrategyError as wrong:
        return str(wrong)
    return None


def _least(spec: Spec, measured: Prepared) -> LeastBudget | None:
    asked = [table for table in spec.tables if table.margin is not None and worst_deviation(table, measured.form) != 0]
    if not asked:  # what follows from known counts reaches its margin at any budget
        return None
    lattice, level = Lattice(measured.strategy), spec.output.level
    found = least_privacy(spec.goal, lattice, spec.privacy.noise, None, level=level, unit=spec.unit)
    match spec.privacy, found:
        case ApproxDP(delta=delta), ZCDP(rho=rho):
            epsilon = rounded_up(float(gaussian_epsilon_up(rho, delta)))
            while ApproxDP(epsilon, delta).rho < rho:
                epsilon = rounded_up(float(epsilon) * 1.0001)
            least, share = ApproxDP(epsilon, delta), float(spec.privacy.epsilon / epsilon)
        case GaussianDP(mu=declared), ZCDP(rho=rho):
            mu = rounded_up(math.sqrt(2 * rho))
            while mu**2 < 2 * rho:
                mu = rounded_up(float(mu) * 1.0001)
            least, share = GaussianDP(mu), float(declared / mu)
        case (ZCDP(rho=declared), ZCDP(rho=amount)) | (PureDP(epsilon=declared), PureDP(epsilon=amount)):
            least, share = found, float(declared / amount)
        case _:
            raise TypeError(f"{spec.privacy} and {found} are not of one kind.")
    return LeastBudget(least, share >= 1, share)


def comparable(privacy: Privacy) -> Sequence[Privacy]:
    """Other guarantees, for comparison; the last one protects equally.

    Pure ε is compared with (ε, 10⁻⁹), and with ρ = ε²/2, which it implies; (ε, δ) with pure ε; ρ and μ with the pure ε
    where their noise has (ε, 10⁻⁹). Under the last one, whoever guesses at even odds whether rows are there is right
    as often as under the given one (protection.py). All are rounded up to four digits.

    >>> comparable(PureDP(1))
    (ApproxDP('1', delta='0.000000001'), ZCDP('0.5'), GaussianDP('1.233'))
    >>> comparable(ZCDP("0.5"))
    (PureDP('6.174'), PureDP('0.807'))
    """
    equal = rounded_up(as_protective(privacy))
    match privacy:
        case PureDP():
            return ApproxDP(privacy.epsilon, DELTA), ZCDP(privacy.epsilon**2 / 2), GaussianDP(equal)
        case ApproxDP():
            return PureDP(privacy.epsilon), PureDP(equal)
        case ZCDP() | GaussianDP():
            epsilon = float(gaussian_epsilon_up(privacy.rho, DELTA))
            return *((PureDP(rounded_up(epsilon)),) if epsilon else ()), PureDP(equal)


def other_noise(spec: Spec, plan: Plan) -> tuple[OtherNoise, ...]:
    """The other guarantee, with margins by a plan found in a tenth of the time limit, or in a second."""
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
    if not here > 0:
        return ()
    return tuple(
        OtherNoise(each, margin(each, quick) / here, epsilon_at_delta(each), best_guess(each), equal=each is others[-1])
        for each in others
    )


def _typical(z: float, each: Sequence[Forecast], error: Callable[[Forecast], float | None]) -> float | None:
    """The margin of a typical row of several tables; None where a method does not apply to one of them."""
    return _typical_of(z, each, [error(one) for one in each])


def _typical_of(z: float, each: Sequence[Forecast], errors: Sequence[float | None]) -> float | None:
    squares = [one.rows * error**2 for one, error in zip(each, errors, strict=True) if error is not None]
    if len(squares) < len(each):
        return None
    return z * math.sqrt(math.fsum(squares) / max(sum(one.rows for one in each), 1))


def _largest_part(table: TableQuery, form: Form) -> float:
    """The largest standard deviation of a row as a part of its expected count; 0 if none is expected."""
    rows = error_rows(table)
    return 0.0 if rows is None or rows.expected is None else worst_part(rows, form, rows.expected)


@final
@dataclass(frozen=True, slots=True)
class EarlierMargin:
    """The margin of a table's worst row by earlier releases alone, and together with what is planned.

    None if there is none, or if it cannot be known. `enough` says that nothing more needs to be bought.
    """

    table: str
    already: float | None
    asked: float | None
    enough: bool
    together: float | None


def combined_for(spec: Spec, releases: Sequence[Release], *, same_rows: bool = False) -> Release:
    """The earlier releases as one; StrategyError if they are not of the specification's rows, domain, unit and noise.

    `same_rows=True` states that the rows are the same though nothing shows it.
    """
    both = combine(releases, same_rows=same_rows)
    if both.domain != spec.domain:
        raise StrategyError(f"The earlier releases are over another domain than {spec.path}. Declare the same one.")
    check_alike(releases, spec.privacy, spec.data.dataset)
    check_unit(both.unit, spec.unit)
    if not same_rows:
        check_same_rows([rows_of(spec), *(part.rows for part in both.parts)])
    return both.informed(spec.known) if spec.known else both


def earlier_margins(spec: Spec, release: Release) -> tuple[EarlierMargin, ...]:
    """What each table has without anything new."""
    found: list[EarlierMargin] = []
    for table in spec.tables:
        margin, asked = _margin(spec, table, release.form), table.margin
        enough = margin is not None and asked is not None and margin <= asked
        found.append(EarlierMargin(table.name, margin, asked, enough, margin))
    return tuple(found)


def lacking(spec: Spec, found: Sequence[EarlierMargin]) -> Spec | None:
    """The specification with only those tables that are not accurate enough already; None if there are none."""
    tables = tuple(table for table, each in zip(spec.tables, found, strict=True) if not each.enough)
    return replace(spec, tables=tables) if tables else None


def together(
    spec: Spec, release: Release, found: Sequence[EarlierMargin], measured: Prepared
) -> tuple[EarlierMargin, ...]:
    """The same margins, with what the planned measurements add."""
    strategy = Strategy(spec.domain, (*release.strategy.blocks, *measured.strategy.blocks))
    strategy = replace(strategy, known=measured.strategy.known)
    form = form_in_noise(strategy, (*release.scales, *measured.scales), spec.privacy.noise)
    margins = [_margin(spec, table, form) for table in spec.tables]
    return tuple(replace(each, together=margin) for each, margin in zip(found, margins, strict=True))


def _margin(spec: Spec, table: TableQuery, form: Form) -> float | None:
    try:
        deviation = worst_deviation(table, form)
    except StrategyError:  # no answer, or no formula for its margin
        return None
    return None if deviation is None else half_width(deviation, spec.output.level, spec.privacy.noise)
