"""I5: equal ids name one person, however typed or written and whatever the source; others name other people."""

# Wrong arguments are the subject of some tests; what ibis and pandas return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import sqlite3
import uuid
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import DataError, Domain, Integers, from_table
from hdmm.data.identity import MISSING_TEXTS, identity, people
from tests.data.test_sources import (
    confined,
    pytestmark,  # noqa: F401 (read by pytest)
)
from tests.support.effort import examples

KEY = bytes(range(32))
DOMAIN = Domain({"x": 50})
NOON = datetime(2000, 6, 1, 12, tzinfo=UTC)
ONE_UUID = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")

# Each line is one person, of whom no other line is.
SAME: list[list[object]] = [
    [
        1,
        1.0,
        True,
        np.int8(1),
        np.uint64(1),
        np.float32(1),
        np.bool(True),
        Decimal("1.00"),
        "1",
        "01",
        "1.0",
        "+1",
        "1e0",
    ],
    [0, -0.0, False, Decimal("-0.00"), "0", "-0", "0e99999999999999999999", np.float16(0)],
    [7, "7", " 7", "7 ", "007", "7.", "70e-1", ".7e1", np.str_("7"), Decimal("7E+0")],
    [-7, "-7", "-07.00"],
    [Decimal("1.1"), Decimal("1.10"), "1.1", "1.10", "01.100", "11e-1", 1.1, np.float64(1.1)],
    [np.float32("1.1e-1"), np.float16("0.11"), np.longdouble("0.11"), 0.11, "0.11"],
    [Decimal.from_float(1.1)],
    [1e23, "1e23", np.float32(1e23), 10**23],
    [Decimal.from_float(1e23)],
    [2.5, "2.5", Decimal("2.50"), np.float32(2.5)],
    [2**53, float(2**53), Decimal(2**53)],
    [2**53 + 1, Decimal(2**53 + 1), str(2**53 + 1)],
    [2**63 - 1, np.int64(2**63 - 1), str(2**63 - 1)],
    [2**63, np.uint64(2**63), str(2**63)],
    [float(2**63), str(float(2**63)), 9223372036854776000],
    [-(2**63), str(-(2**63)), Decimal(-(2**63))],
    [2**64 - 1, np.uint64(2**64 - 1)],
    [Decimal("1e400"), "1e400", "10e399", 10**400, "1" + "0" * 400],
    [Decimal("1e1000000"), "1e1000000"],
    ["Ann"],
    ["ann"],
    ["Ann "],
    ["é"],
    ["e\u0301"],
    ["٧"],
    ["7x"],
    ["number 11e-1"],
    ["\ud800"],
    [ONE_UUID, str(ONE_UUID), str(ONE_UUID).upper()],
    [str(ONE_UUID).replace("-", "")],
    [
        NOON,
        NOON.astimezone(timezone(timedelta(hours=5))),
        NOON.astimezone(ZoneInfo("Europe/Zurich")),
        pd.Timestamp(NOON),
    ],
    [NOON.replace(tzinfo=None), np.datetime64("2000-06-01T12:00", "s"), np.datetime64("2000-06-01T12", "ns")],
    [pd.Timestamp(NOON) + pd.Timedelta(1, "ns")],
    [date(2000, 6, 1)],
    [datetime(2000, 6, 1)],
    [datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))],
    [datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))],
]
NOBODY: list[object] = [
    None, "", "NA", "N/A", "null", "NULL", "nan", "-NaN", "None", "#N/A", "1.#QNAN", np.str_("NA"),
    float("nan"), float("inf"), -float("inf"), pd.NA, pd.NaT, Decimal("NaN"), Decimal("sNaN"),
    Decimal("Infinity"), np.datetime64("NaT"), np.float32("inf"), "1e9999999999999999999",
    b"1", (1, 2), [1], time(1), timedelta(1), np.timedelta64(1, "s"), 1j, object(),
]  # fmt: skip


def names(column: object, key: bytes = KEY) -> list[tuple[int, ...] | None]:
    words, there = people(key, column)
    return [tuple(word) if known else None for word, known in zip(words.tolist(), there.tolist(), strict=True)]


