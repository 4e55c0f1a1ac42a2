"""OPT_M and OPT_G compared with their targets: `python -m benchmarks.marginals [seconds per row] [name …]`.

Each row runs restarts 0, 1, 2, … until the target is met or the seconds are used up, and at least one restart. Then a
whole start of OPT_M is timed by the processor's clock, and one loss with its gradient is compared with the textbook
formula with a 2^d × 2^d table.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.workloads import paper_workloads, sf1, up_to_k_way
from hdmm import AllRange, Domain, Identity, Prefix, Strategy, Workload, unit_error
from hdmm.select.marginal_weights import laplace_loss
from hdmm.select.opt_g import opt_g
from hdmm.select.opt_m import opt_m
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.strategy.subsets import Whole

# The seconds that a whole start takes in the authors' public code, by the number of attributes; a tenth is allowed.
STARTS = {8: 0.3, 10: 5.0, 12: 25.0}

Operator = Callable[[Problem, Search], Strategy]


def main(arguments: list[str]) -> None:
    budget = float(arguments[0]) if arguments else 30.0
    print(f"{'row':34} {'operator':8} {'reached':>11} {'target':>11} {'restarts':>8} {'seconds':>8}")
    for name, workload, operator, target, rooted in rows():
        if arguments[1:] and not any(word in name for word in arguments[1:]):
            continue
        best, count, start = math.inf, 0, time.perf_counter()
        while count == 0 or (best > target * (1 + 5e-5) and time.perf_counter() - start < budget):
            found = operator(Problem(workload), Search(np.random.default_rng([0, count]), count))
            error = unit_error(workload, found)
            best = min(best, math.sqrt(error / workload.queries) if rooted else error)
            count += 1
        seconds = time.perf_counter() - start
        mark = "" if best <= target * (1 + 5e-5) else "  short"
        print(f"{name:34} {operator.__name__:8} {best:11.5g} {target:11.5g} {count:8} {seconds:8.1f}{mark}", flush=True)
    if not arguments[1:]:
        print()
        for d in STARTS:
            print_start(d)
        print(f"\n{'one loss and gradient':34} {'ms':>11} {'textbook':>11} {'ratio':>8}")
        for d in (8, 10, 12, 20):
            print_cost(d)


def rows() -> Iterator[tuple[str, Workload, Operator, float, bool]]:
    """(name, workload, operator, target, whether the target is an RMSE)."""
    errors = [4752, 1.9211e6, 1.0788e8, 2.197e9, 1.154e10, 2.145e10, 2.239e10, 2.250e10]
    for k, error in enumerate(errors, start=1):
        yield f"up to {k}-way marginals of 10^8", up_to_k_way(k), opt_m, error, False
    named = paper_workloads()
    yield "Adult 2-way marginals", named["2-way Marginals"], opt_m, 6.20, True
    yield "Adult all marginals", named["All Marginals"], opt_m, 3.642, True
    yield "CPS 2-way range-marginals", named["2-way Range-Marginals"], opt_g, 22.65, True
    yield "CPS all range-marginals", named["All Range-Marginals"], opt_g, 31.41, True
    for n, target in ((64, 7.36), (256, 10.74), (1024, 14.9)):
        yield f"[R⊗T; T⊗R] {n}²", _pair(n, AllRange(), None), opt_g, target, True
    for n, target in ((64, 5.153), (256, 7.89)):
        yield f"[P⊗I; I⊗P] {n}²", _pair(n, Prefix(), Identity()), opt_g, target, True
    yield "SF1", sf1(), opt_g, 5.16, True
    yield "SF1+", sf1(plus=True), opt_g, 7.21, True
    domain = Domain({f"a{i}": 2 for i in range(12)})
    yield "2-way marginals of 12 binary", Workload.marginals(domain, k=2), opt_m, 58464, False
    domain = Domain({f"a{i}": 10 for i in range(100)})
    yield "3-way marginals of 100 × 10", Workload.marginals(domain, k=3), opt_m, 2.7e18, False


def print_start(d: int) -> None:
    """Print the error and the processor's seconds of a whole start of OPT_M for up-to-3-way marginals of 10^d."""
    workload = Workload.marginals(Domain({f"a{i}": 10 for i in range(d)}), k=range(4))
    times, error = list[float](), math.nan
    for _ in range(3):
        start = time.process_time()
        found = opt_m(Problem(workload), Search(np.random.default_rng(0)))
        times.append(time.process_time() - start)
        error = unit_error(workload, found)
    print(f"OPT_M, a whole start, d = {d:2}: {min(times):.3f} s of {STARTS[d] / 10:g}, error {error:.5g}", flush=True)


def print_cost(d: int) -> None:
    """Print the milliseconds of one loss with its gradient over all 2^d subsets, and of the textbook up to d = 12."""
    rng = np.random.default_rng(0)
    lattice, t, theta = Whole(np.full(d, 0.1)), rng.random(1 << d), rng.random(1 << d)
    mine = _milliseconds(lambda: laplace_loss(lattice, t, theta))
    if d > 12:
        print(f"{f'd = {d}':34} {mine:11.3g}")
        return
    bits = np.array(list(itertools.product((0, 1), repeat=d)))[:, ::-1]
    held = bits @ bits.T == bits.sum(axis=1)[:, None]
    table = np.where(held, 0.1 ** (bits.sum(axis=1)[None, :] - bits.sum(axis=1)[:, None]), 0.0)

    def textbook() -> None:
        lam = table @ theta**2
        loss = np.sum(t / lam)
        S = theta.sum()
        _ = 2 * S * loss - 2 * S**2 * theta * (table.T @ (t / lam**2))

    plain = _milliseconds(textbook)
    print(f"{f'd = {d}':34} {mine:11.3g} {plain:11.3g} {plain / mine:8.1f}")


def _pair(n: int, one: AllRange | Prefix, two: Identity | None) -> Workload:
    domain = Domain({"x": n, "y": n})
    other = {} if two is None else {"y": two}
    first = Workload.product(domain, {"x": one, **other})
    other = {} if two is None else {"x": two}
    return first + Workload.product(domain, {"y": one, **other})


def _milliseconds(call: Callable[[], object]) -> float:
    call()
    times: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


if __name__ == "__main__":
    main(sys.argv[1:])
