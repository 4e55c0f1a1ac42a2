"""What was found in the data, as lines for its keeper and as JSON: not private, and never written to a file."""

from __future__ import annotations

import sys

import click

from hdmm.apps.cli.output import Output, printable, warn
from hdmm.data import Data
from hdmm.data.inspect import Look, Misses, look
from hdmm.io.strict_json import Json

_NOT_PRIVATE = (
    "this reads the data and prints facts about real people, without noise and without a charge to the budget. Share "
    "or publish nothing of it. Declare what is publicly known: a domain that is fitted to the data reveals data."
)
_RULE_WORDS = {"drop": "dropped", "other": "counted as other"}
_MOST_LABELS_SHOWN = 10


def refuse_to_look(out: Output, *, looks: bool, yes: bool) -> None:
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


def show_look(data: Data, out: Output) -> Json:
    """Read the rows, print what the domain misses, and return it for programs."""
    warn(f"NOT PRIVATE: {_NOT_PRIVATE}")
    found = look(data)
    out.say("", f"NOT PRIVATE: {found.counted:,} of {found.rows:,} rows are counted.", *_uncounted(found))
    out.table(
        "NOT PRIVATE: rows with a value outside the domain, by attribute",
        ["attribute", "column", "such rows are", "rows", "without a value"],
        [[m.attribute, m.column, _RULE_WORDS[m.rule], f"{m.outside:,}", f"{m.missing:,}"] for m in found.attributes],
        texts=3,
    )
    if any(misses.missing for misses in found.attributes):
        out.say("In CSV, text that is not UTF-8 counts as no value. Save such a file as UTF-8.")
    lines = [line for misses in found.attributes if misses.unmatched for line in _unmatched(misses)]
    out.say(*map(printable, lines or ["Every label is in the data."]))
    out.say(f"NOT PRIVATE: {_NOT_PRIVATE}")
    return _facts(found)


def _uncounted(found: Look) -> list[str]:
    """Why rows are not counted, and how many."""
    reasons = [
        (found.dropped, "a value is outside an attribute that drops such rows"),
        (found.without_id, "the id is missing"),
        (found.beyond, "their person has max_rows_per_id others"),
    ]
    return [f"  {rows:,} are not: {why}" for rows, why in reasons if rows]


def _facts(found: Look) -> Json:
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


def _unmatched(misses: Misses) -> list[str]:
    shown = ", ".join(map(repr, misses.unmatched[:_MOST_LABELS_SHOWN]))
    more = (
        f" and {len(misses.unmatched) - _MOST_LABELS_SHOWN:,} more"
        if len(misses.unmatched) > _MOST_LABELS_SHOWN
        else ""
    )
    lines = [f"No row has these labels of {misses.attribute!r}: {shown}{more}."]
    if misses.nearly:
        pairs = ", ".join(f"{text!r} for {label!r}" for label, text in misses.nearly[:_MOST_LABELS_SHOWN])
        lines.append(f"  The data has {pairs}: text is compared exactly, case and spaces included.")
    return lines
