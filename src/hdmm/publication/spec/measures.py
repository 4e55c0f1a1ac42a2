"""Sums, means, quantiles and percentages without SQL: the SQL that a table's keys stand for."""

from __future__ import annotations

from collections.abc import Sequence

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.attribute import Attribute, naming
from hdmm.describe.domain import Domain
from hdmm.publication.spec.document import Document
from hdmm.publication.spec.keys import TableKeys
from hdmm.sql import quantile_sql, quoted, select_sql

_QUARTILES = (0.25, 0.5, 0.75)


def is_measured(keys: TableKeys) -> bool:
    """Whether a table asks for something else than counts."""
    return keys.sum is not None or keys.mean is not None or keys.quantiles is not None


def measured_sql(document: Document, i: int, keys: TableKeys, domain: Domain, by: Sequence[str]) -> str:
    """The statement that the keys of a table stand for: SELECT groups, aggregates FROM t GROUP BY groups."""
    if keys.ranges and (is_measured(keys) or keys.percent is not None):
        raise document.error(
            ("table", i, "ranges"),
            "Ranges overlap, so they have no totals, means or quantiles. Leave ranges out, or use another table.",
        )
    if is_measured(keys) and keys.percent is not None:
        raise document.error(("table", i, "percent"), "Percentages are of counts. Leave out sum, mean and quantiles.")
    asked = [*_sums(document, i, keys, domain), *_quantiles(document, i, keys, domain)] or ["COUNT(*)"]
    return select_sql(by, asked)


def _sums(document: Document, i: int, keys: TableKeys, domain: Domain) -> list[str]:
    found: list[str] = []
    for key, function, given in (("sum", "SUM", keys.sum), ("mean", "AVG", keys.mean)):
        for attribute in _named(document, i, key, given or (), domain):
            with document.locating("table", i, key), naming(attribute.name):
                attribute.values.number(0)  # raises where there are none
            found.append(f"{function}({quoted(attribute.name)}) AS {quoted(f'{key} of {attribute.name}')}")
    return found


def _quantiles(document: Document, i: int, keys: TableKeys, domain: Domain) -> list[str]:
    given = keys.quantiles if isinstance(keys.quantiles, dict) else dict.fromkeys(keys.quantiles or (), _QUARTILES)
    found: list[str] = []
    for attribute in _named(document, i, "quantiles", list(given), domain):
        with document.locating("table", i, "quantiles"):
            found += quantile_sql(attribute, given[attribute.name], f"of {attribute.name}")
    return found


def _named(document: Document, i: int, key: str, given: str | Sequence[str], domain: Domain) -> list[Attribute]:
    names = [given] if isinstance(given, str) else list(given)
    with document.locating("table", i, key):
        if len(set(names)) < len(names):
            raise WorkloadError("An attribute is named twice. Name each once.")
        domain.named(names, f"in {key}")
    return [domain[name] for name in names]
