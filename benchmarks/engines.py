"""Counting where the rows are: seconds and groups transferred, with and without an id, beside plain GROUP BY.

`python -m benchmarks.engines [duckdb,sqlite,spark] [rows]`, by default DuckDB and SQLite with a million rows. Seconds
of the processor and the most memory so far are those of this process, in which DuckDB and SQLite run.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import ibis

from hdmm import Data, Domain, from_table
from hdmm.data.counting import GroupCounts

DOMAIN = Domain({"sex": 2, "hispanic": 2, "race": 64, "relationship": 17, "age": 115})
PAIRS = [list(names) for names in itertools.combinations(DOMAIN.names, 2)]
MEMORY = "12GB"
ROWS_PER_PERSON = 3
# The same rows in every engine: `i` is the number of the row.
COLUMNS = {
    **{
        name: f"(i * {7919 + 2 * j} + i / {size}) % {size}"
        for j, (name, size) in enumerate(zip(DOMAIN.names, DOMAIN.shape, strict=True))
    },
    "who": f"i / {ROWS_PER_PERSON}",
}


def main() -> None:
    engines = sys.argv[1].split(",") if len(sys.argv) > 1 else ["duckdb", "sqlite"]
    rows = int(float(sys.argv[2])) if len(sys.argv) > 2 else 1_000_000
    print(f"{rows:,} rows, {ROWS_PER_PERSON} per person; the {len(PAIRS)} pairs of {len(DOMAIN)} attributes, and all")
    print(f"{'engine':<10}{'marginals':>12}{'id':>12}{'seconds':>10}{'CPU':>10}{'GB':>8}{'groups transferred':>22}")
    for engine in engines:
        with tempfile.TemporaryDirectory() as folder, OPENED[engine](Path(folder), rows) as table:
            for what, wanted in (("pairs", PAIRS), ("all", [list(DOMAIN.names)])):
                timed(engine, what, "GROUP BY", partial(plainly, table, wanted))
                for bounds in (None, 2):
                    options = {} if bounds is None else {"id": "who", "max_rows_per_id": bounds}
                    told = "none" if bounds is None else f"{bounds} of {ROWS_PER_PERSON}"
                    timed(engine, what, told, partial(counted, from_table(DOMAIN, table, **options), wanted))


def timed(engine: str, what: str, told: str, run: Callable[[], None]) -> None:
    """Run and print one row."""
    transferred.clear()
    start, used = time.perf_counter(), time.process_time()
    run()
    seconds, used = time.perf_counter() - start, time.process_time() - used
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    row = f"{engine:<10}{what:>12}{told:>12}{seconds:>10.1f}{used:>10.1f}{memory:>8.1f}"
    print(f"{row}{sum(transferred):>22,}", flush=True)


def counted(data: Data, wanted: Sequence[list[str]]) -> None:
    """The marginals as they are measured."""
    assert len({int(found.sum()) for found in data.marginals(wanted)}) == 1


def plainly(table: Any, wanted: Sequence[list[str]]) -> None:
    """What a user would ask the engine for: one GROUP BY for each marginal, of rows that are not checked."""
    for names in wanted:
        transferred.append(len(table.group_by(names).aggregate(n=table.count()).to_pyarrow()))


@contextmanager
def in_duckdb(folder: Path, rows: int) -> Iterator[Any]:
    making = multiprocessing.get_context("spawn").Process(target=make_duckdb, args=(folder, rows))
    making.start()  # in a process of its own, whose memory is not counted
    making.join()
    backend = ibis.duckdb.connect(folder / "t.duckdb", read_only=True)
    backend.raw_sql(
        f"SET memory_limit = '{MEMORY}'; SET temp_directory = ''; SET autoinstall_known_extensions = false; "
        "SET autoload_known_extensions = false; SET allow_community_extensions = false; "
        "SET enable_external_access = false"
    )
    yield backend.table("t")
    backend.disconnect()


def make_duckdb(folder: Path, rows: int) -> None:
    columns = ", ".join(f"({formula.replace('/', '//')})::INTEGER AS {name}" for name, formula in COLUMNS.items())
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range({rows}) r(i)")


@contextmanager
def in_sqlite(folder: Path, rows: int) -> Iterator[Any]:
    columns = ", ".join(f"CAST({formula} AS INTEGER) AS {name}" for name, formula in COLUMNS.items())
    with sqlite3.connect(folder / "t.db") as connection:
        numbers = f"WITH RECURSIVE r(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < {rows - 1})"
        connection.execute(f"CREATE TABLE t AS {numbers} SELECT {columns} FROM r")
    connection.close()
    backend = ibis.sqlite.connect(folder / "t.db")
    yield backend.table("t")
    backend.disconnect()


@contextmanager
def in_spark(folder: Path, rows: int) -> Iterator[Any]:
    from pyspark.sql import SparkSession  # noqa: PLC0415 (an extra)

    session = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.local.dir", str(folder))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    columns = ", ".join(f"CAST({formula.replace('/', 'DIV')} AS INT) AS {name}" for name, formula in COLUMNS.items())
    session.sql(f"SELECT {columns} FROM (SELECT id AS i FROM range({rows}))").write.parquet(str(folder / "t"))
    session.read.parquet(str(folder / "t")).createOrReplaceTempView("t")
    yield ibis.pyspark.connect(session).table("t")
    session.stop()


transferred: list[int] = []


def count_groups() -> None:
    """From now on, note how many groups leave an engine."""
    add = GroupCounts.add

    def noted(self: GroupCounts, slab: Any, rows: Any) -> None:
        transferred.append(len(rows))
        add(self, slab, rows)

    GroupCounts.add = noted


OPENED: dict[str, Callable[[Path, int], Any]] = {"duckdb": in_duckdb, "sqlite": in_sqlite, "spark": in_spark}

if __name__ == "__main__":
    count_groups()
    main()
