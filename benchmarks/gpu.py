"""What one GPU does: exact noise, Kronecker products, OPT_0 and a whole release. `python -m benchmarks.gpu [file]`.

Every part is first compared with the processor's numbers on a small case, and then timed: the median of several runs
after a first one, which compiles. The figures are printed, and written to benchmarks/results/gpu.csv or to the given
file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.csv_tables import as_csv
from hdmm import Domain, EngineError, PureDP, Strategy, from_array
from hdmm.engines import Device, gpu
from hdmm.matrix import Cumulative, Kron, Matrix, PIdentity, gram, gram_inverse, to_dense, trace_product
from hdmm.matrix.integers import rounded
from hdmm.measure.measure import measure
from hdmm.noise.chacha import Stream
from hdmm.noise.device_noise import laplace_in
from hdmm.noise.numbered import numbered_coins, numbered_laplace
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import first_search
from hdmm.strategy.blocks import Block
from hdmm.strategy.slabs import exact_answers

RESULTS = Path(__file__).parent / "results" / "gpu.csv"
CELLS, AXES, ROWS = 63, 5, 4  # 63⁵ ≈ 1e9 cells; p-Identities of 4 rows
DRAWS = 10**9
Row = tuple[str, str, str]


def main() -> None:
    engine = gpu()
    name = engine.xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    rows = [("what", "figure", "to reach")]
    for part in (noise, products, prefixes, release):
        for row in part(engine):
            print(" | ".join(row), flush=True)
            rows.append(row)
        engine.xp.get_default_memory_pool().free_all_blocks()
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.write_text(as_csv(f"# One {name}, CuPy {engine.xp.__version__}\n\n{table}\n"), encoding="utf-8")


def noise(engine: Device) -> Iterator[Row]:
    """Draws at several scales; the kernel's against NumPy's."""
    stream = Stream(bytes(range(32)), 1)
    for exponent in (4, 21, 52):
        coins = numbered_coins(Fraction(2**exponent))
        for start in (0, 2**32 - 5000, 2**40):
            drawn = engine.to_host(laplace_in(engine.xp, stream, coins, start, 50_001))
            _equal(drawn, numbered_laplace(stream, coins, start, 50_001))
        seconds = _median(engine, lambda coins=coins: laplace_in(engine.xp, stream, coins, 0, DRAWS))
        reach = "≥ 3e9 per second" if exponent == 21 else ""
        yield f"exact Laplace noise at scale 2^{exponent}", f"{DRAWS / seconds:.3g} draws per second", reach


def products(engine: Device) -> Iterator[Row]:
    """Products with p-Identities on every axis, and back; in float64, and exact on integers."""
    xp, rng = engine.xp, np.random.default_rng(0)
    small = [PIdentity(rng.random((2, n))) for n in (7, 20, 3)]
    x = rng.integers(-(2**63), 2**63 - 1, (7, 20, 3))
    whole = [rounded(A, 8)[0] for A in small]
    _equal(engine.to_host(engine.answers(whole, x)), exact_answers(whole, x))
    expected = Kron(tuple(small)) @ (x.ravel() / 2**63)
    _close(engine.to_host(_product(xp, small, xp.asarray(x / 2**63))), expected)
    factors = _factors(rng)
    cells = xp.asarray(rng.random(CELLS)).repeat(CELLS ** (AXES - 1))

    def and_back() -> Any:
        return _product(xp, [A.T for A in factors], _product(xp, factors, cells))

    yield f"Kronecker product and back, {CELLS}^{AXES} cells, float64", f"{_median(engine, and_back):.3f} s", "≤ 0.6 s"


def _product(xp: Any, factors: Sequence[Matrix], x: Any) -> Any:
    """(⊗ factors) x in float64, flat, for an x in the engine's memory: one factor after the other, written out."""
    for A in factors:
        x = x.reshape(A.shape[1], -1).T @ xp.asarray(to_dense(A).astype(np.float64)).T
    return x.reshape(-1)


def prefixes(engine: Device) -> Iterator[Row]:
    """The error of OPT_0 on prefix sums, and its time; what is compiled is compiled on a smaller case."""
    search = replace(first_search(), xp=engine.xp)
    opt_0(gram(Cumulative(4096)), search)
    for n in (4096, 8192):
        V = gram(Cumulative(n))
        start = time.perf_counter()
        A = opt_0(V, search)
        seconds = time.perf_counter() - start
        error = (trace_product(gram_inverse(A), V) / n) ** 0.5
        reach = "≤ 3 s, 9.463" if n == 8192 else ""
        yield f"OPT_0, Prefix on {n} cells", f"{seconds:.2f} s to an RMSE of {error:.4f}", reach


def release(engine: Device) -> Iterator[Row]:
    """From counts in memory to noisy measurements in memory, through hdmm.measure.measure."""
    rng = np.random.default_rng(0)
    domain = Domain({f"a{i}": CELLS for i in range(AXES)})
    strategy = Strategy(domain, (Block(1.0, list(enumerate(_factors(rng)))),))
    counts = np.tile(rng.integers(0, 100, CELLS), CELLS ** (AXES - 1))
    data = from_array(domain, counts)
    times = list[float]()
    for _ in range(3):
        start = time.perf_counter()
        made = measure(strategy, data, PureDP(1), ledger=None, engine=engine)
        times.append(time.perf_counter() - start)
        size = sum(y.size for y in made.measurements)
        del made
    shown = f"{times[0]:.1f} s, then {', '.join(f'{t:.1f} s' for t in times[1:])}; {size:,} measurements"
    yield f"whole release of {CELLS}^{AXES} cells", shown, "≤ 5 s"


def _factors(rng: np.random.Generator) -> list[Matrix]:
    return [PIdentity(rng.random((ROWS, CELLS))) for _ in range(AXES)]


def _median(engine: Device, run: Callable[[], Any], times: int = 5) -> float:
    """Seconds, the first run not counted."""
    found = list[float]()
    for _ in range(times + 1):
        start = time.perf_counter()
        result = run()
        engine.xp.cuda.Device().synchronize()
        found.append(time.perf_counter() - start)
        del result
    return median(found[1:])


def _equal(found: Any, expected: Any) -> None:
    if not np.array_equal(found, expected):
        raise EngineError("The GPU's numbers differ from the processor's. Do not use it, and report this.")


def _close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


if __name__ == "__main__":
    main()
