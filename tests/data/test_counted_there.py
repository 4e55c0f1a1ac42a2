"""Databases count where the rows are: the same counts, the same bound per person, and few groups that leave them."""

# What ibis and duckdb return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

import itertools
import sqlite3
import threading
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pytest

from hdmm import Bins, DataError, Domain, Integers, Labels, from_table, load_spec
from hdmm.data import counting
from hdmm.data.counting import finest, groupings
from hdmm.data.engines import IbisTable, engine
from hdmm.data.engines.duckdb import DuckDB
from hdmm.data.engines.engine import CountRequest, Engine
from hdmm.data.records import TableData
from hdmm.publication.spec.origin import open_data
from tests.data.awkward import awkward_table, check_awkward, check_people, check_shared_choice
from tests.data.test_sources import confined, pytestmark  # noqa: F401 (read by pytest)
from tests.support.spec_cases import smallest, write_spec

NAME = 'people "of"; DROP TABLE x; --\'é'
HOSTILE = ['a"b', "c'd; --", "select", "ü\n", "x0", "who", "person", "hdmm_key", "n", "c0", "%s"]


def in_duckdb(table: pa.Table, folder: Path, name: str = "t") -> Any:
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.register("given", table)
        connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM given")
    return confined(ibis.duckdb.connect(folder / "t.duckdb", read_only=True)).table(name)


def in_sqlite(table: pa.Table, folder: Path, name: str = "t") -> Any:
    """Decimals do not exist there."""
    columns = [c for c in table.schema.names if not pa.types.is_decimal(table.schema.field(c).type)]
    with sqlite3.connect(folder / "t.db") as connection:
        connection.execute(
            f"CREATE TABLE {quoted(name)} ({', '.join(f'{quoted(c)} {affinity(table, c)}' for c in columns)})"
        )
        rows = zip(*(table.column(c).to_pylist() for c in columns), strict=True)
        connection.executemany(f"INSERT INTO {quoted(name)} VALUES ({', '.join('?' * len(columns))})", rows)
    connection.close()
    return ibis.sqlite.connect(folder / "t.db").table(name)


def affinity(table: pa.Table, column: str) -> str:
    return "TEXT" if pa.types.is_string(table.schema.field(column).type) else "INTEGER"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


ENGINES = {"duckdb": in_duckdb, "sqlite": in_sqlite}


@pytest.fixture(autouse=True)
def no_rows_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IbisTable, "batches", None)


def test_duckdb_counts_awkward_values_as_python_does(tmp_path: Path) -> None:
    table = awkward_table()
    check_awkward(in_duckdb(table, tmp_path), table)


def test_a_collation_of_duckdb_does_not_merge_labels_or_people(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TABLE t (x VARCHAR COLLATE NOCASE)")
        connection.execute("INSERT INTO t VALUES ('m'), ('M'), ('M')")
    table = confined(ibis.duckdb.connect(tmp_path / "t.duckdb", read_only=True)).table("t")
    domain = Domain({"x": ["M", "m"]})
    assert from_table(domain, table).marginal(["x"]).tolist() == [2, 1]
    assert from_table(domain, table, id="x", max_rows_per_id=1).marginal(["x"]).tolist() == [1, 1]


def test_sqlite_counts_values_of_any_type(tmp_path: Path) -> None:
    values = ["3", 3, 3.0, " 3", b"3", "x", None, 1e300, "1e400", float("inf"), 2**53 + 1, "M", "m"]
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (x, n INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(value, i % 2) for i, value in enumerate(values)])
        connection.execute("INSERT INTO t VALUES (CAST(x'ff' AS TEXT), 0)")
    connection.close()
    for name in ("UTF-8", "UTF-16le"):
        source = ibis.sqlite.connect(tmp_path / "t.db" if name == "UTF-8" else utf16(tmp_path, values)).table("t")
        for attribute in (Integers(0, 9, outside="other"), Bins([0, 4, 1e18]), Labels(["3", "M", 3, b"3"])):
            domain = Domain({"x": attribute})
            expected = np.bincount([c for c in attribute.encode([*values, None]) if c >= 0], minlength=attribute.size)
            np.testing.assert_array_equal(from_table(domain, source).marginal(["x"]), expected)


