"""SqlEngine: an engine that counts by queries of its own SQL, which Ibis writes."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from hdmm.base.exceptions import DataError
from hdmm.base.lazy import Lazy
from hdmm.data.columns import AnyColumn, drops
from hdmm.data.engines.dialect import Dialect, Expression
from hdmm.data.engines.engine import Backend, CountRequest, Engine, as_integers, kinds_of
from hdmm.data.engines.expressions import Packing, cell
from hdmm.data.engines.persons import EVERYONE, PeoplePart, chosen, counted_rows, with_person
from hdmm.data.sources.source import ROWS_AT_ONCE, Batch, ColumnKind, of_record_batch
from hdmm.describe.attribute import Attribute
from hdmm.describe.entries import Codes

if TYPE_CHECKING:
    import ibis
else:
    ibis = Lazy("ibis")

_PERSON, _GROUPING = "person", "grouping"
_UNCONFINED = ("datafusion", "polars")  # engines of Ibis that run in this process and may write where they like


class SqlEngine(Engine):
    """An engine that counts by queries. One without a dialect gets plain expressions from Ibis."""

    __slots__ = ()

    dialect: ClassVar[Dialect | None]

    @abstractmethod
    def compared(self, table: ibis.Table, columns: Sequence[str]) -> Mapping[str, Expression]:
        """The columns as the database compares them exactly; those that only Python compares are left out."""

    def check_counting(self, table: ibis.Table, asked: CountRequest) -> None:
        rows = self._kept(table, asked, PeoplePart())
        if self.dialect is None:
            try:
                self.backend.compile(rows.aggregate(rows.count().name("n")))
            except Exception:  # Ibis cannot write the query for this engine
                raise self.cannot("The domain") from None

    def counted(
        self, table: ibis.Table, asked: CountRequest, groupings: Sequence[Sequence[Attribute]], people: PeoplePart
    ) -> Iterator[tuple[int, Sequence[Codes], AnyColumn]]:
        """Several groupings are one: by the place of the grouping and its words, of rows that are there once for each.

        So the rows of persons are chosen once, by any engine, and no engine holds them. In DuckDB, a common table for
        all groupings, or GROUPING SETS, took 0.8 of the time of this, and a query for each of five groupings 3.4 times.
        """
        rows, several = self._kept(table, asked, people), len(groupings) > 1
        if several:
            rows = rows.mutate(**{_GROUPING: ibis.range(len(groupings)).unnest()})
        packings = [Packing(tuple(each.codes for each in by)) for by in groupings]
        words = [
            packing.packed([rows[asked.parts[each]] for each in by])
            for packing, by in zip(packings, groupings, strict=True)
        ]
        keys = [_of_its_grouping(rows, each).name(f"w{i}") for i, each in enumerate(itertools.zip_longest(*words))]
        if several:
            keys.append(rows[_GROUPING])
        for batch in self.rows(rows.aggregate([counted_rows(rows).name("n")], by=keys)):
            found = {name: as_integers(column) for name, column in batch.items()}
            for place, packing in enumerate(packings):
                here = np.flatnonzero(found[_GROUPING] == place) if several else slice(None)
                codes = packing.codes([found[f"w{i}"][here] for i in range(len(packing.words))])
                yield place, codes, found["n"][here]

    def readable(self, column: Expression) -> Expression:
        """The column without long text. Text is compared with labels alone without a dialect, and all are shorter."""
        return column if self.dialect is None else self.dialect.readable(column)

    def _kept(self, table: ibis.Table, asked: CountRequest, people: PeoplePart) -> ibis.Table:
        """The rows that are counted, as codes; with ids, those of a part of the people."""
        rows = self._plain(table, asked)
        named = asked.named_columns
        found: dict[str, Any] = {}  # the codes by name, and the person
        if asked.id is not None:
            rows, person = with_person(rows, named[asked.id], self.dialect)
            if person is None:
                raise self.cannot(f"Column {asked.id!r} of type {table[asked.id].type()}, which holds the ids,")
            rows = people.rows(rows.mutate(**{_PERSON: person}), _PERSON)
            found[_PERSON] = rows[_PERSON]
        for part, name in asked.parts.items():
            column = asked.columns[part.name]
            rows, place = cell(rows, named[column], part.values, self.dialect)
            if place is None:
                kind = table[column].type()
                raise self.cannot(f"Column {column!r} of type {kind}, from which {part.name!r} is read,")
            found[name] = place if drops(part) else ibis.coalesce(place, ibis.literal(part.codes - 1, "int64"))
        rows = rows.select(**found)
        rows = rows.filter([rows[name].notnull() for name in found])
        if asked.id is None or self.dialect is None:
            return rows
        sizes = {name: part.codes for part, name in asked.parts.items()}
        return chosen(rows, _PERSON, sizes, k=asked.k, key=asked.key, dialect=self.dialect)

    def _plain(self, table: ibis.Table, asked: CountRequest) -> ibis.Table:
        """The columns that are needed, under names of ours."""
        columns = self.compared(table, list(asked.named_columns))
        for column in asked.named_columns:
            if column not in columns:
                raise self.cannot(f"Column {column!r}, whose type only Python compares,")
        return table.select(**{name: self.readable(columns[column]) for column, name in asked.named_columns.items()})


def _of_its_grouping(rows: ibis.Table, words: Sequence[Expression | None]) -> Expression:
    """Of one word of each grouping, that of the row's own; 0 if its grouping has fewer."""
    if len(words) == 1:
        return words[0]
    given = [ibis.literal(0, "int64") if word is None else word for word in words]
    return ibis.cases(*((rows[_GROUPING] == place, word) for place, word in enumerate(given)))


@final
@dataclass(frozen=True, slots=True)
class OtherEngine(SqlEngine):
    """Any other database that Ibis reaches: it counts what plain expressions of Ibis count."""

    backend: Backend
    name: ClassVar[str] = ""
    dialect: ClassVar[Dialect | None] = None

    def columns(self, table: ibis.Table) -> dict[str, ColumnKind]:
        if self.backend.name in _UNCONFINED:
            raise DataError(
                f"The Ibis table is computed by {self.backend.name} inside this process, where it may write temporary "
                "files. Give the frame, or the path of the file, that the table comes from."
            )
        return kinds_of(table)

    def fetched(self, table: ibis.Table, columns: Sequence[str]) -> ibis.Table:
        return table.select(list(columns))

    def rows(self, table: ibis.Table) -> Iterator[Batch]:
        return map(of_record_batch, self.backend.to_pyarrow_batches(table, chunk_size=ROWS_AT_ONCE))

    def snapshot(self, table: ibis.Table, asked: CountRequest) -> AbstractContextManager[None]:
        return nullcontext()

    def parts(self, asked: CountRequest, rows: object, groupings: int) -> list[PeoplePart]:
        return EVERYONE

    def compared(self, table: ibis.Table, columns: Sequence[str]) -> Mapping[str, Expression]:
        return {name: table[name] for name in columns}