def test_ids_are_compared_by_value() -> None:
    """Every spelling of a value has one name; no two values share one."""
    flat = [value for group in SAME for value in group]
    column = np.fromiter([*flat, *NOBODY], dtype=object, count=len(flat) + len(NOBODY))
    found = iter(names(column))
    of_groups = [{next(found) for _ in group} for group in SAME]
    assert [len(group) for group in of_groups] == [1] * len(SAME)
    assert None not in set[object]().union(*of_groups)
    assert len(set[object]().union(*of_groups)) == len(SAME)
    assert list(found) == [None] * len(NOBODY)


TYPED: list[tuple[object, object]] = [
    (pa.array([1, None], kind), 1)
    for kind in (pa.int8(), pa.uint8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64())
    if kind != pa.float16()
]
TYPED += [
    (pa.array([True, None]), 1),
    (pa.array([Decimal(1), None], pa.decimal128(20, 0)), 1),
    (pa.array([Decimal(1), None], pa.decimal128(22, 2)), 1),
    (pa.array([Decimal("1.1"), None], pa.decimal256(60, 30)), Decimal("1.1")),
    (pa.array(["1", None]), 1),
    (pa.array(["1.10", None], pa.large_string()), Decimal("1.1")),
    (pa.array(["1", None], pa.string_view()), 1),
    (pa.array([1, None]).dictionary_encode(), 1),
    (pa.array(["01", None]).dictionary_encode(), 1),
    (pa.array([NOON, None], pa.timestamp("us", "Asia/Tokyo")), NOON),
    (pa.array([NOON, None], pa.timestamp("s", "UTC")), NOON),
    (pa.array([NOON, None], pa.timestamp("ns", "America/New_York")).dictionary_encode(), NOON),
    (pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("ms")), NOON.replace(tzinfo=None)),
    (pa.array([date(2000, 6, 1), None]), date(2000, 6, 1)),
    (pa.array([date(2000, 6, 1), None], pa.date64()), date(2000, 6, 1)),
    (np.array(["2000-06-01T12", "NaT"], "datetime64[ns]"), NOON.replace(tzinfo=None)),
    (np.array(["2000-06-01T12", "NaT"], "datetime64[s]"), NOON.replace(tzinfo=None)),
    (np.array([1.0, np.nan]), 1),
    (np.array([1.0, np.nan], np.float16), 1),
]


@pytest.mark.parametrize(("column", "value"), TYPED, ids=lambda c: str(getattr(c, "type", getattr(c, "dtype", ""))))
def test_columns_of_every_type_name_the_same_person(column: object, value: object) -> None:
    assert names(column) == [*names([value]), None]
    assert names([value]) != [None]


def test_times_that_python_does_not_have_have_names() -> None:
    far = pa.array([2**62, 2**62 + 1, 0, 1])
    for kind in (pa.timestamp("ns"), pa.timestamp("s", "UTC")):
        assert len(set(names(far.view(kind)))) == 4
    assert len(set(names(pa.array([0, 1, 2**31 - 1], pa.int32()).view(pa.date32())))) == 3
    assert names(pa.array([1], pa.int64()).view(pa.timestamp("s"))) == names(pa.array([10**9]).view(pa.timestamp("ns")))


def test_the_key_and_the_kind_are_part_of_a_name() -> None:
    """Who does not know the key cannot tell which of two people comes first; a text is never a date."""
    other = bytes(reversed(KEY))
    for value in ("Ann", Decimal("1.1"), NOON, date(2000, 6, 1)):
        assert names([value]) != names([value], other)
    assert names([7]) == names([7], other)  # an integer names itself
    plain = [date(1970, 1, 2), NOON, NOON.replace(tzinfo=None), Decimal("1.1"), "Ann"]
    spelled = [str((identity(value) or b"").decode()) for value in plain]  # type: ignore[union-attr]
    assert not set(names(plain)) & set(names(spelled))


NUMBER = st.one_of(
    st.integers(-(10**25), 10**25).map(Fraction),
    st.integers(-50, 50).map(Fraction),
    st.decimals(-(10**20), 10**20, allow_nan=False, places=4).map(Fraction),
    st.floats(allow_nan=False, allow_infinity=False).map(Fraction),
    st.sampled_from([2**53, 2**63, 2**64, -(2**63)]).flatmap(lambda n: st.integers(n - 1, n + 1)).map(Fraction),
)


