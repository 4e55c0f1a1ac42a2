"""The commands that are about a budget: release, which alone spends, and budget, which shows it or raises its cap."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from hdmm.apps.cli.options import FILE, SpecOverrides, common, confirm, specified
from hdmm.apps.cli.output import Output, warn
from hdmm.apps.facts import budget_facts, forecast_facts, spec_facts
from hdmm.base.exceptions import BudgetError, FileError, HdmmError, Interrupted
from hdmm.base.numbers import many
from hdmm.base.signals import ending_as_interrupt
from hdmm.engines import Device, Workers, dask, gpu
from hdmm.privacy.names import shown_name
from hdmm.publication.budget import Budget, budget_of, budgets_in, check_payable, converted, cost, raisable, raise_cap
from hdmm.publication.files import format_names
from hdmm.publication.planning import plan_for
from hdmm.publication.preflight import Preflight, preflight, secret_warning
from hdmm.publication.protection import in_full
from hdmm.publication.publish import Publication, publish_ready, resume
from hdmm.publication.report.contents import listed
from hdmm.publication.spec import Spec


@click.command()
@click.argument("spec", type=FILE)
@click.option("--plan", "plan_folder", type=FILE, help="Use the plan in this folder.")
@click.option("--yes", is_flag=True, help="Spend the budget without asking.")
@click.option("--force", is_flag=True, help="Replace an earlier publication in the output folder.")
@click.option("--new-dataset", metavar="NAME", help="Open an account for this dataset though its name is near another.")
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["gpu", "dask"]),
    help="Search and measure on a GPU (hdmm[gpu]), or in chunks on disk, by workers of Dask (hdmm[dask]).",
)
@click.option(
    "--engine-folder", type=FILE, help="With --engine dask: the folder of the chunks; all workers must see it."
)
@click.option("--scheduler", metavar="ADDRESS", help="With --engine dask: the scheduler; otherwise workers start here.")
@click.option("--unencrypted", is_flag=True, help="With --scheduler: accept one without TLS, if nobody can reach it.")
@click.option("--resume", "again", is_flag=True, help="Publish what a failed run has measured. Spends nothing.")
@specified
@common
def release(
    spec: Path,
    plan_folder: Path | None,
    yes: bool,
    force: bool,
    new_dataset: str | None,
    engine_name: str | None,
    engine_folder: Path | None,
    scheduler: str | None,
    unencrypted: bool,
    again: bool,
    given: SpecOverrides,
    out: Output,
) -> None:
    """Spend the budget, count the data, and write the tables. The ledger is debited before data is read."""
    if again and not (plan_folder is new_dataset is None and engine_name != "gpu"):
        raise click.UsageError(
            "--resume publishes a release that has its own plan and account and is measured already. Leave out --plan, "
            "--new-dataset and --engine gpu."
        )
    found = given.load(spec)
    if why := secret_warning(found):
        warn(why)
    engine = _engine(engine_name, engine_folder, scheduler, unencrypted=unencrypted)
    with ending_as_interrupt():
        done = (
            resume(found, force=force, engine=engine if isinstance(engine, Workers) else None)
            if again
            else _spent(found, out, plan_folder, yes=yes, force=force, new_dataset=new_dataset, engine=engine)
        )
        with _after_publishing(done):
            _show(found, done, out)


def _show(found: Spec, done: Publication, out: Output) -> None:
    receipt = done.release.receipt
    out.say(
        f"Published {many(len(done.tables), 'table')} in {done.folder}:",
        f"  {done.folder / 'report.html'}   report",
        f"  {done.folder / 'tables'}   {listed(format_names())}",
        f"  {done.folder / 'metadata.json'}   machine-readable metadata",
        done.budget.summary,
    )
    out.result(
        {
            **spec_facts(found),
            "folder": done.folder,
            "receipt": None if receipt is None else {"sequence": receipt.sequence, "hash": receipt.hash},
            "errors": forecast_facts(done.forecasts),
            "budget": budget_facts(done.budget),
        }
    )


@contextmanager
def _after_publishing(done: Publication) -> Generator[None]:
    """Say in every error that the tables are published by now."""
    published = f"The tables are published in {done.folder}."
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(published) from None
    except HdmmError as wrong:
        wrong.args = (f"{published} But: {wrong}", *wrong.args[1:])
        raise
    except Exception as wrong:
        raise FileError(f"{published} But that could not be shown ({type(wrong).__name__}).") from None


def _engine(
    name: str | None, folder: Path | None, scheduler: str | None, *, unencrypted: bool
) -> Device | Workers | None:
    """The engine that was asked for."""
    if name != "dask" and not (folder is scheduler is None):
        raise click.UsageError("--engine-folder and --scheduler are for workers of Dask. Add --engine dask.")
    if unencrypted and scheduler is None:
        raise click.UsageError("--unencrypted is about a scheduler that is already there. Add --scheduler.")
    if name != "dask":
        return None if name is None else gpu()
    if folder is None:
        raise click.UsageError(
            "--engine dask keeps the chunks of the release in a folder of their own. Name a new one with "
            "--engine-folder; all workers must see it."
        )
    return dask(scheduler, folder, unencrypted=unencrypted)


def _spent(
    spec: Spec,
    out: Output,
    plan_folder: Path | None,
    *,
    yes: bool,
    force: bool,
    new_dataset: str | None,
    engine: Device | Workers | None,
) -> Publication:
    """The publication, after the user has agreed and the budget is debited."""
    ready = preflight(spec, force=force)
    if plan_folder is None and not spec.plan.folder.exists():
        out.say(
            f"There is no plan yet, so one is made first. To see its errors beforehand, run hdmm plan {spec.command}"
        )
    new = _confirmed(ready, out, yes=yes, new_dataset=new_dataset)
    searches = engine if isinstance(engine, Device) else None
    plan = plan_for(spec, plan_folder, progress=None if out.speaks else False, engine=searches)
    return publish_ready(ready, plan, new_dataset=new, engine=engine)


def _confirmed(ready: Preflight, out: Output, *, yes: bool, new_dataset: str | None) -> bool:
    """Whether the user confirmed that the dataset is new although its name is close to another; ends if they do not."""
    spec, account = ready.spec, ready.account
    check_payable(spec, account)  # before time is spent on a plan
    if new_dataset is not None and new_dataset != account.dataset:
        raise click.UsageError(
            f"--new-dataset names {shown_name(new_dataset)}, but {spec.path} names {shown_name(account.dataset)}. Give "
            "that name exactly."
        )
    new = _is_new(account, out, named=new_dataset is not None)
    asked = cost(spec, account)
    said = f"This spends {in_full(spec.privacy)} of dataset {account.dataset!r}, permanently.{converted(spec, account)}"
    out.say(said, style="bold")
    out.say(account.summary)
    confirm(f"Spend {account.shown(asked)}?", "A release spends a budget permanently.", out, yes=yes)
    return new


def _is_new(account: Budget, out: Output, *, named: bool) -> bool:
    """Whether an account may be opened under a name close to others: only the repeated name agrees to it, not --yes."""
    why = account.name_warning
    if why is None or named:
        return named
    if not sys.stdin.isatty() or not out.speaks:
        raise BudgetError(f"{why} If it is about other people, give --new-dataset with its name.")
    out.say(why)
    confirm(f"Is {account.dataset!r} about other people?", "", out, yes=False)
    return True


@click.command()
@click.argument("spec", type=FILE, required=False)
@click.option("--ledger", type=FILE, help="Show all accounts of this ledger. Needs no specification.")
@click.option("--raise-cap", "larger", is_flag=True, help="Raise the ledger's cap to the one in the specification.")
@click.option("--reason", help="Who decided to raise the cap, and why; it is recorded permanently.")
@click.option("--yes", is_flag=True, help="Raise the cap without asking.")
@specified
@common
def budget(
    spec: Path | None,
    ledger: Path | None,
    larger: bool,
    reason: str | None,
    yes: bool,
    given: SpecOverrides,
    out: Output,
) -> None:
    """Show what was spent of the dataset's budget, and on what; or raise its cap."""
    if (spec is None) == (ledger is None):
        raise click.UsageError("Give a specification, or else --ledger and the path of a ledger.")
    if larger != (reason is not None) or (larger and spec is None):
        raise click.UsageError("To raise a cap, give a specification and both --raise-cap and --reason.")
    if spec is None:
        out.result(_all(ledger or Path(), out))
    else:
        found = given.load_without_data(spec) if larger else given.load_account(spec)
        account = budget_of(found) if reason is None else _raised(found, reason, out, yes=yes)
        _say_records(account, out)
        out.result(budget_facts(account))


