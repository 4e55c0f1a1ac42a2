"""minimize: the one L-BFGS-B wrapper; scaling, tolerance, bounds, deadline and progress are decided here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
import scipy.optimize

from hdmm.exceptions import StrategyError
from hdmm.matrix import Array

_STEPS = 5  # steps whose gain is judged together: single steps may gain nothing halfway
_LONG = 1 << 16  # numbers past which the method's own work, O(memory · numbers) a step, is most of the time
_WARM = 64  # steps before a descent is judged: the first dozens repair a bad start
_LOOK = 16  # steps between judgements
_CLOSE = 2e-3  # of the value to beat: nearer than that, guesses of where a descent ends are not good enough

Progress: TypeAlias = Callable[[int, float], None]
"""Told the step, counted from 1, and the least value so far; may raise StopIteration, which ends the descent."""

Objective: TypeAlias = Callable[[Array], tuple[float, Array]]
"""x ↦ (value, gradient), both finite wherever the bounds allow x."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """The best point seen; `converged` is False where iterations or time ran out first."""

    x: Array
    value: float
    iterations: int
    converged: bool
    message: str


class _OutOfTimeError(Exception):
    pass


@final
class Race:
    """Progress that ends a descent which is not going to reach `beat`; `then` is told as well.

    From step 64 on: where gaining once more what the second half of the steps so far gained would not do. Descents
    gain less and less, like 1/steps or faster, so few are ended that would have won; and a start that loses costs a
    tenth of one that wins (Prefix sums over 1024 cells). Only values and steps decide, never the clock.

    >>> race = Race(1.0)
    >>> for step in range(1, 101):
    ...     race(step, 1.5 + 1 / step)
    Traceback (most recent call last):
    StopIteration
    >>> step
    64
    """

    def __init__(self, beat: float, then: Progress | None = None) -> None:
        self.enough = beat * (1 + _CLOSE)
        self.then = then
        self.values: list[float] = []

    def __call__(self, step: int, value: float) -> None:
        if self.then is not None:
            self.then(step, value)
        if step == 1:  # another descent of the same restart
            self.values = []
        self.values.append(value)
        if step >= _WARM and step % _LOOK == 0 and 2 * value - self.values[step // 2 - 1] > self.enough:
            raise StopIteration


def rescaled(progress: Progress | None, scale: float, power: int = 1) -> Progress | None:
    """Progress told scale·value^power.

    >>> said = rescaled(lambda step, value: print(step, value), 2.0, power=2)
    >>> said(1, 3.0) if said else None
    1 18.0
    """
    return None if progress is None else lambda step, value: progress(step, scale * value**power)


def minimize(
    objective: Objective,
    x0: Array,
    *,
    lower: float | None = 0.0,
    upper: float | None = None,
    tolerance: float = 1e-7,
    iterations: int = 10_000,
    memory: int | None = None,
    deadline: float | None = None,
    progress: Progress | None = None,
) -> Minimum:
    """A local minimum of the objective within bounds, by L-BFGS-B from x0.

    The objective is divided by its value at x0 and stops when the last five steps gained less than `tolerance`
    of its value each; SciPy's own tests are off, since the gradient test stops far too early on the scaled
    problem, and the test of one step stops after the first where x is long. Past `deadline` (of
    time.monotonic()), or where `progress` raises StopIteration, the best point so far is returned. x may have any
    shape. Holds 2·memory copies of x; memory is 10, or 5 where x is long, unless told.

    >>> minimize(lambda x: (float(np.sum((x - 2) ** 2)) + 1, 2 * (x - 2)), np.array([5.0])).x.round(4)
    array([2.])
    """
    shape = x0.shape
    first, _ = objective(x0)
    if not math.isfinite(first):
        raise StrategyError(f"The objective is {first} at the start of an optimisation; the start is not feasible.")
    scale = abs(first) or 1.0
    best: list[tuple[float, Array]] = [(first, x0)]
    gained = [first]
    count = 0

    def scaled(x: Array) -> tuple[float, Array]:
        if deadline is not None and time.monotonic() > deadline:
            raise _OutOfTimeError
        value, gradient = objective(x.reshape(shape))
        if value < best[0][0]:
            best[0] = value, x.reshape(shape).copy()
        return value / scale, np.ravel(gradient) / scale

    def each(_: Array) -> None:
        nonlocal count
        count += 1
        if progress is not None:
            progress(count, best[0][0])
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
