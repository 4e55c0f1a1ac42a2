"""Whole numbers near nonnegative counts, with their total rounded.

The first ones come from running sums: each is within ½ of the true running sum, so on one attribute every range of
cells is off by less than 1. On several attributes units are then moved between cells as long as that brings the
measured counts nearer to what they were, in units of their noise.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from hdmm.information import Information
from hdmm.matrix import Array, gram, to_dense
from hdmm.steps import shown_steps

_CANDIDATES = 256  # cells that may gain a unit in a round, and as many that may lose one
_WORK = 1 << 27  # cells times rounds
_LEAST_ROUNDS, _MOST_ROUNDS = 40, 1000
_LONG = 1 << 18  # cells from which on progress is shown
_LARGEST_AXIS = 2048  # values of an attribute up to which its gram is written out


def rounded(X: Information, x: Array, groups: Array | None = None) -> Array:
    """Whole numbers n ≥ 0 near x ≥ 0 with Σn = ⌊Σx + ½⌋ and a small (n − x)ᵀX(n − x).

    `groups` numbers the group of each cell; their sums, which must be whole, are kept too.
    """
    cells = len(x)
    order = np.arange(cells) if groups is None else np.argsort(groups, kind="stable")
    n = np.empty(cells)
    n[order] = np.diff(np.floor(np.cumsum(x[order]) + 0.5), prepend=0.0)
    members = [order] if groups is None else np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    if len(X.shape) < 2 or max(X.shape) > _LARGEST_AXIS or not n.any():
        return n
    most = min(max(_WORK // cells, _LEAST_ROUNDS), _MOST_ROUNDS)
    still = 0  # groups in a row in which nothing can be gained
    with shown_steps("Rounding to whole numbers", most, long=cells >= _LONG) as advance:
        for turn in range(most):
            inside = members[turn % len(members)]
            slope = X.times(n - x)
            filled = inside[n[inside] > 0]
            losing = filled[_steepest(-slope[filled], turn)]
            gaining = inside[_steepest(slope[inside], turn)]
            still = 0 if len(filled) and _move(X, n, slope, np.union1d(losing, gaining)) else still + 1
            if still == len(members):
                break
            advance()
    return n


def _steepest(slope: Array, turn: int) -> Array:
    """Some of the cells with the least slopes: the very least, and others a little above, different ones every turn."""
    wide = min(len(slope), 64 * _CANDIDATES)
    found = np.argpartition(slope, wide - 1)[:wide] if wide else np.empty(0, np.int64)
    found = found[np.argsort(slope[found], kind="stable")]
    near = _CANDIDATES // 2
    step = max(1, (wide - near) // near)
    return np.concatenate([found[:near], found[near + turn % step :: step][:near]])


def _move(X: Information, n: Array, slope: Array, chosen: Array) -> int:
    """How many units were moved between the chosen cells: always the move that gains most, as long as one gains."""
    K = _entries(X, chosen)
    g, own = slope[chosen], np.diag(K)
    here = n[chosen]
    moves = 0
    while moves < 4 * _CANDIDATES:
        lose = int(np.argmax(np.where(here > 0, g - own / 2, -np.inf)))
        change = g + own / 2 - K[lose] - (g[lose] - own[lose] / 2)  # ½(e′ᵀXe′ − eᵀXe) for a unit moved to each
        change[lose] = 0.0
        gain = int(np.argmin(change))
        if change[gain] >= -1e-9 * own[gain]:
            break
        here[lose] -= 1
        here[gain] += 1
        g += K[gain] - K[lose]
        moves += 1
    n[chosen] = here
    return moves


def _entries(X: Information, cells: Array) -> Array:
    """X between the cells."""
    at = np.unravel_index(cells, X.shape)
    used = {pair for block in X.blocks for pair in block.by_axis.items()}
    grams = {(i, A): to_dense(gram(A))[np.ix_(at[i], at[i])] for i, A in used}
    found = np.zeros((len(cells), len(cells)))
    for block in X.blocks:
        factors = (grams[pair] for pair in block.by_axis.items())
        found += reduce(np.multiply, factors, np.full((1, 1), float(block.weight) ** 2))
    return found
