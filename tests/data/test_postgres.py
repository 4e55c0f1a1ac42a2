"""PostgreSQL through Ibis, on a private server: its counts are those of values.py, whatever the rows.

The server listens on a socket in a temporary folder and is gone afterwards. Debian: apt install postgresql.
"""

# What ibis and psycopg return is known to them alone.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

import gc
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time as time_module
import traceback
from collections.abc import Callable, Iterator
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hdmm import Bins, DataError, Domain, Integers, Labels, from_table, load_spec
from hdmm.apps.cli import run
from hdmm.data import counting
from hdmm.data.engines import IbisTable
from hdmm.data.engines.engine import Engine
from hdmm.data.engines.persons import PeoplePart
from hdmm.data.engines.postgres import Postgres, key_setting
from hdmm.data.records import TableData
from hdmm.publication.publish import publish
from hdmm.publication.spec.origin import open_data
from tests.data.awkward import COLUMNS_OF_TWO, TWO, awkward_table, check_awkward, check_people, check_shared_choice
from tests.support.spec_cases import SPEC, people, planned, smallest, write_csv, write_spec

ibis = pytest.importorskip("ibis", reason="Ibis is not installed: pip install 'hdmm[postgres]'")
psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'hdmm[postgres]'")

pytestmark = pytest.mark.slow

