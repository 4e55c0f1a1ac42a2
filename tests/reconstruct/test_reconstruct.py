"""For every family, estimates are the least-squares ones and their variances are those of dense algebra."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hdmm
from hdmm import AllRange, Domain, Identity, Strategy, StrategyError, Workload
from hdmm.describe.product import Product
from hdmm.matrix import Cumulative, Dense, Eye, PIdentity, Residual, to_dense
from hdmm.reconstruct import least_squares as least_squares_module
from hdmm.reconstruct.estimate import CoordinateEstimate, all_values
from hdmm.reconstruct.least_squares import reconstruct
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.form import NoForm
from hdmm.strategy.lattice import Lattice
from tests.support import brute, families
from tests.support.effort import examples
from tests.support.families import FAMILIES, asks, dense_blocks
from tests.support.strategies import workloads

every = pytest.mark.parametrize("name", FAMILIES)
INFERRED = [name for name, strategy in FAMILIES.items() if strategy.inference != "none"]
inferred = pytest.mark.parametrize("name", INFERRED)
rng = np.random.default_rng(9)


def noisy(strategy: Strategy) -> tuple[list[np.ndarray], list[float]]:
    """Answers that no data vector has exactly, and units, as a release has them."""
    blocks = dense_blocks(strategy)
    x = rng.integers(0, 50, size=blocks[0][1].shape[1])
    units = [float(rng.choice([1.0, 0.25, 0.5])) for _ in blocks]
    return [B @ x / u + rng.normal(size=len(B)) * 9 for (_, B), u in zip(blocks, units, strict=True)], units


def least_squares(strategy: Strategy, answers: list[np.ndarray], units: list[float]) -> np.ndarray:
    blocks = dense_blocks(strategy)
    A = np.vstack([w * B for w, B in blocks])
    y = np.concatenate([w * u * a for (w, _), u, a in zip(blocks, units, answers, strict=True)])
    return np.linalg.lstsq(A, y, rcond=1e-12)[0]


def check(strategy: Strategy, workload: Workload, *, rel: float = 1e-7) -> None:
    answers, units = noisy(strategy)
    estimate = reconstruct(strategy.form, answers, units)
    x = least_squares(strategy, answers, units)
    for product in workload.products:
        W = to_dense(replace(product, weight=1.0).matrix)
        expected = W @ x
        np.testing.assert_allclose(
            estimate.values(product), expected, rtol=rel, atol=rel * np.abs(x).max() * W.shape[1]
        )


@inferred
def test_estimates_are_least_squares(name: str) -> None:
    check(FAMILIES[name], asks(FAMILIES[name]))


LATER = [
    Workload.marginals(Domain({f"a{i}": 2 + i for i in range(4)}), k=3),
    Workload.marginals(Domain({"a": 3, "b": 2, "c": 1, "d": 4}), k=[1, 2]),
]


@pytest.mark.parametrize("workload", LATER, ids=str)
def test_the_largest_parts_may_be_worked_out_when_a_table_asks_for_them(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, for tables that ask for them and for those that do not."""
    domain = workload.domain
    blocks = [Block(1.0 + j, [(i, Eye(domain.shape[i])) for i in p.axes]) for j, p in enumerate(workload.products)]
    strategy = Strategy(domain, tuple(blocks))
    answers, units = noisy(strategy)
    tables = (workload + Workload.marginals(domain, k=1)).products
    kept = reconstruct(strategy.form, answers, units)
    monkeypatch.setattr(least_squares_module, "_KEPT", 0)
    later = reconstruct(strategy.form, answers, units)
    assert isinstance(kept, CoordinateEstimate)
    assert isinstance(later, CoordinateEstimate)
    assert isinstance(kept.parts, dict)
    assert not isinstance(later.parts, dict)
    assert set(later.parts) == set(kept.parts)
    assert len(later.parts) == len(kept.parts)
    np.testing.assert_array_equal(all_values(later, tables), all_values(kept, tables))
    for product in tables:
        np.testing.assert_array_equal(later.values(product), kept.values(product))
    check(strategy, workload)


