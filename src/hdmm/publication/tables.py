"""The tables of a release, row by row: labels, estimates, standard errors, intervals; as CSV and Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, final

from hdmm.answer import margin
from hdmm.lazy import Lazy
from hdmm.matrix import Array
from hdmm.release import Release
from hdmm.spec import SpecTable
from hdmm.values import Label

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = Lazy("pyarrow"), Lazy("pyarrow.parquet")

NUMBERS = ("estimate", "standard_error", "lower", "upper")
_FORMULA = frozenset("=+-@\t\r\n")  # and what Unicode has as another width or size of these, such as ＝ or ﹢
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_ROWS = 2**16


@final
@dataclass(frozen=True, slots=True, eq=False)
class PublishedTable:
    """The rows of one table as they are published; of a release, so noisy and safe to show."""

    table: SpecTable
    estimate: Array
    standard_error: Array
    lower: Array
    upper: Array

    @classmethod
    def of(cls, table: SpecTable, release: Release, level: float) -> PublishedTable:
        """The answers of a release to one table, with intervals that hold at least at this level."""
        answers = release.answer(table.workload)
        estimate, stddev = answers.values, answers.stddev
        if table.combine is not None:
            estimate, _, stddev = answers.sums(table.combine)
        half = margin(level, release.privacy.noise) * stddev
        return cls(table, estimate, stddev, estimate - half, estimate + half)

    @property
    def header(self) -> list[str]:
        """The names of all columns, each once."""
        return [*_distinct(self.table.columns), *NUMBERS]

    def labels(self) -> Iterator[tuple[str | None, ...]]:
        """The labels of each row as text; None where a row has none."""
        for row in self.table.labels():
            yield tuple(map(_text, row))

    def write_csv(self, file: BinaryIO) -> None:
        """As CSV in UTF-8. Text that a spreadsheet would run as a formula begins with ' instead (security O2)."""
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\r\n")  # which makes it quote texts that hold either of them
        writer.writerow(map(harmless, self.header))
        numbers = zip(*(each.tolist() for each in self._numbers), strict=True)
        for labels, row in zip(self.labels(), numbers, strict=True):
            writer.writerow([*(None if label is None else harmless(label) for label in labels), *row])
        text.detach()

    def write_parquet(self, file: BinaryIO) -> None:
        """As Parquet: labels are texts, the rest floats."""
        kinds = [pa.string()] * len(self.table.columns) + [pa.float64()] * len(NUMBERS)
        schema = pa.schema(list(zip(self.header, kinds, strict=True)))
        with pq.ParquetWriter(file, schema) as writer:
            labels = self.labels()
            for start in range(0, max(len(self.estimate), 1), _ROWS):
                stop = min(start + _ROWS, len(self.estimate))
                columns = list(zip(*itertools.islice(labels, stop - start), strict=True))
                arrays = [pa.array(column, pa.string()) for column in columns]
                arrays += [pa.array(each[start:stop], pa.float64()) for each in self._numbers]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

    @property
    def _numbers(self) -> tuple[Array, ...]:
        return self.estimate, self.standard_error, self.lower, self.upper


def harmless(text: str) -> str:
    """A text as it stands in CSV: with ' before what a spreadsheet would take for a formula.

    >>> harmless("=1+1"), harmless("＝1+1"), harmless("-12"), harmless("F")
    ("'=1+1", "'＝1+1", '-12', 'F')
    """
    starts = unicodedata.normalize("NFKC", text[:1])[:1] in _FORMULA
    return f"'{text}" if starts and not _NUMBER.fullmatch(text) else text


def _text(label: Label | None) -> str | None:
    return None if label is None else str(label)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names with _ added where one is already taken; engines that read CSV fold case."""
    taken: set[str] = set(NUMBERS)
    found: list[str] = []
    for name in names:
        while name.casefold() in taken:
            name += "_"
        taken.add(name.casefold())
        found.append(name)
    return found
