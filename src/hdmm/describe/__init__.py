"""What a user declares: the values a table can hold, and the counting queries that matter. All of it is public.

In: names, labels, bounds. Out: a `Domain` (its attributes with their `Values` and levels) and a `Workload`, a weighted
union of products with one predicate set per attribute. An `attribute` is what rows are counted by, a `table_column`
how they are labelled; `predicates` holds the sets, `compact` merges products without changing WᵀW, `table_query` says
how the rows of a table follow from queries, and `advice` what could be declared better. They are logical values:
compared, hashed and printed as what they mean, and lowered to matrices when needed. Open `domain`, then `workload`.
"""
