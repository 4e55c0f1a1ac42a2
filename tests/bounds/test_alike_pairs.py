"""The bound for attributes that can be exchanged beside dense algebra: tr M^½, its derivative, and the optimum."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hdmm
from hdmm import DifferenceAtMost, Domain, Identity, PredicateSet, Prefix, Sets, SumAtMost, Workload
from hdmm.bounds.alike_pairs import AlikePairs
from hdmm.bounds.certificate import gaussian_bound
from hdmm.bounds.pinching import half
from hdmm.describe.predicates import Vectors
from hdmm.describe.product import Product
from hdmm.matrix import to_dense
from hdmm.select.gaussian_optimum import GramBlock, best_dual

TOTAL = "total"


def alike(n: int, d: int, *asked: PredicateSet | tuple[PredicateSet, PredicateSet] | str) -> Workload:
    """Every predicate set on every attribute, or on every two of them, in either order."""
    domain = Domain({f"a{i}": n for i in range(d)})
    products: list[Product] = []
    for each in asked:
        if isinstance(each, str):
            products += (2 * Workload.marginals(domain, k=0)).products
        elif isinstance(each, tuple):
            for x, y in itertools.permutations(domain.names, 2):
                products += Workload.product(domain, {x: each[0], y: each[1]}).products
        elif isinstance(each, SumAtMost | DifferenceAtMost | Sets):
            for pair in itertools.combinations(domain.names, 2):
                products += Workload.product(domain, {pair: each}).products
        else:
            for x in domain.names:
                products += Workload.product(domain, {x: each}).products
    return Workload(domain, tuple(products))


ASKED = {
    "sums": alike(3, 4, SumAtMost(), Prefix()),
    "differences": alike(4, 3, DifferenceAtMost(), TOTAL),
    "prefixes": alike(3, 4, (Prefix(), Prefix()), Prefix(), TOTAL),
    "in either order": alike(3, 4, (Prefix(), Identity()), SumAtMost()),
    "three attributes": alike(5, 3, (Prefix(), Prefix())),
    "single": alike(5, 3, Prefix()),
}


def of(w: Workload) -> AlikePairs:
    found = AlikePairs.of(w.products)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ASKED)
def test_it_is_the_dual_at_that_product_and_its_marginal(name: str) -> None:
    w = ASKED[name]
    pairs, (n, *_) = of(w), w.domain.shape
    lam = np.random.default_rng(1).dirichlet(np.ones(n))
    u = reduce(np.kron, [np.sqrt(lam)] * len(w.domain))
    H = half(u[:, None] * to_dense(w.gram).astype(float) * u)
    root, p = pairs.at(lam)
    assert root == pytest.approx(np.trace(H), rel=1e-6)
    np.testing.assert_allclose(p, np.diag(H).reshape(n, -1).sum(axis=1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["sums", "in either order"])
def test_the_marginal_is_the_derivative(name: str) -> None:
    pairs = of(ASKED[name])
    lam, step = np.random.default_rng(2).dirichlet(np.ones(len(pairs.one))), 1e-3
    p = pairs.at(lam)[1]
    for v in range(len(lam)):
        up, down = (lam * np.exp(sign * step * np.eye(len(lam))[v]) for sign in (1, -1))
        scales = [float(each.sum()) ** (pairs.d / 2) for each in (up, down)]  # tr M^½ is homogeneous of degree d/2
        roots = [pairs.at(each / each.sum())[0] * scale for each, scale in zip((up, down), scales, strict=True)]
        assert (roots[0] - roots[1]) / (2 * step) == pytest.approx(pairs.d / 2 * p[v], rel=1e-5)


@pytest.mark.parametrize("name", ASKED)
def test_it_is_near_the_optimum_and_never_above(name: str) -> None:
    w = ASKED[name]
    optimum = best_dual([GramBlock(1.0, to_dense(w.gram).astype(float))], steps=200)[0] ** 2
    assert 0.97 * optimum < of(w).root() ** 2 <= optimum * (1 + 1e-3)


@given(seed=st.integers(0, 10_000), n=st.integers(3, 4), rows=st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_it_is_never_above_the_optimum_of_random_sets(seed: int, n: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    sets = [rng.integers(0, 2, (rows, n)) | (np.arange(rows)[:, None] == 0) for _ in range(2)]
    one, other = (Vectors(each) for each in sets)
    w = alike(n, 3, (one, other), one, TOTAL)
    optimum = best_dual([GramBlock(1.0, to_dense(w.gram).astype(float))], steps=200)[0] ** 2
    assert of(w).root() ** 2 <= optimum * (1 + 1e-3)
    assert gaussian_bound(w) <= optimum * (1 + 1e-3)


def test_attributes_that_differ_are_left_to_other_bounds() -> None:
    domain = Domain(dict.fromkeys("abc", 3))
    ring = [Workload.product(domain, {pair: SumAtMost()}) for pair in (("a", "b"), ("b", "c"))]
    assert AlikePairs.of((ring[0] + ring[1]).products) is None
    assert AlikePairs.of(Workload.product(domain, a=Prefix(), b=Prefix(), c=Prefix()).products) is None
    assert AlikePairs.of(alike(2, 4, Prefix()).products) is None


@pytest.mark.parametrize(
    ("w", "most"),
    [(alike(10, 100, (Prefix(), Prefix()), Prefix()), 0.002), (alike(6, 40, SumAtMost(), Prefix()), 0.15)],
    ids=["prefixes", "sums"],
)
def test_plans_for_many_attributes_are_certified(w: Workload, most: float) -> None:
    plan = hdmm.optimize(w, noise="gaussian", restarts=1, progress=False)
    assert plan.gap is not None
    assert plan.gap < most