# For each column its type and some values: as PostgreSQL is told them, and as Python says them (None: missing).
MISSING: tuple[None, None] = (None, None)
SAME: Callable[..., list[tuple[str | None, object]]] = lambda *texts: [(text, text) for text in texts]  # noqa: E731
COLUMNS: dict[str, tuple[str, list[tuple[str | None, object]]]] = {
    "sex": ("text", [*SAME("M", "F", "m", "M ", "", "é\u0301", "\x01\x7f\U0010ffff", "'; --", "%s"), MISSING]),
    "flag": ("boolean", [("true", True), ("false", False), MISSING]),
    "small": ("smallint", [(str(n), n) for n in (-32768, 0, 1, 2, 32767)]),
    "big": ("bigint", [(str(n), n) for n in (-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1)] + [MISSING]),
    "weight": ("real", [("NaN", np.nan), ("-Infinity", -np.inf), ("0.1", float(np.float32(0.1))), ("1e38", 1e38)]),
    "income": ("double precision", [(t, float(t)) for t in ("NaN", "Infinity", "-0", "0.1", "5e-324", "2.5")]),
    "amount": (
        "numeric",
        [
            (t, Decimal(t))
            for t in ("NaN", "Infinity", "-Infinity", "0.1", "2.5", "1e900", "2.4999999999999999999999999")
        ],
    ),
    "price": ("numeric(6,2)", [(t, Decimal(t)) for t in ("NaN", "0.10", "9999.99", "3")]),
    "years": ("varchar(9)", SAME("3", "03", "-1", "x", "1e400", "9" * 9, "")),
    "code": ("character(3)", [("a", "a"), ("ab ", "ab"), ("", ""), MISSING]),
    "mood": ("mood", [*SAME("glad", "sad"), MISSING]),
    "born": (
        "date",
        [
            ("2000-01-01", date(2000, 1, 1)),
            ("infinity", None),
            ("0044-03-15 BC", None),
            ("9999-12-31", date(9999, 12, 31)),
        ],
    ),
    "seen": ("timestamp with time zone", [("-infinity", None), ("290000-01-01 00:00:00+00", None), MISSING]),
    "at": ("time", [("24:00:00", None), ("01:00:00", time(1))]),
    "raw": ("bytea", [("\\xff00", b"\xff\0"), ("\\x31", b"1")]),
    "who": ("uuid", [(f"00000000-0000-0000-0000-00000000000{i}", i) for i in range(10)]),
}
COUNTED = Domain(
    {
        "sex": Labels(["M", "F", "é\u0301"], outside="other"),
        "flag": Integers(0, 1, outside="other"),
        "small": Integers(0, 2, outside="other"),
        "big": Bins([-1, 1, 2**53], outside="other"),
        "weight": Bins([0, 0.1, 0.2], outside="other"),
        "income": Bins([0, 0.1, 2.5, 3]),
        "amount": Bins([0, 0.1, 2.5, 3], outside="other"),
        "price": Bins([0, 0.1, 0.5, 4], outside="other"),
        "years": Integers(0, 9, outside="other"),
        "code": Labels(["a", "ab"], outside="other"),
        "born": Labels([date(2000, 1, 1), date(9999, 12, 31)], outside="other"),
        "seen": Integers(0, 1, outside="other"),
        "at": Labels(["01:00:00"], outside="other"),
    }
)
FETCHED = Domain(
    {
        "sex": Labels(["M", "F"], outside="other"),
        "amount": Bins([0, 0.1, 2.5, 3], outside="other"),
        "price": Bins([0, 0.5, 4], outside="other"),
        "years": Integers(0, 9, outside="other"),
        "code": Labels(["a", "ab"], outside="other"),
        "mood": Labels(["glad", "angry"], outside="other"),
        "born": Labels(["2000-01-01"], outside="other"),
        "seen": Integers(0, 1, outside="other"),
        "at": Labels(["01:00:00"], outside="other"),
        "raw": Integers(0, 1, outside="other"),
    }
)
REFUSED = ("interval", "json", "jsonb", "integer[]", "bit(3)", "int4range", "inet", "money", "point", "tsvector", "xml")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server that this module has for itself."""
    found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")), shutil.which("initdb")]
    if found == [None]:
        pytest.skip("PostgreSQL is not installed (no initdb). Debian: apt install postgresql")
    binaries = Path(str(found[-1] or found[-2])).parent
    with tempfile.TemporaryDirectory(prefix="hdmm-pg-") as name:  # short: the path of a socket has 107 bytes at most
        folder = Path(name)
        run = _runner(folder)
        run(binaries / "initdb", "-D", folder / "data", "-A", "trust", "-U", "hdmm", "-E", "UTF8", "--locale=C", "-N")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c log_statement=all"
        start = ["-D", folder / "data", "-l", folder / "log", "-w", "-o", options, "start"]
        run(binaries / "pg_ctl", *start)
        try:
            yield f"postgres://hdmm@/postgres?host={folder}"
        finally:
            run(binaries / "pg_ctl", "-D", folder / "data", "-m", "immediate", "-w", "stop")


def _runner(folder: Path) -> Callable[..., None]:
    """What runs a program of the server, which refuses to be root's: as root, for the user that the package made."""
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip(
                "PostgreSQL does not run as root, and there is no user postgres. Run the tests as another user."
            )
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    return lambda *command: subprocess.run(list(map(str, command)), check=True, cwd="/", **quiet, **user)


@pytest.fixture(scope="module")
def backend(url: str) -> Iterator[Any]:
    connected = ibis.connect(url)
    yield connected
    connected.disconnect()


@pytest.fixture(scope="module")
def rows(backend: Any) -> dict[str, list[object]]:
    """The table "odd", in which every value occurs; its columns as Python says them."""
    rng = np.random.default_rng(2)
    drawn = {name: [values[i] for i in rng.integers(0, len(values), 600)] for name, (_, values) in COLUMNS.items()}
    with backend.con.transaction():
        backend.con.execute("CREATE TYPE mood AS ENUM ('glad', 'sad')")
        backend.con.execute(f"CREATE TABLE odd ({', '.join(f'{name} {kind}' for name, (kind, _) in COLUMNS.items())})")
        with backend.con.cursor().copy("COPY odd FROM STDIN") as copy:
            for row in zip(*drawn.values(), strict=True):
                copy.write_row([text for text, _ in row])
    return {name: [value for _, value in column] for name, column in drawn.items()}


