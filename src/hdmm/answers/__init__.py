"""From estimates to tables: numbers with their margins of error.

`answers` has the answers to a workload and its tables; `margins` the one formula of an interval; `sum_rows`, `ratios`
and `evaluate` rows that are sums, quotients or quantiles of queries; `reliability` grades a count by its margin.
`table` is a Table with labels, estimates and intervals, `crosstab` says which column goes across, and `charts` draws
it. Open `answers`, then `margins`.
"""
