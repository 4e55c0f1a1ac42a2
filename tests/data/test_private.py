"""What the private path requires of data: no value causes an error, a message, a file or a decision."""

# What ibis and pandas return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hdmm
from hdmm import Bins, DataError, Domain, Integers, Labels, PureDP, Strategy, from_array, from_table
from hdmm.data import counting
from hdmm.data.engines import duckdb as engines
from hdmm.data.sources import csv_lines as lines
from hdmm.data.sources import table_files as files
from hdmm.data.sources.frames import ArrowTable
from hdmm.data.sources.source import Batch
from hdmm.matrix import Eye
from hdmm.measure.measure import measure
from hdmm.strategy.blocks import Block
from tests.data.test_sources import (
    SOURCES,
    declared,
    duckdb_file,
    expected,
    frame,
    pytestmark,  # noqa: F401 (read by pytest)
)

DOMAIN = Domain({"sex": Labels(["M", "F"], outside="other"), "age": 100, "income": Bins([0, 10, 20])})
CANARY = "canary-7319"
HEADER = "sex,age,income\n"
PLAIN = "M,30,5\nF,31,15\n" * 50
WEIRD = [
    "M,30,5",
    f"{CANARY},30,5",
    f"M,{CANARY},5",
    f'"{CANARY}\n\n",1,5',
    f'"{CANARY},1,5',
    'M,1,"5',
    '"a""b",1e400,-',
    f"M,3,5,{CANARY}",
    CANARY,
    "",
    ",,",
    ",,,,,,,,,",
    "M,99999999999999999999999999,5",
    "M,3," + "9" * 10_000,
    "x" * 3_000_000 + ",1,2",
    "\0,\0,\0",
    "é,٣,½",
    '"M" x,1,5',
    'x "M",1,5',
    '"a"b"c",1,5',
    '"a""",1,5',
    '"M",1,5 "',
    "M,1,5\r",
    "\\,1,5",
]


def read(path: Path) -> tuple[np.ndarray, ...]:
    return tuple(from_table(DOMAIN, path).marginals([DOMAIN.names, ["sex"]]))


