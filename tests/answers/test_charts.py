"""Charts draw the numbers of a table and nothing else, and say in words what they draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import ZCDP, AllRange, ApproxDP, Domain, Identity, Prefix, PureDP, Table, Unit, Workload
from hdmm.answers.margins import Reliability
from hdmm.answers.table import Forecast
from hdmm.base.numbers import LEVEL
from hdmm.measure.accuracy import margins
from hdmm.strategy.lattice import Lattice
from tests.support.labels import labelled

DOMAIN = Domain({"sex": ["M", "F"], "age": 15, "place": ["a.b[0]", "<script>", "c"]})


def table(labels: list[tuple[str | None, ...]], columns: tuple[str, ...], **changes: Any) -> Table:
    """Estimates 10, 11, …; intervals that no formula gives, and not symmetric."""
    estimate = 10.0 + np.arange(len(labels))
    heads = labelled(columns, labels)
    made = Table("t", "A table", heads, lambda: labels, estimate, estimate, estimate - 2.5, estimate + 7, 0.9)
    return replace(made, **changes)


def records(chart: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    data = chart["layer"][layer].get("data") or chart["data"]  # layers of one source share it
    return chart["datasets"][data["name"]]


def fields(chart: dict[str, Any], layer: int) -> dict[str, str]:
    encoding = chart["layer"][layer]["encoding"]
    return {channel: encoded["field"] for channel, encoded in encoding.items() if channel != "tooltip"}


def check_is_told(chart: dict[str, Any]) -> None:
    """A title, a description, and in every layer titled axes and a tooltip."""
    assert chart["title"]["text"] in chart["description"]
    for layer in chart["layer"]:
        axes = [encoded for channel, encoded in layer["encoding"].items() if channel in ("x", "y")]
        assert axes
        assert all(encoded["title"] for encoded in axes)
        assert all(tip["title"] for tip in layer["encoding"]["tooltip"])


def test_bars_with_the_intervals_of_the_table() -> None:
    given = table([("north",), ("south",), ("river",)], ("place",))
    chart = given.plot().to_dict()
    check_is_told(chart)
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["bar", "rule"]
    assert fields(chart, 0) == {"x": "estimate", "y": "row"}
    assert fields(chart, 1) == {"x": "lower", "x2": "upper", "y": "row"}
    drawn = records(chart, 0)
    assert [row["row"] for row in drawn] == ["north", "south", "river"]
    for name, numbers in (("estimate", given.estimate), ("lower", given.lower), ("upper", given.upper)):
        assert [row[name] for row in drawn] == numbers.tolist()
    assert chart["layer"][0]["encoding"]["x"]["title"] == "count: estimate and 90 % interval"
    assert chart["layer"][0]["encoding"]["x"]["stack"] is None


def test_few_labels_of_the_last_column_are_beside_each_other() -> None:
    labels = [(place, sex) for place in ("north", "south", "river") for sex in ("M", "F")]
    chart = table(labels, ("place", "sex")).plot().to_dict()
    check_is_told(chart)
    assert fields(chart, 0) == {"x": "estimate", "y": "row", "yOffset": "series", "color": "series"}
    assert fields(chart, 1)["yOffset"] == "series"
    assert [(row["row"], row["series"]) for row in records(chart, 0)] == labels


@pytest.mark.parametrize(
    ("labels", "columns", "names"),
    [
        ([(str(k),) for k in range(30)], ("age",), [str(k) for k in range(30)]),
        ([(f"≤ {k}",) for k in range(30)], ("age",), [f"≤ {k}" for k in range(30)]),
        ([(f"[{5 * k}, {5 * k + 5})",) for k in range(20)], ("pay",), [f"[{5 * k}, {5 * k + 5})" for k in range(20)]),
        ([(f"{k:,}",) for k in range(990, 1010)], ("year",), [f"{k:,}" for k in range(990, 1010)]),
    ],
    ids=["values", "prefixes", "bins", "thousands"],
)
def test_a_scale_is_a_curve_with_a_band(labels: Any, columns: tuple[str, ...], names: list[str]) -> None:
    given = table(labels, columns)
    chart = given.plot().to_dict()
    check_is_told(chart)
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["area", "line", "point"]
    assert fields(chart, 0) == {"x": "row", "y": "lower", "y2": "upper"}
    assert fields(chart, 1) == {"x": "row", "y": "estimate"}
    assert [row["row"] for row in records(chart, 0)] == names
    assert [row["lower"] for row in records(chart, 0)] == given.lower.tolist()
    assert chart["layer"][0]["encoding"]["x"]["sort"] is None


def test_each_group_has_a_curve() -> None:
    labels = [(str(age), sex) for age in range(20) for sex in ("M", "F")]
    chart = table(labels, ("age", "sex")).plot().to_dict()
    check_is_told(chart)
    assert fields(chart, 1) == {"x": "row", "y": "estimate", "color": "series"}
    assert chart["layer"][1]["encoding"]["color"]["title"] == "sex"
    assert [(row["row"], row["series"]) for row in records(chart, 1)] == labels


@pytest.mark.parametrize("columns", [("age",), ("age_from", "age_to")])
def test_of_all_ranges_the_shortest_are_a_curve(columns: tuple[str, ...]) -> None:
    pairs = [(a, b) for a in range(15) for b in range(a, 15)]
    one = [((str(a) if a == b else f"{a} – {b}"),) for a, b in pairs]
    two = [(str(a), str(b)) for a, b in pairs]
    given = table(one if len(columns) == 1 else two, columns)
    chart = given.plot().to_dict()
    drawn = records(chart, 0)
    assert [row["row"] for row in drawn] == [str(k) for k in range(15)]
    assert [row["estimate"] for row in drawn] == [given.estimate[pairs.index((k, k))] for k in range(15)]
    assert chart["layer"][0]["encoding"]["x"]["title"] == "age"
    assert "Of all ranges, the shortest are drawn." in chart["title"]["subtitle"]


@pytest.mark.parametrize(
    "labels",
    [
        [("0 – 4",), ("0 – 9",), *((f"{k}",) for k in range(10, 30))],  # ranges that overlap
        [(str(k),) for k in (*range(15, 30), *range(15))],  # not in order
        [*((str(k),) for k in range(20)), ("other",)],
        [(str(k),) for k in (*range(20), *range(20))],  # twice
        [(str(k),) for k in range(5)],  # few
    ],
    ids=["overlapping", "unordered", "words", "twice", "few"],
)
def test_what_is_no_scale_has_bars(labels: Any) -> None:
    chart = table(labels, ("age",)).plot().to_dict()
    assert chart["layer"][0]["mark"]["type"] == "bar"
    names = [row["row"] for row in records(chart, 0)]
    assert len(set(names)) == len(names) == len(labels)


def test_what_is_not_drawn_is_said() -> None:
    labels = [("north",), ("south",), ("(all)",), ("river",)]
    given = table(labels, ("place",))
    chart = given.plot().to_dict()
    assert [row["row"] for row in records(chart, 0)] == ["north", "south", "river"]
    assert chart["title"]["subtitle"] == ["Rows of (all) are not drawn."]
    unknown = np.array([np.nan, 11.0, 12.0, 13.0])
    chart = replace(given, estimate=unknown, reliability=Reliability(suppress=0.55)).plot().to_dict()
    assert [row["row"] for row in records(chart, 0)] == ["river"]
    assert "3 suppressed or unknown rows are not drawn." in chart["title"]["subtitle"]
    chart = table([(f"place {k}",) for k in range(200)], ("place",), biased=True).plot().to_dict()
    assert len(records(chart, 0)) == 60
    assert chart["title"]["subtitle"] == ["The estimates are biased.", "The first 60 of 200 rows are drawn."]


def test_each_measure_has_a_chart_of_its_own() -> None:
    labels = [(sex, measure) for measure in ("mean of pay", "count") for sex in ("M", "F")]
    chart = table(labels, ("sex", "measure"), measures=2).plot().to_dict()
    titles = [part["layer"][0]["encoding"]["x"]["title"] for part in chart["vconcat"]]
    assert titles == ["mean of pay: estimate and 90 % interval", "count: estimate and 90 % interval"]


def test_charts_of_a_release() -> None:
    tables = {
        "ages": Workload.product(DOMAIN, age=AllRange()),
        "curves": Workload.product(DOMAIN, sex=Identity(), age=Prefix()),
        "places": Workload.marginals(DOMAIN, [("place",)]),
        "total": Workload.marginals(DOMAIN, k=0),
    }
    plan = hdmm.optimize(tables, restarts=1, time_limit=2)
    answers = plan.measure(hdmm.from_array(DOMAIN, np.full(DOMAIN.shape, 9)), PureDP(1), ledger=None).answer(tables)
    kinds = {name: answers[name].plot().to_dict()["layer"][0]["mark"]["type"] for name in tables}
    assert kinds == {"ages": "area", "curves": "area", "places": "bar", "total": "bar"}
    assert [row["row"] for row in records(answers["places"].plot().to_dict(), 0)] == list(DOMAIN["place"].labels)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_margins_of_a_plan_meet_the_targets_at_its_least_privacy(noise: str) -> None:
    w = Workload.marginals(Domain({"sex": 2, "age": 9}), k=1)
    tables = {"one": w, "twice": 2.0 * w, "free": Workload.marginals(w.domain, k=0)}
    plan = hdmm.optimize(tables, targets={"one": 20}, noise=noise, restarts=1, time_limit=2)
    chart = plan.plot().to_dict()
    check_is_told(chart)
    least = plan.privacy_for()
    here = float(least.epsilon if isinstance(least, PureDP) else least.rho)
    assert records(chart, 0) == [{"x": here}]
    drawn = {(row["name"], row["x"]): row["y"] for row in records(chart, 1)}
    assert drawn["one", here] == pytest.approx(20, rel=1e-3)
    assert drawn["twice", here] == pytest.approx(drawn["one", here])  # counts are published without weights
    assert records(chart, 3) == [{"name": "one", "y": 20.0}]
    privacy = type(least)(max(x for _, x in drawn))
    lattice = Lattice.of(plan.strategy, plan.noise, workload=plan.goal.workload)
    there = margins(plan.goal, lattice, privacy, level=LEVEL, unit=Unit())
    assert drawn["free", max(x for _, x in drawn)] == pytest.approx(there["free"], rel=1e-3)


def test_the_unit_of_a_plan_widens_its_margins() -> None:
    plan = hdmm.optimize(Workload.marginals(Domain({"sex": 2}), k=1), restarts=1)
    one, three = (plan.plot(PureDP(1), unit=unit).to_dict() for unit in (None, Unit(rows=3)))
    assert [row["y"] for row in records(three, 1)] == pytest.approx([3 * row["y"] for row in records(one, 1)], rel=1e-3)
    with pytest.raises(hdmm.StrategyError, match="made for laplace noise"):
        plan.plot(ZCDP(1))


@pytest.mark.parametrize("privacy", [PureDP(1), ZCDP("0.5"), ApproxDP(1, "1e-6")], ids=["pure", "zcdp", "approximate"])
def test_a_forecast_against_its_privacy(privacy: Any) -> None:
    chart = Forecast("ages", 9, rmse=12.0, identity=30.0, direct=None, bound=0.0, privacy=privacy).plot().to_dict()
    check_is_told(chart)
    drawn = records(chart, 1)
    assert {row["name"] for row in drawn} == {"hdmm", "noise on every cell"}  # a bound of 0 has no place on a log axis
    ((here,),) = (row.values() for row in records(chart, 0))
    at = {row["x"]: row["y"] for row in drawn if row["name"] == "hdmm"}
    assert at[here] == 12
    if isinstance(privacy, PureDP):
        assert at[4 * here] == pytest.approx(3)
    elif isinstance(privacy, ZCDP):
        assert at[4 * here] == pytest.approx(6)
    else:
        worse = ApproxDP("0.25", "1e-6")
        assert at[here / 4] == pytest.approx(12 * np.sqrt(float(privacy.rho / worse.rho)))
        assert chart["layer"][1]["encoding"]["x"]["title"] == "privacy budget ε (at δ = 0.000001)"


def test_a_forecast_without_privacy_says_so() -> None:
    with pytest.raises(hdmm.HdmmError, match="does not say at which privacy"):
        Forecast("ages", 9, 12.0).plot()
