"""Groups that are known to be empty have no quantiles, means or shares, whatever rounding leaves of them."""

from __future__ import annotations

import numpy as np
import pytest

import hdmm
from hdmm import ZCDP, AllRange, Bins, Domain, Known, Labels, PureDP, Workload, from_array
from hdmm.answers.evaluate import evaluated
from hdmm.matrix import to_dense
from hdmm.publication.answered import answer_table
from hdmm.sql import parse
from tests.support.problems import MANY, planned_beside

PLACES = Labels(["T1", "T2", "T3", "T4"], levels={"state": ["N", "S", "N", "S"]})
DOMAIN = Domain({"sex": ["F", "M", "X"], "age": 6, "place": PLACES})
CODES = {"0": 0, "1": 1, "2": 2, "N": 0, "S": 1, "T1": 0, "T2": 1, "T3": 2, "T4": 3}
MEDIANS = "SELECT {by}, MEDIAN(age) FROM t GROUP BY {by}"
MEANS = "SELECT {by}, AVG(age) FROM t GROUP BY {by}"


def counts(by: str) -> np.ndarray:
    """No rows in the second group; many in the others."""
    x = np.random.default_rng(0).integers(100, 200, size=DOMAIN.shape)
    match by:
        case "sex":
            x[1] = 0
        case _:
            x[:, :, [1, 3]] = 0
    return x


def known(x: np.ndarray, by: str) -> Known:
    match by:
        case "sex, place":
            return Known(DOMAIN, ["sex", "place"], x.sum(axis=1))
        case _:
            return Known(DOMAIN, ["state"], [x[:, :, [0, 2]].sum(), x[:, :, [1, 3]].sum()])


@pytest.mark.parametrize("query", [MEDIANS, MEANS])
@pytest.mark.parametrize(
    ("by", "told", "noise"),
    [
        ("state", "sex, place", "gaussian"),
        ("sex", "sex, place", "gaussian"),
        ("state", "state", "gaussian"),
        ("state", "state", "laplace"),
    ],
)
def test_a_group_that_is_known_to_be_empty_has_no_answer(query: str, by: str, told: str, noise: str) -> None:
    (statement,) = parse(DOMAIN, query.format(by=by))
    w = statement.workload + Workload.product(DOMAIN, age=AllRange())
    plan = hdmm.optimize(w, noise=noise, restarts=1, time_limit=1, progress=False)
    x = counts(by)
    privacy = PureDP(1) if noise == "laplace" else ZCDP("0.5")
    for _ in range(8):
        release = plan.measure(from_array(DOMAIN, x), privacy, ledger=None).informed(known(x, told))
        answers = release.answer(statement.workload)
        estimate, stddev, lower, upper = evaluated(statement.aggregates, answers, 0.95)
        assert np.isnan(estimate[1])
        assert (stddev[1], lower[1], upper[1]) == (np.inf, -np.inf, np.inf)
        assert np.isfinite(estimate[0])


@pytest.mark.parametrize("query", [MEDIANS, MEANS])
@pytest.mark.parametrize(
    ("by", "told", "empty"),
    [
        ("place", "state", [1, 3]),
        ("sex, place", "state", [1, 3, 5, 7, 9, 11]),
        ("sex, state", "state", [1, 3, 5]),
        ("place", "sex, place", [1, 3]),
    ],
)
def test_groups_within_one_that_is_known_to_be_empty_have_no_answer(
    query: str, by: str, told: str, empty: list[int]
) -> None:
    """Each is empty, although only their sum is without noise: one of ten releases found somebody in one of them."""
    (statement,) = parse(DOMAIN, query.format(by=by))
    plan = hdmm.optimize(statement.workload, restarts=1, time_limit=1, progress=False)
    x = counts("state")
    found = known(x, "sex, place" if told == "sex, place" else "state")
    for _ in range(40):
        release = plan.measure(from_array(DOMAIN, x), PureDP(1), ledger=None).informed(found)
        estimate, stddev, lower, upper = evaluated(statement.aggregates, release.answer(statement.workload), 0.95)
        assert np.flatnonzero(np.isnan(estimate)).tolist() == empty
        assert np.isinf(stddev[empty]).all()
        assert np.isinf(lower[empty]).all()
        assert np.isinf(upper[empty]).all()


def test_a_part_of_all_answers_knows_which_groups_are_empty() -> None:
    """Means over bins are asked for beside their bounds: one of twenty releases had one of nobody."""
    domain = Domain({"income": Bins([0, 10, 50], values=[5, 30]), "place": PLACES})
    (query,) = parse(domain, "SELECT place, AVG(income) FROM t GROUP BY place")
    assert query.at_ends is not None
    assert query.at_ends.workload is not None
    plan = hdmm.optimize(query.workload + query.at_ends.workload, restarts=1, time_limit=1, progress=False)
    x = np.full(domain.shape, 150)
    x[:, [1, 3]] = 0
    told = Known(domain, ["state"], [600, 0])
    for _ in range(40):
        release = plan.measure(from_array(domain, x), PureDP(1), ledger=None).informed(told)
        assert np.flatnonzero(np.isnan(answer_table(release, 0.95, query).estimate)).tolist() == [1, 3]
    everything = release.answer(query.workload + query.at_ends.workload)
    assert everything.part(0, len(query.workload.products)).known == everything.known


