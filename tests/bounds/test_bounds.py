"""Lower bounds against the eigenvalues of the explicit gram, and against strategies they must not exceed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import AllRange, Domain, Identity, Prefix, PureDP, Shuffled, Total, Vectors, Width, Workload
from hdmm.baselines import identity
from hdmm.bounds.svd import eigenvalues, svd_bound
from tests.support import brute
from tests.support.effort import examples
from tests.support.strategies import domains, predicate_sets, workloads


def explicit_bound(w: Workload) -> float:
    values = np.linalg.svd(brute.workload_matrix(w), compute_uv=False)
    return float(values.sum() ** 2 / w.domain.size)


@given(st.data(), st.integers(1, 12))
def test_eigenvalues(data: st.DataObject, n: int) -> None:
    p = data.draw(predicate_sets(n))
    W = brute.rows(p, n)
    np.testing.assert_allclose(np.sort(eigenvalues(p, n)), np.linalg.eigvalsh(W.T @ W), atol=1e-9)


@pytest.mark.parametrize(
    "p", [Prefix(), AllRange(), Shuffled(Prefix(), np.roll(np.arange(50), 7)), Width(9), Identity(), Total()]
)
def test_closed_forms(p: hdmm.PredicateSet) -> None:
    W = brute.rows(p, 50)
    np.testing.assert_allclose(np.sort(eigenvalues(p, 50)), np.linalg.eigvalsh(W.T @ W), atol=1e-8)


@examples(200)
@given(st.data(), domains())
def test_bound_is_the_explicit_one(data: st.DataObject, domain: Domain) -> None:
    w = data.draw(workloads(domain))
    assert svd_bound(w) == pytest.approx(explicit_bound(w), rel=1e-6, abs=1e-6)


def test_marginals_by_subsets() -> None:
    domain = Domain({"a": 3, "b": 4, "c": 2, "d": 1})
    w = Workload.marginals(domain, k=range(3)) + 2.0 * Workload.product(domain, a=Identity() | Total())
    assert svd_bound(w) == pytest.approx(explicit_bound(w), rel=1e-9)


def test_large_unions_use_the_sum_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hdmm.bounds.svd._EXPLICIT", 100)
    rows = np.random.default_rng(0).integers(0, 2, (5, 12))
    domain = Domain({"x": 12, "y": 12})
    w = Workload.product(domain, x=Vectors(rows)) + Workload.product(domain, x=Prefix(), y=Prefix())
    parts = [svd_bound(Workload(domain, (p,))) for p in w.products]
    assert svd_bound(w) == pytest.approx(sum(parts))
    assert svd_bound(w) <= explicit_bound(w) * (1 + 1e-9)


def test_many_attributes_never_touch_the_domain() -> None:
    """Up to 2-way marginals: by subsets for 40 attributes, the same formula as the dense one for few."""
    few = Workload.marginals(Domain({f"a{i}": 3 for i in range(5)}), k=range(3))
    assert svd_bound(few) == pytest.approx(explicit_bound(few))
    many = Workload.marginals(Domain({f"a{i}": 3 for i in range(40)}), k=2)
    bound = svd_bound(many)
    d = 40
    roots = {0: d * (d - 1) / 2 / 9, 1: (d - 1) / 9, 2: 1 / 9}
    counts = {0: 1, 1: 2 * d, 2: 4 * d * (d - 1) / 2}
    assert bound == pytest.approx(sum(counts[s] * np.sqrt(roots[s]) for s in range(3)) ** 2)


@examples(50)
@given(st.data(), domains())
def test_no_strategy_is_below(data: st.DataObject, domain: Domain) -> None:
    w = data.draw(workloads(domain))
    assert hdmm.lower_bound(w, PureDP(1)) <= hdmm.expected_error(w, identity(w), PureDP(1)) * (1 + 1e-9)


def test_targets_of_gaussian_noise() -> None:
    """The figures of the singular-value bound that optimised strategies are held against."""
    for p, n, rmse in (
        (AllRange(), 256, 2.876),
        (AllRange(), 1024, 3.492),
        (Prefix(), 256, 2.471),
        (Prefix(), 1024, 2.910),
    ):
        w = Workload.product(Domain({"x": n}), x=p)
        assert np.sqrt(svd_bound(w) / w.queries) == pytest.approx(rmse, abs=6e-4)
