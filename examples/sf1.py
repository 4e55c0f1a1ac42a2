"""The SF1 workload of the 2010 Census: its size, and the error of plain strategies and of a selected one.

Run with `make sf1`, or `python -m examples.sf1`. No data is read and nothing is spent: the expected error is known
before any data is read.
"""

from __future__ import annotations

import time

import numpy as np
from benchmarks.workloads import sf1, sf1_domain, sf1_single_queries

import hdmm
from hdmm import Product, PureDP, Sets, Workload
from hdmm.baselines import identity, laplace

SECONDS = 20.0
PAPER_BYTES = {"SF1": (335_000, 8_309_969_920), "SF1+": (687_000, 22_038_040_227_840)}


def main() -> None:
    epsilon = PureDP(1)
    for name, plus in (("SF1", False), ("SF1+", True)):
        w = sf1(plus=plus)
        paper, explicit = PAPER_BYTES[name]
        print(f"{name}: {w.queries:,} queries in {len(w.products)} products over {w.domain.size:,} cells")
        sizes = zip(w.domain.names, w.domain.shape, strict=True)
        print(f"  attributes            {', '.join(f'{name} ({n})' for name, n in sizes)}")
        print(f"  as an explicit matrix {_bytes(explicit):>10}")
        print(f"  the paper's factors   {_bytes(paper):>10}")
        print(
            f"  here                  {_bytes(w.nbytes):>10}   Identity and Total take nothing, ranges take their ends"
        )
        _compact(plus=plus)
        start = time.perf_counter()
        print(f"  expected error per query at {epsilon}, as a standard deviation:")
        for label, strategy in (("Identity", identity(w)), ("Laplace mechanism", laplace(w))):
            print(
                f"    {label:<18} {hdmm.rmse(w, strategy, epsilon):9.2f}"
                f"   sensitivity {strategy.sensitivity('laplace')}"
            )
        plan = hdmm.optimize(w, time_limit=SECONDS)
        print(f"    {'hdmm.optimize':<18} {plan.rmse(epsilon):9.2f}   {plan.operator}, in {SECONDS:.0f} s")
        bound = np.sqrt(hdmm.lower_bound(w, epsilon) / w.queries)
        print(f"    {'no strategy below':<18} {bound:9.2f}   singular-value bound")
        for label, strategy in (("Identity", identity(w)), ("the plan", plan.strategy)):
            deviation = np.sqrt(hdmm.query_variance(w, strategy, epsilon))
            print(f"    single queries with {label}: from {deviation.min():.2f} to {deviation.max():.2f}")
        print(f"  computed in {time.perf_counter() - start:.2f} s\n")
    print(f"What the plan for SF1+ measures:\n{plan.explain()}")


def _compact(*, plus: bool) -> None:
    """Compact the same workload from single queries, such as a list of SQL counts."""
    domain = sf1_domain(plus=plus)
    sets: dict[tuple[int, ...], Sets] = {}
    products = tuple(
        Product(
            domain,
            tuple((i, sets.setdefault(s, Sets([s]))) for i, s in enumerate(query) if len(s) < domain.shape[i]),
        )
        for query in sf1_single_queries(plus=plus)
    )
    start = time.perf_counter()
    found = Workload(domain, products).compact()
    seconds = time.perf_counter() - start
    print(f"  {len(products):,} single queries compact to {len(found.products)} products in {seconds:.1f} s")


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


if __name__ == "__main__":
    main()
