"""What SUM, AVG and MEDIAN add up or order: an amount in each cell, or cells in the order of their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np
from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.base.exceptions import DomainError, WorkloadError
from hdmm.describe.numeric import Bins
from hdmm.describe.predicates import Amounts, PredicateSet, Prefix
from hdmm.describe.values import Amount, Values
from hdmm.matrix import Array
from hdmm.sql.cells import Cells, predicates
from hdmm.sql.conditions import Scope, Summing, bare
from hdmm.sql.formula import Formula, On, axes, disjunction
from hdmm.sql.groups import valued


@final
@dataclass(frozen=True, slots=True)
class Valuation:
    """Amounts by the cells that have them: what a SUM adds up. COUNT(*) has the amount 1 everywhere."""

    terms: tuple[tuple[Amount, Formula], ...]

    @property
    def axis(self) -> int | None:
        """The attribute that decides the amounts, if there is one."""
        found = set[int]().union(*(axes(f) for _, f in self.terms))
        return next(iter(found)) if len(found) == 1 else None

    def on_cells(self, groups: Sequence[Cells], n: int) -> PredicateSet:
        """One query per set of cells of the attribute: counts if there is one amount only, 1, else sums."""
        amounts = np.zeros(n)
        for amount, f in self.terms:
            if isinstance(f, On):  # as a formula on one attribute is, unless it is true or false everywhere
                for low, high in f.cells.runs:
                    amounts[low : high + 1] = amount
        if set(amounts.tolist()) <= {0.0, 1.0}:
            kept = Cells.of(n, ((i, i) for i in np.flatnonzero(amounts).tolist()))
            return predicates([cells & kept for cells in groups], n)
        inside = np.zeros((len(groups), n))
        for row, cells in zip(inside, groups, strict=True):
            for low, high in cells.runs:
                row[low : high + 1] = amounts[low : high + 1]
        return Amounts(inside)


@final
@dataclass(frozen=True, slots=True)
class Ordering:
    """The cells of a column in the order of its values: what a MEDIAN ranks. `cells` are those of the attribute."""

    axis: int
    cells: tuple[Cells, ...]
    values: Values

    def on_cells(self, groups: Sequence[Cells], n: int) -> PredicateSet:
        """The prefix counts of each set of cells, one after the other."""
        found, so_far = list[Cells](), Cells(n, ())
        for cells in self.cells:
            so_far |= cells
            found.append(so_far)
        if len(groups) == 1 and groups[0].full and [each.runs for each in found] == [((0, i),) for i in range(n)]:
            return Prefix()
        return predicates([cells & each for cells in groups for each in found], n)


Counted: TypeAlias = Valuation | Ordering
COUNTED = Valuation(((1, True),))


def summed(scope: Scope, node: Expr, summing: Summing = "value") -> tuple[Valuation, Valuation]:
    """What SUM of an expression adds up, and what AVG divides it by: the rows in which it is not NULL."""
    terms: list[tuple[Amount, Formula]] = []
    with scope.pointing(node):
        for label, f in valued(replace(scope, summing=summing), node).items():
            if isinstance(label, bool) or not isinstance(label, int | float | None):
                raise WorkloadError(
                    f"{label!r} is not a number, so that there is no sum or mean of such values. Count them with GROUP "
                    f"BY; the share of one is AVG(CASE WHEN … = {label!r} THEN 1 ELSE 0 END)."
                )
            if label is not None:
                terms.append((label, f))
    known = disjunction(f for _, f in terms)
    return Valuation(tuple((amount, f) for amount, f in terms if amount)), Valuation(((1, known),))


def ordered(scope: Scope, node: Expr) -> Ordering:
    """The cells of the column of which a MEDIAN is asked for."""
    node = bare(node)
    if not isinstance(node, exp.Column):
        raise scope.source.at(node, "A median or quantile is of a column: of integers or bins.")
    column = scope.column(node)
    if not column.values.ordered:
        raise scope.source.at(node, f"{column.name} has no order, so it has no quantiles. Count its values instead.")
    with scope.pointing(node):
        cells = tuple(cells for code, cells in column.groups() if code < column.declared)
    return Ordering(column.axis, cells, column.values)


def limits(values: Values) -> tuple[Array, Array]:
    """The least and the largest value of each declared cell of ordered values."""
    if isinstance(values, Bins):
        return np.array(values.edges[:-1], np.float64), np.array(values.edges[1:], np.float64)
    declared = values.size - (values.outside == "other")
    try:
        numbers = np.array([values.number(code) for code in range(declared)], np.float64)
    except (DomainError, OverflowError):
        raise WorkloadError("The values have no numbers, so they have no quantiles.") from None
    return numbers, numbers
