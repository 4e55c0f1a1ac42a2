"""The data dictionary of a publication: a Frictionless Data Package, which describes every file of `tables`.

It says what each column holds and which are estimates and margins, and has the size and the SHA-256 of every file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from hdmm.answers.reliability import GRADES
from hdmm.answers.table import BINNED, Table
from hdmm.io.strict_json import Json
from hdmm.measure.chunked_release import AnyRelease
from hdmm.publication.files import RELIABILITY_COLUMNS, file_columns
from hdmm.publication.metadata import COUNTS, rows_meaning
from hdmm.publication.report_page import measured_at
from hdmm.publication.spec import Spec

_ROUNDED = "Every row has the digits that its own noise leaves a meaning; the Parquet file has all digits."


def data_package(spec: Spec, release: AnyRelease, tables: Sequence[Table], folder: Path) -> dict[str, Json]:
    """The content of datapackage.json for tables that are written in the folder."""
    return {
        "profile": "data-package",
        "title": spec.title,
        "created": measured_at(release),
        "description": f"{release.privacy}, hiding {release.unit}. {rows_meaning(spec)} {COUNTS[spec.output.counts]}",
        "resources": [resource for table in tables for resource in _resources(table, folder)],
    }


def _resources(table: Table, folder: Path) -> list[Json]:
    """A table as CSV, with its schema, and as Parquet."""
    notes = " ".join(filter(None, (table.note, None if table.bins is None else BINNED)))
    described = {"title": table.title, **({"description": notes} if notes else {})}
    name = table.name.lower()  # names differ in more than case, and hold no dots
    return [
        {
            "name": name,
            **_file(folder, f"tables/{table.name}.csv"),
            "profile": "tabular-data-resource",
            **described,
            **({} if table.definition is None else {"sql": table.definition}),
            "format": "csv",
            "mediatype": "text/csv",
            "encoding": "utf-8",
            "dialect": {
                "delimiter": ",",
                "lineTerminator": "\r\n",
                "quoteChar": '"',
                "doubleQuote": True,
                "header": True,
            },
            "schema": {"fields": _fields(table), "missingValues": [""]},
        },
        {
            "name": f"{name}.parquet",
            **_file(folder, f"tables/{table.name}.parquet"),
            "profile": "data-resource",
            **described,
            "format": "parquet",
            "mediatype": "application/vnd.apache.parquet",
        },
    ]


def _file(folder: Path, path: str) -> dict[str, Json]:
    with open(folder / path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"path": path, "bytes": os.fstat(file.fileno()).st_size, "hash": f"sha256:{digest}"}


def _fields(table: Table) -> list[Json]:
    """The columns of the CSV file. `role` says which are labels, ends of bins, estimates and margins."""
    columns = file_columns(table)
    fields: dict[int, dict[str, Json]] = {}
    for place, title in zip(columns.labels, table.heads, strict=True):
        fields[place] = {"type": "string", "role": "label", "title": title, "description": _LABEL}
    for low, high in columns.ends:
        fields[low] = {"type": "number", "role": "range", "description": "The lower end, which is in the range."}
        fields[high] = {"type": "number", "role": "range", "description": "The upper end, which is not in the range."}
    fields |= dict(enumerate(_number_fields(table), start=len(fields)))
    return [{"name": name, **fields[place]} for place, name in enumerate(columns.header)]


def _number_fields(table: Table) -> list[dict[str, Json]]:
    """The columns of numbers, and those of reliability if there are any."""
    level = f"{100 * table.level:g} %"
    estimate = "A biased estimate: see the description of the package." if table.biased else "An unbiased estimate."
    described = [
        ("estimate", f"{estimate} {_ROUNDED}"),
        ("stddev", "The standard deviation of the unbiased estimate, rounded up."),
        ("margin", f"The lower end of the {level} interval, rounded outward."),
        ("margin", f"The upper end of the {level} interval, rounded outward."),
    ]
    if table.bins is not None:
        which = "end of the interval that covers noise and bins: inf or -inf if unbounded."
        described += [("margin", f"The lower {which}"), ("margin", f"The upper {which}")]
    found: list[dict[str, Json]] = [{"type": "number", "role": role, "description": text} for role, text in described]
    if table.reliability.written:
        meaning = f"Whether the margin of error is at most {table.reliability.fair:g} of the estimate."
        truth: dict[str, Json] = {"type": "boolean", "trueValues": ["yes"], "falseValues": ["no"]}
        words: dict[str, Json] = {"type": "string", "constraints": {"enum": list(GRADES)}}
        texts = (meaning, "How reliable the estimate is, in words.")
        kinds = zip((truth, words), texts, RELIABILITY_COLUMNS, strict=True)
        found += [{**kind, "role": "reliability", "description": text} for kind, text, _ in kinds]
    return found


_LABEL = "Text that a spreadsheet would run as a formula has a leading ' in CSV."
