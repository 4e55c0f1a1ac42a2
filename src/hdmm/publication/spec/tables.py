"""[[table]]s → TableQueries, one per set of columns, and the domain they are over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import cast, final

from hdmm.base.exceptions import SpecError, WorkloadError
from hdmm.base.hints import did_you_mean
from hdmm.describe.attribute import Attribute, columns, naming
from hdmm.describe.domain import Domain
from hdmm.describe.predicates import check_weight
from hdmm.describe.table_query import TableQuery
from hdmm.publication.spec.document import Document
from hdmm.publication.spec.keys import SpecFile, TableKeys
from hdmm.publication.spec.public_csv import read_expected
from hdmm.sql.conditions import ParsedCondition, SqlDomain, impossible_conditions
from hdmm.sql.marginals import marginal_tables, subsets
from hdmm.sql.selection import source_table
from hdmm.sql.statement import BoundStatement, merged_for
from hdmm.sql.syntax import ParsedStatement, statements
from hdmm.sql.text import SqlText, quantile_sql, quoted, select_sql

MOST_TABLES = 10_000  # that one [[table]] may ask for
MOST_ROWS = 2**25  # of all tables together, because they are written out twice
_QUARTILES = (0.25, 0.5, 0.75)


def table_queries(
    document: Document, file: SpecFile, base: Path, declared: Domain
) -> tuple[Domain, tuple[TableQuery, ...]]:
    """The tables, and the domain they are over: with attributes merged if SQL joins them by OR."""
    over, impossible = _over(document, file, declared)
    names = _names(document, file.table)
    parts = [_TablePart.of(document, base, i, over, keys) for i, keys in enumerate(file.table)]
    _check_source(parts)
    bound = [part.bound(over) for part in parts]
    domain = _merged(parts, bound, over, impossible)
    if domain != declared:
        over = SqlDomain.of(domain, impossible)
        bound = [part.bound(over) for part in parts]
    untitled = [part.tables(domain, each) for part, each in zip(parts, bound, strict=True)]
    _check_headings(document, file, untitled)
    groups = [part.titled(tables, file.output.columns) for part, tables in zip(parts, untitled, strict=True)]
    rows = [sum(table.rows for table in group) for group in groups]
    if sum(rows) > MOST_ROWS:
        raise document.error(
            ("table", rows.index(max(rows)), "name"),
            f"All tables together have {sum(rows):,} rows, and this one has {max(rows):,}; the limit is "
            f"{MOST_ROWS:,}. Ask for fewer counts.",
        )
    return domain, _named_apart(groups, names)


def _over(document: Document, file: SpecFile, declared: Domain) -> tuple[SqlDomain, tuple[ParsedCondition, ...]]:
    """The declared domain as SQL sees it, and the conditions that no record fulfils."""
    impossible: list[ParsedCondition] = []
    names = columns(declared.attributes)
    for i, text in enumerate(file.impossible):
        with document.locating("impossible", i):
            impossible += impossible_conditions([text], names)
            SqlDomain.of(declared, impossible[-1:])
    with document.locating("impossible"):
        return SqlDomain.of(declared, impossible), tuple(impossible)


def _names(document: Document, tables: Sequence[TableKeys]) -> set[str]:
    """The names of the [[table]]s, whatever their case; each asks for something in one of the ways there are."""
    names: dict[str, str] = {}
    for i, keys in enumerate(tables):
        if (keys.sql is not None) == (keys.marginals is not None or keys.ranges is not None or _is_measured(keys)):
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


def _is_measured(keys: TableKeys) -> bool:
    """Whether a table asks for something else than counts."""
    return keys.sum is not None or keys.mean is not None or keys.quantiles is not None


@final
@dataclass(frozen=True, slots=True)
class _TablePart:
    """One [[table]]: its place in the file, the sets of columns that it is by, and its SQL, parsed.

    The SQL is that of the file, or what other keys mean. There is none if the sets are counted as they are.
    """

    document: Document
    base: Path  # of paths in the file
    place: tuple[str, int]
    keys: TableKeys
    sets: Sequence[tuple[str, ...]]
    statements: tuple[ParsedStatement, ...]

    @classmethod
    def of(cls, document: Document, base: Path, i: int, over: SqlDomain, keys: TableKeys) -> _TablePart:
        """The i-th [[table]], checked against the declared domain."""
        part = cls(document, base, ("table", i), keys, (), ())
        part = replace(part, sets=part._sets(over.domain))
        texts: list[str] = []
        if keys.sql is not None:
            texts = [keys.sql]
        elif _is_measured(keys) or keys.percent is not None or over.possible is not True:
            aggregates = part._aggregates(over.domain)
            texts = [select_sql(by, aggregates) for by in part.sets]
        return replace(part, statements=tuple(part._parsed(text, over) for text in texts))

    @property
    def written(self) -> bool:
        """Whether the file has the SQL."""
        return self.keys.sql is not None

    def bound(self, over: SqlDomain) -> tuple[BoundStatement, ...]:
        """The statements over a domain."""
        with self._locating("sql" if self.written else "name"):
            return tuple(BoundStatement.of(over, each) for each in self.statements)

    def tables(self, domain: Domain, bound: Sequence[BoundStatement]) -> list[TableQuery]:
        """The tables that are asked for: one, or one per set of columns."""
        keys = self.keys
        if keys.ranges or not bound:
            with self._locating("ranges" if keys.ranges else "marginals"):
                return marginal_tables(domain, self.sets, ranges=keys.ranges or (), possible=bound)
        with self._locating("percent"):
            return [each.table(keys.percent) for each in bound]

    def titled(self, tables: Sequence[TableQuery], headings: Mapping[str, str]) -> list[TableQuery]:
        """The tables with what the keys say of them."""
        keys = self.keys
        suffix = "" if keys.percent is None else f", in percent of the {keys.percent}"
        title = (keys.title or keys.name) + suffix
        titles = self._titles(len(tables))
        headings = {**headings, **keys.columns}
        found: list[TableQuery] = []
        sets = self.sets if len(tables) > 1 else [()]
        for table, by, own in zip(tables, sets, titles, strict=True):
            name, whole, columns = keys.name, title, tuple(column.titled(headings) for column in table.label_columns)
            if len(tables) > 1:
                shown = columns if table.text is None else columns[: len(by)]
                name = part_name(keys.name, [column.name for column in shown])
                whole = f"{title}: {' × '.join(column.head for column in shown) or 'total'}"
            whole = whole if own is None else own + suffix
            made = replace(
                table,
                name=name,
                label_columns=columns,
                group=keys.name,
                title=whole,
                weight=self._weight(table),
                note=keys.note,
            )
            with self._locating("expected"):
                made = self._expecting(made)
            with self._locating("margin"):
                found.append(made.aimed(keys.margin))
        return found

    def _expecting(self, table: TableQuery) -> TableQuery:
        """A table with what is expected of it: one typical count, or one of each row."""
        given = self.keys.expected
        if given is None:
            return table
        return table.expecting(read_expected(self.base / given, table) if isinstance(given, str) else given)

    def _titles(self, tables: int) -> Sequence[str | None]:
        """The titles of each set of marginals, if there are some."""
        titles = self.keys.titles
        if titles is None:
            return [None] * tables
        sets = self.keys.marginals
        if not isinstance(sets, list) or not all(isinstance(each, list) for each in sets) or len(titles) != tables:
            raise self._error(
                "titles",
                f"There are {len(titles)} titles, and {tables} tables. List sets in marginals, and a title of each.",
            )
        return titles

    def _weight(self, table: TableQuery) -> float:
        if not self.written:
            return self.keys.weight
        with self._locating("sql"):
            weight = check_weight(self.keys.weight * table.weight)
        if weight == 0:
            raise self._error("sql", "A table of weight 0 would have no answers. Give it some weight, or leave it out.")
        return weight

    def _sets(self, declared: Domain) -> list[tuple[str, ...]]:
        """The sets of columns that a table without SQL is by, each as it is listed."""
        keys = self.keys
        if self.written:
            return []
        with self._locating("ranges"):
            declared.named(keys.ranges or [], "in ranges")
        if isinstance(keys.marginals, list) and len({type(each) for each in keys.marginals}) != 1:
            raise self._error(
                "marginals", 'Give numbers of attributes or lists of them: 2, [1, 2] or [["sex", "age"]].'
            )
        with self._locating("marginals"):
            marginals = [keys.ranges or []] if keys.marginals is None else keys.marginals
            found = subsets(declared, cast(int | list[int] | list[list[str]], marginals))
        if len(found) > MOST_TABLES:
            raise self._error(
                "marginals",
                f"These are {len(found):,} tables, each with files of its own; the limit is {MOST_TABLES:,}. List the "
                'sets of attributes that matter, such as [["sex", "age"], ["sex", "race"]].',
            )
        return found

    def _aggregates(self, domain: Domain) -> list[str]:
        """What the keys of a table without SQL ask for in each group, as SQL has it."""
        keys = self.keys
        if keys.ranges and (_is_measured(keys) or keys.percent is not None):
            raise self._error(
                "ranges",
                "Ranges overlap, so they have no totals, means or quantiles. Leave ranges out, or use another table.",
            )
        if _is_measured(keys) and keys.percent is not None:
            raise self._error("percent", "Percentages are of counts. Leave out sum, mean and quantiles.")
        found: list[str] = []
        for key, function, names in (("sum", "SUM", keys.sum), ("mean", "AVG", keys.mean)):
            for attribute in self._named(key, names or (), domain):
                with self._locating(key), naming(attribute.name):
                    attribute.values.number(0)  # raises if there are none
                found.append(f"{function}({quoted(attribute.name)}) AS {quoted(f'{key} of {attribute.name}')}")
        given = keys.quantiles if isinstance(keys.quantiles, dict) else dict.fromkeys(keys.quantiles or (), _QUARTILES)
        for attribute in self._named("quantiles", list(given), domain):
            with self._locating("quantiles"):
                found += quantile_sql(attribute, given[attribute.name], f"of {attribute.name}")
        return found or ["COUNT(*)"]

    def _named(self, key: str, given: str | Sequence[str], domain: Domain) -> list[Attribute]:
        names = [given] if isinstance(given, str) else list(given)
        with self._locating(key):
            if len(set(names)) < len(names):
                raise WorkloadError("An attribute is named twice. Name each once.")
            return list(domain.named(names, f"in {key}"))

    def _parsed(self, text: str, over: SqlDomain) -> ParsedStatement:
        with self._locating("sql" if self.written else "name"):
            found = statements(SqlText(text), names=over.columns)
        if len(found) != 1:
            raise self._error(
                "sql",
                f"There are {len(found)} statements; one per table is expected. Use UNION ALL, or several tables.",
            )
        return found[0]

    def _locating(self, key: str) -> AbstractContextManager[None]:
        return self.document.locating(*self.place, key)

    def _error(self, key: str, message: str) -> SpecError:
        return self.document.error((*self.place, key), message)


def _check_source(parts: Sequence[_TablePart]) -> None:
    """Refuse SQL that reads from another table than the SQL before it."""
    table = None
    for part in parts:
        if part.written:
            with part.document.locating(*part.place, "sql"):
                table = source_table(part.statements[0], table)


def _merged(
    parts: Sequence[_TablePart],
    bound: Sequence[Sequence[BoundStatement]],
    over: SqlDomain,
    impossible: Sequence[ParsedCondition],
) -> Domain:
    """The domain with attributes merged; as declared if a table asks for ranges of one of them."""
    declared = over.domain
    pairs = list(zip(parts, bound, strict=True))
    joining = [each for part, held in pairs if part.written for each in held]
    joining += [each for part, held in pairs if not part.written and impossible for each in held]
    domain = merged_for(joining, impossible) if joining else declared
    ranged = {name for part in parts for name in part.keys.ranges or ()}
    return declared if ranged & set(declared.names) - set(domain.names) else domain


def _check_headings(document: Document, file: SpecFile, groups: Sequence[Sequence[TableQuery]]) -> None:
    """Refuse a heading for a column that is not there."""
    every: dict[str, None] = {}
    for i, (keys, group) in enumerate(zip(file.table, groups, strict=True)):
        own = _headed(group)
        every |= own
        _refuse_unknown(document, ("table", i, "columns"), keys.columns, own, f"in table {keys.name!r}")
    _refuse_unknown(document, ("output", "columns"), file.output.columns, every, "in any table")


def _headed(group: Sequence[TableQuery]) -> dict[str, None]:
    """The columns of tables, and the attributes whose ranges have two."""
    columns = [column for table in group for column in table.label_columns]
    return dict.fromkeys(
        [*(column.name for column in columns), *(column.ranged for column in columns if column.ranged)]
    )


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


def _named_apart(groups: Sequence[Sequence[TableQuery]], taken: Iterable[str]) -> tuple[TableQuery, ...]:
    """The tables, with a number added to names that are taken; the names of [[table]]s are, whatever their case."""
    used = set(taken)
    found: list[TableQuery] = []
    for group in groups:
        for table in group:
            name = table.name
            for k in count(2):
                if len(group) == 1 or name.casefold() not in used:
                    break
                name = f"{table.name}_{k}"
            used.add(name.casefold())
            found.append(table if name == table.name else replace(table, name=name))
    return tuple(found)