def spellings(number: Fraction) -> list[object]:
    """A number, each decimal one, in every way that Python has and that text has."""
    digits, power = number.numerator, 0
    while number.denominator % 2 == 0 or number.denominator % 5 == 0:
        number, power = number * 10, power - 1
        digits = number.numerator
    exact = Decimal(f"{digits}e{power}")
    found: list[object] = [exact, Decimal(f"{digits}00e{power - 2}"), f"{digits}e{power}", f"{exact:f}", f" {exact:f} "]
    sign, plain = ("-", f"{exact:f}"[1:]) if digits < 0 else ("+", f"{exact:f}")
    found += [f"{sign}00{plain}", f"{exact:f}{'0' if '.' in plain else '.00'}", f"{exact:E}"]
    if power == 0:
        found += [digits, *([np.int64(digits)] if -(2**63) <= digits < 2**63 else [])]
    if abs(exact) < 10**300 and Decimal(repr(float(exact))) == exact:
        found += [float(exact), np.float64(float(exact))]
    return found


@examples(300)
@given(numbers=st.lists(NUMBER, min_size=1, max_size=5))
def test_numbers_are_named_by_their_value(numbers: list[Fraction]) -> None:
    """Equal numbers have equal names in all representations, different numbers different ones."""
    of_numbers = {number: set(map(identity, spellings(number))) for number in numbers}
    assert all(len(found) == 1 and None not in found for found in of_numbers.values())
    assert len(set[object]().union(*of_numbers.values())) == len(of_numbers)


@examples(300)
@given(
    moments=st.lists(st.datetimes(), min_size=1, max_size=4, unique=True),
    zones=st.lists(st.timezones() | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone), min_size=1),
)
def test_instants_are_named_whatever_the_zone(moments: list[datetime], zones: list[Any]) -> None:
    seen: dict[object, timedelta] = {}
    for moment in moments:
        for zone in zones:
            local = moment.replace(tzinfo=zone)
            instant = moment - datetime(1970, 1, 1) - (local.utcoffset() or timedelta(0))
            assert seen.setdefault(identity(local), instant) == instant
        assert identity(moment) not in seen
    assert len(set(seen.values())) == len(seen)


@examples(300)
@given(texts=st.lists(st.text(min_size=1), min_size=1, max_size=6, unique=True))
def test_text_is_itself(texts: list[str]) -> None:
    others = [text for text in texts if not any(c in "0123456789" for c in text) and text not in MISSING_TEXTS]
    assert len(set(map(identity, others))) == len(others)
    assert None not in set(map(identity, others))


def test_long_numbers_take_no_time() -> None:
    """A ratio of these would have a billion digits; a pattern with two ways through it would take a year."""
    assert identity(Decimal("1e999999999")) == identity("10e999999998") == b"number 1e999999999"
    assert identity("9" * 4000 + "x") == b"text " + b"9" * 4000 + b"x"
    assert identity("9" * 10**6 + "x") is None  # longer than text may be (I9)
    assert identity("1" + "0" * 4000) == identity("1e4000")
    assert Integers(0, 9).encode(["9" * 10**6 + "x", " 7 "]).tolist() == [-1, 7]


# One person, written in every way that a source has.
ROWS = 30
NUMERIC = ["1.1", "1.10", "1.100", "01.1", "11e-1", "+1.1", " 1.1"]
WHOLE = ["7", "07", "7.0", "7.00", "+7", "0.7e1"]


def alternating(values: Sequence[Any]) -> list[Any]:
    return [values[i % len(values)] for i in range(ROWS)]


def csv_file(folder: Path) -> Path:
    for place, spelled in enumerate((WHOLE, ["7.0"])):
        lines = [f"{who},{i}\n" for i, who in enumerate(alternating(spelled))]
        (folder / f"{place}.csv").write_text("who,x\n" + "".join(lines))
    return folder


def parquet(folder: Path, *columns: pa.Array) -> Path:
    for place, column in enumerate(columns):
        table = pa.table({"who": column, "x": list(range(len(column)))})
        pq.write_table(table, folder / f"{place}.parquet")
    return folder


