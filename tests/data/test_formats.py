"""I7: files of table formats are refused, whether the table, a part of it or one of its files is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from hdmm import DataError, Domain, from_table

DOMAIN = Domain({"x": 10})
ROWS = pa.table({"x": list(range(10))})
REFUSAL = "may hold a record several times"


def put(place: Path, text: str | None = None) -> None:
    """A file of rows, or of text."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        pq.write_table(ROWS, place)
    else:
        place.write_text(text)


def delta(table: Path, part: str, *, rewritten: bool) -> None:
    """As deltalake writes a table, and after its files were compacted into another."""
    put(table / part / "part-00000-1b9f-c000.snappy.parquet")
    put(table / "_delta_log" / "00000000000000000000.json", "{}")
    if rewritten:
        put(table / part / "part-00000-77a0-c000.zstd.parquet")
        put(table / "_delta_log" / "00000000000000000001.json", "{}")
        put(table / "_delta_log" / "00000000000000000001.checkpoint.parquet")


def iceberg(table: Path, part: str, *, rewritten: bool) -> None:
    """As pyiceberg writes a table, and after a second snapshot."""
    put(table / "data" / part / "00000-0-6f1c.parquet")
    put(table / "metadata" / "00000-91aa.metadata.json", "{}")
    put(table / "metadata" / "snap-8262-0-6f1c.avro", "")
    if rewritten:
        put(table / "data" / part / "00000-0-c6d1.parquet")
        put(table / "metadata" / "00001-0e4b.metadata.json", "{}")


def iceberg_of_hadoop(table: Path, part: str, *, rewritten: bool) -> None:
    put(table / "data" / part / "00000-0-6f1c.parquet")
    put(table / "metadata" / "v1.gz.metadata.json", "")
    put(table / "metadata" / "version-hint.text", "1")
    if rewritten:
        put(table / "data" / part / "00000-0-c6d1.parquet")


def hudi(table: Path, part: str, *, rewritten: bool) -> None:
    """Every commit writes a file group again under the time of the commit."""
    put(table / ".hoodie" / "hoodie.properties", "hoodie.table.name=t")
    put(table / part / ".hoodie_partition_metadata", "")
    put(table / part / "f3b1-0_0-22-28_20240101000000.parquet")
    if rewritten:
        put(table / part / "f3b1-0_0-44-58_20240102000000.parquet")


def streaming(table: Path, part: str, *, rewritten: bool) -> None:
    """A batch that failed leaves its files; the log does not name them."""
    put(table / "_spark_metadata" / "0", "v1")
    put(table / part / "part-00000-5a2e-c000.snappy.parquet")
    if rewritten:
        put(table / part / "part-00000-5a2f-c000.snappy.parquet")


def databricks(table: Path, part: str, *, rewritten: bool) -> None:
    put(table / part / "_committed_8411", '{"added":[],"removed":[]}')
    put(table / part / "part-00000-tid-8411.snappy.parquet")
    if rewritten:
        put(table / part / "part-00000-tid-9000.snappy.parquet")


def paimon(table: Path, part: str, *, rewritten: bool) -> None:
    put(table / "snapshot" / "snapshot-1", "{}")
    put(table / "schema" / "schema-0", "{}")
    put(table / "manifest" / "manifest-0", "")
    put(table / part / "bucket-0" / "data-0.parquet")
    if rewritten:
        put(table / part / "bucket-0" / "data-1.parquet")


def ducklake(table: Path, part: str, *, rewritten: bool) -> None:
    put(table / part / "ducklake-0194-aa.parquet")
    if rewritten:
        put(table / part / "ducklake-0194-bb-delete.parquet")


FORMATS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (delta, iceberg, iceberg_of_hadoop, hudi, streaming, databricks, paimon, ducklake)
}


def refused(source: object) -> None:
    with pytest.raises(DataError, match=REFUSAL):
        from_table(DOMAIN, source)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("part", ["", "day=2024-01-01"])
@pytest.mark.parametrize("rewritten", [False, True])
def test_folders_of_table_formats_are_refused(name: str, part: str, rewritten: bool, tmp_path: Path) -> None:
    """By the name of the table, of a folder above it, within it, of a file, through links, and as a dataset."""
    FORMATS[name](tmp_path / "lake" / "t", part, rewritten=rewritten)
    inside = sorted((tmp_path / "lake").rglob("*.parquet"))
    data = next(file for file in inside if "_delta_log" not in file.parts)
    os.symlink(data.parent, tmp_path / "link")
    os.symlink(data, tmp_path / "link.parquet")
    for place in (tmp_path / "lake", tmp_path / "lake" / "t", data.parent, data, inside[0]):
        refused(place)
        refused(str(place))
    refused(tmp_path / "link")
    refused(tmp_path / "link.parquet")
    refused(ds.dataset(data))
    refused(ds.dataset(tmp_path / "lake"))
    refused(ds.dataset([ds.dataset(data), ds.dataset(ROWS)]))
    refused(ds.dataset(data.name, filesystem=pa_fs.SubTreeFileSystem(str(data.parent), pa_fs.LocalFileSystem())))


@pytest.mark.parametrize("name", FORMATS)
def test_a_relative_path_is_looked_at_as_well(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FORMATS[name](tmp_path / "t", "day=2024-01-01", rewritten=True)
    file = next(file for file in sorted((tmp_path / "t").rglob("*.parquet")) if "_delta_log" not in file.parts)
    monkeypatch.chdir(file.parent)
    refused(".")
    refused(file.name)


def test_what_only_resembles_a_table_format_is_read(tmp_path: Path) -> None:
    put(tmp_path / "t" / "day=1" / "part-0.parquet")
    put(tmp_path / "t" / "day=2" / "part-0.parquet")
    put(tmp_path / "t" / "_SUCCESS", "")
    put(tmp_path / "t" / "metadata" / "about.json", "{}")
    put(tmp_path / "t" / "schema" / "people.json", "{}")
    put(tmp_path / "t" / "people.csv-metadata.json", "{}")
    FORMATS["delta"](tmp_path / "beside", "", rewritten=True)
    for source in (tmp_path / "t", ds.dataset(tmp_path / "t", format="parquet", exclude_invalid_files=True)):
        assert from_table(DOMAIN, source).marginal([]) == 20


def test_a_part_that_lies_elsewhere_and_is_linked_into_a_table_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "part-0.parquet")
    FORMATS["delta"](tmp_path / "t", "day=1", rewritten=False)
    os.symlink(tmp_path / "elsewhere", tmp_path / "t" / "day=2")
    os.symlink(tmp_path / "elsewhere" / "part-0.parquet", tmp_path / "t" / "part-0.parquet")
    refused(tmp_path / "t" / "day=2")
    refused(tmp_path / "t" / "part-0.parquet")
    assert from_table(DOMAIN, tmp_path / "elsewhere").marginal([]) == 10
