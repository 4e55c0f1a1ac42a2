"""Totals: how a table crosses, the totals of its lines and columns, and its counts in percent.

Noisy margins do not add up, so that a total is a query like any other. Its estimate is the sum of those that are shown,
because estimates are linear, and its variance is computed with all covariances.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, final

import numpy as np
import scipy.sparse as sp

from hdmm.answers.answers import Answers
from hdmm.answers.evaluate import RowNumbers, evaluated
from hdmm.answers.table import Table
from hdmm.base.exceptions import HdmmError
from hdmm.describe.entries import ALL
from hdmm.describe.predicates import PredicateSet, Vectors
from hdmm.describe.product import Product
from hdmm.describe.table_query import Quotient, TableQuery

RowLabels: TypeAlias = Sequence[tuple[str, ...]]
_Labels: TypeAlias = tuple[str, ...]

MOST_ACROSS: Final = 12
MOST_DOWN: Final = 200
_MOST_ROWS: Final = 2 * MOST_ACROSS * MOST_DOWN
_MOST_PAIRS: Final = 40_000  # of queries whose covariances are added up: 10 µs each


@final
@dataclass(frozen=True, slots=True)
class CrossTab:
    """The rows of a table as lines of cells: every label in `down` meets every label in `heads`.

    `across` is the place of the column whose labels are the heads. A table of one column has one head, without a label.

    >>> labels = [("F", "old"), ("F", "young"), ("F", "(all)"), ("M", "old"), ("M", "young"), ("M", "(all)")]
    >>> crossed(labels)
    CrossTab(across=1, down=(('F',), ('M',)), heads=('old', 'young'))
    """

    across: int | None
    down: tuple[tuple[str, ...], ...]
    heads: tuple[str, ...]

    def row(self, down: tuple[str, ...], head: str) -> tuple[str, ...]:
        """The labels of the row in a line and under a head; (all) stands for a total."""
        return down if self.across is None else (*down[: self.across], head, *down[self.across :])

    @property
    def everything(self) -> tuple[str, ...]:
        """The labels that stand on the left of the line of totals."""
        return (ALL,) * len(self.down[0])


def crossed(labels: RowLabels) -> CrossTab | None:
    """The cross-tab of a table with these labels; None if its rows, totals left out, do not cross completely.

    The column with the fewest labels goes across, the last of several.
    """
    parts = [row for row in labels if ALL not in row]
    if not parts or not parts[0] or len(set(labels)) < len(labels):
        return None
    if len(parts[0]) == 1:
        return CrossTab(None, tuple(parts), ("",))
    found = [list(dict.fromkeys(each)) for each in zip(*parts, strict=True)]
    across = min(reversed(range(len(found))), key=lambda k: len(found[k]))
    down = tuple(dict.fromkeys((*row[:across], *row[across + 1 :]) for row in parts))
    if len(down) * len(found[across]) != len(parts):
        return None
    return CrossTab(across, down, tuple(found[across]))


def fits(tab: CrossTab) -> bool:
    """Whether a cross-tab has a place on a page."""
    return len(tab.heads) <= MOST_ACROSS and len(tab.down) <= MOST_DOWN


@final
@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """The totals and percentages that a table has: how its rows cross, and the queries whose answers totals are.

    There are such `products` if the table is one product: each line, each column, and everything, in this order.
    """

    labels: RowLabels
    tab: CrossTab
    products: tuple[Product, ...]

    @classmethod
    def of(cls, query: TableQuery) -> Totals | None:
        """The totals of a table; None if its rows are not separate groups, or have no place on a page."""
        # A total of sums over bins would need bounds of its own.
        if query.rows > _MOST_ROWS or not query.comparable or query.binned or query.overlapping:
            return None
        labels = [tuple("" if label is None else str(label) for label in row) for row in query.labels()]
        tab = crossed(labels)
        if tab is None or (tab.across is not None and not fits(tab)):
            return None
        return cls(labels, tab, _products(query, tab, labels))

    @property
    def wanted(self) -> list[_Labels]:
        """The labels of all totals: of each line, of each column, and of everything."""
        tab = self.tab
        if tab.across is None:
            return [tab.everything]
        lines = [tab.row(down, ALL) for down in tab.down]
        return [*lines, *(tab.row(tab.everything, head) for head in (*tab.heads, ALL))]


def with_totals(table: Table, query: TableQuery, totals: Totals, answers: Answers) -> Table:
    """The table with totals and percentages, from answers to its queries, and to those of its totals if asked for.

    Totals that it already has are not added again. Where covariances are too many to add up, or no formula gives them,
    totals and percentages are left out.
    """
    own = set(totals.labels)
    with suppress(HdmmError):  # nothing is lost: the table was paid for, and is published without them
        rows = _Rows.of(query, totals, answers)
        missing = [each for each in totals.wanted if each not in own]
        # Sums may be of numbers below 0, which have no percentages.
        shares = rows.percentages(totals.tab, table) if query.counted else None
        return replace(table, totals=rows.chosen(missing, table), shares=shares)
    return table


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows and totals by their labels, as coefficients on queries that were answered."""

    answers: Answers
    places: dict[_Labels, int]
    matrix: sp.csr_array

    @classmethod
    def of(cls, query: TableQuery, totals: Totals, answers: Answers) -> _Rows:
        """Totals as the queries that were answered after those of the table, or else as sums of its rows.

        As queries of their own, they need no covariances; but where estimates are biased, only sums add up.
        """
        labels, own = totals.labels, set(totals.labels)
        if len(answers.workload.products) > len(query.workload.products):
            places = {label: k for k, label in enumerate([*labels, *totals.wanted])}
            return cls(answers, places, sp.csr_array(sp.eye_array(len(answers.counts))))
        missing = [each for each in totals.wanted if each not in own]
        sums = sp.lil_array((len(labels) + len(missing), len(labels)))
        sums.setdiag(1.0)
        for k, total in enumerate(missing, start=len(labels)):
            for row, label in enumerate(labels):
                if ALL not in label and all(a in (ALL, b) for a, b in zip(total, label, strict=True)):
                    sums[k, row] = 1.0
        matrix = sp.csr_array(sums)
        places = {label: k for k, label in enumerate([*labels, *missing])}
        return cls(answers, places, matrix if query.combine is None else sp.csr_array(matrix @ query.combine))

    def chosen(self, wanted: Sequence[_Labels], table: Table) -> Table | None:
        """The rows with these labels; None if there are none, or too many covariances."""
        combine = self._coefficients(wanted)
        if not wanted or _pairs(combine, combine) > _MOST_PAIRS:
            return None
        return _labelled(table, wanted, self.answers.rows(combine, table.level))

    def percentages(self, tab: CrossTab, table: Table) -> Table | None:
        """Every count of the cross-tab in percent of the total of its line."""
        downs = tab.down if tab.across is None else (*tab.down, tab.everything)
        shown = [tab.row(down, head) for down in downs for head in tab.heads]
        totals = [tab.row(tab.everything if tab.across is None else down, ALL) for down in downs for _ in tab.heads]
        above, below = self._coefficients(shown), self._coefficients(totals)
        if _pairs(above, below) + _pairs(above, above) + _pairs(below, below) > _MOST_PAIRS:
            return None
        quotient = Quotient(above, below, 100.0)
        return _labelled(table, shown, evaluated([quotient], self.answers, table.level))

    def _coefficients(self, wanted: Sequence[_Labels]) -> sp.csr_array:
        return self.matrix[np.array([self.places[each] for each in wanted], np.int64)]


