"""Amounts: sums and means of numbers that are no cells, from tables to files; no row adds more than the noise hides."""

# What pandas returns is known to it alone; wrong arguments are the subject of some tests.
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hdmm
from hdmm import (
    ZCDP,
    Amount,
    DataError,
    Domain,
    DomainError,
    Integers,
    Noise,
    PureDP,
    SpecError,
    SqlError,
    Strategy,
    StrategyError,
    Unit,
    Workload,
    WorkloadError,
    from_array,
    from_table,
)
from hdmm.matrix import Eye, Matrix, Scaled, to_dense
from hdmm.measure.prepare import prepare
from hdmm.privacy.guarantee import Privacy
from hdmm.publication.answered import answer_table
from hdmm.publication.outlook import outlook
from hdmm.publication.spec.origin import open_data
from hdmm.publication.spec.read import read_spec
from hdmm.strategy.blocks import Block
from hdmm.strategy.lattice import on_parts
from tests.support.chance import fewest, settled
from tests.support.neighbours import assert_no_more_than_asked
from tests.support.spec_cases import planned

WAGES = Domain({"sex": ["M", "F"], "age": 3}, amounts={"wage": Amount(-3, 9, step=3), "cost": Amount(0, 2)})
SQL = [
    "SELECT sex, COUNT(*), SUM(wage), AVG(wage) FROM t GROUP BY sex",
    "SELECT age, SUM(CASE WHEN sex = 'F' THEN 2 * wage - 1 END) FROM t WHERE wage IS NOT NULL GROUP BY age",
    "SELECT SUM(cost), COUNT(*) FROM t WHERE age < 2; SELECT sex, age, COUNT(*) FROM t GROUP BY sex, age",
    "SELECT AVG(wage) FROM t; SELECT sex, AVG(cost) FROM t GROUP BY sex",
]
FREE = PureDP(10**4)  # noise of no account


def people(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "sex": rng.choice(["M", "F"], rows),
            "age": rng.integers(0, 3, rows),
            "wage": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(3, 6, rows)),
            "cost": rng.integers(-1, 5, rows),
        }
    )


def clipped(table: pd.DataFrame) -> pd.DataFrame:
    """The values that count: within the bounds, on a step, by exact fractions."""

    def of(amount: Amount, value: float) -> float:
        if math.isnan(value):
            return value
        low, step = Fraction(amount.low), Fraction(amount.step)
        inside = min(max(Fraction(value), low), Fraction(amount.high))
        return float(low + step * math.floor((inside - low) / step + Fraction(1, 2)))

    amounts = {name: WAGES[name].values for name in ("wage", "cost")}
    return table.assign(**{name: [of(a, float(v)) for v in table[name]] for name, a in amounts.items()})


def test_sums_and_means_are_those_of_clipped_values() -> None:
    table = people()
    data, held = from_table(WAGES, table, declared_types=True), clipped(table)
    workloads = {str(k): Workload.sql(WAGES, text) for k, text in enumerate(SQL)}
    plan = hdmm.optimize(workloads, noise="laplace", restarts=1, seed=0)
    release = plan.measure(data, FREE, ledger=None)
    by_sex = held.groupby("sex", sort=False).wage.agg(["size", "sum", "count"]).loc[["M", "F"]]
    expected = by_sex.to_numpy().T.ravel()
    np.testing.assert_allclose(release.answer(workloads["0"]).values, expected, rtol=1e-2, atol=1)
    young = held[held.age < 2]
    np.testing.assert_allclose(
        release.answer(workloads["2"]).values[:2], [young.cost.sum(), len(young)], rtol=1e-2, atol=1
    )


