"""[known]: counts that a specification declares as public, written in it or in a CSV file beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hdmm.base.exceptions import DomainError
from hdmm.describe.domain import Domain
from hdmm.describe.values import Values
from hdmm.io.strict_records import shown
from hdmm.matrix import Array
from hdmm.publication.spec.document import Document
from hdmm.publication.spec.keys import KnownKeys
from hdmm.publication.spec.public_csv import line_error, public_rows
from hdmm.reconstruct.known import Known, known_counts


def known_tables(
    document: Document, given: Sequence[KnownKeys] | KnownKeys, base: Path, declared: Domain, domain: Domain
) -> tuple[Known, ...]:
    """The known counts over the domain of the tables, in which attributes may be merged; they agree with each other."""
    several = not isinstance(given, KnownKeys)
    found: list[Known] = []
    for i, keys in enumerate([given] if isinstance(given, KnownKeys) else given):
        place = ("known", i) if several else ("known",)
        with document.locating(*place, "attributes"):
            columns = declared.columns(keys.attributes, "with known counts")
        with document.locating(*place, "counts"):
            counts = keys.counts
            if isinstance(counts, str):
                counts = _read(base / counts, {column.name: column.values for column in columns})
            found.append(Known(domain, keys.attributes, counts))
    with document.locating("known"):
        return known_counts(domain, found)


def _read(path: Path, columns: dict[str, Values]) -> Array:
    """The counts in a CSV file: a column per attribute or level, with its labels, and one more with the counts."""
    header, rows = public_rows(path)
    others = [name for name in header if name not in columns]
    if len(others) != 1 or sorted(header) != sorted([*columns, *others]):
        raise line_error(
            path, 1, f"The columns are {', '.join(header)[:80]}. They must be {', '.join(columns)}, count."
        )
    codes = {name: {str(each.label(code)): code for code in range(each.size)} for name, each in columns.items()}
    counts = np.full([values.size for values in columns.values()], -1, dtype=np.int64)
    for line, fields in rows:
        words = dict(zip(header, map(str.strip, fields), strict=True))
        for name, known in codes.items():
            if words[name] not in known:
                raise line_error(path, line, f"{shown(words[name])} is not a value of {name}. Write it as declared.")
        place = tuple(known[words[name]] for name, known in codes.items())
        if counts[place] >= 0:
            raise line_error(path, line, "There are two rows for one combination of values. Leave one out.")
        word = words[others[0]]
        if not (word.isascii() and word.isdigit() and len(word) <= 16):
            raise line_error(path, line, f"{shown(word)} is not a count. Give a whole number from 0 on.")
        counts[place] = int(word)
    if (counts < 0).any():
        raise DomainError(
            f"{path} has no count for {int((counts < 0).sum()):,} of {counts.size:,} combinations of values. Give "
            "every combination one row, with 0 where nobody is."
        )
    return counts
