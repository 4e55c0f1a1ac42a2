"""A record for the registry of deployments of differential privacy that OpenDP keeps, at its most complete tier.

The registry asks for YAML by a schema (github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml).
What a release says is written. What only the office knows is marked, also where one of the answers that the schema
lists must stand there.
"""

from __future__ import annotations

import json
import re
from typing import Final

from hdmm.base.numbers import figure, many
from hdmm.base.templates import templates
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP
from hdmm.publication.protection import float_up
from hdmm.publication.report.contents import Report, listed, method_facts, quotable

TO_FILL_IN: Final = "TO FILL IN"
"""What stands where the office must write."""

TO_CHECK: Final = "TO CHECK"
"""What stands in a comment where the office must look: what else the answer may be, which is the usual one."""

_MOST_NAMED = 20  # tables


def record_of(report: Report, units: int | None = None) -> str:
    """The record of a release as YAML. `units` is about how many rows or persons are protected, if that is known."""
    variant, parameters = _variant(report)
    found = templates("hdmm.publication", listed=listed, many=many, text=_text, number=_number)
    return found.get_template("registry.yaml").render(
        report=report,
        about=report.letterhead,
        facts=dict(method_facts(report)),
        missing=TO_FILL_IN,
        check=TO_CHECK,
        slug=re.sub(r"[^a-z0-9]+", "-", report.title.lower()).strip("-") or TO_FILL_IN,
        titles=[table.title for table in report.tables[:_MOST_NAMED]],
        variant=variant,
        parameters=parameters,
        counted=" ".join(report.counted()),
        units=units,
        errors=_errors(report),
        quotable=quotable(report),
    )


def _variant(report: Report) -> tuple[str, dict[str, float]]:
    """The name of the guarantee in the registry, and its parameters, rounded up."""
    match report.privacy:
        case PureDP(epsilon):
            return "Pure DP", {"epsilon": float_up(epsilon)}
        case ApproxDP(epsilon, delta):
            return "Approximate DP", {"epsilon": float_up(epsilon), "delta": float_up(delta)}
        case ZCDP() | GaussianDP():
            return "Zero-concentrated DP", {"rho": float_up(report.privacy.rho)}


def _errors(report: Report) -> str:
    found = [
        f"{table.title}: {figure(table.forecast.rmse)}"
        for table in report.tables[:_MOST_NAMED]
        if table.forecast is not None and table.forecast.rmse is not None
    ]
    return f"Typical errors, known before the data was read: {'; '.join(found)}." if found else ""


def _number(value: float) -> str:
    """A number as YAML of either version reads it: in 1.1 one without a point is text.

    >>> _number(1e-9), _number(0.5)
    ('1.0e-09', '0.5')
    """
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _text(value: str) -> str:
    """Text as it stands between double quotes in JSON, which YAML contains."""
    return json.dumps(value, ensure_ascii=False)[1:-1]
