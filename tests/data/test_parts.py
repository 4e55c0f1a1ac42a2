"""People counted in parts: the same rows are kept as in one pass, everyone is in one part, and memory is bounded."""

# What ibis and duckdb return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest

from hdmm import DataError, Domain, Integers, Ledger, PureDP, Strategy, from_table
from hdmm.data.engines import IbisTable, duckdb, engine, persons
from hdmm.data.engines import duckdb as duckdb_engine
from hdmm.data.engines.duckdb import DUCKDB, DuckDB, memory_of, parts_of_people
from hdmm.data.engines.expressions import Packing
from hdmm.data.engines.persons import PeoplePart
from hdmm.data.engines.postgres import POSTGRES, key_setting
from hdmm.data.engines.spark import SPARK
from hdmm.data.records import TableData
from hdmm.measure.measure import measure
from tests.data.awkward import COLUMNS_OF_TWO, TWO, awkward_table, check_people
from tests.data.test_counted_there import ENGINES, in_duckdb
from tests.data.test_sources import confined, pytestmark  # noqa: F401 (read by pytest)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the number of parts, whatever the memory and the rows."""

    def set_parts(number: int) -> None:
        monkeypatch.setattr(duckdb, "parts_of_people", lambda *_: [PeoplePart(i, number) for i in range(number)])

    return set_parts


@pytest.mark.parametrize("column", ["text", "integer"])
def test_parts_keep_the_rows_that_one_pass_keeps(column: str, tmp_path: Path, parts: Callable[[int], None]) -> None:
    source = in_duckdb(awkward_table().select(["text", "integer", "truth"]), tmp_path)
    data = from_table(TWO, source, columns=COLUMNS_OF_TWO, id=column, max_rows_per_id=2)
    whole, *others = (counted(data, parts, number) for number in (1, 2, 5))
    for found in others:
        np.testing.assert_array_equal(found, whole)


def counted(data: Any, parts: Callable[[int], None], number: int) -> Any:
    parts(number)
    return data.marginal(["years", "flag"])


def test_equal_ids_are_in_one_part(tmp_path: Path, parts: Callable[[int], None]) -> None:
    table = awkward_table().select(["text", "integer", "truth"])
    parts(5)
    check_people(in_duckdb(table, tmp_path), table, "text")


def test_every_row_is_in_exactly_one_part(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    who = np.concatenate([rng.integers(-(2**63), 2**63 - 1, 300), np.arange(-100, 100), np.arange(0, 3200, 16)])
    source = IbisTable(in_duckdb(pa.table({"who": who, "a": who % 3}), tmp_path))
    data = from_table(Domain({"a": 3}), source.table, id="who", max_rows_per_id=len(who))
    assert isinstance(data, TableData)
    asked = data._asked([0])
    sizes = []
    with source.engine.snapshot(source.table, asked):
        for number in range(4):
            by = asked.parts_of((0,))
            groups = list(source.engine.counted(source.table, asked, [by], PeoplePart(number, 4)))
            sizes.append(sum(int(np.asarray(rows).sum()) for _, _, rows in groups))
    assert sum(sizes) == len(who)
    assert min(sizes) > len(who) / 8  # no regular ids are all in one part


def test_groupings_of_different_numbers_of_words_are_told_apart(tmp_path: Path) -> None:
    """Each grouping of one query has the groups that it has alone, also one by nothing and one of several words."""
    rng = np.random.default_rng(8)
    large = [0, 5, 2**50]
    table = pa.table({"who": rng.integers(0, 90, 400), "c": rng.integers(0, 3, 400)} | {
        name: rng.choice(large, 400) for name in "ab"})  # fmt: skip
    domain = Domain({"a": Integers(0, 2**50), "b": Integers(0, 2**50), "c": 3})
    for k in (2, 400):
        (tmp_path / str(k)).mkdir()
        source = IbisTable(in_duckdb(table, tmp_path / str(k)))
        data = from_table(domain, source.table, id="who", max_rows_per_id=k)
        assert isinstance(data, TableData)
        asked = data._asked([0, 1, 2])
        groupings = [asked.parts_of(axes) for axes in ((2,), (0, 1), (), (0, 2), (0, 1, 2))]
        with source.engine.snapshot(source.table, asked):
            together = groups_of(source, asked, groupings)
            for place, alone in enumerate(groupings):
                assert together[place] == groups_of(source, asked, [alone])[0]
            plain = Counter(zip(*(table.column(name).to_pylist() for name in "abc"), strict=True))
            assert k < 400 or together[4] == plain


def groups_of(source: IbisTable, asked: Any, groupings: list[Any]) -> list[Counter[tuple[int, ...]]]:
    """The groups of each grouping and their rows, in one query."""
    found: list[Counter[tuple[int, ...]]] = [Counter() for _ in groupings]
    for place, codes, rows in source.engine.counted(source.table, asked, groupings, PeoplePart()):
        for group, number in zip(np.array(codes).reshape(len(codes), len(rows)).T.tolist(), rows, strict=True):
            found[place][tuple(group)] += int(number)
    return found


def test_all_parts_are_of_one_state_of_the_table(monkeypatch: pytest.MonkeyPatch, parts: Callable[[int], None]) -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE TABLE t AS SELECT i % 3 AS a, i AS who FROM range(90) t(i)")
    data = from_table(Domain({"a": 3}), backend.table("t"), id="who", max_rows_per_id=1)
    other, count = backend.con.cursor(), DuckDB.counted

    def writes(self: Any, *given: Any) -> Any:
        other.execute("INSERT INTO t SELECT 0, 1000 + i FROM range(10) r(i)")
        return count(self, *given)

    monkeypatch.setattr(DuckDB, "counted", writes)
    parts(3)
    assert data.marginal(["a"]).sum() == 90
    assert other.execute("SELECT count(*) FROM t").fetchone() == (120,)


def test_a_query_killed_after_some_parts_is_debited_once_and_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: Callable[[int], None]
) -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE TABLE t AS SELECT i % 3 AS a, i % 40 AS who FROM range(90) t(i)")
    data = from_table(Domain({"a": 3}), backend.table("t"), id="who", max_rows_per_id=1)
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(3))
    strategy, rows, asked = Strategy.identity(data.domain), DuckDB.rows, list[Any]()

    def killed(given: Any, table: Any) -> Any:
        asked.append(table)
        if len(asked) == 4:  # the number of rows, then two parts
            threading.Timer(0.1, given.backend.con.interrupt).start()
            given.backend.con.execute("SELECT sum(s.i * r.i) FROM range(1000000) s(i), range(1000000) r(i)")
        return rows(given, table)

    monkeypatch.setattr(DuckDB, "rows", killed)
    parts(4)
    with pytest.raises(DataError, match="could not be read to the end"):
        measure(strategy, data, PureDP(1), ledger=ledger)
    assert ledger.spent == 1
    release = measure(strategy, data, PureDP(1), ledger=ledger)  # on the same connection
    assert ledger.spent == 2
    assert release.privacy == PureDP(1)


