"""Which types of columns attributes and ids accept, decided by the schema alone before anything is spent.

Ids are of a closed list of types, whose values identity.py can name (security I5). In a folder, the ids of all files
must be compared in one way.

Frames are examined more closely, because a reader that makes a frame of a file usually chooses the types of columns by
the rows: the zip code "01" is the number 1 until one row holds an "X", and one missing id turns all ids into floats.
Then what one row holds would change how the others are read (security I6). So a frame is accepted only if both readings
count the same: numbers for Integers, Bins and labels that are numbers; text for anything; truth values for labels that
are truth values; and no floats that are not exact. pandas also chooses columns of objects by the rows: for truth values
among missing ones, and for a long file that it found to hold numbers in one piece and text in another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hdmm.attribute import Attribute
from hdmm.data.columns import is_number, is_text
from hdmm.data.source import ColumnKind, Untyped, plain_types
from hdmm.entries import NUMBERS
from hdmm.exceptions import DataError
from hdmm.lazy import Lazy
from hdmm.numeric import Bins, Integers
from hdmm.values import Labels, Values

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

_LARGEST_EXACT = 2**53  # floats hold all integers up to it exactly
_GIVE_THE_PATH = (
    "Readers of files choose such types by what the rows hold, so one row could change how all others are read. "
    "Give the path of the file instead of a frame, or read the column as text (pandas: dtype=str; polars: "
    "infer_schema=False; pyarrow: column_types)."
)


def refuse_types(part: Attribute, column: str, kind: ColumnKind, *, frame: bool) -> None:
    """Raise DataError if an attribute cannot be read from a column of this type."""
    if frame:
        _refuse_inferred(part, column, kind)
    for plain in plain_types(kind):
        if isinstance(part.values, Labels) and _none_equals(part.values, plain):
            raise DataError(
                f"Attribute {part.name!r} has no label of the type of column {column!r}, which is {plain}, so every "
                'row would be outside. Declare labels of that type: [0, 1] for numbers, ["0", "1"] for text.'
            )


def refuse_ids(column: str, kind: ColumnKind, *, frame: bool) -> None:
    """Raise DataError if the values of a column cannot name people: see identity.py."""
    families = {_family(plain) for plain in plain_types(kind)} - {"missing"}
    if isinstance(kind, Untyped) or "" in families:
        raise DataError(
            f"The ids in column {column!r} are of type {kind}, in which equal ids may be written differently. Give ids "
            "as integers, decimals, text, UUIDs, dates or timestamps. If pandas made a column of objects of them, "
            f"give the path of the file instead of a frame, or frame.astype({{{column!r}: 'string'}})."
        )
    if len(families) > 1:
        raise DataError(
            f"The ids in column {column!r} are of different kinds in the files of the folder: {kind}. Write all files "
            "with one type of ids, because otherwise one person could pass for two."
        )
    if frame and any(pa.types.is_floating(plain) or pa.types.is_boolean(plain) for plain in plain_types(kind)):
        raise DataError(
            f"The ids in column {column!r} are of type {kind}. In a frame, one missing id turns integers into floats, "
            "and 2**53 and 2**53 + 1 are the same float. Give the path of the file instead of a frame, or read "
            "the ids as text or as integers that may be missing (pandas: dtype='string' or 'Int64')."
        )


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
    plain = not labels or any(isinstance(label, (str, *NUMBERS)) for label in labels)
    if isinstance(kind, Untyped) and plain:
        raise DataError(
            f"Column {column!r} of attribute {part.name!r} is of type {kind}, whose values may be of any type. "
            f"{_GIVE_THE_PATH} Convert a column that comes from no file to a type that says what it holds, such as "
            "'string', 'Int64' or 'boolean'."
        )
    for each in plain_types(kind):
        if any(isinstance(label, str) for label in labels) and not (is_text(each) or pa.types.is_null(each)):
            raise DataError(
                f"Attribute {part.name!r} has labels of text and column {column!r} is of type {each}, so rows with "
                f"these labels would be outside. {_GIVE_THE_PATH}"
            )
        if pa.types.is_boolean(each) and plain and not (labels and all(isinstance(label, bool) for label in labels)):
            raise DataError(
                f"Column {column!r} is of type {each} and attribute {part.name!r} is not declared with the labels "
                f"[False, True]. Declare it so, or give numbers. {_GIVE_THE_PATH}"
            )
        if pa.types.is_floating(each) and _beyond_floats(values):
            raise DataError(
                f"Column {column!r} is of type {each} and attribute {part.name!r} declares integers beyond 2**53, "
                f"which floats do not hold exactly. Give integers or text. {_GIVE_THE_PATH}"
            )


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
        return max(abs(values.first), abs(values.last)) > _LARGEST_EXACT
    numbers = values.edges if isinstance(values, Bins) else values.values if isinstance(values, Labels) else ()
    return any(isinstance(number, NUMBERS) and abs(number) > _LARGEST_EXACT for number in numbers)


def _family(kind: pa.DataType) -> str:
    """What the values of a type are compared as: ids of one family are compared by value. Empty if they are not ids."""
    if pa.types.is_null(kind):
        return "missing"
    if pa.types.is_boolean(kind):
        return "truth values"
    if is_number(kind) or pa.types.is_decimal(kind) or is_text(kind) or _is_uuid(kind):
        return "numbers and text"
    if pa.types.is_date(kind):
        return "dates"
    if isinstance(kind, pa.TimestampType):
        return "timestamps" if kind.tz is None else "instants"
    return ""


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"
