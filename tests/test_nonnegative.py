"""Nonnegative estimates: the least-squares solution over x ≥ 0, and projections on large domains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from hdmm import Domain, Identity, Prefix, PureDP, Workload, from_array
from hdmm import nonnegative as module
from hdmm.baselines import laplace
from hdmm.matrix import Eye, PIdentity, to_dense
from hdmm.measure import measure
from hdmm.nonnegative import on_simplex
from hdmm.strategy.base import Strategy
from hdmm.strategy.blocks import Block
from tests.families import in_noise

DOMAIN = Domain({"x": 4, "y": 3, "u": 1})
X = np.array([[0, 0, 5], [1, 0, 0], [0, 9, 0], [0, 0, 0]])
THETA = np.random.default_rng(0).random((2, 4))
PRODUCT = Strategy(DOMAIN, (Block(1.0, ((0, PIdentity(THETA)), (1, Eye(3)))),))
MARGINALS = Strategy(DOMAIN, (Block(0.7, ((0, Eye(4)),)), Block(0.3, ((1, Eye(3)),))))


@pytest.mark.parametrize("strategy", [PRODUCT, MARGINALS])
def test_it_is_the_least_squares_solution(strategy: Strategy) -> None:
    release = measure(strategy, from_array(DOMAIN, X[..., None]), PureDP(1), ledger=None)
    A = to_dense(in_noise(release).matrix)
    blocks = in_noise(release).blocks
    parts = zip(release.measurements, release._units, blocks, strict=True)
    y = np.concatenate([m * u * b.weight for m, u, b in parts])
    best, residual = nnls(A, y)
    pairs = Workload.marginals(DOMAIN, k=[("x",), ("y",)])
    answers = release.answer(pairs, nonnegative=True)
    assert answers.biased
    assert (answers.values >= -1e-9).all()
    estimated = release.nonnegative.values(Workload.product(DOMAIN, x=Identity(), y=Identity()).products[0])
    assert np.linalg.norm(A @ estimated - y) == pytest.approx(residual, rel=1e-6, abs=1e-9)
    if strategy is PRODUCT:  # unique
        np.testing.assert_allclose(answers.values, to_dense(pairs.matrix) @ best, atol=1e-4 * np.abs(y).max())


def test_margins_stay_those_of_the_unbiased_estimate() -> None:
    release = measure(MARGINALS, from_array(DOMAIN, X[..., None]), PureDP("0.1"), ledger=None)
    w = 2.0 * Workload.marginals(DOMAIN, k=1)
    biased, plain = release.answer(w, nonnegative=True), release.answer(w)
    assert not plain.biased
    np.testing.assert_array_equal(biased.interval(0.9), plain.interval(0.9))
    np.testing.assert_array_equal(biased.stddev, plain.stddev)
    assert "biased estimate" in str(biased.tables()[0])
    assert "biased" not in str(plain.tables()[0])


def test_direct_answers_are_cut_at_zero() -> None:
    w = Workload.marginals(DOMAIN, k=1)
    release = measure(laplace(w), from_array(DOMAIN, X[..., None]), PureDP("0.1"), ledger=None)
    np.testing.assert_array_equal(release.answer(w, nonnegative=True).values, np.maximum(release.answer(w).values, 0.0))


def test_merged_attributes_are_answered_one_by_one() -> None:
    merged = Strategy(DOMAIN, (Block(1.0, [((0, 1), Eye(12))]),))
    release = measure(merged, from_array(DOMAIN, X[..., None]), PureDP(1), ledger=None)
    w = Workload.product(DOMAIN, x=Identity(), y=Identity())
    np.testing.assert_allclose(
        release.answer(w, nonnegative=True).values, np.maximum(release.answer(w).values, 0.0), atol=1e-6
    )


def test_large_domains_are_projected_table_by_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 3)
    release = measure(MARGINALS, from_array(DOMAIN, X[..., None]), PureDP("0.2"), ledger=None)
    total = max(0.0, release.answer(Workload.marginals(DOMAIN, k=0)).values[0])
    for name in ("x", "y"):
        found = release.answer(Workload.marginals(DOMAIN, k=[(name,)]), nonnegative=True).values
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(total, abs=1e-9)
    running = release.answer(Workload.product(DOMAIN, x=Prefix()), nonnegative=True).values
    assert (np.diff(running) >= -1e-9).all()


@settings(max_examples=100)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8), st.floats(0, 100))
def test_the_simplex_projection_is_nearest(values: list[float], total: float) -> None:
    x = np.array(values)
    p = on_simplex(x, total)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(total, abs=1e-9)
    for corner in total * np.eye(len(x)):  # (x − p)·(q − p) ≤ 0 for all q of the simplex
        assert (x - p) @ (corner - p) <= 1e-6 * (1 + np.abs(x).max() * (total + 1))
