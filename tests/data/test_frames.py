"""I6: what a file's other rows hold never changes how a row is read, even if the file was read into a frame first."""

# Wrong arguments are the subject of some tests; what pandas and polars return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from pathlib import Path

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import Amount, Bins, DataError, Domain, Integers, Labels, from_table
from hdmm.data import engines
from hdmm.data.engines.duckdb import memory_backend
from hdmm.describe.values import Values
from tests.data.test_sources import (
    pytestmark,  # noqa: F401 (read by pytest)
)
from tests.support.effort import examples

_ONE_BACKEND = cache(memory_backend)


@pytest.fixture(autouse=True)
def one_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables in memory with Ibis share a database, because opening one for each would take most of the time."""
    monkeypatch.setattr(engines, "memory_backend", _ONE_BACKEND)


def dates(raw: bytes) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a format was not found
        return pd.read_csv(io.BytesIO(raw), parse_dates=["x"])


READERS: dict[str, Callable[[bytes], object]] = {
    "pandas": lambda raw: pd.read_csv(io.BytesIO(raw)),
    "pandas, in pieces": lambda raw: pd.concat(list(pd.read_csv(io.BytesIO(raw), chunksize=2))),
    "pandas, nullable types": lambda raw: pd.read_csv(io.BytesIO(raw), dtype_backend="numpy_nullable"),
    "polars": lambda raw: pl.read_csv(io.BytesIO(raw)),
    "polars, dates": lambda raw: pl.read_csv(io.BytesIO(raw), try_parse_dates=True),
    "arrow": lambda raw: pa_csv.read_csv(io.BytesIO(raw)),
    "arrow, dictionaries": lambda raw: pa_csv.read_csv(
        io.BytesIO(raw), convert_options=pa_csv.ConvertOptions(auto_dict_encode=True)
    ),
    "arrow, missing text": lambda raw: pa_csv.read_csv(
        io.BytesIO(raw), convert_options=pa_csv.ConvertOptions(strings_can_be_null=True)
    ),
    "pandas, through arrow": lambda raw: pd.read_csv(io.BytesIO(raw), engine="pyarrow"),
    "pandas, types of arrow": lambda raw: pd.read_csv(io.BytesIO(raw), dtype_backend="pyarrow"),
    "pandas, dates": dates,
    "ibis, arrow": lambda raw: ibis.memtable(pa_csv.read_csv(io.BytesIO(raw))),
    "ibis, pandas": lambda raw: ibis.memtable(pd.read_csv(io.BytesIO(raw))),
    "ibis, polars": lambda raw: ibis.memtable(pl.read_csv(io.BytesIO(raw))),
    "ibis, expression": lambda raw: ibis.memtable(pa_csv.read_csv(io.BytesIO(raw))).order_by("who"),
}
# Frames in memory with Ibis are what they were made of, and each takes a DuckDB of its own: listed cases are enough.
ONE_BY_ONE = [name for name in READERS if name != "pandas, in pieces" and not name.startswith("ibis")]
AS_TEXT: dict[str, Callable[[bytes], object]] = {
    "pandas": lambda raw: pd.read_csv(io.BytesIO(raw), dtype=str),
    "polars": lambda raw: pl.read_csv(io.BytesIO(raw), infer_schema=False),
    "arrow": lambda raw: pa_csv.read_csv(
        io.BytesIO(raw), convert_options=pa_csv.ConvertOptions(column_types={"x": pa.string()})
    ),
}
REFUSAL = "instead of a frame"


def written(fields: list[str], ids: list[str] | None = None) -> bytes:
    ids = [f"p{i}" for i in range(len(fields))] if ids is None else ids
    return "\n".join(["x,who", *(f"{x},{who}" for x, who in zip(fields, ids, strict=True)), ""]).encode()


def over(values: Values) -> Domain:
    return Domain({}, amounts={"x": values}) if isinstance(values, Amount) else Domain({"x": values})


def counted(values: Values, source: object, **options: object) -> list[int] | None:
    """The counts, or None where the frame is refused."""
    try:
        return from_table(over(values), source, **options).marginal(["x"]).tolist()
    except DataError as refused:
        if REFUSAL not in str(refused) and "would be outside" not in str(refused):
            raise
        return None


def through(reader: str, values: Values, raw: bytes, **options: object) -> list[int] | None:
    """The counts through a reader; None where that fails, or the frame is refused."""
    try:
        frame = READERS[reader](raw)
    except (pl.exceptions.ComputeError, pa.ArrowInvalid, OverflowError):  # a row is not of the type of those before
        return None
    return counted(values, frame, **options)


@pytest.mark.parametrize("reader", READERS)
def test_zip_codes_that_a_reader_takes_for_numbers_are_refused(reader: str) -> None:
    zips = Labels(["01", "02"])
    same, other = (through(reader, zips, written(["01"] * 3000 + more)) for more in ([], ["X"]))
    assert same is None
    assert other in (None, [3000, 0])


@pytest.mark.parametrize("reader", AS_TEXT)
def test_zip_codes_that_are_read_as_text_are_counted(reader: str, tmp_path: Path) -> None:
    for more in ([], ["X"]):
        raw = written(["01"] * 3000 + more)
        assert counted(Labels(["01", "02"]), AS_TEXT[reader](raw)) == [3000, 0]
        (tmp_path / "t.csv").write_bytes(raw)
        assert counted(Labels(["01", "02"]), tmp_path / "t.csv") == [3000, 0]


FIELDS = [
    "1",
    "0",
    "01",
    "1.0",
    "2",
    "1e1",
    "+1",
    "-1",
    "True",
    "False",
    "true",
    "FALSE",
    "X",
    "M",
    "1_0",
    "2000-01-01",
    "0x1",
    "0X0A",
    "2000-01-01 00:00:00",
]
ODD = [
    "",
    "NA",
    "inf",
    "nan",
    "1e400",
    "18446744073709551616",
    str(2**53 + 1),
    "0.1",
    ".5",
    "5.",
    "null",
    "None",
    "12:30",
    "N/A",
    "2000-01-01T00:00:00Z",
    "0xFFFFFFFFFFFFFFFF",
    "-0x1",
    str(2**53),
    "-inf",
    "1e-400",
    "0.49999999999999999999",
]
KINDS: list[Values] = [
    Labels(["01", "02", "1"]),
    Labels(["True", "False"]),
    Labels(["M", "X"], outside="other"),
    Labels(["01", 1, 0], outside="other"),
    Labels([1, 2, "X"]),
    Labels([False, True]),
    Labels([0, 1], outside="other"),
    Labels([date(2000, 1, 1)], outside="other"),
    Labels([datetime(2000, 1, 1)], outside="other"),
    Labels([time(12, 30)], outside="other"),
    Labels([date(2000, 1, 1), 1], outside="other"),
    Labels([date(2000, 1, 1), datetime(2000, 1, 1)], outside="other"),
    Labels(["2000-01-01", "12:30"]),
    Labels(["NA", "N/A", "", "null"], outside="other"),
    Labels(["0x1", "10"], outside="other"),
    Labels([1, 10, -1], outside="other"),
    Integers(2**53 - 3, 2**53),
    Labels([Decimal("0.1"), 2**53 + 1]),
    Integers(0, 3),
    Integers(2**53, 2**53 + 4),
    Bins([0, 0.1, 1, 2], outside="other"),
    Amount(0, 1),
]


@examples(150)
@given(
    values=st.sampled_from(KINDS),
    fields=st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True).flatmap(
        lambda few: st.lists(st.sampled_from(few), min_size=1, max_size=8)
    ),
    more=st.sampled_from([*FIELDS, *ODD, " 1", "1 "]),
    reader=st.sampled_from(ONE_BY_ONE),
    first=st.booleans(),
)
def test_one_more_line_moves_one_count_of_a_frame_or_it_is_refused(
    values: Values, fields: list[str], more: str, reader: str, first: bool
) -> None:
    """Neighbouring files through readers of pandas, polars and Arrow."""
    before = through(reader, values, written(fields))
    after = through(reader, values, written([more, *fields] if first else [*fields, more]))
    if before is not None and after is not None:
        moved = np.array(after) - before
        assert np.all(moved >= 0)
        assert moved.sum() <= 1


NEIGHBOURS: list[tuple[Values, list[str], str]] = [
    (Integers(0, 50), ["0x1F", "5", "0x1F"], "x"),
    (Labels([31, 5]), ["0x1F", "5", "0x1F"], "1.5"),
    (Labels(["N/A", "M"]), ["N/A"] * 3, "M"),
    (Labels(["", "M"], outside="other"), [""] * 3, "M"),
    (Labels(["NULL", "M"], outside="other"), ["NULL", "N/A", "NULL"], "M"),
    (Labels(["12", "M"]), ["12"] * 3, "M"),
    (Labels(["true", "false"]), ["true"] * 3, "x"),
    (Labels([False, True]), ["true"] * 3, "x"),
    (Labels([0, 1]), ["1", "true", "1"], "x"),
    (Labels(["2000-01-01"]), ["2000-01-01"] * 3, "x"),
    (Labels([date(2000, 1, 1)]), ["2000-01-01"] * 3, "2000-01-01 10:00:00"),
    (Labels([datetime(2000, 1, 1)]), ["2000-01-01"] * 3, "2000-01-01 10:00:00"),
    (Labels([datetime(2000, 1, 1)]), ["2000-01-01 00:00:00"] * 3, "x"),
    (Labels([time(12, 30)]), ["12:30"] * 3, "x"),
    (Labels([date(2000, 1, 1), 1]), ["2000-01-01"] * 3, "1"),
    (Integers(0, 3), ["01"] * 3, "1"),
    (Bins([0, 5]), ["01", "02", "03"], "x"),
    (Amount(0, 1), ["0.49999999999999999999", "1.0", "2"], "x"),
    (Amount(0, 1), ["1", "0", "1"], "1e400"),
    (Labels([date(2000, 1, 1), time(12, 30)]), ["2000-01-01"] * 3, "12:30"),
    (Integers(2**53 - 3, 2**53), [str(2**53 + 1)] * 3, ""),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", range(len(NEIGHBOURS)))
def test_neighbouring_files_move_one_count_or_are_refused(reader: str, place: int) -> None:
    values, fields, more = NEIGHBOURS[place]
    before, after = (through(reader, values, written(lines)) for lines in (fields, [*fields, more]))
    if before is not None and after is not None:
        assert np.abs(np.array(after) - before).sum() <= 1


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "ids",
    [
        ["0x1F", "31", "0x1f", "031"],
        ["N/A", "N/A", "7", "NULL"],
        ["N/A", "N/A", "", "NULL"],
        ["2000-01-01 10:00", "2000-01-01T10:00", "2000-01-01 10:00:00", "N/A"],
        ["2000-01-01", "NA", "NA", "2000-01-01"],
        ["12:30", "12:30:00", "NA", "NA"],
        ["true", "True", "1", "NA"],
        ["7", "7.0", "07.0", "NA"],
    ],
    ids=str,
)
def test_an_id_of_another_kind_moves_k_counts_or_is_refused(reader: str, ids: list[str]) -> None:
    options = {"id": "who", "max_rows_per_id": 1}
    found = [
        through(reader, Labels(["M"]), written(["M"] * len(each), each), **options) for each in (ids, [*ids, "Ann"])
    ]
    before, after = found
    if before is not None and after is not None:
        assert 0 <= after[0] - before[0] <= 1


def test_one_field_that_is_not_utf_8_makes_bytes_of_a_column_which_are_refused(tmp_path: Path) -> None:
    for values in (Integers(0, 9), Labels([5]), Labels(["5"]), Labels([b"5", 5])):
        raw = written(["5"] * 3) + b"\xff,p9\n"
        assert counted(values, pa_csv.read_csv(io.BytesIO(raw))) is None
        (tmp_path / "t.csv").write_bytes(raw)
        assert max(counted(values, tmp_path / "t.csv") or []) == 3
    assert counted(Labels([b"5"]), pa.table({"x": [b"5", b"6"]})) == [1]


def test_lazy_frames_that_read_text_are_refused(tmp_path: Path) -> None:
    """Polars infers types from the first rows, and would fail on a later one after the debit."""
    fields = [str(number % 10) for number in range(200)]
    (tmp_path / "t.csv").write_bytes(written(fields))
    (tmp_path / "t.ndjson").write_text('{"x": 1}\n')
    pl.DataFrame({"x": range(3)}).write_parquet(tmp_path / "t.parquet")
    pl.DataFrame({"x": range(3)}).write_ipc(tmp_path / "t.arrow")
    domain, lazy = Domain({"x": Integers(0, 9, outside="other")}), pl.scan_csv(tmp_path / "t.csv")
    dataset = pl.scan_pyarrow_dataset(ds.dataset(tmp_path / "t.csv", format="csv"))
    typed = pl.scan_parquet(tmp_path / "t.parquet")
    for frame in (
        lazy,
        lazy.select("x"),
        pl.concat([typed, lazy.select("x")]),
        pl.scan_ndjson(tmp_path / "t.ndjson"),
        dataset,
    ):
        with pytest.raises(DataError, match=r"may not declare types \(\w+\).* collect the frame"):
            from_table(domain, frame)
    assert from_table(domain, lazy.collect()).marginal(["x"]).tolist() == [20] * 10 + [0]
    for frame in (typed, pl.scan_ipc(tmp_path / "t.arrow"), typed.with_columns(y=1).filter(pl.col("y") == 1)):
        assert from_table(domain, frame).marginal(["x"]).tolist() == [1] * 3 + [0] * 8


def test_datasets_of_text_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(written(["5"] * 3))
    with pytest.raises(DataError, match="A dataset of pyarrow within an Ibis table"):
        from_table(Domain({"x": Integers(0, 9)}), ibis.memtable(ds.dataset(tmp_path, format="csv")))
    (tmp_path / "t.json").write_text('{"x": 5}\n')
    for dataset in (ds.dataset(tmp_path / "t.csv", format="csv"), ds.dataset(tmp_path / "t.json", format="json")):
        with pytest.raises(DataError, match=r"infers the types of their columns from the rows .* instead of a dataset"):
            from_table(Domain({"x": 9}), dataset, declared_types=True)


DECLARED: list[tuple[Values, object, list[int]]] = [
    (Labels(["NA", "M"], outside="other"), pa.array([None, None]), [0, 0, 2]),
    (Integers(0, 1), pa.array([True, False, None]), [1, 1]),
    (Integers(0, 2**53), pa.array([1.0]), []),
    (Labels([date(2000, 1, 1), 1], outside="other"), pa.array([date(2000, 1, 1)]), [1, 0, 0]),
]


@pytest.mark.parametrize(("values", "column", "expected"), DECLARED, ids=[str(i) for i in range(len(DECLARED))])
def test_types_that_a_person_declared_are_taken_as_those_of_files(
    values: Values, column: pa.Array, expected: list[int], tmp_path: Path
) -> None:
    """On the caller's word, and counted as from Parquet, where types are declared."""
    table = pa.table({"x": column})
    pq.write_table(table, tmp_path / "t.parquet")
    domain = Domain({"x": values})
    for source in (table, pl.from_arrow(table), ibis.memtable(table), table.to_reader()):
        with pytest.raises(DataError, match=r"say so: declared_types=True"):
            from_table(domain, source)
        data = from_table(domain, source, declared_types=True)
        if expected:
            assert data.marginal(["x"]).tolist() == expected
            assert from_table(domain, tmp_path / "t.parquet").marginal(["x"]).tolist() == expected


