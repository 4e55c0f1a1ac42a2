"""Group expressions (a column, FLOOR(column / n) and similar, or CASE brackets) as labelled sets of cells."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.base.exceptions import DomainError, WorkloadError
from hdmm.describe.attribute import Column
from hdmm.describe.entries import Label
from hdmm.describe.numeric import Bins
from hdmm.describe.values import Labels
from hdmm.sql.cells import Cells
from hdmm.sql.comparison import LiteralValue, cells_by_value, compare
from hdmm.sql.conditions import Scope, condition, constant, is_constant
from hdmm.sql.formula import And, Formula, complement, conjunction, disjunction, on

GroupFormulas: TypeAlias = dict[Label | None, Formula]
"""The cells of each group by its label, which is None for the group of NULL. Every cell is in exactly one group."""

EXPRESSIONS = "a column, FLOOR(column / n) with + - * of numbers, CASE WHEN condition THEN value … END"
_MOST_BRANCHES = 256  # of a CASE that looks at several attributes
_BINNED = "Group by the column itself, or by CASE with conditions at edges."
_Value: TypeAlias = tuple[Fraction, Fraction] | None
"""The numbers that a cell holds: those in [low, high), a single number if both are equal, or None for NULL."""


def groups(scope: Scope, node: Expr) -> GroupFormulas:
    """The groups of a group expression, in the order of cells (for CASE, in the order of branches).

    A column declared with outside="other" also has the group "other", which is SQL's group of NULL.
    """
    node = node.unnest()
    if not isinstance(node, exp.Column):
        return valued(scope, node)
    with scope.pointing(node):
        column = scope.column(node)
        return {column.values.label(code): on(column.axis, cells) for code, cells in cells_by_value(column)}


def valued(scope: Scope, node: Expr) -> GroupFormulas:
    """The groups by the value of an expression: like `groups`, but "other" is NULL, and bins have no value."""
    node = node.unnest()
    if isinstance(node, exp.Case):
        return _case(scope, node)
    if is_constant(node):
        return {as_label(constant(scope, node)): True}
    with scope.pointing(node):
        added = scope.summing is not None
        if isinstance(node, exp.Column) and isinstance((column := scope.column(node, added=added)).values, Labels):
            return {
                column.values.label(code) if code < column.declared else None: on(column.axis, cells)
                for code, cells in cells_by_value(column)
            }
        return _computed(scope, node)


def _case(scope: Scope, node: exp.Case) -> GroupFormulas:
    """The groups of a CASE: the first branch whose condition is true decides; if there is none, ELSE or NULL."""
    found: dict[Label | None, list[Formula]] = {}
    left: Formula = True
    for branch in node.args["ifs"]:
        holds = _when(scope, node.this, branch.this)
        _add(found, conjunction([left, holds]), valued(scope, branch.args["true"]))
        left = conjunction([left, complement(holds)])
        if isinstance(left, And) and len(left.parts) > _MOST_BRANCHES:  # each one is repeated in all later branches
            raise scope.source.at(
                node,
                f"CASE has more than {_MOST_BRANCHES} branches on several attributes at once. Write fewer branches, or "
                "merge these attributes with Domain.merge.",
            )
    default = node.args.get("default")
    _add(found, left, valued(scope, default) if default is not None else {None: True})
    kinds = {_kind(label) for label in found if label is not None}
    if len(kinds) > 1:
        raise scope.source.at(node, f"The results of CASE are {' and '.join(sorted(kinds))}. Use one type of result.")
    return {label: disjunction(parts) for label, parts in found.items()}


def _when(scope: Scope, subject: Expr | None, node: Expr) -> Formula:
    """The condition of a branch; `CASE column WHEN value` compares."""
    if subject is None:
        return condition(scope, node)
    if not isinstance(subject, exp.Column):
        raise scope.source.at(subject, "CASE must be followed by a column or by WHEN.")
    column = scope.column(subject)
    with scope.pointing(node):
        value = constant(scope, node)
        return False if value is None else on(column.axis, compare(column, "=", value).true)


def _add(found: dict[Label | None, list[Formula]], where: Formula, results: GroupFormulas) -> None:
    for label, f in results.items():
        part = conjunction([where, f])
        if part is not False:
            found.setdefault(label, []).append(part)


def _computed(scope: Scope, node: Expr) -> GroupFormulas:
    """The groups by a number computed from one column, in the order of cells. O(cells)."""
    added = scope.summing is not None and node.find(exp.Floor) is None  # a sum of amounts is linear in them
    columns = {scope.column(inner, added=added) for inner in node.find_all(exp.Column)}
    if len(columns) != 1:
        raise scope.source.at(node, _unsupported(scope))
    (column,) = columns
    listed = list(cells_by_value(column))
    held = [_held(column, code) if scope.summing is None else _amount(scope, column, code) for code, _ in listed]
    values = _numbers(scope, node, column, held)
    found: dict[Label | None, list[Cells]] = {}
    for value, (code, cells) in zip(values, listed, strict=True):
        if value is not None and value[0] != value[1] and scope.summing is None:
            raise WorkloadError(
                f"This expression has several values within the bin {column.values.label(code)} of {column.name}. "
                f"{_BINNED}"
            )
        at = None if value is None else value[1] if scope.summing == "upper" else value[0]
        found.setdefault(as_label(at), []).append(cells)
    return {
        label: on(column.axis, Cells.of(column.n, (run for c in cells for run in c.runs)))
        for label, cells in found.items()
    }


def _amount(scope: Scope, column: Column, code: int) -> _Value:
    """The number that one of a column's own cells stands for in sums, or the ends of a bin."""
    if scope.summing != "value" and isinstance(column.values, Bins):
        return _held(column, code)
    try:
        number = column.values.number(code)
    except DomainError as error:
        raise WorkloadError(f"{column.name} cannot be added up. {error}") from None
    return None if number is None else (Fraction(number), Fraction(number))


