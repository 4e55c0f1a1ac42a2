"""SQL text → tables of queries: aggregates by group and condition. Text is read with an allow-list, never run.

`syntax` reads the text by sqlglot, and `text` makes errors that point into it; `comparison`, `conditions` and `groups`
turn it into sets of cells (`cells`, `formula`); `selection` takes a SELECT apart, `measures` says what its aggregates
add up, `products` makes its rows products of predicate sets, and `statement` makes them a `TableQuery`. `marginals`
makes the tables that need no SQL. Open `statement` first.
"""

from hdmm.describe.table_query import TableQuery
from hdmm.sql.statement import merged_domain, parse, workload_from_sql
from hdmm.sql.text import quantile_sql, quoted, select_sql

__all__ = ["TableQuery", "merged_domain", "parse", "quantile_sql", "quoted", "select_sql", "workload_from_sql"]