def utf16(folder: Path, values: list[Any]) -> Path:
    with sqlite3.connect(folder / "u.db") as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.execute("CREATE TABLE t (x, n INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, 0)", [(value,) for value in [*values, None]])
    connection.close()
    return folder / "u.db"


@pytest.mark.parametrize("column", ["text", "decimal", "integer", "day", "truth"])
def test_equal_ids_are_one_person_in_duckdb(column: str, tmp_path: Path) -> None:
    table = awkward_table()
    check_people(in_duckdb(table, tmp_path), table, column)


@pytest.mark.parametrize("column", ["text", "integer"])
def test_equal_ids_are_one_person_in_sqlite(column: str, tmp_path: Path) -> None:
    table = awkward_table().select(["text", "integer", "truth"])
    check_people(in_sqlite(table, tmp_path), table, column)


@pytest.mark.parametrize("engine", ENGINES)
def test_choices_are_fair_and_by_the_key(engine: str, tmp_path: Path) -> None:
    """Each of four different rows of a person is chosen about as often, however often others are repeated."""
    n, domain = 2000, Domain({"a": 4})
    who = np.concatenate([np.repeat(np.arange(n), 4), np.arange(n)])
    table = pa.table({"who": who, "a": np.concatenate([np.tile(np.arange(4), n), np.zeros(n, int)])})
    source = ENGINES[engine](table, tmp_path)
    found = [from_table(domain, source, id="who", max_rows_per_id=1) for _ in range(2)]
    first, second = (data.marginal(["a"]) for data in found)
    for counts in (first, second):
        assert counts.sum() == n
        assert np.all(np.abs(counts - n / 4) < 6 * np.sqrt(n * 3 / 16))  # a row that occurs twice has no more chances
    assert first.tolist() != second.tolist()
    np.testing.assert_array_equal(found[0].marginal(["a"]), first)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_person_moves_k_counts(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    monkeypatch.setattr(counting, "_GROUPED_CELLS", 3)
    monkeypatch.setattr(counting, "_JOINED_CELLS", 3)

    def rows(who: Any) -> pa.Table:
        return pa.table({"who": who, "a": rng.integers(0, 5, len(who)), "b": rng.integers(0, 7, len(who))})

    others, person = rows(rng.integers(0, 50, 300)), rows(np.full(500, 77))
    counts: list[list[Any]] = []
    for i, table in enumerate((others, pa.concat_tables([person, others]))):
        (tmp_path / str(i)).mkdir()
        source = ENGINES[engine](table, tmp_path / str(i))
        data = from_table(Domain({"a": 4, "b": 6}), source, id="who", max_rows_per_id=3)
        assert isinstance(data, TableData)
        object.__setattr__(data, "_key", bytes(32))
        counts.append(list(data.marginals([["a"], ["b"]])))
    for without, moved in zip(*counts, strict=True):
        assert np.all(moved >= without)
        assert (moved - without).sum() == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_groupings_share_the_choice_among_rows(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = map(tmp_path.joinpath, "12")

    def put(table: pa.Table) -> Any:
        folder = next(folders)
        folder.mkdir()
        return ENGINES[engine](table, folder)

    check_shared_choice(put, monkeypatch)


@pytest.mark.parametrize(("most", "queries"), [(2**24, 1), (9, 2), (1, 3)])
def test_groupings_of_few_groups_are_one_query(
    most: int, queries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_GROUPED_CELLS", 3)
    monkeypatch.setattr(counting, "_JOINED_CELLS", 3)
    monkeypatch.setattr(engine, "_SHARED_GROUPS", most)
    counted, rows = list[Any](), DuckDB.rows

    def noted(self: Any, table: Any) -> Any:
        counted.extend([table] if "n" in table.columns else [])
        return rows(self, table)

    source = in_duckdb(pa.table({name: np.arange(90) for name in ("who", "a", "b", "c")}), tmp_path)
    data = from_table(Domain({"a": 5, "b": 4, "c": 4}), source, id="who", max_rows_per_id=1)
    monkeypatch.setattr(DuckDB, "rows", noted)
    assert [found.tolist() for found in data.marginals([["a"], ["b"], ["c"]])] == [[1, 1, 1, 1, 0], [1] * 4, [1] * 4]
    assert len(counted) == queries


@pytest.mark.parametrize("engine", ENGINES)
def test_names_of_tables_and_columns_are_only_names(engine: str, tmp_path: Path) -> None:
    names = HOSTILE if engine == "duckdb" else [name for name in HOSTILE if name != "ü\n"]
    rng = np.random.default_rng(2)
    table = pa.table({name: rng.integers(0, 3, 60) for name in names})
    source = ENGINES[engine](table, tmp_path, NAME)
    domain = Domain({name: 3 for name in names if name != "who"})
    data = from_table(domain, source, id="who", max_rows_per_id=100)
    for name in domain.names:
        np.testing.assert_array_equal(data.marginal([name]), np.bincount(table.column(name).to_numpy(), minlength=3))


def transferred(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of groups of each grouping that leaves the engine from now on."""
    seen: list[int] = []
    add = counting.GroupCounts.add

    def counted(self: Any, slab: Any, rows: Any) -> None:
        seen.append(len(rows))
        add(self, slab, rows)

    monkeypatch.setattr(counting.GroupCounts, "add", counted)
    return seen


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rows", [0, 1, 50, 20_000])
def test_any_number_of_marginals_takes_few_groupings(
    engine: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = 9
    rng = np.random.default_rng(3)
    table = pa.table({f"a{i}": rng.integers(0, 4, rows) for i in range(d)})
    domain = Domain(dict.fromkeys(table.schema.names, 4))
    wanted = [list(names) for k in range(4) for names in itertools.combinations(domain.names, k)]
    assert len(wanted) > 100
    data = from_table(domain, ENGINES[engine](table, tmp_path))
    truth = domain.count({name: table.column(name).to_pylist() for name in domain.names})
    monkeypatch.setattr(counting, "_GROUPED_CELLS", 2**12)
    monkeypatch.setattr(counting, "_JOINED_CELLS", 2**7)
    seen = transferred(monkeypatch)
    for names, found in zip(wanted, data.marginals(wanted), strict=True):
        others = tuple(axis for axis, name in enumerate(domain.names) if name not in names)
        np.testing.assert_array_equal(found, truth.sum(axis=others))
    assert len(seen) <= 17
    assert sum(seen) <= max(rows, 1)


def test_groupings_are_few_and_hold_every_marginal() -> None:
    domain = Domain({f"a{i}": 10 for i in range(40)})
    for wanted in (
        [(0,), (1,), (2,)],
        list(itertools.combinations(range(40), 2)),
        [tuple(range(i, i + 7)) for i in range(3)],
        [(i,) for i in range(40)],
        [()],
    ):
        found = groupings(domain, wanted)
        assert len(found) <= 16
        assert all(any({*axes} <= {*group} for group in found) for axes in wanted)
    assert groupings(domain, list(itertools.combinations(range(40), 2))) == [tuple(range(40))]
    assert groupings(domain, [(0,), (1,)]) == [finest([(0,), (1,)])]


def test_all_groupings_are_of_one_state_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that another connection writes between two queries are in no grouping."""
    wanted = [["a"], ["b"]]
    monkeypatch.setattr(counting, "_GROUPED_CELLS", 3)
    monkeypatch.setattr(counting, "_JOINED_CELLS", 3)
    number = Engine.number_of_rows
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE TABLE t AS SELECT i % 3 AS a, i % 2 AS b FROM range(90) t(i)")
    data = from_table(Domain({"a": 3, "b": 3}), backend.table("t"))
    other = backend.con.cursor()

    def writes(self: Any, table: Any) -> Any:
        found = number(self, table)
        other.execute("INSERT INTO t SELECT 0, 0 FROM range(10)")
        return found

    monkeypatch.setattr(Engine, "number_of_rows", writes)
    assert [found.sum() for found in data.marginals(wanted)] == [90, 90]
    assert other.execute("SELECT count(*) FROM t").fetchone() == (100,)


def test_all_groupings_of_sqlite_are_of_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_GROUPED_CELLS", 3)
    monkeypatch.setattr(counting, "_JOINED_CELLS", 3)
    source = in_sqlite(pa.table({"a": [0, 1, 2] * 30, "b": [0, 1] * 45}), tmp_path)
    with sqlite3.connect(tmp_path / "t.db") as other:
        other.execute("PRAGMA journal_mode = WAL")
    chosen = CountRequest.chosen_groupings

    def writes(self: Any, given: Any, rows: Any) -> Any:
        found = chosen(self, given, rows)
        with other:
            other.execute("INSERT INTO t VALUES (0, 0)")
        return found

    monkeypatch.setattr(CountRequest, "chosen_groupings", writes)
    data = from_table(Domain({"a": 3, "b": 3}), source)
    assert [found.sum() for found in data.marginals([["a"], ["b"]])] == [90, 90]
    other.close()


def test_a_query_that_is_killed_says_nothing_and_leaves_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE VIEW slow AS SELECT (i * j) % 3 AS a FROM range(1000000) s(i), range(1000000) t(j)")
    backend.raw_sql("CREATE TABLE t AS SELECT 1 AS a")
    data = from_table(Domain({"a": 3}), backend.table("slow"))
    stop = threading.Event()

    def interrupt() -> None:
        while not stop.wait(0.05):
            backend.con.interrupt()

    killer, rows = threading.Thread(target=interrupt), DuckDB.rows

    def killed(given: Any, table: Any) -> Any:
        killer.start()  # not before the columns have been examined
        return rows(given, table)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(DuckDB, "rows", killed)
            with pytest.raises(DataError, match="could not be read to the end"):
                data.marginal(["a"])
    finally:
        stop.set()
        killer.join()
    assert from_table(Domain({"a": 3}), backend.table("t")).marginal(["a"]).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("1::UTINYINT::UBIGINT", Integers(0, 1)),
        ("1.5::DECIMAL(20, 10)", Integers(0, 5000)),
        ("TIMESTAMP '2000-01-01'", Labels([np.datetime64("2000-01-01")])),
        ("'1'", Integers(0, 10**18)),
    ],
)
def test_what_an_engine_cannot_count_is_refused_or_fetched(
    column: str, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql(f"CREATE TABLE t AS SELECT {column} AS x, 1 AS who")
    domain = Domain({"x": values})
    with pytest.raises(DataError, match=r"^Column 'x' of type .* cannot be counted in duckdb .* set fetch = true"):
        from_table(domain, backend.table("t"))
    monkeypatch.undo()
    assert from_table(domain, backend.table("t"), fetch=True).marginal([]) in (0, 1)


@pytest.mark.filterwarnings("ignore:The ids in column 'who' are floats")
@pytest.mark.parametrize("who", ["1.5::DOUBLE", "TIMESTAMP '2000-01-01'"])
def test_ids_that_an_engine_cannot_name_are_refused_or_fetched(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql(f"CREATE TABLE t AS SELECT 1 AS x, {who} AS who FROM range(5)")
    domain = Domain({"x": 2})
    with pytest.raises(DataError, match=r"^Column 'who' of type .*, which holds the ids, cannot be counted in duckdb"):
        from_table(domain, backend.table("t"), id="who", max_rows_per_id=2)
    monkeypatch.undo()
    fetched = from_table(domain, backend.table("t"), id="who", max_rows_per_id=2, fetch=True)
    assert fetched.marginal(["x"]).tolist() == [0, 2]


def test_a_specification_says_whether_rows_may_be_fetched(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("a\n1\n")
    spec = load_spec(write_spec(tmp_path, smallest('source = "people.csv"\nfetch = true')))
    assert spec.data.fetch
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE TABLE t AS SELECT 1::UBIGINT AS a")
    open_data(spec, backend.table("t")).check()
    spec = load_spec(write_spec(tmp_path, smallest('source = "people.csv"')))
    with pytest.raises(DataError, match="set fetch = true"):
        open_data(spec, backend.table("t"))
