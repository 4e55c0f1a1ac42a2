"""The command that plans: margins of error before anything is spent, the least budget, and what other noise gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click

from hdmm.apps.cli.earlier_option import plan_with
from hdmm.apps.cli.facts import forecast_facts, spec_facts
from hdmm.apps.cli.options import FILE, Given, by_name, common, specified
from hdmm.apps.cli.output import INTERRUPTED, Output, number
from hdmm.base.hints import decimal_point
from hdmm.engines import gpu
from hdmm.io.strict_json import Json
from hdmm.privacy.guarantee import ZCDP, ApproxDP, Privacy, PureDP
from hdmm.publication.forecast import TIMES, as_measured, error_factor, forecasts, scaled
from hdmm.publication.metadata import privacy_facts
from hdmm.publication.outlook import (
    DELTA,
    OtherNoise,
    TableOutlook,
    least_privacy_for,
    other_noise,
    refusal,
    share_of,
    table_outlooks,
)
from hdmm.publication.planning import Planned, make_plan
from hdmm.publication.spec import Spec

_MOST_NAMED = 8  # tables in one line


def _targets(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, float]:
    """The margins of --target NAME=MARGIN, by table; which tables there are is checked later."""
    found = by_name((text.rpartition("=") for text in given), ("table", "target"), "P12=50")
    return {name: _margin(name, margin) for name, margin in found.items()}


def _margin(name: str, margin: str) -> float:
    try:
        value = float(margin)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        advice = decimal_point(margin) or " Give a number above 0, as in P12=50."
        raise click.BadParameter(f"{name}={margin}: {margin!r} is no margin of error.{advice}")
    return value


@click.command()
@click.argument("spec", type=FILE)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TABLE=MARGIN",
    callback=_targets,
    help="Plan for this margin of error instead of those in the file. May be repeated; nothing is saved.",
)
@click.option(
    "--with",
    "earlier",
    multiple=True,
    type=FILE,
    help="Plan only what the release in this folder does not say well enough. May be repeated; nothing is saved.",
)
@click.option(
    "--same-rows", is_flag=True, help="With --with: state that the releases are of the rows that the file names."
)
@click.option("--engine", "engine_name", type=click.Choice(["gpu"]), help="Search on the GPU of this machine.")
@click.option("--force", is_flag=True, help="Replace the saved plan even if it is better.")
@click.option("--verbose", is_flag=True, help="Also show what is measured, what was tried, and bounds.")
@specified
@common
def plan(
    spec: Path,
    targets: dict[str, float],
    earlier: tuple[Path, ...],
    same_rows: bool,
    engine_name: str | None,
    force: bool,
    verbose: bool,
    given: Given,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find a strategy, save it, and show the margin of error of every table. Reads no data, spends nothing.

    Ctrl-C ends the search, and the best plan so far is kept; the exit code is then 130.
    """
    out = Output(as_json, quiet)
    engine = None if engine_name is None else gpu()
    if same_rows and not earlier:
        raise click.UsageError("--same-rows is about earlier releases. Name them with --with, or leave it out.")
    found = given.load_without_data(spec)
    if targets:
        found = found.aiming(targets)
    if earlier:
        if plan_with(found, earlier, out, engine, same_rows=same_rows):
            raise click.exceptions.Exit(INTERRUPTED)
        return
    made = make_plan(found, force=force, trial=bool(targets), progress=None if out.speaks else False, engine=engine)
    if not quiet:
        _tell(found, made, out, verbose=verbose)
    if made.interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _tell(spec: Spec, made: Planned, out: Output, *, verbose: bool) -> None:
    chosen, measured = made.plan, as_measured(spec, made.plan)
    tables = table_outlooks(spec, measured)
    least = least_privacy_for(spec, chosen)
    _say_margins(spec, tables, out)
    out.say(*_ratio_lines(tables))
    budgets = _say_budgets(spec, tables, out)
    reached = least is None or share_of(spec.privacy, least) >= 1
    out.say(*_least_lines(spec, tables, least), style="" if reached else "yellow")
    others = () if made.interrupted else other_noise(spec, chosen)
    if others:
        _say_others(spec, others, out)
    if chosen.gap is not None:
        out.say(f"No plan with this noise can have margins more than {1 - (1 + chosen.gap) ** -0.5:.1%} smaller.")
    out.say(*(chosen.explain(advice=False).splitlines() if verbose else []), *spec.advice)
    if why := refusal(spec, measured):
        out.say(f"A release with this plan would be refused. {why}", style="red")
    out.say(*_outcome(spec, made))
    told: dict[str, Json] = {
        **spec_facts(spec),
        "operator": chosen.operator,
        "plan": None if made.outcome == "trial" else str(spec.plan.folder),
        "outcome": made.outcome,
        "stopped": chosen.stopped,
        "objective": "margins" if chosen.goal.targets else chosen.goal.objective.value,
        "level": spec.output.level,
        "errors": forecast_facts(forecasts(spec, measured.form)),
        "margins": [table_facts(each) for each in tables],
        "least": None if least is None else _least_facts(spec, least),
        "other_noise": [{"privacy": privacy_facts(each.privacy), "times": each.times} for each in others],
        "gap": chosen.gap,
        "budgets": budgets,
        "refused": why,
        "advice": list[Json](spec.advice),
    }
    out.result(told)


