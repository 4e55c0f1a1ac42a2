"""Source: a table that names its columns, and gives the columns asked for in batches of rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias, final

from hdmm.base.exceptions import DataError
from hdmm.base.hints import did_you_mean
from hdmm.base.lazy import Lazy
from hdmm.data.columns import AnyColumn

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

Batch: TypeAlias = "dict[str, AnyColumn]"
# What a source declares about a column. None is one type that Arrow lacks, such as decimals of any length.
ColumnKind: TypeAlias = "pa.DataType | Untyped | Several | Unreadable | None"
Readable: TypeAlias = "pa.DataType | Untyped | Several | None"

ROWS_AT_ONCE = 2**20
_MOST_NAMED = 30
_NO_NAME = re.compile(r"\W*[0-9]|\W*$|Unnamed: [0-9]")  # what a value begins with, and pandas' word for nothing

_RENAMED = "If an attribute's column has another name, say so in columns: { attribute = column }."


@final
@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why the values of a column cannot be read, and what to do: what a message says after the column's name."""

    why: str

    @classmethod
    def of_type(cls, name: object) -> Unreadable:
        """The values are of a type that a source cannot give."""
        return cls(f"holds values of type {name}. Give a column of text or numbers.")


@final
@dataclass(frozen=True, slots=True)
class Untyped:
    """The name of a type that says nothing about the values: Python objects, or what SQLite calls a date."""

    name: str

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Several:
    """The types of a column whose type differs between files."""

    types: tuple[pa.DataType, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.types))


class Source(ABC):
    """A table. Its columns are public; its rows are not, and are read only by batches()."""

    __slots__ = ()

    # Whether the names of columns are part of a schema. What has no schema may have a person's row in their place.
    declares_names: ClassVar[bool] = False

    @abstractmethod
    def columns(self) -> Mapping[str, ColumnKind]:
        """The names of the columns, with their types if the source declares them."""

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """These columns of all rows. Any error may be about a value: it must not reach the user."""

    def checked(self, wanted: Sequence[str], *, advice: str = _RENAMED) -> dict[str, Readable]:
        """The types of these columns; DataError if a column is missing or its type cannot be read. Reads no values."""
        there = self.columns()
        found: dict[str, Readable] = {}
        for name in wanted:
            if name not in there:
                hint = did_you_mean(name, there)
                raise DataError(f"Column {name!r} is not in the data.{hint}{_listed(self, there, wanted)} {advice}")
            kind = there[name]
            if any(pa.types.is_nested(plain) for plain in plain_types(kind)):
                kind = Unreadable.of_type(kind)
            if isinstance(kind, Unreadable):
                raise DataError(f"Column {name!r} {kind.why}")
            found[name] = kind
        return found


def _listed(source: Source, there: Collection[str], wanted: Collection[str]) -> str:
    """The names of the columns as a sentence, if they are names for certain: a file may lack the line that has them."""
    names = [name for name in there if name not in wanted]
    folded = {name.casefold() for name in there}
    known = sum(name.casefold() in folded for name in wanted)
    header = 2 * known >= len(wanted) and not any(map(_NO_NAME.match, there))
    if not (source.declares_names or header):
        return " The first line of the data does not look like a line of names. Does the data have one?"
    if not names:
        return ""
    more = f", and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f" Other columns are {', '.join(name[:60] for name in names[:_MOST_NAMED])}{more}."


def plain_types(kind: ColumnKind) -> list[pa.DataType]:
    """The Arrow types of a column (for a dictionary, the type of its values); none if it has no Arrow type."""
    types = kind.types if isinstance(kind, Several) else (kind,)
    found = [each for each in types if isinstance(each, pa.DataType)]
    return [each.value_type if isinstance(each, pa.DictionaryType) else each for each in found]


def of_record_batch(rows: pa.RecordBatch) -> Batch:
    """The columns of Arrow's rows."""
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def of_schema(schema: pa.Schema) -> dict[str, pa.DataType | None]:
    """The types of the columns."""
    return dict(zip(schema.names, schema.types, strict=True))
