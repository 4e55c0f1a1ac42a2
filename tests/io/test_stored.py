"""Plans and releases that earlier versions wrote are still read correctly; tests/io/stored holds them.

expected.json says what each held when it was written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdmm
from hdmm import Integers, Workload

STORED = Path(__file__).parent / "stored"
EXPECTED: dict[str, dict[str, Any]] = json.loads((STORED / "expected.json").read_text())
PLANS = [name for name in EXPECTED if "operator" in EXPECTED[name]]
RELEASES = [name for name in EXPECTED if "digest" in EXPECTED[name]]


@pytest.mark.parametrize("name", PLANS)
def test_a_stored_plan_is_what_it_was(name: str) -> None:
    plan = hdmm.load_plan(STORED / name)
    held = EXPECTED[name]
    assert plan.error == pytest.approx(held["error"], rel=1e-9)
    assert (plan.operator, plan.workload.queries) == (held["operator"], held["queries"])


@pytest.mark.parametrize("name", RELEASES)
def test_a_stored_release_is_what_it_was(name: str) -> None:
    """Its digest does not change, and its answers are those that were published."""
    release = hdmm.load_release(STORED / name)
    held = EXPECTED[name]
    assert release.digest == held["digest"]
    assert (str(release.privacy), str(release.unit)) == (held["privacy"], held["unit"])
    assert (None if release.receipt is None else release.receipt.hash) == held["receipt"]
    answers = release.answer(asked(release))
    np.testing.assert_allclose(answers.values[:6], held["values"], rtol=1e-9)
    np.testing.assert_allclose(answers.stddev[:6], held["stddev"], rtol=1e-9)


def asked(release: hdmm.Release) -> Workload:
    """The workload that the stored answers are to: prefixes of integers, each value of the rest, then margins."""
    domain = release.domain
    if "sex" not in domain.names:
        return Workload.product(domain, x=hdmm.Prefix(), y=hdmm.Prefix())
    each = {"x": hdmm.Prefix(), "sex": hdmm.Identity(), "y": hdmm.Identity()}
    assert isinstance(domain["x"].values, Integers)
    return Workload.product(domain, each) + Workload.marginals(domain, k=1)


@pytest.mark.parametrize("name", EXPECTED)
def test_saving_again_writes_the_same(name: str, tmp_path: Path) -> None:
    kind = "plan" if name in PLANS else "release"
    held = hdmm.load_plan(STORED / name) if kind == "plan" else hdmm.load_release(STORED / name)
    held.save(tmp_path / name)
    again, before = (json.loads((folder / name / f"{kind}.json").read_bytes()) for folder in (tmp_path, STORED))
    assert again == before
    for array in (STORED / name).glob("*.npy"):
        assert (tmp_path / name / array.name).read_bytes() == array.read_bytes()
