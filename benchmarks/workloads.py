"""The workloads of the paper's tables, from their definitions; SF1 from paper/sf1.toml."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hdmm import AllRange, Domain, Identity, Prefix, Ranges, Sets, Shuffled, Total, Width, Workload
from hdmm.describe.predicates import PredicateSet

PAPER = Path(__file__).parent / "paper"
Form = Literal["full", "compact32", "distinct24"]


def sf1(*, form: Form = "full", plus: bool = False) -> Workload:
    """SF1 (4,151 queries, 500,480 cells) or SF1+ (with Identity ∪ Total on state), in one of its forms."""
    spec = _spec()
    domain = sf1_domain(plus=plus)
    multiplicity = {product["id"]: 1 for product in spec["product"]}
    products = list(spec["product"])
    if form == "compact32":
        replaced = spec["forms"]["compact32"]
        products = [p for p in products if p["id"] not in replaced["drop"]] + replaced["add"]
        multiplicity |= {product["id"]: 1 for product in replaced["add"]}
    elif form == "distinct24":
        for first, *repeats in spec["forms"]["distinct24"]["repeated"]:
            multiplicity[first] += len(repeats)
            products = [p for p in products if p["id"] not in repeats]
    sets = _sets(spec)
    state = {"state": sets["state", spec["forms"]["plus"]["state"]]} if plus else {}
    parts = []
    for product in products:
        factors = {name: sets[name, product[name]] for name in spec["schema"]["order"]}
        parts.append(np.sqrt(multiplicity[product["id"]]) * Workload.product(domain, {**factors, **state}))
    return Workload(domain, tuple(p for part in parts for p in part.products))


def sf1_single_queries(*, plus: bool = False) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every query of SF1 as a tuple with one index set per attribute, with repeats as published."""
    spec = _spec()
    names = spec["schema"]["order_plus" if plus else "order"]
    for product in spec["product"]:
        chosen = {**product, "state": spec["forms"]["plus"]["state"]}
        yield from itertools.product(*(_rows(spec, name, chosen[name]) for name in names))


def sf1_domain(*, plus: bool = False) -> Domain:
    """sex × hispanic × race (six flags merged) × relationship × age (× state)."""
    schema = _spec()["schema"]
    names = schema["order_plus" if plus else "order"]
    return Domain({name: schema[name].get("labels", schema[name]["size"]) for name in names})


def paper_workloads() -> dict[str, Workload]:
    """The data-independent rows of the paper's main table, by the table's names."""
    line, plane = Domain({"x": 1024}), Domain({"x": 256, "y": 256})
    shuffle = np.random.default_rng(0).permutation(1024)
    identity, prefix = Identity(), Prefix()
    return {
        "Width 32 Range": Workload.product(line, x=Width(32)),
        "Prefix 1D": Workload.product(line, x=prefix),
        "Permuted Range": Workload.product(line, x=Shuffled(AllRange(), shuffle.tolist())),
        "Prefix Identity": Workload.product(plane, x=prefix, y=identity)
        + Workload.product(plane, x=identity, y=prefix),
        "Prefix 2D": Workload.product(plane, x=prefix, y=prefix),
        "All Marginals": Workload.product(
            adult_domain(), {name: Identity() | Total() for name in adult_domain().names}
        ),
        "2-way Marginals": Workload.marginals(adult_domain(), k=2),
        "All Range-Marginals": Workload.range_marginals(cps_domain()),
        "2-way Range-Marginals": Workload.range_marginals(cps_domain(), k=2),
    }


def up_to_k_way(k: int) -> Workload:
    """All marginals of at most k of 8 attributes of size 10."""
    return Workload.marginals(Domain({f"a{i}": 10 for i in range(8)}), k=range(k + 1))


def adult_domain() -> Domain:
    """75 × 16 × 5 × 2 × 20."""
    return Domain({"age": 75, "education": 16, "race": 5, "sex": 2, "hours": 20})


def cps_domain() -> Domain:
    """100 × 50 × 7 × 4 × 2: income and age in order, the rest categories."""
    codes = {"marital": 7, "race": 4, "sex": 2}
    return Domain({"income": 100, "age": 50, **{name: list(range(n)) for name, n in codes.items()}})


def _spec() -> dict[str, Any]:
    return tomllib.loads((PAPER / "sf1.toml").read_text())


def _sets(spec: dict[str, Any]) -> dict[tuple[str, str], PredicateSet]:
    return {(name, key): _set(s) for name, sets in spec["sets"].items() for key, s in sets.items()}


def _set(entry: dict[str, Any]) -> PredicateSet:
    match entry["kind"]:
        case "total":
            return Total()
        case "identity":
            return Identity()
        case "identity_total":
            return Identity() | Total()
        case "ranges":
            return Ranges(tuple(pair) for pair in entry["ranges"])
        case "sets":
            return Sets(entry["sets"])
        case kind:
            raise ValueError(f"sf1.toml has a set of the unknown kind {kind!r}.")


def _rows(spec: dict[str, Any], name: str, key: str) -> list[tuple[int, ...]]:
    size, entry = spec["schema"][name]["size"], spec["sets"][name][key]
    cells, everything = [(i,) for i in range(size)], tuple(range(size))
    match entry["kind"]:
        case "total":
            return [everything]
        case "identity":
            return cells
        case "identity_total":
            return [*cells, everything]
        case "ranges":
            return [tuple(range(lo, hi + 1)) for lo, hi in entry["ranges"]]
        case _:
            return [tuple(s) for s in entry["sets"]]
