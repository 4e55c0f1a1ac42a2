"""RowsOf: which rows data has, by digests of public facts, which differ for releases of other rows (security O7).

Nothing of the rows themselves decides a digest, nor the size or time of a file, because these depend on people. What
may be a password is left out before anything is digested: whoever reads a digest could guess it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Final, final

_WORDS: Final = {
    "source": "their source or table",
    "columns": "their columns or filter",
    "kept": "which rows of a person are counted",
    "period": "their variables (--set)",
}


@final
@dataclass(frozen=True, slots=True)
class RowsOf:
    """SHA-256 of each fact that says which rows are counted; None if it is not known, and then it equals nothing.

    `source` is the file, or the database and the table, or one object in memory; `columns` are those of attributes with
    another name, and the filter; `kept` is how many rows of each person are counted, and which, because the choice is
    made anew for each data object; `period` are the variables of a specification.
    """

    source: str | None
    columns: str | None
    kept: str | None
    period: str | None

    @classmethod
    def of(
        cls,
        place: str | None,
        columns: Mapping[str, str],
        bound: tuple[str, int, str | None] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> RowsOf:
        """The digests of a place, of columns by attribute, of (id, most rows per id, mark of the choice) and variables.

        Without a mark of the choice, it is not known which rows are kept.
        """
        renamed = {attribute: column for attribute, column in columns.items() if attribute != column}
        kept = None if bound is not None and bound[2] is None else _digest("kept", bound)
        return cls(
            None if place is None else _digest("source", place),
            _digest("columns", sorted(renamed.items())),
            kept,
            _digest("period", sorted((variables or {}).items())),
        )

    @classmethod
    def in_memory(cls) -> RowsOf:
        """An object in memory, which nothing names: its rows are those of no other."""
        return cls.of(new_mark(), {})

    def differences(self, other: RowsOf) -> list[str]:
        """In words, what differs or is not known, so that the rows may not be the same; nothing if they are."""
        pairs = ((each.name, getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return [_WORDS[name] for name, one, two in pairs if one is None or one != two]


UNKNOWN: Final = RowsOf(None, None, None, None)  # of data that says nothing about it


def new_mark() -> str:
    """128 random bits, by which what has no name is known again: an object in memory, a choice, a measurement."""
    return secrets.token_hex(16)


def _digest(kind: str, fact: object) -> str:
    return sha256(json.dumps([f"hdmm-rows-1 {kind}", fact]).encode("ascii")).hexdigest()