def test_shares_of_small_units_have_answers() -> None:
    """A row may add little to a denominator: what counts as nothing is a part of that."""
    domain = Domain({"sex": 3})
    w = Workload.product(domain, sex=1e-6 * np.eye(3)) + Workload.marginals(domain, k=1)
    plan = hdmm.optimize(Workload.marginals(domain, k=1), restarts=1)
    release = plan.measure(from_array(domain, np.full(3, 50)), PureDP(10), ledger=None)
    ratios = release.answer(w).ratio([3, 4, 5], [0, 1, 2])
    np.testing.assert_allclose(ratios.values, 1e6)
    assert np.isfinite(ratios.interval()).all()


def test_impossible_groups_have_no_quantiles() -> None:
    domain = Domain({"sex": ["F", "M", "X"], "age": 6})
    (statement,) = parse(domain, MEDIANS.format(by="sex"), impossible=["sex = 'M'"])
    plan = hdmm.optimize(statement.workload, restarts=1, time_limit=1)
    for _ in range(5):
        release = plan.measure(from_array(domain, np.full(domain.shape, 1000)), PureDP(1), ledger=None)
        estimate, *_ = evaluated(statement.aggregates, release.answer(statement.workload), 0.95)
        assert np.isnan(estimate).tolist() == [False, True, False]


def drawn_counts(rng: np.random.Generator, domain: Domain) -> tuple[np.ndarray, list[Known]]:
    """100,000 rows in each cell, or none: one or two tables are known, and have a 0 for some of the empty cells."""
    x = np.full(domain.shape, 100_000)
    x[rng.random(x.shape) < 0.1] = 0
    names = []
    for _ in range(rng.integers(1, 3)):
        axes = [i for i, name in enumerate(domain.names) if rng.random() < (0.2 if name == "age" else 0.7)]
        names.append([domain.names[i] for i in axes])
        seen = x.sum(axis=tuple(i for i in range(len(domain)) if i not in axes), keepdims=True)
        if names[-1][-1:] == ["place"] and rng.random() < 0.5:
            names[-1][-1] = "state"
            x[..., rng.choice([[0, 2], [1, 3]])] = 0
        x = np.where(rng.random(seen.shape) < 0.3, 0, x)
    known = []
    for each in names:
        by_state = np.stack([x[..., [0, 2]].sum(axis=-1), x[..., [1, 3]].sum(axis=-1)], axis=-1)
        order = [*domain.names[:-1], "state" if "state" in each else "place"]
        summed = tuple(i for i, name in enumerate(order) if name not in each)
        known.append(Known(domain, each, (by_state if "state" in each else x).sum(axis=summed)))
    return x, known


def check_empty_groups(seed: int) -> int:
    """How many groups are known to be empty: these have no quantile and no mean, and those with rows have both."""
    rng = np.random.default_rng(seed)
    sizes = {f"a{i}": int(rng.integers(1, 4)) for i in range(rng.integers(0, 3))}
    domain = Domain({**sizes, "age": int(rng.integers(2, 6)), "place": PLACES})
    x, known = drawn_counts(rng, domain)
    never = np.zeros(x.size, bool)
    for table in known:
        never |= to_dense(table.product.matrix)[table.counts.ravel() == 0].any(axis=0)
    by = [name for name in (*sizes, str(rng.choice(["place", "state"]))) if rng.random() < 0.8]
    queries = ", ".join([*by, "MEDIAN(age)", "AVG(age)"]) + " FROM t" + (f" GROUP BY {', '.join(by)}" if by else "")
    (statement,) = parse(domain, f"SELECT {queries}")
    noise = str(rng.choice(["laplace", "gaussian"]))
    told = known if rng.random() < 0.5 else None  # to the plan already, or to the release only
    plan = planned_beside(statement.workload, noise=noise, known=told)
    if plan is None:
        return 0
    release = plan.measure(from_array(domain, x), PureDP(10) if noise == "laplace" else ZCDP(50), ledger=None)
    answers = release.informed(known).answer(statement.workload)
    estimate, stddev, lower, upper = evaluated(statement.aggregates, answers, 0.95)
    cells = dict(zip(domain.names, np.indices(x.shape).reshape(len(domain), -1), strict=True))
    cells["state"] = cells["place"] % 2
    count = 0
    for row, labels in enumerate(statement.labels()):
        here = np.ones(x.size, bool)
        for name, label in zip(by, map(str, labels), strict=False):
            here &= cells[name] == CODES[label]
        if never[here].all():
            assert np.isnan(estimate[row]), (labels, estimate[row])
            assert (stddev[row], lower[row], upper[row]) == (np.inf, -np.inf, np.inf), labels
            count += 1
        elif x.ravel()[here].any():
            assert np.isfinite([estimate[row], stddev[row], lower[row], upper[row]]).all(), labels
    return count


@pytest.mark.parametrize("seed", range(10))
def test_random_groups_that_are_known_to_be_empty_have_no_answer(seed: int) -> None:
    check_empty_groups(seed)


@pytest.mark.slow
def test_500_problems_in_which_groups_are_known_to_be_empty() -> None:
    found = [check_empty_groups(seed) for seed in MANY]
    assert sum(count > 0 for count in found) > len(found) / 3
