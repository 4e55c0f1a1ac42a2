"""All passes over the data see one state of it, or the release fails because the files changed, and says so."""

# What a test replaces is private, and what databases return is known to them alone.
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import ibis
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from hdmm import DataError, Domain, Labels, Ledger, PureDP, Workload, from_table, optimize
from hdmm.data import counting
from hdmm.data.engines.duckdb import DuckDBTable
from hdmm.data.records import of_rows
from hdmm.data.sources.table_files import CsvFiles, ParquetFiles
from tests.data.test_sources import (
    confined,
    pytestmark,  # noqa: F401 (read by pytest)
)

DOMAIN = Domain({"a": 4, "b": 4, "c": 4})
ROWS = pa.table({"a": [0, 1, 2], "b": [0, 1, 2], "c": [0, 1, 2], "who": [1, 2, 3]})
OTHERS = pa.table({"a": [3, 3, 3, 3], "b": [3, 3, 3, 3], "c": [3, 3, 3, 3], "who": [1, 2, 3, 4]})
WANTED = [["a", "b"], ["b", "c"], ["a", "c"]]
CHANGED = "The files of the data changed while they were read"


def csv(place: Path, rows: pa.Table) -> None:
    lines = [rows.column_names, *zip(*(map(str, column) for column in rows.to_pydict().values()), strict=True)]
    place.write_text("".join(",".join(line) + "\n" for line in lines))


def database(place: Path, rows: pa.Table) -> None:
    with duckdb.connect(str(place)) as connection:
        connection.register("given", rows)
        connection.execute("CREATE OR REPLACE TABLE people AS SELECT * FROM given")


FILES: dict[str, tuple[type, str, Callable[[Path, pa.Table], object]]] = {
    "csv": (CsvFiles, "t.csv", csv),
    "parquet": (ParquetFiles, "t.parquet", lambda place, rows: pq.write_table(rows, place)),
    "duckdb": (DuckDBTable, "t.duckdb", database),
}


