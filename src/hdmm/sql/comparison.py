"""The cells where the comparison of a column with a literal is true, and those where it is false.

A table is read as its domain encodes it. A value outside an attribute declared with outside="other" is NULL; a row
with a value outside an attribute declared with outside="drop" does not exist. So comparisons are neither true nor
false on the cell "other", and IS NULL is true exactly there.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeAlias, final

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.attribute import Column
from hdmm.describe.entries import Label
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.values import Labels
from hdmm.sql.cells import MOST_LISTED, Cells, Run

Comparison: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]
LiteralValue: TypeAlias = Fraction | str | bool
"""A literal: an exact number, a text, TRUE or FALSE."""

COMPARE: dict[Comparison, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@final
@dataclass(frozen=True, slots=True)
class Truth:
    """The cells where a condition is true, and those where it is false; on all others it is NULL."""

    true: Cells
    false: Cells


def compare(column: Column, op: Comparison, literal: LiteralValue) -> Truth:
    """The cells where `column op literal` is true, and those where it is false."""
    own = _equal(column, [literal]) if op in ("=", "<>") else _ordered(column, op, literal)
    true = _lifted(column, own if op != "<>" else ~own & _not_null(column))
    return Truth(true, ~true & _lifted(column, _not_null(column)))


def isin(column: Column, literals: list[LiteralValue]) -> Truth:
    """The cells where `column IN (literals)` is true, and those where it is false."""
    true = _lifted(column, _equal(column, literals))
    return Truth(true, ~true & _lifted(column, _not_null(column)))


def is_null(column: Column) -> Truth:
    """True on the cell "other", false on all others, and never NULL."""
    null = _lifted(column, ~_not_null(column))
    return Truth(null, ~null)


def cells_by_value(column: Column) -> Iterator[tuple[int, Cells]]:
    """Each of the column's own cells, with the cells of the attribute that hold it."""
    if column.owned.size * column.outer > MOST_LISTED:
        raise WorkloadError(
            f"{column.name} has {column.owned.size:,} values, which are too many to group by; the limit is "
            f"{MOST_LISTED:,}. Group by FLOOR({column.name} / n) or by CASE brackets."
        )
    n, size = column.n, column.values.size
    for code in range(size):
        if column.outer == 1 and column.grouped is None:  # as _lifted, at a tenth of the cost
            yield code, Cells(n, ((code * column.inner, (code + 1) * column.inner - 1),))
        else:
            yield code, _lifted(column, Cells(size, ((code, code),)))


def _not_null(column: Column) -> Cells:
    return Cells.span(column.values.size, 0, column.declared)


def _lifted(column: Column, own: Cells) -> Cells:
    """The cells of the whole attribute for which this column's cell is in a set."""
    if column.outer * len(own.runs) > MOST_LISTED:
        raise WorkloadError(
            f"A condition on {column.name} takes more than {MOST_LISTED:,} ranges of cells. Use a simpler condition."
        )
    size, inner = column.owned.size, column.inner
    starts = range(0, column.outer * size, size)
    held = own.runs if column.grouped is None else list(_members(column, own))
    runs = (((at + lo) * inner, (at + hi + 1) * inner - 1) for at in starts for lo, hi in held)
    return Cells.of(column.n, runs)


def _members(column: Column, own: Cells) -> Iterator[Run]:
    """The runs of values that are in these groups of the level."""
    other = column.owned.size - 1
    level = next(level for level in column.owned.levels if level.name == column.name)
    for group in own:
        yield from level.runs(group) if group < column.declared else [(other, other)]


def _equal(column: Column, literals: list[LiteralValue]) -> Cells:
    match column.values:
        case Labels():
            codes = [_labelled(column, column.values, literal) for literal in literals]
        case Integers(first, _, step=step):
            codes = [_integer(column, _number(column, literal), first, step) for literal in literals]
        case Bins(edges):
            raise WorkloadError(
                f"{column.name} is counted in bins, so that a single value cannot be distinguished from its "
                f"neighbours. Compare with >= and < at edges; the edges are {_shown(edges)}."
            )
        case _:
            raise WorkloadError(f"{column.name} cannot be compared with a literal.")
    return Cells.of(column.values.size, ((code, code) for code in codes))


