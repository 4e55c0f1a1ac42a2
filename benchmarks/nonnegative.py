"""Nonnegative and whole counts of 1.5 million cells beside a general solver: `python -m benchmarks.nonnegative`.

The plain way is the first one that hdmm had: L-BFGS-B over x ≥ 0 with products of the whole strategy, here with the
total as one more measurement of small noise, because the total is kept. It gets a limited number of steps, and its time
is that of these. Distances are root mean squares over all 1- to 3-way counts, in standard deviations of the unbiased.
"""

from __future__ import annotations

import time

import numpy as np

import hdmm
from hdmm import ZCDP, Domain, PureDP, Release, Workload
from hdmm.matrix import Array
from hdmm.reconstruct.least_squares import in_unit_noise
from hdmm.select.minimize import minimize
from hdmm.strategy.blocks import Block, stacked_blocks

DOMAIN = Domain(
    {"age": 15, "education": 16, "marital": 7, "occupation": 15, "relationship": 6, "race": 5, "sex": 2},
)
ROWS = 48_842
PLAIN_STEPS = 60


def main() -> None:
    data = made_up()
    w = Workload.marginals(DOMAIN, k=[0, 1, 2, 3])
    truth = w.matrix.matmat(data.ravel()[:, None].astype(np.float64))[:, 0]
    print(f"{DOMAIN.size:,} cells, {ROWS:,} rows, {w.queries:,} counts by up to 3 attributes")
    for privacy in (PureDP(1), ZCDP("0.5")):
        plan = hdmm.optimize(w, noise=privacy.noise, restarts=1, time_limit=10, progress=False)
        release = plan.measure(hdmm.from_array(DOMAIN, data), privacy, ledger=None)
        raw = release.answer(w)
        start = time.perf_counter()
        fitted = release.answer(w, nonnegative=True)
        seconds = time.perf_counter() - start
        whole = release.answer(w, integers=True)
        rounding = time.perf_counter() - start - seconds
        plain, steps, long = plain_way(release, w)

        def apart(one: Array, other: Array, of: Array = raw.stddev) -> float:
            return float(np.sqrt(np.mean(((one - other) / of) ** 2)))

        print(f"{privacy}: {seconds:.1f} s nonnegative, {rounding:.1f} s more for whole numbers")
        print(
            f"  the plain way: {long:.1f} s for {steps} steps, {long / seconds:.1f} times as long; "
            f"it is {apart(plain, fitted.values):.3f} from ours"
        )
        print(
            f"  error: {apart(raw.values, truth):.3f} unbiased, {apart(fitted.values, truth):.3f} nonnegative, "
            f"{apart(whole.values, truth):.3f} whole, {apart(plain, truth):.3f} the plain way"
        )
        off = np.abs(whole.values - fitted.values)
        print(f"  whole numbers are off by {np.sqrt(np.mean(off**2)):.2f} (root mean square), {off.max():.1f} at most")


def made_up() -> Array:
    """Counts of ten groups of people that are independent within a group, with few of the possible combinations."""
    rng = np.random.default_rng(0)
    counts = np.zeros(DOMAIN.shape, dtype=np.int64)
    for size in rng.multinomial(ROWS, np.full(10, 0.1)):
        codes = [rng.choice(n, size, p=rng.dirichlet(np.full(n, 0.15))) for n in DOMAIN.shape]
        np.add.at(counts, tuple(codes), 1)
    return counts


def plain_way(release: Release, w: Workload) -> tuple[Array, int, float]:
    """(answers, steps, seconds) of L-BFGS-B from the unbiased estimate cut at 0."""
    total = float(release.answer(Workload.marginals(DOMAIN, k=0)).values[0])
    blocks = (*release.form.blocks, Block(1.0, ()))  # type: ignore[attr-defined]
    A = stacked_blocks(DOMAIN.shape, blocks)
    y = in_unit_noise(blocks, [*release.measurements, np.array([total])], [*release._units, 1.0])
    unit = 1 / max(block.weight for block in blocks)

    def squares(x: Array) -> tuple[float, Array]:
        residual = A.matmat(unit * x[:, None]) - y[:, None]
        return float(np.vdot(residual, residual)) / 2, unit * A.T.matmat(residual)[:, 0]

    cells = Workload.marginals(DOMAIN, k=len(DOMAIN.names)).products[0]
    start = time.perf_counter()
    first = np.maximum(release.estimate.values(cells), 0.0) / unit
    found = minimize(squares, first, tolerance=1e-9, iterations=PLAIN_STEPS)
    seconds = time.perf_counter() - start
    return w.matrix.matmat(unit * found.x[:, None])[:, 0], PLAIN_STEPS, seconds


if __name__ == "__main__":
    main()
