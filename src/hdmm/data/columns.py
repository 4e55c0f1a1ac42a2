"""Columns as sources give them, as NumPy arrays, Arrow arrays or Python values; and the codes of a column.

An Arrow value is read as the Python value it stands for (a date is a datetime.date, a decimal a Decimal). Text and
other values that are not plain numbers are examined once per distinct value. A value that has no Python value (a date
in the year 5,000,000) is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from hdmm.base.lazy import Lazy
from hdmm.describe.attribute import Attribute, joined
from hdmm.describe.entries import INT64_END, Codes
from hdmm.describe.values import Values

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

_HEXADECIMAL = re.compile(r"[ \t]*0[xX][0-9a-fA-F]{1,16}[ \t]*")

AnyColumn: TypeAlias = "Sequence[object] | npt.NDArray[np.generic] | pa.Array"


def decimal(column: AnyColumn) -> AnyColumn:
    """A column in which text that Arrow's reader of CSV takes for a hexadecimal integer is decimal; others as they are.

    The reader does so only if the rest of the column is integers, too, so in frames it has to be done always.
    """
    if not isinstance(column, pa.Array):
        return column
    kind = column.dictionary.type if isinstance(column, pa.DictionaryArray) else column.type
    if not is_text(kind):
        return column
    objects, places = distinct(column)
    return pa.DictionaryArray.from_arrays(places, pa.array(map(_decimal, objects), pa.large_string()))


def encode(values: Values, column: AnyColumn) -> Codes:
    """The code of each value of a column by the rules of values.py; −1 if the row is dropped.

    >>> from hdmm import Integers
    >>> encode(Integers(0, 9), pa.array(["3", None, "x"]))
    array([ 3, -1, -1])
    """
    if not isinstance(column, pa.Array):
        return values.encode(column)
    if is_number(column.type):
        whole = column.null_count == 0
        return values.encode(column.to_numpy(zero_copy_only=False) if whole else np.ma.MaskedArray(*_numbers(column)))
    objects, places = distinct(column)
    return values.encode(objects)[places]


def distinct(column: AnyColumn) -> tuple[list[object], npt.NDArray[np.integer[Any]]]:
    """The Python values of a column, each once if that is cheap, and the place of each row's value among them."""
    if isinstance(column, pa.Array):
        return _distinct_of_arrow(column)
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf" and column.dtype.itemsize <= 8:
        numbers, places = np.unique(column, return_inverse=True)
        return numbers.tolist(), places
    objects = list(column) if not isinstance(column, np.ndarray) or column.dtype.kind != "O" else column.tolist()
    return objects, np.arange(len(objects))


def integers(column: AnyColumn) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool]] | None:
    """A column of integers as int64, and which of them are not missing; None if it is of another type."""
    if isinstance(column, pa.Array) and pa.types.is_integer(column.type) and column.type != pa.uint64():
        numbers, missing = _numbers(column)
        return numbers.astype(np.int64), ~missing
    if isinstance(column, np.ndarray) and np.can_cast(column.dtype, np.int64):
        return column.astype(np.int64), np.ones(len(column), np.bool)
    return None


def floats(column: AnyColumn) -> npt.NDArray[np.floating[Any]] | None:
    """A column of floats in their own width, with NaN for missing ones; None if it is of another type."""
    if isinstance(column, pa.DictionaryArray) and pa.types.is_floating(column.dictionary.type):
        column = column.dictionary_decode()
    if isinstance(column, pa.Array) and pa.types.is_floating(column.type):
        column = column.to_numpy(zero_copy_only=False)
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return cast("npt.NDArray[np.floating[Any]]", column)
    return None


def drops(attribute: Attribute) -> bool:
    """Whether some value drops the row."""
    return any(part.values.outside == "drop" for part in attribute.parts)


def codes(attribute: Attribute, code: Callable[[Attribute], Codes]) -> Codes:
    """The codes of an attribute, given those of its parts; −1 if the row is dropped."""
    return joined(attribute.parts, [code(part) for part in attribute.parts])


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds truth values, or numbers that NumPy has too."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _decimal(value: object) -> object:
    if not isinstance(value, str) or _HEXADECIMAL.fullmatch(value) is None:
        return value
    number = int(value.strip(" \t"), 16)
    return str(number if number < INT64_END else number - 2 * INT64_END)  # as Arrow reads all 64 bits


def _numbers(column: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool]]:
    """Arrow's numbers as a NumPy array, and which are missing."""
    plain = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    return plain.to_numpy(zero_copy_only=False), column.is_null().to_numpy(zero_copy_only=False)


def _distinct_of_arrow(column: pa.Array) -> tuple[list[object], npt.NDArray[np.integer[Any]]]:
    try:
        coded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    except pa.ArrowException:  # types that Arrow does not compare: lists, views of text, extensions
        return _python(column), np.arange(len(column))
    objects, places = [*_python(coded.dictionary), None], coded.indices
    if places.null_count:
        places = places.cast(pa.int64()).fill_null(len(objects) - 1)
    return objects, places.to_numpy()


def _python(array: pa.Array) -> list[object]:
    try:
        return array.to_pylist()
    except Exception:  # some value has no Python value
        return [_python_or_missing(scalar) for scalar in array]


def _python_or_missing(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except Exception:  # a value that fails when it is read is outside, whatever the failure (security I1)
        return None
