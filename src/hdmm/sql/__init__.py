"""SQL text → workloads: counts by group and condition. Text is read with an allow-list and never sent to an engine."""

from hdmm.sql.statement import Statement, merged_domain, parse, workload_from_sql

__all__ = ["Statement", "merged_domain", "parse", "workload_from_sql"]
