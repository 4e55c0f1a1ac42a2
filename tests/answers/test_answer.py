"""Answers: order, weights, deviations, margins of error and tables."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import fftconvolve
from scipy.special import ndtr

import hdmm
from hdmm import (
    ZCDP,
    AllRange,
    Domain,
    Identity,
    Prefix,
    PureDP,
    Strategy,
    StrategyError,
    Workload,
    WorkloadError,
    from_array,
)
from hdmm.answers.margins import _quantile, half_width
from hdmm.matrix import Eye, to_dense
from hdmm.measure.measure import measure
from hdmm.measure.measurement import noise_weight
from hdmm.measure.release import Release
from hdmm.privacy.guarantee import Noise
from hdmm.strategy.blocks import Block
from hdmm.strategy.form import Direct
from tests.noise.exact import gaussian_below, laplace_below
from tests.support import families
from tests.support.effort import examples
from tests.support.families import FAMILIES, PLANE, SOLID, asks, dense_blocks, in_noise
from tests.support.strategies import workloads

every = pytest.mark.parametrize("name", FAMILIES)
LEVELS = [0.5, 0.68, 0.8, 0.9, 0.9075, 0.91, 0.95, 0.99, 0.999]

SAMPLER = {"laplace": "discrete_laplace", "gaussian": "rounded_gaussian"}


def exact(name: str, monkeypatch: pytest.MonkeyPatch, privacy: hdmm.PureDP | ZCDP) -> tuple[Release, np.ndarray]:
    """A release without noise that believes it has some, and the counts it is of."""
    for noise in (Noise.LAPLACE, Noise.GAUSSIAN):
        monkeypatch.setattr(hdmm.noise.draws, SAMPLER[noise], lambda scale, size: np.zeros(size, np.int64))
    domain = FAMILIES[name].domain
    x = np.random.default_rng(2).integers(0, 99, size=domain.shape)
    return measure(FAMILIES[name], from_array(domain, x), privacy, ledger=None), x.reshape(-1, 1)


@every
@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.5")], ids=[Noise.LAPLACE, Noise.GAUSSIAN])
def test_values_are_of_the_rows_and_tables_are_counts(
    name: str, privacy: PureDP | ZCDP, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, x = exact(name, monkeypatch, privacy)
    w = asks(FAMILIES[name])
    answers = release.answer(w)
    np.testing.assert_allclose(answers.values, w.matrix.matmat(x)[:, 0], rtol=1e-7, atol=1e-5)
    tables = answers.tables()
    assert len(tables) == len(w.products)
    plain = [replace(p, weight=1.0).matrix.matmat(x)[:, 0] for p in w.products]
    for table, counts in zip(tables, plain, strict=True):
        np.testing.assert_allclose(table.estimate, counts, rtol=1e-7, atol=1e-5)
    weights = np.repeat([p.weight for p in w.products], [p.queries for p in w.products])
    np.testing.assert_allclose(answers.stddev, weights * np.concatenate([t.stddev for t in tables]))


@every
@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.5")], ids=[Noise.LAPLACE, Noise.GAUSSIAN])
def test_deviations_are_exact(name: str, privacy: PureDP | ZCDP, monkeypatch: pytest.MonkeyPatch) -> None:
    """stddev² is the variance of W A⁺ Z, with Z of the release's own noise."""
    release, _ = exact(name, monkeypatch, privacy)
    w = asks(FAMILIES[name])
    if name == "direct":
        expected = np.concatenate([[p.weight * s for s in _plain(release, p)] for p in w.products])
    else:
        A = np.vstack([weight * B for weight, B in dense_blocks(in_noise(release))])
        expected = np.sqrt(np.sum((to_dense(w.matrix) @ np.linalg.pinv(A)) ** 2, axis=1))
    np.testing.assert_allclose(release.answer(w).stddev, expected, rtol=1e-6)
    near = np.sqrt(hdmm.query_variance(w, FAMILIES[name], privacy))  # of the strategy before rounding
    np.testing.assert_allclose(np.linalg.norm(release.answer(w).stddev), np.linalg.norm(near), rtol=0.03)


def _plain(release: Release, product: hdmm.Product) -> list[float]:
    form = release.form
    assert isinstance(form, Direct)
    measured = form.block_of(product)
    assert measured is not None
    return [1 / form.blocks[measured].weight] * product.queries


