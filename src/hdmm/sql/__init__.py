"""SQL text → workloads: aggregates by group and condition. Text is read with an allow-list, never sent to an engine.

`text`, `tokens` and `syntax` read the text by sqlglot; `comparisons`, `linear`, `conditions` and `groups` turn it
into sets of cells (`cells`, `formula`); `selection` takes a SELECT apart, `products` makes its rows products of
predicate sets, and `statement` is the labelled table. `sums`, `asked`, `percent` and `quantiles` are for SUM, AVG,
MEDIAN and shares. Open `statement` first.
"""

from hdmm.sql.quantiles import quantile_sql, quoted, select_sql
from hdmm.sql.statement import Statement, merged_domain, parse, workload_from_sql

__all__ = ["Statement", "merged_domain", "parse", "quantile_sql", "quoted", "select_sql", "workload_from_sql"]
