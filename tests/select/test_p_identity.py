"""OPT_0: its loss against the definition, its gradient against differences, its answers against the identity."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hdmm import Domain, Prefix, Strategy, StrategyError, Workload, unit_error
from hdmm.matrix import (
    AllIntervalsGram,
    Conjugated,
    Cumulative,
    Dense,
    Eye,
    Gram,
    Intervals,
    Kron,
    Ones,
    Scaled,
    Sum,
    column_norms,
    exchangeable,
    gram_inverse,
    to_dense,
    trace,
    trace_product,
)
from hdmm.privacy.guarantee import Noise
from hdmm.select.opt_0 import cell_order, grid_rows, opt_0, portfolio, spectral_order, tree_rows
from hdmm.select.search import Search
from hdmm.select.theta import DenseTheta, WindowedTheta, Windows, theta_of
from hdmm.select.tree import tree_widths
from hdmm.strategy.blocks import Block
from tests.support.brute import p_identity

from .grams import dense_loss, grams, numeric_gradient

KINDS = list(grams(2))


def solved(V, seed: int = 0, restart: int = 0, noise: Noise = Noise.LAPLACE, deadline=None, progress=None):
    return opt_0(V, Search(np.random.default_rng(seed), restart, deadline, progress), noise)


def loss_and_gradient(theta, V) -> tuple[float, np.ndarray]:
    return DenseTheta(None).loss(theta, V, to_dense(V).diagonal())


def error(A, V) -> float:
    return trace_product(gram_inverse(A), V)


def rmse(A, V, queries: int) -> float:
    return float(np.sqrt(error(A, V) / queries))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("p", "n"), [(1, 2), (2, 6), (3, 10), (8, 6)])
def test_loss_and_gradient_are_those_of_the_definition(kind, p, n) -> None:
    V = grams(n)[kind]
    theta = np.random.default_rng(p).uniform(0.1, 1.5, size=(p, n))
    value, gradient = loss_and_gradient(theta, V)
    assert value == pytest.approx(dense_loss(p_identity(theta), V), rel=1e-9)
    numeric = numeric_gradient(lambda t: dense_loss(p_identity(t), V), theta)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6 * np.abs(numeric).max())


def test_no_rows_are_the_identity() -> None:
    value, gradient = loss_and_gradient(np.zeros((0, 4)), AllIntervalsGram(4))
    assert value == trace(AllIntervalsGram(4))
    assert gradient.shape == (0, 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "widths", "reach"), [(12, [2, 4, 12], 1), (10, [3, 9, 18], 1), (8, [2, 8], 5)])
def test_windows_agree_with_all_of_theta(kind, n, widths, reach) -> None:
    V = grams(n)[kind]
    windows = Windows.of(n, widths, reach=reach)
    family = WindowedTheta.of(windows)
    x = np.random.default_rng(1).uniform(size=int(windows.free.sum()))
    value, gradient = family.loss(x, V, to_dense(V).diagonal())
    theta = windows.unpacked(family.laid(x))
    expected, whole = loss_and_gradient(theta, V)
    inside = windows.unpacked(windows.free.astype(float)) > 0
    assert value == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(windows.unpacked(family.laid(gradient)), whole * inside, atol=1e-9 * np.abs(whole).max())
    np.testing.assert_array_equal(theta_of(family.matrix(x)), theta)


def test_some_entries_of_theta_move_as_they_do_among_all() -> None:
    V = AllIntervalsGram(6)
    theta = np.random.default_rng(2).uniform(size=(2, 6)) * (np.arange(12).reshape(2, 6) % 3 > 0)
    family = DenseTheta.within(theta, np.flatnonzero(theta))
    value, gradient = family.loss(family.start, V, to_dense(V).diagonal())
    expected, whole = loss_and_gradient(theta, V)
    assert value == expected
    np.testing.assert_array_equal(gradient, whole[theta > 0])
    np.testing.assert_allclose(family.gram(family.start), DenseTheta(None).gram(theta))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("restart", [0, 1, 2, 9])
def test_never_worse_than_the_identity_and_columns_of_norm_one(kind, restart) -> None:
    for n in (2, 4, 20, 66):
        V = grams(n)[kind]
        A = solved(V, restart=restart)
        assert error(A, V) <= trace(V) * (1 + 1e-9)
        np.testing.assert_allclose(np.abs(to_dense(A)).sum(axis=0), 1, rtol=1e-12)
        assert column_norms(A, 1).max() <= 1


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_one_value_and_totals_alone(noise) -> None:
    assert solved(Scaled(3, Eye(1)), noise=noise) == Eye(1)
    assert solved(Scaled(5, Ones(4, 4)), noise=noise) == Ones(1, 4)
    assert solved(Dense(np.full((3, 3), 2.0)), noise=noise) == Ones(1, 3)
    assert solved(Dense(np.zeros((3, 3))), noise=noise) == Eye(3)


def test_nearly_totals_alone_still_supports_the_rest() -> None:
    V = Sum((Scaled(1e6, Ones(6, 6)), Scaled(1e-3, Eye(6))))
    A = solved(V)
    assert np.linalg.matrix_rank(to_dense(A)) == 6
    assert error(A, V) < 1.01e6


def test_identity_and_total_need_one_row() -> None:
    V = Sum((Eye(50), Scaled(3, Ones(50, 50))))
    assert exchangeable(V)
    assert not exchangeable(AllIntervalsGram(50))
    A = solved(V)
    assert A.shape == (51, 50)
    best = min(loss_and_gradient(np.full((1, 50), t), V)[0] for t in np.linspace(0, 4, 2001))
    assert error(A, V) <= best * (1 + 1e-5)


@pytest.mark.parametrize(
    ("V", "queries", "reach"),
    [
        (AllIntervalsGram(128), 128 * 129 / 2, 4.7525),
        (Gram(Cumulative(128)), 128, 4.4495),
        (Gram(Cumulative(600)), 600, 6.13),
    ],
)
def test_reaches_the_published_figures_with_one_start(V, queries, reach) -> None:
    """The paper's tables imply 4.754 and 4.450 (AllRange and Prefix on 128 cells)."""
    assert rmse(solved(V), V, queries) <= reach


