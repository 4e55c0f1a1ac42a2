"""How costs grow: `python -m benchmarks.cliffs [NAME …] [--seconds N] [--memory GB]`.

Each row doubles its size until it takes 100 seconds of the processor or 8 GB, and prints the growth: the exponent of
the last doubling beside the one that the docstrings state. Every size runs in a process of its own. The exit status is
not zero if an exponent is more than a quarter above its statement, or if a time limit is exceeded by 10 % and a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import hdmm
from hdmm import AllRange, Domain, Prefix, PureDP, Ranges, Strategy, Workload
from hdmm.matrix import PIdentity
from hdmm.select.opt_0 import tree_rows
from hdmm.select.tree import tree_widths
from hdmm.strategy.blocks import Block

_LIMIT = 4.0  # seconds of a search, whose size must not matter
_SLACK = 0.25  # of an exponent
_NOISE = 0.2  # seconds below which growth is not judged

Run = Callable[[int], Callable[[], object]]
"""From a size to what is timed; making its input is not."""


@dataclass(frozen=True, slots=True)
class Row:
    """What grows, from which size on, and the exponent that docstrings state; none where a time limit is kept."""

    text: str
    start: int
    run: Run
    exponent: float | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"rows to run, from {', '.join(ROWS)}; default all")
    parser.add_argument("--seconds", type=int, default=100, help="of the processor, at which a row ends")
    parser.add_argument("--memory", type=float, default=8.0, help="in GB, at which a row ends")
    parser.add_argument("--one", type=int, metavar="SIZE", help="run one size in this process, and print its figures")
    given = parser.parse_args()
    if given.one is not None:
        return _one(given.names[0], given.one)
    failed = [name for name in given.names or ROWS if not _grown(name, given.seconds, given.memory)]
    print("All as stated." if not failed else f"Above what is stated: {', '.join(failed)}.")
    return 1 if failed else 0


def _one(name: str, size: int) -> int:
    # The process has a clock of its own, which other processes on the same cores do not slow down.
    time.monotonic = time.process_time
    timed = ROWS[name].run(size)
    begun = time.process_time()
    timed()
    seconds = time.process_time() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"seconds": seconds, "memory": memory}))
    return 0


def _grown(name: str, seconds: int, memory: float) -> bool:
    """Whether a row grows as stated; prints every size."""
    row, last, kept = ROWS[name], math.nan, True
    print(f"{name}: {row.text}")
    for size in (row.start << k for k in itertools.count()):
        found = _limited([sys.executable, "-m", "benchmarks.cliffs", name, "--one", str(size)], seconds, memory)
        if found is None:
            print(f"  {size:>9,}  more than {seconds} s or {memory:g} GB", flush=True)
            return kept
        growth = math.log2(found["seconds"] / last) if last > _NOISE else math.nan
        stated = f"≤ {1.1 * _LIMIT + 1:g} s" if row.exponent is None else f"stated {row.exponent:g}"
        grown = "" if row.exponent is None or math.isnan(growth) else f"  growth {growth:.2f}, {stated}"
        print(f"  {size:>9,}{found['seconds']:9.2f} s{found['memory']:7.2f} GB{grown or '  ' + stated}", flush=True)
        if row.exponent is None:
            kept &= found["seconds"] <= 1.1 * _LIMIT + 1
            if size >= 16 * row.start:
                return kept
        elif growth > row.exponent + _SLACK:
            kept = False
        if found["seconds"] > seconds / 4:  # the next size would take longer than is allowed
            return kept
        last = found["seconds"]
    return kept


def _limited(command: list[str], seconds: int, memory: float) -> dict[str, float] | None:
    """The figures that a command prints; None if it takes more than it may."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (2 * seconds, 2 * seconds))  # making the input is not counted
        most = int(memory * 1e9)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    if done.returncode < 0 or "MemoryError" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    return found if found["seconds"] <= seconds else None


def _search(w: Workload | dict[str, Workload], noise: str, objective: str | None = None) -> Callable[[], object]:
    return lambda: hdmm.optimize(w, noise=noise, objective=objective, time_limit=_LIMIT, workers=1, progress=False)


def _random_products(count: int, d: int = 6, n: int = 10) -> Workload:
    rng, domain = np.random.default_rng(0), Domain({f"a{i}": n for i in range(d)})
    products: list[hdmm.Product] = []
    for _ in range(count):
        names = rng.choice(domain.names, size=int(rng.integers(1, 4)), replace=False).tolist()
        ends = np.sort(rng.integers(0, n, (len(names), 2)), axis=1).tolist()
        products += Workload.product(domain, {k: Ranges([tuple(e)]) for k, e in zip(names, ends, strict=True)}).products
    return Workload(domain, tuple(products))


