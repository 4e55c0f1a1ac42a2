"""Whole numbers near nonnegative counts, with their total rounded.

The first ones come from running sums: each is within ½ of the true running sum, so on one attribute every range of
cells is off by less than 1. On several attributes units are then moved between cells as long as that brings the
measured counts nearer to what they were, in units of their noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from hdmm.base.exceptions import StrategyError
from hdmm.base.steps import shown_steps
from hdmm.base.tolerances import SAME_COUNT
from hdmm.matrix import Array, gram, to_dense
from hdmm.reconstruct.information import Information

_CANDIDATES = 256  # cells that may gain a unit in a round, and as many that may lose one
_WORK = 1 << 27  # cells times rounds
_LEAST_ROUNDS, _MOST_ROUNDS = 40, 1000
_LONG = 1 << 18  # cells from which on progress is shown
_LARGEST_AXIS = 2048  # values of an attribute up to which its gram is written out


def rounded(X: Information, x: Array, *groupings: Array) -> Array:
    """Whole numbers n ≥ 0 near x ≥ 0 with Σn = ⌊Σx + ½⌋ and a small (n − x)ᵀX(n − x).

    A grouping numbers the group of each cell; the sums of groups, which must be whole, are kept too. There may be two.
    """
    cells = len(x)
    groups = np.zeros(cells, np.int64) if not groupings else groupings[0]
    if len(groupings) > 1:
        groups = np.unique(np.stack(groupings), axis=1, return_inverse=True)[1].ravel()
    order = np.argsort(groups, kind="stable")
    n = np.empty(cells)
    if len(groupings) > 1:
        n[:] = _controlled(x, groupings)
    else:
        n[order] = np.diff(np.floor(np.cumsum(x[order]) + 0.5), prepend=0.0)
    members = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
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


def _controlled(x: Array, groupings: Sequence[Array]) -> Array:
    """Every x rounded up or down so that the sums over the groups of two groupings stay, as near as that can be.

    Each cell is in one group of each, so this is a transport problem, whose least-cost solutions are whole numbers.
    """
    down = np.floor(x + SAME_COUNT)
    A = sp.vstack([sp.csr_array((np.ones(len(x)), (g, np.arange(len(x))))) for g in groupings])
    off, cost = np.rint(A @ x - A @ down), 1 - 2 * (x - down)
    found: Any = linprog(cost, A_eq=A, b_eq=off, bounds=(0, 1), method="highs-ds")
    if found.status == 0:
        return down + np.rint(found.x)
    found = linprog(-x, A_eq=A, b_eq=np.rint(A @ x), bounds=(0, None), method="highs-ds")  # sums that were not reached
    if found.status != 0:
        raise StrategyError("No whole numbers have the known sums. Ask for nonnegative counts, or for unbiased ones.")
    return np.rint(found.x)


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
