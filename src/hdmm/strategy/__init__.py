"""What measurements say about queries, before there is any data: errors, variances, covariances. No search.

A `Strategy` is a union of weighted products (`blocks`). A `form` answers how exactly its measurements determine any
product of queries; `diagonal` is the usual one, by the `axis` of each attribute, and the others are for blocks that
do not diagonalise together. `informed` and `leveled` are forms beside counts that are known. `error` is what users
call; `lattice` rounds a strategy to integers with its exact sensitivity, and `slabs` applies it to counts. Open
`strategy`, then `diagonal`.
"""
