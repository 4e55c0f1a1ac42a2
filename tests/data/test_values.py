"""Whatever a column holds and whichever source reads it, a value has the cell that values.py gives it."""

# What ibis and pandas return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import csv
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdmm import Bins, DataError, Domain, Integers, Labels, from_table
from hdmm.data.columns import encode
from hdmm.describe.values import Values
from tests.data.test_sources import confined, pytestmark  # noqa: F401 (the latter is read by pytest)
from tests.describe.test_domain import AWKWARD, KINDS, NUMBERS
from tests.support.effort import examples

FILES = settings(examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
    st.sampled_from(
        ["M", "F", "m", " M", "M ", "18", " 18", "18 ", "1", "1.0", "1e1", "+5", "-3", "٣", "1_0", "1e999"]
    ),
    st.sampled_from(["true", "True", "TRUE", "tRUE", "t", "false", "False", "FALSE", "01", "0", "0.0", "yes"]),
    st.sampled_from(["", "nan", "inf", "1e999", "0x1", "18.", "9" * 400, "é", "e\u0301", 'a"b', "a,b", "a\nb", "'"]),
    st.floats().map(repr),
    NUMBERS.filter(lambda n: abs(n) < 10**300).map(str),
)


def bounded(low: int, high: int) -> st.SearchStrategy[int]:
    return st.one_of(NUMBERS.filter(lambda n: low <= n <= high), st.integers(low, high))


TYPED: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), bounded(-(2**7), 2**7 - 1)),
    (pa.int32(), bounded(-(2**31), 2**31 - 1)),
    (pa.int64(), bounded(-(2**63), 2**63 - 1)),
    (pa.uint8(), bounded(0, 255)),
    (pa.uint64(), bounded(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.one_of(st.floats(), NUMBERS.filter(lambda n: abs(n) < 10**300).map(float))),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.decimal128(38, 2), st.decimals(-(10**20), 10**20, places=2)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.time64("us"), st.times()),
    (pa.binary(), st.sampled_from([b"M", b"18", b"", b"\xff"])),
]
ODDLY_TYPED: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.dictionary(pa.int8(), pa.string()), TEXT),
    (pa.dictionary(pa.int16(), pa.int64()), bounded(-(2**63), 2**63 - 1)),
    (pa.float16(), st.floats(width=16).map(np.float16)),
    (pa.duration("us"), st.timedeltas(timedelta(0), timedelta(1))),
    (pa.list_(pa.int64()), st.lists(st.integers(0, 3))),
    (pa.null(), st.none()),
]
MORE = [
    *KINDS,
    Labels([date(2000, 1, 1), time(0), Decimal("0.10"), datetime(2000, 1, 1), "M"], outside="other"),
    Labels(["a\nb", "a,b", 'a"b', "'", "é", "", "true"], outside="other"),
    Labels([18, 5, -3, 0], outside="other"),
    Bins([-3.5, 0.1, 18, 115], outside="other"),
]