@pytest.mark.parametrize("noise", [PureDP("0.7"), ZCDP("0.3")], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("unit", [Unit(), Unit(rows=3), Unit(neighbours="replace")], ids=str)
@pytest.mark.parametrize("text", [*SQL[:2], *(pytest.param(text, marks=pytest.mark.slow) for text in SQL[2:])])
def test_no_row_adds_more_than_the_noise_hides(text: str, noise: Privacy, unit: Unit) -> None:
    """Every row that there can be, and every one in the place of another: the loss is at most what was asked for."""
    plan = hdmm.optimize(Workload.sql(WAGES, text), noise=noise.noise, restarts=1, seed=1)
    prepared = prepare(plan.strategy, noise, unit=unit, rows_bound=1000)
    assert_no_more_than_asked(prepared)


def test_a_count_and_a_sum_share_the_noise() -> None:
    """The count of a group and its sum, from 0 to U, cost no more than the sum alone with Laplace noise: √2·U/ε."""
    domain = Domain({"sex": ["M", "F"]}, amounts={"wage": Amount(0, 1000)})
    workload = Workload.sql(domain, "SELECT sex, AVG(wage) FROM t GROUP BY sex")
    plan = hdmm.optimize(workload, seed=0)
    data = from_table(domain, pd.DataFrame({"sex": ["M"], "wage": [5]}), declared_types=True)
    stddev = plan.measure(data, PureDP(1), ledger=None).answer(workload).stddev
    np.testing.assert_allclose(stddev, [math.sqrt(2) * 1000] * 2 + [2.0] * 2, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_the_noise_is_as_large_as_told(noise: Noise) -> None:
    data = from_table(WAGES, people(), declared_types=True)
    workload = Workload.sql(WAGES, SQL[0])
    plan = hdmm.optimize(workload, noise=noise, restarts=1, seed=0)
    privacy = PureDP(1) if noise is Noise.LAPLACE else ZCDP(1)
    truth = plan.measure(data, FREE if noise is Noise.LAPLACE else ZCDP(10**7), ledger=None).answer(workload).values
    answers = [plan.measure(data, privacy, ledger=None).answer(workload) for _ in range(400)]
    z = (np.stack([each.values for each in answers]) - truth) / answers[0].stddev
    assert np.abs(z.mean(axis=0)).max() < 6 / math.sqrt(400)
    assert np.abs((z**2).mean(axis=0) - 1).max() < 6 * math.sqrt(5 / 400)  # kurtosis of Laplace


def test_releases_with_amounts_are_kept(tmp_path: Path) -> None:
    data, workload = from_table(WAGES, people(), declared_types=True), Workload.sql(WAGES, SQL[0])
    plan = hdmm.optimize(workload, restarts=1, seed=0)
    plan.save(tmp_path / "plan")
    release = hdmm.load_plan(tmp_path / "plan").measure(data, PureDP(1), ledger=None)
    release.save(tmp_path / "release")
    again = hdmm.load_release(tmp_path / "release")
    assert again.strategy.domain == WAGES
    np.testing.assert_array_equal(again.answer(workload).values, release.answer(workload).values)
    np.testing.assert_array_equal(again.answer(workload).stddev, release.answer(workload).stddev)


def test_totals_of_amounts_are_counted() -> None:
    data = from_table(WAGES, people(), declared_types=True)
    wanted = [[], ["wage"], ["sex", "cost"], ["cost", "wage"], ["sex"]]
    total, wage, cost, both, sex = data.marginals(wanted)
    assert total == 300 == sex.sum()
    assert wage.sum() == 300 * 4
    assert cost.sum() == 300 * 2
    assert both.sum() == 300 * 8
    np.testing.assert_array_equal(both.sum(axis=0) // 2, wage)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 100), st.lists(st.floats(), max_size=20))
def test_values_are_rounded_to_the_nearest_step(low: float, step: float, steps: int, values: list[float]) -> None:
    low, step = round(low), round(step, 3)
    high = float(Fraction(str(low)) + steps * Fraction(repr(step)))
    try:
        amount = Amount(low, high, step=step)
    except DomainError:  # the sum is no float that is a number of steps
        return
    for value, code in zip(values, amount.encode(values).tolist(), strict=True):
        if not math.isfinite(value):
            assert code == steps + 1
        else:
            inside = min(max(Fraction(value), Fraction(repr(amount.low))), Fraction(repr(amount.high)))
            assert abs(Fraction(repr(amount.low)) + code * Fraction(repr(step)) - inside) <= Fraction(step) * Fraction(
                "0.5000001"
            )


BAD = [
    (lambda: Amount(5, 5), "Give a low that is below high"),
    (lambda: Amount(9, 5), "Give a low that is below high"),
    (lambda: Amount(0, 10, step=3), "Give a step that does, or move high"),
    (lambda: Amount(0, 10, step=0), "Give a number above 0"),
    (lambda: Amount(0, 10, step=-1), "Give a number above 0"),
    (lambda: Amount(0, float("inf")), "at most 2\\*\\*53"),
    (lambda: Amount(float("nan"), 1), "at most 2\\*\\*53"),
    (lambda: Amount(0, 2**53 + 2), "at most 2\\*\\*53"),
    (lambda: Amount(True, 5), "at most 2\\*\\*53"),
    (lambda: Amount("0", 5), "at most 2\\*\\*53"),
    (lambda: Amount(0, 2**26), "Give a larger step"),
    (lambda: Amount(1125899906842624.8, 1125899906842629.2, step=0.05), "Give bounds of fewer digits"),
    (lambda: Amount(0, 1e-320, step=5e-324), "at least 1e-200"),
    (lambda: Amount(1e-201, 1, step=0.5), "at least 1e-200"),
    (lambda: Domain({"wage": 3}, amounts={"wage": Amount(0, 2)}), "An attribute has this name"),
    (lambda: Domain({"sex": 2}, amounts={"wage": 5}), "Give its bounds"),
    (lambda: WAGES.merge(["sex", "wage"], name="x"), "is an amount"),
    (lambda: WAGES.count({}), "is an amount"),
    (lambda: WAGES.encode({}), "is an amount"),
    (lambda: hdmm.Known(WAGES, ["wage"], [1, 2, 3]), "is an amount"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_what_is_no_amount_is_refused(make: object, message: str) -> None:
    with pytest.raises(DomainError, match=message):
        make()  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT wage, COUNT(*) FROM t GROUP BY wage",
        "SELECT COUNT(*) FROM t WHERE wage > 3",
        "SELECT COUNT(*) FROM t WHERE wage IN (3)",
        "SELECT COUNT(*) FROM t WHERE wage + age < 3",
        "SELECT MEDIAN(wage) FROM t",
        "SELECT SUM(FLOOR(wage / 2)) FROM t",
        "SELECT SUM(CASE WHEN wage > 1 THEN 1 END) FROM t",
        "SELECT SUM(CASE wage WHEN 1 THEN 1 END) FROM t",
        "SELECT FLOOR(wage / 2), COUNT(*) FROM t GROUP BY FLOOR(wage / 2)",
        "SELECT SUM(age) FROM t WHERE wage",
    ],
)
def test_amounts_are_not_counted_by(text: str) -> None:
    with pytest.raises(SqlError, match=r"is an amount, which cannot be grouped or compared\. Ask for its SUM or AVG"):
        Workload.sql(WAGES, text)


def test_marginals_are_of_the_other_attributes() -> None:
    assert Workload.marginals(WAGES, 2).queries == 6
    assert Workload.range_marginals(WAGES, 1).queries == 8
    assert Workload.range_marginals(WAGES).queries == 18
    with pytest.raises(WorkloadError, match="'wage' is an amount, by which rows are not counted"):
        Workload.marginals(WAGES, [("sex", "wage")])
    with pytest.raises(WorkloadError, match="no 3-way marginals of 2"):
        Workload.marginals(WAGES, 3)


def test_counts_have_no_amounts() -> None:
    with pytest.raises(DataError, match="Give a table with from_table"):
        from_array(WAGES, np.zeros(WAGES.shape, int))
    with pytest.raises(DataError, match="Give a table with from_table"):
        hdmm.from_chunks(WAGES, lambda a, b: np.zeros(b - a, int))


@pytest.mark.parametrize("factor", [Eye(3), Scaled(3, Eye(3))])
def test_factors_that_are_no_multiples_of_the_parts_are_not_measured(factor: Matrix) -> None:
    """Else a row would count for less than the noise is for, or for more."""
    domain = Domain({"sex": 2}, amounts={"wage": Amount(0, 4)})
    with pytest.raises(StrategyError, match="no multiples of its steps"):
        on_parts(Strategy(domain, (Block(1.0, [(1, factor)]),)))
    (block,) = on_parts(Strategy(domain, (Block(1.0, [(1, Scaled(8, Eye(3)))]),)))
    np.testing.assert_array_equal(to_dense(block.factors[0][1]), 2 * np.eye(3))


def test_two_large_amounts_are_never_in_one_block() -> None:
    large = {"wage": Amount(0, 200_000), "cost": Amount(0, 5000)}
    domain = Domain({"sex": ["M", "F"], "age": Integers(0, 9)}, amounts=large)
    text = "SELECT sex, SUM(wage), SUM(cost) FROM t GROUP BY sex; SELECT age, SUM(wage), AVG(cost) FROM t GROUP BY age"
    for noise in ("laplace", "gaussian"):
        plan = hdmm.optimize(Workload.sql(domain, text), noise=noise, restarts=1, seed=0)
        assert not any({2, 3} <= {*axes} for axes in plan.strategy.table.axes)
        prepare(plan.strategy, PureDP(1) if noise == "laplace" else ZCDP(1), unit=Unit(), rows_bound=2**33)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_several_amounts_are_in_one_block_only_if_they_fit(noise: str) -> None:
    """Any two of these do, and all three do not."""
    domain = Domain({"sex": ["M", "F"]}, amounts={name: Amount(0, 4096) for name in ("a", "b", "c")})
    workload = Workload.sql(domain, "SELECT sex, SUM(a), SUM(b), SUM(c) FROM t GROUP BY sex")
    plan = hdmm.optimize(workload, noise=noise, restarts=1, seed=0)
    assert not any({1, 2, 3} <= {*axes} for axes in plan.strategy.table.axes)
    about_all = "SELECT sex, SUM(CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN c END) FROM t GROUP BY sex"
    with pytest.raises(StrategyError, match="give these larger steps"):
        hdmm.optimize(Workload.sql(domain, about_all), noise=noise, restarts=1, seed=0)
    prepare(plan.strategy, PureDP(1) if noise == "laplace" else ZCDP(1), unit=Unit(), rows_bound=2**33)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_is_planned_can_be_measured(noise: str) -> None:
    """An amount of many steps leaves few bits for factors that are rounded, at the default bound on rows."""
    attributes = {"region": 40, "sex": 2, "band": 10}
    domain = Domain(attributes, amounts={"wage": Amount(0, 200_000)})
    texts = [f"SELECT {by}, SUM(wage), COUNT(*) FROM t GROUP BY {by}" for by in ("region", "region, sex", "band, sex")]
    plan = hdmm.optimize(Workload.sql(domain, ";".join(texts)), noise=noise, restarts=1, seed=0)
    prepare(plan.strategy, PureDP(1) if noise == "laplace" else ZCDP(1), unit=Unit(), rows_bound=2**33)


def test_integers_are_not_made_of_parts() -> None:
    workload = Workload.sql(WAGES, SQL[0])
    release = hdmm.optimize(workload, restarts=1).measure(
        from_table(WAGES, people(), declared_types=True), PureDP(1), ledger=None
    )
    with pytest.raises(StrategyError, match="Amounts divide rows into parts"):
        release.answer(workload, integers=True)
    assert (release.answer(workload, nonnegative=True).values[:2] >= 0).all()


SPEC = """
[data]
dataset = "wages"
[domain]
sex = ["M", "F"]
[amounts]
%s
[[table]]
name = "wages"
marginals = [["sex"]]
mean = "wage"
[privacy]
epsilon = "1"
[ledger]
path = "budget.db"
cap = { epsilon = "4" }
"""


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        ("wage = { low = 5, high = 1 }", "Give a low that is below high"),
        ("wage = { low = 0, high = 1, step = 0.3 }", "Give a step that does"),
        ("wage = { low = 0, high = inf }", "2\\*\\*53"),
        ("wage = { low = nan, high = 1 }", "2\\*\\*53"),
        ("wage = { low = 0 }", "high"),
        ("sex = { low = 0, high = 1 }", "An attribute has this name"),
        ("wage = 7", "wage"),
    ],
)
def test_a_specification_says_which_amount_is_wrong(amount: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message) as wrong:
        read_spec((SPEC % amount).encode(), tmp_path / "t.toml")
    assert "amounts" in str(wrong.value)


def test_a_specification_declares_amounts(tmp_path: Path) -> None:
    spec = read_spec((SPEC % "wage = { low = 0, high = 100, step = 0.5 }").encode(), tmp_path / "t.toml")
    assert spec.domain["wage"].values == Amount(0, 100, step=0.5)
    assert spec.tables[0].columns == ("sex",)


PUBLISHED = """
title = "Wages"
[data]
source = "people.csv"
dataset = "wages"
columns = { pay = "wage" }
[domain]
sex = ["M", "F"]
age = 3
[amounts]
pay = { low = -3, high = 9, step = 3 }
cost = { low = 0, high = 2 }
[[table]]
name = "pay"
marginals = [["sex"], ["sex", "age"]]
sum = ["pay", "cost"]
mean = "pay"
[[table]]
name = "counts"
marginals = 2
[[table]]
name = "women"
sql = "SELECT age, COUNT(*), SUM(CASE WHEN sex = 'F' THEN 2 * pay - 1 END) AS s FROM t GROUP BY age"
[privacy]
epsilon = "10000"
[ledger]
path = "budget.db"
cap = { epsilon = "20000" }
"""


def test_sums_and_means_are_published(tmp_path: Path) -> None:
    table = people()
    table.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "wages.toml").write_text(PUBLISHED)
    spec = hdmm.load_spec(tmp_path / "wages.toml")
    published = hdmm.publish(spec, planned(spec))
    held = clipped(table)
    means = _column(published.folder, "pay_sex", "mean of pay")
    np.testing.assert_allclose(means, held.groupby("sex", sort=False).wage.mean().loc[["M", "F"]], rtol=1e-3)
    costs = _column(published.folder, "pay_sex_age", "sum of cost")
    by_both = held.groupby(["sex", "age"]).cost.sum().loc[["M", "F"]]
    np.testing.assert_allclose(costs, by_both.loc[["M", "F"]], rtol=1e-3, atol=0.1)
    women = held[held.wage.notna() & (held.sex == "F")]
    sums = _column(published.folder, "women", "s")
    np.testing.assert_allclose(sums, (2 * women.wage - 1).groupby(women.age).sum(), rtol=1e-3)
    page = (published.folder / "report.html").read_text()
    said = "Values of pay below −3 count as −3, and those above 9 as 9; they are rounded to steps of 3."
    assert said in page
    assert said in json.loads((published.folder / "metadata.json").read_text())["rows"]["meaning"]
    assert "Rows are counted by sex (M, F) and age (0, 1, 2)." in page


