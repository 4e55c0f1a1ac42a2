"""Predicates on several attributes at once: every form against the dense one, and OPT_R against the definition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from hdmm import (
    AllRange,
    DifferenceAtMost,
    Domain,
    Identity,
    NotApplicableError,
    Prefix,
    Product,
    PureDP,
    Sets,
    StrategyError,
    SumAtMost,
    Total,
    Vectors,
    Weighted,
    Workload,
    WorkloadError,
    baselines,
    from_array,
    load_plan,
    load_release,
    lower_bound,
    optimize,
    unit_error,
)
from hdmm.matrix import Dense, Eye, PIdentity, to_dense
from hdmm.privacy.guarantee import ZCDP, Noise
from hdmm.reconstruct.least_squares import reconstruct
from hdmm.select.goal import Goal
from hdmm.select.means import centred
from hdmm.select.opt_m import opt_m
from hdmm.select.opt_x import opt_x
from hdmm.select.problem import Problem
from hdmm.select.search import first_search
from hdmm.select.spaces import opt_spaces
from hdmm.select.worst_optimum import worst_optimum
from hdmm.strategy.blocks import Block
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.lattice import Lattice
from hdmm.strategy.orthogonal import Orthogonal
from hdmm.strategy.strategy import Strategy, form_of
from tests.support.chance import near
from tests.support.families import dense

DOMAIN = Domain({"x": 3, "s": 2, "y": 4, "z": 3})
SHAPE = DOMAIN.shape
ASKED = {
    "a pair and a single": Workload.product(DOMAIN, {("x", "y"): SumAtMost(), "s": Identity()}),
    "a pair": Workload.product(DOMAIN, {("x", "z"): DifferenceAtMost()}),
    "two pairs that cross": Workload.product(DOMAIN, {("s", "y"): SumAtMost(), ("x", "z"): DifferenceAtMost()}),
    "a single before a pair": Workload.product(DOMAIN, {("y", "z"): SumAtMost(), "x": Prefix()}),
    "singles": Workload.product(DOMAIN, x=Prefix(), y=AllRange()),
    "the total": Workload.marginals(DOMAIN, k=0),
    "coefficients": Workload.product(DOMAIN, {("z", "x"): Vectors([[0.5, 0, 0, 1, 0, 0, 0, 0, -2]])}),
}
RNG = np.random.default_rng(5)
MEANS = [h / h.sum() for h in (RNG.uniform(0.2, 1.0, size=n) for n in SHAPE)]


def residual(axes: tuple[int, ...]) -> tuple[tuple[int, ...], Dense]:
    n = math.prod(SHAPE[i] for i in axes)
    return axes, Dense(centred(RNG.normal(size=(n, n)), even(SHAPE[i] for i in axes)))


def oblique(axes: tuple[int, ...]) -> tuple[tuple[int, ...], Dense]:
    """Rows without their means by weights that are not even."""
    n = math.prod(SHAPE[i] for i in axes)
    return axes, Dense(centred(RNG.normal(size=(n, n)), [MEANS[i] for i in axes]))


def even(sizes: Iterable[int]) -> list[np.ndarray]:
    return [np.full(n, 1 / n) for n in sizes]


def own(i: int) -> PIdentity:
    return PIdentity(RNG.uniform(size=(1, SHAPE[i])))


def subsets(most: int) -> list[tuple[int, ...]]:
    return [b for k in range(most + 1) for b in itertools.combinations(range(4), k)]


SPACES = [Block(float(RNG.uniform(0.5, 1.5)), [residual(b)] if b else []) for b in subsets(4)]
STRATEGIES = {
    "identity": Strategy.identity(DOMAIN),
    "marginals": Strategy(DOMAIN, tuple(Block(1 / (1 + len(b)), [(i, Eye(SHAPE[i])) for i in b]) for b in subsets(3))),
    "product": Strategy(DOMAIN, (Block(1.0, [(i, own(i)) for i in range(4)]),)),
    "two products": Strategy(DOMAIN, tuple(Block(1.0, [(i, own(i)) for i in range(4)]) for _ in range(2))),
    "three products": Strategy(DOMAIN, tuple(Block(1.0, [(i, own(i)) for i in range(4)]) for _ in range(3))),
    "a table": Strategy(DOMAIN, (Block(1.0, [(0, Eye(3)), (2, Eye(4))]),)),
    "groups": Strategy(
        DOMAIN, (Block(1.0, [((0, 2), Dense(RNG.normal(size=(12, 12)))), (1, Eye(2)), (3, Eye(3))]), Block(0.4, []))
    ),
    "groups that cross": Strategy(
        DOMAIN, (Block(1.0, [((0, 2), Dense(RNG.normal(size=(13, 12)))), ((1, 3), Dense(RNG.normal(size=(7, 6))))]),)
    ),
    "all spaces": Strategy(DOMAIN, tuple(SPACES)),
    "spaces of up to three": Strategy(DOMAIN, tuple(b for b in SPACES if len(b.axes) < 4)),
    "oblique spaces": Strategy(
        DOMAIN, tuple(Block(float(RNG.uniform(0.5, 1.5)), [oblique(b)] if b else []) for b in subsets(4))
    ),
    "oblique spaces of few attributes": Strategy(
        DOMAIN,
        tuple(Block(1 / (1 + len(b)), [oblique(b)] if b else []) for b in [(), (0,), (2,), (0, 2), (3,), (2, 3)]),
    ),
    "oblique spaces of products": Strategy(
        DOMAIN,
        tuple(Block(1.0, [oblique(b[:2]), *([oblique(b[2:])] if b[2:] else [])] if b else []) for b in subsets(3)),
    ),
    "spaces of products": Strategy(
        DOMAIN,
        tuple(Block(b.weight, [residual(b.axes[:2]), residual(b.axes[2:])]) if len(b.axes) == 3 else b for b in SPACES),
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_predicates_on_several_attributes_by_every_form(name: str) -> None:
    strategy = STRATEGIES[name]
    A = dense(strategy)
    inverse, unseen = np.linalg.pinv(A.T @ A), np.eye(A.shape[1]) - np.linalg.pinv(A) @ A
    answers = [RNG.normal(size=block.rows) for block in strategy.blocks]
    estimate = reconstruct(strategy.form, answers, [1.0] * len(answers))
    x = np.linalg.pinv(A) @ np.concatenate([b.weight * y for b, y in zip(strategy.blocks, answers, strict=True)])
    seen: list[tuple[Product, np.ndarray]] = []
    for workload in ASKED.values():
        (product,), W = workload.products, to_dense(workload.matrix)
        supported = bool(np.abs(W @ unseen).max() < 1e-9)
        assert math.isfinite(strategy.total_variance(workload)) == supported
        if supported:
            seen.append((product, W))
            covariance = W @ inverse @ W.T
            assert strategy.total_variance(workload) == pytest.approx(np.trace(covariance))
            np.testing.assert_allclose(np.concatenate(list(strategy.variances(product))), np.diag(covariance))
            np.testing.assert_allclose(estimate.values(product), W @ x, atol=1e-9)
    for (first, W), (second, U) in itertools.product(seen, repeat=2):
        rows, others = RNG.integers(len(W), size=9), RNG.integers(len(U), size=9)
        found = strategy.form.covariances(first, rows, second, others)
        np.testing.assert_allclose(found, (W @ inverse @ U.T)[rows, others], atol=1e-9)
    assert seen
    assert isinstance(strategy.form, Orthogonal) == ("space" in name)


def test_blocks_that_see_a_total_are_no_residual_spaces() -> None:
    seeing = Block(1.0, [((0, 1), Dense(np.eye(6)))])
    assert Orthogonal.of(DOMAIN, (Block(1.0, ()), seeing)) is None
    assert Orthogonal.of(DOMAIN, (SPACES[5], SPACES[5])) is None  # two blocks in one space


def pairs(n: int, d: int, predicates: SumAtMost | DifferenceAtMost) -> Workload:
    domain = Domain({f"a{i}": n for i in range(d)})
    found = [Workload.product(domain, {name: Prefix()}) for name in domain.names]
    found += [Workload.product(domain, {pair: predicates}) for pair in itertools.combinations(domain.names, 2)]
    return Workload(domain, tuple(product for w in found for product in w.products))


@pytest.mark.parametrize("predicates", [SumAtMost(), DifferenceAtMost()], ids=repr)
def test_each_space_is_measured_at_its_optimum(predicates: SumAtMost | DifferenceAtMost) -> None:
    """No strategy beats the singular values; nor is any neighbour of a factor better than the factor."""
    w = pairs(4, 3, predicates)
    strategy = opt_spaces(Problem(w, Noise.GAUSSIAN), first_search())
    W, A = to_dense(w.matrix), dense(strategy)
    error = (A**2).sum(axis=0).max() * np.trace(W @ np.linalg.pinv(A.T @ A) @ W.T)
    assert unit_error(w, strategy, noise=Noise.GAUSSIAN) == pytest.approx(error, rel=1e-9)
    assert error >= lower_bound(w, ZCDP("0.5"))
    for block in strategy.blocks[-3:]:
        (axes, factor) = block.factors[0]
        B = to_dense(factor).astype(float)
        V = _asked(w, axes)
        least = (B**2).sum(axis=0).max() * np.trace(V @ np.linalg.pinv(B.T @ B))
        for _ in range(20):
            moved = (
                B
                + 0.02
                * np.abs(B).max()
                * centred(RNG.normal(size=B.shape), even([4] * len(axes)))
                @ np.linalg.pinv(B)
                @ B
            )
            assert (moved**2).sum(axis=0).max() * np.trace(V @ np.linalg.pinv(moved.T @ moved)) > least * (1 - 1e-3)


def _asked(w: Workload, axes: tuple[int, ...]) -> np.ndarray:
    """WᵀW of the queries on exactly these two attributes, in their residual space."""
    (product,) = (p for p in w.products if p.joint and p.joint[0][0] == axes)
    rows = centred(to_dense(product.joint[0][1].matrix(16)).astype(float), even((4, 4)))
    return rows.T @ rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "predicates", "published"),
    [(10, SumAtMost(), 28.04), (10, DifferenceAtMost(), 30.25)],
    ids=str,
)
def test_pairs_of_forty_attributes_are_below_what_is_published(
    n: int, predicates: SumAtMost | DifferenceAtMost, published: float
) -> None:
    w = pairs(n, 40, predicates)
    strategy = opt_spaces(Problem(w, Noise.GAUSSIAN), first_search())
    assert math.sqrt(unit_error(w, strategy, noise=Noise.GAUSSIAN) / w.queries) < published
    assert Lattice.of(strategy, Noise.GAUSSIAN, workload=w).blocks[-1].factors == strategy.blocks[-1].factors


def test_the_sensitivity_of_many_overlapping_pairs_is_never_understated(monkeypatch: pytest.MonkeyPatch) -> None:
    """On few attributes it is exact; on many the blocks' largest norms are summed, which is never less."""
    strategy = opt_spaces(Problem(pairs(3, 4, SumAtMost()), Noise.GAUSSIAN), first_search())
    squares, sums = (dense(strategy) ** 2).sum(axis=0).max(), np.abs(dense(strategy)).sum(axis=0).max()
    assert strategy.sensitivity("gaussian") == pytest.approx(math.sqrt(squares))
    assert strategy.sensitivity("laplace") == pytest.approx(sums)
    monkeypatch.setattr("hdmm.strategy.strategy._MOST_TOGETHER", 1)
    listed = Strategy(strategy.domain, strategy.blocks)
    each = [
        (b.weight, to_dense(A).astype(float)) for b in strategy.blocks for _, A in b.factors or [((), Dense([[1]]))]
    ]
    norm = sum(w**2 * (A**2).sum(axis=0).max() for w, A in each)
    assert listed.sensitivity("gaussian") == pytest.approx(math.sqrt(norm))
    assert norm >= squares * (1 - 1e-12)
    assert listed.sensitivity("laplace") >= sums * (1 - 1e-12)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_optimize_beats_every_cell_on_overlapping_pairs(noise: str) -> None:
    w = pairs(4, 4, DifferenceAtMost())
    plan = optimize(w, noise=noise, restarts=1)
    W, A = to_dense(w.matrix), dense(plan.strategy)
    norm = (A**2).sum(axis=0).max() if noise == "gaussian" else np.abs(A).sum(axis=0).max() ** 2
    assert plan.error == pytest.approx(norm * np.trace(W @ np.linalg.pinv(A.T @ A) @ W.T), rel=1e-6)
    assert plan.error < 0.5 * unit_error(w, Strategy.identity(w.domain))


