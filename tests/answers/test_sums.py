"""Sums of queries: covariances against dense algebra, and the standard deviations of SQL rows with OR."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from hdmm import AllRange, Amounts, Bins, Domain, Identity, Known, Prefix, PureDP, Workload, from_array, optimize
from hdmm.baselines import laplace
from hdmm.matrix import Eye, Matrix, PIdentity, to_dense
from hdmm.measure.measure import measure
from hdmm.sql import parse
from hdmm.strategy.blocks import Block
from hdmm.strategy.strategy import Strategy
from tests.support.families import in_noise

DOMAIN = Domain({"x": 4, "y": 3, "z": 2, "u": 1})
RNG = np.random.default_rng(0)


def p_identity(n: int) -> Matrix:
    return PIdentity(RNG.random((2, n)))


BASES = [p_identity(4), p_identity(3), p_identity(2)]
STRATEGIES: dict[str, Strategy] = {
    "product": Strategy(DOMAIN, (Block(1.3, ((0, BASES[0]), (1, BASES[1]), (2, Eye(2)))),)),
    "marginals": Strategy(
        DOMAIN, (Block(0.5, ((0, Eye(4)), (1, Eye(3)))), Block(0.3, ((1, Eye(3)), (2, Eye(2)))), Block(0.2, ()))
    ),
    "two": Strategy(
        DOMAIN,
        (
            Block(0.5, ((0, BASES[0]), (1, BASES[1]), (2, BASES[2]))),
            Block(0.4, ((0, p_identity(4)), (1, p_identity(3)))),
        ),
    ),
    "three": Strategy(
        DOMAIN,
        (
            Block(0.5, ((0, BASES[0]), (1, BASES[1]), (2, BASES[2]))),
            Block(0.4, ((0, p_identity(4)), (1, p_identity(3)))),
            Block(0.4, ((0, p_identity(4)), (2, p_identity(2)))),
        ),
    ),
    "merged": Strategy(DOMAIN, (Block(1.0, [((0, 2), p_identity(8)), (1, BASES[1])]),)),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES.keys())
def test_covariances_agree_with_dense_algebra(strategy: Strategy) -> None:
    A = to_dense(strategy.matrix)
    C = np.linalg.pinv(A.T @ A)
    first = Workload.product(DOMAIN, x=Prefix(), y=Identity()).products[0]
    second = 3.0 * Workload.product(DOMAIN, x=AllRange())
    W, V = to_dense(first.matrix), to_dense(second.matrix) / 3
    rows, others = (a.ravel() for a in np.indices((len(W), len(V))))
    found = strategy.form.covariances(first, rows, second.products[0], others)
    np.testing.assert_allclose(found.reshape(len(W), len(V)), W @ C @ V.T, atol=1e-9)


def test_direct_measurements_are_independent() -> None:
    w = Workload.product(DOMAIN, x=Prefix()) + Workload.marginals(DOMAIN, k=[("y",)])
    direct = laplace(w)
    prefix, ys = w.products
    np.testing.assert_array_equal(
        direct.form.covariances(prefix, np.array([0, 1]), prefix, np.array([0, 2])), [1.0, 0.0]
    )
    np.testing.assert_array_equal(direct.form.covariances(prefix, np.array([0]), ys, np.array([0])), [0.0])


def test_a_row_that_is_a_sum_has_its_exact_deviation() -> None:
    (table,) = parse(DOMAIN, "SELECT y, COUNT(*) FROM t WHERE x = 1 OR z = 0 GROUP BY y")
    assert isinstance(table.combine, sp.csr_array)
    x = RNG.integers(0, 50, DOMAIN.shape)
    release = measure(STRATEGIES["product"], from_array(DOMAIN, x), PureDP(100), ledger=None)
    estimate, centre, deviation = release.answer(table.workload).sums(table.combine)
    rows = table.combine @ to_dense(table.workload.matrix)
    A = to_dense(in_noise(release).matrix)
    C = np.linalg.inv(A.T @ A)
    np.testing.assert_allclose(deviation, np.sqrt(np.diag(rows @ C @ rows.T)), rtol=1e-9)
    assert (np.abs(estimate - rows @ x.ravel()) < 12 * deviation).all()
    np.testing.assert_array_equal(estimate, centre)


def test_a_row_of_one_query_is_that_query() -> None:
    w = Workload.marginals(DOMAIN, k=[("y",)])
    release = measure(
        STRATEGIES["product"], from_array(DOMAIN, np.ones(DOMAIN.shape, dtype=int)), PureDP(1), ledger=None
    )
    answers = release.answer(w)
    estimate, _, deviation = answers.sums(sp.csr_array(np.eye(3, dtype=np.int64)))
    np.testing.assert_allclose(estimate, answers.values)
    np.testing.assert_allclose(deviation, answers.stddev)


def test_the_bound_of_a_plan_for_sums_is_below_its_error() -> None:
    """Sums are compared with counts after division by their largest amount, in the bound as in the error."""
    domain = Domain({"sector": 3, "pay": 20})
    asked = Workload.sql(domain, "SELECT sector, SUM(pay), COUNT(*) FROM t GROUP BY sector")
    plan = optimize({"pay": asked}, objective="tables", restarts=1)
    (line,) = (line for line in plan.explain().splitlines() if line.startswith("No strategy can be more than"))
    assert float(line.split()[6]) >= 1


def test_a_sum_that_is_known_has_no_variance() -> None:
    """Its terms are of size 40, and rounding left 10⁻¹⁴ of them."""
    domain = Domain({"sex": ["M", "F"], "age": 4})
    known = Known(domain, ["sex"], [260, 270])
    release = measure(
        Strategy.identity(domain), from_array(domain, np.full(8, 66)), PureDP("0.1"), ledger=None, known=[known]
    )
    w = Workload.marginals(domain, k=2)
    assert release.answer(w).sums(sp.csr_array(np.repeat(np.eye(2), 4, axis=1)))[2].tolist() == [0.0, 0.0]


def test_sums_over_bins_have_no_grade_in_any_table() -> None:
    domain = Domain({"sex": ["M", "F"], "income": Bins([0, 10, 50], values=[5, 30])})
    sums = Workload.product(domain, income=Amounts.of(domain["income"]))
    both = sums + Workload.product(domain, sex=Identity())
    data = from_array(domain, [[1000, 2000], [3000, 4000]])
    answers = optimize(both, restarts=1).measure(data, PureDP(1), ledger=None).answer({"sums": sums, "both": both})
    assert answers["sums"].notes == ["noise only"]
    assert answers["both"].notes == ["noise only", "good", "good"]
    every = answers.to_arrow()
    lower, ends = (every.column(name).to_numpy() for name in ("lower", "lower_with_bins"))
    assert np.isneginf(ends[:2]).all()
    np.testing.assert_array_equal(ends[2:], lower[2:])
