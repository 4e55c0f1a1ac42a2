"""The private path: from a workload to a Plan, and from a Plan and data to a Release.

`optimize` selects a strategy and makes a `plan`. `prepare` rounds it once and refuses what public facts rule out;
`measure` is **the only file in which data and noise meet**: it debits the ledger, counts, adds noise. A `measurement`
is what a debit names; a `release` holds what came out (`chunked_release` for chunks on disk), `release_file` is how it
is kept; `provenance` says which rows it is of and what paid for it, `combine` makes several releases one, `synthesis`
makes rows from one, and `accuracy` finds the least privacy that meets given margins. Open `plan`, then `measure`.
"""
