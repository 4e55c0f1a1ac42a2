"""The commands: parse, call, print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hdmm.cli.looked import refuse_to_look, show_look
from hdmm.cli.output import ERROR, INTERRUPTED, USAGE, Output, failed, number, refuse, warn
from hdmm.cli.told import (
    budget_line,
    budget_rows,
    files_lines,
    near_line,
    told_budget,
    told_files,
    told_forecasts,
    told_spec,
    weights_hint,
)
from hdmm.data.table import read_files
from hdmm.demo import write_demo
from hdmm.exceptions import BudgetError, HdmmError
from hdmm.forecast import TIMES, as_measured, error_factor, forecasts, scaled
from hdmm.io.strict_json import Json
from hdmm.ledger.names import told_name
from hdmm.publication import (
    Publication,
    Standing,
    affordable,
    check_output,
    cost,
    how_to_publish,
    is_kept,
    make_plan,
    plan_for,
    publish,
    raisable,
    raise_cap,
    resume,
    rewrite_report,
    standing,
    unpayable,
)
from hdmm.spec import Spec, load_spec, schema_text
from hdmm.spec.source import open_data
from hdmm.start import from_data, from_dictionary, template, write_new

Command = TypeVar("Command", bound=Callable[..., Any])
_READS_DATA = {"release", "demo", "init", "--look-at-data"}
_SPENDS = {"release", "demo"}
_FILE = click.Path(path_type=Path)
_WARNING = (
    "this reads the data and writes what it finds into the specification. That is not private: look at it, "
    "and replace it by what is publicly known before you share it."
)


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of a command line: 0 done, 1 wrong input, 2 usage, 3 budget, 4 ledger, 130 interrupted."""
    as_json = "--json" in arguments
    try:
        left: object = app.main(arguments, prog_name="hdmm", standalone_mode=False)
    except HdmmError as wrong:
        return failed(wrong, as_json=as_json)
    except click.UsageError as wrong:
        if as_json:
            refuse(wrong.format_message(), "UsageError", USAGE, as_json=True)
        else:
            wrong.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        rest = "What was debited stays charged; see hdmm budget." if _SPENDS & set(arguments) else "Nothing was spent."
        refuse(f"Interrupted. {rest}", "Interrupted", INTERRUPTED, as_json=as_json)
        return INTERRUPTED
    except Exception as wrong:  # its message or traceback could tell about the data (security O3)
        if "HDMM_DEBUG" in os.environ and not _READS_DATA & set(arguments):
            raise
        message = f"Something unexpected went wrong ({type(wrong).__name__}). A budget that was debited stays charged."
        refuse(message, type(wrong).__name__, ERROR, as_json=as_json)
        return ERROR
    return left if isinstance(left, int) else 0  # of ctx.exit, which click hands back


def _common(command: Command) -> Command:
    command = click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hdmm")
def app() -> None:
    """Publish tables about people under differential privacy, with the least error a budget allows.

    A specification (hdmm init) says which tables; hdmm plan tells their error and spends nothing; hdmm release spends
    the budget and writes them. Exit codes: 0 done, 1 wrong input, 2 wrong usage, 3 budget refused, 4 ledger trouble,
    130 interrupted.
    """


@app.command()
@click.argument("spec", type=_FILE)
@click.option(
    "--look-at-data", "looks", is_flag=True, help="Also read the rows, and tell what is outside. NOT PRIVATE."
)
@click.option("--yes", is_flag=True, help="Tell it where the output is not a terminal.")
@_common
def check(spec: Path, looks: bool, yes: bool, as_json: bool, quiet: bool) -> None:
    """Read a specification and look at the columns of its data. Reads no rows unless told to, spends nothing."""
    out = Output(as_json, quiet)
    if looks or yes:
        refuse_to_look(out, looks=looks, yes=yes)
    found = load_spec(spec)
    data = None if found.data.source is None and not looks else open_data(found)
    account = standing(found)
    rows = [[t.name, t.title, f"{t.rows:,}", f"{t.weight:g}"] for t in found.tables]
    out.table(
        f"{spec}: {len(rows)} tables over {found.domain.size:,} cells",
        ["table", "title", "rows", "weight"],
        rows,
        texts=2,
    )
    out.say(f"A release spends {found.privacy}, hiding {found.unit}.", budget_line(account))
    if why := unpayable(found, account):
        out.say(f"As things stand a release would be refused. {why}")
    if is_kept(found):
        out.say(how_to_publish(found))
    out.say(*([near_line(account)] if account.near else []))
    files = () if data is None else read_files(data)
    out.say(*files_lines(files))
    out.say("No data was named; the columns were not looked at." if data is None else "The data has the columns.")
    told: dict[str, Json] = {"ok": True, **told_spec(found), "budget": told_budget(account), "payable": why is None}
    told["near"] = list(account.near)
    if data is not None:
        told["files"] = told_files(files)
        if looks:
            told["not_private"] = show_look(data, out)
    out.result(told)


