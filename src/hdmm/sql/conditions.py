"""Conditions as formulas over cells: those of WHERE and CASE, and those that are impossible.

A comparison is of one column with literals, or of a sum or difference of columns, `a + b <= 5` or `ABS(a - b) <= 2`,
with a number: then it is about the cells of one attribute, or of two in row-major order. Arithmetic is exact, on whole
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeAlias, cast, final

import numpy as np
from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.base.exceptions import SqlError, WorkloadError
from hdmm.base.hints import did_you_mean
from hdmm.describe.amount import SUM_IT
from hdmm.describe.attribute import Column, columns
from hdmm.describe.domain import Domain
from hdmm.describe.numeric import Integers
from hdmm.describe.values import Labels
from hdmm.matrix import Array
from hdmm.sql.cells import MOST_LISTED, Cells
from hdmm.sql.comparison import COMPARE, Comparison, LiteralValue, Truth, compare, is_null, isin
from hdmm.sql.formula import AxisOrPair, Formula, complement, conjunction, disjunction, on
from hdmm.sql.syntax import statements
from hdmm.sql.text import SqlText

PREDICATES = (
    "= <> < <= > >= BETWEEN IN, IS NULL, AND, OR, NOT of a column and literals; = <> < <= > >= BETWEEN of a sum or "
    "difference of two columns, or ABS of one, and a number"
)
_LONGEST_NUMBER = 300
COMPARISONS: dict[type[Expr], Comparison] = dict(
    zip((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), COMPARE, strict=True)
)
MIRRORED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


Summing: TypeAlias = Literal["value", "lower", "upper"]
"""In a sum, a bin stands for the number that is declared for it, or for one of its ends."""


@final
@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that the names of one SELECT stand for, and the text into which errors point."""

    source: SqlText
    columns: Mapping[str, Column]
    table: str
    summing: Summing | None = None  # the number by which a bin stands in a sum; None where nothing is added up

    def column(self, node: exp.Column, *, added: bool = False) -> Column:
        """The column that a node names; an error if it is an amount, unless it is `added` up, or asked for NULL."""
        column = self._named(node)
        if column.values.divided and not added:
            raise self.source.at(node, f"{column.name} is an amount, which cannot be grouped or compared. {SUM_IT}")
        return column

    def _named(self, node: exp.Column) -> Column:
        name, table = node.name, node.table
        if table and table.casefold() != self.table.casefold():
            raise self.source.at(node, f"Table {table!r} is not {self.table!r}, the table after FROM.")
        if name in self.columns:
            return self.columns[name]
        folded = [column for other, column in self.columns.items() if other.casefold() == name.casefold()]
        if len(folded) == 1 and not cast(exp.Identifier, node.this).quoted:
            return folded[0]
        hint = did_you_mean(name, self.columns)
        few = ", ".join(list(self.columns)[:20]) + (", …" if len(self.columns) > 20 else "")
        raise self.source.at(node, f"Column {name!r} is not in the domain; columns: {few}.{hint}")

    def is_column(self, node: Expr) -> bool:
        """Whether a node is the name of a column, in any case of letters."""
        return isinstance(node, exp.Column) and node.name.casefold() in {name.casefold() for name in self.columns}

    @contextmanager
    def pointing(self, node: Expr) -> Generator[None]:
        """Make errors about the meaning of a node point at its text."""
        try:
            yield
        except SqlError:
            raise
        except WorkloadError as error:
            raise self.source.at(node, str(error)) from None


def condition(scope: Scope, node: Expr, *, holds: bool = True) -> Formula:
    """The cells where a condition is true, or, with holds=False, where it is false (elsewhere it may be NULL).

    NOT switches between the two; AND and OR are then exchanged by De Morgan's laws, which hold in SQL's logic.
    """
    match node:
        case exp.Paren():
            return condition(scope, node.this, holds=holds)
        case exp.Not():
            return condition(scope, node.this, holds=not holds)
        case exp.And() | exp.Or():
            join = conjunction if isinstance(node, exp.And) == holds else disjunction
            return join([condition(scope, part, holds=holds) for part in node.flatten(unnest=False)])
        case exp.Boolean():
            return bool(node.this) == holds
        case _:
            join = conjunction if holds else disjunction
            with scope.pointing(node):
                return join(
                    on(place, truth.true if holds else truth.false) for place, truth in _comparisons(scope, node)
                )


