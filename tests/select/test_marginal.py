from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm import AllRange, Domain, Identity, Prefix, Strategy, StrategyError, Total, Workload, unit_error
from hdmm.bounds.svd import svd_bound
from hdmm.matrix import Eye, to_dense
from hdmm.privacy.guarantee import Noise
from hdmm.select.demand import demand
from hdmm.select.marginal_weights import (
    descend,
    gaussian_weights,
    greedy_cover,
    group_cover,
    initial_weights,
    laplace_loss,
    maximal,
    slopes,
)
from hdmm.select.opt_0 import opt_0
from hdmm.select.opt_m import gaussian_marginals, laplace_marginals, marginal_strategy, opt_m
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.strategy.blocks import Block
from hdmm.strategy.subsets import Whole, listed, members, submasks
from tests.support import brute
from tests.support.effort import examples
from tests.support.strategies import domains, workloads


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mixed_workload() -> Workload:
    """Ranges, prefixes, cells and totals over four attributes, one of them of size 1."""
    domain = Domain({"a": 4, "b": 3, "c": 1, "d": 2})
    return (
        Workload.product(domain, a=AllRange(), b=Identity())
        + 2.0 * Workload.product(domain, a=Prefix(), d=Identity())
        + 0.5 * Workload.product(domain, b=Identity() | Total(), c=Identity(), d=[[1, -1]])
        + Workload.marginals(domain, k=0)
    )


def brute_error(workload: Workload, strategy: Strategy, noise: str = Noise.LAPLACE) -> float:
    dense = {id(A): to_dense(A) for block in strategy.blocks for _, A in block.factors}
    W, A = brute.workload_matrix(workload), brute.strategy_matrix(strategy, dense)
    assert brute.supported(W, A)
    return brute.sensitivity(A, noise) ** 2 * float(brute.variances(W, A).sum())


def brute_lattice(gamma: np.ndarray) -> np.ndarray:
    size = 1 << len(gamma)
    table = np.zeros((size, size))
    for a in range(size):
        for b in submasks(a):
            table[b, a] = math.prod(gamma[i] for i in members(a ^ b))
    return table


@pytest.mark.parametrize("d", [0, 1, 3, 5, 13])
def test_lattice_sums_are_the_sums_over_supersets_and_subsets(d: int) -> None:
    gamma = rng().uniform(0.05, 0.6, d)
    whole = Whole(gamma)
    x, y = rng(1).random((1 << d, 3)), rng(2).random(1 << d)
    if d <= 5:
        table = brute_lattice(gamma)
        np.testing.assert_allclose(whole.up(x), table @ x)
        np.testing.assert_allclose(whole.down(y), table.T @ y)
    np.testing.assert_allclose(whole.up(x)[:, 1], whole.up(x[:, 1].copy()))
    assert float(whole.up(y) @ x[:, 0]) == pytest.approx(float(y @ whole.down(x[:, 0].copy())))


def test_listed_and_whole_lattices_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    gamma = rng().uniform(0.05, 0.6, 5)
    spaces, subsets = [0, 3, 9, 16, 31], [31, 7, 0, 27, 16]
    expected = brute_lattice(gamma)[np.ix_(spaces, subsets)]
    np.testing.assert_allclose(listed(spaces, subsets, gamma).incidence, expected)
    monkeypatch.setattr("hdmm.strategy.subsets._DENSE", 0)
    sparse = listed(spaces, subsets, gamma)
    np.testing.assert_allclose(sparse.up(np.eye(5)), expected)
    np.testing.assert_allclose(sparse.down(np.eye(5)), expected.T)


