"""minimize_projected: L-BFGS within bounds on arrays of any namespace, so that x never leaves a GPU.

SciPy's L-BFGS-B works on the processor, and there takes longer than a GPU takes for the loss. Here a step is projected
onto the bounds instead (Bertsekas, 1982): coordinates near a bound whose slope points beyond it go there, the others
move by the quasi-Newton direction among themselves, and the line search follows the projected path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hdmm.select.minimize import Minimum
from hdmm.select.search import Search

_STEPS = 5  # steps whose gain is judged together, as in minimize
_MEMORY = 10
_DECREASE = 1e-4  # of the predicted gain that a step must reach
_HALVINGS = 30
_NEAR = 1e-4  # a bound: what is nearer goes to it if its slope says so, because projecting it would bend the path
_CURVED = 1e-10  # the least cosine of a step and its change of slope


def minimize_projected(
    xp: Any,
    objective: Callable[[Any], tuple[float, Any]],
    x0: Any,
    search: Search,
    *,
    upper: float,
    tolerance: float,
    iterations: int = 10_000,
) -> Minimum:
    """A local minimum with 0 ≤ x ≤ upper, from x0, by an objective over arrays of the namespace.

    Ends as `minimize` does: when the last five steps gained on average less than `tolerance` of the value, or past the
    search's deadline, or if its progress raises StopIteration.

    >>> import numpy as np
    >>> from hdmm.select.search import first_search
    >>> goal = np.array([2.0, -1.0, 7.0])
    >>> found = minimize_projected(
    ...     np, lambda x: (float(((x - goal) ** 2).sum()) + 1, 2 * (x - goal)), np.ones(3), first_search(), upper=5.0,
    ...     tolerance=1e-9)
    >>> found.x.round(6).tolist()
    [2.0, 0.0, 5.0]
    """
    x = xp.asarray(x0)
    value, slope = objective(x)
    values, pairs = [value], list[tuple[Any, Any]]()
    message = "iterations ran out"
    for count in range(1, iterations + 1):
        if search.late:
            message = "out of time"
            break
        low, high = (x <= _NEAR) & (slope > 0), (x >= upper - _NEAR) & (slope < 0)
        direction = -_through(xp, pairs, slope, ~(low | high))
        direction -= xp.where(low, x, xp.where(high, x - upper, 0.0))
        moved = _searched(xp, objective, x, value, slope, direction, upper)
        if moved is None and pairs:
            pairs.clear()  # once more, along the slope itself
            continue
        if moved is None:
            message = "no step gains"
            break
        step, turn = moved[0] - x, moved[2] - slope
        if float(step @ turn) > _CURVED * float(xp.linalg.norm(step) * xp.linalg.norm(turn)):
            pairs = [*pairs[1 - _MEMORY :], (step, turn)]
        x, value, slope = moved
        values.append(value)
        try:
            search.tell(count, value)
        except StopIteration:
            message = "stopped"
            break
        if len(values) > _STEPS and values[-1 - _STEPS] - value <= _STEPS * tolerance * abs(value):
            message = "converged"
            break
    return Minimum(x, value, len(values) - 1, converged=message != "out of time", message=message)


def _through(xp: Any, pairs: list[tuple[Any, Any]], slope: Any, free: Any) -> Any:
    """The inverse of the Hessian's estimate from the pairs, restricted to what is free, times the slope."""
    used = list[tuple[Any, Any, Any]]()
    for step, turn in pairs:
        s, t = xp.where(free, step, 0.0), xp.where(free, turn, 0.0)
        along = s @ t
        used.append((s, t, xp.where(along > 0, 1 / xp.where(along > 0, along, 1.0), 0.0)))
    q, weights = xp.where(free, slope, 0.0), list[Any]()
    for s, t, inverse in reversed(used):
        weights.append(inverse * (s @ q))
        q = q - weights[-1] * t
    if used:
        s, t, _ = used[-1]
        along, size = s @ t, t @ t
        q = q * xp.where(along > 0, along / xp.where(size > 0, size, 1.0), 1.0)
    for (s, t, inverse), weight in zip(used, reversed(weights), strict=True):
        q = q + (weight - inverse * (t @ q)) * s
    return xp.where(free, q, 0.0)


def _searched(
    xp: Any,
    objective: Callable[[Any], tuple[float, Any]],
    x: Any,
    value: float,
    slope: Any,
    direction: Any,
    upper: float,
) -> tuple[Any, float, Any] | None:
    """(x, value, slope) at the first point of a shrinking projected path that gains enough; None if there is none."""
    length = 1.0
    for _ in range(_HALVINGS):
        there = xp.clip(x + length * direction, 0.0, upper)
        predicted = float(slope @ (there - x))
        if predicted >= 0:
            return None
        reached, steepness = objective(there)
        if reached <= value + _DECREASE * predicted:
            return there, reached, steepness
        # The parabola through both values and the slope at the start, but no less than a tenth.
        length *= min(0.5, max(0.1, -predicted / (2 * (reached - value - predicted))))
    return None
