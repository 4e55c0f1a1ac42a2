"""Commands about a specification: check, init, schema. None reads rows unless told to, none spends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from hdmm.apps.cli.check_data import refuse_to_look, show_look
from hdmm.apps.cli.facts import budget_facts, budget_line, file_facts, files_lines, near_line, secret_line, spec_facts
from hdmm.apps.cli.options import FILE, Given, common, specified
from hdmm.apps.cli.output import ERROR, Output, failed, refuse, warn
from hdmm.apps.scaffold.asking import ask_start, ask_values
from hdmm.apps.scaffold.start import described_by, from_columns, from_data, refuse_existing, template, write_new
from hdmm.base.exceptions import BudgetError, HdmmError
from hdmm.data import Data
from hdmm.data.records import doubtful_types, read_files
from hdmm.io.strict_json import Json
from hdmm.publication.budget import Budget, budget_of
from hdmm.publication.ready import refusals, replaced
from hdmm.publication.spec import Spec, schema_text
from hdmm.publication.spec.origin import open_data

_WARNING = (
    "this reads the data and writes what it finds into the specification. That is not private: look at it, "
    "and replace it with what is publicly known before you share it."
)
_NOT_READ = (
    "No rows were read. Rows outside the domain, text that is not UTF-8 and labels that never occur would spend a "
    "budget on noise; those who may see the data find them with --look-at-data."
)


@click.command()
@click.argument("spec", type=FILE)
@click.option(
    "--look-at-data", "looks", is_flag=True, help="Also read the rows, and show what is outside. NOT PRIVATE."
)
@click.option("--yes", is_flag=True, help="Show it even if the output is not a terminal.")
@click.option("--strict", is_flag=True, help="Exit with an error for warnings, too.")
@specified
@common
def check(spec: Path, looks: bool, yes: bool, strict: bool, given: Given, as_json: bool, quiet: bool) -> None:
    """Check a specification, the columns of its data and its ledger. Reads no rows unless asked to, spends nothing.

    The exit code is not 0 if a release would be refused at present.
    """
    out = Output(as_json, quiet)
    if looks or yes:
        refuse_to_look(out, looks=looks, yes=yes)
    found = given.load(spec)
    data = None if found.data.source is None and not looks else open_data(found)
    account = budget_of(found)
    refused, warnings = refusals(found, account), _warnings(found, account, data)
    rows = [[t.name, t.title, f"{t.rows:,}", f"{t.weight:g}"] for t in found.tables]
    out.table(
        f"{spec}: {len(rows)} tables over {found.domain.size:,} cells",
        ["table", "title", "rows", "weight"],
        rows,
        texts=2,
    )
    out.say(f"A release spends {found.privacy}, hiding {found.unit}.", budget_line(account))
    files = () if data is None else tuple(Path(found.masked(str(file))) for file in read_files(data))
    out.say(*files_lines(files))
    if data is not None:
        out.say("The data has all columns.")
    out.say(*warnings, style="yellow")
    if not looks:
        out.say(_NOT_READ)
    facts: dict[str, Json] = {"ok": not refused, **spec_facts(found), "budget": budget_facts(account)}
    facts |= {"payable": not any(isinstance(wrong, BudgetError) for wrong in refused)}
    facts |= {"refused": [str(wrong) for wrong in refused], "warnings": warnings}
    facts |= {"rows_read": looks, "near": list(account.near), "advice": list[Json](found.advice)}
    if data is not None:
        facts["files"] = file_facts(files)
        if looks:
            facts["not_private"] = show_look(data, out)
    out.result(facts)
    _end(refused, warnings if strict else [], as_json=as_json)


def _warnings(spec: Spec, account: Budget, data: Data | None) -> list[str]:
    """What a release would not be refused for, but which may not be meant."""
    return [
        *([near_line(account)] if account.near else []),
        *([why] if (why := replaced(spec)) else []),
        *([secret_line(spec)] if spec.tells_secret else []),
        *(["No data is named, so its columns were not checked."] if data is None else doubtful_types(data)),
        *spec.advice,
    ]


def _end(refused: Sequence[HdmmError], warnings: Sequence[str], *, as_json: bool) -> None:
    """End the command with what a release would end with; warnings are given only if they count as errors."""
    if refused:
        whole = f"At present a release would be refused. {' '.join(map(str, refused))}"
        raise click.exceptions.Exit(failed(type(refused[0])(whole), as_json=as_json))
    if warnings:
        refuse(f"With --strict, warnings are errors. {' '.join(warnings)}", "Warnings", ERROR, as_json=as_json)
        raise click.exceptions.Exit(ERROR)


@click.command()
@click.argument("spec", type=FILE, default=Path("hdmm.toml"))
@click.option(
    "--from",
    "dictionary",
    metavar="DICTIONARY",
    help="What describes the data: CSV, JSON (Frictionless), the schema of a Parquet, Feather or Arrow file, or the "
    "catalogue of a database (.duckdb, postgres://…). Reads no rows.",
)
@click.option("--table", help="The table of the database, or the resource of the package, that --from names.")
@click.option("--suggest-from-data", "data", type=FILE, help="Read a file of data for a first draft. NOT PRIVATE.")
@common
def init(spec: Path, dictionary: str | None, table: str | None, data: Path | None, as_json: bool, quiet: bool) -> None:
    """Write a commented specification to start from, and its schema for editors. Asks for values in a terminal."""
    if dictionary is not None and data is not None:
        raise click.UsageError("Give --from or --suggest-from-data, not both.")
    if table is not None and dictionary is None:
        raise click.UsageError("--table belongs to --from. Leave it out.")
    out = Output(as_json, quiet)
    asks = sys.stdin.isatty() and out.speaks
    notes: list[str] = []
    if data is not None:
        warn(_WARNING)
        text, notes = from_data(data, spec)
    elif dictionary is not None:
        columns, start = described_by(dictionary, table, spec)
        text = from_columns(ask_values(columns, out) if asks else columns, start)
    elif asks:
        refuse_existing(spec)
        columns, start = ask_start(out)
        text = from_columns(columns, start)
    else:
        text = template()
    for note in notes:
        warn(note)
    schema = write_new(spec, text)
    out.say(f"Wrote {spec} and {schema}. Edit the first, then run hdmm check {spec}")
    out.result({"spec": str(spec), "schema": str(schema)})


@click.command()
def schema() -> None:
    """Print the JSON schema of specifications."""
    click.echo(schema_text(), nl=False)