@app.command()
@click.argument("spec", type=_FILE)
@_common
def plan(spec: Path, as_json: bool, quiet: bool) -> None:
    """Find a strategy, save it, and tell the error of every table. Reads no data, spends nothing."""
    out = Output(as_json, quiet)
    found = load_spec(spec)
    made = make_plan(found, progress=None if out.speaks else False)
    expected = forecasts(found, as_measured(found, made))
    out.table(
        f"Root mean squared error per count at {found.privacy}",
        ["table", "rows", "expected", "Identity", "noise on each count", "lower bound"],
        [
            [
                f.table.name,
                f"{f.table.rows:,}",
                *map(number, (f.rmse, f.identity, f.direct, f.bound)),
            ]
            for f in expected
        ],
    )
    others = [scaled(found.privacy, times) for times in TIMES]
    factors = [error_factor(found.privacy, other) for other in others]
    names = [str(other).split(" (")[0] for other in others]
    out.table(
        "The same, for other budgets",
        ["table", *names],
        [[f.table.name, *(number(f.rmse * factor) for factor in factors)] for f in expected],
    )
    out.say(*weights_hint(found))
    out.say(*made.explain().splitlines(), f"The plan is in {found.plan.folder}. Nothing was spent.")
    budgets: list[Json] = [
        {"privacy": name, "error_factor": factor} for name, factor in zip(names, factors, strict=True)
    ]
    out.result(
        {
            **told_spec(found),
            "operator": made.operator,
            "plan": str(found.plan.folder),
            "errors": told_forecasts(expected),
            "budgets": budgets,
        }
    )


