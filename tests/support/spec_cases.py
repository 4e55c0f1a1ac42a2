"""A small specification and the table it is about, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hdmm import Plan, Spec, optimize
from hdmm.privacy.guarantee import Noise
from hdmm.publication import outlook, planning
from hdmm.select.goal import Goal
from hdmm.select.operators import operators_for
from hdmm.select.problem import Problem

SPEC = """\
title = "People"

[data]
source = "people.csv"
dataset = "people-2026"

[domain]
sex = ["M", "F"]
age = { first = 0, last = 19 }
smokes = { first = 0, last = 1, outside = "other" }
income = { bins = [0, 10, 50, 100] }

[[table]]
name = "P12"
title = "Sex by age"
sql = "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age"

[[table]]
name = "pairs"
marginals = 2
weight = 2

[[table]]
name = "ages"
ranges = ["age"]

[privacy]
epsilon = "0.5"

[ledger]
path = "budget.db"
cap = { epsilon = "4" }

[output]
folder = "out"

[plan]
time_limit = 1
restarts = 1
"""


def people(n: int = 500, seed: int = 0) -> pa.Table:
    """Rows, some with values outside the domain."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(np.array(["M", "F", "?"]), n, p=[0.5, 0.4, 0.1])
    smokes = [None if s == 9 else int(s) for s in rng.choice([0, 1, 9], n)]
    return pa.table(
        {
            "sex": sex,
            "age": rng.integers(0, 22, n),
            "smokes": pa.array(smokes, pa.int64()),
            "income": rng.integers(-5, 120, n),
            "who": rng.integers(0, n // 3, n),
        }
    )


def write_csv(table: pa.Table, path: Path) -> None:
    import pyarrow.csv

    pyarrow.csv.write_csv(table, path)


_PLANS: list[tuple[Goal, Noise, Plan]] = []


def optimize_quickly(goal: Goal, *, noise: Noise, **options: Any) -> Plan:
    """optimize by the first operator alone, which is fast and never far off."""
    return optimize(goal, noise=noise, **{**options, "operators": operators_for(Problem.of(goal.in_counts, noise))[:1]})


@pytest.fixture(autouse=True)
def plan_quickly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For rooms whose tests are not about the search; one that is takes `whole_search`."""
    if "whole_search" not in request.fixturenames:
        without_search(monkeypatch)


def without_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a specification is planned with until the end of a test."""
    for room in (planning, outlook):
        monkeypatch.setattr(room, "optimize", optimize_quickly)


@pytest.fixture
def whole_search() -> None:
    """Plans are made by all operators, as they are for a user."""


def planned(spec: Spec) -> Plan:
    """A plan that suits, made once for tests that care about other things."""
    goal, noise = spec.goal, spec.privacy.noise
    for held, kind, plan in _PLANS:
        if (held, kind) == (goal, noise):
            return plan
    plan = optimize_quickly(goal, noise=noise, restarts=1, progress=False)
    _PLANS.append((goal, noise, plan))
    return plan


def smallest(data: str, domain: str = "a = 2") -> str:
    """A specification of one table, with these lines on its data and its domain."""
    return f"""\
[data]
{data}
dataset = "d"
[domain]
{domain}
[[table]]
name = "t"
marginals = 1
[privacy]
epsilon = 1
[ledger]
path = "budget.db"
cap = {{ epsilon = 1 }}
"""


def write_spec(folder: Path, text: str = SPEC, name: str = "people.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def prepared(folder: Path, text: str = SPEC) -> Path:
    """A folder with the specification and its data, as Parquet."""
    pq.write_table(people(), folder / "people.parquet")
    return write_spec(folder, text.replace("people.csv", "people.parquet"))
