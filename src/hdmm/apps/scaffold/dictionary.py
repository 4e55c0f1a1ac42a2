"""What columns a table has and which values each can hold, by what is written about it: never by its rows.

A data dictionary is a CSV file, a Table Schema or Data Package in JSON (Frictionless; pandas writes the former), or the
schema of a Parquet, Feather or Arrow file. Catalogues of databases are read by catalogue.py.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from hdmm.base.exceptions import DomainError, FileError
from hdmm.base.lazy import Lazy
from hdmm.describe.amount import Amount
from hdmm.describe.domain import Domain
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.values import Labels, Values

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")
ipc: Any = Lazy("pyarrow.ipc")

TYPES = ("labels", "integers", "bins", "boolean", "amount")
_MOST_BYTES = 2**22
_PARQUET, _ARROW = (".parquet", ".pq"), (".feather", ".arrow", ".arrows", ".ipc")


@final
@dataclass(frozen=True, slots=True)
class DescribedColumn:
    """A column of a table, the values it can hold if that is written anywhere, and its type in words."""

    name: str
    values: Values | None
    kind: str = ""
    groups: tuple[tuple[str, int], ...] = ()  # levels of so many neighbouring integers each, which `values` has too


def read_dictionary(path: Path, table: str | None = None) -> tuple[DescribedColumn, ...]:
    """The columns that a data dictionary describes; `table` names one of several in a Data Package."""
    ending = path.suffix.lower()
    if ending in _PARQUET + _ARROW:
        return _of_arrow(path, ending)
    if ending == ".json":
        return _of_fields(path, table)
    return _of_csv(path)


def written_values(kind: str, text: str) -> Values | None:
    """The values that a dictionary writes for a type; None if the text does not fit the type.

    Labels are M|F, integers 0..114, 0..100/5 in steps or 0..114 decade:10 with groups, bins the edges 0|10000|50000, an
    amount its least and largest value 0..200000; boolean needs no text.

    >>> written_values("integers", "0..100/5").size, written_values("bins", "0|x") is None
    (21, True)
    """
    try:
        match kind.lower():
            case "labels":
                labels = [label.strip() for label in text.split("|")]
                forgot = len(labels) == 1 and re.search("[,;]", text)  # the | between values
                return Labels(labels) if all(labels) and not forgot else None
            case "integers":
                first, _, rest = text.partition(" ")[0].partition("..")
                last, _, step = rest.partition("/")
                groups = dict(written_groups(text))
                return Integers(int(first), int(last), step=int(step) if step else 1, groups=groups)
            case "amount":
                low, _, high = text.partition("..")
                return Amount(float(low), float(high))
            case "bins":
                return Bins([float(edge) for edge in text.split("|")])
            case "boolean":
                return Labels([False, True])
            case _:
                return None
    except DomainError:  # which is also a ValueError
        raise
    except ValueError:
        return None


def written_groups(text: str) -> tuple[tuple[str, int], ...]:
    """The groups of integers that a dictionary writes after their values.

    >>> written_groups("0..114 decade:10 half:50")
    (('decade', 10), ('half', 50))
    """
    pairs = (word.partition(":") for word in text.split()[1:])
    return tuple((name, int(size)) for name, _, size in pairs)


def described_column(
    name: str, values: Iterable[object] | None, low: object, high: object, kind: str
) -> DescribedColumn:
    """A column whose values, or whose least and largest ones, are declared; without any, its type must do.

    >>> described_column("age", None, 0, 114, "integer").values
    Integers(first=0, last=114, step=1, outside='drop')
    """
    listed = None if values is None else list(dict.fromkeys(values))
    found: Values | None = None
    try:
        if listed and all(isinstance(each, str | int | float) for each in listed):
            found = Labels(cast(list[Any], listed))
        elif kind.lower() in ("bool", "boolean"):
            found = Labels([False, True])
        elif isinstance(low, int) and isinstance(high, int) and re.search("int|year|serial", kind, re.IGNORECASE):
            found = Integers(low, high)
        if found is not None:
            Domain({name: found})
    except DomainError:  # such as two labels that are equal: the user writes them
        found = None
    return DescribedColumn(name, found, re.sub(r"[^\w(), ]+", " ", kind)[:40])


def _of_csv(path: Path) -> tuple[DescribedColumn, ...]:
    """The attributes of a CSV file with the columns name, type and values; all of them have values."""
    found: dict[str, DescribedColumn] = {}
    for line, name, kind, text in _dictionary_lines(path):
        try:
            values = written_values(kind or "labels", text)
            if not name or values is None:
                raise FileError(
                    f"{path}, line {line}: the name {name!r}, the type {kind!r} and the values {text[:60]!r} do not "
                    f"make an attribute. Types are {', '.join(TYPES)}; values are for example M|F, 0..114 or 0|10|50."
                )
            Domain({}, amounts={name: values}) if isinstance(values, Amount) else Domain({name: values})
        except DomainError as wrong:
            raise FileError(f"{path}, line {line}: {wrong}") from None
        if name in found:
            raise FileError(f"{path}, line {line}: attribute {name!r} occurs twice. Name each attribute once.")
        found[name] = DescribedColumn(name, values, kind, written_groups(text) if kind.lower() == "integers" else ())
    return tuple(found.values())


def _of_arrow(path: Path, ending: str) -> tuple[DescribedColumn, ...]:
    """The columns of a file by its schema, which says no values but those of booleans. No rows are read."""
    try:
        if ending in _PARQUET:
            schema = pq.read_schema(path)
        else:
            with open(path, "rb") as file:
                schema = (ipc.open_stream(file) if ending == ".arrows" else ipc.open_file(file)).schema
    except (OSError, pa.ArrowException):
        raise FileError(f"{path} cannot be read as a file of Parquet, Feather or Arrow. Check the path.") from None
    return tuple(
        described_column(name, None, None, None, str(kind))
        for name, kind in zip(schema.names, schema.types, strict=True)
    )


def _of_fields(path: Path, table: str | None) -> tuple[DescribedColumn, ...]:
    """The fields of a Table Schema, or of a resource of a Data Package."""
    wrong = FileError(
        f"{path} is neither a Table Schema, which has fields, nor a Data Package, whose resources have schemas. Give "
        "one of these, or a CSV file with the columns name, type and values."
    )
    try:
        found: object = json.loads(_text(path))
    except ValueError:
        raise FileError(f"{path} is not JSON. Give a Table Schema or a Data Package.") from None
    resource = _resource(path, found, table)
    if "data" in resource:
        raise FileError(f"{path} holds rows beside its schema. Give the schema alone: hdmm init reads no rows.")
    schema = resource.get("schema", resource)
    fields = cast(Mapping[str, object], schema).get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        raise wrong
    columns: dict[str, DescribedColumn] = {}
    for field in cast(list[object], fields):
        name = cast(dict[str, object], field).get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or not name or name in columns:
            raise wrong
        columns[name] = _of_field(name, cast(dict[str, Any], field))
    return tuple(columns.values())


def _resource(path: Path, found: object, table: str | None) -> Mapping[str, object]:
    """The resource of a Data Package, or the whole if it is not one."""
    whole = cast(Mapping[str, object], found) if isinstance(found, dict) else {}
    listed = whole.get("resources")
    if not isinstance(listed, list):
        return whole
    resources = [cast(Mapping[str, object], each) for each in cast(list[object], listed) if isinstance(each, dict)]
    chosen = [each for each in resources if table is None or each.get("name") == table]
    if len(chosen) != 1:
        names = ", ".join(str(each.get("name"))[:60] for each in resources)
        raise FileError(f"{path} has the resources {names or '(none)'}. Name one of them with --table.")
    return chosen[0]


def _of_field(name: str, field: Mapping[str, Any]) -> DescribedColumn:
    limits = field.get("constraints")
    limits = cast(Mapping[str, Any], limits) if isinstance(limits, dict) else {}
    listed = limits.get("enum", field.get("categories"))
    values = None
    if isinstance(listed, list):
        items = cast(list[Any], listed)
        values = [cast(Mapping[str, Any], each).get("value") if isinstance(each, dict) else each for each in items]
    kind = field.get("type")
    low, high = (_whole(limits.get(key)) for key in ("minimum", "maximum"))
    return described_column(name, values, low, high, kind if isinstance(kind, str) else "")


def _whole(given: object) -> object:
    """A bound as a whole number, which JSON may have as a text."""
    return int(given) if isinstance(given, str) and re.fullmatch("[+-]?[0-9]{1,18}", given) else given


def _text(path: Path) -> str:
    """The text of a small file in UTF-8."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            text = file.read(_MOST_BYTES + 1)
    except UnicodeDecodeError:
        raise FileError(f"{path} is not text in UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}. Check the path.") from None
    if len(text) > _MOST_BYTES:
        raise FileError(
            f"{path} has more than {_MOST_BYTES:,} characters. Give a data dictionary, which is a small file."
        )
    return text


def _dictionary_lines(path: Path) -> Iterable[tuple[int, str, str, str]]:
    """The line, name, type and values of each attribute in a data dictionary.

    Fields are separated by commas, semicolons or tabs, as in the header.
    """
    lines = _text(path).splitlines()
    header = lines[0] if lines else ""
    delimiter = max(",;\t", key=header.count)
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        rows = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise FileError(
            f"{path} is not CSV: {error}. Write a header name,type,values and one line per attribute."
        ) from None
    names = [name.strip().lower() for name in rows[0][1]] if rows else []
    if len(rows) < 2 or not {"name", "values"} <= set(names):
        raise FileError(
            f"{path} begins with {header[:60]!r}, but it needs the columns name, type and values, and one line per "
            "attribute."
        )
    for line, row in rows[1:]:
        if len(row) > len(names):
            raise FileError(
                f"{path}, line {line}: the line has {len(row)} fields, but the first line names {len(names)} columns. "
                "Put | between values, as in M|F."
            )
        fields = dict(zip(names, (field.strip() for field in row), strict=False))
        yield line, fields.get("name", ""), fields.get("type", ""), fields.get("values", "")