def test_the_order_of_the_cells_does_not_matter() -> None:
    n = 128
    V = AllIntervalsGram(n)
    shuffled = Conjugated(V, np.random.default_rng(8).permutation(n))
    assert error(solved(shuffled), shuffled) == pytest.approx(error(solved(V), V), rel=2e-3)


def test_many_cells_of_intervals_that_cross_keep_their_order() -> None:
    n = 10_000
    parts = [np.minimum(np.arange(0, n + width, width), n) for width in (80, 1800)]
    V = Sum((Eye(n), *(Gram(Intervals(n, np.unique(at)[:-1], np.unique(at)[1:] - 1)) for at in parts)))
    assert (cell_order(V) == np.arange(n)).all()
    index = np.random.default_rng(0).permutation(n)
    assert (cell_order(Conjugated(V, index)) != np.arange(n)).any()


def test_spectral_order_undoes_a_shuffle() -> None:
    index = np.random.default_rng(4).permutation(200)
    for V in (AllIntervalsGram(200), Gram(Cumulative(200))):
        found = index[spectral_order(Conjugated(V, index))]
        assert (np.abs(np.diff(found)) == 1).all()


def test_scaling_the_workload_changes_no_strategy() -> None:
    V = AllIntervalsGram(40)
    np.testing.assert_array_equal(to_dense(solved(Scaled(49, V))), to_dense(solved(V)))


def test_the_same_seed_gives_the_same_strategy() -> None:
    V = AllIntervalsGram(70)
    for restart in (0, 1):
        first, second = (to_dense(solved(V, seed=5, restart=restart)) for _ in range(2))
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(to_dense(solved(V, seed=6, restart=1)), to_dense(solved(V, seed=5, restart=1)))


def test_merged_attributes_beat_every_product() -> None:
    V = AllIntervalsGram(12)
    merged = error(solved(Kron((V, V))), Kron((V, V)))
    assert merged < error(solved(V), V) ** 2


def test_the_identity_comes_back_out_of_time() -> None:
    V = AllIntervalsGram(70)
    A = solved(V, deadline=time.monotonic() - 1)
    assert error(A, V) <= trace(V)


def test_progress_is_reported() -> None:
    seen: list[float] = []
    solved(AllIntervalsGram(70), progress=lambda _, value: seen.append(value))
    assert seen == sorted(seen, reverse=True)


def test_error_goes_through_the_strategy() -> None:
    w = Workload.product(Domain({"age": 100}), age=Prefix())
    V = Gram(Cumulative(100))
    A = solved(V)
    assert unit_error(w, Strategy(w.domain, (Block(1.0, ((0, A),)),))) == pytest.approx(error(A, V), rel=1e-9)


def test_starts_cover_what_they_say() -> None:
    assert (tree_rows(1000, tree_widths(1000, 16)).sum(axis=0) == 3).all()
    assert (grid_rows((6, 9), 3).sum(axis=0) == 4).all()
    assert len({portfolio(AllIntervalsGram(1024), r) for r in range(10)}) == 10


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(StrategyError, match="restart"):
        solved(AllIntervalsGram(4), restart=-1)
    with pytest.raises(StrategyError, match="gram"):
        solved(Ones(2, 4))
