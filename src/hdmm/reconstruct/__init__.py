"""From measurements to estimates that agree with one another.

`least_squares` gives an `estimate` by the form of the strategy: coordinates of each attribute, from which any query
is answered. `known` makes estimates that reproduce public counts. Without negative counts: `nonnegative` chooses
among `information` (all cells), `agreeing` (tables that agree) and `fitted` (beside known counts); `simplex` is the
nearest point with a total, and `whole_numbers` rounds so that tables still add up. Open `estimate` first.
"""
