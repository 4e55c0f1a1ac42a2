"""HB: a hierarchy of counts with equal weights on all levels, and a branching factor that suits the domain's size."""

from __future__ import annotations

import numpy as np

from hdmm.baselines.applies import require_attributes
from hdmm.baselines.grid_tree import grid_tree
from hdmm.describe.workload import Workload
from hdmm.matrix import Eye, TreeIdentity
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy


def hb(workload: Workload) -> Strategy:
    """h levels of nodes of 1, b, b², … cells per side, each with weight 1/h; no root. For one or two attributes.

    Nodes at the end of an attribute are cut short if b^h > n. O(N·h²) on one attribute; for two, see `grid_tree`.

    Reference: Qardaji, Yang, Li, "Understanding hierarchical methods for differentially private histograms"
    (PVLDB 2013).

    >>> from hdmm import Domain
    >>> hb(Workload.marginals(Domain({"age": 1024}), k=1)).matrix.shape
    (1056, 1024)
    """
    require_attributes(workload, "hb", most=2)
    domain = workload.domain
    d, n = len(domain), max(domain.shape)
    b = branching(n, d)
    widths = [b**level for level in range(height(n, b))]
    if d == 2:
        return grid_tree(domain, widths, [1.0] * len(widths))
    A = TreeIdentity(np.ones((len(widths) - 1, n)), widths[1:]) if len(widths) > 1 else Eye(n)
    return Strategy(domain, (Block(1.0, ((0, A),)),))


def branching(n: int, d: int) -> int:
    """The b ≥ 2 with the least estimated variance of a range on n values per attribute, d = 1 or 2. O(n).

    For one attribute it is (b−1)h³ − 2(b+1)h²/3, the reference's formula. For two it is bh²: a range is answered by the
    nodes along its perimeter, (2n/3)(b−1)(1 + 1/b + 1/b² + …) ≈ (2n/3)b of them on average, each of variance h².

    >>> branching(128, 1), branching(1024, 1), branching(64, 2), branching(1024, 2)
    (128, 32, 8, 6)
    """

    def cost(b: int) -> int:
        h = height(n, b)
        return b * h**2 if d == 2 else 3 * (b - 1) * h**3 - 2 * (b + 1) * h**2

    return min(range(2, max(n, 2) + 1), key=cost)


def height(n: int, b: int) -> int:
    """The least h ≥ 1 with b^h ≥ n.

    >>> height(64, 8), height(65, 8), height(1, 2)
    (2, 3, 1)
    """
    h, reach = 1, b
    while reach < n:
        h, reach = h + 1, reach * b
    return h
