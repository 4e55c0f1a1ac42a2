"""The commands that read what was published, and spend nothing: query, show, rows, diff, combine and report."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import click

from hdmm.answers.table import BINNED, Table
from hdmm.apps.cli.options import FILE, ConfidenceLevel, SpecOverrides, common, set_variables, specified
from hdmm.apps.cli.output import Output, number, printable
from hdmm.apps.facts import named
from hdmm.base.hints import first_of
from hdmm.base.numbers import many
from hdmm.publication.difference import Difference, difference
from hdmm.publication.files import RELIABILITY_COLUMNS, number_columns, write_csv
from hdmm.publication.metadata import COUNTS
from hdmm.publication.preflight import ledger_of
from hdmm.publication.protection import in_full
from hdmm.publication.publish import combine_publications, rewrite_report
from hdmm.publication.published import Published, asked_tables, open_published, shown_table
from hdmm.publication.registry import TO_CHECK, TO_FILL_IN
from hdmm.publication.report.rows_shown import ShownRow
from hdmm.publication.row_files import FOLDER as ROWS_FOLDER
from hdmm.publication.row_files import make_rows
from hdmm.publication.spec import load_spec

_ledger = click.option("--ledger", type=FILE, help="The ledger that paid for it; otherwise budget.db beside FOLDER.")


def _paying(ledger: Path | None, folder: Path) -> tuple[Path, str]:
    """The ledger that must have paid for what lies in a folder, and what names it."""
    return ledger or Path(os.path.normpath(folder / "..")) / "budget.db", "--ledger"


@click.command()
@click.argument("folder", type=FILE)
@click.argument("sql")
@click.option("--level", type=ConfidenceLevel(), help="The confidence level of the intervals; otherwise as published.")
@click.option("--rows", type=click.IntRange(min=1), default=50, help="The most rows to print; 50 if left out.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV.")
@common
def query(folder: Path, sql: str, level: float | None, rows: int, as_csv: bool, out: Output) -> None:
    """Answer SQL from what was measured, with margins of error. Reads no data, spends nothing."""
    found = open_published(folder)
    tables = list(asked_tables(found, sql, level=level))
    _print(found, tables, rows, out, as_csv=as_csv)


@click.command()
@click.argument("folder", type=FILE)
@click.argument("table", required=False)
@click.option("--level", type=ConfidenceLevel(), help="The confidence level of the intervals; otherwise as published.")
@click.option("--rows", type=click.IntRange(min=1), default=50, help="The most rows to print; 50 if left out.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV.")
@common
def show(folder: Path, table: str | None, level: float | None, rows: int, as_csv: bool, out: Output) -> None:
    """Show a published table, or counts by columns such as sex,age; or list what there is.

    Reads no data, spends nothing.
    """
    found = open_published(folder)
    if table is None:
        out.say(f"{_guarantee(found)}.")
        out.say(f"Tables: {', '.join(found.tables) or 'none'}", f"Columns: {', '.join(found.columns)}")
        out.result({**_facts(found), "published": found.tables, "columns": found.columns})
        return
    shown = shown_table(found, table, level=level)
    if as_csv and table in found.tables and not out.as_json:  # with all columns that were published
        sys.stdout.flush()
        sys.stdout.buffer.write((found.folder / "tables" / f"{Path(table).name}.csv").read_bytes())
        return
    _print(found, [shown], rows, out, as_csv=as_csv)


def _print(found: Published, tables: Sequence[Table], rows: int, out: Output, *, as_csv: bool) -> None:
    if as_csv:
        if out.as_json or len(tables) > 1:
            raise click.UsageError("--csv prints one table. Leave out --json, and ask for one table at a time.")
        sys.stdout.flush()
        write_csv(tables[0], sys.stdout.buffer)
        return
    for table in tables:
        _say_table(table, rows, out)
    out.say(*_remarks(tables))
    if any(table.biased for table in tables):
        out.say(COUNTS.get(found.kind, "These estimates are biased."))
    out.say("The numbers are from the release; nothing was spent.")
    out.result({**_facts(found), "tables": [_table_facts(table) for table in tables]})


def _say_table(table: Table, most: int, out: Output) -> None:
    if not out.speaks:
        return
    header = [*map(printable, table.heads), "biased estimate" if table.biased else "estimate", "±", "from", "to"]
    header += ["from,\nwith bins", "to,\nwith bins"] if table.bins is not None else []
    lines: list[list[str]] = []
    for printed in islice(table.printed(), most):
        row, words = ShownRow.of(printed), map(printable, printed.labels)
        numbers = row.estimate, row.margin.removeprefix("± "), row.lower, row.upper
        lines.append([*words, *numbers, *((row.bins or ("", "")) if table.bins is not None else ()), row.grade])
    name = table.name if table.title == table.name else f"{table.name} ({printable(table.title)})"
    title = f"{name}: {many(len(table), 'row')}, intervals of {100 * table.level:g} %"
    out.table(title, [*header, "reliability"], lines, texts=len(table.attributes))
    if len(table) > most:
        out.say(f"… {len(table) - most:,} more rows; --rows shows more of them, --csv all.")


def _remarks(tables: Sequence[Table]) -> list[str]:
    """What the words in the last column mean, where some number is not good."""
    notes = {note for table in tables for note in table.notes}
    words = "; ".join(f"{word}: {meaning}" for word, meaning in tables[0].reliability.explained(notes))
    said = [f"{words}."] if notes - {"good", "impossible"} else []
    return [*said, BINNED] if any(table.bins is not None for table in tables) else said


def _facts(found: Published) -> dict[str, object]:
    unit = found.release.unit
    return {
        "folder": found.folder,
        "privacy": found.release.privacy,
        "unit": {"rows": unit.rows, "neighbours": unit.neighbours},
    }


def _table_facts(table: Table) -> dict[str, object]:
    bounds = () if table.bins is None else (table.bins.lower, table.bins.upper)
    columns = ([x if math.isfinite(x) else None for x in each.tolist()] for each in (*table.numbers, *bounds))
    everything = zip(table.labels(), *columns, table.reliable.tolist(), table.notes, strict=True)
    header = table.header((*number_columns(table), *RELIABILITY_COLUMNS))
    return {
        "name": table.name,
        "level": table.level,
        "biased": table.biased,
        "columns": table.attributes,
        **({} if table.bins is None else {"bins": BINNED}),
        "rows": [dict(zip(header, [*labels, *values], strict=True)) for labels, *values in everything],
    }


@click.command()
@click.argument("folder", type=FILE)
@click.option("--count", type=int, help="How many rows; otherwise as many as the release counts.")
@click.option("--by", metavar="COLUMN,…", help="Columns whose table the rows have exactly, such as district,sex.")
@click.option("--output", type=FILE, help="The folder to write; otherwise rows in FOLDER.")
@_ledger
@click.option("--force", is_flag=True, help="Replace the rows that are there.")
@common
def rows(
    folder: Path,
    count: int | None,
    by: str | None,
    output: Path | None,
    ledger: Path | None,
    *,
    force: bool,
    out: Output,
) -> None:
    """Make synthetic rows whose tables are near those of a release: Parquet, CSV, and a page about them.

    Reads only what was published, and the ledger, which must have paid for it. Spends nothing.
    """
    found, target = open_published(folder), output or folder / ROWS_FOLDER
    names = [name.strip() for name in by.split(",")] if by else []
    made = make_rows(found, target, _paying(ledger, folder), count, by=names, force=force)
    fewer = "; fewer rows are further away" if len(made) < round(made.total) else ""
    furthest = max((each.typical for each in made.closeness), default=None)
    distance = (
        "" if furthest is None else f". They are up to {furthest:.1f} standard deviations from what was measured "
    )
    distance += f"(1 is typical of the truth{fewer})" if distance else ""
    out.say(
        f"{len(made):,} rows of {len(made.columns)} columns are in {target}: rows.parquet and rows.csv, and about.html "
        "on what they are good for.",
        *(f"{printable(name)} has no column, because {reason}." for name, reason in made.left_out.items()),
        f"No row is a person{distance}, and nothing was spent.",
    )
    out.result(
        {
            **_facts(found),
            "rows": len(made),
            "columns": [column.name for column in made.columns],
            "left_out": made.left_out,
            "output": target,
            "closeness": [
                {"measured": near.attributes, "numbers": near.numbers, "typical": near.typical, "largest": near.largest}
                for near in made.closeness
            ],
        }
    )


@click.command()
@click.argument("first", type=FILE)
@click.argument("second", type=FILE)
@click.option("--level", type=ConfidenceLevel(), help="The confidence level of margins; otherwise as published.")
@click.option("--rows", type=click.IntRange(min=1), default=20, help="The most rows to print; 20 if left out.")
@common
def diff(first: Path, second: Path, level: float | None, rows: int, out: Output) -> None:
    """Compare two output folders: tables, estimates that differ beyond their margins, and privacy spent.

    Reads only what was published, spends nothing.
    """
    one, two = open_published(first), open_published(second)
    found = difference(one, two, level=level)
    out.say(_spent(one), _spent(two), found.meaning)
    if found.together is not None:
        out.say(f"Both are of one dataset, and together they spend {found.together}.")
    for folder, names in ((first, found.only_first), (second, found.only_second)):
        if names:
            out.say(f"Only in {folder}: {first_of(names)}.", style="yellow")
    _say_tables(found, out)
    _say_differences(found, rows, out)
    out.result(
        {
            "first": _paid_facts(one),
            "second": _paid_facts(two),
            **named(found, "relation", "level", "together", "only_first", "only_second", "tables"),
        }
    )


def _spent(published: Published) -> str:
    release = published.release
    paid = "" if release.receipt is None else f", record {release.receipt.sequence} of {release.receipt.dataset!r}"
    return f"{published.folder}: {_guarantee(published)}{paid}."


def _guarantee(published: Published) -> str:
    release = published.release
    return f"{in_full(release.privacy, gaussian=release.exact_gaussian)}, hiding {release.unit}"


def _say_tables(found: Difference, out: Output) -> None:
    if not found.tables:
        out.say("There is no table of the same name in both.", style="yellow")
        return
    chance = found.relation == "independent"
    columns = ["table", "rows\ncompared", "beyond\nthe margin", *["by chance\nat most"] * chance, "rows in\none only"]
    rows = [
        [
            table.table,
            f"{table.rows:,}",
            "other columns" if table.columns_differ else f"{len(table.differing):,}",
            *([number(table.by_chance)] if chance else []),
            f"{table.only_first + table.only_second:,}",
        ]
        for table in found.tables
    ]
    out.table("Tables in both:", columns, rows)
    if chance and any(table.by_chance is None and table.rows for table in found.tables):
        out.say(
            "How many differ by chance is known of unbiased counts and sums only; the margins of means and percentages "
            "are to first order."
        )
    if without := sum(table.without_margin for table in found.tables):
        verb = "was" if without == 1 else "were"
        out.say(f"{many(without, 'row')} {verb} not compared, because a number or its margin is not published.")


def _say_differences(found: Difference, most: int, out: Output) -> None:
    every = found.rows
    if not every:
        out.say("No estimate differs by more than its margin.", style="green")
        return
    lines = [
        [
            table,
            printable(", ".join("" if label is None else label for label in row.labels)),
            *row.printed(found.level),
        ]
        for table, row in every[:most]
    ]
    out.table("The largest differences:", ["table", "row", "first", "second", "difference", "±"], lines, texts=2)
    if len(every) > most:
        out.say(f"… {len(every) - most:,} more rows; --rows shows more of them, --json all.")


def _paid_facts(published: Published) -> dict[str, object]:
    receipt = published.release.receipt
    return {
        "folder": published.folder,
        "privacy": published.release.privacy,
        "dataset": None if receipt is None else receipt.dataset,
        "record": None if receipt is None else receipt.sequence,
    }


@click.command("combine")
@click.argument("folders", type=FILE, nargs=-1, required=True)
@click.option("--output", type=FILE, required=True, help="The folder to write.")
@click.option("--spec", type=FILE, help="Also write the tables of this specification, with a report.")
@set_variables
@_ledger
@click.option("--same-rows", is_flag=True, help="State that the releases are of the same rows.")
@click.option("--force", is_flag=True, help="With --spec: replace an earlier publication in the output folder.")
@common
def combine_releases(
    folders: tuple[Path, ...],
    output: Path,
    spec: Path | None,
    variables: dict[str, str],
    ledger: Path | None,
    *,
    same_rows: bool,
    force: bool,
    out: Output,
) -> None:
    """Make one release of several of the same rows, which is more accurate than each. Reads no data, spends nothing."""
    if spec is None and (variables or force):
        raise click.UsageError("--set and --force are about a specification. Name it with --spec, or leave them out.")
    if spec is not None and ledger is not None:
        raise click.UsageError("The specification names the ledger. Leave out --ledger, or --spec.")
    asked = None if spec is None else load_spec(spec, variables=variables)
    paying = _paying(ledger, folders[0]) if asked is None else ledger_of(asked)
    found = [open_published(each) for each in folders]
    both = combine_publications(found, output, paying, asked, same_rows=same_rows, force=force)
    out.say(
        f"{many(len(both.parts), 'release')} in {output}, at {in_full(both.privacy, gaussian=both.exact_gaussian)}, "
        f"hiding {both.unit}. Nothing was spent.",
        f"For its tables: hdmm show {output}" if asked is None else f"The report is in {output / 'report.html'}.",
    )
    out.result({"output": output, "releases": len(both.parts), "privacy": both.privacy})


@click.command()
@click.argument("spec", type=FILE)
@click.option("--xlsx", is_flag=True, help="Also write it as an Excel workbook, report.xlsx (hdmm[xlsx]).")
@click.option("--since", type=FILE, help="With the changes since the publication in this folder.")
@click.option("--registry", is_flag=True, help="Also write registry.yaml, for the registry of deployments by OpenDP.")
@specified
@common
def report(spec: Path, xlsx: bool, since: Path | None, registry: bool, given: SpecOverrides, out: Output) -> None:
    """Write the report of a publication again, from its release. Reads no data, spends nothing."""
    written = rewrite_report(given.load_without_data(spec), xlsx=xlsx, since=since, registry=registry)
    out.say(*(f"The {kind} is in {path}." for kind, path in written.items()))
    if registry:
        out.say(
            f"Before you send the record, write the answers where it says {TO_FILL_IN!r}, and look where it says "
            f"{TO_CHECK!r}."
        )
    out.result(written)
