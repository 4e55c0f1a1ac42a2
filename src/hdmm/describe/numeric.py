"""Integers, Bins: values that are numbers, in their order."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DomainError
from hdmm.base.frozen import assign
from hdmm.base.hints import brief
from hdmm.describe.entries import INT64_END, Codes, Label, as_int64, exact_number, plain_value
from hdmm.describe.levels import Level, LevelsLike
from hdmm.describe.values import DROPPED, Outside, Real, Values, listed

_MOST_FLOAT = sys.float_info.max
_MOST_GROUPED = 10**7  # integers whose groups are listed


@final
@dataclass(frozen=True, slots=True, init=False)
class Integers(Values):
    """The integers first, first + step, …, up to last (inclusive).

    In a Domain, 115 stands for Integers(0, 114) and range(18, 100) for Integers(18, 99).

    >>> Integers(18, 99).encode([18, 18.0, "18", 18.5, 17, float("inf"), 10**30])
    array([ 0,  0,  0, -1, -1, -1, -1])

    `groups` are levels of neighbouring values: of so many each, or from each of the listed ones to the next.

    >>> Integers(5, 22, groups={"decade": 10, "stage": [16, 18]}).levels
    (Level('decade', 3 groups of 18 values), Level('stage', 3 groups of 18 values))
    >>> Integers(5, 22, groups={"decade": 10}).levels[0].groups
    ('5 to 9', '10 to 19', '20 to 22')
    """

    ordered: ClassVar[bool] = True
    first: int
    last: int
    step: int = field(default=1, kw_only=True)
    outside: Outside = field(default="drop", kw_only=True)
    levels: tuple[Level, ...] = field(default=(), kw_only=True, repr=False)

    def __init__(
        self,
        first: int,
        last: int,
        *,
        step: int = 1,
        outside: Outside = "drop",
        levels: LevelsLike = (),
        groups: Mapping[str, int | Sequence[int]] | None = None,
    ) -> None:
        first, last, step = (_declared_integer(n) for n in (first, last, step))
        if step < 1:
            raise DomainError(f"The step of Integers is {step}. Use a positive step.")
        if last < first:
            raise DomainError(f"There are no integers from {first} to {last}. Give a last that is not below the first.")
        assign(self, first=first, last=last - (last - first) % step, step=step)
        named = levels if isinstance(levels, Mapping) else {level.name: level for level in levels}
        if taken := next((name for name in groups or {} if name in named), None):
            raise DomainError(f"{taken!r} names a level and groups. Give every level a name of its own.")
        neighbours = {name: self._neighbours(name, each) for name, each in (groups or {}).items()}
        self._declare(outside, {**named, **neighbours})

    def _neighbours(self, name: str, given: int | Sequence[int]) -> list[str]:
        """The group of every value, named by the first and the last value in it."""
        if self._declared > _MOST_GROUPED or not -INT64_END <= self.first <= self.last < INT64_END:
            raise DomainError(
                f"Groups {name!r} list the integers from {self.first} to {self.last} one by one; at most "
                f"{_MOST_GROUPED:,} of 64 bits can be grouped. Use Bins."
            )
        values = np.arange(self.first, self.last + 1, self.step, dtype=np.int64)
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            number = values // given
        elif isinstance(given, list | tuple) and {*map(type, given)} <= {int} and list(given) == sorted({*given}):
            number = np.searchsorted(np.array(given, np.int64), values, side="right")
        else:
            raise DomainError(
                f"Groups {name!r} are {brief(given)}. Give how many neighbouring integers are a group, such as 10, or "
                "the first value of each group but the lowest, ascending, such as [18, 65]."
            )
        ends = np.flatnonzero(np.diff(number, append=number[-1] + 1))
        starts = np.append(0, ends[:-1] + 1)
        pairs = zip(values[starts].tolist(), values[ends].tolist(), strict=True)
        names = [str(a) if a == b else f"{a} to {b}" for a, b in pairs]
        return np.repeat(names, ends - starts + 1).tolist()

    @property
    def _declared(self) -> int:
        return (self.last - self.first) // self.step + 1

    def _label(self, position: int) -> Label:
        return self.first + position * self.step

    def _number(self, position: int) -> Real:
        return self.first + position * self.step

    def _position(self, value: object) -> int:
        number = exact_number(value)
        if number is None or not self.first <= number <= self.last:
            return DROPPED
        whole = int(number)
        inside = whole == number and (whole - self.first) % self.step == 0
        return (whole - self.first) // self.step if inside else DROPPED

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        if not (self.first >= -INT64_END and self.last < INT64_END and self.last - self.first < INT64_END):
            plain = map(self._position_or_outside, numbers.tolist())  # beyond int64 arithmetic: one by one
            return np.fromiter(plain, np.int64, len(numbers))
        integers, exact = as_int64(numbers)
        inside = exact & (integers >= self.first) & (integers <= self.last)
        offsets = np.where(inside, integers, self.first) - self.first
        if self.step > 1:
            inside &= offsets % self.step == 0
            offsets //= self.step
        offsets[~inside] = DROPPED
        return offsets


@final
@dataclass(frozen=True, slots=True, init=False)
class Bins(Values):
    """The half-open intervals [e₀, e₁), [e₁, e₂), …; the last edge itself is outside.

    `values` has one number per bin, which stands for every value in it in sums and means.

    >>> Bins([0, 10_000, 50_000]).encode([0, 9_999.5, 10_000, 50_000, -1])
    array([ 0,  0,  1, -1, -1])
    """

    ordered: ClassVar[bool] = True
    edges: tuple[int | float, ...]
    outside: Outside
    values: tuple[Real, ...] | None = field(repr=False)
    levels: tuple[Level, ...] = field(repr=False)

    def __init__(
        self,
        edges: Sequence[float] | npt.NDArray[np.generic],
        outside: Outside = "drop",
        *,
        values: Sequence[float] | npt.NDArray[np.generic] | None = None,
        levels: LevelsLike = (),
    ) -> None:
        given = tuple(_float_number(edge, "edge") for edge in listed(edges, "Edges of bins"))
        if len(given) < 2:
            raise DomainError(
                f"The number of edges of Bins is {len(given)}. Give at least two: n + 1 edges make n bins."
            )
        for low, high in pairwise(given):
            if low >= high:
                raise DomainError(f"Bins were given the edge {low} before {high}. Edges must increase strictly.")
        numbers = None
        if values is not None:
            numbers = tuple(_float_number(value, "value") for value in listed(values, "Values of bins"))
        if numbers is not None and len(numbers) != len(given) - 1:
            raise DomainError(f"{len(given) - 1} bins were given {len(numbers)} values. Give one value per bin.")
        assign(self, edges=given, values=numbers)
        self._declare(outside, levels)

    @property
    def _declared(self) -> int:
        return len(self.edges) - 1

    def _label(self, position: int) -> Label:
        return f"[{self.edges[position]}, {self.edges[position + 1]})"

    def _number(self, position: int) -> Real:
        if self.values is None:
            raise DomainError(
                "Bins have no values to add up. Declare one number per bin, such as Bins([0, 10, 50], values=[5, 30])."
            )
        return self.values[position]

    def _position(self, value: object) -> int:
        number = exact_number(value)
        if number is None or not self.edges[0] <= number < self.edges[-1]:
            return DROPPED
        return bisect_right(self.edges, number) - 1

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        if numbers.dtype.kind == "f":
            edges = np.array(self.edges, np.float64)  # exact, because _float_number has checked it
        else:
            # For an integer v, v ≥ e means v ≥ ⌈e⌉; edges that no element of the type can reach are left out.
            limits = np.iinfo(numbers.dtype)
            ceilings = map(math.ceil, self.edges)
            edges = np.array([max(e, limits.min) for e in ceilings if e <= limits.max], numbers.dtype)
        positions = np.searchsorted(edges, numbers, side="right").astype(np.int64) - 1
        return np.where(positions < self._declared, positions, DROPPED)  # NaN sorts after the last edge


def _float_number(given: object, what: str) -> Real:
    number = plain_value(given)
    if isinstance(number, bool) or not isinstance(number, int | float) or not -_MOST_FLOAT <= number <= _MOST_FLOAT:
        raise DomainError(f"Bins were given the {what} {brief(given)}. Use finite integers or floats as {what}s.")
    if float(number) != number:
        raise DomainError(
            f"Bins were given the {what} {number}, which no float equals. Use a number that a float can hold."
        )
    return int(number) if number == int(number) and abs(number) < 2**53 else float(number)


def _declared_integer(given: object) -> int:
    number = plain_value(given)
    if isinstance(number, bool) or not isinstance(number, int):
        raise DomainError(f"Integers were given {brief(given)}. Give first, last and step as integers.")
    return number
