"""From a specification to a folder of tables, and what can be asked of it afterwards.

`spec` reads the TOML file; `planning` finds or reuses a plan; `ready` looks once at the folder, the data and the
ledger before anything is spent; `publish` debits, measures and writes, in a folder of `unpublished` files until all
are there. `answered`, `totals`, `files`, `package`, `metadata` and `report` are what is written. `forecast`,
`outlook` and `earlier` say beforehand how wide margins will be; `ask` and `difference` read what was published;
`paid` accepts only releases that the ledger paid for. Open `spec.model`, then `publish`.
"""
