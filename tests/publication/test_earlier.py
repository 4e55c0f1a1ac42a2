"""hdmm plan --with: tables that earlier releases say well enough are not bought again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hdmm import combine, load_release, load_spec, optimize
from hdmm.apps.cli import run
from hdmm.data.table_like import from_table
from hdmm.measure.measure import measure_prepared
from hdmm.publication.forecast import as_measured
from tests.support.spec_cases import SPEC, people, planned, prepared, write_spec

Captured = pytest.CaptureFixture[str]
AGES = SPEC.replace('[[table]]\nname = "pairs"\nmarginals = 2\nweight = 2\n', "").replace(
    'ranges = ["age"]', 'marginals = [["income"]]'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an earlier release of two tables in out."""
    monkeypatch.chdir(tmp_path)
    spec = load_spec(prepared(tmp_path, AGES))
    planned(spec).save(spec.plan.folder)
    assert run(["release", "people.toml", "--yes", "--quiet"]) == 0
    return tmp_path


def told(capsys: Captured) -> dict[str, dict[str, object]]:
    return {each["table"]: each for each in json.loads(capsys.readouterr().out)["earlier"]}


def margins(text: str, p12: float, ages: float) -> str:
    return text.replace('title = "Sex by age"\n', f'title = "Sex by age"\nmargin = {p12}\n').replace(
        'marginals = [["income"]]', f'marginals = [["income"]]\nmargin = {ages}'
    )


def test_only_what_is_missing_is_planned(folder: Path, capsys: Captured) -> None:
    text = (folder / "people.toml").read_text()
    write_spec(folder, margins(text, 1000, 3), "next.toml")
    capsys.readouterr()
    assert run(["plan", "next.toml", "--with", "out", "--json"]) == 0
    found = told(capsys)
    assert found["P12"]["enough"] is True
    assert found["ages"]["enough"] is False
    for each in found.values():
        assert each["together"] < each["already"]  # type: ignore[operator]
    assert not (folder / "next.plan").exists()
    assert run(["plan", "next.toml", "--with", "out/release"]) == 0
    shown = capsys.readouterr().out
    assert "A release of ages at" in shown
    assert "Nothing was spent." in shown


def test_the_margins_together_are_those_of_the_combined_release(folder: Path, capsys: Captured) -> None:
    capsys.readouterr()
    assert run(["plan", "people.toml", "--with", "out", "--json"]) == 0
    found = told(capsys)
    spec = load_spec("people.toml")
    plan = optimize(
        spec.goal, noise=spec.privacy.noise, restarts=1, time_limit=spec.plan.time_limit, seed=spec.plan.seed
    )
    data = from_table(spec.domain, people())
    second = measure_prepared(as_measured(spec, plan), data, ledger=None, purpose="test")
    both = combine([load_release("out/release"), second], same_rows=True)
    for table in spec.tables:
        lower, upper = both.answer(table.workload).interval(spec.output.level)
        assert found[table.name]["together"] == pytest.approx(float(np.max(upper - lower)) / 2, rel=1e-9)


def test_the_rest_is_released_alone_and_has_the_promised_margins_together(folder: Path, capsys: Captured) -> None:
    """From the plan to the combined answer: the command that is printed publishes only what was missing."""
    write_spec(folder, margins((folder / "people.toml").read_text(), 1000, 3), "next.toml")
    capsys.readouterr()
    assert run(["plan", "next.toml", "--with", "out", "--json"]) == 0
    promised = told(capsys)
    assert run(["plan", "next.toml", "--with", "out"]) == 0
    assert "hdmm release next.toml --only ages --output FOLDER" in capsys.readouterr().out
    assert run(["release", "next.toml", "--only", "ages", "--output", "rest", "--yes", "--quiet"]) == 0
    assert [path.name for path in sorted((folder / "rest" / "tables").iterdir())] == ["ages.csv", "ages.parquet"]
    assert run(["report", "next.toml", "--only", "ages", "--output", "rest", "--quiet"]) == 0
    both = combine([load_release("out/release"), load_release("rest/release")])
    spec = load_spec("next.toml")
    for table in spec.tables:
        lower, upper = both.answer(table.workload).interval(spec.output.level)
        assert float(np.max(upper - lower)) / 2 == pytest.approx(promised[table.name]["together"], rel=1e-9)
        if table.name == "P12":
            assert table.margin is not None
            assert float(np.max(upper - lower)) / 2 <= table.margin
    assert run(["check", "next.toml", "--only", "age"]) == 1
    assert "Did you mean 'ages'" in capsys.readouterr().err


def test_where_nothing_is_missing_nothing_is_planned(folder: Path, capsys: Captured) -> None:
    write_spec(folder, margins((folder / "people.toml").read_text(), 1000, 1000), "next.toml")
    assert run(["plan", "next.toml", "--with", "out"]) == 0
    assert "nothing needs to be released" in capsys.readouterr().out


def test_tables_without_an_answer_are_planned(folder: Path, capsys: Captured) -> None:
    text = (folder / "people.toml").read_text()
    text += '\n[[table]]\nname = "smokers"\nmarginals = [["smokes", "income"]]\n'
    write_spec(folder, text, "next.toml")
    capsys.readouterr()
    assert run(["plan", "next.toml", "--with", "out", "--json"]) == 0
    found = told(capsys)
    assert found["smokers"]["already"] is None
    assert found["smokers"]["together"] > 0  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('dataset = "people-2026"', 'dataset = "others"'), "different datasets: 'others', 'people-2026'"),
        (("last = 19", "last = 20"), "another domain"),
        (('epsilon = "0.5"', 'rho = "0.5"'), "same kind of noise"),
    ],
)
def test_releases_that_do_not_fit_are_refused(
    folder: Path, capsys: Captured, change: tuple[str, str], words: str
) -> None:
    text = (folder / "people.toml").read_text().replace(*change)
    write_spec(folder, text.replace('{ epsilon = "4" }', '{ rho = "4" }') if "rho" in text else text, "next.toml")
    assert run(["plan", "next.toml", "--with", "out"]) == 1
    assert words in capsys.readouterr().err