@inferred
def test_estimates_of_the_rounded_strategy(name: str) -> None:
    lattice = Lattice.of(FAMILIES[name], "laplace")
    weights = rng.uniform(0.1, 3.0, size=len(lattice.blocks))
    check(lattice.strategy.weighted(weights.tolist()), asks(FAMILIES[name]))


@examples(150)
@given(data=st.data())
def test_any_strategy_and_any_workload_that_it_supports(data: st.DataObject) -> None:
    strategy = data.draw(families.strategies())
    assume(strategy.inference != "none")
    integers = Lattice.of(strategy, "laplace")
    lattice = integers.strategy.weighted([data.draw(st.floats(0.3, 3)) for _ in integers.blocks])
    workload = data.draw(workloads(strategy.domain))
    A = families.dense(lattice)
    singular = np.linalg.svd(A, compute_uv=False)
    assume((singular[singular > 1e-12 * singular[0]] > 1e-4 * singular[0]).all())  # else lstsq and we both lose digits
    supported = tuple(p for p in workload.products if brute.supported(to_dense(replace(p, weight=1.0).matrix), A))
    assume(supported)
    check(lattice, Workload(strategy.domain, supported), rel=1e-5)


def test_a_workload_measured_directly_gets_its_own_answers() -> None:
    strategy = FAMILIES["direct"]
    answers, units = noisy(strategy)
    estimate = reconstruct(strategy.form, answers, units)
    for product, answer, unit in zip(families.DIRECT.products, answers, units, strict=True):
        assert (estimate.values(product) == answer * unit).all()
    asked = Workload.marginals(families.PLANE, k=1) + 3.0 * Workload.marginals(families.PLANE, k=1)
    twice = Strategy.direct(asked)  # measured twice: the one with less noise answers
    answers = [np.full(p.queries, float(k)) for k, p in enumerate(asked.products)]
    assert (reconstruct(twice.form, answers, [1.0] * 4).values(asked.products[0]) == 2.0).all()


@every
def test_variances_are_the_dense_ones(name: str) -> None:
    strategy = FAMILIES[name]
    blocks = dense_blocks(strategy)
    A = np.vstack([w * B for w, B in blocks])
    for product in asks(strategy).products:
        found = np.concatenate(list(strategy.variances(replace(product, weight=1.0))))
        if strategy.inference == "none":
            expected = np.full(product.queries, max(p.weight for p in [product]) ** -2.0)
        else:
            expected = np.sum((to_dense(replace(product, weight=1.0).matrix) @ np.linalg.pinv(A)) ** 2, axis=1)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["product", "two products", "marginals over bases", "no closed form", "nested splits"])
def test_variances_are_those_of_many_noisy_answers(name: str) -> None:
    """The estimate is linear: its covariance from unit vectors of noise is exact, not sampled."""
    strategy = FAMILIES[name]
    blocks = dense_blocks(strategy)
    sizes = [len(B) for _, B in blocks]
    w = asks(strategy)
    product = max(w.products, key=lambda p: p.queries)
    columns = []
    for j, size in enumerate(sizes):
        for k in range(size):
            answers = [np.zeros(s) for s in sizes]
            answers[j][k] = 1.0
            columns.append(reconstruct(strategy.form, answers, [1.0] * len(sizes)).values(product) / blocks[j][0])
    found = np.concatenate(list(strategy.variances(replace(product, weight=1.0))))
    np.testing.assert_allclose(np.sum(np.array(columns) ** 2, axis=0), found, rtol=1e-6)


def whole(strategy: Strategy) -> list[Product]:
    """The products it is asked for that are counts by some attributes, so that they sum to coarser ones."""
    products = asks(strategy).products
    return [p for p in products if p.factors and all(isinstance(s, Identity) for _, s in p.factors)]


