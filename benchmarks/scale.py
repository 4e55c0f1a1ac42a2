"""How far releases in chunks go: `python -m benchmarks.scale [--cells N] [--blocks N] [--folder DIR]`.

Prints the rates of the parts (disk, noise, encryption, products, counting), then a whole release by workers on this
machine: Prefix on three attributes of N cells together, or the census's 2,016 cells by N blocks with levels of
geography. It says how long each step took, the most memory that all processes together held, the most disk, and the
ratio to the time to read and write the data twice. By default 256³ cells, which take a minute. Large ones:

    --cells 1073741824                          1024³ (17 GB of disk)
    --cells 10000000000 --precision float32     10¹⁰ cells (98 GB of disk); add --chunk-bytes 134217728
    --blocks 580000                             2,016 × 580,000 with levels (13 GB of disk)
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import distributed
import duckdb
import numpy as np
import psutil

import hdmm
from hdmm import Domain, Groups, Identity, Integers, Prefix, PureDP, Workload, from_chunks, from_table
from hdmm.engines import Workers
from hdmm.engines.workers import cluster_here
from hdmm.matrix import Eye
from hdmm.noise import ReleaseKey
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_x import opt_x
from hdmm.select.search import Operator
from hdmm.strategy.axis import axis_of
from hdmm.strategy.slabs import exact_answers, kron_slabs

SAMPLE = 1 << 24  # numbers: 128 MiB
PEOPLE = {"hhgq": 8, "voting_age": 2, "hispanic": 2, "race": 63}  # 2,016 cells
LEVELS = {"tract": 80, "county": 1840, "state": 114_080}  # blocks in each, on average


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=256**3, help="of the cube; 0 to leave it out")
    parser.add_argument("--blocks", type=int, default=0, help="of the census; 0 to leave it out")
    parser.add_argument("--folder", type=Path, help="where the chunks are kept (a temporary folder)")
    parser.add_argument("--plan", type=Path, help="a saved plan, in place of one that is made now")
    parser.add_argument("--precision", choices=["float32", "float64"], default="float64")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chunk-bytes", type=int, default=1 << 26)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="that try 8 restarts of a selection")
    parser.add_argument("--restart-cells", type=int, default=128, help="of the workload that is selected for")
    parser.add_argument("--no-rates", action="store_true", help="leave out the rates of the parts and the restarts")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix="scale-") as folder:
        place = Path(folder)
        write, read = disk_rates(place)
        if not asked.no_rates:
            part_rates(place)
            restarts(asked.restart_cells, asked.processes)
        if asked.cells:
            side = round(asked.cells ** (1 / 3))
            domain = Domain({"x": side, "y": side, "z": side})
            cube = Workload.product(domain, x=Prefix(), y=Prefix(), z=Prefix())
            whole(f"Prefix³, {side}³", cube, Workload.marginals(domain, k=[1, 2]), place, asked, write, read)
        if asked.blocks:
            census = census_workload(asked.blocks)
            people = {name: Identity() for name in PEOPLE}
            tables = Workload.product(census.domain, **people)
            tables += Workload.product(census.domain, race=Identity(), block=Groups("county"))
            whole(f"2,016 × {asked.blocks:,} with levels", census, tables, place, asked, write, read)


def census_workload(blocks: int) -> Workload:
    """People by all attributes, for the nation, states, counties, tracts and blocks."""
    at = np.arange(blocks)
    levels = {name: [str(k) for k in (at // size).tolist()] for name, size in LEVELS.items()}
    domain = Domain({**PEOPLE, "block": Integers(0, blocks - 1, levels=levels)})
    people = {name: Identity() for name in PEOPLE}
    places = Groups("state") | Groups("county") | Groups("tract") | Identity()
    return Workload.product(domain, **people) + Workload.product(domain, **people, block=places)


def whole(name: str, workload: Workload, tables: Workload, place: Path, asked: Any, write: float, read: float) -> None:
    """A whole release by workers: selected, measured, estimated and answered."""
    start = time.perf_counter()
    plan = asked.plan and hdmm.load_plan(asked.plan)
    plan = plan or hdmm.optimize(workload, restarts=1, time_limit=60, progress=False)
    cells = workload.domain.size
    print(f"{name}: {cells:.3g} cells; planned in {time.perf_counter() - start:.0f} s ({plan.operator})", flush=True)
    folder = place / "chunks"
    cluster = cluster_here(n_workers=asked.workers, threads_per_worker=1, memory_limit=0)
    try:
        with cluster, distributed.Client(cluster) as client, watched(folder) as most, timed(cells):
            engine = hdmm.engines.dask(client, folder, chunk_bytes=asked.chunk_bytes, precision=asked.precision)
            start = time.perf_counter()
            release = plan.measure(from_chunks(workload.domain, some_counts), PureDP(1), ledger=None, engine=engine)
            answers = release.answer(tables)
            seconds = time.perf_counter() - start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    twice = 2 * 8 * cells * (1 / write + 1 / read) / 1e9
    print(
        f"  whole release, {len(answers.values):,} answers in {len(tables.products)} tables: {seconds:.0f} s, "
        f"{seconds / twice:.1f} times reading and writing {8 * cells / 1e9:.1f} GB twice ({twice:.0f} s)\n"
        f"  most memory of {asked.workers} workers and this process together {most['memory'] / 2**30:.2f} GiB, most "
        f"disk {most['disk'] / 1e9:.1f} GB ({most['disk'] / cells:.1f} bytes per cell), {most['processor']:,} s of "
        "processors",
        flush=True,
    )


def some_counts(start: int, stop: int) -> Any:
    """Counts from 0 to 15, the same whenever they are asked for."""
    return (np.arange(start, stop) * 2654435761 >> 8) & 15


@contextmanager
def timed(cells: int) -> Iterator[None]:
    """Print the seconds of each step of an engine."""
    results = Workers.results

    def noted(self: Workers, what: str, task: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        start = time.perf_counter()
        yield from results(self, what, task, items)
        taken = time.perf_counter() - start
        print(f"  {what:<26} {taken:8.1f} s {cells / taken / 1e6:8.1f} million cells per second", flush=True)

    Workers.results = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Workers.results = results  # type: ignore[method-assign]


@contextmanager
def watched(folder: Path) -> Iterator[dict[str, int]]:
    """The most that this process and all that it started take together: memory, disk, and seconds of the processor."""
    most, done = {"memory": 0, "disk": 0, "processor": 0}, threading.Event()
    before = time.process_time()  # this process may have done other things

    def look() -> None:
        this, pause = psutil.Process(), 0.1
        while not done.wait(pause):
            start, memory, used = time.perf_counter(), 0, 0.0
            for process in [this, *this.children(recursive=True)]:
                try:
                    memory += process.memory_info().rss
                    used += sum(process.cpu_times()[:2])
                except psutil.Error:
                    continue
            now = {"memory": memory, "disk": disk_of(folder), "processor": round(used - before)}
            most.update({name: max(most[name], value) for name, value in now.items()})
            pause = max(0.1, 10 * (time.perf_counter() - start))  # there may be many files

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def disk_of(folder: Path) -> int:
    """Bytes on disk of the files in a folder."""
    size = 0
    try:
        for entry in os.scandir(folder):
            try:
                size += 512 * entry.stat().st_blocks
            except FileNotFoundError:
                continue
    except FileNotFoundError:
        pass
    return size


def disk_rates(place: Path) -> tuple[float, float]:
    """GB per second, written and read, of a file that is in no cache when it is read."""
    path, content = place / "rate", np.random.default_rng(0).bytes(1 << 26)
    start = time.perf_counter()
    with open(path, "wb") as file:
        for _ in range(16):
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    write = 16 * len(content) / (time.perf_counter() - start) / 1e9
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass
    read = 16 * len(content) / (time.perf_counter() - start) / 1e9
    path.unlink()
    print(f"disk: {write:.2f} GB per second written, {read:.2f} read", flush=True)
    return write, read


def part_rates(place: Path) -> None:
    """Rates of one core, in seconds of the processor."""
    key = ReleaseKey()
    for noise in Noise:
        rate(
            f"{noise} noise",
            "draws",
            SAMPLE,
            lambda noise=noise: key.draw(noise, Fraction(1000), SAMPLE, block=0, chunk=0),
        )
    content = bytes(8 * SAMPLE)
    rate("encryption", "numbers", SAMPLE, lambda: key.hidden(content, ""))
    hidden = key.hidden(content, "")
    rate("decryption", "numbers", SAMPLE, lambda: key.shown(hidden, ""))
    rate("digest", "numbers", SAMPLE, lambda: hashlib.sha256(content).digest())
    plan = hdmm.optimize(Workload.product(Domain({"x": 1024}), x=Prefix()), restarts=1, time_limit=5, progress=False)
    release = plan.measure(hdmm.from_array(plan.workload.domain, [1] * 1024), PureDP(1), ledger=None)
    (A,) = [A for _, A in release.strategy.blocks[0].factors]
    axis = axis_of((A,))
    assert axis is not None
    x = np.ones((SAMPLE >> 10, 1024), dtype=np.int64)
    y = exact_answers([Eye(len(x)), A], x)
    rate(f"exact product, {A.shape[0]} × 1024", "cells", SAMPLE, lambda: exact_answers([Eye(len(x)), A], x))
    back = [Eye(len(x)), axis.analyses[0]]
    rate("the way back", "cells", SAMPLE, lambda: kron_slabs(back, y.reshape(len(x), -1), np.float64))
    counting_rate(place, 2_000_000)


def counting_rate(place: Path, rows: int) -> None:
    """Rows of Parquet per second of the processor, counted over all attributes of people."""
    path = place / "rows.parquet"
    columns = ", ".join(
        f"((i * {7919 + k}) // 7 % {n})::INTEGER AS {name}" for k, (name, n) in enumerate(PEOPLE.items())
    )
    duckdb.execute(f"COPY (SELECT {columns} FROM range({rows}) r(i)) TO '{path}' (FORMAT parquet)")
    data = from_table(Domain(PEOPLE), path)
    data.marginal([])  # imports what reads Parquet
    rate("counting Parquet", "rows", rows, lambda: data.marginal(list(PEOPLE)))
    path.unlink()


def rate(name: str, what: str, count: int, job: Callable[[], object]) -> None:
    start, used = time.perf_counter(), time.process_time()
    job()
    seconds, used = time.perf_counter() - start, time.process_time() - used
    print(
        f"{name}: {count / used / 1e6:.1f} million {what} per second of a core "
        f"({count / seconds / 1e6:.1f} on the clock)",
        flush=True,
    )


def restarts(cells: int, processes: Sequence[int]) -> None:
    """8 restarts of a selection by so many processes: the same plan, in how many seconds of the clock."""
    workload = Workload.product(Domain({"x": cells}), x=Prefix())
    always = [Operator("OPT_0", opt_x, agree=0.0, patience=8)]
    found: list[Any] = []
    for workers in processes:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            list(pool.map(time.sleep, [0.1] * workers))  # they have started
            start, used = time.perf_counter(), _children()
            found.append(
                hdmm.optimize(
                    workload,
                    restarts=8,
                    time_limit=None,
                    progress=False,
                    operators=always,
                    executor=pool,
                    workers=workers,
                )
            )
            seconds, used = time.perf_counter() - start, _children() - used
            tried = len(found[-1].candidates)
        print(
            f"{tried} restarts with {workers} worker{'s' * (workers > 1)}: {seconds:.1f} s on the clock, {used:.1f} s "
            f"of the workers' processors, {used / seconds:.2f} of them busy",
            flush=True,
        )
    same = len({tuple(candidate.error for candidate in plan.candidates) for plan in found}) == 1
    print(f"the plans are {'the same' if same else 'different'}", flush=True)


def _children() -> float:
    """Seconds of the processor of all processes that this one has started."""
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))


if __name__ == "__main__":
    sys.exit(main())
