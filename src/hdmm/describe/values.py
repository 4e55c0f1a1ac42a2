"""The values an attribute may hold, and how the entries of a table are matched to them.

Values are compared as follows:

- Numbers are compared by value, whatever their type: 18, 18.0, Decimal("18") and NumPy's 18 are one number, and True
  is 1, as in Python. So a boolean attribute reads a column of 0 and 1, and True and 1 cannot both be labels.
- Text is compared exactly, including case and spaces. The label 1 is not the label "1".
- Text that equals no label may spell one, because text files hold nothing but text. A decimal number ("18", "1.5e3",
  "01", " 18") is read as that number by Integers, Bins and labels that are numbers; true, True, TRUE, false, False and
  FALSE are read as truth values by labels that are truth values.
- None, NaN, masked entries, and values that cannot be hashed or compared are always outside. So is text of more than
  4,096 bytes in UTF-8, which no label may be, and no text of such a length is examined any further (security I9).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DomainError
from hdmm.base.frozen import assign
from hdmm.base.hints import brief, did_you_mean
from hdmm.describe.entries import (
    LONGEST_TEXT,
    Codes,
    ColumnLike,
    Label,
    as_element,
    column_rows,
    comparison_key,
    exact_number,
    objects,
    plain_value,
    too_long,
    widened,
)
from hdmm.describe.levels import Level, LevelsLike, checked_levels

Outside: TypeAlias = Literal["drop", "other"]
Real: TypeAlias = int | float

DROPPED = -1  # the code of a value outside, if such rows are dropped
_OTHER = "other"
_CHUNK = 2**20  # rows of Python objects encoded together, which bounds the memory they take

_COMPARABLE = {type(None), str, bool, int, float}  # equal values of these types have one code


class Values(ABC):
    """The values an attribute may hold, in the order of its cells: Labels, Integers, Bins, Amount or Merged.

    A subclass says how many cells it declares and to which cell a value (or each of an array of numbers) belongs. The
    cell for "other", the rule for values outside and the handling of awkward values are implemented once, here.

    >>> from hdmm import Integers
    >>> Integers(0, 2, outside="other").size
    4
    """

    __slots__ = ()

    ordered: ClassVar[bool]
    """Whether neighbouring cells hold neighbouring values."""
    divided: ClassVar[bool] = False
    """Whether a row is divided between several cells, as those of an Amount are."""

    outside: Outside
    levels: tuple[Level, ...]

    @property
    @abstractmethod
    def _declared(self) -> int:
        """The number of cells without the one for "other"."""

    @abstractmethod
    def _label(self, position: int) -> Label:
        """The label of a declared cell."""

    @abstractmethod
    def _number(self, position: int) -> Real:
        """The number that a declared cell stands for in sums; DomainError if it has none."""

    @abstractmethod
    def _position(self, value: object) -> int:
        """The declared cell of a value, or −1. May raise on a value that cannot be compared."""

    @abstractmethod
    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        """The declared cell of each element of an int64, uint64 or float64 array, or −1; never raises."""

    @property
    def size(self) -> int:
        """The number of cells, the one for "other" included."""
        return self._declared + (self.outside == _OTHER)

    @property
    def codes(self) -> int:
        """The number of codes that rows may have: one for each cell, unless rows are divided between cells."""
        return self.size

    @property
    def grain(self) -> int:
        """Into how many parts a row is divided between cells: 1 if it is in one of them."""
        return 1

    def label(self, code: int) -> Label:
        """The label of one cell.

        >>> from hdmm import Integers
        >>> Integers(18, 99, outside="other").label(82)
        'other'
        """
        if not 0 <= code < self.size:
            raise DomainError(f"Code {code} has no label. Use a code from 0 to {self.size - 1}.")
        return _OTHER if code == self._declared else self._label(int(code))

    def level(self, name: str) -> tuple[Labels, Codes]:
        """The groups of a level, and the group of every cell; the cell for "other" is a group of that name.

        >>> from hdmm import Integers
        >>> values = Integers(0, 3, outside="other", levels={"half": ["low", "low", "high", "high"]})
        >>> groups, codes = values.level("half")
        >>> groups.values, codes
        (('low', 'high'), array([0, 0, 1, 1, 2]))
        """
        names = [level.name for level in self.levels]
        if name not in names:
            known = f"its levels are {', '.join(names)}" if names else "it has no levels"
            raise DomainError(f"{name!r} is not a level; {known}.{did_you_mean(name, names)}")
        found = self.levels[names.index(name)]
        other = [len(found.groups)] if self.outside == _OTHER else []
        return Labels(found.groups, self.outside), np.append(found.codes, other).astype(np.int64)

    def with_levels(self, levels: LevelsLike) -> Self:
        """The same values with these levels.

        >>> from hdmm import Integers
        >>> Integers(0, 3).with_levels({"half": ["low", "low", "high", "high"]}).levels
        (Level('half', 2 groups of 4 values),)
        """
        found = copy(self)
        assign(found, levels=_levels(levels, self._declared, self.outside))
        return found

    def number(self, code: int) -> Real | None:
        """The number that a cell stands for in sums and means; None for the cell "other".

        >>> from hdmm import Bins, Integers
        >>> Integers(18, 99, outside="other").number(1), Bins([0, 10, 50], values=[4, 25]).number(1)
        (19, 25)
        """
        return None if code == self._declared else self._number(code)

    def encode(self, values: ColumnLike) -> Codes:
        """The code of each value, −1 if it is dropped. A few seconds for ten million values.

        >>> from hdmm import Bins
        >>> Bins([0, 10, 20], outside="other").encode([0, 9.5, 10, 20, float("nan")])
        array([0, 0, 1, 2, 2])
        """
        if isinstance(values, np.ma.MaskedArray):
            codes = self.encode(np.asarray(values.data))
            codes[np.ma.getmaskarray(values)] = self._outside_code
            return codes
        rows = column_rows(values)
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf" and rows.dtype.itemsize <= 8:
            codes = self._positions(widened(rows))
        else:
            chunks = [self._chunk(objects(rows[i : i + _CHUNK])) for i in range(0, len(rows), _CHUNK)]
            codes = np.concatenate([np.empty(0, np.int64), *chunks])
        codes[codes < 0] = self._outside_code
        return codes

    def _declare(self, outside: Outside, levels: LevelsLike) -> None:
        """Set the rule for values outside and the levels, checked, once the values are there."""
        assign(self, outside=_rule(outside), levels=_levels(levels, self._declared, outside))

    @property
    def _outside_code(self) -> int:
        return self._declared if self.outside == _OTHER else DROPPED

    def _chunk(self, values: list[object]) -> Codes:
        """The positions of Python objects; each distinct object is looked up once, and all loops over rows run in C."""
        types = set(map(type, values))
        if types in ({bool}, {int}, {float}):
            try:
                return self._positions(np.array(values, np.float64 if float in types else np.int64))
            except OverflowError:  # an integer beyond int64
                pass
        try:
            if types <= _COMPARABLE:
                codes = {value: self._position_or_outside(value) for value in set(values)}
                return np.fromiter(map(codes.__getitem__, values), np.int64, len(values))
            # The type is part of the key, because a duration of 1 equals the number 1 but is not a number.
            keys = list(zip(map(type, values), values, strict=True))
            codes = {key: self._position_or_outside(key[1]) for key in set(keys)}
            return np.fromiter(map(codes.__getitem__, keys), np.int64, len(keys))
        except Exception:  # a value cannot be hashed, or its comparison raises: encode one by one
            return np.fromiter(map(self._position_or_outside, values), np.int64, len(values))

    def _position_or_outside(self, value: object) -> int:
        try:
            return DROPPED if too_long(value) else self._position(value)
        except Exception:  # a value that fails when it is compared is outside, whatever the failure (security I1)
            return DROPPED


@final
@dataclass(frozen=True, slots=True, init=False)
class Labels(Values):
    """Named values in the given order; a value is inside if it equals a label.

    Numbers are compared by value, whatever their type, and text is compared exactly. Text that equals no label is
    read as the number or truth value that it spells.

    >>> Labels(["M", "F"]).encode(["F", "M", "m"])
    array([ 1,  0, -1])
    >>> Labels([1, 2, "2"]).encode(["1", "01", "2", 2]), Labels([False, True]).encode(["true", "FALSE", "1", "yes"])
    (array([0, 0, 2, 1]), array([ 1,  0,  1, -1]))
    >>> Labels(["a", "b"], outside="other").encode(["b", None, "z"])
    array([1, 2, 2])
    >>> Labels(["T1", "T2", "T3"], levels={"county": ["Kent", "Kent", "Essex"]}).levels
    (Level('county', 2 groups of 3 values),)
    """

    ordered: ClassVar[bool] = False
    values: tuple[Label, ...]
    outside: Outside
    levels: tuple[Level, ...] = field(repr=False)
    _types: tuple[type, ...] = field(repr=False)  # (True,) == (1,), but these are different labels
    _codes: dict[tuple[type, Label], int] = field(repr=False, compare=False)

    def __init__(self, values: Sequence[Label], outside: Outside = "drop", *, levels: LevelsLike = ()) -> None:
        codes: dict[tuple[type, Label], int] = {}
        labels = tuple(map(_label, listed(values, "Labels")))
        for code, label in enumerate(labels):
            first = codes.setdefault(comparison_key(label), code)
            if first != code:
                raise DomainError(f"Labels {labels[first]!r} and {label!r} are equal. Declare each value once.")
        if not labels:
            raise DomainError("The list of labels is empty. Declare at least one value.")
        if outside == _OTHER and _OTHER in labels:
            raise DomainError(
                "The label 'other' is declared, but outside='other' adds a cell of that name. Rename the label."
            )
        for code, label in enumerate(labels):
            if isinstance(label, bool):
                for word in (str(label), str(label).lower(), str(label).upper()):
                    codes.setdefault(comparison_key(word), code)
        assign(self, values=labels, _types=tuple(map(type, labels)), _codes=codes)
        self._declare(outside, levels)

    @property
    def _declared(self) -> int:
        return len(self.values)

    def _label(self, position: int) -> Label:
        return self.values[position]

    def _number(self, position: int) -> Real:
        label = self.values[position]
        if isinstance(label, bool) or not isinstance(label, int | float):
            raise DomainError(
                f"The label {label!r} is not a number, so it cannot be added up. Count the rows instead, or give each "
                "label a number by CASE."
            )
        return label

    def _position(self, value: object) -> int:
        code = self._codes.get(comparison_key(plain_value(value)))
        if code is None and isinstance(value, str):
            code = self._codes.get(comparison_key(exact_number(value)))
        return DROPPED if code is None else code

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        exact = ((as_element(label, numbers.dtype), code) for code, label in enumerate(self.values))
        known = sorted((number, code) for number, code in exact if number is not None)
        if not known:
            return np.full(len(numbers), DROPPED, np.int64)
        elements = np.array([number for number, _ in known], numbers.dtype)
        at = np.minimum(np.searchsorted(elements, numbers), len(known) - 1)
        return np.where(elements[at] == numbers, np.array([code for _, code in known])[at], DROPPED)


def listed(values: object, what: str) -> list[object]:
    """The declared values in their order; DomainError if they have none."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return list(values)
    if isinstance(values, list | tuple | range):
        return list(cast(Iterable[object], values))
    raise DomainError(f"{what} are given as type {type(values).__name__}. Give a list, in the order of the cells.")


