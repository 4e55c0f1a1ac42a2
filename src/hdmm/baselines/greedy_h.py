"""GreedyH: a binary hierarchy whose nodes are weighted for the workload one by one, from the leaves up."""

from __future__ import annotations

import numpy as np

from hdmm.baselines.applies import require_attributes
from hdmm.baselines.hb import height
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Eye, Matrix, TreeIdentity, scaled, summed
from hdmm.matrix.blocked import block_product
from hdmm.matrix.nested import by_node, padded
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_MOST = 1e3  # the largest ratio of a node's weight to its children's, so that the leaves stay measured
_STEPS = 100  # Newton steps: the function is convex, so that they decrease monotonically, at worst by halving


def greedy_h(workload: Workload) -> Strategy:
    """A binary tree in which each node is weighted for the part of the workload on its cells. For one attribute.

    From the leaves up, a node takes the share λ of its cells' budget that minimises the error of the workload
    restricted to these cells, and leaves 1 − λ to the nodes below. Queries on both halves of a node will also be
    answered by its ancestors; so for a node at depth l, both its own weight and the cross terms of its halves count
    with the decay 2^(−l/2). O(n log n) if the gram is that of ranges or prefixes.

    Reference: Li, Hay, Miklau, Wang, "A data- and workload-aware algorithm for range queries under differential
    privacy" (PVLDB 2014), its second stage.

    >>> from hdmm import Domain, Prefix, unit_error
    >>> w = Workload.product(Domain({"age": 16}), age=Prefix())
    >>> round(unit_error(w, greedy_h(w)), 1)
    134.7
    """
    require_attributes(workload, "greedy_h", most=1)
    n = workload.domain.size
    V = summed(scaled(product.weight**2, product.predicates[0].gram(n)) for product in workload.products)
    return Strategy(workload.domain, (Block(1.0, ((0, greedy_tree(V)),)),))


def greedy_tree(V: Matrix) -> Matrix:
    """The weighted binary tree over n ordered cells that `greedy_h` measures for a workload with WᵀW = V.

    >>> greedy_tree(Eye(1))
    Eye(n=1)
    """
    n = V.shape[0]
    if n == 1:
        return Eye(1)
    widths = [2**level for level in range(1, height(n, 2) + 1)]
    h = padded(np.ones((1, n)), widths)[0]  # (AᵀA)⁻¹1 of the strategy so far, separately in each node
    below = block_product(V, h[:, None])[:, 0] * h  # hᵀVh of every node: its error in this model
    error = below
    ratios = np.zeros((len(widths), h.size))  # the ratio of a node's weight to that of everything below it
    for level, width in enumerate(widths):
        x = by_node(h, width)
        across = np.sum(x * block_product(V, x), axis=1)
        below, error, c = _pairs(below), _pairs(error), x.sum(axis=1)
        decay = 2.0 ** (-(len(widths) - 1 - level) / 2)
        q = decay * (below + decay * (across - below))
        ratio = _best_ratio(error, q, decay * c)
        shrink = (1 + ratio) ** 2
        error = shrink * (error - q * ratio**2 / (1 + decay * c * ratio**2))
        gain = shrink / (1 + c * ratio**2)
        by_node(h, width)[:] *= gain[:, None]
        below = across * gain**2
        ratios[level] = np.repeat(ratio, width)
    return TreeIdentity(_rows(ratios)[:, :n], widths)


def _pairs(x: Array) -> Array:
    return x.reshape(-1, 2).sum(axis=1)


def _best_ratio(T: Array, q: Array, c: Array) -> Array:
    """The ρ from 0 to _MOST that minimises (1 + ρ)²(T − qρ²/(1 + cρ²)), for each node.

    With D = Tc − q ≥ 0, the slope has the sign of Dcρ⁴ + 2Dρ² − qρ + T, which is convex: the error first rises, and
    then falls up to the larger root, if there is one. Newton's method reaches that root from the right.
    """
    T, D = np.maximum(T, 0.0), np.maximum(T * c - q, 0.0)

    def error(ratio: Array) -> Array:
        return (1 + ratio) ** 2 * (T - q * ratio**2 / (1 + c * ratio**2))

    ratio = np.full(len(T), _MOST)
    for _ in range(_STEPS):
        value = ((D * c * ratio**2 + 2 * D) * ratio - q) * ratio + T
        slope = (4 * D * c * ratio**2 + 4 * D) * ratio - q
        falls = (value > 0) & (slope > 0)
        step = np.divide(value, slope, out=np.zeros(len(T)), where=falls)
        ratio = np.maximum(ratio - step, 0.0)
        if (step <= 1e-12 * ratio).all():
            break
    return np.where(error(ratio) < error(np.zeros(len(T))), ratio, 0.0)


def _rows(ratios: Array) -> Array:
    """Θ of the tree: the weight of each node relative to a leaf's. A level weighs `ratio` times all levels below it."""
    rows = np.empty_like(ratios)
    below = np.ones(ratios.shape[1])
    for level, ratio in enumerate(ratios):
        rows[level] = ratio * below
        below = below * (1 + ratio)
    return rows
