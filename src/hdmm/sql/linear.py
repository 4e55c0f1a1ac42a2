"""Comparisons of sums and differences of columns, `a + b <= 5` or `ABS(a - b) <= 2`, as sets of cells.

Of one attribute, or of two: over the cells of both in row-major order. Arithmetic is exact, on whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from sqlglot import exp
from sqlglot.expressions.core import Expr

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.numeric import Integers
from hdmm.describe.values import Labels
from hdmm.matrix import Array
from hdmm.sql.cells import MOST_LISTED, Cells
from hdmm.sql.comparisons import COMPARE, Column, Comparison, Truth
from hdmm.sql.formula import AxisOrPair


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
        terms = {
            c: self.terms.get(c, Fraction(0)) + factor * other.terms.get(c, Fraction(0))
            for c in (*self.terms, *(c for c in other.terms if c not in self.terms))
        }
        return LinearExpression({c: a for c, a in terms.items() if a != 0}, self.shift + factor * other.shift)

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
                f"The attributes have {math.prod(sizes):,} cells together, of which {MOST_LISTED:,} can be listed. Use "
                "coarser bins."
            )
        scale = math.lcm(self.shift.denominator, *(a.denominator for a in self.terms.values()))
        values = np.full(sizes, int(self.shift * scale), dtype=object)
        known = np.ones(sizes, dtype=bool)
        for column, coefficient in self.terms.items():
            own = (np.arange(column.n) // column.inner) % column.values.size
            along = [-1 if axis == column.axis else 1 for axis in axes]
            held = _whole_numbers(column)
            numbers = np.array([*held, *(0 for _ in range(column.values.size - len(held)))], dtype=object)[own]
            values = values + (numbers * int(coefficient * scale)).reshape(along)
            known = known & (own < column.declared).reshape(along)
        values = np.abs(values) if self.absolute else values
        return axes[0] if len(axes) == 1 else (axes[0], axes[1]), values.ravel(), known.ravel(), scale


def linear(
    node: Expr, column: Callable[[exp.Column], Column], number: Callable[[Expr], Fraction | None]
) -> LinearExpression:
    """The sum that an expression stands for; `number` is the value of a literal, None for what is none."""
    value = number(node)
    if value is not None:
        return LinearExpression({}, value)
    match node:
        case exp.Paren():
            return linear(node.this, column, number)
        case exp.Column():
            return LinearExpression({column(node): Fraction(1)})
        case exp.Neg():
            return linear(node.this, column, number).times(Fraction(-1))
        case exp.Add() | exp.Sub():
            factor = 1 if isinstance(node, exp.Add) else -1
            return linear(node.this, column, number).plus(linear(node.expression, column, number), factor)
        case exp.Mul():
            left, right = linear(node.this, column, number), linear(node.expression, column, number)
            if left.terms and right.terms:
                raise WorkloadError("Columns cannot be multiplied with each other. Use sums and differences.")
            return left.times(right.shift) if left.terms else right.times(left.shift)
        case exp.Abs():
            inner = linear(node.this, column, number)
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
