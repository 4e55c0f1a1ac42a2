"""TOML text → Spec: what the records say, checked by the values they become. docs/spec.md describes the keys."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, count
from pathlib import Path
from typing import cast

import numpy as np
from msgspec.structs import replace

from hdmm.domain import Declaration, Domain
from hdmm.exceptions import PrivacyError, SpecError, SqlError
from hdmm.predicates import check_weight
from hdmm.privacy import ZCDP, Exact, Privacy, PureDP, Unit, guarantee
from hdmm.spec.document import MOST_SPEC_BYTES, Document
from hdmm.spec.known import known_tables
from hdmm.spec.lookup import read_lookup
from hdmm.spec.measures import is_measured, measured_sql
from hdmm.spec.model import NO_MARGIN, LedgerPart, Spec, TableRequest
from hdmm.spec.records import (
    DataPart,
    LedgerKeys,
    PrivacyKeys,
    SpecFile,
    SpecLabel,
    TableKeys,
    ValuesKeys,
    read_path,
)
from hdmm.spec.shorthand import Shorthand, subsets
from hdmm.sql import Statement, merged_domain, parse
from hdmm.sql.columns import columns
from hdmm.sql.impossible import possible
from hdmm.values import Bins, Integers, Labels, Values

MOST_TABLES = 10_000  # that one [[table]] may ask for
MOST_ROWS = 2**25  # of all tables together, because they are written out twice


def load_spec(
    path: str | os.PathLike[str],
    *,
    variables: Mapping[str, str] | None = None,
    source: str | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Spec:
    """The specification in a file. Reads no data; paths in it are relative to its folder.

    `variables` are put in place of ${NAME} in its texts; `source` and `output`, relative to the current folder, take
    the place of those that it names.

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
            data = file.read(MOST_SPEC_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no path"
        raise SpecError(
            f"The file cannot be read ({reason}). Check the path, or create a file with hdmm init.",
            file=str(path),
            line=1,
            key="",
        ) from None
    return read_spec(data, place, variables).redirected(source, output)


def read_spec(data: bytes, path: Path, variables: Mapping[str, str] | None = None) -> Spec:
    """The specification that the bytes of a file spell."""
    document = Document.of(data, str(path), variables or {})
    file = document.record(SpecFile, read_path)
    base = path.parent
    _check_data(document, file.data)
    privacy = _privacy(document, file.privacy)
    declared = _domain(document, file.domain, base)
    domain, tables = _tables(document, file, declared)
    if file.plan.objective is not None and any(table.margin is not None for table in tables):
        raise document.error(
            ("plan", "objective"),
            "Tables have margins, and these are what the plan aims at. Leave out the objective, or every margin.",
        )
    plan = file.plan.folder if file.plan.folder.name else Path(f"{path.stem}.plan")
    return Spec(
        path=path,
        digest=hashlib.sha256(data).hexdigest(),
        title=file.title or file.data.dataset,
        data=file.data,
        domain=domain,
        tables=tables,
        privacy=privacy,
        unit=Unit(rows=file.data.max_rows_per_id or 1, neighbours=file.data.neighbours),
        ledger=_ledger(document, file.ledger, base, privacy),
        output=replace(file.output, folder=base / file.output.folder),
        plan=replace(file.plan, folder=base / plan),
        impossible=tuple(file.impossible),
        known=known_tables(document, file.known, base, declared, domain),
        variables=tuple((variables or {}).items()),
    )


def _check_data(document: Document, data: DataPart) -> None:
    if data.id is None and data.max_rows_per_id is not None:
        raise document.error(
            ("data", "max_rows_per_id"), "This key needs id, the column that says whose row it is. Add id."
        )
    if data.id is not None and data.max_rows_per_id is None:
        raise document.error(
            ("data", "id"), "This key needs max_rows_per_id, the most rows of one person that are counted. Add it."
        )
    name = data.dataset
    if not name.isprintable() or name != unicodedata.normalize("NFC", name.strip()) or len(name) > 500:
        raise document.error(
            ("data", "dataset"), "A dataset's name is one printable line in Unicode NFC without spaces at its ends."
        )


def _domain(document: Document, given: dict[str, int | list[SpecLabel] | ValuesKeys], base: Path) -> Domain:
    declared: dict[str, Declaration] = {}
    for name, value in given.items():
        with document.locating("domain", name):
            declared[name] = _declared(document, name, value, base) if isinstance(value, ValuesKeys) else value
            Domain({name: declared[name]})
    with document.locating("domain"):
        return Domain(declared)


def _declared(document: Document, name: str, keys: ValuesKeys, base: Path) -> Values:
    """The values that keys declare. Without labels, a file of levels says what the values are."""
    given = keys.levels if isinstance(keys.levels, dict) else {}
    lookup = base / keys.levels if isinstance(keys.levels, str) else None
    match keys:
        case ValuesKeys(labels=list(labels), bins=None, values=None, first=None, last=None, step=None):
            values = Labels(labels, outside=keys.outside, levels=given)
        case ValuesKeys(labels=None, bins=list(bins), first=None, last=None, step=None):
            values = Bins(bins, outside=keys.outside, values=keys.values, levels=given)
        case ValuesKeys(labels=None, bins=None, values=None, first=int(first), last=int(last)):
            values = Integers(first, last, step=keys.step or 1, outside=keys.outside, levels=given)
        case ValuesKeys(labels=None, bins=None, values=None, first=None, last=None, step=None) if lookup is not None:
            labels, levels = read_lookup(lookup, None)
            return Labels(labels, outside=keys.outside, levels=levels)
        case _:
            raise document.error(
                ("domain", name), "Give one of labels, bins, or first and last, such as { first = 0, last = 114 }."
            )
    return values if lookup is None else values.with_levels(read_lookup(lookup, values)[1])


def _tables(document: Document, file: SpecFile, declared: Domain) -> tuple[Domain, tuple[TableRequest, ...]]:
    """The tables, and the domain they are over: with attributes merged if SQL joins them by OR."""
    found, impossible = file.table, file.impossible
    for i, text in enumerate(impossible):
        with document.locating("impossible", i):
            possible(columns(declared), [text])
    with document.locating("impossible"):
        possible(columns(declared), impossible)
    names: dict[str, str] = {}
    for i, keys in enumerate(found):
        if (keys.sql is not None) == (keys.marginals is not None or keys.ranges is not None or is_measured(keys)):
            raise document.error(
                ("table", i, "name"),
                f"Table {keys.name!r} needs sql, or else marginals or ranges or both, or sum, mean or quantiles.",
            )
        if keys.name.casefold() in names:
            raise document.error(
                ("table", i, "name"),
                f"Another table is named {names[keys.name.casefold()]!r}, so their files would collide. Rename one.",
            )
        names[keys.name.casefold()] = keys.name
    asked = {i: keys.sql for i, keys in enumerate(found) if keys.sql is not None}
    for i, keys in enumerate(found):
        if keys.sql is None and (is_measured(keys) or keys.percent is not None):
            asked[i] = measured_sql(document, i, keys, declared)
        elif keys.sql is None and impossible:
            asked[i] = _as_sql(document, i, keys, declared)
    parsed = {i: _statement(document, i, sql, declared, found[i], impossible) for i, sql in asked.items()}
    texts = {i: each.text for i, each in parsed.items() if found[i].sql is not None or impossible}
    domain = _merged(document, declared, texts, file)
    if domain != declared:
        parsed = {i: _statement(document, i, sql, domain, found[i], impossible) for i, sql in asked.items()}
    groups = [_requests(document, i, keys, parsed.get(i), declared, domain) for i, keys in enumerate(found)]
    rows = [sum(table.rows for table in group) for group in groups]
    if sum(rows) > MOST_ROWS:
        raise document.error(
            ("table", int(np.argmax(rows)), "name"),
            f"All tables together have {sum(rows):,} rows, and this one has {max(rows):,}; the limit is "
            f"{MOST_ROWS:,}. Ask for fewer counts.",
        )
    return domain, _named_apart(groups, names)


def _merged(document: Document, declared: Domain, texts: dict[int, str], file: SpecFile) -> Domain:
    """The domain with attributes merged; as declared if a table asks for ranges of one of them."""
    ranged = {name for keys in file.table for name in keys.ranges or ()}
    written = {i: text for i, text in texts.items() if file.table[i].sql is not None}
    shorthand = ["\n;\n".join(text for i, text in texts.items() if i not in written)]
    whole = ["\n;\n".join(written.values()), *shorthand]
    try:
        domain = merged_domain(declared, *filter(None, whole), impossible=file.impossible)
    except SqlError as wrong:  # each statement is valid by itself, but this one does not fit those before it
        ends = accumulate(text.count("\n") + 2 for text in written.values())
        i = next(i for i, end in zip(written, ends, strict=True) if wrong.line <= end)
        raise document.error(("table", i, "sql"), str(wrong)) from None
    return declared if ranged & set(declared.names) - set(domain.names) else domain


def _as_sql(document: Document, i: int, keys: TableKeys, declared: Domain) -> str:
    """Marginals as SQL, which leaves out what is impossible."""
    if keys.ranges:
        raise document.error(
            ("table", i, "ranges"), "Ranges are not counted where cells are impossible. Write sql, or leave out ranges."
        )
    with document.locating("table", i, "marginals"):
        asked = subsets(declared, _marginals(document, i, keys.marginals or 0))
    quoted = {name: '"{}"'.format(name.replace('"', '""')) for names in asked for name in names}
    sets = ", ".join(f"({', '.join(quoted[name] for name in names)})" for names in asked)
    shown = "".join(f"{name}, " for name in quoted.values())
    by = [f"GROUP BY GROUPING SETS ({sets})"] if quoted else []
    return " ".join(["SELECT", f"{shown}COUNT(*)", "FROM t", *by])


def _statement(
    document: Document, i: int, sql: str, domain: Domain, keys: TableKeys, impossible: Sequence[str]
) -> Statement:
    with document.locating("table", i, "sql" if keys.sql is not None else "name"):
        found = parse(domain, sql, impossible=impossible)
    if keys.percent is not None:
        with document.locating("table", i, "percent"):
            found = parse(domain, sql, impossible=impossible, percent=keys.percent)
    if len(found) != 1:
        raise document.error(
            ("table", i, "sql"),
            f"There are {len(found)} statements; one per table is expected. Use UNION ALL, or several tables.",
        )
    return found[0]


def _requests(
    document: Document, i: int, keys: TableKeys, parsed: Statement | None, declared: Domain, domain: Domain
) -> list[TableRequest]:
    """The tables that one [[table]] asks for: one, or one per set of attributes."""
    weight = keys.weight
    if parsed is not None:
        with document.locating("table", i, "sql"):
            weight = check_weight(weight * parsed.weight)
        if weight == 0:
            raise document.error(
                ("table", i, "sql"), "A table of weight 0 would have no answers. Give it some weight, or leave it out."
            )
    counts = [parsed] if parsed is not None else _shorthand(document, i, keys, declared, domain)
    if keys.margin is not None and not all(each.linear for each in counts):
        raise document.error(("table", i, "margin"), NO_MARGIN)
    title = keys.title or keys.name
    title = title if keys.percent is None else f"{title}, in percent of the {keys.percent}"
    rest = (keys.margin, keys.expected)
    if len(counts) == 1:
        return [TableRequest(keys.name, keys.name, title, weight, counts[0], *rest)]
    return [
        TableRequest(
            part_name(keys.name, each.columns),
            keys.name,
            f"{title}: {' × '.join(each.columns) or 'total'}",
            weight,
            each,
            *rest,
        )
        for each in counts
    ]


def _shorthand(document: Document, i: int, keys: TableKeys, declared: Domain, domain: Domain) -> tuple[Shorthand, ...]:
    ranges = keys.ranges or []
    with document.locating("table", i, "ranges"):
        declared.named(ranges, "in ranges")
    with document.locating("table", i, "marginals"):
        asked = subsets(declared, [ranges] if keys.marginals is None else _marginals(document, i, keys.marginals))
    if len(asked) > MOST_TABLES:
        raise document.error(
            ("table", i, "marginals"),
            f"These are {len(asked):,} tables, each with files of its own; the limit is {MOST_TABLES:,}. List the sets "
            'of attributes that matter, such as [["sex", "age"], ["sex", "race"]].',
        )
    with document.locating("table", i, "ranges" if ranges else "marginals"):
        return Shorthand.each(domain, asked, ranges=ranges)


def part_name(name: str, columns: Sequence[str]) -> str:
    """The name of one table of several: letters, digits, - and _ only, and at most 128 of them.

    >>> part_name("pairs", ("sex", "marital status")), part_name("pairs", ())
    ('pairs_sex_marital-status', 'pairs_total')
    """
    words = [re.sub(r"[^A-Za-z0-9_-]+", "-", column) for column in columns]
    return f"{name}_{'_'.join(words) or 'total'}"[:128]


def _named_apart(groups: Sequence[Sequence[TableRequest]], taken: Iterable[str]) -> tuple[TableRequest, ...]:
    """The tables, with a number added to names that are taken; the names of [[table]]s are, whatever their case."""
    used = set(taken)
    found: list[TableRequest] = []
    for group in groups:
        for table in group:
            name = table.name
            for k in count(2):
                if len(group) == 1 or name.casefold() not in used:
                    break
                name = f"{table.name}_{k}"
            used.add(name.casefold())
            found.append(table if name == table.name else dataclasses.replace(table, name=name))
    return tuple(found)


def _marginals(document: Document, i: int, given: int | list[int | list[str]]) -> int | list[int] | list[list[str]]:
    """How many attributes, several such numbers, or lists of attributes."""
    if isinstance(given, list) and len({type(each) for each in given}) != 1:
        raise document.error(
            ("table", i, "marginals"),
            'Give numbers of attributes or lists of them: 2, [1, 2] or [["sex", "age"]].',
        )
    return cast(int | list[int] | list[list[str]], given)


def _privacy(document: Document, keys: PrivacyKeys) -> Privacy:
    given = [key for key in ("epsilon", "rho") if getattr(keys, key) is not None]
    with document.locating("privacy", *given[:1]):
        return guarantee(keys.epsilon, keys.delta, keys.rho)


def _ledger(document: Document, ledger: LedgerKeys, base: Path, privacy: Privacy) -> LedgerPart:
    with document.locating("ledger", "cap"):
        if (ledger.cap.epsilon is None) == (ledger.cap.rho is None):
            raise PrivacyError('Give one of epsilon and rho, such as { epsilon = "4" }.')
        cap = ZCDP(ledger.cap.rho) if ledger.cap.rho is not None else PureDP(cast(Exact, ledger.cap.epsilon))
        if isinstance(cap, PureDP) and not isinstance(privacy, PureDP):
            raise PrivacyError("The cap is in epsilon, but this privacy spends rho. Declare the cap in rho.")
    return LedgerPart(base / ledger.path, cap)