@examples(60)
@given(data=st.data())
def test_any_workload_from_the_identity(data: st.DataObject) -> None:
    w = data.draw(workloads(SOLID))
    x = np.random.default_rng(0).integers(0, 9, size=SOLID.shape)
    answers = measure(Strategy.identity(SOLID), from_array(SOLID, x), PureDP(100), ledger=None).answer(w)
    truth = w.matrix.matmat(x.reshape(-1, 1))[:, 0]
    assert (np.abs(answers.values - truth) <= 30 * answers.stddev + 1e-9).all()
    assert answers.values.shape == answers.stddev.shape == (w.queries,)
    lower, upper = answers.interval(0.9)
    assert (lower <= upper).all()


def test_products_of_weight_zero_have_tables_and_values_of_zero() -> None:
    w = Workload.product(PLANE, x=Prefix()) + 0.0 * Workload.product(PLANE, y=Identity())
    answers = measure(Strategy.identity(PLANE), from_array(PLANE, np.full(12, 5)), PureDP(9), ledger=None).answer(w)
    assert (answers.values[4:] == 0).all()
    assert (answers.stddev[4:] == 0).all()
    assert (answers.tables()[1].stddev > 0).all()


def test_a_product_of_weight_zero_that_is_not_supported_is_refused_and_the_rest_is_answered() -> None:
    """Nothing is lost: the release answers every workload that it does support."""
    w = Workload.product(PLANE, x=Prefix())
    nothing = 0.0 * Workload.product(PLANE, x=Identity(), y=Identity())
    strategy = Strategy(PLANE, (Block(1.0, ((0, Eye(4)),)),))
    release = measure(strategy, from_array(PLANE, np.full(12, 5)), PureDP(9), ledger=None, workload=w + nothing)
    with pytest.raises(StrategyError, match="does not measure everything that product"):
        release.answer(w + nothing)
    assert release.answer(w).values.shape == (4,)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("the total", Workload.marginals(PLANE, k=1)),
        ("product with totals", Workload.marginals(SOLID, k=3)),
        ("direct", Workload.marginals(PLANE, k=2)),
        ("nested splits without the cells", Workload.product(PLANE, x=Identity())),
        ("no closed form, partial", Workload.marginals(PLANE, k=2)),
        ("signed", Workload.product(PLANE, x=Identity())),
    ],
)
def test_what_is_not_supported_is_refused_in_words(name: str, asked: Workload) -> None:
    release = measure(
        FAMILIES[name], from_array(asked.domain, np.zeros(asked.domain.size, int)), PureDP(1), ledger=None
    )
    with pytest.raises(StrategyError, match="does not measure everything that product"):
        release.answer(asked)


def test_another_domain_or_too_many_queries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    release = measure(FAMILIES["identity"], from_array(PLANE, np.zeros(12, int)), PureDP(1), ledger=None)
    with pytest.raises(StrategyError, match="one Domain"):
        release.answer(Workload.marginals(SOLID, k=1))
    monkeypatch.setattr(hdmm.answers.answers, "_MOST_QUERIES", 3)
    with pytest.raises(StrategyError, match="a few at a time"):
        release.answer(Workload.marginals(PLANE, k=1))


def test_a_table_reads_well() -> None:
    domain = Domain({"sex": ["M", "F"], "age": hdmm.Bins([0, 18, 65]), "code": 30})
    x = np.ones(domain.shape, int)
    release = measure(Strategy.identity(domain), from_array(domain, x), PureDP(1000), ledger=None)
    w = Workload.product(domain, sex=Identity(), age=Prefix()) + Workload.marginals(domain, k=0)
    w = w + Workload.product(domain, code=Identity())
    table, total, long = release.answer(w).tables(level=0.9)
    assert table.attributes == ("sex", "age")
    assert len(table) == 4
    assert [row[0] for row in table.labels()] == ["M", "M", "F", "F"]
    columns = table.columns()
    assert list(columns) == ["sex", "age", "estimate", "stddev", "lower", "upper"]
    assert columns["sex"].tolist() == ["M", "M", "F", "F"]
    assert columns["age"].tolist() == [row[1] for row in table.labels()]
    assert columns["age"].tolist() == columns["age"].tolist()[:2] * 2
    half = half_width(table.stddev, 0.9, Noise.LAPLACE)
    assert columns["upper"] - columns["lower"] == pytest.approx(2 * half)
    assert columns["upper"] - columns["estimate"] == pytest.approx(half)
    lines = str(table).splitlines()
    assert lines[0].split()[:3] == ["sex", "age", "estimate"]
    assert lines[0].split()[3:] == ["90", "%", "from", "to"]
    assert len(lines) == 5
    assert (table.name, total.name) == ("sex × age", "total")
    assert total.attributes == ()
    assert len(total) == 1
    assert str(total).splitlines()[0].split()[0] == "estimate"
    assert str(long).splitlines()[-1] == "… 10 more rows"
    assert repr(release.answer(w)) == "Answers(35 queries in 3 tables)"


