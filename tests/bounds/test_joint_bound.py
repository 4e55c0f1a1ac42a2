"""The bound for predicates on several attributes at once, beside the optimum of small cases by dense algebra."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import hdmm
from hdmm import AllRange, DifferenceAtMost, Domain, Identity, Prefix, Sets, SumAtMost, Workload
from hdmm.bounds.certificate import gaussian_bound
from hdmm.bounds.joint_pinching import AskedSets
from hdmm.bounds.pinching import half
from hdmm.matrix import to_dense
from hdmm.select.gaussian_optimum import GramBlock, best_dual
from tests.select.test_means import mixed

DOMAIN = Domain({"x": 3, "y": 4, "z": 3})
PAIRS = Workload.product(DOMAIN, {("x", "y"): SumAtMost()}) + 2.0 * Workload.product(
    DOMAIN, {("z", "y"): DifferenceAtMost()}
)
ASKED = {
    "two pairs": PAIRS,
    "pairs and a single": PAIRS + Workload.product(DOMAIN, y=Prefix()),
    "three at once": PAIRS + Workload.product(DOMAIN, {("x", "z"): SumAtMost(), "y": AllRange()}),
    "sets": PAIRS + Workload.product(DOMAIN, {("x", "z"): Sets({"a": [0, 5], "b": [1, 4]}), "y": Identity()}),
    "mixed": mixed(3, 3),
}


def optimum(w: Workload) -> float:
    V = to_dense(w.gram).astype(float)
    return best_dual([GramBlock(1.0, V + 1e-9 * np.trace(V) / len(V) * np.eye(len(V)))], steps=200)[0] ** 2


@pytest.mark.parametrize("name", ASKED)
def test_it_is_near_the_optimum_and_never_above(name: str) -> None:
    w = ASKED[name]
    assert 0.85 * optimum(w) < gaussian_bound(w) <= optimum(w) * (1 + 1e-3)


@pytest.mark.parametrize("name", ASKED)
def test_with_every_direction_it_is_the_dual_at_that_product(name: str) -> None:
    """tr M^½ of a Λ = ⊗Λ_i by dense algebra; with fewer directions it is less."""
    w = ASKED[name]
    asked = AskedSets.of(w.products)
    assert asked is not None
    rng = np.random.default_rng(3)
    lams = [lam / lam.sum() for lam in (rng.uniform(0.5, 1.5, size=n) for n in asked.sizes)]
    u = np.array([1.0])
    for kind in asked.kinds:
        u = np.kron(u, np.sqrt(lams[kind]))
    dense = float(np.trace(half(u[:, None] * to_dense(w.gram).astype(float) * u)))
    roots = [asked.root(lams, kept) for kept in (1, 2, 4)]
    assert roots[-1] == pytest.approx(dense, rel=1e-6)
    assert roots[0] <= dense * (1 + 1e-9)
    assert roots[1] <= dense * (1 + 1e-9)


def test_it_is_not_above_a_semidefinite_program() -> None:
    cvxpy = pytest.importorskip("cvxpy")
    domain = Domain({"x": 3, "y": 3})
    w = Workload.product(domain, {("x", "y"): SumAtMost()}) + Workload.product(domain, x=Prefix())
    V = to_dense(w.gram).astype(float)
    R = np.linalg.cholesky(V + 1e-9 * np.eye(9))
    X, Y = cvxpy.Variable((9, 9), symmetric=True), cvxpy.Variable((9, 9), symmetric=True)
    joined = cvxpy.bmat([[Y, R.T], [R, X]])  # Y ≥ RᵀX⁻¹R
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(Y)), [cvxpy.diag(X) <= 1, joined >> 0])
    least = problem.solve(solver="CLARABEL")
    assert gaussian_bound(w) == pytest.approx(least, rel=0.1)
    assert gaussian_bound(w) - least <= 1e-4 * least


def test_attributes_that_can_be_exchanged_are_of_one_kind() -> None:
    def kinds(w: Workload) -> tuple[int, ...]:
        asked = AskedSets.of(w.products)
        assert asked is not None
        return asked.kinds

    domain = Domain(dict.fromkeys("abcd", 3))
    ring = ["ab", "bc", "cd", "da"]  # alike one by one, but a and b cannot be exchanged
    products = [Workload.product(domain, {tuple(pair): SumAtMost()}) for pair in ring]
    assert kinds(Workload(domain, tuple(p for w in products for p in w.products))) == (0, 1, 0, 2)
    assert kinds(mixed(3, 4)) == (0, 0, 0, 0)


def test_roots_are_taken_once_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 28 pairs and 8 attributes alike, two roots; with one attribute that is not, also those that it has part in."""
    rooted: list[int] = []

    def counted(M: np.ndarray) -> np.ndarray:
        rooted.append(len(M))
        return half(M)

    monkeypatch.setattr("hdmm.bounds.joint_pinching.half", counted)
    domain = Domain({f"a{i}": 3 for i in range(8)})
    pairs = [Workload.product(domain, {pair: SumAtMost()}) for pair in itertools.combinations(domain.names, 2)]
    singles = [Workload.product(domain, {name: Prefix()}) for name in domain.names]
    other = Workload.product(domain, a0=Identity())
    for w, expected in (([*pairs, *singles], [3, 9]), ([*pairs, *singles, other], [3, 3, 3, 9, 9])):
        asked = AskedSets.of([product for each in w for product in each.products])
        assert asked is not None
        rooted.clear()
        asked.root([np.full(n, 1 / n) for n in asked.sizes], 1)
        assert sorted(rooted) == expected


def test_plans_for_pairs_have_a_gap() -> None:
    domain = Domain({f"a{i}": 3 for i in range(20)})
    pairs = [Workload.product(domain, {pair: SumAtMost()}) for pair in itertools.combinations(domain.names, 2)]
    w = Workload(domain, tuple(p for each in pairs for p in each.products))
    for objective in ("total", "worst"):
        plan = hdmm.optimize(w, noise="gaussian", objective=objective, restarts=1, time_limit=3)
        assert plan.gap is not None
        assert math.isfinite(plan.gap)
