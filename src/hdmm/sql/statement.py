"""Statements as tables: a text is parsed once, and a statement is bound to one domain or another afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from sqlglot import exp

from hdmm.base.exceptions import SqlError, WorkloadError
from hdmm.base.numbers import many
from hdmm.describe.attribute import columns
from hdmm.describe.domain import Domain
from hdmm.describe.table_column import TableColumn, number_ends
from hdmm.describe.table_query import Aggregate, AtEnds, Linear, Quantiles, Quotient, Row, TableQuery
from hdmm.describe.table_query import size as shape_of
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.sql.cells import MOST_LISTED
from hdmm.sql.conditions import ParsedCondition, SqlDomain, impossible_conditions
from hdmm.sql.measures import COUNTED, Measures, Ordering
from hdmm.sql.products import GroupedProduct, Part, parts_of, products_of
from hdmm.sql.selection import SelectParts, selections, source_table
from hdmm.sql.syntax import ParsedStatement, statements
from hdmm.sql.text import SqlText

MEASURE = "measure"
"""The label column that distinguishes several aggregates of one SELECT."""

Percent: TypeAlias = Literal["row", "column", "total"]


def parse(
    domain: Domain, text: str, *, impossible: Sequence[str] = (), percent: Percent | None = None
) -> tuple[TableQuery, ...]:
    """The statements of an SQL text, as tables over a domain.

    Cells in which one of the `impossible` conditions holds are counted in no row. A row that has only such cells is a
    sum of no queries: 0, without noise. With `percent`, counts or sums are given in percent of the total of their row,
    of their column (the last one that is selected), or of the whole table.

    >>> [table.name for table in parse(Domain({"age": 9}), "-- name: P1\\nSELECT COUNT(*) FROM t")]
    ['P1']
    >>> people = Domain({"adult": bool, "married": bool})
    >>> text = "SELECT adult, married, COUNT(*) FROM t GROUP BY adult, married"
    >>> (table,) = parse(people, text, impossible=["NOT adult AND married"])
    >>> table.rows, table.workload.queries, table.combine.toarray().sum(axis=1)
    (4, 3, array([1, 0, 1, 1]))
    """
    over, (parsed,) = _read(domain, [text], impossible)
    found: dict[str, TableQuery] = {}
    for k, statement in enumerate(parsed, start=1):
        name = statement.name or f"table_{k}"
        if name in found:
            raise statement.error(f"Two statements are named {name!r}. Give each a different name.")
        found[name] = replace(BoundStatement.of(over, statement).table(percent), name=name, group=name, title=name)
    return tuple(found.values())


def workload_from_sql(domain: Domain, text: str, *, impossible: Sequence[str] = ()) -> Workload:
    """The queries of all statements of a text, each multiplied by its weight: what Workload.sql returns.

    >>> workload_from_sql(Domain({"age": 9}), "SELECT /*+ weight(2) */ age, COUNT(*) FROM t GROUP BY age").products
    (Product(domain=Domain({'age': Integers(first=0, last=8, step=1, outside='drop')}), ..., weight=2.0, joint=()),)
    """
    found = parse(domain, text, impossible=impossible)
    return Workload(domain, tuple(p for table in found for p in (table.weight * table.workload).products))


def merged_domain(domain: Domain, *texts: str, impossible: Sequence[str] = ()) -> Domain:
    """The domain in which attributes that an OR joins are merged, if that makes the workload smaller.

    On the merged attribute such a condition is one predicate, so that no row of the table is a sum of parts. The size
    of a workload is counted as in the paper, in entries of the predicate matrices, over all texts.

    >>> domain = Domain({"white": bool, "black": bool, "asian": bool, "age": 115})
    >>> two = "(white AND black) OR (white AND asian) OR (black AND asian)"
    >>> merged_domain(domain, f"SELECT COUNT(*) FROM t WHERE {two}").names
    ('white+black+asian', 'age')
    """
    over, parsed = _read(domain, texts, impossible)
    bound = [BoundStatement.of(over, statement) for each in parsed for statement in each]
    return merged_for(bound, impossible_conditions(impossible, over.columns))


def merged_for(bound: Sequence[BoundStatement], impossible: Sequence[ParsedCondition]) -> Domain:
    """The domain of the statements, with attributes that an OR joins merged if that makes their workload smaller."""
    domain, size = bound[0].over.domain, _entries(bound)
    for names in _joined(domain, bound):
        if len(names) > 1 and math.prod(domain[name].size for name in names) <= MOST_LISTED:
            over = SqlDomain.of(domain.merge(names, name="+".join(names)), impossible)
            merged = [BoundStatement.of(over, each.statement) for each in bound]
            if _entries(merged) < size:
                return merged_for(merged, impossible)
    return domain


def _read(
    domain: Domain, texts: Sequence[str], impossible: Sequence[str]
) -> tuple[SqlDomain, list[tuple[ParsedStatement, ...]]]:
    names = columns(domain.attributes)
    over = SqlDomain.of(domain, impossible_conditions(impossible, names))
    parsed = [statements(SqlText(text), names=names) for text in texts]
    for each in parsed:
        table = None
        for statement in each:
            table = source_table(statement, table)
    return over, parsed


@final
@dataclass(frozen=True, slots=True, eq=False)
class BoundStatement:
    """A statement over a domain: what its SELECTs count, and the products that count it, block after block of rows."""

    statement: ParsedStatement
    over: SqlDomain
    selects: tuple[SelectParts, ...]
    measures: tuple[Measures, ...]
    blocks: tuple[GroupedProduct, ...]

    @classmethod
    def of(cls, over: SqlDomain, statement: ParsedStatement) -> BoundStatement:
        """The statement over a domain; SqlError if it does not fit, or if nothing is counted."""
        selects = selections(statement, over.columns)
        measures = tuple(map(Measures.of, selects))
        if len(selects) > 1 and any(each.q is not None for each in measures[0].each):
            raise statement.error("Quantiles cannot be joined by UNION ALL. Write one statement for each SELECT.")
        blocks = _blocks(over, selects, measures)
        if not blocks:
            raise statement.error("The condition is never true, so the table has no rows. Change the WHERE clause.")
        if not any(block.parts for block in blocks):
            raise statement.error("Every cell of this table is impossible, so all its counts are 0. Leave it out.")
        if not parts_of(blocks):
            raise statement.error("All that is added up is 0, so nothing is asked of the data. Change the SUM.")
        return cls(statement, over, selects, measures, blocks)

    @property
    def workload(self) -> Workload:
        """The queries of all blocks."""
        return _workload(self.over.domain, parts_of(self.blocks))

    def table(self, percent: Percent | None = None) -> TableQuery:
        """The table of counts, sums, means and quantiles, or of counts or sums in percent of totals."""
        first = self.selects[0]
        columns = tuple(map(self._label_column, range(len(first.outputs))))
        several = len(first.aggregates) > 1
        linear = all(one.linear for one in self.measures)
        plain = linear and not several and all(block.plain for block in self.blocks)
        found = TableQuery(
            name="",
            label_columns=(*columns, TableColumn(MEASURE)) if several else columns,
            workload=self.workload,
            blocks=tuple(block.labels for block in self.blocks),
            aggregates=() if plain else _aggregates(self.measures, self.blocks),
            measures=tuple(each.header for each in first.aggregates),
            counted=linear and all(one.counted == (COUNTED,) for one in self.measures),
            overlapping=any(block.select for block in self.blocks),
            at_ends=self._at_ends(),
            text=self.statement.text,
            weight=self.statement.weight,
        )
        return found if percent is None else self._in_percent(found, percent)

    def _label_column(self, i: int) -> TableColumn:
        """The i-th column of labels: of the values of a column of the domain, or of what a SELECT makes of them."""
        header, values = self.selects[0].outputs[i].header, {select.values(i) for select in self.selects}
        of = values.pop()
        if of is not None and not values:
            return TableColumn.of_values(header, of)
        blocks = self.blocks
        return TableColumn(header, ends=lambda: number_ends(row[i] for each in blocks for row in each.labels.labels()))

    def _at_ends(self) -> AtEnds | None:
        """What sums and means over bins are at least and at most; None if there are none."""
        found = Measures.at_ends(self.selects)
        if found is None:
            return None
        places, measures = found
        try:
            blocks = _blocks(self.over, self.selects, measures)
            workload = _workload(self.over.domain, parts_of(blocks))
        except (SqlError, WorkloadError):
            return AtEnds(places)
        return AtEnds(places, workload, _aggregates(measures, blocks))

    def _in_percent(self, table: TableQuery, percent: Percent) -> TableQuery:
        """The same rows in percent of totals, which are further queries: the same SELECT grouped by fewer columns."""
        shared = self._shared(percent)
        select, (measures,) = self.selects[0], self.measures
        kept = tuple(dict.fromkeys(key for i in shared if (key := select.outputs[i].key) is not None))
        blocks = _blocks(self.over, [replace(select, sets=(kept,))], [measures])
        workload = Workload(
            table.workload.domain, (*table.workload.products, *_workload(self.over.domain, parts_of(blocks)).products)
        )
        (rows,) = _coefficients(self.measures, self.blocks)
        (totals,) = _coefficients([measures], blocks)

        def of_total(row: Row) -> Row:
            return tuple(row[i] for i in shared)

        places = {of_total(row): i for i, row in enumerate(row for block in blocks for row in block.labels.labels())}
        below = totals[np.array([places[of_total(row)] for row in table.labels()], np.int64)]
        count, start = shape_of(rows)
        shape = count, start + shape_of(totals)[1]
        numerator = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=shape)
        denominator = sp.csr_array((below.data, below.indices + start, below.indptr), shape=shape)
        return replace(
            table,
            workload=workload,
            aggregates=(Quotient(numerator, denominator, 100.0),),
            measures=("percent",),
            percent=True,
            at_ends=None if table.at_ends is None else AtEnds(table.at_ends.measures),
        )

    def _shared(self, percent: Percent) -> list[int]:
        """The places of the columns whose labels a row shares with its total; SqlError if there are no totals."""
        select, source = self.selects[0], self.statement.source
        if len(self.selects) > 1 or len(select.sets) > 1:
            raise source.at(
                select.node,
                "Percentages need one GROUP BY, without UNION ALL, GROUPING SETS, ROLLUP or CUBE. Use several tables.",
            )
        if not all(isinstance(each.node, exp.Count | exp.Sum) for each in select.aggregates) or select.aggregates[1:]:
            raise source.at(select.node, "Percentages are of one COUNT(*) or SUM. Leave out the other aggregates.")
        keyed = [i for i, output in enumerate(select.outputs) if output.key is not None]
        if not keyed or (percent == "row" and len(keyed) == 1):
            advice = 'Use percent = "column" or "total", or group by two columns.' if keyed else "Group by a column."
            raise source.at(
                select.node, f"A table with {many(len(keyed), 'group column')} has no totals of {percent}s. {advice}"
            )
        return keyed[:-1] if percent == "row" else keyed[-1:] if percent == "column" and len(keyed) > 1 else []


def _blocks(
    over: SqlDomain, selects: Sequence[SelectParts], measures: Sequence[Measures]
) -> tuple[GroupedProduct, ...]:
    """The rows of all SELECTs."""
    pairs = enumerate(zip(selects, measures, strict=True))
    return tuple(block for i, (one, own) in pairs for block in products_of(over, one, i, own.counted))


def _workload(domain: Domain, parts: Sequence[Part]) -> Workload:
    return Workload(domain, tuple(p for part in parts for p in Workload.product(domain, part.factors).products))


def _aggregates(measures: Sequence[Measures], blocks: Sequence[GroupedProduct]) -> tuple[Aggregate, ...]:
    """How the rows of all SELECTs follow from their queries: block after block, and in each, thing after thing."""
    made: list[Aggregate] = []
    for k, measure in enumerate(measures[0].each):
        last = made[-1] if made else None
        if (
            measure.q is not None
            and isinstance(last, Quantiles)
            and all(one.each[k].places == one.each[k - 1].places for one in measures)
        ):  # of one column: one after the other
            made[-1] = replace(last, q=(*last.q, measure.q))
            continue
        matrices = [_matrix(measures, blocks, k, part) for part in range(len(measure.places))]
        first = measures[0].counted[measure.places[0]]
        if isinstance(first, Ordering) and measure.q is not None:
            made.append(Quantiles(matrices[0], (measure.q,), *first.limits))
        elif len(matrices) == 2:
            made.append(Quotient(matrices[0], matrices[1]))
        else:
            made.append(Linear(matrices[0]))
    return tuple(made)


def _coefficients(measures: Sequence[Measures], blocks: Sequence[GroupedProduct]) -> list[sp.csr_array]:
    return [each.combine for each in _aggregates(measures, blocks) if isinstance(each, Linear)]


def _matrix(measures: Sequence[Measures], blocks: Sequence[GroupedProduct], k: int, part: int) -> sp.csr_array:
    """The coefficients of aggregate k (of its numerator or denominator): a row per row, or per prefix of one."""
    rows, queries, amounts = list[Array](), list[Array](), list[Array]()
    row = query = 0
    for block in blocks:
        one = measures[block.select]
        place = one.each[k].places[part]
        of, to, amount = block.entries(place)
        rows.append(row + of)
        queries.append(query + to)
        amounts.append(amount)
        counted = one.counted[place]
        row += block.rows * (len(counted.cells) if isinstance(counted, Ordering) else 1)
        query += block.queries()
    entries = np.concatenate(amounts), (np.concatenate(rows), np.concatenate(queries))
    return sp.csr_array(entries, shape=(row, query))


def _entries(bound: Sequence[BoundStatement]) -> int:
    """The rows times columns of every predicate matrix, summed over products and attributes."""
    products = [product for statement in bound for product in statement.workload.products]
    return sum(
        sum(p.count(product.cells(axes)) * product.cells(axes) for axes, p in product.sets)
        + sum(n for i, n in enumerate(product.domain.shape) if i not in product.axes)
        for product in products
    )


def _joined(domain: Domain, bound: Sequence[BoundStatement]) -> list[tuple[str, ...]]:
    """For each block of rows that are sums, the attributes in which the parts of a row differ."""
    found: dict[tuple[str, ...], None] = {}
    for block in (block for statement in bound for block in statement.blocks if len(block.parts) > 1):
        named = [{n: p for names, p in part.factors.items() for n in _names(names)} for part in block.parts]
        found[tuple(n for n in domain.names if len({each.get(n) for each in named}) > 1)] = None
    return list(found)


def _names(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key
