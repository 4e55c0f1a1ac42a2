"""A specification to start from: a commented text, its domain from a data dictionary, or from data if told so."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hdmm.data.columns import distinct
from hdmm.data.files import file_source
from hdmm.domain import Domain
from hdmm.exceptions import DataError, FileError, SqlError
from hdmm.io.folder import write_file
from hdmm.lazy import Lazy
from hdmm.spec import read_spec
from hdmm.sql import parse

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

SCHEMA = Path(__file__).parent / "spec" / "schema.json"
_MOST_LABELS = 60
_MOST_BYTES = 2**22
_TYPES = ("labels", "integers", "bins", "boolean")
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # what TOML takes for a key without quotes
_EXAMPLE = {"sex": '["M", "F"]', "age": "{ first = 0, last = 114 }"}


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
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as a text in UTF-8 ({type(error).__name__}). Check the path.") from None
    if len(text) > _MOST_BYTES:
        raise FileError(f"{path} has more than {_MOST_BYTES:,} characters. A data dictionary is a small file.")
    try:
        reader = csv.DictReader(text.splitlines(), strict=True)
        lines = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise FileError(
            f"{path} is not CSV: {error}. Write a line name,type,values and one line an attribute."
        ) from None
    if not lines or not {"name", "values"} <= set(lines[0][1]):
        raise FileError(f"{path} needs the columns name, type and values, and one line an attribute.")
    declared: dict[str, str] = {}
    for line, row in lines:
        name, kind, values = ((row.get(key) or "").strip() for key in ("name", "type", "values"))
        declaration = _declaration(kind or "labels", values)
        if not name or declaration is None:
            raise FileError(
                f"{path}, line {line}: no attribute can be made of name {name!r}, type {kind!r} and values "
                f"{values[:60]!r}. Types are {', '.join(_TYPES)}; values such as M|F, 0..114, or 0|10|50."
            )
        if name in declared:
            raise FileError(f"{path}, line {line}: attribute {name!r} is there twice. Name each once.")
        declared[name] = declaration
    return _written(declared, source="people.csv", notes=())


def from_data(path: Path) -> str:
    """A specification over what a file of data happens to hold. NOT private: for a first draft by its keeper."""
    source = file_source(path, None)
    names = list(source.columns())
    seen: dict[str, set[object]] = {name: set() for name in names}
    for batch in source.batches(names):
        for name in names:
            if len(seen[name]) <= 100 * _MOST_LABELS:
                column = batch[name]
                values = distinct(column)[0] if isinstance(column, pa.Array) else column
                seen[name].update(value for value in values if value is not None)
    declared: dict[str, str] = {}
    left: list[str] = []
    for name, values in seen.items():
        found = _suggested(values)
        if found is None:
            left.append(name)
        else:
            declared[name] = found
    if not declared:
        raise DataError(f"{path} has no column of few values or of whole numbers. Give a data dictionary with --from.")
    notes = ["THE DOMAIN WAS READ FROM THE DATA, WHICH IS NOT PRIVATE. Replace it by what is publicly known."]
    if left:
        notes.append(f"Columns left out: {', '.join(left)}.")
    return _written(declared, source=os.fspath(path), notes=notes)


def write_new(path: Path, text: str) -> Path:
    """Write a specification that is not there yet, and its schema beside it; the path of the schema."""
    read_spec(text.encode(), path)  # never write what hdmm check would refuse
    schema = path.with_name("hdmm.schema.json")
    try:
        write_file(path, lambda file: file.write(text.encode()))
        schema.unlink(missing_ok=True)
        write_file(schema, lambda file: file.write(SCHEMA.read_bytes()))
    except FileExistsError:
        raise FileError(f"{path} is there already. Choose another name, or move it away.") from None
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}. Check the path.") from None
    return schema


def _declaration(kind: str, values: str) -> str | None:
    """The values of an attribute in TOML; None where they are not of the type."""
    try:
        match kind.lower():
            case "labels":
                labels = [label.strip() for label in values.split("|")]
                return json.dumps(labels, ensure_ascii=False) if all(labels) else None
            case "integers":
                first, _, rest = values.partition("..")
                last, _, step = rest.partition("/")
                more = f", step = {int(step)}" if step else ""
                return f"{{ first = {int(first)}, last = {int(last)}{more} }}"
            case "bins":
                edges = [float(edge) for edge in values.split("|")]
                return f"{{ bins = [{', '.join(f'{edge:.15g}' for edge in edges)}] }}"
            case "boolean":
                return "[false, true]"
            case _:
                return None
    except ValueError:
        return None


def _suggested(values: set[object]) -> str | None:
    """A declaration that holds these values; None where no simple one does."""
    if values and values <= {False, True} and all(isinstance(value, bool) for value in values):
        return "[false, true]"
    texts = {str(value).strip() for value in values}
    try:
        numbers = sorted(map(int, texts))
    except ValueError:
        usable = 0 < len(texts) <= _MOST_LABELS and all(isinstance(value, str) for value in values)
        return json.dumps(sorted(map(str, values)), ensure_ascii=False) if usable else None
    if not numbers or numbers[-1] - numbers[0] > 100 * _MOST_LABELS:
        return None
    return f"{{ first = {numbers[0]}, last = {numbers[-1]} }}"


def _counts(column: str) -> str:
    """SQL that counts by a column; in quotes where SQL would take the name for something else."""
    quoted = '"' + column.replace('"', '""') + '"'
    plain, careful = (
        f"SELECT {name}, COUNT(*) FROM people GROUP BY {name}"  # a text to read, never run  # nosec B608
        for name in (column, quoted)
    )
    domain = Domain({column: 2})
    try:
        same = parse(domain, plain)[0].columns == (column,) and len(parse(domain, plain)) == 1
    except SqlError:
        same = False
    return plain if same else careful


def _written(declared: Mapping[str, str], *, source: str, notes: Iterable[str]) -> str:
    keys = [name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in declared]
    width = max(map(len, keys))
    domain = "\n".join(f"{key:<{width}} = {value}" for key, value in zip(keys, declared.values(), strict=True))
    sql = _counts(next(iter(declared)))
    return _TEXT.format(
        notes="".join(f"# {note}\n" for note in notes),
        source=json.dumps(source, ensure_ascii=False),
        domain=domain,
        sql=json.dumps(sql, ensure_ascii=False),
        pairs=min(2, len(declared)),
    )


_TEXT = """\
#:schema ./hdmm.schema.json
# Tables to publish under differential privacy. hdmm check, plan and release read this file; docs/spec.md explains it.
{notes}
title = "Our tables"

