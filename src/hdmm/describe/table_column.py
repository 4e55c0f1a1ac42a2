"""TableColumn: a column of labels in a table, and where its labels stand on a scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Literal, TypeAlias, final

from hdmm.describe.attribute import Attribute
from hdmm.describe.entries import NUMBERS, Number
from hdmm.describe.numeric import Bins
from hdmm.describe.predicates import Identity, PredicateSet
from hdmm.describe.values import Values

RangeEnd: TypeAlias = Literal["from", "to"]
LabelKind: TypeAlias = RangeEnd | Literal["labels", "bins"]
"""What the labels are: names, numbers or ranges of them; bins; or the first and the last value of ranges."""

LabelEnds: TypeAlias = Mapping[str, tuple[Number, Number]]
"""The first and the last number that a label stands for: one number twice, or both ends of a bin or range."""


@final
@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of labels. Readers see its `title`; a "from" or "to" has the ends of ranges of what is `ranged`.

    `ends()` says where labels stand on a scale; a label that is not a number, such as "(all)", is not in it.

    >>> from hdmm.describe.numeric import Integers
    >>> age = TableColumn.of_values("age", Integers(18, 19))
    >>> age.ends(), rise(["18", "19"], age.ends()), rise(["18", "(all)"], age.ends())
    ({'18': (18, 18), '19': (19, 19)}, True, False)
    """

    name: str
    title: str = ""
    kind: LabelKind = "labels"
    ends: Callable[[], LabelEnds] = field(default=dict[str, tuple[Number, Number]], repr=False, compare=False)
    ranged: str = ""

    @classmethod
    def of_values(cls, name: str, values: Values) -> TableColumn:
        """The column of the cells of some values."""
        return cls(name, kind="bins" if isinstance(values, Bins) else "labels", ends=partial(cell_ends, values))

    @classmethod
    def of_predicates(cls, name: str, predicates: PredicateSet, attribute: Attribute) -> TableColumn:
        """The column of the labels of predicates: of single values, of ranges, or of all values up to each.

        >>> from hdmm import AllRange, Integers
        >>> TableColumn.of_predicates("age", AllRange(), Attribute("age", Integers(0, 1))).ends()
        {'0': (0, 0), '0 – 1': (0, 1), '1': (1, 1)}
        """
        if isinstance(predicates, Identity):
            return cls.of_values(name, attribute.values)
        return cls(name, ends=partial(_predicate_ends, predicates, attribute))

    @property
    def head(self) -> str:
        """What readers see above the column."""
        return self.title or self.name

    def titled(self, headings: Mapping[str, str]) -> TableColumn:
        """The column with its heading, if there is one for it, or for what it has the ends of ranges of.

        >>> TableColumn("age_from", kind="from", ranged="age").titled({"age": "Age"}).head
        'Age from'
        """
        of = headings.get(self.ranged)
        title = headings.get(self.name, self.title if of is None else f"{of} {self.kind}")
        return replace(self, title=title, ranged=self.ranged if of is None else of)


def named_columns(*names: str) -> tuple[TableColumn, ...]:
    """Columns of names, which have no order."""
    return tuple(map(TableColumn, names))


def rise(labels: Sequence[str], ends: LabelEnds) -> bool:
    """Whether labels are steps of one scale, in its order."""
    starts = [ends[label][0] for label in labels if label in ends]
    return len(starts) == len(labels) and all(a < b for a, b in pairwise(starts))


def cell_ends(values: Values) -> LabelEnds:
    """Which numbers the cells of some values hold, by their labels; none for a cell that holds no number. O(cells)."""
    if isinstance(values, Bins):
        return {str(values.label(code)): ends for code, ends in enumerate(pairwise(values.edges))}
    return number_ends(map(values.label, range(values.size)))


def number_ends(labels: Iterable[object]) -> LabelEnds:
    """The labels that are numbers, as ends.

    >>> number_ends([18, "other", True, 2.5])
    {'18': (18, 18), '2.5': (2.5, 2.5)}
    """
    return {str(n): (n, n) for n in labels if isinstance(n, NUMBERS) and not isinstance(n, bool)}


def _predicate_ends(predicates: PredicateSet, attribute: Attribute) -> LabelEnds:
    cells, names = cell_ends(attribute.values), Identity().labels(attribute)
    ranges = zip(predicates.labels(attribute), predicates.places(attribute.size), strict=False)
    return {
        label: (cells[names[low]][0], cells[names[high]][1])
        for label, (low, high) in ranges
        if names[low] in cells and names[high] in cells
    }
