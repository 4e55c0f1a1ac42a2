"""SQL text → workloads: aggregates by group and condition. Text is read with an allow-list, never sent to an engine."""

from hdmm.sql.quantiles import quantile_sql, quoted, select_sql
from hdmm.sql.statement import Statement, merged_domain, parse, workload_from_sql

__all__ = ["Statement", "merged_domain", "parse", "quantile_sql", "quoted", "select_sql", "workload_from_sql"]
