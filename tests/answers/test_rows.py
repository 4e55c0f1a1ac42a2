"""Rows made from releases: near what was measured, exact where that is promised, and from nothing but the release."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hdmm import (
    ZCDP,
    AllRange,
    Amount,
    Bins,
    DifferenceAtMost,
    Domain,
    DomainError,
    Identity,
    Integers,
    Known,
    Labels,
    Prefix,
    PureDP,
    Ranges,
    Strategy,
    StrategyError,
    SumAtMost,
    Workload,
    WorkloadError,
    combine,
    from_array,
    from_table,
    optimize,
)
from hdmm.answers.rows import INSIDE, SyntheticRows
from hdmm.measure.measure import measure
from hdmm.measure.release import Release
from hdmm.measure.synthesis import expected_distances
from hdmm.privacy.guarantee import Privacy
from hdmm.strategy.class_form import ClassForm
from hdmm.strategy.informed import WithExactBlocks
from hdmm.strategy.orthogonal import Orthogonal
from tests.support.chance import settled
from tests.support.families import FAMILIES, marginals

TWO = PureDP(2)
INFERRED = [name for name, strategy in FAMILIES.items() if strategy.inference != "none"]
TRACTS = Labels(["T1", "T2", "T3", "T4"], levels={"county": ["Kent", "Essex", "Kent", "Essex"]})
TOWN = Domain({"sex": ["M", "F"], "tract": TRACTS, "age": Bins([0, 18, 30, 65, 100]), "job": ["none", "a", "b"]})
PEOPLE = np.random.default_rng(12).integers(0, 60, size=TOWN.shape)
THREE_HUNDRED = np.random.default_rng(13).multinomial(300, np.full(TOWN.size, 1 / TOWN.size)).reshape(TOWN.shape)


@pytest.fixture(autouse=True)
def same_noise() -> Iterator[None]:
    """How near rows are to noisy answers has no known bound: 1 release in 80 was further than 2 deviations."""
    with settled("rows"):
        yield


def released(domain: Domain, x: np.ndarray, privacy: Privacy = TWO, k: int = 2) -> Release:
    plan = optimize(Workload.marginals(domain, k=k), restarts=1, noise=privacy.noise)
    return plan.measure(from_array(domain, x), privacy, ledger=None)


@pytest.fixture(scope="module")
def town() -> Release:
    with settled("town"):  # made before the fixture of a test is
        return released(TOWN, PEOPLE)


def counts(rows: SyntheticRows, *names: str) -> np.ndarray:
    axes = [rows.domain.axis(name) for name in names]
    found = np.zeros([rows.domain.shape[i] for i in axes], np.int64)
    np.add.at(found, tuple(rows.codes[i] for i in axes), 1)
    return found


def marginal(x: np.ndarray, domain: Domain, *names: str) -> np.ndarray:
    axes = [domain.axis(name) for name in names]
    kept = x.sum(axis=tuple(i for i in range(x.ndim) if i not in axes))
    return kept.transpose([sorted(axes).index(i) for i in axes])


@pytest.mark.parametrize("name", INFERRED)
def test_every_family_of_strategies_gives_rows_near_what_it_measured(name: str) -> None:
    strategy = FAMILIES[name]
    x = np.random.default_rng(14).integers(20, 90, size=strategy.domain.shape)
    release = measure(strategy, from_array(strategy.domain, x), PureDP(5), ledger=None)
    if name == "the total":
        with pytest.raises(StrategyError, match="nothing about any attribute"):
            release.rows()
        return
    rows = release.rows()
    assert abs(len(rows) - x.sum()) < 0.2 * x.sum()
    assert all(near.typical < 3 for near in rows.closeness), rows.closeness


@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.1")], ids=str)
def test_rows_are_as_near_as_noise_allows(privacy: Privacy) -> None:
    rows = released(TOWN, PEOPLE, privacy).rows()
    assert max(near.typical for near in rows.closeness) < 2


def test_rows_depend_on_the_release_alone(town: Release) -> None:
    """The same release gives the same rows, whatever lies in memory; and there is no way from the data to them."""
    again = Release(town.strategy, town.scales, town.privacy, town.unit, town.measurements, town.parts)
    assert all(map(np.array_equal, town.rows(500).codes, again.rows(500).codes))


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_there_are_as_many_as_asked_for(town: Release, n: int) -> None:
    rows = town.rows(n)
    assert len(rows) == n == len(rows.to_arrow()) == len(rows.to_pandas()) == len(rows.to_polars())


@pytest.mark.parametrize("n", [0, -1, True, 2.5, "9", 10**12])
def test_numbers_of_rows_that_cannot_be_are_refused(town: Release, n: object) -> None:
    with pytest.raises(StrategyError, match="rows"):
        town.rows(n)  # pyright: ignore[reportArgumentType]


def test_known_counts_hold_exactly() -> None:
    """Of values and of groups, in tables that share attributes, whatever their order."""
    given = [
        Known(TOWN, ["county", "sex"], [[60, 70], [80, 90]]),
        Known(TOWN, ["tract"], [100, 150, 30, 20]),
        Known(TOWN, ["sex", "job"], [[100, 30, 10], [50, 60, 50]]),
    ]
    release = released(TOWN, THREE_HUNDRED)
    for known in itertools.permutations(given):
        rows = release.informed(known).rows()
        assert len(rows) == 300
        assert np.array_equal(counts(rows, "tract"), [100, 150, 30, 20])
        assert np.array_equal(counts(rows, "sex", "job"), [[100, 30, 10], [50, 60, 50]])
        by_tract = counts(rows, "tract", "sex")
        assert np.array_equal(by_tract[[0, 1]] + by_tract[[2, 3]], [[60, 70], [80, 90]])


def test_known_counts_hold_in_proportion_for_another_number() -> None:
    known = Known(TOWN, ["tract"], [100, 150, 30, 20])
    x = THREE_HUNDRED
    assert np.array_equal(counts(released(TOWN, x).informed(known).rows(30), "tract"), [10, 15, 3, 2])


def test_a_table_by_attributes_is_that_of_the_fit_rounded(town: Release) -> None:
    near = town.answer(Workload.marginals(TOWN, k=2), fitted=True).values[: 2 * 4].reshape(2, 4)
    for n in (None, 500):
        rows = town.rows(n, by=["tract", "sex"])
        assert np.abs(counts(rows, "sex", "tract") - near * len(rows) / rows.total).max() < 1


def test_a_table_by_levels_and_merged_columns_is_exact_too(town: Release) -> None:
    near = town.answer(Workload.marginals(TOWN, k=2), fitted=True).values[: 2 * 4].reshape(2, 4)
    rows = town.rows(by=["county", "sex"])
    there = counts(rows, "sex", "tract")
    assert np.abs(there[:, ::2].sum(axis=1) - near[:, ::2].sum(axis=1)).max() < 1
    merged = released(TOWN.merge(["sex", "job"], name="both"), PEOPLE.reshape(6, 4, 4))
    assert len(merged.rows(90, by=["sex", "county"])) == 90
    with pytest.raises(DomainError, match="nonsense"):
        merged.rows(by=["nonsense"])


def test_a_table_by_attributes_keeps_known_counts(town: Release) -> None:
    """Rounded within the sums that are known."""
    given = Known(TOWN, ["tract"], marginal(PEOPLE, TOWN, "tract"))
    for n in (None, 1000):
        rows = town.informed(given).rows(n, by=["tract", "age", "job"])
        assert np.abs(counts(rows, "tract") - marginal(PEOPLE, TOWN, "tract") * len(rows) / PEOPLE.sum()).max() < 1


def test_impossible_rows_do_not_occur(town: Release) -> None:
    rows = town.rows(impossible=["age < 18 AND job <> 'none'", "tract = 'T1' AND sex = 'M'"])
    children = counts(rows, "age", "job")[0]
    assert children[1:].sum() == 0
    assert children[0] > 0
    assert counts(rows, "tract", "sex")[0, 0] == 0
    assert abs(len(rows) - PEOPLE.sum()) < 0.1 * PEOPLE.sum()


def test_impossible_rows_do_not_occur_beside_known_counts() -> None:
    x = PEOPLE.copy()
    x[:, :, 0, 1:] = 0
    known = [
        Known(TOWN, ["sex", "age"], marginal(x, TOWN, "sex", "age")),
        Known(TOWN, ["job"], marginal(x, TOWN, "job")),
    ]
    rows = released(TOWN, x).informed(known).rows(impossible=["age < 18 AND job <> 'none'"])
    assert counts(rows, "age", "job")[0, 1:].sum() == 0
    assert np.array_equal(counts(rows, "sex", "age"), known[0].counts)
    assert np.array_equal(counts(rows, "job"), known[1].counts)


def test_what_contradicts_known_counts_is_refused() -> None:
    known = Known(TOWN, ["sex"], [10, 10])
    x = np.random.default_rng(14).multinomial(20, np.full(TOWN.size, 1 / TOWN.size)).reshape(TOWN.shape)
    with pytest.raises(StrategyError, match="possible"):
        released(TOWN, x).informed(known).rows(impossible=["sex = 'M'"])
    with pytest.raises(WorkloadError, match="no cell"):
        released(TOWN, x).rows(impossible=["sex = 'F'", "sex = 'M'"])


def test_columns_have_the_types_of_their_values() -> None:
    domain = Domain(
        {
            "age": Integers(18, 20, outside="other"),
            "income": Bins([0, 10, 50.5]),
            "size": Bins([0, 10, 20], values=[4, 12], outside="other"),
            "rural": bool,
            "tract": TRACTS,
            "sex": Labels(["M", "=F"], outside="other"),
        }
    )
    release = released(domain, np.random.default_rng(14).integers(0, 3, size=domain.shape), PureDP(20))
    table = release.rows(400).to_arrow()
    kinds = [str(field.type) for field in table.schema]
    text = "dictionary<values=string, indices=int32, ordered=0>"
    assert kinds == ["int64", "double", "int64", "bool", text, text, text]
    assert table.column_names == ["age", "income", "size", "rural", "tract", "county", "sex"]
    found = table.to_pydict()
    assert set(found["age"]) <= {18, 19, 20, None}
    assert None in found["age"]
    assert set(found["size"]) == {4, 12, None}
    assert set(found["sex"]) == {"M", "=F", "other"}
    assert all(0 <= value < 50.5 for value in found["income"])
    assert all((t in {"T1", "T3"}) == (c == "Kent") for t, c in zip(found["tract"], found["county"], strict=True))
    assert [c.remark for c in release.rows(5).columns if c.name == "income"] == [INSIDE]
    assert table.schema.metadata[b"release"].decode() == release.digest


def test_numbers_inside_bins_are_in_the_bins_of_their_rows(town: Release) -> None:
    rows = town.rows()
    ages = np.array(rows.to_arrow().column("age").to_pylist())
    assert ages.dtype.kind == "i"
    assert np.array_equal(TOWN["age"].values.encode(ages), rows.codes[2])
    assert len(np.unique(ages[rows.codes[2] == 2])) == 35  # all of 30 to 64


def test_merged_attributes_are_columns_of_their_own() -> None:
    domain = TOWN.merge(["sex", "job"], name="both")
    x = np.random.default_rng(14).integers(0, 30, size=domain.shape)
    rows = released(domain, x).rows()
    assert rows.to_arrow().column_names == ["sex", "job", "tract", "county", "age"]
    pairs = rows.to_pandas().groupby(["sex", "job"], observed=False).size().to_numpy()
    labels = [(a, b) for a in ("M", "F") for b in ("none", "a", "b")]
    there = {
        label: int(c) for label, c in zip(domain["both"].labels, np.bincount(rows.codes[0], minlength=6), strict=True)
    }
    assert [there[label] for label in labels] == pairs.tolist()


def test_attributes_that_nothing_was_measured_about_have_no_column() -> None:
    workload = Workload.product(TOWN, sex=Identity(), age=Prefix())
    release = optimize(workload, restarts=1).measure(from_array(TOWN, PEOPLE), PureDP(1), ledger=None)
    assert release.rows(9).to_arrow().column_names == ["sex", "age"]


def test_a_release_that_does_not_count_rows_is_refused() -> None:
    domain = Domain({"x": 3, "y": 3})
    nothing = measure(
        Strategy.identity(domain), from_array(domain, np.zeros((3, 3), np.int64)), PureDP(100), ledger=None
    )
    with pytest.raises(StrategyError, match="no rows"):
        nothing.rows()


def test_what_has_no_column_is_named_and_the_rest_is_compared() -> None:
    """Amounts, whose sums do not make rows, and attributes that nothing was measured about."""
    domain = Domain({"sex": ["M", "F"], "job": 3, "wage": Amount(0, 5000), "age": 4})
    w = Workload.sql(domain, "SELECT sex, job, COUNT(*), SUM(wage) FROM t GROUP BY sex, job")
    rng = np.random.default_rng(15)
    frame = {"sex": rng.choice(["M", "F"], 900), "job": rng.integers(0, 3, 900)}
    frame |= {"wage": rng.integers(0, 5000, 900), "age": rng.integers(0, 4, 900)}
    release = optimize(w, restarts=1).measure(from_table(domain, pd.DataFrame(frame)), PureDP(1), ledger=None)
    rows = release.rows()
    assert rows.to_arrow().column_names == ["sex", "job"]
    assert list(rows.left_out) == ["wage", "age"]
    (near,) = rows.closeness
    table = release.answer(Workload.marginals(domain, [["sex", "job"]]))
    z = (counts(rows, "sex", "job").ravel() * rows.total / len(rows) - table.values) / table.stddev
    assert (near.attributes, near.numbers) == (("sex", "job"), 6)
    assert near.typical == pytest.approx(np.sqrt(np.mean(z**2)))
    assert 0 < near.largest < 5
    with pytest.raises(DomainError, match="listed by its values"):
        release.rows(by=["wage"])


AGES = [[int(a <= v < b) for v in range(40)] for a, b in ((0, 40), (0, 18), (10, 30), (30, 40))]
GROUPED = Domain({"age": 40, "sex": 2, "state": 5})
SQUARE = Domain({"x": 4, "sex": 2, "y": 4})
PLANNED = {
    "exchangeable values": (
        Workload.product(GROUPED, age=AGES, sex=Identity()) + Workload.product(GROUPED, age=Identity(), state=Prefix()),
        Orthogonal,
        None,
    ),
    "merged cells": (
        Workload.product(GROUPED, age=Ranges([(0, 3), (4, 9), (10, 39)]), sex=Identity()),
        ClassForm,
        None,
    ),
    "merged cells beside known counts": (
        Workload.product(GROUPED, age=Ranges([(0, 3), (4, 9), (10, 39)]), sex=Identity()),
        WithExactBlocks,
        ["state"],
    ),
    "sums and differences": (
        Workload.product(SQUARE, {("x", "y"): SumAtMost()})
        + Workload.product(SQUARE, {("x", "y"): DifferenceAtMost()}),
        ClassForm,
        None,
    ),
}


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        *((name, "gaussian") for name in PLANNED),
        *((name, "laplace") for name in PLANNED if name != "exchangeable values"),
    ],
)
def test_rows_are_near_whatever_was_planned(name: str, noise: str) -> None:
    """Signed rows over two attributes, values that nothing tells apart, and values of which a strategy makes orbits."""
    w, form, given = PLANNED[name]
    x = np.random.default_rng(16).integers(0, 40, size=w.domain.shape)
    known = () if given is None else Known(w.domain, given, marginal(x, w.domain, *given))
    plan = optimize(w, noise=noise, known=known, restarts=1)
    release = plan.measure(from_array(w.domain, x), PureDP(2) if noise == "laplace" else ZCDP("0.5"), ledger=None)
    assert isinstance(release.form, form)
    rows = release.rows()
    assert all(near.typical < 2 for near in rows.closeness), rows.closeness
    if given is not None:
        assert np.array_equal(counts(rows, *given), marginal(x, w.domain, *given))
    fitted = release.answer(w, fitted=True)
    assert (fitted.values >= 0).all()
    assert np.isfinite(fitted.stddev).all()


def test_combined_releases_give_rows() -> None:
    both = combine([released(TOWN, PEOPLE), released(TOWN, PEOPLE)], same_rows=True)
    assert max(near.typical for near in both.rows().closeness) < 2


def test_intervals_hold_what_the_rows_count(town: Release) -> None:
    w = Workload.marginals(TOWN, k=2)
    rows = town.rows()
    answers = rows.answer(w)
    assert np.allclose(answers.values[:8], counts(rows, "sex", "tract").ravel() * rows.total / len(rows))
    low, high = answers.interval()
    assert answers.biased
    assert ((low <= answers.values) & (answers.values <= high)).all()


def test_fitted_answers_are_not_negative_agree_and_say_what_is_model_only() -> None:
    small, large = (Workload.marginals(TOWN, k=k) for k in (2, 4))
    only_pairs = marginals(TOWN, dict.fromkeys(itertools.combinations(range(4), 2), 1.0))
    town = measure(only_pairs, from_array(TOWN, PEOPLE), TWO, ledger=None)
    pairs, cells = town.answer(small, fitted=True), town.answer(large, fitted=True)
    assert (cells.values >= 0).all()
    assert np.isfinite(pairs.stddev).all()
    assert np.isinf(cells.stddev).all()
    x = cells.values.reshape(TOWN.shape)
    assert np.allclose(pairs.values[:8], marginal(x, TOWN, "sex", "tract").ravel())
    low, high = cells.interval()
    assert (low == 0).all()
    assert np.isinf(high).all()
    with pytest.raises(StrategyError, match="model"):
        cells.difference(0, 1)
    assert (pairs.stddev == town.answer(small).stddev).all()


@pytest.mark.parametrize("name", ["no closed form", "identity", "marginals", "overlapping pairs"])
def test_every_form_has_fitted_answers_with_the_margins_of_what_was_measured(name: str) -> None:
    strategy = FAMILIES[name]
    domain = strategy.domain
    release = measure(
        strategy,
        from_array(domain, np.random.default_rng(14).integers(20, 90, size=domain.shape)),
        PureDP(5),
        ledger=None,
    )
    workload = Workload.marginals(domain, k=1)
    fitted = release.answer(workload, fitted=True)
    assert (fitted.values >= 0).all()
    if release.form.closed:
        assert np.array_equal(fitted.stddev, release.answer(workload).stddev)


def test_queries_over_another_domain_are_refused(town: Release) -> None:
    other = Workload.marginals(Domain({"x": 3}), k=1)
    with pytest.raises(StrategyError, match="on one Domain"):
        town.answer(other, fitted=True)
    with pytest.raises(StrategyError, match="on one Domain"):
        town.rows(20).answer(other)


def test_fitted_answers_keep_known_counts(town: Release) -> None:
    known = Known(TOWN, ["tract"], marginal(PEOPLE, TOWN, "tract"))
    answers = town.answer(Workload.marginals(TOWN, k=1), fitted=True, known=known)
    assert np.array_equal(answers.values[2:6], marginal(PEOPLE, TOWN, "tract"))


def test_where_noise_is_little_whole_numbers_are_the_rows() -> None:
    """A mixture of products cannot say everything: where it does not fit, rows are the cells of whole numbers."""
    domain = Domain({"x": 30, "y": 30})
    x = np.random.default_rng(14).integers(0, 2000, size=domain.shape)
    release = measure(Strategy.identity(domain), from_array(domain, x), PureDP(50), ledger=None)
    rows = release.rows()
    assert np.abs(counts(rows, "x", "y") - x).max() <= 2
    assert np.abs(release.answer(Workload.marginals(domain, k=2), fitted=True).values - x.ravel()).max() <= 5


def test_tables_of_rows_are_arrow(town: Release) -> None:
    assert isinstance(town.rows(3).to_arrow(), pa.Table)
    assert "3 rows" in repr(town.rows(3))
    assert "tract" in town.rows(3)._repr_html_()


def test_what_is_said_before_spending_is_of_tables_that_count_rows(town: Release) -> None:
    """Ranges are compared by the values that they determine, groups as they are, and sums not at all."""
    ranges, groups = (
        Workload.product(TOWN, age=AllRange()),
        Workload.sql(TOWN, "SELECT county, COUNT(*) FROM t GROUP BY county"),
    )
    assert expected_distances(town.form, ranges, 900) == expected_distances(
        town.form, Workload.marginals(TOWN, [["age"]]), 900
    )
    near, far = expected_distances(town.form, groups, 900), expected_distances(town.form, groups, 90)
    assert 0 < max(near) < min(far) < 1
    paid = Domain({"pay": 9})
    count, total = Workload.product(paid, pay=Identity()), Workload.sql(paid, "SELECT SUM(pay) FROM t")
    form = released(paid, np.arange(9) * 50, k=1).form
    assert expected_distances(form, count + total, 900) == expected_distances(form, count, 900)
    with pytest.raises(StrategyError, match="Ask for a count"):
        expected_distances(form, total, 900)
