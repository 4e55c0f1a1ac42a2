"""Tables that a database counts itself, through Ibis: only counts leave it.

`database` is the table. `engine` says what is asked of a database, `sql_engine` how most of them count, and a file of
its own has all that is particular to each: `duckdb`, `postgres`, `sqlite`, `spark`. A new one takes such a file, its
tests, and its line here in ENGINES. `expressions` and `numerals` say in SQL which cell a value belongs to, `persons`
keeps at most k rows of each person, in the words of the engine's `dialect`; `address` says where a table is, without
its password. No value and no number of rows of one person decides whether counting succeeds. Open `engine` first.
"""

from typing import Final

from hdmm.data.engines.duckdb import DuckDB
from hdmm.data.engines.postgres import Postgres
from hdmm.data.engines.spark import Spark
from hdmm.data.engines.sqlite import SQLite

ENGINES: Final = (DuckDB, Postgres, SQLite, Spark)
