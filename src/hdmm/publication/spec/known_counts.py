"""[known]: counts that a specification declares as public, written in it or in a CSV file beside it."""

from __future__ import annotations

import csv
import math
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
    names, shape = list(columns), [values.size for values in columns.values()]
    header = [name.strip() for name in rows[0]] if rows else []
    others = [name for name in header if name not in names]
    if len(others) != 1 or sorted(header) != sorted([*names, *others]):
        raise DomainError(
            f"{path} begins with {', '.join(header)[:80] or 'nothing'}. Its columns must be "
            f"{', '.join([*names, 'count'])}."
        )
    codes = [{str(values.label(code)): code for code in range(values.size)} for values in columns.values()]
    counts = np.full(math.prod(shape), -1, dtype=np.int64)
    for line, row in enumerate(rows[1:], start=2):
        counts[_cell(path, line, row, header, names, codes, shape)] = _count(path, line, row, header.index(others[0]))
    if (counts < 0).any():
        raise DomainError(
            f"{path} has no count for {int((counts < 0).sum()):,} of {len(counts):,} combinations of values. Give "
            "every combination one row, with 0 where nobody is."
        )
    if len(rows) - 1 != len(counts):
        raise DomainError(f"{path} has two rows for one combination of values. Give every combination one row.")
    return counts.reshape(shape)


def _cell(
    path: Path,
    line: int,
    row: Sequence[str],
    header: Sequence[str],
    names: Sequence[str],
    codes: Sequence[dict[str, int]],
    shape: Sequence[int],
) -> int:
    if len(row) != len(header):
        raise DomainError(f"{path}, row {line}: there are {len(row)} entries, but {len(header)} columns.")
    place = 0
    for name, known, size in zip(names, codes, shape, strict=True):
        word = row[header.index(name)].strip()
        if word not in known:
            raise DomainError(f"{path}, row {line}: {word[:60]!r} is not a value of {name}. Write it as declared.")
        place = place * size + known[word]
    return place


def _count(path: Path, line: int, row: Sequence[str], column: int) -> int:
    word = row[column].strip()
    if not (word.isascii() and word.isdigit() and len(word) <= 16):
        raise DomainError(f"{path}, row {line}: {word[:60]!r} is not a count. Give a whole number from 0 on.")
    return int(word)
