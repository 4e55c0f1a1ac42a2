"""OPT_⊗: the objective against dense algebra, its gradient, and what a user would notice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import AllRange, Domain, Identity, Prefix, Strategy, Total, Workload, supports, unit_error
from hdmm.baselines import identity
from hdmm.matrix import Eye, PIdentity, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select import opt_x as product
from hdmm.select.opt_x import opt_x, product_factors, product_loss
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.select.terms import Terms
from tests.support import brute
from tests.support.effort import examples
from tests.support.strategies import domains, workloads

PLANE = Domain({"x": 6, "y": 5})
UNION = (
    Workload.product(PLANE, x=Prefix(), y=Identity())
    + 2.0 * Workload.product(PLANE, x=Identity(), y=AllRange())
    + Workload.product(PLANE, y=Prefix())
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def thetas(terms: Terms, seed: int = 0) -> list[np.ndarray]:
    generator = rng(seed)
    return [generator.random((2, n)) for n in terms.sizes]


def loss_at(terms: Terms, at: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
    return product_loss(terms, at, [[to_dense(V).diagonal() for V in each] for each in terms.grams])


def test_the_objective_is_the_dense_error_as_a_part_of_identity() -> None:
    terms = Terms.of(UNION)
    found = thetas(terms)
    A = brute.kron([brute.p_identity(theta) for theta in found])
    W = brute.workload_matrix(UNION)
    assert loss_at(terms, found)[0] == pytest.approx(brute.variances(W, A).sum() / np.sum(W**2))
    assert np.exp(terms.log_scale) == pytest.approx(np.sum(W**2))


def test_the_gradient_against_finite_differences() -> None:
    terms = Terms.of(UNION)
    at = thetas(terms)
    _, gradients = loss_at(terms, at)
    for i, gradient in enumerate(gradients):
        for cell in [(0, 0), (1, 3), (0, 4)]:
            step = np.zeros_like(at[i])
            step[cell] = 1e-6
            up, down = ([x + s * step if j == i else x for j, x in enumerate(at)] for s in (1, -1))
            slope = (loss_at(terms, up)[0] - loss_at(terms, down)[0]) / 2e-6
            assert gradient[cell] == pytest.approx(slope, rel=1e-5)


def test_the_surrogate_has_the_error_of_the_whole() -> None:
    terms = Terms.of(UNION)
    factors = [PIdentity(theta) for theta in thetas(terms)]
    taus = [terms.traces(i, A) for i, A in enumerate(factors)]
    for i, A in enumerate(factors):
        H = np.linalg.inv(to_dense(A).T @ to_dense(A))
        assert np.trace(H @ to_dense(terms.surrogate(i, taus))) == pytest.approx(terms.error(taus))


def test_cycles_never_climb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "_DENSE", 0)
    seen: list[float] = []
    opt_x(Problem(UNION), Search(rng(), progress=lambda _, value: seen.append(value)))
    assert len(seen) >= 2
    assert seen == sorted(seen, reverse=True)


@examples(100)
@given(st.data())
def test_any_workload_is_supported_and_no_worse_than_identity(data: st.DataObject) -> None:
    domain = data.draw(domains(attributes=3, size=4))
    workload = data.draw(workloads(domain))
    noise: Noise = data.draw(st.sampled_from([Noise.LAPLACE, Noise.GAUSSIAN]))
    strategy = opt_x(Problem(workload, noise), Search(rng(), data.draw(st.integers(0, 2))))
    assert supports(workload, strategy)
    assert float(strategy.sensitivity(noise)) == pytest.approx(1.0)
    error = unit_error(workload, strategy, noise=noise)
    assert error <= unit_error(workload, identity(workload), noise=noise) * (1 + 1e-6)
    W = brute.workload_matrix(workload)
    A = to_dense(strategy.matrix)
    assert error == pytest.approx(brute.variances(W, A).sum(), rel=1e-5, abs=1e-9)


def test_what_every_product_totals_is_total() -> None:
    domain = Domain({"a": 3, "one": 1, "b": 4, "c": 5})
    w = Workload.product(domain, a=Identity(), c=Prefix()) + Workload.product(domain, b=[[1, 1, 1, 1], [2, 2, 2, 2]])
    assert opt_x(Problem(w), Search(rng())).blocks[0].axes == (0, 3)


def test_the_total_alone_is_measured_alone() -> None:
    w = Workload.marginals(PLANE, k=0)
    strategy = opt_x(Problem(w), Search(rng()))
    assert strategy.blocks[0].factors == ()
    assert unit_error(w, strategy) == 1.0


def test_one_query() -> None:
    w = Workload.product(PLANE, x=[[0, 1, 1, 0, 0, 0]], y=[[1, 0, 0, 0, 1]])
    assert unit_error(w, opt_x(Problem(w), Search(rng()))) <= 4.0


def test_weights_of_zero_do_not_matter() -> None:
    w = UNION + 0.0 * Workload.product(PLANE, x=AllRange(), y=AllRange())
    assert unit_error(w, opt_x(Problem(w), Search(rng()))) == pytest.approx(
        unit_error(UNION, opt_x(Problem(UNION), Search(rng())))
    )
    nothing = 0.0 * Workload.product(PLANE, x=Prefix())
    assert unit_error(nothing, opt_x(Problem(nothing), Search(rng()))) == 0.0


def test_duplicates_are_weights_of_root_two() -> None:
    once = Workload.product(PLANE, x=Prefix(), y=Identity())
    other = Workload.product(PLANE, x=Identity(), y=AllRange())
    twice, weighted = once + once + other, float(np.sqrt(2)) * once + other
    assert unit_error(twice, opt_x(Problem(twice), Search(rng()))) == pytest.approx(
        unit_error(weighted, opt_x(Problem(weighted), Search(rng()))), rel=1e-5
    )


def test_scaling_by_7_scales_the_error_by_49_and_keeps_the_strategy() -> None:
    first, second = opt_x(Problem(UNION), Search(rng())), opt_x(Problem(7.0 * UNION), Search(rng()))
    assert unit_error(7.0 * UNION, second) == pytest.approx(49 * unit_error(UNION, first), rel=1e-6)
    for (_, A), (_, B) in zip(first.blocks[0].factors, second.blocks[0].factors, strict=True):
        np.testing.assert_allclose(to_dense(A), to_dense(B), atol=1e-3)


def test_attributes_in_another_order_have_the_same_error() -> None:
    other = Domain({"y": 5, "x": 6})
    w = (
        Workload.product(other, x=Prefix(), y=Identity())
        + 2.0 * Workload.product(other, x=Identity(), y=AllRange())
        + Workload.product(other, y=Prefix())
    )
    best = [min(unit_error(v, opt_x(Problem(v), Search(rng(r), r))) for r in range(3)) for v in (w, UNION)]
    assert best[0] == pytest.approx(best[1], rel=2e-3)


def test_more_queries_never_help_the_old_ones() -> None:
    w = Workload.product(PLANE, x=Prefix(), y=Identity())
    alone = min(unit_error(w, opt_x(Problem(w), Search(rng(r), r))) for r in range(3))
    assert unit_error(w, opt_x(Problem(UNION), Search(rng()))) >= alone * (1 - 1e-4)


def test_a_seed_decides() -> None:
    first, second = (opt_x(Problem(UNION), Search(rng(3), 1)) for _ in range(2))
    for (_, A), (_, B) in zip(first.blocks[0].factors, second.blocks[0].factors, strict=True):
        np.testing.assert_array_equal(to_dense(A), to_dense(B))


def test_a_single_product_separates() -> None:
    domain = Domain({"x": 16, "y": 12})
    w = Workload.product(domain, x=Prefix(), y=AllRange())
    parts = [
        unit_error(v, opt_x(Problem(v), Search(rng())))
        for v in (
            Workload.product(Domain({"x": 16}), x=Prefix()),
            Workload.product(Domain({"y": 12}), y=AllRange()),
        )
    ]
    assert unit_error(w, opt_x(Problem(w), Search(rng()))) == pytest.approx(parts[0] * parts[1], rel=1e-2)


def test_hundreds_of_attributes_do_not_overflow() -> None:
    domain = Domain({f"a{i}": 1000 for i in range(200)})
    w = Workload.product(domain, a0=Prefix()) + Workload.product(domain, a1=Identity())
    terms = Terms.of(w)
    assert terms.coefficients.sum() == pytest.approx(1.0)
    assert all(not isinstance(A, Eye) for A in product_factors(Terms.of(_small(200)), Noise.LAPLACE, Search(rng())))


def _small(d: int) -> Workload:
    domain = Domain({f"a{i}": 10 for i in range(d)})
    return Workload.product(domain, a0=Prefix()) + Workload.product(domain, a1=Prefix())


def test_mostly_totalled_attributes_stay_finite() -> None:
    w = 1e4 * Workload.product(PLANE, x=Identity()) + Workload.product(PLANE, x=Identity(), y=Identity())
    strategy = opt_x(Problem(w), Search(rng()))
    error = unit_error(w, strategy)
    exact = brute.variances(brute.workload_matrix(w), to_dense(strategy.matrix)).sum()
    assert error == pytest.approx(exact, rel=1e-5)
    assert error <= 1.02 * 1e8 * 6  # close to the total alone, which costs 6 at weight 10⁸


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_past_the_deadline_there_is_still_a_strategy(noise: Noise) -> None:
    strategy = opt_x(Problem(UNION, noise), Search(rng(), deadline=0.0))
    assert isinstance(strategy, Strategy)
    assert unit_error(UNION, strategy, noise=noise) <= unit_error(UNION, identity(UNION), noise=noise) * (1 + 1e-6)


def test_identities_side_by_side_prefix() -> None:
    """[Prefix ⊗ Identity; Identity ⊗ Prefix] on 64²: 5.14 in the paper's Table, 5.701 for Identity."""
    domain = Domain({"x": 64, "y": 64})
    w = Workload.product(domain, x=Prefix(), y=Identity()) + Workload.product(domain, x=Identity(), y=Prefix())
    assert (unit_error(w, opt_x(Problem(w), Search(rng()))) / w.queries) ** 0.5 < 5.17


def test_total_is_no_attribute_of_the_terms() -> None:
    assert Terms.of(Workload.product(PLANE, x=Total(), y=Identity())).axes == (1,)
