"""I3: at most k rows of each person, whatever the order of rows and whichever source reads them."""

# Wrong arguments are the subject of some tests; what ibis and pandas return is known to them alone.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import DataError, Domain, Integers, from_table
from hdmm.data import identity
from hdmm.data.engines.duckdb import MOST_ROWS_PER_PERSON
from hdmm.data.identity import Rows
from hdmm.data.records import TableData
from tests.data.test_sources import SOURCES, confined, pytestmark  # noqa: F401 (read by pytest)

DOMAIN = Domain({"a": 3, "b": Integers(0, 2, outside="other")})
KEY = bytes(range(32))
NAMES = ["a", "b"]
READ_HERE = [name for name in SOURCES if name not in ("parquet, folder", "duckdb") and "ibis" not in name]


def counted(source: object, k: int, *, table: str | None = None) -> np.ndarray:
    typed = isinstance(source, pa.RecordBatchReader)
    data = from_table(DOMAIN, source, id="who", max_rows_per_id=k, table=table, declared_types=typed)
    assert isinstance(data, TableData)
    assert data.max_rows_per_id == k
    return dataclasses.replace(data, _key=KEY).marginal(NAMES)


def people_of_text() -> pd.DataFrame:
    """Rows of sixty people, more than two of each."""
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "note": "x",
            "who": [f"p{i}" for i in rng.integers(0, 60, 500)],
            "a": rng.integers(0, 4, 500),
            "b": rng.integers(0, 4, 500),
            "age": 1,
        }
    )


def frame(rows: Sequence[tuple[object, int, int]]) -> pa.Table:
    who, a, b = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({"who": pa.array(who, pa.int64()), "a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64())})


ROWS = st.lists(st.tuples(st.none() | st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=25)


@given(rows=ROWS, k=st.integers(1, 4), random=st.randoms(use_true_random=False), at_once=st.integers(1, 9))
def test_a_person_has_k_rows_in_any_order(rows: list[Any], k: int, random: Any, at_once: int) -> None:
    """I3 and S3: as many rows of each person as they have, up to k, and the same ones however rows come."""
    found = counted(frame(rows), k)
    inside = Counter(who for who, a, _ in rows if who is not None and a < 3)
    assert found.sum() == sum(min(n, k) for n in inside.values())
    shuffled = random.sample(rows, len(rows))
    batches = frame(shuffled).to_reader(max_chunksize=at_once)
    np.testing.assert_array_equal(counted(batches, k), found)


@given(rows=ROWS, theirs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), k=st.integers(1, 3))
def test_one_person_moves_k_counts(rows: list[Any], theirs: list[Any], k: int) -> None:
    """I3: the neighbour with all rows of one more person, against brute force over marginals."""
    before = counted(frame(rows), k)
    after = counted(frame([*rows, *((77, a, b) for a, b in theirs)]), k)
    assert np.all(after >= before)
    assert (after - before).sum() <= k


def test_one_person_with_a_million_rows() -> None:
    rng = np.random.default_rng(0)
    n = 10**6
    others = pa.table({"who": np.arange(1, 501), "a": np.arange(500) % 3, "b": np.arange(500) % 3})
    person = pa.table({"who": np.zeros(n, int), "a": rng.integers(0, 3, n), "b": rng.integers(0, 3, n)})
    before = counted(others, 3)
    after = counted(pa.concat_tables([person, others]), 3)
    assert np.all(after >= before)
    assert (after - before).sum() == 3


@pytest.mark.parametrize("name", READ_HERE)
def test_every_source_that_is_read_here_chooses_the_same_rows(name: str, tmp_path: Path) -> None:
    table = people_of_text()
    found = counted(SOURCES[name](table, tmp_path), 2)
    np.testing.assert_array_equal(found, counted(table, 2))
    assert found.sum() == 120


def test_the_path_of_a_database_chooses_the_rows_that_a_connection_chooses(tmp_path: Path) -> None:
    file = SOURCES["duckdb"](people_of_text(), tmp_path)
    found = counted(file, 2, table="people")
    connection = confined(ibis.duckdb.connect(shutil.copy(file, tmp_path / "copy.duckdb"), read_only=True))
    np.testing.assert_array_equal(found, counted(connection.table("people"), 2))
    assert found.sum() == 120


def test_the_path_of_a_database_is_read_here_if_it_cannot_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows per person than DuckDB chooses; or Ibis is not installed."""
    table = people_of_text()
    file = SOURCES["duckdb"](table, tmp_path)
    assert counted(file, MOST_ROWS_PER_PERSON + 1, table="people").sum() == counted(table, 500).sum()
    monkeypatch.setitem(sys.modules, "ibis.backends.duckdb", None)
    np.testing.assert_array_equal(counted(file, 2, table="people"), counted(table, 2))


def test_every_marginal_sees_the_same_rows() -> None:
    rng = np.random.default_rng(4)
    table = pa.table({"who": rng.integers(0, 9, 400), "a": rng.integers(0, 3, 400), "b": rng.integers(0, 3, 400)})
    data = from_table(DOMAIN, table, id="who", max_rows_per_id=5)
    whole, a, b = data.marginals([["a", "b"], ["a"], ["b"]])
    np.testing.assert_array_equal(whole.sum(axis=1), a)
    np.testing.assert_array_equal(data.marginal(["b"]), b)
    np.testing.assert_array_equal(whole.sum(axis=0), b)


def test_keys_are_drawn_for_each_object_and_choose() -> None:
    table = pa.table({"who": [1] * 60, "a": [0, 1, 2] * 20, "b": list(range(4)) * 15})
    seen = {from_table(DOMAIN, table, id="who", max_rows_per_id=1).marginal(NAMES).tobytes() for _ in range(60)}
    assert len(seen) > 3
    assert "key" not in repr(from_table(DOMAIN, table, id="who", max_rows_per_id=1))


def test_choices_are_fair() -> None:
    """Each of four different rows of a person is chosen about as often: 4,000 people, ±6 standard deviations."""
    n = 4000
    table = pa.table({"who": np.repeat(np.arange(n), 4), "a": [0] * (4 * n), "b": [0, 1, 2, 3] * n})
    found = counted(table, 1)[0]
    assert found.sum() == n
    assert np.all(np.abs(found - n / 4) < 6 * np.sqrt(n * 3 / 16))


def test_choosing_in_parts_is_choosing_at_once() -> None:
    rng = np.random.default_rng(5)
    n = 5000
    rows = Rows(
        rng.integers(0, 300, (n, 2)).astype(np.uint64) // 100,
        [rng.integers(0, 5, n).astype(np.uint8), rng.integers(0, 300, n).astype(np.uint16)],
    )
    parts = [rows.take(chosen) for chosen in np.array_split(rng.permutation(n), 60)]
    whole = identity.bounded(KEY, 4, [rows])
    split = identity.bounded(KEY, 4, parts)
    assert whole is not None
    assert split is not None
    kept = [sorted(zip(*r.people.T.tolist(), *(c.tolist() for c in r.codes), strict=True)) for r in (whole, split)]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 4 * 9
    assert identity.bounded(KEY, 4, []) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "who"}, "belong together"),
        ({"max_rows_per_id": 2}, "belong together"),
        ({"id": "who", "max_rows_per_id": 0}, "positive integer"),
        ({"id": "who", "max_rows_per_id": True}, "positive integer"),
        ({"id": "whom", "max_rows_per_id": 1}, "Column 'whom' is not in the data. Did you mean 'who'"),
    ],
)
def test_the_unit_of_privacy_is_declared(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_table(DOMAIN, frame([]), **options)
