"""Facts for programs: what a command found, as JSON. A dataclass is published by its fields, which are the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import cast

from hdmm.answers.table import Forecast
from hdmm.io.strict_json import Json
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP
from hdmm.publication.budget import Budget
from hdmm.publication.metadata import privacy_facts
from hdmm.publication.spec import Spec


def to_json(value: object) -> Json:
    """A value as JSON: exact amounts and paths as text, a guarantee by its parameters and its meaning.

    >>> to_json({"left": Fraction(1, 2), "in": Path("out"), "privacy": PureDP(1)})["privacy"]["epsilon"]
    '1'
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Fraction() | Path():
            return str(value)
        case PureDP() | ApproxDP() | ZCDP() | GaussianDP():
            return privacy_facts(value)
        case Mapping():
            return {key: to_json(each) for key, each in cast(Mapping[str, object], value).items()}
        case list() | tuple():
            return [to_json(each) for each in cast(Sequence[object], value)]
        case _ if is_dataclass(value):
            return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
        case _:
            raise TypeError(f"A {type(value).__name__} is not published.")


def spec_facts(spec: Spec) -> dict[str, object]:
    """What a specification asks for."""
    names = ("name", "title", "rows", "weight", "margin", "columns")
    return {
        "spec": spec.path,
        "dataset": spec.data.dataset,
        "privacy": spec.privacy,
        "unit": spec.unit,
        "cells": spec.domain.size,
        "tables": [named(table, *names) for table in spec.tables],
    }


def forecast_facts(expected: Sequence[Forecast]) -> list[dict[str, object]]:
    """The errors of tables."""
    errors = ("rmse", "identity", "direct", "bound", "assumed")
    return [{"table": each.name, **named(each, *errors)} for each in expected]


def budget_facts(account: Budget) -> dict[str, object]:
    """What is spent and left, and every record; amounts are exact."""
    record = ("sequence", "kind", "amount", "text", "hash", "timestamp")
    return {
        **named(account, "dataset", "parameter", "unit", "cap", "spent", "remaining"),
        "entries": [named(entry, *record) for entry in account.entries],
    }


def named(value: object, *names: str) -> dict[str, object]:
    """These attributes of a value."""
    return {name: getattr(value, name) for name in names}