[data]
source = {source}            # .csv, .csv.gz, .parquet, .duckdb (with table = "..."), a folder, or an Ibis URL
dataset = "people-2026"          # the identity that the budget belongs to: keep it for the same people
# id = "person_id"               # where one person has several rows: the column that says whose row it is,
# max_rows_per_id = 1            # and how many rows of one person are counted
neighbours = "add-remove"        # hides that someone is in the data; "replace" hides what their row says

# What the data can contain. Declare it from public knowledge, never from the data: other values are dropped, or
# counted as "other" with {{ labels = [...], outside = "other" }}.
# Forms: 115 (0 to 114), ["M", "F"], {{ first = 0, last = 114 }}, {{ bins = [0, 10, 50] }}.
[domain]
{domain}

# One [[table]] a table: sql, or marginals (counts by every k attributes, or by listed sets of them), or ranges.
[[table]]
name = "first"
title = "A first table"
sql = {sql}

[[table]]
name = "marginals"
title = "Counts by every {pairs} attributes"
marginals = {pairs}
weight = 1.0                     # how much the table matters in planning; counts are published as they are

[privacy]
epsilon = "1"                    # or epsilon and delta, or rho

[ledger]
path = "budget.db"
cap = {{ epsilon = "4" }}          # the most that may ever be spent on this dataset

[output]
folder = "out"
level = 0.95                     # of the intervals

[plan]
time_limit = 60                  # seconds to look for the best strategy
"""
