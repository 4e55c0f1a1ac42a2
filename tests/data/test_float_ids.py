"""I5: floats are named by their shortest decimal, and ids that are floats in one place only are refused."""

# What ibis returns is known to it alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from hdmm import DataError, Domain, from_table
from tests.data.test_sources import (
    confined,
    pytestmark,  # noqa: F401 (read by pytest)
)

DOMAIN = Domain({"x": 50})
ROWS = 12
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
EXACT = [
    pa.int8(),
    pa.int64(),
    pa.uint64(),
    pa.string(),
    pa.large_string(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.decimal128(20, 2),
    pa.decimal256(60, 20),
]
OTHERS = [*EXACT, pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
pytest_ignore = pytest.mark.filterwarnings("ignore:The ids in column 'who' are floats")


def folder(place: Path, *columns: pa.Array) -> Path:
    place.mkdir()
    for number, column in enumerate(columns):
        pq.write_table(pa.table({"who": column, "x": list(range(len(column)))}), place / f"{number}.parquet")
    return place


def counted(source: object, k: int, **options: Any) -> int:
    return int(from_table(DOMAIN, source, id="who", max_rows_per_id=k, **options).marginal([]))


@pytest.mark.parametrize("width", FLOATS, ids=str)
def test_floats_beside_anything_else_are_refused_by_the_schema(width: pa.DataType, tmp_path: Path) -> None:
    """Whatever is in the files: they hold no rows."""
    others = [*OTHERS, *(other for other in FLOATS if other != width)]
    for number, other in enumerate(others):
        for order, kinds in enumerate(itertools.permutations([width, other])):
            for coded in (False, True):
                first = pa.array([], kinds[0])
                columns = [first.dictionary_encode() if coded and order == 0 else first, pa.array([], kinds[1])]
                place = folder(tmp_path / f"{number}-{order}-{coded}", *columns)
                with pytest.raises(DataError, match="of different kinds in the files"):
                    from_table(DOMAIN, place, id="who", max_rows_per_id=1)


@pytest_ignore
@pytest.mark.parametrize("width", FLOATS, ids=str)
@pytest.mark.parametrize("value", [1.1, -0.0, 7.0, 1e4, 0.1])
@pytest.mark.parametrize("k", [1, 3])
def test_floats_of_one_width_are_one_person(width: pa.DataType, value: float, k: int, tmp_path: Path) -> None:
    column = pa.array(np.full(ROWS, value, width.to_pandas_dtype()))
    coded = column.cast(pa.float64()).dictionary_encode() if width == pa.float64() else column
    nobody = pa.array([None, None], pa.null())
    assert counted(folder(tmp_path / "t", column, coded, nobody), k) == k
    assert counted(pa.table({"who": column, "x": [0] * ROWS}), k, declared_types=True) == k
    if width != pa.float16():  # which polars and NumPy's sorting of pandas do not have
        assert counted(pl.DataFrame({"who": column, "x": [0] * ROWS}), k, declared_types=True) == k
    assert counted(pd.DataFrame({"who": column.to_numpy(), "x": 0}), k, declared_types=True) == k


@pytest_ignore
def test_floats_that_differ_are_different_people(tmp_path: Path) -> None:
    for width in (np.float16, np.float32, np.float64):
        one = np.array([1], width)
        near = np.concatenate([one, np.nextafter(one, width(2)), np.nextafter(one, width(0)), np.array([1e4], width)])
        assert counted(folder(tmp_path / width.__name__, pa.array(near)), 1) == 4
    large = pa.array([2.0**53, 2.0**53 + 2, 1e22, 1e23, 2.0**63, 2.0**64, 5e-324])
    assert counted(folder(tmp_path / "large", large), 1) == 7


def test_ids_that_pandas_turned_into_floats_in_one_file_are_refused(tmp_path: Path) -> None:
    """As pandas writes them: one missing id makes floats of a file's ids, and the other file keeps integers."""
    for number, ids in enumerate(([7, 8], [7, None])):
        pd.DataFrame({"who": ids, "x": [0, 1]}).to_parquet(tmp_path / f"{number}.parquet")
    with pytest.raises(DataError, match="pandas writes floats if an id is missing: convert the ids"):
        from_table(DOMAIN, tmp_path, id="who", max_rows_per_id=1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.int64()),
        (pa.decimal128(20, 2), pa.float64()),
        (pa.int64(), pa.int32()),
    ],
    ids=str,
)
def test_datasets_that_convert_their_files_are_refused(first: pa.DataType, second: pa.DataType, tmp_path: Path) -> None:
    """Arrow would convert ids, and attributes as well, to the type of the first file, and fail on some values."""
    place = folder(tmp_path / "t", pa.array([], first), pa.array([], second))
    paths = [place / "0.parquet", place / "1.parquet"]
    declared = pa.schema({"who": first, "x": pa.int64()})
    one_by_one = ds.dataset([ds.dataset(path, schema=declared) for path in paths])
    for dataset in (ds.dataset(place), ds.dataset(paths), ds.dataset(paths, schema=declared), one_by_one):
        for options in ({"domain": DOMAIN, "id": "who"}, {"domain": Domain({"who": 3, "x": 3}), "id": None}):
            k = None if options["id"] is None else 1
            with pytest.raises(DataError, match="Whether Arrow can convert them depends on their values"):
                from_table(source=dataset, max_rows_per_id=k, declared_types=True, **options)
    assert from_table(DOMAIN, ds.dataset(place)).marginal([]) == 0  # other columns are of one type


