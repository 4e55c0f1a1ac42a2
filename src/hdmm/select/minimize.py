"""minimize: the only wrapper of L-BFGS-B, which decides scaling, tolerance and bounds.

SciPy's L-BFGS-B works on the processor, and there takes longer than a GPU takes for the loss. `minimize_projected`
never takes x from a GPU: a step is projected onto the bounds (Bertsekas, 1982). Coordinates near a bound whose slope
points beyond it go there, the others move by the quasi-Newton direction among themselves, and the line search follows
the projected path.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import scipy.optimize

from hdmm.base.exceptions import StrategyError
from hdmm.matrix import Array
from hdmm.select.search import Search

_STEPS = 5  # steps whose gain is judged together, because single steps may gain nothing midway
_SETUP = 5e-6  # seconds per number before the first step: SciPy goes through the bounds one by one
_INFEASIBLE = 1e6  # what stands for an infinite value, relative to the first one
_LONG = 1 << 16  # length of x beyond which the method's own work, O(memory · length) per step, dominates
_MEMORY = 10
_DECREASE = 1e-4  # of the predicted gain that a step must reach
_HALVINGS = 30
_NEAR = 1e-4  # a bound: what is nearer goes to it if its slope says so, because projecting it would bend the path
_CURVED = 1e-10  # the least cosine of a step and its change of slope

LossFunction: TypeAlias = Callable[[Array], tuple[float, Array]]
"""x ↦ (value, gradient), with any gradient where the value is infinite."""

ArraysLossFunction: TypeAlias = Callable[[list[Array]], tuple[float, list[Array]]]
"""Several arrays ↦ (value, a gradient for each)."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """The best point found; `converged` is False if iterations or time ran out first."""

    x: Array
    value: float
    iterations: int
    converged: bool
    message: str


class _OutOfTimeError(Exception):
    pass


def minimize(
    objective: LossFunction,
    x0: Array,
    search: Search | None = None,
    *,
    lower: float | None = 0.0,
    upper: float | None = None,
    tolerance: float = 1e-7,
    iterations: int = 10_000,
    memory: int | None = None,
) -> Minimum:
    """A local minimum of the objective within bounds, by L-BFGS-B from x0.

    The objective is divided by its value at x0. The descent stops when the last five steps gained on average less than
    `tolerance` of the value. SciPy's own tests are disabled: its gradient test stops far too early on the scaled
    problem, and its test of a single step stops after the first step if x is long. Past the deadline of the search, or
    if its progress raises StopIteration, the best point so far is returned. x may have any shape. The method holds
    2·memory copies of x; by default, memory is 10, or 5 if x is long. A step to a point where the objective is infinite
    or meets a singular matrix is shortened; x0 must not be such a point.

    >>> minimize(lambda x: (float(np.sum((x - 2) ** 2)) + 1, 2 * (x - 2)), np.array([5.0])).x.round(4)
    array([2.])
    """
    shape = x0.shape
    begun = time.monotonic()
    first, _ = objective(x0)
    seconds = time.monotonic() - begun  # of the last step: one that would end after the deadline is not begun
    if not math.isfinite(first):
        raise StrategyError(f"The objective of an optimisation is {first} at its start. Give a feasible start.")
    scale = abs(first) or 1.0
    if search is not None and not search.affords(_SETUP * x0.size):
        return Minimum(x0, first, 0, converged=False, message="out of time")
    best: list[tuple[float, Array]] = [(first, x0)]
    gained = [first]
    count = 0

    def scaled(x: Array) -> tuple[float, Array]:
        nonlocal seconds
        if search is not None and not search.affords(seconds):
            raise _OutOfTimeError
        begun = time.monotonic()
        try:
            value, gradient = objective(x.reshape(shape))
        except np.linalg.LinAlgError:
            value, gradient = math.inf, np.zeros(shape)
        seconds = time.monotonic() - begun
        if not math.isfinite(value):
            return _INFEASIBLE, np.zeros(x.size)
        if value < best[0][0]:
            best[0] = value, x.reshape(shape).copy()
        return value / scale, np.ravel(gradient) / scale

    def each(_: Array) -> None:
        nonlocal count
        count += 1
        if search is not None:
            search.tell(count, best[0][0])
        gained.append(best[0][0])
        if count >= _STEPS and gained[-1 - _STEPS] - gained[-1] <= _STEPS * tolerance * abs(gained[-1]):
            raise StopIteration

    try:
        found = scipy.optimize.minimize(
            scaled,
            np.ravel(x0),
            jac=True,
            method="L-BFGS-B",
            bounds=scipy.optimize.Bounds(
                -np.inf if lower is None else lower,  # pyright: ignore[reportArgumentType]
                np.inf if upper is None else upper,  # pyright: ignore[reportArgumentType]
            ),
            callback=each,
            options={
                "maxiter": iterations,
                "maxfun": 2 * iterations,
                "ftol": 0.0,
                "gtol": 0.0,
                "maxcor": memory or (10 if x0.size <= _LONG else 5),
            },
        )
    except _OutOfTimeError:
        return Minimum(best[0][1], best[0][0], count, converged=False, message="out of time")
    converged = bool(found.success) or count < iterations
    return Minimum(best[0][1], best[0][0], count, converged=converged, message=str(found.message))


def minimize_arrays(
    objective: ArraysLossFunction,
    starts: Sequence[Array],
    search: Search | None = None,
    *,
    lower: float | None = 0.0,
    upper: float | None = None,
    tolerance: float = 1e-7,
    iterations: int = 10_000,
) -> tuple[list[Array], float]:
    """(arrays, value) at a local minimum over several arrays at once; see `minimize`.

    >>> parts, value = minimize_arrays(
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


def minimize_relative(
    objective: ArraysLossFunction,
    starts: Sequence[Array],
    search: Search | None = None,
    *,
    upper: float,
    iterations: int = 10_000,
) -> tuple[list[Array], float]:
    """`minimize_arrays` from 0 to `upper` over log(1 + x), so that steps are relative to x where x is large.

    >>> parts, _ = minimize_relative(lambda xs: (1 / xs[0].sum(), [-1 / xs[0] ** 2]), [np.ones(1)], upper=1e3)
    >>> parts[0].round(6).tolist()
    [1000.0]
    """

    def of_logs(ys: list[Array]) -> tuple[float, list[Array]]:
        value, slopes = objective([np.expm1(y) for y in ys])
        return value, [slope * np.exp(y) for slope, y in zip(slopes, ys, strict=True)]

    logs = [np.log1p(x) for x in starts]
    found, value = minimize_arrays(of_logs, logs, search, upper=math.log1p(upper), iterations=iterations)
    return [np.minimum(np.expm1(y), upper) for y in found], value


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
