"""The columns that SQL may name, and the cells where a comparison with a literal is true, and those where it is false.

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

import numpy as np

from hdmm.base.exceptions import WorkloadError
from hdmm.describe.attribute import Attribute
from hdmm.describe.domain import Domain
from hdmm.describe.entries import Codes, Label
from hdmm.describe.numeric import Bins, Integers
from hdmm.describe.values import Labels, Values
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


@final
@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table: an attribute, a part of a merged one, or a level of either.

    The cells of the whole attribute are numbered in row-major order of (outer, own, inner), where own is the cell of
    this column, or, if it is a level, the cell of the column whose `grouped` values it groups.
    """

    name: str
    axis: int
    values: Values
    outer: int
    inner: int
    grouped: Values | None = None

    @property
    def n(self) -> int:
        """The number of cells of the attribute that the column belongs to."""
        return self.outer * self._owned.size * self.inner

    @property
    def codes(self) -> Codes:
        """The column's own cell in every cell of the attribute. O(n)."""
        own = np.arange(self.n) // self.inner % self._owned.size
        return own if self.grouped is None else self.grouped.level(self.name)[1][own]

    @property
    def _owned(self) -> Values:
        return self.values if self.grouped is None else self.grouped

    @property
    def declared(self) -> int:
        """The number of the column's own cells without the one for "other"."""
        return self.values.size - (self.values.outside == "other")

    def compare(self, op: Comparison, literal: LiteralValue) -> Truth:
        """The cells where `column op literal` is true, and those where it is false."""
        own = self._equal([literal]) if op in ("=", "<>") else self._ordered(op, literal)
        true = self._lifted(own if op != "<>" else ~own & self._not_null)
        return Truth(true, ~true & self._lifted(self._not_null))

    def isin(self, literals: list[LiteralValue]) -> Truth:
        """The cells where `column IN (literals)` is true, and those where it is false."""
        true = self._lifted(self._equal(literals))
        return Truth(true, ~true & self._lifted(self._not_null))

    def is_null(self) -> Truth:
        """True on the cell "other", false on all others, and never NULL."""
        null = self._lifted(~self._not_null)
        return Truth(null, ~null)

    def groups(self) -> Iterator[tuple[int, Cells]]:
        """Each of the column's own cells, with the cells of the attribute that hold it."""
        if self._owned.size * self.outer > MOST_LISTED:
            raise WorkloadError(
                f"{self.name} has {self._owned.size:,} values, which are too many to group by; the limit is "
                f"{MOST_LISTED:,}. Group by FLOOR({self.name} / n) or by CASE brackets."
            )
        n, size = self.n, self.values.size
        for code in range(size):
            if self.outer == 1 and self.grouped is None:  # as _lifted, at a tenth of the cost
                yield code, Cells(n, ((code * self.inner, (code + 1) * self.inner - 1),))
            else:
                yield code, self._lifted(Cells(size, ((code, code),)))

    @property
    def _not_null(self) -> Cells:
        return Cells.span(self.values.size, 0, self.declared)

    def _lifted(self, own: Cells) -> Cells:
        """The cells of the whole attribute for which this column's cell is in a set."""
        if self.outer * len(own.runs) > MOST_LISTED:
            raise WorkloadError(
                f"A condition on {self.name} takes more than {MOST_LISTED:,} ranges of cells. Use a simpler condition."
            )
        size, inner = self._owned.size, self.inner
        starts = range(0, self.outer * size, size)
        held = own.runs if self.grouped is None else list(self._members(self.grouped, own))
        runs = (((at + lo) * inner, (at + hi + 1) * inner - 1) for at in starts for lo, hi in held)
        return Cells.of(self.n, runs)

    def _members(self, grouped: Values, own: Cells) -> Iterator[Run]:
        """The runs of values that are in these groups of the level."""
        level = next(level for level in grouped.levels if level.name == self.name)
        for group in own:
            yield from level.runs(group) if group < self.declared else [(grouped.size - 1, grouped.size - 1)]

    def _equal(self, literals: list[LiteralValue]) -> Cells:
        match self.values:
            case Labels():
                codes = [self._labelled(self.values, literal) for literal in literals]
            case Integers(first, _, step=step):
                codes = [self._integer(self._number(literal), first, step) for literal in literals]
            case Bins(edges):
                raise WorkloadError(
                    f"{self.name} is counted in bins, so that a single value cannot be distinguished from its "
                    f"neighbours. Compare with >= and < at edges; the edges are {_shown(edges)}."
                )
            case _:
                raise WorkloadError(f"{self.name} cannot be compared with a literal.")
        return Cells.of(self.values.size, ((code, code) for code in codes))

    def _labelled(self, labels: Labels, literal: LiteralValue) -> int:
        for code in labels.encode(_spellings(literal)).tolist():
            if 0 <= code < self.declared and _alike(labels.values[code], literal):
                return code
        raise WorkloadError(f"{_text(literal)} is not a value of {self.name}; its values are {_shown(labels.values)}.")

    def _integer(self, number: Fraction, first: int, step: int) -> int:
        code = (number - first) / step
        if code.denominator != 1 or not 0 <= code < self.declared:
            steps = f" in steps of {step}" if step > 1 else ""
            raise WorkloadError(
                f"{_text(number)} is not a value of {self.name}; its values are {self.values.label(0)} to "
                f"{self.values.label(self.declared - 1)}{steps}."
            )
        return int(code)

    def _ordered(self, op: Comparison, literal: LiteralValue) -> Cells:
        size = self.values.size
        match self.values:
            case Integers(first, _, step=step):
                # The cells below the first value that is ≥ (or >) the number; the others are its complement.
                at = (self._number(literal) - first) / step
                cut = -(-at // 1) if op in ("<", ">=") else at // 1 + 1
                cut = min(max(int(cut), 0), self.declared)
            case Bins(edges):
                cut = self._cut(op, self._number(literal), edges)
            case Labels(values):
                held = [self._value(label) for label in values]
                number = self._number(literal)
                codes = [i for i, value in enumerate(held) if COMPARE[op](value, _as(value, number))]
                return Cells.of(size, ((code, code) for code in codes))
            case _:
                raise WorkloadError(f"{self.name} cannot be compared with a literal.")
        return Cells.span(size, 0, cut) if op in ("<", "<=") else Cells.span(size, cut, self.declared)

    def _cut(self, op: Comparison, number: Fraction, edges: tuple[int | float, ...]) -> int:
        """The number of bins that lie wholly below a number; WorkloadError if the number lies inside a bin."""
        exact = [Fraction(edge) for edge in edges]
        if Fraction(float(number)) in exact:
            number = Fraction(float(number))  # 0.1 stands for the float 0.1, because the edge is that float
        at = bisect_left(exact, number)
        if number >= exact[-1]:
            return self.declared
        if number < exact[0] or (number == exact[at] and op in ("<", ">=")):
            return at
        cut = at if number == exact[at] else at - 1
        raise WorkloadError(
            f"{self.name} {op} {_text(number)} cuts the bin {self.values.label(cut)}. Use < or >= at an edge; the "
            f"nearest are {edges[cut]} and {edges[cut + 1]}."
        )

    def _number(self, literal: LiteralValue) -> Fraction:
        if not isinstance(literal, Fraction):
            raise WorkloadError(f"{self.name} holds numbers, but {_text(literal)} is not a number. Write a number.")
        return literal

    def _value(self, label: Label) -> float | Fraction:
        if isinstance(label, bool) or not isinstance(label, int | float | Fraction | Decimal):
            raise WorkloadError(f"{self.name} has no order, because {label!r} is not a number. Use =, <> or IN.")
        return Fraction(label) if isinstance(label, Decimal) else label


def columns(domain: Domain) -> dict[str, Column]:
    """The columns of a domain by name; a merged attribute has the columns of its parts, and levels are columns, too.

    >>> merged = Domain({"a": 2, "b": 3, "c": 4}).merge(["a", "b"], name="ab")
    >>> {name: (column.axis, column.n) for name, column in columns(merged).items()}
    {'a': (0, 6), 'b': (0, 6), 'c': (1, 4)}
    """
    return {
        column.name: column for axis, attribute in enumerate(domain.attributes) for column in _columns(attribute, axis)
    }


def _columns(attribute: Attribute, axis: int) -> Iterator[Column]:
    left, right = 1, attribute.size
    for part in attribute.parts:
        right //= part.size
        yield Column(part.name, axis, part.values, left, right)
        for level in part.values.levels:
            yield Column(level.name, axis, part.values.level(level.name)[0], left, right, part.values)
        left *= part.size


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
