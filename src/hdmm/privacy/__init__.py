"""What a release may cost, and the ledger that remembers what was spent.

`guarantee` has PureDP, ZCDP and ApproxDP, each as `exact_number`s, and the two kinds of noise; `unit_of_privacy` is
what they protect; `conversion` goes between ρ and (ε, δ), and `gdp` between Gaussian noise and (ε, δ), rounded to the
safe side. `ledger` is the budget on disk: amounts in `units`, a `chain` of records in a SQLite `store` with its `head`
file, `names` that are near one another, what a debit is for and the rows it is about (`purpose`, `rows_of`, `hidden`),
what all of them guarantee (`spending`) and the `audit` that reads all records once. It debits durably before data is
read. Open `guarantee`, then `ledger`.
"""