def _all(ledger: Path, out: Output) -> dict[str, object]:
    """Show every account of a ledger, and return them for programs."""
    accounts = budgets_in(ledger)
    for account in accounts:
        _say_records(account, out)
    if not accounts:
        out.say(f"{ledger} has no accounts yet. The first release opens one.")
    return {"ledger": ledger, "accounts": [budget_facts(account) for account in accounts]}


def _say_records(account: Budget, out: Output) -> None:
    out.say(account.summary)
    if not account.entries:
        out.say("There are no records yet. The first release opens the account.", *filter(None, [account.name_warning]))
        return
    rows = [
        [
            str(entry.sequence),
            entry.timestamp,
            entry.kind,
            account.shown(entry.amount) if entry.amount else "",
            "" if entry.kind == "create" else entry.text,  # there it is the ledger's own number, of no use to people
        ]
        for entry in account.entries
    ]
    out.table("Records:", ["record", "time", "what", "amount", "purpose"], rows, texts=5)


def _raised(spec: Spec, reason: str, out: Output, *, yes: bool) -> Budget:
    before, cap = raisable(spec)
    change = f"from {before.shown(before.cap)} to {before.shown(cap)}"
    out.say(before.summary, f"This raises the cap of dataset {before.dataset!r} {change}, permanently.")
    confirm(f"Raise the cap {change}?", "A cap that was raised is never lowered.", out, yes=yes)
    return raise_cap(spec, reason=reason)
