"""What a declared domain misses in the data: NOT private, for the owner of the data before a release.

A release says nothing about rows outside the domain, because their number is as private as any other. So a label in
another case, or text in another encoding, would spend a budget on pure noise; here the owner can see that beforehand.
What is found is about real people: it is returned, and neither written nor logged. No release uses this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import numpy.typing as npt

from hdmm.base.exceptions import DataError
from hdmm.data.columns import AnyColumn, distinct, encode
from hdmm.data.counts import LARGEST_ROWS_BOUND, Data, withholding
from hdmm.data.records import TableData, TableSource
from hdmm.data.sources.source import Batch
from hdmm.describe.attribute import Attribute
from hdmm.describe.entries import Label
from hdmm.describe.values import DROPPED, Labels, Outside


@final
@dataclass(frozen=True, slots=True)
class AttributeReport:
    """What one attribute misses: rows whose value is outside, rows without a value, and labels that no row has.

    `nearly` pairs labels that no row has with outside text that differs only in case or in surrounding spaces.
    """

    attribute: str
    column: str
    rule: Outside
    outside: int
    missing: int
    unmatched: tuple[Label, ...]
    nearly: tuple[tuple[str, str], ...]


@final
@dataclass(frozen=True, slots=True)
class DomainReport:
    """What a table holds outside its domain. NOT private: never publish it.

    `dropped` rows are in no table, because an attribute drops them. `without_id` of the other rows have no id, and
    `beyond` of the rest exceed the limit per person.
    """

    rows: int
    dropped: int
    without_id: int
    beyond: int
    attributes: tuple[AttributeReport, ...]

    @property
    def counted(self) -> int:
        """How many rows the tables count."""
        return self.rows - self.dropped - self.without_id - self.beyond


def inspect_rows(data: Data) -> DomainReport:
    """What the domain misses in all rows of the data. NOT private, and charged to no budget.

    >>> import pyarrow as pa
    >>> from hdmm import Domain, from_table
    >>> found = inspect_rows(from_table(Domain({"sex": ["m", "f"]}), pa.table({"sex": ["M", "f", None]})))
    >>> found.counted, found.attributes[0].outside, found.attributes[0].unmatched, found.attributes[0].nearly
    (1, 2, ('m',), (('m', 'M'),))
    """
    if not isinstance(data, TableData):
        raise DataError("Only a table with one row per record can be examined. Examine counts of your own yourself.")
    data.check()
    with withholding():
        return _inspected(data, data.origin)


def _inspected(data: TableData, origin: TableSource) -> DomainReport:
    views = [_View(part, origin.columns[part.name]) for a in origin.read.attributes for part in a.parts]
    names = list(dict.fromkeys([view.column for view in views] + ([origin.id] if origin.id is not None else [])))
    rows = dropped = without_id = 0
    for batch in origin.source.batches(names):
        kept = np.logical_and.reduce([view.seen(batch) for view in views])
        rows += len(kept)
        dropped += int((~kept).sum())
        if origin.id is not None:
            without_id += int((kept & _missing(batch[origin.id])).sum())
    beyond = 0
    if origin.id is not None:
        counted = replace(data, rows_bound=LARGEST_ROWS_BOUND).marginal([])
        beyond = rows - dropped - without_id - int(counted)
    return DomainReport(rows, dropped, without_id, beyond, tuple(view.report() for view in views))


@final
@dataclass(slots=True)
class _View:
    """What was seen of one attribute, batch by batch."""

    part: Attribute
    column: str
    _outside: int = 0
    _missing: int = 0
    _matched: set[int] = field(default_factory=set[int])
    _strange: dict[str, str] = field(default_factory=dict[str, str])  # by folded label: text outside that is nearly it

    def seen(self, batch: Batch) -> npt.NDArray[np.bool]:
        """Which rows of a batch this attribute keeps; the batch is added to what was seen."""
        column, values = batch[self.column], self.part.values
        codes = encode(values, column)
        outside = codes == (values.codes - 1 if values.outside == "other" else DROPPED)
        self._outside += int(outside.sum())
        self._missing += int(_missing(column).sum())
        if isinstance(values, Labels):
            self._matched.update(np.unique(codes).tolist())
            self._look_for_labels(column, values)
        return codes != DROPPED

    def report(self) -> AttributeReport:
        """What the attribute misses in all rows seen."""
        values = self.part.values
        labels = values.values if isinstance(values, Labels) else ()
        unmatched = tuple(label for code, label in enumerate(labels) if code not in self._matched)
        nearly = tuple(
            (label, self._strange[_folded(label)])
            for label in unmatched
            if isinstance(label, str) and _folded(label) in self._strange
        )
        return AttributeReport(
            self.part.name, self.column, values.outside, self._outside, self._missing, unmatched, nearly
        )

    def _look_for_labels(self, column: AnyColumn, values: Labels) -> None:
        wanted = {_folded(label) for label in values.values if isinstance(label, str)} - set(self._strange)
        declared = set(values.values)
        for value in distinct(column)[0] if wanted else ():
            if isinstance(value, str) and _folded(value) in wanted and value not in declared:
                self._strange.setdefault(_folded(value), value)


def _missing(column: AnyColumn) -> npt.NDArray[np.bool]:
    """Which rows have no value: nothing was written, or (in CSV) text that is not UTF-8."""
    values, places = distinct(column)
    return np.fromiter(map(_is_missing, values), np.bool, len(values))[places]


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)
    except Exception:  # pandas' NA, which is neither equal nor unequal to itself
        return True


def _folded(text: str) -> str:
    return text.strip().casefold()
