"""At most k rows of each person, chosen by a keyed hash (security I3).

Rows are compared by their codes, after those outside the domain are dropped. Of a person with more than k rows the k
with the least keyed hash of (id, codes) are kept; rows that tie are equal, so that the rows kept do not depend on the
order of the table, and adding or removing a person moves k rows at most. The key is drawn from the operating system
for each Data object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, final

import numpy as np
import numpy.typing as npt

from hdmm.data.columns import AnyColumn, distinct

_DIGEST = 16  # bytes: among 10⁹ people two share one with probability 10⁻²¹


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as what is needed to choose among them: the digest of the person (two words) and the codes."""

    people: npt.NDArray[np.uint64]
    codes: list[npt.NDArray[np.unsignedinteger[Any]]]

    def __len__(self) -> int:
        return len(self.people)

    def take(self, chosen: npt.NDArray[np.generic]) -> Rows:
        """The rows chosen by a mask or by their places."""
        return Rows(self.people[chosen], [codes[chosen] for codes in self.codes])


def digests(key: bytes, ids: AnyColumn) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool]]:
    """The keyed digest of each id, and which ids are there (not missing)."""
    objects, places = distinct(ids)
    messages = list(map(_message, objects))
    there = np.fromiter((message is not None for message in messages), np.bool, len(messages))
    return _digests(key, [message or b"" for message in messages])[places], there[places]


def bounded(key: bytes, k: int, batches: Iterable[Rows]) -> Rows | None:
    """The rows kept of all batches; None where there is no batch. O(rows · log rows), 2·k rows a person in memory."""
    kept: Rows | None = None
    waiting: list[Rows] = []
    for rows in batches:
        waiting.append(rows)
        # The k least of a whole are the k least of those of its parts and the rest: choose when it pays.
        if kept is None or sum(map(len, waiting)) >= len(kept):
            kept, waiting = _least(key, k, _joined(kept, waiting)), []
    return _least(key, k, _joined(kept, waiting)) if waiting else kept


def _joined(kept: Rows | None, waiting: Sequence[Rows]) -> Rows:
    parts = [*([kept] if kept else []), *waiting]
    columns = zip(*(rows.codes for rows in parts), strict=True)
    return Rows(np.concatenate([rows.people for rows in parts]), [np.concatenate(column) for column in columns])


def _least(key: bytes, k: int, rows: Rows) -> Rows:
    order = np.lexsort(rows.people.T)
    person, size = _runs(rows.people[order])
    crowded = order[size[person] > k]
    candidates = rows.take(crowded)
    texts = [candidates.people.view(np.uint8), *(codes.view(np.uint8).reshape(len(codes), -1) for codes in candidates.codes)]
    bytes_of_rows = np.concatenate(texts, axis=1)
    hashes = _digests(key, [row.tobytes() for row in bytes_of_rows])
    ranked = np.lexsort((*hashes.T, *candidates.people.T))
    person_of, size_of = _runs(candidates.people[ranked])
    rank = np.arange(len(ranked)) - (np.cumsum(size_of) - size_of)[person_of]
    return rows.take(np.concatenate([order[size[person] <= k], crowded[ranked[rank < k]]]))


def _runs(people: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of each row's person among sorted rows, and how many rows each person has."""
    new = np.any(people[1:] != people[:-1], axis=1)
    person = np.concatenate([np.zeros(min(len(people), 1), np.int64), np.cumsum(new)])
    return person, np.bincount(person)


def _digests(key: bytes, messages: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    blake = hashlib.blake2b
    digest = b"".join([blake(message, digest_size=_DIGEST, key=key).digest() for message in messages])
    return np.frombuffer(digest, np.uint64).reshape(-1, 2)


def _message(value: object) -> bytes | None:
    """What an id is compared by: numbers by value, text exactly; None where it is missing."""
    try:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or value != value:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int):
            return b"n%x" % value
        if isinstance(value, str):
            return b"s" + value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytes):
            return b"b" + value
        text = str(value.normalize()) if isinstance(value, Decimal) else str(value)
        return b"o" + f"{type(value).__name__} {text}".encode("utf-8", "surrogatepass")
    except Exception:  # whatever a value does when it is looked at, it is missing (security I1)
        return None
