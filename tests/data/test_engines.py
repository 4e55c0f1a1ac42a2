"""Engines inside the process read one database and leave nothing on disk, however a source is given (O4)."""

# What ibis and duckdb return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnusedImport=false

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import ibis
import polars as pl
import pyarrow as pa
import pytest

import hdmm
from hdmm import DataError, Domain, from_table
from hdmm.data.engines import IbisTable, sqlite
from hdmm.data.engines import duckdb as engines
from hdmm.data.engines.duckdb import open_duckdb
from hdmm.data.engines.sqlite import open_sqlite
from hdmm.publication.spec import load_spec
from hdmm.publication.spec.origin import open_data
from tests.data.test_sources import confined, pytestmark  # noqa: F401 (the latter is read by pytest)
from tests.support.spec_cases import smallest, write_spec

DOMAIN = Domain({"a": 2})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with a table, and views over another file and over a variable of this program."""
    (tmp_path / "other.csv").write_text("a\n1\n1\n1\n")
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE people AS SELECT i % 2 AS a FROM range(10) t(i)")
        connection.execute(f"CREATE VIEW outside AS SELECT * FROM read_csv('{tmp_path}/other.csv')")
        connection.execute(
            f"CREATE VIEW beside AS SELECT a + (SELECT count(*) FROM glob('{tmp_path}/*')) a FROM people"
        )
    return tmp_path / "d.duckdb"


def by_spec(file: Path, table: str, *, scheme: str = "duckdb://") -> Any:
    return open_data(load_spec(write_spec(file.parent, of_table(f"{scheme}{file}", table), "s.toml")))


def of_table(source: str, table: str, domain: str = "a = 2") -> str:
    return smallest(f'source = "{source}"\ntable = "{table}"', domain)


def by_ibis(file: Path, table: str) -> Any:
    backend = ibis.duckdb.connect(file, read_only=True)
    found = backend.table(table)  # Ibis looks at the columns, as long as it may
    confined(backend)
    return from_table(DOMAIN, found)


WAYS: dict[str, Callable[[Path, str], Any]] = {
    "path": lambda file, table: from_table(DOMAIN, file, table=table),
    "url": lambda file, table: from_table(DOMAIN, f"duckdb://{file}", table=table),
    "specification": by_spec,
    "path in a specification": lambda file, table: by_spec(file, table, scheme=""),
    "ibis": by_ibis,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_view_cannot_read_another_file(way: str, file: Path) -> None:
    assert WAYS[way](file, "people").marginal(["a"]).tolist() == [5, 5]
    for view in ("outside", "beside"):
        with pytest.raises(DataError, match="reads from outside its database, such as another file or the network"):
            WAYS[way](file, view)


def test_a_table_is_never_a_file_or_a_variable(file: Path) -> None:
    """DuckDB would look for tables it does not know among files, and among the variables of the program."""
    people_of_the_program = pa.table({"a": [1]})
    for name in (str(file.with_name("other.csv")), "people_of_the_program"):
        with pytest.raises(DataError, match=r"reads from outside its database|has no table"):
            from_table(DOMAIN, file, table=name)
    assert len(people_of_the_program) == 1


@pytest.mark.parametrize("place", ["file", "memory"])
def test_a_connection_with_other_settings_is_refused_until_they_are_made(place: str, file: Path) -> None:
    backend = ibis.duckdb.connect(*([file] if place == "file" else []), read_only=place == "file")
    if place == "memory":
        backend.raw_sql("CREATE TABLE people AS SELECT 1 AS a")
    with pytest.raises(DataError, match="may write temporary files") as refused:
        from_table(DOMAIN, backend.table("people"))
    advised = re.search(r'raw_sql\("(.*)"\)', str(refused.value))
    assert advised
    backend.raw_sql(advised.group(1))
    assert from_table(DOMAIN, backend.table("people")).marginal(["a"]).sum() > 0


def test_a_connection_that_writes_is_refused(file: Path) -> None:
    backend = confined(ibis.duckdb.connect(file))
    with pytest.raises(DataError, match="is open for writing"):
        from_table(DOMAIN, backend.table("people"))
    with pytest.raises(DataError, match="open in this process with other settings"):
        from_table(DOMAIN, file, table="people")


def test_settings_are_checked_again_when_rows_are_read() -> None:
    backend = confined(ibis.duckdb.connect())
    backend.raw_sql("CREATE TABLE t AS SELECT 1 AS a")
    data = from_table(DOMAIN, backend.table("t"))
    backend.raw_sql("SET autoload_known_extensions = true")
    with pytest.raises(DataError, match="autoload_known_extensions = false"):
        data.marginal(["a"])


def test_other_engines_in_the_process_are_refused() -> None:
    table = ibis.polars.connect({"t": pl.DataFrame({"a": [1]})}).table("t")
    with pytest.raises(DataError, match="computed by polars inside this process"):
        from_table(DOMAIN, table)


def test_tables_that_no_connection_holds_are_computed_with_our_settings() -> None:
    """The default connection of Ibis, which would compute them, writes temporary files where it runs."""
    data = from_table(DOMAIN, ibis.memtable(pa.table({"a": [0, 1, 1]})))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ibis.options, "default_backend", ibis.sqlite.connect())
        assert data.marginal(["a"]).tolist() == [1, 2]


def test_one_file_is_read_twice_at_once(file: Path) -> None:
    first, second = (from_table(DOMAIN, file, table="people").marginals([["a"]]) for _ in range(2))
    with closing(open_duckdb(file)) as held, closing(open_duckdb(file)) as other:
        assert next(first).tolist() == next(second).tolist() == [5, 5]
        for connection in (held, other):
            with pytest.raises(duckdb.Error, match="locked"):
                connection.execute("SET enable_external_access = true")
            with pytest.raises(duckdb.Error):
                connection.execute("CREATE TABLE more (a INTEGER)")


def test_a_file_that_is_open_with_other_locked_settings_is_refused(file: Path) -> None:
    """All connections to a file share their settings, and these can no longer be set to ours."""
    with closing(duckdb.connect(file, read_only=True, config=engines._AT_START)) as held:
        held.execute("SET lock_configuration = true")
        with pytest.raises(DataError, match="may write temporary files, read other files"):
            open_duckdb(file)


AT_A_PROMPT = """
import pathlib, sys
from hdmm.data.engines.duckdb import memory_backend, open_duckdb
for connection in (open_duckdb(pathlib.Path(sys.argv[1])), memory_backend().con):
    print(*connection.execute("SELECT current_setting('enable_progress_bar')").fetchone())