def columns(kinds: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> st.SearchStrategy[pa.Array]:
    one = [st.lists(st.none() | values, max_size=6).map(lambda v, k=kind: pa.array(v, k)) for kind, values in kinds]
    return st.one_of(one)


def usable(values: Values, kind: pa.DataType, *, frame: bool = False) -> bool:
    """Whether from_table takes a column of a type for an attribute; frames are looked at more closely (I6)."""
    numbers = [n for n in getattr(values, "edges", getattr(values, "values", ())) if not isinstance(n, str)]
    if isinstance(values, Integers):
        numbers = [values.first, values.last]
    comparable = [n for n in numbers if isinstance(n, int | float | Decimal | Fraction)]
    if frame and pa.types.is_floating(kind) and any(abs(n) >= 2**53 for n in comparable):
        return False
    if frame and pa.types.is_boolean(kind) and not (isinstance(values, Labels) and values.values == (False, True)):
        return False
    inferred = pa.types.is_binary(kind) or (pa.types.is_temporal(kind) and not pa.types.is_duration(kind))
    if frame and inferred and (comparable or not isinstance(values, Labels)):
        return False
    if not isinstance(values, Labels):
        return True
    if frame and not pa.types.is_string(kind) and any(isinstance(label, str) for label in values.values):
        return False
    of_types = {
        datetime: pa.types.is_timestamp,
        date: pa.types.is_date,
        time: pa.types.is_time,
        bytes: pa.types.is_binary,
    }
    others = [
        next(check for plain, check in of_types.items() if isinstance(n, plain)) for n in set(numbers) - {*comparable}
    ]
    if frame and inferred and not all(check(kind) for check in others):
        return False
    plain = any(isinstance(label, int | float | Decimal | Fraction) for label in values.values)
    text = any(isinstance(label, str) for label in values.values)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return plain or (text if pa.types.is_string(kind) else not number)


def counted(values: Values, codes: np.ndarray) -> list[int]:
    return np.bincount(codes[codes >= 0], minlength=values.size).tolist()


@examples(400)
@given(values=st.sampled_from(MORE), column=columns(TYPED + ODDLY_TYPED))
def test_columns_of_arrow_are_encoded_as_python_values(values: Values, column: pa.Array) -> None:
    assert encode(values, column).tolist() == values.encode(column.to_pylist()).tolist()


def test_values_that_python_does_not_have_are_missing() -> None:
    far = pa.array([0, 10**9, None], pa.int32()).cast(pa.int32()).view(pa.date32())
    assert encode(Labels([date(1970, 1, 1)], outside="other"), far).tolist() == [0, 1, 1]
    bad = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], "i4")), pa.py_buffer(b"M\xff")])
    assert encode(Labels(["M"]), bad).tolist() == [0, -1]
    assert encode(Integers(0, 2**60), pa.array([2**53 + 1, None])).tolist() == [2**53 + 1, -1]


@FILES
@given(data=st.data())
def test_files_and_databases_give_the_cells_of_python(data: st.DataObject, tmp_path: Path) -> None:
    """Parquet, DuckDB and Ibis, whether the database counts or rows are fetched, against Domain.count."""
    rows = data.draw(st.integers(0, 5))
    arrays, attributes, lists = {}, {}, {}
    for i in range(data.draw(st.integers(1, 3))):
        kind, elements = data.draw(st.sampled_from(TYPED))
        values = data.draw(st.sampled_from([v for v in MORE if usable(v, kind) and v.size < 10**6]))
        column = data.draw(st.lists(st.none() | elements, min_size=rows, max_size=rows))
        name = f"c{i}"
        arrays[name], attributes[name] = pa.array(column, kind), values
        lists[name] = arrays[name].to_pylist()
    domain = Domain(attributes)
    if domain.size > 10**6:
        return
    table = pa.table(arrays)
    expected = domain.count(lists)
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.duckdb").unlink(missing_ok=True)
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
    found_in = [from_table(domain, tmp_path / "t.duckdb", table="t")]
    found_in += [from_table(domain, ibis.memtable(table), declared_types=True)]
    sources = [tmp_path / "t.parquet"]
    frames = [table, pl.from_arrow(table), ibis.memtable(table)]
    if all(usable(values, arrays[name].type, frame=True) for name, values in attributes.items()):
        sources += frames
    else:
        for source in frames:
            with pytest.raises(DataError, match="Give the path of the file instead of a frame"):
                from_table(domain, source)
    for found in (*found_in, *(from_table(domain, source) for source in sources)):
        np.testing.assert_array_equal(found.marginal(domain.names), expected)
        for name in domain.names:
            rest = tuple(axis for axis, other in enumerate(domain.names) if other != name)
            np.testing.assert_array_equal(found.marginal([name]), expected.sum(axis=rest))


