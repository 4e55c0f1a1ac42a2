"""Tables of synthetic rows beside the truth: `python -m benchmarks.rows --data DIR [--set NAME …] [--epsilon E …]`.

Every method has the same budget. The figure is the total variation of a table, half the sum of the absolute differences
of shares, as a mean and as the largest over all tables of one, two and three attributes (50 of three). `fitted` and
`rows` are `Release.answer(fitted=True)` and `Release.rows` of a release of all pairs; `weighted` is rows of one whose
plan counts each table of one attribute ten times. `unbiased` and `nonnegative` are other answers of the first
release, and `independent` is the product of its tables of one attribute. Seconds are of the processor, for fitting and
drawing. Nothing was tuned on the sets but Adult14.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hdmm
from hdmm import ApproxDP, Domain, Workload
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Product
from hdmm.measure.release import Release

DELTA = "1e-9"
TRIPLES = 50
Table = tuple[int, ...]
Tables = Callable[[Table], np.ndarray]


def coded(data: Path, name: str) -> tuple[Domain, np.ndarray]:
    """A table whose columns are codes already, and the sizes of its attributes."""
    stated = json.loads((data / f"{name}-domain.json").read_text())
    names = stated["order"]
    with gzip.open(data / f"{name}.csv.gz", "rt") as file:
        frame = pd.read_csv(file)[names]
    return Domain({each: stated["domain"][each] for each in names}), frame.to_numpy()


def cps(data: Path) -> tuple[Domain, np.ndarray]:
    """Income in 50 ranges of 10,000, and age in 76 years."""
    with gzip.open(data / "cps.csv.gz", "rt") as file:
        frame = pd.read_csv(file)
    codes = [np.minimum(frame["income"] // 10_000, 49), frame["age"] - 15]
    codes += [frame["marital"] - 1, frame["race"] - 1, frame["sex"] - 1]
    domain = Domain({"income": 50, "age": 76, "marital": 7, "race": 4, "sex": 2})
    return domain, np.stack([np.asarray(c, dtype=np.int64) for c in codes], axis=1)


def town(_: Path) -> tuple[Domain, np.ndarray]:
    """50,000 made-up persons of ten attributes in a chain, which no one needs a file for."""
    rng = np.random.default_rng(2026)
    sizes = [8, 12, 5, 20, 3, 9, 15, 4, 6, 10]
    columns = [rng.choice(sizes[0], 50_000, p=rng.dirichlet(np.ones(sizes[0])))]
    for n in sizes[1:]:
        given = rng.dirichlet(np.full(n, 0.3), size=int(columns[-1].max()) + 1)
        columns.append((rng.random((50_000, 1)) > given[columns[-1]].cumsum(axis=1)).sum(axis=1).clip(max=n - 1))
    return Domain({f"a{i}": n for i, n in enumerate(sizes)}), np.stack(columns, axis=1)


SETS: dict[str, Callable[[Path], tuple[Domain, np.ndarray]]] = {
    "adult14": partial(coded, name="adult14"),
    "cps": cps,
    "adult": partial(coded, name="adult"),
    "town": town,
}


def counts(domain: Domain, rows: np.ndarray, axes: Table) -> np.ndarray:
    shape = [domain.shape[i] for i in axes]
    return np.bincount(np.ravel_multi_index([rows[:, i] for i in axes], shape), minlength=int(np.prod(shape)))


def product(domain: Domain, axes: Table) -> Product:
    return Product(domain, tuple((i, Identity()) for i in axes))


def tables_asked(domain: Domain, most: int) -> Iterator[Table]:
    """The tables that are compared: all of one and two attributes, and if asked for some of three."""
    triples = list(itertools.combinations(range(len(domain)), 3))
    chosen = np.random.default_rng(0).permutation(len(triples))[:TRIPLES]
    yield from ((i,) for i in range(len(domain)))
    yield from itertools.combinations(range(len(domain)), 2)
    yield from (triples[k] for k in sorted(chosen.tolist()) if most > 2)


def distances(domain: Domain, truth: np.ndarray, found: Tables, most: int) -> dict[int, list[float]]:
    """The total variation of each table, by how many attributes it has."""
    out: dict[int, list[float]] = {1: [], 2: [], 3: []}
    for axes in tables_asked(domain, most):
        true = counts(domain, truth, axes) / len(truth)
        out[len(axes)].append(float(np.abs(found(axes) - true).sum() / 2))
    return out


def released(domain: Domain, truth: np.ndarray, epsilon: str, weight: float) -> Release:
    workload = Workload.marginals(domain, k=2)
    if weight:
        workload += weight**0.5 * Workload.marginals(domain, k=1)
    privacy = ApproxDP(epsilon, DELTA)
    plan = hdmm.optimize(workload, noise=privacy.noise, time_limit=20, progress=False)
    frame = pd.DataFrame(truth, columns=list(domain.names))
    return plan.measure(hdmm.from_table(domain, frame), privacy, ledger=None)


def methods(domain: Domain, truth: np.ndarray, epsilon: str) -> Iterator[tuple[str, float, Tables, int]]:
    """Every method, its seconds of the processor after measuring, its tables as shares, and their most attributes."""
    release = released(domain, truth, epsilon, 0.0)
    yield "independent", 0.0, lambda axes: _independent(release, domain, axes), 3
    for name, options in (("unbiased", {}), ("nonnegative", {"nonnegative": True}), ("fitted", {"fitted": True})):
        start, most = time.process_time(), 3 if name == "fitted" else 2
        try:
            held = {axes: _shares(release, domain, axes, **options) for axes in tables_asked(domain, most)}
        except hdmm.HdmmError as refused:
            print(f"  {name}: {refused}")
            continue
        yield name, time.process_time() - start, held.__getitem__, most
    for name, weight in (("rows", 0.0), ("weighted", 10.0)):
        made = release if not weight else released(domain, truth, epsilon, weight)
        start = time.process_time()
        codes = np.stack(made.rows().codes, axis=1)
        seconds = time.process_time() - start
        yield name, seconds, lambda axes, codes=codes: counts(domain, codes, axes) / len(codes), 3


def _shares(release: Release, domain: Domain, axes: Table, **options: Any) -> np.ndarray:
    values = release.answer(Workload(domain, (product(domain, axes),)), **options).values
    return values / max(values.sum(), 1.0)


def _independent(release: Release, domain: Domain, axes: Table) -> np.ndarray:
    each = [np.maximum(_shares(release, domain, (i,)), 0.0) for i in axes]
    found = np.ones(1)
    for share in each:
        found = np.outer(found, share / share.sum()).ravel()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--set", dest="sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--epsilon", nargs="*", default=["0.1", "1", "10"])
    parser.add_argument("--seeds", type=int, default=3, help="releases, each with noise of its own")
    asked = parser.parse_args()
    for name in asked.sets:
        try:
            domain, truth = SETS[name](asked.data)
        except FileNotFoundError as missing:
            print(f"## {name}: {missing.filename} is not there; give --data DIR\n")
            continue
        print(f"## {name}: {len(truth):,} rows, {len(domain)} attributes, {domain.size:.1e} cells\n")
        print("| ε | method | 1-way mean | largest | 2-way mean | largest | 3-way mean | largest | seconds |")
        print("|---|---|---|---|---|---|---|---|---|")
        for epsilon in asked.epsilon:
            found: dict[str, list[tuple[float, dict[int, list[float]]]]] = {}
            for _ in range(asked.seeds):
                for method, seconds, tables, most in methods(domain, truth, epsilon):
                    found.setdefault(method, []).append((seconds, distances(domain, truth, tables, most)))
            for method, runs in found.items():
                cells = [_cell([each[k] for _, each in runs]) for k in (1, 2, 3)]
                print(
                    f"| {epsilon} | {method} | {' | '.join(cells)} | {np.mean([s for s, _ in runs]):.1f} |", flush=True
                )
        print()


def _cell(runs: list[list[float]]) -> str:
    if not all(runs):
        return "– | –"
    return f"{np.mean([np.mean(r) for r in runs]):.4f} | {np.mean([max(r) for r in runs]):.4f}"


if __name__ == "__main__":
    main()
