"""Every source of the same table gives the same counts, and says what is missing before it is read."""

# Wrong arguments are the subject of some tests; what ibis and pandas return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from hdmm import Bins, DataError, Domain, Integers, Labels, from_table
from hdmm.data.records import TableData
from hdmm.data.sources import table_files as files

# Ibis 12 calls what DuckDB 2 and pandas 3 will drop.
pytestmark = [
    pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),
]

DOMAIN = Domain(
    {
        "sex": ["M", "F"],
        "age": Integers(0, 9, outside="other"),
        "income": Bins([-1, 0.1, 2.5, 5]),
        "white": 2,
        "black": Integers(0, 1, outside="other"),
    }
).merge(["white", "black"], name="race")
WANTED = [["age", "sex"], [], ["income"], ["race", "income", "sex", "age"], ["sex"], ["age", "race"]]


def frame(rows: int = 500) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "note": ['a,"b"'] * rows,
            "sex": np.array(["M", "F", "x", None], dtype=object)[rng.integers(0, 4, rows)],
            "age": rng.integers(-2, 12, rows),
            "income": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(2, 3, rows)),
            "white": rng.integers(0, 2, rows),
            "black": rng.integers(0, 3, rows),
        }
    )


def expected(table: pd.DataFrame) -> np.ndarray:
    return DOMAIN.count({name: table[name].tolist() for name in table.columns})


