"""The bound for Gaussian noise: below every strategy, and as close to the best as it claims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import AllRange, Domain, Identity, PredicateSet, Prefix, StrategyError, Total, Vectors, Weighted, Workload
from hdmm.bounds.certificate import gaussian_bound, worst_bound
from hdmm.bounds.eigenspaces import Classes
from hdmm.bounds.pinching import Split, directions, pinched
from hdmm.bounds.svd import svd_bound
from hdmm.matrix import Dense, to_dense
from hdmm.select.gaussian_optimum import gaussian_optimum
from hdmm.select.terms import Terms
from tests.support.effort import examples
from tests.support.strategies import domains, workloads

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CPS = (50, 100, 7, 4, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)


def on_subsets(
    shape: Iterable[int], ks: Iterable[int], numeric: int = 0, predicates: PredicateSet | None = None
) -> Workload:
    """Marginals of k attributes with the predicates on the first ones, Identity on the others."""
    domain = Domain({f"a{i}": n for i, n in enumerate(shape)})
    sets = {name: predicates if predicates and i < numeric else Identity() for i, name in enumerate(domain.names)}
    products = [
        product
        for k in ks
        for names in itertools.combinations(domain.names, k)
        for product in Workload.product(domain, {name: sets[name] for name in names}).products
    ]
    return Workload(domain, tuple(products))


def rmse(w: Workload) -> float:
    """The bound as a root mean squared error under ZCDP("0.5"), whose noise has variance 1."""
    bound = gaussian_bound(w)
    assert bound is not None
    return math.sqrt(bound / w.queries)


@pytest.mark.parametrize("written", [2e9, 0.0])
@examples(100)
@given(data=st.data(), domain=domains(size=4))
def test_no_strategy_is_below(data: st.DataObject, domain: Domain, written: float) -> None:
    """The best dense strategy, of which the search has an upper bound, on any workload; by both ways of finding Λ."""
    w = data.draw(workloads(domain))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hdmm.select.orbits._WORK", written)
        bound = gaussian_bound(w)
    V = to_dense(w.gram).astype(np.float64)
    if not V.any():
        assert bound == 0
        return
    best = gaussian_optimum(Dense(V), tolerance=1e-4)
    assert bound is not None
    assert bound <= best.loss
    assert bound >= (0.97 if written else 0.5) * best.bound  # 0.99 and 0.85 at worst in 2,000 trials


def test_semidefinite_program() -> None:
    """The optimum by another solver: minimise tr(X⁻¹V) with diag X ≤ 1."""
    cvxpy = pytest.importorskip("cvxpy")
    w = on_subsets([4, 3], [1, 2], 2, Prefix())
    R = np.linalg.cholesky(to_dense(w.gram).astype(np.float64) + 1e-9 * np.eye(12))
    X, Y = cvxpy.Variable((12, 12), symmetric=True), cvxpy.Variable((12, 12), symmetric=True)
    joined = cvxpy.bmat([[Y, R.T], [R, X]])  # Y ≥ RᵀX⁻¹R
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(Y)), [cvxpy.diag(X) <= 1, joined >> 0])
    assert gaussian_bound(w) == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-3)


@pytest.mark.parametrize("predicates", [Prefix(), AllRange(), Vectors([[1, 0, 2, 0, 0.5], [0, 1, 1, 1, 0]])])
def test_one_attribute_is_the_optimum(predicates: PredicateSet) -> None:
    n = 5 if isinstance(predicates, Vectors) else 64
    w = Workload.product(Domain({"x": n, "y": 3}), x=predicates)
    best = gaussian_optimum(w.gram if n == 5 else predicates.gram(n), tolerance=1e-4)
    assert gaussian_bound(w) == pytest.approx(best.loss, rel=1e-3)


def test_one_product_is_a_product_of_optima() -> None:
    w = Workload.product(Domain({"x": 32, "y": 16, "z": 5}), x=Prefix(), y=AllRange(), z=Identity() | Total())
    each = [
        gaussian_bound(Workload.product(Domain({"x": n}), x=p))
        for n, p in ((32, Prefix()), (16, AllRange()), (5, Identity() | Total()))
    ]
    assert gaussian_bound(w) == pytest.approx(math.prod(b for b in each if b is not None), rel=1e-6)


def test_long_attributes_have_a_bound() -> None:
    """On more values than are diagonalised: by the tridiagonal inverse, or the sum of the bounds of single products."""
    w = Workload.product(Domain({"x": 8192}), x=Prefix())
    assert 106_622 < gaussian_bound(w) < 106_623
    both = w + Workload.product(w.domain, x=AllRange())
    assert gaussian_bound(both) == svd_bound(both)


def test_what_would_take_too_long_has_the_sum_of_the_bounds_of_its_products() -> None:
    domain = Domain({f"a{i}": 3 for i in range(30)})
    w = Workload.product(domain, dict.fromkeys(domain.names, Prefix()))
    assert gaussian_bound(w) is not None
    other = Workload.product(domain, dict.fromkeys(domain.names, AllRange()))
    assert gaussian_bound(w + other) == pytest.approx(svd_bound(w) + svd_bound(other))


@pytest.mark.parametrize(
    ("shape", "ks", "optimum"),
    [
        (ADULT, [1], 3.047),
        (ADULT, [3], 10.515),
        (CPS, [2], 2.035),
        (LOANS, range(4), 8.876),
        ([10] * 20, range(4), 26.9168),
        ([10] * 50, range(3), None),
    ],
)
def test_marginals_have_the_closed_form(shape: tuple[int, ...], ks: Iterable[int], optimum: float | None) -> None:
    """(Σ_b √(v_b p_b))² over the residual spaces, written out here; figures of ResidualPlanner."""
    w = on_subsets(shape, ks)
    asked: dict[tuple[int, ...], float] = {}
    for product in w.products:
        axes = [i for i, _ in product.factors]
        for size in range(len(axes) + 1):
            for b in itertools.combinations(axes, size):
                v = math.prod(shape[i] - 1 for i in b) / math.prod(shape[i] for i in axes if i not in b)
                asked[b] = asked.get(b, 0.0) + v * math.prod(1 - 1 / shape[i] for i in b)
    closed = math.fsum(map(math.sqrt, asked.values())) ** 2
    assert gaussian_bound(w) == pytest.approx(closed, rel=1e-8)
    assert optimum is None or rmse(w) == pytest.approx(optimum, abs=6e-4)


@pytest.mark.parametrize(
    ("shape", "ks", "numeric", "predicates", "found", "gap"),
    [
        (CPS, [2], 2, Prefix(), 5.8158, 0.005),
        (CPS, [1], 2, Prefix(), 3.0629, 0.006),
        (CPS, range(4), 2, Prefix(), 7.5627, 0.002),
        (LOANS, [2], 4, Prefix(), 14.188, 0.009),
        (ADULT, [2], 5, Prefix(), 16.771, 0.009),
        pytest.param([10] * 10, [1, 2], 10, Prefix(), 9.421, 0.005, marks=pytest.mark.slow),
        pytest.param([10] * 30, [1, 2], 30, AllRange(), 31.123, 0.001, marks=pytest.mark.slow),
        pytest.param(ADULT, range(4), 5, Prefix(), 43.624, 0.011, marks=pytest.mark.slow),
    ],
)
def test_bounds_are_near_what_was_found(
    shape: tuple[int, ...], ks: Iterable[int], numeric: int, predicates: PredicateSet, found: float, gap: float
) -> None:
    """Figures of docs/research/lower-bounds.md: how far the best known strategies can be from the optimum."""
    bound = rmse(on_subsets(shape, ks, numeric, predicates))
    assert (1 - gap) * found < bound < found * (1 + 1e-5)


def test_keeping_more_directions_raises_the_bound_to_the_nuclear_norm() -> None:
    w = on_subsets([5, 4, 3], [1, 2], 2, Prefix())
    classes = Classes.of(Terms.of(w).per_total())
    assert classes is not None
    assert classes.sizes == (5, 4)
    lams = [np.arange(1.0, n + 1) / (n * (n + 1) / 2) for n in classes.sizes]
    bounds = [
        pinched(classes, [Split.of(g, lam, kept) for g, lam in zip(classes.grams, lams, strict=True)])
        for kept in range(1, 6)
    ]
    u = np.sqrt(np.kron(np.kron(*lams), np.full(3, 1 / 3)))
    terms = Terms.of(w).per_total()
    V = sum(
        c * reduce(np.kron, (to_dense(each[v]) for each, v in zip(terms.grams, row, strict=True)))
        for c, row in zip(terms.coefficients, terms.choices, strict=True)
    )
    exact = np.linalg.norm(_root(u[:, None] * V * u), "nuc")
    assert bounds == sorted(bounds)
    assert bounds[0] < 0.99 * exact
    assert bounds[-1] == pytest.approx(exact, rel=1e-7)


def _root(M: np.ndarray) -> np.ndarray:
    values, Q = np.linalg.eigh(M)
    return np.sqrt(np.maximum(values, 0.0))[:, None] * Q.T


def test_a_plan_is_never_below_its_bound() -> None:
    """Several kinds of queries on one attribute, and an attribute that is only totalled."""
    domain = Domain({"age": 12, "sex": 2, "income": 8, "state": 50})
    w = (
        Workload.product(domain, age=AllRange())
        + Workload.product(domain, age=Identity(), sex=Identity())
        + 2.0 * Workload.product(domain, age=Prefix(), income=Prefix())
    )
    plan = hdmm.optimize(w, noise="gaussian", restarts=1)
    bound = gaussian_bound(w)
    assert bound is not None
    assert svd_bound(w) < bound <= plan.error < 1.08 * bound


def test_scale() -> None:
    """Weights count squared, and what every product totals does not count."""
    w = on_subsets([6, 5], [1, 2], 2, Prefix())
    wide = on_subsets([6, 5, 1000], [0], 2)
    wide = Workload(wide.domain, tuple(hdmm.Product(wide.domain, p.factors, 3.0) for p in w.products))
    assert gaussian_bound(wide) == pytest.approx(9 * (gaussian_bound(w) or 0.0), rel=1e-9)
    assert gaussian_bound(0.0 * w) == 0
    assert gaussian_bound(Workload.marginals(Domain({"x": 7}), k=0)) == pytest.approx(1)


@pytest.mark.parametrize(("t", "least"), [(2, 2.1825), (4, 3.4719), (8, 4.5044), (16, 5.1789)])
def test_worst_variance_of_marginals(t: int, least: float) -> None:
    """1- and 2-way marginals of three attributes: the largest bound over shares is the least worst variance."""
    w = on_subsets([t] * 3, [1, 2])
    shares = np.linspace(0, 1, 401)
    bounds = [worst_bound(w, [s] * 3 + [1 - s] * 3) or 0.0 for s in shares]
    assert max(bounds) == pytest.approx(least, rel=1e-4)
    assert max(bounds) <= least + 5e-5


def test_worst_variance_of_rows() -> None:
    """Rows that count unlike each other are weighted in their set; 64 prefixes have a worst variance of 4.4579."""
    rows = np.linspace(1.0, 2.0, 64)
    weighted = Workload.product(Domain({"x": 64}), x=Weighted(Prefix(), np.sqrt(64 * rows / rows.sum())))
    even = worst_bound(Workload.product(Domain({"x": 64}), x=Prefix()), [1])
    by_rows = worst_bound(weighted, [1])
    assert even is not None
    assert by_rows is not None
    assert 4.0 < even < 4.4579
    assert 4.0 < by_rows < 4.4579


@pytest.mark.parametrize("shares", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, math.nan], [math.inf, 1.0]])
def test_shares_must_fit(shares: list[float]) -> None:
    with pytest.raises(StrategyError, match="Give each product a share"):
        worst_bound(on_subsets([3, 3], [1]), shares)


def test_a_direction_that_no_query_asks_about_is_no_fault() -> None:
    """All directions that powers of the gram lead to are 0 there, which was divided by 0."""
    domain = Domain({"a": 3, "b": 1})
    total, difference = Workload.product(domain), Workload.product(domain, a=Vectors([[1.0, -1.0, 0.0]]))
    assert 0 < gaussian_bound(total + difference) <= 4 * (1 + 1e-9)  # both as they are: 1 + 1 at sensitivity 2
    found = directions(np.array([1.0, 0.0, 0.0]), np.diag([0.0, 0.0, 1.0]), 3)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-12)
