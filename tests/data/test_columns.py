"""Columns of any kind: their distinct values, and numbers in hexadecimal digits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hdmm.data.columns import decimal, distinct


def test_values_are_found_again_at_their_places() -> None:
    for column in (np.array([3, 1, 3, 2]), np.array([0.5, -1.0, 0.5]), np.array(["b", "a", None], dtype=object)):
        objects, places = distinct(column)
        assert [objects[place] for place in places.tolist()] == column.tolist()
    assert distinct(np.array([3, 1, 3]))[0] == [1, 3]


def test_times_stay_times() -> None:
    """Of nanoseconds, NumPy would make integers."""
    objects, _ = distinct(np.array(["2020-01-01"], dtype="M8[ns]"))
    assert objects == [np.datetime64("2020-01-01", "ns")]
    assert isinstance(objects[0], np.datetime64)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0x10", 16), (f"0x{2**63 - 1:x}", 2**63 - 1), (f"0x{2**63:x}", -(2**63)), (f"0x{2**64 - 1:x}", -1)],
)
def test_hexadecimal_digits_are_all_64_bits(text: str, number: int) -> None:
    assert list(distinct(decimal(pa.array([text])))[0])[:1] == [str(number)]
