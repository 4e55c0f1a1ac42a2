"""What measurements say about queries, before there is any data: errors, variances, covariances. No search.

A `Strategy` is a union of weighted products (`blocks`). A `form` answers how exactly its measurements determine any
product of queries; `class_form` is the usual one, by the `axis` of each attribute, and `orthogonal` is for blocks that
see no totals. `informed` is a form beside counts that are known. A set of attributes is bits (`subsets`). `error` is
what users call; `lattice` rounds a strategy to integers with its exact sensitivity, and `slabs` applies it to counts.
Open `strategy`, then `class_form`.
"""
