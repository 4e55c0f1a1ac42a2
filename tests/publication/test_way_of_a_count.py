"""A release takes each step once: what was parsed, read, built or verified is handed on."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlglot.parser

from hdmm import Ledger, PureDP, Release, load_spec
from hdmm.apps.cli import run
from hdmm.apps.demo import write_demo
from hdmm.measure import measurement as measurement_module
from hdmm.measure import plan as plan_module
from hdmm.privacy import store as store_module
from hdmm.publication import files as files_module

PLAN = Path(__file__).parents[1] / "golden" / "plans" / "demo"
STATEMENTS, TABLES = 8, 13  # of the demo


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often the release of the demo takes each step, from a plan that is there and an account that was opened."""
    folder = tmp_path_factory.mktemp("demo")
    spec = load_spec(write_demo(folder / "people", persons=1000))
    shutil.copytree(PLAN, spec.plan.folder)
    Ledger(spec.ledger.path, dataset=spec.data.dataset, cap=spec.ledger.cap).debit(PureDP("0.1"), "before")
    taken = Counter[str]()
    with pytest.MonkeyPatch.context() as patch:

        def count(step: str, home: object, *names: str) -> None:
            for name in names:
                patch.setattr(home, name, counting(step, getattr(home, name)))

        def counting(step: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*given: object, **named: object) -> Any:
                taken[step] += 1
                return call(*given, **named)

            return counted

        count("SQL parsed", sqlglot.parser.Parser, "parse")
        count("form with noise built", measurement_module, "form_in_noise")
        count("schema read", pq, "read_schema")
        count("columns listed", files_module, "file_columns")
        count("chain verified", store_module, "_whole")
        count("head read", store_module, "read_head")
        count("table answered", Release, "answer")
        count("plan saved", plan_module, "save_record")
        count("plan loaded", plan_module, "load_record")
        assert run(["release", str(spec.path), "--yes", "--quiet"]) == 0
    assert len(list((spec.output.folder / "tables").glob("*.csv"))) == TABLES
    return taken


@pytest.mark.parametrize(
    ("step", "times"),
    [
        ("SQL parsed", STATEMENTS),
        ("form with noise built", 1),
        ("schema read", 1),
        ("columns listed", TABLES),  # for CSV, Parquet and the data package
        ("chain verified", 2),  # before anything is spent, and under the lock of the debit
        ("head read", 4),  # twice each: the first is older than the records, and the last is replaced
        ("table answered", TABLES),  # with its totals
        ("plan saved", 1),
        ("plan loaded", 1),
    ],
)
def test_a_release_takes_each_step_once(steps: Counter[str], step: str, times: int) -> None:
    assert steps[step] == times
