"""Accuracy first: targets, the least budget at which they hold, and what is refused before any search."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import hdmm
from hdmm import ZCDP, AllRange, Domain, PureDP, Unit, Workload, from_array
from hdmm.base.exceptions import HdmmError, StrategyError

DOMAIN = Domain({"age": 6, "sex": ["F", "M"]})
TABLES = {
    "ages": Workload.product(DOMAIN, age=AllRange()),
    "sex": Workload.marginals(DOMAIN, [("sex",)]),
}
TARGETS = {"ages": 30, "sex": 10}


@pytest.fixture(scope="module", params=["laplace", "gaussian"])
def plan(request: pytest.FixtureRequest) -> hdmm.Plan:
    return hdmm.optimize(TABLES, targets=TARGETS, noise=request.param, restarts=1)


def margins(plan: hdmm.Plan, privacy: PureDP | ZCDP, *, unit: Unit | None = None) -> dict[str, float]:
    """The widest half of an interval of each table, as a release has it."""
    data = from_array(DOMAIN, np.zeros((6, 2), dtype=int))
    release = plan.measure(data, privacy, ledger=None, unit=unit)
    found = {}
    for name, table in TABLES.items():
        lower, upper = release.answer(table).interval()
        found[name] = float((upper - lower).max()) / 2
    return found


def smaller(privacy: PureDP | ZCDP) -> PureDP | ZCDP:
    match privacy:
        case PureDP():
            return PureDP(privacy.epsilon * 99 / 100)
        case ZCDP():
            return ZCDP(privacy.rho * 98 / 100)


def test_a_release_at_the_least_privacy_holds_every_target_and_at_less_it_does_not(plan: hdmm.Plan) -> None:
    privacy = plan.privacy_for()
    assert all(margin <= TARGETS[name] for name, margin in margins(plan, privacy).items())
    assert any(margin > TARGETS[name] for name, margin in margins(plan, smaller(privacy)).items())


def test_a_person_of_two_rows_needs_more(plan: hdmm.Plan) -> None:
    privacy = plan.privacy_for({"sex": 10}, unit=Unit(2))
    assert margins(plan, privacy, unit=Unit(2))["sex"] <= 10
    assert margins(plan, smaller(privacy), unit=Unit(2))["sex"] > 10


def test_half_the_margin_costs_twice_the_epsilon_or_four_times_the_rho(plan: hdmm.Plan) -> None:
    one, two = plan.privacy_for({"ages": 20}), plan.privacy_for({"ages": 10})
    match one, two:
        case PureDP(), PureDP():
            assert float(two.epsilon / one.epsilon) == pytest.approx(2, rel=2e-3)
        case ZCDP(), ZCDP():
            assert float(two.rho / one.rho) == pytest.approx(4, rel=2e-3)
        case _:
            pytest.fail("another guarantee")


def test_what_was_planned_for_the_targets_needs_no_more_than_other_plans(plan: hdmm.Plan) -> None:
    def amount(other: hdmm.Plan) -> float:
        found = other.privacy_for(TARGETS)
        return float(found.epsilon if isinstance(found, PureDP) else found.rho)

    for objective in ("total", "tables", "worst"):
        other = hdmm.optimize(TABLES, objective=objective, noise=plan.noise, restarts=1)
        assert amount(plan) <= amount(other) * 1.001


def test_errors_and_worst_are_by_table(plan: hdmm.Plan) -> None:
    assert list(plan.errors) == list(plan.worst) == list(TABLES)
    assert all(plan.errors[name] <= plan.worst[name] for name in TABLES)
    total = sum(plan.errors[name] ** 2 * table.queries for name, table in TABLES.items())
    assert plan.error == pytest.approx(total)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"targets": {"age": 5}}, "no table of that name.*'ages'"),
        ({"targets": {"ages": 0}}, "above 0"),
        ({"targets": {"ages": math.inf}}, "above 0"),
        ({"targets": {"ages": math.nan}}, "above 0"),
        ({"targets": {"ages": True}}, "above 0"),
        ({"targets": {"ages": "50"}}, "neither a number nor a percentage"),
        ({"targets": {}}, "targets are empty"),
        ({"targets": {"ages": 5}, "objective": "worst"}, "Give one of the two"),
        ({"objective": "least"}, "no objective 'least'"),
        ({"targets": {"ages": 5}, "level": 1.5}, "level of 1.5"),
    ],
)
def test_bad_goals_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(HdmmError, match=words):
        hdmm.optimize(TABLES, **arguments)  # pyright: ignore[reportArgumentType]


def test_tables_that_are_none() -> None:
    other = Workload.marginals(Domain({"age": 3}), k=1)
    with pytest.raises(StrategyError, match="empty"):
        hdmm.optimize({})
    with pytest.raises(StrategyError, match="different domains"):
        hdmm.optimize({**TABLES, "other": other})
    with pytest.raises(StrategyError, match="'ages': list"):
        hdmm.optimize({"ages": [1]})  # pyright: ignore[reportArgumentType]
    with pytest.raises(StrategyError, match="Give a mapping"):
        hdmm.optimize(other, targets={"age": 5})
    with pytest.raises(StrategyError, match="targets are empty"):
        hdmm.optimize(other, restarts=1).privacy_for()


def test_targets_that_no_budget_reaches_and_targets_that_every_budget_reaches() -> None:
    with pytest.raises(StrategyError, match="no budget that can be written reaches"):
        hdmm.optimize(TABLES, targets={"ages": 1e-200})
    nothing = {"none": 0.0 * TABLES["sex"], "ages": TABLES["ages"]}
    plan = hdmm.optimize(nothing, restarts=1)
    with pytest.raises(StrategyError, match="any budget reaches"):
        plan.privacy_for({"none": 5})
    with pytest.raises(StrategyError, match="Give larger margins"):
        plan.privacy_for({"ages": 1e-90})


def test_a_goal_stands_alone() -> None:
    goal = hdmm.optimize(TABLES, objective="tables", noise="gaussian", restarts=1).goal
    assert hdmm.optimize(goal, noise="gaussian", restarts=1).goal is goal
    with pytest.raises(StrategyError, match="Give it alone"):
        hdmm.optimize(goal, objective="worst")


def test_plans_for_targets_come_back_from_disk(plan: hdmm.Plan, tmp_path: Path) -> None:
    again = hdmm.load_plan(plan.save(tmp_path / "plan"))
    assert again.goal == plan.goal
    assert again.privacy_for() == plan.privacy_for()
