"""The command that checks a specification; on request it also looks at the data, and shows what is NOT private."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from hdmm.apps.cli.options import FILE, SpecOverrides, common, specified
from hdmm.apps.cli.output import ERROR, Output, failed, printable, refuse, warn
from hdmm.apps.facts import budget_facts, spec_facts
from hdmm.base.exceptions import BudgetError, HdmmError
from hdmm.base.hints import first_of
from hdmm.base.numbers import many
from hdmm.data import Data
from hdmm.data.inspect import AttributeReport, DomainReport, inspect_rows
from hdmm.data.records import doubtful_types, read_files
from hdmm.publication.budget import Budget, budget_of
from hdmm.publication.preflight import refusals, replaced, secret_warning
from hdmm.publication.protection import in_full
from hdmm.publication.spec import Spec
from hdmm.publication.spec.origin import open_data

_NOT_READ = (
    "No rows were read. Rows outside the domain, text that is not UTF-8 and labels that never occur would spend a "
    "budget on noise; those who may see the data find them with --look-at-data."
)
_NOT_PRIVATE = (
    "this reads the data and prints facts about real people, without noise and without a charge to the budget. Share "
    "or publish nothing of it. Declare what is publicly known: a domain that is fitted to the data reveals data."
)
_RULE_WORDS = {"drop": "dropped", "other": "counted as other"}
_MOST_LABELS_SHOWN = 10
_MOST_FILES_SHOWN = 20
_MOST_FILES = 1000  # in JSON


@click.command()
@click.argument("spec", type=FILE)
@click.option(
    "--look-at-data", "looks", is_flag=True, help="Also read the rows, and show what is outside. NOT PRIVATE."
)
@click.option("--yes", is_flag=True, help="Show it even if the output is not a terminal.")
@click.option("--strict", is_flag=True, help="Exit with an error for warnings, too.")
@specified
@common
def check(spec: Path, looks: bool, yes: bool, strict: bool, given: SpecOverrides, out: Output) -> None:
    """Check a specification, the columns of its data and its ledger. Reads no rows unless asked to, spends nothing.

    The exit code is not 0 if a release would be refused at present.
    """
    if looks or yes:
        _refuse_to_look(out, looks=looks, yes=yes)
    found = given.load(spec)
    data = None if found.data.source is None and not looks else open_data(found)
    account = budget_of(found)
    refused, warnings = refusals(found, account), _warnings(found, account, data)
    rows = [[t.name, t.title, f"{t.rows:,}", f"{t.weight:g}"] for t in found.tables]
    title = f"{spec}: {many(len(rows), 'table')} over {found.domain.size:,} cells"
    out.table(title, ["table", "title", "rows", "weight"], rows, texts=2)
    out.say(f"A release spends {in_full(found.privacy)}, hiding {found.unit}.", account.summary)
    files = () if data is None else tuple(Path(found.masked(str(file))) for file in read_files(data))
    out.say(*_files_lines(files), *([] if data is None else ["The data has all columns."]))
    out.say(*warnings, style="yellow")
    if not looks:
        out.say(_NOT_READ)
    facts: dict[str, object] = {
        "ok": not refused,
        **spec_facts(found),
        "budget": budget_facts(account),
        "payable": not any(isinstance(wrong, BudgetError) for wrong in refused),
        "refused": [str(wrong) for wrong in refused],
        "warnings": warnings,
        "rows_read": looks,
        "near": account.near,
        "advice": found.advice,
    }
    if data is not None:
        facts["files"] = {"count": len(files), "first": files[:_MOST_FILES]}
        if looks:
            facts["not_private"] = _show_look(data, out)
    out.result(facts)
    _end(refused, warnings if strict else [], as_json=out.as_json)


def _warnings(spec: Spec, account: Budget, data: Data | None) -> list[str]:
    """Findings for which no release is refused, but which may not be intended."""
    warned = [account.name_warning, replaced(spec), secret_warning(spec)]
    columns = ["No data is named, so its columns were not checked."] if data is None else doubtful_types(data)
    return [*filter(None, warned), *columns, *spec.advice]


def _end(refused: Sequence[HdmmError], warnings: Sequence[str], *, as_json: bool) -> None:
    """End the command with the exit code of a release; warnings are given only if they count as errors."""
    if refused:
        whole = f"At present a release would be refused. {' '.join(map(str, refused))}"
        raise click.exceptions.Exit(failed(type(refused[0])(whole), as_json=as_json))
    if warnings:
        refuse(f"With --strict, warnings are errors. {' '.join(warnings)}", "Warnings", ERROR, as_json=as_json)
        raise click.exceptions.Exit(ERROR)


def _files_lines(files: Sequence[Path]) -> list[str]:
    """The files that a release will read, in words; nothing if the data is not in files."""
    if not files:
        return []
    more = [f"  … and {len(files) - _MOST_FILES_SHOWN:,} more"] if len(files) > _MOST_FILES_SHOWN else []
    shown = (f"  {printable(str(file))}" for file in files[:_MOST_FILES_SHOWN])
    return [f"A release reads {many(len(files), 'file')}:", *shown, *more]


def _refuse_to_look(out: Output, *, looks: bool, yes: bool) -> None:
    """Refuse to show what is found in the data, except on a terminal or if the user says so."""
    if not looks:
        raise click.UsageError("--yes belongs to --look-at-data. Without it hdmm check reads no rows.")
    if out.quiet:
        raise click.UsageError("--look-at-data prints what it finds. Leave out --quiet.")
    if not yes and not sys.stdout.isatty():
        raise click.UsageError(
            "--look-at-data prints facts about the people in the data, but the output is not a terminal. Add --yes if "
            "nobody else will see it."
        )


def _show_look(data: Data, out: Output) -> dict[str, object]:
    """Read the rows, print what the domain misses, and return it for programs."""
    warn(f"NOT PRIVATE: {_NOT_PRIVATE}")
    found = inspect_rows(data)
    out.say("", f"NOT PRIVATE: {found.counted:,} of {found.rows:,} rows are counted.", *_uncounted(found))
    out.table(
        "NOT PRIVATE: rows with a value outside the domain, by attribute",
        ["attribute", "column", "such rows are", "rows", "without a value"],
        [[m.attribute, m.column, _rule_of(m, data), f"{m.outside:,}", f"{m.missing:,}"] for m in found.attributes],
        texts=3,
    )
    if any(report.missing for report in found.attributes):
        out.say("In CSV, text that is not UTF-8 counts as no value. Save such a file as UTF-8.")
    lines = [line for report in found.attributes if report.unmatched for line in _unmatched(report)]
    out.say(*map(printable, lines or ["Every label is in the data."]))
    out.say(f"NOT PRIVATE: {_NOT_PRIVATE}")
    return _facts(found)


def _rule_of(report: AttributeReport, data: Data) -> str:
    """What happens to rows with such a value, in words."""
    is_amount = report.attribute in data.domain.names and data.domain[report.attribute].values.divided
    return "in no sum of it" if is_amount else _RULE_WORDS[report.rule]


def _uncounted(found: DomainReport) -> list[str]:
    """Why rows are not counted, and how many."""
    reasons = [
        (found.dropped, "a value is outside an attribute that drops such rows"),
        (found.without_id, "the id is missing"),
        (found.beyond, "their person has max_rows_per_id others"),
    ]
    return [f"  {rows:,} {'is' if rows == 1 else 'are'} not: {why}" for rows, why in reasons if rows]


def _facts(found: DomainReport) -> dict[str, object]:
    """What was found, for programs."""
    return {
        "warning": f"NOT PRIVATE: {_NOT_PRIVATE}",
        "rows": found.rows,
        "counted": found.counted,
        "dropped": found.dropped,
        "without_id": found.without_id,
        "beyond_max_rows_per_id": found.beyond,
        "attributes": [
            {
                "attribute": m.attribute,
                "column": m.column,
                "outside": m.rule,
                "rows_outside": m.outside,
                "rows_missing": m.missing,
                "labels_unmatched": [label if isinstance(label, str | int) else str(label) for label in m.unmatched],
                "nearly": [{"label": label, "data": text} for label, text in m.nearly],
            }
            for m in found.attributes
        ],
    }


def _unmatched(report: AttributeReport) -> list[str]:
    shown = first_of(list(map(repr, report.unmatched)), _MOST_LABELS_SHOWN)
    lines = [f"No row has these labels of {report.attribute!r}: {shown}."]
    if report.nearly:
        pairs = first_of([f"{text!r} for {label!r}" for label, text in report.nearly], _MOST_LABELS_SHOWN)
        lines.append(f"  The data has {pairs}: text is compared exactly, case and spaces included.")
    return lines
