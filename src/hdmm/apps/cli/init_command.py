"""The commands that begin a specification: init, which asks in a terminal, and schema. No rows are read unasked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click

from hdmm.apps.cli.options import FILE, common
from hdmm.apps.cli.output import Output, warn
from hdmm.apps.scaffold.dictionary import DescribedColumn, written_values
from hdmm.apps.scaffold.start import (
    FirstChoices,
    described_by,
    from_columns,
    from_data,
    refuse_existing,
    template,
    write_new,
)
from hdmm.base.exceptions import DomainError, HdmmError
from hdmm.base.hints import did_you_mean
from hdmm.data.engines.address import without_password
from hdmm.describe.domain import Domain
from hdmm.describe.values import Values
from hdmm.publication.spec import schema_text

T = TypeVar("T")

_WARNING = (
    "this reads the data and writes what it finds into the specification. That is not private: look at it, "
    "and replace it with what is publicly known before you share it."
)
_VALUES = "M|F, 0..114, 0..100/5 (in steps), bins 0|10|50, or true|false"


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
@click.option("--rows", is_flag=True, help="Ask for the tables that synthetic rows are made from (hdmm rows).")
@common
def init(spec: Path, dictionary: str | None, table: str | None, data: Path | None, *, rows: bool, out: Output) -> None:
    """Write a commented specification to start from, and its schema for editors. Asks for values in a terminal."""
    if dictionary is not None and data is not None:
        raise click.UsageError("Give --from or --suggest-from-data, not both.")
    if table is not None and dictionary is None:
        raise click.UsageError("--table belongs to --from. Leave it out.")
    asks = sys.stdin.isatty() and out.speaks
    notes: list[str] = []
    if data is not None:
        warn(_WARNING)
        text, notes = from_data(data, spec, rows=rows)
    elif dictionary is not None:
        columns, start = described_by(dictionary, table, spec)
        text = from_columns(_ask_values(columns, out) if asks else columns, replace(start, rows=rows))
    elif asks:
        refuse_existing(spec)
        columns, start = _ask_start(out, rows=rows)
        text = from_columns(columns, start)
    else:
        text = template(rows=rows)
    for note in notes:
        warn(note)
    schema = write_new(spec, text)
    out.say(f"Wrote {spec} and {schema}. Edit the first, then run hdmm check {spec}")
    out.result({"spec": spec, "schema": schema})


@click.command()
def schema() -> None:
    """Print the JSON schema of specifications."""
    click.echo(schema_text(), nl=False)


def _ask_start(out: Output, *, rows: bool) -> tuple[list[DescribedColumn], FirstChoices]:
    """What a specification is to say, asked from its beginning. Nothing is read."""
    out.say(
        "Answer from public knowledge, never from the data: that a value occurs already says something about a person.",
        "Enter takes what is in brackets, or ends a list. Ctrl-C writes nothing.",
        "",
    )
    source: str = click.prompt("The data: a file, a folder or a database", default="people.csv")
    dataset: str = click.prompt("A name for these people, which their budget belongs to", default="people-2026")
    out.say("", f"Columns to count by, and the values each can hold: {_VALUES}.")
    columns: list[DescribedColumn] = []
    while name := _text("Column" if not columns else "Next column"):
        if any(column.name == name for column in columns):
            out.say(f"{name} is there already.", style="yellow")
            continue
        values = _answer(f"Values of {name}", lambda text, name=name: _values(name, text), out)
        if values is not None:
            columns.append(DescribedColumn(name, values))
    tables = () if rows else _ask_tables(columns, out)
    return columns, FirstChoices(without_password(source, hidden=""), None, dataset, tables, rows=rows)


def _ask_values(columns: Sequence[DescribedColumn], out: Output) -> list[DescribedColumn]:
    """The columns, with values asked for where nothing declares them; a column without an answer stays undeclared."""
    if any(column.values is None for column in columns):
        out.say(f"Which values can these columns hold? {_VALUES}. Enter leaves a column out.", "")
    found: list[DescribedColumn] = []
    for column in columns:
        if column.values is None:
            kind = f" ({column.kind})" if column.kind else ""
            asked = f"Values of {column.name}{kind}"
            values = _answer(asked, lambda text, name=column.name: _values(name, text), out)
            found.append(replace(column, values=values))
        else:
            found.append(column)
    return found


def _ask_tables(columns: Sequence[DescribedColumn], out: Output) -> tuple[tuple[str, ...], ...]:
    """The sets of columns that tables are by; none for the usual tables."""
    known = {column.name: None for column in columns if column.values is not None}
    if not known:
        return ()
    example = ",".join(list(known)[:2])
    out.say("", f"Tables: columns that are counted together, such as {example}. Enter at once takes two to start from.")
    found: list[tuple[str, ...]] = []
    while names := _answer("Table" if not found else "Next table", lambda text: _names(text, known), out):
        found.append(names)
    return tuple(dict.fromkeys(found))


def _answer(question: str, read: Callable[[str], T], out: Output) -> T | None:
    """The meaning of an answer, which is asked for until it can be read; None for no answer."""
    while text := _text(question):
        try:
            return read(text)
        except HdmmError as wrong:
            out.say(str(wrong), style="yellow")
    return None


def _text(question: str) -> str:
    answer: str = click.prompt(question, default="", show_default=False)
    return answer.strip()


def _values(name: str, text: str) -> Values:
    """The values that an answer stands for, by its notation."""
    word, _, rest = text.partition(" ")
    if word.lower() == "bins":
        found = written_values("bins", rest)
    elif text.lower().replace(" ", "") in ("true|false", "false|true", "boolean"):
        found = written_values("boolean", "")
    else:
        found = written_values("integers" if ".." in text else "labels", text)
    if found is None:
        raise DomainError(f"{text[:60]!r} is not a list of values. Write {_VALUES}.")
    Domain({name: found})
    return found


def _names(text: str, known: Mapping[str, None]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise DomainError(f"{name!r} is not a column; there are {', '.join(known)}.{did_you_mean(name, known)}")
    return names
