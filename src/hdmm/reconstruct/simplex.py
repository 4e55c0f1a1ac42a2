"""Projection onto the nonnegative tables with a given total."""

from __future__ import annotations

import numpy as np

from hdmm.matrix import Array


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
