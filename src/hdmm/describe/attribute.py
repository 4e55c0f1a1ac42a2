"""Attribute: one dimension of a domain, and attributes merged into one; Column: what of it rows are counted by."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast, final

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DomainError
from hdmm.describe.entries import INT64_END, Codes, ColumnLike, Label
from hdmm.describe.levels import Level
from hdmm.describe.values import DROPPED, Labels, Outside, Real, Values

_FEW = 6  # labels that are written out in words
_LABELS_LIMIT = 10**7  # labels written out at once


@final
@dataclass(frozen=True, slots=True)
class Attribute:
    """One dimension of a domain: a name and the values it may hold.

    >>> from hdmm import Integers
    >>> age = Attribute("age", Integers(18, 99))
    >>> age.size, age.ordered, age.label(0), age.encode([18, 99.0, 17, None])
    (82, True, 18, array([ 0, 81, -1, -1]))
    """

    name: str
    values: Values

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(f"An attribute has the name {self.name!r}. Use a text that is not empty as its name.")
        if not isinstance(self.values, Values):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DomainError(
                f"Attribute {self.name!r} is declared with a value of type {type(self.values).__name__}. "
                f"Use Labels, Integers or Bins, or declare it in a Domain({{name: …}})."
            )
        if self.values.size >= INT64_END:
            raise DomainError(
                f"Attribute {self.name!r} has {self.values.size} cells; an attribute must have fewer than 2**63. "
                f"Use coarser bins, or merge fewer attributes."
            )

    @property
    def size(self) -> int:
        """The number of cells, the one for "other" included."""
        return self.values.size

    @property
    def codes(self) -> int:
        """The number of codes that rows may have: one for each cell, unless it is an Amount."""
        return self.values.codes

    @property
    def ordered(self) -> bool:
        """Whether neighbouring cells hold neighbouring values, so that ranges are meaningful."""
        return self.values.ordered

    @property
    def parts(self) -> tuple[Attribute, ...]:
        """The attributes that are columns: the attribute itself, or all that it was merged from, the first slowest."""
        if isinstance(self.values, Merged):
            return tuple(inner for part in self.values.parts for inner in part.parts)
        return (self,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: the attribute's own, or those of the parts it was merged from."""
        return tuple(part.name for part in self.parts)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of all cells; DomainError if there are more than ten million (label(code) gives one label)."""
        if self.size > _LABELS_LIMIT:
            raise DomainError(
                f"Attribute {self.name!r} has {self.size} labels, which are too many to list. Use label(code) for one."
            )
        return tuple(map(self.values.label, range(self.size)))

    def values_in_words(self) -> str:
        """All labels if they are few, else the first and the last.

        >>> from hdmm import Integers
        >>> Attribute("age", Integers(0, 114)).values_in_words()
        '0, 1, 2 … 114'
        """
        if self.values.divided:
            return f"{self.label(0):,} to {self.label(1):,}"
        named = [str(self.label(code)) for code in range(min(self.size, _FEW))]
        return ", ".join(named) if self.size <= _FEW else f"{', '.join(named[:3])} … {self.label(self.size - 1)}"

    def label(self, code: int) -> Label:
        """The label of one cell.

        >>> from hdmm import Bins
        >>> Attribute("income", Bins([0, 10_000, 50_000])).label(1)
        '[10000, 50000)'
        """
        with naming(self.name):
            return self.values.label(code)

    def level(self, name: str) -> tuple[Labels, Codes]:
        """The groups of a level, its own or of a part it was merged from, and the group of every cell.

        >>> from hdmm import Labels
        >>> tract = Attribute("tract", Labels(["T1", "T2", "T3"], levels={"county": ["Kent", "Essex", "Kent"]}))
        >>> tract.level("county")[1]
        array([0, 1, 0])
        """
        inner = self.size
        for part in self.parts:
            inner //= part.size
            if any(level.name == name for level in part.values.levels):
                groups, codes = part.values.level(name)
                return groups, codes[np.arange(self.size) // inner % part.size] if inner < self.size else codes
        with naming(self.name):
            return self.values.level(name)

    def encode(self, values: ColumnLike) -> Codes:
        """The code of each value; −1 if the row is dropped. Values never raise.

        A merged attribute takes tuples here; Domain.encode reads the columns of the original attributes.

        >>> from hdmm import Labels
        >>> Attribute("sex", Labels(["M", "F"])).encode(["F", "M", "f", None])
        array([ 1,  0, -1, -1])
        """
        with naming(self.name):
            return self.values.encode(values)


@final
@dataclass(frozen=True, slots=True)
class Merged(Values):
    """The cells of several attributes as those of one, in row-major order; labels are tuples. Made by Domain.merge.

    >>> from hdmm import Integers, Labels
    >>> Merged((Attribute("a", Integers(0, 1)), Attribute("b", Labels(["x", "y", "z"])))).label(4)
    (1, 'y')
    """

    ordered: ClassVar[bool] = False
    parts: tuple[Attribute, ...]
    outside: Outside = field(default="drop", init=False)
    levels: tuple[Level, ...] = field(default=(), init=False, repr=False)  # parts have their own

    @property
    def _declared(self) -> int:
        return math.prod(part.size for part in self.parts)

    def _label(self, position: int) -> Label:
        labels: list[Label] = []
        for part in reversed(self.parts):
            position, code = divmod(position, part.size)
            labels.append(part.label(code))
        return tuple(reversed(labels))

    def _number(self, position: int) -> Real:
        raise DomainError("A merged attribute has no values to add up. Use one of those from which it was merged.")

    def _position(self, value: object) -> int:
        if not isinstance(value, tuple):
            return DROPPED
        cells = zip(self.parts, cast(tuple[object, ...], value), strict=True)
        return int(joined(self.parts, [part.encode([v]) for part, v in cells])[0])

    def _positions(self, numbers: npt.NDArray[Any]) -> Codes:
        return np.full(len(numbers), DROPPED, np.int64)  # numbers are not tuples


@contextmanager
def naming(name: str) -> Generator[None]:
    """Put the name of the attribute in front of a DomainError's message."""
    try:
        yield
    except DomainError as error:
        raise DomainError(f"Attribute {name!r}: {error}") from None