@pytest.mark.parametrize("kind", ["timestamp[us]", "date32[day]", "bool", "double"])
@pytest.mark.filterwarnings("ignore:The ids in column 'who' are floats")
def test_ids_of_types_that_readers_infer_are_taken_if_a_person_declared_them(kind: str) -> None:
    ids = pa.array([1, 1, None]).cast(pa.int32() if kind.startswith("date") else pa.int64()).cast(kind)
    table = pa.table({"x": ["M"] * 3, "who": ids})
    for source in (table, table.to_batches()[0], pl.from_arrow(table), ibis.memtable(table), ds.dataset(table)):
        assert counted(Labels(["M"]), source, id="who", max_rows_per_id=1) is None
        assert counted(Labels(["M"]), source, id="who", max_rows_per_id=1, declared_types=True) == [1]


def test_objects_of_pandas_stay_objects_in_memory_with_ibis() -> None:
    """Ibis would choose their type by their values."""
    frame = pd.DataFrame({"x": pd.Series([True, None], dtype=object), "y": [1, 2], "who": ["a", "b"]})
    memory = ibis.memtable(frame)
    for source in (memory, memory.order_by("y"), memory.mutate(z=memory.x)):
        assert counted(Labels([False, True]), source) is None
    assert from_table(Domain({"y": 3}), memory).marginal(["y"]).tolist() == [0, 1, 1]


