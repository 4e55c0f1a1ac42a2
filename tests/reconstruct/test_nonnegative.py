"""Nonnegative and whole counts: least squares over x ≥ 0, tables that agree, rounding, and their intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from hdmm import ZCDP, Domain, Identity, PureDP, Release, Workload, from_array, from_table, optimize
from hdmm.base.exceptions import StrategyError
from hdmm.baselines import laplace
from hdmm.describe.predicates import Vectors
from hdmm.matrix import Cumulative, Eye, Matrix, PIdentity, Residual, to_dense
from hdmm.measure.measure import measure
from hdmm.reconstruct import nonnegative as module
from hdmm.reconstruct.information import Information
from hdmm.reconstruct.nonnegative import nonnegative_cells, simplex_threshold
from hdmm.reconstruct.whole_numbers import rounded
from hdmm.strategy.blocks import Block, stacked_blocks
from hdmm.strategy.strategy import Strategy
from tests.support.chance import fewest
from tests.support.effort import examples
from tests.support.families import in_noise

DOMAIN = Domain({"x": 4, "y": 3, "u": 1})
X = np.array([[0, 0, 5], [1, 0, 0], [0, 9, 0], [0, 0, 0]])
THETA = np.random.default_rng(0).random((2, 4))
PRODUCT = Strategy(DOMAIN, (Block(1.0, ((0, PIdentity(THETA)), (1, Eye(3)))),))
MARGINALS = Strategy(DOMAIN, (Block(0.7, ((0, Eye(4)),)), Block(0.3, ((1, Eye(3)),))))


WIDE = Strategy(DOMAIN, (Block(0.3, ((0, Eye(4)), (1, Eye(3)))), Block(0.7, ())))
UNION = Strategy(DOMAIN, (Block(0.5, ((0, PIdentity(THETA)), (1, Eye(3)))), Block(0.5, ((1, Cumulative(3)),))))
CELLS = Workload.product(DOMAIN, x=Identity(), y=Identity())


@pytest.mark.parametrize("strategy", [PRODUCT, MARGINALS, WIDE, UNION])
def test_it_is_the_least_squares_solution_with_the_estimated_total(strategy: Strategy) -> None:
    release = measure(strategy, from_array(DOMAIN, X[..., None]), PureDP("0.4"), ledger=None)
    A = to_dense(in_noise(release).matrix)
    blocks = in_noise(release).blocks
    parts = zip(release.measurements, release._units, blocks, strict=True)
    y = np.concatenate([m * u * b.weight for m, u, b in parts])
    total = max(0.0, float(release.answer(Workload.marginals(DOMAIN, k=0)).values[0]))
    heavy = 1e4 * np.abs(A).max()
    best, _ = nnls(np.vstack([A, heavy * np.ones((1, 12))]), np.append(y, heavy * total), maxiter=10_000)
    found = release.nonnegative.values(CELLS.products[0])
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total, abs=1e-9)
    assert np.linalg.norm(A @ found - y) == pytest.approx(np.linalg.norm(A @ best - y), rel=1e-4)
    np.testing.assert_allclose(A @ found, A @ best, atol=2e-3 * max(1.0, float(np.abs(y).max())))


def test_an_estimate_without_negative_counts_is_left_as_it_is() -> None:
    release = measure(PRODUCT, from_array(DOMAIN, 1000 + X[..., None]), PureDP(1), ledger=None)
    np.testing.assert_allclose(release.answer(CELLS, nonnegative=True).values, release.answer(CELLS).values, atol=1e-3)


@pytest.mark.parametrize("integers", [False, True])
def test_intervals_hold_their_estimates_and_are_no_narrower_above_zero(integers: bool) -> None:
    w = 2.0 * Workload.marginals(DOMAIN, k=[0, 1])
    for _ in range(20):
        release = measure(MARGINALS, from_array(DOMAIN, X[..., None]), PureDP("0.1"), ledger=None)
        biased, plain = release.answer(w, nonnegative=True, integers=integers), release.answer(w)
        assert biased.biased
        assert not plain.biased
        lower, upper = biased.interval(0.9)
        assert ((lower >= 0) & (lower <= biased.values) & (biased.values <= upper)).all()
        assert (lower <= np.maximum(plain.interval(0.9)[0], 0)).all()
        assert (upper >= plain.interval(0.9)[1]).all()
        np.testing.assert_array_equal(biased.stddev, plain.stddev)
    assert "biased estimate" in str(biased.tables()[0])
    assert "biased" not in str(plain.tables()[0])


def test_intervals_of_differences_are_not_cut_at_zero() -> None:
    counts = X + np.array(
        [[0], [10**6], [0], [0]]
    )  # far more than the noise, so that the difference is below 0 for certain
    release = measure(MARGINALS, from_array(DOMAIN, counts[..., None]), PureDP("0.02"), ledger=None)
    first_less_second = Workload.product(DOMAIN, x=Vectors([[1, -1, 0, 0]]))
    answers = release.answer(first_less_second, nonnegative=True)
    assert answers.interval()[0][0] == pytest.approx(
        min(release.answer(first_less_second).interval()[0][0], answers.values[0])
    )
    assert answers.interval()[0][0] < 0


@pytest.mark.slow
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("privacy", [PureDP("0.2"), ZCDP("0.02")])
def test_intervals_cover_at_least_their_level(privacy: PureDP | ZCDP, integers: bool) -> None:
    w = Workload.marginals(DOMAIN, k=[0, 1, 2])
    data, truth = from_array(DOMAIN, X[..., None]), to_dense(w.matrix) @ X.ravel()
    runs, hit = 800, np.zeros(w.queries)
    for _ in range(runs):
        lower, upper = (
            measure(WIDE, data, privacy, ledger=None).answer(w, integers=integers, nonnegative=True).interval(0.9)
        )
        hit += (lower <= truth) & (truth <= upper)
    assert hit.min() >= fewest(runs, 0.9, among=w.queries)


def test_direct_answers_are_cut_at_zero() -> None:
    w = Workload.marginals(DOMAIN, k=1)
    release = measure(laplace(w), from_array(DOMAIN, X[..., None]), PureDP("0.1"), ledger=None)
    cut = np.maximum(release.answer(w).values, 0.0)
    np.testing.assert_array_equal(release.answer(w, nonnegative=True).values, cut)
    np.testing.assert_array_equal(release.answer(w, integers=True).values, np.rint(cut))


def test_merged_attributes_are_answered_one_by_one() -> None:
    merged = Strategy(DOMAIN, (Block(1.0, [((0, 1), Eye(12))]),))
    release = measure(merged, from_array(DOMAIN, X[..., None]), PureDP(1), ledger=None)
    total = max(0.0, release.answer(CELLS).values.sum())
    found = release.answer(CELLS, nonnegative=True).values
    np.testing.assert_allclose(found, on_simplex(release.answer(CELLS).values, total), atol=1e-4)
    whole = release.answer(CELLS, integers=True).values
    assert (whole == np.rint(whole)).all()


def test_a_total_below_zero_makes_every_count_zero() -> None:
    release = measure(WIDE, from_array(DOMAIN, X[..., None]), PureDP(1), ledger=None)
    below = replace(release, measurements=tuple(-np.abs(y) - 1 for y in release.measurements))
    assert (below.answer(CELLS, nonnegative=True).values == 0).all()
    assert (below.answer(CELLS, integers=True).values == 0).all()


@pytest.mark.parametrize("strategy", [PRODUCT, MARGINALS, WIDE])
def test_whole_numbers_add_up_in_all_tables(strategy: Strategy) -> None:
    w = Workload.marginals(DOMAIN, k=[0, 1])
    for _ in range(10):
        release = measure(strategy, from_array(DOMAIN, 3 * X[..., None]), PureDP("0.3"), ledger=None)
        total, *tables = release.answer(w, integers=True).tables()
        for table in tables:
            assert (table.estimate == np.rint(table.estimate)).all()
            assert (table.estimate >= 0).all()
            assert table.estimate.sum() == total.estimate[0]
        assert abs(total.estimate[0] - max(0.0, release.answer(w).values[0])) <= 0.5 + 1e-6


@examples(50)
@given(st.lists(st.floats(0, 20), min_size=1, max_size=30))
def test_on_one_attribute_every_range_is_off_by_less_than_one(values: list[float]) -> None:
    x = np.array(values)
    domain = Domain({"x": len(x)})
    n = rounded(Information(domain.shape, (Block(1.0, ((0, Eye(len(x))),)),)), x)
    running = np.append(0.0, np.cumsum(n - x))
    assert np.abs(running).max() <= 0.5 + 1e-9
    assert (n >= 0).all()


def test_rounding_moves_tables_by_far_less_than_rounding_cells_would() -> None:
    shape, rng = (6, 7, 8), np.random.default_rng(1)
    x = rng.dirichlet(np.full(336, 0.3)) * 400
    blocks = [Block(1.0, ((i, Eye(shape[i])), (j, Eye(shape[j])))) for i, j in ((0, 1), (0, 2), (1, 2))]
    X = Information(shape, tuple(blocks))
    off = rounded(X, x) - x
    assert X.squared(off) < 0.35 * X.squared(np.rint(x) - x)
    assert all(np.abs(off.reshape(shape).sum(axis=k)).max() < 1.5 for k in range(3))


@pytest.mark.parametrize("factor", [Eye(4), Residual(4), PIdentity(THETA), Cumulative(4)])
def test_information_is_the_gram_of_the_blocks_and_is_inverted(factor: Matrix) -> None:
    blocks = (Block(0.5, ((0, factor), (1, Eye(3)))), Block(2.0, ((1, Residual(3)),)), Block(0.3, ()))
    X, A = Information((4, 3), blocks), to_dense(stacked_blocks((4, 3), blocks))
    x = np.random.default_rng(0).random(12)
    np.testing.assert_allclose(X.times(x), A.T @ A @ x)
    np.testing.assert_allclose(X.inverse(0.7)(x, np.zeros(12)), np.linalg.solve(A.T @ A + 0.7 * np.eye(12), x))
    assert X.mean == pytest.approx(np.trace(A.T @ A) / 12)


def wide_release() -> tuple[Domain, Release]:
    """Pairs of 40 attributes of 3 to 6 values, 200 of them, and few rows: many cells are estimated below 0."""
    rng = np.random.default_rng(0)
    domain = Domain({f"a{i}": 3 + i % 4 for i in range(40)})
    rows = {
        name: rng.choice(domain[name].size, 300, p=rng.dirichlet(np.full(domain[name].size, 0.3)))
        for name in domain.names
    }
    pairs = [(domain.names[i], domain.names[j]) for i in range(40) for j in range(i + 1, 40) if (i + j) % 4 == 1]
    plan = optimize(Workload.marginals(domain, k=pairs), noise="gaussian", progress=False)
    return domain, plan.measure(from_table(domain, pd.DataFrame(rows)), ZCDP("0.05"), ledger=None)


def test_tables_of_wide_releases_agree_and_keep_the_total() -> None:
    domain, release = wide_release()
    plan_pairs = [(domain.names[i], domain.names[j]) for i in range(40) for j in range(i + 1, 40) if (i + j) % 4 == 1]
    w = Workload.marginals(domain, k=plan_pairs)
    assert release.answer(w).values.min() < -1
    total = max(0.0, release.answer(Workload.marginals(domain, k=0)).values[0])
    single: dict[str, np.ndarray] = {}
    for table, pair in zip(release.answer(w, nonnegative=True).tables(), plan_pairs, strict=True):
        counts = table.estimate.reshape([domain[name].size for name in pair])
        assert counts.min() >= 0
        assert counts.sum() == pytest.approx(total)
        assert ((table.lower <= table.estimate) & (table.estimate <= table.upper)).all()
        for name, axis in zip(pair, (1, 0), strict=True):
            np.testing.assert_allclose(counts.sum(axis=axis), single.setdefault(name, counts.sum(axis=axis)), atol=1e-6)
    ones = release.answer(Workload.marginals(domain, k=1), nonnegative=True)
    np.testing.assert_allclose(ones.values, np.concatenate([single[name] for name in domain.names]), atol=1e-6)


def test_wide_tables_are_nearly_the_nearest_that_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the agreeing tables come from some x ≥ 0, as tables over one pair do, both ways give the same."""
    release = measure(WIDE, from_array(DOMAIN, X[..., None]), PureDP("0.3"), ledger=None)
    whole = release.answer(CELLS, nonnegative=True).values
    monkeypatch.setattr(module, "MOST_CELLS", 3)
    monkeypatch.setattr(module, "check_nonnegative", lambda form, integers: None)
    again = replace(release)
    np.testing.assert_allclose(
        again.answer(CELLS, nonnegative=True).values, whole, atol=0.05 * float(release.answer(CELLS).stddev.min())
    )