def test_an_attribute_named_like_a_number_stays_beside_it() -> None:
    domain = Domain({"estimate": ["M", "F"], "Lower": 2})
    release = measure(Strategy.identity(domain), from_array(domain, np.ones((2, 2), int)), PureDP(1), ledger=None)
    (table,) = release.answer(Workload.marginals(domain, k=2)).tables()
    columns = table.columns()
    assert list(columns) == ["estimate_", "Lower_", "estimate", "stddev", "lower", "upper"]
    assert columns["estimate_"].tolist() == ["M", "M", "F", "F"]
    np.testing.assert_array_equal(columns["estimate"], table.estimate)


@pytest.mark.parametrize("bad", [0, 1, -0.1, 95, math.nan])
def test_a_level_is_between_0_and_1(bad: float) -> None:
    with pytest.raises(WorkloadError, match="confidence level"):
        half_width(1.0, bad, Noise.LAPLACE)


def coverage(weights: np.ndarray, z: float) -> float:
    """P(|Σ a_i X_i| ≤ z) of independent Laplace variables of unit variance, Σ a_i² = 1.

    By inversion of the characteristic function Π 1/(1 + a_i²t²/2): ∫ φ(t) sin(zt)/(πt) dt over the line.
    """
    a2 = weights**2 / np.sum(weights**2)
    t = np.linspace(0, 4000, 4_000_001)[1:]
    with np.errstate(under="ignore"):
        phi = np.ones_like(t)
        for value in a2:
            phi /= 1 + value * t * t / 2
    y = phi * np.sin(z * t) / t
    h = t[0]
    integral = h * (y.sum() - y[-1] / 2 + z / 2)  # the trapezium, with its first point z·h/2
    return 2 / math.pi * integral


