"""The data dictionary of a publication: a Frictionless Data Package, which describes every file of `tables`.

It says what each column holds and which are estimates and margins, and has the size and the SHA-256 of every file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from hdmm.answers.table import BINNED, Table
from hdmm.io.strict_json import Json
from hdmm.measure.chunked_release import AnyRelease
from hdmm.publication.files import FORMATS
from hdmm.publication.metadata import COUNTS, rows_meaning
from hdmm.publication.report_page import measured_at
from hdmm.publication.spec import Spec


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
    """A table in every format; the first has its name, which differs from others in more than case."""
    notes = " ".join(filter(None, (table.note, None if table.bins is None else BINNED)))
    described = {"title": table.title, **({"description": notes} if notes else {})}
    name = table.name.lower()
    return [
        {
            "name": f"{name}.{each.ending}" if k else name,
            **_file(folder, each.path(table.name)),
            "profile": each.profile,
            **described,
            **each.resource(table),
        }
        for k, each in enumerate(FORMATS)
    ]


def _file(folder: Path, path: str) -> dict[str, Json]:
    with open(folder / path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"path": path, "bytes": os.fstat(file.fileno()).st_size, "hash": f"sha256:{digest}"}
