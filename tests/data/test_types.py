"""Types of columns: what is refused by the schema alone, and what only raises a doubt."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from hdmm import DataError, Integers, Labels
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


def test_integers_beyond_floats_may_be_declared_beside_other_labels() -> None:
    assert not _beyond_floats(Labels([2**53 - 1, DAY, "text"]))
    assert _beyond_floats(Labels([DAY, "text", -(2**53)]))
    assert _beyond_floats(Integers(0, 2**53))
    assert not _beyond_floats(Integers(0, 2**53 - 1))