def check_counts(domain: Domain, data: Any, rows: dict[str, list[object]]) -> None:
    coded = {name: domain[name].values.encode(rows[name]) for name in domain.names}
    kept = np.all([codes >= 0 for codes in coded.values()], axis=0)
    assert kept.sum() > 50
    wanted = [[], *([name] for name in domain.names), domain.names[:3]]
    for names, found in zip(wanted, data.marginals(wanted), strict=True):
        truth = np.zeros([domain[name].size for name in names], np.int64)
        np.add.at(truth, tuple(coded[name][kept] for name in names), 1) if names else truth.__iadd__(kept.sum())
        np.testing.assert_array_equal(found, truth)


def test_the_database_counts_as_values_do(backend: Any, rows: dict[str, list[object]]) -> None:
    data = from_table(COUNTED, backend.table("odd"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableData, "_batches", None)  # no rows are fetched
        check_counts(COUNTED, data, rows)


@pytest.mark.parametrize("domain", [COUNTED, FETCHED], ids=["counted", "fetched"])
@pytest.mark.parametrize("column", ["who", "small", "amount", "born"])
def test_rows_of_people_count_as_values_do(
    backend: Any, rows: dict[str, list[object]], domain: Domain, column: str
) -> None:
    missing = (None, Decimal("Infinity"), Decimal("-Infinity"))
    owned = [i for i, value in enumerate(rows[column]) if value == value and value not in missing]  # nor is NaN an id
    kept = {name: [values[i] for i in owned] for name, values in rows.items()}
    fetch = domain is FETCHED
    check_counts(domain, from_table(domain, backend.table("odd"), id=column, max_rows_per_id=600, fetch=fetch), kept)


def test_columns_that_only_python_compares_are_fetched(backend: Any, rows: dict[str, list[object]]) -> None:
    with pytest.raises(DataError, match=r"whose type only Python compares, .* set fetch = true"):
        from_table(FETCHED, backend.table("odd"))
    check_counts(FETCHED, from_table(FETCHED, backend.table("odd"), fetch=True), rows)


@pytest.fixture(scope="module")
def awkward(backend: Any) -> pa.Table:
    """The table "awkward" on the server, with a column of a collation that takes 'm' for 'M'."""
    table = awkward_table()
    backend.con.execute("CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false)")
    types = "text text COLLATE blind, decimal numeric, float double precision, integer bigint, truth boolean, day date"
    backend.con.execute(f"CREATE TABLE awkward ({types})")
    with backend.con.transaction(), backend.con.cursor().copy("COPY awkward FROM STDIN") as copy:
        for row in table.to_pylist():
            copy.write_row(list(row.values()))
    return table


def test_awkward_values_are_counted_as_python_does(backend: Any, awkward: pa.Table) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IbisTable, "batches", None)  # no rows are fetched
        check_awkward(backend.table("awkward"), awkward)


@pytest.mark.parametrize("column", ["text", "decimal", "integer", "day", "truth"])
def test_equal_ids_are_one_person(backend: Any, awkward: pa.Table, column: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IbisTable, "batches", None)
        check_people(backend.table("awkward"), awkward, column)


def test_groupings_share_the_choice_among_rows(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["shared_of_numbers", "shared_of_texts"])

    def put(table: pa.Table) -> Any:
        return backend.create_table(next(names), table)

    with monkeypatch.context() as patch:
        check_shared_choice(put, patch)


