"""From a specification to a folder of tables, and what can be asked of it afterwards.

`spec` reads the TOML file; `planning` finds or reuses a plan; `forecast` and `outlook` say beforehand how wide margins
will be; `preflight` looks once at the folder, the data and the ledger (`budget`) before anything is spent, and accepts
only releases that the ledger paid for; `publish` debits, measures and writes, in a folder of `unpublished` files until
all are there. `answered`, `files`, `metadata` and `report` are what is written; `published` reads it again, and
`row_files` writes rows made from it. Open `spec.model`, then `publish`.
"""
