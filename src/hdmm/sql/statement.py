"""Statements: each is a table of counts, given as the queries of a workload and the labels of every row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import scipy.sparse as sp

from hdmm.base.exceptions import SqlError, WorkloadError
from hdmm.describe.aggregates import Aggregate, combined
from hdmm.describe.domain import Domain
from hdmm.describe.workload import Workload
from hdmm.matrix import Array
from hdmm.sql.asked import AskedMeasures, aggregates, at_ends
from hdmm.sql.cells import MOST_LISTED
from hdmm.sql.comparisons import columns
from hdmm.sql.formula import Formula
from hdmm.sql.impossible import possible
from hdmm.sql.percent import Percent, Totals, totals_of
from hdmm.sql.products import GroupedProduct, Row, Summand, blocks, parts_of
from hdmm.sql.selection import SelectParts, selections, table
from hdmm.sql.syntax import Parsed, statements
from hdmm.sql.text import SqlText

MEASURE = "measure"
"""The label column that tells several aggregates of one SELECT apart."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class AtEnds:
    """Sums and means of values of which only the bin is known, with every value at an end of its bin.

    `measures` are their places among the measures of the table. The rows that `aggregates` make of the queries are
    all of them at the lower ends of bins, then all at the upper ends.
    """

    measures: tuple[int, ...]
    workload: Workload | None = None  # None where an end is too large to be added up
    aggregates: tuple[Aggregate, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """One table: its columns, the workload that counts it, and the labels of its rows.

    `workload` has weight 1; `weight` says how much the table matters. The queries are the rows of the table, in
    order, unless a condition joins attributes by OR. Then the queries are disjoint parts, and row i of the table is
    the sum of the queries j with combine[i, j] = 1. The rows of several aggregates follow one another, and the last
    column, "measure", names them. `aggregates` says how rows follow from queries if they are not sums: means, medians.

    >>> domain = Domain({"sex": ["M", "F"], "age": 115})
    >>> (table,) = parse(domain, "SELECT sex, COUNT(*) AS n FROM t WHERE age >= 18 GROUP BY ROLLUP(sex)")
    >>> table.name, table.columns, table.count, list(table.labels())
    ('table_1', ('sex',), 'n', [('M',), ('F',), ('(all)',)])
    >>> (table,) = parse(domain, "SELECT COUNT(*) FROM t WHERE sex = 'F' OR age < 5")
    >>> table.rows, table.workload.queries, table.combine.toarray().tolist()
    (1, 2, [[1, 1]])
    """

    name: str
    text: str
    weight: float
    columns: tuple[str, ...]
    count: str
    workload: Workload
    combine: sp.csr_array | None = field(repr=False, compare=False)
    blocks: tuple[GroupedProduct, ...] = field(repr=False, compare=False)
    asked: tuple[AskedMeasures, ...] = field(repr=False, compare=False)
    totals: Totals | None = field(default=None, repr=False, compare=False)
    at_ends: AtEnds | None = field(default=None, repr=False, compare=False)

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        return len(self.measures) * sum(block.rows for block in self.blocks)

    @property
    def measures(self) -> tuple[str, ...]:
        """The headers of the aggregates."""
        return tuple(header for header, _ in self.asked[0].made_of)

    @property
    def linear(self) -> bool:
        """Whether every row is a count or a sum, so that its margin of error is known before any data is read."""
        return self.totals is None and all(one.linear for one in self.asked)

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """How rows follow from queries, measure by measure. O(rows)."""
        made = aggregates(self.asked, self.blocks)
        return made if self.totals is None else (self.totals.percentages(made, self.labels()),)

    @property
    def order(self) -> Array | None:
        """The rows such that the first column varies slowest, by grouping set; None if they are in this order."""
        starts = itertools.accumulate((block.rows for block in self.blocks), initial=0)
        once = np.concatenate([start + block.order for start, block in zip(starts, self.blocks, strict=False)])
        if (np.diff(once) > 0).all():
            return None
        return (np.arange(len(self.measures))[:, None] * len(once) + once).ravel()

    def labels(self) -> Iterator[Row]:
        """The labels of each row, in the order of `columns`; rows are in the order of the domain.

        The label is "(all)" for a column over which the row is a total, "other" for the group of values that are not
        declared, and None for a CASE without ELSE if no branch holds.
        """
        if len(self.measures) == 1:
            return itertools.chain.from_iterable(block.labels() for block in self.blocks)
        pairs = itertools.product(self.measures, self.blocks)
        return ((*row, measure) for measure, block in pairs for row in block.labels())


def parse(
    domain: Domain, text: str, *, impossible: Sequence[str] = (), percent: Percent | None = None
) -> tuple[Statement, ...]:
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
    source = SqlText(text)
    known = columns(domain)
    left = possible(known, impossible)
    found: dict[str, Statement] = {}
    tables: dict[str, str] = {}
    for parsed in statements(source, names=known):
        chosen = selections(source, parsed.tree, known)
        for node in (table(source, one.node) for one in chosen):
            tables.setdefault(node.name.casefold(), node.name)
            if len(tables) > 1:
                both = " and ".join(map(repr, tables.values()))
                raise source.at(
                    node, f"The statements read from {both}, but a workload is over one table. Use one name."
                )
        name = parsed.name or f"table_{len(found) + 1}"
        if name in found:
            raise source.at(parsed.tree, f"Two statements are named {name!r}. Give each a different name.")
        made = _statement(domain, source, name, parsed, chosen, left)
        found[name] = made if percent is None else _shares(domain, source, made, chosen, percent, left)
    return tuple(found.values())


def workload_from_sql(domain: Domain, text: str, *, impossible: Sequence[str] = ()) -> Workload:
    """The queries of all statements of a text, each multiplied by its weight: what Workload.sql returns.

    >>> workload_from_sql(Domain({"age": 9}), "SELECT /*+ weight(2) */ age, COUNT(*) FROM t GROUP BY age").products
    (Product(domain=Domain({'age': Integers(first=0, last=8, step=1, outside='drop')}), ..., weight=2.0, joint=()),)
    """
    found = parse(domain, text, impossible=impossible)
    return Workload(domain, tuple(p for s in found for p in (s.weight * s.workload).products))


def merged_domain(domain: Domain, *texts: str, impossible: Sequence[str] = ()) -> Domain:
    """The domain in which attributes that an OR joins are merged, if that makes the workload smaller.

    On the merged attribute such a condition is one predicate, so that no row of the table is a sum of parts. The size
    of a workload is counted as in the paper, in entries of the predicate matrices, over all texts.

    >>> domain = Domain({"white": bool, "black": bool, "asian": bool, "age": 115})
    >>> two = "(white AND black) OR (white AND asian) OR (black AND asian)"
    >>> merged_domain(domain, f"SELECT COUNT(*) FROM t WHERE {two}").names
    ('white+black+asian', 'age')
    """
    tables = [table for text in texts for table in parse(domain, text, impossible=impossible)]
    size = _values(tables)
    for names in _joined(domain, tables):
        if len(names) > 1 and math.prod(domain[name].size for name in names) <= MOST_LISTED:
            merged = domain.merge(names, name="+".join(names))
            if _values([table for text in texts for table in parse(merged, text, impossible=impossible)]) < size:
                return merged_domain(merged, *texts, impossible=impossible)
    return domain


def _statement(
    domain: Domain, source: SqlText, name: str, parsed: Parsed, chosen: Sequence[SelectParts], left: Formula
) -> Statement:
    asked = tuple(AskedMeasures.of(one) for one in chosen)
    if len(chosen) > 1 and any(q is not None for q in asked[0].q):
        raise source.at(parsed.tree, "Quantiles cannot be joined by UNION ALL. Write one statement for each SELECT.")
    rows = tuple(block for i, one in enumerate(chosen) for block in blocks(domain, one, i, asked[i].counted, left))
    if not rows:
        raise source.at(parsed.tree, "The condition is never true, so the table has no rows. Change the WHERE clause.")
    parts = parts_of(rows)
    if not any(block.parts for block in rows):
        raise source.at(parsed.tree, "Every cell of this table is impossible, so all its counts are 0. Leave it out.")
    if not parts:
        raise source.at(parsed.tree, "All that is added up is 0, so nothing is asked of the data. Change the SUM.")
    columns = tuple(output.header for output in chosen[0].outputs)
    several = len(chosen[0].aggregates) > 1
    plain = not several and all(block.summands == (tuple(map(Summand, block.parts)),) for block in rows)
    summed = not plain or any(block.listed for block in rows)
    return Statement(
        name,
        parsed.text,
        parsed.weight,
        (*columns, MEASURE) if several else columns,
        chosen[0].aggregates[0].header,
        Workload(domain, tuple(p for part in parts for p in Workload.product(domain, part.factors).products)),
        combined(aggregates(asked, rows)) if summed else None,
        rows,
        asked,
        at_ends=_at_ends(domain, chosen, left),
    )


def _at_ends(domain: Domain, chosen: Sequence[SelectParts], left: Formula) -> AtEnds | None:
    """What sums and means over bins are at least and at most; None if there are none."""
    found = at_ends(chosen)
    if found is None:
        return None
    measures, asked = found
    try:
        rows = tuple(block for i, one in enumerate(chosen) for block in blocks(domain, one, i, asked[i].counted, left))
        products = [p for part in parts_of(rows) for p in Workload.product(domain, part.factors).products]
    except (SqlError, WorkloadError):
        return AtEnds(measures)
    return AtEnds(measures, Workload(domain, tuple(products)), aggregates(asked, rows))


def _shares(
    domain: Domain, source: SqlText, made: Statement, chosen: Sequence[SelectParts], percent: Percent, left: Formula
) -> Statement:
    """The same rows in percent of totals, which are further queries of the workload."""
    totals = totals_of(domain, source, chosen, made.asked[0], percent, left)
    products = (Workload.product(domain, part.factors).products for part in totals.parts)
    workload = Workload(domain, (*made.workload.products, *itertools.chain.from_iterable(products)))
    return replace(made, count="percent", workload=workload, combine=None, totals=totals)


def _values(tables: Sequence[Statement]) -> int:
    """The rows times columns of every predicate matrix, summed over products and attributes."""
    products = [product for statement in tables for product in statement.workload.products]
    return sum(
        sum(p.count(product.cells(axes)) * product.cells(axes) for axes, p in product.sets)
        + sum(n for i, n in enumerate(product.domain.shape) if i not in product.axes)
        for product in products
    )


def _joined(domain: Domain, tables: Sequence[Statement]) -> list[list[str]]:
    """For each block of rows that are sums, the attributes in which the parts of a row differ."""
    found: dict[tuple[str, ...], None] = {}
    for block in (block for statement in tables for block in statement.blocks if len(block.parts) > 1):
        named = [{n: p for names, p in part.factors.items() for n in _names(names)} for part in block.parts]
        found[tuple(n for n in domain.names if len({each.get(n) for each in named}) > 1)] = None
    return [list(names) for names in found]


def _names(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key