IDS = [
    *("1", "01", "1.0", "7", "Ann", str(2**53), str(2**53 + 1), "0x7", "0x07", "", "NA", "N/A", "null", "None"),
    *("true", "True", "TRUE", "2000-01-01", "2000-01-01 00:00", "2000-01-01T00:00:00", "2000-01-01T00:00:00Z", "12:30"),
]


@examples(150)
@given(
    ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True).flatmap(
        lambda few: st.lists(st.sampled_from(few), min_size=1, max_size=8)
    ),
    more=st.sampled_from([*IDS, "x", "1.5", "18446744073709551616"]),
    reader=st.sampled_from(ONE_BY_ONE),
    k=st.integers(1, 2),
)
def test_a_line_of_one_person_moves_k_counts_of_a_frame_or_it_is_refused(
    ids: list[str], more: str, reader: str, k: int
) -> None:
    """I5 and I6: an id that is missing, or is text, changes nothing about the ids of others."""
    options = {"id": "who", "max_rows_per_id": k}
    one = Labels(["M"])
    before = through(reader, one, written(["M"] * len(ids), ids), **options)
    after = through(reader, one, written(["M"] * (len(ids) + 1), [*ids, more]), **options)
    if before is not None and after is not None:
        assert 0 <= after[0] - before[0] <= 1


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (Labels(["a"]), pd.Series([True, None], dtype=object)),  # as pandas reads truth values beside missing ones
        (Integers(0, 1), pd.Series([True, None], dtype=object)),
        (Labels(["01"]), pd.Series([1, "01"], dtype=object)),  # as it reads a long file in pieces
        (Labels(["a"]), pd.Series([1])),
        (Labels(["a"]), pd.Series([1.5])),
        (Labels(["True"]), pd.Series([True])),
        (Labels(["True"]), pd.Series([True], dtype="boolean")),
        (Labels(["1"]), pd.Series([1, 2]).astype("category")),
        (Labels(["2000-01-01"]), pd.Series(pd.to_datetime(["2000-01-01"]))),
        (Integers(0, 1), pd.Series([True])),
        (Labels([0, 1]), pd.Series([True])),
        (Integers(0, 2**53 + 1), pd.Series([1.0])),
        (Labels(["1"]), pl.Series([1])),
        (Labels(["1"]), pl.Series([1], dtype=pl.Int128)),
        (Labels(["True"]), pl.Series([True])),
        (Labels(["2000-01-01"]), pl.Series([date(2000, 1, 1)])),
        (Integers(0, 1), pl.Series([True])),
        (Labels(["1"]), pa.array([1])),
        (Labels(["1"]), pa.array([1]).dictionary_encode()),
        (Labels(["2000-01-01"]), pa.array([date(2000, 1, 1)])),
    ],
)
def test_types_that_may_have_been_inferred_are_refused_unread(values: Values, column: object) -> None:
    frames = {pd.Series: pd.DataFrame, pl.Series: pl.DataFrame}
    source = frames.get(type(column), pa.table)({"x": column})
    domain = Domain({"x": values})
    with pytest.raises(DataError, match=REFUSAL):
        from_table(domain, source)


