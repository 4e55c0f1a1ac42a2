"""The command about a budget: it shows what was spent, or raises the cap."""

from __future__ import annotations

from pathlib import Path

import click

from hdmm.apps.cli.facts import budget_facts, budget_line, budget_rows, near_line
from hdmm.apps.cli.options import FILE, Given, agreed, common, specified
from hdmm.apps.cli.output import Output
from hdmm.io.strict_json import Json
from hdmm.publication.budget import Budget, budget_of, budgets_in, raisable, raise_cap
from hdmm.publication.spec import Spec


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
    given: Given,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what was spent of the dataset's budget, and on what; or raise its cap."""
    if (spec is None) == (ledger is None):
        raise click.UsageError("Give a specification, or else --ledger and the path of a ledger.")
    if larger != (reason is not None) or (larger and spec is None):
        raise click.UsageError("To raise a cap, give a specification and both --raise-cap and --reason.")
    out = Output(as_json, quiet)
    if spec is None:
        out.result(_all(ledger or Path(), out))
    else:
        found = given.load_without_data(spec)
        account = budget_of(found) if reason is None else _raised(found, reason, out, yes=yes)
        _say(account, out)
        out.result(budget_facts(account))


def _all(ledger: Path, out: Output) -> Json:
    """Show every account of a ledger, and return them for programs."""
    accounts = budgets_in(ledger)
    for account in accounts:
        _say(account, out)
    if not accounts:
        out.say(f"{ledger} has no accounts yet. The first release opens one.")
    return {"ledger": str(ledger), "accounts": [budget_facts(account) for account in accounts]}


def _say(account: Budget, out: Output) -> None:
    out.say(budget_line(account))
    if account.entries:
        out.table("Records:", ["record", "time", "what", "amount", "purpose"], budget_rows(account), texts=5)
    else:
        out.say("There are no records yet. The first release opens the account.")
        out.say(*([near_line(account)] if account.near else []))


def _raised(spec: Spec, reason: str, out: Output, *, yes: bool) -> Budget:
    before, cap = raisable(spec)
    change = f"from {before.shown(before.cap)} to {before.shown(cap)}"
    out.say(budget_line(before), f"This raises the cap of dataset {before.dataset!r} {change}, permanently.")
    agreed(f"Raise the cap {change}?", "A cap that was raised is never lowered.", out, yes=yes)
    return raise_cap(spec, reason=reason)
