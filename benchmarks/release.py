"""The cost of releases, each in a separate process: `python -m benchmarks.release [NAME …] [--rows N]`.

The figures are seconds and peak memory, in multiples of the data vector and without what the process held before the
data was made. The product rows are compared with the plain method in the same process: dense factors by
numpy.tensordot, floating-point Laplace noise and pseudo-inverses (which is not private, and only for timing).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import hdmm
from benchmarks.csv_tables import as_csv
from benchmarks.workloads import sf1
from hdmm import ZCDP, Domain, Prefix, PureDP, Strategy, Workload, from_array, from_table
from hdmm.matrix import to_dense
from hdmm.measure.measure import measure
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import first_search
from hdmm.strategy.blocks import Block

RESULTS = Path(__file__).parent / "results" / "release.csv"


def product(n: int, *, plain: bool) -> dict[str, float]:
    """Measure and reconstruct the product strategy that OPT_0 finds for Prefix on three attributes of n values."""
    domain = Domain({"a": n, "b": n, "c": n})
    w = Workload.product(domain, a=Prefix(), b=Prefix(), c=Prefix())
    A = opt_0(Prefix().gram(n), first_search())
    strategy = Strategy(domain, (Block(1.0, tuple((i, A) for i in range(3))),))
    before = peak()
    x = np.random.default_rng(0).integers(0, 9, domain.shape)
    data = from_array(domain, x)
    started = time.perf_counter()
    release = measure(strategy, data, PureDP(1), ledger=None, workload=w)
    measured = time.perf_counter()
    assert release.estimate is not None
    seconds = time.perf_counter() - started
    memory = (peak() - before) / x.nbytes
    out = {"seconds": seconds, "measure": measured - started, "memory": memory}
    del release
    if plain:
        dense = to_dense(A)
        started = time.perf_counter()
        y = along(dense, x.astype(float)) + np.random.default_rng(0).laplace(size=(len(dense),) * 3)
        along(np.linalg.pinv(dense), y)
        out["plain"] = time.perf_counter() - started
    return out


def along(A: np.ndarray, x: np.ndarray) -> np.ndarray:
    for axis in range(x.ndim):
        x = np.moveaxis(np.tensordot(A, x, axes=(1, axis)), 0, axis)
    return x


def marginals() -> dict[str, float]:
    """Measure, reconstruct and answer all 3-way marginals of 8 attributes of 8 values, from an array of 8⁸ cells."""
    domain = Domain({f"a{i}": 8 for i in range(8)})
    w = Workload.marginals(domain, k=3)
    plan = hdmm.optimize(w, restarts=3, progress=False)
    before = peak()
    x = np.random.default_rng(0).integers(0, 9, domain.shape)
    data = from_array(domain, x)
    started = time.perf_counter()
    answers = plan.measure(data, PureDP(1), ledger=None).answer(w)
    assert answers.stddev.min() > 0
    return {"seconds": time.perf_counter() - started, "memory": (peak() - before) / x.nbytes}


def wide(privacy: PureDP | ZCDP) -> dict[str, float]:
    """All 3-way marginals of 100 attributes of 10 values from 1e5 rows: 10^100 cells, 161,700 tables.

    Seconds are of this process's CPU time, because other processes may share the cores.
    """
    domain = Domain({f"a{i}": 10 for i in range(100)})
    w = Workload.marginals(domain, k=3)
    started = time.process_time()
    plan = hdmm.optimize(w, noise=privacy.noise, restarts=1, workers=1, progress=False)
    planned = time.process_time()
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.integers(0, 10, 100_000, dtype=np.int8) for name in domain.names})
    release = plan.measure(from_table(domain, table), privacy, ledger=None)
    measured = time.process_time()
    answers = release.answer(w)
    answered = time.process_time()
    assert answers.stddev.min() > 0
    seconds = time.process_time() - started
    return {
        "seconds": seconds,
        "plan": planned - started,
        "measure": measured - planned,
        "reconstruct and answer": answered - measured,
        "memory in GB": peak() / 1e9,
    }


def census(rows: int) -> dict[str, float]:
    """Plan, count, measure and answer SF1 from a Parquet file: 4,151 queries with margins of error."""
    w = sf1()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        sizes = zip(w.domain.attributes, w.domain.shape, strict=True)
        columns = {a.name: np.array(a.labels)[rng.integers(0, n, rows)] for a, n in sizes}
        pyarrow.parquet.write_table(pa.table(columns), path)
        del columns
        started = time.perf_counter()
        plan = hdmm.optimize(w, time_limit=15, progress=False)
        planned = time.perf_counter()
        release = plan.measure(from_table(w.domain, path), PureDP(1), ledger=None)
        measured = time.perf_counter()
        tables = release.answer(w).tables()
        assert sum(map(len, tables)) == w.queries
        seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "plan": planned - started,
        "count and measure": measured - planned,
        "memory in GB, including making the rows": peak() / 1e9,
    }


def peak() -> float:
    """The peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


ROWS: dict[str, tuple[str, str, Callable[[int], dict[str, float]]]] = {
    "256": (
        "product strategy, 256³ cells: measure + reconstruct",
        "2.5 s, 4 × data",
        lambda _: product(256, plain=True),
    ),
    "1e8": ("product strategy, 464³ = 1e8 cells", "25 s, 4 × data", lambda _: product(464, plain=False)),
    "8^8": ("marginal strategy, 8⁸ cells: measure + reconstruct + answer", "1 s", lambda _: marginals()),
    "wide": (
        "100 attributes of size 10, all 3-way marginals, 1e5 rows, Gaussian noise, CPU time",
        "30 s, 4 GB",
        lambda _: wide(ZCDP("0.5")),
    ),
    "wide-laplace": ("the same, Laplace noise", "no vector over the domain", lambda _: wide(PureDP(1))),
    "sf1": ("SF1 end to end from 1e7 rows", "30 s", census),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"rows to run, from {', '.join(ROWS)}; by default all")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the SF1 table")
    parser.add_argument("--one", action="store_true", help="run one row in this process and print its figures as JSON")
    given = parser.parse_args()
    unknown = set(given.names) - set(ROWS)
    if unknown:
        parser.error(f"no row is named {', '.join(sorted(unknown))}")
    if given.one:
        print(json.dumps(ROWS[given.names[0]][2](given.rows)))
        return
    lines = [
        "# What releases cost",
        "",
        f"`python -m benchmarks.release {' '.join(sys.argv[1:])}`".replace(" `", "`"),
        "",
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, NumPy {np.__version__}, {date.today()}.",
        "",
        "| what | allowed | measured |",
        "|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in given.names or ROWS:
        what, allowed, _ = ROWS[name]
        command = [sys.executable, "-m", "benchmarks.release", name, "--one", "--rows", str(given.rows)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        figures = json.loads(done.stdout)
        words = ", ".join(f"{key} {value:.3g}" for key, value in figures.items())
        lines.append(f"| {what} | {allowed} | {words} |")
        print(lines[-1], flush=True)
    if not given.names:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(as_csv("\n".join(lines)))


if __name__ == "__main__":
    main()
