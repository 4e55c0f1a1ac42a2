"""One SELECT: its columns, its group expressions, and the grouping sets that GROUP BY stands for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import final

from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.describe.attribute import Column
from hdmm.describe.entries import Label
from hdmm.describe.values import Values
from hdmm.sql.conditions import Scope, constant, is_constant
from hdmm.sql.groups import EXPRESSIONS, as_label
from hdmm.sql.syntax import ParsedStatement
from hdmm.sql.text import SUPPORTED, SqlText

MOST_SETS = 2**12
COUNT = "count"


@final
@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the table other than the count: one of the group keys, or the same label in every row."""

    header: str
    key: int | None
    label: Label | None = None


@final
@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """A column of numbers: COUNT(*), SUM, AVG, MEDIAN or QUANTILE, and its place in the SELECT."""

    header: str
    node: exp.Count | exp.Sum | exp.Avg | exp.Median | exp.Quantile
    at: int


@final
@dataclass(frozen=True, slots=True)
class SelectParts:
    """The parts of a SELECT; `sets` lists the positions in `keys` of each grouping set."""

    scope: Scope
    node: exp.Select
    outputs: tuple[OutputColumn, ...]
    keys: tuple[Expr, ...]
    sets: tuple[tuple[int, ...], ...]
    aggregates: tuple[AggregateColumn, ...]

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of all columns of the SELECT, in its order."""
        return tuple(_header(item.alias, item.unalias().unnest()) for item in self.node.expressions)

    def values(self, i: int) -> Values | None:
        """The values of the column of the domain that the i-th column of labels shows, if it shows one as it is."""
        key = self.outputs[i].key
        node = None if key is None else self.keys[key]
        return self.scope.column(node).values if isinstance(node, exp.Column) else None

    @property
    def where(self) -> Expr | None:
        """The condition, if there is one."""
        clause = self.node.args.get("where")
        return None if clause is None else clause.this


def selections(statement: ParsedStatement, columns: Mapping[str, Column]) -> tuple[SelectParts, ...]:
    """The SELECTs of a statement; those of a UNION ALL are in order."""
    source, tree = statement.source, statement.tree
    found: list[SelectParts] = []
    for node in statement.selects:
        if not isinstance(node, exp.Select):
            raise source.at(node, f"This statement is not a SELECT. Write {SUPPORTED}.")
        found.append(_selection(source, node, columns))
    first = found[0]
    for other in found[1:]:
        places, others = ([(each.at, type(each.node)) for each in one.aggregates] for one in (first, other))
        if len(other.outputs) != len(first.outputs) or places != others:
            raise source.at(
                other.node,
                "The SELECTs of a UNION ALL need the same number of columns, with COUNT(*) and other aggregates at the "
                "same place.",
            )
    if isinstance(tree, exp.Union):
        _check_order(source, tree, first.headers, ())
        for clause in (each.args["order"] for each in tree.find_all(exp.Query) if each.args.get("order")):
            if clause.parent is not tree:
                raise source.at(clause, "ORDER BY belongs at the end of the statement, after the last SELECT.")
    return tuple(found)


def source_table(statement: ParsedStatement, before: str | None = None) -> str:
    """The table that a statement reads from; SqlError if it is not the one that those before it read from."""
    for node in (_table(statement.source, each) for each in statement.selects if isinstance(each, exp.Select)):
        before = before or node.name
        if node.name.casefold() != before.casefold():
            raise statement.source.at(
                node,
                f"The statements read from {before!r} and {node.name!r}, but a workload is over one table. Use one "
                "name.",
            )
    return before or ""


def _table(source: SqlText, node: exp.Select) -> exp.Table:
    """The table after FROM."""
    clause = node.args.get("from_")
    if clause is None or not isinstance(clause.this, exp.Table) or not isinstance(clause.this.this, exp.Identifier):
        raise source.at(node, f"The statement reads from no table. Write {SUPPORTED}.")
    return clause.this


def _selection(source: SqlText, node: exp.Select, columns: Mapping[str, Column]) -> SelectParts:
    scope = Scope(source, columns, _table(source, node).alias_or_name)
    items = [(item.alias, item.unalias().unnest()) for item in node.expressions]
    aggregates = _aggregates(source, node, items)
    places = {each.at for each in aggregates}
    keys = _Keys(scope, items, places)
    clause = node.args.get("group")
    sets = [()] if clause is None else _product(keys, [_sets(keys, part) for part in clause.expressions])
    outputs = [keys.output(i) for i in range(len(items)) if i not in places]
    shown = {output.key for output in outputs}
    outputs += [OutputColumn(_header("", key), k) for k, key in enumerate(keys.nodes) if k not in shown]
    parts = SelectParts(scope, node, tuple(outputs), tuple(keys.nodes), tuple(sets), aggregates)
    _check_order(source, node, parts.headers, [*keys.nodes, *(item for _, item in items)])
    return parts


def _check_order(source: SqlText, node: Expr, headers: Sequence[str], selected: Sequence[Expr]) -> None:
    """Check that ORDER BY names columns of the table. Nothing else follows from it.

    Rows are in the order in which the domain declares values: that of labels means more than the alphabet's, and an
    order by counts would be that of noise.
    """
    clause = node.args.get("order")
    for part in [] if clause is None else clause.expressions:
        key = part.this.unnest()
        if isinstance(key, exp.Literal) and not key.is_string:
            known = key.this.isdecimal() and 0 < int(key.this[:6]) <= len(headers)
        else:
            named = isinstance(key, exp.Column) and not key.table and key.name.casefold()
            known = named in [header.casefold() for header in headers] or key in selected
        if not known:
            raise source.at(
                part, f"ORDER BY may name what is selected: {', '.join(headers)}, or a place from 1 to {len(headers)}."
            )


def _aggregates(source: SqlText, node: exp.Select, items: list[tuple[str, Expr]]) -> tuple[AggregateColumn, ...]:
    found: dict[str, AggregateColumn] = {}
    for i, (alias, item) in enumerate(items):
        if not isinstance(item, exp.Count | exp.Sum | exp.Avg | exp.Median | exp.Quantile):
            continue
        if isinstance(item, exp.Count) and not isinstance(item.this, exp.Star):
            raise source.at(item, "Only COUNT(*) is supported. To count what is not NULL, write WHERE … IS NOT NULL.")
        header = alias or (COUNT if isinstance(item, exp.Count) else item.sql(comments=False))
        if header in found:
            raise source.at(item, f"The SELECT has {header!r} more than once. Leave one out, or rename it with AS.")
        found[header] = AggregateColumn(header, item, i)
    if not found:
        raise source.at(node, f"A SELECT needs an aggregate, such as COUNT(*); this one has none. Write {SUPPORTED}.")
    return tuple(found.values())


class _Keys:
    """The distinct group expressions of a SELECT, numbered in order of appearance."""

    def __init__(self, scope: Scope, items: list[tuple[str, Expr]], aggregates: Set[int]) -> None:
        self.scope = scope
        self.items = items
        self.aggregates = aggregates
        self.nodes: list[Expr] = []
        self._numbers: dict[Expr, int] = {}

    def number(self, node: Expr) -> int:
        """The number of a group expression, which is given by itself, or by the alias or place of a selected column."""
        key = self._resolved(node.unnest())
        same = self._same(key)
        if same not in self._numbers:
            self._numbers[same] = len(self.nodes)
            self.nodes.append(key)
        return self._numbers[same]

    def output(self, i: int) -> OutputColumn:
        """The i-th selected column."""
        alias, item = self.items[i]
        header = _header(alias, item)
        number = self._numbers.get(self._same(item))
        if number is None and is_constant(item):
            return OutputColumn(header, None, as_label(constant(self.scope, item)))
        if number is None:
            raise self.scope.source.at(
                item,
                f"{header} is selected but not in GROUP BY. Add it there, or leave it out. Supported: {EXPRESSIONS}.",
            )
        return OutputColumn(header, number)

    def _resolved(self, node: Expr) -> Expr:
        if isinstance(node, exp.Neg) and is_constant(node):
            raise self.scope.source.at(node, "Places of columns in the SELECT count from 1. Group by a column.")
        if isinstance(node, exp.Literal) and not node.is_string:
            at = int(node.this) - 1 if node.this.isdecimal() and len(node.this) < 6 else -1
            if not 0 <= at < len(self.items) or at in self.aggregates:
                raise self.scope.source.at(node, f"There is no group column at place {node.this} of the SELECT.")
            return self.items[at][1]
        if not isinstance(node, exp.Column) or node.table:
            return node
        at = [i for i, (alias, _) in enumerate(self.items) if alias and alias.casefold() == node.name.casefold()]
        if not at:
            return node
        named = [self.items[i][1] for i in at]
        if not self.scope.is_column(node) and node.name.casefold() == self.scope.table.casefold():
            raise self.scope.source.at(node, f"{node.name} names both the table and an expression. Rename one of them.")
        if self.scope.is_column(node) and (at[0] in self.aggregates or self._same(named[0]) != self._same(node)):
            raise self.scope.source.at(
                node, f"{node.name} names both a column and another selected expression. Rename that expression."
            )
        if len(named) > 1 or at[0] in self.aggregates:
            raise self.scope.source.at(node, f"{node.name} does not name exactly one group column of the SELECT.")
        return named[0]

    def _same(self, node: Expr) -> Expr:
        """The expression with columns spelled as in the domain, so that equal expressions compare equal."""

        def named(inner: Expr) -> Expr:
            return (
                exp.column(self.scope.column(inner, added=True).name, quoted=True)
                if isinstance(inner, exp.Column)
                else inner
            )

        return node.transform(named)


def _sets(keys: _Keys, node: Expr) -> list[tuple[int, ...]]:
    """The grouping sets that one element of GROUP BY stands for."""
    if isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube) and not node.expressions:
        raise keys.scope.source.at(node, "GROUPING SETS, ROLLUP and CUBE need at least one column.")
    match node:
        case exp.GroupingSets():
            return [s for part in node.expressions for s in _sets(keys, part)]
        case exp.Rollup():
            parts = [_members(keys, part) for part in node.expressions]
            return [_joined(parts[:k]) for k in range(len(parts), -1, -1)]
        case exp.Cube():
            parts = [_members(keys, part) for part in node.expressions]
            _limit(keys, node, 2 ** len(parts))
            chosen = itertools.product((True, False), repeat=len(parts))
            return [_joined([p for p, kept in zip(parts, keep, strict=True) if kept]) for keep in chosen]
        case _:
            return [_members(keys, node)]


def _members(keys: _Keys, node: Expr) -> tuple[int, ...]:
    if isinstance(node, exp.Tuple):
        return _joined([_members(keys, part) for part in node.expressions])
    return (keys.number(node),)


def _product(keys: _Keys, elements: list[list[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """The grouping sets of GROUP BY: every combination of one set from each of its elements."""
    sets: list[tuple[int, ...]] = [()]
    for element in elements:
        _limit(keys, None, len(sets) * len(element))
        sets = [_joined([s, t]) for s in sets for t in element]
    return sets


def _limit(keys: _Keys, node: Expr | None, count: int) -> None:
    if count > MOST_SETS:
        raise keys.scope.source.at(
            node or keys.items[min(keys.aggregates)][1],
            f"GROUP BY stands for {count:,} grouping sets; the limit is {MOST_SETS:,}. Use Workload.marginals.",
        )


def _joined(parts: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))


def _header(alias: str, node: Expr) -> str:
    return alias or (node.name if isinstance(node, exp.Column) else node.sql(comments=False))
