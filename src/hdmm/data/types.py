"""Which types of columns attributes and ids accept, decided by the schema alone before anything is spent.

Ids are of a closed list of types, whose values identity.py can name (security I5). In a folder, the ids of all files
must be compared in one way: floats of one width with nothing else, because a float names what it shows, and another
type may hold more digits of the same id.

Frames (of pandas, polars, Arrow, or in memory with Ibis) are examined more closely, because a reader that makes a frame
of a file usually chooses the types of columns by the rows: the zip code "01" is the number 1 until one row holds an
"X", and one missing id turns all ids into floats. Then what one row holds would change how the others are read
(security I6). So a type is accepted only if a row counts the same under every type that is accepted for the same
attribute, whichever of them the other rows made a reader choose:

- Labels of text are found in text alone. A column of the type null holds nothing but missing values, which are outside;
  but in text, a reader may leave "NA" as it is, so null is refused if such a text is a label. (A reader that takes "NA"
  for missing in text as well does so whatever the other rows hold.)
- Integers, Bins and labels that are numbers are found in numbers and in text that spells them; what is missing or NaN
  in numbers spells no number in text. Floats are refused if 2**53 is declared, because 2**53 + 1 is the same float.
  Arrow reads 0x1F as an integer, so in a frame text is read so, too (columns.py). Truth values are found in columns of
  truth values and, as 1 and 0, in numbers and text; numbers are not found in columns of truth values, because the text
  "true" spells none; nor in bytes, which one field that is not UTF-8 makes of a column of text; nor in times, because
  pandas takes "01" for one as long as the other rows allow it.
- A float is the one nearest to the number in the text, as polars, Arrow and pandas from 3.1 on read it. Where an older
  pandas is loaded, floats of frames are refused: it reads some numbers of 16 digits and more as a float beside that.
- Dates, times, timestamps and bytes are found in columns of their own type alone. In text they are not found
  (_none_equals); a date and its midnight are different labels; and labels of several such kinds are refused.
- Ids are text, integers, decimals or UUIDs. Text that readers take for missing is nobody, and text that spells a number
  is that number. In text, times may be written in several ways, and so may truth values.

Types that no reader chose but a person declared are accepted as those of a file or a database are, if from_table is
given `declared_types`. Parquet files and databases have declared types; of CSV files, hdmm reads nothing but text.
pandas also chooses columns of objects by the rows: for truth values among missing ones, and for a long file that it
found to hold numbers in one piece and text in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy, loaded
from hdmm.data.columns import is_number, is_text
from hdmm.data.identity import MISSING_TEXTS
from hdmm.data.sources.source import ColumnKind, Untyped, plain_types
from hdmm.describe.attribute import Attribute
from hdmm.describe.entries import NUMBERS, Label
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.values import Labels, Values

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
else:
    pa, pd = Lazy("pyarrow"), Lazy("pandas")

_PANDAS_READS_NEAREST = (3, 1)
_FIRST_AMBIGUOUS = 2**53  # as a float it equals the integer after it
_EXACT = "numbers and text"  # the family of ids that are compared by their exact value or their text
_GIVE_THE_PATH = (
    "Readers of files choose such types by what the rows hold, so one row could change how all others are read. "
    "Give the path of the file instead of a frame, or read the column as text (pandas: dtype=str; polars: "
    "infer_schema=False; pyarrow: column_types). If you declared the types of all columns yourself, say so: "
    "declared_types=True."
)


def refuse_types(part: Attribute, column: str, kind: ColumnKind, *, inferred: bool) -> None:
    """Raise DataError if an attribute cannot be read from a column of this type, which rows may have `inferred`."""
    if inferred:
        _refuse_inferred(part, column, kind)
    for plain in plain_types(kind):
        if isinstance(part.values, Labels) and _none_equals(part.values, plain):
            raise DataError(
                f"Attribute {part.name!r} has no label of the type of column {column!r}, which is {plain}, so every "
                'row would be outside. Declare labels of that type: [0, 1] for numbers, ["0", "1"] for text.'
            )


def refuse_ids(column: str, kind: ColumnKind, *, inferred: bool) -> None:
    """Raise DataError if the values of a column, whose type rows may have `inferred`, cannot name people."""
    families = {_family(plain) for plain in plain_types(kind)} - {"missing"}
    if isinstance(kind, Untyped) or "" in families:
        raise DataError(
            f"The ids in column {column!r} are of type {kind}, in which equal ids may be written differently. Give ids "
            "as integers, decimals, text, UUIDs, dates or timestamps. If pandas made a column of objects of them, "
            f"give the path of the file instead of a frame, or frame.astype({{{column!r}: 'string'}}). If a database "
            "declares no type for them, or computes them, convert them to text or integers."
        )
    if len(families) > 1:
        raise DataError(
            f"The ids in column {column!r} are of different kinds in the files of the folder: {kind}. Write all files "
            "with one type of ids, because otherwise one person could pass for two. pandas writes floats if an id is "
            "missing: convert the ids with astype('Int64') or astype('string') before they are written."
        )
    if inferred and not families <= {_EXACT}:
        raise DataError(
            f"The ids in column {column!r} are of type {kind}. In a frame, one missing id turns integers into floats, "
            "2**53 and 2**53 + 1 are the same float, and text that looks like times or truth values is read as such "
            "until one id does not. Give the path of the file instead of a frame, or read the ids as text or as "
            "integers that may be missing (pandas: dtype='string' or 'Int64'). If you declared the types of all "
            "columns yourself, say so: declared_types=True."
        )


def has_text(values: Values) -> bool:
    """Whether some labels are text, so that text is compared with them before it is read as a number."""
    return isinstance(values, Labels) and any(isinstance(label, str) for label in values.values)


def doubts(part: Attribute, column: str, kind: ColumnKind) -> list[str]:
    """What the type of a column suggests was not meant, in full sentences, though a release is not refused for it."""
    found: list[str] = []
    for plain in plain_types(kind):
        if isinstance(part.values, Integers) and _has_fractions(plain):
            found.append(
                f"Column {column!r} is of type {plain}, and attribute {part.name!r} is declared as integers: a value "
                "with a fraction is outside the domain. If there are such values, declare bins, or round them first."
            )
        if not _can_be_inside(part.values, plain):
            found.append(
                f"Column {column!r} is of type {plain}, whose values are neither text nor numbers, and attribute "
                f"{part.name!r} declares only these: every row would be outside the domain. Convert the column."
            )
    return found


def are_floats(kind: ColumnKind) -> bool:
    """Whether some values are floats, which do not distinguish all integers beyond 2**53."""
    return any(pa.types.is_floating(plain) for plain in plain_types(kind))


def _refuse_inferred(part: Attribute, column: str, kind: ColumnKind) -> None:
    values = part.values
    labels = values.values if isinstance(values, Labels) else ()
    numbers = not labels or any(isinstance(label, NUMBERS) for label in labels)
    text = has_text(values)
    times = any(
        isinstance(label, datetime | np.datetime64) for label in labels
    )  # which pandas converts to text or objects
    if isinstance(kind, Untyped) and (numbers or text or times):
        raise DataError(
            f"Column {column!r} of attribute {part.name!r} is of type {kind}, whose values may be of any type. "
            f"{_GIVE_THE_PATH} Convert a column that comes from no file to a type that says what it holds, such as "
            "'string', 'Int64' or 'boolean'."
        )
    for each in plain_types(kind):
        if pa.types.is_null(each):
            _refuse_missing_labels(part, column, labels)
        elif text:
            if not is_text(each):
                raise DataError(
                    f"Attribute {part.name!r} has labels of text and column {column!r} is of type {each}, so rows with "
                    f"these labels would be outside. {_GIVE_THE_PATH}"
                )
        elif numbers:
            _refuse_inferred_numbers(part, column, labels, each)
        elif not _holds_all(each, labels):
            raise DataError(
                f"Column {column!r} is of type {each} and not all labels of attribute {part.name!r} are of that type, "
                f"so rows with the others would be outside. {_GIVE_THE_PATH}"
            )


def _refuse_missing_labels(part: Attribute, column: str, labels: Sequence[Label]) -> None:
    if taken := [label for label in labels if isinstance(label, str) and label in MISSING_TEXTS]:
        raise DataError(
            f"Column {column!r} is of type null, and attribute {part.name!r} has the label {taken[0]!r}, which readers "
            f"take for a missing value as long as no other text is in the column. {_GIVE_THE_PATH}"
        )


def _refuse_inferred_numbers(part: Attribute, column: str, labels: Sequence[Label], kind: pa.DataType) -> None:
    if pa.types.is_boolean(kind) and not (labels and all(isinstance(label, bool) for label in labels)):
        raise DataError(
            f"Column {column!r} is of type {kind} and attribute {part.name!r} is not declared with the labels "
            f"[False, True]. Declare it so, or give numbers. {_GIVE_THE_PATH}"
        )
    if pa.types.is_floating(kind) and _pandas_misreads():
        raise DataError(
            f"Column {column!r} is of type {kind}, and pandas {pd.__version__} reads some numbers of 16 and more "
            "digits as floats beside them, but not once another field of the column is text. Use pandas 3.1 or later. "
            f"{_GIVE_THE_PATH}"
        )
    if pa.types.is_floating(kind) and _beyond_floats(part.values):
        raise DataError(
            f"Column {column!r} is of type {kind} and attribute {part.name!r} declares integers from 2**53 on, "
            f"which floats do not hold exactly. Give integers or text. {_GIVE_THE_PATH}"
        )
    if _is_bytes(kind) or _is_time(kind):
        raise DataError(
            f"Column {column!r} is of type {kind}, in which attribute {part.name!r} finds none of its numbers. One "
            f"field that is not UTF-8 turns text into bytes, and one number turns times into text. {_GIVE_THE_PATH}"
        )


def _pandas_misreads() -> bool:
    """Whether frames may be of a pandas whose reader of CSV gives a float that is not the nearest one."""
    return loaded("pandas") and tuple(map(int, pd.__version__.split(".")[:2])) < _PANDAS_READS_NEAREST


def _holds_all(kind: pa.DataType, labels: Sequence[Label]) -> bool:
    """Whether all labels are of the type of a column: dates, times, timestamps or bytes. Others have no such type."""
    of_type = {
        datetime: isinstance(kind, pa.TimestampType),
        np.datetime64: isinstance(kind, pa.TimestampType),
        date: pa.types.is_date(kind),
        time: pa.types.is_time(kind),
        bytes: _is_bytes(kind),
    }
    return all(next((held for plain, held in of_type.items() if isinstance(label, plain)), True) for label in labels)


def _none_equals(labels: Labels, kind: pa.DataType) -> bool:
    """Whether no value of a type can equal or spell a label, as with labels of text and a column of numbers."""
    if not (is_number(kind) or is_text(kind)):
        return False
    meant = (str, *NUMBERS) if is_text(kind) else NUMBERS
    return not any(isinstance(label, meant) for label in labels.values)


def _has_fractions(kind: pa.DataType) -> bool:
    scale = cast(Any, kind).scale if pa.types.is_decimal(kind) else 0
    return pa.types.is_floating(kind) or scale > 0


def _can_be_inside(values: Values, kind: pa.DataType) -> bool:
    """Whether a value of a type may be in the domain; labels of other kinds than text and numbers may be anything."""
    if is_number(kind) or is_text(kind) or pa.types.is_decimal(kind):
        return True
    return isinstance(values, Labels) and not all(isinstance(label, (str, *NUMBERS)) for label in values.values)


def _beyond_floats(values: Values) -> bool:
    if isinstance(values, Integers):
        return max(abs(values.first), abs(values.last)) >= _FIRST_AMBIGUOUS
    numbers = values.edges if isinstance(values, Bins) else values.values if isinstance(values, Labels) else ()
    return any(isinstance(number, NUMBERS) and abs(number) >= _FIRST_AMBIGUOUS for number in numbers)


def _family(kind: pa.DataType) -> str:
    """What the values of a type are compared as: ids of one family are compared by value. Empty if they are not ids."""
    if pa.types.is_null(kind):
        return "missing"
    if pa.types.is_boolean(kind):
        return "truth values"
    if pa.types.is_floating(kind):
        return str(kind)  # halffloat, float, double: one width is not another
    if is_number(kind) or pa.types.is_decimal(kind) or is_text(kind) or _is_uuid(kind):
        return _EXACT
    if pa.types.is_date(kind):
        return "dates"
    if isinstance(kind, pa.TimestampType):
        return "timestamps" if kind.tz is None else "instants"
    return ""


def _is_bytes(kind: pa.DataType) -> bool:
    views = pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)
    return views or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_time(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.TimestampType) or pa.types.is_date(kind) or pa.types.is_time(kind)


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"
