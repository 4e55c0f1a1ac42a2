"""Known counts: reproduced exactly, without noise, and all other answers are least squares under that condition."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hdmm import (
    ZCDP,
    AllRange,
    Domain,
    DomainError,
    Identity,
    Known,
    Ledger,
    Noise,
    Prefix,
    PureDP,
    Strategy,
    StrategyError,
    Workload,
    combine,
    from_array,
    from_table,
    load_plan,
    optimize,
    unit_error,
)
from hdmm.describe.product import Product
from hdmm.matrix import to_dense
from hdmm.measure.measure import measure
from hdmm.measure.measurement import noise_weight
from hdmm.measure.release import Release, load_release
from hdmm.privacy.guarantee import Privacy
from hdmm.reconstruct.known import known_counts
from hdmm.strategy.informed import WithExactBlocks
from hdmm.strategy.lattice import resolution
from tests.support.chance import fewest
from tests.support.families import FAMILIES, asks, dense_blocks

rng = np.random.default_rng(8)
HALF = PureDP("0.5")
INFERRED = [name for name, strategy in FAMILIES.items() if strategy.inference != "none"]
COUNTS = {s.domain: rng.integers(0, 90, size=s.domain.shape) for s in FAMILIES.values()}


def released(strategy: Strategy, privacy: Privacy = HALF) -> Release:
    data = from_array(strategy.domain, COUNTS[strategy.domain])
    return measure(strategy, data, privacy, ledger=None)


def known(domain: Domain, *names: str) -> Known:
    axes = [domain.axis(name) for name in names]
    others = tuple(i for i in range(len(domain)) if i not in axes)
    return Known(domain, names, COUNTS[domain].sum(axis=others).transpose(np.argsort(np.argsort(axes))))


def by(domain: Domain, *sets: tuple[int, ...]) -> tuple[Product, ...]:
    """Marginals on these attributes, as a strategy knows them."""
    return tuple(Product(domain, tuple((i, Identity()) for i in axes)) for axes in sets)


def constrained(release: Release, given: list[Known]) -> tuple[np.ndarray, np.ndarray]:
    """(x̂, covariance) by dense least squares over x = x₀ + Nz, where N spans what the known counts leave open."""
    noise = release.privacy.noise
    rows, answers = [], []
    for (_, B), y, scale in zip(dense_blocks(release.strategy), release.measurements, release.scales, strict=True):
        r = resolution(scale, noise)
        rows.append(noise_weight(scale, r, noise) * B)
        answers.append(noise_weight(scale, r, noise) * y / r)
    A, y = np.vstack(rows), np.concatenate(answers)
    C = np.vstack([to_dense(k.product.matrix) for k in given])
    c = np.concatenate([k.counts.ravel() for k in given])
    start = np.linalg.lstsq(C, c.astype(float), rcond=1e-10)[0]
    assert np.allclose(C @ start, c)
    _, s, Vt = np.linalg.svd(C)
    N = Vt[np.count_nonzero(s > 1e-9) :].T
    values, Q = np.linalg.eigh((A @ N).T @ (A @ N))
    seen = values > 1e-10 * np.linalg.norm(A.T @ A, 2)
    inverse = (Q[:, seen] / values[seen]) @ Q[:, seen].T
    return start + N @ inverse @ (A @ N).T @ (y - A @ start), N @ inverse @ N.T


def check(release: Release, given: list[Known], workload: Workload) -> None:
    """Answers and variances against dense constrained least squares."""
    found = release.answer(workload, known=given)
    x, covariance = constrained(release, list(known_counts(release.domain, given)))
    W = to_dense(workload.matrix)
    scale = np.abs(W).sum(axis=1).max() * 90
    np.testing.assert_allclose(found.values, W @ x, rtol=1e-6, atol=1e-7 * scale)
    variances = np.einsum("ij,jk,ik->i", W, covariance, W)
    np.testing.assert_allclose(found.stddev**2, variances, rtol=1e-6, atol=1e-9 * variances.max(initial=1.0))


@pytest.mark.parametrize("privacy", [PureDP("0.5"), ZCDP("0.125")], ids=str)
@pytest.mark.parametrize("name", INFERRED)
def test_a_known_total_informs_every_strategy(name: str, privacy: Privacy) -> None:
    release = released(FAMILIES[name], privacy)
    check(release, [known(release.domain)], asks(FAMILIES[name]))
    answers = release.answer(Workload.marginals(release.domain, k=0), known=known(release.domain))
    assert (answers.values[0], answers.stddev[0]) == (COUNTS[release.domain].sum(), 0.0)


@pytest.mark.parametrize("name", INFERRED)
def test_a_known_marginal_informs_every_strategy(name: str) -> None:
    """Of the first attribute, of the last two; also where the strategy does not measure them at all."""
    release = released(FAMILIES[name])
    domain = release.domain
    for names in (domain.names[:1], domain.names[-2:]):
        given = known(domain, *names)
        told = release.answer(Workload.marginals(domain, [names]), known=given)
        assert (told.values == given.counts.ravel()).all()
        assert (told.stddev == 0).all()
        check(release, [given], asks(FAMILIES[name]))


@pytest.mark.parametrize(
    "name", ["identity", "marginals", "marginals over bases", "no closed form", "overlapping pairs"]
)
def test_several_known_marginals(name: str) -> None:
    """Overlapping ones, whose totals agree; what they say together is known, too."""
    release = released(FAMILIES[name])
    names = release.domain.names
    check(release, [known(release.domain, names[0]), known(release.domain, names[-1])], asks(FAMILIES[name]))
    if len(names) > 2:
        check(release, [known(release.domain, *p) for p in itertools.combinations(names, 2)], asks(FAMILIES[name]))


def test_known_counts_lower_errors_and_never_raise_them() -> None:
    release = released(FAMILIES["marginals"])
    asked = asks(FAMILIES["marginals"])
    before = release.answer(asked).stddev
    after = release.answer(asked, known=known(release.domain, "x")).stddev
    assert (after <= before * (1 + 1e-9)).all()
    assert after.sum() < 0.9 * before.sum()


def test_queries_within_known_counts_are_exact_to_the_last_digit() -> None:
    domain = Domain({"age": 50, "sex": 2})
    counts = np.random.default_rng(1).integers(0, 10**9, size=domain.shape)
    release = measure(Strategy.identity(domain), from_array(domain, np.zeros_like(counts)), PureDP(1), ledger=None)
    asked = Workload.product(domain, age=AllRange()) + Workload.product(domain, age=Prefix(), sex=Identity())
    told = release.answer(asked, known=Known(domain, ["age", "sex"], counts))
    assert (told.values == to_dense(asked.matrix) @ counts.ravel()).all()
    lower, upper = told.interval()
    assert (lower == told.values).all()
    assert (upper == told.values).all()


def test_the_order_of_attributes_is_the_givers() -> None:
    domain = Domain({"a": 2, "b": 3})
    one, other = Known(domain, ["a", "b"], [[1, 2, 3], [4, 5, 6]]), Known(domain, ["b", "a"], [[1, 4], [2, 5], [3, 6]])
    assert (one.counts == other.counts).all()
    assert other.attributes == ("a", "b")
    assert len(known_counts(domain, [one, other, Known(domain, ["b"], [5, 7, 9])])) == 1


def test_many_attributes_with_a_known_marginal() -> None:
    """30 attributes: nothing is written out over the cells."""
    domain = Domain({f"a{i}": 4 for i in range(30)})
    w = Workload.marginals(domain, k=[1, 2])
    strategy = Strategy(domain, tuple(replace(b) for b in Strategy.direct(w).blocks))
    strategy = replace(strategy, known=by(domain, (0, 1), (2,)))
    assert isinstance(strategy.form, WithExactBlocks)
    assert not strategy.form.conditions
    plain = replace(strategy, known=()).total_variance(w)
    assert 0 < strategy.total_variance(w) < plain
    assert strategy.total_variance(Workload.marginals(domain, [["a0", "a1"], ["a2"], []])) == 0


def test_forms_are_chosen_by_what_diagonalises() -> None:
    for name, conditioned in (("marginals", False), ("product", False), ("no closed form", True)):
        strategy = FAMILIES[name]
        form = replace(strategy, known=by(strategy.domain, ())).form
        assert isinstance(form, WithExactBlocks)
        assert bool(form.conditions) == conditioned, name


def test_a_release_keeps_what_was_known(tmp_path: Path) -> None:
    release = released(FAMILIES["marginals"]).informed(known(FAMILIES["marginals"].domain, "sex"))
    back = load_release(release.save(tmp_path / "release"))
    asked = asks(FAMILIES["marginals"])
    np.testing.assert_allclose(back.answer(asked).values, release.answer(asked).values, rtol=1e-12)
    assert back.known[0].attributes == ("sex",)
    plain = released(FAMILIES["marginals"])
    assert "known" not in (plain.save(tmp_path / "plain") / "release.json").read_text()
    both = combine([release, plain], same_rows=True)
    assert both.answer(Workload.marginals(both.domain, [["sex"]])).stddev.max() == 0


def test_nonnegative_estimates_take_known_counts() -> None:
    for name in ("marginals with one over all", "no closed form", "merged, not neighbours"):
        release = released(FAMILIES[name], PureDP("0.05"))
        given = known(release.domain)
        cells = Workload.product(release.domain, {n: Identity() for n in release.domain.names[:1]})
        told = release.answer(cells, nonnegative=True, known=given)
        assert (told.values >= 0).all()
        assert told.values.sum() == pytest.approx(given.total, rel=1e-9)
        by_first = known(release.domain, release.domain.names[0])
        last = Workload.product(release.domain, {n: Identity() for n in release.domain.names})
        told = release.answer(last, nonnegative=True, known=[by_first, known(release.domain, release.domain.names[-1])])
        cells = told.values.reshape(release.domain.shape)
        assert (cells >= 0).all()
        np.testing.assert_allclose(cells.reshape(len(cells), -1).sum(axis=1), by_first.counts, rtol=1e-6)


SEXES = Domain({"sex": ["M", "F"], "age": 3})


@pytest.mark.parametrize(
    ("attributes", "counts", "words"),
    [
        (["sex"], [1, 2, 3], "shape"),
        ([], [5], "one number"),
        (["sex"], [1, -2], "negative"),
        (["sex"], [1, 2.5], "whole numbers"),
        (["sex"], [1, float("nan")], "whole numbers"),
        (["sex"], [1, float("inf")], "whole numbers"),
        (["sex"], ["1", "2"], "whole numbers"),
        (["sex"], [True, False], "whole numbers"),
        (["sex"], [2**53, 2**53], "2\\*\\*53"),
        (["sex", "age"], [[1, 2], [3]], "shape"),
        (["race"], [1, 2], "not in the domain"),
        (["sex", "sex"], [[1, 2], [3, 4]], "twice"),
        ("sex", [1, 2], "Give a list"),
    ],
)
def test_counts_that_are_none_are_refused(attributes: list[str], counts: object, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        Known(SEXES, attributes, counts)


def test_known_counts_that_contradict_each_other_are_refused() -> None:
    by_sex, by_age = Known(SEXES, ["sex"], [10, 20]), Known(SEXES, ["age"], [10, 10, 11])
    with pytest.raises(StrategyError, match="totals differ"):
        known_counts(SEXES, [by_sex, by_age])
    both = Known(SEXES, ["sex", "age"], [[5, 5, 1], [5, 5, 9]])
    with pytest.raises(StrategyError, match="different counts by sex"):
        known_counts(SEXES, [by_sex, both])
    with pytest.raises(StrategyError, match="another domain"):
        known_counts(Domain({"sex": 2}), by_sex)
    with pytest.raises(StrategyError, match="Known\\(domain, attributes, counts\\)"):
        known_counts(SEXES, [7])  # type: ignore[list-item]
    with pytest.raises(StrategyError, match="as they were measured"):
        replace(FAMILIES["direct"], known=by(FAMILIES["direct"].domain, ()))


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PureDP("0.5"), ZCDP("0.125")], ids=str)
def test_intervals_cover_with_known_counts(privacy: Privacy) -> None:
    """90 % intervals, 800 times, with a known marginal: no query is covered less than its level."""
    strategy = FAMILIES["marginals"]
    asked, given = asks(strategy), known(strategy.domain, "x")
    truth = to_dense(asked.matrix) @ COUNTS[strategy.domain].ravel()
    times, covered = 800, np.zeros(asked.queries)
    for _ in range(times):
        told = released(strategy, privacy).answer(asked, known=given)
        lower, upper = told.interval(0.9)
        covered += (lower - 1e-6 <= truth) & (truth <= upper + 1e-6)
    assert covered.min() >= fewest(times, 0.9, among=asked.queries)
    assert covered[told.stddev > 0].mean() / times < 0.97


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_plan_spends_nothing_on_what_is_known(noise: str, tmp_path: Path) -> None:
    """Marginals by age and sex where those by sex are public: the plan is better than one that does not know it."""
    domain = Domain({"sex": 2, "age": 8, "race": 4})
    w = Workload.marginals(domain, k=[1, 2])
    public = Known(domain, ["sex"], [300, 340])
    unaware = optimize(w, noise=noise, restarts=1)
    aware = optimize(w, noise=noise, restarts=1, known=public)
    later = replace(unaware.strategy, known=by(domain, (0,)))
    assert aware.error <= unit_error(w, later, noise=Noise.of(noise)) * (1 + 1e-9)
    assert aware.error < 0.97 * unaware.error
    assert all(block.axes not in ((), (0,)) for block in aware.strategy.blocks)
    assert (aware.gap is None) if noise == "laplace" else (aware.gap < 1e-3)
    back = load_plan(aware.save(tmp_path / "plan"))
    assert back.error == pytest.approx(aware.error, rel=1e-12)
    counts = rng.multinomial(300, np.full(32, 1 / 32)), rng.multinomial(340, np.full(32, 1 / 32))
    data = from_array(domain, np.stack(counts).reshape(domain.shape))
    release = back.measure(data, PureDP(1) if noise == "laplace" else ZCDP(1), ledger=None)
    told = release.answer(Workload.marginals(domain, [["sex"], []]))
    assert (told.values == [300, 340, 640]).all()
    assert release.error(w) == pytest.approx(aware.rmse(release.privacy) ** 2 * w.queries, rel=0.02)


def test_the_optimum_beside_known_marginals_under_gaussian_noise() -> None:
    """Residual spaces outside the known ones, in closed form: (Σ √(v p))² over these."""
    domain = Domain({"a": 3, "b": 4, "c": 5})
    w = Workload.marginals(domain, k=2)
    found = optimize(w, noise="gaussian", known=Known(domain, ["a", "b"], np.ones((3, 4), int)))
    v = {}
    for b in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), ()]:
        v[b] = sum(
            np.prod([domain.shape[i] - 1 for i in b]) * np.prod([1 / domain.shape[i] for i in B if i not in b])
            for B in itertools.combinations(range(3), 2)
            if set(b) <= set(B)
        )
    p = {b: np.prod([1 - 1 / domain.shape[i] for i in b]) for b in v}
    best = sum(np.sqrt(v[b] * p[b]) for b in [(2,), (0, 2), (1, 2)]) ** 2
    assert found.error == pytest.approx(best, rel=1e-6)


def test_a_wide_plan_with_a_known_marginal() -> None:
    domain = Domain({f"a{i}": 6 for i in range(40)})
    w = Workload.marginals(domain, k=[1, 2])
    plan = optimize(w, noise="gaussian", known=Known(domain, ["a3"], [5] * 6))
    data = from_table(domain, pa.table({f"a{i}": np.repeat(np.arange(6), 5) for i in range(40)}))
    told = plan.measure(data, ZCDP(10), ledger=None).answer(w)
    assert (told.tables()[3].estimate == 5).all()
    assert told.stddev[18:24].max() == 0
    assert told.stddev[24:].min() > 0


def test_known_counts_are_refused_before_the_debit(tmp_path: Path) -> None:
    domain = Domain({"sex": 2, "age": 4})
    w = Workload.marginals(domain, k=[1])
    by_sex, by_age = Known(domain, ["sex"], [10, 20]), Known(domain, ["age"], [9, 9, 9, 9])
    with pytest.raises(StrategyError, match="contradict"):
        optimize(w, known=[by_sex, by_age])
    with pytest.raises(StrategyError, match="nothing to measure"):
        optimize(Workload.marginals(domain, [["sex"]]), known=by_sex)
    ledger = Ledger(tmp_path / "budget.db", dataset="people", cap=PureDP(1))
    data = from_array(domain, np.ones(domain.shape, dtype=np.int64))
    plan = optimize(w, known=by_sex, restarts=1)
    for wrong, words in (([by_sex, by_age], "contradict"), ([], "relies on known counts by sex")):
        with pytest.raises(StrategyError, match=words):
            measure(plan.strategy, data, PureDP(1), ledger=ledger, known=wrong)
    with pytest.raises(StrategyError, match="as they were measured"):
        measure(Strategy.direct(w), data, PureDP(1), ledger=ledger, known=[by_sex])
    assert ledger.remaining == 1


def test_tables_that_are_known_leave_bases_as_they_are() -> None:
    """Nothing measures what is known whole; OPT_G then has nothing to descend on, and says so without a warning."""
    domain = Domain({"sex": ["M", "F"], "age": 30, "tract": 6})
    places = Workload.product(domain, {"tract": Prefix()}) + Workload.marginals(domain, [("sex", "age")])
    known = Known(domain, ["tract"], [7, 6, 7, 6, 7, 7])
    plan = optimize(places, known=known, noise="gaussian", restarts=1)
    assert plan.strategy.form.total_variance(Workload.marginals(domain, [("tract",)]).products) == 0
