"""Quadtree: squares halved along both attributes down to the cells; smaller squares get more of the budget."""

from __future__ import annotations

from hdmm.baselines.applies import require_attributes
from hdmm.baselines.grid_tree import grid_tree
from hdmm.baselines.hb import height
from hdmm.describe.workload import Workload
from hdmm.strategy.strategy import Strategy


def quadtree(workload: Workload) -> Strategy:
    """Squares of 1, 2, 4, … cells per side up to the whole, with weights 1, 2^(−1/3), 2^(−2/3), …. For two attributes.

    The weights are the reference's geometric budget, which follows from the fact that a range meets twice as many
    squares on each finer level. Squares at the end of an attribute are cut short. For the cost, see `grid_tree`.

    Reference: Cormode, Procopiuc, Srivastava, Shen, Yu, "Differentially private spatial decompositions" (ICDE 2012).

    >>> from hdmm import Domain
    >>> quadtree(Workload.marginals(Domain({"x": 4, "y": 4}), k=2)).matrix.shape
    (21, 16)
    """
    require_attributes(workload, "quadtree", least=2, most=2)
    n = max(workload.domain.shape)
    levels = range(height(n, 2) + 1 if n > 1 else 1)
    return grid_tree(workload.domain, [2**level for level in levels], [2 ** (-level / 3) for level in levels])