def numbers_in_parquet(folder: Path) -> Path:
    texts = pa.array(alternating(WHOLE))
    kinds = [pa.decimal128(20, 0), pa.decimal128(22, 2), pa.decimal256(50, 10), pa.uint64(), pa.int8(), pa.int64()]
    typed = [pa.array([Decimal(7)] * ROWS).cast(kind) for kind in kinds]
    return parquet(folder, *typed, texts, texts.dictionary_encode(), pa.array([None], pa.null()))


def instants_in_parquet(folder: Path) -> Path:
    kinds = [pa.timestamp("s", "UTC"), pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("us", "America/New_York")]
    return parquet(folder, *(pa.array([NOON] * ROWS, kind) for kind in kinds))


def duckdb_table(folder: Path) -> Path:
    with duckdb.connect(str(folder / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE people (who DECIMAL(30, 10), x INTEGER)")
        connection.executemany(
            "INSERT INTO people VALUES (?::VARCHAR::DECIMAL(30, 10), ?)",
            [(who.strip(), i) for i, who in enumerate(alternating(NUMERIC[:3]))],
        )
    return folder / "d.duckdb"


def sqlite_table(folder: Path, kind: str) -> object:
    values: list[Any] = ["7", 7, 7.0, "07", "7.0", " 7"]
    with closing(sqlite3.connect(folder / f"{kind}.db")) as connection:
        connection.execute(f"CREATE TABLE people (who {kind}, x INTEGER)")
        connection.executemany(
            "INSERT INTO people VALUES (?, ?)", [(who, i) for i, who in enumerate(alternating(values))]
        )
        connection.commit()
    return ibis.sqlite.connect(folder / f"{kind}.db").table("people")


def frame(who: Any) -> pd.DataFrame:
    return pd.DataFrame({"who": who, "x": list(range(ROWS))})


def arrow(who: Any) -> pa.Table:
    return pa.table({"who": who, "x": list(range(ROWS))})


def polars(who: Any) -> pl.DataFrame:
    return pl.DataFrame({"who": who, "x": list(range(ROWS))})


DECIMALS = alternating([Decimal("1.1"), Decimal("1.10")])
ZONED = pa.array([NOON] * ROWS, pa.timestamp("us", "UTC"))
ONE_PERSON: dict[str, Callable[[Path], object]] = {
    "csv, folder": csv_file,
    "parquet, numbers": numbers_in_parquet,
    "parquet, instants": instants_in_parquet,
    "duckdb": duckdb_table,
    "ibis, duckdb": lambda p: confined(ibis.duckdb.connect(duckdb_table(p), read_only=True)).table("people"),
    "ibis, memory": lambda _: ibis.memtable(arrow(alternating(NUMERIC))),
    "ibis, sqlite, integers": lambda p: sqlite_table(p, "INTEGER"),
    "ibis, sqlite, text": lambda p: sqlite_table(p, "TEXT"),
    "ibis, sqlite, decimals": lambda p: sqlite_table(p, "NUMERIC"),
    "ibis, sqlite, truth values": lambda p: sqlite_table(p, "BOOLEAN"),
    "pandas, text": lambda _: frame(pd.Series(alternating(NUMERIC), dtype="string")),
    "pandas, categories": lambda _: frame(pd.Categorical(alternating(NUMERIC))),
    "pandas, decimals": lambda _: frame(pd.array(DECIMALS, pd.ArrowDtype(pa.decimal128(9, 3)))),
    "pandas, instants": lambda _: frame(pd.Series([NOON] * ROWS).dt.tz_convert("Asia/Tokyo")),
    "polars": lambda _: polars(alternating(NUMERIC)),
    "polars, lazy, decimals": lambda _: polars(DECIMALS).lazy(),
    "polars, long integers": lambda _: polars(pl.Series([2**100] * ROWS, dtype=pl.Int128)),
    "arrow": lambda _: arrow(pa.chunked_array([alternating(NUMERIC)[:9], alternating(NUMERIC)[9:]])),
    "arrow, reader, instants": lambda _: arrow(ZONED).to_reader(max_chunksize=4),
}


@pytest.mark.parametrize("name", ONE_PERSON)
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.filterwarnings("ignore:The ids in column 'who' are floats")
def test_one_person_in_every_spelling_counts_k_rows(name: str, k: int, tmp_path: Path) -> None:
    source = ONE_PERSON[name](tmp_path)
    table = "people" if isinstance(source, Path) and source.suffix == ".duckdb" else None
    data = from_table(DOMAIN, source, id="who", max_rows_per_id=k, table=table, declared_types="instants" in name)
    assert data.marginal(["x"]).sum() == k


REFUSED: list[tuple[object, str]] = [
    (pa.table({"who": column, "x": [1]}), "in which equal ids may be written differently")
    for column in (
        pa.array([b"1"]),
        pa.array([time(1)]),
        pa.array([timedelta(1)]),
        pa.array([b"1"], pa.binary(1)),
        pa.array([b"1"]).dictionary_encode(),
    )
]
REFUSED += [
    (pd.DataFrame({"who": pd.Series(["a"], dtype=object), "x": [1]}), "of type object"),
    (pd.DataFrame({"who": [Decimal("1.1")], "x": [1]}), "of type object"),
    (pd.DataFrame({"who": [1j], "x": [1]}), "of type complex128"),
    (pd.DataFrame({"who": [1.0], "x": [1]}), "one missing id turns integers into floats"),
    (pd.DataFrame({"who": [True], "x": [1]}), "of type bool"),
    (pl.DataFrame({"who": [1.0], "x": [1]}), "one missing id turns integers into floats"),
    (pl.DataFrame({"who": pl.Series([object()], dtype=pl.Object), "x": [1]}), "of type Object"),
    (pl.DataFrame({"who": [b"1"], "x": [1]}), "of type large_binary"),
    (pl.DataFrame({"who": [time(1)], "x": [1]}), "of type time64"),
    (pa.table({"who": [1.5], "x": [1]}), "one missing id turns integers into floats"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "message"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_ids_that_cannot_be_named_are_refused_by_their_type(source: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_table(DOMAIN, source, id="who", max_rows_per_id=1)


def test_ids_of_databases_that_cannot_be_named_are_refused_by_their_type() -> None:
    for column in (time(1), b"1"):
        with pytest.raises(DataError, match="in which equal ids may be written differently"):
            from_table(DOMAIN, ibis.memtable(pa.table({"who": [column], "x": [1]})), id="who", max_rows_per_id=1)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "UUID", "BLOB"])
def test_ids_that_sqlite_has_no_values_for_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="in which equal ids may be written differently"):
        from_table(DOMAIN, sqlite_table(tmp_path, kind), id="who", max_rows_per_id=1)


@pytest.mark.parametrize(
    "columns",
    [
        (pa.array([date(2000, 1, 1)]), pa.array(["2000-01-01"])),
        (pa.array([date(2000, 1, 1)]), pa.array([datetime(2000, 1, 1)])),
        (pa.array([NOON]), pa.array([NOON.replace(tzinfo=None)])),
        (pa.array([True]), pa.array(["true"])),
        (pa.array([1]), pa.array([1]), pa.array([NOON])),
    ],
)
def test_files_whose_ids_are_compared_in_different_ways_are_refused(
    columns: tuple[pa.Array, ...], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="of different kinds in the files"):
        from_table(DOMAIN, parquet(tmp_path, *columns), id="who", max_rows_per_id=1)


def test_float_ids_of_files_are_taken_with_a_warning(tmp_path: Path) -> None:
    path = parquet(tmp_path, pa.array([1.0, 1.0, 2.5, float("nan"), None]))
    with pytest.warns(UserWarning, match=r"floats, which do not distinguish integers beyond 2\*\*53"):
        data = from_table(DOMAIN, path, id="who", max_rows_per_id=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.marginal([]).tolist() == 2


def test_durations_name_nobody_in_any_unit() -> None:
    """A duration in nanoseconds is an integer to NumPy, in seconds a timedelta."""
    for unit in ("D", "s", "us", "ns", "as"):
        assert identity(np.timedelta64(1, unit)) is None


def test_exponents_of_18_digits_are_read_and_longer_ones_name_nobody() -> None:
    assert identity("10e" + "9" * 17 + "8") == identity("1e" + "9" * 18) == b"number 1e" + b"9" * 18
    assert identity("1e-" + "9" * 18) == b"number 1e-" + b"9" * 18
    assert identity("1e1" + "0" * 18) is None
    assert identity("1e-1" + "0" * 18) is None
    assert identity("0e1" + "0" * 18) == 0