def test_whole_numbers_of_wide_releases_are_refused() -> None:
    domain, release = wide_release()
    with pytest.raises(StrategyError, match="Ask for nonnegative counts"):
        release.answer(Workload.marginals(domain, k=1), integers=True)


def on_simplex(x: np.ndarray, total: float) -> np.ndarray:
    """The nearest point to x with no entry below 0 and this sum."""
    return np.maximum(x - simplex_threshold(x, total), 0.0) if total else np.zeros(len(x))


@examples(100)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8), st.floats(0, 100))
def test_the_simplex_projection_is_nearest(values: list[float], total: float) -> None:
    x = np.array(values)
    p = on_simplex(x, total)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(total, abs=1e-9)
    for corner in total * np.eye(len(x)):  # (x − p)·(q − p) ≤ 0 for all q of the simplex
        assert (x - p) @ (corner - p) <= 1e-6 * (1 + np.abs(x).max() * (total + 1))


@pytest.mark.parametrize("total", [0.0, 5e-324, 1e-196, 1e-30, 1e-9, 1.0])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e6, 1e15])
def test_a_total_that_rounding_loses_leaves_numbers(total: float, size: float) -> None:
    """Known counts of nobody, where thousands were measured, leave a total of 1e-196 in floats, for example."""
    X = Information((4, 3), (Block(1.0, ((0, Eye(4)), (1, Eye(3)))),))
    found = nonnegative_cells(X, size * np.arange(12.0), total)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total, rel=1e-9) or (total < 1e-9 * size and not found.any())
