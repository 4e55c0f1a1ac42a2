"""The data-dependent methods of the paper's evaluation: research code, which debits no ledger and publishes nothing.

`dawa` and `privbayes` take exact counts and return the estimated counts of all cells.
"""
