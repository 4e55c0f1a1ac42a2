"""A table of awkward values and a domain for it: what every engine must count as Python does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hdmm import Amount, Bins, Domain, Integers, Labels, from_table
from hdmm.data import counting
from hdmm.data.identity import identity
from hdmm.describe.entries import exact_number
from hdmm.describe.values import Values

SPELLINGS = """3|03|+3| 3 |3.0|3.|30e-1|-.5|.5|5e-1|1E2|1e+2|0|-0|-0.0|7.|0x1|1_0|e5|.|+|1e5x|3 x|NaN|inf|Infinity||
1e400|-1e400|1e-400|-1e-400|2.5e-324|-2.4e-324|2.4703282292062327e-324|2.4703282292062328e-324|5e-324|1e-323
1.7976931348623157e308|1.7976931348623158e308|1.797693134862315807e308|1.797693134862315808e308|1.8e308
9007199254740992|9007199254740993|9007199254740993.0|9007199254740995.0|999999999999999999|1000000000000000000
1e99999999999999999999|0e99999999999999999999|-1e-99999999999999999999|1e999999999999999999|1e0000000000000000000002
0.1|0.10000000000000000555|0.30000000000000004|0.3|2.5|2.4999999999999999999999999|2.49999999999999|99.999999999999999999
true|True|TRUE|tRUE|false|M|M |m|é|e\u0301|\u0663|\uff13|3\u2028|3\u0085|'; --|%s|\\|\\n|NULL
550e8400-e29b-41d4-a716-446655440000|550E8400-E29B-41D4-A716-446655440000|{550e8400-e29b-41d4-a716-446655440000}"""
TEXTS: list[str | None] = [
    *SPELLINGS.replace("\n", "|").split("|"),
    *("9" * n for n in (18, 19, 20, 309, 310, 400)),
    *("3\n", "\t3", "3\v", "\f3\r", "\n", " "),
    "0." + "0" * 330 + "1",
    "1" + "0" * 308 + "." + "0" * 50,
    "0" * 50 + "7",
    "24703282292062327208e-343",
    None,
]
DECIMALS = ["0.10", "0.11", "2.50", "-0.01", "9999.99", "-9999.99", "3.00", "7.00", None]
FLOATS = [
    0.1,
    0.30000000000000004,
    -0.0,
    0.0,
    5e-324,
    2.5,
    3.0,
    7.0,
    7.5,
    1e300,
    float("nan"),
    float("inf"),
    -float("inf"),
    None,
]
INTEGERS = [-(2**63), -1, 0, 2, 3, 7, 2**53, 2**53 + 1, 2**63 - 1, None]
DAYS = [date(2000, 1, 1), date(1999, 12, 31), date(1, 1, 1), date(9999, 12, 31), None]
EDGES = [-1, 0, 5e-324, 1e-300, 0.1, 0.30000000000000004, 2.5, 3, 100, 2.0**53, 2.0**53 + 4, 1e17]
ROWS = 700

# For each attribute its column and its values. Several attributes read one column in different ways.
ATTRIBUTES: dict[str, tuple[str, Any]] = {
    "years": ("text", Integers(0, 9, outside="other")),
    "even": ("text", Integers(-2, 100, step=2, outside="other")),
    "amount": ("text", Bins(EDGES, outside="other")),
    "code": ("text", Labels(["3", 3, 0.1, 100, "M", "é"], outside="other")),
    "alive": ("text", Labels([False, True], outside="other")),
    "word": ("text", Labels(["M", "m", "é", "'; --", "\\", "\\n", "%s", ""], outside="other")),
    "price": ("decimal", Bins([-1e9, -0.01, 0.1, 2.5, 3, 1e9], outside="other")),
    "step": ("decimal", Integers(-1, 9, outside="other")),
    "exact": ("decimal", Labels([0.1, Decimal("0.11"), 3, "3"], outside="other")),
    "income": ("float", Bins([-1, 0, 5e-324, 0.1, 0.30000000000000004, 2.5, 1e17], outside="other")),
    "whole": ("float", Integers(0, 8, outside="other")),
    "rate": ("float", Labels([0.1, 7, 0], outside="other")),
    "big": ("integer", Bins([-1, 0.5, 2**53, 2.0**60], outside="other")),
    "third": ("integer", Integers(-3, 9, step=3, outside="other")),
    "flag": ("truth", Labels([False, True], outside="other")),
    "bit": ("truth", Integers(0, 1, outside="other")),
    "day": ("day", Labels([date(2000, 1, 1), date(9999, 12, 31)], outside="other")),
    "spelled": ("text", Amount(-1, 7, step=0.5)),
    "paid": ("decimal", Amount(-0.25, 9.75, step=2.5)),
    "earned": ("float", Amount(0, 2**25)),
    "sold": ("integer", Amount(-4, 2**53 - 4, step=2**40)),
    "won": ("truth", Amount(0, 1)),
}
DOMAIN = Domain({name: values for name, (_, values) in ATTRIBUTES.items()})
COLUMNS = {name: column for name, (column, _) in ATTRIBUTES.items()}
WANTED = [[], *([name] for name in DOMAIN.names), ["years", "price"], ["word", "whole", "day"], ["paid", "flag", "won"]]


def awkward_table() -> pa.Table:
    """Every value of each column, in an order of its own."""
    rng = np.random.default_rng(6)

    def drawn(values: list[Any]) -> list[Any]:
        places = np.concatenate([np.arange(len(values)), rng.integers(0, len(values), ROWS - len(values))])
        return [values[i] for i in rng.permutation(places)]

    return pa.table(
        {
            "text": pa.array(drawn(TEXTS), pa.string()),
            "decimal": pa.array([None if d is None else Decimal(d) for d in drawn(DECIMALS)], pa.decimal128(6, 2)),
            "float": pa.array(drawn(FLOATS), pa.float64()),
            "integer": pa.array(drawn(INTEGERS), pa.int64()),
            "truth": pa.array(drawn([True, False, None]), pa.bool_()),
            "day": pa.array(drawn(DAYS), pa.date32()),
        }
    )


def check_awkward(source: object, table: pa.Table) -> None:
    """The counts of an engine are those of Python."""
    values = {name: table.column(name).to_pylist() for name in table.schema.names}
    data = from_table(DOMAIN, source, columns=COLUMNS)  # pyright: ignore[reportArgumentType]
    for names, found in zip(WANTED, data.marginals(WANTED), strict=True):
        each = [in_parts(DOMAIN[name].values, values[COLUMNS[name]]) for name in names]
        letters = "abc"[: len(names)]
        expected = np.einsum(f"{','.join('n' + letter for letter in letters)}->{letters}", *each) if names else None
        np.testing.assert_array_equal(found, table.num_rows if expected is None else expected, err_msg=str(names))


def in_parts(values: Values, column: list[Any]) -> np.ndarray:
    """How many parts of each row are in each cell: one in its own, and those of amounts by fractions, from the text."""
    parts = np.zeros((len(column), values.size), np.int64)
    if not isinstance(values, Amount):
        parts[np.arange(len(column)), values.encode(column)] = 1
        return parts
    low, high, step = (Fraction(str(number)) for number in (values.low, values.high, values.step))
    whole = int((high - low) / step)
    for row, given in zip(parts, column, strict=True):
        number = exact_number(given)
        if number is None or not math.isfinite(float(number) if abs(number) < 2**1024 - 2**970 else math.nan):
            row[2] = whole
        else:
            k = math.floor((min(max(Fraction(float(number)), low), high) - low) / step + Fraction(1, 2))
            row[:2] = whole - k, k
    return parts


def check_people(source: object, table: pa.Table, column: str) -> None:
    """Equal ids are one person, by identity.py, and each has k rows at most (I3, I5)."""
    people = Counter(map(identity, table.column(column).to_pylist()))
    del people[None]
    for k in (1, 2, 5):
        data = from_table(TWO, source, columns=COLUMNS_OF_TWO, id=column, max_rows_per_id=k)  # pyright: ignore[reportArgumentType]
        both, years = data.marginals([["years", "flag"], ["years"]])
        np.testing.assert_array_equal(both.sum(axis=1), years)
        assert years.sum() == sum(min(n, k) for n in people.values())


def check_shared_choice(put: Callable[[pa.Table], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several groupings count the rows that each of them counts alone; all rows, if all of each person are kept (I3).

    One person has half of the rows. Some rows have no person, and some are outside the domain.
    """
    monkeypatch.setattr(counting, "_GROUPED_CELLS", 3)
    monkeypatch.setattr(counting, "_JOINED_CELLS", 3)
    sizes = {"a": 4, "b": 3, "c": 5}
    rng, n = np.random.default_rng(6), 800
    codes = {name: rng.integers(0, size + 1, n) for name, size in sizes.items()}
    for who in (
        [None if i % 7 == 0 else 77 if i % 2 else i % 50 for i in range(n)],
        [None if i % 7 == 0 else "Ann" if i % 2 else f"p{i % 50}" for i in range(n)],
    ):
        source = put(pa.table({"who": who, **codes}))
        counted = np.array([person is not None for person in who])
        for name, size in sizes.items():
            counted &= codes[name] < size
        people = Counter(np.array(who, object)[counted].tolist())
        for k in (1, 3, n):
            data = from_table(Domain(sizes), source, id="who", max_rows_per_id=k)  # pyright: ignore[reportArgumentType]
            for name, found in zip(sizes, data.marginals([[name] for name in sizes]), strict=True):
                np.testing.assert_array_equal(found, data.marginal([name]))
                assert found.sum() == sum(min(rows, k) for rows in people.values())
                if k == n:
                    np.testing.assert_array_equal(found, np.bincount(codes[name][counted], minlength=sizes[name]))


TWO = DOMAIN.project(["years", "flag"])
COLUMNS_OF_TWO = {name: COLUMNS[name] for name in TWO.names}