@pytest.mark.parametrize("row", [*WEIRD, b"\xff\xfe,1,5"], ids=lambda row: ascii(row[:20]))
@pytest.mark.parametrize("where", [0, 1])
def test_a_row_of_any_kind_moves_one_count(
    row: str | bytes, where: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """I1 and O3: with one more row, however broken, the same shape and silence, and counts that move by one at most."""
    raw = row if isinstance(row, bytes) else row.encode()
    (tmp_path / "before.csv").write_text(HEADER + PLAIN)
    lines = [raw + b"\n", PLAIN.encode()]
    (tmp_path / "after.csv").write_bytes(HEADER.encode() + b"".join(lines if where == 0 else lines[::-1]))
    before, after = read(tmp_path / "before.csv"), read(tmp_path / "after.csv")
    assert capfd.readouterr() == ("", "")
    for x, y in zip(before, after, strict=True):
        assert x.shape == y.shape
        assert np.abs(y - x).sum() <= 1


@pytest.mark.parametrize(
    "value", [CANARY, None, -(10**30), 1e300, float("nan"), b"\xff", [1], object()], ids=lambda v: type(v).__name__
)
def test_an_object_of_any_kind_moves_one_count(value: object) -> None:
    """I1, I6: the same of a frame; where its column takes another type for it, the frame is refused by that type."""
    rows = {"sex": ["M", "F"] * 9, "age": list(range(18)), "income": [5] * 18}
    before = from_table(DOMAIN, pd.DataFrame(rows)).marginal(DOMAIN.names)
    for name in rows:
        more = {key: [*column, value if key == name else column[0]] for key, column in rows.items()}
        if pd.DataFrame(more).dtypes[name] == np.dtype(object):
            with pytest.raises(DataError, match="type object, whose values may be of any type") as error:
                from_table(DOMAIN, pd.DataFrame(more))
            assert CANARY not in str(error.value)
            continue
        after = from_table(DOMAIN, pd.DataFrame(more)).marginal(DOMAIN.names)
        assert after.shape == before.shape
        assert np.abs(after - before).sum() <= 1


STORED: list[tuple[pa.Array, Labels]] = [
    (pa.array([b"M", b"M\xff"]).view(pa.string()), Labels(["M"], outside="other")),
    (pa.array([0, 2**62]).view(pa.time64("us")), Labels([time(0)], outside="other")),
    (pa.array([0, -(2**63)]).view(pa.timestamp("ms")), Labels([datetime(1970, 1, 1)], outside="other")),
    (pa.array([0, 2**31 - 1], pa.int32()).view(pa.date32()), Labels([date(1970, 1, 1)], outside="other")),
    (pa.array([1, 10**75], pa.decimal256(76, 0)), Labels([1], outside="other")),
    (pa.array([1.0, float("inf")], pa.float16()), Labels([1], outside="other")),
]


@pytest.mark.parametrize(("column", "values"), STORED, ids=lambda p: str(p.type) if isinstance(p, pa.Array) else "")
def test_a_value_that_is_none_of_its_type_moves_one_count(column: pa.Array, values: Labels, tmp_path: Path) -> None:
    """I1: Parquet and Arrow store such values without complaint; DuckDB reads some of them with an error."""
    table = pa.table({"a": column, "a.b": column})
    pq.write_table(table, tmp_path / "t.parquet")
    for source in (table, tmp_path / "t.parquet"):
        assert from_table(Domain({"a": values}), source).marginal(["a"]).tolist() == [1, 1]


def test_text_of_sqlite_that_is_none_moves_one_count(tmp_path: Path) -> None:
    """I1: columns of SQLite hold values of any type, and text of any bytes."""
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute("CREATE TABLE t (a TEXT, b INTEGER)")
        connection.execute("INSERT INTO t VALUES ('M', 1), (CAST(x'ff' AS TEXT), 'x'), (x'4d', 9e300), (NULL, NULL)")
        connection.commit()
    backend = ibis.sqlite.connect(tmp_path / "s.db")
    for name, values in (("a", Labels(["M"], outside="other")), ("b", Integers(1, 1, outside="other"))):
        assert from_table(Domain({name: values}), backend.table("t")).marginal([name]).tolist() == [1, 3]
    assert backend.con.text_factory is str


def test_text_of_any_length_is_read_from_duckdb(tmp_path: Path) -> None:
    """I1: text has offsets of 64 bits; with 32 one person could fill the 2 GiB of a batch, and fail a release."""
    source = files.file_source(duckdb_file(frame(1), tmp_path), "people")
    assert source.columns()["note"] == pa.large_string()
    assert [batch["note"].type for batch in source.batches(["note"])] == [pa.large_string()]


def test_what_an_engine_says_is_withheld(tmp_path: Path) -> None:
    """O3: errors while data are read tell nothing of the data, whatever the engine says."""
    table = pa.table({"sex": [CANARY] * 10_000, "age": [1] * 10_000, "income": [1] * 10_000})
    pq.write_table(table, tmp_path / "t.parquet", compression="none", use_dictionary=False)
    data = from_table(DOMAIN, tmp_path / "t.parquet")
    raw = bytearray((tmp_path / "t.parquet").read_bytes())
    raw[4:200] = os.urandom(196)
    (tmp_path / "t.parquet").write_bytes(raw)
    assert_withheld(data)

    def fails(_: object, __: object) -> Iterator[Batch]:
        yield {"sex": ["M"], "age": [1], "income": [1]}
        raise ValueError(CANARY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrowTable, "batches", fails)
        assert_withheld(from_table(DOMAIN, table))


def assert_withheld(data: Any) -> None:
    for read in (data.marginal, data.sparse):
        with pytest.raises(DataError, match=r"^The data could not be read to the end\.") as error:
            read(["sex"])
        assert CANARY not in str(error.value)
        assert error.value.__suppress_context__


def test_data_is_shown_without_where_it_is() -> None:
    table = pa.table({"a column": ["M"], "age": [1], "income": [1]})
    data = from_table(DOMAIN, table, columns={"sex": "a column"}, declared_types=True)
    assert repr(data) == f"TableData(domain={DOMAIN!r}, rows_bound={data.rows_bound}, max_rows_per_id=None)"


def test_a_file_without_a_header_is_not_read_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{CANARY},30,5\n" * 3)
    with pytest.raises(DataError, match="Column 'sex' is not in the data") as error:
        from_table(DOMAIN, tmp_path / "t.csv")
    assert CANARY not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        f"{CANARY},north,single\n",
        f"{CANARY},30,sex\n",  # a value that is a name of a column
        f"{CANARY},,sex\n",
    ],
)
@pytest.mark.parametrize("read", [lambda path: path, pd.read_csv], ids=["csv", "pandas"])
def test_the_first_line_is_listed_only_if_it_is_one_of_names(
    read: Callable[[Path], Any], text: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text * 2)
    with pytest.raises(DataError, match="does not look like a line of names") as error:
        from_table(DOMAIN, read(tmp_path / "t.csv"))
    assert CANARY not in str(error.value)