def constant(scope: Scope, node: Expr) -> LiteralValue | None:
    """The value of a literal; None for NULL.

    Numbers are exact, with at most 300 digits before or after the point.
    """
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Paren():
            return constant(scope, node.this)
        case exp.Literal(is_string=True):
            return str(node.this)
        case exp.Literal():
            return _number(scope, node)
        case exp.Neg():
            value = constant(scope, node.this)
            if isinstance(value, Fraction):
                return -value
        case _:
            pass
    raise scope.source.at(node, "A literal is expected here: a number, a text in single quotes, TRUE or FALSE.")


def is_constant(node: Expr) -> bool:
    """Whether a node is a literal."""
    if isinstance(node, exp.Neg | exp.Paren):
        return is_constant(node.this)
    return isinstance(node, exp.Literal | exp.Null | exp.Boolean)


def _comparisons(scope: Scope, node: Expr) -> Iterator[tuple[AxisOrPair, Truth]]:
    """The attributes that a condition is about, and where it is true and false; BETWEEN is two conditions."""
    match node:
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            yield _compared(scope, COMPARISONS[type(node)], node.this, node.expression)
        case exp.Between():
            yield _compared(scope, ">=", node.this, node.args["low"])
            yield _compared(scope, "<=", node.this, node.args["high"])
        case exp.In(expressions=[_, *_]):
            column = _column(scope, node.this)
            yield column.axis, isin(column, [_not_null(scope, item) for item in node.expressions])
        case exp.Is(expression=exp.Null()):
            column = _column(scope, node.this, added=True)
            yield column.axis, is_null(column)
        case exp.Column():
            column = scope.column(node)
            yield column.axis, compare(column, "=", True)
        case _:
            raise scope.source.at(node, f"This condition is not supported. Supported: {PREDICATES}.")


def _compared(scope: Scope, op: Comparison, left: Expr, right: Expr) -> tuple[AxisOrPair, Truth]:
    """Where a comparison is true and false: of a column with a literal, or of sums or columns with each other."""
    left, right = left.unnest(), right.unnest()
    if is_constant(left):
        op, left, right = MIRRORED[op], right, left
    if not (_is_computed(left) or _is_computed(right) or (scope.is_column(left) and scope.is_column(right))):
        column = _column(scope, left)
        return column.axis, compare(column, op, _not_null(scope, right))
    value, number = _sum(scope, left), _sum(scope, right)
    if number.terms or number.absolute:
        value, number = value.plus(number, -1), LinearExpression({})
    return value.compared(op, number.shift)


def _is_computed(node: Expr) -> bool:
    return isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Abs) or (
        isinstance(node, exp.Neg) and not is_constant(node)
    )


def _numeric(scope: Scope, node: Expr) -> Fraction | None:
    """The value of a literal that is a number; None for anything else."""
    if not is_constant(node):
        return None
    value = _not_null(scope, node)
    if not isinstance(value, Fraction):
        raise scope.source.at(node, "A number is expected here.")
    return value


def _column(scope: Scope, node: Expr, *, added: bool = False) -> Column:
    node = node.unnest()
    if not isinstance(node, exp.Column):
        raise scope.source.at(node, f"A column is expected here. Supported: {PREDICATES}.")
    return scope.column(node, added=added)


def _not_null(scope: Scope, node: Expr) -> LiteralValue:
    value = constant(scope, node)
    if value is None:
        raise scope.source.at(node, "A comparison with NULL is never true. Write IS NULL or IS NOT NULL.")
    return value


