"""At most k rows of each person, chosen by a keyed hash (security I3).

Rows are compared by their codes, after those outside the domain are dropped. If a person has more than k rows, the k
with the least keyed hash of (person, codes) are kept. Rows that tie are equal, so what is kept does not depend on the
order of the table; and what is kept of a person depends on no one else, so a person changes k rows at most. The key is
drawn from the operating system for each Data object, so nobody can choose which of their rows count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from hdmm.base.mixing import Words, mixed
from hdmm.data.columns import AnyColumn, integers
from hdmm.data.identity import PersonName, identities

_NAME_BYTES = 16  # among 10⁹ people, two share a name with probability 10⁻²¹


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """What is needed to choose among rows: two words that name the person, and the codes."""

    people: Words
    codes: list[npt.NDArray[np.unsignedinteger[Any]]]

    def __len__(self) -> int:
        return len(self.people)

    def take(self, chosen: npt.NDArray[np.int64]) -> Rows:
        """The rows at these places."""
        return Rows(self.people[chosen], [codes[chosen] for codes in self.codes])


def people(key: bytes, ids: AnyColumn) -> tuple[Words, npt.NDArray[np.bool]]:
    """Two words that name the person of each row, and which rows have one (an id that is not missing).

    An integer names itself, so a column of integers needs no hashing; every other id is named by its keyed digest.
    """
    numbers = integers(ids)
    if numbers is not None:
        return np.stack([np.zeros_like(numbers[0]), numbers[0]], axis=1).view(np.uint64), numbers[1]
    named, places = identities(ids)
    there = np.fromiter((who is not None for who in named), np.bool, len(named))
    words = np.frombuffer(b"".join([name_words(key, who) for who in named]), np.uint64).reshape(-1, 2)
    return words[places], there[places]


def bounded(key: bytes, k: int, batches: Iterable[Rows]) -> Rows | None:
    """The rows kept of all batches; None if there is no batch. O(rows · log rows); 2·k rows per person in memory."""
    kept: Rows | None = None
    waiting: list[Rows] = []
    for rows in batches:
        waiting.append(rows)
        # The k least of all rows are among the k least of each part: choose as soon as it is worthwhile.
        if kept is None or sum(map(len, waiting)) >= len(kept):
            kept, waiting = _least(key, k, _joined(kept, waiting)), []
    return _least(key, k, _joined(kept, waiting)) if waiting else kept


def name_words(key: bytes, who: PersonName) -> bytes:
    """The two words that name a person."""
    if isinstance(who, int):
        return bytes(8) + np.int64(who).tobytes()
    return bytes(_NAME_BYTES) if who is None else hashlib.blake2b(who, digest_size=_NAME_BYTES, key=key).digest()


def _joined(kept: Rows | None, waiting: Sequence[Rows]) -> Rows:
    parts = [*([kept] if kept else []), *waiting]
    columns = zip(*(rows.codes for rows in parts), strict=True)
    return Rows(np.concatenate([rows.people for rows in parts]), [np.concatenate(column) for column in columns])


def _least(key: bytes, k: int, rows: Rows) -> Rows:
    order = np.lexsort(rows.people.T)
    person, size = _runs(rows.people[order])
    crowded = order[size[person] > k]
    candidates = rows.take(crowded)
    ranked = np.lexsort((*_hashes(key, candidates), *candidates.people.T))
    person_of, size_of = _runs(candidates.people[ranked])
    rank = np.arange(len(ranked)) - (np.cumsum(size_of) - size_of)[person_of]
    return rows.take(np.concatenate([order[size[person] <= k], crowded[ranked[rank < k]]]))


def _hashes(key: bytes, rows: Rows) -> tuple[Words, Words]:
    """Two words of keyed hash of each row: 128 bits, so that rows of one person that tie are equal."""
    first, second = (np.full(len(rows), word, np.uint64) for word in np.frombuffer(key[:16], np.uint64))
    for column in (*rows.people.T, *rows.codes):
        first, second = mixed(first ^ column), mixed(second + column)
    return first, second


def _runs(people: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of each row's person among sorted rows, and how many rows each person has."""
    new = np.any(people[1:] != people[:-1], axis=1)
    person = np.concatenate([np.zeros(min(len(people), 1), np.int64), np.cumsum(new)])
    return person, np.bincount(person)
