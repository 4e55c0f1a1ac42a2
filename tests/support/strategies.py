"""hypothesis strategies: domains, predicate sets and workloads that include the awkward cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hdmm import (
    AllRange,
    Domain,
    Identity,
    PredicateSet,
    Prefix,
    Ranges,
    Sets,
    Shuffled,
    Total,
    Vectors,
    Weighted,
    Width,
    Workload,
)

weights = st.sampled_from([0.0, 0.25, 1.0, 1.0, 2.0, 3.0])


def domains(*, attributes: int = 3, size: int = 5) -> st.SearchStrategy[Domain]:
    """One to `attributes` attributes of 1 to `size` values."""
    sizes = st.lists(st.integers(1, size), min_size=1, max_size=attributes)
    return sizes.map(lambda ns: Domain({f"a{i}": n for i, n in enumerate(ns)}))


def _lists(of: st.SearchStrategy[Any], least: int = 1, most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, min_size=least, max_size=most)


PLAIN: dict[type[PredicateSet], Callable[[int], st.SearchStrategy[PredicateSet]]] = {
    Identity: lambda n: st.just(Identity()),
    Total: lambda n: st.just(Total()),
    Prefix: lambda n: st.just(Prefix()),
    AllRange: lambda n: st.just(AllRange()),
    Width: lambda n: st.integers(1, n).map(Width),
    Ranges: lambda n: _lists(_lists(st.integers(0, n - 1), 2, 2).map(sorted)).map(Ranges),
    Sets: lambda n: _lists(st.lists(st.integers(0, n - 1), max_size=n)).map(Sets),
    Vectors: lambda n: _lists(_lists(st.sampled_from([0.0, 1.0, -1.0, 0.5]), n, n)).map(Vectors),
}
"""Each kind of predicate set on one attribute that is not made of others, as it is drawn on n values."""


@st.composite
def predicate_sets(draw: st.DrawFn, n: int) -> PredicateSet:
    """Any kind of predicate set on n values."""
    kinds = st.sampled_from([*PLAIN, Total, Identity])
    plain = kinds.flatmap(lambda kind: PLAIN[kind](n))
    inner = draw(plain)
    match draw(st.sampled_from(["plain", "plain", "union", "shuffled", "weighted"])):
        case "union":
            return inner | draw(plain)
        case "shuffled":
            return Shuffled(inner, draw(st.permutations(range(n))))
        case "weighted":
            return Weighted(inner, np.array(draw(st.lists(weights, min_size=inner.count(n), max_size=inner.count(n)))))
        case _:
            return inner


@st.composite
def workloads(draw: st.DrawFn, domain: Domain, *, products: int = 3) -> Workload:
    """A union of one to `products` products, zero weights and duplicates included."""
    parts = draw(st.integers(1, products))
    workload = None
    for _ in range(parts):
        sets = {
            name: draw(predicate_sets(n))
            for name, n in zip(domain.names, domain.shape, strict=True)
            if draw(st.booleans())
        }
        part = draw(weights) * Workload.product(domain, sets)
        workload = part if workload is None else workload + part
        if draw(st.integers(0, 4)) == 0:
            workload = workload + part
    assert workload is not None
    return workload