def arrow(table: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(table, preserve_index=False)


def csv_folder(table: pd.DataFrame, folder: Path) -> Path:
    (folder / "f" / "deeper").mkdir(parents=True)
    table[:100].to_csv(folder / "f" / "1.csv", index=False)
    table[100:300][table.columns[::-1]].to_csv(folder / "f" / "deeper" / "2.csv", index=False, sep=";")
    with gzip.open(folder / "f" / "3.csv.gz", "wt", encoding="utf-8-sig") as file:
        table[300:].to_csv(file, index=False, sep="\t", lineterminator="\r\n")
    return folder / "f"


def parquet_folder(table: pd.DataFrame, folder: Path) -> Path:
    (folder / "age=3").mkdir()
    pq.write_table(arrow(table[:100]), folder / "age=3" / "1.parquet")
    pq.write_table(arrow(table[100:].astype({"age": float, "black": float})), folder / "2.parquet")
    return folder


def written(table: pd.DataFrame, path: Path, write: Callable[[Any, Path], None]) -> Path:
    write(table, path)
    return path


def duckdb_file(rows: pd.DataFrame, folder: Path) -> Path:
    with duckdb.connect(str(folder / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE people AS SELECT * FROM rows")
    return folder / "d.duckdb"


def confined(backend: Any) -> Any:
    """A DuckDB connection of Ibis with the settings that hdmm asks for."""
    backend.raw_sql(
        "SET temp_directory = ''; SET autoinstall_known_extensions = false; SET autoload_known_extensions = false; "
        "SET allow_community_extensions = false; SET enable_external_access = false; "
        "SET enable_progress_bar = false"  # which DuckDB draws in a process of xdist, as at a prompt
    )
    return backend


def sqlite_table(table: pd.DataFrame, folder: Path) -> object:
    connection = sqlite3.connect(folder / "s.db")
    table.to_sql("people", connection, index=False)
    connection.close()
    return ibis.sqlite.connect(folder / "s.db").table("people")


SOURCES: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "pandas": lambda t, _: t,
    "pandas, types of Arrow": lambda t, _: t.convert_dtypes(dtype_backend="pyarrow"),
    "pandas, nullable types": lambda t, _: t.convert_dtypes(),
    "pandas, categories": lambda t, _: t.astype({"age": "category", t.columns[1]: "category"}),
    "pandas, text": lambda t, _: t.astype("string"),
    "polars": lambda t, _: pl.from_pandas(t),
    "polars, categories": lambda t, _: pl.from_pandas(t).with_columns(pl.nth(1).cast(pl.Categorical)),
    "polars, lazy": lambda t, _: pl.from_pandas(t).lazy(),
    "arrow": lambda t, _: arrow(t),
    "arrow, batch": lambda t, _: pa.RecordBatch.from_pandas(t, preserve_index=False),
    "arrow, reader": lambda t, _: arrow(t).to_reader(max_chunksize=7),
    "arrow, dataset": lambda t, _: ds.dataset(arrow(t)),
    "csv": lambda t, p: str(written(t, p / "t.csv", lambda t, f: t.to_csv(f, index=False))),
    "csv, folder": csv_folder,
    "parquet": lambda t, p: written(t, p / "t.parquet", lambda t, f: t.to_parquet(f)),
    "parquet, folder": parquet_folder,
    "duckdb": duckdb_file,
    "ibis, duckdb": lambda t, p: confined(ibis.duckdb.connect(duckdb_file(t, p), read_only=True)).table("people"),
    "ibis, memory": lambda t, _: ibis.memtable(t),
    "ibis, sqlite": sqlite_table,
}


def declared(source: object, domain: Domain = DOMAIN, **options: Any) -> TableData:
    table = "people" if isinstance(source, Path) and source.suffix == ".duckdb" else None
    if isinstance(source, pa.RecordBatchReader):
        options = {"declared_types": True, **options}
    data = from_table(domain, source, table=table, **options)
    assert isinstance(data, TableData)
    return data


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_counts(name: str, tmp_path: Path) -> None:
    table = frame()
    counts = expected(table)
    assert counts.sum() > 50
    data = declared(SOURCES[name](table, tmp_path))
    for names, found in zip(WANTED, data.marginals(WANTED), strict=True):
        axes = sorted(DOMAIN.axis(n) for n in names)
        kept = counts.sum(axis=tuple(set(range(len(DOMAIN))) - set(axes)))
        np.testing.assert_array_equal(found, kept.transpose([axes.index(DOMAIN.axis(n)) for n in names]))
        assert found.dtype == np.int64


@pytest.mark.parametrize("name", SOURCES)
def test_columns_are_named_and_others_not_read(name: str, tmp_path: Path) -> None:
    table = frame(40).rename(columns={"sex": "Geschlecht der Person", "white": 'w"'})
    columns = {"sex": "Geschlecht der Person", "white": 'w"'}
    data = declared(SOURCES[name](table, tmp_path), columns=columns)
    assert data.marginal(["sex"]).sum() == expected(table.rename(columns={v: k for k, v in columns.items()})).sum()


@pytest.mark.parametrize("name", SOURCES)
def test_a_missing_column_is_named_before_data_are_read(name: str, tmp_path: Path) -> None:
    table = frame(40).rename(columns={"income": "Income"})
    named = (
        r"^Column 'income' is not in the data\. Did you mean 'Income'\? Other columns are .*Income.*\. If an attribute"
    )
    with pytest.raises(DataError, match=named):
        declared(SOURCES[name](table, tmp_path))


@pytest.mark.parametrize("name", SOURCES)
def test_empty_tables_count_nothing(name: str, tmp_path: Path) -> None:
    data = declared(SOURCES[name](frame(1)[:0], tmp_path))
    assert [found.sum() for found in data.marginals(WANTED)] == [0] * len(WANTED)


def test_a_total_needs_some_column() -> None:
    domain = Domain({"a": Integers(0, 1, outside="other")})
    assert declared(pa.table({"a": [5, None, 1]}), domain).marginal([]).tolist() == 3
    assert declared(ibis.memtable(pa.table({"a": [5, None, 1]})), domain).marginal([]).tolist() == 3
    assert declared(ibis.memtable(pa.table({"a": [5, None, 1]})), Domain({"a": 2})).marginal([]).tolist() == 1


def test_databases_count_in_the_database(tmp_path: Path) -> None:
    data = declared(SOURCES["ibis, duckdb"](frame(), tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableData, "_batches", None)  # no rows are fetched
        assert data.marginal(["race", "income", "age"]).sum() == expected(frame()).sum()
    many = [[a] for a in DOMAIN.names] * 20
    assert [found.sum() for found in data.marginals(many)] == [expected(frame()).sum()] * len(many)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
@pytest.mark.parametrize("rows_of_a_group", [300, 30_000])
def test_text_of_parquet_counts_the_same_however_it_is_stored(
    kind: pa.DataType, rows_of_a_group: int, tmp_path: Path
) -> None:
    """Few texts that are repeated, and small groups, are read as distinct values; others as they are, one by one."""
    rng = np.random.default_rng(8)
    entries = ["M", "F", None, "x" * 50, "03", " 3", "é", "3.0"]
    column = [entries[i] for i in rng.integers(0, len(entries), 30_000)]
    who = [f"person {i}" for i in rng.integers(0, 18_000, 30_000)]
    table = pa.table({"a": pa.array(column).cast(kind), "b": column, "who": who})
    domain = Domain({"a": Labels(["M", "F"], outside="other"), "b": Integers(0, 9, outside="other")})
    for coded in (True, False):
        path = tmp_path / "t.parquet"
        pq.write_table(table, path, row_group_size=rows_of_a_group, use_dictionary=coded)
        found = files._reading(path, ["b", "who"])["read_dictionary"]
        assert found == (["b", "who"] if rows_of_a_group == 300 else ["b"] if coded else [])
        data = from_table(domain, path)
        np.testing.assert_array_equal(data.marginal(["a", "b"]), domain.count({"a": column, "b": column}))
        assert from_table(domain, path, id="who", max_rows_per_id=1).marginal([]) == len(set(who))


def test_columns_of_lists_are_refused() -> None:
    domain = Domain({"a": 2})
    for source in (pa.table({"a": [[1]]}), pl.DataFrame({"a": [[1]]}), ibis.memtable(pa.table({"a": [[1]]}))):
        with pytest.raises(DataError, match="Column 'a' holds values of type"):
            declared(source, domain)


@pytest.mark.parametrize(
    "value",
    ["INTERVAL 1 DAY", "'101'::BIT", "1::BIGNUM", "1::VARIANT", "'1'::JSON", "1::UHUGEINT", "union_value(a := 1)"],
)
def test_columns_that_ibis_cannot_give_are_refused(value: str) -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql(f"CREATE TABLE t AS SELECT {value} AS a, 1 AS b")
    with pytest.raises(DataError, match=r"^Column 'a' holds values of type \w+\. "):
        declared(backend.table("t"), Domain({"a": 2}))
    with pytest.raises(DataError, match=r"^Column 'a' holds values of type \w+\. "):
        declared(backend.table("t"), Domain({"b": 2}), id="a", max_rows_per_id=1)
    assert declared(backend.table("t"), Domain({"b": 2})).marginal(["b"]).tolist() == [0, 1]


@pytest.mark.parametrize(
    "column", [pa.array([timedelta(1)]), pa.array([Decimal(1)], pa.decimal256(50, 2)), pa.array(np.ones(1, np.float16))]
)
def test_columns_of_memory_that_ibis_cannot_give_are_refused(column: pa.Array) -> None:
    table = pa.table({"a": column})
    domain = Domain({"a": Integers(0, 1, outside="other")})
    with pytest.raises(DataError, match=r"^Column 'a' holds values of type"):
        declared(ibis.memtable(table), domain)
    assert declared(table, domain).marginal([]) == 1


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP_S", "TIMESTAMP", "TIMESTAMPTZ"])
def test_times_that_python_does_not_have_are_outside(kind: str) -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql(f"CREATE TABLE t AS SELECT unnest(['infinity', '290000-01-01', '2000-01-01'])::{kind} AS a")
    domain = Domain({"a": Labels(["2000"], outside="other")})
    assert declared(backend.table("t"), domain).marginal(["a"]).tolist() == [0, 3]


def test_a_reader_of_a_file_must_be_said_to_declare_types(tmp_path: Path) -> None:
    """One of CSV infers them from the first block, and fails in a later one."""
    (tmp_path / "t.csv").write_text("x\n" + "1\n" * 20 + "M\n")
    options = pa_csv.ReadOptions(block_size=16)
    domain = Domain({"x": Integers(0, 1, outside="other")})
    for made in (lambda stream: stream, pa.RecordBatchReader.from_stream):
        reader = made(pa_csv.open_csv(tmp_path / "t.csv", read_options=options))
        with pytest.raises(DataError, match=r"Give reader\.read_all\(\)"):
            from_table(domain, reader)
    assert from_table(domain, pa.table({"x": [1, 1]}).to_reader(), declared_types=True).marginal(["x"]).tolist() == [
        0,
        2,
        0,
    ]


def test_a_reader_is_read_once() -> None:
    data = declared(arrow(frame()).to_reader())
    data.marginal(["sex"])
    with pytest.raises(DataError, match="can be read only once"):
        data.marginal(["sex"])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.csv", "There is no file"),
        ("none.duckdb", "table='…'"),
        ("t.xlsx", "does not say what kind of file"),
        ("empty", "holds no .csv"),
        ("mixed", "CSV and Parquet"),
        ("bad.parquet", "cannot be read as a Parquet file"),
        ("blank.csv", "is empty"),
        ("twice.csv", "does not name each column once"),
        ("latin.csv", "UTF-8"),
        ("bad.csv.gz", "UTF-8"),
        ("twice.parquet", "several columns of one name"),
    ],
)
def test_paths_that_cannot_be_read(path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    for name in ("a.csv", "b.parquet"):
        (tmp_path / "mixed" / name).write_text("a\n1\n")
    for name in ("t.xlsx", "bad.parquet", "bad.csv.gz"):
        (tmp_path / name).write_text("a\n1\n")
    (tmp_path / "blank.csv").write_text("")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "latin.csv").write_bytes("ä\n1\n".encode("latin-1"))
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), tmp_path / "twice.parquet")
    with pytest.raises(DataError, match=message):
        from_table(Domain({"a": 2}), tmp_path / path)