def test_progress_has_a_step_per_query(monkeypatch: pytest.MonkeyPatch, parts: Callable[[int], None]) -> None:
    told: list[object] = []

    @contextmanager
    def shown(what: str, most: int, *, long: bool) -> Iterator[Callable[[], None]]:
        told.append((what, most, long))
        yield lambda: told.append("step")

    monkeypatch.setattr(engine, "shown_steps", shown)
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE TABLE t AS SELECT i % 3 AS a, i % 40 AS who FROM range(90) t(i)")
    parts(3)
    from_table(Domain({"a": 3}), backend.table("t"), id="who", max_rows_per_id=1).marginal(["a"])
    assert told == [("Counting in the database", 3, True), "step", "step", "step"]


def test_parts_follow_from_memory_and_rows() -> None:
    cells = [10] * 5
    assert parts_of_people(2**34, 10**6, cells, 1) == [PeoplePart()]
    assert parts_of_people(2**34, 0, cells, 16) == [PeoplePart()]
    by_rows, by_words = (len(parts_of_people(2**34, 10**9, given, 1)) for given in (cells, [10] * 200))
    assert 1 < by_rows < by_words
    assert len(parts_of_people(2**33, 10**9, cells, 1)) >= 2 * by_rows - 1
    assert len(parts_of_people(2**34, 10**9, cells, 2)) == by_rows  # their groups take the other half of the memory
    assert len(parts_of_people(2**34, 10**9, cells, 16)) >= 4 * by_rows
    for memory in (10**8 + 7, 3 * 10**9 - 11):
        parts = len(parts_of_people(memory, 10**9, cells, 1))
        held = 10**9 * (duckdb._BYTES_PER_ROW + duckdb._BYTES_PER_WORD)
        assert (parts - 1) * memory < 2 * held <= parts * memory  # no more than half of the memory, and no more parts


@pytest.mark.parametrize("limit", ["100MB", "1.5GB", "3GiB"])
def test_the_memory_of_duckdb_is_its_limit(limit: str) -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql(f"SET memory_limit = '{limit}'")
    stated = float(limit.rstrip("GMiB")) * {"MB": 1e6, "GB": 1e9, "GiB": 2**30}[limit.lstrip("0123456789.")]
    assert memory_of(backend.con) == pytest.approx(stated, rel=0.1)