def _label(given: object) -> Label:
    label = str(given) if isinstance(given, np.str_) else plain_value(given)
    if label is None or (isinstance(label, float | Decimal) and Decimal(label).is_nan()):
        raise DomainError(f"The label {label} stands for a missing value. Use outside='other' to count missing values.")
    if too_long(label):
        raise DomainError(
            f"A label is longer than {LONGEST_TEXT:,} bytes in UTF-8, and longer text is outside of every domain. "
            "Declare a shorter label, and shorten the column in the same way."
        )
    try:
        hash(label)
    except Exception:  # mostly TypeError, but NumPy's durations without a unit raise ValueError
        raise DomainError(
            f"A label is of type {type(label).__name__}, which cannot be hashed. Use text or numbers."
        ) from None
    return cast(Label, label)


def _levels(given: LevelsLike, values: int, outside: Outside) -> tuple[Level, ...]:
    found = checked_levels(given, values)
    for level in found:
        if outside == _OTHER and _OTHER in level.groups:
            raise DomainError(
                f"Level {level.name!r} has a group 'other', but outside='other' adds one of that name. Rename it."
            )
    return found


def _rule(outside: str) -> str:
    if outside not in ("drop", _OTHER):
        raise DomainError(f"The rule for values outside is {brief(outside)}. Use outside='drop' or outside='other'.")
    return outside
