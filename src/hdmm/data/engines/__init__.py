"""Tables that a database counts itself, through Ibis: only counts leave it.

`IbisTable` is such a table. `engine` says what is asked of a database, `sql_engine` how most count, and a file of
its own has all that is particular to each: `duckdb`, `postgres`, `sqlite`, `spark`. A new one takes such a file, its
tests, and its line here in ENGINES. `expressions` and `numerals` say in SQL which cell a value belongs to, `persons`
keeps at most k rows of each person, in the words of the engine's `dialect`; `address` says where a table is, without
its password. No value and no number of rows of one person decides whether counting succeeds. Open `engine` first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, final

from hdmm.base.lazy import Lazy
from hdmm.data.counting import GroupCounts
from hdmm.data.counts import Axes
from hdmm.data.engines.duckdb import DuckDB, memory_backend
from hdmm.data.engines.engine import Backend, CountedSource, CountRequest, Engine
from hdmm.data.engines.postgres import Postgres
from hdmm.data.engines.spark import Spark
from hdmm.data.engines.sql_engine import OtherEngine
from hdmm.data.engines.sqlite import SQLite
from hdmm.data.sources.source import Batch, ColumnKind

if TYPE_CHECKING:
    import ibis
    import ibis.expr.operations as ops
else:
    ops = Lazy("ibis.expr.operations")

ENGINES: Final = (DuckDB, Postgres, SQLite, Spark)
_BY_NAME = {engine.name: engine for engine in ENGINES}


@final
@dataclass(frozen=True, slots=True, eq=False)
class IbisTable(CountedSource):
    """A table expression of Ibis. A table that no connection holds is computed by a DuckDB of our own."""

    table: ibis.Table
    declares_names: ClassVar[bool] = True
    may_fetch: bool = field(init=False, repr=False)  # because the rows are in the memory of this process already
    gives_batches: bool = field(init=False, repr=False)
    engine: Engine = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bound = self.table.op().find((ops.DatabaseTable, ops.SQLQueryResult, ops.UnboundTable))
        object.__setattr__(self, "may_fetch", not bound)
        object.__setattr__(self, "engine", _engine(self.table.get_backend() if bound else memory_backend()))
        object.__setattr__(self, "gives_batches", self.engine.gives_batches)

    @property
    def has_frames(self) -> bool:
        """Whether some rows come from a frame in the memory of this process, which may have been read from a file."""
        return bool(self.table.op().find(ops.InMemoryTable))

    def columns(self) -> dict[str, ColumnKind]:
        return self.engine.columns(self.table)

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        return self.engine.rows(self.engine.fetched(self.table, columns))

    def check_counting(self, asked: CountRequest) -> None:
        self.engine.check_counting(self.table, asked)

    def groups(self, asked: CountRequest, groupings: Sequence[Axes]) -> list[GroupCounts]:
        return self.engine.groups(self.table, asked, groupings)


def _engine(backend: Backend) -> Engine:
    return _BY_NAME.get(backend.name, OtherEngine)(backend)
