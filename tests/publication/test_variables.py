"""One specification for every month: variables, and another source or output on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hdmm import SpecError, load_spec
from hdmm.apps.cli import run
from hdmm.privacy.ledger import Ledger
from hdmm.publication.preflight import purpose_of
from hdmm.publication.spec import Spec, read_spec
from tests.support.spec_cases import SPEC, people, planned, write_spec

Captured = pytest.CaptureFixture[str]
MONTHLY = (
    SPEC.replace('"People"', '"People in ${MONTH}"')
    .replace("people.csv", "people-${MONTH}.parquet")
    .replace('folder = "out"', 'folder = "out-${MONTH}"')
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The specification, a plan, and the data of two months."""
    monkeypatch.chdir(tmp_path)
    for seed, month in enumerate(("2026-01", "2026-02")):
        pq.write_table(people(seed=seed), tmp_path / f"people-{month}.parquet")
    spec = load_spec(write_spec(tmp_path, MONTHLY), variables={"MONTH": "2026-01"})
    planned(spec).save(spec.plan.folder)
    return tmp_path


def read(text: str, **variables: str) -> Spec:
    return read_spec(text.encode(), Path("people.toml"), variables)


def test_the_ledger_tells_months_apart(folder: Path, capsys: Captured) -> None:
    for month in ("2026-01", "2026-02"):
        assert run(["release", "people.toml", "--set", f"MONTH={month}", "--yes"]) == 0
        stated = json.loads((folder / f"out-{month}" / "metadata.json").read_text())
        assert stated["title"] == f"People in {month}"
        assert stated["specification"]["variables"] == {"MONTH": month}
    debits = [entry.text for entry in Ledger("budget.db", dataset="people-2026").entries() if entry.kind == "debit"]
    assert debits == [
        f"People in {month}: tables P12, pairs, ages from people-{month}.parquet by people.toml, MONTH={month}"
        for month in ("2026-01", "2026-02")
    ]
    capsys.readouterr()
    assert run(["report", "people.toml", "--set", "MONTH=2026-02"]) == 0
    assert "out-2026-02" in capsys.readouterr().out


def test_another_source_and_output_on_the_command_line(folder: Path, capsys: Captured) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "people-2026-01.parquet").rename(folder / "elsewhere" / "rows.parquet")
    given = ["--set", "MONTH=2026-01", "--source", "elsewhere/rows.parquet", "--output", "elsewhere/out"]
    assert run(["check", "people.toml", *given, "--json"]) == 0
    assert "elsewhere" in json.loads(capsys.readouterr().out)["files"]["first"][0]
    assert run(["plan", "people.toml", *given, "--quiet"]) == 0
    assert run(["release", "people.toml", *given, "--yes"]) == 0
    assert (folder / "elsewhere" / "out" / "report.html").exists()
    assert not (folder / "out-2026-01").exists()
    text = Ledger("budget.db", dataset="people-2026").entries()[-1].text
    assert "from rows.parquet" in text
    assert run(["budget", "people.toml", *given, "--quiet"]) == 0


def test_what_to_run_repeats_what_was_given(folder: Path) -> None:
    spec = load_spec("people.toml", variables={"MONTH": "it's May"}, source="a b.csv", output="out dir")
    assert spec.command == """people.toml --set 'MONTH=it'"'"'s May' --source 'a b.csv' --output 'out dir'"""
    assert load_spec("people.toml", variables={"MONTH": "x"}, source="duckdb://p.db").data.source == "duckdb://p.db"


def test_a_password_does_not_reach_the_ledger() -> None:
    text = SPEC.replace("people.csv", "postgres://me:secret@host/db").replace("dataset =", 'table = "rows"\ndataset =')
    assert purpose_of(read(text), None) == "People: tables P12, pairs, ages from postgres table rows by people.toml"
    assert "a table given in Python" in purpose_of(read(SPEC), people())
    long = purpose_of(read(SPEC.replace('"People"', f'"""\\n{"ü" * 300}\\n"""')), None)
    assert len(long) < 500
    assert long.isprintable()


@pytest.mark.parametrize(
    ("text", "variables", "words"),
    [
        (MONTHLY, {}, r"line 1, title: \${MONTH} has no value.*--set MONTH=2026-01"),
        (MONTHLY, {"MONTH": "x", "YEAR": "y"}, "The variable YEAR has a value"),
        (MONTHLY, {"MONTHS": "x", "MONTH": "y"}, r"Did you mean 'MONTH'"),
        (SPEC, {"A B": "x"}, "cannot name a variable"),
        (MONTHLY, {"MONTH": "a\nb"}, "one printable line"),
        (SPEC.replace('"F"]', '"${}"]'), {}, r"line 8, domain.sex\[2\]: \${} has no value"),
    ],
)
def test_variables_that_do_not_fit_are_refused_with_the_line(text: str, variables: dict[str, str], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read(text, **variables)


def test_values_are_text_and_never_syntax() -> None:
    spec = read(SPEC.replace('"People"', '"${T}, $${T}, $5 {T}"'), T='", [data] ${T}')
    assert spec.title == '", [data] ${T}, ${T}, $5 {T}'


def test_numbers_and_keys_are_not_variables() -> None:
    assert (
        read(SPEC.replace("time_limit = 1", 'time_limit = 1\nfolder = "${P}.plan"'), P="p").plan.folder.name == "p.plan"
    )
    with pytest.raises(SpecError, match="number"):
        read(SPEC.replace("time_limit = 1", 'time_limit = "${T}"'), T="1")


@pytest.mark.parametrize("given", ["MONTH", "=x", "MONTH=1"])
def test_set_is_checked_by_the_command_line(folder: Path, capsys: Captured, given: str) -> None:
    assert run(["check", "people.toml", "--set", "MONTH=2026-01", "--set", given]) == 2
    assert "MONTH" in capsys.readouterr().err


def test_init_writes_no_variables_by_accident(folder: Path) -> None:
    (folder / "dictionary.csv").write_text("name,values\nprice,${a}|$${b}\n")
    assert run(["init", "new.toml", "--from", "dictionary.csv", "--quiet"]) == 0
    assert load_spec("new.toml").domain["price"].labels == ("${a}", "$${b}")


def test_a_budget_needs_no_month(folder: Path, capsys: Captured) -> None:
    """Only variables in the name of the dataset or in [ledger] decide which account it is."""
    assert run(["release", "people.toml", "--set", "MONTH=2026-01", "--yes", "--quiet"]) == 0
    capsys.readouterr()
    assert run(["budget", "people.toml", "--json"]) == 0
    without = json.loads(capsys.readouterr().out)
    assert run(["budget", "people.toml", "--set", "MONTH=2026-01", "--json"]) == 0
    assert without == json.loads(capsys.readouterr().out)
    assert without["spent"] == "1/2"
    assert run(["budget", "people.toml", "--set", "MOTH=2026-01"]) == 1
    assert run(["budget", "people.toml", "--raise-cap", "--reason", "why"]) == 1  # which is recorded
    write_spec(folder, MONTHLY.replace('"people-2026"', '"people-${YEAR}"'))
    capsys.readouterr()
    assert run(["budget", "people.toml"]) == 1
    assert "${YEAR} has no value" in capsys.readouterr().err
