"""The golden numbers of a case: of its given strategy, which may not change, and of what a search finds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import shake_256
from typing import Any
from unittest.mock import patch

import numpy as np

import hdmm
from hdmm import ZCDP, HdmmError, Plan, PureDP, Release, Workload
from tests.golden.cases import Case, counts

Numbers = dict[str, Any]
NOISES = {"laplace": PureDP(1), "gaussian": ZCDP("1/2")}
_WHOLE = 12  # numbers of a vector up to which all are kept


@contextmanager
def fixed_noise(salt: str) -> Iterator[None]:
    """The operating system's random bytes replaced by fixed ones: of one length always the same, in whatever order."""
    with patch.object(os, "urandom", lambda size: shake_256(f"{salt} {size}".encode()).digest(size)):
        yield


def searched(case: Case, noise: str) -> Plan:
    """The plan that a search of a fixed number of restarts finds."""
    options = {"known": case.known or None, "restarts": case.restarts, "time_limit": None, "progress": False}
    return hdmm.optimize(case.asked, noise=noise, seed=0, **options, **case.goal)


def given(case: Case, noise: str) -> Plan:
    """The plan that has the strategy of the case, without a search for it."""
    assert case.strategy is not None
    plan = searched(Case(Workload.product(case.domain, {})), noise)
    goal = type(plan.goal).of(case.asked, **case.goal)
    strategy = replace(case.strategy, known=tuple(each.product for each in case.known))
    return replace(plan, workload=goal.workload, goal=goal, strategy=strategy, known=tuple(case.known))


def released(plan: Plan, measurements: list[list[int]] | None = None, salt: str = "") -> Release:
    """The plan measured with fixed noise or, if they are given, with these noisy answers."""
    data = hdmm.from_array(plan.workload.domain, counts(plan.workload.domain))
    with fixed_noise(salt):
        release = plan.measure(data, NOISES[plan.noise], ledger=None)
    if measurements is None:
        return release
    assert [len(y) for y in measurements] == [len(y) for y in release.measurements]
    return replace(release, measurements=tuple(np.array(y) for y in measurements))


def of_plan(plan: Plan) -> Numbers:
    """All that is said of a plan before data is seen."""
    w, strategy, noise = plan.workload, plan.strategy, plan.noise
    found = {
        "sensitivity": strategy.sensitivity(noise),
        "error": lambda: hdmm.unit_error(w, strategy, noise=noise),
        "expected error": lambda: hdmm.expected_error(w, strategy, NOISES[noise]),
        "variances": lambda: np.concatenate([np.concatenate([*strategy.variances(p)]) for p in w.products]),
        "value": lambda: plan.value,
        "errors": lambda: [*plan.errors.values()],
        "worst": lambda: [*plan.worst.values()],
        "~bound": lambda: hdmm.lower_bound(w, NOISES[noise]),
        "~gap": lambda: (
            plan.gap if plan.goal.objective != "worst" and w.domain.size <= 1024 else None
        ),  # it may be slow
    }
    if plan.goal.targets:
        found["privacy for targets"] = lambda: _amount(plan.privacy_for())
    return {name: _kept(each) for name, each in found.items()}


def of_release(release: Release, workload: Workload) -> Numbers:
    """What is answered from given measurements: estimates, deviations, covariances; and without negative counts."""
    plain, last = release.answer(workload), workload.queries - 1
    found = {
        "scales": [float(scale) for scale in release.scales],
        "error": lambda: release.error(workload),
        "answers": plain.values,
        "stddev": lambda: plain.stddev,
        "lower": lambda: plain.interval(0.9)[0],
        "upper": lambda: plain.interval(0.9)[1],
        "differences": lambda: [
            float(plain.difference(i, j).stddev[0]) for i, j in ((0, last), (last // 2, last), (0, last // 3)) if i != j
        ],
        "ratio": lambda: np.concatenate([plain.ratio(0, last).values, *plain.ratio(0, last).interval(0.9)]),
        "~nonnegative": lambda: release.answer(workload, nonnegative=True).values,
        "integers": lambda: release.answer(workload, integers=True).values,
    }
    return {name: _kept(each) for name, each in found.items()}


def _amount(privacy: PureDP | ZCDP) -> float:
    return float(privacy.epsilon if isinstance(privacy, PureDP) else privacy.rho)


def _kept(found: Callable[[], Any] | Any) -> Any:
    """A number, a vector, or of a long one its length, two sums and some entries; of an error, its kind."""
    try:
        value = found() if callable(found) else found
    except HdmmError as wrong:
        return type(wrong).__name__.replace("NoClosedFormError", "StrategyError")
    if value is None or isinstance(value, float | int):
        return value
    vector = np.asarray(value, dtype=np.float64)
    if len(vector) <= _WHOLE:
        return vector.tolist()
    slope = np.linspace(1, 2, len(vector))
    some = vector[np.linspace(0, len(vector) - 1, _WHOLE - 4).astype(int)]
    return [float(len(vector)), vector.sum(), vector @ slope, float(np.linalg.norm(vector)), *some.tolist()]


def fixed_numbers(case: Case, noise: str, measurements: list[list[int]] | None) -> Numbers:
    """The numbers of the strategy that is given, and what is answered from these measurements, or from new ones."""
    plan = given(case, noise)
    release = released(plan, measurements, salt=noise)
    kept = [y.tolist() for y in release.measurements]
    return {"plan": of_plan(plan), "measurements": kept, "release": of_release(release, plan.workload)}


def searched_numbers(case: Case, noise: str) -> Numbers:
    """What a search reaches: numbers of which less is better."""
    plan = searched(case, noise)
    found: Numbers = {"value": plan.value}
    if plan.goal.objective != "worst" and plan.gap is not None:
        found["gap"] = plan.gap
    return found | ({"privacy": _amount(plan.privacy_for())} if plan.goal.targets else {})


def kinds(case: Case, noise: str) -> list[str]:
    """The classes of what a case is answered by, at the time of recording: for information, never compared."""
    plan = given(case, noise) if case.strategy is not None else searched(case, noise)
    held = [plan.strategy.form, *([released(plan).estimate] if case.strategy is not None else [])]
    held += [each.inner for each in held if hasattr(each, "inner")]
    return [plan.operator if case.strategy is None else "given", *(type(each).__name__ for each in held)]
