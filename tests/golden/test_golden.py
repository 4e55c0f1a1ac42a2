"""What the golden files hold is what the code gives: README.md in this folder says when they may be recorded again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.cases import CASES, SLOW
from tests.golden.numbers import fixed_numbers, searched_numbers
from tests.golden.outputs import DEMO, LONG, SPECS, outputs

HERE = Path(__file__).parent
FIXED, SEARCHED, KINDS = (json.loads((HERE / f"{name}.json").read_text()) for name in ("fixed", "searched", "kinds"))
EXACT, LOOSE = 1e-9, 1e-6  # of the largest number of a vector; loose for what an iteration finds, named with a ~
AGAIN = "python -m tests.golden outputs records it again; first read tests/golden/README.md."
FORMS = "Diagonal Coupled Direct Grouped Grid Written Unknown Orthogonal Informed Conditioned"


def named(key: str) -> tuple[Any, str]:
    name, _, noise = key.rpartition(", ")
    return CASES[name], noise


def marked(keys: Iterable[str], slow: Callable[[str], bool]) -> list[Any]:
    return [pytest.param(key, marks=pytest.mark.slow) if slow(key) else key for key in keys]


@pytest.mark.parametrize("key", marked(FIXED, lambda key: key.rpartition(", ")[0] in SLOW["given"]))
def test_a_strategy_that_is_given_has_the_same_numbers(key: str) -> None:
    """Errors, variances, covariances and answers: whatever a search would find."""
    held = FIXED[key]
    found = fixed_numbers(*named(key), held["measurements"])
    for part in ("plan", "release"):
        assert found[part].keys() == held[part].keys()
        for name, value in held[part].items():
            compare(f"{key}, {part}: {name}", found[part][name], value)


def compare(what: str, found: Any, held: Any) -> None:
    assert isinstance(found, list) == isinstance(held, list), f"{what} was {held}, and is {found}"
    if held is None or isinstance(held, str) or found is None or isinstance(found, str):
        assert found == held, f"{what} was {held}, and is {found}"
        return
    numbers = np.atleast_1d(np.asarray(held, dtype=np.float64))
    scale = max(np.abs(numbers[np.isfinite(numbers)]), default=0.0)
    tolerance = LOOSE if ": ~" in what else EXACT
    np.testing.assert_allclose(found, held, rtol=tolerance, atol=tolerance * scale, err_msg=what)


@pytest.mark.parametrize("key", marked(SEARCHED, lambda key: key.rpartition(", ")[0] in SLOW[key.rpartition(", ")[2]]))
def test_a_search_finds_nothing_worse(key: str) -> None:
    found = searched_numbers(*named(key))
    for name, value in SEARCHED[key].items():
        assert found.get(name, np.inf) <= value * (1 + LOOSE) + EXACT, f"{name} was {value}, and is {found.get(name)}"


@pytest.mark.parametrize("spec", marked([*SPECS, DEMO], LONG.__contains__))
def test_what_users_get_is_the_same(spec: str, tmp_path: Path) -> None:
    """Every --json, CSV, workbook, metadata and report, under fixed noise."""
    found = outputs(spec, tmp_path)
    recorded = HERE / "outputs"
    held = {str(path.relative_to(recorded)): path.read_text() for path in (recorded / spec).iterdir()}
    for name in [*found, *(name for name in held if name not in found)]:  # in the order of the commands
        before, after = held.get(name, "").splitlines(), found.get(name, "").splitlines()
        differences = "\n".join(islice(unified_diff(before, after, "recorded", "now", lineterm="", n=1), 60))
        assert not differences, f"{name} differs:\n{differences}\nIf users asked for it: {AGAIN}"


def test_every_case_is_recorded() -> None:
    assert {named(key)[0] for key in FIXED} == {case for case in CASES.values() if case.strategy is not None}
    assert {named(key)[0] for key in SEARCHED} == {case for case in CASES.values() if case.search}


def test_every_kind_of_form_was_recorded() -> None:
    """At the time of recording; kinds.json is for information, and is not compared with the kinds of today."""
    assert set(FORMS.split()) <= {kind for found in KINDS.values() for kind in found}
