"""Column: what rows are read, counted and labelled by: an attribute, a part of a merged one, or a level of either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from hdmm.describe.attribute import Attribute
from hdmm.describe.entries import Codes
from hdmm.describe.values import Values


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