@pytest.mark.parametrize("name", [name for name in INFERRED if whole(FAMILIES[name])])
def test_answers_agree_with_each_other(name: str) -> None:
    """A marginal summed is the coarser marginal, to the last digits; of all that infer, so not of direct answers."""
    strategy = FAMILIES[name]
    answers, units = noisy(strategy)
    estimate = reconstruct(strategy.form, answers, units)
    names = strategy.domain.names
    for product in whole(strategy):
        shape = [strategy.domain.shape[i] for i, _ in product.factors]
        table = estimate.values(product).reshape(shape)
        for k, (axis, _) in enumerate(product.factors):
            rest = {names[i]: Identity() for i, _ in product.factors if i != axis}
            coarse = estimate.values(Workload.product(strategy.domain, rest).products[0])
            scale = np.abs(table).max() * shape[k]
            np.testing.assert_allclose(table.sum(axis=k).ravel(), coarse, rtol=1e-9, atol=1e-9 * scale)


def test_a_hundred_attributes() -> None:
    """Marginals need only their own attributes: the domain has 2¹⁰⁰ cells."""
    domain = Domain({f"a{i}": 2 for i in range(100)})
    pairs = [(i, i + 1) for i in range(99)]
    strategy = Strategy(domain, tuple(Block(1.0, ((i, Eye(2)), (j, Eye(2)))) for i, j in pairs))
    answers = [np.array([10.0, 20.0, 30.0, 40.0]) for _ in pairs]
    estimate = reconstruct(strategy.form, answers, [1.0] * 99)
    w = Workload.marginals(domain, [(f"a{i}", f"a{j}") for i, j in pairs])
    tables = [estimate.values(p).reshape(2, 2) for p in w.products]
    assert all(t.sum() == pytest.approx(100) for t in tables)
    for left, right in itertools.pairwise(tables):
        np.testing.assert_allclose(left.sum(axis=0), right.sum(axis=1), rtol=1e-9)


def test_predicates_that_are_multiples_of_the_total() -> None:
    """On an attribute that is only totalled, a supported query is some multiple of the total."""
    strategy = Strategy(families.PLANE, (Block(1.0, ((0, Eye(4)),)),))
    estimate = reconstruct(strategy.form, [np.array([1.0, 2, 3, 4])], [1.0])
    thrice = Workload.product(families.PLANE, x=Identity(), y=hdmm.Vectors([[3.0, 3.0, 3.0]])).products[0]
    np.testing.assert_allclose(estimate.values(thrice), [3.0, 6.0, 9.0, 12.0])


def test_what_is_solved_by_iteration_refuses_what_it_does_not_see() -> None:
    blocks = [Block(1.0, b.factors) for b in FAMILIES["no closed form"].blocks]
    strategy = Strategy(Domain({"x": 4, "y": 3, "z": 2}), tuple(blocks))
    answers, units = noisy(strategy)
    estimate = reconstruct(NoForm(strategy.domain, strategy.blocks, ""), answers, units)
    for seen in (Workload.product(strategy.domain, x=AllRange()), Workload.marginals(strategy.domain, k=0)):
        assert len(estimate.values(seen.products[0])) == seen.queries
    unseen = Workload.product(strategy.domain, x=Identity(), z=Identity())
    with pytest.raises(StrategyError, match="does not measure everything"):
        estimate.values(unseen.products[0])


def test_a_strategy_that_cannot_be_solved_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, units = noisy(FAMILIES["no closed form"])
    monkeypatch.setattr(hdmm.reconstruct.least_squares, "_MAX_SOLVED", 3)
    with pytest.raises(StrategyError, match="no closed form"):
        reconstruct(NoForm(FAMILIES["no closed form"].domain, FAMILIES["no closed form"].blocks, ""), answers, units)


def test_a_table_too_large_to_estimate_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = FAMILIES["marginals"]
    answers, units = noisy(strategy)
    monkeypatch.setattr("hdmm.reconstruct.estimate.LARGEST_TABLE", 3)
    with pytest.raises(StrategyError, match="fewer attributes"):
        reconstruct(strategy.form, answers, units).values(
            Product(families.SOLID, ((0, Identity()), (1, Identity())), 1.0)
        )


