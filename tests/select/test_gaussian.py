"""Gaussian OPT_0: the convex optimum, certified."""

from __future__ import annotations

import numpy as np
import pytest

from hdmm import AllRange, PredicateSet, Prefix
from hdmm.base.exceptions import StrategyError
from hdmm.matrix import (
    AllIntervalsGram,
    Cumulative,
    Dense,
    ExtendedDiagonal,
    Eye,
    Gram,
    Nested,
    Ones,
    gram_inverse,
    scaled,
    to_dense,
    trace,
    trace_product,
)
from hdmm.privacy.guarantee import Noise
from hdmm.select.gaussian_optimum import GramBlock, TridiagonalInverse, best_dual, gaussian_optimum
from hdmm.select.halved_root import halved_root
from hdmm.select.opt_0 import opt_0
from hdmm.select.search import Search, first_search

from .grams import dense_loss, grams

KINDS = list(grams(2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 6, 20])
def test_the_loss_is_that_of_the_matrix_and_the_gap_is_small(kind, n) -> None:
    V = grams(n)[kind]
    found = gaussian_optimum(V)
    A = found.A.array
    norms = (A**2).sum(axis=0)
    assert norms.max() <= 1
    if np.linalg.cond(to_dense(V)) < 1e9:  # else the inverse loses the digits that the certificate keeps
        np.testing.assert_allclose(norms, 1, rtol=1e-12)
        assert found.loss == pytest.approx(dense_loss(A, V), rel=1e-6)
    assert 0 <= found.gap + 1e-9 <= 5e-3
    assert found.loss <= trace(V) * (1 + 1e-6)


@pytest.mark.parametrize(("predicates", "bound"), [(AllRange(), 2.876), (Prefix(), 2.471)])
def test_256_cells_against_the_singular_value_bound(predicates, bound) -> None:
    V, queries = predicates.gram(256), predicates.count(256)
    found = gaussian_optimum(V)
    assert bound <= np.sqrt(found.bound / queries) <= np.sqrt(found.loss / queries) <= bound * 1.025
    assert found.gap < 2e-3


def test_no_other_matrix_beats_the_bound() -> None:
    V = Gram(Cumulative(12))
    bound = gaussian_optimum(V, tolerance=1e-8).bound
    rng = np.random.default_rng(0)
    best = gaussian_optimum(V, tolerance=1e-8).A.array
    for size in (0.01, 0.1, 1.0):
        B = best + size * rng.normal(size=best.shape)
        B /= np.sqrt((B**2).sum(axis=0))
        assert dense_loss(B, V) >= bound * (1 - 1e-7)


def test_opt_0_uses_it_and_ignores_restarts() -> None:
    V = AllIntervalsGram(32)
    first, second = (opt_0(V, Search(np.random.default_rng(r), r), Noise.GAUSSIAN) for r in (0, 3))
    assert isinstance(first, Dense)
    np.testing.assert_array_equal(to_dense(first), to_dense(second))


def test_many_cells_get_a_tree_with_l2_columns(monkeypatch) -> None:
    monkeypatch.setattr("hdmm.select.opt_0.MAX_EIGEN", 50)
    V = Gram(Cumulative(60))
    A = opt_0(V, first_search(), Noise.GAUSSIAN)
    assert trace_product(gram_inverse(A), V) < gaussian_optimum(V).loss * 1.2
    assert isinstance(A, ExtendedDiagonal)
    assert isinstance(A.below, Nested)
    assert A.order == 2


def test_no_iterations_are_refused() -> None:
    with pytest.raises(StrategyError, match="at least 1"):
        gaussian_optimum(Eye(2), iterations=0)


@pytest.mark.parametrize("predicates", [Prefix(), AllRange()], ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3, 40, 150])
def test_a_tridiagonal_inverse_gives_the_same_optimum(predicates: PredicateSet, n: int) -> None:
    """Sums over nodes in the place of eigenproblems: the bound to 1e-8, and a strategy that is near it."""
    V = scaled(3.0, predicates.gram(n))
    ends = TridiagonalInverse.of(V)
    assert ends is not None
    G = to_dense(V).astype(np.float64)
    np.testing.assert_allclose(
        G @ (np.diag(ends.diagonal) + np.diag(ends.beside, 1) + np.diag(ends.beside, -1)), np.eye(n), atol=1e-9 * n
    )
    root, lam = ends.dual()
    u = np.sqrt(lam)
    exact = np.sqrt(np.linalg.eigvalsh(u[:, None] * G * u)).sum()
    assert root == pytest.approx(exact, rel=2e-8)
    assert root == pytest.approx(best_dual([GramBlock(1.0, G)])[0], rel=1e-5)
    A = to_dense(halved_root(ends))
    assert np.trace(np.linalg.solve(A.T @ A, G)) * (A**2).sum(axis=0).max() <= root**2 * (1 + 2e-5)


def test_other_grams_have_no_tridiagonal_inverse() -> None:
    assert all(TridiagonalInverse.of(V) is None for V in (Eye(3), Dense(np.eye(3)), Ones(3, 3)))