def test_coefficients_that_are_not_whole_can_be_measured() -> None:
    w = ASKED["coefficients"] + Workload.product(DOMAIN, {("x", "s"): Weighted(SumAtMost((3, 2)), [1, 0.3, 2, 1])})
    strategy = opt_spaces(Problem(w, Noise.GAUSSIAN), first_search())
    rounded = Lattice.of(strategy, Noise.GAUSSIAN, workload=w).strategy
    assert math.isfinite(unit_error(w, rounded, noise=Noise.GAUSSIAN))


def test_what_takes_single_attributes_only_says_so() -> None:
    w = ASKED["a pair"]
    for operator in (opt_m, opt_x):
        with pytest.raises(WorkloadError, match="on several attributes at once"):
            operator(Problem(w), first_search())
    with pytest.raises(NotApplicableError, match="defined for marginals"):
        baselines.datacube(w)
    with pytest.raises(WorkloadError, match="on several attributes at once"):
        _ = w.products[0].predicates


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({("x", "y"): SumAtMost(), "x": Prefix()}, "share an attribute"),
        ({("x", "x"): SumAtMost()}, "twice"),
        ({"x": SumAtMost()}, "about two attributes at once"),
        ({("x", "y", "s"): SumAtMost()}, "about two attributes at once"),
        ({("x", "y"): [[1, 0, 0]]}, "has 12 values, but its predicate matrix has 3 columns"),
    ],
    ids=lambda each: str(each) if isinstance(each, str) else "",
)
def test_predicates_that_do_not_fit(given: dict[str | tuple[str, ...], SumAtMost], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Workload.product(DOMAIN, given)


def test_queries_and_labels_of_pairs_are_in_one_order() -> None:
    w = Workload.product(DOMAIN, {("y", "x"): SumAtMost(), "s": Identity()})
    x, s, y, _ = np.indices(SHAPE).reshape(4, -1)
    expected = [(x + y <= c) & (s == k) for c in range(6) for k in range(2)]
    np.testing.assert_array_equal(to_dense(w.matrix), np.array(expected))
    np.testing.assert_allclose(to_dense(w.gram), to_dense(w.matrix).T @ to_dense(w.matrix))
    assert list(w.labels())[:2] == [("x + y ≤ 0", "0"), ("x + y ≤ 0", "1")]
    whole = (w + w + ASKED["a pair"]).compact()
    np.testing.assert_allclose(to_dense(whole.gram), to_dense((w + w + ASKED["a pair"]).gram))
    assert len(whole.products) == 2


def test_the_worst_query_on_pairs_is_pursued() -> None:
    w = pairs(4, 4, SumAtMost())
    tables = {
        "sums": Workload(w.domain, tuple(p for p in w.products if p.joint)),
        "prefixes": Workload(w.domain, tuple(p for p in w.products if not p.joint)),
    }
    goals = [Goal.of(tables, objective) for objective in ("tables", "worst")]
    found = [opt_spaces(Problem.of(goal, Noise.GAUSSIAN), first_search()) for goal in goals]
    total, worst = (max(goals[1].worst(strategy, Noise.GAUSSIAN).values()) for strategy in found)
    assert worst < 0.97 * total


SMALL = Domain({"x": 3, "s": 2, "y": 3})
TABLES = {
    "sums": Workload.product(SMALL, {("x", "y"): SumAtMost()}),
    "near": Workload.product(SMALL, {("s", "y"): DifferenceAtMost(), "x": Prefix()}),
    "sets": 2.0 * Workload.product(SMALL, {("y", "s"): Sets({"a": [0, 3], "b": [1, 4]})}),
    "plain": Workload.marginals(SMALL, k=1),
}


@pytest.mark.parametrize("objective", ["total", "tables", "worst", "targets"])
@pytest.mark.parametrize("privacy", [ZCDP("0.5"), PureDP(1)], ids=str)
def test_what_is_planned_is_measured_answered_and_read_back(
    privacy: ZCDP | PureDP, objective: str, tmp_path: Path
) -> None:
    asked = {"targets": {"sums": 4.0}} if objective == "targets" else {"objective": objective}
    plan = optimize(TABLES, noise=privacy.noise, restarts=1, **asked)  # pyright: ignore[reportArgumentType]
    w, A = plan.workload, dense(plan.strategy)
    W, inverse = to_dense(w.matrix), np.linalg.pinv(A.T @ A)
    gaussian = privacy.noise is Noise.GAUSSIAN
    unit = (A**2).sum(axis=0).max() if gaussian else np.abs(A).sum(axis=0).max() ** 2
    variances = unit * np.einsum("ij,jk,ik->i", W, inverse, W)
    assert plan.error == pytest.approx(variances.sum(), rel=1e-6)
    weights = np.repeat([p.weight for p in w.products], [p.queries for p in w.products])
    published = variances / weights**2  # tables print rows without the weights
    assert max(plan.worst.values()) == pytest.approx(math.sqrt(published.max()), rel=1e-6)
    if gaussian and objective in ("worst", "targets"):  # written out, which bounds what any strategy has
        assert plan.gap is not None
        assert plan.gap < 1e-3
    elif gaussian:
        assert plan.gap is not None
        assert plan.gap < 0.25
    else:
        assert plan.gap is None
    assert "It measures" in plan.explain()
    counts = np.arange(SMALL.size) * 10
    release = plan.measure(from_array(SMALL, counts), privacy, ledger=None)
    answers = release.answer(w)
    assert near(answers, W @ counts)
    assert (release.answer(w, nonnegative=True).values >= 0).all()
    assert next(table.name for table in answers.tables()) == "x, y"
    assert load_plan(plan.save(tmp_path / "plan")).error == plan.error
    np.testing.assert_array_equal(load_release(release.save(tmp_path / "release")).answer(w).values, answers.values)


@pytest.mark.slow
def test_on_few_cells_the_worst_query_is_as_good_as_any_strategy_has_it() -> None:
    plan = optimize(TABLES, objective="worst", noise="gaussian")
    assert plan.operator == "OPT_0"
    assert plan.value <= 1.001 * worst_optimum(plan.goal).bound


def test_spaces_that_are_too_large_are_measured_by_all_their_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hdmm.select.means._MOST_ENTRIES", 1)
    monkeypatch.setattr("hdmm.select.operators._MOST_JOINT", 1)
    plan = optimize(TABLES, noise="gaussian")
    assert plan.operator == "OPT_R"
    assert plan.error < unit_error(plan.workload, Strategy.identity(SMALL), noise=Noise.GAUSSIAN)


def test_sets_of_several_kinds_on_two_attributes_in_any_order() -> None:
    w = Workload.product(SMALL, {("y", "x"): SumAtMost() | Sets({"first": [1]}) | Total()})
    x, _, y = np.indices(SMALL.shape).reshape(3, -1)
    expected = [*(x + y <= c for c in range(5)), (y == 0) & (x == 1), x >= 0]
    np.testing.assert_array_equal(to_dense(w.matrix), np.array(expected))
    weighted = Workload.product(SMALL, {("x", "y"): Weighted(SumAtMost(), [1, 2, 3, 4, 5])})
    np.testing.assert_array_equal(to_dense(weighted.matrix), np.array(expected[:5]) * np.arange(1, 6)[:, None])


def test_what_cannot_be_written_out_says_so() -> None:
    wide = Domain({f"a{i}": 10 for i in range(40)})
    with pytest.raises(WorkloadError, match="next to each other"):
        _ = Workload.product(wide, {("a0", "a7"): SumAtMost()}).matrix
    with pytest.raises(WorkloadError, match="coarser bins"):
        Workload.product(Domain({"x": 5000, "y": 5000}), {("x", "y"): SumAtMost()})
    domain = Domain({"x": 80, "y": 80})
    bases = [PIdentity(RNG.uniform(size=(2, 80))) for _ in range(3)]
    blocks = (*(Block(1.0, [(0, base), (1, Eye(80))]) for base in bases[:2]), Block(1.0, [(0, bases[2])]))
    with pytest.raises(StrategyError, match=r"up to 4,096 cells"):
        unit_error(Workload.product(domain, {("x", "y"): SumAtMost()}), Strategy(domain, blocks))


def test_a_large_factor_that_sees_totals_is_not_written_out() -> None:
    """In whichever order the factors are looked at: blocks that total something are in no residual space."""
    domain = Domain({"x": 3, "y": 2, "copy": 20_000})
    together = Block(1.0, (((0, 1), Dense(np.eye(6))), ((2,), Eye(20_000))))
    form = form_of(Strategy(domain, (together,)))
    assert isinstance(form, ClassForm)
    assert len(form.axes) == 2
