"""Facts as lines for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hdmm.answers.table import Forecast
from hdmm.apps.cli.output import printable
from hdmm.base.numbers import up
from hdmm.io.strict_json import Json
from hdmm.privacy.guarantee import Unit
from hdmm.privacy.hidden import shown_unit
from hdmm.privacy.names import shown_name
from hdmm.publication.budget import Budget
from hdmm.publication.metadata import privacy_facts
from hdmm.publication.outlook import DELTA
from hdmm.publication.spec import Spec

_MOST_FILES = 20
_MOST_TOLD_FILES = 1000


def spec_facts(spec: Spec) -> dict[str, Json]:
    """What a specification asks for."""
    return {
        "spec": str(spec.path),
        "dataset": spec.data.dataset,
        "privacy": privacy_facts(spec.privacy),
        "unit": unit_facts(spec.unit),
        "cells": spec.domain.size,
        "tables": [
            {
                "name": t.name,
                "title": t.title,
                "rows": t.rows,
                "weight": t.weight,
                "margin": t.margin,
                "columns": list(t.columns),
            }
            for t in spec.tables
        ],
    }


def unit_facts(unit: Unit) -> Json:
    """A unit of privacy."""
    return {"rows": unit.rows, "neighbours": unit.neighbours, "id": unit.id}


def files_lines(files: Sequence[Path]) -> list[str]:
    """The files that a release will read, in words; nothing if the data is not in files."""
    if not files:
        return []
    more = [f"  … and {len(files) - _MOST_FILES:,} more"] if len(files) > _MOST_FILES else []
    count = "1 file" if len(files) == 1 else f"{len(files):,} files"
    return [f"A release reads {count}:", *(f"  {printable(str(file))}" for file in files[:_MOST_FILES]), *more]


def file_facts(files: Sequence[Path]) -> Json:
    """How many files a release will read, and the first of them."""
    return {"count": len(files), "first": [str(file) for file in files[:_MOST_TOLD_FILES]]}


def forecast_facts(expected: Sequence[Forecast]) -> list[Json]:
    """The errors of tables."""
    return [
        {
            "table": f.name,
            "rmse": f.rmse,
            "identity": f.identity,
            "direct": f.direct,
            "bound": f.bound,
            "assumed": f.assumed,
        }
        for f in expected
    ]


def near_line(account: Budget) -> str:
    """What to ask oneself before a name near others opens an account, in words."""
    near = " and ".join(map(shown_name, account.near))
    return (
        f"Dataset {shown_name(account.dataset)} has no account yet, but its name is like {near}, which has one in "
        "the same ledger. If it is about the same people, write that name in [data], so that one budget counts."
    )


def secret_line(spec: Spec) -> str:
    """What to do about a password in a specification, in words."""
    return (
        f"A password, token or key is written into source in {spec.path}, where everybody who reads the file sees it. "
        "Take it out: put it into ~/.pgpass or PGPASSWORD, or write ${PASSWORD} in its place."
    )


def budget_facts(account: Budget) -> dict[str, Json]:
    """What is spent and left, and every record."""
    return {
        "dataset": account.dataset,
        "parameter": account.parameter,
        "unit": None if account.unit is None else unit_facts(account.unit),
        "cap": str(account.cap),
        "spent": str(account.spent),
        "remaining": str(account.remaining),
        "entries": [
            {
                "sequence": e.sequence,
                "kind": e.kind,
                "amount": str(e.amount),
                "text": e.text,
                "hash": e.hash,
                "timestamp": e.timestamp,
            }
            for e in account.entries
        ],
    }


def budget_line(account: Budget) -> str:
    """What is spent and left, in words."""
    cap, spent, left = map(account.shown, (account.cap, account.spent, account.remaining))
    hidden = "" if account.unit is None else f" The amounts hide {shown_unit(account.unit)}."
    return f"Dataset {account.dataset!r}: {left} left of {cap}; {spent} spent.{_together(account)}{hidden}"


def _together(account: Budget) -> str:
    """What all debits of an account in ρ guarantee, as ε with δ."""
    if account.parameter == "epsilon" or account.spent == 0:
        return ""
    epsilon = up(float(account.spending.epsilon_at(DELTA)), 3)
    return f" All debits together have ε = {epsilon} at δ = 10⁻⁹."


def budget_rows(account: Budget) -> list[list[str]]:
    """The records, as cells to print."""
    return [
        [
            str(e.sequence),
            e.timestamp,
            e.kind,
            account.shown(e.amount) if e.amount else "",
            ""
            if e.kind == "create"
            else e.text,  # in that record it is the ledger's own number, which means nothing to people
        ]
        for e in account.entries
    ]