@pytest.mark.parametrize("name", ["pandas", "polars, lazy", "arrow", "csv", "parquet", "duckdb", "ibis, duckdb"])
def test_the_order_of_rows_does_not_matter(name: str, tmp_path: Path) -> None:
    """S3."""
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    first = declared(SOURCES[name](frame(), tmp_path / "1"))
    second = declared(SOURCES[name](frame().sample(frac=1, random_state=0), tmp_path / "2"))
    np.testing.assert_array_equal(first.marginal(first.domain.names), second.marginal(second.domain.names))


def test_the_number_of_threads_does_not_matter(tmp_path: Path) -> None:
    """S3: several row groups of Parquet and DuckDB and several pieces of CSV, read by one thread and by more."""
    table = pd.concat([frame(5000)] * 30)
    table.to_parquet(tmp_path / "t.parquet", row_group_size=2000)
    table.to_csv(tmp_path / "t.csv", index=False)
    cpus = pa.cpu_count()
    for path in (tmp_path / "t.parquet", tmp_path / "t.csv", duckdb_file(table, tmp_path)):
        for threads in (1, 2, 4):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engines, "_AT_START", {**engines._AT_START, "threads": threads})
                patch.setattr(lines, "_BYTES_AT_ONCE", 2**20)
                pa.set_cpu_count(threads)
                data = declared(path)
                np.testing.assert_array_equal(data.marginal(data.domain.names), 30 * expected(frame(5000)))
    pa.set_cpu_count(cpus)


def test_limits_are_checked_before_data_are_read() -> None:
    """I4: a request of 10¹² cells, and one of more dimensions than arrays have."""
    domain = Domain({f"a{i}": 10 for i in range(12)} | {f"b{i}": 1 for i in range(70)})
    table = pa.table({name: [0] for name in domain.names})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrowTable, "batches", None)
        data = from_table(domain, table)
        for names in ([f"a{i}" for i in range(12)], [f"b{i}" for i in range(70)]):
            with pytest.raises(DataError, match="the limits on this machine are 64 attributes"):
                data.marginals([["a0"], names])
    big = np.broadcast_to(np.int64(0), (10**6, 10**6))
    with pytest.raises(DataError, match="1000000000000 cells"):
        from_array(Domain({"a": 10**6, "b": 10**6}), big).marginal(["a", "b"])


def test_the_engine_writes_no_files_and_loads_nothing(tmp_path: Path) -> None:
    """O4: no temporary files; no extension and no network; and a file cannot change that."""
    connection = engines.open_duckdb(duckdb_file(frame(1), tmp_path))
    wanted = {
        "temp_directory": "",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }
    found = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    assert {name: found[name] for name in wanted} == wanted
    with pytest.raises(duckdb.Error):
        connection.execute("SET temp_directory = '/tmp'")
    with pytest.raises(duckdb.Error):
        connection.execute("SELECT * FROM read_csv('https://localhost:1/x.csv')")
    connection.close()