@FILES
@given(
    values=st.sampled_from([v for v in MORE if usable(v, pa.string()) and v.size < 10**6]),
    column=st.lists(TEXT.filter(lambda text: not {"\n", "\r"} & set(text)), max_size=20),
)
def test_text_in_csv_files_is_encoded_as_text(values: Values, column: list[str], tmp_path: Path) -> None:
    with open(tmp_path / "t.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([["x", "y"], *([text, "é,"] for text in column)])
    found = from_table(Domain({"x": values}), tmp_path / "t.csv").marginal(["x"])
    assert found.tolist() == counted(values, values.encode(column))


@examples(150)
@given(values=st.sampled_from([v for v in MORE if v.size < 10**6]), column=st.lists(AWKWARD, max_size=6))
def test_objects_in_frames_are_taken_for_labels_of_no_other_type(values: Values, column: list[object]) -> None:
    objects = np.fromiter(column, dtype=object, count=len(column))
    frame = pd.DataFrame({"x": pd.Series(objects, dtype=object)})
    with pytest.raises(DataError, match="whose values may be of any type"):
        from_table(Domain({"x": values}), frame)
    dates = Labels([date(2000, 1, 1), datetime(2000, 1, 1)], outside="other")
    with pytest.raises(DataError, match="whose values may be of any type"):  # pandas makes timestamps of text, or not
        from_table(Domain({"x": dates}), frame)
    for labels, declared in ((dates, True), (Labels([date(2000, 1, 1), time(0)], outside="other"), False)):
        found = from_table(Domain({"x": labels}), frame, declared_types=declared).marginal(["x"])
        assert found.tolist() == counted(labels, labels.encode(objects))


@pytest.mark.parametrize(
    ("column", "dtype", "kind"),
    [
        ([1, 18, None, 2**53 + 1], "Int64", pa.int64()),
        ([True, None], "boolean", pa.bool_()),
        ([0.1, None], "Float64", pa.float64()),
        (["M", None], "string", pa.string()),
    ],
)
def test_nullable_columns_of_pandas_are_exact(column: list[object], dtype: str, kind: pa.DataType) -> None:
    for values in (v for v in MORE if v.size < 10**6 and usable(v, kind, frame=True)):
        series = pd.Series(column, dtype=dtype)
        found = from_table(Domain({"x": values}), pd.DataFrame({"x": series})).marginal(["x"])
        assert found.tolist() == counted(values, values.encode(column))


@pytest.mark.parametrize(
    ("labels", "column"),
    [([date(2000, 1, 1)], pa.array(["2000-01-01"])), (["1", "2"], pa.array([1])), (["x"], [True]), ([b"1"], [1.5])],
)
def test_labels_that_no_value_of_a_type_can_equal_are_refused(labels: list[object], column: object) -> None:
    with pytest.raises(DataError, match="would be outside"):
        from_table(Domain({"x": labels}), pa.table({"x": column}))


def test_a_new_category_changes_nothing() -> None:
    """I2: cells come from the declaration only."""
    for outside in ("drop", "other"):
        domain = Domain({"x": Labels(["b", "a"], outside=outside)})
        before = from_table(domain, pa.table({"x": ["a", "b", "b"]})).marginal(["x"])
        after = from_table(domain, pa.table({"x": ["a", "0", "b", "zzz", "b"]})).marginal(["x"])
        assert after.tolist() == [2, 1, *([2] if outside == "other" else [])]
        assert before.tolist() == [2, 1, *([0] if outside == "other" else [])]


def test_a_collation_moves_no_other_row(tmp_path: Path) -> None:
    """A database that takes 'm' for 'M' must not answer for both with either."""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TABLE t (x VARCHAR COLLATE NOCASE)")
        connection.execute("INSERT INTO t SELECT 'm' UNION ALL SELECT 'M' FROM range(5)")
    domain = Domain({"x": ["M", "F"]})
    assert from_table(domain, tmp_path / "t.duckdb", table="t").marginal(["x"]).tolist() == [5, 0]
    backend = confined(ibis.duckdb.connect(tmp_path / "t.duckdb", read_only=True))
    pushed = from_table(domain, backend.table("t")).marginal(["x"])
    assert pushed.tolist() in ([5, 0], [6, 0])
