"""A commented specification to start from; its domain comes from what describes the data or, on request, from data."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from hdmm.apps.scaffold.catalogue import read_duckdb_catalogue, read_postgres_catalogue
from hdmm.apps.scaffold.dictionary import DescribedColumn, read_dictionary
from hdmm.base.exceptions import DataError, DomainError, FileError, SqlError
from hdmm.base.hints import first_of
from hdmm.base.lazy import Lazy
from hdmm.base.numbers import LEVEL
from hdmm.base.templates import templates
from hdmm.data.columns import distinct
from hdmm.data.engines.address import without_password
from hdmm.data.sources.table_files import CsvFiles, file_source
from hdmm.describe.amount import Amount
from hdmm.describe.domain import Domain
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.values import Labels, Values
from hdmm.io.folder import write_file
from hdmm.publication.spec import read_spec, schema_text
from hdmm.publication.spec.keys import is_url
from hdmm.sql import parse

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = Lazy("pyarrow")

_MOST_LABELS = 60
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a TOML key that needs no quotes
_WHOLE = re.compile(r"([+-]?[0-9]+)(\.0*)?")
_MOST_TO_START = 100_000  # rows of a first specification
_COUNTS = "SELECT {0}, COUNT(*) FROM people GROUP BY {0}"  # for people to read; no engine runs it
_EXAMPLE = (DescribedColumn("sex", Labels(["M", "F"])), DescribedColumn("age", Integers(0, 114)))


@final
@dataclass(frozen=True, slots=True)
class FirstChoices:
    """What a first specification says besides its attributes; without tables, it has two to start from."""

    source: str = "people.csv"
    table: str | None = None
    dataset: str = "people-2026"
    tables: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    rows: bool = False  # whether the tables are to be those that synthetic rows are made from


def template(*, rows: bool = False) -> str:
    """A specification of an example table.

    >>> read_spec(template().encode(), Path("hdmm.toml")).domain.names
    ('sex', 'age')
    """
    return _written(_EXAMPLE, FirstChoices(rows=rows))


def described_by(given: str, table: str | None, spec: Path) -> tuple[Sequence[DescribedColumn], FirstChoices]:
    """The columns that a dictionary or a catalogue describes, and the source that it names if it is of the data itself.

    No rows are read. A password is not written into the specification, whose path is `spec`.
    """
    scheme = given.partition("://")[0] if is_url(given) else ""
    if scheme in ("postgres", "postgresql"):
        if "password" in given.lower():
            raise FileError(
                "The URL has a password after ?. Put it into ~/.pgpass or PGPASSWORD, and leave it out here."
            )
        columns, name = read_postgres_catalogue(given, table)
        return columns, FirstChoices(without_password(given, hidden=""), name)
    if scheme not in ("", "duckdb"):
        raise FileError(f"The catalogue of {scheme} databases is not read. Give a data dictionary: a CSV or JSON file.")
    path = Path(given.removeprefix("duckdb://"))
    if scheme or path.suffix.lower() == ".duckdb":
        columns, name = read_duckdb_catalogue(path, table)
        return columns, FirstChoices(f"{scheme}://{path}" if scheme else _place(path, spec), name)
    data = path.suffix.lower() in (".parquet", ".pq")
    return read_dictionary(path, table), FirstChoices(_place(path, spec)) if data else FirstChoices()


def from_columns(columns: Sequence[DescribedColumn], start: FirstChoices | None = None) -> str:
    """A specification over the columns whose values are known; the others stand in it as comments."""
    if all(column.values is None for column in columns):
        named = first_of([column.name for column in columns]) or "none"
        raise FileError(
            f"No column has declared values; the columns are {named}. Run hdmm init in a terminal, which asks for "
            "values, or write a data dictionary: a CSV file with the columns name, type and values."
        )
    return _written(columns, start or FirstChoices())


def from_data(path: Path, spec: Path, *, rows: bool = False) -> tuple[str, list[str]]:
    """A specification over the values that a data file happens to hold, and warnings about it.

    This is NOT private; it is for a first draft by the owner of the data. `spec` is the path of the specification.
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
    found = [DescribedColumn(name, _suggested(values)) for name, values in seen.items()]
    declared = [column for column in found if column.values is not None]
    if not declared:
        raise DataError(f"{path} has no column of few values or of integers. Give a data dictionary with --from.")
    notes: list[str] = []
    if unread:
        notes.append(f"Text in {', '.join(unread)} that is not UTF-8 counts as missing. Save the file as UTF-8.")
    if left := [column.name for column in found if column.values is None]:
        notes.append(f"Columns that were left out because they have too many values: {', '.join(left)}.")
    warned = ["THE DOMAIN WAS READ FROM THE DATA, WHICH IS NOT PRIVATE. Replace it with public knowledge.", *notes]
    return _written(declared, FirstChoices(_place(path, spec), notes=tuple(warned), rows=rows)), notes