@pytest.mark.parametrize(
    ("values", "column", "expected"),
    [
        (Integers(0, 1), pd.Series([1, 0, 7]), [1, 1]),
        (Integers(0, 1), pd.Series([1.0, np.nan]), [0, 1]),
        (Bins([0, 1]), pd.Series([0.5]), [1]),
        (Labels([1, 2]), pd.Series([1.0, 2.0, np.nan]), [1, 1]),
        (Labels([False, True]), pd.Series([True, False, True]), [1, 2]),
        (Labels([False, True]), pd.Series([1, 0]), [1, 1]),
        (Integers(0, 1), pd.Series(["1", " 0", "x"]), [1, 1]),
        (Labels([date(2000, 1, 1)]), pd.Series([date(2000, 1, 1)]), [1]),
        (Labels(["a"]), pd.Series(["a", None]), [1]),
        (Labels(["a"]), pd.Series(["a", "b"]).astype("category"), [1]),
        (Integers(0, 1), pd.Series([0, 1, 0]).astype(pd.SparseDtype(int)), [2, 1]),
        (Labels(["a"]), pl.Series(["a", None]), [1]),
        (Labels(["a"]), pl.Series([None], dtype=pl.Null), [0]),
        (Integers(0, 1), pl.Series([0, 1], dtype=pl.Int128), [1, 1]),
    ],
)
def test_types_that_are_read_the_same_either_way_are_taken(values: Values, column: object, expected: list[int]) -> None:
    frames = {pd.Series: pd.DataFrame, pl.Series: pl.DataFrame}
    assert counted(values, frames[type(column)]({"x": column})) == expected


