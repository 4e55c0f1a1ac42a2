"""minimize_jointly: one descent over several arrays at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from hdmm.matrix import Array
from hdmm.strategy.minimize import minimize
from hdmm.strategy.search import Search

JointObjective: TypeAlias = Callable[[list[Array]], tuple[float, list[Array]]]
"""Several arrays ↦ (value, a gradient for each)."""


def minimize_jointly(
    objective: JointObjective,
    starts: Sequence[Array],
    search: Search | None = None,
    *,
    lower: float | None = 0.0,
    upper: float | None = None,
    tolerance: float = 1e-7,
    iterations: int = 10_000,
) -> tuple[list[Array], float]:
    """(arrays, value) at a local minimum over several arrays at once; see `minimize`.

    >>> parts, value = minimize_jointly(
    ...     lambda xs: (xs[0].sum() + 1, [np.ones(2), np.zeros(3)]), [np.ones(2), np.ones(3)]
    ... )
    >>> [part.tolist() for part in parts], value
    ([[0.0, 0.0], [1.0, 1.0, 1.0]], 1.0)
    """
    ends = np.cumsum([start.size for start in starts])

    def parts(x: Array) -> list[Array]:
        return [part.reshape(s.shape) for part, s in zip(np.split(x, ends[:-1]), starts, strict=True)]

    def flat(x: Array) -> tuple[float, Array]:
        value, gradients = objective(parts(x))
        return value, np.concatenate([np.ravel(g) for g in gradients])

    found = minimize(
        flat,
        np.concatenate([np.ravel(start) for start in starts]),
        search,
        lower=lower,
        upper=upper,
        tolerance=tolerance,
        iterations=iterations,
    )
    return parts(found.x), float(found.value)
