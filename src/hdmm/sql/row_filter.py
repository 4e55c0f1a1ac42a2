"""Row filters: a public condition on columns of the source, as the values that a row must have to be counted.

A filter is read here and never sent to a database: it becomes attributes that drop all other rows, so that it means the
same on every source, and no row decides anything but whether it is counted itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from fractions import Fraction

from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.entries import Label
from hdmm.describe.numeric import Bins
from hdmm.describe.values import Labels, Values
from hdmm.sql.comparison import Comparison, LiteralValue
from hdmm.sql.conditions import COMPARISONS, MIRRORED, ParsedCondition, Scope, constant, is_constant, readable
from hdmm.sql.groups import as_label

_COMPARED = "= IN < <= > >= BETWEEN of a column and literals, joined by AND"
_MOST_DAYS = 1000  # as many cases as databases are asked for
_LARGEST = sys.float_info.max
_Bound = Fraction | date
_BELOW, _ABOVE = {"<": False, "<=": True}, {">": False, ">=": True}  # whether the number itself is inside


def row_filter(text: str) -> dict[str, Values]:
    """The values that rows must have, by column; WorkloadError if the text is no such condition.

    Days are texts of the form 2026-01-31, which stand for dates in a column of dates.

    >>> row_filter("month = '2026-01' AND age BETWEEN 18 AND 64")
    {'month': Labels(values=('2026-01',), outside='drop'), 'age': Bins(edges=(18, 64.00000000000001), outside='drop')}
    """
    with readable("condition", text):
        parsed = ParsedCondition.of(text, ())
        by_column: dict[str, list[tuple[Comparison, list[LiteralValue]]]] = {}
        for column, op, literals in _parts(Scope(parsed.source, {}, "t"), parsed.tree):
            by_column.setdefault(column, []).append((op, literals))
        return {column: _values(column, each) for column, each in by_column.items()}


def _parts(scope: Scope, node: Expr) -> Iterator[tuple[str, Comparison, list[LiteralValue]]]:
    """(column, comparison, literals) of each of the conditions that AND joins."""
    match node.unnest():
        case exp.And(this=left, expression=right):
            yield from _parts(scope, left)
            yield from _parts(scope, right)
        case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE() as compared:
            left, right, op = compared.this, compared.expression, COMPARISONS[type(compared)]
            if is_constant(left):
                left, right, op = right, left, MIRRORED[op]
            yield _column(scope, left), op, [_literal(scope, right)]
        case exp.In(this=left, expressions=[_, *_] as items):
            yield _column(scope, left), "=", [_literal(scope, item) for item in items]
        case exp.Between(this=left, args=ends):
            yield _column(scope, left), ">=", [_literal(scope, ends["low"])]
            yield _column(scope, left), "<=", [_literal(scope, ends["high"])]
        case other:
            raise scope.source.at(other, f"This condition is not supported. Supported: {_COMPARED}.")


def _column(scope: Scope, node: Expr) -> str:
    node = node.unnest()
    if not isinstance(node, exp.Column):
        raise scope.source.at(node, f"A column is expected here. Supported: {_COMPARED}.")
    return node.name


def _literal(scope: Scope, node: Expr) -> LiteralValue:
    value = constant(scope, node)
    if value is None:
        raise scope.source.at(node, "A comparison with NULL is never true.")
    return value


def _values(column: str, parts: list[tuple[Comparison, list[LiteralValue]]]) -> Values:
    """What all conditions on one column leave."""
    if any(op == "=" for op, _ in parts):
        if len(parts) > 1:
            raise WorkloadError(f"Write one condition on {column}, or an interval of it.")
        labels: list[Label] = [as_label(literal) for literal in parts[0][1]]
        return Labels(labels)
    bounds = [(op, _bound(column, literals[0])) for op, literals in parts]
    if len({type(bound) for _, bound in bounds}) > 1:
        raise WorkloadError(f"{column} is compared with numbers and with days. Use one of them.")
    above = [(bound, _ABOVE[op]) for op, bound in bounds if op in _ABOVE]
    below = [(bound, _BELOW[op]) for op, bound in bounds if op in _BELOW]
    if len(above) > 1 or len(below) > 1:
        raise WorkloadError(f"Write one lower and one upper end of {column} at most.")
    return _days(column, above, below) if isinstance(bounds[0][1], date) else _interval(column, above, below)


def _bound(column: str, literal: LiteralValue) -> _Bound:
    if isinstance(literal, Fraction):
        return literal
    try:
        return date.fromisoformat(literal if isinstance(literal, str) else "")
    except ValueError:
        raise WorkloadError(
            f"{column} is compared with {literal!r}. Intervals are of numbers, or of days such as '2026-01-31'."
        ) from None


def _interval(column: str, above: list[tuple[_Bound, bool]], below: list[tuple[_Bound, bool]]) -> Bins:
    """The numbers from one end up to below the next float after the other."""
    low = _edge(*above[0], after=False) if above else -_LARGEST
    high = _edge(*below[0], after=True) if below else _LARGEST
    if not low < high:
        raise WorkloadError(f"No number is in the interval of {column}. Give a lower end that is below the upper one.")
    return Bins([low, high])


def _edge(bound: _Bound, inside: bool, *, after: bool) -> float:
    """The first float that is inside, or `after` the last one that is."""
    number = float(bound) if isinstance(bound, Fraction) else math.nan
    return math.nextafter(number, math.inf) if inside == after else number


def _days(column: str, above: list[tuple[_Bound, bool]], below: list[tuple[_Bound, bool]]) -> Labels:
    if not above or not below:
        raise WorkloadError(f"Give the first and the last day of {column}: BETWEEN '2026-01-01' AND '2026-01-31'.")
    (first, first_inside), (last, last_inside) = above[0], below[0]
    if not isinstance(first, date) or not isinstance(last, date):
        raise WorkloadError(f"{column} is compared with numbers and with days. Use one of them.")
    start, count = first + timedelta(not first_inside), (last - first).days + first_inside + last_inside - 1
    if not 1 <= count <= _MOST_DAYS:
        raise WorkloadError(f"There are {count:,} days of {column} from {first} to {last}; 1 to {_MOST_DAYS:,} may be.")
    return Labels([(start + timedelta(k)).isoformat() for k in range(count)])
