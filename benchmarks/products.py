"""OPT_⊗, OPT_+ and merged attributes on workloads that suit them: `python -m benchmarks.products [row …]`.

A figure is the RMSE at unit noise, √(unit error / queries), of the best of the first restarts of one operator. There is
one thread if OMP_NUM_THREADS is 1. The targets are from the paper's tables or from prototypes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.workloads import adult_domain, cps_domain, sf1
from hdmm import AllRange, Domain, Identity, PredicateSet, Prefix, Total, Workload, unit_error
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_plus import opt_plus
from hdmm.select.opt_x import opt_merged, opt_x
from hdmm.strategy.strategy import Strategy

SECONDS = 60.0
OPERATORS: dict[str, Callable[..., Strategy]] = {"product": opt_x, "union": opt_plus, "merged": opt_merged}


@dataclass(frozen=True)
class Row:
    """A workload, the operator that suits it, the number of restarts, and the target RMSE."""

    workload: Callable[[], Workload]
    operator: str
    target: float | None
    restarts: int = 1
    noise: Noise = "laplace"


def main(names: list[str]) -> None:
    """Print one line per row: the figure reached, the target, their ratio and the seconds."""
    print(f"{'workload':<28}{'operator':>10}{'reached':>10}{'target':>9}{'ratio':>8}{'seconds':>9}")
    for name, row in rows().items():
        if names and name not in names:
            continue
        w = row.workload()
        start = time.monotonic()
        best = float("inf")
        for restart in range(row.restarts):
            strategy = OPERATORS[row.operator](
                w, rng=np.random.default_rng(restart), restart=restart, noise=row.noise, deadline=start + SECONDS
            )
            best = min(best, unit_error(w, strategy, noise=row.noise))
        reached = (best / w.queries) ** 0.5
        goal = f"{row.target:>9.3f}{reached / row.target:>8.3f}" if row.target else f"{'–':>9}{'–':>8}"
        print(f"{name:<28}{row.operator:>10}{reached:>10.4f}{goal}{time.monotonic() - start:>9.1f}", flush=True)


def rows() -> dict[str, Row]:
    """The rows by name; a name gives the predicates and the size."""
    P, R, I, T = Prefix(), AllRange(), Identity(), Total()  # noqa: E741
    return {
        "P×P 64": Row(lambda: both(64, P, P), "merged", 14.0),
        "P×P 256": Row(lambda: both(256, P, P), "product", 26.9),
        "P×P 1024": Row(lambda: both(1024, P, P), "product", 45.5),
        "R×R 64": Row(lambda: both(64, R, R), "merged", 14.22),
        "R×R 256": Row(lambda: both(256, R, R), "product", 32.5),
        "[R×T; T×R] 64": Row(lambda: sides(64, R, T), "union", 7.36),
        "[R×T; T×R] 256": Row(lambda: sides(256, R, T), "union", 10.74),
        "[R×T; T×R] 1024": Row(lambda: sides(1024, R, T), "union", 14.9),
        "[P×I; I×P] 64": Row(lambda: sides(64, P, I), "product", 5.153),
        "[P×I; I×P] 256": Row(lambda: sides(256, P, I), "union", 7.89),
        "CPS all range-marginals": Row(lambda: Workload.range_marginals(cps_domain()), "product", 31.41),
        "CPS 2-way range-marginals": Row(lambda: Workload.range_marginals(cps_domain(), k=2), "union", None),
        "SF1": Row(sf1, "union", 5.16),
        "SF1+": Row(lambda: sf1(plus=True), "union", 7.21),
        "Adult all marginals": Row(adult_marginals, "product", 3.642),
        "[R×T; T×R] 64 Gaussian": Row(lambda: sides(64, R, T), "union", None, noise="gaussian"),
        "[P×I; I×P] 64 Gaussian": Row(lambda: sides(64, P, I), "product", None, noise="gaussian"),
        "R×R 256 Gaussian": Row(lambda: both(256, R, R), "product", None, noise="gaussian"),
    }


def both(n: int, x: PredicateSet, y: PredicateSet) -> Workload:
    """x ⊗ y on n × n cells."""
    return Workload.product(Domain({"x": n, "y": n}), x=x, y=y)


def sides(n: int, x: PredicateSet, y: PredicateSet) -> Workload:
    """[x ⊗ y; y ⊗ x] on n × n cells."""
    return both(n, x, y) + both(n, y, x)


def adult_marginals() -> Workload:
    """All marginals of the paper's Adult domain, as one product of Identity ∪ Total."""
    return Workload.product(adult_domain(), {name: Identity() | Total() for name in adult_domain().names})


if __name__ == "__main__":
    main(sys.argv[1:])
