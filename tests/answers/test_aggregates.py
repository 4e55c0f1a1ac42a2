"""Sums, means, percentages, ratios, differences and quantiles: exact against brute force, and covered by intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import (
    ZCDP,
    Amounts,
    Answers,
    Bins,
    Domain,
    DomainError,
    Identity,
    Integers,
    Labels,
    Noise,
    Prefix,
    PureDP,
    Release,
    SqlError,
    Strategy,
    StrategyError,
    Workload,
    WorkloadError,
    from_array,
)
from hdmm.answers.evaluate import evaluated
from hdmm.answers.margins import half_width
from hdmm.base.numbers import LEVEL
from hdmm.baselines import laplace
from hdmm.matrix import to_dense
from hdmm.measure.measure import measure
from hdmm.measure.measurement import noise_weight
from hdmm.sql import TableQuery, parse
from hdmm.strategy.lattice import resolution
from tests.support.chance import fewest
from tests.support.sql_table import DOMAIN as TABLE_DOMAIN
from tests.support.sql_table import Table

DOMAIN = Domain(
    {
        "sex": ["M", "F"],
        "age": Integers(-2, 5, outside="other"),
        "one": Integers(7, 7),
        "income": Bins([0, 10, 50, 100], values=[0, 30, 75.5]),
    }
)
EXACT = PureDP(10**6)
RNG = np.random.default_rng(0)
COUNTS = RNG.integers(0, 40, DOMAIN.shape)


def released(counts: Any, domain: Domain = DOMAIN, privacy: Any = EXACT) -> Release:
    return measure(Strategy.identity(domain), from_array(domain, counts), privacy, ledger=None)


def numbers(release: Release, statement: TableQuery, level: float = 0.95) -> tuple[Any, ...]:
    return evaluated(statement.aggregates, release.answer(statement.workload), level)


# Sums


def test_a_sum_is_the_values_times_the_counts() -> None:
    w = Workload.product(DOMAIN, sex=Identity(), age=Amounts.of(DOMAIN["age"]))
    ages = np.array([*range(-2, 6), 0])  # "other" adds nothing
    dense = np.kron(np.eye(2), np.kron(ages, np.ones(3)))
    np.testing.assert_array_equal(to_dense(w.matrix), dense)
    assert w == Workload.sql(DOMAIN, "SELECT sex, SUM(age) FROM t GROUP BY sex")
    assert [row[1] for row in w.labels()] == ["sum of age"] * 2


@pytest.mark.parametrize("noise", list(Noise))
def test_sensitivity_is_that_of_the_row_with_the_largest_values(noise: Noise) -> None:
    w = Workload.sql(DOMAIN, "SELECT sex, SUM(age), SUM(income), COUNT(*) FROM t GROUP BY sex")
    cells = to_dense(w.matrix).T  # what one row more changes, by its cell
    brute = max(float(np.linalg.norm(cell, ord=1 if noise is Noise.LAPLACE else 2)) for cell in cells)
    assert laplace(w).sensitivity(noise) == pytest.approx(brute, rel=1e-12)


def test_large_values_do_not_drown_counts() -> None:
    def plan(values: list[int]) -> hdmm.Plan:
        domain = Domain({"x": Bins([0, 1, 2, 3, 4], values=values)})
        tables = {"sum": Workload.product(domain, x=Amounts.of(domain["x"])), "counts": Workload.marginals(domain, k=1)}
        return hdmm.optimize(tables, objective="tables", restarts=2)

    small, large = plan([1, 2, 3, 4]), plan([10**6, 2 * 10**6, 3 * 10**6, 4 * 10**6])
    assert large.errors["counts"] == pytest.approx(small.errors["counts"], rel=1e-6)
    assert large.errors["sum"] == pytest.approx(10**6 * small.errors["sum"], rel=1e-6)  # in its own units
    assert large.value == pytest.approx(small.value, rel=1e-6)


def test_targets_of_sums_are_in_their_own_units() -> None:
    domain = Domain({"x": Integers(1, 100)})
    tables = {"sum": Workload.product(domain, x=Amounts.of(domain["x"]))}
    plan = hdmm.optimize(tables, targets={"sum": 1000}, restarts=1, time_limit=2)
    privacy = plan.privacy_for()
    stddev = plan.measure(from_array(domain, np.ones(100, int)), privacy, ledger=None).answer(tables["sum"]).stddev
    assert half_width(float(stddev[0]), LEVEL, Noise.LAPLACE) == pytest.approx(1000, rel=0.01)


def test_what_has_no_numbers_is_not_summed() -> None:
    for values in (Labels(["a", "b"]), bool, Bins([0, 1, 2])):
        with pytest.raises(DomainError, match=r"added up|add up"):
            Amounts.of(Domain({"x": values})["x"])
    with pytest.raises(WorkloadError, match=r"beyond 2\*\*53"):
        Amounts.of(Domain({"x": Integers(2**60, 2**60 + 1)})["x"])
    with pytest.raises(WorkloadError, match=r"beyond 2\*\*53"):
        Amounts([[2.0**60, 0]])
    with pytest.raises(DomainError, match="2 bins were given 3 values"):
        Bins([0, 1, 2], values=[1, 2, 3])
    with pytest.raises(DomainError, match="the value nan"):
        Bins([0, 1, 2], values=[1, math.nan])
    assert Amounts.of(Domain({"x": Labels([3, 1, 2.5])})["x"]).rows.tolist() == [[3, 1, 2.5]]
    assert Amounts.of(Domain({"x": Labels([0])})["x"]).largest == 1


# SQL

VALUED = Domain(
    [
        *(a for a in TABLE_DOMAIN.attributes if a.name != "income"),
        *Domain({"income": Bins([0, 10, 25.5, 40], values=[5, 20, 30])}).attributes,
    ]
)
SUMS = [
    "SELECT SUM(age) FROM t",
    "SELECT sex, SUM(age) FROM t GROUP BY sex",
    "SELECT sex, SUM(score) FROM t WHERE age > 3 GROUP BY sex",
    "SELECT region, SUM(score) FROM t GROUP BY region",
    "SELECT FLOOR(age / 5), SUM(age) FROM t GROUP BY 1",
    "SELECT age, SUM(2 * age - 7) FROM t GROUP BY age",
    "SELECT sex, SUM(CASE WHEN age >= 6 THEN 1 ELSE 0 END) FROM t GROUP BY sex",
    "SELECT sex, SUM(CASE WHEN employed THEN age ELSE -1 END) FROM t GROUP BY sex",
    "SELECT sex, SUM(CASE WHEN employed OR age > 5 THEN 3 WHEN region = 'N' THEN -2.5 END) FROM t GROUP BY sex",
    "SELECT sex, employed, SUM(age) FROM t WHERE sex = 'M' OR age < 4 GROUP BY ROLLUP(sex, employed)",
    "SELECT SUM(level) FROM t WHERE age BETWEEN 2 AND 7",
    "SELECT 'a', SUM(age) FROM t UNION ALL SELECT 'b', SUM(score) FROM t WHERE sex = 'F'",
    "SELECT SUM(7) FROM t WHERE sex = 'F'",
]


@pytest.fixture(scope="module")
def table() -> Table:
    return Table(rows=3000, seed=1)


def truth(table: Table, text: str) -> dict[tuple[Any, ...], float]:
    rows = table.connection.execute(text).fetchall()
    return {tuple(row[:-1]): float(row[-1] or 0) for row in rows}


def found(table: Table, domain: Domain, text: str) -> dict[tuple[Any, ...], float]:
    (statement,) = parse(domain, text)
    release = exact_release(table, domain)
    estimate, *_ = numbers(release, statement)
    labels = [tuple(None if x in ("(all)", "other") else x for x in row) for row in statement.labels()]
    return dict(zip(labels, estimate.tolist(), strict=True))


_RELEASES: dict[Domain, Release] = {}


def exact_release(table: Table, domain: Domain) -> Release:
    if domain not in _RELEASES:
        _RELEASES[domain] = released(domain.count(table.held).reshape(domain.shape), domain)
    return _RELEASES[domain]


@pytest.mark.parametrize("text", SUMS)
def test_sums_are_those_of_an_engine(table: Table, text: str) -> None:
    ours, engine = found(table, TABLE_DOMAIN, text), truth(table, text)
    assert ours.keys() >= engine.keys()
    for row, value in ours.items():
        assert value == pytest.approx(engine.get(row, 0.0), abs=0.5), row


@pytest.mark.parametrize("aggregate", ["AVG(age)", "AVG(score)", "AVG(level)", "QUANTILE(age, 0.3)"])
@pytest.mark.parametrize("rest", ["FROM t GROUP BY sex", "FROM t WHERE age > 3 OR employed GROUP BY sex"])
def test_means_and_quantiles_are_those_of_an_engine(table: Table, aggregate: str, rest: str) -> None:
    text = f"SELECT sex, {aggregate} {rest}"
    engine = truth(table, text.replace("QUANTILE", "QUANTILE_DISC"))
    for row, value in found(table, TABLE_DOMAIN, text).items():
        assert value == pytest.approx(engine[row], abs=1e-3), row


def test_quantiles_within_groups_of_the_same_column(table: Table) -> None:
    text = "SELECT employed, FLOOR(age / 5) AS five, sex, MEDIAN(age) FROM t GROUP BY employed, five, sex"
    engine = truth(table, text.replace("MEDIAN(age)", "QUANTILE_DISC(age, 0.5)"))
    ours = found(table, TABLE_DOMAIN, text)
    assert len(ours) == 12
    for row, value in ours.items():
        assert value == engine[row], row


def test_several_aggregates_share_their_queries() -> None:
    (many,) = parse(DOMAIN, "SELECT sex, COUNT(*), SUM(income), AVG(income), MEDIAN(age) AS m FROM t GROUP BY sex")
    assert many.columns == ("sex", "measure")
    assert list(many.labels()) == [
        (sex, m) for m, sex in product(["count", "SUM(income)", "AVG(income)", "m"], ["M", "F"])
    ]
    assert many.workload.queries == 2 + 2 + 2 * 8
    assert not many.linear
    assert many.combine is None
    estimate, *_ = numbers(released(COUNTS), many)
    sums = (COUNTS * np.array([0, 30, 75.5])).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(
        estimate[:6], [*COUNTS.sum(axis=(1, 2, 3)), *sums, *sums / COUNTS.sum(axis=(1, 2, 3))], 1e-4
    )


def test_bins_with_values_are_averaged_and_ranked_by_their_edges() -> None:
    (mean,) = parse(VALUED, "SELECT AVG(income) FROM t WHERE income < 25.5")
    counts = np.zeros(VALUED.shape, int)
    counts[..., :] = [3, 1, 8]
    assert numbers(released(counts, VALUED), mean)[0][0] == pytest.approx(35 / 4, abs=1e-3)
    (median,) = parse(VALUED, "SELECT MEDIAN(income) FROM t")
    estimate, _, lower, upper = numbers(released(counts, VALUED), median)
    assert (lower, upper) == (25.5, 40)
    assert estimate[0] == pytest.approx(25.5 + 14.5 * 2 / 8, abs=0.01)  # 6 of 12, of which 4 are below the bin


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT SUM(sex) FROM t", "'M' is not a number"),
        ("SELECT AVG(CASE WHEN age > 1 THEN 'a' ELSE 'b' END) FROM t", "'a' is not a number|'b' is not a number"),
        ("SELECT SUM(CASE WHEN age > 1 THEN TRUE ELSE FALSE END) FROM t", "is not a number"),
        ("SELECT MEDIAN(sex) FROM t", "sex has no order"),
        ("SELECT MEDIAN(age + 1) FROM t", "of a column"),
        ("SELECT QUANTILE(age, 1.5) FROM t", "between 0 and 1"),
        ("SELECT QUANTILE(age) FROM t", "something is missing"),
        ("SELECT SUM(age), SUM(age) FROM t", "more than once"),
        ("SELECT SUM(SUM(age)) FROM t", "cannot be added up"),
        ("SELECT SUM(age + income) FROM t", "cannot be added up"),
        ("SELECT SUM(DISTINCT age) FROM t", "DISTINCT is not supported"),
        ("SELECT SUM(0) FROM t", "added up is 0"),
        ("SELECT sex, SUM(age) AS s FROM t GROUP BY s", "does not name exactly one group column"),
        ("SELECT MEDIAN(age) FROM t UNION ALL SELECT MEDIAN(age) FROM t", "cannot be joined by UNION ALL"),
        ("SELECT SUM(age) FROM t UNION ALL SELECT COUNT(*) FROM t", "same place"),
    ],
)
def test_what_cannot_be_aggregated_is_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse(DOMAIN, text)


def test_bins_without_values_are_not_summed() -> None:
    with pytest.raises(SqlError, match="Declare one number per bin"):
        parse(TABLE_DOMAIN, "SELECT sex, AVG(income) FROM t GROUP BY sex")


def test_what_is_never_true_has_no_mean() -> None:
    (statement,) = parse(DOMAIN, "SELECT COUNT(*), SUM(age), AVG(age), MEDIAN(age) FROM t WHERE FALSE")
    estimate, stddev, lower, upper = numbers(released(COUNTS), statement)
    np.testing.assert_array_equal(estimate, [0, 0, math.nan, math.nan])
    np.testing.assert_array_equal(stddev, [0, 0, math.inf, math.inf])
    np.testing.assert_array_equal(lower, [0, 0, -math.inf, -math.inf])
    np.testing.assert_array_equal(upper, [0, 0, math.inf, math.inf])


def test_an_attribute_of_one_value_has_its_mean_and_median() -> None:
    (statement,) = parse(DOMAIN, "SELECT AVG(one), MEDIAN(one) FROM t")
    estimate, stddev, lower, upper = numbers(released(COUNTS, privacy=PureDP(1)), statement)
    np.testing.assert_allclose([estimate, lower, upper], 7)
    np.testing.assert_allclose(stddev, 0, atol=1e-6)


def test_a_mean_of_ones_is_not_a_count() -> None:
    (statement,) = parse(DOMAIN, "SELECT AVG(1) FROM t")
    assert not statement.counted
    assert numbers(released(COUNTS), statement)[0] == [1]


# Ratios


def answers_of(privacy: Any) -> tuple[Answers, Any]:
    """Answers by a strategy whose answers are correlated, and the covariance of what it answers."""
    domain = Domain({"a": 3, "b": 2})
    w = Workload.product(domain, a=Prefix(), b=Identity()) + 2.0 * Workload.marginals(domain, k=[0, 1])
    plan = hdmm.optimize(w, restarts=1, noise=privacy.noise)
    release = plan.measure(from_array(domain, [[30, 10], [20, 60], [5, 0]]), privacy, ledger=None)
    sizes = [len(each) for each in release.measurements]
    precise = [noise_weight(scale, resolution(scale, privacy.noise), privacy.noise) for scale in release.scales]
    weights = np.repeat(np.array(precise) / [block.weight for block in release.strategy.blocks], sizes)
    A = weights[:, None] * to_dense(release.strategy.matrix)
    W = to_dense(w.matrix)
    return release.answer(w), W @ np.linalg.pinv(A.T @ A) @ W.T


@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.1")], ids=str)
def test_ratios_and_differences_have_exact_variances(privacy: Any) -> None:
    answers, C = answers_of(privacy)
    first, second = np.array([0, 3, 5, 7]), np.array([4, 4, 6, 8])
    N, D = answers.values[first], answers.values[second]
    v, w, c = C[first, first], C[second, second], C[first, second]
    ratio = answers.ratio(first, second)
    np.testing.assert_allclose(ratio.values, N / D)
    r = N / D
    np.testing.assert_allclose(ratio.stddev, np.sqrt(v - 2 * r * c + r**2 * w) / abs(D), rtol=1e-6)
    lower, upper = ratio.interval(0.9)
    q = half_width(1.0, 0.9, privacy.noise)
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        tried = np.linspace(low - (high - low), high + (high - low), 3001)
        kept = tried[abs(N[i] - tried * D[i]) <= q * np.sqrt(v[i] - 2 * tried * c[i] + tried**2 * w[i])]
        assert (kept.min(), kept.max()) == pytest.approx((low, high), abs=2e-3 * (high - low))
    difference = answers.difference(first, second)
    np.testing.assert_allclose(difference.values, N - D)
    np.testing.assert_allclose(difference.stddev, np.sqrt(v - 2 * c + w), rtol=1e-6)


def test_rows_are_chosen_by_place_slice_or_coefficients() -> None:
    answers, _ = answers_of(PureDP(10))
    k = len(answers.values)
    some = answers.ratio(slice(0, 3), 4)
    matrix = np.eye(k)
    np.testing.assert_allclose(some.values, answers.ratio(matrix[:3], matrix[4:5]).values)
    np.testing.assert_allclose(some.interval(), answers.ratio([0, 1, 2], [4, 4, 4]).interval())
    np.testing.assert_allclose(answers.ratio(-1, 4).values, answers.values[-1] / answers.values[4])
    whole = answers.ratio(4, 4)
    np.testing.assert_allclose([*whole.values, *whole.stddev, *whole.interval()[0]], [1, 0, 1], atol=1e-6)
    for wrong in (k, [0, k], np.eye(k + 1), "x"):
        with pytest.raises(WorkloadError, match=r"places from 0 to|coefficient per query"):
            answers.ratio(wrong, 0)  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="compared with"):
        answers.ratio([0, 1], [0, 1, 2])


def test_a_ratio_over_what_may_be_0_is_unbounded() -> None:
    domain = Domain({"x": 3})
    w = Workload.marginals(domain, k=1)
    ratio = released([1000, 0, 1000], domain, PureDP(1)).answer(w).ratio([0, 0], [1, 2])
    lower, upper = ratio.interval(1 - 1e-9)
    assert (lower[0], upper[0]) == (-math.inf, math.inf)
    assert np.isfinite([lower[1], upper[1]]).all()
    zero = released([5, 0, 0], domain).answer(w)
    zero.centre[1] = 0.0  # exactly
    assert math.isnan(zero.ratio(0, 1).values[0])
    assert zero.ratio(0, 1).stddev[0] == math.inf


def test_the_change_between_two_releases_adds_their_variances() -> None:
    domain = Domain({"x": 3})
    w = 2.0 * Workload.marginals(domain, k=1)
    first, second = (released([100, 200, 300], domain, p).answer(w) for p in (PureDP(1), ZCDP("0.5")))
    change = first - second
    np.testing.assert_allclose(change.values, first.values - second.values)
    np.testing.assert_allclose(change.stddev, np.hypot(first.stddev, second.stddev))
    np.testing.assert_allclose(change.interval()[1] - change.values, half_width(change.stddev, LEVEL, Noise.LAPLACE))
    with pytest.raises(WorkloadError, match="one release"):
        first - first
    with pytest.raises(WorkloadError, match="different workloads"):
        first - released([1, 2, 3], domain).answer(Workload.marginals(domain, k=0))


@pytest.mark.parametrize("percent", ["row", "column", "total"])
def test_percentages_are_of_their_totals(percent: Any) -> None:
    domain = Domain({"a": 2, "b": 3, "c": 2})
    counts = RNG.integers(1, 99, domain.shape)
    (statement,) = parse(domain, "SELECT c, b, COUNT(*) FROM t WHERE a = 1 OR b < 2 GROUP BY c, b", percent=percent)
    kept = counts.copy()
    kept[0, 2] = 0
    cells = kept.sum(axis=0).T
    totals = {"row": cells.sum(axis=1, keepdims=True), "column": cells.sum(axis=0, keepdims=True), "total": cells.sum()}
    estimate, _, lower, upper = numbers(released(counts, domain), statement)
    for (c, b), value in zip(statement.labels(), estimate.tolist(), strict=True):
        assert value == pytest.approx((100 * cells / totals[percent])[c, b], abs=1e-2)  # type: ignore[index]
    assert ((lower <= estimate) & (estimate <= upper)).all()


@pytest.mark.parametrize(
    ("text", "percent", "message"),
    [
        ("SELECT COUNT(*) FROM t", "total", "Group by a column"),
        ("SELECT sex, COUNT(*) FROM t GROUP BY sex", "row", 'Use percent = "column"'),
        ("SELECT sex, COUNT(*) FROM t GROUP BY ROLLUP(sex)", "total", "need one GROUP BY"),
        ("SELECT sex, AVG(age) FROM t GROUP BY sex", "total", r"of one COUNT\(\*\) or SUM"),
    ],
)
def test_tables_without_totals_have_no_percentages(text: str, percent: Any, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse(DOMAIN, text, percent=percent)


# Quantiles


def test_quantiles_by_group_from_one_measurement() -> None:
    release = released(COUNTS)
    table = release.quantile("age", [0.75, 0.25], by=["sex"])
    assert table.attributes == ("sex", "quantile")
    assert list(table.labels()) == [("M", "0.75"), ("F", "0.75"), ("M", "0.25"), ("F", "0.25")]
    for row, (sex, q) in zip(table.estimate, table.labels(), strict=True):
        ages = np.repeat(np.arange(-2, 6), COUNTS[["M", "F"].index(sex or "")].sum(axis=(1, 2))[:-1])
        assert row == np.quantile(ages, float(q or 0), method="inverted_cdf")
    one = release.quantile("age")
    assert (one.attributes, len(one)) == ((), 1)
    with pytest.raises(WorkloadError, match="The quantile 1 is not between 0 and 1"):
        release.quantile("age", 1)


def test_more_of_a_quantile_is_never_less() -> None:
    domain = Domain({"x": 30})
    q = np.linspace(0.01, 0.99, 99).tolist()
    for _ in range(20):
        table = released(np.full(30, 4), domain, PureDP("0.5")).quantile("x", q)
        known = ~np.isnan(table.estimate)
        for each in (table.estimate[known], table.lower[known], table.upper[known]):
            assert (np.diff(each) >= 0).all()
        assert ((table.lower <= table.estimate) & (table.estimate <= table.upper))[known].all()


def test_quantiles_need_an_order_and_what_was_measured() -> None:
    release = released(COUNTS)
    for attribute, q, message in [("sex", 0.5, "no order"), ("age", 1.0, "between 0 and 1"), ("age", [], "a list of")]:
        with pytest.raises(WorkloadError, match=message):
            release.quantile(attribute, q)  # type: ignore[arg-type]
    with pytest.raises(DomainError, match="agee"):
        release.quantile("agee")
    with pytest.raises(DomainError, match="sexx"):
        release.quantile("age", by=["sexx"])
    total = laplace(Workload.marginals(DOMAIN, k=0))
    with pytest.raises(StrategyError, match="does not measure everything"):
        measure(total, from_array(DOMAIN, COUNTS), PureDP(1), ledger=None).quantile("age")


# Coverage

TEXTS = {
    "mean": "SELECT g, AVG(x) FROM t GROUP BY g",
    "median": "SELECT g, MEDIAN(x) FROM t GROUP BY g",
    "sum": "SELECT g, SUM(x) FROM t GROUP BY g",
}


def _exact(kind: str, counts: Any) -> Any:
    x = np.arange(-3, 7)
    if kind == "percent":
        return (100 * counts / counts.sum(axis=1, keepdims=True)).ravel()
    if kind == "sum":
        return counts @ x
    if kind == "mean":
        return counts @ x / counts.sum(axis=1)
    return np.array([np.quantile(np.repeat(x, row), 0.5, method="inverted_cdf") for row in counts])


@pytest.mark.parametrize("biased", [{"nonnegative": True}, {"integers": True}, {}], ids=str)
@pytest.mark.parametrize("text", TEXTS.values())
def test_a_number_and_its_interval_exist_together(text: str, biased: dict[str, bool]) -> None:
    """Noise may leave a group far below 0, whose count is then surely not 0, but 0 without negative counts."""
    domain = Domain({"g": 2, "x": Integers(-3, 6)})
    (statement,) = parse(domain, text)
    strategy = Strategy.identity(domain)
    for counts in (-500, 0, 500):
        release = measure(strategy, from_array(domain, np.ones(20, int)), PureDP(1), ledger=None)
        group = np.concatenate([np.full(10, counts), np.full(10, 50)])
        r = resolution(release.scales[0], Noise.LAPLACE)
        answers = replace(release, measurements=(r * group,)).answer(statement.workload, **biased)
        estimate, stddev, lower, upper = evaluated(statement.aggregates, answers, 0.95)
        exists = np.isfinite(estimate)
        assert (exists == np.isfinite(lower)).all()
        assert (exists == np.isfinite(upper)).all()
        assert (exists == np.isfinite(stddev)).all()
        assert exists[-1] or (biased and counts < 0)  # then all of the total may be below 0


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PureDP("0.5"), ZCDP("0.05")], ids=str)
@pytest.mark.parametrize("kind", ["mean", "median", "sum", "percent"])
def test_intervals_cover_with_at_least_their_level(kind: str, privacy: Any) -> None:
    """Groups of 400, 60 and 12 rows, 50 of each: with noise of a few rows per cell, the last are nearly lost in it."""
    domain = Domain({"g": 150, "x": Integers(-3, 6)})
    shares = np.array([1, 2, 3, 4, 8, 8, 5, 4, 3, 2]) / 40
    counts = np.tile(np.rint(np.array([[400], [60], [12]]) * shares).astype(int), (50, 1))
    if kind == "percent":
        (statement,) = parse(domain, "SELECT g, x, COUNT(*) FROM t GROUP BY g, x", percent="row")
    else:
        (statement,) = parse(domain, TEXTS[kind])
    plan = hdmm.optimize(statement.workload, restarts=1, noise=privacy.noise, time_limit=3)
    truth = _exact(kind, counts)
    level, runs, hits = 0.9, 60, np.zeros(3)
    for _ in range(runs):
        release = plan.measure(from_array(domain, counts), privacy, ledger=None)
        _, _, lower, upper = numbers(release, statement, level)
        hits += ((lower <= truth) & (truth <= upper)).reshape(50, 3, -1).mean(axis=(0, 2))
    draws = 50 * runs  # per size of group
    assert (hits * 50 >= fewest(draws, level, among=3)).all(), hits / runs


@pytest.mark.slow
@pytest.mark.parametrize("between", [lambda a, b: a.difference(0, 1), lambda a, b: a - b], ids=["rows", "releases"])
def test_differences_are_covered(between: Callable[[Answers, Answers], Any]) -> None:
    domain = Domain({"x": 2})
    w = Workload.marginals(domain, k=1)
    level, runs, hits = 0.9, 1500, 0
    for _ in range(runs):
        first, second = (released(counts, domain, PureDP(1)).answer(w) for counts in ([50, 20], [10, 20]))
        lower, upper = between(first, second).interval(level)
        truth = np.array([40, 0])[: len(lower)] if len(lower) == 2 else np.array([30])
        hits += int(((lower <= truth) & (truth <= upper))[0])
    assert hits >= fewest(runs, level)
