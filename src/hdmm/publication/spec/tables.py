"""[[table]]s → TableRequests, one per set of attributes, and the domain they are over."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, count
from typing import cast

import numpy as np

from hdmm.base.exceptions import SqlError
from hdmm.base.hints import did_you_mean
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import check_weight
from hdmm.publication.spec.document import Document
from hdmm.publication.spec.keys import SpecFile, TableKeys
from hdmm.publication.spec.measures import is_measured, measured_sql
from hdmm.publication.spec.model import NO_MARGIN, TableRequest
from hdmm.publication.spec.shorthand import Shorthand, ranged, subsets
from hdmm.sql import Statement, merged_domain, parse
from hdmm.sql.comparisons import columns
from hdmm.sql.impossible import possible

MOST_TABLES = 10_000  # that one [[table]] may ask for
MOST_ROWS = 2**25  # of all tables together, because they are written out twice


def table_requests(document: Document, file: SpecFile, declared: Domain) -> tuple[Domain, tuple[TableRequest, ...]]:
    """The tables, and the domain they are over: with attributes merged if SQL joins them by OR."""
    for i, text in enumerate(file.impossible):
        with document.locating("impossible", i):
            possible(columns(declared), [text])
    with document.locating("impossible"):
        possible(columns(declared), file.impossible)
    names = _names(document, file.table)
    sets = [_sets(document, i, keys, declared) for i, keys in enumerate(file.table)]
    texts = {i: found for i, each in enumerate(sets) if (found := _texts(document, i, file, each, declared))}
    parsed = _parsed(document, file, texts, declared)
    domain = _merged(document, declared, parsed, file)
    if domain != declared:
        parsed = _parsed(document, file, texts, domain)
    groups = [
        _requests(document, i, keys, sets[i], parsed.get(i, ()), domain, file.output.columns)
        for i, keys in enumerate(file.table)
    ]
    _check_headings(document, file, groups)
    rows = [sum(table.rows for table in group) for group in groups]
    if sum(rows) > MOST_ROWS:
        raise document.error(
            ("table", int(np.argmax(rows)), "name"),
            f"All tables together have {sum(rows):,} rows, and this one has {max(rows):,}; the limit is "
            f"{MOST_ROWS:,}. Ask for fewer counts.",
        )
    return domain, _named_apart(groups, names)


def _names(document: Document, tables: Sequence[TableKeys]) -> set[str]:
    """The names of the [[table]]s, whatever their case; each asks for something in one of the ways there are."""
    names: dict[str, str] = {}
    for i, keys in enumerate(tables):
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
    return set(names)


def _sets(document: Document, i: int, keys: TableKeys, declared: Domain) -> list[tuple[str, ...]]:
    """The sets of columns that a table without SQL is by, each as it is listed."""
    if keys.sql is not None:
        return []
    with document.locating("table", i, "ranges"):
        declared.named(keys.ranges or [], "in ranges")
    if isinstance(keys.marginals, list) and len({type(each) for each in keys.marginals}) != 1:
        raise document.error(
            ("table", i, "marginals"),
            'Give numbers of attributes or lists of them: 2, [1, 2] or [["sex", "age"]].',
        )
    with document.locating("table", i, "marginals"):
        asked = [keys.ranges or []] if keys.marginals is None else keys.marginals
        found = subsets(declared, cast(int | list[int] | list[list[str]], asked))
    if len(found) > MOST_TABLES:
        raise document.error(
            ("table", i, "marginals"),
            f"These are {len(found):,} tables, each with files of its own; the limit is {MOST_TABLES:,}. List the sets "
            'of attributes that matter, such as [["sex", "age"], ["sex", "race"]].',
        )
    return found


def _texts(
    document: Document, i: int, file: SpecFile, sets: Sequence[tuple[str, ...]], declared: Domain
) -> tuple[str, ...]:
    """The SQL of a table, as it was written or as its keys stand for; none if its sets are counted as they are."""
    keys = file.table[i]
    if keys.sql is not None:
        return (keys.sql,)
    if not is_measured(keys) and keys.percent is None and not file.impossible:
        return ()
    return tuple(measured_sql(document, i, keys, declared, by) for by in sets)


def _parsed(
    document: Document, file: SpecFile, texts: dict[int, tuple[str, ...]], domain: Domain
) -> dict[int, tuple[Statement, ...]]:
    return {
        i: tuple(_statement(document, i, sql, domain, file.table[i], file.impossible) for sql in each)
        for i, each in texts.items()
    }


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


def _merged(document: Document, declared: Domain, parsed: dict[int, tuple[Statement, ...]], file: SpecFile) -> Domain:
    """The domain with attributes merged; as declared if a table asks for ranges of one of them."""
    ranged = {name for keys in file.table for name in keys.ranges or ()}
    written = {i: each[0].text for i, each in parsed.items() if file.table[i].sql is not None}
    made = [one.text for i, each in parsed.items() if i not in written for one in each] if file.impossible else []
    try:
        whole = "\n;\n".join(written.values())  # together, because they must name the same table
        domain = merged_domain(declared, *filter(None, [whole, *made]), impossible=file.impossible)
    except SqlError as wrong:  # each statement is valid by itself, but this one does not fit those before it
        ends = accumulate(text.count("\n") + 2 for text in written.values())
        i = next(i for i, end in zip(written, ends, strict=True) if wrong.line <= end)
        raise document.error(("table", i, "sql"), str(wrong)) from None
    return declared if ranged & set(declared.names) - set(domain.names) else domain


def _requests(
    document: Document,
    i: int,
    keys: TableKeys,
    sets: Sequence[tuple[str, ...]],
    parsed: Sequence[Statement],
    domain: Domain,
    named: Mapping[str, str],
) -> list[TableRequest]:
    """The tables that one [[table]] asks for: one, or one per set of columns."""
    weight = keys.weight
    if keys.sql is not None:
        with document.locating("table", i, "sql"):
            weight = check_weight(weight * parsed[0].weight)
        if weight == 0:
            raise document.error(
                ("table", i, "sql"), "A table of weight 0 would have no answers. Give it some weight, or leave it out."
            )
    counts: Sequence[Statement | Shorthand] = parsed
    if keys.ranges or not parsed:
        with document.locating("table", i, "ranges" if keys.ranges else "marginals"):
            plain = Shorthand.each(domain, sets, ranges=keys.ranges or [])
            counts = [ranged(*pair) for pair in zip(plain, parsed, strict=True)] if parsed else plain
    if keys.margin is not None and not all(each.linear for each in counts):
        raise document.error(("table", i, "margin"), NO_MARGIN)
    title = keys.title or keys.name
    title = title if keys.percent is None else f"{title}, in percent of the {keys.percent}"
    rest = (keys.margin, keys.expected)
    headings = {**named, **keys.columns}
    found: list[TableRequest] = []
    for each, by in zip(counts, sets if len(counts) > 1 else [()], strict=True):
        name, whole = keys.name, title
        if len(counts) > 1:
            labels = each.columns if isinstance(each, Shorthand) else by
            name = part_name(keys.name, labels)
            whole = f"{title}: {' × '.join(heading(label, headings) for label in labels) or 'total'}"
        found.append(TableRequest(name, keys.name, whole, weight, each, *rest, headings, keys.note))
    return found


def heading(column: str, headings: Mapping[str, str]) -> str:
    """What readers see above a column: its heading, that of its attribute for the ends of a range, or its name.

    >>> heading("sex", {"sex": "Sex"}), heading("age_from", {"age": "Age"}), heading("state", {})
    ('Sex', 'Age from', 'state')
    """
    base, _, end = column.rpartition("_")
    if column not in headings and end in ("from", "to") and base in headings:
        return f"{headings[base]} {end}"
    return headings.get(column, column)


def _check_headings(document: Document, file: SpecFile, groups: Sequence[Sequence[TableRequest]]) -> None:
    """Refuse a heading for a column that is not there."""
    every: dict[str, None] = {}
    for i, (keys, group) in enumerate(zip(file.table, groups, strict=True)):
        own = _headed(group)
        every |= own
        _refuse_unknown(document, ("table", i, "columns"), keys.columns, own, f"in table {keys.name!r}")
    _refuse_unknown(document, ("output", "columns"), file.output.columns, every, "in any table")


def _headed(group: Sequence[TableRequest]) -> dict[str, None]:
    """The columns of tables, and the attributes whose ranges have two."""
    columns = dict.fromkeys(column for table in group for column in table.columns)
    ranged = [name.removesuffix("_from") for name in columns if name.endswith("_from")]
    return columns | dict.fromkeys(name for name in ranged if f"{name}_to" in columns)


def _refuse_unknown(
    document: Document, key: tuple[str | int, ...], given: Iterable[str], known: Iterable[str], where: str
) -> None:
    for name in given:
        if name not in known:
            raise document.error(
                (*key, name),
                f"There is no column {name!r} {where}; there are {', '.join(known) or 'none'}. Name one of these."
                f"{did_you_mean(name, known)}",
            )


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
