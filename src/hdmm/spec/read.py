"""TOML text → Spec. docs/spec.md has the keys; schema.json says the same to editors."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import cast

from hdmm.domain import Declaration, Domain
from hdmm.exceptions import SpecError, SqlError
from hdmm.predicates import check_weight
from hdmm.privacy import ZCDP, ApproxDP, Privacy, PureDP, Unit
from hdmm.spec.fields import Document, Fields, Toml
from hdmm.spec.lines import MOST_DEEP, Lines, TooDeepError
from hdmm.spec.model import DataPart, LedgerPart, OutputPart, PlanPart, Spec, TableRequest
from hdmm.spec.shorthand import Shorthand, subsets
from hdmm.sql import Statement, merged_domain, parse
from hdmm.values import Bins, Integers, Labels, Outside

MOST_ROWS = 2**25  # of all tables together: they are written out, twice
_MOST_BYTES = 2**22
_MOST_TABLES = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_AT_LINE = re.compile(r"line ([0-9]+)")


def load_spec(path: str | os.PathLike[str]) -> Spec:
    """The specification in a file. Reads no data; paths in it are relative to its folder.

    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp()) / "ages.toml"
    >>> _ = file.write_text('''
    ... [data]
    ... dataset = "people-2026"
    ... [domain]
    ... sex = ["M", "F"]
    ... age = { first = 0, last = 114 }
    ... [[table]]
    ... name = "P12"
    ... sql = "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age"
    ... [privacy]
    ... epsilon = "0.5"
    ... [ledger]
    ... path = "budget.db"
    ... cap = { epsilon = "4" }
    ... ''')
    >>> load_spec(file).workload
    Workload(230 queries in 1 product over 230 cells)
    """
    place = Path(path)
    try:
        with open(place, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no path"
        raise SpecError(
            f"The file cannot be read ({reason}). Check the path, or start one with hdmm init.",
            file=str(path),
            line=1,
            key="",
        ) from None
    return read_spec(data, place)


def read_spec(data: bytes, path: Path) -> Spec:
    """The specification that the bytes of a file spell."""
    document, content = _parsed(data, str(path))
    root = Fields.of(document, (), content)
    root.only("title", "data", "domain", "table", "privacy", "ledger", "output", "plan")
    for key in ("data", "domain", "table", "privacy", "ledger"):
        if not root.has(key):
            raise root.missing(key, f"[{key}]" if key != "table" else "one [[table]] or more")
    base = path.parent
    about, unit = _data(root.table("data"))
    privacy = _privacy(root.table("privacy"))
    domain, tables = _tables(root, _domain(root.table("domain")))
    return Spec(
        path=path,
        digest=hashlib.sha256(data).hexdigest(),
        title=root.text("title", about.dataset),
        data=about,
        domain=domain,
        tables=tables,
        privacy=privacy,
        unit=unit,
        ledger=_ledger(root.table("ledger"), base, privacy),
        output=_output(root.table("output"), base),
        plan=_plan(root.table("plan"), base, path.stem),
    )


def _parsed(data: bytes, file: str) -> tuple[Document, Toml]:
    def refused(message: str, line: int = 1) -> SpecError:
        return SpecError(message, file=file, line=line, key="")

    if len(data) > _MOST_BYTES:
        raise refused(f"The file has more than {_MOST_BYTES:,} bytes. A specification is a small text.")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as wrong:
        raise refused(
            "This is not text in UTF-8. Save the file as UTF-8.", data.count(b"\n", 0, wrong.start) + 1
        ) from None
    try:
        lines = Lines.of(text)  # first: Python's parser takes the square of the dots of a key, and of brackets
        return Document(file, lines), tomllib.loads(text)
    except TooDeepError as deep:
        raise refused(
            f"A key, a list or a table is more than {MOST_DEEP} deep. Write fewer dots and brackets.", deep.line
        ) from None
    except ValueError as wrong:  # TOMLDecodeError; also of numbers of thousands of digits, and of dates that are none
        found = _AT_LINE.search(str(wrong))
        line = int(found.group(1)) if found else text.count("\n") + 1
        reason = str(wrong) if isinstance(wrong, tomllib.TOMLDecodeError) else "a number or a date is none"
        raise refused(f"This is not TOML: {reason}.", line) from None


def _data(data: Fields) -> tuple[DataPart, Unit]:
    data.only("source", "table", "dataset", "id", "max_rows_per_id", "neighbours", "columns", "rows_bound")
    columns = data.table("columns")
    named = {name: columns.text(name) for name in columns.content}
    column, most = data.text("id", None), data.whole("max_rows_per_id", None, least=1, most=2**31 - 1)
    if column is None and most is not None:
        raise data.error("max_rows_per_id", "It goes with id, the column that says whose row it is. Add id.")
    if column is not None and most is None:
        raise data.error("id", "It goes with max_rows_per_id, how many rows of one person are counted. Add it.")
    dataset = data.text("dataset")
    if not dataset.isprintable() or dataset != unicodedata.normalize("NFC", dataset.strip()) or len(dataset) > 500:
        raise data.error("dataset", "A dataset's name is one printable line in Unicode NFC without spaces at its ends.")
    unit = Unit(rows=most or 1, neighbours=data.choice("neighbours", ("add-remove", "replace")))
    return DataPart(
        source=data.text("source", None),
        table=data.text("table", None),
        dataset=dataset,
        id=column,
        max_rows_per_id=most,
        columns=named,
        rows_bound=data.whole("rows_bound", None, least=1, most=2**38),
    ), unit


def _domain(domain: Fields) -> Domain:
    declared: dict[str, Declaration] = {}
    for name, value in domain.content.items():
        with domain.telling(name):
            declared[name] = _declaration(domain, name, value)
            Domain({name: declared[name]})
    with domain.document.telling(domain.place):
        return Domain(declared)


def _declaration(domain: Fields, name: str, value: Toml) -> Declaration:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, list):
        return _labels(domain, name)
    if not isinstance(value, dict):
        raise domain.error(
            name,
            "This declares no values. Write a size such as 115, a list of labels, { first = 0, last = 114 }, "
            "{ labels = [...] } or { bins = [...] }.",
        )
    fields = domain.table(name).only("labels", "bins", "first", "last", "step", "outside")
    kinds = [key for key in ("labels", "bins", "first") if fields.has(key)]
    if len(kinds) != 1:
        raise domain.error(name, "Give one of labels, bins, or first and last.")
    if fields.has("last") != fields.has("first") or (fields.has("step") and not fields.has("first")):
        raise domain.error(name, "first, last and step belong together: { first = 0, last = 114 }.")
    outside: Outside = fields.choice("outside", ("drop", "other"))
    match kinds[0]:
        case "labels":
            return Labels(_labels(fields, "labels"), outside=outside)
        case "bins":
            return Bins(_edges(fields), outside=outside)
        case _:
            most = 2**62
            first, last = (fields.whole(key, 0, least=-most, most=most) for key in ("first", "last"))
            return Integers(first, last, step=fields.whole("step", 1, least=1, most=most), outside=outside)


def _labels(fields: Fields, key: str) -> list[str | int | float | bool]:
    found: list[str | int | float | bool] = []
    for place, item in fields.items(key):
        if not isinstance(item, str | int | float):
            raise fields.document.error(place, "A label is a text, a number, true or false.")
        found.append(item)
    return found


def _edges(fields: Fields) -> list[int | float]:
    found: list[int | float] = []
    for place, item in fields.items("bins"):
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise fields.document.error(place, "An edge of bins is a number.")
        found.append(item)
    return found


def _tables(root: Fields, declared: Domain) -> tuple[Domain, tuple[TableRequest, ...]]:
    """The tables, and the domain they are over: with attributes merged where SQL joins them by OR."""
    found = [Fields.of(root.document, place, item) for place, item in root.items("table")]
    if not 0 < len(found) <= _MOST_TABLES:
        raise root.error("table", f"There are {len(found)} tables; 1 to {_MOST_TABLES:,} are expected.")
    names: dict[str, str] = {}
    for fields in found:
        name = _name(fields)
        if name.casefold() in names:
            raise fields.error(
                "name", f"Another table is named {names[name.casefold()]!r}. Its files would be the same."
            )
        names[name.casefold()] = name
    parsed = {fields.place: _statement(declared, fields) for fields in found if fields.has("sql")}
    domain = _merged(root, declared, [each.text for each in parsed.values()], found)
    if domain != declared:
        parsed = {fields.place: _statement(domain, fields) for fields in found if fields.has("sql")}
    tables = tuple(_table(fields, parsed.get(fields.place), declared, domain) for fields in found)
    rows = sum(table.rows for table in tables)
    if rows > MOST_ROWS:
        largest = max(range(len(tables)), key=lambda i: tables[i].rows)
        raise found[largest].error(
            "name",
            f"The tables have {rows:,} rows together, of which this one has {tables[largest].rows:,}; {MOST_ROWS:,} "
            "are the limit. Ask for fewer counts.",
        )
    return domain, tables


def _name(fields: Fields) -> str:
    fields.only("name", "title", "sql", "marginals", "ranges", "weight")
    name = fields.text("name")
    if not _NAME.fullmatch(name):
        raise fields.error("name", "A name becomes that of files: letters, digits, - and _ only, at most 64.")
    if fields.has("sql") == (fields.has("marginals") or fields.has("ranges")):
        raise fields.error("name", f"Table {name!r} needs sql, or else marginals or ranges or both.")
    return name


def _merged(root: Fields, declared: Domain, texts: Sequence[str], found: Sequence[Fields]) -> Domain:
    """The domain with attributes merged; as declared where a table asks for ranges of one of them."""
    ranged = {name for fields in found for name in fields.texts("ranges")}
    try:
        domain = merged_domain(declared, "\n;\n".join(texts)) if texts else declared
    except SqlError as wrong:  # each is right by itself; this one does not go with those before it
        ends = accumulate(text.count("\n") + 2 for text in texts)
        asked = [fields for fields in found if fields.has("sql")]
        raise next(f for f, end in zip(asked, ends, strict=True) if wrong.line <= end).error(
            "sql", str(wrong)
        ) from None
    return declared if ranged & set(declared.names) - set(domain.names) else domain


def _statement(domain: Domain, fields: Fields) -> Statement:
    with fields.telling("sql"):
        found = parse(domain, fields.text("sql"))
    if len(found) != 1:
        raise fields.error(
            "sql", f"There are {len(found)} statements; one per table is expected. Use UNION ALL, or tables."
        )
    return found[0]


def _table(fields: Fields, parsed: Statement | None, declared: Domain, domain: Domain) -> TableRequest:
    name = fields.text("name")
    weight = fields.number("weight", 1.0, above=0, below=float("inf"))
    if parsed is not None:
        with fields.telling("sql"):
            weight = check_weight(weight * parsed.weight)
        if weight == 0:
            raise fields.error(
                "sql", "A table of weight 0 would have no answers. Give it some weight, or leave it out."
            )
    return TableRequest(name, fields.text("title", name), weight, parsed or _shorthand(fields, declared, domain))


def _shorthand(fields: Fields, declared: Domain, domain: Domain) -> Shorthand:
    ranges = fields.texts("ranges")
    with fields.telling("ranges"):
        declared.named(ranges, "in ranges")
    with fields.telling("marginals"):
        asked = subsets(declared, _marginals(fields) if fields.has("marginals") else [ranges])
    with fields.telling("ranges" if ranges else "marginals"):
        return Shorthand.of(domain, asked, ranges=ranges)


def _marginals(fields: Fields) -> int | list[int] | list[list[str]]:
    """How many attributes, several such numbers, or lists of attributes."""
    value = fields.content["marginals"]
    if not isinstance(value, list):
        return fields.whole("marginals", 0, least=0, most=2**31)
    sizes: list[int] = []
    sets: list[list[str]] = []
    for place, item in fields.items("marginals"):
        if isinstance(item, int) and not isinstance(item, bool):
            sizes.append(item)
        elif isinstance(item, list) and all(isinstance(name, str) for name in cast(list[Toml], item)):
            sets.append(cast(list[str], item))
        else:
            raise fields.document.error(place, 'This is no list of attributes. Write 2, [1, 2] or [["sex", "age"]].')
    if bool(sizes) == bool(sets):
        raise fields.error("marginals", 'Give numbers of attributes or lists of them: 2, [1, 2] or [["sex", "age"]].')
    return sizes or sets


def _privacy(privacy: Fields) -> Privacy:
    privacy.only("epsilon", "delta", "rho")
    given = set(privacy.content)
    key = "rho" if "rho" in given else "epsilon"
    with privacy.document.telling((*privacy.place, key)):
        if given == {"epsilon"}:
            return PureDP(privacy.exact("epsilon"))
        if given == {"rho"}:
            return ZCDP(privacy.exact("rho"))
        if given == {"epsilon", "delta"}:
            return ApproxDP(privacy.exact("epsilon"), privacy.exact("delta"))
    raise privacy.document.error(privacy.place, "Give epsilon, or epsilon and delta, or rho.")


def _ledger(ledger: Fields, base: Path, privacy: Privacy) -> LedgerPart:
    ledger.only("path", "cap")
    path = _path(ledger, "path", base)
    if not ledger.has("cap"):
        raise ledger.missing("cap", 'the most that may ever be spent, such as { epsilon = "4" }')
    cap = ledger.table("cap").only("epsilon", "rho")
    with ledger.telling("cap"):
        match list(cap.content):
            case ["epsilon"]:
                limit = PureDP(cap.exact("epsilon"))
            case ["rho"]:
                limit = ZCDP(cap.exact("rho"))
            case _:
                raise ledger.error("cap", 'Give one of epsilon and rho, such as { epsilon = "4" }.')
    if isinstance(limit, PureDP) and not isinstance(privacy, PureDP):
        raise ledger.error(
            "cap", "A cap in epsilon cannot bear this privacy, which spends rho. Declare the cap in rho."
        )
    return LedgerPart(path, limit)


def _output(output: Fields, base: Path) -> OutputPart:
    output.only("folder", "level")
    return OutputPart(_path(output, "folder", base, "out"), output.number("level", 0.95, above=0, below=1))


def _plan(plan: Fields, base: Path, stem: str) -> PlanPart:
    plan.only("folder", "time_limit", "restarts", "seed")
    return PlanPart(
        folder=_path(plan, "folder", base, f"{stem}.plan"),
        time_limit=plan.number("time_limit", 60.0, above=0, below=float("inf")),
        restarts=plan.whole("restarts", 25, least=1, most=10**6),
        seed=plan.whole("seed", 0, least=0, most=2**63 - 1),
    )


def _path(fields: Fields, key: str, base: Path, default: str | None = None) -> Path:
    given = fields.text(key) if default is None else fields.text(key, default)
    path = base / given
    if path.name in ("", ".."):
        raise fields.error(key, "This is not the path of a file or folder of its own.")
    return path
