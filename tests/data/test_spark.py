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
from hdmm.data.database import IbisTable
from hdmm.data.persons import PeoplePart
from hdmm.data.table import Records
from tests.data.awkward import COLUMNS_OF_TWO, TWO, awkward_table, check_awkward, check_people

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
def no_rows_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IbisTable, "batches", None)


def test_awkward_values_are_counted_as_python_does(spark: Any) -> None:
    table = awkward_table()
    check_awkward(in_spark(spark, table), table)


@pytest.mark.parametrize("column", ["text", "decimal", "integer", "day"])
def test_equal_ids_are_one_person(spark: Any, column: str) -> None:
    table = awkward_table()
    check_people(in_spark(spark, table), table, column)


def test_parts_keep_the_rows_that_one_pass_keeps(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark needs no parts, because it has a disk; it is asked in the same way."""
    table = in_spark(spark, awkward_table())
    for column in ("text", "integer"):
        data = from_table(TWO, table, columns=COLUMNS_OF_TWO, id=column, max_rows_per_id=2)
        whole = data.marginal(TWO.names)
        with monkeypatch.context() as patch:
            patch.setattr(IbisTable, "_parts", lambda *_: [PeoplePart(number, 3) for number in range(3)])
            np.testing.assert_array_equal(data.marginal(TWO.names), whole)


def test_choices_are_fair_and_the_key_is_in_no_plan(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    n, domain = 1000, Domain({"a": 4})
    table = in_spark(spark, pa.table({"who": np.repeat(np.arange(n), 4), "a": np.tile(np.arange(4), n)}))
    data = from_table(domain, table, id="who", max_rows_per_id=1)
    counts = data.marginal(["a"])
    assert counts.sum() == n
    assert np.all(np.abs(counts - n / 4) < 5 * np.sqrt(n * 3 / 16))
    np.testing.assert_array_equal(data.marginal(["a"]), counts)
    assert isinstance(data, Records)
    source, asked = data.origin.source, data._asked([0])  # pyright: ignore[reportPrivateUsage]
    assert isinstance(source, IbisTable)
    rows = source._kept(asked, PeoplePart())  # pyright: ignore[reportPrivateUsage]
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
