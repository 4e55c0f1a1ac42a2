"""Counting SF1 from ten million rows, compared with pandas and NumPy: `python -m benchmarks.data [rows]`."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from hdmm import Domain, from_table

SF1 = Domain({"sex": 2, "hispanic": 2, "race": 64, "relationship": 17, "age": 115})
WIDE = Domain({f"a{i}": 10 for i in range(100)})
WIDE_ROWS = 100_000
WIDE_MARGINALS = 10_000


def main() -> None:
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    rng = np.random.default_rng(0)
    print(f"{rows:,} rows; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({name: rng.integers(0, n, rows) for name, n in zip(SF1.names, SF1.shape, strict=True)})
        pyarrow.parquet.write_table(table, f"{folder}/sf1.parquet")
        pyarrow.csv.write_csv(table, f"{folder}/sf1.csv")
        del table
        readers: dict[str, Callable[[Path], pd.DataFrame]] = {".parquet": pd.read_parquet, ".csv": pd.read_csv}
        print(f"{'source':<30}{'ours, s':>10}{'plain, s':>10}")
        for kind, read in readers.items():
            path = Path(folder) / f"sf1{kind}"
            seconds, ours = timed(lambda p=path: from_table(SF1, p).marginal(SF1.names))
            plain_seconds, plain = timed(lambda p=path, r=read: histogram(r(p)))
            np.testing.assert_array_equal(ours, plain)
            print(f"{'SF1 from ' + kind:<30}{seconds:>10.1f}{plain_seconds:>10.1f}", flush=True)
        people = pd.read_parquet(f"{folder}/sf1.parquet", columns=["age"])
        people["who"] = rng.integers(0, rows // 3, rows)
        bounded = from_table(SF1.project(["age"]), people, id="who", max_rows_per_id=2)
        seconds, _ = timed(lambda: bounded.marginal(["age"]))
        print(f"{'at most 2 of 3 rows per person':<30}{seconds:>10.1f}{'-':>10}", flush=True)
    frame = pd.DataFrame({name: rng.integers(0, 10, WIDE_ROWS) for name in WIDE.names})
    wanted = list(itertools.islice(itertools.combinations(WIDE.names, 3), WIDE_MARGINALS))
    seconds, _ = timed(lambda: sum(1 for _ in from_table(WIDE, frame).marginals(wanted)))
    plain_seconds, _ = timed(lambda: [grouped(frame, names) for names in wanted[:20]])
    per_marginal = f"{seconds / len(wanted) * 1e3:>8.2f}ms{plain_seconds / 20 * 1e3:>8.2f}ms"
    print(f"{'3 of 100 attributes, 1e5 rows':<30}{per_marginal}")


def histogram(frame: pd.DataFrame) -> np.ndarray:
    """The plain method, on columns that are codes already: one index, one count."""
    index = np.ravel_multi_index([frame[name].to_numpy() for name in SF1.names], SF1.shape)
    return np.bincount(index, minlength=SF1.size).reshape(SF1.shape)


def grouped(frame: pd.DataFrame, names: tuple[str, ...]) -> object:
    return frame.groupby(list(names)).size()


def timed(run: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
