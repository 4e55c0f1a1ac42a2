"""Tables of synthetic rows beside the truth: `python -m benchmarks.rows --data DIR [--set NAME …] [--output FILE]`.

Every method has the same budget. The figure is the total variation of a table, half the sum of the absolute differences
of shares, as a mean and as the largest over all tables of one, two and three attributes (50 of three). `rows` are
`Release.rows` of a release of all pairs; `weighted` of one whose plan counts each table of one attribute ten times. The
first release also gives `fitted`, `unbiased` and `nonnegative` answers, and the product of its tables of one attribute
(`independent`). PrivBayes has pure ε. MST and AIM (`competitors/selecting.py`, which says how to install `mbi`) are run
once, by `--mbi PYTHON`, and kept in the folder `--made`. χ² is that of what was measured, per answer, and the furthest
table is in standard deviations. Seconds are of the processor, after measuring. Nothing was tuned on sets but Adult14.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hdmm
from benchmarks.competitors.privbayes import privbayes_rows
from benchmarks.csv_tables import as_csv
from hdmm import ApproxDP, Domain, Workload
from hdmm.describe.predicates import Identity
from hdmm.describe.product import Product
from hdmm.measure.release import Release

DELTA = "1e-9"
TRIPLES = 50
HEAD = [
    "ε",
    "method",
    "runs",
    "1-way",
    "1-way largest",
    "2-way",
    "2-way largest",
    "3-way",
    "3-way largest",
    "χ²",
    "furthest",
    "seconds",
]
Table = tuple[int, ...]
Tables = Callable[[Table], np.ndarray]


@dataclass(frozen=True)
class Made:
    """What a method made: its tables as shares, of so many attributes at most."""

    method: str
    seconds: float
    tables: Tables
    most: int = 3
    misfit: float = np.nan  # χ² per answer
    furthest: float = np.nan  # table, in standard deviations


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


def methods(domain: Domain, truth: np.ndarray, epsilon: str) -> Iterator[Made]:
    """What every method makes that is run again and again."""
    release = released(domain, truth, epsilon, 0.0)
    for name, weight in (("rows", 0.0), ("weighted", 10.0)):
        made = release if not weight else released(domain, truth, epsilon, weight)
        start = time.process_time()
        rows = made.rows()
        seconds = time.process_time() - start
        squares, numbers = zip(
            *((near.numbers * near.typical**2, near.numbers) for near in rows.closeness), strict=True
        )
        misfit, furthest = sum(squares) / sum(numbers), max(near.typical for near in rows.closeness)
        yield Made(name, seconds, _of_rows(domain, np.stack(rows.codes, axis=1)), 3, misfit, furthest)
    for name, options in (("fitted", {"fitted": True}), ("nonnegative", {"nonnegative": True}), ("unbiased", {})):
        start, most = time.process_time(), 3 if name == "fitted" else 2
        try:
            held = {axes: _shares(release, domain, axes, **options) for axes in tables_asked(domain, most)}
        except hdmm.HdmmError as refused:
            print(f"  {name}: {refused}")
            continue
        yield Made(name, time.process_time() - start, held.__getitem__, most)
    yield Made("independent", 0.0, lambda axes: _independent(release, domain, axes))
    start = time.process_time()
    columns, _ = privbayes_rows(domain, partial(_marginal, domain, truth), Fraction(epsilon))
    yield Made("PrivBayes", time.process_time() - start, _of_rows(domain, np.stack(columns, axis=1)))


def selecting(domain: Domain, truth: np.ndarray, name: str, epsilon: str, asked: argparse.Namespace) -> Iterator[Made]:
    """MST and AIM, from the folder where they are kept, or run now."""
    for method in ("mst", "aim"):
        kept = asked.made / f"{method}-{name}-{epsilon}.npz"
        if not kept.exists() and asked.mbi:
            asked.made.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory() as folder:
                np.savez(f"{folder}/codes.npz", codes=truth, sizes=np.array(domain.shape))
                script = Path(__file__).parent / "competitors" / "selecting.py"
                command = [asked.mbi, script, method, f"{folder}/codes.npz", epsilon, DELTA, kept]
                subprocess.run(command, check=True)
        if kept.exists():
            held = np.load(kept)
            yield Made(method.upper(), float(held["seconds"]), _of_rows(domain, held["codes"]))


def _of_rows(domain: Domain, codes: np.ndarray) -> Tables:
    return lambda axes: counts(domain, codes, axes) / len(codes)


def _marginal(domain: Domain, truth: np.ndarray, axes: Table) -> np.ndarray:
    if not axes:
        return np.array(len(truth))
    return counts(domain, truth, axes).reshape([domain.shape[i] for i in axes])


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
    parser.add_argument("--mbi", help="the Python of an environment with mbi; without it, MST and AIM are not run")
    parser.add_argument("--made", type=Path, default=Path("build/made"), help="where rows of MST and AIM are kept")
    parser.add_argument("--output", type=Path, help="the tables as CSV")
    asked = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    for name in asked.sets:
        try:
            domain, truth = SETS[name](asked.data)
        except FileNotFoundError as missing:
            print(f"## {name}: {missing.filename} is not there; give --data DIR\n")
            continue
        say(f"## {name}: {len(truth):,} rows, {len(domain)} attributes, {domain.size:.1e} cells\n")
        say(f"| {' | '.join(HEAD)} |")
        say("|" + "---|" * len(HEAD))
        for epsilon in asked.epsilon:
            found: dict[str, list[tuple[Made, dict[int, list[float]]]]] = {}
            several = (methods(domain, truth, epsilon) for _ in range(asked.seeds))
            for made in itertools.chain(*several, selecting(domain, truth, name, epsilon, asked)):
                found.setdefault(made.method, []).append((made, distances(domain, truth, made.tables, made.most)))
            for method, runs in found.items():
                tables = [_cell([each[k] for _, each in runs]) for k in (1, 2, 3)]
                rest = [_mean([getattr(made, key) for made, _ in runs]) for key in ("misfit", "furthest", "seconds")]
                say(f"| {' | '.join([epsilon, method, str(len(runs)), *tables, *rest])} |")
        say("")
        if asked.output:
            asked.output.write_text(as_csv("\n".join(lines)), encoding="utf-8")


def _cell(runs: list[list[float]]) -> str:
    if not all(runs):
        return "– | –"
    return f"{np.mean([np.mean(r) for r in runs]):.4f} | {np.mean([max(r) for r in runs]):.4f}"


def _mean(figures: list[float]) -> str:
    return "–" if np.isnan(figures).any() else f"{np.mean(figures):.2f}"


if __name__ == "__main__":
    main()