def test_one_missing_id_merges_nobody(tmp_path: Path) -> None:
    """2**53 and 2**53 + 1 are two people; in the floats that a missing id makes of them they would be one."""
    ids = [str(2**53), str(2**53 + 1)]
    one = Labels(["M"])
    for more, expected in (([], 2), ([""], 2)):
        raw = written(["M"] * (2 + len(more)), [*ids, *more])
        (tmp_path / "t.csv").write_bytes(raw)
        options = {"id": "who", "max_rows_per_id": 1}
        assert counted(one, tmp_path / "t.csv", **options) == [expected]
        assert counted(one, pd.read_csv(tmp_path / "t.csv"), **options) == ([expected] if not more else None)
        for dtype in ("string", "Int64"):
            assert counted(one, pd.read_csv(tmp_path / "t.csv", dtype={"who": dtype}), **options) == [expected]
        assert counted(one, pl.read_csv(tmp_path / "t.csv"), **options) == [expected]


def test_a_long_file_that_pandas_reads_in_pieces_is_refused() -> None:
    """Where one piece holds numbers only and another does not, pandas makes a column of both."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = pd.read_csv(io.BytesIO(written(["01"] * 300_000 + ["X"])))
    assert frame.dtypes["x"] == np.dtype(object)
    assert counted(Labels(["01", "02"]), frame) is None


@given(st.lists(st.decimals(-1000, 1000, places=20), min_size=1, max_size=50))
def test_readers_give_the_nearest_floats(numbers: list[Decimal]) -> None:
    """Else numbers would be others as soon as one field beside them is text, which hdmm reads itself."""
    raw = "\n".join(["x", *map(str, numbers), "0.5"]).encode()
    nearest = [*map(float, numbers), 0.5]
    assert pd.read_csv(io.BytesIO(raw)).x.tolist() == nearest
    assert pl.read_csv(raw)["x"].to_list() == nearest
    assert pa_csv.read_csv(io.BytesIO(raw))["x"].to_pylist() == nearest


@pytest.mark.parametrize("version", ["2.2.3", "3.0.0rc1"])
@pytest.mark.parametrize(
    "values",
    [Bins([0, 0.3]), Integers(0, 9), Labels([0, 2.5]), Amount(0, 1, step=0.25)],
    ids=lambda v: type(v).__name__,
)
def test_floats_beside_a_pandas_that_misreads_some_are_refused(
    values: Values, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 3.1, read_csv gives 982.6672384346773 as the float before it."""
    frame = pd.DataFrame({"x": [0.5, 2.0]})
    domain = over(values)
    before = from_table(domain, frame).marginal(["x"])
    monkeypatch.setattr(pd, "__version__", version)
    for source in (frame, pl.from_pandas(frame), pa.table(frame), ibis.memtable(frame)):
        with pytest.raises(DataError, match=f"pandas {version} reads some numbers .* Use pandas 3.1 or later"):
            from_table(domain, source)
        np.testing.assert_array_equal(from_table(domain, source, declared_types=True).marginal(["x"]), before)
    assert from_table(domain, pd.DataFrame({"x": [0, 2]})).marginal(["x"]).sum() > 0
