"""Commands about a specification: check, init, schema. None reads rows unless told to, none spends."""

from __future__ import annotations

from pathlib import Path

import click

from hdmm.advice import advice
from hdmm.cli.facts import budget_facts, budget_line, file_facts, files_lines, near_line, spec_facts
from hdmm.cli.look import refuse_to_look, show_look
from hdmm.cli.options import FILE, Given, common, specified
from hdmm.cli.output import Output, warn
from hdmm.data.table import read_files
from hdmm.io.strict_json import Json
from hdmm.publication import budget_of, how_to_publish, is_kept, unpayable
from hdmm.spec import schema_text
from hdmm.spec.source import open_data
from hdmm.start import from_data, from_dictionary, template, write_new

_WARNING = (
    "this reads the data and writes what it finds into the specification. That is not private: look at it, "
    "and replace it with what is publicly known before you share it."
)


@click.command()
@click.argument("spec", type=FILE)
@click.option(
    "--look-at-data", "looks", is_flag=True, help="Also read the rows, and show what is outside. NOT PRIVATE."
)
@click.option("--yes", is_flag=True, help="Show it even if the output is not a terminal.")
@specified
@common
def check(spec: Path, looks: bool, yes: bool, given: Given, as_json: bool, quiet: bool) -> None:
    """Check a specification and the columns of its data. Reads no rows unless asked to, spends nothing."""
    out = Output(as_json, quiet)
    if looks or yes:
        refuse_to_look(out, looks=looks, yes=yes)
    found = given.load(spec)
    data = None if found.data.source is None and not looks else open_data(found)
    account = budget_of(found)
    rows = [[t.name, t.title, f"{t.rows:,}", f"{t.weight:g}"] for t in found.tables]
    out.table(
        f"{spec}: {len(rows)} tables over {found.domain.size:,} cells",
        ["table", "title", "rows", "weight"],
        rows,
        texts=2,
    )
    out.say(f"A release spends {found.privacy}, hiding {found.unit}.", budget_line(account))
    if why := unpayable(found, account):
        out.say(f"At present a release would be refused. {why}")
    if is_kept(found):
        out.say(how_to_publish(found))
    out.say(*([near_line(account)] if account.near else []), *advice(found.domain))
    files = () if data is None else read_files(data)
    out.say(*files_lines(files))
    out.say("No data is named, so its columns were not checked." if data is None else "The data has all columns.")
    facts: dict[str, Json] = {"ok": True, **spec_facts(found), "budget": budget_facts(account), "payable": why is None}
    facts |= {"near": list(account.near), "advice": list(advice(found.domain))}
    if data is not None:
        facts["files"] = file_facts(files)
        if looks:
            facts["not_private"] = show_look(data, out)
    out.result(facts)


@click.command()
@click.argument("spec", type=FILE, default=Path("hdmm.toml"))
@click.option("--from", "dictionary", type=FILE, help="A data dictionary: CSV with name, type, values.")
@click.option("--suggest-from-data", "data", type=FILE, help="Read a file of data for a first draft. NOT PRIVATE.")
@common
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
    out.say(f"Wrote {spec} and {schema}. Edit the first, then run hdmm check {spec}")
    out.result({"spec": str(spec), "schema": str(schema)})


@click.command()
def schema() -> None:
    """Print the JSON schema of specifications."""
    click.echo(schema_text(), nl=False)
