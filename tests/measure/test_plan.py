"""OPT_HDMM: turns, early stops, failures and determinism; plans in words and on disk."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hdmm
from hdmm import ZCDP, AllRange, Domain, FileError, Identity, Prefix, PureDP, Strategy, StrategyError, Total, Workload
from hdmm.bounds.svd import svd_bound
from hdmm.privacy.guarantee import Noise
from hdmm.select.operators import operators_for
from hdmm.select.opt_hdmm import Candidate, Operator, select
from hdmm.select.problem import Problem
from hdmm.select.search import Search
from hdmm.strategy.blocks import Block

SMALL = Domain({"x": 5, "y": 3})
LINE = Workload.product(Domain({"x": 64}), x=AllRange())
PLANE = Workload.product(Domain({"x": 6, "y": 4}), x=AllRange()) + Workload.marginals(Domain({"x": 6, "y": 4}), k=2)


@cache
def plan_of(workload: Workload) -> hdmm.Plan:
    """A plan by one restart, made once."""
    return hdmm.optimize(workload, restarts=1)


def fixed(name: str, *strategies: Strategy | Exception) -> tuple[Operator, list[Search]]:
    """An operator that gives these strategies in turn, the last one for ever, and the searches it was given."""
    turns: list[Search] = []

    def run(_: Problem, search: Search) -> Strategy:
        turns.append(search)
        found = strategies[min(search.restart, len(strategies) - 1)]
        if isinstance(found, Exception):
            raise found
        return found

    return Operator(name, run), turns


def test_operators_take_turns_and_stop_when_they_agree() -> None:
    identity = Strategy.identity(LINE.domain)
    one, first = fixed("one", identity)
    two, second = fixed("two", identity)
    found = select(Problem(LINE), [one, two], restarts=25)
    assert [c.operator for c in found.candidates[:5]] == ["Identity", "one", "two", "one", "two"]
    assert len(first) == len(second) == 3  # three restarts agree
    assert found.stopped == "all restarts were done"


def test_an_operator_that_gains_nothing_stops_after_its_patience() -> None:
    """A gain starts the count again; what another operator gains does not."""
    identity, good = Strategy.identity(LINE.domain), plan_of(LINE).strategy
    plain, found = hdmm.unit_error(LINE, identity), hdmm.unit_error(LINE, good)
    assert found < 0.999 * plain
    lucky, first = fixed("lucky", identity, good, identity, identity, identity)
    other, second = fixed("other", identity)
    operators = [replace(o, agree=0.0, patience=p) for o, p in ((lucky, 3), (other, 2))]
    select(Problem(LINE), operators, restarts=25)
    assert len(first) == 1 + 1 + 3
    assert len(second) == 2


def test_a_failing_start_is_a_note() -> None:
    broken, _ = fixed("broken", StrategyError("no start here"))
    found = select(Problem(LINE), [broken], restarts=2)
    assert found.best.operator == "Identity"
    assert [(c.error, c.note) for c in found.candidates[1:]] == [(math.inf, "no start here")] * 2


def test_a_strategy_that_does_not_answer_cannot_win() -> None:
    total = Strategy(LINE.domain, (Block(1.0, ()),))
    useless, _ = fixed("useless", total)
    assert select(Problem(LINE), [useless], restarts=1).best.operator == "Identity"


def test_turns_know_what_to_beat() -> None:
    """One after the other, every turn has the least error so far; in processes, that of the round before."""
    good = plan_of(LINE)
    assert isinstance(good.strategy, Strategy)
    one, first = fixed("one", good.strategy)
    two, second = fixed("two", Strategy.identity(LINE.domain))
    select(Problem(LINE), [one, two], restarts=1)
    plain = hdmm.unit_error(LINE, Strategy.identity(LINE.domain))
    assert first[0].beat == plain
    assert second[0].beat == pytest.approx(good.error)


def test_an_operator_far_behind_gets_no_second_turn() -> None:
    w = Workload.product(Domain({"x": 64}), x=Prefix())
    good, plain = plan_of(w), Strategy.identity(w.domain)
    assert hdmm.unit_error(w, plain) > 1.5 * good.error
    assert isinstance(good.strategy, Strategy)
    one, first = fixed("one", good.strategy)
    two, second = fixed("two", plain)
    select(Problem(w), [one, two], restarts=25)
    assert (len(first), len(second)) == (3, 1)


def test_the_time_limit_keeps_the_best_so_far() -> None:
    slow, turns = fixed("slow", Strategy.identity(LINE.domain))
    found = select(Problem(LINE), [slow], time_limit=0.0)
    assert found.stopped == "the time limit was reached"
    assert not turns
    assert found.best.operator == "Identity"


def test_best_strategies_are_passed_on() -> None:
    identity = Strategy.identity(LINE.domain)
    one, _ = fixed("one", identity)
    two, _ = fixed("two", identity)
    three, turns = fixed("three", identity)
    select(Problem(LINE), [one, two, three], restarts=2)
    assert turns[0].found["one"] is identity  # the first operator begins by itself
    assert "two" not in turns[0].found  # of the same batch: it may run beside
    assert turns[1].found["two"] is identity


def test_operators_suit_the_workload() -> None:
    assert [o.name for o in operators_for(Problem(LINE))] == ["OPT_0", "OPT_S"]
    assert {o.name for o in operators_for(Problem(PLANE))} == {
        "OPT_x",
        "OPT_M",
        "OPT_+",
        "OPT_G",
        "OPT_B",
        "OPT_0",
        "OPT_S",
    }
    large = Workload.marginals(Domain({f"a{i}": 10 for i in range(30)}), k=2)
    assert "OPT_0" not in {o.name for o in operators_for(Problem(large))}


@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_plans_are_deterministic_and_exact(noise: Noise) -> None:
    heard: list[Candidate] = []
    one = hdmm.optimize(PLANE, noise=noise, restarts=2, seed=3, listener=lambda c, _: heard.append(c))
    two = hdmm.optimize(PLANE, noise=noise, restarts=2, seed=3)
    assert one.error == two.error
    assert [(c.operator, c.start, c.error) for c in one.candidates] == [
        (c.operator, c.start, c.error) for c in two.candidates
    ]
    assert tuple(heard) == one.candidates
    assert one.error == min(c.error for c in one.candidates)
    assert one.error == pytest.approx(hdmm.unit_error(PLANE, one.strategy, noise=noise), rel=1e-9)
    assert one.error >= svd_bound(PLANE) * (1 - 1e-9)


@pytest.mark.slow
def test_processes_find_what_one_finds() -> None:
    alone = hdmm.optimize(PLANE, restarts=2, seed=5, time_limit=None)
    shared = hdmm.optimize(PLANE, restarts=2, seed=5, time_limit=None, workers=2)
    assert shared.error == pytest.approx(alone.error, rel=1e-9)
    assert [(c.operator, c.start) for c in shared.candidates] == [(c.operator, c.start) for c in alone.candidates]


def test_scaling_changes_no_strategy() -> None:
    plan, seven = plan_of(PLANE), plan_of(7 * PLANE)
    assert seven.error == pytest.approx(49 * plan.error, rel=1e-3)
    doubled = plan_of(PLANE + PLANE)
    assert doubled.error == pytest.approx(2 * plan.error, rel=1e-3)


@pytest.mark.parametrize(
    "w",
    [
        Workload.product(Domain({"x": 1}), x=Identity()),
        Workload.product(Domain({"x": 5, "y": 1})),
        Workload.product(Domain({"x": 5}), x=[[1, 0, 1, 0, 0]]),
        0.0 * Workload.product(Domain({"x": 5, "y": 3}), x=Identity())
        + Workload.marginals(Domain({"x": 5, "y": 3}), [("y",)]),
        Workload.marginals(SMALL, [()]),
        Workload.product(SMALL, x=Identity() | Total(), y=Prefix()),
    ],
)
@pytest.mark.parametrize("noise", [Noise.LAPLACE, Noise.GAUSSIAN])
def test_awkward_workloads_get_a_plan(w: Workload, noise: Noise) -> None:
    plan = hdmm.optimize(w, noise=noise, restarts=2)
    assert hdmm.supports(w, plan.strategy)
    assert plan.error <= hdmm.unit_error(w, hdmm.baselines.identity(w), noise=noise) * (1 + 1e-9)
    assert "queries over" in plan.explain()


def test_rmse_belongs_to_the_noise() -> None:
    plan = plan_of(LINE)
    assert plan.rmse(PureDP(1)) == pytest.approx(math.sqrt(2 * plan.error / LINE.queries))
    with pytest.raises(StrategyError, match="noise='gaussian'"):
        plan.rmse(ZCDP(1))


@pytest.mark.parametrize("w", [LINE, PLANE], ids=["line", "plane"])
def test_plans_come_back_from_disk(w: Workload, tmp_path: Path) -> None:
    plan = plan_of(w)
    again = hdmm.load_plan(plan.save(tmp_path / "plan"))
    assert again.workload == plan.workload
    assert again.error == pytest.approx(plan.error, rel=1e-9)
    assert (again.operator, again.noise, again.seed) == (plan.operator, plan.noise, plan.seed)
    assert again.candidates == plan.candidates
    np.testing.assert_allclose(
        hdmm.query_variance(w, again.strategy, PureDP(1)), hdmm.query_variance(w, plan.strategy, PureDP(1))
    )


def test_a_strategy_over_another_domain_than_the_workload_is_refused(tmp_path: Path) -> None:
    folder = plan_of(LINE).save(tmp_path / "plan")
    text = json.loads((folder / "plan.json").read_text())
    text["content"]["strategy"]["domain"]["attributes"][0]["name"] = "other"
    (folder / "plan.json").write_text(json.dumps(text))
    with pytest.raises(FileError, match=r"domain \(other\), which is not the workload's"):
        hdmm.load_plan(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("noise", "uniform", 'noise: This is a text .*one of "laplace", "gaussian"'),
        ("seed", True, "seed"),
        ("candidates", {}, "candidates"),
        ("candidates", [["OPT_0", 0]], r"candidates\[0\]: This is a list of 2; a list of 5"),
        ("error", 0.0, "keys"),
    ],
)
def test_f2_a_plan_that_was_edited_is_refused(key: str, value: object, message: str, tmp_path: Path) -> None:
    folder = plan_of(LINE).save(tmp_path / "plan")
    text = json.loads((folder / "plan.json").read_text())
    text["content"][key] = value
    (folder / "plan.json").write_text(json.dumps(text))
    with pytest.raises(FileError, match=message):
        hdmm.load_plan(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"noise": "uniform"}, "noise='laplace'"), ({"restarts": 0}, "at least 1"), ({"workers": 0}, "at least 1")],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        hdmm.optimize(LINE, **arguments)  # type: ignore[arg-type]


def test_plans_and_strategies_print_in_a_line() -> None:
    found = plan_of(LINE)
    assert repr(found) == "Plan(OPT_0 for 2,080 queries over 64 cells, laplace noise)"
    assert repr(found.strategy) == "Strategy(1 block over 64 cells)"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ((pd.DataFrame({"x": [1]}), PureDP(1), None), r"DataFrame.*hdmm\.from_table\(domain"),
        ((None, 1, None), r"privacy is a int.*PureDP\('0.5'\)"),
        ((None, PureDP(1), "budget.db"), r"ledger is a str.*hdmm\.Ledger\('budget.db'"),
    ],
    ids=["data", "privacy", "ledger"],
)
def test_arguments_of_other_types_say_what_to_pass(arguments: tuple[object, object, object], advice: str) -> None:
    plan = plan_of(LINE)
    data, privacy, ledger = arguments
    data = hdmm.from_array(LINE.domain, np.zeros(64, dtype=int)) if data is None else data
    with pytest.raises(hdmm.HdmmError, match=advice):
        plan.measure(data, privacy, ledger=ledger)  # type: ignore[arg-type]


def test_what_is_no_workload_says_so() -> None:
    with pytest.raises(StrategyError, match=r"DataFrame.*Workload\.marginals"):
        hdmm.optimize(pd.DataFrame({"x": [1]}))  # type: ignore[arg-type]
    with pytest.raises(hdmm.WorkloadError, match=r"AllRange is a class.*AllRange\(\)"):
        Workload.product(Domain({"x": 4}), x=AllRange)  # type: ignore[arg-type]


@pytest.mark.parametrize("restarts", [1, 2])
def test_restarts_that_the_time_limit_cut_short_are_not_called_done(restarts: int) -> None:
    """Also where no restart was left to begin when time was over, or where a step was not begun at all."""

    def run(_: Problem, search: Search) -> Strategy:
        assert not replace(search.silent(), beat=0.0).affords(1e9)
        return Strategy.identity(LINE.domain)

    def quick(_: Problem, search: Search) -> Strategy:
        assert search.affords(1e-9)
        assert not search.late
        return Strategy.identity(LINE.domain)

    cut = select(Problem(LINE), [Operator("cut", run)], restarts=restarts, time_limit=1000.0)
    assert cut.stopped == "the time limit was reached"
    assert [c.note for c in cut.candidates] == ["", *["cut short by the time limit"] * restarts]
    done = select(Problem(LINE), [Operator("quick", quick)], restarts=restarts, time_limit=1000.0)
    assert done.stopped == "all restarts were done"
    assert not any(c.note for c in done.candidates)