"""


def test_duckdb_draws_no_progress_of_its_own(file: Path) -> None:
    """A program that is no file is a prompt to DuckDB, where it would draw a bar after two seconds."""
    done = subprocess.run([sys.executable, "-c", AT_A_PROMPT, file], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


SPILLS = """
    import os, signal, sys
    from pathlib import Path
    import duckdb
    from hdmm.data.engines import duckdb as engines
    file, ours = Path(sys.argv[1]), sys.argv[2] == "ours"
    small = {"memory_limit": "40MB", "threads": 1}
    if ours:
        from hdmm.publication.spec import load_spec
        from hdmm.publication.spec.origin import open_data
        engines._AT_START.update(small)
        try:
            open_data(load_spec(file.with_name("s.toml"))).marginal(["a"])
        except Exception as wrong:
            print(wrong)
    else:
        reader = duckdb.connect(str(file), read_only=True, config=small).sql("FROM sorted").to_arrow_reader(1000)
        next(iter(reader))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_killed_run_leaves_no_groups_of_duckdb(tmp_path: Path) -> None:
    """A sort that does not fit in memory fails, and writes nothing; of DuckDB as it comes, files survive a kill."""
    for folder in ("data", "tmp", "run"):
        (tmp_path / folder).mkdir()
    file = tmp_path / "data" / "d.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE VIEW sorted AS SELECT i % 2 AS a, repeat('x', 90) || hash(i) AS s "
                           "FROM range(1000000) t(i) ORDER BY hash(i)")  # fmt: skip
    write_spec(file.parent, of_table(f"duckdb://{file}", "sorted", 'a = 2\ns = ["x"]'), "s.toml")
    before = set(tmp_path.rglob("*"))

    def killed(how: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SPILLS), str(file), how],
            cwd=tmp_path / "run",
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(Path(hdmm.__file__).parents[1])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == -9, done.stderr
        return done.stdout

    assert killed("ours").startswith("The data could not be read to the end.")
    assert set(tmp_path.rglob("*")) == before
    killed("plain")
    assert any("tmp" in path.name for path in set(tmp_path.rglob("*")) - before)


