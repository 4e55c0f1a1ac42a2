from __future__ import annotations

import numpy as np
import pytest

from hdmm.matrix import Array, Dense, Matrix, to_dense
from hdmm.select.gaussian_optimum import Extrapolation

RATES = np.array([0.95, 0.95, 0.5, 0.2])  # of the values: the rounds alone gain 5 % each


def image(V: Matrix, limit: Array) -> Dense:
    """A gram matrix that is nearer to the limit, on each of its values by another rate."""
    away = to_dense(V) - np.diag(limit)
    return Dense(np.diag(limit) + np.sqrt(np.outer(RATES, RATES)) * away)


def distances(rounds: int, *, plain: bool) -> list[float]:
    """How far from the limit the points of the rounds are."""
    limit = np.full(4, 0.25)
    given: list[Matrix] = [Dense(np.diag([0.4, 0.3, 0.2, 0.1]))]
    ahead, found = Extrapolation(), list[float]()
    for _ in range(rounds):
        given = ahead.after([image(V, limit) for V in given])
        given = ahead.taken_back() if plain else given
        found.append(float(np.abs(to_dense(given[0]) - np.diag(limit)).max()))
    return found


def test_extrapolated_rounds_settle_where_the_rounds_do_in_fewer() -> None:
    assert distances(60, plain=True)[-1] > 1e-3
    assert distances(12, plain=False)[-1] < 1e-4


def test_a_combination_that_is_no_gram_matrix_is_taken_back() -> None:
    ahead = Extrapolation()
    # Strides towards a singular matrix that are nearly as long every time: their combination goes past it.
    for x in (0.5, 0.4, 0.31):
        (found,) = ahead.after([Dense(np.diag([x, 1 - x]))])
    assert not ahead.extrapolates
    np.testing.assert_allclose(to_dense(found), np.diag([0.31, 0.69]))


def test_what_is_taken_back_is_the_last_image_and_nothing_before_it_counts() -> None:
    ahead = Extrapolation()
    for x in (0.9, 0.7, 0.6, 0.55):
        ahead.after([Dense(np.diag([x, 1 - x]))])
    assert ahead.extrapolates
    np.testing.assert_allclose(to_dense(ahead.taken_back()[0]), np.diag([0.55, 0.45]))
    ahead.after([Dense(np.diag([0.5, 0.5]))])
    assert not ahead.extrapolates


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_scale_of_gram_matrices_is_left_out(scale: float) -> None:
    (found,) = Extrapolation().after([Dense(scale * np.eye(2))])
    np.testing.assert_allclose(to_dense(found), np.eye(2) / 2)