def test_parts_keep_the_rows_that_one_pass_keeps(
    backend: Any, awkward: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server needs no parts, because it has a disk; it is asked in the same way."""
    for column in ("text", "integer"):
        table = backend.table("awkward")
        data = from_table(TWO, table, columns=COLUMNS_OF_TWO, id=column, max_rows_per_id=2)
        whole = data.marginal(TWO.names)
        with monkeypatch.context() as patch:
            patch.setattr(Postgres, "parts", lambda *_: [PeoplePart(number, 3) for number in range(3)])
            np.testing.assert_array_equal(data.marginal(TWO.names), whole)


def test_choices_are_fair_and_the_key_is_in_no_log(backend: Any, url: str) -> None:
    n = 2000
    backend.con.execute(
        f"CREATE TABLE fair AS SELECT i / 4 AS who, i % 4 AS a FROM generate_series(0, {4 * n - 1}) AS i"
    )
    data = [from_table(Domain({"a": 4}), backend.table("fair"), id="who", max_rows_per_id=1) for _ in range(2)]
    first, second = (each.marginal(["a"]) for each in data)
    for counts in (first, second):
        assert counts.sum() == n
        assert np.all(np.abs(counts - n / 4) < 6 * np.sqrt(n * 3 / 16))
    assert first.tolist() != second.tolist()
    np.testing.assert_array_equal(data[0].marginal(["a"]), first)
    assert isinstance(data[0], TableData)
    name = key_setting(data[0]._key)
    (key,) = backend.con.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert len(key) == 72
    log = (Path(url.split("host=")[1]) / "log").read_bytes()
    assert name.encode() in log
    assert key.encode() not in log
    assert data[0]._key.hex().encode() not in log


def test_all_groupings_are_of_one_state_of_the_table(backend: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.con.execute("CREATE TABLE moving AS SELECT i % 3 AS a, i % 2 AS b FROM generate_series(1, 90) AS i")
    monkeypatch.setattr(counting, "_GROUPED_CELLS", 3)
    monkeypatch.setattr(counting, "_JOINED_CELLS", 3)
    number = Engine.number_of_rows

    def writes(self: Any, table: Any) -> Any:
        found = number(self, table)
        with psycopg.connect(url) as other:
            other.execute("INSERT INTO moving SELECT 0, 0 FROM generate_series(1, 10)")
        return found

    monkeypatch.setattr(Engine, "number_of_rows", writes)
    data = from_table(Domain({"a": 3, "b": 3}), backend.table("moving"))
    assert [found.sum() for found in data.marginals([["a"], ["b"]])] == [90, 90]
    assert backend.con.execute("SELECT count(*) FROM moving").fetchone() == (100,)


@pytest.mark.parametrize("kill", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_query_that_is_killed_says_nothing(url: str, kill: str) -> None:
    connected = ibis.connect(url)
    connected.con.execute("CREATE OR REPLACE VIEW slow AS SELECT 1 AS a, pg_sleep(60) IS NULL AS b")
    data = from_table(Domain({"a": 2, "b": 2}), connected.table("slow"))
    pid = connected.con.info.backend_pid

    def killer() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            asleep = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
            while not other.execute(asleep, [pid]).fetchone()[0]:
                time_module.sleep(0.05)
            other.execute(f"SELECT {kill}(%s)", [pid])

    thread = threading.Thread(target=killer)
    thread.start()
    with pytest.raises(DataError, match="could not be read to the end"):
        data.marginal(["b"])
    thread.join()
    if kill == "pg_cancel_backend":  # the connection is as it was
        assert connected.con.execute("SELECT 1").fetchone() == (1,)
    connected.disconnect()


def test_names_of_tables_and_columns_are_only_names(backend: Any) -> None:
    names = ['a"b', "c'd; --", "select", "ü\n", "x0", "who", "person", "hdmm_key", "n", "c0", "%s"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    backend.con.execute(
        f"""CREATE TABLE "p""; DROP TABLE x; --'" AS SELECT {", ".join(f"i % 3 AS {name}" for name in quoted)} """
        "FROM generate_series(1, 60) AS i"
    )
    domain = Domain(dict.fromkeys((name for name in names if name != "who"), 3))
    data = from_table(domain, backend.table("p\"; DROP TABLE x; --'"), id="who", max_rows_per_id=100)
    for name in domain.names:
        assert data.marginal([name]).tolist() == [20, 20, 20]


def test_at_most_k_rows_of_a_person(backend: Any, rows: dict[str, list[object]]) -> None:
    domain = Domain({"small": Integers(0, 2, outside="other")})
    data = from_table(domain, backend.table("odd"), id="who", max_rows_per_id=3)
    assert data.marginal(["small"]).sum() == 3 * len(set(rows["who"]))


@pytest.mark.parametrize(
    ("kind", "spellings"),
    [
        ("numeric", ["1.1", "1.10", "1.100", "11e-1"]),
        ("text", ["1.1", "1.10", "01.1", "+1.1"]),
        ("varchar(20)", ["7", "07", "7.0"]),
        ("character(9)", ["7", "07", "7.0"]),
        ("timestamptz", ["2000-06-01 12:00+00", "2000-06-01 17:00+05", "2000-06-01 07:00-05"]),
        ("uuid", ["550e8400-e29b-41d4-a716-446655440000", "550E8400-E29B-41D4-A716-446655440000"]),
        ("text", ["550e8400-e29b-41d4-a716-446655440000", "550E8400-E29B-41D4-A716-446655440000"]),
        ("timestamp", ["2000-06-01 12:00", "2000-06-01 12:00:00.000"]),
    ],
)
def test_one_person_in_every_spelling_counts_k_rows(backend: Any, kind: str, spellings: list[str]) -> None:
    """I5."""
    backend.con.execute(f"DROP TABLE IF EXISTS spelled; CREATE TABLE spelled (who {kind}, x integer)")
    with backend.con.cursor() as cursor:
        cursor.executemany("INSERT INTO spelled VALUES (%s, %s)", [(w, i) for i, w in enumerate(spellings * 5)])
    fetch = kind.startswith("timestamp")  # which are named here
    data = from_table(Domain({"x": 50}), backend.table("spelled"), id="who", max_rows_per_id=2, fetch=fetch)
    assert data.marginal(["x"]).sum() == 2


@pytest.mark.parametrize("kind", ["bytea", "time"])
def test_ids_that_cannot_be_named_are_refused_by_their_type(backend: Any, kind: str) -> None:
    backend.con.execute(f"DROP TABLE IF EXISTS unnamed; CREATE TABLE unnamed (who {kind}, x integer)")
    with pytest.raises(DataError, match="in which equal ids may be written differently"):
        from_table(Domain({"x": 50}), backend.table("unnamed"), id="who", max_rows_per_id=2)


@pytest.mark.parametrize("kind", REFUSED)
def test_types_that_cannot_be_read_are_refused_before(backend: Any, kind: str) -> None:
    backend.con.execute(f"DROP TABLE IF EXISTS other; CREATE TABLE other (a {kind}, b integer)")
    with pytest.raises(DataError, match=r"^Column 'a' holds values of type \w+\. "):
        from_table(Domain({"a": 2}), backend.table("other"))
    assert from_table(Domain({"b": 2}), backend.table("other")).marginal([]) == 0


def test_a_table_that_may_not_be_read_is_refused_before(backend: Any, url: str) -> None:
    backend.con.execute("CREATE TABLE secret (a integer); CREATE ROLE stranger LOGIN")
    stranger = ibis.connect(url.replace("hdmm@", "stranger@"))
    with pytest.raises(DataError, match="InsufficientPrivilege"):
        from_table(Domain({"a": 2}), stranger.table("secret"))
    stranger.disconnect()


def test_domains_of_the_database_are_their_types(backend: Any) -> None:
    backend.con.execute("CREATE DOMAIN digit AS smallint CHECK (value < 10)")
    backend.con.execute("CREATE TABLE digits (a digit); INSERT INTO digits VALUES (1), (1), (7), (NULL)")
    assert from_table(Domain({"a": 2}), backend.table("digits")).marginal(["a"]).tolist() == [0, 2]


def test_text_in_another_encoding_is_refused(backend: Any, url: str) -> None:
    backend.con.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    other = ibis.connect(url.replace("/postgres?", "/latin?"))
    other.con.execute("CREATE TABLE t (a text, b integer); INSERT INTO t VALUES (chr(255), 1)")
    with pytest.raises(DataError, match="encoding than UTF8"):
        from_table(Domain({"a": ["M"]}), other.table("t"))
    assert from_table(Domain({"b": 2}), other.table("t")).marginal(["b"]).tolist() == [0, 1]
    other.disconnect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # connections end with their objects
@pytest.mark.parametrize("bounded", [False, True])
def test_a_specification_names_a_table_of_the_server(backend: Any, url: str, tmp_path: Path, bounded: bool) -> None:
    table = people()
    columns = "sex text, age bigint, smokes bigint, income double precision, who bigint"
    backend.con.execute(f"DROP TABLE IF EXISTS people; CREATE TABLE people ({columns})")
    with backend.con.cursor().copy("COPY people (sex, age, smokes, income, who) FROM STDIN") as copy:
        for row in table.select(["sex", "age", "smokes", "income", "who"]).to_pylist():
            copy.write_row(list(row.values()))
    text = SPEC if not bounded else SPEC.replace("[domain]", 'id = "who"\nmax_rows_per_id = 1000\n[domain]')
    write_csv(table, tmp_path / "people.csv")
    local = load_spec(write_spec(tmp_path, text, "local.toml"))
    spec = load_spec(write_spec(tmp_path, text.replace("people.csv", f'{url}"\ntable = "people')))
    wanted = [spec.domain.names, spec.domain.names[:2], ()]
    for found, expected in zip(open_data(spec).marginals(wanted), open_data(local).marginals(wanted), strict=True):
        np.testing.assert_array_equal(found, expected)
    done = publish(spec, planned(spec))
    assert (done.folder / "tables" / "P12.csv").exists()
    assert url not in (done.folder / "metadata.json").read_text()
    gc.collect()  # here, where what it warns of is ignored


SECRET = "geheim-7-canary"


@pytest.fixture(scope="module")
def guarded(url: str, backend: Any) -> Iterator[str]:
    """The address of the same server for a role that needs a password, by a rule of its own."""
    folder = Path(url.rpartition("=")[2])
    backend.con.execute(f"CREATE ROLE clerk LOGIN PASSWORD '{SECRET}'")
    backend.con.execute("CREATE TABLE persons (sex text); GRANT SELECT ON persons TO clerk")
    rules = folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all clerk scram-sha-256\n{before}")
    backend.con.execute("SELECT pg_reload_conf()")
    time_module.sleep(0.5)  # the server reads its rules in its own time
    yield f"clerk:{SECRET}@/postgres?host={folder}"
    rules.write_text(before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (SECRET, "wrong-canary", "the password is wrong, or there is no user 'clerk'."),
        (f":{SECRET}", "", "user 'clerk' needs a password, and none was given."),
        ("/postgres", "/census", "the server has no database 'census'."),
        ("?host=", "?host=/none", r"nothing answers at host '/none.*', port 5432\."),
        (
            "/postgres?host=",
            "no-such-host.invalid:5433/postgres?application_name=",
            "the name of host 'no-such-host.invalid' is not",
        ),
        ("/postgres?host=", "127.0.0.1:1/postgres?application_name=", "nothing answers at host '127.0.0.1', port 1"),
        (SECRET, "canary/1@2", "its URL cannot be taken apart"),
        ("people", "person", "has no table 'person' that you may read .TableNotFound.. Did you mean 'persons'"),
    ],
)
def test_why_a_database_cannot_be_opened_is_told_without_the_password(
    guarded: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, before: str, after: str, words: str
) -> None:
    source = f'postgres://{guarded}"\ntable = "people'.replace(before, after)
    spec = write_spec(tmp_path, SPEC.replace("people.csv", source))
    caplog.set_level("DEBUG")
    with pytest.raises(DataError, match=words) as error:
        open_data(load_spec(spec))
    shown = "".join(traceback.format_exception(error.value, chain=True)) + caplog.text
    assert "canary" not in shown
    gc.collect()


def test_a_password_on_the_command_line_is_not_repeated(tmp_path: Path) -> None:
    spec = load_spec(write_spec(tmp_path, SPEC), source=f"postgres://clerk:{SECRET}@db/census")
    assert spec.command.endswith("--source 'postgres://clerk:…@db/census'")
    assert spec.data.source == f"postgres://clerk:{SECRET}@db/census"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", ["variable", "environment"])
def test_a_password_that_opens_the_server_is_nowhere(
    guarded: str,
    backend: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    way: str,
) -> None:
    """Given by --set or by PGPASSWORD: no file of the release, the plan or the ledger has it, nor what is printed."""
    backend.con.execute(
        "DROP TABLE IF EXISTS few; CREATE TABLE few (a bigint); INSERT INTO few VALUES (0), (1); "
        "GRANT SELECT ON few TO PUBLIC"
    )
    monkeypatch.chdir(tmp_path)
    options: list[str] = []
    if way == "variable":
        source, options = guarded.replace(SECRET, "${PASSWORD}"), ["--set", f"PASSWORD={SECRET}"]
    else:
        source = guarded.replace(f":{SECRET}", "")
        monkeypatch.setenv("PGPASSWORD", SECRET)
    write_spec(tmp_path, smallest(f'source = "postgres://{source}"\ntable = "few"'), "few.toml")
    for command in (["check"], ["plan", "--json"], ["release", "--yes"], ["report", "--xlsx"], ["budget", "--json"]):
        assert run([command[0], "few.toml", *command[1:], *options]) == 0
    said = capsys.readouterr()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert not any(b"canary" in content for content in [*written, (said.out + said.err).encode()])
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_catalogue_is_read_without_a_right_to_the_rows(
    guarded: str, backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """hdmm init needs nothing but the catalogue: whoever may not read one row gets types, enumerations and checks."""
    backend.con.execute(
        """
        CREATE TYPE feeling AS ENUM ('glad', 'it''s');
        CREATE DOMAIN years AS integer CHECK (VALUE >= 0) CHECK (VALUE <= 114);
        CREATE TABLE described (
            sex text CHECK (sex IN ('M', 'F')), "Size" varchar(3) CHECK ("Size" IN ('S', 'L')), age years,
            feels feeling, ok boolean, income numeric CHECK (income > 0), town text,
            kids smallint CHECK (kids BETWEEN 1 AND 5),
            low integer, CHECK (low > -3 AND low < kids), CHECK (low < 4));
        INSERT INTO described VALUES ('M', 'S', 30, 'glad', true, 9, 'canary', 3, 1);
        REVOKE ALL ON described FROM PUBLIC
        """
    )
    monkeypatch.chdir(tmp_path)
    with psycopg.connect(f"postgres://{guarded}") as reader, pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("SELECT count(*) FROM described")
    assert run(["init", "--from", f"postgres://{guarded}", "--table", "described"]) == 0
    text = (tmp_path / "hdmm.toml").read_text()
    spec = load_spec("hdmm.toml")
    assert spec.data.source == f"postgres://{guarded.replace(f':{SECRET}', '')}"
    assert spec.data.table == "described"
    assert {name: spec.domain[name].labels[:2] for name in spec.domain.names} == {
        "sex": ("M", "F"),
        "Size": ("S", "L"),
        "age": (0, 1),
        "feels": ("glad", "it's"),
        "ok": (False, True),
        "kids": (1, 2),
        "low": (-2, -1),
    }
    assert (spec.domain["age"].size, spec.domain["low"].size) == (115, 6)
    assert "# income =    # numeric: which values can it hold?" in text
    assert "canary" not in text + "".join(capsys.readouterr())
    assert run(["init", "x.toml", "--from", f"postgres://{guarded}", "--table", "describe"]) == 1
    assert "Did you mean 'described'?" in capsys.readouterr().err
    assert run(["init", "x.toml", "--from", f"postgres://{guarded.replace(SECRET, 'canary-2')}"]) == 1
    wrong = capsys.readouterr().err
    assert "the password is wrong" in wrong
    assert "canary" not in wrong