def refuse_existing(path: Path) -> None:
    """Raise FileError if there is a file already: before anything is asked or read."""
    if os.path.lexists(path):
        raise FileError(f"{path} exists already. Choose another name, or move the file away.")


def write_new(path: Path, text: str) -> Path:
    """Write a new specification and its schema next to it, and return the path of the schema."""
    read_spec(text.encode(), path)  # never write what hdmm check would refuse
    beside = path.with_name("hdmm.schema.json")
    try:
        write_file(path, lambda file: file.write(text.encode()))
        beside.unlink(missing_ok=True)
        write_file(beside, lambda file: file.write(schema_text().encode()))
    except FileExistsError:
        refuse_existing(path)
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}. Check the path.") from None
    return beside


def _place(path: Path, spec: Path) -> str:
    """A path as the specification sees it, from its own folder."""
    return (path if path.is_absolute() else Path(os.path.relpath(path, spec.parent))).as_posix()


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


def _toml(values: Values, groups: Sequence[tuple[str, int]] = ()) -> str:
    """Values as a specification declares them."""
    match values:
        case Integers(first, last):
            more = f", step = {values.step}" if values.step > 1 else ""
            sized = ", ".join(f"{_key(name)} = {size}" for name, size in groups)
            return f"{{ first = {first}, last = {last}{more}{f', groups = {{ {sized} }}' if sized else ''} }}"
        case Amount(low, high):
            return f"{{ low = {low}, high = {high} }}"
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


def _written(columns: Sequence[DescribedColumn], start: FirstChoices) -> str:
    groups = {column.name: column.groups for column in columns}
    known = {column.name: column.values for column in columns if column.values is not None}
    amounts = {name: _toml(values) for name, values in known.items() if isinstance(values, Amount)}
    declared = {name: values for name, values in known.items() if name not in amounts}
    if not declared:
        raise FileError("There are amounts alone. Describe at least one attribute by which they are added up.")
    width = max(len(_key(name)) for name in declared)
    sql, most = _usual(declared)
    found = templates("hdmm.apps.scaffold", toml=_quoted, key=_key, plain=_plain)
    return found.get_template("hdmm.toml").render(
        start=start,
        domain=[(f"{_key(name):<{width}}", _toml(values, groups[name])) for name, values in declared.items()],
        undeclared=[column for column in columns if column.values is None],
        amounts=amounts,
        sql=sql,
        most=most,
        level=LEVEL,
    )


def _plain(name: str) -> str:
    """A name as that of a table may be."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)


def _key(name: str) -> str:
    """A name as a key of TOML; what is not printable is escaped."""
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=not name.isprintable())


def _usual(declared: Mapping[str, Values]) -> tuple[str, int]:
    """Two tables to start from: SQL that counts by one attribute, and by as many at a time as one can look at."""
    sizes = [values.size for values in declared.values()]
    few = [name for name, size in zip(declared, sizes, strict=True) if size <= _MOST_TO_START]
    sql = _counts(few[0] if few else min(declared, key=lambda name: declared[name].size))
    pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2  # the cells of all 2-way marginals
    most = max(k for k, cells in enumerate((1, sum(sizes), pairs)) if cells <= _MOST_TO_START)
    return sql, min(most, len(declared))


def _quoted(value: object) -> str:
    """Texts and lists of them as TOML, in which ${ would begin a variable."""
    return json.dumps(value, ensure_ascii=False).replace("${", "$${")
