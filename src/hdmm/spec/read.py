"""TOML text → Spec: what the records say, checked by the values they become. docs/spec.md describes the keys."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
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
from hdmm.spec.model import LedgerPart, Spec, TableRequest
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
from hdmm.values import Bins, Integers, Labels

MOST_TABLES = 10_000  # that one [[table]] may ask for
MOST_ROWS = 2**25  # of all tables together, because they are written out twice


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
            data = file.read(MOST_SPEC_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no path"
        raise SpecError(
            f"The file cannot be read ({reason}). Check the path, or create a file with hdmm init.",
            file=str(path),
            line=1,
            key="",
        ) from None
    return read_spec(data, place)


def read_spec(data: bytes, path: Path) -> Spec:
    """The specification that the bytes of a file spell."""
    document = Document.of(data, str(path))
    file = document.record(SpecFile, read_path)
    base = path.parent
    _check_data(document, file.data)
    privacy = _privacy(document, file.privacy)
    domain, tables = _tables(document, file.table, _domain(document, file.domain))
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


def _domain(document: Document, given: dict[str, int | list[SpecLabel] | ValuesKeys]) -> Domain:
    declared: dict[str, Declaration] = {}
    for name, value in given.items():
        with document.locating("domain", name):
            declared[name] = _declared(document, name, value) if isinstance(value, ValuesKeys) else value
            Domain({name: declared[name]})
    with document.locating("domain"):
        return Domain(declared)


def _declared(document: Document, name: str, keys: ValuesKeys) -> Declaration:
    match keys:
        case ValuesKeys(labels=list(labels), bins=None, first=None, last=None, step=None):
            return Labels(labels, outside=keys.outside)
        case ValuesKeys(labels=None, bins=list(bins), first=None, last=None, step=None):
            return Bins(bins, outside=keys.outside)
        case ValuesKeys(labels=None, bins=None, first=int(first), last=int(last)):
            return Integers(first, last, step=keys.step or 1, outside=keys.outside)
        case _:
            raise document.error(
                ("domain", name), "Give one of labels, bins, or first and last, such as { first = 0, last = 114 }."
            )


def _tables(
    document: Document, found: Sequence[TableKeys], declared: Domain
) -> tuple[Domain, tuple[TableRequest, ...]]:
    """The tables, and the domain they are over: with attributes merged if SQL joins them by OR."""
    names: dict[str, str] = {}
    for i, keys in enumerate(found):
        if (keys.sql is not None) == (keys.marginals is not None or keys.ranges is not None):
            raise document.error(
                ("table", i, "name"), f"Table {keys.name!r} needs sql, or else marginals or ranges or both."
            )
        if keys.name.casefold() in names:
            raise document.error(
                ("table", i, "name"),
                f"Another table is named {names[keys.name.casefold()]!r}, so their files would collide. Rename one.",
            )
        names[keys.name.casefold()] = keys.name
    asked = {i: keys.sql for i, keys in enumerate(found) if keys.sql is not None}
    parsed = {i: _statement(document, i, sql, declared) for i, sql in asked.items()}
    domain = _merged(document, declared, {i: each.text for i, each in parsed.items()}, found)
    if domain != declared:
        parsed = {i: _statement(document, i, sql, domain) for i, sql in asked.items()}
    groups = [_requests(document, i, keys, parsed.get(i), declared, domain) for i, keys in enumerate(found)]
    rows = [sum(table.rows for table in group) for group in groups]
    if sum(rows) > MOST_ROWS:
        raise document.error(
            ("table", int(np.argmax(rows)), "name"),
            f"All tables together have {sum(rows):,} rows, and this one has {max(rows):,}; the limit is "
            f"{MOST_ROWS:,}. Ask for fewer counts.",
        )
    return domain, _named_apart(groups, names)


def _merged(document: Document, declared: Domain, texts: dict[int, str], found: Sequence[TableKeys]) -> Domain:
    """The domain with attributes merged; as declared if a table asks for ranges of one of them."""
    ranged = {name for keys in found for name in keys.ranges or ()}
    try:
        domain = merged_domain(declared, "\n;\n".join(texts.values())) if texts else declared
    except SqlError as wrong:  # each statement is valid by itself, but this one does not fit those before it
        ends = accumulate(text.count("\n") + 2 for text in texts.values())
        i = next(i for i, end in zip(texts, ends, strict=True) if wrong.line <= end)
        raise document.error(("table", i, "sql"), str(wrong)) from None
    return declared if ranged & set(declared.names) - set(domain.names) else domain


def _statement(document: Document, i: int, sql: str, domain: Domain) -> Statement:
    with document.locating("table", i, "sql"):
        found = parse(domain, sql)
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
    title = keys.title or keys.name
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