def test_every_unit_of_memory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB states its limit in any of them; one that is unknown is too large to matter."""
    sizes = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": float("inf")}
    for unit, size in sizes.items():
        monkeypatch.setattr(duckdb_engine, "_settings", lambda _, name, unit=unit: {name: f"2.5 {unit}"})
        assert memory_of(ibis.duckdb.connect().con) == 2.5 * size


@pytest.mark.slow
def test_rows_that_do_not_fit_at_once_are_counted_in_parts(tmp_path: Path, parts: Callable[[int], None]) -> None:
    """DuckDB with 150 MB of memory and no disk: four million rows at once fail, parts do not, and leave no file.

    Nor do they with three groupings, in which most rows are groups of their own.
    """
    people, k, many = 1_300_000, 2, 1_200_000
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql(
        f"CREATE TABLE t AS SELECT (i * 7919 % 115)::INT AS a, (i // 3)::INT AS who, (hash(i) % {many})::INT AS x, "
        f"(hash(i + 1) % {many})::INT AS y, (hash(i + 2) % {many})::INT AS z FROM range({3 * people}) t(i)"
    )
    backend.raw_sql("SET memory_limit = '150MB'; SET threads = 2")
    table = backend.table("t")
    data = from_table(Domain({"a": 115}), table, id="who", max_rows_per_id=k)
    assert data.marginal(["a"]).sum() == k * people
    three = from_table(Domain(dict.fromkeys("xyz", many)), table, id="who", max_rows_per_id=k)
    assert [found.sum() for found in three.marginals([["x"], ["y"], ["z"]])] == [k * people] * 3
    parts(1)
    for of_all, name in ((data, "a"), (three, "x")):
        with pytest.raises(DataError, match="could not be read to the end"):
            of_all.marginal([name])
    assert not list(tmp_path.iterdir())


def test_codes_in_words_are_found_again() -> None:
    """As many words as are needed; a large attribute has one of its own."""
    sizes = (1, 2, 3, 2**40, 2**60, 1, 5, *[10] * 30)
    packing = Packing(sizes)
    assert [place for word in packing.words for place in word] == list(range(len(sizes)))
    assert len(packing.words) <= 7
    rng = np.random.default_rng(5)
    codes = np.array([[0] * len(sizes), [size - 1 for size in sizes], *(rng.integers(0, sizes) for _ in range(50))])
    columns = {f"c{i}": codes[:, i] for i in range(len(sizes))}
    table = ibis.memtable(pa.table(columns))
    words = {f"w{i}": word for i, word in enumerate(packing.packed([table[name] for name in columns]))}
    packed = table.select(**words)
    fetched = packed.to_pyarrow()
    for found, name in zip(packing.codes([fetched[word].to_numpy() for word in words]), columns, strict=True):
        np.testing.assert_array_equal(np.sort(found), np.sort(columns[name]))
    unpacked = dict(zip(columns, packing.unpacked([packed[word] for word in words]), strict=True))
    again = packed.select(**unpacked).to_pyarrow().to_pydict()
    assert sorted(zip(*again.values(), strict=True)) == sorted(map(tuple, codes.tolist()))


def test_integers_beyond_the_type_of_a_column_are_declared_and_counted(tmp_path: Path) -> None:
    table = pa.table({"a": [-(2**63), 5 - 2**63, 7]})
    values = Integers(-(2**63) - 2, 6 - 2**63, outside="other")
    for name, put in ENGINES.items():
        (tmp_path / name).mkdir()
        found = from_table(Domain({"a": values}), put(table, tmp_path / name)).marginal(["a"])
        assert found.tolist() == [0, 0, 1, 0, 0, 0, 0, 1, 0, 1], name


@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("k", [1, 2, 5, 100])
def test_servers_keep_the_rows_that_duckdb_keeps(kind: str, k: int) -> None:
    """They sort groups, and DuckDB aggregates rows: both choose by the same hash, so DuckDB can try what they do."""
    rng = np.random.default_rng(k)
    given = {"who": rng.integers(0, 12, 300), "a": rng.integers(0, 4, 300), "b": rng.integers(0, 3, 300)}
    rows = ibis.memtable(given).mutate(hdmm_person=ibis._.who.cast(kind))
    key = bytes(range(16))
    backend = ibis.duckdb.connect()
    least = backend.to_pyarrow(duckdb.least_rows(rows, ["a", "b"], k, key, DUCKDB)).to_pylist()
    groups = backend.to_pyarrow(persons.least_groups(rows, ["a", "b"], k, key, DUCKDB)).to_pylist()
    kept = Counter((row["a"], row["b"]) for row in least)
    assert len(least) == sum(min(k, n) for n in Counter(given["who"].tolist()).values())
    assert kept == sum((Counter({(row["a"], row["b"]): row[persons._ROWS]}) for row in groups), Counter())


def test_the_key_is_a_setting_in_postgres_and_a_row_elsewhere() -> None:
    rows, key = ibis.table({"hdmm_person": "int64"}, name="t"), bytes(range(16))
    for name, dialect in (("postgres", POSTGRES), ("pyspark", SPARK)):
        keyed = dialect.with_key(rows, key)
        query = ibis.to_sql(keyed, dialect=name)
        assert keyed.columns == ("hdmm_person", "hdmm_key")
        assert key.hex()[:16] not in query
        assert (key_setting(key) in query) == (dialect is POSTGRES)


def test_ids_that_are_uuids_are_counted_in_duckdb() -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE TABLE t AS SELECT 1 AS a, md5((i % 7)::VARCHAR)::UUID AS who FROM range(90) t(i)")
    data = from_table(Domain({"a": 2}), backend.table("t"), id="who", max_rows_per_id=2)
    assert data.marginal(["a"]).tolist() == [0, 14]
