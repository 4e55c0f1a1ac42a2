"""Trees of squares over two attributes; HB and quadtrees are special cases."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hdmm.describe.domain import Domain
from hdmm.strategy.grid import grid_blocks
from hdmm.strategy.strategy import Strategy


def grid_tree(domain: Domain, widths: Sequence[int], weights: Sequence[float]) -> Strategy:
    """The tree whose level l counts squares of widths[l] cells per side with weight weights[l]; its sensitivity is 1.

    The weights are rescaled for that. `widths` start at 1, and each divides the next. If no square is cut short, or
    there are two levels, the grams of all levels have a common diagonal form on each attribute: O(n³) for n values of
    an attribute, independent of the size of the domain. Otherwise the form is a Grid.

    >>> grid_tree(Domain({"x": 4, "y": 4}), [1, 2], [1, 1]).sensitivity("laplace")
    1.0
    """
    whole = math.fsum(weights)
    return Strategy(domain, grid_blocks(domain, widths, [weight / whole for weight in weights]))
