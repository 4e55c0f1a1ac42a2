"""Every kind of predicate set on one attribute that is not made of others: how it is drawn, and its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from hdmm import AllRange, Identity, PredicateSet, Prefix, Ranges, Sets, Total, Vectors, Width


class PlainSet(NamedTuple):
    """A kind of set on n values, as `draw(n)` draws it; `rows(set, n)` is its matrix, written out."""

    draw: Callable[[int], st.SearchStrategy[Any]]
    rows: Callable[[Any, int], np.ndarray]


def lists(of: st.SearchStrategy[Any], least: int = 1, most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, min_size=least, max_size=most)


def ranges(bounds: Sequence[tuple[int, int]], n: int) -> np.ndarray:
    return np.array([[float(lo <= c <= hi) for c in range(n)] for lo, hi in bounds])


PLAIN: dict[type[PredicateSet], PlainSet] = {
    Identity: PlainSet(lambda n: st.just(Identity()), lambda _, n: np.eye(n)),
    Total: PlainSet(lambda n: st.just(Total()), lambda _, n: np.ones((1, n))),
    Prefix: PlainSet(lambda n: st.just(Prefix()), lambda _, n: ranges([(0, hi) for hi in range(n)], n)),
    AllRange: PlainSet(
        lambda n: st.just(AllRange()), lambda _, n: ranges([(lo, hi) for lo in range(n) for hi in range(lo, n)], n)
    ),
    Width: PlainSet(
        lambda n: st.integers(1, n).map(Width),
        lambda p, n: ranges([(lo, lo + p.width - 1) for lo in range(n - p.width + 1)], n),
    ),
    Ranges: PlainSet(
        lambda n: lists(lists(st.integers(0, n - 1), 2, 2).map(sorted)).map(Ranges), lambda p, n: ranges(p.bounds, n)
    ),
    Sets: PlainSet(
        lambda n: lists(st.lists(st.integers(0, n - 1), max_size=n)).map(Sets),
        lambda p, n: np.array([[float(c in s) for c in range(n)] for s in p.members]),
    ),
    Vectors: PlainSet(
        lambda n: lists(lists(st.sampled_from([0.0, 1.0, -1.0, 0.5]), n, n)).map(Vectors), lambda p, _: np.array(p.rows)
    ),
}
