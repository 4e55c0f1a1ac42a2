"""hdmm rows: files that open anywhere, from a release that was paid for, with words that say what they are."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hdmm import Domain, PureDP, Workload, from_array, load_release, load_spec, optimize, publish
from hdmm.apps.cli import run
from tests.support.spec_cases import SPEC, planned, prepared

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    spec = load_spec(prepared(folder, SPEC))
    return publish(spec, planned(spec)).folder


def test_one_command_writes_rows_that_open_anywhere(out: Path, capsys: Captured) -> None:
    assert run(["rows", str(out), "--force", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    folder = out / "rows"
    assert sorted(path.name for path in folder.iterdir()) == [
        "about.html",
        "closeness.csv",
        "columns.csv",
        "rows.csv",
        "rows.parquet",
    ]
    parquet, text = pd.read_parquet(folder / "rows.parquet"), pd.read_csv(folder / "rows.csv")
    assert told["rows"] == len(parquet) == len(text)
    assert told["columns"] == list(parquet.columns) == list(text.columns)
    for name in parquet.columns:
        assert parquet[name].astype(str).tolist() == text[name].astype(str).tolist(), name
    with open(folder / "columns.csv", newline="") as file:
        assert [line["column"] for line in csv.DictReader(file)] == told["columns"]
    page = (folder / "about.html").read_text()
    assert "No row is a person" in page
    assert str(load_release(out / "release").digest) in page


def test_rows_that_are_there_are_replaced_only_if_asked(out: Path, tmp_path: Path, capsys: Captured) -> None:
    target = tmp_path / "made"
    options = ["rows", str(out), "--count", "40", "--output", str(target)]
    assert run(options) == 0
    before = (target / "rows.csv").read_bytes()
    assert run(options) == 1
    assert "--force" in capsys.readouterr().err
    assert run([*options, "--force"]) == 0
    assert (target / "rows.csv").read_bytes() == before
    (target / "mine.txt").write_text("keep")
    assert run([*options, "--force"]) == 1
    assert (target / "mine.txt").exists()


def test_a_publication_with_rows_can_be_replaced(tmp_path: Path) -> None:
    """The rows of the earlier release go with its tables."""
    spec = load_spec(prepared(tmp_path, SPEC))
    out = publish(spec, planned(spec)).folder
    assert run(["rows", str(out), "--count", "10", "--quiet"]) == 0
    publish(spec, planned(spec), force=True)
    assert not (out / "rows").exists()


@pytest.mark.parametrize("count", ["0", "-3", "99999999999"])
def test_numbers_of_rows_that_cannot_be_are_refused(out: Path, tmp_path: Path, count: str, capsys: Captured) -> None:
    assert run(["rows", str(out), "--count", count, "--output", str(tmp_path / "none")]) == 1
    assert "rows" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_rows_by_columns_that_do_not_exist_are_refused(out: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run(["rows", str(out), "--by", "sxe", "--output", str(tmp_path / "none")]) == 1
    assert "sxe" in capsys.readouterr().err


def test_what_was_not_paid_for_is_refused(tmp_path: Path, capsys: Captured) -> None:
    domain = Domain({"sex": ["M", "F"]})
    plan = optimize(Workload.marginals(domain, k=1), restarts=1)
    release = plan.measure(from_array(domain, np.array([30, 20])), PureDP(1), ledger=None)
    release.save(tmp_path / "mine")
    assert run(["rows", str(tmp_path / "mine")]) == 4
    assert "receipt" in capsys.readouterr().err


def test_a_plan_says_how_near_rows_will_come(tmp_path: Path, capsys: Captured) -> None:
    """The more rows there are, the nearer; and no data are there to be read."""
    spec = prepared(tmp_path, SPEC)
    shares: list[dict[str, float]] = []
    for n in ("300", "30000"):
        assert run(["plan", str(spec), "--rows", n, "--json"]) == 0
        shares.append(json.loads(capsys.readouterr().out)["rows"])
    few, many = shares
    assert few["count"] == 300
    assert 0 < many["independent"] < few["independent"] < 1
    assert 0 < many["dependent"] < few["dependent"] < 1
    assert run(["plan", str(spec), "--rows", "300"]) == 0
    assert "made-up people" in capsys.readouterr().out