def test_tables_of_databases(tmp_path: Path) -> None:
    path = duckdb_file(frame(), tmp_path)
    for table in ("nobody", 'x"; DROP TABLE people; --'):
        with pytest.raises(DataError, match="has no table"):
            from_table(DOMAIN, path, table=table)
    (tmp_path / "not.duckdb").write_text("not a database")
    with pytest.raises(DataError, match="has no table"):
        from_table(DOMAIN, tmp_path / "not.duckdb", table="people")
    with pytest.raises(DataError, match="Leave out table='people'"):
        from_table(DOMAIN, tmp_path, table="people")
    with pytest.raises(DataError, match="source is a DataFrame"):
        from_table(DOMAIN, frame(), table="people")


@pytest.mark.parametrize("source", [5, None, {"a": [1]}, [[1]], np.zeros((2, 2))], ids=str)
def test_what_is_no_table(source: object) -> None:
    with pytest.raises(DataError, match=f"The source is a {type(source).__name__}"):
        from_table(Domain({"a": 2}), source)


def test_columns_for_attributes_that_are_none() -> None:
    with pytest.raises(DataError, match="'race', which is not an attribute"):
        from_table(DOMAIN, frame(), columns={"race": "white"})
    with pytest.raises(DataError, match="Give the name of a column as text"):
        from_table(DOMAIN, frame(), columns={"white": 3})