@pytest.fixture(autouse=True)
def many_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes are not kept, and each cover takes a pass of its own."""
    monkeypatch.setattr(counting, "_KEPT_BYTES", 0)
    monkeypatch.setattr(counting, "_CELLS_PER_PASS", 1)
    monkeypatch.setattr(counting, "_JOINED_CELLS", 16)


def opened(place: Path, **options: Any) -> Any:
    return from_table(DOMAIN, place, table="people" if place.suffix == ".duckdb" else None, **options)


def changing(source: type, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch, *, at: int) -> None:
    """Change the files before the pass of this number; −1: within the first."""
    read, passes = source.batches, [0]

    def batches(self: Any, columns: Any) -> Iterator[Any]:
        if passes[0] == at:
            change()
        passes[0] += 1
        yield from read(self, columns)
        if at == -1:
            change()

    monkeypatch.setattr(source, "batches", batches)
    if source is DuckDBTable:  # which counts rows itself if there are ids
        count = DuckDBTable.groups

        def groups(self: Any, *asked: Any) -> Any:
            found = count(self, *asked)
            if at == -1:
                change()
            return found

        monkeypatch.setattr(DuckDBTable, "groups", groups)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("at", [-1, 0, 1, 2])
def test_files_that_change_between_or_within_passes_fail(
    name: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file, write = FILES[name]
    write(tmp_path / file, ROWS)
    data = opened(tmp_path / file)
    changing(source, lambda: write(tmp_path / file, OTHERS), monkeypatch, at=at)
    with pytest.raises(DataError, match=CHANGED):
        list(data.marginals(WANTED))


@pytest.mark.parametrize("name", FILES)
def test_files_that_change_fail_also_with_ids_and_in_sparse_counts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file, write = FILES[name]
    write(tmp_path / file, ROWS)
    plain, with_ids = opened(tmp_path / file), opened(tmp_path / file, id="who", max_rows_per_id=1)
    changing(source, lambda: write(tmp_path / file, OTHERS), monkeypatch, at=-1)
    for read in (lambda: with_ids.marginal(["a"]), lambda: plain.sparse(["a"]), lambda: with_ids.sparse(["a"])):
        with pytest.raises(DataError, match=CHANGED):
            read()


@pytest.mark.parametrize("name", FILES)
def test_files_that_stay_or_changed_before_are_counted(name: str, tmp_path: Path) -> None:
    _, file, write = FILES[name]
    write(tmp_path / file, OTHERS)
    data = opened(tmp_path / file)
    assert [found.sum() for found in data.marginals(WANTED)] == [4, 4, 4]
    write(tmp_path / file, ROWS)
    assert [found.sum() for found in data.marginals(WANTED)] == [3, 3, 3]


def test_a_file_put_in_place_of_another_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rename, with the same size and time."""
    csv(tmp_path / "t.csv", ROWS)
    csv(tmp_path / "new", ROWS.set_column(0, "a", pa.array([3, 3, 3])))
    status = os.stat(tmp_path / "t.csv")
    os.utime(tmp_path / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    data = opened(tmp_path / "t.csv")
    changing(CsvFiles, lambda: os.replace(tmp_path / "new", tmp_path / "t.csv"), monkeypatch, at=1)
    with pytest.raises(DataError, match=CHANGED):
        list(data.marginals(WANTED))


def test_a_file_that_is_added_to_a_folder_is_in_no_pass_and_one_removed_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").mkdir()
    csv(tmp_path / "t" / "1.csv", ROWS)
    csv(tmp_path / "t" / "2.csv", ROWS)
    data = opened(tmp_path / "t")
    with monkeypatch.context() as patch:
        changing(CsvFiles, lambda: csv(tmp_path / "t" / "3.csv", ROWS), patch, at=1)
        assert [found.sum() for found in data.marginals(WANTED)] == [6, 6, 6]
    changing(CsvFiles, (tmp_path / "t" / "2.csv").unlink, monkeypatch, at=1)
    with pytest.raises(DataError):
        list(data.marginals(WANTED))


def test_a_release_of_files_that_change_is_charged_and_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv(tmp_path / "t.csv", ROWS)
    plan = optimize(Workload.marginals(DOMAIN, WANTED), restarts=1)
    ledger = Ledger(tmp_path / "ledger.db", dataset="people", cap=PureDP(3))
    data = opened(tmp_path / "t.csv")
    changing(CsvFiles, lambda: csv(tmp_path / "t.csv", OTHERS), monkeypatch, at=-1)
    with pytest.raises(DataError, match=CHANGED):
        plan.measure(data, PureDP(1), ledger=ledger)
    assert ledger.spent == 1


def test_what_may_be_different_when_it_is_read_again_is_read_once(tmp_path: Path) -> None:
    """Refused before a debit, from sizes alone; one pass is counted."""
    pq.write_table(ROWS, tmp_path / "t.parquet")
    backend = confined(ibis.duckdb.connect())
    backend.con.register("given", ROWS.set_column(0, "a", pa.array([datetime(2000, 1, 1)] * 3)))
    backend.raw_sql("CREATE TABLE t AS SELECT * FROM given")
    times = Domain({"a": Labels([datetime(2000, 1, day) for day in range(1, 5)]), "b": 4, "c": 4})
    sources: list[tuple[Domain, Any, dict[str, Any]]] = [
        (DOMAIN, ROWS.to_reader(), {"declared_types": True}),
        (DOMAIN, pl.scan_parquet(tmp_path / "t.parquet"), {}),
        (DOMAIN, ds.dataset(tmp_path / "t.parquet"), {}),
        (times, backend.table("t"), {"fetch": True}),
    ]
    for domain, source, options in sources:
        data = from_table(domain, source, **options)
        with pytest.raises(DataError, match="several passes"):
            data.check_marginals(WANTED)
        assert data.marginal(["a", "b"]).sum() == 3
    for source in (ROWS, ds.dataset(ROWS), pl.from_arrow(ROWS), ROWS.to_pandas(), ibis.memtable(ROWS)):
        data = from_table(DOMAIN, source)  # pyright: ignore[reportArgumentType]
        assert [found.sum() for found in data.marginals(WANTED)] == [3, 3, 3]


@pytest.mark.parametrize("read", ["marginal", "sparse"])
def test_columns_of_a_file_that_was_replaced_are_checked_again(read: str, tmp_path: Path) -> None:
    place = tmp_path / "people.parquet"
    pq.write_table(pa.table({"a": [0, 1], "who": [1, 2]}), place)
    data = from_table(Domain({"a": 2}), place, id="who", max_rows_per_id=1)
    pq.write_table(pa.table({"a": [0, 1], "person": [1, 2]}), place)
    with pytest.raises(DataError, match="Column 'who' is not in the data"):
        getattr(data, read)(["a"])


def test_the_source_of_rows_stays_unless_another_is_known() -> None:
    data = from_table(Domain({"a": 2}), pa.table({"a": [0, 1]}), declared_types=True)
    first = of_rows(data, "11", None)
    assert (first.rows_of.source, first.rows_of.period) == ("11", None)  # type: ignore[attr-defined]
    then = of_rows(first, None, "22")
    assert (then.rows_of.source, then.rows_of.period) == ("11", "22")  # type: ignore[attr-defined]
    assert of_rows(then, "33", "22").rows_of.source == "33"  # type: ignore[attr-defined]