def joined(attributes: Sequence[Attribute], codes: Sequence[Codes]) -> Codes:
    """The row-major index of each row, −1 if an attribute has dropped it."""
    if len(codes) == 1:
        return codes[0]
    kept = kept_rows(codes)
    index = np.zeros(len(kept), np.int64)
    for attribute, code in zip(attributes, codes, strict=True):
        index *= attribute.size
        index += code
    return np.where(kept, index, DROPPED)


def kept_rows(codes: Sequence[Codes]) -> npt.NDArray[np.bool]:
    """A mask of the rows that no attribute has dropped."""
    if len(set(map(len, codes))) > 1:
        raise DomainError("The columns have different lengths. Give the columns of one table.")
    return np.logical_and.reduce([code >= 0 for code in codes])


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A name, its values, and where they stand in the cells of an attribute.

    The cells of the whole attribute are numbered in row-major order of (outer, own, inner), where own is the cell of
    this column, or, if it is a level, the cell of the column that it groups.
    """

    name: str
    axis: int
    values: Values
    outer: int = 1
    inner: int = 1
    grouped: Column | None = None

    @property
    def owned(self) -> Values:
        """The values whose cells are numbered: the column's own, or those that it groups."""
        return self.values if self.grouped is None else self.grouped.values

    @property
    def n(self) -> int:
        """The number of cells of the attribute that the column belongs to."""
        return self.outer * self.owned.size * self.inner

    @property
    def declared(self) -> int:
        """The number of the column's own cells without the one for "other"."""
        return self.values.size - (self.values.outside == "other")

    @property
    def whole(self) -> bool:
        """Whether the column is the attribute itself, so that its cells are the attribute's."""
        return self.grouped is None and self.outer == self.inner == 1

    @property
    def codes(self) -> Codes:
        """The column's own cell in every cell of the attribute. O(n)."""
        own = np.arange(self.n) // self.inner % self.owned.size
        return own if self.grouped is None else self.grouped.values.level(self.name)[1][own]


def columns(attributes: Iterable[Attribute]) -> dict[str, Column]:
    """The columns of a domain's attributes by name: themselves, or the parts of merged ones; and levels.

    >>> from hdmm import Domain
    >>> merged = Domain({"a": 2, "b": 3, "c": 4}).merge(["a", "b"], name="ab")
    >>> {name: (column.axis, column.n) for name, column in columns(merged.attributes).items()}
    {'a': (0, 6), 'b': (0, 6), 'c': (1, 4)}
    """
    return {column.name: column for axis, attribute in enumerate(attributes) for column in _columns(attribute, axis)}


def _columns(attribute: Attribute, axis: int) -> Iterator[Column]:
    left, right = 1, attribute.size
    for part in attribute.parts:
        right //= part.size
        own = Column(part.name, axis, part.values, left, right)
        yield own
        for level in part.values.levels:
            yield Column(level.name, axis, part.values.level(level.name)[0], left, right, own)
        left *= part.size