def _random_tables(count: int) -> dict[str, Workload]:
    rng, domain = np.random.default_rng(0), Domain({f"a{i}": n for i, n in enumerate((8, 10, 6, 12, 5, 9, 4, 7))})
    kinds = [hdmm.Identity(), Prefix(), AllRange()]
    chosen = [rng.choice(domain.names, size=int(rng.integers(1, 4)), replace=False).tolist() for _ in range(count)]
    return {
        f"t{t}": Workload.product(domain, {name: kinds[int(rng.integers(3))] for name in names})
        for t, names in enumerate(chosen)
    }


def _marginal_tables(d: int) -> dict[str, Workload]:
    w = Workload.marginals(Domain({f"a{i}": 10 for i in range(d)}), k=range(4))
    return {f"t{t}": Workload(w.domain, (p,)) for t, p in enumerate(w.products)}


def _heavy(n: int) -> Workload:
    """Five products of ranges, prefixes and cells."""
    domain = Domain({"x": n, "y": n // 2, "z": n // 4})
    chosen = [{"x": AllRange(), "y": Prefix()}, {"y": AllRange(), "z": AllRange()}, {"x": Prefix(), "z": Prefix()}]
    chosen += [{"x": hdmm.Identity(), "y": AllRange()}, {"x": AllRange(), "y": AllRange(), "z": hdmm.Identity()}]
    return Workload(domain, tuple(p for sets in chosen for p in Workload.product(domain, sets).products))


def _ranges(n: int) -> Callable[[], object]:
    w = Workload.product(Domain({"x": n}), x=AllRange())
    tree = Strategy(w.domain, (Block(1.0, [(0, PIdentity(tree_rows(n, tree_widths(n, 16))))]),))
    return lambda: hdmm.query_variance(w, tree, PureDP(1))


def _released(w: Workload) -> hdmm.Release:
    plan = hdmm.optimize(w, restarts=1, time_limit=_LIMIT, workers=1, progress=False)
    rows = pa.table({name: np.zeros(100, dtype=np.int64) for name in w.domain.names})
    return plan.measure(hdmm.from_table(w.domain, rows), PureDP(1), ledger=None)


def _answers(count: int) -> Callable[[], object]:
    w = _random_products(count)
    release = _released(w)
    return lambda: release.answer(w).interval()


def _binary(d: int) -> Workload:
    return Workload.marginals(Domain({f"a{i}": 2 for i in range(d)}), k=3)


def _measured(d: int) -> Callable[[], object]:
    w = Workload.marginals(Domain({f"a{i}": 10 for i in range(d)}), k=2)
    plan = hdmm.optimize(w, restarts=1, time_limit=_LIMIT, workers=1, progress=False)
    rng = np.random.default_rng(0)
    rows = pa.table({name: rng.integers(0, 10, 100_000) for name in w.domain.names})
    return lambda: plan.measure(hdmm.from_table(w.domain, rows), PureDP(1), ledger=None)


def _stddev(d: int) -> Callable[[], object]:
    answers = _released(_binary(d)).answer(_binary(d))
    return lambda: answers.stddev


ROWS = {
    "products": Row("a search over random products", 1000, lambda k: _search(_random_products(k), "laplace"), None),
    "products-gaussian": Row(
        "the same, Gaussian noise", 1000, lambda k: _search(_random_products(k), "gaussian"), None
    ),
    "tables": Row(
        'a search over random tables for "worst"', 25, lambda k: _search(_random_tables(k), "laplace", "worst"), None
    ),
    "marginals": Row(
        'a search over marginals up to 3-way of attributes for "worst"',
        4,
        lambda d: _search(_marginal_tables(d), "laplace", "worst"),
        None,
    ),
    "heavy": Row("a search over five products of many values", 64, lambda n: _search(_heavy(n), "laplace"), None),
    "ranges": Row("standard deviations of all ranges of n values, under n/15 rows", 512, _ranges, 3),
    "stddev": Row("standard deviations of 3-way marginals of binary attributes", 5, _stddev, 3),
    "measured": Row("2-way marginals of attributes, measured with Laplace noise on 1e5 rows", 25, _measured, 2),
    "answers": Row("answers to random products, with intervals", 1250, _answers, 1),
}

if __name__ == "__main__":
    sys.exit(main())
