"""Trees of squares over two attributes, of which HB and quadtrees are cases."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hdmm.domain import Domain
from hdmm.strategy.base import Strategy
from hdmm.strategy.grid import grid_blocks


def grid_tree(domain: Domain, widths: Sequence[int], weights: Sequence[float]) -> Strategy:
    """Level l counts squares of widths[l] cells per side with weight weights[l], scaled to sensitivity 1.

    `widths` start at 1 and each divides the next. If squares are never cut short, or there are two levels, the
    levels' grams are diagonal together on each attribute: O(n³) for n values of an attribute, and the domain's size
    does not appear. Otherwise the form is a Grid.

    >>> grid_tree(Domain({"x": 4, "y": 4}), [1, 2], [1, 1]).sensitivity("laplace")
    1.0
    """
    whole = math.fsum(weights)
    return Strategy(domain, grid_blocks(domain, widths, [weight / whole for weight in weights]))
