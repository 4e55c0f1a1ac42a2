"""Spark, by its own connection: it has no transactions, and gives all rows it is asked for at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from hdmm.data.engines.dialect import Dialect, Expression, sql_function
from hdmm.data.engines.engine import FETCHED_AT_ONCE, Backend, CountRequest, kinds_of
from hdmm.data.engines.persons import EVERYONE, PeoplePart, least_groups, name_of, with_key_row
from hdmm.data.engines.sql_engine import SqlEngine
from hdmm.data.sources.source import Batch, ColumnKind, of_record_batch

if TYPE_CHECKING:
    import ibis

_HEX_OF_DIGEST = 16  # digits


def _bytes_of(text: Expression) -> Expression:
    return text.cast("binary")


def _text_of(raw: Expression) -> Expression:
    return raw.cast("string")


def _digest(text: Expression) -> Expression:
    return sql_function("sha2", "string", "int32", "string")(text, 256).substr(0, _HEX_OF_DIGEST)


SPARK = Dialect(
    bytes_of=_bytes_of,
    text_of=_text_of,
    digest=_digest,
    name_of=name_of,
    with_key=with_key_row,
    least=least_groups,
    valid=sql_function("try_validate_utf8", "string", "string"),  # no other engine holds text that is not UTF-8
    end="(?![^a]|a)",  # in Java, $ also matches before the last line break
)


@final
@dataclass(frozen=True, slots=True)
class Spark(SqlEngine):
    """A connection to Spark. For one state of the table, see docs/guide/people-and-data.md."""

    backend: Backend
    name: ClassVar[str] = "pyspark"
    gives_batches: ClassVar[bool] = False
    dialect: ClassVar[Dialect | None] = SPARK

    def columns(self, table: ibis.Table) -> dict[str, ColumnKind]:
        return kinds_of(table)

    def fetched(self, table: ibis.Table, columns: Sequence[str]) -> ibis.Table:
        return table.select(**{name: self.readable(table[name]) for name in columns})

    def rows(self, table: ibis.Table) -> Iterator[Batch]:
        """As Spark gives them to Arrow. Ibis 12 would make a frame of pandas, which fails on times far away."""
        self.backend._run_pre_execute_hooks(table)  # pyright: ignore[reportPrivateUsage]
        found = self.backend.raw_sql(self.backend.compile(table)).toArrow()
        yield from map(of_record_batch, found.to_batches(max_chunksize=FETCHED_AT_ONCE))

    def snapshot(self, table: ibis.Table, asked: CountRequest) -> AbstractContextManager[None]:
        return nullcontext()

    def parts(self, asked: CountRequest, rows: object, groupings: int) -> list[PeoplePart]:
        return EVERYONE

    def compared(self, table: ibis.Table, columns: Sequence[str]) -> Mapping[str, Expression]:
        return {name: table[name] for name in columns}
