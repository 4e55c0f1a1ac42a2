"""[known]: counts that a specification declares as public, written in it or in a CSV file beside it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hdmm.base.exceptions import DomainError
from hdmm.describe.domain import Domain
from hdmm.describe.values import Values
from hdmm.matrix import Array
from hdmm.publication.spec.document import Document
from hdmm.publication.spec.keys import KnownKeys
from hdmm.reconstruct.known import Known, known_counts

_MOST_BYTES = 2**28  # of a file of counts


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
                values = [values for _, values, _ in columns]
                counts = _read(base / counts, dict(zip(keys.attributes, values, strict=True)))
            found.append(Known(domain, keys.attributes, counts))
    with document.locating("known"):
        return known_counts(domain, found)


def _read(path: Path, columns: dict[str, Values]) -> Array:
    """The counts in a CSV file: a column per attribute or level, with its labels, and one more with the counts."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DomainError(f"{path} cannot be read ({error.strerror}). Check the path of the known counts.") from None
    except UnicodeDecodeError:
        raise DomainError(f"{path} is not text in UTF-8. Save the file as UTF-8.") from None
    if len(text) > _MOST_BYTES:
        raise DomainError(f"{path} is larger than {_MOST_BYTES:,} characters. Give counts by fewer attributes.")
    rows = [row for row in csv.reader(text.splitlines()) if row]
    header = [name.strip() for name in rows[0]] if rows else []
    others = [name for name in header if name not in columns]
    if len(others) != 1 or sorted(header) != sorted([*columns, *others]):
        raise DomainError(
            f"{path} begins with {', '.join(header)[:80] or 'nothing'}. Its columns must be "
            f"{', '.join([*columns, 'count'])}."
        )
    codes = {name: {str(each.label(code)): code for code in range(each.size)} for name, each in columns.items()}
    counts = np.full([values.size for values in columns.values()], -1, dtype=np.int64)
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise DomainError(f"{path}, row {line}: there are {len(row)} entries, but {len(header)} columns.")
        words = dict(zip(header, map(str.strip, row), strict=True))
        for name, known in codes.items():
            if words[name] not in known:
                raise DomainError(
                    f"{path}, row {line}: {words[name][:60]!r} is not a value of {name}. Write it as declared."
                )
        counts[tuple(known[words[name]] for name, known in codes.items())] = _count(path, line, words[others[0]])
    if (counts < 0).any():
        raise DomainError(
            f"{path} has no count for {int((counts < 0).sum()):,} of {counts.size:,} combinations of values. Give "
            "every combination one row, with 0 where nobody is."
        )
    if len(rows) - 1 != counts.size:
        raise DomainError(f"{path} has two rows for one combination of values. Give every combination one row.")
    return counts


def _count(path: Path, line: int, word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 16):
        raise DomainError(f"{path}, row {line}: {word[:60]!r} is not a count. Give a whole number from 0 on.")
    return int(word)