@pytest.mark.parametrize("dense", [True, False])
def test_a_base_that_tells_nothing_of_the_total_says_nothing_of_smaller_eigenspaces(
    dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gamma = np.array([0.5, 0.0, 0.2, 0.0])
    monkeypatch.setattr("hdmm.strategy.subsets._DENSE", 1 << 21 if dense else 0)
    sums, expected = listed(range(16), range(16), gamma), brute_lattice(gamma)
    np.testing.assert_allclose(sums.up(np.eye(16)), expected)
    for each in (sums, Whole(gamma)):
        np.testing.assert_allclose(each.squared().up(np.eye(16)), expected**2)


def test_loss_is_the_error_of_the_strategy_and_of_dense_algebra() -> None:
    workload = mixed_workload()
    asked = demand(workload)
    weights = dict(enumerate(rng().uniform(0.1, 1, 1 << len(asked.axes)).tolist()))
    theta = np.array(list(weights.values()))
    sums, t = asked.everywhere()
    strategy = marginal_strategy(workload.domain, asked, weights, noise=Noise.LAPLACE)
    error = asked.scale * laplace_loss(sums, t, theta)[0]
    assert error == pytest.approx(unit_error(workload, strategy), rel=1e-10)
    assert error == pytest.approx(brute_error(workload, strategy), rel=1e-8)


def test_gradient_is_that_of_finite_differences() -> None:
    sums, t = demand(mixed_workload()).everywhere()
    theta = rng().uniform(0.1, 1, len(t))
    step = 1e-6
    numeric = [
        (laplace_loss(sums, t, theta + step * e)[0] - laplace_loss(sums, t, theta - step * e)[0]) / (2 * step)
        for e in np.eye(len(t))
    ]
    np.testing.assert_allclose(laplace_loss(sums, t, theta)[1], numeric, rtol=1e-5)


def test_descent_never_raises_the_error() -> None:
    sums, t = demand(mixed_workload()).everywhere()
    theta = rng().random((len(t), 5))
    theta /= theta.sum(axis=0)
    errors = [slopes(sums, t, theta**2)[0]]
    for _ in range(30):
        theta, error = descend(sums, t, theta, steps=1)
        errors.append(error)
    assert (np.diff(np.array(errors), axis=0) <= 1e-12 * errors[0]).all()
    assert (errors[-1] < 0.95 * errors[0]).all()


def test_whole_and_closure_forms_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = mixed_workload()
    whole = demand(workload)
    monkeypatch.setattr("hdmm.select.demand.MAX_WHOLE", 1)
    closure = demand(workload)
    assert closure.whole is None
    t = dict(zip(closure.needed, closure.t, strict=True))
    assert sorted(t) == sorted(whole.needed)
    np.testing.assert_allclose([t[b] for b in whole.needed], whole.t)
    assert closure.scale == pytest.approx(whole.scale)


@pytest.mark.parametrize(
    ("k", "target"),
    [(1, 4752), (2, 1.9211e6), (3, 1.0788e8), (4, 2.197e9), (5, 1.154e10), (6, 2.0758e10), (7, 2.19e10), (8, 2.203e10)],
)
def test_marginals_of_eight_attributes_reach_the_best_known(k: int, target: float) -> None:
    workload = Workload.marginals(Domain({f"a{i}": 10 for i in range(8)}), k=range(k + 1))
    found = opt_m(Problem(workload), Search(rng()))
    assert unit_error(workload, found) <= target
    assert math.fsum(block.weight for block in found.blocks) == pytest.approx(1)
    if k == 3:  # the Steiner system S(3, 4, 8)
        assert [len(block.factors) for block in found.blocks] == [4] * 14


def test_covers_of_many_binary_attributes_beat_their_own_marginals() -> None:
    domain = Domain({f"a{i}": 2 for i in range(21)})
    workload = Workload.marginals(domain, k=2)
    found = opt_m(Problem(workload), Search(rng()))
    factors = ((i, Eye(2)) for i in range(21))
    own = Strategy(domain, tuple(Block(1.0, pair) for pair in itertools.combinations(factors, 2)))
    assert unit_error(workload, found) < 0.3 * unit_error(workload, own)


def test_a_hundred_attributes() -> None:
    domain = Domain({f"a{i}": 10 for i in range(100)})
    workload = Workload.marginals(domain, [(f"a{i}", f"a{(i * 7 + 3) % 100}") for i in range(0, 60, 2)])
    for noise in (Noise.LAPLACE, Noise.GAUSSIAN):
        found = opt_m(Problem(workload, noise), Search(rng()))
        assert math.isfinite(unit_error(workload, found, noise=noise))
        assert float(found.sensitivity(noise)) == pytest.approx(1)


@examples(25)
@given(data=st.data(), noise=st.sampled_from([Noise.LAPLACE, Noise.GAUSSIAN]))
def test_any_workload_gets_a_strategy_that_supports_it(data: st.DataObject, noise: str) -> None:
    workload = data.draw(domains().flatmap(workloads))
    found = opt_m(Problem(workload, noise), Search(rng()))
    error = unit_error(workload, found, noise=noise)
    assert error == pytest.approx(brute_error(workload, found, noise), rel=1e-6, abs=1e-9)
    cells = Block(1.0, tuple((i, Eye(n)) for i, n in enumerate(workload.domain.shape)))
    identity = Strategy(workload.domain, (cells,))
    assert error <= unit_error(workload, identity, noise=noise) * (1 + 1e-6) + 1e-9


def test_the_total_alone_needs_only_the_total() -> None:
    found = opt_m(Problem(Workload.marginals(Domain({"a": 3, "b": 2}), k=0)), Search(rng()))
    assert [(block.weight, block.factors) for block in found.blocks] == [(1.0, ())]


def test_one_attribute_of_size_one() -> None:
    workload = Workload.marginals(Domain({"a": 1}), k=1)
    assert unit_error(workload, opt_m(Problem(workload), Search(rng()))) == 1.0


def test_zero_weights() -> None:
    domain = Domain({"a": 3, "b": 4})
    cells, ranges = Workload.marginals(domain, k=2), Workload.product(domain, a=AllRange())
    some = opt_m(Problem(ranges + 0.0 * cells), Search(rng()))
    assert unit_error(ranges + 0.0 * cells, some) == pytest.approx(
        unit_error(ranges, opt_m(Problem(ranges), Search(rng())))
    )
    none = opt_m(Problem(0.0 * cells), Search(rng()))
    assert unit_error(0.0 * cells, none) == 0
    assert math.isfinite(unit_error(cells, none))


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_scaling_the_workload_scales_the_error_and_changes_no_strategy(noise: str) -> None:
    workload = mixed_workload()
    one, seven = opt_m(Problem(workload, noise), Search(rng())), opt_m(Problem(7.0 * workload, noise), Search(rng()))
    assert [b.factors for b in one.blocks] == [b.factors for b in seven.blocks]
    np.testing.assert_allclose([b.weight for b in one.blocks], [b.weight for b in seven.blocks], rtol=1e-6)
    ratio = unit_error(7.0 * workload, seven, noise=noise) / unit_error(workload, one, noise=noise)
    assert ratio == pytest.approx(49)


def test_a_repeated_product_is_one_of_weight_root_two() -> None:
    domain = Domain({"a": 5, "b": 4, "c": 3})
    one, two = Workload.marginals(domain, k=2), Workload.product(domain, a=Prefix())
    twice, weighted = (
        opt_m(Problem(one + two + two), Search(rng())),
        opt_m(Problem(one + math.sqrt(2) * two), Search(rng())),
    )
    assert unit_error(one + two + two, twice) == pytest.approx(unit_error(one + math.sqrt(2) * two, weighted))


def test_a_seed_gives_one_strategy() -> None:
    workload = Workload.marginals(Domain({f"a{i}": 3 for i in range(6)}), k=2)
    runs = [opt_m(Problem(workload), Search(rng(5), 3)) for _ in range(2)]
    assert runs[0].blocks == runs[1].blocks


@pytest.mark.parametrize(("size", "k"), [(10, 2), (2, 2), (2, range(7)), (3, range(4))])
def test_gaussian_weights_are_optimal(size: int, k: int | range) -> None:
    workload = Workload.marginals(Domain({f"a{i}": size for i in range(6)}), k=k)
    sums, t = demand(workload).everywhere()
    F, g, _ = slopes(sums, t, gaussian_weights(sums, t))
    assert float(g.max()) <= float(F) * (1 + 1e-6)  # F²/max g bounds the optimum from below
    error = unit_error(workload, opt_m(Problem(workload, Noise.GAUSSIAN), Search(rng())), noise=Noise.GAUSSIAN)
    assert error >= svd_bound(workload) * (1 - 1e-9)
    if k == range(7):  # where no weight is at its bound the singular-value bound is met
        assert error == pytest.approx(svd_bound(workload), rel=1e-4)


def test_gaussian_weights_of_very_different_sizes_take_few_steps() -> None:
    domain = Domain({"age": 50, "income": 100, "race": 7, "status": 4, "sex": 2})
    numeric = {"age": Prefix(), "income": Prefix()}
    chosen = itertools.combinations(domain.names, 3)
    each = [Workload.product(domain, {name: numeric.get(name, Identity()) for name in names}) for names in chosen]
    workload = sum(each[1:], each[0])
    bases = {i: opt_0(Prefix().gram(n), Search(rng()), Noise.GAUSSIAN) for i, n in ((0, 50), (1, 100))}
    sums, t = demand(workload, bases).everywhere()
    steps: list[int] = []
    F, g, _ = slopes(sums, t, gaussian_weights(sums, t, Search(rng(), progress=lambda *_: steps.append(1))))
    assert float(g.max()) <= float(F) * (1 + 1e-7)
    assert 0 < len(steps) < 100  # over a thousand where steps are relative to the weights


def test_fewer_products_ask_for_the_same() -> None:
    workload = Workload.marginals(Domain({"a": 3, "b": 4, "c": 2}), k=range(3))
    assert len(workload.compact().products) < len(workload.products)
    given, compacted = demand(workload), demand(workload.compact())
    assert given.needed == compacted.needed
    np.testing.assert_allclose(given.t * given.scale, compacted.t * compacted.scale, rtol=1e-12)


def test_too_many_subsets_is_said_with_the_limit() -> None:
    domain = Domain({f"a{i}": 2 for i in range(25)})
    workload = Workload.product(domain, {name: Identity() | Total() for name in domain.names})
    with pytest.raises(StrategyError, match=r"25 attributes.*limit is .*20 attributes.*fewer"):
        opt_m(Problem(workload), Search(rng()))


def test_out_of_time_still_gives_a_strategy() -> None:
    workload = Workload.marginals(Domain({f"a{i}": 4 for i in range(12)}), k=3)
    found = opt_m(Problem(workload), Search(rng(), deadline=time.monotonic()))
    assert math.isfinite(unit_error(workload, found))


def test_progress_is_the_workloads_error() -> None:
    seen: list[float] = []
    workload = Workload.marginals(Domain({f"a{i}": 4 for i in range(5)}), k=2)
    found = opt_m(Problem(workload), Search(rng(), progress=lambda _, value: seen.append(value)))
    assert min(seen) == pytest.approx(unit_error(workload, found), rel=1e-3)


def test_a_warm_start_is_never_made_worse() -> None:
    asked = demand(Workload.marginals(Domain({f"a{i}": 3 for i in range(5)}), k=2))
    sums, t = asked.everywhere()
    best = laplace_marginals(asked, Search(rng()))
    again = laplace_marginals(asked, Search(rng(1), 2), warm=best)

    def error(weights: dict[int, float]) -> float:
        theta = np.zeros(len(t))
        theta[list(weights)] = list(weights.values())
        return laplace_loss(sums, t, theta)[0]

    assert error(again) <= error(best) * (1 + 1e-9)
    assert sum(w * w for w in gaussian_marginals(asked).values()) == pytest.approx(1)


def test_a_search_near_a_result_is_never_worse_and_leaves_a_bad_one() -> None:
    """The Steiner system S(3, 4, 8) is found from one marginal for each three attributes."""
    problem = Problem(Workload.marginals(Domain({f"a{i}": 10 for i in range(8)}), k=range(4)))
    asked = problem.demand
    bad = dict.fromkeys(maximal(asked.needed), 1.0)
    start = marginal_strategy(problem.workload.domain, asked, bad, noise=Noise.LAPLACE)
    errors = [unit_error(problem.workload, start)]
    for turn in range(3):
        start = opt_m(problem, Search(rng(turn)), start=start)
        errors.append(unit_error(problem.workload, start))
    assert all(after <= before * (1 + 1e-9) for before, after in itertools.pairwise(errors))
    assert errors[-1] < 0.8 * errors[0]


def test_covers_hold_every_target() -> None:
    targets = maximal(a for a in range(1 << 9) if a.bit_count() <= 3)
    assert {b.bit_count() for b in targets} == {3}
    for cover in (
        greedy_cover(targets, [4] * 9, width=5, cells=4.0**5, rng=rng()),
        group_cover(targets, 9, groups=5, rng=rng()),
    ):
        assert all(any(b & a == b for a in cover) for b in targets)
        assert len(cover) < len(targets) / 2
    assert max(a.bit_count() for a in greedy_cover(targets, [4] * 9, width=5, cells=4.0**4, rng=rng())) == 4


def test_every_guess_measures_what_is_needed() -> None:
    asked = demand(mixed_workload())
    sums, t = asked.everywhere()
    for restart in range(3):
        for weights in initial_weights(asked, rng=rng(), restart=restart):
            theta = np.zeros(len(t))
            theta[list(weights)] = list(weights.values())
            if max(a.bit_count() for a in weights) < len(asked.axes):
                continue
            assert math.isfinite(laplace_loss(sums, t, theta)[0])
