"""Long attributes under Gaussian noise: integers in halves, beside the bound and dense algebra; planned to answered."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import hdmm
from hdmm import ZCDP, AllRange, Domain, Prefix, Workload
from hdmm.matrix import AllIntervalsGram, Cumulative, Gram, HalvedTriangle, Matrix, column_norms, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.gaussian_optimum import TridiagonalInverse
from hdmm.select.halved_root import halved_root
from hdmm.strategy.lattice import Lattice

SETS = {"prefixes": Prefix(), "ranges": AllRange()}


def gram_of(name: str, n: int) -> Matrix:
    return Gram(Cumulative(n)) if name == "prefixes" else AllIntervalsGram(n)


def ends_of(V: Matrix) -> TridiagonalInverse:
    found = TridiagonalInverse.of(V)
    assert found is not None
    return found


@pytest.mark.parametrize("n", [1, 5, 32, 33, 100, 300])
@pytest.mark.parametrize("name", SETS)
def test_its_dense_error_is_the_optimum(name: str, n: int) -> None:
    V = gram_of(name, n)
    A = halved_root(ends_of(V))
    D = to_dense(A)
    assert np.array_equal(D, np.rint(D))
    assert column_norms(A, 2).tolist() == (D.astype(np.int64) ** 2).sum(axis=0).tolist()
    assert np.ptp(column_norms(A, 2)) < 1e-6 * column_norms(A, 2).max()
    loss = float(np.trace(np.linalg.inv(D.T @ D) @ to_dense(V))) * int(column_norms(A, 2).max())
    bound = ends_of(V).dual()[0] ** 2
    assert bound * (1 - 1e-7) <= loss <= bound * (1 + 2e-5)


@pytest.mark.parametrize("name", SETS)
def test_a_long_attribute_is_planned_measured_and_answered(name: str, tmp_path: Path) -> None:
    n = 700
    w = Workload.product(Domain({"x": n}), x=SETS[name])
    plan = hdmm.optimize(w, noise="gaussian", progress=False)
    plan = hdmm.load_plan(plan.save(tmp_path / "plan"))
    assert plan.gap is not None
    assert plan.gap < 1e-4
    lattice = Lattice.of(plan.strategy, Noise.GAUSSIAN, workload=w)
    (block,) = lattice.blocks
    (_, A), *_ = block.factors
    assert isinstance(A, HalvedTriangle)
    D = to_dense(A)
    (scale,) = lattice.scales(ZCDP(1))
    assert scale == Fraction(max((D.astype(np.int64) ** 2).sum(axis=0).tolist()), 2)
    counts = np.random.default_rng(0).integers(0, 1000, n)
    release = plan.measure(hdmm.from_array(w.domain, counts), ZCDP(10**6), ledger=None)
    answers = release.answer(Workload.product(w.domain, x=Prefix()))
    np.testing.assert_allclose(answers.values, counts.cumsum(), atol=1)
    P = np.tril(np.ones((n, n)))
    H = np.linalg.inv(D.T @ D) * float((D**2).sum(axis=0).max()) / (2 * 10**6)
    np.testing.assert_allclose(answers.stddev, np.sqrt(np.diag(P @ H @ P.T)), rtol=0.02)


@pytest.mark.parametrize(("name", "most"), [("prefixes", 106_720), ("ranges", 6.63e8)])
def test_8192_values_are_near_the_bound(name: str, most: float) -> None:
    w = Workload.product(Domain({"x": 8192}), x=SETS[name])
    plan = hdmm.optimize(w, noise="gaussian", progress=False)
    assert plan.error < most
    assert plan.gap is not None
    assert plan.gap < 1e-3
    assert math.isclose(plan.error, hdmm.unit_error(w, plan.strategy, noise=Noise.GAUSSIAN), rel_tol=1e-9)
