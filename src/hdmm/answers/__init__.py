"""From estimates to tables: numbers with their margins of error.

In: estimates of a release, and the queries of a workload. Out: `Answers`, and `Table`s with labels, estimates and
intervals. `margins` has the one formula of an interval, and grades a count by its margin; `combinations` and `evaluate`
make rows that are sums, quotients or quantiles of queries; `totals` says how a table crosses, and adds totals and
percentages. A `table` is printed row by row, and drawn from its `picture` by `charts` here or as SVG in a report.
`rows` are synthetic, with the tables that they have. Open `answers`, then `table`.
"""
