"""The workloads of the rows: tables by name, as hdmm.optimize takes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import hdmm.apps.demo
from hdmm import AllRange, Domain, Identity, Prefix, SumAtMost, Total, Workload, load_spec
from hdmm.describe.predicates import PredicateSet

Tables: TypeAlias = Mapping[str, Workload]
Build: TypeAlias = Callable[[], Tables]

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CPS = (50, 100, 7, 4, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
AGES = 116
RANGES, PREFIXES = AllRange(), Prefix()


def line(n: int, predicates: PredicateSet) -> Build:
    """One attribute."""
    return lambda: {"all": Workload.product(Domain({"x": n}), x=predicates)}


def one_count() -> Tables:
    """The number of rows."""
    return {"all": Workload.marginals(Domain({"x": 2}), k=0)}


def marginals(sizes: Sequence[int], k: int | Sequence[int]) -> Build:
    """All marginals on k attributes, or on as many as k lists."""
    return lambda: {"all": Workload.marginals(numbered(sizes), k=k)}


def prefixes(sizes: Sequence[int], k: int | Sequence[int], *, numeric: int) -> Build:
    """The same with prefixes of the first `numeric` attributes."""
    return lambda: {"all": _over(numbered(sizes), [k] if isinstance(k, int) else k, numeric)}


def ranges(sizes: Sequence[int], k: Sequence[int]) -> Build:
    """The same with ranges of all attributes."""

    def build() -> Tables:
        domain = numbered(sizes)
        return {"all": Workload.range_marginals(domain, k=k, ranges=domain.names)}

    return build


def pairs(n: int, d: int, predicates: PredicateSet) -> Build:
    """Prefixes of single attributes, and the predicates on every pair."""

    def build() -> Tables:
        domain = numbered([n] * d)
        chosen = itertools.combinations(domain.names, 2)
        products = itertools.chain.from_iterable(
            Workload.product(domain, {pair: predicates}).products for pair in chosen
        )
        return {"all": _over(domain, [1], d) + Workload(domain, tuple(products))}

    return build


def mixed(d: int) -> Build:
    """Ranges of each of d attributes of ten values, i + j ≤ c on every pair, prefixes of every three."""

    def build() -> Tables:
        domain = numbered([10] * d)
        pairs = (Workload.product(domain, {pair: SumAtMost()}) for pair in itertools.combinations(domain.names, 2))
        ranges = Workload.range_marginals(domain, k=1, ranges=domain.names)
        products = itertools.chain.from_iterable(w.products for w in (ranges, *pairs, _over(domain, [3], d)))
        return {"all": Workload(domain, tuple(products))}

    return build


def small(sizes: Sequence[int], cells: int, *, numeric: int = 0) -> Build:
    """The marginals on all sets of attributes that have so many cells at most, prefixes of the first `numeric`."""

    def build() -> Tables:
        domain = numbered(sizes)
        subsets = itertools.chain.from_iterable(
            itertools.combinations(range(len(sizes)), k) for k in range(len(sizes) + 1)
        )
        kept = [axes for axes in subsets if math.prod(sizes[i] for i in axes) <= cells]
        return {"all": _on(domain, ([domain.names[i] for i in axes] for axes in kept), numeric)}

    return build


def prefixes_and_marginals(numeric: Sequence[int], others: Sequence[int]) -> Build:
    """One product: prefixes of some attributes, values and total of others."""

    def build() -> Tables:
        domain = numbered([*numeric, *others])
        sets = [Prefix()] * len(numeric) + [Identity() | Total()] * len(others)
        return {"all": Workload.product(domain, dict(zip(domain.names, sets, strict=True)))}

    return build


def pl94() -> Tables:
    """2 × 2 × 63: the three one-way marginals, and the cells."""
    domain = Domain({"adult": 2, "hispanic": 2, "race": 63})
    one_way = {name: Workload.marginals(domain, [(name,)]) for name in domain.names}
    return {**one_way, "cells": Workload.marginals(domain, k=3)}


def age_pyramid() -> Tables:
    """Prefixes of ages, by sex and for both."""
    domain = Domain({"sex": 2, "age": AGES})
    return {
        "both": Workload.product(domain, age=Prefix()),
        "by sex": Workload.product(domain, sex=Identity(), age=Prefix()),
    }


def three_of(t: int) -> Build:
    """Three attributes of size t: the one- and two-way marginals."""
    return marginals((t, t, t), (1, 2))


def demo() -> Tables:
    """The ten tables of `hdmm demo`, each of weight 1."""
    spec = load_spec(Path(hdmm.apps.demo.__file__).parent / "people.toml")
    return dict(spec.goal.tables)


def numbered(sizes: Sequence[int]) -> Domain:
    return Domain({f"a{i}": n for i, n in enumerate(sizes)})


def _over(domain: Domain, ks: Iterable[int], numeric: int) -> Workload:
    """Products over all subsets of these sizes: prefixes of the first attributes, the values of the others."""
    return _on(domain, (subset for k in ks for subset in itertools.combinations(domain.names, k)), numeric)


def _on(domain: Domain, chosen: Iterable[Sequence[str]], numeric: int) -> Workload:
    """Products over some sets of attributes: prefixes of the first attributes, the values of the others."""
    sets = {name: Prefix() if i < numeric else Identity() for i, name in enumerate(domain.names)}
    products = (Workload.product(domain, {name: sets[name] for name in names}).products for names in chosen)
    return Workload(domain, tuple(itertools.chain.from_iterable(products)))
