"""Targets of means, percentages, medians and sums, and parts of what is expected, in Python as in a specification."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import Amount, Domain, Integers, StrategyError, Workload
from hdmm.answers.first_order import ratio_variances
from hdmm.answers.margins import half_width
from hdmm.measure.accuracy import lattice_for
from hdmm.measure.measurement import form_in_noise
from hdmm.measure.targets import stated_goal
from hdmm.privacy.guarantee import Noise, PureDP
from hdmm.privacy.unit_of_privacy import Unit
from hdmm.publication.outlook import outlook
from hdmm.select.goal import Goal
from hdmm.sql import TableQuery, parse
from tests.support.spec_cases import write_spec

SPEC = """
[data]
dataset = "targets"
source = "people.csv"
[domain]
sex = ["M", "F"]
age = { first = 0, last = 9 }
[amounts]
wage = { low = 0, high = 4_000, step = 10 }
[[table]]
name = "counts"
marginals = [["sex", "age"]]
expected = 500
margin = "3 %%"
[[table]]
name = "sums"
marginals = [["sex"]]
sum = "wage"
margin = 90_000
[[table]]
name = "means"
marginals = [["sex"]]
mean = "wage"
expected = 500
margin = 40
[[table]]
name = "shares"
marginals = [["sex", "age"]]
percent = "row"
expected = 300
margin = 2
[[table]]
name = "medians"
marginals = [["sex"]]
quantiles = { age = [0.5] }
expected = 800
margin = 1
[privacy]
%s
[ledger]
path = "budget.db"
cap = { %s }
[plan]
time_limit = 2
restarts = 1
"""
DOMAIN = Domain({"sex": ["M", "F"], "age": Integers(0, 9)}, amounts={"wage": Amount(0, 4_000, step=10)})
TARGETS: dict[str, float | str] = {"counts": "3 %", "sums": 90_000, "means": 40, "shares": 2, "medians": 1}
EXPECTED = {"counts": 500, "means": 500, "shares": 300, "medians": 800}


PRIVACY = {"laplace": 'epsilon = "1"', "gaussian": 'rho = "0.5"'}


def tables() -> dict[str, Workload | TableQuery]:
    (sums,) = parse(DOMAIN, "SELECT sex, SUM(wage) FROM t GROUP BY sex")
    (means,) = parse(DOMAIN, "SELECT sex, AVG(wage) FROM t GROUP BY sex")
    (shares,) = parse(DOMAIN, "SELECT sex, age, COUNT(*) FROM t GROUP BY sex, age", percent="row")
    (medians,) = parse(DOMAIN, "SELECT sex, MEDIAN(age) FROM t GROUP BY sex")
    counts = Workload.marginals(DOMAIN, [("sex", "age")])
    return {"counts": counts, "sums": sums, "means": means, "shares": shares, "medians": medians}


@pytest.fixture(scope="module", params=["laplace", "gaussian"])
def plan(request: pytest.FixtureRequest) -> hdmm.Plan:
    return hdmm.optimize(tables(), targets=TARGETS, expected=EXPECTED, noise=request.param, restarts=1, time_limit=2)


def test_python_and_a_specification_state_one_goal(tmp_path: Path, plan: hdmm.Plan) -> None:
    privacy = PRIVACY[plan.noise.value]
    spec = hdmm.load_spec(write_spec(tmp_path, SPEC % (privacy, privacy)))
    assert plan.goal.targets == pytest.approx(spec.goal.targets)
    assert list(plan.goal.tables) == list(spec.goal.tables)
    for name, table in plan.goal.tables.items():
        assert table == spec.goal.tables[name]
    promised = outlook(spec, plan).least
    assert promised is not None
    assert promised.privacy == plan.privacy_for()


def test_the_least_budget_meets_the_margin_of_every_kind_of_row(plan: hdmm.Plan) -> None:
    """By the variance of each row to first order, at the budget that is said to be the least and a little below it."""
    lattice = lattice_for(plan.strategy, plan.noise, plan.workload)
    kind = PureDP if plan.noise is Noise.LAPLACE else hdmm.ZCDP
    for name, target in TARGETS.items():
        least = plan.privacy_for({name: target})
        margin = 15.0 if target == "3 %" else float(target)
        table = tables()[name]
        for times, most in ((1, 1.0), (0.99, math.inf)):
            amount = times * float(least.epsilon if isinstance(least, PureDP) else least.rho)
            form = form_in_noise(lattice.strategy, lattice.scales(kind(amount), Unit()), plan.noise)
            if isinstance(table, Workload) or table.linear:
                workload = table if isinstance(table, Workload) else table.workload
                variances = np.concatenate(
                    [piece for product in workload.products for piece in form.variances(product)]
                )
            else:
                variances = ratio_variances(table.expecting(EXPECTED[name]), form)
            assert variances is not None
            part = half_width(math.sqrt(variances.max()), 0.95, plan.noise) / margin
            assert part <= most * (1 + 1e-9)
            assert times == 1 or part > 1


def test_every_margin_holds_at_the_least_budget_and_one_is_met(plan: hdmm.Plan) -> None:
    least = plan.privacy_for()
    apart = {name: plan.privacy_for({name: target}) for name, target in TARGETS.items()}
    amounts = [each.epsilon if isinstance(each, PureDP) else each.rho for each in (least, *apart.values())]
    assert amounts[0] == max(amounts[1:])


def test_a_plan_from_disk_promises_the_same(plan: hdmm.Plan, tmp_path: Path) -> None:
    again = hdmm.load_plan(plan.save(tmp_path / "plan"))
    assert again.goal == plan.goal
    assert again.privacy_for() == plan.privacy_for()
    for name, target in {"means": 20, "counts": "1 %", "shares": 0.5, "medians": 0.2, "sums": 1_000_000}.items():
        assert again.privacy_for({name: target}) == plan.privacy_for({name: target})


def test_each_row_may_have_a_part_of_its_own_count() -> None:
    """The smallest count decides where all rows have the same variance."""
    counts = Workload.marginals(DOMAIN, [("sex",)])
    plan = hdmm.optimize({"sexes": counts}, targets={"sexes": "10 %"}, expected={"sexes": [400, 90]}, restarts=1)
    assert plan.privacy_for() == plan.privacy_for({"sexes": 9}) == plan.privacy_for({"sexes": "10 %"})
    assert plan.privacy_for({"sexes": "20 %"}) == plan.privacy_for({"sexes": 18})


def test_weights_of_tables_count_only_without_targets() -> None:
    heavy = 3.0 * Workload.marginals(DOMAIN, [("sex",)])
    (means,) = parse(DOMAIN, "SELECT sex, AVG(wage) FROM t GROUP BY sex")
    aimed = stated_goal({"heavy": heavy, "means": means}, targets={"heavy": 5, "means": 40}, expected={"means": 500})
    assert {product.weight for product in aimed.tables["heavy"].products} == {1.0}
    free = stated_goal({"heavy": heavy, "means": means})
    assert {product.weight for product in free.tables["heavy"].products} == {3.0}
    assert free.objective == "tables"


def test_without_an_objective_a_table_of_means_may_have_a_budget_afterwards() -> None:
    plan = hdmm.optimize({"means": tables()["means"]}, expected={"means": 500}, restarts=1)
    assert plan.privacy_for({"means": 80}).epsilon < plan.privacy_for({"means": 40}).epsilon
    without = hdmm.optimize({"means": tables()["means"]}, restarts=1)
    with pytest.raises(StrategyError, match="margins of means, percentages and quantiles depend on the data"):
        without.privacy_for({"means": 80})


def test_small_targets_are_remarked_on_for_counts_alone() -> None:
    with pytest.warns(UserWarning, match="'counts' is 0.5, which is less than one row"):
        plan = hdmm.optimize(
            {"counts": tables()["counts"], "means": tables()["means"]},
            targets={"counts": 0.5, "means": 0.25},
            expected={"means": 500},
            restarts=1,
        )
    plan.privacy_for({"means": 0.5})  # a warning would be an error


@pytest.mark.parametrize(
    ("targets", "expected", "message"),
    [
        ({"means": 40}, None, "'means': The margins of means, .* depend on the data"),
        ({"means": "2 %"}, {"means": 500}, "'means': The margins of means, .* depend on the data"),
        ({"counts": "2 %"}, None, "'counts': A margin of 2 % is a part of a count, and none is expected"),
        ({"counts": "2"}, {"counts": 500}, "neither a number nor a percentage"),
        ({"counts": "-2 %"}, {"counts": 500}, "neither a number nor a percentage"),
        ({"counts": "0 %"}, {"counts": 500}, "neither a number nor a percentage"),
        ({"counts": 0}, {"counts": 500}, "above 0"),
        ({"means": math.nan}, {"means": 500}, "above 0"),
        ({"mean": 40}, {"means": 500}, "target for 'mean', but no table of that name. Did you mean 'means'"),
        ({"means": 40}, {"mean": 500}, "something expected for 'mean', but no table of that name"),
        ({"means": 40}, {"means": 0}, "neither a count above 0"),
        ({"means": 40}, {"means": math.inf}, "neither a count above 0"),
        ({"means": 40}, {"means": [500, math.nan]}, "neither a count above 0"),
        ({"means": 40}, {"means": [500, 500, 500]}, "a list of 2 of them"),
        ({"means": 40}, {"means": "many"}, "neither a count above 0"),
        ({"means": 40}, 500, "What is expected is 500. Give typical counts by table"),
        ({}, {"means": 500}, "targets are empty"),
    ],
)
def test_what_is_no_target_is_a_strategy_error(targets: Any, expected: Any, message: str) -> None:
    """One class for all of them: the tables are right, and what is asked of them is not."""
    both = {"counts": tables()["counts"], "means": tables()["means"]}
    with pytest.raises(StrategyError, match=message):
        hdmm.optimize(both, targets=targets, expected=expected, restarts=1)


def test_a_table_has_a_name_that_no_part_of_another_takes() -> None:
    means = tables()["means"]
    with pytest.raises(StrategyError, match="Rename one"):
        hdmm.optimize({"means": means, "means/1": tables()["counts"]}, targets={"means": 5}, expected={"means": 500})
    with pytest.raises(StrategyError, match="expected names tables"):
        hdmm.optimize(Workload.marginals(DOMAIN, 1), expected={"means": 5})


def test_margins_are_drawn_in_the_unit_of_the_rows(plan: hdmm.Plan) -> None:
    assert set(plan.goal.error_rows) == set(TARGETS)
    assert isinstance(plan.goal, Goal)
    pytest.importorskip("altair")
    drawn = plan.plot().to_json()
    assert "means/1" not in drawn
    assert '"means"' in drawn
