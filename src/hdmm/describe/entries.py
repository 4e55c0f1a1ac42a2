"""Entries of a table's columns: how they are read, and the exact numbers that they are or spell."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DomainError

Codes: TypeAlias = npt.NDArray[np.int64]
Label: TypeAlias = Hashable
Number: TypeAlias = int | float | Fraction | Decimal
NUMBERS = (int, float, Fraction, Decimal)
INT64_END = 2**63
LONGEST_TEXT = 4096  # bytes in UTF-8; public, and the same on every source (security I9)
ALL = "(all)"
"""The label of a column over which a row is a total."""

# Decimal numbers in text: sign, digits before and after the point, and exponent. Surrounding blanks are ignored, as
# readers of text files do. The pattern is unambiguous, so matching takes time linear in the text.
SPELLED = re.compile(r"[ \t\n\v\f\r]*([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?[ \t\n\v\f\r]*")


class SupportsArray(Protocol):
    """What NumPy can read: its own arrays and the columns of pandas, polars and pyarrow."""

    def __array__(self) -> npt.NDArray[np.generic]: ...


ColumnLike: TypeAlias = Sequence[object] | SupportsArray


def column_rows(values: ColumnLike) -> Sequence[object] | npt.NDArray[np.generic]:
    if isinstance(values, list | tuple):
        return cast(Sequence[object], values)  # NumPy would turn ["a", 1] into two texts
    try:
        array = np.asarray(values)
    except Exception:
        raise DomainError("the column cannot be read as an array. Convert it to a NumPy array.") from None
    if array.ndim != 1:
        raise DomainError("the column is not one-dimensional. Give one value per row.")
    return array


def objects(rows: Sequence[object] | npt.NDArray[np.generic]) -> list[object]:
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "OUST":
        return rows.tolist()
    return list(rows)  # keeps NumPy's scalars: tolist() would turn dates into plain integers


def widened(numbers: npt.NDArray[np.generic]) -> npt.NDArray[Any]:
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64}[numbers.dtype.kind]
    return numbers.astype(wide, copy=False)


def as_int64(numbers: npt.NDArray[Any]) -> tuple[Codes, npt.NDArray[np.bool]]:
    """The elements as int64, and a mask of those for which that is exact; the others are 0."""
    if numbers.dtype == np.int64:
        return numbers, np.ones(len(numbers), np.bool)
    if numbers.dtype.kind == "f":
        exact = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
        exact &= np.floor(np.where(exact, numbers, 0.5)) == numbers
    else:
        exact = np.asarray(numbers <= INT64_END - 1)
    return np.where(exact, numbers, 0).astype(np.int64), exact


def as_element(label: Label, dtype: np.dtype[Any]) -> int | float | None:
    """The element of an int64, uint64 or float64 array that equals a label, or None."""
    if not isinstance(label, NUMBERS):
        return None
    if dtype.kind == "f":
        try:
            element = float(label)
        except OverflowError:
            return None
    elif np.iinfo(dtype).min <= label <= np.iinfo(dtype).max:
        element = int(label)
    else:
        return None
    return element if element == label else None


def too_long(value: object) -> bool:
    """Whether a value is text of more than LONGEST_TEXT bytes in UTF-8, or more bytes: it is outside, and names nobody.

    Every engine knows the bytes of a text without reading it, and without any memory for it.

    >>> too_long("x" * 4096), too_long("é" * 2049), too_long(10**5000)
    (False, True, False)
    """
    if not isinstance(value, str | bytes) or 4 * len(value) <= LONGEST_TEXT:
        return False
    if len(value) > LONGEST_TEXT or isinstance(value, bytes):
        return len(value) > LONGEST_TEXT
    return len(value.encode("utf-8", "surrogatepass")) > LONGEST_TEXT


def comparison_key(value: object) -> tuple[type, Label]:
    """The key by which labels are compared: all numbers are of one kind, all texts of another."""
    if type(value) is str:
        return str, value
    kinds = ((NUMBERS, float), (str, str), (bytes, bytes))
    kind = next((kind for types, kind in kinds if isinstance(value, types)), type(value))
    return kind, cast(Label, value)


def exact_number(value: object) -> Number | None:
    """The exact number that a value is or spells; None if it is not a number."""
    if isinstance(value, str):
        spelled = SPELLED.fullmatch(value)
        if spelled is None:
            return None
        if spelled.lastindex == 2:  # no point and no exponent
            return int(value)
        number = float(value)
        return number if math.isfinite(number) else None  # digits never spell infinity
    plain = plain_value(value)
    return plain if isinstance(plain, NUMBERS) else None


def plain_value(value: object) -> object:
    """A NumPy number as a Python number; everything else unchanged (durations are not numbers)."""
    if isinstance(value, np.timedelta64) or not isinstance(value, np.bool | np.integer | np.floating):
        return value
    plain = value.item()
    if isinstance(plain, np.floating):  # a long double stays as it is
        return Fraction(*plain.as_integer_ratio()) if np.isfinite(plain) else float(plain)
    return plain
