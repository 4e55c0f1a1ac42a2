"""Facts as lines for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence

from hdmm.forecast import Forecast
from hdmm.io.strict_json import Json
from hdmm.publication import Standing, told_privacy
from hdmm.spec import Spec


def told_spec(spec: Spec) -> dict[str, Json]:
    """What a specification asks for."""
    return {
        "spec": str(spec.path),
        "dataset": spec.data.dataset,
        "privacy": told_privacy(spec.privacy),
        "unit": {"rows": spec.unit.rows, "neighbours": spec.unit.neighbours},
        "cells": spec.domain.size,
        "tables": [
            {"name": t.name, "title": t.title, "rows": t.rows, "weight": t.weight, "columns": list(t.columns)}
            for t in spec.tables
        ],
    }


def told_forecasts(expected: Sequence[Forecast]) -> list[Json]:
    """The errors of tables."""
    return [
        {
            "table": f.table.name,
            "rmse": f.rmse,
            "identity": f.identity,
            "direct": f.direct,
            "bound": f.bound,
        }
        for f in expected
    ]


def told_budget(account: Standing) -> dict[str, Json]:
    """What is spent and left, and every record."""
    return {
        "dataset": account.dataset,
        "parameter": account.parameter,
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


def budget_line(account: Standing) -> str:
    """What is spent and left, in words."""
    cap, spent, left = map(account.shown, (account.cap, account.spent, account.remaining))
    return f"Dataset {account.dataset!r}: {left} left of {cap}; {spent} spent."


def budget_rows(account: Standing) -> list[list[str]]:
    """The records, as cells to print."""
    return [
        [str(e.sequence), e.timestamp, e.kind, account.shown(e.amount) if e.amount else "", e.text]
        for e in account.entries
    ]