def _number(scope: Scope, node: exp.Literal) -> Fraction:
    number = Decimal(node.this)
    if len(number.as_tuple().digits) > _LONGEST_NUMBER or abs(number.adjusted()) > _LONGEST_NUMBER:
        raise scope.source.at(node, f"The number has more than {_LONGEST_NUMBER} digits. Use a shorter one.")
    return Fraction(number)


@final
@dataclass(frozen=True, slots=True)
class LinearExpression:
    """Σ coefficient·column + shift, or its absolute value."""

    terms: dict[Column, Fraction]
    shift: Fraction = Fraction(0)
    absolute: bool = False

    def plus(self, other: LinearExpression, factor: int) -> LinearExpression:
        """The sum with another, or with the factor −1 the difference; WorkloadError if one is an ABS."""
        if self.absolute or other.absolute:
            raise WorkloadError("ABS stands alone on one side of a comparison with a number, as in ABS(a - b) <= 2.")
        # A column whose coefficients add up to 0 stays, because the sum is NULL wherever the column is.
        terms = {
            c: self.terms.get(c, Fraction(0)) + factor * other.terms.get(c, Fraction(0))
            for c in (self.terms | other.terms)
        }
        return LinearExpression(terms, self.shift + factor * other.shift)

    def times(self, factor: Fraction) -> LinearExpression:
        """A multiple of it."""
        if self.absolute:
            raise WorkloadError("ABS cannot be multiplied here. Write ABS(a - b) <= 2.")
        return LinearExpression({c: factor * a for c, a in self.terms.items()}, factor * self.shift)

    def compared(self, op: Comparison, number: Fraction) -> tuple[AxisOrPair, Truth]:
        """The attribute or attributes, and the cells where the comparison is true, and false."""
        place, values, known, scale = self._values()
        holds = COMPARE[op](values, int(number * scale) if (number * scale).denominator == 1 else number * scale)
        n = values.size
        return place, Truth(_cells(holds & known, n), _cells(~holds & known, n))

    def _values(self) -> tuple[AxisOrPair, Array, Array, int]:
        """(the attributes, the value in each cell times a whole number, where no column is NULL, that number)."""
        axes = sorted({column.axis for column in self.terms})
        if not 1 <= len(axes) <= 2:
            raise WorkloadError(
                f"This compares {len(axes)} attributes at once. Compare a sum or difference of one column or two with "
                "a number."
            )
        sizes = [next(c.n for c in self.terms if c.axis == axis) for axis in axes]
        if math.prod(sizes) > MOST_LISTED:
            raise WorkloadError(
                f"The attributes have {math.prod(sizes):,} cells together; the limit is {MOST_LISTED:,}. Use "
                "coarser bins."
            )
        scale = math.lcm(self.shift.denominator, *(a.denominator for a in self.terms.values()))
        values = np.full(sizes, int(self.shift * scale), dtype=object)
        known = np.ones(sizes, dtype=bool)
        for column, coefficient in self.terms.items():
            own = column.codes
            along = [-1 if axis == column.axis else 1 for axis in axes]
            held = _whole_numbers(column)
            numbers = np.array([*held, *(0 for _ in range(column.values.size - len(held)))], dtype=object)[own]
            values = values + (numbers * int(coefficient * scale)).reshape(along)
            known = known & (own < column.declared).reshape(along)
        values = np.abs(values) if self.absolute else values
        return axes[0] if len(axes) == 1 else (axes[0], axes[1]), values.ravel(), known.ravel(), scale


def _sum(scope: Scope, node: Expr) -> LinearExpression:
    """The sum that an expression stands for."""
    value = _numeric(scope, node)
    if value is not None:
        return LinearExpression({}, value)
    match node:
        case exp.Paren():
            return _sum(scope, node.this)
        case exp.Column():
            return LinearExpression({scope.column(node): Fraction(1)})
        case exp.Neg():
            return _sum(scope, node.this).times(Fraction(-1))
        case exp.Add() | exp.Sub():
            factor = 1 if isinstance(node, exp.Add) else -1
            return _sum(scope, node.this).plus(_sum(scope, node.expression), factor)
        case exp.Mul():
            left, right = _sum(scope, node.this), _sum(scope, node.expression)
            if left.terms and right.terms:
                raise WorkloadError("Columns cannot be multiplied with each other. Use sums and differences.")
            return left.times(right.shift) if left.terms else right.times(left.shift)
        case exp.Abs():
            inner = _sum(scope, node.this)
            if inner.absolute:
                raise WorkloadError("ABS of an ABS is the same. Write it once.")
            return LinearExpression(inner.terms, inner.shift, absolute=True)
        case _:
            raise WorkloadError("A column, a number, or a sum or difference of these is expected here.")