def test_in_one_array_or_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("marginals with one over all", "marginals over bases, one over all", "nested splits", "two products"):
        strategy = FAMILIES[name]
        answers, units = noisy(strategy)
        whole = reconstruct(strategy.form, answers, units)
        with monkeypatch.context() as patch:
            patch.setattr(hdmm.reconstruct.least_squares, "_held", lambda form, _: never_totalled(form))
            parts = reconstruct(strategy.form, answers, units)
        assert len(whole.parts) == 1
        assert len(parts.parts) > 1 or name == "two products"
        for product in asks(strategy).products:
            np.testing.assert_allclose(whole.values(product), parts.values(product), rtol=1e-8, atol=1e-8)


def never_totalled(form: ClassForm) -> tuple[int, ...]:
    return tuple(i for i, axis in enumerate(form.axes) if axis.total is None)


def test_a_large_domain_is_one_array_where_its_answers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdmm.reconstruct.least_squares, "_WHOLE", 3)
    domain = Domain({"x": 4, "y": 4})
    for rows, count in ((4, 1), (2, 3)):  # 16 answers on 16 cells, and 8, beside the total
        x = Dense(np.arange(4 * rows).reshape(rows, 4) % 3)
        strategy = Strategy(domain, (Block(1.0, ((0, x), (1, Eye(4)))), Block(1.0, ())))
        answers, units = noisy(strategy)
        assert len(reconstruct(strategy.form, answers, units).parts) == count


def test_signed_queries() -> None:
    strategy = Strategy(Domain({"x": 2}), (Block(1.0, ((0, Dense([[1, 1], [1, -1]])),)),))
    estimate = reconstruct(strategy.form, [np.array([10.0, 4.0])], [1.0])
    np.testing.assert_allclose(estimate.values(Workload.marginals(strategy.domain, k=1).products[0]), [7.0, 3.0])


def test_a_total_beside_blocks_that_count_no_squares_has_a_form() -> None:
    bases = [(PIdentity([[0.0, 0.0, x]]), PIdentity([[x, 0.0]])) for x in (1.0, 2.0)]
    blocks = (*(Block(1.0, [(0, A), (1, B)]) for A, B in bases), Block(1.0, [(0, Eye(3)), (1, Eye(2))]))
    strategy = Strategy(Domain({"x": 3, "y": 2}), (*blocks, Block(1.0, [(0, Cumulative(3))]), Block(1.0, ())))
    assert isinstance(strategy.form, ClassForm)
    assert len(strategy.form.axes) == 1  # all attributes together


def test_blocks_of_residual_spaces_with_other_factors_are_answered_together() -> None:
    """Attributes that are alike, whose blocks measure the same spaces by factors of another size."""
    domain, once, twice = Domain({"a": 3, "b": 3, "c": 3}), Residual(3), Dense(2 * to_dense(Residual(3)).astype(int))
    single = [Block(1.0, [(i, once)]) for i in range(3)]
    pairs = [
        Block(2.0, [(0, once), (1, twice)]),
        Block(1.0, [(0, twice), (2, once)]),
        Block(3.0, [(1, once), (2, twice)]),
    ]
    strategy, w = Strategy(domain, (Block(1.0, ()), *single, *pairs)), Workload.marginals(domain, k=2)
    check(strategy, w)
    answers, units = noisy(strategy)
    estimate = reconstruct(strategy.form, answers, units)
    assert isinstance(estimate, CoordinateEstimate)
    assert len({id(axis) for axis in estimate.axes}) == 1  # so that all pairs are worked out together
    alone = np.concatenate([estimate.values(product) for product in w.products])
    np.testing.assert_allclose(all_values(estimate, w.products), alone, rtol=1e-12)


def test_an_estimate_of_many_marginals_takes_little_memory_beside_the_measurements() -> None:
    domain = Domain({f"a{i}": 10 for i in range(16)})
    w = Workload.marginals(domain, k=3)
    strategy = hdmm.optimize(w, noise="gaussian", progress=False).strategy
    answers = [rng.normal(size=block.rows) for block in strategy.blocks]
    form = strategy.form
    tracemalloc.start()
    try:
        estimate = reconstruct(form, answers, [1.0] * len(answers))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < sum(y.nbytes for y in answers) / 4
    assert np.isfinite(all_values(estimate, w.products)).all()
