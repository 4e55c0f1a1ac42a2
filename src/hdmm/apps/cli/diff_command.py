"""The command that compares two publications. It reads only what was published."""

from __future__ import annotations

import math
from pathlib import Path

import click

from hdmm.apps.cli.options import FILE, ConfidenceLevel, common
from hdmm.apps.cli.output import Output, number, printable
from hdmm.io.strict_json import Json
from hdmm.publication.ask import Published, open_published
from hdmm.publication.difference import Difference, TableDifference, difference
from hdmm.publication.metadata import privacy_facts

_MOST_NAMED = 20  # tables in one line


@click.command()
@click.argument("first", type=FILE)
@click.argument("second", type=FILE)
@click.option("--level", type=ConfidenceLevel(), help="The confidence level of margins; otherwise as published.")
@click.option("--rows", type=click.IntRange(min=1), default=20, help="The most rows to print; 20 if left out.")
@common
def diff(first: Path, second: Path, level: float | None, rows: int, as_json: bool, quiet: bool) -> None:
    """Compare two output folders: tables, estimates that differ beyond their margins, and privacy spent.

    Reads only what was published, spends nothing.
    """
    one, two = open_published(first), open_published(second)
    found = difference(one, two, level=level)
    out = Output(as_json, quiet)
    out.say(_spent(one), _spent(two), _relation(found))
    if found.together is not None:
        out.say(f"Both are of one dataset, and together they spend {found.together}.")
    for folder, names in ((first, found.only_first), (second, found.only_second)):
        if names:
            more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
            out.say(f"Only in {folder}: {', '.join(names[:_MOST_NAMED])}{more}.", style="yellow")
    _say_tables(found, out)
    _say_rows(found, rows, out)
    out.result(
        {
            "first": _facts(one),
            "second": _facts(two),
            "relation": found.relation,
            "level": found.level,
            "together": None if found.together is None else privacy_facts(found.together),
            "only_first": list(found.only_first),
            "only_second": list(found.only_second),
            "tables": [_table_facts(table) for table in found.tables],
        }
    )


def _spent(published: Published) -> str:
    release = published.release
    paid = "" if release.receipt is None else f", record {release.receipt.sequence} of {release.receipt.dataset!r}"
    return f"{published.folder}: {release.privacy}, hiding {release.unit}{paid}."


def _relation(found: Difference) -> str:
    match found.relation:
        case "same":
            return "Both are publications of one release: no noise lies between them, so every difference is shown."
        case "shared":
            return (
                "The releases share measurements, so their noise is not independent: differences are shown that are "
                "larger than both margins together."
            )
        case "independent":
            return (
                f"The releases have independent noise: differences are shown that are larger than their joint margin "
                f"at {100 * found.level:g} %."
            )


def _say_tables(found: Difference, out: Output) -> None:
    if not found.tables:
        out.say("There is no table of the same name in both.", style="yellow")
        return
    chance = found.relation == "independent"
    columns = ["table", "rows\ncompared", "beyond\nthe margin", *["by chance\nat most"] * chance, "rows in\none only"]
    rows = [
        [
            table.name,
            f"{table.rows:,}",
            "other columns" if table.columns_differ else f"{len(table.differing):,}",
            *([number((1 - found.level) * table.rows)] if chance else []),
            f"{table.only_first + table.only_second:,}",
        ]
        for table in found.tables
    ]
    out.table("Tables in both:", columns, rows)
    if without := sum(table.without_margin for table in found.tables):
        out.say(f"{without:,} rows were not compared, because a number or its margin is not published.")


def _say_rows(found: Difference, most: int, out: Output) -> None:
    every = [(table, row) for table in found.tables for row in table.differing]
    if not every:
        out.say("No estimate differs by more than its margin.", style="green")
        return
    every.sort(key=lambda pair: pair[1].excess, reverse=True)
    lines = [
        [
            table.name,
            printable(", ".join("" if label is None else label for label in row.labels)),
            f"{row.first:,.1f}",
            f"{row.second:,.1f}",
            f"{row.second - row.first:+,.1f}",
            f"{row.margin:,.1f}",
        ]
        for table, row in every[:most]
    ]
    out.table("The largest differences:", ["table", "row", "first", "second", "difference", "±"], lines, texts=2)
    if len(every) > most:
        out.say(f"… {len(every) - most:,} more rows; --rows shows more of them, --json all.")


def _facts(published: Published) -> Json:
    receipt = published.release.receipt
    return {
        "folder": str(published.folder),
        "privacy": privacy_facts(published.release.privacy),
        "dataset": None if receipt is None else receipt.dataset,
        "record": None if receipt is None else receipt.sequence,
    }


def _table_facts(table: TableDifference) -> Json:
    return {
        "table": table.name,
        "columns_differ": table.columns_differ,
        "rows": table.rows,
        "only_first": table.only_first,
        "only_second": table.only_second,
        "without_margin": table.without_margin,
        "differing": [
            {
                "labels": list(row.labels),
                "first": row.first,
                "second": row.second,
                "margin": row.margin if math.isfinite(row.margin) else None,
            }
            for row in table.differing
        ],
    }
