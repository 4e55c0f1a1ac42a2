"""Tables that a database counts itself, through Ibis: only counts leave it.

`database` is the table; `expressions`, `numerals` and `packing` say in SQL which cell a value belongs to, and
`persons` keeps at most k rows of each person there. `dialects`, `postgres`, `sqlite` and `local` (DuckDB and SQLite
in this process) hold what engines do differently; `declared` says which columns have a type that can be trusted, and
`address` where a table is, without its password. No value and no number of rows of one person decides whether
counting succeeds. Open `database` first.
"""
