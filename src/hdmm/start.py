"""A commented specification to start from; its domain comes from a data dictionary or, on request, from data."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hdmm.data.columns import distinct
from hdmm.data.files import CsvFiles, file_source
from hdmm.domain import Domain
from hdmm.exceptions import DataError, DomainError, FileError, SqlError
from hdmm.io.folder import write_file
from hdmm.lazy import Lazy
from hdmm.spec import read_spec, schema_text
from hdmm.sql import parse
from hdmm.values import Bins, Integers, Labels, Values

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

_MOST_LABELS = 60
_MOST_BYTES = 2**22
_TYPES = ("labels", "integers", "bins", "boolean")
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a TOML key that needs no quotes
_WHOLE = re.compile(r"([+-]?[0-9]+)(\.0*)?")
_MOST_TO_START = 100_000  # rows of a first specification
_COUNTS = "SELECT {0}, COUNT(*) FROM people GROUP BY {0}"  # for people to read; no engine runs it
_EXAMPLE = {"sex": Labels(["M", "F"]), "age": Integers(0, 114)}


def template() -> str:
    """A specification of an example table.

    >>> read_spec(template().encode(), Path("hdmm.toml")).domain.names
    ('sex', 'age')
    """
    return _written(_EXAMPLE, source="people.csv", notes=())


def from_dictionary(path: Path) -> str:
    """A specification over the attributes of a data dictionary: a CSV file with columns name, type and values.

    Types are labels (values: M|F), integers (0..114, or 0..100/5 in steps), bins (edges: 0|10000|50000) and boolean.
    """
    declared: dict[str, Values] = {}
    for line, name, kind, text in _dictionary_lines(path):
        try:
            values = _values(kind or "labels", text)
            if not name or values is None:
                raise FileError(
                    f"{path}, line {line}: the name {name!r}, the type {kind!r} and the values {text[:60]!r} do not "
                    f"make an attribute. Types are {', '.join(_TYPES)}; values are for example M|F, 0..114 or 0|10|50."
                )
            Domain({name: values})
        except DomainError as wrong:
            raise FileError(f"{path}, line {line}: {wrong}") from None
        if name in declared:
            raise FileError(f"{path}, line {line}: attribute {name!r} occurs twice. Name each attribute once.")
        declared[name] = values
    return _written(declared, source="people.csv", notes=())


def from_data(path: Path, spec: Path) -> tuple[str, list[str]]:
    """A specification over the values that a data file happens to hold, and warnings about it.

    This is NOT private; it is for a first draft by the keeper of the data. `spec` is the path of the specification.
    """
    source = file_source(path, None)
    names = list(source.columns())
    seen: dict[str, set[object]] = {name: set() for name in names}
    unread: dict[str, None] = {}
    for batch in source.batches(names):
        for name in names:
            column = batch[name]
            if isinstance(source, CsvFiles) and isinstance(column, pa.Array) and _holds_other_bytes(column):
                unread[name] = None
            if len(seen[name]) <= 100 * _MOST_LABELS:
                values = distinct(column)[0] if isinstance(column, pa.Array) else column
                seen[name].update(value for value in values if value not in (None, ""))
    if not any(seen.values()):
        raise DataError(f"{path} has no rows, or only empty ones. Give a data dictionary with --from.")
    found = {name: _suggested(values) for name, values in seen.items()}
    declared = {name: values for name, values in found.items() if values is not None}
    if not declared:
        raise DataError(f"{path} has no column of few values or of integers. Give a data dictionary with --from.")
    notes: list[str] = []
    if unread:
        notes.append(f"Text in {', '.join(unread)} that is not UTF-8 counts as missing. Save the file as UTF-8.")
    if left := [name for name in names if name not in declared]:
        notes.append(f"Columns that were left out because they have too many values: {', '.join(left)}.")
    place = path if path.is_absolute() else Path(os.path.relpath(path, spec.parent))
    warned = ["THE DOMAIN WAS READ FROM THE DATA, WHICH IS NOT PRIVATE. Replace it with public knowledge.", *notes]
    return _written(declared, source=place.as_posix(), notes=warned), notes


def write_new(path: Path, text: str) -> Path:
    """Write a new specification and its schema next to it, and return the path of the schema."""
    read_spec(text.encode(), path)  # never write what hdmm check would refuse
    beside = path.with_name("hdmm.schema.json")
    try:
        write_file(path, lambda file: file.write(text.encode()))
        beside.unlink(missing_ok=True)
        write_file(beside, lambda file: file.write(schema_text().encode()))
    except FileExistsError:
        raise FileError(f"{path} exists already. Choose another name, or move the file away.") from None
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}. Check the path.") from None
    return beside


def _dictionary_lines(path: Path) -> Iterable[tuple[int, str, str, str]]:
    """The line, name, type and values of each attribute in a data dictionary.

    Fields are separated by commas, semicolons or tabs, as in the header.
    """
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
    lines = text.splitlines()
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


def _values(kind: str, text: str) -> Values | None:
    """The values of an attribute; None if the text does not fit the type."""
    try:
        match kind.lower():
            case "labels":
                labels = [label.strip() for label in text.split("|")]
                forgot = len(labels) == 1 and re.search("[,;]", text)  # the | between values
                return Labels(labels) if all(labels) and not forgot else None
            case "integers":
                first, _, rest = text.partition("..")
                last, _, step = rest.partition("/")
                return Integers(int(first), int(last), step=int(step) if step else 1)
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


def _holds_other_bytes(column: pa.Array) -> bool:
    """Whether a column of CSV has values that are not UTF-8: these are the only missing values there."""
    objects, places = distinct(column)
    return any(objects[place] is None for place in set(places.tolist()))


def _suggested(values: set[object]) -> Values | None:
    """Values that cover these, except for a few texts among numbers; None if no simple values do."""
    if values and values <= {False, True} and all(isinstance(value, bool) for value in values):
        return Labels([False, True])
    texts = {str(value).strip() for value in values} - {""}
    numbers = [int(match.group(1)) for text in texts if (match := _WHOLE.fullmatch(text))]
    if numbers and len(numbers) >= 0.9 * len(texts):
        close = max(numbers) - min(numbers) <= 100 * _MOST_LABELS
        return Integers(min(numbers), max(numbers)) if close else None
    usable = 0 < len(texts) <= _MOST_LABELS and all(isinstance(value, str) for value in values)
    return Labels(sorted(map(str, values))) if usable else None


def _toml(values: Values) -> str:
    """Values as a specification declares them."""
    match values:
        case Integers(first, last):
            more = f", step = {values.step}" if values.step > 1 else ""
            return f"{{ first = {first}, last = {last}{more} }}"
        case Bins():
            return f"{{ bins = [{', '.join(f'{edge:.15g}' for edge in values.edges)}] }}"
        case Labels():
            return _quoted(values.values)
        case _:
            raise DomainError(f"{values!r} cannot be declared in a specification.")


def _counts(column: str) -> str:
    """SQL that counts by a column, whose name is quoted if SQL would not read it as a name."""
    quoted = '"' + column.replace('"', '""') + '"'
    plain, careful = (_COUNTS.format(name) for name in (column, quoted))
    domain = Domain({column: 2})
    try:
        same = parse(domain, plain)[0].columns == (column,) and len(parse(domain, plain)) == 1
    except SqlError:
        same = False
    return plain if same else careful


def _written(declared: Mapping[str, Values], *, source: str, notes: Iterable[str]) -> str:
    keys = [name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in declared]
    width = max(map(len, keys))
    domain = "\n".join(f"{key:<{width}} = {_toml(value)}" for key, value in zip(keys, declared.values(), strict=True))
    sizes = [values.size for values in declared.values()]
    few = [name for name, size in zip(declared, sizes, strict=True) if size <= _MOST_TO_START]
    sql = _counts(few[0] if few else min(declared, key=lambda name: declared[name].size))
    pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2  # the cells of all 2-way marginals
    most = max(k for k, cells in enumerate((1, sum(sizes), pairs)) if cells <= _MOST_TO_START)
    return _TEXT.format(
        notes="".join(f"# {note}\n" for note in notes),
        source=_quoted(source),
        domain=domain,
        sql=_quoted(sql),
        most=min(most, len(declared)),
        by=("as a whole", "by every attribute", "by every 2 attributes")[min(most, len(declared))],
    )


def _quoted(value: object) -> str:
    """Texts and lists of them as TOML, in which ${ would begin a variable."""
    return json.dumps(value, ensure_ascii=False).replace("${", "$${")


_TEXT = """\
#:schema ./hdmm.schema.json
# Tables to publish under differential privacy. hdmm check, plan and release read this file; docs/spec.md explains it.
{notes}
title = "Our tables"

[data]
source = {source}            # .csv, .csv.gz, .parquet, .duckdb (with table = "..."), a folder, or an Ibis URL
dataset = "people-2026"          # the identity to which the budget belongs: keep it for the same people
# id = "person_id"               # if one person has several rows: the column that identifies the person,
# max_rows_per_id = 1            # and the number of rows per person that are counted
neighbours = "add-remove"        # hides whether someone is in the data; "replace" hides what their row says

# What the data can contain. Declare it from public knowledge, never from the data: other values are dropped, or
# counted as "other" with {{ labels = [...], outside = "other" }}.
# Forms: 115 (0 to 114), ["M", "F"], {{ first = 0, last = 114 }}, {{ bins = [0, 10, 50] }}.
[domain]
{domain}

# One [[table]] per table: sql, or marginals (counts by every k attributes, or by listed sets of them), or ranges.
[[table]]
name = "first"
title = "A first table"
sql = {sql}

[[table]]
name = "marginals"
title = "Counts {by}"
marginals = {most}
# margin = 50                    # every count may be off by 50 either way; hdmm plan prints the least budget for it

[privacy]
epsilon = "1"                    # or epsilon and delta, or rho

[ledger]
path = "budget.db"
cap = {{ epsilon = "4" }}          # the most that may ever be spent on this dataset

[output]
folder = "out"
level = 0.95                     # confidence level of the intervals

[plan]
time_limit = 60                  # seconds to search for the best strategy
"""
