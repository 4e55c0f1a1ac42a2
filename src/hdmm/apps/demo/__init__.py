"""A sample of persons and a specification of tables about them: what `hdmm demo` runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hdmm.apps.demo.people import people
from hdmm.base.exceptions import FileError
from hdmm.base.lazy import Lazy

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = Lazy("pyarrow.parquet")

PERSONS = 100_000
_SPEC = Path(__file__).parent / "people.toml"

__all__ = ["PERSONS", "people", "write_demo"]


def write_demo(folder: Path, *, persons: int = PERSONS) -> Path:
    """Write people.parquet and people.toml into a new or empty folder, and return the path of the latter."""
    try:
        os.makedirs(folder, exist_ok=True)
        if any(folder.iterdir()):
            raise FileError(f"{folder} is not empty. Name a new folder: hdmm demo FOLDER.")
        with open(folder / "people.parquet", "xb") as file:
            pq.write_table(people(persons), file)
        spec = folder / "people.toml"
        spec.write_text(_SPEC.read_text())
    except OSError as error:
        raise FileError(f"{folder} cannot be written: {error.strerror}. Choose another folder.") from None
    return spec
