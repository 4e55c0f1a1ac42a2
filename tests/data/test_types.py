"""Types of columns: what is refused by the schema alone, and what only raises a doubt."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from hdmm import DataError, Domain, Integers, Labels, from_table
from hdmm.data.types import _beyond_floats, doubts, refuse_types
from hdmm.describe.attribute import Attribute
from hdmm.describe.values import Values

DAY = date(2026, 1, 31)


@pytest.mark.parametrize(
    ("values", "kind", "count"),
    [
        (Integers(0, 9), pa.int64(), 0),
        (Integers(0, 9), pa.decimal128(5, 0), 0),
        (Integers(0, 9), pa.decimal128(5, 2), 1),
        (Integers(0, 9), pa.float64(), 1),
        (Integers(0, 9), pa.date32(), 1),
        (Labels(["a", 1]), pa.date32(), 1),
        (Labels(["a", DAY]), pa.date32(), 0),
        (Labels([1, DAY]), pa.int64(), 0),
    ],
)
def test_what_a_type_lets_one_doubt(values: Values, kind: pa.DataType, count: int) -> None:
    assert len(doubts(Attribute("x", values), "column", kind)) == count


@pytest.mark.parametrize(
    ("labels", "kind"), [(["M", "F"], pa.int64()), (["M", "F"], pa.bool_()), ([DAY], pa.int64()), ([DAY], pa.string())]
)
def test_labels_that_no_value_of_a_type_equals_are_refused(labels: list[str], kind: pa.DataType) -> None:
    with pytest.raises(DataError, match="has no label of the type"):
        refuse_types(Attribute("x", Labels(labels)), "column", kind, inferred=False)
    refuse_types(Attribute("x", Labels([*labels, 1, "1"])), "column", kind, inferred=False)


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary(4), pa.binary_view(), pa.time32("s")], ids=str
)
def test_numbers_are_not_looked_for_in_bytes_or_times_of_frames(kind: pa.DataType) -> None:
    with pytest.raises(DataError, match="finds none of its numbers"):
        refuse_types(Attribute("x", Integers(0, 9)), "column", kind, inferred=True)


def test_times_of_parquet_files_in_a_dataset_are_read(tmp_path: Path) -> None:
    """Those of ORC are refused, because Arrow fails on some."""
    times = pa.array([datetime(2026, 1, 31), None, datetime(2026, 1, 31)], pa.timestamp("us"))
    pq.write_table(pa.table({"x": times, "more": [1, 2, 3]}), tmp_path / "t.parquet")
    dataset = ds.dataset(tmp_path, schema=pa.schema({"x": pa.timestamp("us")}))  # which leaves a column out
    domain = Domain({"x": Labels([datetime(2026, 1, 31)], outside="other")})
    assert from_table(domain, dataset, declared_types=True).marginal(["x"]).tolist() == [2, 1]


def test_a_schema_that_cannot_be_read_is_told_without_its_cause(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1, no more")
    with pytest.raises(DataError, match="cannot be read as a Parquet file") as error:
        from_table(Domain({"x": 2}), tmp_path / "t.parquet")
    assert error.value.__suppress_context__


def test_integers_beyond_floats_may_be_declared_beside_other_labels() -> None:
    assert not _beyond_floats(Labels([2**53 - 1, DAY, "text"]))
    assert _beyond_floats(Labels([DAY, "text", -(2**53)]))
    assert _beyond_floats(Integers(0, 2**53))
    assert not _beyond_floats(Integers(0, 2**53 - 1))
