from __future__ import annotations

import math
import time

import numpy as np
import pytest

from hdmm import StrategyError
from hdmm.select.minimize import minimize
from hdmm.select.search import Race, Search, first_search


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    a, b = x.ravel()
    value = (1 - a) ** 2 + 100 * (b - a**2) ** 2
    return 1e6 * (value + 1), 1e6 * np.array([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)]).reshape(x.shape)


def test_finds_the_minimum_whatever_the_scale_and_shape() -> None:
    found = minimize(rosenbrock, np.array([[-1.0], [2.0]]), lower=None, tolerance=1e-14)
    np.testing.assert_allclose(found.x, [[1.0], [1.0]], atol=1e-3)
    assert found.value == pytest.approx(1e6)
    assert found.converged


def test_bounds_hold() -> None:
    found = minimize(rosenbrock, np.array([0.2, 0.2]), upper=0.5)
    assert found.x.max() <= 0.5


def test_out_of_time_returns_the_best_so_far() -> None:
    found = minimize(rosenbrock, np.array([-1.0, 2.0]), first_search(time.monotonic() - 1), lower=None)
    assert not found.converged
    assert found.message == "out of time"
    assert found.value == rosenbrock(np.array([-1.0, 2.0]))[0]


def test_progress_is_reported() -> None:
    seen: list[tuple[int, float]] = []
    listened = Search(np.random.default_rng(0), progress=lambda i, value: seen.append((i, value)))
    minimize(rosenbrock, np.array([-1.0, 2.0]), listened, lower=None)
    assert [i for i, _ in seen] == list(range(1, len(seen) + 1))
    values = [value for _, value in seen]
    assert values == sorted(values, reverse=True)


def test_an_infeasible_start_is_refused() -> None:
    with pytest.raises(StrategyError, match="start"):
        minimize(lambda x: (float("inf"), x), np.ones(2))


def valley(x: np.ndarray) -> tuple[float, np.ndarray]:
    """A long descent to 1: curvatures from 1 to 1e-6."""
    weights = np.geomspace(1.0, 1e-6, x.size)
    return 1 + float(weights @ x**2), 2 * weights * x


def test_a_descent_that_cannot_win_is_abandoned() -> None:
    start = np.full(200, 10.0)
    whole = minimize(valley, start, lower=None, tolerance=1e-12)
    assert whole.iterations > 128
    lost = minimize(valley, start, first_search().racing(0.5), lower=None, tolerance=1e-12)
    assert 64 <= lost.iterations < whole.iterations / 2
    assert lost.value >= whole.value


def test_a_descent_that_will_win_goes_on() -> None:
    start = np.full(200, 10.0)
    whole = minimize(valley, start, lower=None, tolerance=1e-12)
    won = minimize(valley, start, first_search().racing(1.001), lower=None, tolerance=1e-12)
    assert (won.value, won.iterations) == (whole.value, whole.iterations)


def test_a_race_judges_each_descent_afresh_and_tells_others() -> None:
    told: list[tuple[int, float]] = []
    race = Race(1.0, lambda step, value: told.append((step, value)))
    for _ in range(2):
        for step in range(1, 64):
            race(step, 9.0)
        with pytest.raises(StopIteration):
            race(64, 9.0)
    assert [step for step, _ in told] == list(range(1, 65)) * 2


def test_progress_is_rescaled() -> None:
    assert first_search().rescaled(2.0).progress is None
    seen: list[float] = []
    said = Search(np.random.default_rng(0), progress=lambda _, value: seen.append(value))
    said.rescaled(3.0, power=2).tell(1, 2.0)
    said.silent().tell(2, 5.0)
    assert seen == [12.0]


def test_a_step_to_where_nothing_can_be_computed_is_shortened() -> None:
    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] > 2:
            raise np.linalg.LinAlgError
        return (math.inf if x[0] > 1.5 else float((x[0] - 1) ** 2) + 1), 2 * (x - 1)

    for start in (-1e3, -7.0, 0.0, 1.4):
        assert minimize(objective, np.array([start]), lower=None).x == pytest.approx([1.0], abs=1e-3)
