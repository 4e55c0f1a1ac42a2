"""hypothesis strategies: domains, predicate sets and workloads that include the awkward cases."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from hdmm import Domain, Identity, PredicateSet, Shuffled, Total, Weighted, Workload
from tests.support.plain_sets import PLAIN

weights = st.sampled_from([0.0, 0.25, 1.0, 1.0, 2.0, 3.0])


def domains(*, attributes: int = 3, size: int = 5) -> st.SearchStrategy[Domain]:
    """One to `attributes` attributes of 1 to `size` values."""
    sizes = st.lists(st.integers(1, size), min_size=1, max_size=attributes)
    return sizes.map(lambda ns: Domain({f"a{i}": n for i, n in enumerate(ns)}))


@st.composite
def predicate_sets(draw: st.DrawFn, n: int) -> PredicateSet:
    """Any kind of predicate set on n values."""
    kinds = st.sampled_from([*PLAIN, Total, Identity])
    plain = kinds.flatmap(lambda kind: PLAIN[kind].draw(n))
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
