"""Groups that are known to be empty have no quantiles, means or shares, whatever rounding leaves of them."""

from __future__ import annotations

import numpy as np
import pytest

import hdmm
from hdmm import ZCDP, AllRange, Domain, Known, Labels, PureDP, Workload, from_array
from hdmm.answers.evaluate import evaluated
from hdmm.sql import parse

PLACES = Labels(["T1", "T2", "T3", "T4"], levels={"state": ["N", "S", "N", "S"]})
DOMAIN = Domain({"sex": ["F", "M", "X"], "age": 6, "place": PLACES})
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
