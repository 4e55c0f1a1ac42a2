"""Measures: what the aggregates of a SELECT add up or rank, each thing once, and what each aggregate is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias, final

import numpy as np
from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.base.exceptions import DomainError, WorkloadError
from hdmm.describe.numeric import Bins
from hdmm.describe.predicates import Amounts, PredicateSet, Prefix
from hdmm.describe.values import Real, Values
from hdmm.matrix import Array
from hdmm.sql.cells import Cells, predicates
from hdmm.sql.comparison import cells_by_value
from hdmm.sql.conditions import Scope, Summing, constant
from hdmm.sql.formula import Formula, On, axes, disjunction
from hdmm.sql.groups import valued
from hdmm.sql.selection import SelectParts


@final
@dataclass(frozen=True, slots=True)
class Valuation:
    """Amounts by the cells that have them: what a SUM adds up. COUNT(*) has the amount 1 everywhere."""

    terms: tuple[tuple[Real, Formula], ...]

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

    @property
    def limits(self) -> tuple[Array, Array]:
        """The least and the largest value of each declared cell."""
        if isinstance(self.values, Bins):
            return np.array(self.values.edges[:-1], np.float64), np.array(self.values.edges[1:], np.float64)
        declared = self.values.size - (self.values.outside == "other")
        try:
            numbers = np.array([self.values.number(code) for code in range(declared)], np.float64)
        except (DomainError, OverflowError):
            raise WorkloadError("The values have no numbers, so they have no quantiles.") from None
        return numbers, numbers


Counted: TypeAlias = Valuation | Ordering
COUNTED = Valuation(((1, True),))


@final
@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate: the places among `Measures.counted` of what it is made of, and the q of a quantile."""

    places: tuple[int, ...]
    q: float | None = None

    @property
    def linear(self) -> bool:
        """Whether it is a count or a sum; a mean is a quotient, and a quantile is read from prefix counts."""
        return len(self.places) == 1 and self.q is None


@final
@dataclass(frozen=True, slots=True)
class Measures:
    """The aggregates of a SELECT. Whatever two of them share is counted once: AVG is a sum and a count."""

    counted: tuple[Counted, ...]
    each: tuple[Measure, ...]

    @property
    def linear(self) -> bool:
        """Whether all of them are counts or sums."""
        return all(measure.linear for measure in self.each)

    @classmethod
    def of(cls, select: SelectParts) -> Measures:
        """The measures that a SELECT asks for."""
        return cls._sharing((_parts(select, one.node), _probability(select, one.node)) for one in select.aggregates)

    @classmethod
    def at_ends(cls, selects: Sequence[SelectParts]) -> tuple[tuple[int, ...], tuple[Measures, ...]] | None:
        """The sums and means of values that are known by their bins only, with every value at the ends of its bin.

        (their places among the aggregates, and for each SELECT all of them at the lower ends, then all at the upper
        ends); None if there are none.
        """
        found = [[_ends(one, each.node) for each in one.aggregates] for one in selects]
        which = tuple(k for k, each in enumerate(zip(*found, strict=True)) if any(e and e[0] != e[1] for e in each))
        if not which:
            return None
        measures = (
            cls._sharing(((each[end], *each[2:]), None) for end in (0, 1) for k in which if (each := ends[k]))
            for ends in found
        )
        return which, tuple(measures)

    @classmethod
    def _sharing(cls, aggregates: Iterable[tuple[Sequence[Counted], float | None]]) -> Measures:
        numbers: dict[Counted, int] = {}
        each = tuple(
            Measure(tuple(numbers.setdefault(part, len(numbers)) for part in parts), q) for parts, q in aggregates
        )
        return cls(tuple(numbers), each)


def _parts(select: SelectParts, node: Expr) -> tuple[Counted, ...]:
    """What an aggregate is made of."""
    match node:
        case exp.Sum():
            return _summed(select.scope, node.this)[:1]
        case exp.Avg():
            return _summed(select.scope, node.this)
        case exp.Median() | exp.Quantile():
            return (_ordered(select.scope, node.this),)
        case _:
            return (COUNTED,)


def _ends(select: SelectParts, node: Expr) -> tuple[Valuation, ...]:
    """What a SUM adds up at the lower and at the upper ends of bins, and for AVG what it is divided by."""
    if not isinstance(node, exp.Sum | exp.Avg):
        return ()
    lower, upper = (_summed(select.scope, node.this, end)[0] for end in ("lower", "upper"))
    return (lower, upper, *_summed(select.scope, node.this)[1:]) if isinstance(node, exp.Avg) else (lower, upper)


def _summed(scope: Scope, node: Expr, summing: Summing = "value") -> tuple[Valuation, Valuation]:
    """What SUM of an expression adds up, and what AVG divides it by: the rows in which it is not NULL."""
    terms: list[tuple[Real, Formula]] = []
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


def _ordered(scope: Scope, node: Expr) -> Ordering:
    """The cells of the column whose quantile is asked for."""
    node = node.unnest()
    if not isinstance(node, exp.Column):
        raise scope.source.at(node, "A median or quantile is of a column: of integers or bins.")
    column = scope.column(node)
    if not column.values.ordered:
        raise scope.source.at(node, f"{column.name} has no order, so it has no quantiles. Count its values instead.")
    with scope.pointing(node):
        cells = tuple(cells for code, cells in cells_by_value(column) if code < column.declared)
    return Ordering(column.axis, cells, column.values)


def _probability(select: SelectParts, node: Expr) -> float | None:
    """The q of a quantile; ½ for a median."""
    if not isinstance(node, exp.Quantile):
        return 0.5 if isinstance(node, exp.Median) else None
    given = node.args.get("quantile")
    q = None if given is None else constant(select.scope, given)
    if not isinstance(q, Fraction) or not 0 < q < 1:
        raise select.scope.source.at(node, "A quantile needs a number between 0 and 1, such as QUANTILE(age, 0.25).")
    return float(q)
