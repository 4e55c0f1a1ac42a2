"""Least squares over the nonnegative tables with a given total."""

from __future__ import annotations

import math

import numpy as np

from hdmm.base.steps import shown_steps
from hdmm.matrix import Array
from hdmm.reconstruct.information import Information

_WORK = 1 << 28  # cells times steps, which are fewer on large domains, within the two bounds below
_LEAST_STEPS, _MOST_STEPS = 150, 5000
_TOLERANCE = 1e-8  # per cell, and at most the next, of the standard deviation of a measurement (root mean square)
_LARGEST_TOLERANCE = 0.02
_CHECKED = 10  # steps between looks at how far it is
_RELAXED = 1.8  # over-relaxation: 1.6 takes a third more steps
_LONG = 1 << 18  # cells from which on progress is shown


def nonnegative_cells(X: Information, y: Array, total: float | None) -> Array:
    """min ½xᵀXx − yᵀx over x ≥ 0 with this total.

    By the alternating direction method of multipliers: x solves the equations, z meets the conditions, and u adds up
    how they differ. ρ rises while z lags behind x (in units of the noise), which halves the number of steps.
    """
    cells = math.prod(X.shape)
    if total == 0:
        return np.zeros(cells)
    most = min(max(_WORK // cells, _LEAST_STEPS), _MOST_STEPS)
    goal = min(_TOLERANCE * cells, _LARGEST_TOLERANCE) ** 2 * X.rows
    rho, threshold = 4 * X.mean, 0.0
    solve = X.inverse(rho)
    x = z = seen = np.full(cells, 0.0 if total is None else total / cells)
    u = np.zeros(cells)
    with shown_steps("Fitting nonnegative counts", most, long=cells >= _LONG) as advance:
        for step in range(1, most + 1):
            x = solve(y + rho * (z - u), x)
            v = _RELAXED * x + (1 - _RELAXED) * z + u
            threshold = 0.0 if total is None else simplex_threshold(v, total, threshold)
            z = np.maximum(v - threshold, 0.0)
            u = v - z
            advance()
            if step % _CHECKED == 0:
                apart, moved = X.squared(x - z), X.squared(z - seen)
                seen = z
                if max(apart, moved) <= goal:
                    break
                change = min(max((4 * apart / moved) ** 0.25, 0.5), 2.0) if moved > 0 else 2.0
                if step < most / 2 and abs(math.log(change)) > 0.25:
                    rho, u = rho * change, u / change
                    solve = X.inverse(rho)
    return z if total is None else z * (total / z.sum())


def simplex_threshold(x: Array, total: float, start: float = -np.inf) -> float:
    """τ with Σ max(x − τ, 0) = total > 0. O(n) per step, and few: Newton's method on a piecewise linear function.

    max(x − τ, 0) is the nearest point to x with no entry below 0 and this sum.

    >>> simplex_threshold(np.array([3.0, 1.0, -1.0]), 3.0)
    0.5
    """
    kept = x[x > start]
    if float(np.sum(kept - start)) < total:  # the start is above τ, or none was given
        kept, start = x, -np.inf
    while len(kept):
        found = (float(kept.sum()) - total) / len(kept)
        if found <= start:
            break
        start = found
        kept = kept[kept > found]
    return start