def _held(column: Column, code: int) -> _Value:
    """The numbers that one of a column's own cells holds."""
    if code >= column.declared:
        return None
    if isinstance(column.values, Bins):
        return Fraction(column.values.edges[code]), Fraction(column.values.edges[code + 1])
    label = column.values.label(code)
    if isinstance(label, bool) or not isinstance(label, int | float | Fraction | Decimal):
        raise WorkloadError(
            f"{column.name} holds {label!r}, which is not a number. Group by the column itself, or by CASE."
        )
    return Fraction(label), Fraction(label)


def _numbers(scope: Scope, node: Expr, column: Column, held: list[_Value]) -> Iterable[_Value]:
    """The value of an expression in each cell, computed from the values of the column there."""
    match node:
        case exp.Paren():
            return _numbers(scope, node.this, column, held)
        case exp.Column():
            return held
        case exp.Add() | exp.Sub() | exp.Mul():
            return _arithmetic(scope, node, column, held)
        case exp.Floor():
            inner, n = node.this.unnest(), Fraction(1)
            if isinstance(inner, exp.Div):
                inner, n = inner.this, _divisor(scope, inner.expression)
            values = enumerate(_numbers(scope, inner, column, held))
            return [_floored(scope, v, n, column, code) for code, v in values]
        case exp.Div():
            raise scope.source.at(node, "Database engines define / differently. Write FLOOR(column / n).")
        case _:
            raise scope.source.at(node, _unsupported(scope))


def _arithmetic(
    scope: Scope, node: exp.Add | exp.Sub | exp.Mul, column: Column, held: list[_Value]
) -> Iterable[_Value]:
    """The sum, difference or product of an expression and a number, in either order."""
    left, right = node.this, node.expression
    first = is_constant(left)
    number = constant(scope, left if first else right)
    if not isinstance(number, Fraction):
        raise scope.source.at(node, "A number is expected here.")
    values = _numbers(scope, right if first else left, column, held)
    scale, shift = (number, Fraction(0)) if isinstance(node, exp.Mul) else (Fraction(1), number)
    if isinstance(node, exp.Sub):
        scale, shift = (Fraction(-1), number) if first else (Fraction(1), -number)
    if scale <= 0 and isinstance(column.values, Bins) and any(v is not None and v[0] != v[1] for v in values):
        if scope.summing is None:
            raise WorkloadError(f"{column.name} is counted in bins, whose order cannot be reversed. {_BINNED}")
        values = [None if v is None else v[::-1] for v in values]
    return [None if v is None else (scale * v[0] + shift, scale * v[1] + shift) for v in values]


def _unsupported(scope: Scope) -> str:
    return f"This cannot be {'added up' if scope.summing else 'grouped by'}. Supported: {EXPRESSIONS}."


def _divisor(scope: Scope, node: Expr) -> Fraction:
    n = constant(scope, node)
    if not isinstance(n, Fraction) or n < 1 or n.denominator != 1:
        raise scope.source.at(node, "FLOOR must divide by an integer of at least 1.")
    return n


def _floored(scope: Scope, value: _Value, n: Fraction, column: Column, code: int) -> _Value:
    if value is None:
        return None
    low, high = value
    if scope.summing is not None:
        return Fraction(low // n), Fraction(high // n)
    least = Fraction(low // n)
    most = least if low == high else Fraction(-(-high // n) - 1)  # the last value below high
    if least != most:
        raise WorkloadError(
            f"FLOOR splits the bin {column.values.label(code)} of {column.name}, in which it takes the values "
            f"{least} to {most}. {_BINNED}"
        )
    return least, least


def as_label(value: LiteralValue | None) -> Label | None:
    """A literal as the label of a group: whole numbers as integers."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value


def _kind(label: Label) -> str:
    if isinstance(label, bool):
        return "truth values"
    return "text" if isinstance(label, str) else "numbers"
