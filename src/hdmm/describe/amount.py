"""Amount: numbers that are added up, such as wages, and never listed: their values are no cells.

An amount of m steps from low to high has two cells, its ends, and one for rows without a value. A row that stands k
steps above low is divided between the ends: (m − k)/m of it is at low, and k/m at high. Counts of rows and sums of
values are linear in these two cells, so that sums are queries like all others:

    number of values = low cell + high cell        sum of values = low · low cell + high · high cell

A row adds a convex combination of the columns of its possible cells to the answers, so no row adds more, in either
norm, than one that stands at an end: sensitivity, noise and error are those of the cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DomainError
from hdmm.base.frozen import assign
from hdmm.base.hints import brief
from hdmm.describe.entries import Codes, Label, exact_number, plain_value
from hdmm.describe.levels import Level
from hdmm.describe.values import DROPPED, Outside, Real, Values

MOST_PARTS = 2**25
"""Of all amounts in one block together: 2³⁶ rows in parts of so many are integers below 2⁶¹."""

SUM_IT = "Ask for its SUM or AVG, by other attributes."
"""What an amount is for, in errors about other uses."""

_LARGEST = 2**53  # floats hold all integers up to it exactly
_LEAST = 1e-200  # a value 10¹⁰⁰ times as small is 0, also after it was divided (engines/expressions.py)


@final
@dataclass(frozen=True, slots=True, init=False)
class Amount(Values):
    """Numbers from low to high, which are added up; the values of a column are clipped to these and rounded to steps.

    A value is rounded as the float nearest to it is; halves are rounded up. What is not a number, or not finite,
    is missing: such a row counts in every table, but not in the sum of these values and not in their number.

    >>> wage = Amount(0, 1000, step=10)
    >>> wage.encode([0, 14.9, 15, "990", 10**9, -5, None]), wage.labels
    (array([  0,   1,   2,  99, 100,   0, 101]), (0, 1000, 'other'))
    """

    ordered: ClassVar[bool] = False
    divided: ClassVar[bool] = True
    low: Real
    high: Real
    step: Real = field(default=1, kw_only=True)
    outside: Outside = "other"
    levels: tuple[Level, ...] = field(default=(), repr=False)

    def __init__(self, low: float, high: float, *, step: float = 1) -> None:
        given = {name: _number(number, name) for name, number in (("low", low), ("high", high), ("step", step))}
        exact = {name: _fraction(number) for name, number in given.items()}
        if exact["low"] >= exact["high"]:
            raise DomainError(f"An amount is from {low} to {high}. Give a low that is below high.")
        if exact["step"] <= 0:
            raise DomainError(f"The step of an amount is {step}. Give a number above 0.")
        steps = (exact["high"] - exact["low"]) / exact["step"]
        if steps.denominator != 1:
            raise DomainError(
                f"Steps of {step} do not divide the amounts from {low} to {high}. Give a step that does, or move high."
            )
        if steps > MOST_PARTS:
            raise DomainError(
                f"From {low} to {high} there are {int(steps):,} steps of {step}; at most {MOST_PARTS:,} are counted. "
                "Give a larger step: noise hides far more than one."
            )
        assign(self, **given)
        self._declare("other", ())
        if self._positions(np.array([low, high])).tolist() != [0, steps]:  # between them, positions never decrease
            raise DomainError(
                f"Floats do not distinguish all steps of {step} from {low} to {high}. Give bounds of fewer digits, or "
                "a larger step."
            )

    @property
    def _declared(self) -> int:
        return 2

    @property
    def grain(self) -> int:
        return int((_fraction(self.high) - _fraction(self.low)) / _fraction(self.step))

    @property
    def codes(self) -> int:
        return self.grain + 2  # the steps, both ends among them, and the rows without a value

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of the cells: the ends, and "other"."""
        return tuple(map(self.label, range(self.size)))

    def parts(self, codes: npt.NDArray[np.integer[Any]], cell: int) -> Codes:
        """How many parts of `grain` each row has in one of the three cells.

        >>> [Amount(0, 4).parts(np.array([0, 1, 4, 5]), cell).tolist() for cell in range(3)]
        [[4, 3, 0, 0], [0, 1, 4, 0], [0, 0, 0, 4]]
        """
        k = codes.astype(np.int64)
        there = k <= self.grain
        shares = (self.grain - k, k, np.full(len(k), self.grain))
        return np.where(there if cell < self._declared else ~there, shares[cell], 0)

    def steps_of(self, x: Any, floor: Any) -> tuple[Any, Any]:
        """(whole steps above low, what is left of one) for floats x inside: by these operations in every engine."""
        ratio = _fraction(self.step)
        steps = (x - float(self.low)) * float(ratio.denominator) / float(ratio.numerator)
        return floor(steps), steps - floor(steps)

    def _label(self, position: int) -> Label:
        return self._number(position)

    def _number(self, position: int) -> Real:
        return (self.low, self.high)[position]

    @property
    def _outside_code(self) -> int:
        return self.grain + 1

    def _position(self, value: object) -> int:
        number = exact_number(value)
        return DROPPED if number is None else int(self._positions(np.array([float(number)]))[0])

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        x = numbers.astype(np.float64)
        there = np.isfinite(x)
        whole, left = self.steps_of(np.clip(np.where(there, x, 0.0), float(self.low), float(self.high)), np.floor)
        return np.where(there, whole.astype(np.int64) + (left >= 0.5), DROPPED)


def _number(given: object, what: str) -> Real:
    number = plain_value(given)
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= _LARGEST:
        raise DomainError(f"The {what} of an amount is {brief(given)}. Give a number of at most 2**53 in size.")
    if 0 < abs(number) < _LEAST:
        raise DomainError(f"The {what} of an amount is {brief(given)}. Give 0, or a number of at least 1e-200 in size.")
    return int(number) if number == int(number) else float(number)


def _fraction(number: Real) -> Fraction:
    """The number as it is written: 0.01 is a hundredth."""
    return Fraction(repr(number))