def _say_margins(spec: Spec, tables: Sequence[TableOutlook], out: Output) -> None:
    """A row per table; columns for what was asked and for relative margins only where somebody asked."""
    asked, relative = any(t.asked for t in tables), any(t.expected for t in tables)
    rows = [
        [
            t.name,
            f"{t.rows:,}",
            number(t.typical),
            number(t.worst),
            *([number(t.asked)] if asked else []),
            *(["–" if t.relative is None else f"{t.relative:.2%}"] if relative else []),
            number(t.cells),
            number(t.counts),
        ]
        for t in tables
    ]
    columns = ["table", "rows", "typical", "worst", *["asked"] * asked, *["relative"] * relative]
    out.table(
        f"Margins of error (±) at {100 * spec.output.level:g} %, at {_short(spec.privacy)};\n"
        "the last two columns are simpler mechanisms",
        [*columns, "noise on\nevery cell", "noise on\neach count"],
        rows,
    )


def _ratio_lines(tables: Sequence[TableOutlook]) -> list[str]:
    """What the margins of means, percentages and quantiles are of, or why there are none."""
    assumed = [t.name for t in tables if t.assumed and t.worst is not None]
    left_out = [t.name for t in tables if t.worst is None]
    binned = [t.name for t in tables if t.noise_only]
    lines: list[str] = []
    if binned:
        lines.append(
            f"{_named(binned)}: of some values only the bin is known, so that the margins of their sums and means are "
            "of the noise alone. The release also has intervals that cover noise and bins."
        )
    if assumed:
        lines.append(
            f"{_named(assumed)}: the margins of means and percentages depend on the data. These are at counts as "
            "`expected` says, with all values equally common."
        )
    if left_out:
        lines.append(
            f"{_named(left_out)}: the margins of means, percentages and quantiles depend on the data. For those of a "
            "table of one mean or percentage, give it `expected`, a typical count."
        )
    return lines


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + " …" * (len(names) > _MOST_NAMED)


def _say_budgets(spec: Spec, tables: Sequence[TableOutlook], out: Output) -> list[Json]:
    others = [scaled(spec.privacy, times) for times in TIMES]
    factors = [error_factor(spec.privacy, other) for other in others]
    names = [_short(other) for other in others]
    out.table(
        "Margins of error of the worst row, for other budgets",
        ["table", *(name.replace(", ", ",\n") for name in names)],
        [[t.name, *(number(None if t.worst is None else t.worst * factor) for factor in factors)] for t in tables],
    )
    return [{"privacy": name, "error_factor": factor} for name, factor in zip(names, factors, strict=True)]


def _least_lines(spec: Spec, tables: Sequence[TableOutlook], least: Privacy | None) -> list[str]:
    """From which budget on all margins hold, and how the declared one compares; what to do where none was asked for."""
    if least is None:
        return ["To plan for margins of error: margin = 50 in a [[table]], or --target TABLE=50."]
    share = share_of(spec.privacy, least)
    lines = [f"{_short(least)} is the smallest budget that meets every margin."]
    if any(t.asked is None for t in tables):
        lines.append("A table without a margin is only held to ten times the largest margin.")
    if share >= 1:
        return [*lines, f"The declared {_short(spec.privacy)} reaches them: it is {share:.3g} times that."]
    missed = [f"{t.name} ± {number(t.worst)}" for t in tables if t.asked and t.worst and t.worst > t.asked]
    return [
        *lines,
        f"The declared {_short(spec.privacy)} does not reach them: it is {share:.1%} of that.",
        f"Too wide: {_named(missed)}.",
    ]


def _say_others(spec: Spec, others: Sequence[OtherNoise], out: Output) -> None:
    out.table(
        "Other guarantees",
        ["guarantee", "noise", "margins of error"],
        [
            [_short(spec.privacy), spec.privacy.noise.value, "as above"],
            *([_short(o.privacy), o.privacy.noise.value, f"{o.times:.3g} times these"] for o in others),
        ],
        texts=2,
    )
    quick = "Estimated from a quick search; a full search may do better."
    match spec.privacy:
        case PureDP():
            out.say(quick, "(ε, δ) fails with a probability of at most δ; ρ = ε²/2 is what pure ε implies.")
        case ApproxDP():
            out.say(quick, "Pure ε has no δ, and promises more.")
        case ZCDP():
            out.say(quick, f"This ρ implies that ε at δ = {float(DELTA):g}; pure ε promises more.")


def _outcome(spec: Spec, made: Planned) -> list[str]:
    folder = spec.plan.folder
    lines = ["Interrupted: this is the best plan so far."] if made.interrupted else []
    match made.outcome:
        case "trial":
            lines.append("The plan was not saved. To release with it, write these margins into the file.")
        case "kept":
            lines.append(f"The plan in {folder} is as good or better, and was kept; --force replaces it.")
        case "saved":
            lines.append(f"The plan is in {folder}.")
    return [*lines, "Nothing was spent."]


def table_facts(table: TableOutlook) -> Json:
    return {
        "table": table.name,
        "rows": table.rows,
        "typical": table.typical,
        "worst": table.worst,
        "asked": table.asked,
        "expected": table.expected,
        "relative": table.relative,
        "assumed": table.assumed,
        "noise_only": table.noise_only,
        "noise_on_every_cell": table.cells,
        "noise_on_each_count": table.counts,
    }


def _least_facts(spec: Spec, least: Privacy) -> Json:
    share = share_of(spec.privacy, least)
    return {"privacy": privacy_facts(least), "reached": share >= 1, "declared_times_least": share}


def _short(privacy: Privacy) -> str:
    """The parameters of a guarantee."""
    return str(privacy).split(" (")[0]