def _labelled(table: Table, labels: Sequence[_Labels], numbers: RowNumbers) -> Table:
    found = Table(table.name, table.title, table.label_columns, lambda: labels, *numbers, table.level, table.biased)
    return replace(found, reliability=table.reliability)


def _pairs(one: sp.csr_array, other: sp.csr_array) -> int:
    return int((np.diff(one.indptr).astype(np.int64) * np.diff(other.indptr)).sum())


def _products(query: TableQuery, tab: CrossTab, labels: RowLabels) -> tuple[Product, ...]:
    """Totals as queries of their own, if the table is one product and has none of them yet."""
    products = query.workload.products
    if query.combine is not None or len(products) != 1 or products[0].joint:
        return ()
    (product,) = products
    shape = [p.count(product.domain.shape[i]) for i, p in product.factors]
    everything = _summed(product, range(len(shape)))
    if tab.across is None:
        return (everything,) if len(labels) == len(tab.down) else ()
    heads = _axis_of([row[tab.across] for row in labels], shape)
    if heads is None or len(labels) != len(tab.down) * len(tab.heads) or shape[heads] != len(tab.heads):
        return ()
    others = [k for k in range(len(shape)) if k != heads]
    return _summed(product, [heads]), _summed(product, others), everything


def _axis_of(labels: Sequence[str], shape: Sequence[int]) -> int | None:
    """The factor of a product that alone decides a column of labels, one for each of its queries."""
    codes = np.unique(np.array(labels, dtype=object), return_inverse=True)[1].reshape(shape)
    varying = [k for k in range(len(shape)) if (np.diff(codes, axis=k) != 0).any()]
    return varying[0] if len(varying) == 1 else None


def _summed(product: Product, places: Sequence[int]) -> Product:
    """The product with the queries of some factors added up."""
    factors: list[tuple[int, PredicateSet]] = []
    for k, (axis, predicates) in enumerate(product.factors):
        if k not in places:
            factors.append((axis, predicates))
            continue
        W = predicates.matrix(product.domain.shape[axis])
        counted = W.T.matmat(np.ones((W.shape[0], 1)))
        if not (counted == 1).all():  # else the attribute does not matter
            factors.append((axis, Vectors(counted.T)))
    return Product(product.domain, tuple(factors))