def _column(folder: Path, table: str, measure: str) -> list[float]:
    rows = pq.read_table(folder / "tables" / f"{table}.parquet").to_pylist()
    return [row["estimate"] for row in rows if row["measure"] == measure]


def test_synthetic_rows_have_no_amounts() -> None:
    workload = Workload.sql(WAGES, SQL[0]) + Workload.marginals(WAGES, 2)
    data = from_table(WAGES, people(), declared_types=True)
    rows = hdmm.optimize(workload, restarts=1).measure(data, PureDP(10), ledger=None).rows()
    assert rows.to_arrow().column_names == ["sex", "age"]


RANDOM = """
title = "Wages"
[data]
source = "people.csv"
dataset = "wages"
[domain]
sex = ["M", "F"]
age = AGES
[amounts]
wage = { low = LOW, high = HIGH }
[[table]]
name = "sum"
marginals = [["sex"]]
sum = "wage"
margin = "4 %"
expected = EXPECTED
[[table]]
name = "count"
marginals = [["age"]]
margin = "5 %"
expected = 600
[[table]]
name = "mean"
marginals = [["age"]]
mean = "wage"
[privacy]
PRIVACY
[ledger]
path = "budget.db"
cap = { CAP }
"""


@pytest.mark.slow
@pytest.mark.parametrize("noise", ['epsilon = "1"', 'rho = "0.5"', 'epsilon = "1"\ndelta = "1e-9"'])
def test_at_the_least_budget_margins_hold_and_intervals_cover(noise: str, tmp_path: Path) -> None:
    """Of 8 random problems, 15 releases each; what is drawn is the same in every run."""
    hits, draws = dict.fromkeys(("sum", "count", "mean"), 0), dict.fromkeys(("sum", "count", "mean"), 0)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        ages, low, high = int(rng.integers(2, 7)), int(rng.choice([-50, 0, 200])), int(rng.choice([300, 5_000]))
        table = pd.DataFrame({"sex": rng.choice(["M", "F"], 900), "age": rng.integers(0, ages, 900)})
        table["wage"] = np.where(rng.random(900) < 0.1, np.nan, rng.normal((low + high) / 2, high / 3, 900))
        table.to_csv(tmp_path / "people.csv", index=False)
        given = {"AGES": ages, "LOW": low, "HIGH": high, "EXPECTED": 300 * high}
        text = RANDOM.replace("PRIVACY", noise).replace("CAP", noise.replace("\n", ", "))
        for name, value in given.items():
            text = text.replace(name, str(value))
        (tmp_path / "wages.toml").write_text(text)
        spec = hdmm.load_spec(tmp_path / "wages.toml")
        plan, values = planned(spec), np.floor(np.clip(table.wage, low, high) + 0.5)
        least = outlook(spec, plan).least
        assert least is not None
        truth = {
            "sum": [float(values[table.sex == sex].sum()) for sex in ("M", "F")],
            "count": [int((table.age == age).sum()) for age in range(ages)],
            "mean": [float(values[table.age == age].mean()) for age in range(ages)],
        }
        with settled(f"{noise} {seed}"):
            for _ in range(15):
                release = plan.measure(open_data(spec), least.privacy, ledger=None)
                for query in spec.tables:
                    found = answer_table(release, 0.95, query)
                    assert query.margin is None or (found.upper - found.lower).max() / 2 <= query.margin
                    held = (found.lower <= truth[query.name]) & (truth[query.name] <= found.upper)
                    hits[query.name], draws[query.name] = hits[query.name] + held.sum(), draws[query.name] + len(held)
    assert all(hits[name] >= fewest(draws[name], 0.95) for name in hits), (hits, draws)