def sqlite_file(folder: Path) -> Path:
    with closing(sqlite3.connect(folder / "s.db")) as connection:
        connection.execute("CREATE TABLE people (a INTEGER, s TEXT)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", ((i % 2, "x" * 200) for i in range(40_000)))
        connection.execute("CREATE VIEW sorted AS SELECT a, s FROM people ORDER BY a, s || a")
        connection.commit()
    return folder / "s.db"


def temporary_files() -> list[str]:
    """Temporary files of SQLite that this process has open: they have no name any more."""
    opened = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return [str(link.readlink()) for link in opened if link.is_symlink() and "etilqs" in str(link.readlink())]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files of a process are told by Linux alone")
def test_sqlite_sorts_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "FETCHED_AT_ONCE", 100)
    backend = ibis.sqlite.connect(sqlite_file(tmp_path))
    with closing(backend.con.execute("SELECT * FROM sorted")) as cursor:
        cursor.fetchmany(100)
        assert temporary_files()  # what SQLite does by itself
    rows = IbisTable(backend.table("sorted")).batches(["a", "s"])
    next(rows)
    assert not temporary_files()
    rows.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert set(tmp_path.iterdir()) == {tmp_path / "s.db"}


def test_sqlite_is_left_as_it_was(tmp_path: Path) -> None:
    """A user's connection keeps its temporary tables and may write again; while rows are read nothing is written."""
    backend = ibis.sqlite.connect(sqlite_file(tmp_path))
    backend.con.execute("CREATE TEMP TABLE mine AS SELECT 1 AS a")
    backend.con.commit()
    rows = IbisTable(backend.table("people")).batches(["a"])
    next(rows)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        backend.con.execute("DELETE FROM people")
    rows.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert backend.con.execute("SELECT a FROM mine").fetchall() == [(1,)]
    backend.con.execute("DELETE FROM people")


def test_sqlite_in_a_specification_is_opened_for_reading(tmp_path: Path) -> None:
    file = sqlite_file(tmp_path)
    assert by_spec(file, "sorted", scheme="sqlite://").marginal(["a"]).tolist() == [20_000, 20_000]
    with closing(open_sqlite(file).con) as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM people")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("duckdb://d.duckdb?temp_directory=x", "Leave out what follows"),
        ("sqlite://d.duckdb#x", "Leave out what follows"),
        ("duckdb://", "there is no file"),
        ("duckdb://:memory:", "there is no file"),
        ("duckdb://md:people", "there is no file"),
        ("file://people.csv", "Write only its path"),
    ],
)
def test_urls_that_would_open_something_else_are_refused(source: str, message: str, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, of_table(source, "t"))
    with pytest.raises(DataError, match=message):
        open_data(load_spec(spec))


def test_a_table_of_ibis_shows_itself_alone() -> None:
    shown = repr(IbisTable(ibis.memtable(pa.table({"a": [0, 1, 1]}))))
    assert shown.startswith("IbisTable(table=")
    assert not any(word in shown for word in ("may_fetch", "gives_batches", "engine"))
