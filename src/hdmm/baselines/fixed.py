"""Strategies that need no search: noise on every cell, on every query or on wavelet coefficients, and trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hdmm.base.exceptions import NotApplicableError, StrategyError
from hdmm.describe.domain import Domain
from hdmm.describe.workload import Workload
from hdmm.matrix import Array, Eye, Haar, Matrix, Nested, TreeIdentity, scaled, summed
from hdmm.matrix.blocked import block_product
from hdmm.matrix.nested import by_node, padded
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy

_MOST_RATIO = 1e3  # the largest ratio of a node's weight to its children's, so that the leaves stay measured
_NEWTON_STEPS = 100  # Newton steps: the function is convex, so that they decrease monotonically, at worst by halving


def identity(workload: Workload) -> Strategy:
    """A = I: noise on every cell of the domain; any query is the sum of its cells.

    >>> from hdmm import Domain
    >>> identity(Workload.marginals(Domain({"age": 10}), k=1)).sensitivity("laplace")
    1
    """
    return Strategy.identity(workload.domain)


def laplace(workload: Workload) -> Strategy:
    """A = W: noise on every query of the workload; the error is ‖W‖₁² per query, and there is no inference.

    Reference: Dwork, McSherry, Nissim, Smith, "Calibrating noise to sensitivity" (TCC 2006).

    >>> from hdmm import Domain
    >>> laplace(Workload.marginals(Domain({"age": 10}), k=range(2))).sensitivity("laplace")
    2
    """
    return Strategy.direct(workload)


def privelet(workload: Workload) -> Strategy:
    """A = ⊗ Haar(n_i): the wavelet of every attribute, padded to a power of two; sensitivity Π (1 + ⌈log₂ n_i⌉).

    The weight of each coefficient in the reference makes it the difference of two sums, with entries ±1. It is defined
    on any domain. Computing the error takes O(N log N) for ranges on one attribute.

    Reference: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms" (TKDE 2011).

    >>> from hdmm import Domain
    >>> privelet(Workload.marginals(Domain({"age": 8, "sex": 2}), k=2)).sensitivity("laplace")
    8
    """
    return Strategy(workload.domain, (Block(1.0, tuple((i, Haar(n)) for i, n in enumerate(workload.domain.shape))),))


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


def grid_blocks(domain: Domain, widths: Sequence[int], weights: Sequence[float]) -> tuple[Block, ...]:
    """The blocks of a tree of squares: level l has squares of widths[l] cells per side, and weight weights[l].

    >>> [block.rows for block in grid_blocks(Domain({"x": 3, "y": 3}), [1, 2, 4], [0.5, 0.25, 0.25])]
    [9, 4, 1]
    """
    if len(domain) != 2 or len(weights) != len(widths):
        raise StrategyError(
            f"A tree of squares needs 2 attributes and one weight per level; this one is over {len(domain)} and "
            f"has {len(weights)} weights for {len(widths)} levels."
        )
    grows = (0 < lower < upper and upper % lower == 0 for lower, upper in pairwise(widths))
    if tuple(widths[:1]) != (1,) or not all(grows):
        raise StrategyError(f"The widths are {tuple(widths)}. Start at 1, and make each a multiple of the one before.")
    shape = domain.shape
    sums = {(n, w): Nested(np.ones((1, n), dtype=np.int64), [w]) for n in shape for w in widths if 1 < w < n}
    return tuple(
        Block(weight, [(i, Eye(n) if w == 1 else sums[n, w]) for i, n in enumerate(shape) if w < max(n, 2)])
        for w, weight in zip(widths, weights, strict=True)
    )


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
    """The ρ from 0 to _MOST_RATIO that minimises (1 + ρ)²(T − qρ²/(1 + cρ²)), for each node.

    With D = Tc − q ≥ 0, the slope has the sign of Dcρ⁴ + 2Dρ² − qρ + T, which is convex: the error first rises, and
    then falls up to the larger root, if there is one. Newton's method reaches that root from the right.
    """
    T, D = np.maximum(T, 0.0), np.maximum(T * c - q, 0.0)

    def error(ratio: Array) -> Array:
        return (1 + ratio) ** 2 * (T - q * ratio**2 / (1 + c * ratio**2))

    ratio = np.full(len(T), _MOST_RATIO)
    for _ in range(_NEWTON_STEPS):
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


def require_attributes(workload: Workload, name: str, *, most: int, least: int = 1) -> None:
    """Raise NotApplicableError if the method is not defined for this number of attributes.

    >>> from hdmm import Domain
    >>> require_attributes(Workload.marginals(Domain({"a": 2, "b": 2}), k=1), "greedy_h", most=1)
    Traceback (most recent call last):
    ...
    hdmm.base.exceptions.NotApplicableError: greedy_h is defined on 1 attribute; the domain has 2 (a, b). ...
    """
    d = len(workload.domain)
    if not least <= d <= most:
        counts = f"{most} attribute{'s' if most > 1 else ''}" if least == most else f"{least} to {most} attributes"
        raise NotApplicableError(
            f"{name} is defined on {counts}; the domain has {d} ({', '.join(workload.domain.names)}). "
            "Use another baseline, or a domain of fewer attributes."
        )
