"""The cost of selection, compared with textbook formulas in the same run: `python -m benchmarks.cost [--largest N]`.

Seconds depend on the machine and are for orientation; ratios do not. BLAS uses one thread.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.marginals import STARTS as MARGINALS
from benchmarks.marginals import print_cost, print_start
from benchmarks.opt0 import step_ratio
from hdmm import AllRange, Prefix
from hdmm.matrix import gram_inverse, trace_product
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import Search

# The imports of a program before it asks for a plan; hdmm.optimize loads selection and its optimisers.
IMPORTS = ["import hdmm", "from hdmm import Domain, Workload, Identity"]

# (cells, allowed seconds, RMSE to reach) of one start
STARTS = [
    (Prefix(), 1024, 2, 6.74),
    (AllRange(), 1024, 2, 7.79),
    (Prefix(), 2048, 10, None),
    (AllRange(), 2048, 10, None),
    (Prefix(), 4096, 60, 8.49),
    (AllRange(), 4096, 60, None),
    (Prefix(), 8192, 60, 9.84),
    (AllRange(), 8192, 60, 11.58),
    (Prefix(), 65536, 60, 13.43),
    (Prefix(), 2**20, 60, 18.2),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=2**20, help="leave out one-attribute rows with more cells")
    largest = parser.parse_args().largest
    for code in IMPORTS:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        print(f"{code}: {time.perf_counter() - started:.2f} s, including the start of Python (0.5 allowed)", flush=True)
    with threadpool_limits(limits=1, user_api="blas"):
        step_ratio()
        for d in (8, 12, 20):
            print_cost(d)
        for d in MARGINALS:
            print_start(d)
        print("OPT_0, one start")
        for predicates, n, allowed, reach in STARTS:
            if n > largest:
                continue
            V = predicates.gram(n)
            started, used = time.monotonic(), time.process_time()
            A = opt_0(V, Search(np.random.default_rng(0), deadline=started + allowed))
            seconds, used = time.monotonic() - started, time.process_time() - used
            rmse = np.sqrt(trace_product(gram_inverse(A), V) / predicates.count(n))
            target = "" if reach is None else f", to reach {reach}"
            name = f"{type(predicates).__name__} {n}"
            print(
                f"  {name:<15} {seconds:6.1f} s of {allowed:2}, {used:.1f} s CPU: RMSE {rmse:.4f}{target}", flush=True
            )


if __name__ == "__main__":
    main()
