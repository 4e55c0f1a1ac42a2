"""Per-query variance of millions of queries, compared with one query at a time: `python -m benchmarks.variance`."""

from __future__ import annotations

import time

import numpy as np

import hdmm
from benchmarks.workloads import paper_workloads
from hdmm import PureDP, Strategy, Workload
from hdmm.baselines import identity
from hdmm.matrix import ExtendedDiagonal, PIdentity, gram_inverse, to_dense
from hdmm.strategy.blocks import Block

SAMPLE = 2000


def main() -> None:
    w = paper_workloads()["2-way Range-Marginals"]
    shape = w.domain.shape
    rng = np.random.default_rng(0)
    bases = [PIdentity(rng.random((2, n))) for n in shape]
    marginals = Strategy(
        w.domain,
        tuple(Block(0.1, tuple((i, bases[i]) for i, _ in product.factors)) for product in w.products),
    )
    print(f"CPS 2-way range-marginals: {w}")
    for name, strategy in (("Identity", identity(w)), ("marginals over bases", marginals)):
        start = time.perf_counter()
        variance = hdmm.query_variance(w, strategy, PureDP(1))
        ours = time.perf_counter() - start
        total = hdmm.expected_error(w, strategy, PureDP(1))
        print(f"  {name:<21} {ours:6.2f} s for all; sum / expected error = {variance.sum() / total:.12f}")
    product = Strategy(w.domain, (Block(1.0, tuple(enumerate(bases))),))
    start = time.perf_counter()
    fast = hdmm.query_variance(Workload(w.domain, w.products[:1]), product, PureDP(1))
    ours = (time.perf_counter() - start) / len(fast)
    plain, slow = _one_by_one(w.products[0], bases)
    print(
        f"  one product, per query: {1e6 * ours:.3f} µs here, {1e6 * plain:.1f} µs one by one: {plain / ours:.0f} times"
    )
    print(f"  largest relative difference on {SAMPLE} of them: {np.abs(fast[: len(slow)] / slow - 1).max():.1e}")


def _one_by_one(product: hdmm.Product, bases: list[ExtendedDiagonal]) -> tuple[float, np.ndarray]:
    """(seconds per query, variances of the first queries): w (AᵀA)⁻¹ wᵀ factor by factor, the plain way."""
    shape = product.domain.shape
    inverses = [to_dense(gram_inverse(B)) for B in bases]
    rows = [to_dense(p.matrix(n)) for p, n in zip(product.predicates, shape, strict=True)]
    counts = [len(W) for W in rows]
    out = np.empty(SAMPLE)
    start = time.perf_counter()
    for q in range(SAMPLE):
        place, value = q, 2.0
        for W, H, m in zip(reversed(rows), reversed(inverses), reversed(counts), strict=True):
            place, r = divmod(place, m)
            value *= W[r] @ H @ W[r]
        out[q] = value
    return (time.perf_counter() - start) / SAMPLE, out


if __name__ == "__main__":
    main()