def _labelled(column: Column, labels: Labels, literal: LiteralValue) -> int:
    for code in labels.encode(_spellings(literal)).tolist():
        if 0 <= code < column.declared and _alike(labels.values[code], literal):
            return code
    raise WorkloadError(f"{_text(literal)} is not a value of {column.name}; its values are {_shown(labels.values)}.")


def _integer(column: Column, number: Fraction, first: int, step: int) -> int:
    code = (number - first) / step
    if code.denominator != 1 or not 0 <= code < column.declared:
        steps = f" in steps of {step}" if step > 1 else ""
        raise WorkloadError(
            f"{_text(number)} is not a value of {column.name}; its values are {column.values.label(0)} to "
            f"{column.values.label(column.declared - 1)}{steps}."
        )
    return int(code)


def _ordered(column: Column, op: Comparison, literal: LiteralValue) -> Cells:
    size = column.values.size
    match column.values:
        case Integers(first, _, step=step):
            # The cells below the first value that is ≥ (or >) the number; the others are its complement.
            at = (_number(column, literal) - first) / step
            cut = -(-at // 1) if op in ("<", ">=") else at // 1 + 1
            cut = min(max(int(cut), 0), column.declared)
        case Bins(edges):
            cut = _cut(column, op, _number(column, literal), edges)
        case Labels(values):
            held = [_value(column, label) for label in values]
            number = _number(column, literal)
            codes = [i for i, value in enumerate(held) if COMPARE[op](value, _as(value, number))]
            return Cells.of(size, ((code, code) for code in codes))
        case _:
            raise WorkloadError(f"{column.name} cannot be compared with a literal.")
    return Cells.span(size, 0, cut) if op in ("<", "<=") else Cells.span(size, cut, column.declared)


def _cut(column: Column, op: Comparison, number: Fraction, edges: tuple[int | float, ...]) -> int:
    """The number of bins that lie wholly below a number; WorkloadError if the number lies inside a bin."""
    exact = [Fraction(edge) for edge in edges]
    if Fraction(float(number)) in exact:
        number = Fraction(float(number))  # 0.1 stands for the float 0.1, because the edge is that float
    at = bisect_left(exact, number)
    if number >= exact[-1]:
        return column.declared
    if number < exact[0] or (number == exact[at] and op in ("<", ">=")):
        return at
    cut = at if number == exact[at] else at - 1
    raise WorkloadError(
        f"{column.name} {op} {_text(number)} cuts the bin {column.values.label(cut)}. Use < or >= at an edge; the "
        f"nearest are {edges[cut]} and {edges[cut + 1]}."
    )


def _number(column: Column, literal: LiteralValue) -> Fraction:
    if not isinstance(literal, Fraction):
        raise WorkloadError(f"{column.name} holds numbers, but {_text(literal)} is not a number. Write a number.")
    return literal


def _value(column: Column, label: Label) -> float | Fraction:
    if isinstance(label, bool) or not isinstance(label, int | float | Fraction | Decimal):
        raise WorkloadError(f"{column.name} has no order, because {label!r} is not a number. Use =, <> or IN.")
    return Fraction(label) if isinstance(label, Decimal) else label


def _alike(label: Label, literal: LiteralValue) -> bool:
    """Whether both are truth values, both are texts, or neither is one of these: SQL, unlike files, marks text."""
    return all(isinstance(label, kind) == isinstance(literal, kind) for kind in (bool, str))


def _spellings(literal: LiteralValue) -> list[object]:
    """The labels that a literal may stand for: 0.1 is both the decimal and the float."""
    if not isinstance(literal, Fraction):
        return [literal]
    return [literal, Decimal(literal.numerator) / Decimal(literal.denominator), float(literal)]


def _as(label: float | Fraction, number: Fraction) -> float | Fraction:
    """The number as an engine compares it with a label: as a float if the label is a float, else exactly."""
    return float(number) if isinstance(label, float) else number


def _text(literal: LiteralValue) -> str:
    if isinstance(literal, Fraction):
        return str(literal.numerator if literal.denominator == 1 else float(literal))
    return repr(literal) if isinstance(literal, str) else str(literal).upper()


def _shown(values: tuple[Label, ...]) -> str:
    few = ", ".join(repr(value) for value in values[:8])
    return f"{few}, … ({len(values)} in all)" if len(values) > 8 else few
