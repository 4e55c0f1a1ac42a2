"""The finest partition that keeps given sets together."""

from __future__ import annotations

from collections.abc import Iterable


def connected(sets: Iterable[Iterable[int]]) -> list[tuple[int, ...]]:
    """The members of the sets in parts that no set crosses, each ascending, in the order of their first. O(members).

    SciPy's DisjointSet does the same, but takes 0.07 s to import.

    >>> connected([(0, 2), (1,), (2, 3)])
    [(0, 2, 3), (1,)]
    """
    first: dict[int, int] = {}  # a smaller member of each one's part; the smallest has itself

    def root(i: int) -> int:
        while first.setdefault(i, i) != i:
            i = first[i]
        return i

    for each in sets:
        roots = {root(i) for i in each}
        for other in roots:
            first[other] = min(roots)
    parts: dict[int, list[int]] = {}
    for i in sorted(first):
        parts.setdefault(root(i), []).append(i)
    return [tuple(part) for part in parts.values()]
