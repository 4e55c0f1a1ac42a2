"""WHERE conditions as formulas over cells."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeAlias, cast, final

from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.base.exceptions import SqlError, WorkloadError
from hdmm.base.hints import did_you_mean
from hdmm.sql.comparisons import Column, Comparison, LiteralValue, Truth
from hdmm.sql.formula import AxisOrPair, Formula, conjunction, disjunction, on
from hdmm.sql.linear import LinearExpression, linear
from hdmm.sql.text import SqlText

PREDICATES = (
    "= <> < <= > >= BETWEEN IN, IS NULL, AND, OR, NOT of a column and literals; = <> < <= > >= BETWEEN of a sum or "
    "difference of two columns, or ABS of one, and a number"
)
_LONGEST_NUMBER = 300
_COMPARISONS: dict[type[Expr], Comparison] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


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

    def column(self, node: exp.Column) -> Column:
        """The column that a node names."""
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

    def known(self, node: Expr) -> bool:
        """Whether a node is the name of a column, in any case of letters."""
        return isinstance(node, exp.Column) and node.name.casefold() in {name.casefold() for name in self.columns}

    def several(self, *nodes: Expr) -> bool:
        """Whether all of the nodes are names of columns."""
        return all(map(self.known, nodes))

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
            return join([condition(scope, part, holds=holds) for part in _operands(node)])
        case exp.Boolean():
            return bool(node.this) == holds
        case _:
            with scope.pointing(node):
                if (place_and_truth := _computed(scope, node)) is None:
                    column, truth = _comparison(scope, node)
                    place_and_truth = column.axis, truth
                place, truth = place_and_truth
                return on(place, truth.true if holds else truth.false)


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


def _computed(scope: Scope, node: Expr) -> tuple[AxisOrPair, Truth] | None:
    """What a comparison of a sum or difference of columns says; None for comparisons of a column with literals."""

    def sum_of(part: Expr) -> LinearExpression:
        return linear(part, scope.column, lambda inner: _numeric(scope, inner))

    match node:
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            op, left, right = _COMPARISONS[type(node)], bare(node.this), bare(node.expression)
            if not _is_computed(left) and not _is_computed(right) and not scope.several(left, right):
                return None
            if is_constant(left):
                op, left, right = _MIRRORED[op], right, left
            value, number = sum_of(left), sum_of(right)
            if number.terms or number.absolute:
                value, number = value.plus(number, -1), LinearExpression({})
            return value.compared(op, number.shift)
        case exp.Between() if _is_computed(bare(node.this)):
            value = sum_of(node.this)
            low, high = (sum_of(node.args[end]) for end in ("low", "high"))
            if low.terms or high.terms:
                raise scope.source.at(node, "A number is expected after BETWEEN, and another after AND.")
            place, least = value.compared(">=", low.shift)
            _, most = value.compared("<=", high.shift)
            return place, Truth(least.true & most.true, least.false | most.false)
        case _:
            return None


def _is_computed(node: Expr) -> bool:
    return isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Abs) or (
        isinstance(node, exp.Neg) and not is_constant(node)
    )


def _numeric(scope: Scope, node: Expr) -> Fraction | None:
    """The value of a literal that is a number; None for what is no literal."""
    if not is_constant(node):
        return None
    value = _not_null(scope, node)
    if not isinstance(value, Fraction):
        raise scope.source.at(node, "A number is expected here.")
    return value


def _comparison(scope: Scope, node: Expr) -> tuple[Column, Truth]:
    match node:
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            op, left, right = _COMPARISONS[type(node)], bare(node.this), bare(node.expression)
            if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
                op, left, right = _MIRRORED[op], right, left
            column = _column(scope, left)
            return column, column.compare(op, _not_null(scope, right))
        case exp.Between():
            column = _column(scope, bare(node.this))
            low = column.compare(">=", _not_null(scope, node.args["low"]))
            high = column.compare("<=", _not_null(scope, node.args["high"]))
            return column, Truth(low.true & high.true, low.false | high.false)
        case exp.In(expressions=[_, *_]):
            column = _column(scope, bare(node.this))
            return column, column.isin([_not_null(scope, item) for item in node.expressions])
        case exp.Is(expression=exp.Null()):
            column = _column(scope, bare(node.this))
            return column, column.is_null()
        case exp.Column():
            column = scope.column(node)
            return column, column.compare("=", True)
        case _:
            raise scope.source.at(node, f"This condition is not supported. Supported: {PREDICATES}.")


def _operands(node: exp.And | exp.Or) -> Iterator[Expr]:
    """The operands of a chain of ANDs or of ORs of any length, from left to right."""
    kind, parts = type(node), [node]
    while parts:
        part = parts.pop()
        if type(part) is kind:
            parts += [part.expression, part.this]
        else:
            yield part


def bare(node: Expr) -> Expr:
    """The node inside any parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _column(scope: Scope, node: Expr) -> Column:
    if not isinstance(node, exp.Column):
        raise scope.source.at(node, f"A column is expected here. Supported: {PREDICATES}.")
    return scope.column(node)


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
