"""The command that plans: margins of error before anything is spent, the least budget, and other guarantees."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import click

from hdmm.apps.cli.options import FILE, SpecOverrides, by_name, common, specified
from hdmm.apps.cli.output import INTERRUPTED, Output, number
from hdmm.apps.facts import forecast_facts, spec_facts
from hdmm.base.hints import decimal_point, first_of
from hdmm.base.numbers import percent, up
from hdmm.engines import Device, gpu
from hdmm.measure.synthesis import expected_distances
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, Privacy, PureDP, error_factor, scaled, short_name
from hdmm.publication.forecast import as_measured
from hdmm.publication.metadata import protection_facts
from hdmm.publication.outlook import (
    LeastBudget,
    OtherNoise,
    TableOutlook,
    combined_for,
    earlier_margins,
    lacking,
    other_noise,
    outlook,
    together,
)
from hdmm.publication.planning import Planned, make_plan
from hdmm.publication.protection import (
    Protection,
    best_guess,
    epsilon_at_delta,
    in_epsilon,
    shown_guess,
    shown_up,
    stated,
)
from hdmm.publication.published import open_published
from hdmm.publication.spec import Spec

_TIMES = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))  # other budgets


def _targets(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, float | str]:
    """The margins of --target NAME=MARGIN, by table; which tables there are is checked later."""
    found = by_name((text.rpartition("=") for text in given), ("table", "target"), "P12=50")
    return {name: _margin(name, margin) for name, margin in found.items()}


def _margin(name: str, margin: str) -> float | str:
    if margin.rstrip().endswith("%"):
        return margin  # of the expected count, which the specification has
    try:
        value = float(margin)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        advice = decimal_point(margin) or " Give a number above 0, as in P12=50."
        raise click.BadParameter(f"{name}={margin}: {margin!r} is not a margin of error.{advice}")
    return value


@click.command()
@click.argument("spec", type=FILE)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TABLE=MARGIN",
    callback=_targets,
    help="Plan for this margin of error, or 2% of what is expected, instead of those in the file. May be repeated; "
    "nothing is saved.",
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
@click.option(
    "--rows", type=click.IntRange(min=1), help="Also simulate how near hdmm rows will come to data of so many rows."
)
@click.option("--engine", "engine_name", type=click.Choice(["gpu"]), help="Search on the GPU of this machine.")
@click.option("--force", is_flag=True, help="Replace the saved plan even if it is better.")
@click.option("--verbose", is_flag=True, help="Also show what is measured, what was tried, and bounds.")
@specified
@common
def plan(
    spec: Path,
    targets: dict[str, float | str],
    earlier: tuple[Path, ...],
    same_rows: bool,
    rows: int | None,
    engine_name: str | None,
    force: bool,
    verbose: bool,
    given: SpecOverrides,
    out: Output,
) -> None:
    """Find a strategy, save it, and show the margin of error of every table. Reads no data, spends nothing.

    Ctrl-C ends the search, and the best plan so far is kept; the exit code is then 130.
    """
    engine = None if engine_name is None else gpu()
    if rows is not None and earlier:
        raise click.UsageError("--rows is about one release. Leave it out, or --with.")
    if same_rows and not earlier:
        raise click.UsageError("--same-rows is about earlier releases. Name them with --with, or leave it out.")
    found = given.load_without_data(spec)
    if targets:
        found = found.aiming(targets)
    if earlier:
        interrupted = _plan_with(found, earlier, out, engine, same_rows=same_rows)
    else:
        made = make_plan(found, force=force, trial=bool(targets), progress=None if out.speaks else False, engine=engine)
        interrupted = made.interrupted
        if not out.quiet:
            _show(found, made, out, rows, verbose=verbose)
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _show(spec: Spec, made: Planned, out: Output, rows: int | None, *, verbose: bool) -> None:
    chosen, found = made.plan, outlook(spec, made.plan)
    tables, least = found.tables, found.least
    _say_margins(spec, tables, out)
    out.say(*([] if found.remark is None else textwrap.wrap(found.remark, 80)))
    out.say(*_ratio_lines(tables))
    budgets = _say_budgets(spec, tables, out)
    out.say(*_least_lines(spec, tables, least), style="" if least is None or least.reached else "yellow")
    others = () if made.interrupted else other_noise(spec, chosen)
    if others:
        _say_others(spec, others, out)
    if chosen.gap is not None:
        smaller = up(100 * (1 - (1 + chosen.gap) ** -0.5), 1)
        out.say(f"No plan with this noise can have margins more than {smaller} % smaller.")
    out.say(*(chosen.explain(advice=False).splitlines() if verbose else []), *spec.advice)
    if found.refused:
        out.say(f"A release with this plan would be refused. {found.refused}", style="red")
    near = None if rows is None else expected_distances(as_measured(spec, chosen).form, chosen.workload, rows)
    if near is not None:
        least, most = (up(100 * share, 2) for share in sorted(near))
        out.say(
            f"Of {rows:,} rows made by hdmm rows, {least} to {most} % would have to change for a table to be",
            "that of the data, depending on how closely columns are related (means, simulated on made-up people).",
        )
    out.say(*_outcome(spec, made))
    out.result(
        {
            **spec_facts(spec),
            **({} if near is None else {"rows": {"count": rows, "independent": near[0], "dependent": near[1]}}),
            "operator": chosen.operator,
            "plan": None if made.outcome == "trial" else spec.plan.folder,
            "outcome": made.outcome,
            "stopped": chosen.stopped,
            "protection": protection_facts(Protection.of(spec.privacy, gaussian=True)),
            "objective": "margins" if chosen.goal.targets else chosen.goal.objective.value,
            "level": spec.output.level,
            "errors": forecast_facts(found.forecasts),
            "margins": tables,
            "remark": found.remark,
            "least": least,
            "other_noise": others,
            "gap": chosen.gap,
            "budgets": budgets,
            "refused": found.refused,
            "advice": spec.advice,
        }
    )


def _say_margins(spec: Spec, tables: Sequence[TableOutlook], out: Output) -> None:
    """A row per table; columns for what was asked and for relative margins only where somebody asked."""
    asked, relative = any(t.asked for t in tables), any(t.relative is not None for t in tables)
    rows = [
        [
            t.table,
            f"{t.rows:,}",
            number(t.typical),
            number(t.worst),
            *([number(t.asked)] if asked else []),
            *(["–" if t.relative is None else percent(t.relative)] if relative else []),
            number(t.noise_on_every_cell),
            number(t.noise_on_each_count),
            number(t.each_table_alone),
        ]
        for t in tables
    ]
    columns = ["table", "rows", "typical", "worst", *["asked"] * asked, *["relative"] * relative]
    out.table(
        f"Margins of error (±) at {100 * spec.output.level:g} %, at {stated(spec.privacy)};\n"
        "the last three columns are simpler mechanisms",
        [*columns, "noise on\nevery cell", "noise on\neach count", "each table\nby itself"],
        rows,
    )


def _ratio_lines(tables: Sequence[TableOutlook]) -> list[str]:
    """The group sizes at which margins of means, percentages and quantiles are stated, or why there are none."""
    assumed = [t.table for t in tables if t.assumed and t.worst is not None]
    left_out = [t.table for t in tables if t.worst is None]
    binned = [t.table for t in tables if t.noise_only]
    lines: list[str] = []
    if binned:
        lines.append(
            f"{first_of(binned)}: of some values only the bin is known, so that the margins of their sums and means "
            "are of the noise alone. The release also has intervals that cover noise and bins."
        )
    if assumed:
        lines.append(
            f"{first_of(assumed)}: the margins of means and percentages depend on the data. These are at counts as "
            "`expected` says, with all values equally common."
        )
    if left_out:
        lines.append(
            f"{first_of(left_out)}: the margins of means, percentages and quantiles depend on the data. For those of a "
            "table of one of them, give it `expected`, a typical count."
        )
    return lines


def _say_budgets(spec: Spec, tables: Sequence[TableOutlook], out: Output) -> list[dict[str, object]]:
    others = [scaled(spec.privacy, times) for times in _TIMES]
    factors = [error_factor(spec.privacy, other) for other in others]
    names, epsilons = [short_name(other) for other in others], [epsilon_at_delta(other) for other in others]
    heads = [name.replace(", ", ",\n") for name in names]
    title = "Margins of error of the worst row, for other budgets"
    if in_epsilon(spec.privacy):
        title = f"{title} (ε at δ = 10⁻⁹)"
        heads = [f"{name}\nε = {shown_up(each)}" for name, each in zip(heads, epsilons, strict=True)]
    out.table(
        title,
        ["table", *heads],
        [[t.table, *(number(None if t.worst is None else t.worst * factor) for factor in factors)] for t in tables],
    )
    return [
        {"privacy": name, "error_factor": factor, "epsilon": epsilon}
        for name, factor, epsilon in zip(names, factors, epsilons, strict=True)
    ]


def _least_lines(spec: Spec, tables: Sequence[TableOutlook], least: LeastBudget | None) -> list[str]:
    """The smallest budget that meets all margins, beside the declared one; advice if no margin was asked for."""
    if least is None and any(t.asked is not None for t in tables):
        return ["Every margin that was asked for is of known counts, and holds at any budget."]
    if least is None:
        return ["To plan for margins of error: margin = 50 in a [[table]], or --target TABLE=50."]
    declared, share = short_name(spec.privacy), least.declared_times_least
    lines = [f"{short_name(least.privacy)} is the smallest budget that meets every margin."]
    if meaning := in_epsilon(least.privacy):
        lines.append(f"It has {meaning}.")
    if any(t.asked is None for t in tables):
        lines.append("A table without a margin is only held to ten times the largest margin.")
    if least.reached:
        return [*lines, f"The declared {declared} reaches them: it is {share:.3g} times that."]
    missed = [f"{t.table} ± {number(t.worst)}" for t in tables if t.asked and t.worst and t.worst > t.asked]
    return [
        *lines,
        f"The declared {declared} does not reach them: it is {percent(share)} of that.",
        f"Too wide: {first_of(missed)}.",
    ]


def _say_others(spec: Spec, others: Sequence[OtherNoise], out: Output) -> None:
    here = spec.privacy
    compared = [(here, "as above", epsilon_at_delta(here), best_guess(here))]
    compared += [(o.privacy, f"{o.times:.3g} times these", o.epsilon, o.guess) for o in others]
    out.table(
        "Other guarantees",
        ["guarantee", "noise", "margins of error", "ε at\nδ = 10⁻⁹", "a guess\nis right"],
        [
            [short_name(privacy), privacy.noise.value, margins, shown_up(epsilon), shown_guess(guess)]
            for privacy, margins, epsilon, guess in compared
        ],
        texts=2,
    )
    equal = short_name(others[-1].privacy)
    out.say("Estimated from a quick search; a full search may do better.", _numbers_compared(here))
    out.say(
        f"{equal} protects as much as {short_name(here)}: a guess, at even odds,",
        f"whether the data differs by {spec.unit},",
        f"from all that is published, is right with a probability of at most {shown_guess(best_guess(here))}.",
    )


def _numbers_compared(privacy: Privacy) -> str:
    """What the other guarantees with the same numbers promise."""
    match privacy:
        case PureDP():
            return "(ε, δ) fails with a probability of at most δ; ρ = ε²/2 is what pure ε implies."
        case ApproxDP() | ZCDP() | GaussianDP():
            return "Pure ε has no δ, and promises more."


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


def _plan_with(spec: Spec, folders: Sequence[Path], out: Output, engine: Device | None, *, same_rows: bool) -> bool:
    """Show the margins by earlier releases, plan the rest, show those of both; return whether it was interrupted."""
    release = combined_for(spec, [open_published(folder).release for folder in folders], same_rows=same_rows)
    found, interrupted = earlier_margins(spec, release), False
    rest = lacking(spec, found)
    if rest is not None:
        made = make_plan(rest, trial=True, progress=None if out.speaks else False, engine=engine)
        found, interrupted = together(spec, release, found, as_measured(rest, made.plan)), made.interrupted
    out.table(
        f"Margins of error (±) of the worst row at {100 * spec.output.level:g} %",
        ["table", "by earlier\nreleases", "asked", "", "with\nthe plan"],
        [
            [
                each.table,
                number(each.already),
                number(each.asked),
                "left out" if each.enough else "planned",
                number(each.together),
            ]
            for each in found
        ],
    )
    if rest is None:
        out.say("Earlier releases say everything that was asked for well enough: nothing needs to be released.")
    else:
        names = ", ".join(table.name for table in rest.tables)
        out.say(
            f"A release of {names} at {spec.privacy} would have these margins, combined with the earlier ones "
            f"({'hdmm.combine with same_rows=True' if same_rows else 'hdmm.combine'}).",
            f"The plan was not saved. To release these tables alone: hdmm release {_only(spec, rest).command} --output "
            "FOLDER",
        )
    out.say("Nothing was spent.")
    out.result({**spec_facts(spec), "with": folders, "earlier": found})
    return interrupted


def _only(spec: Spec, rest: Spec) -> Spec:
    """The specification that --only makes of it: by [[table]]s if all their tables are left."""
    names: dict[str, None] = {}
    for table in rest.tables:
        whole = len(rest.groups[table.group]) == len(spec.groups[table.group])
        names[table.group if whole else table.name] = None
    return spec.only(list(names))
