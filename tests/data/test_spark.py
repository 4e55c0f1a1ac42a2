"""Spark through Ibis, in local mode: its counts are those of Python, and the key of the choice is in no plan.

The session is started here and stopped afterwards. Needs Java 17 or later, and pip install 'hdmm[spark]'.
"""

# What ibis and pyspark return is known to them alone.
# pyright: reportArgumentType=false, reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest

from hdmm import DataError, Domain, from_table
from hdmm.data.engines import IbisTable
from hdmm.data.engines.persons import PeoplePart
from hdmm.data.engines.spark import Spark
from hdmm.data.records import TableData
from tests.data.awkward import COLUMNS_OF_TWO, TWO, awkward_table, check_awkward, check_people, check_shared_choice
from tests.data.hostile import TEXTS, check_neighbours
from tests.data.test_hostile import AROUND, check_lengths

pyspark = pytest.importorskip("pyspark", minversion="4", reason="pyspark 4 is not installed: pip install 'hdmm[spark]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of pyspark about pandas, and about its own sockets
    pytest.mark.skipif(
        not (shutil.which("java") or os.environ.get("JAVA_HOME")),
        reason="Java is not installed. Spark needs Java 17 or later (Debian: apt install openjdk-17-jre-headless).",
    ),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder),
        "spark.local.dir": str(folder),
    }
    builder = SparkSession.builder.master("local[2]").appName("hdmm tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def in_spark(session: Any, table: pa.Table, name: str = "t") -> Any:
    session.createDataFrame(table).createOrReplaceTempView(name)
    return ibis.pyspark.connect(session).table(name)


@pytest.fixture(autouse=True)
def no_rows_are_fetched(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.function is not test_hostile_values_decide_nothing:  # which asks for both
        monkeypatch.setattr(IbisTable, "batches", None)


def test_awkward_values_are_counted_as_python_does(spark: Any) -> None:
    table = awkward_table()
    check_awkward(in_spark(spark, table), table)


@pytest.mark.parametrize("column", ["text", "decimal", "integer", "day"])
def test_equal_ids_are_one_person(spark: Any, column: str) -> None:
    table = awkward_table()
    check_people(in_spark(spark, table), table, column)


def test_groupings_share_the_choice_among_rows(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check_shared_choice(lambda table: in_spark(spark, table, "shared"), monkeypatch)


def test_parts_keep_the_rows_that_one_pass_keeps(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark needs no parts, because it has a disk; it is asked in the same way."""
    table = in_spark(spark, awkward_table())
    for column in ("text", "integer"):
        data = from_table(TWO, table, columns=COLUMNS_OF_TWO, id=column, max_rows_per_id=2)
        whole = data.marginal(TWO.names)
        with monkeypatch.context() as patch:
            patch.setattr(Spark, "parts", lambda *_: [PeoplePart(number, 3) for number in range(3)])
            np.testing.assert_array_equal(data.marginal(TWO.names), whole)


def test_choices_are_fair_and_the_key_is_in_no_plan(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    n, domain = 1000, Domain({"a": 4})
    table = in_spark(spark, pa.table({"who": np.repeat(np.arange(n), 4), "a": np.tile(np.arange(4), n)}))
    data = from_table(domain, table, id="who", max_rows_per_id=1)
    counts = data.marginal(["a"])
    assert counts.sum() == n
    assert np.all(np.abs(counts - n / 4) < 6 * np.sqrt(n * 3 / 16))
    np.testing.assert_array_equal(data.marginal(["a"]), counts)
    assert isinstance(data, TableData)
    source, asked = data.origin.source, data._asked([0])  # pyright: ignore[reportPrivateUsage]
    assert isinstance(source, IbisTable)
    assert isinstance(source.engine, Spark)
    rows = source.engine._kept(source.table, asked, PeoplePart())  # pyright: ignore[reportPrivateUsage]
    query = table.get_backend().compile(rows.aggregate(rows.count()))
    planned = spark.sql(query)._jdf.queryExecution().toString() if "memtable" not in query else query
    assert asked.key.hex()[:16] not in query
    assert asked.key.hex()[:16] not in planned
    assert asked.key.hex()[:16] not in capfd.readouterr().out


def test_names_of_columns_are_only_names(spark: Any) -> None:
    names = ["a`b", "c'd; --", "select", "x0", "who", "person", "hdmm_key", "n", "c0", "%s"]
    rng = np.random.default_rng(2)
    table = pa.table({name: rng.integers(0, 3, 60) for name in names})
    domain = Domain(dict.fromkeys((name for name in names if name != "who"), 3))
    data = from_table(domain, in_spark(spark, table, "p`q; --"[:1]), id="who", max_rows_per_id=100)
    wanted = [[name] for name in domain.names]
    for (name,), found in zip(wanted, data.marginals(wanted), strict=True):
        np.testing.assert_array_equal(found, np.bincount(table.column(name).to_numpy(), minlength=3))


def test_a_query_that_is_killed_says_nothing(spark: Any) -> None:
    spark.range(10**7).createOrReplaceTempView("many")
    slow = ibis.pyspark.connect(spark).sql("SELECT (s.id * t.id) % 3 AS a FROM many s CROSS JOIN many t")
    data = from_table(Domain({"a": 3}), slow)
    stop = threading.Event()

    def killer() -> None:
        while not stop.wait(0.2):
            spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        with pytest.raises(DataError, match="could not be read to the end"):
            data.marginal(["a"])
    finally:
        stop.set()
        thread.join()
    assert from_table(Domain({"a": 3}), in_spark(spark, pa.table({"a": [1]}))).marginal(["a"]).tolist() == [0, 1, 0]


# Expressions of SQL, because not every value can be given by Python.
HOSTILE: dict[str, list[str]] = {
    "STRING": [*(f"'{text}'" for text in TEXTS), "CAST(X'FF61' AS STRING)", "CAST(X'31FF' AS STRING)", "'a\\0b'"],
    "STRING COLLATE UTF8_LCASE": [f"'{text}'" for text in TEXTS],
    "BINARY": ["X'FF'", "CAST(repeat('1', 5000) AS BINARY)"],
    "BIGINT": [f"{2**63 - 1}L", f"(-{2**63 - 1}L - 1L)"],
    "TINYINT": ["-128Y"],
    "DECIMAL(38, 0)": ["9" * 38 + "BD"],
    "DECIMAL(18, 0)": ["9" * 18 + "BD"],
    "DECIMAL(38, 38)": ["0." + "9" * 38 + "BD"],
    "DOUBLE": ["double('NaN')", "double('-Infinity')", "1.7976931348623157E308D", "4.9E-324D"],
    "FLOAT": ["float('NaN')", "float('Infinity')"],
    "BOOLEAN": ["true"],
    "DATE": ["date_from_unix_date(2147483647)", "date_from_unix_date(-2147483648)", "DATE '9999-12-31'"],
    "TIMESTAMP": [
        "timestamp_micros(9223372036854775807L)",
        "timestamp_micros(-9223372036854775807L)",
        "TIMESTAMP '9999-12-31 23:59:59.999999+00:00'",
        "TIMESTAMP '0001-01-01 00:00:00+14:00'",
    ],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ '294247-01-10 04:00:54.775807'", "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'"],
}


@pytest.fixture
def far_east(spark: Any) -> Iterator[None]:
    """A time zone in which the year 9999 ends 14 hours earlier."""
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    yield
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.usefixtures("far_east")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_values_decide_nothing(spark: Any, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    for name, values in (("plain", []), ("hostile", HOSTILE[kind])):
        rows = " UNION ALL ".join(f"SELECT CAST({value} AS {kind}) AS x, 1 AS a" for value in ("NULL", *values))
        table = spark.sql(rows).localCheckpoint()  # of constants, its optimizer would compute the counts
        table.createOrReplaceTempView(name)
    backend = ibis.pyspark.connect(spark)
    capfd.readouterr()
    assert check_neighbours(backend.table("plain"), backend.table("hostile"), "x", capfd)


def test_text_is_inside_up_to_a_public_length(spark: Any) -> None:
    texts = [text for text, _ in AROUND]
    check_lengths(in_spark(spark, pa.table({"x": texts, "a": [1] * len(texts)})))


@pytest.mark.parametrize("cells", [4, 10**6])
def test_a_person_with_many_rows_is_counted(spark: Any, cells: int) -> None:
    rows, k = 300_000, 3
    spark.sql(
        f"SELECT CAST(id * 7919 % {cells} AS INT) AS a, CAST(greatest(1000 - id, 0) AS INT) AS who FROM range({rows})"
    ).createOrReplaceTempView("many")
    data = from_table(Domain({"a": cells}), ibis.pyspark.connect(spark).table("many"), id="who", max_rows_per_id=k)
    assert data.marginal(["a"]).sum() == 1000 + k


def test_rows_are_not_fetched_because_all_of_them_come_at_once(spark: Any) -> None:
    """I1: one person's number of rows would decide whether what Spark collects stays below its limit."""
    spark.sql("SELECT timestamp_micros(id) AS who, 1 AS a FROM range(3)").createOrReplaceTempView("times")
    table = ibis.pyspark.connect(spark).table("times")
    with pytest.raises(DataError, match="write the rows to Parquet files"):
        from_table(Domain({"a": 3}), table, id="who", max_rows_per_id=1, fetch=True)