def test_nothing_is_left_on_disk_by_a_killed_run(tmp_path: Path) -> None:
    """O4: what a run that is killed leaves where it ran and where temporary files go."""
    (tmp_path / "t.csv").write_text(HEADER + f"{CANARY},30,5\n" * 200_000)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "run").mkdir()
    program = """
        import os, signal, sys
        from hdmm import Domain, from_table
        data = from_table(Domain({"sex": ["M"], "age": 100}), sys.argv[1])
        data.marginal(["age"])
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "t.csv")],
        cwd=tmp_path / "run",
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(Path(hdmm.__file__).parents[1])},
        check=False,
    )
    assert done.returncode == -9
    assert {file.name for file in tmp_path.rglob("*")} == {"t.csv", "tmp", "run"}


def test_many_marginals_in_several_passes() -> None:
    """Covers, groups of them, slabs and kept codes do not change what is counted."""
    rng = np.random.default_rng(0)
    domain = Domain({"a": 3, "b": Integers(0, 3, outside="other"), "c": 7, "d": 1, "e": 300})
    columns = {name: rng.integers(-1, domain[name].size, 2000) for name in domain.names}
    whole = domain.count(columns)
    wanted = [[n for i, n in enumerate(domain.names) if mask >> i & 1] for mask in rng.permutation(32)]
    table = pa.table(columns)
    for joined, a_pass, kept, rows in [(1, 1, 0, 100), (50, 400, 10**9, 300), (2**16, 2**27, 10**9, 10**6)]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(counting, "_JOINED_CELLS", joined)
            patch.setattr(counting, "_CELLS_PER_PASS", a_pass)
            patch.setattr(counting, "_KEPT_BYTES", kept)
            patch.setattr(counting, "_ROWS_OF_A_SLAB", rows)
            data = from_table(domain, pa.Table.from_batches(table.to_batches(max_chunksize=170)))
            for names, found in zip(wanted, data.marginals(wanted), strict=True):
                rest = tuple(axis for axis, name in enumerate(domain.names) if name not in names)
                np.testing.assert_array_equal(found, whole.sum(axis=rest))


@pytest.mark.parametrize("rows", [0, 1, 1000])
@pytest.mark.parametrize("bounded", [False, True])
def test_whether_a_reader_can_be_counted_depends_on_sizes_alone(rows: int, bounded: bool, tmp_path: Path) -> None:
    """I8: where several passes are needed it is refused before the debit, however few rows are inside the domain."""
    table = pa.table({"a": [0] * rows, "b": [9] * rows, "who": list(range(rows))})
    domain = Domain({"a": 2, "b": Integers(0, 1, outside="other")})
    ledger = hdmm.Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1))
    options: dict[str, Any] = {"id": "who", "max_rows_per_id": 1} if bounded else {}
    wanted = [["a"], ["b"]]
    eyes = [Block(0.5, ((axis, Eye(size)),)) for axis, size in enumerate(domain.shape)]
    strategy = Strategy(domain, tuple(eyes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_JOINED_CELLS", 1)
        patch.setattr(counting, "_CELLS_PER_PASS", 1)
        patch.setattr(counting, "_KEPT_BYTES", 100)
        data = from_table(domain, table.to_reader(), declared_types=True, **options)
        if bounded:  # the rows that are kept are in memory
            assert [found.tolist() for found in data.marginals(wanted)] == [[rows, 0], [0, 0, rows]]
            return
        for ask in (data.check_marginals, data.marginals, lambda _: measure(strategy, data, PureDP(1), ledger=ledger)):
            with pytest.raises(DataError, match="counted in several passes"):
                ask(wanted)
        assert ledger.remaining == 1
        assert data.marginal(["a"]).tolist() == [rows, 0]


def test_importing_hdmm_imports_no_engine() -> None:
    program = "import sys, hdmm; print(sorted({'duckdb', 'pyarrow', 'pandas', 'polars', 'ibis'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_three_way_marginals_are_counted_in_fours() -> None:
    domain = Domain({f"a{i}": 10 for i in range(20)})
    wanted = [(), (4,), *itertools.combinations(range(20), 3)]
    order = counting.counting_order(domain, wanted)
    assert sorted(order) == list(range(len(wanted)))
    assert len(counting.covered(domain, [wanted[j] for j in order])) < 0.32 * len(wanted)