@app.command()
@click.argument("spec", type=_FILE)
@click.option("--plan", "plan_folder", type=_FILE, help="Use the plan in this folder.")
@click.option("--yes", is_flag=True, help="Spend the budget without asking.")
@click.option("--force", is_flag=True, help="Replace an earlier publication in the output folder.")
@click.option("--new-dataset", metavar="NAME", help="Open an account for this dataset though its name is near another.")
@click.option("--resume", "again", is_flag=True, help="Publish what a failed run has measured. Spends nothing.")
@_common
def release(
    spec: Path,
    plan_folder: Path | None,
    yes: bool,
    force: bool,
    new_dataset: str | None,
    again: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Spend the budget, count the data, and write the tables. The ledger is debited before data is read."""
    if again and (plan_folder is not None or new_dataset is not None):
        raise click.UsageError(
            "--resume publishes a release with its own plan, from an account that there is. Leave --plan and "
            "--new-dataset out."
        )
    out = Output(as_json, quiet)
    found = load_spec(spec)
    try:
        done = (
            resume(found, force=force)
            if again
            else _spent(found, out, plan_folder, yes=yes, force=force, new_dataset=new_dataset)
        )
    except KeyboardInterrupt:
        if not is_kept(found):
            raise
        refuse(f"Interrupted. {how_to_publish(found)}", "Interrupted", INTERRUPTED, as_json=as_json)
        raise click.exceptions.Exit(INTERRUPTED) from None
    receipt = done.release.receipt
    out.say(
        f"Published {len(done.tables)} tables in {done.folder}:",
        f"  {done.folder / 'report.html'}   to look at",
        f"  {done.folder / 'tables'}   CSV and Parquet",
        f"  {done.folder / 'metadata.json'}   for programs",
        budget_line(standing(found)),
    )
    out.result(
        {
            **told_spec(found),
            "folder": str(done.folder),
            "receipt": None if receipt is None else {"sequence": receipt.sequence, "hash": receipt.hash},
            "errors": told_forecasts(done.forecasts),
            "budget": told_budget(standing(found)),
        }
    )


def _spent(
    spec: Spec, out: Output, plan_folder: Path | None, *, yes: bool, force: bool, new_dataset: str | None
) -> Publication:
    """A publication that was asked for, paid for and made."""
    check_output(spec, force=force)
    open_data(spec)
    if plan_folder is None and not spec.plan.folder.exists():
        out.say(f"There is no plan yet, so one is made first. To see its errors before: hdmm plan {spec.path}")
    new = _confirmed(spec, out, yes=yes, new_dataset=new_dataset)
    plan = plan_for(spec, plan_folder, progress=None if out.speaks else False)
    return publish(spec, plan, force=force, new_dataset=new)


def _confirmed(spec: Spec, out: Output, *, yes: bool, new_dataset: str | None) -> bool:
    """Whether the dataset was said to be a new one, though its name is near another; all that is not agreed to ends."""
    account = affordable(spec)
    if new_dataset is not None and new_dataset != account.dataset:
        raise click.UsageError(
            f"--new-dataset names {told_name(new_dataset)}, and {spec.path} the dataset {told_name(account.dataset)}. "
            "Give that name, to the letter."
        )
    new = _is_new(account, out, named=new_dataset is not None)
    asked = cost(spec.privacy, account.parameter)
    out.say(
        f"This spends {spec.privacy} of dataset {account.dataset!r}, for good.",
        budget_line(account),
    )
    _agreed(f"Spend {account.shown(asked)}?", "A release spends a budget for good.", out, yes=yes)
    return new


def _is_new(account: Standing, out: Output, *, named: bool) -> bool:
    """Whether an account is opened under a name near others: --yes says nothing about that, only the name does."""
    if not account.near or named:
        return named
    if not sys.stdin.isatty() or not out.speaks:
        raise BudgetError(f"{near_line(account)} If it is about other people, say --new-dataset with its name.")
    out.say(near_line(account))
    _agreed(f"Is {account.dataset!r} about other people?", "", out, yes=False)
    return True


def _agreed(question: str, matter: str, out: Output, *, yes: bool) -> None:
    """Ask, unless the answer was given; what is not agreed to ends here."""
    if yes:
        return
    if not sys.stdin.isatty() or not out.speaks:
        raise click.UsageError(f"{matter} Say --yes where nobody can be asked.")
    try:
        agreed, code = click.confirm(question), ERROR
    except click.Abort:
        agreed, code = False, INTERRUPTED
    if not agreed:
        out.say("Nothing was done. Nothing was spent.")
        raise click.exceptions.Exit(code)


@app.command()
@click.argument("spec", type=_FILE)
@click.option("--raise-cap", "larger", is_flag=True, help="Raise the ledger's cap to the one in the specification.")
@click.option("--reason", help="Who decided to raise the cap, and why: recorded for good.")
@click.option("--yes", is_flag=True, help="Raise the cap without asking.")
@_common
def budget(spec: Path, larger: bool, reason: str | None, yes: bool, as_json: bool, quiet: bool) -> None:
    """Tell what was spent of the dataset's budget, and on what; or raise its cap."""
    if larger != (reason is not None):
        raise click.UsageError("To raise a cap give both --raise-cap and --reason.")
    out = Output(as_json, quiet)
    found = load_spec(spec)
    account = standing(found) if reason is None else _raised(found, reason, out, yes=yes)
    out.say(budget_line(account))
    if account.entries:
        out.table("Records:", ["record", "time", "what", "amount", "purpose"], budget_rows(account), texts=5)
    else:
        out.say("There are no records: the first release opens the account.")
        out.say(*([near_line(account)] if account.near else []))
    out.result(told_budget(account))


def _raised(spec: Spec, reason: str, out: Output, *, yes: bool) -> Standing:
    before, cap = raisable(spec)
    change = f"from {before.shown(before.cap)} to {before.shown(cap)}"
    out.say(budget_line(before), f"This raises the cap of dataset {before.dataset!r} {change}, for good.")
    _agreed(f"Raise the cap {change}?", "A cap that was raised is never lowered.", out, yes=yes)
    return raise_cap(spec, reason=reason)


@app.command()
@click.argument("spec", type=_FILE)
@_common
def report(spec: Path, as_json: bool, quiet: bool) -> None:
    """Write the report of a publication again, from its release. Reads no data, spends nothing."""
    out = Output(as_json, quiet)
    written = rewrite_report(load_spec(spec))
    out.say(f"The report is in {written}.")
    out.result({"report": str(written)})


@app.command()
@click.argument("spec", type=_FILE, default=Path("hdmm.toml"))
@click.option("--from", "dictionary", type=_FILE, help="A data dictionary: CSV with name, type, values.")
@click.option("--suggest-from-data", "data", type=_FILE, help="Read a file of data for a first draft. NOT PRIVATE.")
@_common
def init(spec: Path, dictionary: Path | None, data: Path | None, as_json: bool, quiet: bool) -> None:
    """Write a commented specification to start from, and its schema for editors."""
    if dictionary is not None and data is not None:
        raise click.UsageError("Give --from or --suggest-from-data, not both.")
    notes: list[str] = []
    if data is not None:
        warn(_WARNING)
        text, notes = from_data(data, spec)
    else:
        text = from_dictionary(dictionary) if dictionary else template()
    for note in notes:
        warn(note)
    out = Output(as_json, quiet)
    schema = write_new(spec, text)
    out.say(f"Wrote {spec} and {schema}. Edit the first, then: hdmm check {spec}")
    out.result({"spec": str(spec), "schema": str(schema)})


@app.command()
def schema() -> None:
    """Print the JSON schema of specifications."""
    click.echo(schema_text(), nl=False)


@app.command()
@click.argument("folder", type=_FILE, default=Path("hdmm-demo"))
@click.pass_context
def demo(context: click.Context, folder: Path) -> None:
    """Make up 100,000 persons and take them from check to report, in under a minute."""
    spec = write_demo(folder)
    out = Output(as_json=False, quiet=False)
    for title, command, more in (
        ("check", check, {"looks": False, "yes": False}),
        ("plan", plan, {}),
        ("release", release, {"plan_folder": None, "yes": True, "force": True, "new_dataset": None, "again": False}),
        ("budget", budget, {"larger": False, "reason": None, "yes": False}),
    ):
        out.say("", f"$ hdmm {title} {spec}{' --yes' if title == 'release' else ''}")
        context.invoke(command, spec=spec, as_json=False, quiet=False, **more)
    out.say("", f"Look at {load_spec(spec).output.folder / 'report.html'}; the specification is {spec}.")
