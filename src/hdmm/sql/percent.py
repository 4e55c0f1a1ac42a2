"""Percentages: the rows of a SELECT over totals, which are the same SELECT grouped by fewer columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from sqlglot import exp

from hdmm.describe.aggregates import Aggregate, Linear, Quotient, size
from hdmm.describe.domain import Domain
from hdmm.sql.asked import AskedMeasures, aggregates
from hdmm.sql.formula import Formula
from hdmm.sql.products import GroupedProduct, Part, Row, blocks, parts_of
from hdmm.sql.selection import SelectParts
from hdmm.sql.text import SqlText

Percent: TypeAlias = Literal["row", "column", "total"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """What is 100 %: rows of totals, and the places of the columns whose labels a row shares with its total."""

    blocks: tuple[GroupedProduct, ...]
    asked: AskedMeasures
    shared: tuple[int, ...]

    @property
    def parts(self) -> list[Part]:
        """The products of the totals, which follow those of the rows."""
        return parts_of(self.blocks)

    def percentages(self, made: Sequence[Aggregate], labels: Iterable[Row]) -> Quotient:
        """Each row over its total."""
        (rows,) = (each.combine for each in made if isinstance(each, Linear))
        (totals,) = (each.combine for each in aggregates([self.asked], self.blocks) if isinstance(each, Linear))
        places = {self._key(row): i for i, row in enumerate(row for block in self.blocks for row in block.labels())}
        of = np.array([places[self._key(row)] for row in labels], np.int64)
        below, (count, start) = totals[of], size(rows)
        shape = count, start + size(totals)[1]
        numerator = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=shape)
        denominator = sp.csr_array((below.data, below.indices + start, below.indptr), shape=shape)
        return Quotient("percent", numerator, denominator, 100.0)

    def _key(self, row: Row) -> Row:
        return tuple(row[i] for i in self.shared)


def totals_of(
    domain: Domain,
    source: SqlText,
    chosen: Sequence[SelectParts],
    asked: AskedMeasures,
    percent: Percent,
    possible: Formula,
) -> Totals:
    """The totals of a SELECT; SqlError if it has none."""
    one = chosen[0]
    if len(chosen) > 1 or len(one.sets) > 1:
        raise source.at(
            one.node,
            "Percentages need one GROUP BY, without UNION ALL, GROUPING SETS, ROLLUP or CUBE. Use several tables.",
        )
    if not all(isinstance(each.node, exp.Count | exp.Sum) for each in one.aggregates) or one.aggregates[1:]:
        raise source.at(one.node, "Percentages are of one COUNT(*) or SUM. Leave out the other aggregates.")
    keyed = [i for i, output in enumerate(one.outputs) if output.key is not None]
    if not keyed or (percent == "row" and len(keyed) == 1):
        raise source.at(
            one.node,
            f"A table with {len(keyed)} group columns has no totals of {percent}s. "
            + ("Group by a column." if not keyed else 'Use percent = "column" or "total", or group by two columns.'),
        )
    shared = keyed[:-1] if percent == "row" else keyed[-1:] if percent == "column" and len(keyed) > 1 else []
    kept = tuple(dict.fromkeys(key for i in shared if (key := one.outputs[i].key) is not None))
    summed = replace(one, sets=(kept,))
    return Totals(tuple(blocks(domain, summed, 0, asked.counted, possible)), asked, tuple(shared))
