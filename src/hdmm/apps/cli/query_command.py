"""Commands that ask a release: query and show. They read no data and spend nothing."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import click

from hdmm.answers.reliability import GOOD
from hdmm.answers.table import BINNED, Table
from hdmm.apps.cli.options import FILE, ConfidenceLevel, common
from hdmm.apps.cli.output import Output, printable
from hdmm.io.strict_json import Json
from hdmm.publication.ask import Published, asked_tables, open_published, shown_table
from hdmm.publication.files import RELIABILITY_COLUMNS, number_columns, write_csv
from hdmm.publication.metadata import COUNTS, privacy_facts
from hdmm.publication.report.rows_shown import ShownRow


@click.command()
@click.argument("folder", type=FILE)
@click.argument("sql")
@click.option("--level", type=ConfidenceLevel(), help="The confidence level of the intervals; otherwise as published.")
@click.option("--rows", type=click.IntRange(min=1), default=50, help="The most rows to print; 50 if left out.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV.")
@common
def query(folder: Path, sql: str, level: float | None, rows: int, as_csv: bool, as_json: bool, quiet: bool) -> None:
    """Answer SQL from what was measured, with margins of error. Reads no data, spends nothing."""
    found = open_published(folder)
    tables = list(asked_tables(found, sql, level=level))
    _print(found, tables, rows, Output(as_json, quiet), as_csv=as_csv)


@click.command()
@click.argument("folder", type=FILE)
@click.argument("table", required=False)
@click.option("--level", type=ConfidenceLevel(), help="The confidence level of the intervals; otherwise as published.")
@click.option("--rows", type=click.IntRange(min=1), default=50, help="The most rows to print; 50 if left out.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV.")
@common
def show(
    folder: Path, table: str | None, level: float | None, rows: int, as_csv: bool, as_json: bool, quiet: bool
) -> None:
    """Show a published table, or counts by columns such as sex,age; or list what there is.

    Reads no data, spends nothing.
    """
    found = open_published(folder)
    out = Output(as_json, quiet)
    if table is None:
        out.say(f"{found.release.privacy}, hiding {found.release.unit}.")
        out.say(f"Tables: {', '.join(found.tables) or 'none'}", f"Columns: {', '.join(found.columns)}")
        out.result({**_facts(found), "published": list(found.tables), "columns": list(found.columns)})
        return
    shown = shown_table(found, table, level=level)
    if as_csv and table in found.tables and not as_json:  # with all columns that were published
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
        _say(table, rows, out)
    out.say(*_remarks(tables))
    if any(table.biased for table in tables):
        out.say(COUNTS.get(found.kind, "These estimates are biased."))
    out.say("The numbers are from the release; nothing was spent.")
    out.result({**_facts(found), "tables": [_table_facts(table) for table in tables]})


def _say(table: Table, most: int, out: Output) -> None:
    if not out.speaks:
        return
    header = [*table.attributes, "biased estimate" if table.biased else "estimate", "±", "from", "to"]
    header += ["from,\nwith bins", "to,\nwith bins"] if table.bins is not None else []
    lines: list[list[str]] = []
    for printed in islice(table.printed(), most):
        row, words = ShownRow.of(printed), map(printable, printed.labels)
        numbers = row.estimate, row.margin.removeprefix("± "), row.lower, row.upper
        lines.append([*words, *numbers, *((row.bins or ("", "")) if table.bins is not None else ()), row.grade])
    title = f"{table.name}: {len(table):,} row{'s' * (len(table) != 1)}, intervals of {100 * table.level:g} %"
    out.table(title, [*header, "reliability"], lines, texts=len(table.attributes))
    if len(table) > most:
        out.say(f"… {len(table) - most:,} more rows; --rows shows more of them, --csv all.")


def _remarks(tables: Sequence[Table]) -> list[str]:
    """What the words in the last column mean, where some number is not good."""
    notes = {note for table in tables for note in table.notes}
    rule = tables[0].reliability
    grades = f"good: the margin is at most {min(GOOD, rule.fair):.3g} of the number; fair: at most {rule.fair:.3g}; "
    said = [f"{grades}rough: more; may be 0: the interval includes 0."] if notes - {"good", "impossible"} else []
    return [*said, BINNED] if any(table.bins is not None for table in tables) else said


def _facts(found: Published) -> dict[str, Json]:
    unit = found.release.unit
    return {
        "folder": str(found.folder),
        "privacy": privacy_facts(found.release.privacy),
        "unit": {"rows": unit.rows, "neighbours": unit.neighbours},
    }


def _table_facts(table: Table) -> Json:
    bounds = () if table.bins is None else (table.bins.lower, table.bins.upper)
    columns = ([x if math.isfinite(x) else None for x in each.tolist()] for each in (*table.numbers, *bounds))
    everything = zip(table.labels(), *columns, table.reliable.tolist(), table.notes, strict=True)
    header = table.header((*number_columns(table), *RELIABILITY_COLUMNS))
    return {
        "name": table.name,
        "level": table.level,
        "biased": table.biased,
        "columns": list(table.attributes),
        **({} if table.bins is None else {"bins": BINNED}),
        "rows": [dict(zip(header, [*labels, *values], strict=True)) for labels, *values in everything],
    }
