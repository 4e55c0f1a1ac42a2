"""What the ledger remembers a release by: its title, tables, source and specification."""

from __future__ import annotations

import os
import unicodedata

from hdmm.data.engines.address import is_address
from hdmm.data.records import TableLike
from hdmm.publication.spec import Spec
from hdmm.publication.spec.keys import is_url

_MOST = 120  # characters of each part; a ledger has room for 500


def purpose_of(spec: Spec, source: TableLike | None) -> str:
    """One line that tells this release from those of other months. A database is named without its URL.

    A URL may hold a password, and the ledger keeps what it is told.
    """
    tables = f"tables {', '.join(spec.groups)}"
    made = ", ".join([spec.path.name, *(f"{name}={value}" for name, value in spec.recorded.items())])
    parts = (_short(spec.title), _short(tables), f"from {_short(source_name(spec, source))}", f"by {_short(made)}")
    return f"{parts[0]}: {' '.join(parts[1:])}"


def source_name(spec: Spec, source: TableLike | None = None) -> str:
    """What the data is called, without the folder of a file and without what a URL may hold."""
    named = spec.data.source if source is None else source
    if isinstance(named, str) and is_address(named):
        kind = spec.masked(named.partition("://")[0]) if is_url(named) else "database"
        return f"{kind} table {spec.data.table}"
    if isinstance(named, str | os.PathLike):
        return os.path.basename(os.path.normpath(named))
    return "a table given in Python"


def _short(text: str) -> str:
    """One printable line in Unicode NFC of at most so many characters."""
    line = "".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", text))
    line = " ".join(line.split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1].rstrip(' ,')}…"
