"""Exchangeable values: the optimum over orbits is that of the dense problem, and measurements say what they should."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hdmm
from hdmm import ZCDP, AllRange, Domain, Identity, Noise, Prefix, Total, Workload, unit_error
from hdmm.bounds.certificate import gaussian_bound
from hdmm.matrix import Dense, to_dense
from hdmm.reconstruct.least_squares import reconstruct
from hdmm.select.gaussian_optimum import gaussian_optimum
from hdmm.select.operators import operators_for
from hdmm.select.orbits import OrbitCells, Orbits, divisible, opt_orbits
from hdmm.select.problem import MergedCells, Problem
from hdmm.select.search import first_search
from hdmm.select.terms import Terms
from hdmm.strategy.lattice import Lattice
from hdmm.strategy.orthogonal import Orthogonal
from hdmm.strategy.strategy import Strategy

DOMAIN = Domain({"age": 7, "sex": 2, "state": 4})


def groups(rng: np.random.Generator, n: int, rows: int) -> list[list[int]]:
    """Sets of values made of a few groups, so that some values are exchangeable."""
    return rng.integers(0, 2, (rows, 3))[:, rng.integers(0, 3, n)].tolist()


def workload_of(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    ages = groups(rng, 7, 3)
    w = Workload.product(DOMAIN, age=ages, sex=Identity()) + 2.0 * Workload.product(DOMAIN, age=Identity() | Total())
    w += [
        Workload.product(DOMAIN, age=groups(rng, 7, 2), state=Identity()),
        Workload.product(DOMAIN, age=Identity(), state=groups(rng, 4, 2)),
        Workload.marginals(DOMAIN, k=2),
        Workload.product(DOMAIN, state=Prefix(), sex=Identity()),
    ][seed % 4]
    return w


def dense(strategy: Strategy) -> np.ndarray:
    return to_dense(strategy.matrix).astype(np.float64)


@pytest.mark.parametrize("n", [1, 2, 6, 9])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_orbits_are_the_exchanges_that_leave_grams_as_they_are(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    W = [np.array(groups(rng, n, 3)).reshape(3, n), np.vstack([np.eye(n), rng.integers(0, 2, (1, n))])]
    grams = [w.T @ w for w in W if w.any()]
    found = Orbits.of_grams(n, grams)
    for v, w in itertools.combinations(range(n), 2):
        order = np.arange(n)
        order[[v, w]] = order[[w, v]]
        same = all(np.array_equal(V[np.ix_(order, order)], V) for V in grams)
        assert (found.of[v] == found.of[w]) == same
    for V in grams:
        quotient = found.quotient(Dense(V))
        blocks = [np.linalg.eigvalsh(np.sqrt(np.outer(found.sizes, found.sizes)) * quotient)]
        for s, c in zip(found.sizes, found.contrasts(Dense(V), quotient), strict=True):
            blocks.append(np.full(s - 1, c * s))
        np.testing.assert_allclose(np.sort(np.concatenate(blocks)), np.linalg.eigvalsh(V), atol=1e-9)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_optimum_is_that_of_the_dense_problem(seed: int) -> None:
    w = workload_of(seed)
    problem = Problem(w, Noise.GAUSSIAN)
    assert divisible(problem)
    found = opt_orbits(problem, first_search())
    A, W = dense(found), to_dense(w.matrix)
    inverse = np.linalg.pinv(A)
    np.testing.assert_allclose(W @ inverse @ A, W, atol=1e-6)
    error = (A**2).sum(axis=0).max() * np.linalg.norm(W @ inverse) ** 2
    assert unit_error(w, found, noise=Noise.GAUSSIAN) == pytest.approx(error, rel=1e-6)
    whole = gaussian_optimum(Dense(W.T @ W), tolerance=1e-5, iterations=2000)
    assert whole.bound * (1 - 1e-4) <= error <= whole.loss * (1 + 3e-4)
    bound = gaussian_bound(w)
    assert bound is not None
    assert error / (1 + 1e-3) <= bound <= whole.loss * (1 + 1e-9)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_what_a_plan_says_is_so_by_dense_algebra(seed: int) -> None:
    """On the values, some of which were merged: variances, covariances, estimates and the integers of the lattice."""
    w = workload_of(seed)
    problem = Problem(w, Noise.GAUSSIAN).merged
    strategy = problem.restored(opt_orbits(problem, first_search()))
    assert strategy.domain == DOMAIN
    lattice = Lattice.of(strategy, Noise.GAUSSIAN, workload=w)
    assert unit_error(w, lattice.strategy, noise=Noise.GAUSSIAN) == pytest.approx(
        unit_error(w, strategy, noise=Noise.GAUSSIAN), rel=2e-4
    )
    rng = np.random.default_rng(seed)
    A = dense(strategy)
    assert strategy.sensitivity(Noise.GAUSSIAN) == pytest.approx(np.linalg.norm(A, axis=0).max(), rel=1e-9)
    inverse = np.linalg.pinv(A)
    answers = [rng.normal(size=block.rows) for block in strategy.blocks]
    x = inverse @ np.concatenate([b.weight * y for b, y in zip(strategy.blocks, answers, strict=True)])
    estimate = reconstruct(strategy.form, answers, [1.0] * len(answers))
    for first, second in itertools.product(w.products, repeat=2):
        W, U = (to_dense(product.matrix) / product.weight for product in (first, second))
        covariance = W @ inverse @ inverse.T @ U.T
        rows, others = rng.integers(len(W), size=9), rng.integers(len(U), size=9)
        found = strategy.form.covariances(first, rows, second, others)
        np.testing.assert_allclose(found, covariance[rows, others], rtol=1e-6, atol=1e-9 * np.abs(covariance).max())
        if first is second:
            variances = np.concatenate(list(strategy.variances(first)))
            np.testing.assert_allclose(variances, np.diag(covariance), rtol=1e-6)
            np.testing.assert_allclose(estimate.values(first), W @ x, rtol=1e-6, atol=1e-6 * np.abs(x).max())


def test_what_is_not_measured_has_no_answer() -> None:
    w = Workload.product(DOMAIN, age=[[1, 1, 1, 0, 0, 0, 0]], sex=Identity()) + Workload.marginals(DOMAIN, [("sex",)])
    strategy = opt_orbits(Problem(w, Noise.GAUSSIAN), first_search())
    assert math.isfinite(strategy.total_variance(w))
    for other in (Workload.product(DOMAIN, age=[[1, 0, 0, 0, 0, 0, 0]]), Workload.product(DOMAIN, state=Prefix())):
        assert math.isinf(strategy.total_variance(other))


def test_a_plan_is_measured_saved_loaded_and_answered(tmp_path) -> None:
    domain = Domain({"age": 40, "sex": 2, "state": 5})
    ages = [[int(a <= v < b) for v in range(40)] for a, b in ((0, 40), (0, 18), (10, 30), (30, 40))]
    w = Workload.product(domain, age=ages, sex=Identity()) + Workload.product(domain, age=ages, state=Prefix())
    w += Workload.product(domain, age=Identity(), state=Identity())
    plan = hdmm.optimize(w, noise="gaussian", progress=False)
    assert plan.operator == "OPT_0"
    assert isinstance(plan.strategy.form, Orthogonal)
    assert plan.gap < 1e-3
    plan.save(tmp_path / "plan")
    loaded = hdmm.load_plan(tmp_path / "plan")
    assert loaded.error == pytest.approx(plan.error, rel=1e-12)
    counts = np.random.default_rng(1).integers(0, 50, domain.shape)
    release = loaded.measure(hdmm.from_array(domain, counts), ZCDP(8), ledger=None)
    release.save(tmp_path / "release")
    release = hdmm.load_release(tmp_path / "release")
    answers = release.answer(w)
    truth = to_dense(w.matrix) @ counts.ravel()
    z = (answers.values - truth) / answers.stddev
    assert np.abs(z).max() < 6  # one in two million
    assert (release.answer(w, nonnegative=True).values >= -1e-9).all()
    whole = release.answer(w, integers=True).values
    assert (whole >= 0).all()
    assert np.array_equal(whole, np.rint(whole))


def test_an_attribute_of_many_values_is_one_orbit() -> None:
    """However many values there are, a total and contrasts are all there is to choose."""
    domain = Domain({"place": 100_000, "age": 6})
    w = Workload.marginals(domain, [("place",)]) + Workload.product(domain, place=Identity(), age=AllRange())
    cells = OrbitCells.of(Terms.of(w))
    assert cells is not None
    assert cells.shape == (1, 6)
    names = [o.name for o in operators_for(Problem(w, Noise.GAUSSIAN))]
    assert names == ["OPT_R", "OPT_0"]
    plan = hdmm.optimize(w, noise="gaussian", progress=False)
    assert plan.gap < 1e-3


def test_merged_cells_of_unequal_sizes_keep_their_error() -> None:
    """Cells that are exchangeable hold 1 to 5 values: rows are orthogonal on cells, not on values."""
    codes = [0, 0, 0, 0, 0, 1, 2, 2, 3, 4]
    domain = Domain({"age": 10, "sex": 2})
    apart = np.eye(5, dtype=int)[:, codes].tolist()
    half = [[int(c < 3) for c in codes]]
    w = Workload.product(domain, age=apart, sex=Identity()) + Workload.product(domain, age=half) * 3.0
    w += Workload.product(domain, age=half, sex=Identity())
    assert MergedCells.of(w.products) is not None
    plan = hdmm.optimize(w, noise="gaussian", progress=False)
    A, W = dense(plan.strategy), to_dense(w.matrix)
    error = (A**2).sum(axis=0).max() * np.linalg.norm(W @ np.linalg.pinv(A)) ** 2
    assert plan.error == pytest.approx(error, rel=1e-6)
    assert gaussian_optimum(Dense(W.T @ W), tolerance=1e-5, iterations=2000).loss * (1 + 3e-4) >= error


def test_few_orbits_of_too_many_values_are_left_to_other_operators() -> None:
    """Two orbits of each attribute make 8 × 8 blocks; a factor over all values would have half a billion entries."""
    for n, small in ((40, True), (400, False)):
        domain = Domain({"a": n, "b": n, "c": n})
        half = [[int(v < n // 4) for v in range(n)]]
        w = Workload.product(domain, a=half, b=half, c=half)
        for name in domain.names:
            w += Workload.product(domain, {name: Identity()})
        problem = Problem(w, Noise.GAUSSIAN)
        assert OrbitCells.of(problem.terms).shape == (2, 2, 2)
        assert divisible(problem) == small
