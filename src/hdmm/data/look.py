"""What a declared domain misses in the data: NOT private, for the keeper of the data before a release.

A release says nothing of rows outside the domain, for their number is as private as any other; so a label written in
another case, or text in another encoding, spends a budget on pure noise. Here the keeper can see it. What is found is
about real people: it is returned, and neither written nor logged. No release uses this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import numpy.typing as npt

from hdmm.data.base import LARGEST_ROWS_BOUND, Data
from hdmm.data.columns import AnyColumn, distinct, encode
from hdmm.data.source import Batch
from hdmm.data.table import Origin, Records
from hdmm.domain import Attribute
from hdmm.exceptions import DataError
from hdmm.values import DROPPED, Label, Labels, Outside


@final
@dataclass(frozen=True, slots=True)
class Misses:
    """What one attribute misses: rows whose value is outside, those of them that have none, labels that no row has.

    `nearly` pairs labels that no row has with text outside that differs in case or in spaces around it only.
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
class Look:
    """What a table holds beside its domain. NOT private: never to be published.

    `dropped` rows are in no table, for one attribute or more drops them; `without_id` of the others have no id, and
    `beyond` of those are more than a person's share.
    """

    rows: int
    dropped: int
    without_id: int
    beyond: int
    attributes: tuple[Misses, ...]

    @property
    def counted(self) -> int:
        """How many rows the tables count."""
        return self.rows - self.dropped - self.without_id - self.beyond


def look(data: Data) -> Look:
    """Read all rows and tell what the domain misses. NOT private, and charged to no budget.

    >>> import pyarrow as pa
    >>> from hdmm import Domain, from_table
    >>> found = look(from_table(Domain({"sex": ["m", "f"]}), pa.table({"sex": ["M", "f", None]})))
    >>> found.counted, found.attributes[0].outside, found.attributes[0].unmatched, found.attributes[0].nearly
    (1, 2, ('m',), (('m', 'M'),))
    """
    if not isinstance(data, Records):
        raise DataError("Only a table with one row a record can be looked at. Look at counts of your own yourself.")
    data.check()
    try:
        return _looked(data, data.origin)
    except DataError:
        raise
    except Exception:  # of the engine that reads; it may tell a value (security O3)
        raise DataError(
            "The data could not be read to the end. What the engine said is withheld, for it may hold data. See that "
            "the source is whole and the machine has memory left."
        ) from None


def _looked(data: Records, origin: Origin) -> Look:
    views = [_View(part, origin.columns[part.name]) for a in data.domain.attributes for part in a.parts]
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
    return Look(rows, dropped, without_id, beyond, tuple(view.misses() for view in views))


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
        """Add the rows of a batch; which of them this attribute keeps."""
        column, values = batch[self.column], self.part.values
        codes = encode(values, column)
        outside = codes == (values.size - 1 if values.outside == "other" else DROPPED)
        self._outside += int(outside.sum())
        self._missing += int(_missing(column).sum())
        if isinstance(values, Labels):
            self._matched.update(np.unique(codes).tolist())
            self._look_for_labels(column, values)
        return codes != DROPPED

    def misses(self) -> Misses:
        """What the attribute misses in all rows seen."""
        values = self.part.values
        labels = values.values if isinstance(values, Labels) else ()
        unmatched = tuple(label for code, label in enumerate(labels) if code not in self._matched)
        nearly = tuple(
            (label, self._strange[_folded(label)])
            for label in unmatched
            if isinstance(label, str) and _folded(label) in self._strange
        )
        return Misses(self.part.name, self.column, values.outside, self._outside, self._missing, unmatched, nearly)

    def _look_for_labels(self, column: AnyColumn, values: Labels) -> None:
        wanted = {_folded(label) for label in values.values if isinstance(label, str)} - set(self._strange)
        declared = set(values.values)
        for value in distinct(column)[0] if wanted else ():
            if isinstance(value, str) and _folded(value) in wanted and value not in declared:
                self._strange.setdefault(_folded(value), value)


def _missing(column: AnyColumn) -> npt.NDArray[np.bool]:
    """Which rows have no value: none was written, or (in CSV) one that is not UTF-8."""
    values, places = distinct(column)
    return np.fromiter(map(_is_missing, values), np.bool, len(values))[places]


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)
    except Exception:  # pandas' NA, which is neither equal nor unequal to itself
        return True


def _folded(text: str) -> str:
    return text.strip().casefold()
