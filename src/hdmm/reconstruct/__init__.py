"""From measurements to estimates that agree with one another.

`least_squares` gives an `estimate` by the form of the strategy: coordinates of each attribute, from which any query
is answered. `known` makes estimates that reproduce public counts, and `empty_queries` finds the groups that these
leave without rows. Without negative counts: `nonnegative` chooses among `information` (all cells), `agreeing` (tables
that agree) and `fitted` (beside known counts), and `whole_numbers` rounds so that tables still add up. `components` are
a distribution of rows that fits what was measured, and `drawn` makes rows of it. Open `estimate` first.
"""
