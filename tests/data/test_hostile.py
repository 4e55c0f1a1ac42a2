"""I1 and I9: no value and no number of rows of one person decides whether counting succeeds, on any engine.

PostgreSQL is in test_hostile_postgres.py, and Spark in test_spark.py.
"""

# What ibis and duckdb return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from hdmm import Bins, DataError, Domain, DomainError, Integers, Labels, from_table
from hdmm.data import engines
from hdmm.data.engines import IbisTable, sqlite
from hdmm.data.engines.duckdb import MOST_ROWS_PER_PERSON, memory_backend
from hdmm.data.identity import identity
from hdmm.data.sources.table_files import file_source
from hdmm.describe.entries import LONGEST_TEXT
from tests.data.hostile import TEXTS, check_neighbours
from tests.data.test_sources import confined
from tests.data.test_sources import pytestmark as of_engines
from tests.support.effort import THOROUGH

pytestmark = [*of_engines, pytest.mark.filterwarnings("ignore:The ids in column .* are floats")]

DUCKDB: dict[str, list[str]] = {
    "HUGEINT": [str(2**127 - 1), str(-(2**127)), str(10**38), str(-(10**38)), str(10**38 - 1)],
    "UHUGEINT": [str(2**128 - 1)],
    "UBIGINT": [str(2**64 - 1)],
    "BIGINT": [str(-(2**63)), str(2**63 - 1)],
    "DECIMAL(38, 0)": ["9" * 38, "-" + "9" * 38],
    "DECIMAL(18, 0)": ["9" * 18, "-" + "9" * 18],
    "DECIMAL(38, 38)": ["0." + "9" * 38],
    "DECIMAL(20, 2)": ["-" + "9" * 18 + ".99"],
    "DOUBLE": ["nan", "inf", "-inf", "1.7976931348623157e308", "5e-324", "-0"],
    "FLOAT": ["nan", "-inf", "3.4e38"],
    "BOOLEAN": ["true"],
    "DATE": ["infinity", "-infinity", "5881580-07-10", "5877642-06-25 (BC)", "0001-01-01 (BC)"],
    "TIMESTAMP": ["infinity", "-infinity", "294247-01-10 04:00:54.775806", "9999-12-31 23:59:59.999999"],
    "TIMESTAMP_S": ["infinity", "294247-01-10"],
    "TIMESTAMP_MS": ["infinity", "-infinity"],
    "TIMESTAMP_NS": ["infinity", "2262-04-11"],
    "TIMESTAMPTZ": ["infinity", "9999-12-31 23:59:59+00", "0001-01-01 00:00:00+14"],
    "TIME": ["24:00:00"],
    "TIMETZ": ["23:59:59+00", "24:00:00-15:59"],
    "INTERVAL": ["-100000000 years"],
    "BIT": ["0101", "1" * 5000, "1" * 50_000],
    "BLOB": ["\\xFF\\x00", "a" * 5000],
    "UUID": ["ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "BIGNUM": ["9" * 400],
    "ENUM('a', 'b')": ["a", "b"],
    "INTEGER[]": ["[1]"],
    "STRUCT(a INTEGER)": ["{'a': 1}"],
    "VARCHAR": TEXTS,
    "VARCHAR COLLATE NOCASE": TEXTS,
    "JSON": ["1", '"a"', '"' + "x" * 3_000_000 + '"', "1" + " " * 5000],
}
# What another type of the list stands for.
ALIKE = "DECIMAL(18, 0)", "DECIMAL(20, 2)", "FLOAT", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMETZ", "UBIGINT"
REFUSED = ("UHUGEINT", "INTERVAL", "BIT", "BIGNUM", "INTEGER[]", "STRUCT(a INTEGER)", "JSON")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two databases with a column of each type: one with missing values only, the other with hostile ones as well."""
    found: list[Path] = []
    for hostile in (False, True):
        found.append(tmp_path_factory.mktemp("hostile") / "t.duckdb")
        with duckdb.connect(str(found[-1])) as connection:
            columns = ", ".join(f'"{kind}" {kind}' for kind in DUCKDB)
            connection.execute(f"CREATE TABLE t ({columns}, a INTEGER DEFAULT 1)")
            connection.execute("INSERT INTO t (a) VALUES (1)")
            for kind, texts in DUCKDB.items() if hostile else ():
                plain = kind.removesuffix(" COLLATE NOCASE")
                for text in texts:
                    connection.execute(f'INSERT INTO t ("{kind}") VALUES (CAST(?::VARCHAR AS {plain}))', [text])
    return found


@pytest.fixture(scope="module")
def tables(files: list[Path]) -> list[Any]:
    copies = [shutil.copy(file, file.with_name("copy.duckdb")) for file in files]  # a file is open in one way only
    return [confined(ibis.duckdb.connect(file, read_only=True)).table("t") for file in copies]


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow if k in ALIKE else ()) for k in DUCKDB])
def test_hostile_values_of_duckdb_decide_nothing(kind: str, files: list[Path], tables: list[Any], capfd: Any) -> None:
    assert bool(check_neighbours(*tables, kind, capfd)) == (kind not in REFUSED)
    by_path = check_neighbours(*files, kind, capfd, fetched=THOROUGH, table="t")  # fetched as of a connection
    assert by_path or kind in REFUSED


SQLITE: list[object] = [2**63 - 1, -(2**63), 1e308, float("inf"), -0.0, b"\xff", b"a" * 5000, b"", "\0", "a\0b", *TEXTS]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_hostile_values_of_sqlite_decide_nothing(encoding: str, tmp_path: Path, capfd: Any) -> None:
    def made(hostile: bool) -> Any:
        file = tmp_path / f"{hostile}.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(f"PRAGMA encoding = '{encoding}'")
            connection.execute("CREATE TABLE t (t TEXT, i INTEGER, b BLOB, r REAL, a INTEGER)")
            rows = [(x,) * 4 for x in (None, *(SQLITE if hostile else ()))]
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, 1)", rows)
            if hostile:
                broken = ", ".join(["CAST(x'ff61' AS TEXT)"] * 4), ", ".join(["CAST(x'00d8' AS TEXT)"] * 4)
                connection.execute(f"INSERT INTO t VALUES ({broken[0]}, 1), ({broken[1]}, 1)")
            connection.commit()
        return ibis.sqlite.connect(file).table("t")

    sources = made(False), made(True)
    for column in "tibr":
        assert check_neighbours(*sources, column, capfd), column


ARROW: dict[str, pa.Array] = {
    "string": pa.array(TEXTS),
    "not UTF-8": pa.array([b"M\xff", b"1\xff", b"\xff" * 5000]).view(pa.string()),
    "large string": pa.array(TEXTS, pa.large_string()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "binary": pa.array([b"\xff", b"1" * 5000], pa.binary()),
    "decimal": pa.array([10**38 - 1], pa.decimal128(38, 0)),
    "float": pa.array([float("nan"), float("inf"), 1e308]),
    "integer": pa.array([2**63 - 1, -(2**63)]),
    "date": pa.array([2**31 - 1, -(2**31)], pa.int32()).view(pa.date32()),
    "timestamp": pa.array([2**63 - 1, -(2**63)]).view(pa.timestamp("us")),
    "seconds": pa.array([2**63 - 1, -(2**63)]).view(pa.timestamp("s")),
    "instant": pa.array([253402300799 * 10**6, -(2**63)]).view(pa.timestamp("us", "Pacific/Kiritimati")),
    "instant in seconds": pa.array([2**63 - 1, -(2**63)]).view(pa.timestamp("s", "UTC")),
    "nanoseconds": pa.array([2**63 - 1, 1 - 2**63]).view(pa.timestamp("ns")),
    "time": pa.array([2**62, -1]).view(pa.time64("us")),
}


@pytest.mark.parametrize("source", ["memtable", "table", "parquet", "polars"])
def test_hostile_values_of_arrow_decide_nothing(
    source: str, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "memory_backend", cache(memory_backend))  # a database for each would take most time

    def made(hostile: bool, kind: str) -> Any:
        column = pa.concat_arrays([pa.nulls(1, ARROW[kind].type), *([ARROW[kind]] if hostile else [])])
        table = pa.table({"x": column, "a": np.ones(len(column), int)})
        match source:
            case "memtable":
                return ibis.memtable(table)
            case "polars":
                return pl.DataFrame(table)
            case "parquet":
                pq.write_table(table, tmp_path / f"{hostile}.parquet")
                return tmp_path / f"{hostile}.parquet"
            case _:
                return table

    for kind in ARROW:
        untaken = {"polars": ["not UTF-8"], "parquet": ["seconds", "instant in seconds"]}
        if kind not in untaken.get(source, ()):
            sources = made(False, kind), made(True, kind)
            stated = {} if source == "parquet" else {"declared_types": True}  # frames may have inferred them
            found = check_neighbours(*sources, "x", capfd, fetched=THOROUGH and source == "memtable", **stated)
            assert bool(found) == ((kind, source) != ("instant in seconds", "memtable")), kind


ENCODINGS: dict[str, dict[str, Any]] = {
    "coded": {},
    "plain": {"use_dictionary": False},
    "coded at first": {"dictionary_pagesize_limit": 1000},
    "DELTA_BYTE_ARRAY": {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}},
    "DELTA_LENGTH_BYTE_ARRAY": {"use_dictionary": False, "column_encoding": {"x": "DELTA_LENGTH_BYTE_ARRAY"}},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("places", [None, pa.int8(), pa.int32(), pa.int64()], ids=str)
def test_text_of_parquet_is_counted_however_it_is_written(encoding: str, places: Any, tmp_path: Path) -> None:
    """Few texts or many, some not UTF-8: Arrow fails on some, depending on their lengths, if it collects them."""
    repeated = [b"M", b"F"] * 50_000
    several = [b"%d" % number for number in range(100)]
    many = [b"%d" % number for number in range(20_000)]
    for name, texts in (("repeated", repeated), ("several", [*repeated, *several]), ("many", [*repeated, *many])):
        for more in ([], [b"M\xff", b"x" * 5000, None]):
            column = pa.array([*texts, *more], pa.binary()).view(pa.string())
            if places is not None:
                if name == "many" and places == pa.int8():
                    continue
                coded = column.dictionary_encode()
                column = pa.DictionaryArray.from_arrays(coded.indices.cast(places), coded.dictionary)
            file = tmp_path / "t.parquet"
            pq.write_table(pa.table({"x": column}), file, row_group_size=60_000, **ENCODINGS[encoding])
            found = from_table(Domain({"x": Labels(["M", "F"], outside="other")}), file).marginal(["x"])
            assert found.tolist() == [50_000, 50_000, len(texts) - 100_000 + len(more)], (name, more)


def test_dictionaries_in_files_of_a_dataset_are_refused(tmp_path: Path) -> None:
    """Which text Arrow can read there depends on how it was written, and on the text."""
    for number, column in enumerate([pa.array(["M"]), pa.array(["M"]).dictionary_encode()]):
        pq.write_table(pa.table({"x": column, "a": [1]}), tmp_path / f"{number}.parquet")
    dataset, domain = ds.dataset(tmp_path), Domain({"x": Labels(["M"])})
    with pytest.raises(DataError, match="give the path of the folder instead of a dataset"):
        from_table(domain, dataset)
    assert from_table(Domain({"a": 2}), dataset).marginal(["a"]).tolist() == [0, 2]
    assert from_table(domain, tmp_path).marginal(["x"]).tolist() == [2]


def test_times_in_orc_files_of_a_dataset_are_refused(tmp_path: Path) -> None:
    """Arrow fails on one that is no number of nanoseconds of 64 bits."""
    times = pa.array([0, 2**62]).view(pa.timestamp("us"))
    orc.write_table(pa.table({"x": times, "a": [1, 1]}), tmp_path / "t.orc")
    dataset = ds.dataset(tmp_path, format="orc")
    with pytest.raises(DataError, match="depends on its values"):
        from_table(Domain({"x": Labels([datetime(1970, 1, 1)], outside="other")}), dataset, declared_types=True)
    assert from_table(Domain({"a": 2}), dataset).marginal(["a"]).tolist() == [0, 2]


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_pandas_within_ibis_decide_nothing(unit: str, zone: str | None, capfd: Any) -> None:
    """Ibis converts all of them to microseconds, also in columns that are not used."""

    def made(hostile: bool) -> Any:
        ticks = np.array([2**63 - 1, 1 - 2**63] if hostile else [], np.int64).view(f"datetime64[{unit}]")
        column = pd.Series(np.append(np.array(["NaT"], ticks.dtype), ticks)).dt.tz_localize(zone)
        return ibis.memtable(pd.DataFrame({"x": column, "a": np.ones(len(column), int)}))

    accepted = check_neighbours(made(False), made(True), "x", capfd, fetched=False, declared_types=True)
    assert bool(accepted) == (unit == "us")
    if not accepted:
        with pytest.raises(DataError, match="depends on its values"):
            from_table(Domain({"a": 2}), made(False))


def test_hostile_texts_of_csv_and_pandas_decide_nothing(tmp_path: Path, capfd: Any) -> None:
    def csv(hostile: bool) -> Path:
        texts = ["", *(text for text in TEXTS if hostile)]
        (tmp_path / f"{hostile}.csv").write_text("x,a\n" + "".join(f'"{text}",1\n' for text in texts))
        return tmp_path / f"{hostile}.csv"

    def frame(hostile: bool) -> pd.DataFrame:
        texts = [None, *(TEXTS if hostile else ())]
        return pd.DataFrame({"x": pd.array(texts, "string"), "a": np.ones(len(texts), int)})

    for made in (csv, frame):
        assert check_neighbours(made(False), made(True), "x", capfd, fetched=False)


# Text around the longest length, and whether it is inside as a label, as a number and as an id.
AROUND = [
    ("é" * (LONGEST_TEXT // 2), True),
    ("é" * (LONGEST_TEXT // 2 - 1) + "xyz", False),
    ("é" * (LONGEST_TEXT // 2 - 1) + "xy", True),
    ("0" * (LONGEST_TEXT - 1) + "1", True),
    ("0" * LONGEST_TEXT + "1", False),
    (" " * (LONGEST_TEXT - 1) + "1", True),
    ("1" + " " * LONGEST_TEXT, False),
    ("1." + "0" * (LONGEST_TEXT - 2), True),
    ("1." + "0" * (LONGEST_TEXT - 1), False),
    ("\U0001f600" * (LONGEST_TEXT // 4), True),
    ("\U0001f600" * (LONGEST_TEXT // 4) + "x", False),
]


def lengths_domain() -> Domain:
    labels = [text for text, inside in AROUND if inside and text.strip("01. ")]
    return Domain({"x": Labels(labels, outside="other"), "y": Integers(1, 1, outside="other")})


def check_lengths(source: Any, **options: Any) -> None:
    """I9: text is inside up to a public number of bytes, as a label, as a number and as an id."""
    domain = lengths_domain()
    x, y = from_table(domain, source, columns={"y": "x"}, **options).marginals([["x"], ["y"]])
    assert x.tolist() == [1] * (len(x) - 1) + [len(AROUND) - len(x) + 1]
    assert y.tolist() == [3, len(AROUND) - 3]
    people = from_table(Domain({"a": 2}), source, id="x", max_rows_per_id=1, **options).marginal(["a"])
    assert people.tolist() == [0, len({identity(text) for text, inside in AROUND if inside})]


def test_text_is_inside_up_to_a_public_length(tmp_path: Path) -> None:
    texts = [text for text, _ in AROUND]
    table = pa.table({"x": texts, "a": [1] * len(texts)})
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("x,a\n" + "".join(f'"{text}",1\n' for text in texts))
    check_lengths(tmp_path / "t.duckdb", table="t")
    backend = confined(ibis.duckdb.connect(tmp_path / "t.duckdb", read_only=True))
    for encoding in ("UTF-8", "UTF-16le"):
        with closing(sqlite3.connect(tmp_path / f"{encoding}.db")) as connection:
            connection.execute(f"PRAGMA encoding = '{encoding}'")
            connection.execute("CREATE TABLE t (x TEXT, a INTEGER)")
            connection.executemany("INSERT INTO t VALUES (?, 1)", [(text,) for text in texts])
            connection.commit()
        check_lengths(ibis.sqlite.connect(tmp_path / f"{encoding}.db").table("t"))
    frames = [table, pl.DataFrame(table), table.to_pandas().astype({"x": "string"}), ibis.memtable(table)]
    for source in (tmp_path / "t.parquet", tmp_path / "t.csv", backend.table("t"), *frames):
        check_lengths(source)


def test_long_text_does_not_leave_duckdb(files: list[Path], tables: list[Any]) -> None:
    """I9: what is fetched is short, so that a batch takes memory by public numbers, whatever it holds."""
    columns = ["VARCHAR", "VARCHAR COLLATE NOCASE", "BLOB"]
    for source, names in ((file_source(files[1], "t"), [*columns, "BIT", "JSON"]), (IbisTable(tables[1]), columns)):
        for batch in source.batches(names):
            for name in names:
                longest = pc.max(pc.binary_length(batch[name])).as_py()
                assert 0 < longest <= LONGEST_TEXT, name


def test_labels_are_no_longer_than_text_may_be() -> None:
    Labels(["x" * LONGEST_TEXT])
    for label in ("x" * (LONGEST_TEXT + 1), "é" * LONGEST_TEXT, b"x" * (LONGEST_TEXT + 1)):
        with pytest.raises(DomainError, match=r"^A label is longer than 4,096 bytes in UTF-8.* Declare a shorter"):
            Labels(["a", label])


def test_integers_of_39_digits_are_refused_or_outside() -> None:
    """HUGEINT holds some; Ibis takes it for a decimal of 38 digits."""
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql(f"CREATE TABLE t AS SELECT unnest([1::HUGEINT, {10**38}, {-(10**38)}, 2]) AS x")
    table = backend.table("t")
    assert from_table(Domain({"x": Bins([0, 2, 1e37], outside="other")}), table).marginal(["x"]).tolist() == [1, 1, 2]
    beyond = Domain({"x": Bins([0, 2, 1e300], outside="other")})
    with pytest.raises(DataError, match="cannot be counted in duckdb"):
        from_table(beyond, table)
    assert from_table(beyond, table, fetch=True).marginal(["x"]).tolist() == [1, 2, 1]
    assert from_table(Domain({"x": 3}), table, id="x", max_rows_per_id=1).marginal(["x"]).tolist() == [0, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["0", "'x' || repeat('y', 4000)"], ids=["integer", "text"])
@pytest.mark.parametrize("cells", [4, 10**6])
def test_a_person_with_millions_of_rows_fits_in_little_memory(who: str, cells: int) -> None:
    """I1: DuckDB with 100 MB, where a window over two million rows does not fit, whether or not the rows are equal."""
    rows, k = 2_000_000, 3
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql(
        f"CREATE TABLE t AS SELECT (i * 7919 % {cells})::INT AS a, i::INT AS n FROM range({rows}) t(i); "
        f"CREATE VIEW v AS SELECT a, CASE WHEN n < 1000 THEN n::VARCHAR ELSE ({who})::VARCHAR END AS who FROM t"
    )
    backend.raw_sql("SET memory_limit = '100MB'; SET threads = 2")
    data = from_table(Domain({"a": cells}), backend.table("v"), id="who", max_rows_per_id=k)
    assert data.marginal(["a"]).sum() in (999 + k, 1000 + k)  # person 0 is one of the thousand


def test_more_rows_per_person_than_duckdb_chooses_are_refused() -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE TABLE t AS SELECT i % 2 AS a, 1 AS who FROM range(10) t(i)")
    domain, most = Domain({"a": 2}), MOST_ROWS_PER_PERSON
    assert from_table(domain, backend.table("t"), id="who", max_rows_per_id=most).marginal(["a"]).tolist() == [5, 5]
    with pytest.raises(DataError, match=r"At most 1,000,000 rows per person were asked for, and DuckDB .* 999,999\."):
        from_table(domain, backend.table("t"), id="who", max_rows_per_id=most + 1)
    fetched = from_table(domain, backend.table("t"), id="who", max_rows_per_id=most + 1, fetch=True)
    assert fetched.marginal(["a"]).tolist() == [5, 5]


PEAK = """
    import resource, sys
    import ibis
    from hdmm import Domain, Labels, from_table
    table = ibis.sqlite.connect(sys.argv[1]).table("t")
    data = from_table(Domain({"x": Labels(["a"], outside="other")}), table, id="who", max_rows_per_id=2)
    print(data.marginal(["x"]).sum(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_person_with_millions_of_rows_takes_little_memory_of_sqlite(tmp_path: Path) -> None:
    """I1: two million rows of one person, of which each text is another one, take at most 200 MB more than ten."""
    peaks: list[int] = []
    for rows in (10, 2_000_000):
        with closing(sqlite3.connect(tmp_path / f"{rows}.db")) as connection:
            connection.execute("CREATE TABLE t (x TEXT, who INTEGER)")
            many = f"WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < {rows})"
            connection.execute(f"INSERT INTO t {many} SELECT printf('%0100d', i), 1 FROM r")
            connection.commit()
        program = [sys.executable, "-c", textwrap.dedent(PEAK), str(tmp_path / f"{rows}.db")]
        kept, peak = map(int, subprocess.run(program, check=True, capture_output=True, text=True).stdout.split())
        assert kept == 2
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 200_000


def test_long_texts_are_not_kept_for_sqlite() -> None:
    """I9: the codes of 2¹⁶ texts are kept, and no text among them is long."""
    given: list[int] = []

    code = sqlite._cell(Labels(["a"], outside="other"), lambda raw: given.append(len(raw)) or raw.decode())
    for _ in range(3):
        assert code("text", b"a") == 0
        assert code("text", b"x" * sqlite._CACHED_BYTES) == 1
        assert code("text", b"x" * (sqlite._CACHED_BYTES + 1)) == 1
    assert given == [1, sqlite._CACHED_BYTES, *[sqlite._CACHED_BYTES + 1] * 3]