def _whole_numbers(column: Column) -> Sequence[int]:
    """The numbers that the column's own cells hold, without "other"."""
    match column.values:
        case Integers():
            return [int(column.values.label(code)) for code in range(column.declared)]  # pyright: ignore[reportArgumentType]
        case Labels(values) if all(type(value) is int for value in values):
            return [value for value in values if isinstance(value, int)]
        case _:
            raise WorkloadError(
                f"{column.name} does not hold whole numbers, so it cannot be added to another column. Declare it as "
                "Integers, or compare it by itself."
            )


def _cells(holds: Array, n: int) -> Cells:
    ends = np.flatnonzero(np.diff(np.concatenate([[False], holds.astype(bool), [False]])))
    return Cells(n, tuple((int(lo), int(hi) - 1) for lo, hi in ends.reshape(-1, 2)))


@final
@dataclass(frozen=True, slots=True)
class SqlDomain:
    """A domain as SQL sees it: its columns, and the formula of the cells in which a record can be."""

    domain: Domain
    columns: Mapping[str, Column]
    possible: Formula

    @classmethod
    def of(cls, domain: Domain, impossible: Sequence[ParsedCondition] = ()) -> SqlDomain:
        """A domain without the cells where one of the conditions holds; WorkloadError if they leave none."""
        known = columns(domain.attributes)
        left = conjunction(complement(each.formula(known)) for each in impossible)
        if left is False or disjunction([left]) is False:
            raise WorkloadError(
                "The impossible conditions leave no cell in which a record could be. Remove one of them."
            )
        return cls(domain, known, left)


@final
@dataclass(frozen=True, slots=True)
class ParsedCondition:
    """A condition that stands alone, as it is written, and its syntax tree."""

    text: str
    source: SqlText
    tree: Expr

    @classmethod
    def of(cls, text: str, names: Collection[str]) -> ParsedCondition:
        """The condition that a text spells; SqlError or WorkloadError if it spells none, or more than a condition."""
        source = SqlText(f"SELECT COUNT(*) FROM t WHERE {text}")  # only parsed, never run  # nosec B608
        found = statements(source, names=names)
        tree = found[0].tree
        clauses = {name for name, value in tree.args.items() if value}
        if len(found) > 1 or not isinstance(tree, exp.Select) or clauses - {"expressions", "from_", "where"}:
            raise WorkloadError("Write one condition, as after WHERE.")
        return cls(text, source, tree.args["where"].this)

    def formula(self, known: Mapping[str, Column]) -> Formula:
        """The cells where the condition is true."""
        with readable("impossible condition", self.text):
            return condition(Scope(self.source, known, "t"), self.tree)


def impossible_conditions(texts: Sequence[str], names: Collection[str]) -> tuple[ParsedCondition, ...]:
    """The conditions that texts spell; `names` are those of columns."""
    if isinstance(texts, str):
        raise WorkloadError(f"The impossible cells are given as the text {texts!r}. Give a list of conditions.")
    found: list[ParsedCondition] = []
    for text in texts:
        with readable("impossible condition", text):
            found.append(ParsedCondition.of(text, names))
    return tuple(found)


@contextmanager
def readable(what: str, text: str) -> Generator[None]:
    """Turn errors that point into SQL into an error about a condition, which stands in no statement of the user's."""
    try:
        yield
    except SqlError as error:
        reason = str(error).partition(": ")[2].partition("\n")[0]
        raise WorkloadError(f"The {what} {text!r} cannot be read. {reason}") from None