def test_the_inversion_is_right() -> None:
    """Against the closed forms of one and of two."""
    for z in (0.5, 1.0, 2.0):
        assert coverage(np.array([1.0]), z) == pytest.approx(1 - math.exp(-math.sqrt(2) * z), abs=2e-6)
        assert coverage(np.ones(2), z) == pytest.approx(1 - math.exp(-2 * z) * (1 + z), abs=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_intervals_cover_whatever_the_weights(level: float) -> None:
    """Laplace noise without steps: any weighted sum stays within z deviations at least with this probability."""
    z = _quantile(level, Noise.LAPLACE)
    generator = np.random.default_rng(1)
    tried = [np.ones(k) for k in (1, 2, 3, 4, 5, 7, 10, 30)]
    tried += [np.r_[1.0, np.full(k, e)] for k in (1, 2, 5, 30) for e in (0.1, 0.3, 0.6)]
    tried += [generator.exponential(size=int(generator.integers(2, 12))) ** 2 for _ in range(12)]
    worst = min(coverage(weights, z) for weights in tried)
    assert worst >= level - 1e-5


def test_margins_known() -> None:
    """The quantile of continuous noise, and a step of the least noise: 1/64 of its deviation, or 1/(64√2)."""
    assert half_width(1.0, 0.95, Noise.GAUSSIAN) == pytest.approx(1.959964 + 1 / 64, abs=1e-6)
    assert half_width(1.0, 0.95, Noise.LAPLACE) == pytest.approx(
        -math.log(0.05) / math.sqrt(2) + 1 / (64 * math.sqrt(2)), abs=1e-6
    )
    assert half_width(1.0, 0.5, Noise.LAPLACE) == pytest.approx(0.67449 + 1 / (64 * math.sqrt(2)), abs=1e-5)


STEPS = [Fraction(64), Fraction(129, 2), Fraction(70), Fraction(100), Fraction(3001, 30), Fraction(127), Fraction(1000)]


def covered(scale: Fraction, noise: hdmm.Noise, z: float) -> float:
    """P(|Z| ≤ z·stddev) of a single draw, from its distribution."""
    if noise == Noise.LAPLACE:
        half = math.floor(z / noise_weight(scale, 1, noise))
        below = laplace_below(scale)
    else:
        half = math.floor(z / noise_weight(scale**2, 1, noise))
        below = gaussian_below(scale**2)
    return below(half + 1) - below(-half)


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
@pytest.mark.parametrize("scale", STEPS, ids=str)
def test_a_single_count_is_covered_with_its_level(scale: Fraction, noise: hdmm.Noise) -> None:
    """O5: at every scale from the least on, exactly, discreteness included."""
    for level in [*LEVELS, *np.linspace(0.005, 0.995, 199), 1e-6, 1 - 1e-9]:
        assert covered(scale, noise, half_width(1.0, level, noise)) >= level - 1e-13


def test_without_a_step_a_single_count_is_not() -> None:
    """The test above can fail: at scale 64 and 95 %, Laplace noise covers 0.94982."""
    assert covered(Fraction(64), Noise.LAPLACE, _quantile(0.95, Noise.LAPLACE)) == pytest.approx(0.949824, abs=1e-6)
    scales = [Fraction(k, 2) for k in range(128, 256)]
    assert min(covered(s, Noise.GAUSSIAN, _quantile(0.95, Noise.GAUSSIAN)) for s in scales) < 0.9495


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
@pytest.mark.parametrize("weights", [(1, 1), (1, 2), (2, 3), (1, 1, 1), (1, 5), (1, 1, 1, 1, 1)], ids=str)
def test_sums_on_the_lattice_are_covered(weights: tuple[int, ...], noise: hdmm.Noise) -> None:
    """O5: whole multiples of draws of the least scale, their distribution by convolution."""
    reach = 64 * 25
    z = np.arange(-reach, reach + 1)
    one = (
        np.exp(-np.abs(z) / 64) if noise == Noise.LAPLACE else np.diff(ndtr((np.arange(-reach, reach + 2) - 0.5) / 64))
    )
    one /= one.sum()
    total = np.ones(1)
    for weight in weights:
        spread = np.zeros(weight * (len(z) - 1) + 1)
        spread[::weight] = one
        total = fftconvolve(total, spread)
    middle = len(total) // 2
    unit = noise_weight(Fraction(64 if noise == Noise.LAPLACE else 64**2), 1, noise)
    stddev = math.sqrt(sum(w * w for w in weights)) / unit
    for level in LEVELS:
        half = math.floor(half_width(stddev, level, noise))
        assert total[middle - half : middle + half + 1].sum() >= level - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PureDP("1/64"), ZCDP("1/8192")], ids=[Noise.LAPLACE, Noise.GAUSSIAN])
def test_published_intervals_cover_at_the_least_scale(privacy: PureDP | ZCDP) -> None:
    """O5: 8 million draws of a release; five standard errors are 0.0004."""
    n = 8_000_000
    domain = Domain({"x": n})
    release = measure(Strategy.identity(domain), from_array(domain, np.zeros(n, dtype=int)), privacy, ledger=None)
    assert release.scales == (64 if privacy.noise == Noise.LAPLACE else 64**2,)
    lower, upper = release.answer(Workload.product(domain, x=Identity())).interval(0.95)
    assert 0.95 <= ((lower <= 0) & (upper >= 0)).mean() < 0.953


def test_ranges_of_a_product_are_in_query_order(monkeypatch: pytest.MonkeyPatch) -> None:
    release, x = exact("merged, not neighbours", monkeypatch, PureDP(1))
    w = Workload.product(families.SOLID, x=AllRange(), y=Prefix(), sex=Identity())
    np.testing.assert_allclose(release.answer(w).values, w.matrix.matmat(x)[:, 0], rtol=1e-7, atol=1e-5)


def test_a_hundred_attributes_have_answers_and_deviations() -> None:
    domain = Domain({f"a{i}": 2 for i in range(100)})
    strategy = Strategy(domain, tuple(Block(1.0, ((i, Eye(2)), (i + 1, Eye(2)))) for i in range(99)))
    import pandas as pd

    frame = pd.DataFrame(np.zeros((50, 100), dtype=int), columns=list(domain.names))
    release = measure(strategy, hdmm.from_table(domain, frame), PureDP(100), ledger=None)
    answers = release.answer(Workload.marginals(domain, k=1))
    assert (np.abs(answers.values - np.tile([50, 0], 100)) <= 20 * answers.stddev).all()
