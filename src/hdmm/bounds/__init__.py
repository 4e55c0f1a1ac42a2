"""What no strategy can beat: lower bounds on the error, and how far a plan is above them.

`svd` is the bound by singular values; `certificate` the dual bound for Gaussian noise, with `pinching` for attributes
that have special values; `gap` compares a plan with the best bound there is. Open `gap` first.
"""
