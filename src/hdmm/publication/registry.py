"""A record for the registry of deployments of differential privacy that OpenDP keeps, at its most complete tier.

The registry asks for YAML by a schema (github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml).
What a release says is written. What only the office knows is marked, also where one of the answers that the schema lists
must stand there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final, cast

from hdmm.base.numbers import figure, many
from hdmm.io.strict_json import Json
from hdmm.privacy.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP
from hdmm.publication.report.contents import Report, counted_rows, listed
from hdmm.publication.report.method import method_facts, quotable

TO_FILL_IN: Final = "TO FILL IN"
"""What stands where the office must write."""

TO_CHECK: Final = "TO CHECK"
"""What stands in a comment where the office must look."""

_TO_CHECK = {
    "data_curator_type": "Government, Industry or Nonprofit",
    "data_product_sector": "Technology, Healthcare, Education, Government, Energy or Finance",
    "data_source_type": "Static or Dynamic",
    "preprocessing_and_hyperparameter_tuning": "what else was done with the data, also for earlier releases",
    "trust_assumptions": "who else holds the data",
}
"""Keys about which a release is silent: what stands there is usual for an office, and what else there may be."""

_MOST_NAMED = 20  # tables
_NO_PREPARATION = (
    "Values, bounds, tables and privacy parameters were declared before the release, from public knowledge, and the "
    "strategy was chosen from these declarations alone."
)
_TRUST = "The publisher holds the data and is trusted with it. Readers of the tables need not be trusted."


def record_of(report: Report, units: int | None = None) -> str:
    """The record of a release as YAML. `units` is about how many rows or persons are protected, if that is known."""
    return "".join(f"{line}\n" for line in _lines(_record(report, units)))


def _record(report: Report, units: int | None) -> dict[str, Json]:
    about, facts = report.letterhead, dict(method_facts(report))
    counted = " ".join(counted_rows(report.strategy.domain, most_rows=report.most_rows, where=report.where))
    variant, parameters = _variant(report)
    receipts = report.receipts
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", report.title.lower()).strip("-") or TO_FILL_IN,
        "deployment": {
            "basic": {
                "name": report.title,
                "data_curators": [
                    {"data_curator_name": about.organisation or TO_FILL_IN, "data_curator_type": "Government"}
                ],
                "description": f"{many(report.counts, 'number')} in {many(len(report.tables), 'table')}: "
                f"{listed([table.title for table in report.tables[:_MOST_NAMED]])}"
                f"{' and others' if len(report.tables) > _MOST_NAMED else ''}.",
                "intended_use": about.use or TO_FILL_IN,
                "data_product_type": "Summary statistics",
                "data_product_region": about.region or TO_FILL_IN,
                "data_product_sector": "Government",
                "publication_date": report.created[:10],
            },
            "dp_variant": {
                "variant_name": variant,
                "data_domain": f"Tables of rows with these columns. {counted}",
                "unprotected_quantities": f"Counts {listed(report.known)} were public." if report.known else "None.",
            },
            "privacy_loss": {
                "privacy_unit": "Row" if report.most_rows is None else "Person",
                "privacy_unit_details": f"Two datasets are adjacent if they differ by {report.unit}.",
                **({} if units is None else {"number_of_privacy_units": units}),
                "privacy_parameters": parameters,
                "privacy_parameters_details": f"The release satisfies {report.guarantee}.",
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "The publisher adds noise before anything is published.",
                "trust_assumptions": _TRUST,
                "actors": "Those whose rows are counted; the publisher; readers of the tables.",
                "release_type": "One release" if len(receipts) < 2 else "Many releases",
                "release_type_details": "A ledger adds up what all releases from the data spend, and refuses what "
                "exceeds its cap.",
                "data_source_type": "Static",
                "data_source_type_details": f"Period: {about.period or TO_FILL_IN}",
                "access_type": "Non-interactive",
                "access_type_details": "The tables are published as they are; nobody queries the data.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"{_NO_PREPARATION} {counted}",
                "mechanisms": f"{facts['Noise']} noise on linear queries, by the High-Dimensional Matrix Mechanism "
                f"({facts['Software']}). Noise is drawn exactly, in integers, from the randomness of the operating "
                "system, so that no rounding of floating-point numbers weakens it.",
                "composition": "Sequential: the losses of all releases from the data add up in a ledger with a cap.",
                "post_processing": f"{facts['Estimates']}.",
                "justification": TO_FILL_IN,  # of the privacy parameters
                "utility": f"Every number has an interval of {100 * report.level:g} %. {_errors(report)}",
                "additional_information": quotable(report),
            },
            "administrative": {
                "evidence_sources": {
                    "report": {
                        "evidence_source_type": "Formal publication by the deploying organization",
                        "misc": {"title": report.title, "year": report.created[:4]},
                    }
                },
                "status": "Draft",
                "registry_authors": [about.contact or TO_FILL_IN],
                "tier": 3,
            },
        },
    }


def _variant(report: Report) -> tuple[str, dict[str, Json]]:
    """The name of the guarantee in the registry, and its parameters, rounded up."""
    match report.privacy:
        case PureDP(epsilon):
            return "Pure DP", {"epsilon": _up(epsilon)}
        case ApproxDP(epsilon, delta):
            return "Approximate DP", {"epsilon": _up(epsilon), "delta": _up(delta)}
        case ZCDP() | GaussianDP():
            return "Zero-concentrated DP", {"rho": _up(report.privacy.rho)}


def _up(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def _errors(report: Report) -> str:
    found = [
        f"{table.title}: {figure(table.forecast.rmse)}"
        for table in report.tables[:_MOST_NAMED]
        if table.forecast is not None and table.forecast.rmse is not None
    ]
    return f"Typical errors, known before the data was read: {'; '.join(found)}." if found else ""


def _lines(value: Json, indent: str = "") -> Iterator[str]:
    """A mapping or a list as YAML, every text in double quotes, as in JSON, which YAML contains.

    Comments mark what the office has to check.
    """
    items: list[tuple[str, Json]]
    if isinstance(value, dict):
        items = [(f"{key}:", each) for key, each in value.items()]
    else:
        items = [("-", each) for each in cast(Sequence[Json], value)]
    for start, each in items:
        if isinstance(each, dict | list):
            yield f"{indent}{start}"
            yield from _lines(each, f"{indent}  ")
        else:
            check = _TO_CHECK.get(start.removesuffix(":"))
            comment = "" if check is None else f"  # {TO_CHECK}: {check}"
            yield f"{indent}{start} {json.dumps(each, ensure_ascii=False)}{comment}"