def test_datasets_of_one_type_are_counted(tmp_path: Path) -> None:
    ids = pa.array(["7", "07", None])
    place = folder(tmp_path / "t", ids, ids.slice(1), pa.array([None], pa.null()))
    assert counted(ds.dataset(place, schema=pa.schema({"who": pa.string(), "x": pa.int64()})), 2) == 2


AFFINITIES = {
    "INTEGER": True, "INT8": True, "NUMERIC": True, "BOOLEAN": True, "DECIMAL(10, 5)": True, "REAL": True,
    "DOUBLE": True, "FLOAT": True, "TEXT": True, "VARCHAR(20)": True, "": False, "BLOB": False, "ANY": False,
}  # fmt: skip


def sqlite(place: Path, statements: str, values: list[Any] | None = None, table: str = "people") -> ibis.Table:
    with closing(sqlite3.connect(place)) as connection:
        connection.executescript(statements)
        rows = [(who, number) for number, who in enumerate(values or [])]
        connection.executemany("INSERT INTO people VALUES (?, ?)", rows)
        connection.commit()
    return ibis.sqlite.connect(place).table(table)


@pytest_ignore
@pytest.mark.parametrize("kind", AFFINITIES)
@pytest.mark.parametrize("spellings", [[0.1, "0.1", "0.10", " .1"], [7, 7.0, "7", "07"], [1e22, "1e22", "10e21"]])
def test_one_person_in_sqlite_counts_once_or_the_column_is_refused(
    kind: str, spellings: list[Any], tmp_path: Path
) -> None:
    for number, values in enumerate((spellings, spellings[::-1])):  # Ibis looks at the first row
        table = sqlite(tmp_path / f"{number}.db", f"CREATE TABLE people (who {kind}, x INTEGER)", values)
        if AFFINITIES[kind]:
            assert counted(table, 1) == 1
        else:
            with pytest.raises(DataError, match="in which equal ids may be written differently"):
                counted(table, 1)


def test_strict_tables_and_what_views_compute_in_sqlite(tmp_path: Path) -> None:
    strict = "CREATE TABLE people (who TEXT, x INTEGER) STRICT; CREATE TABLE any (who ANY, x INTEGER) STRICT;"
    more = """
        CREATE TABLE floats (who REAL, x INTEGER); INSERT INTO any VALUES ('1', 1); INSERT INTO floats VALUES (1.0, 1);
        CREATE VIEW both AS SELECT who, x FROM people UNION ALL SELECT who, x FROM floats;
        CREATE VIEW sums AS SELECT who || '' AS who, x FROM people;
    """
    table = sqlite(tmp_path / "s.db", strict + more, ["7", "07", "7.0"])
    assert counted(table, 1) == 1
    for name in ("any", "both", "sums"):
        with pytest.raises(DataError, match="in which equal ids may be written differently"):
            counted(ibis.sqlite.connect(tmp_path / "s.db").table(name), 1)
    connected = ibis.sqlite.connect(tmp_path / "s.db")
    people, floats = connected.table("people"), connected.table("floats")
    for computed in (people.union(floats.cast({"who": "string"})), connected.sql("SELECT * FROM floats")):
        with pytest.raises(DataError, match="in which equal ids may be written differently"):
            counted(computed, 1)
    converted = connected.table("both").mutate(who=lambda t: t.who.cast("int64"))
    assert counted(converted, 1) == 2  # 7 and 1
    assert counted(people.filter(people.x >= 0).select("who", "x"), 1) == 1


@pytest_ignore
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "DECIMAL(30, 10)", "VARCHAR"])
@pytest.mark.parametrize("k", [1, 3])
def test_one_person_in_duckdb_counts_k_rows(kind: str, k: int, tmp_path: Path) -> None:
    path = tmp_path / "d.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE people AS SELECT '1.1'::{kind} AS who, range AS x FROM range({ROWS})")
        connection.execute("CREATE VIEW mixed AS SELECT * FROM people UNION ALL SELECT 1.1::DOUBLE, 1")
    assert counted(path, k, table="people") == k
    if kind != "FLOAT":  # which has another value as a DOUBLE: a view must not unite the two (docs/reference/data.md)
        assert counted(path, k, table="mixed") == k
    table = confined(ibis.duckdb.connect(path, read_only=True)).table("people")
    assert counted(table, k, fetch=kind in ("FLOAT", "DOUBLE")) == k


def test_decimals_and_long_integers_stay_exact(tmp_path: Path) -> None:
    exact = [pa.array([Decimal(2**53 + 1)] * 2, pa.decimal256(40, 5)), pa.array([2**53 + 1], pa.uint64())]
    text = [pa.array([str(2**53 + 1), f"{2**53 + 1}.0"]), pa.array([str(2**53)])]
    assert counted(folder(tmp_path / "t", *exact, *text), 1) == 2
